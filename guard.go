package toolhealth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/toolhealth/toolhealth/internal/errfacts"
	"github.com/toolhealth/toolhealth/internal/flight"
)

// Guard makes calls: it asks the gate before each attempt and tells it after,
// retries with back-off, jitter and a budget, limits the time of an attempt,
// checks results, turns panics into errors, falls back to substitutes, and says
// in a stop reason why a call ended. Use it with [Call] or [Wrap].
//
// Retries live here and nowhere else: a guarded call inside a guarded call (with
// the ctx that the tool function was given) does not retry, and one for the same
// tool rides on the outer call's admission and is not counted again. Switch off
// the retries of your SDK.
//
// A Guard may be used from any goroutine. It starts none, except for Detach. The
// zero Guard, and a nil one, makes each call once and keeps nothing.
type Guard struct {
	gate   *Gate
	config GuardConfig
	tools  map[string]*Policy // config.Tools
	base   time.Time          // for durations, where there is no registry
}

// NewGuard returns a guard on top of a gate (nil: the zero Gate), or every
// problem of the configuration at once. The Gate's Router is used call by call:
// the primary first, its substitutes when it is refused or fails for good.
func NewGuard(gate *Gate, config GuardConfig) (*Guard, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if gate == nil {
		gate = new(Gate)
	}
	g := &Guard{gate: gate, config: config, tools: make(map[string]*Policy), base: time.Now()}
	for tool, p := range config.Tools {
		g.tools[tool] = &p
	}
	return g, nil
}

func (g *Guard) policy(tool string) *Policy {
	if p := g.tools[tool]; p != nil {
		return p
	}
	return &g.config.Default
}

// Decision is what a retry policy says after an attempt.
type Decision struct {
	Reason StopReason    // RetryAllowed, StopNone after a success, else why to stop
	Wait   time.Duration // before the next attempt, if Reason is RetryAllowed; else a stated wait
	Streak int           // consecutive failures of the tool, this one included
}

// Next is the retry policy alone, for engines with a loop of their own that ask
// [Registry.AllowRequest]. It records the verdict, with no duration, so do not
// record it yourself; attempt counts from 1. A verdict that is not retryable
// stops with non_retryable; a retryable failure adds to the streak, and if the
// breaker is open by then it stops with circuit_open; else with retry_exhausted
// at MaxAttempts; else a retry is allowed, if budget and MaxWait agree. An answer
// of the tool that is no failure ends the streak.
func (g *Guard) Next(tool string, attempt int, v Verdict) Decision {
	if g == nil {
		g = new(Guard)
	}
	r := g.gate.registry()
	r.Record(tool, v, 0)
	var d Decision
	var stats *guardStats
	if !r.inert() {
		if n := r.table.Get(tool); n != nil {
			stats = n.Value.guardStats()
			d.Streak = n.Value.snap.Load().streak
			v.RetryAfter = n.Value.bounded(v.RetryAfter)
		}
	}
	if v.Outcome == OutcomeSuccess {
		if stats != nil {
			stats.refund(1)
		}
		return d
	}
	policy := g.policy(tool)
	open, wait := r.openFor(tool, v.Outcome)
	d.Wait = max(v.RetryAfter, 0)
	d.Reason = judge(v, attempt, policy.MaxAttempts, open, policy.SideEffects)
	switch d.Reason {
	case StopCircuitOpen, StopIsolated:
		d.Wait = wait
	case RetryAllowed:
		d.Reason, d.Wait = policy.pause(v, attempt, time.Time{}, stats)
	}
	return d
}

// judge says how to go on after an attempt that was no success. open is what
// openFor says; acts, that something may have been changed if the attempt ran.
func judge(v Verdict, attempt, limit int, open StopReason, acts bool) StopReason {
	unsafe := acts && !v.NotSent
	switch {
	case v.Outcome == OutcomeNeutral && v.Kind == KindCanceled:
		return StopCanceled
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

// settings travel in a ctx: what a caller asked for, and which guarded call the
// ctx is inside of.
type settings struct {
	frame      *frame
	info       *CallInfo
	noFallback bool
}

// settingsKey finds the nearest context with settings: a *settingsCtx or a *frame.
type settingsKey struct{}

type settingsCtx struct {
	context.Context
	settings settings
}

func (c *settingsCtx) Value(key any) any {
	if key == (settingsKey{}) {
		return c
	}
	return c.Context.Value(key)
}

func settingsOf(ctx context.Context) settings {
	switch c := ctx.Value(settingsKey{}).(type) {
	case *settingsCtx:
		return c.settings
	case *frame:
		s := settingsOf(c.Context)
		s.frame, s.info = c, nil // calls further in do not write into this one's CallInfo
		return s
	}
	return settings{}
}

// frame is the context of an attempt. It never changes once it is made: the tool
// function may hand it to goroutines that outlive the attempt. Every attempt
// allocates one, so it holds no more than it must.
type frame struct {
	context.Context
	tool  *string // that runs, as its entry has it: a ctx that is kept keeps that, too
	notes notes
}

// untrackedFrame makes a frame for a tool that has no entry.
func untrackedFrame(ctx context.Context, tool string) *frame {
	f := &struct {
		frame
		name string
	}{name: tool}
	f.Context, f.tool = ctx, &f.name
	return &f.frame
}

func (f *frame) Value(key any) any {
	switch key {
	case settingsKey{}:
		return f
	case notesKey{}:
		return &f.notes
	}
	return f.Context.Value(key)
}

// noted returns the caller's ctx with the notes of the attempt f, for its Classifier.
// Notes of an attempt further out are no evidence of this one.
func (f *frame) noted(ctx context.Context) context.Context {
	if f.notes.last.Load() == nil && notesIn(ctx) == nil {
		return ctx
	}
	return &notedContext{ctx, &f.notes}
}

// inside reports whether the tool is running in this or an outer frame.
func (f *frame) inside(tool string) bool {
	for ; f != nil; f = f.outer() {
		if *f.tool == tool {
			return true
		}
	}
	return false
}

// outer is settingsOf(f.Context).frame, without the walk on from there: a walk
// for each frame would take the square of their number.
func (f *frame) outer() *frame {
	switch c := f.Context.Value(settingsKey{}).(type) {
	case *settingsCtx:
		return c.settings.frame
	case *frame:
		return c
	}
	return nil
}

// CallInfo says how one guarded call went. It is complete when the call has
// returned and must not be read before.
type CallInfo struct {
	Requested string
	Served    string          // the tool whose answer was returned; "" if there was none
	Attempts  int             // runs of tool functions in all
	Waits     []time.Duration // between the attempts
	Partial   bool            // the answer is the Partial handler's
	Reason    StopReason      // StopNone after a success, also after a substitute's
}

// WithCallInfo returns a ctx for one guarded call, and where that call will say
// how it went. Calls inside the tool function do not write there.
func WithCallInfo(ctx context.Context) (context.Context, *CallInfo) {
	s := settingsOf(ctx)
	s.info = new(CallInfo)
	return &settingsCtx{ctx, s}, s.info
}

// WithoutFallback returns a ctx for guarded calls that may not be served by a
// substitute. A Partial handler is still asked.
func WithoutFallback(ctx context.Context) context.Context {
	s := settingsOf(ctx)
	s.noFallback = true
	return &settingsCtx{ctx, s}
}

// Candidate is a tool that a call tried or wanted to try.
type Candidate struct {
	Tool       string
	Reason     StopReason
	Kind       Kind
	RetryAfter time.Duration
	Err        error // the last error of its function, or why it did not run
}

// ToolError is how a guarded call fails. Its text is safe to show to the model;
// the errors of the tools are not in it, but errors.Is and errors.As reach them:
// that of the primary first, then those of its substitutes.
type ToolError struct {
	Tool       string        // that was asked for
	Reason     StopReason    // why the call ended: the primary's, unless a substitute may have acted or the caller gave up
	Kind       Kind          // of the last failure; KindRefused if nothing ran
	Attempts   int           // runs of tool functions in all
	RetryAfter time.Duration // the smallest wait of all candidates that have one; 0 if none is known
	// Candidates are the primary and the substitutes that were tried, in order.
	Candidates []Candidate
	// Canceled is the caller's ctx.Err() if the call ended for it, else nil.
	Canceled error
}

// Error returns the text for the model.
func (e *ToolError) Error() string {
	switch e.Reason {
	case StopCircuitOpen, StopProbeInFlight, StopRateLimited, StopIsolated:
		return refusals[e.Reason].Error() + retryText(hint(e.Reason, e.RetryAfter))
	case StopUnknownTool:
		return ErrUnknownTool.Error()
	case StopCanceled:
		return "tool call canceled"
	case StopOutcomeUnknown:
		return "tool outcome unknown: the action may have been carried out, check before repeating it"
	}
	text := "tool failed: "
	if e.Attempts > 1 {
		text = "tool failed after " + strconv.Itoa(e.Attempts) + " attempts: "
	}
	return text + kindPhrase(e.Kind) + retryText(e.RetryAfter)
}

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

// Details returns one line for logs: what Error says to nobody, the errors of the
// tools themselves. It may hold host names and secrets, and is not for the model.
func (e *ToolError) Details() string {
	text := fmt.Sprintf("%q: %v, kind %v, %d attempts", e.Tool, e.Reason, e.Kind, e.Attempts)
	for _, c := range e.Candidates {
		text += fmt.Sprintf("; %q: %v", c.Tool, c.Reason)
		if c.Err != nil {
			text += ": " + c.Err.Error()
		}
	}
	return text
}

// Is reports whether the target is the sentinel of the error's reason.
func (e *ToolError) Is(target error) bool {
	return e.Reason >= StopCircuitOpen && e.Reason <= StopUnknownTool &&
		(target == refusals[e.Reason] || target == ErrRefused)
}

// Unwrap returns the errors of the candidates, and the caller's ctx.Err() if
// that ended the call.
func (e *ToolError) Unwrap() []error {
	errs := make([]error, 0, len(e.Candidates)+1)
	for _, c := range e.Candidates {
		if c.Err != nil {
			errs = append(errs, c.Err)
		}
	}
	if e.Canceled != nil {
		errs = append(errs, e.Canceled)
	}
	return errs
}

func (e *ToolError) ran() bool { return e != nil && e.Attempts > 0 }

// refused is the word of the refusals inside e.
func (e *ToolError) refused() (Verdict, bool) { return Verdict{}, false }

// MarshalJSON returns one small object for a tool result: reason, kind,
// retry_after_seconds (whole seconds, rounded up; left out if there is none),
// attempts and text.
func (e *ToolError) MarshalJSON() ([]byte, error) {
	return json.Marshal(modelJSON{e.Reason, e.Kind, wholeSeconds(hint(e.Reason, e.RetryAfter)), e.Attempts, e.Error()})
}

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

var (
	errGoexit = WithVerdict(errors.New("tool function ended its goroutine"),
		Verdict{Outcome: OutcomeNeutral, Kind: KindNotDispatched})
	errNoAdapter = errors.New("no function was given for this substitute")
)

// CallOption changes one call.
type CallOption[Out any] func(*callOptions[Out])

type callOptions[Out any] struct {
	checks  []func(Out) error
	partial func(context.Context, *ToolError) (Out, error)
	serves  func(tool string) bool
	broken  error // the options themselves are wrong
}

// CheckResult looks at every result that came without an error: an error that it
// returns is classified, counted and retried as if the tool function had returned
// it. Mark it with [WithVerdict] to say what it means; else it is a failure that
// is not retried. The result itself reaches the caller as it is, beside the
// *ToolError. A nil check checks nothing.
func CheckResult[Out any](check func(Out) error) CallOption[Out] {
	return func(o *callOptions[Out]) {
		if check != nil {
			o.checks = append(o.checks, check)
		}
	}
}

// CheckContract is CheckResult for the format of the answer: what it finds is a
// failure of kind contract, the tool has changed.
func CheckContract[Out any](validate func(Out) error) CallOption[Out] {
	if validate == nil {
		return CheckResult[Out](nil)
	}
	return CheckResult(func(out Out) error {
		return WithVerdict(validate(out), vContract)
	})
}

// Partial is the last resort when no tool has answered: what it returns without
// an error is the call's result. It is not asked if the request was rejected or
// denied, if the caller gave up, or if a tool with side effects may have acted.
func Partial[Out any](f func(context.Context, *ToolError) (Out, error)) CallOption[Out] {
	return func(o *callOptions[Out]) { o.partial = f }
}

func (o *callOptions[Out]) check(out Out) error {
	for _, check := range o.checks {
		if err := check(out); err != nil {
			return err
		}
	}
	return nil
}

// Call makes one guarded call. fn is run with the name of the tool that serves,
// which is a substitute's if the Gate has a Router and the tool is out; its ctx
// is done when the attempt's time is up. The error is a *ToolError; the result
// that comes with it is the last one that fn returned. Only an error that the
// Gate's Classify calls a success is returned as it is, with its result.
//
// It allocates twice at most if fn succeeds at once, the policy has no Timeout and
// there are no options.
func Call[Out any](ctx context.Context, g *Guard, tool string, fn func(ctx context.Context, tool string) (Out, error), options ...CallOption[Out]) (Out, error) {
	var o *callOptions[Out]
	if len(options) > 0 {
		o = new(callOptions[Out])
		for _, option := range options {
			option(o)
		}
	}
	if o == nil || o.broken == nil {
		if n, epoch := g.enterQuick(ctx, tool); n != nil {
			return callQuickly(ctx, g, n, epoch, fn, o)
		}
	}
	var c call
	c.begin(ctx, g, tool)
	var none Out
	return goOn(&c, none, nil, fn, o)
}

// callQuickly makes a call that has been let in by enterQuick.
func callQuickly[Out any](ctx context.Context, g *Guard, n *node, epoch uint64, fn func(context.Context, string) (Out, error), o *callOptions[Out]) (Out, error) {
	// Field by field: what a literal writes is copied in larger pieces at once, and
	// the processor waits for them.
	var q quickCall
	q.g, q.registry, q.counts = g, g.gate.Registry, n.Value.guardStats()
	q.node, q.epoch, q.start = n, epoch, q.registry.now()
	q.slot = q.counts.begin(q.start)
	q.attempt = &frame{Context: ctx, tool: n.NameRef()}
	ran := false
	defer func() {
		if !ran {
			q.lost()
		} else if q.slot != nil { // nobody else ends the call; last, for hooks that look
			q.slot.Store(0)
		}
	}()
	out, err := run(q.attempt, fn, o)
	ran = true
	if err == nil {
		q.finish()
		return out, nil
	}
	c := q.call()
	q.slot = nil
	return goOn(&c, out, err, fn, o)
}

// goOn makes all attempts, or those that are left after one that returned out and
// err, and ends the call, also if somebody else's code ends the goroutine.
func goOn[Out any](c *call, out Out, err error, fn func(context.Context, string) (Out, error), o *callOptions[Out]) (Out, error) {
	ending := false
	defer func() {
		if !ending {
			c.abort()
		}
	}()
	if o != nil {
		c.serves, c.broken = o.serves, o.broken
	}
	var going bool
	if err != nil {
		c.done(err)
		going = c.next()
	} else {
		going = c.start() || c.nextSubstitute()
	}
	for ; going; going = c.next() {
		out = attempt(c, fn, o)
	}
	ending = true
	failure := c.end()
	if failure == nil {
		return out, c.lastErr // nil, but for an error that the Classifier calls a success
	}
	if o != nil && o.partial != nil && c.replace {
		if part, ok := askPartial(c.quietContext(), o.partial, failure); ok {
			if c.settings.info != nil {
				c.settings.info.Partial = true
			}
			return part, nil
		}
	}
	return out, failure
}

// quietContext is the caller's ctx for what is not this call: guarded calls there
// do not write into this one's CallInfo.
func (c *call) quietContext() context.Context {
	if c.settings.info == nil {
		return c.ctx
	}
	s := c.settings
	s.info = nil
	return &settingsCtx{c.ctx, s}
}

func askPartial[Out any](ctx context.Context, partial func(context.Context, *ToolError) (Out, error), failure *ToolError) (out Out, ok bool) {
	defer func() { _ = recover() }() // then ok is false
	out, err := partial(ctx, failure)
	return out, err == nil
}

// attempt makes one attempt and reports how that went, also if fn ends the goroutine.
func attempt[Out any](c *call, fn func(context.Context, string) (Out, error), o *callOptions[Out]) (out Out) {
	cancel := c.attemptContext()
	ran := false
	defer func() {
		if cancel != nil {
			defer cancel()
		}
		if !ran {
			c.done(errGoexit)
		}
	}()
	var err error
	if c.policy.Detach {
		out, err = detached(c, fn, o)
	} else {
		out, err = run(c.attempt, fn, o)
	}
	ran = true
	c.done(err)
	return out
}

// run runs fn. A panic comes back as a *PanicError. It does not come back if fn ends
// its goroutine, even if a panic on the way out is recovered here.
func run[Out any](f *frame, fn func(context.Context, string) (Out, error), o *callOptions[Out]) (out Out, err error) {
	returned := false
	defer func() {
		if !returned {
			err = &PanicError{Value: recover(), Stack: debug.Stack()}
		}
	}()
	if out, err = fn(f, *f.tool); err == nil && o != nil {
		err = o.check(out)
	}
	returned = true
	return out, err
}

// detached runs fn on a goroutine of its own and stops waiting when ctx is done.
func detached[Out any](c *call, fn func(context.Context, string) (Out, error), o *callOptions[Out]) (Out, error) {
	type result struct {
		out Out
		err error
	}
	results := make(chan result, 1)
	ctx, tool, stats := c.attempt, c.serving, c.counts
	var left atomic.Bool // set by whichever leaves first: the guard or fn
	go func() {
		r := result{err: errGoexit}
		defer func() {
			if v := recover(); v != nil {
				r.err = &PanicError{Value: v, Stack: debug.Stack()}
			}
			if left.Swap(true) && stats != nil {
				stats.abandoned.Add(-1)
			}
			results <- r
		}()
		out, err := fn(ctx, tool)
		if err == nil && o != nil {
			err = o.check(out)
		}
		r = result{out, err}
	}()
	select {
	case r := <-results:
		return r.out, r.err
	case <-ctx.Done():
	}
	if stats != nil {
		stats.abandoned.Add(1)
	}
	if left.Swap(true) { // it has just ended, after all
		if stats != nil {
			stats.abandoned.Add(-1)
		}
		r := <-results
		return r.out, r.err
	}
	var none Out
	return none, ctx.Err()
}

// quickCall is all there is of a guarded call that is let in at once and answered
// at once, and of which nothing special is asked. Nearly all are like that, and it
// spares them a tenth of the time. Any other becomes a call.
type quickCall struct {
	// The tool that is being tried, and its current attempt.
	admission
	counts  *guardStats // nil if the tool is not tracked
	attempt *frame      // the ctx of the attempt

	// The call as a whole.
	g        *Guard
	registry *Registry    // nil if there is nothing to keep anything in
	slot     *flight.Slot // among the running calls of the tool that was asked for; nil if that is not tracked
}

// call is one guarded call: a loop of next, attempt and done, then end. It lives
// on the stack of Call.
type call struct {
	quickCall
	ctx      context.Context // the caller's
	settings settings        // that ctx carries
	tool     string          // asked for
	serves   func(string) bool
	broken   error // the options themselves are wrong

	// The tool that is being tried.
	serving string
	standIn bool // serving is a substitute
	policy  *Policy
	riding  bool // on an outer call of the same tool: not admitted, not counted
	tries   int  // runs of serving
	wait    time.Duration

	// The call as a whole.
	step       callStep
	begun      int64
	ended      int64       // the end of the last attempt
	stats      *guardStats // of tool; nil if it is not tracked
	attempts   int         // runs of all tools
	substitute int         // how many substitutes have had their turn
	replace    bool        // a substitute or a Partial handler may step in
	failures   []Candidate
	canceled   error
	last       Verdict
	lastErr    error
}

type callStep uint8

const (
	stepSubstitute callStep = iota // next tries the next substitute
	stepRetry                      // next waits and tries the same tool again
	stepDone                       // a tool has answered
)

// enterQuick lets a quick call in. It returns nil if the call is none; then nothing
// has happened.
func (g *Guard) enterQuick(ctx context.Context, tool string) (*node, uint64) {
	if ctx == nil || g == nil || g.gate == nil || g.config.Observe != nil {
		return nil, 0
	}
	r, policy := g.gate.Registry, g.policy(tool)
	if r.inert() || policy.Timeout > 0 || policy.Detach || ctx.Value(settingsKey{}) != nil || ctx.Err() != nil {
		return nil, 0
	}
	return r.enterHealthy(tool)
}

// finish reports that the tool has answered. As in done, hooks come last.
func (q *quickCall) finish() {
	now := max(q.registry.now(), q.start)
	q.counts.refund(1)
	q.admission.succeed(q.registry, now)
}

// call returns q as a call whose first attempt has just ended.
func (q *quickCall) call() call {
	tool := q.node.Name()
	c := call{quickCall: *q, ctx: q.attempt.Context, tool: tool, serving: tool}
	c.policy, c.begun, c.stats = q.g.policy(c.tool), q.start, q.counts
	return c
}

// lost ends the call because its tool function has ended the goroutine.
func (q *quickCall) lost() {
	c := q.call()
	defer c.abort()
	c.done(errGoexit)
}

func (c *call) begin(ctx context.Context, g *Guard, tool string) {
	if ctx == nil {
		ctx = context.Background()
	}
	if g == nil || g.gate == nil {
		g = &Guard{gate: new(Gate), base: time.Now()}
	}
	c.g, c.ctx, c.tool = g, ctx, tool
	if r := g.gate.registry(); !r.inert() {
		c.registry = r
	}
	c.settings = settingsOf(ctx)
	if c.settings.info != nil {
		*c.settings.info = CallInfo{}
	}
}

func (c *call) now() int64 {
	if c.registry != nil {
		return c.registry.now()
	}
	return since(c.g.base)
}

// next gets another attempt admitted; false when there is none.
func (c *call) next() bool {
	switch c.step {
	case stepDone:
		return false
	case stepRetry:
		bucket := c.counts
		made := c.pause() && c.admit(c.now()) // if a hook ends the goroutine, it is not
		c.step = stepSubstitute
		if made {
			return true
		}
		c.policy.returnToken(bucket)
	}
	return c.nextSubstitute()
}

// start tries the tool that was asked for.
func (c *call) start() bool {
	c.serving, c.policy, c.begun = c.tool, c.g.policy(c.tool), c.now()
	if c.broken != nil {
		c.fail(Candidate{Tool: c.tool, Reason: StopNonRetryable, Kind: KindNotDispatched, Err: c.broken}, false)
		return false
	}
	if err := c.ctx.Err(); err != nil {
		c.cancel(err, nil)
		return false
	}
	if c.settings.frame != nil && c.settings.frame.inside(c.tool) {
		c.riding, c.admission = true, admission{start: c.begun}
		return true
	}
	return c.admit(c.begun)
}

// nextSubstitute tries the substitutes that have not had their turn.
func (c *call) nextSubstitute() bool {
	list := c.g.gate.router().of(c.tool)
	for c.replace && !c.riding && !c.settings.noFallback && c.substitute < len(list) && c.ctx.Err() == nil {
		tool := list[c.substitute]
		c.substitute++
		switch {
		case c.settings.frame.inside(tool): // it is running already, further out
		case c.serves != nil && !c.serves(tool):
			c.fail(Candidate{Tool: tool, Reason: StopNonRetryable, Kind: KindNotDispatched, Err: errNoAdapter}, true)
		default:
			c.serving, c.standIn, c.policy, c.tries = tool, true, c.g.policy(tool), 0
			if c.admit(c.now()) {
				return true
			}
		}
	}
	return false
}

// admit asks the gate for one attempt of the tool that serves.
func (c *call) admit(now int64) bool {
	r := c.registry
	if r == nil {
		c.admission = admission{start: now}
		return true
	}
	if n, epoch := r.enterHealthy(c.serving); n != nil {
		c.admission, c.counts = admission{node: n, epoch: epoch, start: now}, n.Value.guardStats()
		c.count(true)
		return true
	}
	n, a := r.admit(c.serving, now, int64(c.policy.Timeout), true)
	c.admission, c.counts = admission{node: n, epoch: a.epoch, start: now, probe: a.probe}, nil
	if n != nil {
		c.counts = n.Value.guardStats()
		c.count(a.reason == StopNone)
	}
	if a.reason == StopNone {
		return true
	}
	f := Candidate{Tool: c.serving, Reason: a.reason, Kind: KindRefused, RetryAfter: time.Duration(a.wait)}
	if c.tries == 0 {
		f.Err = newRefusal(c.serving, n, a)
	} else {
		f.Kind, f.Err = c.last.Kind, c.lastErr
	}
	c.fail(f, true)
	return false
}

// count counts what the gate has said.
func (c *call) count(admitted bool) {
	if !c.standIn && c.stats == nil {
		c.stats = c.counts
		c.slot = c.stats.begin(c.begun)
	}
	switch {
	case !admitted:
		c.counts.refusals.Add(1)
		if !c.standIn && c.tries == 0 {
			c.counts.turned.Add(1)
		}
	case c.tries > 0:
		c.counts.retries.Add(1)
	case c.standIn:
		c.counts.asked.Add(1)
	}
}

// attemptContext makes the ctx for the tool function, and returns its cancel if it
// has a time limit.
func (c *call) attemptContext() context.CancelFunc {
	ctx, cancel := c.ctx, context.CancelFunc(nil)
	if c.policy.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, c.policy.Timeout)
	}
	if c.node != nil {
		c.attempt = &frame{Context: ctx, tool: c.node.NameRef()}
	} else {
		c.attempt = untrackedFrame(ctx, c.serving)
	}
	return cancel
}

// done reports the end of an attempt and decides how to go on.
func (c *call) done(err error) {
	c.ended = max(c.now(), c.admission.start)
	c.attempts++
	c.tries++
	c.last, c.lastErr = Verdict{}, err
	// Hooks and observers come last of all, since they may end the goroutine.
	if err != nil {
		c.classify(err)
	} else {
		c.answered()
		if c.node != nil {
			c.admission.succeed(c.registry, c.ended)
		}
	}
	if c.step == stepDone {
		c.observe(StopNone, 0)
		return
	}
	reason, wait := c.judge()
	if reason == RetryAllowed {
		c.step, c.wait = stepRetry, wait
	} else {
		c.fail(Candidate{Tool: c.serving, Reason: reason, Kind: c.last.Kind, RetryAfter: wait, Err: err}, c.replaceable(reason))
	}
	c.observe(reason, wait)
}

// answered notes that a tool has answered.
func (c *call) answered() {
	c.step = stepDone
	if c.counts != nil {
		c.counts.refund(1)
	}
}

// classify finds out what err means and reports it, also if the Classifier ends
// the goroutine.
func (c *call) classify(err error) {
	c.last = vUnknown
	defer func() {
		if c.last.Outcome == OutcomeSuccess {
			c.answered()
		}
		if c.node != nil {
			c.report(c.registry, c.last, c.ended)
		}
	}()
	if c.attempt.Err() != nil && c.ctx.Err() == nil {
		err = &attemptTimeoutError{err}
	}
	took := time.Duration(c.ended - c.admission.start)
	v := verdictAt(c.attempt.noted(c.ctx), c.g.gate.Classify, err, took, c.g.config.DeadlineFloor)
	if c.node != nil {
		v.RetryAfter = c.node.Value.bounded(v.RetryAfter)
	}
	c.last = v
}

// judge says how to go on after a failed attempt, and what wait goes with it.
func (c *call) judge() (StopReason, time.Duration) {
	limit := c.policy.MaxAttempts
	if c.settings.frame != nil || c.standIn {
		limit = 1 // retries are the outermost call's; a substitute has one chance
	}
	var open StopReason
	var wait time.Duration
	if c.node != nil {
		open, wait = c.registry.openFor(c.serving, c.last.Outcome)
	}
	acts := c.policy.SideEffects || unknownInside(c.lastErr)
	switch reason := judge(c.last, c.tries, limit, open, acts); reason {
	case StopCircuitOpen, StopIsolated:
		return reason, wait
	case RetryAllowed:
		deadline, _ := c.ctx.Deadline()
		return c.policy.pause(c.last, c.tries, deadline, c.counts)
	case StopCanceled:
		c.canceled = c.ctx.Err()
		return reason, 0
	default:
		if c.last.Kind == KindTimeout {
			c.canceled = c.ctx.Err() // if the time that was up is the caller's
		}
		return reason, max(c.last.RetryAfter, 0)
	}
}

// unknownInside reports whether err is that of a guarded call further in whose
// tool may have acted: then this tool may have, too.
func unknownInside(err error) bool {
	var buf [8]error
	nodes, _ := errfacts.Tree(buf[:0], err)
	for _, node := range nodes {
		if e, ok := node.(*ToolError); ok && e != nil && e.Reason == StopOutcomeUnknown {
			return true
		}
	}
	return false
}

// replaceable reports whether a substitute may do what the tool did not.
func (c *call) replaceable(reason StopReason) bool {
	switch {
	case reason == StopCanceled, reason == StopOutcomeUnknown:
		return false
	case c.last.Outcome == OutcomeRejected && !c.standIn && c.last.Kind != KindUnauthorized && c.last.Kind != KindGone:
		return false // a substitute would reject the request, too
	case c.last.Outcome == OutcomeNeutral && c.last.Kind == KindDenied:
		return false
	}
	return !c.policy.SideEffects || c.last.NotSent
}

// pause waits before the next attempt; false if the caller has given up.
func (c *call) pause() bool {
	if c.settings.info != nil {
		c.settings.info.Waits = append(c.settings.info.Waits, c.wait)
	}
	if c.wait > 0 {
		select {
		case <-time.After(c.wait):
		case <-c.ctx.Done():
		}
	}
	if err := c.ctx.Err(); err != nil {
		c.cancel(err, c.lastErr)
		return false
	}
	return true
}

// cancel ends the call because its caller gave up between two attempts.
func (c *call) cancel(err, last error) {
	c.canceled = err
	c.fail(Candidate{Tool: c.serving, Reason: StopCanceled, Kind: KindCanceled, Err: last}, false)
}

// fail notes that a candidate is out. replace says whether another may step in.
func (c *call) fail(f Candidate, replace bool) {
	c.failures = append(c.failures, f)
	c.replace = replace
}

// end reports the end of the call, once. It returns nil if a tool has answered.
func (c *call) end() *ToolError {
	var e *ToolError
	if c.step != stepDone {
		e = c.failure()
	}
	if c.slot != nil {
		c.slot.Store(0)
	}
	if c.stats != nil {
		switch {
		case e == nil:
			if c.standIn {
				c.stats.fallbacks.Add(1)
			}
		case e.Reason == StopCanceled:
			c.stats.canceled.Add(1)
		case c.last.Outcome == OutcomeRejected:
			c.stats.rejected.Add(1)
		default:
			c.stats.failed.Add(1)
		}
	}
	if info := c.settings.info; info != nil {
		info.Requested, info.Attempts = c.tool, c.attempts
		if e == nil {
			info.Served = c.serving
		} else {
			info.Reason = e.Reason
		}
	}
	if c.observed() {
		c.observeEnd(e)
	}
	return e
}

// abort ends a call whose goroutine is ending, perhaps before anything was noted.
func (c *call) abort() {
	if c.step == stepRetry {
		c.policy.returnToken(c.counts)
	}
	if len(c.failures) == 0 { // end has no use for it if a tool has answered
		c.fail(Candidate{Tool: c.serving, Reason: StopNonRetryable, Kind: c.last.Kind, Err: errGoexit}, false)
	}
	c.end()
}

// failure sums up the candidates.
func (c *call) failure() *ToolError {
	e := &ToolError{Tool: c.tool, Attempts: c.attempts, Candidates: c.failures, Canceled: c.canceled}
	decisive := 0
	for i, f := range c.failures {
		if f.Reason == StopCanceled || f.Reason == StopOutcomeUnknown {
			decisive = i
		}
		known := f.RetryAfter > 0 && f.Reason != StopUnknownTool // that one says no more than a cooldown
		if known && (e.RetryAfter == 0 || f.RetryAfter < e.RetryAfter) {
			e.RetryAfter = f.RetryAfter
		}
	}
	e.Reason, e.Kind = c.failures[decisive].Reason, c.failures[decisive].Kind
	return e
}

// observed reports whether an observer hears of this call. One that rides is a
// part of another.
func (c *call) observed() bool { return c.g.config.Observe != nil && !c.riding }

func (c *call) observe(reason StopReason, wait time.Duration) {
	if c.observed() {
		c.observeAttempt(reason, wait)
	}
}

func (c *call) observeAttempt(reason StopReason, wait time.Duration) {
	c.tell(Event{
		Tool: c.tool, Served: c.serving, Attempt: c.tries, Verdict: c.last, Err: c.lastErr, Reason: reason,
		Took: time.Duration(c.ended - c.admission.start), Wait: wait,
	})
}

func (c *call) observeEnd(e *ToolError) {
	event := Event{
		Tool: c.tool, Served: c.serving, Final: true, Attempt: c.attempts, Verdict: c.last,
		Took: time.Duration(max(c.now()-c.begun, 0)),
	}
	if e != nil {
		event.Reason, event.Wait, event.Verdict.Kind, event.Err = e.Reason, e.RetryAfter, e.Kind, e
		if c.attempts == 0 || e.Reason == StopCanceled {
			event.Verdict = Verdict{Outcome: OutcomeNeutral, Kind: e.Kind}
		}
	}
	c.tell(event)
}

// tell calls the observer, which is somebody else's code.
func (c *call) tell(e Event) {
	defer func() { _ = recover() }()
	c.g.config.Observe(c.ctx, e)
}

// WrapOption changes the function that Wrap returns.
type WrapOption func(*wrapping)

type wrapping struct {
	substitutes map[string]any // func(context.Context, In) (Out, error) by tool
	options     []any          // CallOption[Out]
}

// Substitute gives Wrap the function that serves in the place of the wrapped one
// when the Router names this tool: the place to adapt the arguments. Substitutes
// without a function are not run.
func Substitute[In, Out any](tool string, fn func(context.Context, In) (Out, error)) WrapOption {
	return func(w *wrapping) { w.substitutes[tool] = fn }
}

// WithCallOptions gives Wrap options for each call.
func WithCallOptions[Out any](options ...CallOption[Out]) WrapOption {
	return func(w *wrapping) {
		for _, o := range options {
			w.options = append(w.options, o)
		}
	}
}

// Wrap returns fn as a guarded function; see [Call]. An option that is not of
// fn's types makes every call fail with an error that says so.
func Wrap[In, Out any](g *Guard, tool string, fn func(context.Context, In) (Out, error), options ...WrapOption) func(context.Context, In) (Out, error) {
	w := wrapping{substitutes: make(map[string]any)}
	for _, o := range options {
		o(&w)
	}
	functions := map[string]func(context.Context, In) (Out, error){tool: fn}
	all := []CallOption[Out]{func(o *callOptions[Out]) {
		o.serves = func(tool string) bool { return functions[tool] != nil }
	}}
	for name, f := range w.substitutes {
		typed, ok := f.(func(context.Context, In) (Out, error))
		if !ok {
			all = append(all, wrongType[Out](fmt.Sprintf("Substitute(%.80q) is a %T, must be a %T", name, f, fn)))
		}
		functions[name] = typed
	}
	for _, o := range w.options {
		typed, ok := o.(CallOption[Out])
		if !ok {
			typed = wrongType[Out](fmt.Sprintf("WithCallOptions has a %T, must be a %T", o, typed))
		}
		all = append(all, typed)
	}
	if len(w.substitutes) == 0 && len(w.options) == 0 && len(g.substitutes(tool)) == 0 {
		all = nil // spare the simple case the allocation for options
	}
	run := func(ctx context.Context, serving string, in In) (Out, error) {
		if serving == tool {
			return fn(ctx, in)
		}
		return functions[serving](ctx, in)
	}
	return func(ctx context.Context, in In) (Out, error) {
		return Call(ctx, g, tool, func(ctx context.Context, serving string) (Out, error) {
			return run(ctx, serving, in) // this closure is allocated for each call, so it holds little
		}, all...)
	}
}

func (g *Guard) substitutes(tool string) []string {
	if g == nil {
		return nil
	}
	return g.gate.router().of(tool)
}

func wrongType[Out any](text string) CallOption[Out] {
	return func(o *callOptions[Out]) { o.broken = errors.New("toolhealth: Wrap: " + text) }
}
