package toolhealth

import (
	"encoding/json"
	"iter"
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
	Healthy   HealthStatus = iota // score >= 0.8
	Degraded                      // score >= 0.5
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

// statusOf is the status of a tool with this score and state. The score informs;
// it never blocks a call.
func statusOf(score float64, state State) HealthStatus {
	switch {
	case state == StateOpen || score < 0.5:
		return Unhealthy
	case score < 0.8:
		return Degraded
	}
	return Healthy
}

// ToolHealth is what is known of one tool at one moment. The figures come from
// the words that the gate reads: Available, Reason and RetryAfter are what
// AllowRequest would have answered at that moment.
//
// In JSON, durations are numbers of seconds. A name that is not valid UTF-8 is
// written with U+FFFD in the place of what is wrong.
type ToolHealth struct {
	Tool       string
	Status     HealthStatus
	State      State         // an expired lease is open
	Available  bool          // a call would be admitted now
	ProbeDue   bool          // that call would be the probe
	Reason     StopReason    // why a call would be refused; StopNone if it would not
	RetryAfter time.Duration // 0 exactly if Available

	Score float64 // 0.3 x success rate + 0.7 x EWMA
	Counts

	ConsecutiveFailures int
	LastFailure         Kind      // of the last failure that the breaker took notice of
	RefusedInRow        uint64    // refusals since the last admission
	WouldRefuse         uint64    // calls that were let in because of ObserveOnly
	Trips               uint64    // transitions from closed to open, an operator's Isolate included
	Epoch               uint64    // of the state
	Since               time.Time // when the state began; for a tool that never left closed, when the registry was made

	InFlight uint64 // permits that are out
	Guard    GuardCounts
}

// Summary is every tool's health at one moment.
//
// It is for dashboards and people. It is no liveness probe: a process whose
// tools are all down is not helped by a restart, which would forget what is
// known about them.
type Summary struct {
	Overall     HealthStatus // Unhealthy if every tool is unavailable or unhealthy, Degraded if any is or is degraded
	Tools       []ToolHealth // sorted by name
	Unavailable int          // tools that would refuse a call now
	Untracked   uint64       // calls admitted without an entry, because the registry was full
	Evicted     uint64       // idle entries that made room for new names
	HookPanics  uint64       // transition hooks that panicked
	HookDropped uint64       // transitions that no hook heard of, because one hung
	At          time.Time
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

// toolHealthJSON is ToolHealth as JSON has it.
type toolHealthJSON struct {
	Tool       string       `json:"tool"`
	Status     HealthStatus `json:"status"`
	State      State        `json:"state"`
	Available  bool         `json:"available"`
	ProbeDue   bool         `json:"probe_due"`
	Reason     string       `json:"reason"`
	RetryAfter seconds      `json:"retry_after_seconds"`

	Score       float64 `json:"score"`
	EWMA        float64 `json:"ewma"`
	SuccessRate float64 `json:"success_rate"`

	Calls     uint64          `json:"calls"`
	Successes uint64          `json:"successes"`
	Failures  uint64          `json:"failures"`
	ByKind    map[Kind]uint64 `json:"failures_by_kind,omitempty"`
	Rejected  uint64          `json:"rejected"`
	Throttled uint64          `json:"throttled"`
	Neutral   uint64          `json:"neutral"`
	Refused   uint64          `json:"refused"`

	ConsecutiveFailures int       `json:"consecutive_failures"`
	LastFailure         Kind      `json:"last_failure_kind"`
	RefusedInRow        uint64    `json:"refused_in_row"`
	WouldRefuse         uint64    `json:"would_refuse"`
	Trips               uint64    `json:"trips"`
	Epoch               uint64    `json:"epoch"`
	Since               time.Time `json:"since"`
	Average             seconds   `json:"average_seconds"`
	AverageSuccess      seconds   `json:"average_success_seconds"`
	Max                 seconds   `json:"max_seconds"`

	InFlight uint64     `json:"in_flight"`
	Guard    *guardJSON `json:"guard,omitempty"`
}

// guardJSON is GuardCounts as JSON has it.
type guardJSON struct {
	Calls           uint64  `json:"calls"`
	Failed          uint64  `json:"failed"`
	Rejected        uint64  `json:"rejected"`
	Canceled        uint64  `json:"canceled"`
	Attempts        uint64  `json:"attempts"`
	Retries         uint64  `json:"retries"`
	Refusals        uint64  `json:"refusals"`
	Fallbacks       uint64  `json:"fallbacks"`
	BudgetExhausted uint64  `json:"budget_exhausted"`
	Abandoned       int64   `json:"abandoned"`
	InFlight        int     `json:"in_flight"`
	Oldest          seconds `json:"oldest_seconds"`
}

// MarshalJSON writes the health with durations in seconds.
func (h ToolHealth) MarshalJSON() ([]byte, error) {
	j := toolHealthJSON{
		h.Tool, h.Status, h.State, h.Available, h.ProbeDue, h.Reason.Detail(), seconds(h.RetryAfter),
		h.Score, h.EWMA, h.SuccessRate(),
		h.TotalCalls(), h.Successes, h.Failures, h.ByKind, h.Rejected, h.Throttled, h.Neutral, h.Refused,
		h.ConsecutiveFailures, h.LastFailure, h.RefusedInRow, h.WouldRefuse, h.Trips, h.Epoch, h.Since,
		seconds(h.Average), seconds(h.AverageSuccess), seconds(h.Max),
		h.InFlight, nil,
	}
	if h.Guard != (GuardCounts{}) {
		g := h.Guard
		j.Guard = &guardJSON{
			g.Calls, g.Failed, g.Rejected, g.Canceled, g.Attempts, g.Retries, g.Refusals, g.Fallbacks, g.BudgetExhausted,
			g.Abandoned, g.InFlight, seconds(g.Oldest),
		}
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON writes. After an error the receiver is as
// it was.
func (h *ToolHealth) UnmarshalJSON(data []byte) error {
	var j toolHealthJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	reason, err := refusalReason(j.Reason)
	if err != nil {
		return err
	}
	*h = ToolHealth{
		j.Tool, j.Status, j.State, j.Available, j.ProbeDue, reason, time.Duration(j.RetryAfter),
		j.Score,
		Counts{
			j.Successes, j.Failures, j.ByKind, j.Rejected, j.Throttled, j.Neutral, j.Refused,
			time.Duration(j.Average), time.Duration(j.AverageSuccess), time.Duration(j.Max), j.EWMA,
		},
		j.ConsecutiveFailures, j.LastFailure, j.RefusedInRow, j.WouldRefuse, j.Trips, j.Epoch, j.Since,
		j.InFlight, GuardCounts{},
	}
	if j.Guard != nil {
		g := j.Guard
		h.Guard = GuardCounts{
			g.Calls, g.Failed, g.Rejected, g.Canceled, g.Attempts, g.Retries, g.Refusals, g.Fallbacks, g.BudgetExhausted,
			g.Abandoned, g.InFlight, time.Duration(g.Oldest),
		}
	}
	return nil
}

// summaryJSON is Summary as JSON has it.
type summaryJSON struct {
	Schema      int          `json:"schema"`
	At          time.Time    `json:"at"`
	Overall     HealthStatus `json:"overall"`
	Unavailable int          `json:"unavailable"`
	Untracked   uint64       `json:"untracked"`
	Evicted     uint64       `json:"evicted"`
	HookPanics  uint64       `json:"hook_panics"`
	HookDropped uint64       `json:"hook_dropped"`
	Tools       []ToolHealth `json:"tools"`
}

// MarshalJSON writes the summary with a schema number, now 1.
func (s Summary) MarshalJSON() ([]byte, error) {
	j := summaryJSON{summarySchema, s.At, s.Overall, s.Unavailable, s.Untracked, s.Evicted, s.HookPanics, s.HookDropped, s.Tools}
	if j.Tools == nil {
		j.Tools = []ToolHealth{}
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON writes. After an error the receiver is as
// it was.
func (s *Summary) UnmarshalJSON(data []byte) error {
	var j summaryJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	*s = Summary{j.Overall, j.Tools, j.Unavailable, j.Untracked, j.Evicted, j.HookPanics, j.HookDropped, j.At}
	return nil
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

// HealthSummary returns the health of every tool, sorted by name, as it was at
// one reading of the clock. It takes no lock and delays no call.
func (r *Registry) HealthSummary() Summary {
	if r.inert() {
		return Summary{}
	}
	now := r.now()
	nodes := r.sorted()
	s := Summary{
		Tools:       make([]ToolHealth, 0, len(nodes)),
		Untracked:   r.untracked.Load(),
		Evicted:     r.evicted.Load(),
		HookPanics:  r.hooks.Panics(),
		HookDropped: r.hooks.Dropped(),
		At:          r.base.Add(time.Duration(now)),
	}
	for _, n := range nodes {
		s.Tools = append(s.Tools, ToolHealth{})
		if last := len(s.Tools) - 1; !r.health(n, now, &s.Tools[last]) {
			s.Tools = s.Tools[:last]
		}
	}
	s.finish()
	return s
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

// health fills in h, and reports false if n has left the registry.
func (r *Registry) health(n *node, now int64, h *ToolHealth) bool {
	e := &n.Value
	counts := e.stats.Read()
	shared := e.snap.Load()
	if shared.Evicted {
		return false
	}
	s := shared.AsOf(now)
	reason, wait := e.refusal(shared, now)
	verdict, _, _ := shared.Refusal(now)
	*h = ToolHealth{
		Tool:                n.Name(),
		State:               State(s.State),
		Available:           reason == StopNone,
		ProbeDue:            reason == StopNone && verdict == machine.Admitted && s.State == machine.Open,
		Reason:              reason,
		RetryAfter:          time.Duration(wait),
		Score:               counts.Score(),
		Counts:              counts,
		ConsecutiveFailures: s.Streak,
		LastFailure:         Kind(s.Kind),
		RefusedInRow:        e.stats.refusedInRow(),
		WouldRefuse:         e.wouldRefuse.Load(),
		Trips:               s.Trips,
		Epoch:               s.Epoch,
		Since:               r.base.Add(time.Duration(s.Since)),
		InFlight:            e.stats.inFlight(),
	}
	h.Status = statusOf(h.Score, h.State)
	if g := e.guard.Load(); g != nil {
		h.Guard = g.read(now)
	}
	return true
}

// sorted returns the nodes by name.
func (r *Registry) sorted() []*node {
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
	return nodes
}
