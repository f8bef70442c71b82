package toolhealth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolhealth/toolhealth/internal/detach"
	"github.com/toolhealth/toolhealth/internal/errfacts"
	"github.com/toolhealth/toolhealth/internal/flight"
	"github.com/toolhealth/toolhealth/internal/frame"
	"github.com/toolhealth/toolhealth/internal/machine"
	"github.com/toolhealth/toolhealth/internal/retry"
)

// Guard makes calls. It asks the gate before each attempt and reports to it after,
// retries with back-off, jitter and a budget, limits the time of an attempt, checks
// results, turns panics into errors, goes on to substitutes, and says in a stop
// reason why a call ended. Use it with [Call] or [Wrap].
//
// A call is repeated only if the error says that the same call may succeed later, and
// only if the wait fits the caller's deadline and MaxWait. A caller that is canceled
// does not wait to the end.
//
// Retries live here and nowhere else. Switch off the retries of your SDK: three there
// and two here are six requests, of which the breaker sees two. A guarded call inside
// a guarded call, with the ctx that the tool function was given, does not retry; one
// for the same tool is part of the outer call: it is neither admitted nor counted
// again. If a tool with side effects further in may have acted, the outer call stops
// with StopOutcomeUnknown, too.
//
// A Guard may be used from any goroutine. It starts a goroutine only for Detach, and
// a timer only for a Timeout and for a back-off. The zero Guard, and a nil one, makes
// each call once and keeps nothing.
type Guard struct {
	gate   *Gate
	config GuardConfig
	tools  map[string]*Policy // config.Tools
	base   time.Time          // of durations, where there is no registry
	// wrapped has the substitutes of wrapped tools in their order, a []string by the
	// tool's name. Substitute writes, the latest copy of a Tool last; Offer reads.
	wrapped sync.Map
}

// NewGuard returns a guard on top of a gate, or every problem of the configuration at
// once. A nil gate means the zero Gate. The Gate's Router is used in each call: the
// primary first, its substitutes when it is refused or fails for good.
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

// Gate returns the gate that the guard asks, to call tools without the guard's
// retries. It is nil if the guard has none; a nil Gate is like the zero one.
func (g *Guard) Gate() *Gate {
	if g == nil {
		return nil
	}
	return g.gate
}

// Registry returns the registry that keeps the health of the guard's tools. It is nil
// if nothing is kept; a nil Registry answers like the zero one.
func (g *Guard) Registry() *Registry { return g.Gate().registry() }

// Offer sorts tools as [Gate.Offer] does, and also knows the substitutes that
// [Tool.Substitute] has given to tools without an entry in the Router.
func (g *Guard) Offer(tools []string) (offer, leaveOut []string) {
	return g.Gate().offer(tools, g.substitutes)
}

// substitutes returns the tools that may serve in the place of a tool.
func (g *Guard) substitutes(tool string) []string {
	names, listed := g.Gate().router().entry(tool)
	if listed || g == nil {
		return names
	}
	if order, ok := g.wrapped.Load(tool); ok {
		return order.([]string)
	}
	return nil
}

func (g *Guard) policy(tool string) *Policy {
	if p := g.tools[tool]; p != nil {
		return p
	}
	return &g.config.Default
}

// Call makes one guarded call. It runs fn with the name of the tool that serves,
// which is a substitute's if the Gate has a Router and the tool is out; fn's ctx is
// done when the attempt's time is up. The error is a *ToolError; the result that comes
// with it is the last one that fn returned. Only an error that the Gate's Classify
// calls a success is returned as it is, with its result.
//
// Call allocates once for a tool that is tracked, if fn succeeds at once, the policy
// has no Timeout and there are no options.
func Call[Out any](ctx context.Context, g *Guard, tool string, fn func(ctx context.Context, tool string) (Out, error), options ...CallOption[Out]) (Out, error) {
	var o *callOptions[Out]
	if len(options) > 0 {
		o = new(callOptions[Out])
		for _, option := range options {
			option(o)
		}
	}
	return guarded(ctx, g, tool, fn, o, nil)
}

// guarded makes a call for Call, and for a Tool, which has a wiring.
func guarded[Out any](ctx context.Context, g *Guard, tool string, fn func(ctx context.Context, tool string) (Out, error), o *callOptions[Out], w *wiring) (Out, error) {
	var c call
	c.begin(ctx, g, tool)
	c.wiring = w
	var out Out
	failure := c.run(func() (err error) {
		out, err = attempt(&c, fn, o)
		return err
	})
	if failure == nil {
		return out, c.lastErr // nil, but for an error that the Classifier calls a success
	}
	if o != nil && o.partial != nil && c.replace {
		if part, ok := askPartial(c.partialContext(), o.partial, failure); ok {
			if c.options.Info != nil {
				c.options.Info.Partial = true
			}
			return part, nil
		}
	}
	return out, failure
}

// attempt runs fn once, on a goroutine of its own if the policy says Detach.
func attempt[Out any](c *call, fn func(context.Context, string) (Out, error), o *callOptions[Out]) (Out, error) {
	if !c.policy.Detach {
		return runTool(c.frame, fn, o)
	}
	type result struct {
		out Out
		err error
	}
	var abandoned *atomic.Int64
	if c.counts != nil {
		abandoned = &c.counts.abandoned
	}
	f := c.frame
	r, err := detach.Run(f, func() (r result) {
		r.out, r.err = runTool(f, fn, o)
		return r
	}, result{err: errGoexit}, abandoned)
	if err != nil {
		r.err = err
	}
	return r.out, r.err
}

// runTool runs fn and checks its result. A panic comes back as a *PanicError. It
// does not come back if fn ends its goroutine, even if a panic on the way out is
// recovered here.
func runTool[Out any](f *callFrame, fn func(context.Context, string) (Out, error), o *callOptions[Out]) (out Out, err error) {
	returned := false
	defer func() {
		if !returned {
			err = &PanicError{Value: recover(), Stack: debug.Stack()}
		}
	}()
	if out, err = fn(f, *f.Tool); err == nil && o != nil {
		err = o.check(out)
	}
	returned = true
	return out, err
}

func askPartial[Out any](ctx context.Context, partial func(context.Context, *ToolError) (Out, error), failure *ToolError) (out Out, ok bool) {
	defer func() { _ = recover() }() // then ok is false
	out, err := partial(ctx, failure)
	return out, err == nil
}

// callFrame is the ctx of an attempt, or one that WithCallInfo or WithoutFallback
// made; askedOf is what such a ctx asks of a call.
type (
	callFrame = frame.Frame[CallInfo]
	askedOf   = frame.Options[CallInfo]
)

// call is one guarded call: the attempts of the tool that was asked for, then
// those of its substitutes. It lives on the stack of Call.
type call struct {
	g         *Guard
	registry  *Registry       // nil if nothing is kept
	ctx       context.Context // the caller's
	caller    *callFrame      // the nearest frame of ctx; nil if there is none
	options   askedOf         // of caller
	outer     *callFrame      // the attempt that ctx is inside of; nil if there is none
	requested string          // the tool that was asked for
	wiring    *wiring         // of a Tool; nil for Call, whose function takes any name

	// The tool that is being tried.
	tool       string
	substitute bool // it is not the one that was asked for
	policy     *Policy
	riding     bool // the call is part of an outer one of the same tool: neither admitted nor counted
	tries      int  // runs of tool
	admission
	counts  *guardStats // of tool; nil if it is not tracked
	frame   *callFrame  // the ctx of the attempt
	ended   int64       // when the last attempt ended
	last    Verdict     // of the last attempt
	lastErr error
	repeat  bool          // the tool is tried again after wait
	wait    time.Duration // before the next attempt

	// The call as a whole.
	begun    int64
	slot     *flight.Slot // of the call among the running ones; nil if requested is not tracked
	stats    *guardStats  // of requested; nil if it is not tracked
	attempts int          // runs of all tools
	answered bool         // a tool has answered
	replace  bool         // a substitute or a Partial handler may step in
	failures []Candidate
	canceled error
}

func (c *call) begin(ctx context.Context, g *Guard, tool string) {
	if ctx == nil {
		ctx = context.Background()
	}
	if g == nil || g.gate == nil {
		g = &Guard{gate: new(Gate), base: time.Now()}
	}
	c.g, c.ctx, c.requested = g, ctx, tool
	if r := g.gate.registry(); !r.inert() {
		c.registry = r
	}
	c.caller = frame.Of[CallInfo](ctx)
	c.options, c.outer = c.caller.Ask(), c.caller.Attempt()
	if c.options.Info != nil {
		*c.options.Info = CallInfo{}
	}
	c.tool, c.policy, c.begun = tool, g.policy(tool), c.now()
}

func (c *call) now() int64 {
	if c.registry != nil {
		return c.registry.now()
	}
	return since(c.g.base)
}

// run makes the call and ends it, also if code of a user ends the goroutine. It
// returns nil if a tool has answered.
func (c *call) run(try func() error) *ToolError {
	ended := false
	defer func() {
		if !ended {
			c.abort()
		}
	}()
	c.serve(try)
	ended = true
	return c.end()
}

// serve tries the tool that was asked for, then its substitutes in their order.
func (c *call) serve(try func() error) {
	c.turn(c.start(), try)
	for _, tool := range c.substitutes() {
		if !c.replace || c.riding || c.options.NoFallback || c.ctx.Err() != nil {
			return
		}
		switch {
		case c.outer.Inside(tool): // it is running already, further out
		case !c.wiring.serves(tool):
			c.fail(Candidate{Tool: tool, Reason: StopNonRetryable, Verdict: vNoFunction, Err: errNoFunction}, true)
		default:
			c.tool, c.substitute, c.policy, c.tries = tool, true, c.g.policy(tool), 0
			c.turn(c.admit(c.now()), try)
		}
	}
}

// substitutes returns the tools that may serve in the place of the one that was
// asked for, in their order.
func (c *call) substitutes() []string {
	names, listed := c.g.gate.router().entry(c.requested)
	if !listed && c.wiring != nil {
		return c.wiring.order
	}
	return names
}

// turn makes all attempts of one tool.
func (c *call) turn(admitted bool, try func() error) {
	for admitted {
		c.once(try)
		if !c.repeat {
			return
		}
		bucket := c.counts
		admitted = c.pause() && c.admit(c.now()) // if a hook ends the goroutine, abort returns the token
		if c.repeat = false; !admitted {
			c.policy.returnToken(bucket)
		}
	}
}

// once makes one attempt and reports how it went, also if the tool function ends
// the goroutine.
func (c *call) once(try func() error) {
	cancel := c.enter()
	err := errGoexit
	defer func() {
		if cancel != nil {
			defer cancel()
		}
		c.done(err)
	}()
	err = try()
}

// start admits the first attempt.
func (c *call) start() bool {
	if err := c.ctx.Err(); err != nil {
		c.cancel(err, nil)
		return false
	}
	if c.outer.Inside(c.tool) {
		c.riding, c.admission = true, admission{start: c.begun}
		return true
	}
	return c.admit(c.begun)
}

// admit asks the gate for one attempt of the tool.
func (c *call) admit(now int64) bool {
	r := c.registry
	if r == nil {
		c.admission = admission{start: now}
		return true
	}
	if n, epoch := r.admitFast(c.tool); n != nil {
		c.admission, c.counts = admission{node: n, epoch: epoch, start: now}, n.Value.guardStats()
		c.count(true)
		return true
	}
	n, a := r.admit(c.tool, now, int64(c.policy.Timeout), true)
	c.admission, c.counts = admission{node: n, epoch: a.Epoch, start: now, probe: a.Probe}, nil
	if n != nil {
		c.counts = n.Value.guardStats()
		c.count(a.Reason == machine.Admitted)
	}
	if a.Reason == machine.Admitted {
		return true
	}
	f := Candidate{Tool: c.tool, Reason: StopReason(a.Reason), Verdict: c.last, RetryAfter: time.Duration(a.Wait), Err: c.lastErr}
	if c.tries == 0 {
		refusal := newRefusal(c.tool, n, a)
		f.Verdict, _ = refusal.refused()
		f.Err = refusal
	}
	c.fail(f, true)
	return false
}

// count counts what the gate has said.
func (c *call) count(admitted bool) {
	if !c.substitute && c.stats == nil {
		c.stats = c.counts
		c.slot = c.stats.begin(c.begun)
	}
	switch {
	case !admitted:
		c.counts.refusals.Add(1)
		if !c.substitute && c.tries == 0 {
			c.counts.neverRan.Add(1)
		}
	case c.tries > 0:
		c.counts.retries.Add(1)
	case c.substitute:
		c.counts.asSubstitute.Add(1)
	}
}

// enter makes the ctx of the attempt, and returns its cancel if the attempt has a
// time limit.
func (c *call) enter() context.CancelFunc {
	ctx, cancel := c.ctx, context.CancelFunc(nil)
	if c.policy.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, c.policy.Timeout)
	}
	c.frame = &callFrame{Context: ctx}
	if c.caller != nil {
		c.frame.Options = c.caller.Options
	}
	if c.node != nil {
		c.frame.Tool = c.node.NameRef()
	} else {
		tool := c.tool
		c.frame.Tool = &tool
	}
	return cancel
}

// done reports the end of an attempt and decides how to go on.
func (c *call) done(err error) {
	c.ended = max(c.now(), c.admission.start)
	c.attempts++
	c.tries++
	c.last, c.lastErr = Verdict{}, err
	// Hooks and observers come last, since they may end the goroutine.
	if err != nil {
		c.classify(err)
	} else {
		c.answer()
		if c.node != nil {
			c.admission.succeed(c.registry, c.ended)
		}
	}
	if c.answered {
		c.observe(StopNone, 0)
		return
	}
	reason, wait := c.judge()
	if reason == RetryAllowed {
		c.repeat, c.wait = true, wait
	} else {
		c.fail(Candidate{Tool: c.tool, Reason: reason, Verdict: c.last, RetryAfter: wait, Err: err}, c.replaceable(reason))
	}
	c.observe(reason, wait)
}

// answer notes that a tool has answered.
func (c *call) answer() {
	c.answered, c.replace = true, false
	if c.counts != nil {
		c.counts.tokens.Reward()
	}
}

// classify finds out what err means and reports it, also if the Classifier ends
// the goroutine.
func (c *call) classify(err error) {
	c.last = vUnknown
	defer func() {
		if c.last.Outcome == OutcomeSuccess {
			c.answer()
		}
		if c.node != nil {
			c.report(c.registry, c.last, c.ended)
		}
	}()
	if c.frame.Err() != nil && c.ctx.Err() == nil {
		err = &attemptTimeoutError{err}
	}
	took := time.Duration(c.ended - c.admission.start)
	v := verdictAt(c.ctx, c.g.gate.Classify, err, took, c.g.config.DeadlineFloor)
	if c.node != nil {
		v.RetryAfter = c.node.Value.bounded(v.RetryAfter)
	}
	c.last = v
}

// judge says how to go on after a failed attempt, and what wait goes with it.
func (c *call) judge() (StopReason, time.Duration) {
	limit := c.policy.MaxAttempts
	if c.outer != nil || c.substitute {
		limit = 1 // retries are the outermost call's; a substitute has one attempt
	}
	var open StopReason
	var wait time.Duration
	if c.node != nil {
		open, wait = c.registry.openFor(c.tool, c.last.Outcome)
	}
	acts := c.policy.SideEffects || unknownInside(c.lastErr)
	switch reason := stopReason(c.last, c.tries, limit, open, acts); reason {
	case StopCircuitOpen, StopIsolated:
		return reason, wait
	case RetryAllowed:
		deadline, _ := c.ctx.Deadline()
		return c.policy.nextWait(c.last, c.tries, deadline, c.counts)
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
// tool may have acted: then this tool may have acted, too.
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
	case c.last.Outcome == OutcomeRejected && !c.substitute:
		return false // a substitute would reject the request, too
	case c.last.Outcome == OutcomeNeutral && c.last.Kind == KindDenied:
		return false
	}
	return !c.policy.SideEffects || c.last.NotSent
}

// pause waits before the next attempt; false if the caller has given up.
func (c *call) pause() bool {
	if c.options.Info != nil {
		c.options.Info.Waits = append(c.options.Info.Waits, c.wait)
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
	c.fail(Candidate{Tool: c.tool, Reason: StopCanceled, Verdict: vCanceled, Err: last}, false)
}

// fail notes that a candidate is out. replace says whether another may step in.
func (c *call) fail(f Candidate, replace bool) {
	f.Kind = f.Verdict.Kind
	c.failures = append(c.failures, f)
	c.replace = replace
}

// end reports the end of the call, once. It returns nil if a tool has answered.
func (c *call) end() *ToolError {
	var e *ToolError
	if !c.answered {
		e = c.failure()
	}
	if c.slot != nil {
		c.slot.Store(0)
	}
	if c.stats != nil {
		switch {
		case e == nil:
			if c.substitute {
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
	if info := c.options.Info; info != nil {
		info.Requested, info.Attempts = c.requested, c.attempts
		if e == nil {
			info.Served = c.tool
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
	if c.repeat {
		c.policy.returnToken(c.counts)
	}
	if len(c.failures) == 0 { // end ignores it if a tool has answered
		c.fail(Candidate{Tool: c.tool, Reason: StopNonRetryable, Verdict: c.last, Err: errGoexit}, false)
	}
	c.end()
}

// failure sums up the candidates.
func (c *call) failure() *ToolError {
	e := &ToolError{Tool: c.requested, Attempts: c.attempts, Candidates: c.failures, Canceled: c.canceled}
	for _, f := range c.failures {
		known := f.RetryAfter > 0 && f.Reason != StopUnknownTool // that one says no more than a cooldown
		if known && (e.RetryAfter == 0 || f.RetryAfter < e.RetryAfter) {
			e.RetryAfter = f.RetryAfter
		}
	}
	f := e.decisive()
	e.Reason, e.Kind, e.Verdict = f.Reason, f.Kind, f.Verdict
	return e
}

// observed reports whether an observer hears of this call. A call that rides is
// part of another.
func (c *call) observed() bool { return c.g.config.Observe != nil && !c.riding }

func (c *call) observe(reason StopReason, wait time.Duration) {
	if c.observed() {
		c.notify(Event{
			Tool: c.requested, Served: c.tool, Attempt: c.tries, Verdict: c.last, Err: c.lastErr, Reason: reason,
			Took: time.Duration(c.ended - c.admission.start), Wait: wait,
		})
	}
}

func (c *call) observeEnd(e *ToolError) {
	event := Event{
		Tool: c.requested, Served: c.tool, Final: true, Attempt: c.attempts, Verdict: c.last,
		Took: time.Duration(max(c.now()-c.begun, 0)),
	}
	if e != nil {
		event.Reason, event.Wait, event.Verdict.Kind, event.Err = e.Reason, e.RetryAfter, e.Kind, e
		if c.attempts == 0 || e.Reason == StopCanceled {
			event.Verdict = Verdict{Outcome: OutcomeNeutral, Kind: e.Kind}
		}
	}
	c.notify(event)
}

// notify calls the observer, which may panic.
func (c *call) notify(e Event) {
	defer func() { _ = recover() }()
	c.g.config.Observe(c.ctx, e)
}

// Decision says what to do after an attempt.
type Decision struct {
	Reason StopReason    // RetryAllowed, StopNone after a success, else why to stop
	Wait   time.Duration // before the next attempt, if Reason is RetryAllowed; else a stated wait
	Streak int           // consecutive failures of the tool, this one included
}

// Next is the retry policy alone, for engines with a loop of their own that ask
// [Registry.AllowRequest]. It records the verdict, without a duration, so the caller
// must not record it again. attempt counts from 1.
//
// A verdict that is not retryable stops with non_retryable. After one that is, Next
// stops with circuit_open if the breaker is open by then, with retry_exhausted at
// MaxAttempts, or with the reason for which the budget or MaxWait forbids a retry.
// Else a retry is allowed.
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
			d.Streak = n.Value.snap.Load().Streak
			v.RetryAfter = n.Value.bounded(v.RetryAfter)
		}
	}
	if v.Outcome == OutcomeSuccess {
		if stats != nil {
			stats.tokens.Reward()
		}
		return d
	}
	policy := g.policy(tool)
	open, wait := r.openFor(tool, v.Outcome)
	d.Wait = max(v.RetryAfter, 0)
	d.Reason = stopReason(v, attempt, policy.MaxAttempts, open, policy.SideEffects)
	switch d.Reason {
	case StopCircuitOpen, StopIsolated:
		d.Wait = wait
	case RetryAllowed:
		d.Reason, d.Wait = policy.nextWait(v, attempt, time.Time{}, stats)
	}
	return d
}

// nextWait says how long to wait before the next attempt, and takes a token for
// it, or says why there is none. The zero deadline means that there is none.
func (c *Policy) nextWait(v Verdict, attempt int, deadline time.Time, stats *guardStats) (StopReason, time.Duration) {
	d := retry.Delay(c.BackoffBase, c.BackoffMax, c.BackoffFactor, attempt)
	d = retry.Jitter(d, c.Jitter, rand.Float64())
	asked := v.RetryAfter > 0 && v.RetryAfter >= d
	d = max(d, v.RetryAfter)
	if (c.MaxWait > 0 && d > c.MaxWait) || (!deadline.IsZero() && time.Until(deadline) <= d) {
		if asked {
			return StopRateLimited, v.RetryAfter
		}
		return StopRetryExhausted, max(v.RetryAfter, 0)
	}
	if c.RetryBudget > 0 && stats != nil && !stats.takeToken(c.RetryBudget) {
		return StopRetryBudgetExhausted, max(v.RetryAfter, 0)
	}
	return RetryAllowed, d
}

// returnToken gives back the token of a retry that is not made.
func (c *Policy) returnToken(stats *guardStats) {
	if stats != nil && c.RetryBudget > 0 {
		stats.tokens.Return()
	}
}

// CallInfo says how one guarded call went. It is complete when the call has returned,
// and must not be read before.
type CallInfo struct {
	Requested string          // the tool that was asked for
	Served    string          // the tool whose answer was returned; "" without an answer
	Attempts  int             // runs of tool functions in all
	Waits     []time.Duration // waits between the attempts
	Partial   bool            // whether the answer is the Partial handler's
	Reason    StopReason      // StopNone after a success, a substitute's included
}

// WithCallInfo returns a ctx for one guarded call, and the CallInfo that this call
// fills in. Calls inside the tool function do not write there.
func WithCallInfo(ctx context.Context) (context.Context, *CallInfo) {
	o := frame.Of[CallInfo](ctx).Ask()
	o.Info = new(CallInfo)
	return &callFrame{Context: ctx, Options: &o}, o.Info
}

// WithoutFallback returns a ctx for guarded calls that may not be served by a
// substitute. A Partial handler is still asked.
func WithoutFallback(ctx context.Context) context.Context {
	o := frame.Of[CallInfo](ctx).Ask()
	o.NoFallback = true
	return &callFrame{Context: ctx, Options: &o}
}

// partialContext is the caller's ctx for a Partial handler: guarded calls there do
// not write into this call's CallInfo.
func (c *call) partialContext() context.Context {
	if c.options.Info == nil {
		return c.ctx
	}
	return &callFrame{Context: c.ctx, Options: &askedOf{NoFallback: c.options.NoFallback}}
}

// Candidate is a tool that a call tried or wanted to try.
type Candidate struct {
	Tool       string
	Reason     StopReason
	Kind       Kind    // that of Verdict
	Verdict    Verdict // what its last attempt said; that of the refusal if it did not run
	RetryAfter time.Duration
	Err        error // the last error of the tool function, or why it did not run
}

// ToolError is the error of a guarded call. Its text is safe to show to the model. The
// errors of the tools are not in it, but errors.Is and errors.As reach them: the
// primary's first, then those of its substitutes.
//
// The tool's own answer, which the model may need after a rejected request, is the
// result that came beside the error if CheckResult found it, or else the text of the
// error of the SDK; see [ModelText].
type ToolError struct {
	Tool string // the tool that was asked for
	// Reason is why the call ended: the primary's reason, unless a substitute may have
	// acted or the caller gave up.
	Reason     StopReason
	Kind       Kind          // that of Verdict; KindRefused if no tool ran
	Verdict    Verdict       // of the candidate whose reason Reason is
	Attempts   int           // runs of tool functions in all
	RetryAfter time.Duration // the smallest known wait of all candidates; zero means none
	Candidates []Candidate   // the primary and the substitutes that were tried, in order
	Canceled   error         // the caller's ctx.Err() if that ended the call, else nil
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

// Details returns one line for logs: the tool, the reason, the kind, the attempts and
// the error text of every candidate, which Error omits. It may hold host names and
// secrets, and is not for the model.
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

// decisive returns the candidate whose reason is that of the call: the primary, unless
// a later one has canceled the call or may have acted. It is nil without candidates.
func (e *ToolError) decisive() (d *Candidate) {
	for i := range e.Candidates {
		f := &e.Candidates[i]
		if d == nil || f.Reason == StopCanceled || f.Reason == StopOutcomeUnknown {
			d = f
		}
	}
	return d
}

// Cause returns the error behind Reason: what the tool function returned last, the
// *Refusal, or the caller's ctx.Err() if the call was canceled before a tool had
// failed. It is the tool's own, so its text is for logs; see [ModelText].
func (e *ToolError) Cause() error {
	if d := e.decisive(); d != nil && d.Err != nil {
		return d.Err
	}
	return e.Canceled
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

var (
	errGoexit = WithVerdict(errors.New("tool function ended its goroutine"),
		Verdict{Outcome: OutcomeNeutral, Kind: KindNotDispatched})
	errNoFunction = WithVerdict(errors.New("no function was given for this tool"), vNoFunction)
	vNoFunction   = Verdict{Outcome: OutcomeNeutral, Kind: KindNotDispatched, NotSent: true}
	vCanceled     = Verdict{Outcome: OutcomeNeutral, Kind: KindCanceled}
)
