package toolhealth

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/toolhealth/toolhealth/internal/enum"
	"github.com/toolhealth/toolhealth/internal/errfacts"
	"github.com/toolhealth/toolhealth/internal/frame"
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
	OutcomeRejected  Outcome = Outcome(machine.Rejected)  // the tool answered, and refused this request: it is alive, unless NotSent
	OutcomeThrottled Outcome = Outcome(machine.Throttled) // the tool asked to wait
	OutcomeNeutral   Outcome = Outcome(machine.Neutral)   // no evidence: canceled, never sent, denied by a policy
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

// The kinds, and what a host should do about each. Their texts are the words of the
// names in lower case, joined by underscores: "server_error".
const (
	KindNone           Kind = iota
	KindTimeout        Kind = Kind(machine.Timeout)     // no answer in time, or a success that was too slow
	KindServerError    Kind = Kind(machine.ServerError) // the tool said that it failed, by 5xx and its like: its operator has to look
	KindRateLimited    Kind = iota                      // the tool is called too often: call less, retries do not help
	KindQuotaExhausted                                  // the account at the tool is used up: buy more, no wait mends it
	KindConnection     Kind = Kind(machine.Connection)  // no connection, or one that broke
	KindContract       Kind = iota                      // the answer is not in the agreed format: the tool has changed, a person has to look
	KindPanic                                           // the tool function panicked
	KindInvalidRequest                                  // the tool refused the arguments: show the model the tool's own answer
	KindUnauthorized                                    // the tool refused the caller: renew the credentials
	KindNotFound                                        // the tool does not have what was asked for
	KindGone                                            // the tool no longer offers this, or never did: 410, an unknown method
	KindConflict                                        // the tool's state does not allow it
	KindCanceled                                        // the caller, or a context inside the tool, was canceled
	KindNotDispatched                                   // the call never left this process, or was never taken up
	KindDenied                                          // a person or a policy of the host said no, or has yet to say yes
	KindRefused                                         // a breaker refused
	KindUnknown                                         // an error of which nothing is known: add a rule, see ErrorRules
	numKinds
)

var kindTexts = []string{
	"none", "timeout", "server_error", "rate_limited", "quota_exhausted", "connection", "contract",
	"panic", "invalid_request", "unauthorized", "not_found", "gone", "conflict", "canceled",
	"not_dispatched", "denied", "refused", "unknown",
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
	KindRateLimited: "rate limited", KindQuotaExhausted: "the quota is used up", KindConnection: "the tool cannot be reached",
	KindContract: "the answer was not in the agreed format", KindPanic: "the tool crashed",
	KindInvalidRequest: "the request was rejected", KindUnauthorized: "access was refused",
	KindNotFound: "not found", KindGone: "not offered any more", KindConflict: "conflict with the current state",
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
	RetryAfter time.Duration // wait that a throttle or a failure stated; zero means none
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
	// NoText switches off the last resort: a short list of texts, for errors that
	// nothing else tells.
	NoText bool
	// Unknown is the verdict on an error of which nothing is known. The zero value
	// means a failure of kind unknown that is not retried. A server whose handlers
	// return plain errors for wrong arguments sets a rejection.
	Unknown Verdict
	// Wait is asked first for the wait that an error states, for errors that state
	// one in a way that Classify does not know. It reports false for all others. A
	// Wait that panics is passed over.
	Wait func(err error) (time.Duration, bool)
}

// Classify is the default Classifier. In this order:
//
//  1. nil is a success.
//  2. A refusal of this library, of whatever tool, is neutral. It says nothing
//     about whether the tool around it has acted.
//  3. An error with a method ToolVerdict() Verdict, or marked by WithVerdict, is
//     what it says.
//  4. If the caller's ctx is canceled, it is neutral, whatever the error says.
//  5. If the caller's deadline has passed, or its ctx was canceled with the cause
//     [context.DeadlineExceeded], it is a timeout and not retried. A Gate and a
//     Guard take it for neutral if the call was given less than their
//     DeadlineFloor.
//  6. A timeout of the guard is a failure that may be retried.
//  7. Codes and well-known types decide, values as well as pointers, anywhere in a
//     tree of errors.Join; see the list below. Of many, the most telling one counts,
//     and a provider's own code counts before the status beside it.
//  8. Anything else is a failure that is not retried, or ErrorRules.Unknown.
//
// Where rules 7 and 8 find nothing, or JSON that could not be read, or no wait,
// a note in ctx decides: see [Note].
//
// What rule 7 knows, without importing any of it:
//
//   - The host has no descriptors, memory or disk left: neutral, not_dispatched.
//   - Refused connections and other dial errors, DNS trouble, a refused HTTP/2 stream,
//     a connection or session that was closed before the call: failure, connection or
//     timeout, retryable, not sent. No such host, TLS, a bad URL: the same, not
//     retryable. A reset, EOF, a lost session: failure, connection, retryable.
//   - A timeout of the tool's own client, 408, exit code 124: failure, timeout,
//     retryable.
//   - 5xx but 501 and 505, gRPC Unavailable, JSON-RPC -32603, an overloaded database:
//     failure, server_error, retryable. gRPC Unknown, Internal and DataLoss, internal
//     errors of databases, a failure in the middle of a stream: not retryable.
//   - 429 and its like: throttled if it states a wait, else failure; rate_limited,
//     retryable. 402 and an empty quota: failure, quota_exhausted. 425: failure,
//     not_dispatched, retryable, not sent.
//   - 401, 403, 407 and their like: rejected, unauthorized. 404, no rows, no such file:
//     rejected, not_found. 410, an unknown method: rejected, gone. 409, exists already:
//     rejected, conflict; retryable for a deadlock of a database. Every other 4xx, 501,
//     505, invalid arguments, exit codes 1 to 125: rejected, invalid_request.
//   - 304: a success.
//   - An unexpected 3xx, a page in the place of JSON, a malformed answer, a wrong
//     protocol version: failure, contract. Other JSON that cannot be read: neutral,
//     contract, because only the place knows whose fault it is; see WithVerdict.
//   - A context that is not the caller's was canceled: failure, canceled. A question to
//     a person: neutral, denied. A refusal of another breaker library: neutral, refused.
//   - Command not found, exit codes 126 and 127: failure, not_found.
//
// A wait makes a throttle: a 400, 403 or 429 and a rate code of gRPC or JSON-RPC
// that states one is throttled. A failure keeps its wait; elsewhere the wait is for
// the caller only. A verdict is NotSent only if every leaf of the error says that
// the request was surely not sent.
//
// Errors that are cyclic, endless, nil inside or panic in their methods do no
// harm. What the types of errors can be asked is remembered, so that a common
// error costs no allocation.
func Classify(ctx context.Context, err error) Verdict { return noRules.classify(ctx, err) }

var noRules ErrorRules

// Classify classifies as the function of that name does, with the rules. A rule
// that panics is passed over. Errors that are cyclic, or have more than a
// thousand nodes, are not shown to the rules: errors.As might never come back.
func (r ErrorRules) Classify(ctx context.Context, err error) Verdict { return r.classify(ctx, err) }

func (r *ErrorRules) classify(ctx context.Context, err error) Verdict {
	if err == nil {
		return Verdict{}
	}
	if own, ok := err.(ours); ok { // before the walk, which costs more than the answer
		if v, refused := own.refused(); refused {
			return v
		}
	}
	var buf [8]error // on the stack: most trees are small
	nodes, whole := errfacts.Tree(buf[:0], err)
	if v, ok := refusalVerdict(nodes); ok {
		return v
	}
	if v, ok := selfDescribed(nodes); ok {
		v.NotSent = v.NotSent && (len(nodes) == 1 || whole && errfacts.EachLeaf(nodes, describedUnsent))
		return v
	}
	if whole {
		for _, rule := range r.Own {
			if v, ok := rule.ask(err); ok {
				return v
			}
		}
	}
	if ctx != nil && ctx.Err() != nil {
		if callersEnd(ctx) == context.DeadlineExceeded {
			return Verdict{Outcome: OutcomeFailure, Kind: KindTimeout}
		}
		return vCanceled
	}
	for _, node := range nodes {
		if _, ok := node.(*attemptTimeoutError); ok {
			return verdicts[errfacts.TimedOut]
		}
	}
	v := vUnknown
	if whole {
		facts := errfacts.Of(nodes, !r.NoText)
		if r.Wait != nil {
			if wait, ok := r.askWait(err); ok {
				facts.Wait = max(wait, 0)
			}
		}
		v = verdictOf(facts)
	}
	if v.Outcome == OutcomeFailure || v.Kind == KindContract || v.NotSent {
		if note, ok := NoteOf(ctx); ok {
			v = v.withNote(note)
		}
		if v == vUnknown && r.Unknown != (Verdict{}) {
			return r.Unknown
		}
	}
	return v
}

// callersEnd is ctx.Err(), but context.DeadlineExceeded if that is the cause of a
// cancellation: then a timer of the caller's has ended the call.
func callersEnd(ctx context.Context) error {
	if ctx == nil {
		return nil
	}
	err := ctx.Err()
	if err != nil && err != context.DeadlineExceeded && context.Cause(ctx) == context.DeadlineExceeded {
		return context.DeadlineExceeded
	}
	return err
}

// askWait asks the user's own Wait.
func (r *ErrorRules) askWait(err error) (wait time.Duration, ok bool) {
	defer func() { _ = recover() }() // then ok is false
	return r.Wait(err)
}

// ask asks a rule, which is the user's code.
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

// describedUnsent reports whether a node says, in whatever way, that the request was
// not sent.
func describedUnsent(node error) bool {
	if d, ok := node.(ToolVerdicter); ok {
		v, said := askVerdict(d)
		return said && v.NotSent
	}
	return errfacts.Unsent(node)
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

// BadRequest marks an error as the caller's fault: rejected, of kind invalid_request, not
// sent. It is for arguments that the tool's own code refuses before it sends anything,
// since a plain error counts against the tool: once anything has been sent, it is a
// false statement that [Policy].SideEffects relies on. The model reads its text, see
// [ModelText]. A nil err is nil.
func BadRequest(err error) error {
	return WithVerdict(err, Verdict{Outcome: OutcomeRejected, Kind: KindInvalidRequest, NotSent: true})
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
//		return toolhealth.ClassifyHTTP(e.StatusCode, e.Response.Header)
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

// ClassifyHTTP says what an HTTP answer means. 100 to 299 and 304 are a success. 408,
// 429 and every 5xx but 501 and 505 are failures that may be retried, and so is 425,
// which was surely not taken up. 402 is an exhausted quota, an unexpected 3xx a broken
// contract; what is no status is unknown. All other 4xx, 501 and 505 are rejected
// requests. A 400, 403 or 429 that states a wait is a throttle.
//
// header takes an [net/http.Header] as it is, and may be nil. It is searched for a
// wait: Retry-After in seconds, with a fraction too, or as an HTTP date, which is
// compared with the answer's own Date; Retry-After-Ms and its cousins; and, with a
// 429 or where nothing remains, the headers that say when a rate limit is reset. A
// wait that is negative, past or unreadable counts as absent.
func ClassifyHTTP(code int, header map[string][]string) Verdict {
	if code >= 100 && code < 300 {
		return Verdict{}
	}
	return verdictOf(errfacts.OfStatus(code, errfacts.HeaderOf(header)))
}

// CheckStatus returns nil for a status of 2xx and for 304, and a *StatusError for any
// other: http.Client takes every answer for a success. header takes an
// [net/http.Header] as it is, is kept and not copied, and may be nil.
//
//	resp, err := client.Do(req)
//	if err == nil {
//		defer resp.Body.Close()
//		err = toolhealth.CheckStatus(resp.StatusCode, resp.Header)
//	}
func CheckStatus(code int, header map[string][]string) error {
	if code >= 200 && code < 300 || code == 304 {
		return nil
	}
	return &StatusError{StatusCode: code, Header: header}
}

// StatusError is the error of an HTTP answer that is no success. [Classify] takes it
// for what [ClassifyHTTP] says of its status and header. A user's own Rule may think
// otherwise: behind a proxy that answers 404 for a service that is down, for example,
// a 404 is a failure.
type StatusError struct {
	StatusCode int
	Header     map[string][]string // of the answer; nil if unknown
}

// Error returns a short text with the status and nothing else of the answer.
func (e *StatusError) Error() string { return "HTTP status " + strconv.Itoa(e.StatusCode) }

// verdicts say what each meaning is worth.
var verdicts = [...]Verdict{
	errfacts.Unknown:           {Outcome: OutcomeFailure, Kind: KindUnknown},
	errfacts.Failed:            {Outcome: OutcomeFailure, Kind: KindServerError},
	errfacts.Unavailable:       {Outcome: OutcomeFailure, Kind: KindServerError, Retryable: true},
	errfacts.Limited:           {Outcome: OutcomeFailure, Kind: KindRateLimited, Retryable: true}, // a throttle if a wait is stated
	errfacts.QuotaExhausted:    {Outcome: OutcomeFailure, Kind: KindQuotaExhausted},
	errfacts.TimedOut:          {Outcome: OutcomeFailure, Kind: KindTimeout, Retryable: true},
	errfacts.StatementTimedOut: {Outcome: OutcomeFailure, Kind: KindTimeout},
	errfacts.DialTimedOut:      {Outcome: OutcomeFailure, Kind: KindTimeout, Retryable: true},
	errfacts.Cut:               {Outcome: OutcomeFailure, Kind: KindConnection, Retryable: true},
	errfacts.CutHandshake:      {Outcome: OutcomeFailure, Kind: KindConnection},
	errfacts.Unreachable:       {Outcome: OutcomeFailure, Kind: KindConnection, Retryable: true},
	errfacts.Misaddressed:      {Outcome: OutcomeFailure, Kind: KindConnection},
	errfacts.Unagreed:          {Outcome: OutcomeFailure, Kind: KindContract},
	errfacts.NoProgram:         {Outcome: OutcomeFailure, Kind: KindNotFound},
	errfacts.NoCommand:         {Outcome: OutcomeFailure, Kind: KindNotFound},
	errfacts.CanceledInside:    {Outcome: OutcomeFailure, Kind: KindCanceled},
	errfacts.NotTakenUp:        {Outcome: OutcomeFailure, Kind: KindNotDispatched, Retryable: true},
	errfacts.Invalid:           {Outcome: OutcomeRejected, Kind: KindInvalidRequest},
	errfacts.NotFound:          {Outcome: OutcomeRejected, Kind: KindNotFound},
	errfacts.Gone:              {Outcome: OutcomeRejected, Kind: KindGone},
	errfacts.Denied:            {Outcome: OutcomeRejected, Kind: KindUnauthorized},
	errfacts.Conflict:          {Outcome: OutcomeRejected, Kind: KindConflict},
	errfacts.Collided:          {Outcome: OutcomeRejected, Kind: KindConflict, Retryable: true},
	errfacts.Ambiguous:         {Outcome: OutcomeNeutral, Kind: KindContract},
	errfacts.OutOfResources:    {Outcome: OutcomeNeutral, Kind: KindNotDispatched, Retryable: true},
	errfacts.Pending:           {Outcome: OutcomeNeutral, Kind: KindDenied},
	errfacts.Refused:           {Outcome: OutcomeNeutral, Kind: KindRefused},
	errfacts.Unchanged:         {},
}

// Verdicts that are given without a look at the error, or compared with.
var (
	vUnknown   = verdicts[errfacts.Unknown]
	vContract  = verdicts[errfacts.Unagreed]
	vAmbiguous = verdicts[errfacts.Ambiguous]
	vRefused   = verdicts[errfacts.Refused]
	vCanceled  = Verdict{Outcome: OutcomeNeutral, Kind: KindCanceled} // the caller gave up
)

// verdictOf is rules 7 and 8.
func verdictOf(f errfacts.Facts) Verdict {
	m := f.Meaning()
	if f.Wait > 0 && waitMakesThrottle(f) {
		m = errfacts.Limited
	}
	v := verdicts[m]
	v.NotSent = f.NotSent && (v.Outcome == OutcomeFailure || m == errfacts.Refused)
	if f.Wait == 0 && f.Retry == 0 {
		return v
	}
	switch v.Outcome {
	case OutcomeFailure:
		if m == errfacts.Limited && f.Wait > 0 {
			v.Outcome = OutcomeThrottled
		}
		if f.Retry != 0 && m != errfacts.QuotaExhausted {
			v.Retryable = f.Retry > 0
		}
		if v.Retryable || v.Outcome == OutcomeThrottled {
			v.RetryAfter = f.Wait
		}
	case OutcomeRejected:
		v.RetryAfter = f.Wait // for a caller that reads it: a rejection delays no other call
	}
	return v
}

// waitMakesThrottle reports whether a stated wait makes the error a rate limit in
// disguise: with a 400 or 403, or if a wait is all that it says.
func waitMakesThrottle(f errfacts.Facts) bool {
	switch f.Class {
	case errfacts.HTTP:
		return f.Code == 400 || f.Code == 403
	case errfacts.None:
		return f.Retry >= 0
	}
	return false
}

// Note writes into an attempt what a lower layer saw of it, such as the status of an
// answer whose error an SDK makes unreadable. [Classify] takes a note where the error
// itself says nothing: where it is unknown, where an answer could not be read, and where
// a failure states no wait. Of several notes of one attempt the last one speaks, and it
// is NotSent only if all are.
//
// The ctx must be that of the attempt: what a Guard gives to the tool function, or
// what WithNotes returned. With any other, Note does nothing. It may be called from
// many goroutines.
func Note(ctx context.Context, v Verdict) {
	if notes := notesIn(ctx); notes != nil {
		addNote(notes, v)
	}
}

// NoteOf returns what the notes of the attempt say, and false if there are none.
func NoteOf(ctx context.Context) (Verdict, bool) {
	if notes := notesIn(ctx); notes != nil {
		if v, ok := notes.Load().(*Verdict); ok {
			return *v, true
		}
	}
	return Verdict{}, false
}

// WithNotes returns a ctx that takes notes of one attempt. A Guard makes its own; with
// a Gate, give the ctx to the tool and then to [Permit.Done].
func WithNotes(ctx context.Context) context.Context {
	if ctx == nil {
		ctx = context.Background()
	}
	return &notedContext{ctx, new(atomic.Value)}
}

// addNote keeps v as the last note of an attempt.
func addNote(notes *atomic.Value, v Verdict) {
	for {
		old, next := notes.Load(), v
		if before, ok := old.(*Verdict); ok {
			next.NotSent = v.NotSent && before.NotSent
		}
		if notes.CompareAndSwap(old, &next) {
			return
		}
	}
}

// notesIn returns where the nearest attempt of ctx keeps its last note, a *Verdict;
// nil if there is no attempt.
func notesIn(ctx context.Context) *atomic.Value {
	if ctx == nil {
		return nil
	}
	notes, _ := ctx.Value(frame.NotesKey{}).(*atomic.Value)
	return notes
}

// notedContext is a context with the notes of an attempt.
type notedContext struct {
	context.Context
	notes *atomic.Value
}

func (c *notedContext) Value(key any) any {
	if key == (frame.NotesKey{}) {
		return c.notes
	}
	return c.Context.Value(key)
}

// withNotes returns the caller's ctx with the notes of one attempt, for a Classifier.
// Notes of an attempt further out are no evidence of this one.
func withNotes(ctx context.Context, notes *atomic.Value) context.Context {
	if notes.Load() == nil && notesIn(ctx) == nil {
		return ctx
	}
	return &notedContext{ctx, notes}
}

// withNote is the verdict on an error whose own verdict is v.
func (v Verdict) withNote(note Verdict) Verdict {
	if v != vUnknown && v != vAmbiguous { // what the error says of sending counts, too
		note.NotSent = note.NotSent && v.NotSent
	}
	switch failed := note.Outcome != OutcomeSuccess; {
	case failed && (v == vUnknown || v == vAmbiguous || v == vContract):
		return note
	case v == vAmbiguous: // there was a good answer, so the JSON is not the caller's
		return vContract
	case v.Outcome == OutcomeFailure && v.Retryable && v.RetryAfter == 0 && note.RetryAfter > 0:
		return note
	}
	v.NotSent = v.NotSent && note.NotSent
	return v
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
	if v.Outcome == OutcomeFailure && v.Kind == KindTimeout && took < floor && callersEnd(ctx) == context.DeadlineExceeded {
		return vCanceled
	}
	return v
}

// ask calls a classifier, which is the user's code.
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

// The stop reasons, and what a host should do about each.
const (
	StopNone StopReason = StopReason(machine.Admitted) // "none": the call succeeded

	// "tool_unavailable:circuit_open": the tool keeps failing, or the last failure of this
	// call opened its breaker. Go on without the tool until the stated wait is over;
	// Gate.Offer says which tools to leave out of the next prompt.
	StopCircuitOpen StopReason = StopReason(machine.CircuitOpen)
	// "tool_unavailable:probe_in_flight": one call is finding out whether the tool is well.
	// As for StopCircuitOpen; the tool may be back before the stated wait is over.
	StopProbeInFlight StopReason = StopReason(machine.ProbeInFlight)
	// "tool_unavailable:rate_limited": the tool asked for a wait that has not passed, or
	// that does not fit this call. Come back after the stated wait.
	StopRateLimited StopReason = StopReason(machine.RateLimited)
	// "tool_unavailable:isolated": an operator took the tool out, and ends that with Reset.
	// There is nothing to wait for.
	StopIsolated StopReason = StopReason(machine.Isolated)
	// "tool_unavailable:busy": MaxInFlight permits of the tool are out. Try again soon.
	StopBusy StopReason = iota
	// "tool_unavailable:unknown_tool": there is no such tool. Tell the model which tools
	// there are.
	StopUnknownTool
	// "tool_failure:non_retryable": the tool rejected the request, or the error is not one
	// that passes. Show the model what ModelText returns: its arguments may be at fault.
	StopNonRetryable
	// "tool_failure:retry_exhausted": every attempt failed, or the next one would not fit
	// the caller's time. Try later, or another way.
	StopRetryExhausted
	// "tool_failure:retry_budget_exhausted": so many calls of this tool fail that retries
	// only add to its load. Try later, and look at the tool.
	StopRetryBudgetExhausted
	// "tool_failure:timeout": the caller's deadline ended an attempt. Give the call more
	// time, or look at the tool.
	StopTimeout
	// "tool_failure:outcome_unknown": a tool with side effects failed and may have acted.
	// Find out whether it did before you repeat the call.
	StopOutcomeUnknown
	// "tool_failure:contract_violation": the answer is not in the agreed format. The tool
	// has changed, and a person has to look.
	StopContractViolation
	// "tool_canceled": the caller gave up.
	StopCanceled
	// "tool_retry:allowed" is not an end: Guard.Next and observers get it between attempts.
	RetryAllowed
)

var stopTexts = []string{
	"none",
	"tool_unavailable:circuit_open", "tool_unavailable:probe_in_flight", "tool_unavailable:rate_limited",
	"tool_unavailable:isolated", "tool_unavailable:busy", "tool_unavailable:unknown_tool",
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

// attributes collects the attributes of a group for logs. Each LogValue of this package
// is a group with the names of the JSON keys; an attribute that would say nothing is left
// out. With an empty key slog puts them beside those of the record:
//
//	log.LogAttrs(ctx, slog.LevelWarn, "breaker", slog.Any("", transition))
type attributes []slog.Attr

func (a *attributes) text(key, value string) {
	if value != "" {
		*a = append(*a, slog.String(key, value))
	}
}

func (a *attributes) kind(key string, k Kind) {
	if k != KindNone {
		*a = append(*a, slog.String(key, k.String()))
	}
}

func (a *attributes) reason(r StopReason) {
	if r != StopNone {
		*a = append(*a, slog.String("reason", r.String()))
	}
}

func (a *attributes) number(key string, n uint64) {
	if n > 0 {
		*a = append(*a, slog.Uint64(key, n))
	}
}

func (a *attributes) wait(key string, d time.Duration) {
	if d > 0 {
		*a = append(*a, slog.Duration(key, d))
	}
}

// hint returns the wait that the model is told; zero means none.
func hint(reason StopReason, wait time.Duration) time.Duration {
	if reason == StopUnknownTool || reason == StopIsolated {
		return 0
	}
	return wait
}
