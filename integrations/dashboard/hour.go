package dashboard

import (
	"fmt"
	"time"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

// hourStrip is the states of a tool or a group in the last hour, in a box of 1000 by 10.
// What is not drawn is closed.
type hourStrip struct {
	Parts  []hourPart
	Opened int // times
	Text   string
}

type hourPart struct {
	Class    string
	X, Width float64
}

// thinnest is the least width of a part that has to be seen.
const thinnest = 8

// newHour draws the hour of s, and of the group of a tool, which is nil without one: while
// that was open, no call of the tool went through.
func newHour(s, group *watch.Series, now, began time.Time) (out hourStrip) {
	from := now.Add(-time.Hour)
	known := began
	if s.From.After(known) {
		known = s.From
	}
	if known.After(from) { // to the minute: it moves in every row
		out.Parts = append(out.Parts, hourPart{"unknown", 0, placed(from.Add(known.Sub(from).Truncate(time.Minute)), from)})
	}
	opened, last := out.add(s.Events, now)
	out.Opened = opened
	ofGroup := 0
	if group != nil {
		ofGroup, _ = out.add(group.Events, now)
	}
	switch {
	case opened > 0:
		out.Text = "opened " + times(opened) + " in the last hour"
	case last == "held":
		out.Text = "isolated"
	case last == "bad":
		out.Text = "not closed in the last hour"
	case ofGroup > 0:
		out.Text = "its group opened " + times(ofGroup) + " in the last hour"
	case len(out.Parts) > 0 && out.Parts[len(out.Parts)-1].Class != "unknown":
		out.Text = "its group was not closed"
	case known.After(from):
		out.Text = "closed since " + clock(known)
	default:
		out.Text = "closed for the last hour"
	}
	return out
}

// add draws events, which are the newest first, and returns how often the breaker opened
// in the hour, and the class of what it is now.
func (out *hourStrip) add(events []watch.Event, now time.Time) (opened int, last string) {
	from := now.Add(-time.Hour)
	end := now
	for i, e := range events {
		if end.Before(from) {
			break
		}
		class := classOf(&e)
		if i == 0 {
			last = class
		}
		if class != "" {
			x := placed(e.First, from)
			width := max(placed(end, from)-x, thinnest)
			out.Parts = append(out.Parts, hourPart{class, round(min(x, 1000-width)), round(width)})
		}
		if e.From == toolhealth.StateClosed && class == "bad" && !e.When.Before(from) {
			opened++
		}
		end = e.First
	}
	return opened, last
}

// classOf returns the color of what an event began; "" for closed. A probe is short, and
// would only blur the picture.
func classOf(e *watch.Event) string {
	switch {
	case e.Cause == toolhealth.CauseIsolated:
		return "held"
	case e.To != toolhealth.StateClosed:
		return "bad"
	}
	return ""
}

// placed returns the place of a time in the hour that begins at from.
func placed(t, from time.Time) float64 { return round(min(1000, max(0, 1000*t.Sub(from).Hours()))) }

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprint(n, " times")
}
