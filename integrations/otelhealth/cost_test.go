package otelhealth_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/otelhealth"
)

// What one collection costs, of 1,000 tools with series of their own and 2,000 in all.
func BenchmarkMetrics_Collect(b *testing.B) {
	for _, tools := range []int{10, 1000, 2000} {
		b.Run(fmt.Sprint(tools), func(b *testing.B) {
			r := toolhealth.NewRegistry()
			for i := range tools {
				r.RecordSuccess(fmt.Sprint("tool", i), 0)
			}
			reader := sdkmetric.NewManualReader()
			stop, err := otelhealth.Metrics(r, otelhealth.MetricsOptions{
				MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithCardinalityLimit(10_000)),
			})
			require.NoError(b, err)
			defer func() { _ = stop() }()
			var all metricdata.ResourceMetrics
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, reader.Collect(b.Context(), &all))
			}
		})
	}
}

// What the spans of a call cost that is not sampled.
func BenchmarkTrace_NotSampled(b *testing.B) {
	tracer, err := otelhealth.NewTracer(otelhealth.TracerOptions{TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: noop.NewMeterProvider()})
	require.NoError(b, err)
	guard, err := toolhealth.New(toolhealth.Settings{Start: tracer.Start, Observe: tracer.Observe})
	require.NoError(b, err)
	search := otelhealth.Trace(tracer, "search", toolhealth.Wrap(guard, "search", func(context.Context, int) (int, error) { return 1, nil }).Call)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = search(b.Context(), 1)
	}
}
