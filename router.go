package toolhealth

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/toolhealth/toolhealth/internal/fields"
	"github.com/toolhealth/toolhealth/internal/frame"
	"github.com/toolhealth/toolhealth/internal/machine"
	"github.com/toolhealth/toolhealth/internal/nametable"
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
	r := &HealthRouter{substitutes: make(map[string][]string, len(substitutes))}
	var p fields.Problems
	for _, primary := range slices.Sorted(maps.Keys(substitutes)) {
		field := fields.Key("substitutes", primary)
		if primary == "" {
			p.Add(field, "a key without a name", "the name of a tool")
		}
		checkSubstitutes(&p, field, primary, substitutes[primary])
		r.substitutes[primary] = slices.Clone(substitutes[primary])
	}
	if err := configError(p); err != nil {
		return nil, err
	}
	return r, nil
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

func (e *refusedError) Error() string            { return e.text }
func (e *refusedError) Unwrap() error            { return e.parent }
func (e *refusedError) ran() bool                { return false }
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
	Streak     int    // consecutive failures of the tool
	Kind       Kind   // kind of the last failure that counted; KindNone without one
	InRow      uint64 // consecutive refusals of the tool, this one included
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

// hint returns the wait that the model is told; zero means none.
func hint(reason StopReason, wait time.Duration) time.Duration {
	if reason == StopUnknownTool || reason == StopIsolated {
		return 0
	}
	return wait
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
	if n, epoch := r.admitFast(tool); n != nil {
		return Permit{node: n, gate: g, start: r.now(), stamp: stamp.New(epoch, false)}, nil
	}
	now := r.now()
	want := request{permit: true}
	if ctx != nil {
		want.noProbe = frame.NoProbe(ctx)
	}
	n, a := r.admit(tool, now, want)
	if a.Reason == machine.Admitted {
		return newPermit(g, tool, n, a, r.startOf(&a, now)), nil
	}
	now = r.startOf(&a, now)
	for _, name := range r.order(g.router().of(tool)) {
		if !r.Available(name) {
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

func newPermit(g *Gate, tool string, n *node, a machine.Answer, now int64) Permit {
	if n == nil {
		return untracked(tool)
	}
	return Permit{node: n, gate: g, start: now, stamp: stamp.New(a.Epoch, a.Probe)}
}

func untracked(tool string) Permit { return Permit{node: nametable.Loose[entry](tool)} }

func newRefusal(tool string, n *node, a machine.Answer) *Refusal {
	r := &Refusal{Tool: tool, Reason: StopReason(a.Reason), RetryAfter: time.Duration(a.Wait), InRow: 1}
	if n != nil {
		s := n.Value.snap.Load()
		r.Tool, r.Streak, r.Kind, r.InRow = n.Name(), s.Streak, Kind(s.Kind), n.Value.stats.refusedInRow()
	}
	return r
}

// fail reports the error of a call, also if the Classifier ends the goroutine.
func (a *admission) fail(g *Gate, ctx context.Context, err error, now int64) {
	v := vUnknown
	defer func() { a.report(g.Registry, v, now) }()
	g = g.current()
	v = verdictAt(ctx, g.Classify, err, time.Duration(now-a.start), g.floor())
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
	return admission{node: p.node, epoch: p.stamp.Epoch(), start: p.start, probe: p.stamp.Probe()}
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

// Probe reports whether this call is the one that decides whether its tool is well
// again.
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
// at once, however many were given back before. Deferred right after Allow it catches every early return; after Done or
// Settle it does nothing.
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
	r := p.gate.Registry
	r.apply(p.node, &machine.Event{Op: machine.OpKeepAlive, Epoch: p.stamp.Epoch(), Probe: true}, r.now())
}
