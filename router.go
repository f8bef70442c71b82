package toolhealth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/toolhealth/toolhealth/internal/errfacts"
	"github.com/toolhealth/toolhealth/internal/fields"
	"github.com/toolhealth/toolhealth/internal/frame"
	"github.com/toolhealth/toolhealth/internal/machine"
	"github.com/toolhealth/toolhealth/internal/nametable"
	"github.com/toolhealth/toolhealth/internal/say"
	"github.com/toolhealth/toolhealth/internal/stamp"
)

// HealthRouter knows the substitutes of each tool. The substitutes of a substitute
// are not followed. A HealthRouter never changes after it is made, so any goroutine
// may use it; a nil HealthRouter knows no substitutes.
type HealthRouter struct {
	substitutes map[string][]string
}

// NewHealthRouter returns a router for a map from a tool to its substitutes, in
// the order of preference; the map is copied. An empty name, a duplicate and a
// tool in its own list are errors, all of them reported at once. Two tools may
// stand in for each other: that is no cycle, because lists are not followed further.
func NewHealthRouter(substitutes map[string][]string) (*HealthRouter, error) {
	var p fields.Problems
	for _, primary := range slices.Sorted(maps.Keys(substitutes)) {
		field := fields.Key("substitutes", primary)
		if primary == "" {
			p.Add(field, "a key without a name", "the name of a tool")
		}
		checkSubstitutes(&p, field, primary, substitutes[primary])
	}
	if err := configError(p); err != nil {
		return nil, err
	}
	return newRouter(substitutes), nil
}

// newRouter returns a router for a valid map, which it copies.
func newRouter(substitutes map[string][]string) *HealthRouter {
	r := &HealthRouter{substitutes: make(map[string][]string, len(substitutes))}
	for primary, list := range substitutes {
		r.substitutes[primary] = slices.Clone(list)
	}
	return r
}

// Substitutes returns a copy of the tool's substitutes in the order of
// preference.
func (r *HealthRouter) Substitutes(tool string) []string { return slices.Clone(r.of(tool)) }

func (r *HealthRouter) of(tool string) []string {
	names, _ := r.entry(tool)
	return names
}

// entry returns the tool's substitutes, and whether the router has an entry for it.
func (r *HealthRouter) entry(tool string) (names []string, listed bool) {
	if r == nil {
		return nil, false
	}
	names, listed = r.substitutes[tool]
	return names, listed
}

// order returns substitutes in the order in which they are tried: that of the list, but
// those that falter last. It allocates only if that makes a difference.
func (r *Registry) order(list []string) []string {
	if !slices.ContainsFunc(list, r.falters) {
		return list
	}
	order := slices.DeleteFunc(slices.Clone(list), r.falters)
	for _, name := range list {
		if !slices.Contains(order, name) {
			order = append(order, name)
		}
	}
	return order
}

// falters reports whether a tool is admitted although it is likely to fail: its breaker
// is closed, its last call failed less than a cooldown ago, and its score is below 0.5.
func (r *Registry) falters(tool string) bool {
	if r.inert() {
		return false
	}
	n := r.table.Get(tool)
	if n == nil {
		return false
	}
	s := n.Value.snap.Load()
	return s.FailedWithinCooldown(r.now()) && n.Value.stats.read().Score() < 0.5
}

// Resolve returns the tool to call for a tool: the first that a call would be admitted
// for, of the tool itself and then its substitutes, else the tool itself and false. A
// substitute comes after the others if it falters: its breaker is closed, but its last
// call failed less than a cooldown ago and its score is below 0.5.
//
// Resolve is a pure read and takes no probe. The answer may be out of date by the time
// of the call, so to call a tool use [Gate.Allow], which admits while it chooses. An
// engine that works by name asks Resolve which name to use, and then AllowRequest with
// that name.
func (r *HealthRouter) Resolve(tool string, registry *Registry) (name string, available bool) {
	if registry.Available(tool) {
		return tool, true
	}
	for _, name := range registry.order(r.of(tool)) {
		if registry.Available(name) {
			return name, true
		}
	}
	return tool, false
}

// wiring is what is the same for Tools of all types: which tools may serve.
type wiring struct {
	tool  string
	order []string // the substitutes that can serve, in the order of the Substitute calls
	wrong []error  // Substitute calls that were mistakes
}

// add adds a substitute, and reports false if it cannot serve.
func (w *wiring) add(tool string, function bool) bool {
	wrong := ""
	switch {
	case tool == "":
		wrong = "must be the name of a tool"
	case tool == w.tool:
		wrong = "must be another tool than the wrapped one"
	case !function:
		wrong = "must have a function"
	case slices.Contains(w.order, tool):
		wrong = "must be given once; the first counts"
	default:
		w.order = append(slices.Clip(w.order), tool)
		return true
	}
	w.wrong = append(slices.Clip(w.wrong), w.problem("Substitute(%.80q) %s", tool, wrong))
	return false
}

// serves reports whether there is a function for a substitute. Without a wiring there
// is one for every name.
func (w *wiring) serves(tool string) bool { return w == nil || slices.Contains(w.order, tool) }

func (w *wiring) problem(format string, args ...any) error {
	return fmt.Errorf("toolhealth: Wrap(%.80q): "+format, append([]any{w.tool}, args...)...)
}

func (w *wiring) validate(function bool, router *HealthRouter, registry *Registry) error {
	var errs []error
	if w.tool == "" {
		errs = append(errs, w.problem("must be the name of a tool"))
	}
	if !function {
		errs = append(errs, w.problem("must have a function"))
	}
	errs = append(errs, w.wrong...)
	if names, listed := router.entry(w.tool); listed {
		for _, name := range names {
			if !w.serves(name) {
				errs = append(errs, w.problem("the Router names the substitute %.80q, must have a Substitute call", name))
			}
		}
		for _, name := range w.order {
			if !slices.Contains(names, name) {
				errs = append(errs, w.problem("Substitute(%.80q) must be in the Router's list, which is %.80q", name, names))
			}
		}
	}
	for _, name := range append([]string{w.tool}, w.order...) {
		if name != "" && !registry.expects(name) {
			errs = append(errs, w.problem("%.80q is unknown, must be registered or in Settings.Tools under RegisteredOnly", name))
		}
	}
	return errors.Join(errs...)
}

// expects reports whether a call of the tool can be admitted at all: it is known, or
// has an entry.
func (r *Registry) expects(tool string) bool {
	return r.inert() || r.known(tool) || r.table.Get(tool) != nil
}

// The sentinels for errors.Is. ErrRefused is the ancestor of every refusal.
var (
	ErrRefused       error = &refusedError{text: "toolhealth: refused"}
	ErrCircuitOpen   error = &refusedError{"tool temporarily unavailable: circuit breaker open", ErrRefused}
	ErrProbeInFlight error = &refusedError{"tool temporarily unavailable: recovery is being probed", ErrRefused}
	ErrRateLimited   error = &refusedError{"tool temporarily unavailable: it asked to wait", ErrRefused}
	ErrIsolated      error = &refusedError{"tool temporarily unavailable: taken out of service", ErrRefused}
	ErrBusy          error = &refusedError{"tool temporarily unavailable: busy", ErrRefused}
	ErrUnknownTool   error = &refusedError{"unknown tool", ErrRefused}
)

type refusedError struct {
	text   string
	parent error // nil for ErrRefused
}

func (e *refusedError) Error() string { return e.text }

func (e *refusedError) Unwrap() error { return e.parent }

func (e *refusedError) ran() bool { return false }

func (e *refusedError) refused() (Verdict, bool) { return vRefused, true }

// refusals are the sentinels by reason.
var refusals = [...]error{
	StopNone: ErrRefused, StopCircuitOpen: ErrCircuitOpen, StopProbeInFlight: ErrProbeInFlight,
	StopRateLimited: ErrRateLimited, StopIsolated: ErrIsolated, StopBusy: ErrBusy,
	StopUnknownTool: ErrUnknownTool,
}

// Refusal is the soft error of a call that was not made. Its text is short and fit
// to be shown to the model: it has no text of the tool's, no host names and no
// suggestions. errors.Is matches it with the sentinel of its reason and with
// ErrRefused.
type Refusal struct {
	Tool   string     // the tool that was asked for
	Reason StopReason // StopCircuitOpen to StopUnknownTool
	// RetryAfter is how long the tool will keep refusing; zero means that a call
	// would be admitted now. While a probe is out it reaches to the end of the lease
	// and the cooldown after it; the probe's verdict may come sooner. Where the wait
	// is unknown it is one cooldown (isolated, unknown tool) or one second (busy).
	RetryAfter time.Duration
	// Group is the group that refuses, for people; "" if the tool does by itself. With it,
	// Streak and Kind are those of the group.
	Group  string
	Streak int    // consecutive failures of the tool
	Kind   Kind   // kind of the last failure that counted; KindNone without one
	InRow  uint64 // consecutive refusals of the tool, this one included
}

// Error returns the text for the model.
func (r *Refusal) Error() string {
	return r.sentinel().Error() + retryText(r.hint())
}

func (r *Refusal) sentinel() error {
	if int(r.Reason) < len(refusals) {
		return refusals[r.Reason]
	}
	return ErrRefused
}

// hint is the RetryAfter that the model is told: none if the wait is unknown.
func (r *Refusal) hint() time.Duration { return hint(r.Reason, r.RetryAfter) }

// Unwrap returns the sentinel of the reason.
func (r *Refusal) Unwrap() error { return r.sentinel() }

func (r *Refusal) ran() bool { return false }

func (r *Refusal) refused() (Verdict, bool) {
	if r == nil {
		return Verdict{}, false
	}
	v := vRefused
	v.RetryAfter = max(r.RetryAfter, 0)
	return v, true
}

// MarshalJSON returns one small object for a tool result: reason, kind,
// retry_after_seconds (whole seconds, rounded up; left out if waiting does not
// help), attempts (0) and text.
func (r *Refusal) MarshalJSON() ([]byte, error) {
	j := modelJSON{Reason: r.Reason, Kind: KindRefused, RetryAfter: wholeSeconds(r.hint()), Text: r.Error()}
	return json.Marshal(j)
}

// LogValue returns tool, group, reason, retry_after, streak, kind and refused_in_row.
func (r *Refusal) LogValue() slog.Value {
	if r == nil {
		return slog.Value{}
	}
	var a attributes
	a.text("tool", r.Tool)
	a.text("group", r.Group)
	a.reason(r.Reason)
	a.wait("retry_after", r.hint())
	a.number("streak", uint64(max(r.Streak, 0)))
	a.kind("kind", r.Kind)
	a.number("refused_in_row", r.InRow)
	return slog.GroupValue(a...)
}

// retryText returns "; retry after 12s", rounded up to seconds, or nothing.
func retryText(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return "; retry after " + strconv.FormatInt(wholeSeconds(d), 10) + "s"
}

func wholeSeconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

// modelJSON is what a refusal or a failed call looks like in a tool result.
type modelJSON struct {
	Reason     StopReason `json:"reason"`
	Kind       Kind       `json:"kind"`
	RetryAfter int64      `json:"retry_after_seconds,omitempty"`
	Attempts   int        `json:"attempts"`
	Text       string     `json:"text"`
}

// Gate asks before a call and reports after it. It is a literal: every field may
// be left zero. A Gate must not be changed while it is in use. All methods may be
// called from any goroutine, also on a nil Gate, which is like the zero one.
//
// A probe that takes longer than ProbeTimeout is given up: with a Gate alone, set
// ProbeTimeout to more than the slowest honest call. A Guard's Timeout prolongs the
// lease by itself.
type Gate struct {
	// Registry keeps the health. If it is nil, every call is admitted and nothing is
	// kept.
	Registry *Registry
	// Router names substitutes for tools that are refused. Nil means none.
	Router *HealthRouter
	// Classify says what errors mean. Nil means the function of that name. If it
	// panics, the call counts as a failure of kind unknown.
	Classify Classifier
	// DeadlineFloor is the least time that a call must have run for the caller's
	// deadline to count as a timeout of the tool; a call that ended sooner is neutral.
	// Zero means DefaultDeadlineFloor. Off means no floor.
	DeadlineFloor time.Duration

	// live is set in the gates of a Guard of New: it leads to the one that is in force.
	live *atomic.Pointer[Gate]
}

// current returns the gate that is in force: g, unless g is that of a guard that has
// other Settings by now.
func (g *Gate) current() *Gate {
	if g != nil && g.live != nil {
		return g.live.Load()
	}
	return g
}

func (g *Gate) registry() *Registry {
	if g == nil {
		return nil
	}
	return g.Registry
}

func (g *Gate) router() *HealthRouter {
	if g = g.current(); g == nil {
		return nil
	}
	return g.Router
}

// floor returns the least time of a call that is a timeout of the tool.
func (g *Gate) floor() time.Duration {
	if g.DeadlineFloor == 0 {
		return DefaultDeadlineFloor
	}
	return g.DeadlineFloor
}

// Allow asks for a permit for one call of the tool. With a Router, the permit may
// be for a substitute: call what [Permit.Tool] says. The order is that of
// [HealthRouter.Resolve], and each candidate is admitted as it is chosen, so that
// no probe is taken and not used.
//
// The error is a *Refusal of the tool that was asked for, or ctx.Err() if ctx is
// done already: then nothing is counted and no probe is taken. With a ctx of
// [WithoutProbe], a tool whose probe is due counts as refused.
//
// Every permit has to be settled, once, by Done, Settle or Release. A permit is one
// attempt. If the attempt fails, call Allow again: if the tool is refused by then,
// the next permit is for its substitute.
//
// Allow costs one lookup, one reading of the clock and one atomic addition, and
// allocates only for a refusal and for a permit that is not tracked.
func (g *Gate) Allow(ctx context.Context, tool string) (Permit, error) {
	if ctx != nil && ctx.Err() != nil {
		return Permit{}, ctx.Err()
	}
	r := g.registry()
	if r.inert() {
		return untracked(tool), nil
	}
	if n, epoch, group := r.admitFast(tool); n != nil {
		return Permit{node: n, gate: g, start: r.now(), stamp: stamp.New(stamp.Ticket{Epoch: epoch}, stamp.Ticket{Epoch: group})}, nil
	}
	now := r.now()
	want := request{permit: true}
	if ctx != nil {
		want.noProbe, want.around = frame.NoProbe(ctx), frame.Around(ctx)
	}
	n, a := r.admit(tool, now, want)
	if a.Reason == machine.Admitted {
		return newPermit(g, tool, n, a, r.startOf(&a, now)), nil
	}
	now = r.startOf(&a, now)
	for _, name := range r.order(g.router().of(tool)) {
		if want.around == nil && !r.Available(name) { // inside of a probe of its group it may be
			continue
		}
		if n, a := r.admit(name, now, want); a.Reason == machine.Admitted {
			return newPermit(g, name, n, a, r.now()), nil // hooks may have been told of several tools
		}
	}
	return Permit{}, newRefusal(tool, n, a)
}

// Offer sorts the tools that a host is about to offer to the model: those that
// can be called now, directly or through a substitute, and those to leave out,
// because a refused tool that is still offered is called again. It takes no
// probe and keeps the order.
func (g *Gate) Offer(tools []string) (offer, leaveOut []string) {
	return g.offer(tools, g.router().of)
}

// offer is Offer for any way to name substitutes.
func (g *Gate) offer(tools []string, substitutes func(tool string) []string) (offer, leaveOut []string) {
	available := g.registry().Available
	for _, tool := range tools {
		if available(tool) || slices.ContainsFunc(substitutes(tool), available) {
			offer = append(offer, tool)
		} else {
			leaveOut = append(leaveOut, tool)
		}
	}
	return offer, leaveOut
}

func newPermit(g *Gate, tool string, n *node, a answer, now int64) Permit {
	if n == nil {
		return untracked(tool)
	}
	return Permit{node: n, gate: g, start: now, stamp: stamp.New(a.tickets())}
}

// startOf returns when a call starts that asked at now and got the answer a: a hook's
// time is not the tool's.
func (r *Registry) startOf(a *answer, now int64) int64 {
	if !a.changed() {
		return now
	}
	return r.now()
}

func untracked(tool string) Permit { return Permit{node: nametable.Loose[entry](tool)} }

func newRefusal(tool string, n *node, a answer) *Refusal {
	r := &Refusal{Tool: tool, Reason: StopReason(a.Reason), RetryAfter: time.Duration(a.Wait), InRow: 1}
	if n != nil {
		s := n.Value.snap.Load()
		r.Tool, r.Streak, r.Kind, r.InRow = n.Name(), int(s.Streak), Kind(s.Kind), n.Value.stats.refusedInRow()
	}
	if g := a.refusing; g != nil {
		s := g.snap.Load()
		r.Group, r.Streak, r.Kind = g.name, int(s.Streak), Kind(s.Kind)
	}
	return r
}

// fail reports the error of a call, also if the Classifier ends the goroutine.
func (a *admission) fail(g *Gate, ctx context.Context, err error, now int64) {
	v := vUnknown
	defer func() { a.report(g.Registry, v, now) }()
	g = g.current()
	a.inner = a.node.Value.group != nil && fromInside(err)
	v = verdictAt(ctx, g.Classify, err, time.Duration(now-a.start), g.floor())
}

// fromInside reports whether err is that of a guarded call further in, which speaks of
// another tool, unless the tool function has said what it means.
func fromInside(err error) bool {
	var buf [8]error
	nodes, _ := errfacts.Tree(buf[:0], err)
	if _, ok := nodes[0].(ToolVerdicter); ok {
		return false
	}
	return slices.ContainsFunc(nodes, func(node error) bool {
		_, ok := node.(ours)
		return ok
	})
}

// openFor returns StopCircuitOpen or StopIsolated, and for how long, if the tool's
// breaker refuses for another reason than the wait that a throttled attempt has just
// stated; else StopNone.
func (r *Registry) openFor(tool string, o Outcome) (StopReason, time.Duration) {
	if r.inert() {
		return StopNone, 0
	}
	n := r.table.Get(tool)
	if n == nil {
		return StopNone, 0
	}
	s, now := n.Value.snap.Load(), r.now()
	reason, wait, _ := s.Refusal(now)
	group, longer := n.Value.group.refusal(now)
	justStated := reason == machine.RateLimited && (o == OutcomeThrottled || s.State == machine.Closed)
	switch own := reason != machine.Admitted && !s.Params.ObserveOnly && !justStated; {
	case !own && group == StopNone:
		return StopNone, 0
	case own && reason == machine.Isolated, !own && group == StopIsolated:
		return StopIsolated, time.Duration(max(wait, longer))
	}
	return StopCircuitOpen, time.Duration(max(wait, longer))
}

// bounded returns a stated wait as the call that heard it has to keep it: the
// breaker refuses for no longer.
func (e *entry) bounded(wait time.Duration) time.Duration {
	return time.Duration(e.snap.Load().Params.Heard(int64(wait)))
}

// Permit is one admitted call. It is a value that belongs to one call: it may be
// handed to another goroutine, but not copied after its first use (go vet reports
// copies).
//
// The first of Done, Settle and Release settles it, whichever goroutine comes first;
// all later calls of any of them do nothing. What the outcome does depends on the
// breaker:
//
//   - Closed, in the period that admitted the call: a success or a rejection ends the
//     streak, a failure adds to it and may open the breaker. An outcome from an
//     earlier period changes nothing.
//   - Closed: a failure that stated a wait also makes every caller wait so long.
//   - Closed, in any period: a throttle makes every caller wait as long as the tool
//     said.
//   - Open: a failure restarts the cooldown; after a stated wait the next probe waits
//     at least that long. Other outcomes are from before, and change nothing.
//   - Half-open, and this is the probe: a success or a rejection closes the breaker,
//     or opens it for the next probe if ProbeSuccesses asks for more; a failure opens
//     it for a fresh cooldown, or for its stated wait if that is longer; a throttle
//     opens it for the stated wait, without a verdict; a neutral outcome makes the next
//     caller the probe, at once, and after a cooldown if it is the third in a row.
//   - Half-open, and this is not the probe: nothing.
//   - The call was admitted before an operator's last Reset or Isolate: nothing.
//
// Every outcome is counted, late ones too. The zero Permit is settled: all methods do
// nothing.
type Permit struct {
	// A struct of at most four words is returned in registers. A larger one is copied
	// through memory, which took a seventh of the time of a call.

	// node is nil in the zero Permit, and in no table if the call is not tracked.
	node *node
	// gate is nil if the outcome is not kept: then all methods do nothing.
	gate  *Gate
	start int64 // time of admission
	stamp stamp.Stamp
}

func (p *Permit) admission() admission {
	return admission{node: p.node, start: p.start, tool: p.stamp.Tool(), group: p.stamp.Group()}
}

// Tool returns the name of the tool to call: a substitute's if the call was
// re-routed. The outcome counts for that tool, so a substitute does not hide an ill
// primary.
func (p *Permit) Tool() string {
	if p.node == nil {
		return ""
	}
	return p.node.Name()
}

// Probe reports whether this call is the one that decides whether its tool, or its
// group, is well again.
func (p *Permit) Probe() bool { return p.stamp.Probe() }

// Tracked reports whether the outcome will be kept. It is not if the registry is full
// or nil.
func (p *Permit) Tracked() bool { return p.gate != nil }

// Done settles the permit with the error that the call returned, classified by the
// Gate, and the time since Allow. ctx is the caller's, as it was given to Allow. The
// clock of the call starts at Allow: ask a person for approval before, not after. Done
// allocates only if the breaker changes.
func (p *Permit) Done(ctx context.Context, err error) {
	if p.gate == nil || !p.stamp.Settle() {
		return
	}
	r := p.gate.Registry
	a, now := p.admission(), r.now()
	if err == nil {
		a.succeed(r, now)
		return
	}
	a.fail(p.gate, ctx, err, now)
}

// Settle settles the permit with a verdict. See Done.
func (p *Permit) Settle(v Verdict) {
	if p.gate == nil || !p.stamp.Settle() {
		return
	}
	a := p.admission()
	a.report(p.gate.Registry, v, p.gate.Registry.now())
}

// Release gives the permit back unused: it counts no outcome, and frees a probe's slot
// at once, however many were given back before. Deferred right after Allow it catches
// every early return; after Done or Settle it does nothing.
func (p *Permit) Release() {
	if p.gate == nil || p.stamp.Settled() || !p.stamp.Settle() {
		return
	}
	a := p.admission()
	a.release(p.gate.Registry)
}

// KeepAlive renews the lease of a probe that shows a sign of life, such as a piece of
// a stream or a report of progress. For any other permit, and when the lease has run
// out, it does nothing.
func (p *Permit) KeepAlive() {
	if !p.stamp.Probe() || p.stamp.Settled() {
		return
	}
	a := p.admission()
	a.tell(p.gate.Registry, machine.OpKeepAlive)
}

// Candidate is a tool that a call tried or wanted to try.
type Candidate struct {
	Tool       string
	Reason     StopReason
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
	// acted, or the caller gave up or ran out of time.
	Reason     StopReason
	Verdict    Verdict       // of the candidate whose reason Reason is; of KindRefused if no tool ran
	Attempts   int           // runs of tool functions in all
	RetryAfter time.Duration // the smallest known wait of all candidates; zero means none
	Candidates []Candidate   // the primary and the substitutes that were tried, in order
	Canceled   error         // the caller's ctx.Err() if that ended the call, else nil
}

// Error returns the text for the model.
func (e *ToolError) Error() string {
	switch e.Reason {
	case StopCircuitOpen, StopProbeInFlight, StopRateLimited, StopIsolated, StopBusy:
		return refusals[e.Reason].Error() + retryText(hint(e.Reason, e.RetryAfter))
	case StopUnknownTool:
		return ErrUnknownTool.Error()
	case StopCanceled:
		if e.Canceled == context.DeadlineExceeded {
			return "tool call out of time"
		}
		return "tool call canceled"
	case StopOutcomeUnknown:
		return "tool outcome unknown: the action may have been carried out, check before repeating it"
	}
	text := "tool failed: "
	if e.Attempts > 1 {
		text = "tool failed after " + strconv.Itoa(e.Attempts) + " attempts: "
	}
	return text + kindPhrase(e.Verdict.Kind) + retryText(e.RetryAfter)
}

// Details returns one line for logs: the tool, the reason, the kind, the attempts and
// the error text of every candidate, which Error omits. It may hold host names and
// secrets, and is not for the model.
func (e *ToolError) Details() string {
	text := fmt.Sprintf("%q: %v, kind %v, %d attempts", e.Tool, e.Reason, e.Verdict.Kind, e.Attempts)
	for _, c := range e.Candidates {
		text += fmt.Sprintf("; %q: %v", c.Tool, c.Reason)
		if c.Err != nil {
			text += fmt.Sprintf(": %q", errText(c.Err))
		}
	}
	return text
}

// decisive returns the candidate whose reason is that of the call: the primary, unless a
// later one was canceled, ran out of time or may have acted. It is nil without candidates.
func (e *ToolError) decisive() (d *Candidate) {
	for i := range e.Candidates {
		f := &e.Candidates[i]
		if d == nil {
			d = f
		}
		switch f.Reason {
		case StopCanceled, StopTimeout, StopOutcomeUnknown:
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
	return json.Marshal(modelJSON{e.Reason, e.Verdict.Kind, wholeSeconds(hint(e.Reason, e.RetryAfter)), e.Attempts, e.Error()})
}

// LogValue returns tool, reason, kind, attempts, retry_after and candidates: for each
// tool that was tried a group of its reason and the text of its error, which may hold
// secrets.
func (e *ToolError) LogValue() slog.Value {
	if e == nil {
		return slog.Value{}
	}
	var a attributes
	a.text("tool", e.Tool)
	a.reason(e.Reason)
	a.kind("kind", e.Verdict.Kind)
	a.number("attempts", uint64(max(e.Attempts, 0)))
	a.wait("retry_after", hint(e.Reason, e.RetryAfter))
	return slog.GroupValue(append(a, e.candidates())...)
}

func (e *ToolError) candidates() slog.Attr {
	var all attributes
	for _, c := range e.Candidates {
		var a attributes
		a.reason(c.Reason)
		if c.Err != nil {
			a.text("err", errText(c.Err))
		}
		all = append(all, slog.Attr{Key: c.Tool, Value: slog.GroupValue(a...)})
	}
	return slog.Attr{Key: "candidates", Value: slog.GroupValue(all...)}
}

// LogValue returns tool, served if it is another one, attempt (attempts if the call has
// ended), outcome, kind, reason, took, wait and err. err is the tool's own text and may
// hold secrets; that of a finished call is the group of its [ToolError], without what
// the event has itself.
func (e Event) LogValue() slog.Value {
	var a attributes
	a.text("tool", e.Tool)
	if e.Served != e.Tool {
		a.text("served", e.Served)
	}
	key := "attempt"
	if e.Final {
		key = "attempts"
	}
	a.number(key, uint64(max(e.Attempt, 0)))
	a.text("outcome", e.Verdict.Outcome.String())
	a.kind("kind", e.Verdict.Kind)
	a.reason(e.Reason)
	a = append(a, slog.Duration("took", e.Took))
	a.wait("wait", e.Wait)
	if failed, ok := e.Err.(*ToolError); ok && failed != nil && e.Final {
		a = append(a, failed.candidates())
	} else if e.Err != nil {
		a.text("err", errText(e.Err))
	}
	return slog.GroupValue(a...)
}

// errText returns the text of an error whose method may panic, as that of a nil pointer
// does.
func errText(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T without a text", err)
		}
	}()
	return err.Error()
}

const maxModelText = 500 // characters

// ModelText returns what to tell the model about the error of a call, of a Guard or of
// a Gate. If ok is false there is nothing to tell: the caller is gone, or a person or a
// policy said no or has yet to say yes (neutral, KindDenied). Then hand the error to
// the runtime as it is, which has to end or to interrupt the run.
//
// A refusal and a failure have a safe text, that of [ToolError] and [Refusal]. A
// rejected request of kind invalid_request, not_found or conflict has the tool's own
// words, because the model can act on them: as one line, without URLs, cut at 500
// characters. A nil error has the text "". An error that is not of this library is
// judged by [Classify] first.
func ModelText(err error) (text string, ok bool) {
	if err == nil {
		return "", true
	}
	var buf [8]error
	nodes, _ := errfacts.Tree(buf[:0], err)
	for _, node := range nodes {
		switch e := node.(type) {
		case *ToolError:
			if e != nil {
				return e.modelText()
			}
		case *Refusal:
			if e != nil {
				return e.Error(), true
			}
		case *refusedError: // a sentinel that the host returned by itself
			return e.Error(), true
		}
	}
	if slices.Contains(nodes, context.Canceled) {
		return "", false
	}
	v := Classify(context.Background(), err)
	return modelText(v, err, "tool failed: "+kindPhrase(v.Kind)+retryText(v.RetryAfter))
}

func (e *ToolError) modelText() (text string, ok bool) {
	pending := func(c Candidate) bool { return c.Verdict.Outcome == OutcomeNeutral && c.Verdict.Kind == KindDenied }
	outOfTime := e.Canceled == context.DeadlineExceeded
	if e.Reason == StopCanceled && !outOfTime || e.Canceled == context.Canceled || slices.ContainsFunc(e.Candidates, pending) {
		return "", false
	}
	switch e.Reason {
	case StopNonRetryable, StopRetryExhausted, StopRetryBudgetExhausted:
		return modelText(e.Verdict, e.Cause(), e.Error())
	}
	return e.Error(), true
}

// modelText returns the tool's own words if the model can act on them, else the safe
// text.
func modelText(v Verdict, err error, safe string) (text string, ok bool) {
	switch {
	case v.Outcome == OutcomeNeutral && v.Kind == KindDenied:
		return "", false
	case v.Outcome == OutcomeRejected && (v.Kind == KindInvalidRequest || v.Kind == KindNotFound || v.Kind == KindConflict):
		if words := ownWords(err); words != "" {
			return words, true
		}
	}
	return safe, true
}

// ownWords returns the text of a tool's error for the model; "" if there is none.
func ownWords(err error) (words string) {
	defer func() { _ = recover() }() // then words is ""
	return say.Line(err.Error(), maxModelText)
}

// ruleSet is the configuration of a Guard as calls use it. It never changes, except that
// it remembers answers.
type ruleSet struct {
	gate     *Gate
	config   GuardConfig
	usual    *policy // of tools that have none of their own
	tools    map[string]*policy
	settings *Settings // nil if the guard is not of New
	// asked has policies by what PolicyOf has said, because to check one takes longer
	// than a call. A map in it never changes; each call may put another in its place.
	asked atomic.Pointer[map[Policy]*policy]
	base  time.Time // of durations, where there is no registry
}

// newRuleSet returns a valid configuration as calls use it.
func newRuleSet(gate *Gate, config GuardConfig) *ruleSet {
	rs := &ruleSet{
		gate: gate, config: config, usual: newPolicy(config.Default), tools: make(map[string]*policy, len(config.Tools)),
		base: time.Now(),
	}
	for tool, p := range config.Tools {
		rs.tools[tool] = newPolicy(p)
	}
	return rs
}

// of returns the policy of a tool, or why it has none.
func (rs *ruleSet) of(tool string) (*policy, error) {
	if p := rs.tools[tool]; p != nil {
		return p, nil
	}
	if rs.config.PolicyOf == nil {
		return rs.usual, nil
	}
	return rs.ask(tool)
}

// ask returns what PolicyOf says of a tool.
func (rs *ruleSet) ask(tool string) (p *policy, err error) {
	defer func() {
		if v := recover(); v != nil {
			p, err = rs.usual, fmt.Errorf("toolhealth: PolicyOf panicked for %.80q: %v", tool, v)
		}
	}()
	own := rs.config.PolicyOf(tool, rs.config.Default)
	if own == rs.config.Default {
		return rs.usual, nil
	}
	known := rs.asked.Load()
	if known != nil && (*known)[own] != nil {
		return (*known)[own], nil
	}
	if err := configError(own.table().Check()); err != nil {
		return rs.usual, fmt.Errorf("toolhealth: PolicyOf of %.80q: %w", tool, err)
	}
	p = newPolicy(own)
	rs.remember(known, own, p)
	return p, nil
}

// remember keeps a policy that is valid, unless there are many or another call keeps one
// at the same time.
func (rs *ruleSet) remember(known *map[Policy]*policy, own Policy, p *policy) {
	more := map[Policy]*policy{own: p}
	if known != nil {
		if len(*known) >= maxAsked {
			return
		}
		maps.Copy(more, *known)
	}
	rs.asked.CompareAndSwap(known, &more)
}

// maxAsked is how many answers of PolicyOf are kept. Few hosts have more kinds of tools.
const maxAsked = 64
