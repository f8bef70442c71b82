package grpchealth_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/grpchealth"
)

// serve returns a server with the interceptors of the world, behind others.
func (w *world) serve(s *service, before ...grpc.ServerOption) *server {
	w.t.Helper()
	return serve(w.t, s, append(before,
		grpc.ChainUnaryInterceptor(grpchealth.Server(w.gate, nil)),
		grpc.ChainStreamInterceptor(grpchealth.StreamServer(w.gate, nil)))...)
}

func TestServer_RefusalReachesClientAsStatus(t *testing.T) {
	w, ran := newWorld(t, nil), 0
	client := dial(t, w.serve(&service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		ran++
		return nil, status.Error(codes.Unavailable, "upstream")
	}}).addr)
	for range 3 {
		assert.Zero(t, retryInfo(call(t.Context(), client)))
	}
	err := call(t.Context(), client)
	assert.Equal(t, 3, ran)
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.InDelta(t, 30, retryInfo(err).Seconds(), 1)
	assert.Contains(t, status.Convert(err).Message(), "circuit breaker open")
	assert.False(t, errors.Is(err, toolhealth.ErrRefused), "it is not this side that refuses")
}

// What one side states, the other side heeds.
func TestServer_ClientHoldsToWaitOfRefusal(t *testing.T) {
	there, here := newWorld(t, nil), newWorld(t, nil)
	there.registry.Hint(unary, toolhealth.HintDown, time.Minute)
	client := here.dial(there.serve(&service{unary: answers(nil)}).addr)
	require.Error(t, call(t.Context(), client))
	err := call(t.Context(), client)
	refusal, ok := errors.AsType[*toolhealth.Refusal](err)
	require.True(t, ok, "the second call is not sent")
	assert.Equal(t, toolhealth.StopRateLimited, refusal.Reason)
	assert.InDelta(t, 60, refusal.RetryAfter.Seconds(), 2)
	assert.EqualValues(t, 1, there.health(unary).Refused)
}

func TestServer_ReadsRetryInfoOfHandler(t *testing.T) {
	w := newWorld(t, nil)
	client := dial(t, w.serve(&service{unary: answers(waitStated(t, codes.ResourceExhausted, 7*time.Second))}).addr)
	err := call(t.Context(), client)
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Equal(t, 7*time.Second, retryInfo(err))
	err = call(t.Context(), client)
	assert.Equal(t, codes.Unavailable, status.Code(err), "refused")
	assert.InDelta(t, 7, retryInfo(err).Seconds(), 1)
	assert.EqualValues(t, 1, w.health(unary).Throttled)
}

// A handler that returns the refusal of a breaker of its own need not translate it.
func TestServer_RefusalInsideHandlerReachesClient(t *testing.T) {
	inner := toolhealth.NewRegistry()
	inner.Isolate("db", "operator")
	inner.Hint("api", toolhealth.HintDown, time.Minute)
	refusal := func(tool string) func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		return func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			_, err := (&toolhealth.Gate{Registry: inner}).Allow(ctx, tool)
			return nil, err
		}
	}
	for tool, wait := range map[string]time.Duration{"db": 0, "api": time.Minute} {
		w := newWorld(t, nil)
		err := call(t.Context(), dial(t, w.serve(&service{unary: refusal(tool)}).addr))
		assert.Equal(t, codes.Unavailable, status.Code(err))
		assert.InDelta(t, wait.Seconds(), retryInfo(err).Seconds(), 2)
		assert.EqualValues(t, 1, w.health(unary).Neutral)
	}
}

func TestServer_ClientThatLeavesIsNeutral(t *testing.T) {
	w, entered := newWorld(t, nil), make(chan struct{})
	client := dial(t, w.serve(&service{unary: func(ctx context.Context, in *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		close(entered)
		return hangs(ctx, in)
	}}).addr)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	assert.Equal(t, codes.Canceled, status.Code(call(ctx, client)))
	assert.EqualValues(t, 1, w.left(unary).Neutral)
}

func TestServer_PanicCountsAndGoesOn(t *testing.T) {
	w := newWorld(t, nil)
	recovered := 0
	client := dial(t, w.serve(&service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) { panic("broken") }},
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
			defer func() {
				if recover() != nil {
					recovered++
					err = status.Error(codes.Internal, "recovered")
				}
			}()
			return handler(ctx, req)
		})).addr)
	for range 3 {
		assert.Equal(t, codes.Internal, status.Code(call(t.Context(), client)))
	}
	assert.Equal(t, codes.Unavailable, status.Code(call(t.Context(), client)))
	assert.Equal(t, 3, recovered)
	h := w.health(unary)
	assert.EqualValues(t, 3, h.ByKind[toolhealth.KindPanic])
	assert.Zero(t, h.InFlight)
}

func TestServer_RejectionsOpenNothing(t *testing.T) {
	for _, code := range []codes.Code{codes.InvalidArgument, codes.NotFound, codes.Unauthenticated} {
		w := newWorld(t, nil)
		client := dial(t, w.serve(&service{unary: answers(status.Error(code, "no"))}).addr)
		for range 5 {
			assert.Equal(t, code, status.Code(call(t.Context(), client)))
		}
		assert.EqualValues(t, 5, w.health(unary).Rejected)
	}
}

func TestStreamServer_CountsAndRefuses(t *testing.T) {
	w := newWorld(t, nil)
	var answer error
	client := dial(t, w.serve(&service{output: func(out pb.TestService_StreamingOutputCallServer) error { return sends(2, answer)(out) }}).addr)
	_, _ = read(t.Context(), client)
	assert.EqualValues(t, 1, w.left(output).Successes)
	answer = status.Error(codes.Unavailable, "upstream")
	for range 3 {
		n, err := read(t.Context(), client)
		assert.Equal(t, 2, n)
		assert.Equal(t, codes.Unavailable, status.Code(err))
	}
	soon(t, func() bool { return w.health(output).State == toolhealth.StateOpen })
	n, err := read(t.Context(), client)
	assert.Zero(t, n)
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.InDelta(t, 30, retryInfo(err).Seconds(), 1)
}

func TestStreamServer_ClientThatLeavesIsNeutral(t *testing.T) {
	w, gone := newWorld(t, nil), make(chan struct{})
	client := dial(t, w.serve(&service{output: waitsAfter(1, gone)}).addr)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	cancel()
	<-gone
	assert.EqualValues(t, 1, w.left(output).Neutral)
}

func TestStreamServer_LongStreamIsProbe(t *testing.T) {
	w := newProbing(t, output)
	epoch := w.health(output).Epoch
	_, _ = read(t.Context(), dial(t, w.serve(&service{output: slowly}).addr))
	h := w.left(output)
	assert.Equal(t, toolhealth.StateClosed, h.State)
	assert.Equal(t, epoch+2, h.Epoch, "open, half-open, closed: the lease did not run out")
}
