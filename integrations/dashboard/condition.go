package dashboard

import (
	"time"

	"github.com/toolhealth/toolhealth"
)

// The order of tools and groups: what is worst comes first.
const (
	rankOut     = iota // open and half-open alike, so that a row does not jump with each probe
	rankWaiting        // it asked to wait, or is busy
	rankHangs          // one of its calls runs much longer than others did
	rankUnhealthy
	rankDegraded
	rankHeld // by an operator, who knows
	rankHealthy
	rankIdle
)

// condition is how a tool or a group is, in a few words.
type condition struct {
	rank int
	// Class is the color, Icon the shape, Label the word, and Why the rest of a sentence
	// that begins with the name.
	Class, Icon, Label, Why string

	// What goes on, and for how long: a countdown ends at Until, in milliseconds, and
	// began Total before. Zero is none.
	What         string
	Left         string
	Until, Total int64
	Arc          int // percent of Total that are left

	Down      string // how long it has not been closed, or its oldest call runs if it hangs
	DownSince int64  // in milliseconds
}

// Sick reports whether it needs attention.
func (c *condition) Sick() bool { return c.rank < rankHealthy }

func (c *condition) is(rank int, class, icon, label, why string) {
	c.rank, c.Class, c.Icon, c.Label, c.Why = rank, class, icon, label, why
}

// breaker is what the breakers of tools and groups have in common.
type breaker struct {
	at                  time.Time
	state               toolhealth.State
	available, probeDue bool
	reason              toolhealth.StopReason
	wait                time.Duration
	isolatedBy          string
	since, downSince    time.Time
	kind                toolhealth.Kind
}

func toolBreaker(h *toolhealth.ToolHealth, at time.Time) breaker {
	return breaker{
		at: at, state: h.State, available: h.Available, probeDue: h.ProbeDue, reason: h.Reason, wait: h.RetryAfter,
		isolatedBy: h.IsolatedBy, since: h.Since, downSince: h.DownSince, kind: h.LastFailure,
	}
}

func groupBreaker(h *toolhealth.GroupHealth, at time.Time) breaker {
	return breaker{
		at: at, state: h.State, available: h.Available, probeDue: h.ProbeDue, reason: h.Reason, wait: h.RetryAfter,
		isolatedBy: h.IsolatedBy, since: h.Since, downSince: h.DownSince, kind: h.LastFailure,
	}
}

// holds says what holds calls up, and reports whether anything does or will.
func (c *condition) holds(b breaker) bool {
	if !b.downSince.IsZero() {
		c.DownSince, c.Down = b.downSince.UnixMilli(), seconds(b.at.Sub(b.downSince))
	}
	switch {
	case b.reason == toolhealth.StopIsolated:
		c.is(rankHeld, "held", "held", "isolated", "is isolated")
		c.What = "by " + b.isolatedBy
		if b.isolatedBy == "" {
			c.What = "by an operator"
		}
	case b.reason == toolhealth.StopRateLimited:
		c.is(rankWaiting, "warn", "wait", "rate limited", "asked us to wait")
		c.until(b, "calls again in", time.Time{})
	case b.reason == toolhealth.StopBusy:
		c.is(rankWaiting, "warn", "wait", "busy", "is busy")
		c.What = "calls again when one ends"
	case b.state == toolhealth.StateHalfOpen && !b.available:
		c.is(rankOut, "probe", "probe", "half-open", "is being probed")
		c.until(b, "a probe is out, at most", b.since)
	case b.state != toolhealth.StateClosed && b.probeDue:
		c.is(rankOut, "probe", "probe", "open", "waits for a probe")
		c.What = "the next call is the probe"
	case b.state != toolhealth.StateClosed && b.available:
		c.is(rankOut, "warn", "warn", "open, observed", "would be refused"+inBrackets(b.kind))
		c.What = "calls are let in"
	case b.state == toolhealth.StateOpen:
		c.is(rankOut, "bad", "bad", "open", "is open"+inBrackets(b.kind))
		c.until(b, "probe in", b.since)
	default:
		return false
	}
	return true
}

// until adds a countdown to the end of the wait. Its beginning is when the state began,
// if it is known to be that.
func (c *condition) until(b breaker, what string, began time.Time) {
	end := b.at.Add(b.wait)
	c.What, c.Until, c.Left = what, end.UnixMilli(), seconds(b.wait)
	if total := end.Sub(began); !began.IsZero() && total > 0 {
		c.Total, c.Arc = total.Milliseconds(), int(min(100, 100*b.wait/total))
	}
}

// inBrackets returns the kind of the last failure in brackets.
func inBrackets(kind toolhealth.Kind) string {
	if kind == toolhealth.KindNone {
		return ""
	}
	return " (" + plain(kind.String()) + ")"
}
