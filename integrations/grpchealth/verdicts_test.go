package grpchealth_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// meanings are what the codes mean that a handler returns.
var meanings = map[codes.Code]string{
	codes.Canceled: "failure canceled", codes.Unknown: "failure server_error",
	codes.InvalidArgument: "rejected invalid_request", codes.DeadlineExceeded: "failure timeout retry",
	codes.NotFound: "rejected not_found", codes.AlreadyExists: "rejected conflict",
	codes.PermissionDenied: "rejected unauthorized", codes.ResourceExhausted: "failure rate_limited retry",
	codes.FailedPrecondition: "rejected conflict", codes.Aborted: "rejected conflict retry",
	codes.OutOfRange: "rejected invalid_request", codes.Unimplemented: "rejected gone",
	codes.Internal: "failure server_error", codes.Unavailable: "failure server_error retry",
	codes.DataLoss: "failure server_error", codes.Unauthenticated: "rejected unauthorized",
}

// row is a way for a call to fail. fail makes it with a client that it dials.
type row struct {
	name string
	fail func(t *testing.T, w *world) error
	want string
}

// unaryRow is the answer of a unary handler.
func unaryRow(name string, answer error, want string) row {
	return row{"unary, " + name, func(t *testing.T, w *world) error {
		return call(t.Context(), w.dial(serve(t, &service{unary: answers(answer)}).addr))
	}, want}
}

// outputRow is the answer of a stream's handler, after some messages.
func outputRow(name string, messages int, answer error, want string) row {
	return row{name, func(t *testing.T, w *world) error {
		n, err := read(t.Context(), w.dial(serve(t, &service{output: sends(messages, answer)}).addr))
		assert.Equal(t, messages, n)
		return err
	}, want}
}

func rowsOfCodes() (rows []row) {
	for code, want := range meanings {
		rows = append(rows, unaryRow(code.String(), status.Error(code, "no"), want),
			outputRow("stream, at once, "+code.String(), 0, status.Error(code, "no"), want),
			outputRow("stream, later, "+code.String(), 2, status.Error(code, "no"), want))
	}
	return append(rows, unaryRow("plain error", errors.New("no"), "failure server_error"),
		unaryRow("larger than max", status.Error(codes.ResourceExhausted, "trying to send message larger than max (9 vs. 1)"), "rejected invalid_request"))
}

func rowsOfWaits(t *testing.T) []row {
	return []row{
		unaryRow("ResourceExhausted, 7s", waitStated(t, codes.ResourceExhausted, 7*time.Second), "throttled rate_limited retry 7s"),
		unaryRow("Unavailable, 7s", waitStated(t, codes.Unavailable, 7*time.Second), "failure server_error retry 7s"),
		unaryRow("NotFound, 7s", waitStated(t, codes.NotFound, 7*time.Second), "rejected not_found"),
		outputRow("stream, ResourceExhausted, 7s", 2, waitStated(t, codes.ResourceExhausted, 7*time.Second), "throttled rate_limited retry 7s"),
		outputRow("stream, Unavailable, 7s", 2, waitStated(t, codes.Unavailable, 7*time.Second), "failure server_error retry 7s"),
	}
}

// What a server says with a text that it has from an upstream of its own.
func rowsOfRelays() (rows []row) {
	const dialing = `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`
	const cut = "error reading from server: EOF"
	const late = "context deadline exceeded while waiting for connections to become ready"
	for _, text := range []string{dialing, cut} {
		answer := status.Error(codes.Unavailable, text)
		rows = append(rows, unaryRow("relayed "+text, answer, "failure server_error retry"),
			outputRow("stream, relayed at once, "+text, 0, answer, "failure server_error retry"))
	}
	marshal := status.Error(codes.Internal, "grpc: error while marshaling: no")
	return append(rows,
		outputRow("stream, relayed later, dial", 1, status.Error(codes.Unavailable, dialing), "failure server_error retry"),
		unaryRow("relayed, no connection in time", status.Error(codes.DeadlineExceeded, late), "failure timeout retry"),
		outputRow("stream, relayed later, no connection in time", 1, status.Error(codes.DeadlineExceeded, late), "failure timeout retry"),
		unaryRow("relayed, marshal", marshal, "failure server_error"))
}

var rowsOfConnections = []row{
	{"refused", func(t *testing.T, w *world) error {
		return call(t.Context(), w.dial(freeAddr(t)))
	}, "failure connection retry unsent"},
	{"stream, refused", func(t *testing.T, w *world) error {
		_, err := read(t.Context(), w.dial(freeAddr(t)))
		return err
	}, "failure connection retry unsent"},
	{"no such host", func(t *testing.T, w *world) error {
		return call(t.Context(), w.dial("no-such-host.invalid:1"))
	}, "failure connection retry unsent"}, // a service without a replica has no name, either
	{"no such host, of a dial", func(t *testing.T, w *world) error {
		return call(t.Context(), w.dial("passthrough:///no-such-host.invalid:1"))
	}, "failure connection retry unsent"},
	{"TLS", func(t *testing.T, w *world) error {
		ts := httptest.NewUnstartedServer(http.NotFoundHandler())
		ts.Config.ErrorLog = log.New(io.Discard, "", 0)
		ts.StartTLS()
		t.Cleanup(ts.Close)
		return call(t.Context(), w.dial(ts.Listener.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{ServerName: "example.org"}))))
	}, "failure connection unsent"},
	{"a server of HTTP/1", func(t *testing.T, w *world) error {
		ts := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(ts.Close)
		return call(t.Context(), w.dial(ts.Listener.Addr().String()))
	}, "failure contract unsent"},
	{"closes before the preface", func(t *testing.T, w *world) error {
		return call(t.Context(), w.dial(closing(t)))
	}, "failure connection retry unsent|failure connection retry"}, // the client may notice by its own write
	{"unary, server stops", func(t *testing.T, w *world) error {
		entered := make(chan struct{})
		s := serve(t, &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			close(entered)
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		go func() { <-entered; s.Stop() }()
		return call(t.Context(), w.dial(s.addr))
	}, "failure connection retry"},
	{"stream, server stops before the header", func(t *testing.T, w *world) error {
		return stopped(t, w, func(pb.TestService_StreamingOutputCallServer) {})
	}, "failure connection retry"},
	{"stream, server stops after the header", func(t *testing.T, w *world) error {
		return stopped(t, w, func(out pb.TestService_StreamingOutputCallServer) { _ = out.SendHeader(nil) })
	}, "failure connection retry"},
	{"stream, server stops after a message", func(t *testing.T, w *world) error {
		return stopped(t, w, func(out pb.TestService_StreamingOutputCallServer) { _ = sends(1, nil)(out) })
	}, "failure connection retry"},
}

var rowsOfTime = []row{
	{"unary, deadline", func(t *testing.T, w *world) error {
		client := w.ready(serve(t, &service{unary: hangs}).addr)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return call(ctx, client)
	}, "failure timeout"},
	{"stream, deadline", func(t *testing.T, w *world) error {
		client := w.ready(serve(t, &service{output: waits}).addr)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := read(ctx, client)
		return err
	}, "failure timeout"},
	{"unary, caller cancels", func(t *testing.T, w *world) error {
		client := w.ready(serve(t, &service{unary: hangs}).addr)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(30*time.Millisecond, cancel)
		return call(ctx, client)
	}, "neutral canceled"},
	{"stream, caller cancels", func(t *testing.T, w *world) error {
		client := w.ready(serve(t, &service{output: waits}).addr)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(30*time.Millisecond, cancel)
		_, err := read(ctx, client)
		return err
	}, "neutral canceled"},
	{"WaitForReady, refused", func(t *testing.T, w *world) error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return call(ctx, w.dial(freeAddr(t)), grpc.WaitForReady(true))
	}, "failure timeout retry unsent"},
	{"WaitForReady, a server that does not answer the dial", func(t *testing.T, w *world) error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return call(ctx, w.dial(silent(t)), grpc.WaitForReady(true))
	}, "failure timeout retry unsent"},
}

var rowsOfMessages = []row{
	{"not implemented", func(t *testing.T, w *world) error {
		return call(t.Context(), w.dial(serve(t, &service{}).addr))
	}, "rejected gone"},
	{"request larger than the server's max", func(t *testing.T, w *world) error {
		client := w.dial(serve(t, &service{unary: answers(nil)}, grpc.MaxRecvMsgSize(10)).addr)
		_, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{Payload: &pb.Payload{Body: make([]byte, 100)}})
		return err
	}, "rejected invalid_request"},
	{"request larger than the client's max", func(t *testing.T, w *world) error {
		client := w.dial(serve(t, &service{unary: answers(nil)}).addr)
		_, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{Payload: &pb.Payload{Body: make([]byte, 100)}}, grpc.MaxCallSendMsgSize(10))
		return err
	}, "rejected invalid_request"},
	{"answer larger than the client's max", func(t *testing.T, w *world) error {
		large := &pb.SimpleResponse{Payload: &pb.Payload{Body: make([]byte, 100)}}
		client := w.dial(serve(t, &service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) { return large, nil }}).addr)
		return call(t.Context(), client, grpc.MaxCallRecvMsgSize(10))
	}, "rejected invalid_request"},
	{"request that cannot be marshaled", func(t *testing.T, w *world) error {
		client := w.dial(serve(t, &service{unary: answers(nil)}).addr)
		_, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{Payload: &pb.Payload{Body: nil}, ResponseStatus: &pb.EchoStatus{Message: "\xff"}})
		return err
	}, "rejected invalid_request unsent"},
	{"answer that cannot be read", func(t *testing.T, w *world) error {
		return call(t.Context(), w.dial(serve(t, &service{unary: answers(nil)}, grpc.ForceServerCodec(nonsense{})).addr))
	}, "failure contract"},
}

// proxyRows are answers of a proxy of HTTP/2 that speaks no gRPC.
func proxyRow(code int, want string) row {
	return row{"proxy, " + http.StatusText(code), func(t *testing.T, w *world) error {
		ts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<html>", code)
		}))
		ts.Config.Protocols = new(http.Protocols)
		ts.Config.Protocols.SetUnencryptedHTTP2(true)
		ts.Start()
		t.Cleanup(func() { ts.CloseClientConnections(); ts.Close() })
		return call(t.Context(), w.dial(ts.Listener.Addr().String()))
	}, want}
}

func TestVerdicts_AreRight(t *testing.T) {
	rows := append(rowsOfCodes(), rowsOfWaits(t)...)
	rows = append(rows, rowsOfRelays()...)
	rows = append(rows, rowsOfConnections...)
	rows = append(rows, rowsOfTime...)
	rows = append(rows, rowsOfMessages...)
	rows = append(rows, proxyRow(401, "rejected unauthorized"), proxyRow(403, "rejected unauthorized"),
		proxyRow(404, "rejected gone"), proxyRow(429, "failure rate_limited retry"),
		proxyRow(502, "failure server_error retry"), proxyRow(503, "failure server_error retry"))
	for _, r := range rows {
		t.Run(strings.ReplaceAll(r.name, "/", "-"), func(t *testing.T) {
			w := newWorld(t, nil)
			err := r.fail(t, w)
			require.Error(t, err)
			assert.Contains(t, strings.Split(r.want, "|"), w.said(), "%v", err)
			for _, tool := range []string{unary, output} {
				soon(t, func() bool { return w.health(tool).InFlight == 0 })
			}
		})
	}
	t.Logf("%d rows", len(rows))
}

// waits is a stream's handler that waits until its client has gone.
func waits(out pb.TestService_StreamingOutputCallServer) error {
	<-out.Context().Done()
	return out.Context().Err()
}

// stopped reads a stream whose server stops after what first has done.
func stopped(t *testing.T, w *world, first func(pb.TestService_StreamingOutputCallServer)) error {
	entered := make(chan struct{})
	s := serve(t, &service{output: func(out pb.TestService_StreamingOutputCallServer) error {
		first(out)
		close(entered)
		return waits(out)
	}})
	go func() {
		<-entered
		time.Sleep(20 * time.Millisecond) // what was sent has to leave the buffers
		s.Stop()
	}()
	_, err := read(t.Context(), w.dial(s.addr))
	return err
}

// freeAddr returns an address at which nobody listens.
func freeAddr(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// closing returns the address of a server that closes each connection at once.
func closing(t *testing.T) string {
	return accepting(t, func(conn net.Conn) { _ = conn.Close() })
}

// silent returns the address of a server that says nothing.
func silent(t *testing.T) string {
	return accepting(t, func(conn net.Conn) {
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	})
}

func accepting(t *testing.T, do func(net.Conn)) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go do(conn)
		}
	}()
	return listener.Addr().String()
}

// nonsense is a codec whose messages no client can read.
type nonsense struct{}

func (nonsense) Marshal(any) ([]byte, error) { return []byte{0xff, 0xff}, nil }
func (nonsense) Unmarshal([]byte, any) error { return nil }
func (nonsense) Name() string                { return "proto" }
