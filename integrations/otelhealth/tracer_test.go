package otelhealth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/otelhealth"
)

func TestTracer_RetriedFailureIsStatusOfItsAttemptOnly(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	tries := 0
	out, err := r.search(func(context.Context, int) (int, error) {
		if tries++; tries == 1 {
			return 0, errTimeout
		}
		return 7, nil
	})(t.Context(), 1)
	require.NoError(t, err)
	assert.Equal(t, 7, out)

	call := r.ended("execute_tool search")
	assert.Equal(t, trace.SpanKindInternal, call.SpanKind())
	assert.Equal(t, codes.Unset, call.Status().Code)
	assert.Equal(t, map[string]string{
		"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search",
		"toolhealth.outcome": "success", "toolhealth.attempts": "2",
	}, attributes(call))

	attempts := r.all("attempt search")
	require.Len(t, attempts, 2)
	for i, a := range attempts {
		assert.Equal(t, id(call), parent(a))
		assert.Equal(t, fmt.Sprint(i+1), attributes(a)["toolhealth.attempt"])
		assert.Equal(t, "search", attributes(a)["gen_ai.tool.name"])
	}
	assert.Equal(t, codes.Error, attempts[0].Status().Code)
	assert.Equal(t, "timeout", attempts[0].Status().Description)
	assert.Equal(t, "timeout", attributes(attempts[0])["error.type"])
	assert.Equal(t, "failure", attributes(attempts[0])["toolhealth.outcome"])
	assert.Equal(t, "tool_retry:allowed", attributes(attempts[0])["toolhealth.stop_reason"])
	assert.NotContains(t, attributes(attempts[0]), "gen_ai.operation.name", "an attempt is no second execution")
	assert.Equal(t, codes.Unset, attempts[1].Status().Code)
	assert.NotContains(t, attributes(attempts[1]), "error.type")
	assert.Equal(t, map[string]uint64{"": 1}, r.durations())
}

func TestTracer_RefusedCallHasReasonAndNoDuration(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	for range 3 {
		r.guard.Registry().RecordFailure("search", 0)
	}
	_, err := r.search(func(context.Context, int) (int, error) { return 0, nil })(t.Context(), 1)
	require.ErrorIs(t, err, toolhealth.ErrCircuitOpen)

	call := r.ended("execute_tool search")
	assert.Equal(t, codes.Error, call.Status().Code)
	assert.Equal(t, err.Error(), call.Status().Description)
	assert.Equal(t, "circuit_open", attributes(call)["error.type"])
	assert.Equal(t, "tool_unavailable:circuit_open", attributes(call)["toolhealth.stop_reason"])
	assert.Equal(t, "0", attributes(call)["toolhealth.attempts"])
	assert.Empty(t, r.all("attempt search"))
	assert.Empty(t, r.durations())
}

func TestTracer_FailureHasKindAndSafeText(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	_, err := r.search(func(context.Context, int) (int, error) { return 0, errBroken })(t.Context(), 1)
	require.ErrorIs(t, err, errBroken)
	call := r.ended("execute_tool search")
	assert.Equal(t, codes.Error, call.Status().Code)
	assert.Equal(t, err.Error(), call.Status().Description)
	assert.Equal(t, "unknown", attributes(call)["error.type"])
	assert.Equal(t, "failure", attributes(call)["toolhealth.outcome"])
	assert.Equal(t, map[string]uint64{"unknown": 1}, r.durations())
}

// A breaker that opens between two attempts refuses the second; the kind is the first's.
func TestTracer_CallThatOpensBreakerHasKindOfFailure(t *testing.T) {
	r := newRig(t, toolhealth.Settings{Policy: toolhealth.Policy{MaxAttempts: 5}})
	_, err := r.search(func(context.Context, int) (int, error) { return 0, errTimeout })(t.Context(), 1)
	require.ErrorIs(t, err, toolhealth.ErrCircuitOpen)
	assert.Equal(t, "timeout", attributes(r.ended("execute_tool search"))["error.type"])
	assert.Equal(t, "3", attributes(r.ended("execute_tool search"))["toolhealth.attempts"])
	assert.Equal(t, map[string]uint64{"timeout": 1}, r.durations())
}

func TestTracer_CallerThatIsGoneIsNoError(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := r.search(func(ctx context.Context, _ int) (int, error) {
		cancel()
		return 0, ctx.Err()
	})(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	for _, name := range []string{"execute_tool search", "attempt search"} {
		s := r.ended(name)
		assert.Equal(t, codes.Unset, s.Status().Code, name)
		assert.NotContains(t, attributes(s), "error.type", name)
		assert.Equal(t, "neutral", attributes(s)["toolhealth.outcome"], name)
		assert.Equal(t, "tool_canceled", attributes(s)["toolhealth.stop_reason"], name)
	}
	assert.Empty(t, r.durations())
}

func TestTracer_DeniedCallIsNoError(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	_, err := r.search(func(context.Context, int) (int, error) { return 0, errDenied })(t.Context(), 1)
	require.ErrorIs(t, err, errDenied)
	for _, name := range []string{"execute_tool search", "attempt search"} {
		assert.Equal(t, codes.Unset, r.ended(name).Status().Code, name)
		assert.NotContains(t, attributes(r.ended(name)), "error.type", name)
	}
	assert.Empty(t, r.durations())
}

func TestTracer_SubstituteIsNamed(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	search := toolhealth.Wrap(r.guard, "search", func(context.Context, int) (int, error) { return 0, errBroken }).
		Substitute("backup", func(context.Context, int) (int, error) { return 2, nil })
	_, err := otelhealth.Trace(r.tracer, "search", search.Call)(t.Context(), 1)
	require.NoError(t, err)
	call := r.ended("execute_tool search")
	assert.Equal(t, "backup", attributes(call)["toolhealth.served_by"])
	assert.Equal(t, "search", attributes(call)["gen_ai.tool.name"])
	assert.Equal(t, codes.Unset, call.Status().Code)
	assert.Equal(t, id(call), parent(r.ended("attempt backup")))
	assert.Equal(t, id(call), parent(r.ended("attempt search")))
	assert.Equal(t, map[string]uint64{"": 1}, r.durations())
}

// The server that a tool calls sees the attempt as its parent.
func TestTracer_TraceContextReachesTool(t *testing.T) {
	var heard []trace.SpanContext
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := propagation.TraceContext{}.Extract(req.Context(), propagation.HeaderCarrier(req.Header))
		if heard = append(heard, trace.SpanContextFromContext(ctx)); len(heard) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	defer server.Client().CloseIdleConnections()
	r := newRig(t, toolhealth.Settings{})
	_, err := r.search(func(ctx context.Context, _ int) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			return 0, err
		}
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(req.Header))
		resp, err := server.Client().Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		return 0, toolhealth.CheckStatus(resp.StatusCode, resp.Header)
	})(t.Context(), 1)
	require.NoError(t, err)

	attempts := r.all("attempt search")
	require.Len(t, attempts, 2)
	require.Len(t, heard, 2)
	for i, a := range attempts {
		assert.Equal(t, id(a), heard[i].SpanID())
		assert.Equal(t, a.SpanContext().TraceID(), heard[i].TraceID())
	}
}

// host begins a span as a host does that follows the conventions.
func host(r *rig, ctx context.Context, tool string) (context.Context, trace.Span) {
	return r.tp.Tracer("host").Start(ctx, "execute_tool "+tool, trace.WithAttributes(
		attribute.String("gen_ai.operation.name", "execute_tool"), attribute.String("gen_ai.tool.name", tool)))
}

func TestTracer_HostSpanTakesAttributes(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	search := toolhealth.Wrap(r.guard, "search", func(context.Context, int) (int, error) { return 0, errBroken })
	for name, call := range map[string]func(context.Context, int) (int, error){
		"hooks alone": search.Call, "inside of Trace": otelhealth.Trace(r.tracer, "search", search.Call),
	} {
		r.spans.Reset()
		ctx, span := host(r, t.Context(), "search")
		_, err := call(ctx, 1)
		require.Error(t, err)
		require.True(t, span.IsRecording(), "%s: the host ends it", name)
		span.End()
		s := r.ended("execute_tool search")
		assert.Equal(t, "unknown", attributes(s)["error.type"], name)
		assert.Equal(t, "1", attributes(s)["toolhealth.attempts"], name)
		assert.Equal(t, codes.Unset, s.Status().Code, "%s: the host sets it", name)
		assert.Equal(t, id(s), parent(r.ended("attempt search")), name)
	}
	assert.Equal(t, map[string]uint64{"unknown": 2}, r.durations())
}

// A host's tool that calls another one is no span of the other one.
func TestTracer_HostSpanOfAnotherToolIsLeftAlone(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	search := toolhealth.Wrap(r.guard, "search", func(context.Context, int) (int, error) { return 0, nil })
	ctx, span := host(r, t.Context(), "research")
	_, err := otelhealth.Trace(r.tracer, "search", search.Call)(ctx, 1)
	require.NoError(t, err)
	_, err = search.Call(ctx, 1) // by the hooks alone
	require.NoError(t, err)
	span.End()
	assert.NotContains(t, attributes(r.ended("execute_tool research")), "toolhealth.outcome")
	assert.Equal(t, id(r.ended("execute_tool research")), parent(r.ended("execute_tool search")))
}

func TestWithHostSpan_NamesSpanThatCannotBeKnown(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	ctx, span := r.tp.Tracer("host").Start(t.Context(), "run tool")
	ctx = otelhealth.WithHostSpan(ctx, "search")
	ctx, between := r.tp.Tracer("middleware").Start(ctx, "between")
	_, err := r.search(func(context.Context, int) (int, error) { return 0, errBroken })(ctx, 1)
	require.Error(t, err)
	between.End()
	span.End()
	assert.Empty(t, r.all("execute_tool search"))
	assert.Equal(t, "unknown", attributes(r.ended("run tool"))["error.type"])
	assert.NotContains(t, attributes(r.ended("between")), "error.type")
	assert.Equal(t, id(r.ended("between")), parent(r.ended("attempt search")))
	assert.Equal(t, map[string]uint64{"unknown": 1}, r.durations())
}

// A tool that calls another tool, and one that calls itself, which rides.
func TestTracer_ToolInsideToolHasSpanOfItsOwn(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	mail := otelhealth.Trace(r.tracer, "mail", toolhealth.Wrap(r.guard, "mail", func(context.Context, int) (int, error) { return 0, errBroken }).Call)
	var search func(context.Context, int) (int, error)
	search = r.search(func(ctx context.Context, depth int) (int, error) {
		if depth > 0 {
			return search(ctx, depth-1)
		}
		_, _ = mail(ctx, 1)
		return 1, nil
	})
	_, err := search(t.Context(), 1)
	require.NoError(t, err)
	outer, inner := r.ended("execute_tool search"), r.ended("execute_tool mail")
	assert.Equal(t, codes.Unset, outer.Status().Code)
	assert.Equal(t, codes.Error, inner.Status().Code)
	assert.Equal(t, id(r.ended("attempt search")), parent(inner))
	assert.Equal(t, id(outer), parent(r.ended("attempt search")))
	assert.Equal(t, id(inner), parent(r.ended("attempt mail")))
}

// A guard that has Observe and no Start tells of attempts in the ctx of the outer one.
func TestTracer_AttemptOfAnotherCallIsLeftAlone(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	half, err := toolhealth.New(toolhealth.Settings{Observe: r.tracer.Observe})
	require.NoError(t, err)
	search := r.search(func(ctx context.Context, _ int) (int, error) {
		_, err := toolhealth.Wrap(half, "mail", func(context.Context, int) (int, error) { return 0, errBroken }).Call(ctx, 1)
		require.Error(t, err)
		require.True(t, trace.SpanFromContext(ctx).IsRecording())
		return 0, nil
	})
	_, err = search(t.Context(), 1)
	require.NoError(t, err)
	assert.NotContains(t, attributes(r.ended("attempt search")), "error.type")
}

func TestTracer_StreamEndsWithFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, toolhealth.Settings{})
		begin := otelhealth.TraceBegin(r.tracer, "search", toolhealth.Wrap(r.guard, "search", func(context.Context, int) (int, error) { return 1, nil }).Begin)
		_, flight, err := begin(t.Context(), 1)
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		require.Empty(t, r.spans.Ended())
		flight.Done(errTimeout)
		for _, name := range []string{"execute_tool search", "attempt search"} {
			s := r.ended(name)
			assert.Equal(t, codes.Error, s.Status().Code, name)
			assert.Equal(t, "timeout", attributes(s)["error.type"], name)
			assert.Equal(t, 3*time.Second, s.EndTime().Sub(s.StartTime()), name)
		}
		data := collect(t, r.reader)["gen_ai.execute_tool.duration"].(metricdata.Histogram[float64])
		require.Len(t, data.DataPoints, 1)
		assert.Equal(t, 3.0, data.DataPoints[0].Sum)
	})
}

func TestTracer_StreamThatDoesNotOpenEndsAtOnce(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	_, flight, err := otelhealth.TraceBegin(r.tracer, "search", toolhealth.Wrap(r.guard, "search", func(context.Context, int) (int, error) { return 1, errBroken }).Begin)(t.Context(), 1)
	require.Error(t, err)
	require.Nil(t, flight)
	assert.Equal(t, "unknown", attributes(r.ended("execute_tool search"))["error.type"])
	assert.Equal(t, map[string]uint64{"unknown": 1}, r.durations())
}

// A reader who leaves ends the spans without an error, though it never says Done.
func TestTracer_StreamThatIsLeftEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, toolhealth.Settings{})
		ctx, cancel := context.WithCancel(t.Context())
		_, _, err := otelhealth.TraceBegin(r.tracer, "search", toolhealth.Wrap(r.guard, "search", func(context.Context, int) (int, error) { return 1, nil }).Begin)(ctx, 1)
		require.NoError(t, err)
		cancel()
		synctest.Wait()
		assert.Equal(t, codes.Unset, r.ended("execute_tool search").Status().Code)
		assert.Equal(t, codes.Unset, r.ended("attempt search").Status().Code)
		assert.Empty(t, r.durations())
	})
}

// A guard without the hooks: nobody tells of the end of the Flight.
func TestTracer_GuardWithoutHooksHasSpanOfCall(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	var err error
	r.guard, err = toolhealth.New(toolhealth.Settings{})
	require.NoError(t, err)
	_, flight, err := otelhealth.TraceBegin(r.tracer, "search", toolhealth.Wrap(r.guard, "search", func(context.Context, int) (int, error) { return 1, nil }).Begin)(t.Context(), 1)
	require.NoError(t, err)
	defer flight.Done(nil)
	assert.NotContains(t, attributes(r.ended("execute_tool search")), "toolhealth.attempts")

	r.spans.Reset()
	_, err = r.search(func(context.Context, int) (int, error) { return 0, errBroken })(t.Context(), 1)
	require.Error(t, err)
	s := r.ended("execute_tool search")
	assert.Equal(t, "unknown", attributes(s)["error.type"])
	assert.Equal(t, err.Error(), s.Status().Description)
	assert.Equal(t, map[string]uint64{"": 1, "unknown": 1}, r.durations())
}

// A loop of its own, with a Gate and with an error that is not of this library.
func TestTracer_SpanOfGateHasWhatItsErrorSays(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	do := func(fail error) error {
		ctx, end := r.tracer.Span(t.Context(), "search", attribute.String("gen_ai.tool.call.id", "42"))
		permit, err := r.guard.Gate().Allow(ctx, "search")
		if err == nil {
			permit.Done(ctx, fail)
			err = fail
		}
		end(err)
		end(errors.New("the second end does not count"))
		return err
	}
	for _, c := range []struct {
		fail               error
		code               codes.Code
		errorType, outcome string
	}{
		{nil, codes.Unset, "", "success"},
		{context.Canceled, codes.Error, "canceled", "failure"}, // not the caller's
		{errDenied, codes.Unset, "", "neutral"},
		{errTimeout, codes.Error, "timeout", "failure"},
	} {
		r.spans.Reset()
		require.Equal(t, c.fail, do(c.fail))
		s := r.ended("execute_tool search")
		assert.Equal(t, c.code, s.Status().Code, c.fail)
		assert.Equal(t, c.errorType, attributes(s)["error.type"], c.fail)
		assert.Equal(t, c.outcome, attributes(s)["toolhealth.outcome"], c.fail)
		assert.Equal(t, "42", attributes(s)["gen_ai.tool.call.id"])
	}
	assert.Equal(t, map[string]uint64{"": 1, "canceled": 1, "timeout": 1}, r.durations())

	r.guard.Registry().Isolate("search", "alice")
	r.spans.Reset()
	refused := do(nil)
	require.ErrorIs(t, refused, toolhealth.ErrIsolated)
	assert.Equal(t, "isolated", attributes(r.ended("execute_tool search"))["error.type"])
	assert.Equal(t, refused.Error(), r.ended("execute_tool search").Status().Description)
	assert.Equal(t, map[string]uint64{"": 1, "canceled": 1, "timeout": 1}, r.durations())
}

// An adapter that makes a result of the error: what the guard said counts.
func TestTracer_ErrorThatBecameResultIsError(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	search := toolhealth.Wrap(r.guard, "search", func(context.Context, int) (int, error) { return 0, errBroken })
	_, err := otelhealth.Trace(r.tracer, "search", func(ctx context.Context, in int) (string, error) {
		_, err := search.Call(ctx, in)
		text, _ := toolhealth.ModelText(err)
		return text, nil
	})(t.Context(), 1)
	require.NoError(t, err)
	assert.Equal(t, codes.Error, r.ended("execute_tool search").Status().Code)
}

func TestTracer_GoroutineThatEndsEndsSpans(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	var wait sync.WaitGroup
	wait.Go(func() {
		_, _ = r.search(func(context.Context, int) (int, error) {
			runtime.Goexit()
			return 0, nil
		})(t.Context(), 1)
	})
	wait.Wait()
	assert.Equal(t, "not_dispatched", attributes(r.ended("execute_tool search"))["error.type"])
	assert.Len(t, r.all("attempt search"), 1)
}

func TestTracer_PanicIsError(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	_, err := r.search(func(context.Context, int) (int, error) { panic(secret) })(t.Context(), 1)
	require.Error(t, err)
	assert.Equal(t, "panic", attributes(r.ended("execute_tool search"))["error.type"])
	assert.Equal(t, "panic", attributes(r.ended("attempt search"))["error.type"])
}

func TestTracer_NamesInDurationAreBounded(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	tracer, err := otelhealth.NewTracer(otelhealth.TracerOptions{TracerProvider: r.tp, MeterProvider: r.mp, MaxTools: 2})
	require.NoError(t, err)
	for _, tool := range []string{"a", "b", "c", "d", "a"} {
		_, end := tracer.Span(t.Context(), tool)
		end(nil)
	}
	counts := make(map[string]uint64)
	for _, p := range collect(t, r.reader)["gen_ai.execute_tool.duration"].(metricdata.Histogram[float64]).DataPoints {
		tool, _ := p.Attributes.Value("gen_ai.tool.name")
		counts[tool.AsString()] += p.Count
		assert.Equal(t, []float64{.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}, p.Bounds)
	}
	assert.Equal(t, map[string]uint64{"a": 2, "b": 1, "_other": 2}, counts)
}

// OTLP carries no text that is not UTF-8: one bad name would lose the whole batch.
func TestTracer_NamesAreValidText(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	_, err := otelhealth.Trace(r.tracer, "a\xff", toolhealth.Wrap(r.guard, "a\xff", func(context.Context, int) (int, error) { return 0, nil }).Call)(t.Context(), 1)
	require.NoError(t, err)
	assert.Equal(t, "a\uFFFD", attributes(r.ended("execute_tool a\uFFFD"))["gen_ai.tool.name"])
	assert.Equal(t, "a\uFFFD", attributes(r.ended("attempt a\uFFFD"))["gen_ai.tool.name"])
}

func TestTracer_NilDoesNothing(t *testing.T) {
	var tracer *otelhealth.Tracer
	guard, err := toolhealth.New(toolhealth.Settings{Start: tracer.Start, Observe: tracer.Observe})
	require.NoError(t, err)
	search := toolhealth.Wrap(guard, "search", func(context.Context, int) (int, error) { return 7, nil })
	out, err := otelhealth.Trace(tracer, "search", search.Call)(t.Context(), 1)
	require.NoError(t, err)
	assert.Equal(t, 7, out)
	_, flight, err := otelhealth.TraceBegin(tracer, "search", search.Begin)(t.Context(), 1)
	require.NoError(t, err)
	flight.Done(nil)
}

func TestNewTracer_NamesBadOption(t *testing.T) {
	_, err := otelhealth.NewTracer(otelhealth.TracerOptions{MaxTools: -2})
	assert.EqualError(t, err, "otelhealth: TracerOptions.MaxTools: -2 is negative; toolhealth.Off means no bound")
	_, err = otelhealth.NewTracer(otelhealth.TracerOptions{}) // the global providers
	assert.NoError(t, err)
}

func TestTracer_ManyCallsAtOnce(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	search := r.search(func(_ context.Context, in int) (int, error) {
		if in%10 == 0 {
			return 0, toolhealth.BadRequest(errBroken)
		}
		return in, nil
	})
	begin := otelhealth.TraceBegin(r.tracer, "mail", toolhealth.Wrap(r.guard, "mail", func(context.Context, int) (int, error) { return 1, nil }).Begin)
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for i := range 100 {
				_, _ = search(t.Context(), i)
				ctx, cancel := context.WithCancel(t.Context())
				if _, flight, err := begin(ctx, i); err == nil {
					go cancel()
					flight.Done(nil)
				}
				cancel()
			}
		})
	}
	callers.Wait()
	require.Eventually(t, func() bool { return len(r.spans.Ended()) == len(r.spans.Started()) }, 10*time.Second, time.Millisecond)
	assert.Len(t, r.all("execute_tool search"), 400)
	assert.Len(t, r.all("attempt search"), 400)
	assert.Len(t, r.all("execute_tool mail"), 400)
}
