// Package latency exports the latency histograms of a registry to OpenTelemetry.
//
// OpenTelemetry has no asynchronous histogram, so what a registry has counted already
// goes by the instruments and comes in by a producer of the SDK: calls pay nothing for
// it, and no bucket is lost.
//
//	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(producer))
package latency

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/otelhealth/internal/shown"
)

// Options are the options of [NewProducer]. The zero Options are the defaults.
type Options struct {
	// MaxTools bounds the tools that have a histogram; 0: 1,000, toolhealth.Off: no bound.
	// The sick come first, then the busiest. The rest has none.
	MaxTools int
	// Labels are the names of those labels in ToolHealth that become attributes
	// "toolhealth.label.NAME" of a tool's series.
	Labels []string
}

// Producer gives a reader of the SDK the metric toolhealth.call.duration: how long
// attempts took, as exponential histograms of scale 2, one of the successes and one of
// the failures of each tool, of all time. It does so whenever the reader collects; the
// reader's aggregation, temporality and views do not apply, as with every producer.
//
// One Producer may serve several readers.
type Producer struct {
	registry *toolhealth.Registry
	limit    int
	labels   []string

	mu   sync.Mutex
	last time.Time          // when it was asked last, or made
	runs map[series]counted // of what the registry has
}

// series is one histogram.
type series struct{ tool, outcome string }

// counted is what is remembered of a histogram, to see when it begins anew.
type counted struct {
	count uint64
	since time.Time
}

// NewProducer returns a Producer. A nil registry has no tools. The error names the option
// that is wrong.
func NewProducer(r *toolhealth.Registry, o Options) (*Producer, error) {
	limit, err := shown.Limit("latency: Options.MaxTools", o.MaxTools)
	if err != nil {
		return nil, err
	}
	return &Producer{registry: r, limit: limit, labels: o.Labels, last: time.Now(), runs: make(map[series]counted)}, nil
}

// Produce reads the registry.
func (p *Producer) Produce(ctx context.Context) ([]metricdata.ScopeMetrics, error) {
	if p == nil {
		return nil, errors.New("latency: the Producer is nil")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	all := p.registry.HealthSummary().Tools
	var points []metricdata.ExponentialHistogramDataPoint[float64]
	for _, item := range shown.Tools(all, p.limit) {
		l, ok := p.registry.Latency(item.Health.Tool)
		if !ok {
			continue
		}
		set := append(shown.Attributes(item.Health, p.labels), shown.ToolKey.String(item.Name))
		points = p.point(points, item.Health.Tool, toolhealth.OutcomeSuccess, l.Successes, set, now)
		points = p.point(points, item.Health.Tool, toolhealth.OutcomeFailure, l.Failures, set, now)
	}
	p.forget(all)
	p.last = now
	if err := ctx.Err(); err != nil || len(points) == 0 {
		return nil, err
	}
	return []metricdata.ScopeMetrics{{
		Scope: instrumentation.Scope{Name: "github.com/toolhealth/toolhealth/integrations/otelhealth/latency"},
		Metrics: []metricdata.Metrics{{
			Name: "toolhealth.call.duration", Description: "How long attempts took, by outcome.", Unit: "s",
			Data: metricdata.ExponentialHistogram[float64]{Temporality: metricdata.CumulativeTemporality, DataPoints: points},
		}},
	}}, nil
}

// point appends a histogram, if it has counted anything.
func (p *Producer) point(points []metricdata.ExponentialHistogramDataPoint[float64], tool string, o toolhealth.Outcome, h toolhealth.Histogram, set []attribute.KeyValue, now time.Time) []metricdata.ExponentialHistogramDataPoint[float64] {
	if h.Count == 0 {
		return points
	}
	key := series{tool, o.String()}
	run, known := p.runs[key]
	if !known || h.Count < run.count { // it began after the last reading
		run.since = p.last
	}
	run.count = h.Count
	p.runs[key] = run
	return append(points, metricdata.ExponentialHistogramDataPoint[float64]{
		Attributes: attribute.NewSet(append(set[:len(set):len(set)], attribute.String("toolhealth.outcome", key.outcome))...),
		StartTime:  run.since, Time: now,
		Count: h.Count, Sum: h.Sum.Seconds(), Scale: int32(h.Scale),
		ZeroCount: h.ZeroCount, ZeroThreshold: h.ZeroThreshold,
		PositiveBucket: metricdata.ExponentialBucket{Offset: int32(h.Offset), Counts: h.Counts},
	})
}

// forget forgets the tools that the registry no longer has.
func (p *Producer) forget(all []toolhealth.ToolHealth) {
	known := make(map[string]bool, len(all))
	for i := range all {
		known[all[i].Tool] = true
	}
	maps.DeleteFunc(p.runs, func(s series, _ counted) bool { return !known[s.tool] })
}
