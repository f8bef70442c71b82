package promhealth

import (
	"time"

	"github.com/toolhealth/toolhealth"
)

// rest adds up what tools and groups counted while they had no series of their own. It
// never goes back: a counter that does looks to Prometheus as if the process had begun
// anew, and all of it is counted once more.
type rest struct {
	began      time.Time
	counts     map[series]uint64 // nil until a tool had no label
	latency    toolhealth.Latency
	groups     bool // a group had no label
	groupTrips uint64
}

// series is a counter without its number.
type series struct {
	desc  *desc
	label string
}

// addTool adds what a tool counted since the scrape before.
func (r *rest) addTool(d *descs, t *tool, guarded bool) {
	var earlier []counter
	var latency toolhealth.Latency
	if t.before != nil {
		earlier, latency = d.counters(t.before, guarded), t.before.latency
	}
	if r.counts == nil {
		r.counts = make(map[series]uint64)
	}
	for _, c := range d.counters(t, guarded) {
		r.counts[series{c.desc, c.label}] += c.since(earlier)
	}
	r.latency.Successes = sum(r.latency.Successes, t.latency.Successes.Sub(latency.Successes))
	r.latency.Failures = sum(r.latency.Failures, t.latency.Failures.Sub(latency.Failures))
}

// addGroup adds what a group counted since the scrape before.
func (r *rest) addGroup(g *group) {
	r.groups = true
	r.groupTrips += g.health.Trips
	if g.before != nil {
		r.groupTrips -= min(g.health.Trips, g.before.health.Trips)
	}
}

// list returns the counters.
func (r *rest) list() []counter {
	list := make([]counter, 0, len(r.counts))
	for s, n := range r.counts {
		list = append(list, counter{s.desc, s.label, n})
	}
	return list
}

// sum returns both histograms together.
func sum(a, b toolhealth.Histogram) toolhealth.Histogram {
	switch {
	case b.Count == 0:
		return a
	case a.Count == 0:
		return b
	}
	all := a
	all.Offset = min(a.Offset, b.Offset)
	all.Counts = make([]uint64, max(a.Offset+len(a.Counts), b.Offset+len(b.Counts))-all.Offset)
	for _, h := range []*toolhealth.Histogram{&a, &b} {
		for i, n := range h.Counts {
			all.Counts[h.Offset+i-all.Offset] += n
		}
	}
	all.ZeroCount += b.ZeroCount
	all.Count += b.Count
	if all.Sum += b.Sum; all.Sum < 0 {
		all.Sum = 1<<63 - 1
	}
	return all
}
