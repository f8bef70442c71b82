package dashboard

import (
	"math"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

// The order of the table: what is worst comes first.
const (
	rankOut     = iota // open and half-open alike, so that a row does not jump with each probe
	rankWaiting        // it asked to wait, or is busy
	rankUnhealthy
	rankDegraded
	rankHeld // by an operator, who knows
	rankHealthy
	rankIdle
)

// row is one tool: what its place in the table depends on.
type row struct {
	health *toolhealth.ToolHealth
	window *watch.Window
	at     time.Time

	ID           int
	Name         string
	Server, Base string // the two parts of a name such as "github/search"
	Epoch        uint64

	rank int
	// Class is the color, Icon the shape, Label the word, and Why the rest of a sentence
	// that begins with the tool's name.
	Class, Icon, Label, Why string

	// What goes on, and for how long: a countdown ends at Until, in milliseconds, and
	// began Total before. Zero is none.
	What         string
	Left         string
	Until, Total int64
	Arc          int // percent of Total that are left

	Down      string // how long it has not been closed
	DownSince int64  // in milliseconds
}

func newRow(h *toolhealth.ToolHealth, w *watch.Window, at time.Time) *row {
	r := &row{health: h, window: w, at: at, Name: h.Tool, Base: h.Tool, Epoch: h.Epoch}
	if i := strings.LastIndexAny(h.Tool, "/|:"); i > 0 && i < len(h.Tool)-1 {
		r.Server, r.Base = h.Tool[:i+1], h.Tool[i+1:]
	}
	if !h.DownSince.IsZero() {
		r.DownSince, r.Down = h.DownSince.UnixMilli(), seconds(at.Sub(h.DownSince))
	}
	if !r.refuses() {
		r.works()
	}
	return r
}

func (r *row) is(rank int, class, icon, label, why string) {
	r.rank, r.Class, r.Icon, r.Label, r.Why = rank, class, icon, label, why
}

// until adds a countdown to the end of the wait. Its beginning is when the state began,
// if it is known to be that.
func (r *row) until(what string, began time.Time) {
	wait := r.health.RetryAfter
	end := r.at.Add(wait)
	r.What, r.Until, r.Left = what, end.UnixMilli(), seconds(wait)
	if total := end.Sub(began); !began.IsZero() && total > 0 {
		r.Total, r.Arc = total.Milliseconds(), int(min(100, 100*wait/total))
	}
}

// refuses says what holds calls up, and reports whether anything does or will.
func (r *row) refuses() bool {
	h := r.health
	switch {
	case h.Reason == toolhealth.StopIsolated:
		r.is(rankHeld, "held", "held", "isolated", "is isolated")
		r.What = "by " + h.IsolatedBy
		if h.IsolatedBy == "" {
			r.What = "by an operator"
		}
	case h.Reason == toolhealth.StopRateLimited:
		r.is(rankWaiting, "warn", "wait", "rate limited", "asked us to wait")
		r.until("calls again in", time.Time{})
	case h.Reason == toolhealth.StopBusy:
		r.is(rankWaiting, "warn", "wait", "busy", "is busy")
		r.What = "calls again when one ends"
	case h.State == toolhealth.StateHalfOpen && !h.Available:
		r.is(rankOut, "probe", "probe", "half-open", "is being probed")
		r.until("a probe is out, at most", h.Since)
	case h.State != toolhealth.StateClosed && h.ProbeDue:
		r.is(rankOut, "probe", "probe", "open", "waits for a probe")
		r.What = "the next call is the probe"
	case h.State != toolhealth.StateClosed && h.Available:
		r.is(rankOut, "warn", "warn", "open, observed", "would be refused"+r.kind())
		r.What = "calls are let in"
	case h.State == toolhealth.StateOpen:
		r.is(rankOut, "bad", "bad", "open", "is open"+r.kind())
		r.until("probe in", h.Since)
	default:
		return false
	}
	return true
}

// works says how well a tool is that calls go to.
func (r *row) works() {
	h, w := r.health, r.window
	switch {
	case h.Status == toolhealth.Unhealthy:
		r.is(rankUnhealthy, "bad", "warn", "unhealthy", "fails"+r.kind())
	case h.Status == toolhealth.Degraded && h.RejectedInRow > 0 && h.Score >= 0.8:
		r.is(rankDegraded, "warn", "warn", "degraded", "rejects every call")
		r.What = count(h.RejectedInRow) + " rejected in a row"
	case h.Status == toolhealth.Degraded:
		r.is(rankDegraded, "warn", "warn", "degraded", "is degraded"+r.kind())
	case w.Calls+w.Rejected+w.Throttled+w.Refused == 0:
		r.is(rankIdle, "idle", "idle", "healthy, idle", "is idle")
	default:
		r.is(rankHealthy, "ok", "ok", "healthy", "is healthy")
	}
}

// kind returns the kind of the last failure in brackets.
func (r *row) kind() string {
	if r.health.LastFailure == toolhealth.KindNone {
		return ""
	}
	return " (" + plain(r.health.LastFailure.String()) + ")"
}

// Sick reports whether the tool needs attention.
func (r *row) Sick() bool { return r.rank < rankHealthy }

// cells is what the table shows of a row beyond its condition.
type cells struct {
	*row
	Calls           bool
	Rate, RateClass string
	RateWidth       float64
	PerMinute       string
	Spark           spark
	Latency         string
	Streak          int // two or more
	Failed          string
	Kind            string
	Refused         string
	Hour            hourStrip
}

func (r *row) cells(s *watch.Series, began time.Time) cells {
	h, w := r.health, r.window
	rate := w.SuccessRate()
	c := cells{
		row: r, Calls: w.Calls > 0, Rate: percent(rate), RateWidth: math.Round(rate*440) / 10,
		PerMinute: number(w.PerMinute(w.Calls)), Latency: span(w.Latency),
		Spark: newSpark(s.Slots), Hour: newHour(s, r.at, began),
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
