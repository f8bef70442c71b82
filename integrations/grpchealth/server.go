package grpchealth

import (
	"context"

	"google.golang.org/grpc"

	"github.com/toolhealth/toolhealth"
)

// Server returns an interceptor with a breaker for each unary method of a server, for
// handlers whose own upstreams can fail. gate has the breakers; name returns the name of
// the breaker of a method, and nil means the default of this package.
//
// The error of a handler counts as the Gate's Classifier says, with the wait of its
// RetryInfo; a handler that panics counts as a failure, and the panic goes on. A client
// that has gone is neutral. A wait holds every client, so a handler that limits clients
// one by one should state no wait, or BreakerConfig.MaxStatedWait should be Off.
//
// A refused call is answered with the status Unavailable, and so is one whose handler
// returns a refusal of a breaker of its own; both state the wait as RetryInfo.
//
// The interceptor may be used by many servers and goroutines.
func Server(gate *toolhealth.Gate, name func(method string) string) grpc.UnaryServerInterceptor {
	gate, name = plain(gate), namer(name)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		err = handle(ctx, gate, name(info.FullMethod), func(*toolhealth.Permit) error {
			resp, err = handler(ctx, req)
			return err
		})
		return resp, err
	}
}

// StreamServer is [Server] for streams. The call ends when the handler returns. Until
// then each message that the handler sends or receives renews the lease of a probe.
func StreamServer(gate *toolhealth.Gate, name func(method string) string) grpc.StreamServerInterceptor {
	gate, name = plain(gate), namer(name)
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return handle(stream.Context(), gate, name(info.FullMethod), func(permit *toolhealth.Permit) error {
			return handler(srv, &serverStream{stream, permit})
		})
	}
}

// handle runs a handler if the gate admits it, and reports how it went.
func handle(ctx context.Context, gate *toolhealth.Gate, name string, run func(*toolhealth.Permit) error) error {
	permit, err := admit(ctx, gate, name)
	if err != nil {
		return notAdmitted(ctx, err)
	}
	returned := false
	defer func() {
		if !returned {
			permit.Settle(new(toolhealth.PanicError).ToolVerdict())
		}
	}()
	err = run(&permit)
	returned = true
	permit.Done(ctx, err)
	return withStatus(err)
}

// serverStream is a stream whose messages show that its handler is alive.
type serverStream struct {
	grpc.ServerStream
	permit *toolhealth.Permit
}

func (s *serverStream) SendMsg(m any) error { return s.alive(s.ServerStream.SendMsg(m)) }
func (s *serverStream) RecvMsg(m any) error { return s.alive(s.ServerStream.RecvMsg(m)) }

func (s *serverStream) alive(err error) error {
	if err == nil {
		s.permit.KeepAlive()
	}
	return err
}
