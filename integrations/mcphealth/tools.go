package mcphealth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhealth/toolhealth"
)

// Tools are the MCP tools of one guard: those of servers that a host calls, and those
// that a server has. It is a literal whose fields are set before it is used and not
// changed after that; do not copy it. All methods may be called from any goroutine.
type Tools struct {
	// Guard makes the calls. Nil means one that makes each call once and keeps nothing.
	Guard *toolhealth.Guard
	// Name gives a session that was not made by Open the name of its server. Nil means
	// the name that the server gives itself, which two sessions may have in common.
	Name func(session *mcp.ClientSession) string
	// Flagged says what a result with IsError means, as an error for Classify; nil is a
	// success. It is for servers that report their own failures so. Without it the tool
	// has answered and rejected the request.
	Flagged func(res *mcp.CallToolResult) error
	// Text is the text for the model about a refusal or a failure of a call, whose error
	// is a *ToolError. Nil means ModelText, and the server's own words for a request that
	// the server has rejected.
	Text func(err error) string

	catalog catalog
	flights flights
	names   names

	mu       sync.Mutex
	sessions map[string]*Session // that are open, by the name of the server
}

// separator is between the name of a server and that of a tool.
const separator = "/"

// Settings returns s with what MCP tools need, for New and SetSettings of the guard:
// the group of "server/tool" is "server" if s has no grouping, PolicyOf is
// [Tools.Policy] after that of s, and Classify has [Rules] if s has none.
func (t *Tools) Settings(s toolhealth.Settings) toolhealth.Settings {
	if s.Group == nil && s.GroupSeparator == "" {
		s.GroupSeparator = separator
	}
	if s.Classify == nil {
		s.Classify = toolhealth.ErrorRules{Own: Rules()}.Classify
	}
	before := s.PolicyOf
	s.PolicyOf = func(tool string, p toolhealth.Policy) toolhealth.Policy {
		if before != nil {
			p = before(tool, p)
		}
		return t.Policy(tool, p)
	}
	return s
}

// Policy returns p for a call of the tool, with SideEffects if the tool is one of a
// server and its annotations say neither that it is read-only nor that it is idempotent,
// and if no list has told of it, or none since the server said that its list has changed.
// After a reconnect the last list counts until the next one has come. A tool of another
// kind has p. It is for PolicyOf of a guard.
func (t *Tools) Policy(tool string, p toolhealth.Policy) toolhealth.Policy {
	if t.catalog.acts(tool) {
		p.SideEffects = true
	}
	return p
}

// Offer returns those of the server's tools that can be called now, directly or through
// a substitute, in their order: a refused tool that is still offered is called again.
func (t *Tools) Offer(server string, tools []*mcp.Tool) []*mcp.Tool {
	var offer []*mcp.Tool
	for _, tool := range tools {
		if _, out := t.Guard.Offer([]string{fullName(server, tool.Name)}); len(out) == 0 {
			offer = append(offer, tool)
		}
	}
	return offer
}

func fullName(server, tool string) string { return server + separator + tool }

// send makes one attempt of a call, of the tool that serves.
type send func(ctx context.Context, tool string, p *mcp.CallToolParams) (*mcp.CallToolResult, error)

// call makes a guarded call of a tool of the server.
func (t *Tools) call(ctx context.Context, server string, p *mcp.CallToolParams, send send) (*mcp.CallToolResult, error) {
	if t.catalog.invented(server, p.Name) {
		return t.callInvented(ctx, server, p, send)
	}
	return t.answer(toolhealth.Call(ctx, t.Guard, fullName(server, p.Name), func(attempt context.Context, serving string) (*mcp.CallToolResult, error) {
		at, name, _ := strings.Cut(serving, separator)
		switch {
		case name == "":
			return nil, errNoServer(serving)
		case at == server:
			return send(attempt, name, p)
		}
		other := t.session(at)
		if other == nil {
			return nil, errNoServer(serving)
		}
		return other.attempt(attempt, ctx, name, p)
	}, toolhealth.CheckResult(t.judge)))
}

// patience is how long a server may take to say that it has no such tool.
const patience = time.Minute

// callInvented lets the server itself say what it thinks of a name that is not in its
// list. The name gets no entry, unless the server is out: then it is not asked.
func (t *Tools) callInvented(ctx context.Context, server string, p *mcp.CallToolParams, send send) (*mcp.CallToolResult, error) {
	if !t.Guard.Registry().Available(fullName(server, p.Name)) {
		return failed(toolhealth.ErrUnknownTool.Error(), nil), nil
	}
	attempt, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// A guard that keeps nothing makes the error one of a guarded call.
	return t.answer(toolhealth.Call(attempt, nil, p.Name, func(attempt context.Context, _ string) (*mcp.CallToolResult, error) {
		return send(attempt, p.Name, p)
	}, toolhealth.CheckResult(t.judge)))
}

func errNoServer(tool string) error {
	return toolhealth.WithVerdict(fmt.Errorf("mcphealth: no session of a server has the tool %q", tool),
		toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindNotDispatched, NotSent: true})
}

// session returns the open session of the server, or nil.
func (t *Tools) session(server string) *Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sessions[server]
}

// cannotBeReached reports whether the error means that there is no way to the server.
func cannotBeReached(err error) bool {
	v := toolhealth.Classify(context.Background(), err)
	return v.Outcome == toolhealth.OutcomeFailure && v.Kind == toolhealth.KindConnection
}

// isSilence reports whether the error means that no answer came.
func isSilence(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	v := toolhealth.Classify(context.Background(), err)
	return v.Outcome == toolhealth.OutcomeFailure && (v.Kind == toolhealth.KindConnection || v.Kind == toolhealth.KindTimeout)
}
