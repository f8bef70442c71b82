package mcphealth_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/mcphealth"
)

// remote is a server on loopback with the tool "raw", in whose way a fault can be put. The
// fault meets tool calls, or all requests.
type remote struct {
	url   string
	sound http.Handler
	fault atomic.Pointer[fault]
	hits  atomic.Int64 // tool calls that have come
	dials atomic.Int64 // sessions that were made
}

type fault struct {
	answer http.HandlerFunc
	all    bool
}

func newRemote(t testing.TB, version string) *remote {
	server := newServer()
	addRaw(server, "raw", readOnly, good)
	r := &remote{sound: handlerOf(t, server, version)}
	r.url = serve(t, r)
	return r
}

func (r *remote) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	req.Body = io.NopCloser(strings.NewReader(string(body)))
	call := rpcOf(body).Method == "tools/call"
	if call {
		r.hits.Add(1)
	}
	if f := r.fault.Load(); f != nil && (call || f.all) {
		f.answer(w, req)
		return
	}
	r.sound.ServeHTTP(w, req)
}

type rpcRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

func rpcOf(body []byte) (q rpcRequest) {
	_ = json.Unmarshal(body, &q) // nothing is a request that is not looked for
	return q
}

// status answers with a bare status.
func status(code int, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		http.Error(w, http.StatusText(code), code)
	}
}

// versions runs a test for each protocol.
func versions(t *testing.T, test func(t *testing.T, version string)) {
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) { test(t, version) })
	}
}

// openRemote opens a session of the server by the Transport of the package.
func (w *world) openRemote(r *remote, version string) *mcphealth.Session {
	connect := overHTTP(r.url, mcphealth.Transport(newBase(w.t)))
	s := w.openVersion(version, w.client(), func(ctx context.Context) (mcp.Transport, error) {
		r.dials.Add(1)
		return connect(ctx)
	})
	list(w.t, s)
	return s
}

func TestSession_RateLimitHoldsNextCaller(t *testing.T) {
	versions(t, func(t *testing.T, version string) {
		r, w := newRemote(t, version), newWorld(t, nil)
		s := w.openRemote(r, version)
		r.fault.Store(&fault{answer: status(429, "Retry-After", "7")})
		ask(t, s, "raw")
		res, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "raw"})
		require.NoError(t, err)
		assert.Equal(t, "tool temporarily unavailable: it asked to wait; retry after 7s", textOf(t, res))
		h := w.health("raw")
		assert.EqualValues(t, 1, h.Throttled)
		assert.EqualValues(t, 1, h.Refused)
		assert.Equal(t, toolhealth.StopRateLimited, h.Reason)
		assert.EqualValues(t, 1, r.hits.Load())
	})
}

func TestSession_WaitInHeaderOfAnswer(t *testing.T) {
	r, w := newRemote(t, legacy), newWorld(t, nil)
	s := w.openRemote(r, legacy)
	r.fault.Store(&fault{answer: func(rw http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		rw.Header().Set("Retry-After", "7")
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusTooManyRequests)
		_, _ = fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32029,"message":"too many"}}`, rpcOf(body).ID)
	}})
	ask(t, s, "raw")
	assert.Equal(t, toolhealth.OutcomeThrottled, w.said().Outcome)
	assert.Equal(t, 7*time.Second, w.said().RetryAfter)
	assert.EqualValues(t, 1, r.dials.Load())
}

func TestSession_BadStatusOfOneCallEndsThatCall(t *testing.T) {
	for _, code := range []int{400, 401, 403, 404, 408, 409, 413, 500, 501, 503, 529} {
		for _, header := range []string{"", "WWW-Authenticate"} {
			if header != "" && code != 401 && code != 403 {
				continue
			}
			t.Run(strings.TrimSpace(fmt.Sprint(code, " ", header)), func(t *testing.T) {
				versions(t, func(t *testing.T, version string) {
					r, w := newRemote(t, version), newWorld(t, nil)
					s := w.openRemote(r, version)
					headers := []string{}
					if header != "" {
						headers = append(headers, header, "Bearer")
					}
					r.fault.Store(&fault{answer: status(code, headers...)})
					text, isError := ask(t, s, "raw")
					assert.True(t, isError)
					if code == 401 || code == 403 {
						assert.Equal(t, "tool failed: access was refused", text)
						assert.EqualValues(t, 1, w.health("raw").RejectedByKind[toolhealth.KindUnauthorized])
					}
					assert.Equal(t, toolhealth.StateClosed, w.health("raw").State)
					r.fault.Store(nil)
					text, isError = ask(t, s, "raw")
					assert.False(t, isError, text)
					if header == "" && !(code == 404 && version == legacy) {
						assert.EqualValues(t, 1, r.dials.Load(), "the session is kept")
					}
				})
			})
		}
	}
}

func TestSession_ServersWordsOfBareStatus(t *testing.T) {
	r, w := newRemote(t, legacy), newWorld(t, nil)
	s := w.openRemote(r, legacy)
	r.fault.Store(&fault{answer: func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the argument city is too long", http.StatusBadRequest)
	}})
	text, isError := ask(t, s, "raw")
	assert.True(t, isError)
	assert.Contains(t, text, "the argument city is too long")
}

// forgotten are the bodies by which servers say that they do not know a session.
var forgotten = map[string]struct {
	code int
	body string
}{
	"go-sdk":                {404, "session not found\n"},
	"TypeScript":            {404, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`},
	"TypeScript, older":     {400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`},
	"Python":                {404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Not Found: Invalid or expired session ID"}}`},
	"Python, older":         {404, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Not Found: Session has been terminated"}}`},
	"Python, its manager":   {400, "Bad Request: No valid session ID provided"},
	"a gateway with the id": {200, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":"Session not found"}}`},
}

func TestSession_ForgottenByServer(t *testing.T) {
	for who, answer := range forgotten {
		t.Run(who, func(t *testing.T) {
			r, w := newRemote(t, legacy), newWorld(t, nil)
			s := w.openRemote(r, legacy)
			ask(t, s, "raw")
			r.hits.Store(0)
			lostSession := ""
			r.fault.Store(&fault{answer: func(rw http.ResponseWriter, q *http.Request) {
				id := q.Header.Get("Mcp-Session-Id")
				if lostSession == "" {
					lostSession = id
				}
				body, _ := io.ReadAll(q.Body)
				q.Body = io.NopCloser(strings.NewReader(string(body)))
				if id != lostSession { // a new session
					r.sound.ServeHTTP(rw, q)
					return
				}
				text := answer.body
				if strings.Contains(text, "%s") {
					text = fmt.Sprintf(text, rpcOf(body).ID)
				}
				if strings.HasPrefix(text, "{") {
					rw.Header().Set("Content-Type", "application/json")
				}
				rw.WriteHeader(answer.code)
				_, _ = io.WriteString(rw, text)
			}})
			text, isError := ask(t, s, "raw")
			answered := who == "Python, older" || who == "a gateway with the id"
			require.Equal(t, answered, isError, text)
			if answered { // it is an answer to the call: the tool may have acted, for all that is known
				assert.Equal(t, "tool failed: the tool cannot be reached", text)
				assert.Equal(t, toolhealth.KindConnection, w.said().Kind)
				assert.Equal(t, 1, w.group().ConsecutiveFailures)
				text, isError = ask(t, s, "raw")
			}
			assert.False(t, isError, text)
			assert.EqualValues(t, 2, r.hits.Load(), "one that was not known, and one in a new session")
			assert.Zero(t, w.group().ConsecutiveFailures)
		})
	}
}

func TestSession_ServerRestarts(t *testing.T) {
	r, w := newRemote(t, legacy), newWorld(t, nil)
	s := w.openRemote(r, legacy)
	ask(t, s, "raw")
	server := newServer()
	addRaw(server, "raw", readOnly, good)
	sound := handlerOf(t, server, legacy) // knows nothing of the session
	r.fault.Store(&fault{answer: sound.ServeHTTP, all: true})
	text, isError := ask(t, s, "raw")
	assert.False(t, isError, text)
	assert.Equal(t, "fine", text)
	assert.Zero(t, w.health("raw").Failures)
}

func TestSession_ServerIsAway(t *testing.T) {
	for _, name := range []string{"reset", "cut", "hangs"} {
		t.Run(name, func(t *testing.T) {
			versions(t, func(t *testing.T, version string) {
				back := make(chan struct{})
				answer := map[string]http.HandlerFunc{"reset": reset, "cut": cut, "hangs": func(_ http.ResponseWriter, q *http.Request) {
					select {
					case <-q.Context().Done():
					case <-back:
						cut(nil, nil)
					}
				}}[name]
				r := newRemote(t, version)
				w := newWorld(t, func(s *toolhealth.Settings) {
					s.Policy.Timeout = 300 * time.Millisecond
					s.Breaker.RecoveryDuration, s.GroupBreaker.RecoveryDuration = 300*time.Millisecond, 300*time.Millisecond
				})
				s := w.openRemote(r, version)
				r.fault.Store(&fault{answer: answer, all: true})
				for range 4 {
					_, isError := ask(t, s, "raw")
					assert.True(t, isError)
				}
				assert.EqualValues(t, 3, w.health("raw").Failures)
				assert.EqualValues(t, 1, w.health("raw").Refused)
				r.fault.Store(nil)
				close(back)
				soon(t, func() bool { _, isError := ask(t, s, "raw"); return !isError })
				assert.Equal(t, toolhealth.StateClosed, w.health("raw").State)
				assert.Equal(t, toolhealth.StateClosed, w.group().State)
			})
		})
	}
}

func TestSession_OverloadedServerOpensTool(t *testing.T) {
	r, w := newRemote(t, legacy), newWorld(t, nil)
	s := w.openRemote(r, legacy)
	r.fault.Store(&fault{answer: status(503)})
	for range 4 {
		ask(t, s, "raw")
	}
	h := w.health("raw")
	assert.Equal(t, toolhealth.StateOpen, h.State)
	assert.EqualValues(t, 3, h.ByKind[toolhealth.KindServerError])
	assert.EqualValues(t, 1, h.Refused)
	assert.EqualValues(t, 3, r.hits.Load())
	assert.Equal(t, toolhealth.StateClosed, w.group().State)
}

func TestSession_AnswerIsLostAfterToolHasActed(t *testing.T) {
	var mails atomic.Int64
	server := newServer()
	addRaw(server, "send", &mcp.ToolAnnotations{}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		mails.Add(1)
		return good(ctx, req)
	})
	sound := handlerOf(t, server, legacy)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		q.Body = io.NopCloser(strings.NewReader(string(body)))
		if rpcOf(body).Method != "tools/call" {
			sound.ServeHTTP(w, q)
			return
		}
		sound.ServeHTTP(discarded{http.Header{}}, q)
		cut(nil, nil)
	}))
	w := newWorld(t, func(s *toolhealth.Settings) { s.Policy.MaxAttempts = 2 })
	s := w.openVersion(legacy, w.client(), overHTTP(url, mcphealth.Transport(newBase(t))))
	list(t, s)
	res, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "send"})
	require.NoError(t, err)
	assert.Equal(t, "tool outcome unknown: the action may have been carried out, check before repeating it", textOf(t, res))
	assert.EqualValues(t, 1, mails.Load())
	said, err := json.Marshal(res.Meta[mcphealth.MetaKey])
	require.NoError(t, err)
	assert.Contains(t, string(said), `"tool_failure:outcome_unknown"`)
}

// discarded takes an answer that nobody hears.
type discarded struct{ header http.Header }

func (d discarded) Header() http.Header         { return d.header }
func (d discarded) Write(p []byte) (int, error) { return len(p), nil }
func (d discarded) WriteHeader(int)             {}

func TestTransport_LeavesToSDKWhatItUnderstands(t *testing.T) {
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		session string
		method  string
	}{
		"JSON-RPC error": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`)
		}},
		"404 in a session":            {answer: status(404), session: "s"},
		"401 that says how to log in": {answer: status(401, "WWW-Authenticate", "Bearer")},
		"a stream that is not there":  {answer: status(405), method: http.MethodGet},
		"200":                         {answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") }},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, c.answer)
			method := c.method
			if method == "" {
				method = http.MethodPost
			}
			req, err := http.NewRequest(method, url, strings.NewReader("{}"))
			require.NoError(t, err)
			if c.session != "" {
				req.Header.Set("Mcp-Session-Id", c.session)
			}
			want, err := newBase(t).RoundTrip(req.Clone(context.Background()))
			require.NoError(t, err)
			defer want.Body.Close()
			wantBody, err := io.ReadAll(want.Body)
			require.NoError(t, err)
			req.Body = io.NopCloser(strings.NewReader("{}"))
			got, err := mcphealth.Transport(newBase(t)).RoundTrip(req)
			require.NoError(t, err)
			defer got.Body.Close()
			gotBody, err := io.ReadAll(got.Body)
			require.NoError(t, err)
			assert.Equal(t, want.StatusCode, got.StatusCode)
			assert.Equal(t, string(wantBody), string(gotBody))
		})
	}
}

func TestTransport_BareStatusIsAnError(t *testing.T) {
	url := serve(t, status(403, "Retry-After", "9"))
	client := &http.Client{Transport: mcphealth.Transport(newBase(t))}
	resp, err := client.Post(url, "application/json", strings.NewReader("{}"))
	if err == nil {
		_ = resp.Body.Close()
	}
	var said *toolhealth.StatusError
	require.ErrorAs(t, err, &said)
	assert.Equal(t, 403, said.StatusCode)
	assert.Equal(t, []string{"9"}, said.Header["Retry-After"])
	client.CloseIdleConnections()
}
