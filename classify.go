package toolhealth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth/internal/enum"
	"github.com/toolhealth/toolhealth/internal/errfacts"
)

// Outcome is what the end of a call says about the tool. Its zero value is
// OutcomeSuccess.
type Outcome uint8

// The outcomes. Their texts are "success", "failure", "rejected", "throttled"
// and "neutral".
const (
	OutcomeSuccess   Outcome = iota // it worked
	OutcomeFailure                  // it is the tool's fault: counts against it
	OutcomeRejected                 // the tool answered, and refused this request: it is alive
	OutcomeThrottled                // the tool asked to wait
	OutcomeNeutral                  // no evidence: cancelled, never sent, denied by a policy
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
	KindTimeout             // no answer in time, or a success that was too slow
	KindServerError         // the tool said that it failed: 5xx and its like
	KindRateLimited         // the tool said that it is asked too often
	KindConnection          // no connection, or one that broke
	KindContract            // the answer is not what was agreed: the tool changed its format
	KindPanic               // the tool function panicked
	KindInvalidRequest      // the tool refused the arguments
	KindUnauthorized        // the tool refused the caller
	KindNotFound            // the tool does not have what was asked for
	KindConflict            // the tool's state does not allow it
	KindCanceled            // somebody gave up
	KindNotDispatched       // it never left this process, or was never taken up
	KindDenied              // a person or a policy of the host said no, or has yet to say yes
	KindRefused             // a breaker of this library refused
	KindUnknown             // an error that nothing is known of
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

// For returns a Rule for an error type of the user's own, anywhere in the tree:
//
//	toolhealth.For(func(e *openai.Error) toolhealth.Verdict {
//		return toolhealth.ClassifyHTTPStatus(e.StatusCode, e.Response.Header.Get("Retry-After"))
//	})
func For[E error](verdict func(E) Verdict) Rule {
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

// Neutral returns a Rule for errors that say nothing about the tool: interrupts,
// pending approvals, denials by a policy of the host. They are never retried.
func Neutral(kind Kind, match func(error) bool) Rule {
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
	return verdictOf(errfacts.Facts{Fact: errfacts.Fact{Class: errfacts.HTTP, Code: code, Name: name}, Wait: wait})
}

// verdicts say what each meaning is worth.
var verdicts = [...]Verdict{
	errfacts.Unknown:           {Outcome: OutcomeFailure, Kind: KindUnknown},
	errfacts.Failed:            {Outcome: OutcomeFailure, Kind: KindServerError},
	errfacts.Unavailable:       {Outcome: OutcomeFailure, Kind: KindServerError, Retryable: true},
	errfacts.Limited:           {Outcome: OutcomeFailure, Kind: KindRateLimited, Retryable: true}, // a throttle if a wait is stated
	errfacts.QuotaExhausted:    {Outcome: OutcomeFailure, Kind: KindRateLimited},
	errfacts.TimedOut:          {Outcome: OutcomeFailure, Kind: KindTimeout, Retryable: true},
	errfacts.StatementTimedOut: {Outcome: OutcomeFailure, Kind: KindTimeout},
	errfacts.DialTimedOut:      {Outcome: OutcomeFailure, Kind: KindTimeout, Retryable: true, NotSent: true},
	errfacts.Cut:               {Outcome: OutcomeFailure, Kind: KindConnection, Retryable: true},
	errfacts.CutHandshake:      {Outcome: OutcomeFailure, Kind: KindConnection},
	errfacts.Unreachable:       {Outcome: OutcomeFailure, Kind: KindConnection, Retryable: true, NotSent: true},
	errfacts.Misaddressed:      {Outcome: OutcomeFailure, Kind: KindConnection, NotSent: true},
	errfacts.Unagreed:          {Outcome: OutcomeFailure, Kind: KindContract},
	errfacts.NoProgram:         {Outcome: OutcomeFailure, Kind: KindNotFound, NotSent: true},
	errfacts.NoCommand:         {Outcome: OutcomeFailure, Kind: KindNotFound},
	errfacts.CanceledInside:    {Outcome: OutcomeFailure, Kind: KindCanceled},
	errfacts.NotTakenUp:        {Outcome: OutcomeFailure, Kind: KindNotDispatched, Retryable: true, NotSent: true},
	errfacts.Invalid:           {Outcome: OutcomeRejected, Kind: KindInvalidRequest},
	errfacts.NotFound:          {Outcome: OutcomeRejected, Kind: KindNotFound},
	errfacts.Denied:            {Outcome: OutcomeRejected, Kind: KindUnauthorized},
	errfacts.Conflict:          {Outcome: OutcomeRejected, Kind: KindConflict},
	errfacts.Collided:          {Outcome: OutcomeRejected, Kind: KindConflict, Retryable: true},
	errfacts.Ambiguous:         {Outcome: OutcomeNeutral, Kind: KindContract},
	errfacts.OutOfResources:    {Outcome: OutcomeNeutral, Kind: KindNotDispatched, Retryable: true},
	errfacts.Pending:           {Outcome: OutcomeNeutral, Kind: KindDenied},
	errfacts.Refused:           {Outcome: OutcomeNeutral, Kind: KindRefused, NotSent: true},
}

// Verdicts that are given without a look at the error.
var (
	vUnknown  = verdicts[errfacts.Unknown]
	vTimeout  = verdicts[errfacts.TimedOut]
	vContract = verdicts[errfacts.Unagreed]
	vRefused  = verdicts[errfacts.Refused]
)

// verdictOf is rules 7 and 8.
func verdictOf(f errfacts.Facts) Verdict {
	m := f.Meaning()
	if f.Class == errfacts.None && f.Wait > 0 && f.Retry >= 0 {
		m = errfacts.Limited // all it says is: wait
	}
	v := verdicts[m]
	switch v.Outcome {
	case OutcomeRejected:
		if f.Class == errfacts.HTTP {
			v.RetryAfter = f.Wait // for callers that read it: a rejection makes nobody wait
		}
		return v
	case OutcomeNeutral:
		return v
	}
	if m == errfacts.Limited && f.Wait > 0 {
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

// attemptTimeoutError marks the error of an attempt whose own time was up while
// the caller's was not.
type attemptTimeoutError struct{ err error }

func (e *attemptTimeoutError) Error() string   { return e.err.Error() }
func (e *attemptTimeoutError) Unwrap() error   { return e.err }
func (e *attemptTimeoutError) Timeout() bool   { return true }
func (e *attemptTimeoutError) Is(t error) bool { return t == context.DeadlineExceeded }

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
	StopNone                 StopReason = iota // "none"
	StopCircuitOpen                            // "tool_unavailable:circuit_open"
	StopProbeInFlight                          // "tool_unavailable:probe_in_flight"
	StopRateLimited                            // "tool_unavailable:rate_limited"
	StopIsolated                               // "tool_unavailable:isolated"
	StopUnknownTool                            // "tool_unavailable:unknown_tool"
	StopNonRetryable                           // "tool_failure:non_retryable"
	StopRetryExhausted                         // "tool_failure:retry_exhausted"
	StopRetryBudgetExhausted                   // "tool_failure:retry_budget_exhausted"
	StopOutcomeUnknown                         // "tool_failure:outcome_unknown": a tool with side effects may have run
	StopContractViolation                      // "tool_failure:contract_violation"
	StopCanceled                               // "tool_canceled"
	RetryAllowed                               // "tool_retry:allowed": the verdict that it may go on
)

var stopTexts = []string{
	"none",
	"tool_unavailable:circuit_open", "tool_unavailable:probe_in_flight", "tool_unavailable:rate_limited",
	"tool_unavailable:isolated", "tool_unavailable:unknown_tool",
	"tool_failure:non_retryable", "tool_failure:retry_exhausted", "tool_failure:retry_budget_exhausted",
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
