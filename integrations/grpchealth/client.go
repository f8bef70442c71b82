package grpchealth

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolhealth/toolhealth"
)

// Unary returns an interceptor with a breaker for each unary method that a client calls.
// gate has the breakers; nil refuses nothing, see the package comment. name returns the
// name of the breaker of a method, and nil means the default of this package.
//
// A refused call is not sent; its error has the status Unavailable, and errors.As finds
// the *toolhealth.Refusal in it. A ctx that is done already is the error that grpc has
// for it, and nothing is counted. Any other error is that of the call, with the same status;
// [Rules] find in it whether it came from the server.
//
// A call counts as the Gate's Classifier says. That the caller has canceled is neutral.
//
// The interceptor may be used by many connections and goroutines.
func Unary(gate *toolhealth.Gate, name func(method string) string) grpc.UnaryClientInterceptor {
	gate, name = plain(gate), namer(name)
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		permit, err := admit(ctx, gate, name(method))
		if err != nil {
			return notAdmitted(ctx, err)
		}
		defer permit.Release() // invoke panics or ends the goroutine
		var header, trailer metadata.MD
		opts = append(opts[:len(opts):len(opts)], grpc.Header(&header), grpc.Trailer(&trailer))
		err = invoke(ctx, method, req, reply, cc, opts...)
		err = see(err, len(header) > 0, len(trailer) > 0)
		report(ctx, &permit, err)
		return err
	}
}

// report settles a permit, and notes what came of the call for an attempt of a Guard.
func report(ctx context.Context, permit *toolhealth.Permit, err error) {
	toolhealth.Note(ctx, judge(context.Background(), err)) // the attempt looks at its ctx by itself
	if err != nil {
		awaitDeadline(ctx, err)
		ctx = toolhealth.WithNotes(ctx) // what else the attempt has done is no evidence of this call
	}
	permit.Done(ctx, err)
}

// awaitDeadline waits until a ctx is done whose deadline has passed, which takes as long
// as a timer is late: the server, which knows the deadline, may have been faster. Else the
// deadline would be taken for one of the server's own.
func awaitDeadline(ctx context.Context, err error) {
	if status.Code(err) != codes.DeadlineExceeded || ctx.Err() != nil {
		return
	}
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(maxLate):
	}
}

const maxLate = 100 * time.Millisecond
