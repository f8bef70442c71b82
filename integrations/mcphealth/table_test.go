package mcphealth_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/mcphealth"
)

// published is the table of what Classify says of the errors of SDKs.
const published = "../../internal/proof/verdicts/RESULTS.md"

// row is one row of the table for this SDK.
type row struct{ form, failure, want string }

func (r row) String() string { return r.form + " | " + r.failure }

// rowsOf reads the rows of this SDK and what each failure means.
func rowsOf(t testing.TB) []row {
	text, err := os.ReadFile(published)
	require.NoError(t, err)
	var rows []row
	form := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			form = ""
			if name, ok := strings.CutPrefix(title, "MCP go-sdk: "); ok {
				form = name
			}
			continue
		}
		if form == "" || !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.ReplaceAll(strings.Trim(line, "| "), `\|`, "\x00"), " | ")
		if name := cells[0]; name != "failure" {
			want := strings.ReplaceAll(cells[len(cells)-1], "\x00", "|")
			rows = append(rows, row{form, name, want})
		}
	}
	return rows
}

// adapted are rows that mean something else where a session comes back.
var adapted = map[string]string{
	// The server has not taken up the call, which is more than the table knows.
	"session lost: 404 with text":               "failure/connection/retry/notsent",
	"session lost: 404 with -32001 and id null": "failure/connection/retry/notsent",
	"session lost: 404 with -32600 and id null": "failure/connection/retry/notsent",
	"session lost: 400 with text":               "failure/connection/retry/notsent",
	"session lost: 400 with -32000 and id null": "failure/connection/retry/notsent",
	// The session is not lost.
	"401, then another call": "rejected/unauthorized",
	// A new child is started, which exits, too.
	"child exits, then another call": "failure/connection/retry",
}

// TestTable_Verdicts plays every row of the table through the adapter.
func TestTable_Verdicts(t *testing.T) {
	rows := rowsOf(t)
	require.Greater(t, len(rows), 200)
	known := failures()
	var (
		mu    sync.Mutex
		wrong []string
		wg    sync.WaitGroup
		slots = make(chan struct{}, 6)
	)
	for _, r := range rows {
		if want, ok := adapted[r.failure]; ok {
			r.want = want
		}
		if r.failure == "404, then another call" && strings.Contains(r.form, modern) { // there are no sessions
			r.want = "rejected/not_found"
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			t.Run(r.String(), func(t *testing.T) {
				v := play(t, r, known)
				if !fits(v, r.want) {
					mu.Lock()
					defer mu.Unlock()
					wrong = append(wrong, fmt.Sprintf("%v: %s in place of %s", r, words(v), r.want))
				}
			})
		})
	}
	wg.Wait()
	slices.Sort(wrong)
	t.Logf("%d of %d rows are wrong\n%s", len(wrong), len(rows), strings.Join(wrong, "\n"))
	assert.LessOrEqual(t, len(wrong)*30, len(rows), "at most one in thirty")
}

// play returns the verdict on the last attempt of the row.
func play(t *testing.T, r row, known map[string]failure) toolhealth.Verdict {
	w := newWorld(t, func(s *toolhealth.Settings) {
		s.Breaker.FailureThreshold, s.Breaker.MaxStatedWait, s.GroupBreaker.FailureThreshold = toolhealth.Off, toolhealth.Off, toolhealth.Off
		s.DeadlineFloor = toolhealth.Off
	})
	f := known[r.failure]
	var c caller
	arm := func() {}
	tool := "t"
	switch {
	case strings.HasPrefix(r.form, "HTTP, "):
		_, ok := known[r.failure]
		require.True(t, ok, "a row that is not known here")
		c, arm = playHTTP(t, w, r, f)
	case r.form == "in memory":
		c, f.caller = playInMemory(t, w, r.failure)
		if r.failure == "unknown tool" {
			tool = "nonesuch"
		}
	case r.form == "child process":
		c, f.caller = playChild(t, w, r.failure)
	default:
		t.Fatalf("a form that is not known here: %s", r.form)
	}
	arm()
	if strings.HasSuffix(r.failure, again) {
		_, _ = c.CallTool(context.Background(), &mcp.CallToolParams{Name: tool})
	}
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if f.caller != nil {
		ctx, cancel = f.caller()
	}
	defer cancel()
	_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: tool})
	if strings.Contains(r.failure, "caller cancels") {
		assert.Error(t, err, "a caller's cancel ends the run")
	} else if err != nil { // then a person has to be asked
		assert.Equal(t, "neutral/denied", r.want, err)
	}
	return w.said()
}

// playHTTP connects to a server over HTTP. What arm begins meets tool calls only.
func playHTTP(t *testing.T, w *world, r row, f failure) (c caller, arm func()) {
	version := legacy
	if strings.Contains(r.form, modern) {
		version = modern
	}
	server := newServer()
	addRaw(server, "t", readOnly, good)
	sound := handlerOf(t, server, version)
	url := serve(t, quiet(func(rw http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		q.Body = io.NopCloser(bytes.NewReader(body))
		rpc := rpcOf(body)
		switch {
		case q.URL.Path == loginPath:
			_, _ = io.WriteString(rw, page)
		case rpc.Method != "tools/call" || f.answer == nil:
			sound.ServeHTTP(rw, q)
		default:
			f.answer(&exchange{w: rw, r: q, id: string(rpc.ID), stream: strings.HasSuffix(r.form, ", stream")})
		}
	}))
	way := &switching{sound: newBase(t), url: url}
	client := &http.Client{Transport: mcphealth.Transport(way), Timeout: f.limit}
	s := w.openVersion(version, w.client(), func(context.Context) (mcp.Transport, error) {
		return &mcp.StreamableClientTransport{Endpoint: url, MaxRetries: -1, DisableStandaloneSSE: true, HTTPClient: client}, nil
	})
	list(t, s)
	return s, func() {
		next := http.RoundTripper(newBase(t))
		if f.way != nil {
			next = f.way(t, next.(*http.Transport), strings.TrimPrefix(url, "http://"))
		}
		way.broken.Store(&next)
	}
}

// quiet is a handler that may end connections.
type quiet http.HandlerFunc

func (q quiet) ServeHTTP(w http.ResponseWriter, r *http.Request) { q(w, r) }

// switching sends tool calls another way, once there is one.
type switching struct {
	sound  http.RoundTripper
	url    string
	broken atomic.Pointer[http.RoundTripper]
}

func (s *switching) RoundTrip(q *http.Request) (*http.Response, error) {
	if way := s.broken.Load(); way != nil && (q.URL.Path == loginPath || isCall(q)) {
		return (*way).RoundTrip(q)
	}
	return s.sound.RoundTrip(q)
}

func isCall(q *http.Request) bool {
	if q.GetBody == nil {
		return false
	}
	body, err := q.GetBody()
	if err != nil {
		return false
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	return err == nil && rpcOf(text).Method == "tools/call"
}

// playInMemory connects by the middleware to a server whose tool does what the row says.
func playInMemory(t *testing.T, w *world, name string) (caller, func() (context.Context, context.CancelFunc)) {
	leave := make(chan struct{})
	server := newServer()
	addRaw(server, "t", readOnly, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		switch {
		case name == "handler returns an error":
			return nil, errors.New("no such city")
		case name == "handler returns -32603":
			return nil, &jsonrpc.Error{Code: -32603, Message: "the database is down"}
		case name == "handler says it is busy":
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{}}, nil
		case strings.HasPrefix(name, "handler hangs"):
			<-leave
		}
		return good(ctx, req)
	})
	transport, err := inMemory(t, server)(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { close(leave) })
	s, err := w.client().Connect(context.Background(), transport, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	if name == "session closed, then a call" {
		require.NoError(t, s.Close())
	}
	return s, callerOf(name)
}

// playChild connects to a process that does what the row says.
func playChild(t *testing.T, w *world, name string) (caller, func() (context.Context, context.CancelFunc)) {
	c := newChildren(t)
	c.setMode(name)
	s := w.open(w.client(), c.transport)
	list(t, s)
	return s, callerOf(name)
}

func callerOf(name string) func() (context.Context, context.CancelFunc) {
	switch {
	case strings.HasSuffix(name, "caller's deadline"):
		return deadline
	case strings.HasSuffix(name, "caller cancels"):
		return canceling(context.Canceled)
	}
	return nil
}

// words writes a verdict as the table does.
func words(v toolhealth.Verdict) string {
	text := v.Outcome.String()
	if v.Outcome != toolhealth.OutcomeSuccess {
		text += "/" + v.Kind.String()
	}
	if v.Retryable {
		text += "/retry"
	}
	if v.NotSent {
		text += "/notsent"
	}
	if v.RetryAfter > 0 {
		text += "/wait=" + v.RetryAfter.Round(time.Second).String()
	}
	return text
}

// fits reports whether the verdict is one of those that are wanted.
func fits(v toolhealth.Verdict, want string) bool {
	return slices.ContainsFunc(strings.Split(want, "|"), func(one string) bool {
		if prefix, open := strings.CutSuffix(one, "*"); open {
			return strings.HasPrefix(words(v), prefix)
		}
		return words(v) == one
	})
}
