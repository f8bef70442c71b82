package grpchealth

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/toolhealth/toolhealth"
)

// admit asks the gate for a permit. An empty name has one that does nothing.
func admit(ctx context.Context, gate *toolhealth.Gate, name string) (toolhealth.Permit, error) {
	if name == "" {
		return toolhealth.Permit{}, nil
	}
	return gate.Allow(ctx, name)
}

// notAdmitted is the error of admit with a status.
func notAdmitted(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, toolhealth.ErrRefused) {
		return status.FromContextError(ctx.Err()).Err() // as grpc does
	}
	return withStatus(err)
}

// withStatus gives a refusal that has no status one. Every other error stays as it is.
func withStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	refusal, ok := errors.AsType[*toolhealth.Refusal](err)
	if !ok {
		return err
	}
	return &refusedError{refusal}
}

// refusedError is a refusal as a status Unavailable. Its text is that of the refusal,
// which is fit for the model and for the wire.
type refusedError struct{ refusal *toolhealth.Refusal }

func (e *refusedError) Error() string { return e.refusal.Error() }
func (e *refusedError) Unwrap() error { return e.refusal }

// GRPCStatus returns the status that a client gets.
func (e *refusedError) GRPCStatus() *status.Status {
	s := status.New(codes.Unavailable, e.refusal.Error())
	wait := waitOf(e.refusal)
	if wait <= 0 {
		return s
	}
	detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	if err != nil {
		return s
	}
	return detailed
}

// waitOf is how long asking again is pointless, and zero if waiting does not help.
func waitOf(r *toolhealth.Refusal) time.Duration {
	if r.Reason == toolhealth.StopIsolated || r.Reason == toolhealth.StopUnknownTool {
		return 0
	}
	return r.RetryAfter
}
