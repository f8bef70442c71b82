package latency_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/otelhealth/latency"
)

// points returns what a reader of the SDK gets from the producer, by attributes.
func points(t *testing.T, reader sdkmetric.Reader) map[string]metricdata.ExponentialHistogramDataPoint[float64] {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	found := make(map[string]metricdata.ExponentialHistogramDataPoint[float64])
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			assert.Equal(t, "toolhealth.call.duration", m.Name)
			assert.Equal(t, "s", m.Unit)
			data := m.Data.(metricdata.ExponentialHistogram[float64])
			assert.Equal(t, metricdata.CumulativeTemporality, data.Temporality)
			for _, p := range data.DataPoints {
				found[p.Attributes.Encoded(attribute.DefaultEncoder())] = p
			}
		}
	}
	return found
}

func reader(t *testing.T, r *toolhealth.Registry, o latency.Options) sdkmetric.Reader {
	t.Helper()
	p, err := latency.NewProducer(r, o)
	require.NoError(t, err)
	reader := sdkmetric.NewManualReader(sdkmetric.WithProducer(p))
	_ = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	return reader
}

const (
	successes = "gen_ai.tool.name=search,toolhealth.outcome=success"
	failures  = "gen_ai.tool.name=search,toolhealth.outcome=failure"
)

// The bucket k of OpenTelemetry at scale 2 is (2^(k/4), 2^((k+1)/4)].
func TestProducer_BucketsHoldTheirDurations(t *testing.T) {
	for _, took := range []time.Duration{
		10 * time.Microsecond, time.Millisecond, 137 * time.Millisecond, time.Second, time.Second + 1, 2 * time.Second, 90 * time.Second, 1000 * time.Second,
	} {
		r := toolhealth.NewRegistry()
		for range 5 {
			r.RecordSuccess("search", took)
		}
		p := points(t, reader(t, r, latency.Options{}))[successes]
		require.Equal(t, uint64(5), p.Count, took)
		assert.InDelta(t, 5*took.Seconds(), p.Sum, 1e-9)
		require.Equal(t, int32(2), p.Scale)
		require.Equal(t, []uint64{5}, p.PositiveBucket.Counts, took)
		base := math.Pow(2, math.Pow(2, -float64(p.Scale)))
		assert.Less(t, math.Pow(base, float64(p.PositiveBucket.Offset)), took.Seconds()+1e-12, took)
		assert.GreaterOrEqual(t, math.Pow(base, float64(p.PositiveBucket.Offset+1)), took.Seconds()-1e-12, took)
	}
}

func TestProducer_TooShortIsInZeroCount(t *testing.T) {
	r := toolhealth.NewRegistry()
	r.RecordSuccess("search", time.Microsecond)
	r.RecordSuccess("search", time.Second)
	p := points(t, reader(t, r, latency.Options{}))[successes]
	assert.Equal(t, uint64(2), p.Count)
	assert.Equal(t, uint64(1), p.ZeroCount)
	assert.Equal(t, []uint64{1}, p.PositiveBucket.Counts)
	assert.Equal(t, math.Pow(2, -17), p.ZeroThreshold)
}

func TestProducer_FailuresAreApart(t *testing.T) {
	r := toolhealth.NewRegistry()
	r.RecordSuccess("search", time.Second)
	r.RecordFailure("search", time.Minute)
	r.RecordFailure("search", time.Minute)
	all := points(t, reader(t, r, latency.Options{}))
	require.Len(t, all, 2)
	assert.Equal(t, uint64(1), all[successes].Count)
	assert.Equal(t, uint64(2), all[failures].Count)
	assert.InDelta(t, 120, all[failures].Sum, 1e-9)
}

// A series that begins anew has a start of its own, or what it lost would be negative.
func TestProducer_RemovedToolBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := time.Now()
		r := toolhealth.NewRegistry()
		reader := reader(t, r, latency.Options{})
		time.Sleep(time.Minute)
		r.RecordSuccess("search", time.Second)
		r.RecordSuccess("search", time.Second)
		for range 2 {
			p := points(t, reader)[successes]
			assert.Equal(t, made, p.StartTime)
			assert.Equal(t, time.Now(), p.Time)
			time.Sleep(time.Minute)
		}
		read := time.Now().Add(-time.Minute)
		r.Remove("search")
		r.RecordSuccess("search", time.Second)
		assert.Equal(t, read, points(t, reader)[successes].StartTime, "fewer than before")
		read = time.Now()
		r.Remove("search")
		assert.Empty(t, points(t, reader))
		r.RecordSuccess("search", time.Second)
		time.Sleep(time.Minute)
		assert.Equal(t, read, points(t, reader)[successes].StartTime, "as many as before, after it was gone")
	})
}

func TestProducer_ToolsAreBounded(t *testing.T) {
	r := toolhealth.NewRegistry()
	require.NoError(t, r.Register("search", toolhealth.ToolOptions{Labels: map[string]string{"team": "web"}}))
	for range 9 {
		r.RecordSuccess("search", time.Second)
	}
	r.RecordSuccess("idle", time.Second)
	r.RecordSuccess("a\xff", time.Second)
	assert.Len(t, points(t, reader(t, r, latency.Options{})), 3)
	all := points(t, reader(t, r, latency.Options{MaxTools: 1, Labels: []string{"team"}}))
	require.Len(t, all, 1)
	assert.Contains(t, all, "gen_ai.tool.name=search,toolhealth.label.team=web,toolhealth.outcome=success")
}

func TestNewProducer_NamesBadOption(t *testing.T) {
	_, err := latency.NewProducer(nil, latency.Options{MaxTools: -3})
	assert.EqualError(t, err, "latency: Options.MaxTools: -3 is negative; toolhealth.Off means no bound")
	assert.Empty(t, points(t, reader(t, nil, latency.Options{})))
	var none *latency.Producer
	_, err = none.Produce(t.Context())
	assert.EqualError(t, err, "latency: the Producer is nil")
}
