package grpchealth_test

import (
	"context"
	"io"
	"runtime"
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

// waitsAfter is a handler that sends n messages and waits until its client has gone,
// which it tells.
func waitsAfter(n int, gone chan<- struct{}) func(pb.TestService_StreamingOutputCallServer) error {
	return func(out pb.TestService_StreamingOutputCallServer) error {
		defer close(gone)
		if err := sends(n, nil)(out); err != nil {
			return err
		}
		return waits(out)
	}
}

// left waits for the end of a stream that its reader has left, and says what counted.
func (w *world) left(tool string) toolhealth.ToolHealth {
	w.t.Helper()
	soon(w.t, func() bool { return w.health(tool).InFlight == 0 })
	return w.health(tool)
}

func TestStream_EndOfStreamIsSuccess(t *testing.T) {
	for _, messages := range []int{0, 3} {
		w := newWorld(t, nil)
		n, err := read(t.Context(), w.dial(serve(t, &service{output: sends(messages, nil)}).addr))
		assert.Equal(t, io.EOF, err)
		assert.Equal(t, messages, n)
		assert.EqualValues(t, 1, w.health(output).Successes)
		assert.Zero(t, w.health(output).InFlight)
	}
}

func TestStream_InFlightUntilItEnds(t *testing.T) {
	w := newWorld(t, nil)
	client := w.dial(serve(t, &service{output: sends(2, nil)}).addr)
	stream, err := client.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
	require.NoError(t, err)
	for range 2 {
		_, err = stream.Recv()
		require.NoError(t, err)
		assert.EqualValues(t, 1, w.health(output).InFlight)
		assert.Zero(t, w.health(output).TotalCalls())
	}
	_, err = stream.Recv()
	assert.Equal(t, io.EOF, err)
	assert.EqualValues(t, 1, w.health(output).Successes)
}

func TestStream_CutsOpenAndRefuse(t *testing.T) {
	w := newWorld(t, nil)
	client := w.dial(serve(t, &service{output: sends(2, status.Error(codes.Unavailable, "cut"))}).addr)
	for range 3 {
		n, err := read(t.Context(), client)
		assert.Equal(t, 2, n)
		assert.Equal(t, codes.Unavailable, status.Code(err))
	}
	_, err := read(t.Context(), client)
	assert.ErrorIs(t, err, toolhealth.ErrCircuitOpen)
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.NotZero(t, retryInfo(err))
}

func TestStream_ConnectionCutIsConnection(t *testing.T) {
	listener := newCutListener(t)
	serveOn(t, listener, &service{output: func(out pb.TestService_StreamingOutputCallServer) error {
		_ = sends(1, nil)(out)
		return waits(out)
	}})
	w := newWorld(t, nil)
	stream, err := w.dial(listener.Addr().String()).StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	listener.cut()
	_, err = stream.Recv()
	require.Error(t, err)
	assert.Equal(t, "failure connection retry", w.said(), "%v", err)
	assert.Zero(t, w.health(output).InFlight)
}

func TestStream_LeftByCancelIsNeutral(t *testing.T) {
	for name, recvs := range map[string]int{"before the first message": 0, "after one": 1} {
		t.Run(name, func(t *testing.T) {
			w, gone := newWorld(t, nil), make(chan struct{})
			client := w.dial(serve(t, &service{output: waitsAfter(2, gone)}).addr)
			ctx, cancel := context.WithCancel(t.Context())
			stream, err := client.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
			require.NoError(t, err)
			for range recvs {
				_, err = stream.Recv()
				require.NoError(t, err)
			}
			cancel() // and never reads again
			h := w.left(output)
			assert.EqualValues(t, 1, h.Neutral)
			assert.Zero(t, h.Failures)
			runtime.KeepAlive(stream)
		})
	}
}

func TestStream_LeftAtDeadlineIsNeutral(t *testing.T) {
	w, gone := newWorld(t, nil), make(chan struct{})
	client := w.dial(serve(t, &service{output: waitsAfter(1, gone)}).addr)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	stream, err := client.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	<-ctx.Done() // the reader does something else
	h := w.left(output)
	assert.EqualValues(t, 1, h.Neutral, "the tool was not waited for")
	runtime.KeepAlive(stream)
}

// Without the interceptor such a stream lives until its ctx ends, at the server, too.
func TestStream_DroppedIsNeutralAndEnds(t *testing.T) {
	w, gone := newWorld(t, nil), make(chan struct{})
	client := w.dial(serve(t, &service{output: waitsAfter(1, gone)}).addr)
	func() {
		stream, err := client.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
	}()
	soon(t, func() bool {
		runtime.GC()
		return w.health(output).InFlight == 0
	})
	assert.EqualValues(t, 1, w.health(output).Neutral)
	<-gone
}

func TestStream_NotCollectedWhileItIsRead(t *testing.T) {
	w := newWorld(t, nil)
	release := make(chan struct{})
	client := w.dial(serve(t, &service{output: func(out pb.TestService_StreamingOutputCallServer) error {
		<-release
		return nil
	}}).addr)
	done := make(chan error)
	go func() {
		_, err := read(t.Context(), client)
		done <- err
	}()
	soon(t, func() bool { return w.health(output).InFlight == 1 })
	for range 5 {
		runtime.GC()
	}
	close(release)
	assert.Equal(t, io.EOF, <-done)
	assert.EqualValues(t, 1, w.health(output).Successes)
}

func TestStream_DeadlineWhileSendingIsTimeout(t *testing.T) {
	w := newWorld(t, nil)
	client := w.ready(serve(t, &service{duplex: func(both pb.TestService_FullDuplexCallServer) error {
		<-both.Context().Done() // reads nothing
		return both.Context().Err()
	}}).addr)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	stream, err := client.FullDuplexCall(ctx)
	require.NoError(t, err)
	large := &pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: make([]byte, 64<<10)}}
	for err == nil {
		err = stream.Send(large) // waits when the window is full
	}
	h := w.left(duplex)
	assert.EqualValues(t, 1, h.ByKind[toolhealth.KindTimeout], "%+v", h)
}

func TestStream_ClientStreamEndsWithItsAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		count  func(toolhealth.ToolHealth) uint64
	}{
		"success":  {nil, func(h toolhealth.ToolHealth) uint64 { return h.Successes }},
		"failure":  {status.Error(codes.Internal, "no"), func(h toolhealth.ToolHealth) uint64 { return h.Failures }},
		"rejected": {status.Error(codes.InvalidArgument, "no"), func(h toolhealth.ToolHealth) uint64 { return h.Rejected }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			client := w.dial(serve(t, &service{input: func(in pb.TestService_StreamingInputCallServer) error {
				for {
					if _, err := in.Recv(); err != nil {
						break
					}
				}
				if c.answer != nil {
					return c.answer
				}
				return in.SendAndClose(&pb.StreamingInputCallResponse{})
			}}).addr)
			stream, err := client.StreamingInputCall(t.Context())
			require.NoError(t, err)
			for range 3 {
				require.NoError(t, stream.Send(&pb.StreamingInputCallRequest{}))
			}
			assert.EqualValues(t, 1, w.health(input).InFlight)
			_, err = stream.CloseAndRecv()
			assert.Equal(t, status.Code(c.answer), status.Code(err))
			assert.EqualValues(t, 1, c.count(w.health(input)))
			assert.Zero(t, w.health(input).InFlight)
		})
	}
}

// A server may answer before it has read everything: SendMsg says io.EOF, RecvMsg why.
func TestStream_EarlyAnswerToSenderCountsOnce(t *testing.T) {
	w := newWorld(t, nil)
	client := w.dial(serve(t, &service{duplex: func(pb.TestService_FullDuplexCallServer) error {
		return status.Error(codes.NotFound, "no such file")
	}}).addr)
	stream, err := client.FullDuplexCall(t.Context())
	require.NoError(t, err)
	soon(t, func() bool { return stream.Send(&pb.StreamingOutputCallRequest{}) == io.EOF })
	_, err = stream.Recv()
	assert.Equal(t, codes.NotFound, status.Code(err))
	h := w.health(duplex)
	assert.EqualValues(t, 1, h.Rejected)
	assert.Zero(t, h.TotalCalls()+h.Neutral)
}

func TestStream_BidiEchoes(t *testing.T) {
	w := newWorld(t, nil)
	client := w.dial(serve(t, &service{duplex: func(both pb.TestService_FullDuplexCallServer) error {
		for {
			if _, err := both.Recv(); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			if err := both.Send(&pb.StreamingOutputCallResponse{}); err != nil {
				return err
			}
		}
	}}).addr)
	stream, err := client.FullDuplexCall(t.Context())
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, stream.Send(&pb.StreamingOutputCallRequest{}))
		_, err = stream.Recv()
		require.NoError(t, err)
	}
	require.NoError(t, stream.CloseSend())
	_, err = stream.Recv()
	assert.Equal(t, io.EOF, err)
	assert.EqualValues(t, 1, w.health(duplex).Successes)
}

func TestStream_HeaderOnlyIsSuccess(t *testing.T) {
	w := newWorld(t, nil)
	client := w.dial(serve(t, &service{output: func(out pb.TestService_StreamingOutputCallServer) error {
		return out.SendHeader(metadata.Pairs("k", "v"))
	}}).addr)
	stream, err := client.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
	require.NoError(t, err)
	header, err := stream.Header()
	require.NoError(t, err)
	assert.Equal(t, []string{"v"}, header.Get("k"))
	assert.EqualValues(t, 1, w.health(output).InFlight)
	_, err = stream.Recv()
	assert.Equal(t, io.EOF, err)
	assert.EqualValues(t, 1, w.health(output).Successes)
	assert.NotNil(t, stream.Trailer())
}

// newProbing returns a world with a short lease, whose tool waits for its probe.
func newProbing(t *testing.T, tool string) *world {
	w := newWorld(t, func(c *toolhealth.Config) {
		c.Breaker.FailureThreshold, c.Breaker.RecoveryDuration, c.Breaker.ProbeTimeout = 1, time.Millisecond, 400*time.Millisecond
	})
	permit, err := w.gate.Allow(t.Context(), tool)
	require.NoError(t, err)
	permit.Settle(toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError})
	soon(t, func() bool { return w.registry.Available(tool) })
	return w
}

// slowly sends a message each 100ms for longer than a lease.
func slowly(out pb.TestService_StreamingOutputCallServer) error {
	for range 8 {
		time.Sleep(100 * time.Millisecond)
		if err := out.Send(&pb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
	return nil
}

func TestStream_LongStreamIsProbe(t *testing.T) {
	w := newProbing(t, output)
	epoch := w.health(output).Epoch
	n, err := read(t.Context(), w.dial(serve(t, &service{output: slowly}).addr))
	assert.Equal(t, io.EOF, err)
	assert.Equal(t, 8, n)
	h := w.health(output)
	assert.Equal(t, toolhealth.StateClosed, h.State)
	assert.Equal(t, epoch+2, h.Epoch, "open, half-open, closed: the lease did not run out")
}

func TestStream_ProbeThatIsLeftFreesItsSlot(t *testing.T) {
	w, gone := newProbing(t, output), make(chan struct{})
	client := w.dial(serve(t, &service{output: waitsAfter(1, gone)}).addr)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
	require.NoError(t, err)
	_, err = client.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
	assert.ErrorIs(t, err, toolhealth.ErrProbeInFlight)
	cancel()
	w.left(output)
	soon(t, func() bool { return w.registry.Available(output) })
	runtime.KeepAlive(stream)
}

// The Timeout of a Guard is a silence: messages begin it anew.
func TestStream_MessagesKeepAttemptOfGuardAlive(t *testing.T) {
	guard, err := toolhealth.New(toolhealth.Settings{Policy: toolhealth.Policy{Timeout: 500 * time.Millisecond, MaxAttempts: 1}})
	require.NoError(t, err)
	client := dial(t, serve(t, &service{output: slowly}).addr, grpc.WithStreamInterceptor(grpchealth.Stream(nil, nil)))
	stream, flight, err := toolhealth.Begin(t.Context(), guard, "watch", func(ctx context.Context, _ string) (pb.TestService_StreamingOutputCallClient, error) {
		return client.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
	})
	require.NoError(t, err)
	n := 0
	for err == nil {
		if _, err = stream.Recv(); err == nil {
			n++
		}
	}
	assert.Equal(t, io.EOF, err)
	assert.Equal(t, 8, n)
	flight.Done(nil)
	h, _ := guard.Registry().Health("watch")
	assert.EqualValues(t, 1, h.Successes)
}

// A stream is retried by grpc as long as nothing has come: the interceptor must not
// commit it.
func TestStream_RetryPolicyStillWorks(t *testing.T) {
	w, ran := newWorld(t, nil), 0
	client := w.dial(serve(t, &service{output: func(out pb.TestService_StreamingOutputCallServer) error {
		if ran++; ran < 3 {
			return status.Error(codes.Unavailable, "not yet")
		}
		return sends(1, nil)(out)
	}}).addr, grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"retryPolicy":{
		"maxAttempts":3,"initialBackoff":"0.01s","maxBackoff":"0.01s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`))
	n, err := read(t.Context(), client)
	assert.Equal(t, io.EOF, err)
	assert.Equal(t, 1, n)
	assert.Equal(t, 3, ran)
	assert.EqualValues(t, 1, w.health(output).Successes)
}
