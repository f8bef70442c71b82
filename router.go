package toolhealth

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/toolhealth/toolhealth/internal/fields"
	"github.com/toolhealth/toolhealth/internal/nametable"
	"github.com/toolhealth/toolhealth/internal/stamp"
)

// HealthRouter knows which tools can stand in for which. Lists are one hop: the
// substitutes of a substitute are not followed. It never changes after it is
// made, so any goroutine may use it; a nil HealthRouter knows no substitutes.
type HealthRouter struct {
	substitutes map[string][]string
}

// NewHealthRouter returns a router for a map from a tool to its substitutes, in
// the order of preference; the map is copied. An empty name, a duplicate and a
// tool in its own list are errors, all of them reported at once. Two tools may
// stand in for each other: one hop makes no circle.
func NewHealthRouter(substitutes map[string][]string) (*HealthRouter, error) {
	r := &HealthRouter{substitutes: make(map[string][]string, len(substitutes))}
	var p fields.Problems
	for _, primary := range slices.Sorted(maps.Keys(substitutes)) {
		field := fields.Key("substitutes", primary)
		if primary == "" {
			p.Add(field, "a key without a name", "the name of a tool")
		}
		seen := map[string]bool{primary: true}
		for i, name := range substitutes[primary] {
			at := fmt.Sprintf("%s[%d]", field, i)
			switch {
			case name == "":
				p.Add(at, `""`, "the name of a tool")
			case name == primary:
				p.Add(at, fmt.Sprintf("%.80q", name), "another tool than the primary")
			case seen[name]:
				p.Add(at, fmt.Sprintf("%.80q", name), "listed once")
			}
			seen[name] = true
		}
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
	if r == nil {
		return nil
	}
	return r.substitutes[tool]
}

// Resolve returns the tool to call for a tool: itself if it is available (so
// that a recovered primary gets its probe), else its first substitute that is
// available and not unhealthy, else the first available one, else itself and
// false. It is a pure read and takes no probe; between it and the call the
// answer may grow old, so to call a tool use [Gate.Allow], which admits while it
// chooses.
func (r *HealthRouter) Resolve(tool string, registry *Registry) (name string, available bool) {
	if registry.Available(tool) {
		return tool, true
	}
	fallback := ""
	for _, s := range r.of(tool) {
		if !registry.Available(s) {
			continue
		}
		if registry.HealthStatus(s) != Unhealthy {
			return s, true
		}
		if fallback == "" {
			fallback = s
		}
	}
	if fallback != "" {
		return fallback, true
	}
	return tool, false
}

// The sentinels for errors.Is. ErrRefused is the ancestor of every refusal.
var (
	ErrRefused       error = &refusedError{text: "toolhealth: refused"}
	ErrCircuitOpen   error = &refusedError{"tool temporarily unavailable: circuit breaker open", ErrRefused}
	ErrProbeInFlight error = &refusedError{"tool temporarily unavailable: recovery is being probed", ErrRefused}
	ErrRateLimited   error = &refusedError{"tool temporarily unavailable: rate limited", ErrRefused}
	ErrIsolated      error = &refusedError{"tool temporarily unavailable: taken out of service", ErrRefused}
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
	StopRateLimited: ErrRateLimited, StopIsolated: ErrIsolated, StopUnknownTool: ErrUnknownTool,
}

// Refusal is the soft error of a call that was not made. Its text is short and
// fit to be shown to the model: it has no text of the tool's, no host names and
// no suggestions. errors.Is knows it as the sentinel of its reason and as
// ErrRefused.
type Refusal struct {
	Tool   string     // as it was asked for
	Reason StopReason // StopCircuitOpen to StopUnknownTool
	// RetryAfter is how long asking again is pointless: never negative, and 0
	// only if asking now would succeed. While a probe is out it reaches to the
	// end of the lease and the cooldown after it; the probe's verdict may come
	// sooner. Where nobody can know (isolated, unknown tool) it is one cooldown.
	RetryAfter time.Duration
	Streak     int    // consecutive failures of the tool
	Kind       Kind   // of the last failure that counted; KindNone if none has
	InRow      uint64 // how often in a row this tool has refused, this time included
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

// hint is the RetryAfter that the model is told: none if nobody can know it.
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
// be left zero. A Gate must not be changed while it is in use; all methods may
// be called from any goroutine, also on a nil Gate, which is as the zero one.
type Gate struct {
	// Registry keeps the health. nil: every call is admitted, nothing is kept.
	Registry *Registry
	// Router names substitutes for tools that are refused. nil: there are none.
	Router *HealthRouter
	// Classify says what errors mean. nil: Classify. A Classifier that panics is
	// taken to have said: failure, unknown.
	Classify Classifier
	// DeadlineFloor: a call that ends because the caller's deadline has passed is
	// a timeout of the tool only if it had run for at least this long; else it is
	// neutral. 0: DefaultDeadlineFloor. Negative: no floor, it always is.
	DeadlineFloor time.Duration
}

func (g *Gate) registry() *Registry {
	if g == nil {
		return nil
	}
	return g.Registry
}

func (g *Gate) router() *HealthRouter {
	if g == nil {
		return nil
	}
	return g.Router
}

// Allow asks for a permit for one call of the tool. With a Router, the permit may
// be for a substitute: call what [Permit.Tool] says. The order is that of
// [HealthRouter.Resolve], and each candidate is admitted as it is chosen, so that
// no probe is taken and not used.
//
// The error is a *Refusal of the tool that was asked for, or ctx.Err() if ctx is
// done already: then nothing is counted and no probe is taken.
//
// Every permit has to be settled, once, by Done, Settle or Release. Allow costs
// one lookup, one reading of the clock and one atomic addition, and allocates
// only for a refusal, and for a permit that is not tracked.
func (g *Gate) Allow(ctx context.Context, tool string) (Permit, error) {
	if ctx != nil && ctx.Err() != nil {
		return Permit{}, ctx.Err()
	}
	r := g.registry()
	if r.inert() {
		return untracked(tool), nil
	}
	if n, epoch := r.enterHealthy(tool); n != nil {
		return Permit{node: n, gate: g, start: r.now(), stamp: stamp.New(epoch, false)}, nil
	}
	now := r.now()
	n, a := r.admit(tool, now, 0, true)
	if a.reason == StopNone {
		return newPermit(g, tool, n, a, now), nil
	}
	if name, n, a, ok := g.admitSubstitute(tool, now); ok {
		return newPermit(g, name, n, a, now), nil
	}
	return Permit{}, newRefusal(tool, n, a)
}

// Offer sorts the tools that a host is about to offer to the model: those that
// can be called now, directly or through a substitute, and those to leave out,
// because a refused tool that is still offered is called again. It takes no
// probe and keeps the order.
func (g *Gate) Offer(tools []string) (offer, leaveOut []string) {
	for _, tool := range tools {
		if _, ok := g.router().Resolve(tool, g.registry()); ok {
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
	return Permit{node: n, gate: g, start: now, stamp: stamp.New(a.epoch, a.probe)}
}

func untracked(tool string) Permit { return Permit{node: nametable.Loose[entry](tool)} }

func newRefusal(tool string, n *node, a answer) *Refusal {
	r := &Refusal{Tool: tool, Reason: a.reason, RetryAfter: time.Duration(a.wait), InRow: 1}
	if n != nil {
		s := n.Value.snap.Load()
		r.Tool, r.Streak, r.Kind, r.InRow = n.Name(), s.streak, s.kind, n.Value.stats.refusedInRow()
	}
	return r
}

// admitSubstitute admits the substitute that Resolve would choose.
func (g *Gate) admitSubstitute(tool string, now int64) (name string, n *node, a answer, ok bool) {
	substitutes := g.router().of(tool)
	for _, sick := range [...]bool{false, true} {
		for _, name = range substitutes {
			if !g.Registry.Available(name) || (g.Registry.HealthStatus(name) == Unhealthy) != sick {
				continue
			}
			if n, a = g.Registry.admit(name, now, 0, true); a.reason == StopNone {
				return name, n, a, true
			}
		}
	}
	return "", nil, answer{}, false
}

// fail reports an error.
func (a *admission) fail(g *Gate, ctx context.Context, err error, now int64) {
	floor := g.DeadlineFloor
	if floor == 0 {
		floor = DefaultDeadlineFloor
	}
	v := vUnknown
	defer func() { a.report(g.Registry, v, now) }() // also if the Classifier ends the goroutine
	v = verdictAt(ctx, g.Classify, err, time.Duration(now-a.start), floor)
}

// Permit is one admitted call. It is a value that belongs to one call: it may be
// handed to another goroutine, but not copied after its first use (go vet tells).
//
// The first of Done, Settle and Release settles it, whichever goroutine comes
// first; all later calls of any of them do nothing. The outcome belongs to the
// period of the breaker that admitted it: if the breaker has changed since, it
// is counted and decides nothing, except as the table in the README says. The
// zero Permit is one that is settled: all methods do nothing.
type Permit struct {
	// No more than four words: so small a struct is returned in registers, a larger
	// one is copied through memory, which took a seventh of the time of a call.

	// node is nil in the zero Permit, and in no table if the call is not tracked.
	node *node
	// gate is nil if there is nobody to report to: then all methods do nothing.
	gate  *Gate
	start int64 // time of admission
	stamp stamp.Stamp
}

func (p *Permit) admission() admission {
	return admission{node: p.node, epoch: p.stamp.Epoch(), start: p.start, probe: p.stamp.Probe()}
}

// Tool returns the name of the tool to call: a substitute's if the call was
// re-routed.
func (p *Permit) Tool() string {
	if p.node == nil {
		return ""
	}
	return p.node.Name()
}

// Probe reports whether this call is the one that decides if its tool is well
// again.
func (p *Permit) Probe() bool { return p.stamp.Probe() }

// Tracked reports whether the outcome will be kept: not if the registry is full
// or nil.
func (p *Permit) Tracked() bool { return p.gate != nil }

// Done settles the permit with the error that the call returned, classified by
// the Gate, and the time since Allow. ctx is the caller's, as it was given to
// Allow. It allocates only if the breaker changes.
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

// Release gives the permit back unused: nothing is counted, and a probe's slot
// is free again at once. Deferred right after Allow it catches every early
// return; after Done or Settle it does nothing.
func (p *Permit) Release() {
	if p.gate == nil || p.stamp.Settled() || !p.stamp.Settle() {
		return
	}
	a := p.admission()
	a.release(p.gate.Registry)
}

// KeepAlive renews the lease of a probe that is visibly alive: it streams, it
// reports progress. For any other permit, and when the lease has run out, it does
// nothing.
func (p *Permit) KeepAlive() {
	if !p.stamp.Probe() || p.stamp.Settled() {
		return
	}
	r := p.gate.Registry
	r.apply(p.node, &event{op: opKeepAlive, epoch: p.stamp.Epoch(), probe: true}, r.now())
}
