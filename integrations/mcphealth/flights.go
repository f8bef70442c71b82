package mcphealth

import (
	"context"
	"encoding/json"
	"maps"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhealth/toolhealth"
)

// flights are the attempts that are on their way, so that what a server says meanwhile
// finds the attempt that it is about. The zero flights are none.
type flights struct {
	mu   sync.Mutex
	last uint64 // token that was given out
	all  map[flight]context.Context
}

// flight is the place of an attempt: a session and the token of its progress, as JSON.
type flight struct {
	session *mcp.ClientSession
	token   string
}

// inFlight is the key in a ctx of the params of the request that it was made for.
type inFlight struct{}

// begin returns the ctx and the params of an attempt of a tool, with a token for its
// progress unless the caller has given one. The caller's params stay as they are.
func (f *flights) begin(ctx context.Context, session *mcp.ClientSession, tool string, p *mcp.CallToolParams) (context.Context, *mcp.CallToolParams, func()) {
	q := *p
	q.Name, q.Meta = tool, maps.Clone(p.Meta)
	f.mu.Lock()
	defer f.mu.Unlock()
	if q.GetProgressToken() == nil {
		f.last++
		q.SetProgressToken("toolhealth-" + strconv.FormatUint(f.last, 10))
	}
	at := flight{session, tokenText(q.GetProgressToken())}
	if f.all == nil {
		f.all = make(map[flight]context.Context)
	}
	f.all[at] = ctx
	return context.WithValue(ctx, inFlight{}, &q), &q, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.all, at)
	}
}

// tokenText is the same for a token and for what a server makes of it.
func tokenText(token any) string {
	text, err := json.Marshal(token)
	if err != nil { // no token
		return ""
	}
	return string(text)
}

// progress says that an attempt is alive.
func (f *flights) progress(session *mcp.ClientSession, token any) {
	f.mu.Lock()
	ctx := f.all[flight{session, tokenText(token)}]
	f.mu.Unlock()
	toolhealth.KeepAlive(ctx)
}

// pause stops the clocks of the attempt of the ctx. The protocol up to 2025-11-25 does not
// say in which call a person is asked: then those of all attempts of the session.
func (f *flights) pause(ctx context.Context, session *mcp.ClientSession) (resume func()) {
	if ctx.Value(inFlight{}) != nil {
		return toolhealth.Pause(ctx)
	}
	f.mu.Lock()
	var paused []context.Context
	for at, ctx := range f.all {
		if at.session == session {
			paused = append(paused, ctx)
		}
	}
	f.mu.Unlock()
	resumes := make([]func(), len(paused))
	for i, ctx := range paused {
		resumes[i] = toolhealth.Pause(ctx)
	}
	return func() {
		for _, resume := range resumes {
			resume()
		}
	}
}
