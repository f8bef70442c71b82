// Package otelhealth tells OpenTelemetry of a registry and of guarded calls, by the names
// of the GenAI semantic conventions where these have one, else below "toolhealth".
//
// [Metrics] registers asynchronous instruments: the registry is read when they are
// collected, and calls pay nothing for them.
//
// A [Tracer] makes a span "execute_tool NAME" of each guarded call, and a child span of
// each attempt, in whose ctx the tool function runs. Its Start and Observe are hooks of a
// guard; [Trace], [TraceBegin] and [Tracer.Span] put a call into its span:
//
//	tracer, err := otelhealth.NewTracer(otelhealth.TracerOptions{})
//	guard, err := toolhealth.New(toolhealth.Settings{Start: tracer.Start, Observe: tracer.Observe})
//	search := otelhealth.Trace(tracer, "search", toolhealth.Wrap(guard, "search", client.Search).Call)
//	out, err := search(ctx, query)
//
// Package latency, below this one, exports the latency histograms of a registry. It needs
// the SDK; this package imports the API alone.
//
// # Spans
//
// The span of a call has error.type and the status Error if no tool has answered:
// error.type is the Kind of what happened, or, if no tool ran, StopReason.Detail of the
// refusal, such as "circuit_open". The text of the status is that of ToolError or Refusal,
// which has no secrets; that of any other error is not in it. A failure that was retried
// is the status of its attempt only. A caller that is gone and a call that was denied
// (neutral, KindDenied) are no errors. Attributes: toolhealth.outcome,
// toolhealth.stop_reason, toolhealth.attempts, and toolhealth.served_by if a substitute
// served.
//
// The span of an attempt, "attempt NAME" with the name of the tool that ran, has
// gen_ai.tool.name, toolhealth.attempt (from 1), toolhealth.outcome, error.type,
// toolhealth.stop_reason, and toolhealth.wait before the next attempt, in seconds.
//
// The histogram gen_ai.execute_tool.duration has each call for which a tool ran and that was
// neither canceled nor denied, waits included. A refused call executed nothing, so it is not
// there.
//
// # A host that has the span already
//
// There is no second span inside a span of the same tool: [Tracer.Span] does not begin one,
// and what a guard says goes into that span as attributes. Its host ends it and sets
// its status. The span is known for what it is if it is the innermost one of the ctx, is
// recording, has the attributes gen_ai.operation.name "execute_tool" and the
// gen_ai.tool.name of the call, and has the method Attributes, as spans of the SDK do.
// [WithHostSpan] names it where that does not hold: if the host's name for the tool is
// another, if a span lies between, or if the host samples, since a span that
// is not sampled cannot be read. A host that records gen_ai.execute_tool.duration itself
// needs a Tracer whose MeterProvider is that of package metric/noop.
package otelhealth
