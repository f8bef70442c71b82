package mcpgohealth

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/toolhealth/toolhealth"
)

// calls are the calls that are running on a connection, by their progress tokens.
type calls struct {
	mu   sync.Mutex
	last int
	ctxs map[string]context.Context
}

// callKey is the key of the ctx of a call: its presence says that a ctx belongs to one.
type callKey struct{}

// begin registers a call, and asks the server for its progress.
func (l *calls) begin(ctx context.Context, q *mcp.CallToolRequest) (context.Context, func()) {
	ctx = context.WithValue(ctx, callKey{}, true)
	l.mu.Lock()
	defer l.mu.Unlock()
	var meta mcp.Meta
	if q.Params.Meta != nil {
		meta = *q.Params.Meta
	}
	if meta.ProgressToken == nil {
		l.last++
		meta.ProgressToken = fmt.Sprintf("toolhealth-%d", l.last)
	}
	q.Params.Meta = &meta
	token := fmt.Sprint(meta.ProgressToken)
	if l.ctxs == nil {
		l.ctxs = map[string]context.Context{}
	}
	l.ctxs[token] = ctx
	return ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.ctxs[token] == ctx { // not another call with the same token
			delete(l.ctxs, token)
		}
	}
}

// progress keeps the call alive to which a notification belongs.
func (l *calls) progress(n mcp.JSONRPCNotification) {
	l.mu.Lock()
	ctx := l.ctxs[fmt.Sprint(n.Params.AdditionalFields["progressToken"])]
	l.mu.Unlock()
	toolhealth.KeepAlive(ctx)
}

// running returns the ctxs of all running calls.
func (l *calls) running() []context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.ctxs))
}

// pausing is an elicitation handler that stops the clocks of the call.
type pausing struct {
	client.ElicitationHandler
	conn *conn
}

// Elicit asks the person.
func (p *pausing) Elicit(ctx context.Context, q mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	paused := []context.Context{ctx}
	if ctx.Value(callKey{}) == nil {
		paused = p.conn.calls.running()
	}
	for _, ctx := range paused {
		defer toolhealth.Pause(ctx)()
	}
	return p.ElicitationHandler.Elicit(ctx, q)
}
