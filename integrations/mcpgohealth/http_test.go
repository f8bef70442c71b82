package mcpgohealth_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/stretchr/testify/assert"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/mcpgohealth"
)

// legacy makes a session speak the protocol that has sessions.
func legacy() mcpgohealth.Option {
	var q mcp.InitializeRequest
	q.Params.ProtocolVersion = mcp.LATEST_LEGACY_PROTOCOL_VERSION
	return mcpgohealth.Initialize(q)
}

func TestHTTP_IllGatewayOpensBreaker(t *testing.T) {
	f := newFake(t).answer(func(x *exchange) { x.say(503, jsonType, `{"message":"Service Unavailable"}`) })
	w := newWorld(t, nil)
	s := w.dial(overHTTP(t, f.url))
	for range 4 {
		call(t, s, "t")
	}
	h := w.health("t")
	assert.Equal(t, toolhealth.StateOpen, h.State)
	assert.EqualValues(t, 3, h.ByKind[toolhealth.KindServerError])
	assert.EqualValues(t, 1, h.Refused)
	assert.EqualValues(t, 3, f.hits.Load())
	assert.True(t, strings.HasPrefix(call(t, s, "t"), "tool temporarily unavailable"))
}

func TestHTTP_StatedWaitHoldsNextCaller(t *testing.T) {
	f := newFake(t).answer(func(x *exchange) { x.header("Retry-After", "7"); x.fail(429) })
	w := newWorld(t, nil)
	s := w.dial(overHTTP(t, f.url))
	call(t, s, "t")
	r := result(t, s, "t")
	assert.True(t, r.IsError)
	assert.True(t, strings.HasSuffix(text(r), "retry after 7s"), text(r))
	h := w.health("t")
	assert.EqualValues(t, 1, h.Throttled)
	assert.EqualValues(t, 1, h.RefusedByReason[toolhealth.StopRateLimited])
	assert.EqualValues(t, 1, f.hits.Load())
}

func TestHTTP_StatedWaitOfJSONRPC(t *testing.T) {
	f := newFake(t).answer(func(x *exchange) { x.rpc(200, x.id, -32029, "Rate limit exceeded", `{"retryAfterSeconds":12}`) })
	w := newWorld(t, nil)
	s := w.dial(overHTTP(t, f.url))
	call(t, s, "t")
	assert.Equal(t, toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, Retryable: true, RetryAfter: 12 * time.Second}, w.last())
}

func TestHTTP_UnauthorizedKeepsSession(t *testing.T) {
	f := newFake(t).answer(func(x *exchange) { x.fail(401) })
	w := newWorld(t, nil)
	s := w.dial(overHTTP(t, f.url))
	assert.Equal(t, "tool failed: access was refused", call(t, s, "t"))
	f.heal()
	assert.Equal(t, "hello", call(t, s, "t"))
	h := w.health("t")
	assert.EqualValues(t, 1, h.RejectedByKind[toolhealth.KindUnauthorized])
	assert.Equal(t, toolhealth.StateClosed, h.State)
}

// TestHTTP_ForgottenSessionIsMadeAnew has every body by which servers say that they do not
// know the session.
func TestHTTP_ForgottenSessionIsMadeAnew(t *testing.T) {
	bodies := map[string]func(*exchange){
		"404, text":                      func(x *exchange) { x.say(404, "text/plain", "session not found\n") },
		"404, -32001, id null":           func(x *exchange) { x.rpc(404, "null", -32001, "Session not found", "") },
		"404, -32600, id null":           func(x *exchange) { x.rpc(404, "null", -32600, "Not Found: Invalid or expired session ID", "") },
		"404, -32600, id server-error":   func(x *exchange) { x.rpc(404, `"server-error"`, -32600, "Not Found: Session has been terminated", "") },
		"400, text":                      func(x *exchange) { x.say(400, "text/plain", "Bad Request: No valid session ID provided") },
		"400, -32000, id null":           func(x *exchange) { x.rpc(400, "null", -32000, "Bad Request: No valid session ID provided", "") },
		"200, 32600 Session terminated":  func(x *exchange) { x.rpc(200, x.id, 32600, "Session terminated", "") },
		"200, -32001, Session not found": func(x *exchange) { x.rpc(200, x.id, -32001, "Session not found", "") },
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			w := newWorld(t, nil)
			s := w.dial(overHTTP(t, f.url), legacy())
			f.answer(body)
			assert.Equal(t, "tool failed: the tool cannot be reached", call(t, s, "t"))
			assert.Equal(t, toolhealth.KindConnection, w.last().Kind)
			assert.Equal(t, 1, w.group().ConsecutiveFailures)
			f.heal()
			f.restart() // only a new session is known from now on
			assert.Equal(t, "hello", call(t, s, "t"))
		})
	}
}

// TestHTTP_RestartIsSilentWithRetry has a tool that may be repeated, as its annotation says.
func TestHTTP_RestartIsSilentWithRetry(t *testing.T) {
	f := newFake(t)
	w := newWorld(t, func(s *toolhealth.Settings) { s.Policy.MaxAttempts = 2 })
	s := w.dial(overHTTP(t, f.url), legacy())
	assert.Equal(t, "hello", call(t, s, "t"))
	f.restart()
	assert.Equal(t, "hello", call(t, s, "t"))
}

func TestHTTP_AnswerLostAfterToolActed(t *testing.T) {
	var acted atomic.Int32
	f := newFake(t)
	srv := server.NewMCPServer("test", "1")
	srv.AddTool(mcp.NewTool("send"), say("sent")) // not read-only, not idempotent
	srv.AddTool(mcp.NewTool("put", mcp.WithIdempotentHintAnnotation(true)), say("put"))
	f.sound.Store(server.NewStreamableHTTPServer(srv))
	f.answer(func(x *exchange) { acted.Add(1); x.cut() })
	w := newWorld(t, func(s *toolhealth.Settings) { s.Policy.MaxAttempts = 2 })
	s := w.dial(overHTTP(t, f.url))
	r := result(t, s, "send")
	assert.EqualValues(t, 1, acted.Load())
	assert.True(t, strings.HasPrefix(text(r), "tool outcome unknown"), text(r))
	result(t, s, "put")
	assert.EqualValues(t, 3, acted.Load())
}

// TestPolicies_FollowTheList has a tool that turns into one that acts.
func TestPolicies_FollowTheList(t *testing.T) {
	changing := server.NewMCPServer("test", "1", server.WithToolCapabilities(true))
	changing.AddTool(reading("t"), say("hello"))
	for name, c := range map[string]struct {
		connect mcpgohealth.Connect
		options []mcpgohealth.Option
	}{
		"in process":         {inProcess(changing), []mcpgohealth.Option{legacy()}},
		"in process, modern": {inProcess(changing), nil},
		"HTTP, modern":       {overHTTP(t, serve(t, server.NewStreamableHTTPServer(changing))), nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			changing.AddTool(reading("t"), say("hello"))
			changing.DeleteTools("u")
			s := w.dial(c.connect, c.options...)
			acts := func(tool string) bool { return w.policies.Of("srv/"+tool, toolhealth.Policy{}).SideEffects }
			assert.False(t, acts("t"))
			assert.True(t, acts("u"), "not in the list")
			if name != "in process" {
				time.Sleep(100 * time.Millisecond) // until the session listens
			}
			changing.AddTool(mcp.NewTool("t"), say("hello"))
			soon(t, func() bool { return acts("t") })
			changing.AddTool(reading("u"), say("from u"))
			soon(t, func() bool { return !acts("u") })
			assert.True(t, acts("t"))
			assert.Equal(t, "from u", call(t, s, "u"))
			assert.Equal(t, 1, w.guard.Registry().Len(), "u is known")
		})
	}
	var none mcpgohealth.Policies
	assert.False(t, none.Of("other/t", toolhealth.Policy{}).SideEffects)
}

// TestPolicies_PlainNames is for a Middleware without a name.
func TestPolicies_PlainNames(t *testing.T) {
	var p mcpgohealth.Policies
	p.Set("", []mcp.Tool{reading("r"), reading("a/b"), mcp.NewTool("w")})
	for tool, want := range map[string]bool{"r": false, "a/b": false, "w": true, "x": true} {
		assert.Equal(t, want, p.Of(tool, toolhealth.Policy{}).SideEffects, tool)
	}
	assert.True(t, p.Of("r", toolhealth.Policy{SideEffects: true}).SideEffects, "is not weakened")
}

func TestSession_ManyCallersOneDial(t *testing.T) {
	f := newFake(t)
	w := newWorld(t, nil)
	var dials atomic.Int32
	connect := overHTTP(t, f.url)
	s := w.dial(func(ctx context.Context) (transport.Interface, error) { dials.Add(1); return connect(ctx) }, legacy())
	f.restart()
	call(t, s, "t")
	done := make(chan string)
	for range 8 {
		go func() {
			r, err := s.CallTool(context.Background(), request("t", nil))
			if err != nil {
				done <- err.Error()
				return
			}
			done <- text(r)
		}()
	}
	for range 8 {
		assert.Equal(t, "hello", <-done)
	}
	assert.EqualValues(t, 2, dials.Load())
}

// TestSession_DialIsNotSent repeats a tool that acts, because it surely has not.
func TestSession_DialIsNotSent(t *testing.T) {
	f := newFake(t)
	w := newWorld(t, func(s *toolhealth.Settings) { s.Policy.SideEffects = true })
	connect := overHTTP(t, f.url)
	var broken atomic.Bool
	s := w.dial(func(ctx context.Context) (transport.Interface, error) {
		if broken.Load() {
			return nil, errors.New("no such program")
		}
		return connect(ctx)
	}, legacy())
	f.restart()
	call(t, s, "t")
	broken.Store(true)
	assert.Equal(t, "tool failed: the tool cannot be reached", call(t, s, "t"))
	assert.Equal(t, toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection, NotSent: true}, w.last())
}
