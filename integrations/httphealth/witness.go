package httphealth

import (
	"context"
	"errors"
	"net/http"

	"github.com/toolhealth/toolhealth"
)

// Witness returns a RoundTripper that sends requests by base, changes nothing about them,
// and notes in the ctx of each request what came of it:
//
//   - what the status and the header of the answer say, a stated wait included, and
//     that the answer was a success if it was;
//   - the code and the wait that the JSON body of an answer states that is no success,
//     as far as the body was read, and no further than 4 KiB;
//   - the error of a request that had no answer;
//   - the error of the body of a successful answer that broke off.
//
// [toolhealth.Classify] takes the last note where the error of the tool says nothing, as
// that of an SDK that keeps only a text. See [toolhealth.Note].
//
// The request must carry the ctx of the attempt: the one that a Guard gives to the tool
// function, or that [toolhealth.WithNotes] returned. The notes of other requests are
// lost.
//
// A nil base is http.DefaultTransport. The RoundTripper may be used by many goroutines if
// base may. The body of an answer to a protocol switch (101) is left as it is.
func Witness(base http.RoundTripper) http.RoundTripper { return &witness{orDefault(base)} }

type witness struct{ base http.RoundTripper }

// RoundTrip does what Witness says.
func (w *witness) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	res, err := w.base.RoundTrip(req)
	switch {
	case err != nil:
		note(ctx, err)
	case res != nil:
		s := &sighting{ctx, newAnswer(res)}
		note(ctx, s.err())
		if hasBody(res) {
			res.Body = &body{ReadCloser: res.Body, to: s}
		}
	}
	return res, err
}

// CloseIdleConnections closes those of the base.
func (w *witness) CloseIdleConnections() { closeIdle(w.base) }

// sighting is an answer whose body is being read.
type sighting struct {
	ctx context.Context // of the request
	*answer
}

// ended notes what the body has added. An answer that is no success says more than the
// end of its body, and a body that breaks off because the client has canceled the request
// says nothing.
func (s *sighting) ended(err error) {
	switch {
	case s.failed && s.json:
		note(s.ctx, s.err())
	case !s.failed && err != nil && !errors.Is(err, context.Canceled):
		note(s.ctx, err)
	}
}

// note notes what the error means by itself. The caller's ctx is left out: Classify looks
// at it before it looks at notes.
func note(ctx context.Context, err error) {
	toolhealth.Note(ctx, toolhealth.Classify(context.Background(), err))
}
