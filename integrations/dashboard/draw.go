package dashboard

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

// spark is the latency of a tool over the last ten minutes, in a box of 120 by 26.
type spark struct {
	Lines []string  // points of a polyline
	Fails []float64 // where calls failed
	Most  string    // the latency at the top
	Text  string
}

// What a spark has room for.
const (
	sparkSpan   = 10 * time.Minute
	sparkPoints = 60
	sparkWidth  = 120.0
)

// sparkPoint is some slots together.
type sparkPoint struct {
	latency time.Duration
	failed  bool
}

func newSpark(slots []watch.Slot) (out spark) {
	if len(slots) == 0 {
		return out
	}
	var points [sparkPoints]sparkPoint
	var slowest time.Duration
	last := slots[len(slots)-1].End
	for _, s := range slots {
		i := sparkPoints - 1 - int(last.Sub(s.End)*sparkPoints/sparkSpan)
		if i < 0 {
			continue
		}
		points[i].latency = max(points[i].latency, s.Latency)
		points[i].failed = points[i].failed || s.Failures > 0
		slowest = max(slowest, s.Latency)
	}
	x := func(i int) float64 { return round((float64(i) + 0.5) * sparkWidth / sparkPoints) }
	var line []string
	flush := func() {
		if len(line) == 1 { // a point alone would not be seen
			line = append(line, line[0])
		}
		if len(line) > 0 {
			out.Lines = append(out.Lines, strings.Join(line, " "))
		}
		line = nil
	}
	gap := 0
	for i, p := range points {
		if p.failed {
			out.Fails = append(out.Fails, x(i))
		}
		if p.latency == 0 {
			if gap++; gap > 3 {
				flush()
			}
			continue
		}
		gap = 0
		line = append(line, fmt.Sprintf("%g,%.1f", x(i), 19-16*float64(p.latency)/float64(slowest)))
	}
	flush()
	out.Text = "latency of successes over ten minutes"
	if slowest > 0 {
		out.Most = span(slowest)
		out.Text += ", at most " + out.Most
	}
	if len(out.Fails) > 0 {
		out.Text += ", with failures"
	}
	return out
}

// hourStrip is the states of a tool in the last hour, in a box of 1000 by 10. What is not
// drawn is closed.
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

func newHour(s *watch.Series, now, began time.Time) (out hourStrip) {
	from := now.Add(-time.Hour)
	place := func(t time.Time) float64 { return round(min(1000, max(0, 1000*t.Sub(from).Hours()))) }
	known := began
	if s.From.After(known) {
		known = s.From
	}
	if known.After(from) { // to the minute: it moves in every row
		out.Parts = append(out.Parts, hourPart{"unknown", 0, place(from.Add(known.Sub(from).Truncate(time.Minute)))})
	}
	end := now
	for _, e := range s.Events { // the newest first
		if end.Before(from) {
			break
		}
		class := ""
		switch {
		case e.Cause == toolhealth.CauseIsolated:
			class = "held"
		case e.To != toolhealth.StateClosed:
			class = "bad" // a probe is short, and would only blur the picture
		}
		if class != "" {
			x := place(e.First)
			width := max(place(end)-x, thinnest)
			out.Parts = append(out.Parts, hourPart{class, round(min(x, 1000-width)), round(width)})
		}
		if e.From == toolhealth.StateClosed && class == "bad" && !e.When.Before(from) {
			out.Opened++
		}
		end = e.First
	}
	switch {
	case out.Opened == 1:
		out.Text = "opened once in the last hour"
	case out.Opened > 1:
		out.Text = "opened " + strconv.Itoa(out.Opened) + " times in the last hour"
	case len(s.Events) > 0 && s.Events[0].Cause == toolhealth.CauseIsolated:
		out.Text = "isolated"
	case len(s.Events) > 0 && s.Events[0].To != toolhealth.StateClosed:
		out.Text = "not closed in the last hour"
	case known.After(from):
		out.Text = "closed since " + clock(known)
	default:
		out.Text = "closed for the last hour"
	}
	return out
}
