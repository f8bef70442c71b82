package promhealth

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/toolhealth/toolhealth"
)

// desc is the description of a series, with the names of its labels.
type desc struct {
	*prometheus.Desc
	labels []string
}

// sample is a gauge or a counter. It is what [prometheus.NewConstMetric] returns, but that
// it shares its label pairs with others, which halves what a scrape costs here.
type sample struct {
	desc    *desc
	labels  []*dto.LabelPair
	value   float64
	created *timestamppb.Timestamp // of a counter; nil for a gauge
}

// Desc returns the description.
func (s *sample) Desc() *prometheus.Desc { return s.desc.Desc }

// Write fills in the metric.
func (s *sample) Write(out *dto.Metric) error {
	out.Label = s.labels
	if s.created != nil {
		out.Counter = &dto.Counter{Value: &s.value, CreatedTimestamp: s.created}
	} else {
		out.Gauge = &dto.Gauge{Value: &s.value}
	}
	return nil
}

// pair is a label and its value.
type pair struct{ name, value string }

// emitter makes series of what was read.
type emitter struct {
	descs    *descs
	constant []*dto.LabelPair
	metrics  []prometheus.Metric
	samples  []sample // made ahead of their use
	pairs    map[pair]*dto.LabelPair
}

// labels returns the pairs of a series, sorted by name.
func (e *emitter) labels(d *desc, values []string) []*dto.LabelPair {
	pairs := append(make([]*dto.LabelPair, 0, len(e.constant)+len(values)), e.constant...)
	for i, value := range values {
		key := pair{d.labels[i], value}
		p := e.pairs[key]
		if p == nil {
			p = &dto.LabelPair{Name: &key.name, Value: &key.value}
			e.pairs[key] = p
		}
		pairs = append(pairs, p)
	}
	slices.SortFunc(pairs, func(a, b *dto.LabelPair) int { return cmp.Compare(*a.Name, *b.Name) })
	return pairs
}

// sample adds a series.
func (e *emitter) sample(d *desc, v float64, created *timestamppb.Timestamp, values []string) {
	if len(e.samples) == 0 {
		e.samples = make([]sample, 512)
	}
	s := &e.samples[0]
	e.samples = e.samples[1:]
	*s = sample{d, e.labels(d, values), v, created}
	e.metrics = append(e.metrics, s)
}

// gauge adds a gauge.
func (e *emitter) gauge(d *desc, v float64, labels ...string) { e.sample(d, v, nil, labels) }

// counter adds a counter that was zero when it was created.
func (e *emitter) counter(d *desc, n uint64, created *timestamppb.Timestamp, labels ...string) {
	e.sample(d, float64(n), created, labels)
}

// since adds a moment, if there is one.
func (e *emitter) since(d *desc, at time.Time, label string) {
	if !at.IsZero() {
		e.gauge(d, float64(at.UnixNano())/1e9, label)
	}
}

// registry adds the series that have no tool.
func (e *emitter) registry(s *toolhealth.Summary, began *timestamppb.Timestamp) {
	e.gauge(e.descs.tools, float64(len(s.Tools)))
	e.gauge(e.descs.groups, float64(len(s.Groups)))
	e.counter(e.descs.untracked, s.Untracked, began)
	e.counter(e.descs.evicted, s.Evicted, began)
	e.counter(e.descs.hookPanics, s.HookPanics, began)
	e.counter(e.descs.hooksDropped, s.HookDropped, began)
}

// gauges adds what a tool is like now.
func (e *emitter) gauges(tool string, h *toolhealth.ToolHealth, guarded bool) {
	d := e.descs
	for _, s := range states {
		e.gauge(d.state, one(h.State == s), tool, s.String())
	}
	for _, r := range reasons {
		e.gauge(d.unavailable, one(h.Reason == r), tool, r.Detail())
	}
	e.gauge(d.retryAfter, h.RetryAfter.Seconds(), tool)
	e.gauge(d.score, h.Score, tool)
	e.since(d.since, h.Since, tool)
	e.since(d.down, h.DownSince, tool)
	e.since(d.lastFailure, h.LastFailureAt, tool)
	e.gauge(d.streak, float64(h.ConsecutiveFailures), tool)
	e.gauge(d.rejectedInRow, float64(h.RejectedInRow), tool)
	if h.Suspected { // few tools ever are, so there is no series of zeros
		e.gauge(d.hint, 1, tool, "suspected")
	}
	if h.Reported {
		e.gauge(d.hint, 1, tool, "reported")
	}
	e.gauge(d.inFlight, float64(h.InFlight), tool)
	if guarded {
		e.gauge(d.guardInFlight, float64(h.Guard.InFlight), tool)
		e.gauge(d.guardOldest, h.Guard.Oldest.Seconds(), tool)
		e.gauge(d.guardAbandoned, float64(h.Guard.Abandoned), tool)
	}
}

// info adds what a tool was registered with.
func (e *emitter) info(tool string, h *toolhealth.ToolHealth, labels []string) {
	values := []string{tool, clean(h.Group)}
	for _, name := range labels {
		values = append(values, clean(h.Labels[name]))
	}
	e.gauge(e.descs.info, 1, values...)
}

// toolCounters adds the counters of a tool, or of those that have no series of their own.
func (e *emitter) toolCounters(tool string, list []counter, created *timestamppb.Timestamp) {
	for _, c := range list {
		if c.label == "" {
			e.counter(c.desc, c.n, created, tool)
		} else {
			e.counter(c.desc, c.n, created, tool, c.label)
		}
	}
}

// latency adds the histograms of a tool: that of failures, if there are any.
func (e *emitter) latency(tool string, l *toolhealth.Latency, created *timestamppb.Timestamp) {
	e.metrics = append(e.metrics, newHistogram(e.descs.duration, e.labels(e.descs.duration, []string{tool, "success"}), &l.Successes, created))
	if l.Failures.Count > 0 {
		e.metrics = append(e.metrics, newHistogram(e.descs.duration, e.labels(e.descs.duration, []string{tool, "failure"}), &l.Failures, created))
	}
}

// group adds the series of a group.
func (e *emitter) group(g *group) {
	d, h := e.descs, g.health
	for _, s := range states {
		e.gauge(d.groupState, one(h.State == s), g.name, s.String())
	}
	for _, r := range reasons {
		if r != toolhealth.StopBusy { // which a group never is
			e.gauge(d.groupUnavailable, one(h.Reason == r), g.name, r.Detail())
		}
	}
	e.gauge(d.groupRetryAfter, h.RetryAfter.Seconds(), g.name)
	e.since(d.groupSince, h.Since, g.name)
	e.since(d.groupDown, h.DownSince, g.name)
	e.gauge(d.groupStreak, float64(h.ConsecutiveFailures), g.name)
	e.gauge(d.groupTools, float64(h.Tools), g.name)
	e.counter(d.groupTrips, h.Trips, timestamppb.New(g.created), g.name)
}

// rest adds the counters of Other, if there was need of it.
func (e *emitter) rest(r *rest) {
	began := timestamppb.New(r.began)
	if r.counts != nil {
		e.toolCounters(Other, r.list(), began)
		e.latency(Other, &r.latency, began)
	}
	if r.groups {
		e.counter(e.descs.groupTrips, r.groupTrips, began, Other)
	}
}

// moves adds the transitions.
func (e *emitter) moves(counts map[move]moved) {
	for m, c := range counts {
		d, name := e.descs.transitions, m.tool
		if m.group != "" {
			d, name = e.descs.groupTransitions, m.group
		}
		e.counter(d, c.n, timestamppb.New(c.created), name, m.from.String(), m.to.String(), m.cause.String())
	}
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
