package dashboard

import (
	"math"
	"time"

	"github.com/toolhealth/toolhealth"
)

// chart is how long calls took, in a box of 1000 by 60: a bar for each bucket of the
// histograms, failures on top of successes.
type chart struct {
	Bars     []chartBar
	Marks    []chartMark
	From, To string // the durations at both ends
	Failed   bool   // whether there are failures
	Text     string
}

type chartBar struct {
	X, Width   float64
	OK, Bad    float64 // heights
	OKTop, Top float64
}

// chartMark is a quantile of the successes.
type chartMark struct {
	Name, Value string
	X           float64
}

// What a chart has room for.
const (
	chartWidth  = 1000.0
	chartHeight = 60.0
	fewBuckets  = 16        // at least, so that one bucket is a bar and no wall
	underAll    = -17*4 - 1 // the bucket of what is too short for the others
)

// newChart returns a chart without bars if no call ended.
func newChart(l toolhealth.Latency) (out chart) {
	ok, bad := inBuckets(l.Successes), inBuckets(l.Failures)
	first, last, most := math.MaxInt, math.MinInt, uint64(0)
	for _, h := range []map[int]uint64{ok, bad} {
		for i := range h {
			first, last, most = min(first, i), max(last, i), max(most, ok[i]+bad[i])
		}
	}
	if most == 0 {
		return chart{}
	}
	lack := max(0, fewBuckets-(last+1-first))
	first, last = first-lack/2, last+lack-lack/2
	width := chartWidth / float64(last+1-first)
	for i := first; i <= last; i++ {
		if ok[i]+bad[i] == 0 {
			continue
		}
		bar := chartBar{X: round(width * float64(i-first)), Width: round(width * 0.86), OK: height(ok[i], most), Bad: height(bad[i], most)}
		bar.OKTop = round(chartHeight - bar.OK)
		bar.Top = round(bar.OKTop - bar.Bad)
		out.Bars = append(out.Bars, bar)
	}
	out.From, out.To, out.Failed = span(bound(first)), span(bound(last+1)), l.Failures.Count > 0
	out.Text = count(l.Successes.Count) + " successes and " + count(l.Failures.Count) + " failures by how long they took"
	if l.Successes.Count == 0 {
		return out
	}
	for _, q := range []struct {
		name string
		of   float64
	}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}} {
		at := l.Successes.Quantile(q.of)
		x := width * (4*math.Log2(at.Seconds()) - float64(first))
		out.Marks = append(out.Marks, chartMark{q.name, span(at), round(max(x, 0))})
		out.Text += ", " + q.name + " " + span(at)
	}
	return out
}

// inBuckets returns the counts of h by the number of the bucket: i begins at 2^(i/4) s.
func inBuckets(h toolhealth.Histogram) map[int]uint64 {
	counts := make(map[int]uint64)
	if h.ZeroCount > 0 {
		counts[underAll] = h.ZeroCount
	}
	for i, n := range h.Counts { // neither the first nor the last is 0
		counts[h.Offset+i] = n
	}
	return counts
}

// bound returns the duration at which a bucket begins.
func bound(bucket int) time.Duration {
	return time.Duration(math.Exp2(float64(bucket)/4) * float64(time.Second))
}

// height returns the height of a bar, which is seen however little it is.
func height(n, most uint64) float64 {
	if n == 0 {
		return 0
	}
	return max(round(float64(n)/float64(most)*(chartHeight-6)), 2)
}
