package toolhealth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/toolhealth/toolhealth/internal/enum"
)

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

// The sentinels for errors.Is. ErrRefused is the ancestor of every refusal.
var (
	ErrRefused       error = errors.New("toolhealth: refused")
	ErrCircuitOpen   error = &refusedError{"tool temporarily unavailable: circuit breaker open"}
	ErrProbeInFlight error = &refusedError{"tool temporarily unavailable: recovery is being probed"}
	ErrRateLimited   error = &refusedError{"tool temporarily unavailable: rate limited"}
	ErrIsolated      error = &refusedError{"tool temporarily unavailable: taken out of service"}
	ErrUnknownTool   error = &refusedError{"unknown tool"}
)

type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }
func (e *refusedError) Unwrap() error { return ErrRefused }

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
	text := r.sentinel().Error()
	if r.Reason != StopUnknownTool {
		text += retryText(r.RetryAfter)
	}
	return text
}

func (r *Refusal) sentinel() error {
	if int(r.Reason) < len(refusals) {
		return refusals[r.Reason]
	}
	return ErrRefused
}

// Unwrap returns the sentinel of the reason.
func (r *Refusal) Unwrap() error { return r.sentinel() }

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

// MarshalJSON returns one small object for a tool result: reason, kind,
// retry_after_seconds (whole seconds, rounded up; left out if waiting does not
// help), attempts (0) and text.
func (r *Refusal) MarshalJSON() ([]byte, error) {
	j := modelJSON{Reason: r.Reason, Kind: KindRefused, RetryAfter: wholeSeconds(r.RetryAfter), Text: r.Error()}
	if r.Reason == StopUnknownTool {
		j.RetryAfter = 0
	}
	return json.Marshal(j)
}

// DefaultDeadlineFloor is how long a call must have run for the caller's deadline
// to be the tool's fault, where nothing else is configured.
const DefaultDeadlineFloor = time.Second

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
// only for a refusal.
func (g *Gate) Allow(ctx context.Context, tool string) (Permit, error) {
	if ctx != nil && ctx.Err() != nil {
		return Permit{}, ctx.Err()
	}
	r := g.registry()
	if r.inert() {
		return Permit{gate: g, tool: tool}, nil
	}
	now := r.now()
	if n := r.table.Get(tool); n != nil {
		e := &n.Value
		e.stats.admitted.Add(1)
		if s := e.snap.Load(); s.plain() {
			e.touch()
			e.stats.endRefusals()
			return Permit{gate: g, node: n, tool: n.Name(), epoch: s.epoch, start: now}, nil
		}
		e.stats.settled.Add(1) // not this way
	}
	n, a := r.admit(tool, now, 0, true)
	if a.reason == StopNone {
		return newPermit(g, tool, n, a, now), nil
	}
	if name, n, a, ok := g.admitSubstitute(tool, now); ok {
		return newPermit(g, name, n, a, now), nil
	}
	return Permit{}, newRefusal(tool, n, a)
}

func newPermit(g *Gate, tool string, n *node, a answer, now int64) Permit {
	if n != nil {
		tool = n.Name()
	}
	return Permit{gate: g, node: n, tool: tool, start: now, epoch: a.epoch, probe: a.probe}
}

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

// Permit is one admitted call. It is a value that belongs to one call: it may be
// handed to another goroutine, but not copied after its first use (go vet tells).
//
// The first of Done, Settle and Release settles it, whichever goroutine comes
// first; all later calls of any of them do nothing. The outcome belongs to the
// period of the breaker that admitted it: if the breaker has changed since, it
// is counted and decides nothing, except as the table in the README says. The
// zero Permit is one that is settled: all methods do nothing.
type Permit struct {
	gate  *Gate
	node  *node // nil if the call is not tracked
	tool  string
	epoch uint64
	start int64 // time of admission
	probe bool
	// spent is swapped to true by whoever settles; the winner reports.
	spent atomic.Bool
}

// Tool returns the name of the tool to call: a substitute's if the call was
// re-routed.
func (p *Permit) Tool() string { return p.tool }

// Probe reports whether this call is the one that decides if its tool is well
// again.
func (p *Permit) Probe() bool { return p.probe }

// Tracked reports whether the outcome will be kept: not if the registry is full
// or nil.
func (p *Permit) Tracked() bool { return p.node != nil }

// Done settles the permit with the error that the call returned, classified by
// the Gate, and the time since Allow. ctx is the caller's, as it was given to
// Allow. It allocates only if the breaker changes.
func (p *Permit) Done(ctx context.Context, err error) {
	if p.spent.Swap(true) || p.node == nil {
		return
	}
	r := p.gate.Registry
	now := r.now()
	if err == nil {
		p.succeed(r, now)
		return
	}
	floor := p.gate.DeadlineFloor
	if floor == 0 {
		floor = DefaultDeadlineFloor
	}
	p.report(r, verdictAt(ctx, p.gate.Classify, err, time.Duration(now-p.start), floor), now)
}

// Settle settles the permit with a verdict. See Done.
func (p *Permit) Settle(v Verdict) {
	if p.spent.Swap(true) || p.node == nil {
		return
	}
	r := p.gate.Registry
	p.report(r, v, r.now())
}

// succeed is report for the outcome that nearly all calls have.
func (p *Permit) succeed(r *Registry, now int64) {
	e, took := &p.node.Value, max(now-p.start, 0)
	e.stats.success(&e.stats.permitOK, took)
	if s := e.snap.Load(); !s.plain() || s.streak != 0 || p.probe || took > s.cfg.slow {
		r.settle(p.node, event{op: opSettle, epoch: p.epoch, probe: p.probe}, Verdict{}, took, now)
	}
	r.unpark(p.node)
}

func (p *Permit) report(r *Registry, v Verdict, now int64) {
	if v.Outcome == OutcomeSuccess {
		p.succeed(r, now)
		return
	}
	e, took := &p.node.Value, max(now-p.start, 0)
	e.stats.outcome(&e.stats.permitOK, v, took)
	r.settle(p.node, event{op: opSettle, epoch: p.epoch, probe: p.probe}, v, took, now)
	e.stats.settled.Add(1)
	r.unpark(p.node)
}

// Release gives the permit back unused: nothing is counted, and a probe's slot
// is free again at once. Deferred right after Allow it catches every early
// return; after Done or Settle it does nothing.
func (p *Permit) Release() {
	if p.spent.Load() || p.node == nil || p.spent.Swap(true) {
		return
	}
	r := p.gate.Registry
	if p.probe {
		r.settle(p.node, event{op: opSettle, epoch: p.epoch, probe: true}, Verdict{Outcome: OutcomeNeutral}, 0, r.now())
	}
	p.node.Value.stats.settled.Add(1)
	r.unpark(p.node)
}

// KeepAlive renews the lease of a probe that is visibly alive: it streams, it
// reports progress. For any other permit, and when the lease has run out, it does
// nothing.
func (p *Permit) KeepAlive() {
	if !p.probe || p.node == nil || p.spent.Load() {
		return
	}
	r := p.gate.Registry
	a, _ := p.node.Value.apply(event{op: opKeepAlive, epoch: p.epoch, probe: true}, r.now())
	p.node.Value.deliver(&a, p.node.Name(), r.base, &r.hooks)
}

// GuardCounts are the figures of guarded calls.
type GuardCounts struct {
	Calls uint64 `json:"calls"`
}

type guardStats struct{ calls atomic.Uint64 }

func (g *guardStats) read(now int64) GuardCounts { return GuardCounts{Calls: g.calls.Load()} }
