package otelhealth_test

import (
	"context"
	"fmt"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/otelhealth"
	"github.com/toolhealth/toolhealth/integrations/otelhealth/latency"
)

// A call that is repeated once is one span with two attempts.
func ExampleTrace() {
	exporter := tracetest.NewInMemoryExporter()
	tracer, err := otelhealth.NewTracer(otelhealth.TracerOptions{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))})
	if err != nil {
		panic(err)
	}
	guard, err := toolhealth.New(toolhealth.Settings{Start: tracer.Start, Observe: tracer.Observe})
	if err != nil {
		panic(err)
	}
	status := 503
	search := toolhealth.Wrap(guard, "search", func(_ context.Context, query string) (string, error) {
		err := toolhealth.CheckStatus(status, nil)
		status = 200
		return "found " + query, err
	})

	traced := otelhealth.Trace(tracer, "search", search.Call)
	fmt.Println(traced(context.Background(), "gophers"))

	for _, span := range exporter.GetSpans() {
		fmt.Printf("%s: %s %q\n", span.Name, span.Status.Code, span.Status.Description)
	}
	// Output:
	// found gophers <nil>
	// attempt search: Error "server_error"
	// attempt search: Unset ""
	// execute_tool search: Unset ""
}

// The metrics and the latency histograms of a registry.
func ExampleMetrics() {
	registry := toolhealth.NewRegistry()
	producer, err := latency.NewProducer(registry, latency.Options{})
	if err != nil {
		panic(err)
	}
	reader := sdkmetric.NewManualReader(sdkmetric.WithProducer(producer)) // a PeriodicReader with an exporter
	provider := sdkmetric.NewMeterProvider(
		sdkmetric.WithReader(reader),
		sdkmetric.WithCardinalityLimit(10_000), // for more than 400 tools
	)
	stop, err := otelhealth.Metrics(registry, otelhealth.MetricsOptions{MeterProvider: provider})
	if err != nil {
		panic(err)
	}
	defer func() { _ = stop() }()

	registry.RecordSuccess("search", 0)
	for range 3 {
		registry.RecordFailure("mail", 0)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		panic(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name == "toolhealth.breaker.trips" {
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
				tool, _ := p.Attributes.Value("gen_ai.tool.name")
				fmt.Println(tool.AsString(), p.Value)
			}
		}
	}
	// Unordered output:
	// search 0
	// mail 1
}

// All of it, on the global providers of OpenTelemetry.
func Example() {
	call := func(context.Context, string) (string, error) { return "found", nil }

	tracer, err := otelhealth.NewTracer(otelhealth.TracerOptions{})
	if err != nil {
		panic(err)
	}
	guard, err := toolhealth.New(toolhealth.Settings{Start: tracer.Start, Observe: tracer.Observe})
	if err != nil {
		panic(err)
	}
	search := otelhealth.Trace(tracer, "search", toolhealth.Wrap(guard, "search", call).Call)
	stop, err := otelhealth.Metrics(guard.Registry(), otelhealth.MetricsOptions{})
	if err != nil {
		panic(err)
	}
	defer func() { _ = stop() }()

	fmt.Println(search(context.Background(), "gophers"))
	// Output: found <nil>
}
