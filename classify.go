package toolhealth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth/internal/enum"
	"github.com/toolhealth/toolhealth/internal/errfacts"
	"github.com/toolhealth/toolhealth/internal/machine"
)

// Outcome is what the end of a call says about the tool. Its zero value is
// OutcomeSuccess.
type Outcome uint8

// The outcomes. Their texts are "success", "failure", "rejected", "throttled"
// and "neutral".
const (
	OutcomeSuccess   Outcome = Outcome(machine.Success)   // it worked
	OutcomeFailure   Outcome = Outcome(machine.Failure)   // it is the tool's fault: counts against it
	OutcomeRejected  Outcome = Outcome(machine.Rejected)  // the tool answered, and refused this request: it is alive
	OutcomeThrottled Outcome = Outcome(machine.Throttled) // the tool asked to wait
	OutcomeNeutral   Outcome = Outcome(machine.Neutral)   // no evidence: cancelled, never sent, denied by a policy
)

var outcomeTexts = []string{"success", "failure", "rejected", "throttled", "neutral"}

// String returns the text of o, or "Outcome(n)" for a value that is no outcome.
func (o Outcome) String() string { return enum.Text("Outcome", outcomeTexts, o) }

// MarshalText returns the text of o, and an error for a value that is no outcome.
func (o Outcome) MarshalText() ([]byte, error) { return enum.Marshal("Outcome", outcomeTexts, o) }

// UnmarshalText is the inverse of MarshalText.
func (o *Outcome) UnmarshalText(text []byte) error {
	return enum.Unmarshal("Outcome", outcomeTexts, text, o)
}

// Kind is what happened in a call, for people, metrics and stop reasons. Its
// zero value is KindNone: nothing went wrong.
type Kind uint8

// The kinds. Their texts are the words of the names in lower case, joined by
// underscores: "server_error".
const (
	KindNone           Kind = iota
	KindTimeout        Kind = Kind(machine.Timeout) // no answer in time, or a success that was too slow
	KindServerError    Kind = iota                  // the tool said that it failed: 5xx and its like
	KindRateLimited                                 // the tool said that it is asked too often
	KindConnection                                  // no connection, or one that broke
	KindContract                                    // the answer is not what was agreed: the tool changed its format
	KindPanic                                       // the tool function panicked
	KindInvalidRequest                              // the tool refused the arguments
	KindUnauthorized                                // the tool refused the caller
	KindNotFound                                    // the tool does not have what was asked for
	KindConflict                                    // the tool's state does not allow it
	KindCanceled                                    // somebody gave up
	KindNotDispatched                               // it never left this process, or was never taken up
	KindDenied                                      // a person or a policy of the host said no, or has yet to say yes
	KindRefused                                     // a breaker of this library refused
	KindUnknown                                     // an error that nothing is known of
	numKinds
)

var kindTexts = []string{
	"none", "timeout", "server_error", "rate_limited", "connection", "contract", "panic",
	"invalid_request", "unauthorized", "not_found", "conflict", "canceled", "not_dispatched",
	"denied", "refused", "unknown",
}

// String returns the text of k, or "Kind(n)" for a value that is no kind.
func (k Kind) String() string { return enum.Text("Kind", kindTexts, k) }

// MarshalText returns the text of k, and an error for a value that is no kind.
func (k Kind) MarshalText() ([]byte, error) { return enum.Marshal("Kind", kindTexts, k) }

// UnmarshalText is the inverse of MarshalText.
func (k *Kind) UnmarshalText(text []byte) error { return enum.Unmarshal("Kind", kindTexts, text, k) }

// kindPhrases are what the model reads of a kind.
var kindPhrases = [numKinds]string{
	KindTimeout: "no answer in time", KindServerError: "internal error of the tool",
	KindRateLimited: "rate limited", KindConnection: "the tool cannot be reached",
	KindContract: "the answer was not in the agreed format", KindPanic: "the tool crashed",
	KindInvalidRequest: "the request was rejected", KindUnauthorized: "access was refused",
	KindNotFound: "not found", KindConflict: "conflict with the current state",
	KindCanceled: "canceled", KindNotDispatched: "the request was not sent", KindDenied: "not permitted",
	KindRefused: "a tool that it needs is unavailable",
}

func kindPhrase(k Kind) string {
	if k < numKinds && kindPhrases[k] != "" {
		return kindPhrases[k]
	}
	return "unknown error"
}

// Verdict is what one ended call says. The zero Verdict is a success.
type Verdict struct {
	Outcome    Outcome
	Kind       Kind          // KindNone for a success
	Retryable  bool          // the same call may succeed later
	NotSent    bool          // it surely never reached the tool: safe to repeat whatever the tool does
	RetryAfter time.Duration // stated wait, 0 if none
}

// Classifier says what the error of a call means. ctx is the caller's, not one
// that was derived for the attempt. It is called on the call path, possibly from
// many goroutines.
type Classifier func(ctx context.Context, err error) Verdict

// Rule is a part of a Classifier: it knows some errors and reports false for all
// others.
type Rule func(err error) (Verdict, bool)

// ErrorRules is the default classification with a user's own rules put in. The
// zero value is [Classify]. Its Classify method is a [Classifier]:
//
//	gate.Classify = toolhealth.ErrorRules{Own: []toolhealth.Rule{...}}.Classify
type ErrorRules struct {
	// Own rules come after what an error says of itself (see WithVerdict) and
	// before all else, in this order; the first that knows the error decides.
	Own []Rule
	// NoText switches off the last resort: a short list of texts of errors that
	// can be told by nothing else.
	NoText bool
}

// Classify is the default Classifier. In this order:
//
//  1. nil is a success.
//  2. A refusal of this library, of whatever tool, is neutral.
//  3. An error with a method ToolVerdict() Verdict, or marked by WithVerdict, is
//     what it says.
//  4. If the caller's ctx is cancelled, it is neutral, whatever the error says.
//  5. If the caller's deadline has passed, it is a timeout and not retried. A
//     Gate and a Guard take it for neutral if the call was given less than their
//     DeadlineFloor.
//  6. A timeout of the guard is a failure that may be retried.
//  7. Status codes and well-known types decide: timeouts of the tool's own
//     client, HTTP, gRPC, JSON-RPC, SQL, Redis, network, process, file and JSON
//     errors, values as well as pointers, anywhere in a tree of errors.Join. Of
//     many, the most telling one counts. README.md has the table.
//  8. Anything else is a failure that is not retried.
//
// Errors that are cyclic, endless, nil inside or panic in their methods do no
// harm. What the types of errors can be asked is remembered, so that a common
// error costs no allocation.
func Classify(ctx context.Context, err error) Verdict { return ErrorRules{}.Classify(ctx, err) }

// Classify classifies as the function of that name does, with the rules. A rule
// that panics is passed over. Errors that are cyclic, or have more than a
// thousand nodes, are not shown to the rules: errors.As might never come back.
func (r ErrorRules) Classify(ctx context.Context, err error) Verdict {
	if err == nil {
		return Verdict{}
	}
	var buf [8]error // on the stack: most trees are small
	nodes, whole := errfacts.Tree(buf[:0], err)
	if v, ok := refusalVerdict(nodes); ok {
		return v
	}
	if v, ok := selfDescribed(nodes); ok {
		return v
	}
	if whole {
		for _, rule := range r.Own {
			if v, ok := rule.ask(err); ok {
				return v
			}
		}
	}
	if ctx != nil {
		switch ctx.Err() {
		case nil:
		case context.DeadlineExceeded:
			return Verdict{Outcome: OutcomeFailure, Kind: KindTimeout}
		default:
			return Verdict{Outcome: OutcomeNeutral, Kind: KindCanceled}
		}
	}
	for _, node := range nodes {
		if _, ok := node.(*attemptTimeoutError); ok {
			return vTimeout
		}
	}
	if !whole {
		return vUnknown
	}
	return verdictOf(errfacts.Of(nodes, !r.NoText))
}

// ask asks a rule that is somebody else's code.
func (rule Rule) ask(err error) (v Verdict, ok bool) {
	defer func() { _ = recover() }() // then ok is false
	return rule(err)
}

// ours is an error of this package that ends a call of its own.
type ours interface {
	// ran reports whether a tool has run: then what the tool said counts.
	ran() bool
	// refused returns the verdict of a refusal, and false if the error is none.
	refused() (Verdict, bool)
}

func refusalVerdict(nodes []error) (Verdict, bool) {
	for _, node := range nodes {
		own, ok := node.(ours)
		if !ok {
			continue
		}
		if own.ran() {
			return Verdict{}, false
		}
		if v, ok := own.refused(); ok {
			return v, true
		}
	}
	return Verdict{}, false
}

// ToolVerdicter is what an error implements that knows what it means.
type ToolVerdicter interface {
	error
	ToolVerdict() Verdict
}

func selfDescribed(nodes []error) (v Verdict, ok bool) {
	for _, node := range nodes {
		if d, is := node.(ToolVerdicter); is {
			if v, ok = askVerdict(d); ok {
				return v, true
			}
		}
	}
	return Verdict{}, false
}

func askVerdict(d ToolVerdicter) (v Verdict, ok bool) {
	defer func() { _ = recover() }() // then ok is false
	return d.ToolVerdict(), true
}

// WithVerdict marks an error with what it means, for the place that knows: the
// same JSON error is the model's fault when arguments are read and the tool's
// when its answer is. errors.Is and errors.As still see err. A nil err is nil.
func WithVerdict(err error, v Verdict) error {
	if err == nil {
		return nil
	}
	return &markedError{err, v}
}

type markedError struct {
	error
	verdict Verdict
}

func (e *markedError) Unwrap() error        { return e.error }
func (e *markedError) ToolVerdict() Verdict { return e.verdict }

// RuleFor returns a Rule for an error type of the user's own, anywhere in the tree:
//
//	toolhealth.RuleFor(func(e *openai.Error) toolhealth.Verdict {
//		return toolhealth.ClassifyHTTPStatus(e.StatusCode, e.Response.Header.Get("Retry-After"))
//	})
func RuleFor[E error](verdict func(E) Verdict) Rule {
	return func(err error) (Verdict, bool) {
		var buf [8]error
		nodes, _ := errfacts.Tree(buf[:0], err)
		for _, node := range nodes {
			if e, ok := node.(E); ok {
				return verdict(e), true
			}
		}
		return Verdict{}, false
	}
}

// NeutralRule returns a Rule for errors that say nothing about the tool: interrupts,
// pending approvals, denials by a policy of the host. They are never retried.
func NeutralRule(kind Kind, match func(error) bool) Rule {
	return func(err error) (Verdict, bool) {
		return Verdict{Outcome: OutcomeNeutral, Kind: kind}, match(err)
	}
}

// ClassifyHTTPStatus says what an HTTP answer means: 100 to 299 is a success;
// 408, 425, 429 and every 5xx but 501 and 505 is a retryable failure, and a 429
// with a wait a throttle; an unexpected 3xx is a failure, and so is what is no
// status; all other 4xx, 501 and 505 are rejected requests. retryAfter is the
// Retry-After header: seconds, with a fraction too, or an HTTP date. One that is
// negative, in the past or unreadable counts as absent, and one that is too large
// for a Duration as the largest.
func ClassifyHTTPStatus(code int, retryAfter string) Verdict {
	if code >= 100 && code < 300 {
		return Verdict{}
	}
	return httpVerdict(code, "", errfacts.RetryAfter(retryAfter))
}

// httpVerdict is ClassifyHTTPStatus for an error. name is the provider's own code.
func httpVerdict(code int, name string, wait time.Duration) Verdict {
	failure := Verdict{Outcome: OutcomeFailure, Kind: KindServerError, Retryable: true, RetryAfter: wait}
	rejected := Verdict{Outcome: OutcomeRejected, Kind: KindInvalidRequest, RetryAfter: wait}
	switch code {
	case 408:
		failure.Kind = KindTimeout
		return failure
	case 425: // too early: it was not taken up
		failure.Kind, failure.NotSent = KindNotDispatched, true
		return failure
	case 429:
		failure.Kind = KindRateLimited
		switch {
		case name == "insufficient_quota" || strings.Contains(name, "spend_limit"):
			failure.Retryable, failure.RetryAfter = false, 0 // no wait refills a purse
		case wait > 0:
			failure.Outcome = OutcomeThrottled
		}
		return failure
	case 401, 403, 407:
		rejected.Kind = KindUnauthorized
		return rejected
	case 404, 410:
		rejected.Kind = KindNotFound
		return rejected
	case 409:
		rejected.Kind = KindConflict
		return rejected
	case 501, 505:
		return rejected
	}
	switch code / 100 {
	case 5:
		return failure
	case 4:
		return rejected
	case 3:
		return Verdict{Outcome: OutcomeFailure, Kind: KindContract}
	}
	return Verdict{Outcome: OutcomeFailure, Kind: KindUnknown}
}

// Verdicts that the tables below share. "safe" ones were surely not sent.
var (
	vFailed      = Verdict{Outcome: OutcomeFailure, Kind: KindServerError}
	vRetry       = Verdict{Outcome: OutcomeFailure, Kind: KindServerError, Retryable: true}
	vLimited     = Verdict{Outcome: OutcomeFailure, Kind: KindRateLimited, Retryable: true}
	vTimeout     = Verdict{Outcome: OutcomeFailure, Kind: KindTimeout, Retryable: true}
	vSafeTimeout = Verdict{Outcome: OutcomeFailure, Kind: KindTimeout, Retryable: true, NotSent: true}
	vCut         = Verdict{Outcome: OutcomeFailure, Kind: KindConnection, Retryable: true}
	vUnreachable = Verdict{Outcome: OutcomeFailure, Kind: KindConnection, Retryable: true, NotSent: true}
	vNoHost      = Verdict{Outcome: OutcomeFailure, Kind: KindConnection, NotSent: true}
	vContract    = Verdict{Outcome: OutcomeFailure, Kind: KindContract}
	vMissing     = Verdict{Outcome: OutcomeFailure, Kind: KindNotFound, NotSent: true}
	vGaveUp      = Verdict{Outcome: OutcomeFailure, Kind: KindCanceled}
	vUnknown     = Verdict{Outcome: OutcomeFailure, Kind: KindUnknown}
	vInvalid     = Verdict{Outcome: OutcomeRejected, Kind: KindInvalidRequest}
	vNotFound    = Verdict{Outcome: OutcomeRejected, Kind: KindNotFound}
	vDenied      = Verdict{Outcome: OutcomeRejected, Kind: KindUnauthorized}
	vConflict    = Verdict{Outcome: OutcomeRejected, Kind: KindConflict}
	vCollided    = Verdict{Outcome: OutcomeRejected, Kind: KindConflict, Retryable: true}
	vUndecided   = Verdict{Outcome: OutcomeNeutral, Kind: KindContract}
	vHost        = Verdict{Outcome: OutcomeNeutral, Kind: KindNotDispatched, Retryable: true}
	vPending     = Verdict{Outcome: OutcomeNeutral, Kind: KindDenied}
	vRefused     = Verdict{Outcome: OutcomeNeutral, Kind: KindRefused, NotSent: true}
)

// classVerdicts are the facts that need no look at their code.
var classVerdicts = [...]Verdict{
	errfacts.None:          vUnknown,
	errfacts.HostExhausted: vHost,
	errfacts.NameNotFound:  vNoHost,
	errfacts.TLS:           vNoHost,
	errfacts.TLSAlert:      {Outcome: OutcomeFailure, Kind: KindConnection},
	errfacts.BadRequestURL: vNoHost,
	errfacts.Timeout:       vTimeout,
	errfacts.Throttled:     vLimited,
	errfacts.NoRows:        vNotFound,
	errfacts.RefusedStream: vUnreachable,
	errfacts.Stream:        vCut,
	errfacts.Broken:        vCut,
	errfacts.BadConn:       vUnreachable,
	errfacts.NotExecutable: vMissing,
	errfacts.Permission:    vDenied,
	errfacts.NotExist:      vNotFound,
	errfacts.Exist:         vConflict,
	errfacts.JSON:          vUndecided,
	errfacts.Canceled:      vGaveUp,
	errfacts.OpenBreaker:   vRefused,
	errfacts.Nonsense:      vContract,
}

// grpcVerdicts are indexed by the gRPC code.
var grpcVerdicts = [17]Verdict{
	1: vGaveUp, 2: vFailed, 3: vInvalid, 4: vTimeout, 5: vNotFound, 6: vConflict, 7: vDenied, 8: vLimited,
	9: vConflict, 10: vCollided, 11: vInvalid, 12: vInvalid, 13: vFailed, 14: vRetry, 15: vFailed, 16: vDenied,
}

// rpcVerdicts are the codes of JSON-RPC and MCP; others in the range are vFailed.
var rpcVerdicts = map[int]Verdict{
	-32700: vInvalid, -32600: vInvalid, -32601: vNotFound, -32602: vInvalid, -32603: vRetry,
	-32000: vCut, -32001: vTimeout, -32002: vNotFound, -32003: vCut, -32004: vCut, -32005: vRetry,
	-32020: vContract, -32021: vContract, -32022: vContract,
	-32029: vLimited, -32042: vPending, -32800: vGaveUp,
	32600: vCut, // "Session terminated" of the Python servers, with this sign
}

// sqlVerdicts are prefixes of SQLSTATEs; the longest that fits counts.
var sqlVerdicts = map[string]Verdict{
	"40001": vCollided, "40P01": vCollided, "55P03": vCollided,
	"08": vCut, "57P01": vCut, "57P02": vCut, "57P03": vCut, "53": vRetry,
	"57014": {Outcome: OutcomeFailure, Kind: KindTimeout},
	"22":    vInvalid, "23": vInvalid, "42": vInvalid, "28": vDenied, "25006": vFailed,
	"XX": vFailed, "58": vFailed,
}

var mysqlVerdicts = map[int]Verdict{
	1205: vCollided, 1213: vCollided, 1040: vRetry, 1203: vRetry,
	1044: vDenied, 1045: vDenied, 1142: vDenied, 1290: vFailed,
	1048: vInvalid, 1054: vInvalid, 1062: vConflict, 1064: vInvalid, 1146: vNotFound,
	1364: vInvalid, 1366: vInvalid, 1406: vInvalid, 1451: vConflict, 1452: vConflict,
}

// redisVerdicts are the first words of Redis answers; others are vInvalid.
var redisVerdicts = map[string]Verdict{
	"LOADING": vRetry, "CLUSTERDOWN": vRetry, "MASTERDOWN": vRetry, "TRYAGAIN": vRetry,
	"READONLY": vRetry, "MAXCLIENTS": vRetry, "OOM": vFailed, "NOAUTH": vDenied, "NOPERM": vDenied,
}

// verdictOf is rules 7 and 8.
func verdictOf(f errfacts.Facts) Verdict {
	v := factVerdict(f)
	if v.Outcome == OutcomeRejected || v.Outcome == OutcomeNeutral {
		return v
	}
	if v.Kind == KindRateLimited && v.Retryable && f.Wait > 0 {
		v.Outcome = OutcomeThrottled
	}
	if f.Retry != 0 {
		v.Retryable = f.Retry > 0
	}
	if v.Retryable || v.Outcome == OutcomeThrottled {
		v.RetryAfter = f.Wait
	}
	v.NotSent = v.NotSent || f.NotSent
	return v
}

func factVerdict(f errfacts.Facts) Verdict {
	switch f.Class {
	case errfacts.None:
		if f.Wait > 0 && f.Retry >= 0 {
			return vLimited // all it says is: wait
		}
	case errfacts.Dial, errfacts.NameFailed:
		if f.Code != 0 {
			return vSafeTimeout
		}
		return vUnreachable
	case errfacts.HTTP:
		return httpVerdict(f.Code, f.Name, f.Wait)
	case errfacts.GRPC:
		return grpcVerdicts[f.Code]
	case errfacts.JSONRPC:
		if v, ok := rpcVerdicts[f.Code]; ok {
			return v
		}
		return vFailed
	case errfacts.SQLState:
		for _, prefix := range []string{f.Name, f.Name[:2]} {
			if v, ok := sqlVerdicts[prefix]; ok {
				return v
			}
		}
		return vUnknown
	case errfacts.MySQL:
		if v, ok := mysqlVerdicts[f.Code]; ok {
			return v
		}
		return vUnknown
	case errfacts.Redis:
		if v, ok := redisVerdicts[f.Name]; ok {
			return v
		}
		return vInvalid
	case errfacts.Exit:
		switch {
		case f.Code == 126 || f.Code == 127:
			return Verdict{Outcome: OutcomeFailure, Kind: KindNotFound}
		case f.Code >= 1 && f.Code <= 125:
			return vInvalid
		}
		return vUnknown
	}
	return classVerdicts[f.Class]
}

// stopReason says how to go on after an attempt that was no success. open is what
// openFor says; unsafe, that the attempt may have changed something; pending, that an
// earlier attempt of the call is still in progress.
func stopReason(v Verdict, attempt, limit int, open StopReason, unsafe, pending bool) StopReason {
	switch {
	case v.Outcome == OutcomeNeutral && v.Kind == KindCanceled:
		return StopCanceled
	case pending && (unsafe || open != StopNone || attempt >= limit):
		return StopOutcomeUnknown
	case pending:
		return RetryAllowed
	case v.Outcome == OutcomeFailure && v.Kind == KindContract && !v.Retryable:
		return StopContractViolation
	case v.Outcome == OutcomeFailure && unsafe:
		return StopOutcomeUnknown
	case !v.Retryable:
		return StopNonRetryable
	case open != StopNone:
		return open
	case v.Outcome == OutcomeThrottled && unsafe:
		return StopRateLimited
	case unsafe:
		return StopNonRetryable
	case attempt >= limit:
		return StopRetryExhausted
	}
	return RetryAllowed
}

// attemptTimeoutError marks the error of an attempt whose own time was up while
// the caller's was not.
type attemptTimeoutError struct{ err error }

func (e *attemptTimeoutError) Error() string   { return e.err.Error() }
func (e *attemptTimeoutError) Unwrap() error   { return e.err }
func (e *attemptTimeoutError) Timeout() bool   { return true }
func (e *attemptTimeoutError) Is(t error) bool { return t == context.DeadlineExceeded }

// PanicError is a panic of a tool function.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

// Error has the value, without the stack. It is for logs, not for the model.
func (e *PanicError) Error() string { return fmt.Sprintf("tool function panicked: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ToolVerdict is a failure that is not retried.
func (e *PanicError) ToolVerdict() Verdict {
	return Verdict{Outcome: OutcomeFailure, Kind: KindPanic}
}

// verdictAt is Classify for a call that took this long: a deadline of the caller
// that left it no fair chance is no evidence.
func verdictAt(ctx context.Context, classify Classifier, err error, took, floor time.Duration) Verdict {
	if err == nil {
		return Verdict{}
	}
	v := ask(ctx, classify, err)
	if v.Kind >= numKinds {
		v.Kind = KindUnknown
	}
	if v.Outcome == OutcomeFailure && v.Kind == KindTimeout && took < floor &&
		ctx != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return Verdict{Outcome: OutcomeNeutral, Kind: KindCanceled}
	}
	return v
}

// ask calls a classifier that is somebody else's code.
func ask(ctx context.Context, classify Classifier, err error) (v Verdict) {
	if classify == nil {
		return Classify(ctx, err)
	}
	defer func() {
		if recover() != nil {
			v = vUnknown
		}
	}()
	return classify(ctx, err)
}

// StopReason says why a call ended, or that it may be retried. Its zero value is
// StopNone. The texts are stable: hosts may match on them and label metrics with
// them.
type StopReason uint8

// The stop reasons. README.md says what a host should do about each.
const (
	StopNone                 StopReason = StopReason(machine.Admitted)      // "none"
	StopCircuitOpen          StopReason = StopReason(machine.CircuitOpen)   // "tool_unavailable:circuit_open"
	StopProbeInFlight        StopReason = StopReason(machine.ProbeInFlight) // "tool_unavailable:probe_in_flight"
	StopRateLimited          StopReason = StopReason(machine.RateLimited)   // "tool_unavailable:rate_limited"
	StopIsolated             StopReason = StopReason(machine.Isolated)      // "tool_unavailable:isolated"
	StopUnknownTool          StopReason = iota                              // "tool_unavailable:unknown_tool"
	StopNonRetryable                                                        // "tool_failure:non_retryable"
	StopRetryExhausted                                                      // "tool_failure:retry_exhausted"
	StopRetryBudgetExhausted                                                // "tool_failure:retry_budget_exhausted"
	StopTimeout                                                             // "tool_failure:timeout": the caller's deadline ended an attempt
	StopOutcomeUnknown                                                      // "tool_failure:outcome_unknown": a tool with side effects may have run
	StopContractViolation                                                   // "tool_failure:contract_violation"
	StopCanceled                                                            // "tool_canceled"
	RetryAllowed                                                            // "tool_retry:allowed": the verdict that it may go on
)

var stopTexts = []string{
	"none",
	"tool_unavailable:circuit_open", "tool_unavailable:probe_in_flight", "tool_unavailable:rate_limited",
	"tool_unavailable:isolated", "tool_unavailable:unknown_tool",
	"tool_failure:non_retryable", "tool_failure:retry_exhausted", "tool_failure:retry_budget_exhausted",
	"tool_failure:timeout",
	"tool_failure:outcome_unknown", "tool_failure:contract_violation",
	"tool_canceled",
	"tool_retry:allowed",
}

// String returns the text of r, or "StopReason(n)" for a value that is no reason.
func (r StopReason) String() string { return enum.Text("StopReason", stopTexts, r) }

// Detail returns the text after the colon, such as "circuit_open", or the whole
// text if it has none.
func (r StopReason) Detail() string {
	text := r.String()
	return text[strings.IndexByte(text, ':')+1:]
}

// MarshalText returns the text of r, and an error for a value that is no reason.
func (r StopReason) MarshalText() ([]byte, error) { return enum.Marshal("StopReason", stopTexts, r) }

// UnmarshalText is the inverse of MarshalText.
func (r *StopReason) UnmarshalText(text []byte) error {
	return enum.Unmarshal("StopReason", stopTexts, text, r)
}

// refusalReason is the inverse of Detail for what a gate can say.
func refusalReason(detail string) (StopReason, error) {
	for r := StopNone; r <= StopUnknownTool; r++ {
		if r.Detail() == detail {
			return r, nil
		}
	}
	return StopNone, fmt.Errorf("toolhealth: reason: unknown text %.40q", detail)
}
