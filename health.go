package toolhealth

import (
	"encoding/json"
	"iter"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth/internal/enum"
	"github.com/toolhealth/toolhealth/internal/machine"
)

// HealthStatus is the health of a tool, or of all of them. Its zero value is
// Healthy.
type HealthStatus uint8

// The statuses. Their texts are "healthy", "degraded" and "unhealthy".
const (
	Healthy   HealthStatus = iota // score >= 0.8, calls are admitted, RejectedInRow < 10
	Degraded                      // score >= 0.5, and not healthy
	Unhealthy                     // score < 0.5, or the breaker is open
)

var healthTexts = []string{"healthy", "degraded", "unhealthy"}

// String returns the text of h, or "HealthStatus(n)" for a value that is no status.
func (h HealthStatus) String() string { return enum.Text("HealthStatus", healthTexts, h) }

// MarshalText returns the text of h, and an error for a value that is no status.
func (h HealthStatus) MarshalText() ([]byte, error) {
	return enum.Marshal("HealthStatus", healthTexts, h)
}

// UnmarshalText is the inverse of MarshalText.
func (h *HealthStatus) UnmarshalText(text []byte) error {
	return enum.Unmarshal("HealthStatus", healthTexts, text, h)
}

// tooManyRejections in a row make a tool that is not healthy: its key is dead, or it has
// changed.
const tooManyRejections = 10

// statusOf returns the status that the other fields of h call for. It informs; it never
// blocks a call.
func statusOf(h *ToolHealth) HealthStatus {
	switch {
	case h.State == StateOpen || h.Score < 0.5:
		return Unhealthy
	case h.Score < 0.8 || !h.Available || h.RejectedInRow >= tooManyRejections:
		return Degraded
	}
	return Healthy
}

// ToolHealth is what is known of one tool at one moment. The figures come from
// the words that the gate reads: Available, Reason and RetryAfter are what
// AllowRequest would have answered at that moment.
//
// The counters are of all time and of attempts; Guard counts calls, each for the
// tool that was asked for.
//
// Status follows Score, and is Unhealthy while the breaker is open. It is at best
// Degraded while calls are refused, and while RejectedInRow is 10 or more.
// RejectedInRow counts the last attempts that were rejected as unauthorized or gone, or
// neutral as contract: the key is dead, or the tool has changed. A success, a failure
// and any other rejection end the row; throttles and other neutrals are passed over.
//
// In JSON, durations are numbers of seconds; "reason" and the keys of
// "refusals_by_reason" are [StopReason.Detail], "calls" and "success_rate" are the
// results of TotalCalls and SuccessRate. Left out are "guard" for tools that are not
// called through a Guard, and "isolated_by", "labels", counters by kind or reason,
// "down_since", "last_failure_at" and "last_rejected_at" where there are none, and
// "suspected" and "reported" if they are false. A name
// that is not valid UTF-8 is written with U+FFFD in the place of what is wrong.
type ToolHealth struct {
	Tool       string        `json:"tool"`
	Status     HealthStatus  `json:"status"`
	State      State         `json:"state"`               // an expired lease is open
	Available  bool          `json:"available"`           // whether a call would be admitted now
	ProbeDue   bool          `json:"probe_due"`           // whether that call would be the tool's probe; see GroupHealth for that of its group
	Reason     StopReason    `json:"reason"`              // why a call would be refused; StopNone if it would not
	RetryAfter time.Duration `json:"retry_after_seconds"` // zero exactly if Available
	// IsolatedBy is the operator that Isolate was given; "" if the tool is not isolated.
	IsolatedBy string `json:"isolated_by,omitempty"`
	// Group is the group of the tool; "" without one.
	Group string `json:"group,omitempty"`
	// Labels are a copy of those that Register was given, else of ToolSettings.Labels.
	Labels map[string]string `json:"labels,omitempty"`

	Score float64 `json:"score"` // 0.3 x success rate + 0.7 x EWMA
	Counts

	ConsecutiveFailures int       `json:"consecutive_failures"` // the streak; frozen while open, except that a failed probe adds one
	LastFailure         Kind      `json:"last_failure_kind"`    // kind of the last failure that the breaker took notice of
	RefusedInRow        uint64    `json:"refused_in_row"`       // refusals since the last admission
	RejectedInRow       uint64    `json:"rejected_in_row"`      // last attempts that show a dead key or a changed tool
	WouldRefuse         uint64    `json:"would_refuse"`         // calls that were let in because of ObserveOnly
	Trips               uint64    `json:"trips"`                // transitions from closed to open, an operator's Isolate included
	Epoch               uint64    `json:"epoch"`                // number of the current state
	Since               time.Time `json:"since"`                // when the state began; for a tool that never left closed, when the registry was made

	// DownSince is when the breaker left closed, however many probes have failed since;
	// zero while it is closed.
	DownSince time.Time `json:"down_since,omitzero"`
	// LastFailureAt is when the last of Failures ended; zero without any.
	LastFailureAt time.Time `json:"last_failure_at,omitzero"`
	// LastRejectedAt is when the last of Rejected ended; zero without any.
	LastRejectedAt time.Time `json:"last_rejected_at,omitzero"`

	InFlight uint64      `json:"in_flight"` // permits that are out
	Guard    GuardCounts `json:"guard,omitzero"`

	// Suspected says that others suspect the tool: while it is closed, one failure may
	// open the breaker. See HintSuspect.
	Suspected bool `json:"suspected,omitempty"`
	// Reported says that the breaker is open only because others report the tool down. See
	// HintDown.
	Reported bool `json:"reported,omitempty"`
}

// Summary is every tool's health at one moment. In JSON it has a key "schema", now
// 1, which grows when a key changes its meaning or goes away.
//
// It is for dashboards and people: no text of an error, no host name and no secret
// is in it, only names of tools and operators, labels, kinds and numbers. It is no
// liveness probe: a process whose tools are all down is not helped by a restart, which
// would forget what is known about them.
type Summary struct {
	At          time.Time    `json:"at"`
	Overall     HealthStatus `json:"overall"`      // Unhealthy if every tool is unavailable or unhealthy, Degraded if any is or is degraded
	Unavailable int          `json:"unavailable"`  // tools that would refuse a call now
	Untracked   uint64       `json:"untracked"`    // calls admitted without an entry, because the registry was full
	Evicted     uint64       `json:"evicted"`      // idle entries that made room for new names
	HookPanics  uint64       `json:"hook_panics"`  // hooks of OnTransition and OnStatedWait that panicked
	HookDropped uint64       `json:"hook_dropped"` // transitions that no hook heard of, because one hung
	Tools       []ToolHealth `json:"tools"`        // sorted by name
	// Groups are the groups that have a tool, or against which something is held, sorted
	// by name.
	Groups []GroupHealth `json:"groups,omitempty"`
}

// GroupHealth is what is known of one group at one moment: its breaker counts what says
// that the server behind the tools cannot be reached. State, Available, ProbeDue, Reason
// and RetryAfter are what they are in ToolHealth: a call of a tool that its own breaker
// admits would be answered so. In JSON, durations are numbers of seconds and "reason" is
// [StopReason.Detail].
type GroupHealth struct {
	Group      string        `json:"group"`
	State      State         `json:"state"` // an expired lease is open
	Available  bool          `json:"available"`
	ProbeDue   bool          `json:"probe_due"`
	Reason     StopReason    `json:"reason"`
	RetryAfter time.Duration `json:"retry_after_seconds"`
	// IsolatedBy is the operator that IsolateGroup was given; "" if the group is not
	// isolated.
	IsolatedBy          string    `json:"isolated_by,omitempty"`
	ConsecutiveFailures int       `json:"consecutive_failures"` // time-outs of one tool in a row count once
	LastFailure         Kind      `json:"last_failure_kind"`
	Trips               uint64    `json:"trips"` // transitions from closed to open, an operator's IsolateGroup included
	Epoch               uint64    `json:"epoch"`
	Since               time.Time `json:"since"`
	DownSince           time.Time `json:"down_since,omitzero"` // when the breaker left closed; zero while it is closed
	Tools               int       `json:"tools"`               // with an entry
}

// groupHealth is a GroupHealth without its methods.
type groupHealth GroupHealth

// groupHealthJSON is to GroupHealth what toolHealthJSON is to ToolHealth.
type groupHealthJSON struct {
	*groupHealth
	Reason     string   `json:"reason"`
	RetryAfter *seconds `json:"retry_after_seconds"`
}

// MarshalJSON writes the health with durations in seconds.
func (h GroupHealth) MarshalJSON() ([]byte, error) {
	return json.Marshal(groupHealthJSON{(*groupHealth)(&h), h.Reason.Detail(), (*seconds)(&h.RetryAfter)})
}

// UnmarshalJSON reads what MarshalJSON writes. After an error the receiver is as
// it was.
func (h *GroupHealth) UnmarshalJSON(data []byte) error {
	var next GroupHealth
	j := groupHealthJSON{groupHealth: (*groupHealth)(&next), RetryAfter: (*seconds)(&next.RetryAfter)}
	err := json.Unmarshal(data, &j)
	if err == nil {
		next.Reason, err = refusalReason(j.Reason)
	}
	if err == nil {
		*h = next
	}
	return err
}

// summarySchema is the version of Summary's JSON. It grows when a key changes
// its meaning or goes away, not when one is added.
const summarySchema = 1

// finish counts the tools and settles the overall status.
func (s *Summary) finish() {
	sick := 0
	for i := range s.Tools {
		h := &s.Tools[i]
		if !h.Available {
			s.Unavailable++
		}
		if !h.Available || h.Status == Unhealthy {
			sick++
		} else if h.Status == Degraded {
			s.Overall = Degraded
		}
	}
	switch {
	case sick > 0 && sick == len(s.Tools):
		s.Overall = Unhealthy
	case sick > 0:
		s.Overall = Degraded
	}
}

// toolHealth is a ToolHealth without its methods. It has the same fields and tags.
type toolHealth ToolHealth

// toolHealthJSON is a ToolHealth as JSON has it: the promoted fields, and what JSON
// has in another form, which takes the place of a promoted field with the same key.
// The pointers lead into the ToolHealth, so the struct serves both directions.
type toolHealthJSON struct {
	*toolHealth
	Reason          string            `json:"reason"`
	RetryAfter      *seconds          `json:"retry_after_seconds"`
	Calls           uint64            `json:"calls"`
	SuccessRate     float64           `json:"success_rate"`
	RefusedByReason map[string]uint64 `json:"refusals_by_reason,omitempty"`
	Average         *seconds          `json:"average_seconds"`
	AverageSuccess  *seconds          `json:"average_success_seconds"`
	Max             *seconds          `json:"max_seconds"`
	P50             *seconds          `json:"p50_seconds"`
	P90             *seconds          `json:"p90_seconds"`
	P99             *seconds          `json:"p99_seconds"`
}

func (h *ToolHealth) json() toolHealthJSON {
	return toolHealthJSON{
		toolHealth:     (*toolHealth)(h),
		RetryAfter:     (*seconds)(&h.RetryAfter),
		Average:        (*seconds)(&h.Average),
		AverageSuccess: (*seconds)(&h.AverageSuccess),
		Max:            (*seconds)(&h.Max),
		P50:            (*seconds)(&h.P50),
		P90:            (*seconds)(&h.P90),
		P99:            (*seconds)(&h.P99),
	}
}

// MarshalJSON writes the health with durations in seconds.
func (h ToolHealth) MarshalJSON() ([]byte, error) {
	j := h.json()
	j.Reason, j.Calls, j.SuccessRate = h.Reason.Detail(), h.TotalCalls(), h.SuccessRate()
	j.RefusedByReason = make(map[string]uint64, len(h.RefusedByReason))
	for reason, n := range h.RefusedByReason {
		j.RefusedByReason[reason.Detail()] = n
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON writes. After an error the receiver is as
// it was.
func (h *ToolHealth) UnmarshalJSON(data []byte) error {
	var next ToolHealth
	j := next.json()
	err := json.Unmarshal(data, &j)
	if err != nil {
		return err
	}
	if next.Reason, err = refusalReason(j.Reason); err != nil {
		return err
	}
	for detail, n := range j.RefusedByReason {
		reason, err := refusalReason(detail)
		if err != nil {
			return err
		}
		if next.RefusedByReason == nil {
			next.RefusedByReason = make(map[StopReason]uint64, len(j.RefusedByReason))
		}
		next.RefusedByReason[reason] = n
	}
	*h = next
	return nil
}

// guardCounts is a GuardCounts without its methods.
type guardCounts GuardCounts

// guardCountsJSON is to GuardCounts what toolHealthJSON is to ToolHealth.
type guardCountsJSON struct {
	*guardCounts
	Oldest *seconds `json:"oldest_seconds"`
}

// MarshalJSON writes the counts with durations in seconds.
func (c GuardCounts) MarshalJSON() ([]byte, error) {
	return json.Marshal(guardCountsJSON{(*guardCounts)(&c), (*seconds)(&c.Oldest)})
}

// UnmarshalJSON reads what MarshalJSON writes. After an error the receiver is as
// it was.
func (c *GuardCounts) UnmarshalJSON(data []byte) error {
	var next GuardCounts
	err := json.Unmarshal(data, &guardCountsJSON{(*guardCounts)(&next), (*seconds)(&next.Oldest)})
	if err == nil {
		*c = next
	}
	return err
}

// summary is a Summary without its methods.
type summary Summary

// summaryJSON is a Summary as JSON has it.
type summaryJSON struct {
	Schema int `json:"schema"`
	*summary
}

// MarshalJSON writes the summary with a schema number, now 1.
func (s Summary) MarshalJSON() ([]byte, error) {
	if s.Tools == nil {
		s.Tools = []ToolHealth{}
	}
	return json.Marshal(summaryJSON{summarySchema, (*summary)(&s)})
}

// UnmarshalJSON reads what MarshalJSON writes. After an error the receiver is as
// it was.
func (s *Summary) UnmarshalJSON(data []byte) error {
	var next Summary
	err := json.Unmarshal(data, &summaryJSON{summary: (*summary)(&next)})
	if err == nil {
		*s = next
	}
	return err
}

// seconds is a duration that JSON writes as a number of seconds. Up to 48 days
// it comes back to the nanosecond.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(s).Seconds())
}

func (s *seconds) UnmarshalJSON(data []byte) error {
	var f float64
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	ns := math.Round(f * 1e9)
	switch {
	case ns >= math.MaxInt64:
		*s = math.MaxInt64
	case ns <= math.MinInt64:
		*s = math.MinInt64
	default:
		*s = seconds(ns)
	}
	return nil
}

// HealthStatus returns the status of a tool; one without an entry is healthy.
func (r *Registry) HealthStatus(tool string) HealthStatus {
	h, _ := r.Health(tool)
	return h.Status
}

// Health returns what is known of a tool, and false if there is no entry. It
// changes nothing.
func (r *Registry) Health(tool string) (ToolHealth, bool) {
	if r.inert() {
		return ToolHealth{}, false
	}
	n := r.table.Get(tool)
	if n == nil {
		return ToolHealth{}, false
	}
	var h ToolHealth
	ok := r.health(n, r.now(), &h)
	return h, ok
}

// Latency returns how long the calls of a tool took, and false if there is no entry. It
// changes nothing, takes no lock and allocates the buckets that are not empty.
//
// Each histogram is exact by itself: there was a moment during the call at which Count
// was the number of calls that had ended so, and it never goes back while the entry
// stays. Sum may miss calls that end meanwhile.
func (r *Registry) Latency(tool string) (Latency, bool) {
	if r.inert() {
		return Latency{}, false
	}
	n := r.table.Get(tool)
	if n == nil {
		return Latency{}, false
	}
	l := n.Value.stats.latency()
	return l, !n.Value.snap.Load().Evicted
}

// HealthSummary returns the health of every tool, sorted by name, as it was at
// one reading of the clock. It takes no lock and delays no call.
func (r *Registry) HealthSummary() Summary {
	if r.inert() {
		return Summary{}
	}
	now := r.now()
	nodes := r.sorted()
	s := Summary{
		Tools:       make([]ToolHealth, len(nodes)),
		Untracked:   r.untracked.Load(),
		Evicted:     r.evicted.Load(),
		HookPanics:  r.hooks.Panics() + r.waits.Panics(),
		HookDropped: r.hooks.Dropped(),
		At:          r.base.Add(time.Duration(now)),
	}
	known := 0
	for _, n := range nodes {
		if r.health(n, now, &s.Tools[known]) {
			known++
		} else {
			s.Tools[known] = ToolHealth{}
		}
	}
	s.Tools = s.Tools[:known]
	s.Groups = r.groupHealth(now)
	s.finish()
	return s
}

// groupHealth returns what is known of the groups, sorted by name.
func (r *Registry) groupHealth(now int64) []GroupHealth {
	all := make([]GroupHealth, 0, r.groups.Len())
	for n := range r.groups.All() {
		g := &n.Value
		shared := g.snap.Load()
		if shared.Evicted {
			continue
		}
		s := shared.AsOf(now)
		reason, wait := g.refusalUnder(shared, now)
		verdict, _, _ := shared.Refusal(now)
		h := GroupHealth{
			Group: g.name, State: State(s.State), Available: reason == StopNone,
			ProbeDue: reason == StopNone && verdict == machine.Admitted && s.State == machine.Open,
			Reason:   reason, RetryAfter: time.Duration(wait),
			ConsecutiveFailures: int(s.Streak), LastFailure: Kind(s.Kind), Trips: s.Trips, Epoch: s.Epoch,
			Since: r.base.Add(time.Duration(s.Since)), Tools: int(g.members.Load()),
		}
		if s.State != machine.Closed {
			h.DownSince = r.base.Add(time.Duration(s.DownSince))
		}
		if verdict == machine.Isolated {
			h.IsolatedBy = g.isolator.of(s.Epoch)
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b GroupHealth) int { return strings.Compare(a.Group, b.Group) })
	return all
}

// All yields the tools that have an entry when the iteration begins, sorted by
// name, each with its health when its turn comes. Any method may be called
// during the iteration; a tool that is removed meanwhile is left out.
func (r *Registry) All() iter.Seq2[string, ToolHealth] {
	return func(yield func(string, ToolHealth) bool) {
		if r.inert() {
			return
		}
		for _, n := range r.sorted() {
			var h ToolHealth
			if r.health(n, r.now(), &h) && !yield(h.Tool, h) {
				return
			}
		}
	}
}

// health fills in h, which is zero, and reports false if n has left the registry. It
// fills it in where it lies: to copy so large a struct takes a quarter of the time.
func (r *Registry) health(n *node, now int64, h *ToolHealth) bool {
	e := &n.Value
	e.stats.readTo(&h.Counts)
	shared := e.snap.Load()
	if shared.Evicted {
		return false
	}
	s := shared.AsOf(now)
	reason, wait := e.refusal(shared, now)
	verdict, _, _ := shared.Refusal(now)
	h.Tool, h.Group = n.Name(), e.group.named()
	h.State, h.Epoch, h.Trips = State(s.State), s.Epoch, s.Trips
	h.Available, h.Reason, h.RetryAfter = reason == StopNone, reason, time.Duration(wait)
	h.ProbeDue = reason == StopNone && verdict == machine.Admitted && s.State == machine.Open
	h.Score = h.Counts.Score()
	h.ConsecutiveFailures, h.LastFailure = int(s.Streak), Kind(s.Kind)
	h.RefusedInRow, h.RejectedInRow = e.stats.refusedInRow(), e.stats.rejectedInRow.Load()
	h.Since = r.base.Add(time.Duration(s.Since))
	h.InFlight = e.stats.inFlight()
	h.Suspected, h.Reported = s.Suspected(now), s.Reported()
	h.Status = statusOf(h)
	if s.State != machine.Closed {
		h.DownSince = r.base.Add(time.Duration(s.DownSince))
	}
	if h.Failures > 0 {
		h.LastFailureAt = r.base.Add(time.Duration(e.stats.failures.Load().last.Load()))
	}
	if h.Rejected > 0 {
		h.LastRejectedAt = r.base.Add(time.Duration(e.stats.rejections.Load().last.Load()))
	}
	labels := r.conf.Load().labels[h.Tool]
	if a := e.aside.Load(); a != nil {
		h.WouldRefuse = a.wouldRefuse.Load()
		if own := a.labels.Load(); own != nil {
			labels = *own
		}
	}
	if verdict == machine.Isolated {
		h.IsolatedBy = e.isolatedBy(s.Epoch)
	}
	h.Labels = maps.Clone(labels)
	if g := e.guard.Load(); g != nil {
		h.Guard = g.read(now)
	}
	return true
}

// sorted returns the nodes by name. The slice must not be changed.
func (r *Registry) sorted() []*node {
	version := r.version.Load() // before the table is looked at
	settled := version%2 == 0   // no name comes or goes
	if o := r.ranking.Load(); settled && o != nil && o.version == version {
		return o.nodes
	}
	// Comparing names that lie in the slice saves a look at each node for each
	// comparison: a fifth of the time of a large summary.
	type named struct {
		name string
		n    *node
	}
	all := make([]named, 0, r.table.Len())
	for n := range r.table.All() {
		all = append(all, named{n.Name(), n})
	}
	slices.SortFunc(all, func(a, b named) int { return strings.Compare(a.name, b.name) })
	nodes := make([]*node, len(all))
	for i := range all {
		nodes[i] = all[i].n
	}
	if settled {
		o := &ranking{version, nodes}
		r.ranking.Store(o)
		if r.version.Load() != version { // a node may have left before the Store
			r.ranking.CompareAndSwap(o, nil)
		}
	}
	return nodes
}

// LogValue returns what an operator asks first: tool, status, state, reason and
// retry_after of a refusal, isolated_by, score, calls, failures, consecutive_failures,
// last_failure_kind, refused_in_row, rejected_in_row, down_since and since.
func (h ToolHealth) LogValue() slog.Value {
	var a attributes
	a.text("tool", h.Tool)
	a = append(a, slog.String("status", h.Status.String()), slog.String("state", h.State.String()))
	a.reason(h.Reason)
	a.wait("retry_after", hint(h.Reason, h.RetryAfter))
	a.text("isolated_by", h.IsolatedBy)
	a = append(a, slog.Float64("score", h.Score), slog.Uint64("calls", h.TotalCalls()))
	a.number("failures", h.Failures)
	a.number("consecutive_failures", uint64(max(h.ConsecutiveFailures, 0)))
	a.kind("last_failure_kind", h.LastFailure)
	a.number("refused_in_row", h.RefusedInRow)
	a.number("rejected_in_row", h.RejectedInRow)
	if !h.DownSince.IsZero() {
		a = append(a, slog.Time("down_since", h.DownSince))
	}
	return slog.GroupValue(append(a, slog.Time("since", h.Since))...)
}
