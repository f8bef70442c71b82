package grpchealth

import (
	"context"
	"errors"
	"strings"

	_ "google.golang.org/genproto/googleapis/rpc/errdetails" // without which Classify cannot read RetryInfo
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolhealth/toolhealth"
)

// Rules returns what a Classifier should know of gRPC beside the codes and RetryInfo,
// which [toolhealth.Classify] knows as soon as this package is imported. The rules tell
// by the texts of grpc-go:
//
//   - No connection was made, or none in time: failure, connection or timeout, not sent.
//     An unknown host is no better, because the target is the program's, not the model's. A connection that breaks, or a server that drains it: failure,
//     connection.
//   - TLS that fails: the same, not retryable. A server that speaks HTTP/1, and a message
//     that cannot be read: failure, contract.
//   - A message that the client cannot marshal: rejected, not sent.
//
// An Unavailable that the server itself has sent, with such a text of one of its own
// upstreams, is a failure of kind server_error. Only the interceptors see that.
func Rules() []toolhealth.Rule { return []toolhealth.Rule{rule} }

// judge is the Classifier of a Gate that has none.
func judge(ctx context.Context, err error) toolhealth.Verdict { return byRules.Classify(ctx, err) }

var byRules = toolhealth.ErrorRules{Own: Rules()}

// remark is a text of grpc-go that says more than the code.
type remark struct {
	code codes.Code
	text string
	says toolhealth.Verdict
}

// Verdicts of remarks.
var (
	unreached  = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection, Retryable: true, NotSent: true}
	hopeless   = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection, NotSent: true}
	foreign    = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindContract, NotSent: true}
	late       = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout, Retryable: true, NotSent: true}
	cut        = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection, Retryable: true}
	unread     = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindContract}
	unsendable = toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest, NotSent: true}
)

// remarks are looked through in this order; the first one counts.
var remarks = [...]remark{
	{codes.Unavailable, "authentication handshake failed", hopeless},
	{codes.Unavailable, "looked like an HTTP/1.1 header", foreign},
	{codes.Unavailable, "Error while dialing", unreached},
	{codes.Unavailable, "error reading server preface", unreached},
	{codes.Unavailable, "produced zero addresses", unreached},
	{codes.Unavailable, "name resolver error", unreached},
	{codes.Unavailable, "server is draining the connection", unreached}, // a stream that the server has not looked at
	{codes.Unavailable, "the connection is draining", unreached},
	{codes.Unavailable, "REFUSED_STREAM", unreached},
	{codes.Unavailable, "error reading from server", cut},
	{codes.Unavailable, "broken pipe", cut},
	{codes.Unavailable, "connection reset by peer", cut},
	{codes.Unavailable, "failed to receive ACK within timeout", cut},
	{codes.Unavailable, "closing transport due to", cut},
	{codes.Unavailable, "connection error: desc", cut},
	{codes.Unavailable, "transport is closing", cut},
	{codes.DeadlineExceeded, "while waiting for connections to become ready", late},
	{codes.DeadlineExceeded, "latest balancer error", late},
	{codes.Internal, "error while marshaling", unsendable},
	{codes.Internal, "failed to unmarshal the received message", unread},
}

// rule is the one of Rules.
func rule(err error) (toolhealth.Verdict, bool) {
	s := statusIn(err)
	r, ok := remarkOf(s)
	if !ok {
		return toolhealth.Verdict{}, false
	}
	seen, ok := errors.AsType[*sighting](err)
	switch {
	case !ok:
		r.says.NotSent = false
	case seen.said(r):
		mute := s.Proto()
		mute.Message = ""
		return toolhealth.Classify(context.Background(), status.ErrorProto(mute)), true
	case strings.Contains(err.Error(), "max retries exhausted"): // of which one may have been sent
		r.says.NotSent = false
	}
	return r.says, true
}

// remarkOf returns what a status says beside its code.
func remarkOf(s *status.Status) (remark, bool) {
	for _, r := range remarks {
		if r.code == s.Code() && strings.Contains(s.Message(), r.text) {
			return r, true
		}
	}
	return remark{}, false
}

// statusIn returns the status of an error, or nil. One of several errors is not the
// status of all of them.
func statusIn(err error) *status.Status {
	for err != nil {
		if s, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
			return s.GRPCStatus()
		}
		err = errors.Unwrap(err)
	}
	return nil
}

// sighting is an error with a remark, and with what its stream has shown. Callers see no
// difference.
type sighting struct {
	error
	header  bool // the server has sent a header
	trailer bool // the server has sent a trailer; one that comes alone is never empty
}

func (s *sighting) Unwrap() error { return s.error }

// GRPCStatus returns the status of the error.
func (s *sighting) GRPCStatus() *status.Status { return statusIn(s.error) }

// said reports whether the server itself has sent the status, with a text that it has
// from elsewhere. After a header, only a connection that breaks or an answer that cannot
// be read is news of this client.
func (s *sighting) said(r remark) bool {
	return s.header && r.says.NotSent || s.trailer && !(s.header && r.says == unread)
}

// see adds to an error what its stream has shown, if that matters.
func see(err error, header, trailer bool) error {
	if err == nil {
		return nil
	}
	if _, ok := remarkOf(statusIn(err)); !ok {
		return err
	}
	return &sighting{err, header, trailer}
}
