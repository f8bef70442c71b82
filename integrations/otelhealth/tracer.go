package otelhealth

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/otelhealth/internal/shown"
)

// TracerOptions are the options of [NewTracer]. The zero TracerOptions are the defaults.
type TracerOptions struct {
	// TracerProvider makes the spans; nil: the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider makes gen_ai.execute_tool.duration; nil: the global one.
	MeterProvider metric.MeterProvider
	// MaxTools bounds the names of tools in gen_ai.execute_tool.duration; 0:
	// DefaultMaxTools, toolhealth.Off: no bound. The names that come later are "_other".
	MaxTools int
}

// Tracer makes spans of guarded calls and of their attempts; see the package comment. Any
// goroutine may use a Tracer, and several guards may share one. A nil Tracer does
// nothing.
type Tracer struct {
	tracer   trace.Tracer
	duration metric.Float64Histogram
	names    names
}

// NewTracer returns a Tracer. The error names the option that is wrong, or is the
// MeterProvider's.
func NewTracer(o TracerOptions) (*Tracer, error) {
	limit, err := shown.Limit("otelhealth: TracerOptions.MaxTools", o.MaxTools)
	if err != nil {
		return nil, err
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	duration, err := o.MeterProvider.Meter(Scope).Float64Histogram("gen_ai.execute_tool.duration",
		metric.WithUnit("s"), metric.WithDescription("How long guarded calls took for which a tool ran, waits included."),
		metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92))
	if err != nil {
		return nil, fmt.Errorf("otelhealth: %w", err)
	}
	return &Tracer{tracer: o.TracerProvider.Tracer(Scope), duration: duration, names: names{limit: int64(limit)}}, nil
}

// attemptSpan is the span of one attempt, in the ctx that Start returned for it.
type attemptSpan struct {
	trace.Span
	tool, served string
	number       int
	ended        atomic.Bool
}

type attemptSpanKey struct{}

// Start begins the span of an attempt. It is for Start of Settings and of GuardConfig; a
// Start of your own may call it, and return a ctx that is derived from its. Set
// Observe, too, which ends the span.
func (t *Tracer) Start(ctx context.Context, e toolhealth.Event) context.Context {
	if t == nil {
		return ctx
	}
	if c := callIn(ctx, e.Tool); c != nil {
		c.hear()
	}
	served := shown.Clean(e.Served)
	ctx, span := t.tracer.Start(ctx, "attempt "+served, trace.WithAttributes(toolKey.String(served), attemptKey.Int(e.Attempt)))
	return context.WithValue(ctx, attemptSpanKey{}, &attemptSpan{Span: span, tool: e.Tool, served: e.Served, number: e.Attempt})
}

// Observe ends the span of an attempt, puts the end of a call into the span of the call,
// and records gen_ai.execute_tool.duration. It is for Observe of Settings and of
// GuardConfig; an Observe of your own may call it.
func (t *Tracer) Observe(ctx context.Context, e toolhealth.Event) {
	switch {
	case t == nil:
	case e.Final:
		t.end(ctx, e)
	default:
		a, ok := ctx.Value(attemptSpanKey{}).(*attemptSpan)
		if ok && a.tool == e.Tool && a.served == e.Served && a.number == e.Attempt && a.ended.CompareAndSwap(false, true) {
			a.end(e)
		}
	}
}

func (a *attemptSpan) end(e toolhealth.Event) {
	set := []attribute.KeyValue{outcomeKey.String(e.Verdict.Outcome.String())}
	if e.Reason != toolhealth.StopNone {
		set = append(set, stopKey.String(e.Reason.String()))
	}
	if e.Wait > 0 {
		set = append(set, waitKey.Float64(e.Wait.Seconds()))
	}
	if e.Err != nil && e.Verdict.Outcome != toolhealth.OutcomeSuccess && !blameless(e.Verdict) {
		kind := e.Verdict.Kind.String()
		set = append(set, errorKey.String(kind))
		a.SetStatus(codes.Error, kind) // the error's own text may hold secrets
	}
	a.SetAttributes(set...)
	a.Span.End()
}

// end hears of the end of a guarded call.
func (t *Tracer) end(ctx context.Context, e toolhealth.Event) {
	r := resultOf(e)
	c := callIn(ctx, e.Tool)
	span := trace.SpanFromContext(ctx)
	if c != nil {
		span = c.span
	}
	if r.ran {
		t.record(span, e.Tool, e.Took.Seconds(), r)
	}
	if c != nil {
		c.tell(r)
	} else if isHost(span, e.Tool) {
		r.annotate(span, e.Tool)
	}
}

// record records how long a call took, with its span for exemplars. It is given none of the caller's
// ctx, which may be done.
func (t *Tracer) record(span trace.Span, tool string, seconds float64, r result) {
	set := []attribute.KeyValue{operationKey.String(executeTool), toolKey.String(t.names.of(tool))}
	if r.errorType != "" {
		set = append(set, errorKey.String(r.errorType))
	}
	t.duration.Record(trace.ContextWithSpan(context.Background(), span), seconds, metric.WithAttributes(set...))
}

// names bounds the names in a histogram, which cannot forget one.
type names struct {
	limit int64
	known sync.Map
	count atomic.Int64
}

func (n *names) of(tool string) string {
	tool = shown.Clean(tool)
	if _, ok := n.known.Load(tool); ok {
		return tool
	}
	if n.count.Add(1) > n.limit {
		n.count.Add(-1)
		return shown.Other
	}
	if _, ok := n.known.LoadOrStore(tool, nil); ok {
		n.count.Add(-1)
	}
	return tool
}
