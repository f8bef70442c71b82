package grpchealth_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/grpchealth"
)

func TestUnary_OpensAndRefuses(t *testing.T) {
	w, ran := newWorld(t, nil), 0
	client := w.dial(serve(t, &service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		ran++
		return nil, status.Error(codes.Unavailable, "no")
	}}).addr)
	for range 3 {
		assert.Equal(t, codes.Unavailable, status.Code(call(t.Context(), client)))
	}
	err := call(t.Context(), client)
	assert.Equal(t, 3, ran)

	refusal, ok := errors.AsType[*toolhealth.Refusal](err)
	require.True(t, ok)
	assert.Equal(t, toolhealth.StopCircuitOpen, refusal.Reason)
	assert.ErrorIs(t, err, toolhealth.ErrCircuitOpen)
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.Equal(t, refusal.RetryAfter, retryInfo(err))
	assert.InDelta(t, 30, retryInfo(err).Seconds(), 1)
	assert.Equal(t, refusal.Error(), err.Error())
	text, ok := toolhealth.ModelText(err)
	assert.True(t, ok)
	assert.Equal(t, refusal.Error(), text)
	assert.Equal(t, toolhealth.KindRefused, toolhealth.Classify(t.Context(), err).Kind)
	assert.EqualValues(t, 1, w.health(unary).Refused)
}

func TestUnary_SuccessCounts(t *testing.T) {
	w := newWorld(t, nil)
	client := w.dial(serve(t, &service{unary: answers(nil)}).addr)
	var header, trailer metadata.MD
	for range 5 {
		require.NoError(t, call(t.Context(), client, grpc.Header(&header), grpc.Trailer(&trailer)))
	}
	assert.NotEmpty(t, header, "that the caller asked for")
	h := w.health(unary)
	assert.EqualValues(t, 5, h.Successes)
	assert.Zero(t, h.InFlight)
}

func TestUnary_StatedWaitHoldsEveryCaller(t *testing.T) {
	w := newWorld(t, nil)
	client := w.dial(serve(t, &service{unary: answers(waitStated(t, codes.ResourceExhausted, 7*time.Second))}).addr)
	require.Error(t, call(t.Context(), client))
	err := call(t.Context(), client)
	assert.ErrorIs(t, err, toolhealth.ErrRateLimited)
	assert.InDelta(t, 7, retryInfo(err).Seconds(), 1)
	assert.EqualValues(t, 1, w.health(unary).Throttled)
}

func TestUnary_IsolatedStatesNoWait(t *testing.T) {
	w := newWorld(t, nil)
	w.registry.Isolate(unary, "operator")
	err := call(t.Context(), w.dial(freeAddr(t)))
	assert.ErrorIs(t, err, toolhealth.ErrIsolated)
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.Empty(t, status.Convert(err).Details())
}

func TestUnary_DeadContextCountsNothing(t *testing.T) {
	w := newWorld(t, nil)
	client := w.dial(freeAddr(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Equal(t, codes.Canceled, status.Code(call(ctx, client)))
	_, err := client.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
	assert.Equal(t, codes.Canceled, status.Code(err))
	assert.Zero(t, w.registry.Len())
}

func TestUnary_DeadlineBelowFloorIsNeutral(t *testing.T) {
	registry := toolhealth.NewRegistry()
	gate := &toolhealth.Gate{Registry: registry} // the floor is one second
	client := dial(t, serve(t, &service{unary: hangs}).addr, grpc.WithUnaryInterceptor(grpchealth.Unary(gate, nil)))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	assert.Equal(t, codes.DeadlineExceeded, status.Code(call(ctx, client)))
	h, _ := registry.Health(unary)
	assert.EqualValues(t, 1, h.Neutral)
}

// A dead server with two services, or methods, is one group if its name is in front.
func TestUnary_DeadServerOpensGroup(t *testing.T) {
	for name, c := range map[string]struct {
		name  func(string) string
		group string
	}{
		"by service": {nil, "grpc.testing.TestService"},
		"by server":  {func(method string) string { return "billing" + method }, "billing"},
	} {
		t.Run(name, func(t *testing.T) {
			guard, err := toolhealth.New(toolhealth.Settings{GroupSeparator: "/"})
			require.NoError(t, err)
			gate := guard.Gate()
			client := dial(t, freeAddr(t), grpc.WithUnaryInterceptor(grpchealth.Unary(gate, c.name)), grpc.WithStreamInterceptor(grpchealth.Stream(gate, c.name)))
			for range 3 {
				err = call(t.Context(), client)
				require.NotErrorIs(t, err, toolhealth.ErrRefused)
			}
			_, err = client.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
			refusal, ok := errors.AsType[*toolhealth.Refusal](err)
			require.True(t, ok, "of a method that was never called")
			assert.Equal(t, c.group, refusal.Group)
		})
	}
}

// The text is that of a connection that could not be made, but the server has said it.
func TestUnary_AnswersOpenNoGroup(t *testing.T) {
	guard, err := toolhealth.New(toolhealth.Settings{GroupSeparator: "/"})
	require.NoError(t, err)
	relayed := status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: connection refused"`)
	client := dial(t, serve(t, &service{unary: answers(relayed)}).addr, grpc.WithUnaryInterceptor(grpchealth.Unary(guard.Gate(), nil)))
	for range 3 {
		require.Error(t, call(t.Context(), client))
	}
	h, ok := guard.Registry().Health(unary)
	require.True(t, ok)
	assert.Equal(t, toolhealth.StateOpen, h.State)
	for _, g := range guard.Registry().HealthSummary().Groups {
		assert.Equal(t, toolhealth.StateClosed, g.State)
	}
}

func TestUnary_EmptyNameHasNoBreaker(t *testing.T) {
	w := newWorld(t, nil)
	none := func(string) string { return "" }
	client := dial(t, freeAddr(t), grpc.WithUnaryInterceptor(grpchealth.Unary(w.gate, none)), grpc.WithStreamInterceptor(grpchealth.Stream(w.gate, none)))
	for range 5 {
		assert.NotErrorIs(t, call(t.Context(), client), toolhealth.ErrRefused)
		_, err := read(t.Context(), client)
		assert.NotErrorIs(t, err, toolhealth.ErrRefused)
	}
	assert.Zero(t, w.registry.Len())
}

func TestUnary_RouterIsNotUsed(t *testing.T) {
	guard, err := toolhealth.New(toolhealth.Settings{Tools: map[string]toolhealth.ToolSettings{unary: {Substitutes: []string{"other"}}}})
	require.NoError(t, err)
	client := dial(t, freeAddr(t), grpc.WithUnaryInterceptor(grpchealth.Unary(guard.Gate(), nil)))
	guard.Registry().Isolate(unary, "")
	assert.ErrorIs(t, call(t.Context(), client), toolhealth.ErrIsolated)
}

// Under a Guard, the interceptors with no Gate tell what the status alone cannot.
func TestUnary_NoGateTellsGuardWhatWasSent(t *testing.T) {
	const text = `connection error: desc = "transport: Error while dialing: connection refused"`
	for name, c := range map[string]struct {
		addr func() string
		want int // attempts
	}{
		"refused": {func() string { return freeAddr(t) }, 2},
		"relayed": {func() string { return serve(t, &service{unary: answers(status.Error(codes.Unavailable, text))}).addr }, 1},
	} {
		for by, classify := range map[string]toolhealth.Classifier{"Classify": nil, "Rules": toolhealth.ErrorRules{Own: grpchealth.Rules()}.Classify} {
			t.Run(name+" by "+by, func(t *testing.T) {
				gate := &toolhealth.Gate{Registry: toolhealth.NewRegistry(), Classify: classify}
				guard, err := toolhealth.NewGuard(gate, toolhealth.GuardConfig{Default: toolhealth.Policy{SideEffects: true, BackoffBase: time.Millisecond}})
				require.NoError(t, err)
				client := dial(t, c.addr(), grpc.WithUnaryInterceptor(grpchealth.Unary(nil, nil)))
				attempts := 0
				_, err = toolhealth.Call(t.Context(), guard, "pay", func(ctx context.Context, _ string) (any, error) {
					attempts++
					return nil, call(ctx, client)
				})
				require.Error(t, err)
				assert.Equal(t, c.want, attempts)
			})
		}
	}
}

// Retries of grpc itself are one call, of which one attempt may have acted.
func TestUnary_RetryPolicyIsOneCall(t *testing.T) {
	var ran atomic.Int32
	listener := newCutListener(t)
	serveOn(t, listener, &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		ran.Add(1)
		_ = listener.Close()
		listener.cut()
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	w := newWorld(t, nil)
	client := w.dial(listener.Addr().String(), grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"retryPolicy":{
		"maxAttempts":3,"initialBackoff":"0.01s","maxBackoff":"0.01s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`))
	err := call(t.Context(), client)
	require.Error(t, err)
	assert.EqualValues(t, 1, ran.Load())
	assert.EqualValues(t, 1, w.health(unary).TotalCalls())
	assert.NotContains(t, w.said(), "unsent", "%v", err)
}

func TestUnary_PanicGivesPermitBack(t *testing.T) {
	w := newWorld(t, nil)
	intercept := grpchealth.Unary(w.gate, nil)
	assert.Panics(t, func() {
		_ = intercept(t.Context(), "/"+unary, nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			panic("broken")
		})
	})
	assert.Zero(t, w.health(unary).InFlight)
}

func TestUnary_TotalsAddUp(t *testing.T) {
	w := newWorld(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold = toolhealth.Off })
	var n atomic.Int32
	client := w.dial(serve(t, &service{
		unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			if n.Add(1)%2 == 0 {
				return nil, status.Error(codes.Unavailable, "no")
			}
			return &pb.SimpleResponse{}, nil
		},
		output: sends(3, nil),
	}).addr)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				_ = call(t.Context(), client)
				_, _ = read(t.Context(), client)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 100, w.health(unary).Successes)
	assert.EqualValues(t, 100, w.health(unary).Failures)
	assert.EqualValues(t, 200, w.health(output).Successes)
	assert.Zero(t, w.health(unary).InFlight+w.health(output).InFlight)
}

func TestName_DefaultIsBounded(t *testing.T) {
	registry := toolhealth.NewRegistry()
	server := grpchealth.Unary(&toolhealth.Gate{Registry: registry}, nil)
	for _, method := range []string{"/pkg.Service/Method", "/" + strings.Repeat("x", 1000)} {
		_ = server(t.Context(), method, nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil })
	}
	for name := range registry.All() {
		assert.Contains(t, []string{"pkg.Service/Method", strings.Repeat("x", 256)}, name)
	}
	assert.Equal(t, 2, registry.Len())
}

// What an attempt of a Guard has done before is no evidence of this call.
func TestUnary_EarlierNotesAreNoEvidence(t *testing.T) {
	w := newWorld(t, nil)
	client := w.dial(serve(t, &service{unary: answers(status.Error(codes.Unavailable, "no"))}).addr)
	ctx := toolhealth.WithNotes(t.Context())
	toolhealth.Note(ctx, toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, Retryable: true, RetryAfter: time.Hour})
	require.Error(t, call(ctx, client))
	assert.Equal(t, "failure server_error retry", w.said())
}

// lateContext has a deadline that has passed, and a timer that is late.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

// A server knows the deadline and may be faster than the timer here: it is the caller's.
func TestUnary_DeadlineThatServerSeesFirstIsCallers(t *testing.T) {
	w := newWorld(t, nil)
	timer, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := grpchealth.Unary(w.gate, nil)(lateContext{timer}, "/"+unary, nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		return status.Error(codes.DeadlineExceeded, "stream terminated by RST_STREAM with error code: CANCEL")
	})
	assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
	assert.Equal(t, "failure timeout", w.said(), "as of any deadline of the caller: not retryable")
}
