package mcphealth_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// reporting says every few milliseconds that it makes progress, for as long as it takes.
func reporting(every, long time.Duration) func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		token := req.Params.GetProgressToken()
		tick, end := time.NewTicker(every), time.After(long)
		defer tick.Stop()
		for n := 0.0; ; n++ {
			select {
			case <-tick.C:
				_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: n})
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-end:
				return textResult("done"), nil
			}
		}
	}
}

func TestTools_ProgressKeepsAttemptAlive(t *testing.T) {
	bothWays(t, func(t *testing.T, connect func(*world, *mcp.Client, *mcp.Server) caller) {
		server := newServer()
		addRaw(server, "long", readOnly, reporting(50*time.Millisecond, 1500*time.Millisecond))
		w := newWorld(t, func(s *toolhealth.Settings) { s.Policy.Timeout = 600 * time.Millisecond })
		var heard atomic.Int64
		client := w.tools.NewClient(implementation, &mcp.ClientOptions{
			ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { heard.Add(1) },
		})
		c := connect(w, client, server)
		text, isError := ask(t, c, "long")
		assert.False(t, isError, text)
		assert.Equal(t, "done", text)
		assert.Positive(t, heard.Load(), "the host's own handler")
	})
}

func TestTools_ProgressRenewsLeaseOfProbe(t *testing.T) {
	server := newServer()
	var ill atomic.Bool
	ill.Store(true)
	slow := reporting(50*time.Millisecond, 1500*time.Millisecond)
	addRaw(server, "long", readOnly, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if ill.Load() {
			return nil, errDown
		}
		return slow(ctx, req)
	})
	w := newWorld(t, func(s *toolhealth.Settings) {
		s.Policy.Timeout = toolhealth.Off
		s.Breaker.ProbeTimeout, s.Breaker.RecoveryDuration = 600*time.Millisecond, 20*time.Millisecond
	})
	s := w.open(w.client(), inMemory(t, server))
	list(t, s)
	for range 3 {
		ask(t, s, "long")
	}
	ill.Store(false)
	soon(t, func() bool { return w.registry.Available("srv/long") })
	text, isError := ask(t, s, "long")
	assert.False(t, isError, text)
	assert.Equal(t, toolhealth.StateClosed, w.health("long").State)
}

func TestTools_CallersTokenOfProgressIsKept(t *testing.T) {
	server := newServer()
	addRaw(server, "long", readOnly, reporting(50*time.Millisecond, 1200*time.Millisecond))
	w := newWorld(t, func(s *toolhealth.Settings) { s.Policy.Timeout = 500 * time.Millisecond })
	var token atomic.Value
	client := w.tools.NewClient(implementation, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			token.Store(req.Params.ProgressToken)
		},
	})
	s := w.open(client, inMemory(t, server))
	list(t, s)
	params := &mcp.CallToolParams{Name: "long", Meta: mcp.Meta{"progressToken": int64(7_000_000)}}
	res, err := s.CallTool(context.Background(), params)
	require.NoError(t, err)
	assert.Equal(t, "done", textOf(t, res))
	assert.EqualValues(t, 7_000_000, token.Load())
	assert.Equal(t, mcp.Meta{"progressToken": int64(7_000_000)}, params.Meta, "the caller's params")
}

// asking asks a person before it answers, in the way of the protocol.
func asking(version string) func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	question := &mcp.ElicitParams{Message: "sure?", RequestedSchema: object}
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if version == modern {
			if len(req.Params.InputResponses) == 0 {
				return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": question}}, nil
			}
			return textResult("done"), nil
		}
		if _, err := req.Session.Elicit(ctx, question); err != nil {
			return nil, err
		}
		return textResult("done"), nil
	}
}

func TestTools_ElicitationStopsClocks(t *testing.T) {
	const thinking = 900 * time.Millisecond
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) {
			server := newServer()
			addRaw(server, "ask", nil, asking(version))
			w := newWorld(t, func(s *toolhealth.Settings) {
				s.Policy.Timeout, s.Policy.MaxAttempts = thinking/3, 2
			})
			var asked atomic.Int64
			client := w.tools.NewClient(implementation, &mcp.ClientOptions{
				ElicitationHandler: func(ctx context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					asked.Add(1)
					select {
					case <-time.After(thinking): // a person
					case <-ctx.Done():
						return nil, ctx.Err()
					}
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
				},
			})
			s := w.openVersion(version, client, inMemory(t, server))
			list(t, s)
			text, isError := ask(t, s, "ask")
			assert.False(t, isError, text)
			assert.Equal(t, "done", text)
			assert.EqualValues(t, 1, asked.Load())
			h := w.health("ask")
			assert.EqualValues(t, 1, h.Successes)
			assert.Zero(t, h.Failures)
			assert.Less(t, h.Average, thinking/3)
		})
	}
}

func TestTools_QuestionIsLeftToHost(t *testing.T) {
	server := newServer()
	addRaw(server, "ask", nil, asking(modern))
	w := newWorld(t, nil)
	client := w.tools.NewClient(implementation, &mcp.ClientOptions{MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true}})
	s := w.openVersion(modern, client, inMemory(t, server))
	list(t, s)
	res, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "ask"})
	require.NoError(t, err)
	assert.True(t, res.NeedsInput())
	assert.Len(t, res.InputRequests, 1)
	assert.EqualValues(t, 1, w.health("ask").Neutral)
}

func TestTools_ElicitationErrorEndsRun(t *testing.T) {
	server := newServer()
	addRaw(server, "ask", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, mcp.URLElicitationRequiredError([]*mcp.ElicitParams{{Mode: "url", URL: "https://example.com", ElicitationID: "1"}})
	})
	w := newWorld(t, nil)
	s := w.open(w.client(), inMemory(t, server))
	list(t, s)
	_, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "ask"})
	require.Error(t, err, "a person has to act first")
	assert.EqualValues(t, 1, w.health("ask").Neutral)
}
