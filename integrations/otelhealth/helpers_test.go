package otelhealth_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/otelhealth"
)

// secret is in errors of tools, and must be in nothing that is exported.
const secret = "token=hunter2"

var (
	errTimeout = toolhealth.WithVerdict(errors.New(secret), toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout, Retryable: true})
	errBroken  = errors.New(secret)
	errDenied  = toolhealth.WithVerdict(errors.New(secret), toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindDenied})
)

// rig is a guard whose calls are traced and measured in memory.
type rig struct {
	t      *testing.T
	tracer *otelhealth.Tracer
	guard  *toolhealth.Guard
	spans  *tracetest.SpanRecorder
	tp     *sdktrace.TracerProvider
	reader *sdkmetric.ManualReader
	mp     *sdkmetric.MeterProvider
}

func newRig(t *testing.T, s toolhealth.Settings) *rig {
	t.Helper()
	r := &rig{t: t, spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	r.tp = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
	r.mp = sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
	var err error
	r.tracer, err = otelhealth.NewTracer(otelhealth.TracerOptions{TracerProvider: r.tp, MeterProvider: r.mp})
	require.NoError(t, err)
	s.Start, s.Observe = r.tracer.Start, r.tracer.Observe
	if s.Policy.BackoffBase == 0 {
		s.Policy.BackoffBase = 1
	}
	r.guard, err = toolhealth.New(s)
	require.NoError(t, err)
	return r
}

// search returns a traced tool "search".
func (r *rig) search(fn func(context.Context, int) (int, error)) func(context.Context, int) (int, error) {
	return otelhealth.Trace(r.tracer, "search", toolhealth.Wrap(r.guard, "search", fn).Call)
}

// ended returns the only span with the name, which has ended once and holds no secret.
func (r *rig) ended(name string) sdktrace.ReadOnlySpan {
	r.t.Helper()
	all := r.all(name)
	require.Len(r.t, all, 1, name)
	return all[0]
}

// all returns the spans that have ended with the name. Every span that began has to have ended.
func (r *rig) all(name string) (found []sdktrace.ReadOnlySpan) {
	r.t.Helper()
	require.Len(r.t, r.spans.Started(), len(r.spans.Ended()), "every span has ended")
	for _, s := range r.spans.Ended() {
		if s.Name() == name {
			found = append(found, s)
		}
		assert.NotContains(r.t, s.Status().Description, secret)
		for _, a := range s.Attributes() {
			assert.NotContains(r.t, a.Value.String(), secret)
		}
	}
	return found
}

// attributes returns the attributes of a span as texts.
func attributes(s sdktrace.ReadOnlySpan) map[string]string {
	all := make(map[string]string)
	for _, a := range s.Attributes() {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

func parent(s sdktrace.ReadOnlySpan) trace.SpanID { return s.Parent().SpanID() }

func id(s sdktrace.ReadOnlySpan) trace.SpanID { return s.SpanContext().SpanID() }

// durations returns how many calls gen_ai.execute_tool.duration has, by error.type.
func (r *rig) durations() map[string]uint64 {
	r.t.Helper()
	found := make(map[string]uint64)
	data, ok := collect(r.t, r.reader)["gen_ai.execute_tool.duration"].(metricdata.Histogram[float64])
	if !ok {
		return found
	}
	for _, p := range data.DataPoints {
		text, _ := p.Attributes.Value("error.type")
		found[text.AsString()] += p.Count
	}
	return found
}

// collect returns what a reader collects, by the name of the metric.
func collect(t *testing.T, reader sdkmetric.Reader) map[string]metricdata.Aggregation {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &all))
	found := make(map[string]metricdata.Aggregation)
	for _, scope := range all.ScopeMetrics {
		assert.Equal(t, otelhealth.Scope, scope.Scope.Name)
		for _, m := range scope.Metrics {
			found[m.Name] = m.Data
		}
	}
	return found
}

// series returns the series of a metric of integers, or of floats cut to integers, by
// their attributes as text.
func series(t *testing.T, data metricdata.Aggregation) map[string]int64 {
	t.Helper()
	found := make(map[string]int64)
	put := func(set attribute.Set, n int64) {
		key := set.Encoded(attribute.DefaultEncoder())
		if _, twice := found[key]; twice {
			require.Fail(t, "twice", key)
		}
		found[key] = n
	}
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		assert.Equal(t, metricdata.CumulativeTemporality, d.Temporality)
		for _, p := range d.DataPoints {
			put(p.Attributes, p.Value)
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			put(p.Attributes, int64(p.Value))
		}
	case nil:
	default:
		require.Fail(t, "unknown data", "%T", data)
	}
	return found
}
