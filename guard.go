package toolhealth

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolhealth/toolhealth/internal/errfacts"
	"github.com/toolhealth/toolhealth/internal/fields"
	"github.com/toolhealth/toolhealth/internal/flight"
	"github.com/toolhealth/toolhealth/internal/frame"
	"github.com/toolhealth/toolhealth/internal/machine"
	"github.com/toolhealth/toolhealth/internal/stamp"
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
// for the same tool of the same registry is part of the outer call: it is neither
// admitted nor counted again. Both hold while the outer attempt runs.
//
// If a tool with side effects further in may have acted, the outer attempt is not
// repeated either. An attempt that has failed without that is given up: a goroutine that
// it has left, with a ctx that is not canceled, gets StopCanceled when it calls a tool
// with side effects, because the attempt may be repeated.
//
// A call does not wait beside a free substitute: before a wait of more than a second
// that the tool stated, and before a retry that may not fit the caller's time, the
// substitutes are tried. If they fail and surely have not acted, the wait is made.
//
// A Guard may be used from any goroutine. It starts a goroutine only for Detach and to
// settle a [Flight] that is not ended, and a timer only for that, for a Timeout or a
// MaxDuration, and for a back-off. The zero Guard, and a nil one, makes
// each call once and keeps nothing.
type Guard struct {
	// rules is replaced as a whole by SetSettings. A call loads it once and keeps to
	// it. It is nil in the zero Guard.
	rules atomic.Pointer[ruleSet]
	live  atomic.Pointer[Gate] // the gate of rules, for gates from before; nil if the guard is not of New
	mu    sync.Mutex           // held to put other Settings in force
	// wrapped has the substitutes of wrapped tools in their order, a []string by the
	// tool's name. Substitute writes, the latest copy of a Tool last; Offer reads.
	wrapped sync.Map
}

// NewGuard returns a guard on top of a gate, or every problem of the configuration at
// once. A nil gate means the zero Gate. The Gate's Router is used in each call: the
// primary first, its substitutes when it is refused or fails for good. [New] makes the
// gate, too.
func NewGuard(gate *Gate, config GuardConfig) (*Guard, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if gate == nil {
		gate = new(Gate)
	}
	g := new(Guard)
	g.rules.Store(newRuleSet(gate, config))
	return g, nil
}

// New returns a guard with a gate, a registry and substitutes of its own, or every
// problem of the settings at once, as joined [ConfigError]s. Beside values out of bounds
// these are a substitute that is no known tool where RegisteredOnly is set, and
// substitutes that make a circle. Two tools may stand in for each other.
func New(s Settings) (*Guard, error) {
	c, err := compileSettings(s, s.problems(nil))
	if err != nil {
		return nil, err
	}
	g := new(Guard)
	g.put(c, newRegistry(c.registry))
	return g, nil
}

// SetSettings puts other settings in force, or returns every problem of theirs and
// changes nothing. It is for a guard that New has made.
//
// States of breakers, figures, retry budgets and wrapped tools stay. Breakers change as
// [Registry.SetConfig] says, which it replaces, too. A call that is under way keeps to
// the policy and the substitutes with which it began.
func (g *Guard) SetSettings(s Settings) error {
	rules := g.ruled()
	r := rules.gate.Registry
	if rules.settings == nil {
		return errors.New("toolhealth: SetSettings: the guard was not made by New")
	}
	c, err := compileSettings(s, append(s.problems(r.registered), s.regrouped(rules.settings, r.groupOfCalled)...))
	if err != nil {
		return err
	}
	r.notifyClosed(g.replace(c, r)) // not under the lock: a hook may set settings, too
	return nil
}

// replace puts c in force and returns the breakers that this closes. Under the lock,
// the registry and the rules end up with the settings of the same call.
func (g *Guard) replace(c *compiledSettings, r *Registry) []closing {
	g.mu.Lock()
	defer g.mu.Unlock()
	closed := r.reconfigure(c.registry)
	g.put(c, r)
	return closed
}

// compiledSettings is valid Settings in the parts that use them.
type compiledSettings struct {
	registry *compiled
	router   *HealthRouter
	config   GuardConfig
	settings *Settings // a copy
}

// compileSettings returns the parts, or the problems as an error if there are any.
func compileSettings(s Settings, problems fields.Problems) (*compiledSettings, error) {
	if err := configError(problems); err != nil {
		return nil, err
	}
	s = s.clone()
	config := Config{
		Breaker: s.Breaker, Tools: make(map[string]BreakerConfig, len(s.Tools)),
		MaxTools: s.MaxTools, RegisteredOnly: s.RegisteredOnly,
		Group: s.grouping(), GroupBreaker: s.GroupBreaker, GroupServerErrors: s.GroupServerErrors,
	}
	guard := GuardConfig{Default: s.Policy, Tools: make(map[string]Policy), PolicyOf: s.PolicyOf, Start: s.Start, Observe: s.Observe}
	substitutes, labels, groups := make(map[string][]string), make(map[string]map[string]string), make(map[string]string)
	for tool, t := range s.Tools {
		config.Tools[tool] = s.Breaker
		if t.Breaker != nil {
			config.Tools[tool] = *t.Breaker
		}
		if t.Policy != nil {
			guard.Tools[tool] = *t.Policy
		}
		if t.Substitutes != nil { // else those of a wrapped tool count
			substitutes[tool] = t.Substitutes
		}
		labels[tool] = t.Labels
		if t.Group != "" {
			groups[tool] = t.Group
		}
	}
	registry := compile(config)
	registry.labels, registry.groups = labels, groups
	return &compiledSettings{registry: registry, router: newRouter(substitutes), config: guard, settings: &s}, nil
}

// put puts the rules of c in force, on top of the registry.
func (g *Guard) put(c *compiledSettings, r *Registry) {
	gate := &Gate{
		Registry: r, Router: c.router, Classify: c.settings.Classify, DeadlineFloor: c.settings.DeadlineFloor, live: &g.live,
	}
	rules := newRuleSet(gate, c.config)
	rules.settings = c.settings
	g.rules.Store(rules)
	g.live.Store(gate)
}

// Settings returns a copy of the settings that are in force; zero Settings if the guard
// was not made by New.
func (g *Guard) Settings() Settings {
	s := g.ruled().settings
	if s == nil {
		return Settings{}
	}
	return s.clone()
}

// Gate returns the guard's gate, for calls of a loop of your own. That of a guard that
// New has made follows SetSettings.
func (g *Guard) Gate() *Gate { return g.ruled().gate }

// Registry returns the guard's registry; nil if it has none.
func (g *Guard) Registry() *Registry { return g.ruled().gate.registry() }

// Offer sorts tools as [Gate.Offer] does, and also knows the substitutes that
// [Tool.Substitute] has given to tools for which the Router has no entry.
func (g *Guard) Offer(tools []string) (offer, leaveOut []string) {
	gate := g.ruled().gate
	return gate.offer(tools, func(tool string) []string {
		names, listed := gate.router().entry(tool)
		if !listed && g != nil {
			if order, ok := g.wrapped.Load(tool); ok {
				return order.([]string)
			}
		}
		return names
	})
}

// ruled returns the rules in force. Those of the zero Guard make each call once.
func (g *Guard) ruled() *ruleSet {
	if g != nil {
		if rs := g.rules.Load(); rs != nil {
			return rs
		}
	}
	return &ruleSet{gate: new(Gate), usual: new(policy), base: time.Now()}
}

// call is one guarded call: the attempts of the tool that was asked for, then those of
// its substitutes. It lives on the stack of Call.
type call struct {
	turn

	rules     *ruleSet
	registry  *Registry       // nil if nothing is kept
	ctx       context.Context // the caller's
	caller    *callFrame      // the nearest frame of ctx; nil if there is none
	options   askedOf         // of caller
	nested    bool            // ctx is that of an attempt that is running
	requested string          // the tool that was asked for
	acts      bool            // requested has side effects, so whatever serves for it has
	wiring    *wiring         // of a Tool; nil for Call, whose function takes any name
	broken    error           // why the policy is wrong

	begun     int64
	slot      *flight.Slot // of the call among the running ones; nil if requested is not tracked
	stats     *guardStats  // of requested; nil if it is not tracked
	attempts  int          // runs of all tools
	answered  bool         // a tool has answered
	replace   bool         // a substitute or a Partial handler may step in
	postponed bool         // requested waits for another attempt while substitutes are tried
	failures  []Candidate
	canceled  error

	stays  bool          // a tool function that returns nil does not end the call: that is up to a Flight
	open   bool          // it has returned nil, and the Flight is out
	paused time.Duration // by the attempt, before it returned
	stayed time.Duration // how long the Flight was out, without pauses
}

// turn is what a call knows of the tool that it is trying.
type turn struct {
	tool       string
	substitute bool // it is not the one that was asked for
	policy     *policy
	riding     bool // the call is part of an outer one of the same tool: neither admitted nor counted
	admission
	counts  *guardStats             // of tool; nil if it is not tracked
	frame   *callFrame              // the ctx of the attempt; nil before the first
	quit    context.CancelCauseFunc // ends frame
	told    context.Context         // what Start returned for the attempt; the caller's without a Start
	late    bool                    // frame was done before the attempt ended
	tries   int                     // runs of tool
	ended   int64                   // when the last attempt ended
	last    Verdict                 // of the last attempt
	lastErr error
	checked bool          // lastErr is a check's
	acting  bool          // the attempts further out know of the run
	cut     bool          // the Timeout has ended the last attempt
	failed  bool          // a failed attempt may have reached the tool
	repeat  bool          // the tool is tried again after wait
	token   bool          // of its budget, for that
	wait    time.Duration // before the next attempt
}

func (c *call) begin(ctx context.Context, g *Guard, tool string) {
	if ctx == nil {
		ctx = context.Background()
	}
	c.rules, c.ctx, c.requested = g.ruled(), ctx, tool
	if r := c.rules.gate.registry(); !r.inert() {
		c.registry = r
	}
	c.caller = frame.Of[CallInfo](ctx)
	c.options, c.nested = c.caller.Ask(), c.caller.Nested()
	if c.options.Info != nil {
		*c.options.Info = CallInfo{}
	}
	c.tool, c.begun = tool, c.now()
	c.policy, c.broken = c.rules.of(tool)
	c.acts = c.policy.SideEffects
}

func (c *call) now() int64 {
	if c.registry != nil {
		return c.registry.now()
	}
	return since(c.rules.base)
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

// serve tries the tool that was asked for, then its substitutes, then, if it would have
// had to wait for another attempt, that one again.
func (c *call) serve(try func() error) {
	c.take(c.start(), try)
	if c.answered {
		return
	}
	primary := c.turn
	for _, tool := range c.registry.order(c.substitutes()) {
		if !c.mayReplace() {
			return
		}
		switch {
		case c.caller.Inside(tool, c.registry): // it is running already, further out
		case !c.wiring.serves(tool):
			c.fail(Candidate{Tool: tool, Reason: StopNonRetryable, Verdict: vNotRun, Err: errNoFunction}, true)
		default:
			c.turn = turn{tool: tool, substitute: true}
			if c.policy, c.broken = c.rules.of(tool); c.broken != nil {
				c.failBroken(true)
			} else {
				c.take(c.admit(c.now()), try)
			}
		}
	}
	if c.postponed && c.mayReplace() {
		c.turn = primary
		c.resume(try)
	}
}

// substitutes returns the tools that may serve in the place of the one that was
// asked for, in their order.
func (c *call) substitutes() []string {
	names, listed := c.rules.gate.router().entry(c.requested)
	if !listed && c.wiring != nil {
		return c.wiring.order
	}
	return names
}

// mayReplace reports whether another candidate may serve.
func (c *call) mayReplace() bool {
	return c.replace && !c.riding && !c.options.NoFallback && c.ctx.Err() == nil
}

// take makes all attempts of one tool.
func (c *call) take(admitted bool, try func() error) {
	for admitted {
		c.once(try)
		admitted = c.repeat && c.again()
	}
}

// again waits, and asks for another attempt.
func (c *call) again() bool {
	stats := c.counts
	admitted := c.pause() && c.admit(c.now()) // if a hook ends the goroutine, abort returns the token
	if c.repeat = false; !admitted {
		c.returnToken(stats)
	}
	return admitted
}

// yield puts the primary's next attempt off until the substitutes have been tried, and
// says why: the tool stated a wait of more than a second, or the attempt may not fit the
// caller's time. Else it returns RetryAllowed and the wait before the attempt.
func (c *call) yield() (StopReason, time.Duration) {
	reason := RetryAllowed
	if c.last.RetryAfter > time.Second {
		reason = StopRateLimited
	} else if left, bounded := c.left(); bounded && left-c.wait < time.Duration(c.ended-c.admission.start) {
		reason = StopRetryExhausted
	}
	if reason == RetryAllowed || !c.substituteIsFree() {
		return RetryAllowed, c.wait
	}
	c.returnToken(c.counts)
	c.repeat, c.postponed = false, true
	return reason, max(c.last.RetryAfter, 0)
}

// substituteIsFree reports whether a substitute may serve, and would be admitted now. A
// call that retries is in no other, so none of them is running further out.
func (c *call) substituteIsFree() bool {
	if c.substitute || c.postponed || c.options.NoFallback || !c.replaceable(RetryAllowed) {
		return false
	}
	for _, tool := range c.substitutes() {
		if c.wiring.serves(tool) && c.registry.Available(tool) {
			return true
		}
	}
	return false
}

// resume makes the primary's postponed attempt, when its wait is over. It fits the
// caller's time, as it did before.
func (c *call) resume(try func() error) {
	c.wait = max(c.wait-time.Duration(c.now()-c.ended), 0)
	if c.token && !c.policy.takeToken(c.counts, c.now()) {
		c.failures[0].Reason = StopRetryBudgetExhausted
		return
	}
	c.repeat = true
	c.take(c.again(), try)
}

// left returns the time until the caller's deadline, and false if there is none.
func (c *call) left() (time.Duration, bool) {
	deadline, bounded := c.ctx.Deadline()
	return time.Until(deadline), bounded
}

// once makes one attempt and reports how it went, also if the tool function ends the
// goroutine, or a method of the caller's ctx panics.
func (c *call) once(try func() error) {
	err := errGoexit
	defer func() {
		c.attempts++
		c.tries++
		c.ended = max(c.now(), c.admission.start)
		c.done(err)
	}()
	c.tell()
	if c.sideEffects() {
		if c.acting = c.caller.Act(); !c.acting {
			err = errGivenUp
			return
		}
	}
	c.enter()
	defer func() { c.leave(err) }()
	err = try()
}

// tell tells Start of an attempt that begins. What Start takes is not the tool's time.
func (c *call) tell() {
	c.told = c.ctx
	start := c.rules.config.Start
	if start == nil || c.riding {
		return
	}
	defer func() {
		_ = recover()
		c.admission.start = max(c.now(), c.admission.start)
	}()
	if ctx := start(c.ctx, Event{Tool: c.requested, Served: c.tool, Attempt: c.tries + 1}); ctx != nil {
		c.told = ctx
	}
}

// failBroken notes that the tool cannot run because its policy is wrong.
func (c *call) failBroken(replace bool) {
	c.fail(Candidate{Tool: c.tool, Reason: StopNonRetryable, Verdict: vNotRun, Err: c.broken}, replace)
}

// sideEffects reports whether a run of the tool may change something.
func (c *call) sideEffects() bool { return c.acts || c.policy.SideEffects }

// start admits the first attempt.
func (c *call) start() bool {
	if c.broken != nil {
		c.failBroken(false)
		return false
	}
	if err := c.ctx.Err(); err != nil {
		c.cancel(err, nil)
		return false
	}
	if c.caller.Inside(c.tool, c.registry) {
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
	if n, epoch, group := r.admitFast(c.tool); n != nil {
		c.admission = admission{node: n, start: now, tool: stamp.Ticket{Epoch: epoch}, group: stamp.Ticket{Epoch: group}}
		c.counts = n.Value.guardStats()
		c.count(true)
		return true
	}
	n, a := r.admit(c.tool, now, request{
		leaseFloor: int64(c.policy.limit()), permit: true, noProbe: c.options.NoProbe, around: c.caller.Current(),
	})
	tool, group := a.tickets()
	c.admission, c.counts = admission{node: n, start: r.startOf(&a, now), tool: tool, group: group}, nil
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
		f.Verdict.NotSent, f.Err = true, refusal // this tool was not called
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

// enter makes the ctx of the attempt.
func (c *call) enter() {
	var name *string
	if c.node != nil {
		name = c.node.NameRef()
	} else {
		tool := c.tool
		name = &tool
	}
	limits := frame.Limits{Silence: c.policy.Timeout, Whole: c.policy.MaxDuration}
	if c.admission.tool.Probe || c.group.Probe {
		limits.Lease = &probeLease{c.registry, c.admission}
	}
	c.frame, c.quit = frame.Enter(c.told, c.caller, limits, name, c.registry)
}

// leave ends the ctx of the attempt, unless err is nil and a Flight keeps it. That comes
// before the attempt is judged, so that no run of a tool with side effects begins inside
// of it unseen. What was paused is not the tool's time.
func (c *call) leave(err error) {
	attempt := c.frame.Attempt
	if c.stays && err == nil {
		c.open, c.paused = true, attempt.Paused()
		c.admission.start += int64(c.paused)
		attempt.KeepAlive()
		return
	}
	c.late = c.frame.Err() != nil
	c.admission.start += int64(attempt.End())
	c.quit(nil)
}

// done reports the end of an attempt and decides how to go on.
func (c *call) done(err error) {
	check, checked := err.(*checkError)
	if c.checked = checked; checked {
		err = check.error
	}
	c.last, c.lastErr, c.cut = Verdict{}, err, false
	if c.open && c.stays {
		c.answered, c.replace = true, false // the Flight reports how it goes
		return
	}
	// Hooks and observers come last, since they may end the goroutine.
	if err != nil {
		c.classify(err)
	} else {
		c.answer()
		if c.node != nil {
			c.admission.succeed(c.registry, c.ended)
		}
	}
	if c.acting && c.last.NotSent {
		c.acting = false
		c.caller.Unact()
	}
	if c.answered {
		c.observe(StopNone, 0)
		return
	}
	reason, wait := c.judge()
	c.failed = c.failed || c.last.Outcome == OutcomeFailure && !c.last.NotSent
	if reason == RetryAllowed {
		c.repeat, c.wait = true, wait
		reason, wait = c.yield()
	}
	if !c.repeat {
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
	if c.cut = c.late && c.ctx.Err() == nil; c.cut {
		err = &attemptTimeoutError{err}
	}
	ctx := c.ctx
	if c.frame != nil {
		ctx = withNotes(ctx, &c.frame.Attempt.Notes)
	}
	took := time.Duration(c.ended-c.admission.start) + c.stayed
	c.inner = c.node != nil && c.node.Value.group != nil && fromInside(err)
	v := verdictAt(ctx, c.rules.gate.Classify, err, took, c.rules.gate.floor())
	v.NotSent = v.NotSent && !c.open && c.ctx.Err() == nil && c.speaksOfTool(err)
	if c.node != nil {
		v.RetryAfter = c.node.Value.bounded(v.RetryAfter)
	}
	c.last = v
}

// checkError is an error of CheckResult.
type checkError struct{ error }

// speaksOfTool reports whether err can say that the tool was not reached: the tool
// function marked it, or it comes neither from a guarded call further in, which speaks
// of another tool, nor from a check, which ran after the tool.
func (c *call) speaksOfTool(err error) bool {
	if _, ok := err.(ToolVerdicter); ok {
		return true
	}
	return !c.checked && !fromInside(err)
}

// judge says how to go on after a failed attempt, and what wait goes with it.
func (c *call) judge() (StopReason, time.Duration) {
	limit := c.policy.MaxAttempts
	if c.open || c.nested || c.substitute || c.cut && c.policy.usualTimeout && !c.frame.Attempt.Overdue() {
		limit = 1 // retries are the outermost call's; a substitute has one attempt
	}
	var open StopReason
	var wait time.Duration
	if c.node != nil {
		open, wait = c.registry.openFor(c.tool, c.last.Outcome)
	}
	// A conflict after an attempt that may have run is that attempt, still in progress.
	pending := c.failed && c.last.Outcome == OutcomeRejected && c.last.Kind == KindConflict
	switch reason := stopReason(c.last, c.tries, limit, open, c.unsafe(), pending); reason {
	case StopCircuitOpen, StopIsolated:
		return reason, wait
	case RetryAllowed:
		reason, wait := c.plan()
		if pending && reason != RetryAllowed {
			reason = StopOutcomeUnknown
		}
		return reason, wait
	case StopCanceled:
		c.canceled = c.ctx.Err()
		return reason, 0
	default:
		if c.last.Kind == KindTimeout {
			c.canceled = c.ctx.Err() // if the time that was up is the caller's
		}
		if reason == StopNonRetryable && c.canceled != nil {
			reason = StopTimeout
		}
		return reason, max(c.last.RetryAfter, 0)
	}
}

// plan says how long to wait before the next attempt, or why there is none.
func (c *call) plan() (StopReason, time.Duration) {
	room := time.Duration(math.MaxInt64)
	if left, bounded := c.left(); bounded {
		room = left
	}
	reason, wait, costs := c.policy.nextWait(c.last, c.tries, room)
	if reason != RetryAllowed {
		return reason, wait
	}
	if c.token = costs && c.counts != nil; c.token && !c.policy.takeToken(c.counts, c.now()) {
		return StopRetryBudgetExhausted, max(c.last.RetryAfter, 0)
	}
	return RetryAllowed, wait
}

// takeToken takes a token for a retry, or counts that there is none.
func (c *policy) takeToken(stats *guardStats, now int64) bool {
	if stats.tokens.Take(c.RetryBudget, c.RetryRefill, now) {
		return true
	}
	stats.exhausted.Add(1)
	return false
}

// returnToken gives back the token of an attempt that is not made now.
func (c *call) returnToken(stats *guardStats) {
	if c.token {
		stats.tokens.Return()
	}
}

// unsafe reports whether the attempt may have changed something, itself or by a tool
// further in. If not, a goroutine that it has left cannot do so later, either.
func (c *call) unsafe() bool {
	switch {
	case c.sideEffects() && !c.last.NotSent, unknownInside(c.lastErr):
		return true
	}
	return c.frame != nil && !c.frame.Attempt.GiveUp()
}

// unknownInside reports whether err is that of a guarded call further in whose tool may
// have acted. The frames say so, too, unless the tool function lost its ctx.
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
	case c.last.Outcome == OutcomeRejected && !c.substitute && c.last.Kind != KindUnauthorized && c.last.Kind != KindGone:
		return false // a substitute would reject the request, too
	case c.last.Outcome == OutcomeNeutral && c.last.Kind == KindDenied:
		return false
	}
	return !c.unsafe()
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
	if f.Tool == c.requested && len(c.failures) > 0 { // the primary's next attempt was put off, and now it is out
		c.failures[0] = f
	} else {
		c.failures = append(c.failures, f)
	}
	c.replace = replace
}

// end reports the end of the call, once, unless a Flight is out, which will. It returns
// nil if a tool has answered.
func (c *call) end() *ToolError {
	var e *ToolError
	if !c.answered {
		e = c.failure()
	}
	c.inform(e)
	if !c.open || !c.stays {
		c.close(e)
	}
	return e
}

// close counts the call and tells the observer of its end.
func (c *call) close(e *ToolError) {
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
	if c.observed() {
		c.observeEnd(e)
	}
}

// inform fills in the CallInfo.
func (c *call) inform(e *ToolError) {
	info := c.options.Info
	if info == nil {
		return
	}
	info.Requested, info.Attempts = c.requested, c.attempts
	if e != nil {
		info.Reason = e.Reason
		return
	}
	info.Served, info.Skipped = c.tool, c.failures
	if len(c.failures) > 0 && !c.substitute { // the primary served after all
		info.Skipped = c.failures[1:]
	}
}

// abort ends a call whose goroutine is ending, perhaps before anything was noted.
func (c *call) abort() {
	if c.repeat {
		c.returnToken(c.counts)
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
		known := hint(f.Reason, f.RetryAfter) > 0
		if known && (e.RetryAfter == 0 || f.RetryAfter < e.RetryAfter) {
			e.RetryAfter = f.RetryAfter
		}
	}
	f := e.decisive()
	e.Reason, e.Verdict = f.Reason, f.Verdict
	return e
}

// observed reports whether an observer hears of this call. A call that rides is
// part of another.
func (c *call) observed() bool { return c.rules.config.Observe != nil && !c.riding }

func (c *call) observe(reason StopReason, wait time.Duration) {
	if c.observed() {
		c.notify(c.told, Event{
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
		event.Reason, event.Wait, event.Verdict.Kind, event.Err = e.Reason, e.RetryAfter, e.Verdict.Kind, e
		if c.attempts == 0 || e.Reason == StopCanceled {
			event.Verdict = Verdict{Outcome: OutcomeNeutral, Kind: e.Verdict.Kind}
		}
	}
	c.notify(c.ctx, event)
}

// notify calls the observer, which may panic.
func (c *call) notify(ctx context.Context, e Event) {
	defer func() { _ = recover() }()
	c.rules.config.Observe(ctx, e)
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
	rules := g.ruled()
	r := rules.gate.registry()
	r.Record(tool, v, 0)
	var d Decision
	var stats *guardStats
	if !r.inert() {
		if n := r.table.Get(tool); n != nil {
			stats = n.Value.guardStats()
			d.Streak = int(n.Value.snap.Load().Streak)
			v.RetryAfter = n.Value.bounded(v.RetryAfter)
		}
	}
	if v.Outcome == OutcomeSuccess {
		if stats != nil {
			stats.tokens.Reward()
		}
		return d
	}
	policy, err := rules.of(tool)
	if err != nil {
		d.Reason = StopNonRetryable
		return d
	}
	open, wait := r.openFor(tool, v.Outcome)
	d.Wait = max(v.RetryAfter, 0)
	d.Reason = stopReason(v, attempt, policy.MaxAttempts, open, policy.SideEffects && !v.NotSent, false)
	switch d.Reason {
	case StopCircuitOpen, StopIsolated:
		d.Wait = wait
	case RetryAllowed:
		var costs bool
		d.Reason, d.Wait, costs = policy.nextWait(v, attempt, math.MaxInt64)
		if costs && stats != nil && !policy.takeToken(stats, r.now()) {
			d.Reason, d.Wait = StopRetryBudgetExhausted, max(v.RetryAfter, 0)
		}
	}
	return d
}

// partialContext is the caller's ctx for a Partial handler: guarded calls there do
// not write into this call's CallInfo.
func (c *call) partialContext() context.Context {
	if c.options.Info == nil {
		return c.ctx
	}
	o := c.options
	o.Info = nil
	return &callFrame{Context: c.ctx, Options: &o}
}

var (
	errGoexit = WithVerdict(errors.New("tool function ended its goroutine"),
		Verdict{Outcome: OutcomeNeutral, Kind: KindNotDispatched})
	errGivenUp    = WithVerdict(errors.New("the attempt around this call was given up"), vCanceled)
	errNoFunction = errors.New("no function was given for this tool")
	vNotRun       = Verdict{Outcome: OutcomeNeutral, Kind: KindNotDispatched, NotSent: true}
)
