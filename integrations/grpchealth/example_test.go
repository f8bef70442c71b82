package grpchealth_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/grpchealth"
)

// billing is a service whose database is gone.
type billing struct {
	healthpb.UnimplementedHealthServer
}

func (billing) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return nil, status.Error(codes.Unavailable, "the database is gone")
}

// start makes the server serve that service, and returns its address.
func start(server *grpc.Server) (addr string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	healthpb.RegisterHealthServer(server, billing{})
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String()
}

// A breaker for each method that a client calls. The fourth call is not sent.
func Example() {
	server := grpc.NewServer()
	addr := start(server)
	defer server.Stop()

	gate := &toolhealth.Gate{Registry: toolhealth.NewRegistry()}
	name := func(method string) string { return "billing" + method } // the group is "billing"
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(grpchealth.Unary(gate, name)),
		grpc.WithChainStreamInterceptor(grpchealth.Stream(gate, name)))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	client := healthpb.NewHealthClient(conn)
	for range 4 {
		_, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{})
		if refusal, ok := errors.AsType[*toolhealth.Refusal](err); ok {
			fmt.Println(refusal.Tool, status.Code(err))
			fmt.Println(refusal)
			continue
		}
		fmt.Println(err)
	}
	// Output:
	// rpc error: code = Unavailable desc = the database is gone
	// rpc error: code = Unavailable desc = the database is gone
	// rpc error: code = Unavailable desc = the database is gone
	// billing/grpc.health.v1.Health/Check Unavailable
	// tool temporarily unavailable: circuit breaker open; retry after 30s
}

// A server that spares a dependency which is gone. Its client, which has no breaker for
// the method yet, is told to wait, and heeds it.
func ExampleServer() {
	gate := &toolhealth.Gate{Registry: toolhealth.NewRegistry()}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpchealth.Server(gate, nil)),
		grpc.ChainStreamInterceptor(grpchealth.StreamServer(gate, nil)))
	addr := start(server)
	defer server.Stop()
	gate.Registry.Hint("grpc.health.v1.Health/Check", toolhealth.HintDown, 2*time.Minute)

	here := &toolhealth.Gate{Registry: toolhealth.NewRegistry()}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(grpchealth.Unary(here, nil)))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	client := healthpb.NewHealthClient(conn)
	for range 2 {
		_, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{})
		fmt.Println(errors.Is(err, toolhealth.ErrRateLimited), err)
	}
	// Output:
	// false rpc error: code = Unavailable desc = tool temporarily unavailable: circuit breaker open; retry after 120s
	// true tool temporarily unavailable: it asked to wait; retry after 120s
}
