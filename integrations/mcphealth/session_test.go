package mcphealth_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/mcphealth"
	"github.com/toolhealth/toolhealth/internal/race"
)

func TestSession_ComesBackAfterChildHasExited(t *testing.T) {
	for _, tool := range []string{"exit", "mute"} {
		t.Run(tool, func(t *testing.T) {
			w := newWorld(t, nil)
			c := newChildren(t)
			s := w.open(w.client(), c.transport)
			list(t, s)
			text, isError := ask(t, s, tool)
			assert.True(t, isError)
			if tool == "exit" { // it has no annotations
				assert.Contains(t, text, "tool outcome unknown")
			} else {
				assert.Equal(t, "tool failed: the tool cannot be reached", text)
			}
			assert.Equal(t, toolhealth.KindConnection, w.said().Kind)
			assert.Equal(t, 1, w.group().ConsecutiveFailures)
			text, isError = ask(t, s, "t0")
			assert.False(t, isError, text)
			assert.Equal(t, 2, c.started())
			assert.Zero(t, w.group().ConsecutiveFailures)
		})
	}
}

// slow returns the time for what takes d, which is more under the race detector.
func slow(d time.Duration) time.Duration {
	if race.Enabled {
		return 8 * d
	}
	return d
}

func TestSession_KeepsWhatWorksBeforeProbe(t *testing.T) {
	var ill atomic.Bool
	ill.Store(true)
	server := newServer()
	addRaw(server, "raw", readOnly, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if ill.Load() {
			return nil, errDown
		}
		return good(ctx, req)
	})
	w := newWorld(t, func(s *toolhealth.Settings) { s.Breaker.RecoveryDuration = 50 * time.Millisecond })
	var dials atomic.Int64
	connect := inMemory(t, server)
	s := w.open(w.client(), func(ctx context.Context) (mcp.Transport, error) { dials.Add(1); return connect(ctx) })
	list(t, s)
	for range 3 {
		ask(t, s, "raw")
	}
	ill.Store(false)
	soon(t, func() bool { return w.registry.Available("srv/raw") })
	text, isError := ask(t, s, "raw")
	assert.False(t, isError, text)
	assert.EqualValues(t, 1, dials.Load(), "the server has answered all the time")
}

func TestSession_KeepsServerWithSlowTool(t *testing.T) {
	versions(t, func(t *testing.T, version string) {
		well := make(chan struct{})
		server := newServer()
		addRaw(server, "raw", readOnly, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-well
			return good(ctx, req)
		})
		w := newWorld(t, func(s *toolhealth.Settings) {
			s.Policy.Timeout, s.Breaker.RecoveryDuration = slow(100*time.Millisecond), 300*time.Millisecond
		})
		var dials atomic.Int64
		url := serve(t, handlerOf(t, server, version))
		connect := overHTTP(url, mcphealth.Transport(newBase(t)))
		s := w.openVersion(version, w.client(), func(ctx context.Context) (mcp.Transport, error) { dials.Add(1); return connect(ctx) })
		list(t, s)
		for range 3 {
			ask(t, s, "raw")
		}
		assert.EqualValues(t, 3, w.health("raw").ByKind[toolhealth.KindTimeout])
		close(well)
		soon(t, func() bool { _, isError := ask(t, s, "raw"); return !isError })
		assert.EqualValues(t, 1, dials.Load(), "the server has answered pings")
	})
}

func TestSession_OneConnectsForAll(t *testing.T) {
	server := newServer()
	addRaw(server, "raw", readOnly, good)
	w := newWorld(t, nil)
	var dials atomic.Int64
	connect := inMemory(t, server)
	s := w.open(w.client(), func(ctx context.Context) (mcp.Transport, error) { dials.Add(1); return connect(ctx) })
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			_, isError := ask(t, s, "raw")
			assert.False(t, isError)
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1, dials.Load())
}

func TestSession_WaitForConnectionEndsWithAttempt(t *testing.T) {
	w := newWorld(t, func(s *toolhealth.Settings) { s.Policy.Timeout = 50 * time.Millisecond })
	s := w.open(w.client(), func(ctx context.Context) (mcp.Transport, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			text, isError := ask(t, s, "raw")
			assert.True(t, isError)
			assert.NotContains(t, text, "outcome unknown", "the call was surely not sent")
		})
	}
	wg.Wait()
	assert.EqualValues(t, toolhealth.KindTimeout, w.said().Kind)
	assert.True(t, w.said().NotSent)
}

func TestSession_ConnectTimeoutEndsDial(t *testing.T) {
	w := newWorld(t, nil)
	s, err := w.tools.Open(mcphealth.Server{
		Name: "srv", Client: w.client(), ConnectTimeout: 50 * time.Millisecond,
		Transport: func(ctx context.Context) (mcp.Transport, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	require.NoError(t, err)
	defer s.Close()
	ask(t, s, "raw")
	assert.Equal(t, toolhealth.Verdict{
		Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout, Retryable: true, NotSent: true,
	}, w.said())
}

func TestSession_PanicOfTransportIsAnError(t *testing.T) {
	w := newWorld(t, nil)
	s := w.open(w.client(), func(context.Context) (mcp.Transport, error) { panic("no way") })
	text, isError := ask(t, s, "raw")
	assert.True(t, isError)
	assert.NotContains(t, text, "no way")
	_, err := s.ListTools(context.Background())
	assert.ErrorContains(t, err, "no way")
}

func TestSession_DialErrorsAreTheServers(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want toolhealth.Verdict
	}{
		"no such program": {errors.New("exec: \"server\": executable file not found in $PATH"), toolhealth.Verdict{
			Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection, Retryable: true, NotSent: true}},
		"503": {&toolhealth.StatusError{StatusCode: 503, Header: map[string][]string{"Retry-After": {"7"}}}, toolhealth.Verdict{
			Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection, Retryable: true, NotSent: true, RetryAfter: 7 * time.Second}},
		"429": {&toolhealth.StatusError{StatusCode: 429, Header: map[string][]string{"Retry-After": {"7"}}}, toolhealth.Verdict{
			Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, Retryable: true, NotSent: true, RetryAfter: 7 * time.Second}},
		"401": {&toolhealth.StatusError{StatusCode: 401}, toolhealth.Verdict{
			Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindUnauthorized, NotSent: true}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			s := w.open(w.client(), func(context.Context) (mcp.Transport, error) { return nil, c.err })
			ask(t, s, "raw")
			assert.Equal(t, c.want, w.said())
		})
	}
}

func TestSession_CloseEndsCalls(t *testing.T) {
	for _, how := range []string{"child", "in memory"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t, nil)
			entered := make(chan struct{})
			server := newServer()
			addRaw(server, "wait", nil, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				close(entered)
				<-ctx.Done()
				return nil, ctx.Err()
			})
			transport := inMemory(t, server)
			if how == "child" {
				c := newChildren(t)
				transport = c.transport
				go func() { time.Sleep(300 * time.Millisecond); close(entered) }() // no word comes out of it
			}
			s := w.open(w.client(), transport)
			list(t, s)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				tool := map[string]string{"child": "mute", "in memory": "wait"}[how]
				_, _ = s.CallTool(context.Background(), &mcp.CallToolParams{Name: tool})
			}()
			<-entered
			_ = s.Close()
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
				t.Fatal("the call goes on")
			}
			_, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "wait"})
			assert.ErrorContains(t, err, "closed")
			_, err = s.ListTools(context.Background())
			assert.Error(t, err)
			assert.NoError(t, s.Close())
		})
	}
}

func TestTools_OpenNamesWhatIsWrong(t *testing.T) {
	w := newWorld(t, nil)
	transport := inMemory(t, newServer())
	for want, server := range map[string]mcphealth.Server{
		`Server.Name is ""`:                 {Client: w.client(), Transport: transport},
		`Server.Name is "a/b"`:              {Name: "a/b", Client: w.client(), Transport: transport},
		`Server.Client of "srv" is nil`:     {Name: "srv", Transport: transport},
		`Server.Transport of "srv" is nil`:  {Name: "srv", Client: w.client()},
		`Server.ConnectTimeout of "srv"`:    {Name: "srv", Client: w.client(), Transport: transport, ConnectTimeout: -1},
		`session of the server "x" is open`: {Name: "x", Client: w.client(), Transport: transport},
	} {
		if server.Name == "x" {
			s, err := w.tools.Open(server)
			require.NoError(t, err)
			defer s.Close()
		}
		_, err := w.tools.Open(server)
		assert.ErrorContains(t, err, want)
	}
}
