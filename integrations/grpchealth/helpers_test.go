package grpchealth_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/grpchealth"
)

// service is the server of the tests: its handlers are fields. One that is nil is not
// implemented.
type service struct {
	pb.UnimplementedTestServiceServer
	unary  func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error)
	output func(pb.TestService_StreamingOutputCallServer) error
	input  func(pb.TestService_StreamingInputCallServer) error
	duplex func(pb.TestService_FullDuplexCallServer) error
}

func (s *service) UnaryCall(ctx context.Context, in *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	if s.unary == nil {
		return s.UnimplementedTestServiceServer.UnaryCall(ctx, in)
	}
	return s.unary(ctx, in)
}

func (s *service) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, out pb.TestService_StreamingOutputCallServer) error {
	return s.output(out)
}

func (s *service) StreamingInputCall(in pb.TestService_StreamingInputCallServer) error {
	return s.input(in)
}

func (s *service) FullDuplexCall(both pb.TestService_FullDuplexCallServer) error {
	return s.duplex(both)
}

// The names of the breakers, by default.
const (
	unary  = "grpc.testing.TestService/UnaryCall"
	output = "grpc.testing.TestService/StreamingOutputCall"
	input  = "grpc.testing.TestService/StreamingInputCall"
	duplex = "grpc.testing.TestService/FullDuplexCall"
)

// server is a gRPC server on loopback.
type server struct {
	*grpc.Server
	addr string
}

// serve returns a server that lives as long as the test.
func serve(t testing.TB, s pb.TestServiceServer, options ...grpc.ServerOption) *server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return serveOn(t, listener, s, options...)
}

func serveOn(t testing.TB, listener net.Listener, s pb.TestServiceServer, options ...grpc.ServerOption) *server {
	t.Helper()
	g := grpc.NewServer(options...)
	pb.RegisterTestServiceServer(g, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(listener)
	}()
	t.Cleanup(func() { g.Stop(); <-done })
	return &server{g, listener.Addr().String()}
}

// dial returns a client without interceptors of its own.
func dial(t testing.TB, addr string, options ...grpc.DialOption) pb.TestServiceClient {
	t.Helper()
	return pb.NewTestServiceClient(newConn(t, addr, options...))
}

func newConn(t testing.TB, addr string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// world is a registry and a gate that remembers its last verdict.
type world struct {
	t        testing.TB
	registry *toolhealth.Registry
	gate     *toolhealth.Gate

	mu   sync.Mutex
	last *toolhealth.Verdict // nil if there was no error to judge
}

func newWorld(t testing.TB, change func(*toolhealth.Config)) *world {
	t.Helper()
	config := toolhealth.DefaultConfig()
	if change != nil {
		change(&config)
	}
	registry, err := toolhealth.NewRegistryWithConfig(config)
	require.NoError(t, err)
	w := &world{t: t, registry: registry}
	rules := toolhealth.ErrorRules{Own: grpchealth.Rules()}
	w.gate = &toolhealth.Gate{Registry: registry, DeadlineFloor: toolhealth.Off, Classify: func(ctx context.Context, err error) toolhealth.Verdict {
		v := rules.Classify(ctx, err)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.last = &v
		return v
	}}
	return w
}

// dial returns a client with the interceptors of the world.
func (w *world) dial(addr string, options ...grpc.DialOption) pb.TestServiceClient {
	w.t.Helper()
	return dial(w.t, addr, append(options, w.interceptors()...)...)
}

func (w *world) interceptors() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(grpchealth.Unary(w.gate, nil)),
		grpc.WithChainStreamInterceptor(grpchealth.Stream(w.gate, nil)),
	}
}

// ready returns a client like that of dial, which is connected already.
func (w *world) ready(addr string) pb.TestServiceClient {
	w.t.Helper()
	conn := newConn(w.t, addr, w.interceptors()...)
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		require.True(w.t, conn.WaitForStateChange(w.t.Context(), state))
	}
	return pb.NewTestServiceClient(conn)
}

// health is that of a tool.
func (w *world) health(tool string) toolhealth.ToolHealth {
	h, _ := w.registry.Health(tool)
	return h
}

// said returns the verdict on the last error in words. A stream that was left has none.
func (w *world) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last != nil {
		return words(*w.last)
	}
	if h := w.health(output); h.NeutralByKind[toolhealth.KindCanceled] == 1 {
		return "neutral canceled"
	}
	return "nothing"
}

// words writes a verdict as "throttled rate_limited retry 7s".
func words(v toolhealth.Verdict) string {
	text := v.Outcome.String()
	if v.Kind != toolhealth.KindNone {
		text += " " + v.Kind.String()
	}
	if v.Retryable {
		text += " retry"
	}
	if v.NotSent {
		text += " unsent"
	}
	if v.RetryAfter > 0 {
		text += " " + v.RetryAfter.String()
	}
	return text
}

// answers is a unary handler that returns err.
func answers(err error) func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		return &pb.SimpleResponse{}, err
	}
}

// hangs is a unary handler that returns when its client has gone.
func hangs(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// sends is a handler that sends n messages and returns err.
func sends(n int, err error) func(pb.TestService_StreamingOutputCallServer) error {
	return func(out pb.TestService_StreamingOutputCallServer) error {
		for range n {
			if err := out.Send(&pb.StreamingOutputCallResponse{}); err != nil {
				return err
			}
		}
		return err
	}
}

// waitStated is a status with a RetryInfo.
func waitStated(t testing.TB, code codes.Code, wait time.Duration) error {
	t.Helper()
	s, err := status.New(code, "not now").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	require.NoError(t, err)
	return s.Err()
}

// retryInfo returns the wait that the status of an error states, and 0 without one.
func retryInfo(err error) time.Duration {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

func call(ctx context.Context, client pb.TestServiceClient, options ...grpc.CallOption) error {
	_, err := client.UnaryCall(ctx, &pb.SimpleRequest{}, options...)
	return err
}

// read opens a stream and reads it to its end.
func read(ctx context.Context, client pb.TestServiceClient) (messages int, err error) {
	stream, err := client.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
	for err == nil {
		if _, err = stream.Recv(); err == nil {
			messages++
		}
	}
	return messages, err
}

// soon waits for what another goroutine or the garbage collector brings about.
func soon(t testing.TB, what func() bool) {
	t.Helper()
	require.Eventually(t, what, 10*time.Second, 2*time.Millisecond)
}
