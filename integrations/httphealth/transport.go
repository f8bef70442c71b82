package httphealth

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"

	"github.com/toolhealth/toolhealth"
)

// Transport is an http.RoundTripper with a circuit breaker for each host, or for each
// name that Name gives. It asks its Gate before a request is sent and reports to it
// after. It is a literal: every field may be left zero. It must not be changed while it is
// in use, and may be used by many goroutines.
//
// # What is reported, and when
//
// A request that has no answer is reported at once, with its error. Any other is
// reported when the body of its answer ends: is read to its end, breaks off, or is
// closed. An answer without a body, such as that to a HEAD, is reported at once; so is
// a protocol switch (101), whose body is left as it is.
//
//   - A status that is no success counts as what [toolhealth.StatusError] means to the
//     Gate's Classifier, with the code and the wait that the first 4 KiB of a JSON body
//     state, as far as they were read. How the body ends changes nothing.
//   - A success, 304 and a redirect are successes, unless the body breaks off: then the
//     error of the Read counts. A client that closes the body early has no complaint.
//   - Each Read that returns bytes renews the lease of a probe, so that a long answer is
//     no lost one.
//
// A body that is never closed keeps its call in flight until the garbage collector finds
// the answer: a status that is no success is reported then, any other call is given back
// unused. The breaker does not wait for that: a probe ends with its lease.
//
// # Refusals
//
// A refused request is not sent. The error of http.Client is a *url.Error, whose text
// has the URL with all that is secret in it: take the *toolhealth.Refusal, whose text is
// safe, out of it by errors.As.
//
// # Time limits
//
// From here, the Timeout of an http.Client looks like a deadline of the caller, which
// does not count against the host below the Gate's DeadlineFloor of one second. For a
// client with a shorter Timeout set Gate.DeadlineFloor to -1.
type Transport struct {
	// Gate has the breakers and says what errors mean. Nil admits everything. Its Router
	// is not used, because a request cannot be sent to another host.
	Gate *toolhealth.Gate
	// Base sends the requests. Nil means http.DefaultTransport.
	Base http.RoundTripper
	// Name returns the name of the breaker for a request, which it must not change. A
	// request with an empty name is sent without a breaker. Nil means the host and port of
	// the URL as it is written, in lower case.
	Name func(*http.Request) string
	// Refuse returns what a client gets for a refused request; the error is a
	// *toolhealth.Refusal. The request's body is closed already. Nil means the error
	// itself; see Unavailable for another one.
	Refuse func(*http.Request, error) (*http.Response, error)
}

// RoundTrip sends the request if the Gate admits it. A refusal is a *toolhealth.Refusal
// as the error, unless Refuse says otherwise. A ctx that is done already is ctx.Err(), and
// nothing is counted. Any other error is that of Base.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base, name := orDefault(t.Base), t.name(req)
	if name == "" {
		return base.RoundTrip(req)
	}
	c := &call{ctx: req.Context()}
	var err error
	if c.permit, err = t.gate().Allow(c.ctx, name); err != nil {
		return t.refuse(req, err)
	}
	followed := false
	defer func() { // Base panics, ends the goroutine, or returns nothing
		if !followed {
			c.permit.Release()
		}
	}()
	res, err := base.RoundTrip(req)
	switch {
	case err != nil:
		c.permit.Done(c.ctx, err)
	case res != nil:
		followed = true
		c.follow(res)
	}
	return res, err
}

// CloseIdleConnections closes those of Base.
func (t *Transport) CloseIdleConnections() { closeIdle(orDefault(t.Base)) }

func (t *Transport) name(req *http.Request) string {
	switch {
	case t.Name != nil:
		return t.Name(req)
	case req.URL != nil:
		return strings.ToLower(req.URL.Host)
	}
	return ""
}

// gate returns the Gate without its Router.
func (t *Transport) gate() *toolhealth.Gate {
	if t.Gate == nil || t.Gate.Router == nil {
		return t.Gate
	}
	return &toolhealth.Gate{Registry: t.Gate.Registry, Classify: t.Gate.Classify, DeadlineFloor: t.Gate.DeadlineFloor}
}

// refuse closes the body of a request that is not sent, as every RoundTripper must.
func (t *Transport) refuse(req *http.Request, err error) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	if t.Refuse != nil && errors.Is(err, toolhealth.ErrRefused) {
		return t.Refuse(req, err)
	}
	return nil, err
}

// call is a request that was admitted.
type call struct {
	ctx    context.Context // of the request
	permit toolhealth.Permit
	answer *answer
}

// follow settles the call with the answer, or leaves that to the answer's body.
func (c *call) follow(res *http.Response) {
	c.answer = newAnswer(res)
	if !hasBody(res) {
		c.ended(nil)
		return
	}
	b := &body{ReadCloser: res.Body, to: c}
	runtime.AddCleanup(b, (*call).lost, c)
	res.Body = b
}

func (c *call) read(p []byte) {
	c.answer.read(p)
	c.permit.KeepAlive()
}

func (c *call) ended(err error) {
	if failure := c.answer.err(); failure != nil {
		// The answer was there before the caller gave up or its time was over.
		c.permit.Done(context.WithoutCancel(c.ctx), failure)
		return
	}
	c.permit.Done(c.ctx, err)
}

// lost settles a call whose body was never closed, and does nothing for any other.
func (c *call) lost() {
	if c.answer.failed {
		c.ended(nil)
		return
	}
	c.permit.Release()
}
