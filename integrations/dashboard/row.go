package dashboard

import (
	"math"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

// row is one tool: what its place in the table depends on.
type row struct {
	condition
	health *toolhealth.ToolHealth
	window *watch.Window
	group  *toolhealth.GroupHealth // nil without one
	at     time.Time
	// byGroup says that the breaker of its group is what holds its calls up.
	byGroup bool
	hang    time.Duration // how long its oldest call runs, if that hangs; else zero
	// hasFailed says that its score is low although no failure counts against it now, and
	// succeededLast that this is because its last call succeeded.
	hasFailed, succeededLast bool

	ID           int
	Name         string
	Prefix, Base string // the two parts of a name such as "github/search"
	Long         bool   // Name may be broken anywhere
	Epoch        uint64
}

// longName is how long a name may be in one line of the table, in bytes.
const longName = 30

// newRow makes the row of a tool. lastSuccess says when a sample saw the last success of a
// tool.
func newRow(h *toolhealth.ToolHealth, w *watch.Window, g *toolhealth.GroupHealth, at time.Time, lastSuccess func(tool string) time.Time) *row {
	r := &row{health: h, window: w, group: g, at: at, hang: hanging(h, w), Name: h.Tool, Base: h.Tool, Long: len(h.Tool) > longName, Epoch: h.Epoch}
	if i := strings.LastIndexAny(h.Tool, "/|:"); i > 0 && i < len(h.Tool)-1 {
		r.Prefix, r.Base = h.Tool[:i+1], h.Tool[i+1:]
	}
	r.byGroup = heldByGroup(h, g)
	if h.State == toolhealth.StateClosed && h.ConsecutiveFailures == 0 && h.Score < 0.8 && !h.LastFailureAt.IsZero() {
		r.hasFailed = true
		// Else an operator may have ended the row of failures.
		r.succeededLast = h.LastFailureAt.After(h.Since) || lastSuccess(h.Tool).After(h.LastFailureAt)
	}
	switch {
	case r.byGroup:
		r.holds(groupBreaker(g, at))
		r.Label, r.Why = "group "+r.Label, "is refused with its group "+g.Group
		if g.Available {
			r.Why = "waits for a probe of its group " + g.Group
		}
	case !r.holds(toolBreaker(h, at)):
		r.works()
	}
	return r
}

// heldByGroup reports whether the breaker of the tool's group is what holds its calls up:
// as long as that is not closed, unless the tool itself is isolated, asked to wait or is
// busy. Whether its own breaker is open too makes no difference to who has to act.
func heldByGroup(h *toolhealth.ToolHealth, g *toolhealth.GroupHealth) bool {
	switch {
	case g == nil || g.State == toolhealth.StateClosed || h.Reason == toolhealth.StopRateLimited || h.Reason == toolhealth.StopBusy:
		return false
	case h.Reason == toolhealth.StopIsolated:
		return g.Reason == toolhealth.StopIsolated && h.IsolatedBy == ""
	case g.Available && !g.ProbeDue: // it only observes
		return h.State == toolhealth.StateClosed
	}
	return true
}

// works says how well a tool is that calls go to.
func (r *row) works() {
	h, w := r.health, r.window
	switch out := running(h); {
	case r.hang > 0:
		r.is(rankHangs, "warn", "wait", "hangs", "has a call running")
		r.DownSince, r.Down = r.at.Add(-r.hang).UnixMilli(), seconds(r.hang)
		r.What = counted(out, "call") + " in flight"
	case h.Status == toolhealth.Unhealthy:
		r.is(rankUnhealthy, "bad", "warn", "unhealthy", r.orFailed("fails"))
	case h.Status == toolhealth.Degraded && h.RejectedInRow > 0 && h.Score >= 0.8:
		r.is(rankDegraded, "warn", "warn", "degraded", "rejects every call")
		r.What = count(h.RejectedInRow) + " rejected in a row"
	case h.Status == toolhealth.Degraded:
		r.is(rankDegraded, "warn", "warn", "degraded", r.orFailed("is degraded"))
	case noneEnded(w) && out > 0:
		r.is(rankHealthy, "ok", "ok", "healthy", "is healthy")
		r.What = counted(out, "call") + " in flight"
	case noneEnded(w) && w.Refused == 0:
		r.is(rankIdle, "idle", "idle", "healthy, idle", "is idle")
	default:
		r.is(rankHealthy, "ok", "ok", "healthy", "is healthy")
	}
	if r.hang == 0 && r.worksAgain() {
		r.What = "works again"
	}
}

// hangAfter is how long a call runs at least before the page says that it hangs.
const hangAfter = 30 * time.Second

// hanging returns how long the oldest guarded call of a tool has been running, if that is
// much longer than its slow calls took; else zero. How long other calls run is not known.
func hanging(h *toolhealth.ToolHealth, w *watch.Window) time.Duration {
	if g := &h.Guard; g.InFlight > 0 && g.Oldest > max(hangAfter, 3*h.P99, 3*w.P99) {
		return g.Oldest
	}
	return 0
}

// running returns how many calls of a tool are in flight, guarded or not.
func running(h *toolhealth.ToolHealth) int { return max(int(h.InFlight), h.Guard.InFlight) }

// noneEnded reports whether no call that was let in ended in the window.
func noneEnded(w *watch.Window) bool { return w.Calls+w.Rejected+w.Throttled == 0 }

// worksAgain reports whether the last call of a tool with a low score succeeded and none has
// failed for a minute: one success alone is no proof.
func (r *row) worksAgain() bool {
	return r.succeededLast && r.at.Sub(r.health.LastFailureAt) >= time.Minute
}

// orFailed says that a tool failed, if no failure counts against it now, else why.
func (r *row) orFailed(why string) string {
	kind := inBrackets(r.health.LastFailure)
	if !r.hasFailed {
		return why + kind
	}
	failed := "failed until " + r.health.LastFailureAt.Format("15:04") + kind
	switch {
	case r.worksAgain():
		failed += ", works again"
	case r.succeededLast:
		failed += ", its last call succeeded"
	}
	return failed
}

// cells is what the table shows of a row beyond its condition.
type cells struct {
	*row
	Calls           bool
	Rate, RateClass string
	RateWidth       float64
	PerMinute       string
	Spark           spark
	P50, P90, P99   string
	Streak          int // two or more
	Failed          string
	Kind            string
	Refused         string
	Hour            hourStrip
}

func (r *row) cells(s, group *watch.Series, began time.Time) cells {
	h, w := r.health, r.window
	rate := w.SuccessRate()
	c := cells{
		row: r, Calls: w.Calls > 0, Rate: percent(rate), RateWidth: math.Round(rate*440) / 10,
		PerMinute: number(w.PerMinute(w.Calls)), P50: span(w.P50), P90: span(w.P90), P99: span(w.P99),
		Spark: newSpark(s.Slots), Hour: newHour(s, group, r.at, began),
	}
	switch {
	case rate < 0.5:
		c.RateClass = "bad"
	case rate < 0.95:
		c.RateClass = "warn"
	}
	if h.ConsecutiveFailures > 1 {
		c.Streak = h.ConsecutiveFailures
	}
	if w.Failures > 0 {
		c.Failed = count(w.Failures)
	}
	if h.LastFailure != toolhealth.KindNone && (c.Streak > 0 || w.Failures > 0) {
		c.Kind = plain(h.LastFailure.String())
	}
	if w.Refused > 0 {
		c.Refused = count(w.Refused)
	}
	return c
}
