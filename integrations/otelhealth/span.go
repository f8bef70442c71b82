package otelhealth

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/otelhealth/internal/shown"
)

// Span begins the span of one call of a tool, with the attributes that are given, such as
// gen_ai.tool.call.id. Make the guarded call with the ctx that it returns, and call end
// with the error of the call on every way out:
//
//	ctx, end := tracer.Span(ctx, "search")
//	out, err := search.Call(ctx, query)
//	end(err)
//
// What the guard told Observe counts more than the err of end, so an adapter may turn
// the error into a result. The span is the one that the ctx has already if it is of the
// same tool, be it of a host's or of an outer Span; then end does not end it. The first
// end counts, and any goroutine may call it.
func (t *Tracer) Span(ctx context.Context, tool string, attributes ...attribute.KeyValue) (_ context.Context, end func(error)) {
	ctx, c := t.begin(ctx, tool, attributes)
	if c == nil {
		return ctx, func(error) {}
	}
	return ctx, func(err error) { c.end(ctx, err) }
}

// Trace returns call with a span of the tool around it. call makes the guarded call, as
// [toolhealth.Tool.Call] does.
func Trace[In, Out any](t *Tracer, tool string, call func(context.Context, In) (Out, error)) func(context.Context, In) (Out, error) {
	return func(ctx context.Context, in In) (out Out, err error) {
		ctx, end := t.Span(ctx, tool)
		defer func() { end(err) }() // also if the goroutine ends
		return call(ctx, in)
	}
}

// TraceBegin returns begin with a span of the tool around it. begin opens the guarded
// call, as [toolhealth.Tool.Begin] does. The span ends with the Flight; if the guard has
// not the Tracer's Start and Observe, it ends when begin returns.
func TraceBegin[In, Out any](t *Tracer, tool string, begin func(context.Context, In) (Out, *toolhealth.Flight, error)) func(context.Context, In) (Out, *toolhealth.Flight, error) {
	return func(ctx context.Context, in In) (out Out, flight *toolhealth.Flight, err error) {
		ctx, c := t.begin(ctx, tool, nil)
		if c != nil {
			defer func() {
				if flight == nil || !c.leave() {
					c.end(ctx, err)
				}
			}()
		}
		return begin(ctx, in)
	}
}

// WithHostSpan returns a ctx that says that its span is the host's own for the execution
// of the tool, by the name that the guard knows. Call it where the host has begun the
// span, before the guarded call.
func WithHostSpan(ctx context.Context, tool string) context.Context {
	if ctx == nil {
		ctx = context.Background()
	}
	return withCall(ctx, &call{span: trace.SpanFromContext(ctx), tool: tool, host: true})
}

// call is one call of a tool that has a span.
type call struct {
	tracer *Tracer
	span   trace.Span
	tool   string
	host   bool // the span is a host's, which ends it
	begun  time.Time

	mu     sync.Mutex
	heard  bool   // the tracer is the guard's: it has heard of an attempt
	told   bool   // of the end
	result result // if told
	left   bool   // the end of the guarded call ends the span
	ended  bool
}

type callKey struct{}

func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// callIn returns the innermost call in ctx, if it is of the tool.
func callIn(ctx context.Context, tool string) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok && c.tool == tool {
		return c
	}
	return nil
}

// begin returns nil if ctx is in a call of the tool already.
func (t *Tracer) begin(ctx context.Context, tool string, attributes []attribute.KeyValue) (context.Context, *call) {
	if ctx == nil {
		ctx = context.Background()
	}
	if t == nil || callIn(ctx, tool) != nil {
		return ctx, nil
	}
	c := &call{tracer: t, tool: tool, begun: time.Now()}
	if c.span = trace.SpanFromContext(ctx); isHost(c.span, tool) {
		c.host = true
		c.span.SetAttributes(attributes...)
		return withCall(ctx, c), c
	}
	name := shown.Clean(tool)
	ctx, c.span = t.tracer.Start(ctx, executeTool+" "+name, trace.WithSpanKind(trace.SpanKindInternal),
		trace.WithAttributes(operationKey.String(executeTool), toolKey.String(name)), trace.WithAttributes(attributes...))
	return withCall(ctx, c), c
}

// isHost reports whether the span is one of another instrumentation for the execution of
// the tool. Spans of the SDK have the method Attributes; the API has none.
func isHost(span trace.Span, tool string) bool {
	read, ok := span.(interface{ Attributes() []attribute.KeyValue })
	if !ok || !span.IsRecording() {
		return false
	}
	var isExecution, isTool bool
	for _, a := range read.Attributes() {
		switch a.Key {
		case operationKey:
			isExecution = a.Value.AsString() == executeTool
		case toolKey:
			isTool = a.Value.AsString() == tool
		}
	}
	return isExecution && isTool
}

// hear notes that the guard has the tracer's hooks.
func (c *call) hear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = true
}

// tell takes what the guard said of the end of the call.
func (c *call) tell(r result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told, c.result = true, r
	switch {
	case c.host:
		r.annotate(c.span, c.tool)
	case c.left:
		c.finish(r)
	}
}

// leave leaves it to the end of the guarded call to end the span. It returns false if
// nothing will tell of that.
func (c *call) leave() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told || !c.heard {
		return false
	}
	c.left = true
	return true
}

// end ends the span with what the guard said, or else with err.
func (c *call) end(ctx context.Context, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	r := c.result
	if !c.told {
		if r = resultOfError(ctx, err); r.ran {
			c.tracer.record(c.span, c.tool, time.Since(c.begun).Seconds(), r)
		}
		if c.host {
			r.annotate(c.span, c.tool)
		}
	}
	c.finish(r)
}

// finish ends the span, unless it is a host's. The caller holds mu.
func (c *call) finish(r result) {
	if !c.ended && !c.host {
		r.end(c.span, c.tool)
	}
	c.ended = true
}
