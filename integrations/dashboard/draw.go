package dashboard

import (
	"fmt"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth/integrations/watch"
)

// spark is the p90 of a tool over the last ten minutes, in a box of 120 by 26.
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
		points[i].latency = max(points[i].latency, s.P90)
		points[i].failed = points[i].failed || s.Failures > 0
		slowest = max(slowest, s.P90)
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
	out.Text = "p90 of successes over ten minutes"
	if slowest > 0 {
		out.Most = span(slowest)
		out.Text += ", at most " + out.Most
	}
	if len(out.Fails) > 0 {
		out.Text += ", with failures"
	}
	return out
}
