package mcphealth_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/mcphealth"
	"github.com/toolhealth/toolhealth/internal/race"
)

// names are those of the 40 tools of a child.
func names(s *mcphealth.Session) []string {
	all := make([]string, 40)
	for i := range all {
		all[i] = s.Name(fmt.Sprintf("t%d", i))
	}
	return all
}

func TestSession_DeadChildBehindManyTools(t *testing.T) {
	const cooldown = 300 * time.Millisecond
	w := newWorld(t, func(s *toolhealth.Settings) { s.GroupBreaker.RecoveryDuration = cooldown })
	c := newChildren(t)
	s := w.open(w.client(), c.transport)
	list(t, s)
	ask(t, s, "t0")

	c.setMode("exit")
	require.NoError(t, c.last().Kill())
	soon(t, func() bool { return syscall.Kill(c.last().Pid, 0) != nil }) // gone, and nothing is left of it
	for i := range 40 {
		text, isError := ask(t, s, fmt.Sprintf("t%d", i))
		require.True(t, isError)
		if i < 2 {
			assert.Equal(t, "tool failed: the tool cannot be reached", text)
		} else { // the third failure has opened the breaker
			assert.Contains(t, text, "tool temporarily unavailable: circuit breaker open")
		}
	}
	var failures, refusals uint64
	for _, h := range w.registry.All() {
		failures, refusals = failures+h.Failures, refusals+h.Refused
	}
	assert.EqualValues(t, 3, failures)
	assert.EqualValues(t, 37, refusals)
	assert.Equal(t, 3, w.group().ConsecutiveFailures)
	assert.Equal(t, 4, c.started(), "one child, and three that left at once")
	assert.Equal(t, toolhealth.StateOpen, w.group().State)
	for i := 3; i < 40; i++ {
		assert.Zero(t, w.health(fmt.Sprintf("t%d", i)).ConsecutiveFailures)
	}
	_, out := w.guard.Offer(names(s))
	assert.Len(t, out, 40)

	c.setMode("serve")
	soon(t, func() bool { _, out := w.guard.Offer(names(s)); return len(out) == 0 })
	for i := range 40 {
		text, isError := ask(t, s, fmt.Sprintf("t%d", i))
		assert.False(t, isError, text)
	}
	assert.Equal(t, toolhealth.StateClosed, w.group().State)
	for i := range 40 {
		assert.Zero(t, w.health(fmt.Sprintf("t%d", i)).ConsecutiveFailures)
	}
	assert.Equal(t, 5, c.started())
}

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

func TestSession_DropsChildThatDoesNotRead(t *testing.T) {
	for _, detach := range []bool{false, true} {
		t.Run(fmt.Sprintf("Detach %v", detach), func(t *testing.T) {
			limit := slow(200 * time.Millisecond)
			w := newWorld(t, func(s *toolhealth.Settings) { s.Policy.Timeout, s.Policy.Detach = limit, detach })
			c := newChildren(t)
			s := w.open(w.client(), c.transport)
			list(t, s)
			require.NoError(t, c.last().Signal(syscall.SIGSTOP))

			begun := time.Now()
			res, err := s.CallTool(context.Background(), &mcp.CallToolParams{
				Name: "t0", Arguments: map[string]any{"x": strings.Repeat("y", 1<<20)}, // more than a pipe holds
			})
			took := time.Since(begun)
			require.NoError(t, err)
			assert.Contains(t, textOf(t, res), "no answer in time")
			if detach {
				assert.Less(t, took, limit+100*time.Millisecond+noise)
				assert.EqualValues(t, 1, w.health("t0").Guard.Abandoned)
			}
			assert.Less(t, took, 5*time.Second)
			assert.EqualValues(t, 1, w.health("t0").ByKind[toolhealth.KindTimeout])
			soon(t, func() bool { return w.health("t0").Guard.Abandoned == 0 })

			list(t, s) // a process may take longer to start than a call may
			text, isError := ask(t, s, "t0")
			assert.False(t, isError, text)
			assert.Equal(t, 2, c.started())
		})
	}
}

// noise is how late a busy machine may be.
const noise = 400 * time.Millisecond

// slow returns the time for what takes d, which is more under the race detector.
func slow(d time.Duration) time.Duration {
	if race.Enabled {
		return 8 * d
	}
	return d
}

func TestSession_ConnectsAnewBeforeProbe(t *testing.T) {
	w := newWorld(t, func(s *toolhealth.Settings) {
		s.Policy.Timeout = slow(200 * time.Millisecond)
		s.Breaker.RecoveryDuration = 200 * time.Millisecond
	})
	c := newChildren(t)
	s := w.open(w.client(), c.transport)
	list(t, s)
	require.NoError(t, c.last().Signal(syscall.SIGSTOP)) // it takes small calls, and answers none
	for range 3 {
		ask(t, s, "t0")
	}
	assert.EqualValues(t, 3, w.health("t0").ByKind[toolhealth.KindTimeout])
	assert.Equal(t, 1, c.started())
	assert.Equal(t, toolhealth.StateOpen, w.health("t0").State)
	soon(t, func() bool { return w.registry.Available("srv/t0") })
	soon(t, func() bool { // a process may take longer to start than a probe: then it is there for the next one
		_, isError := ask(t, s, "t0")
		return !isError
	})
	assert.Equal(t, toolhealth.StateClosed, w.health("t0").State)
	assert.Equal(t, 2, c.started())
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
