package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/mcphealth"
)

// agent has the tools of all servers, behind one guard.
type agent struct {
	guard   *toolhealth.Guard
	servers []*server
	names   []string        // of tools, as the guard knows them: "server/tool"
	tools   map[string]tool // by these names
	log     *slog.Logger
	out     io.Writer // for the story
}

// server is one MCP server.
type server struct {
	name    string
	session *mcphealth.Session
	listed  bool // it has told its tools
}

// tool is a tool of a server.
type tool struct {
	*mcp.Tool
	session *mcphealth.Session
}

// newAgent makes an agent. No server is started yet: that happens when one is first used.
func newAgent(log *slog.Logger, out io.Writer) (*agent, error) {
	breaker := toolhealth.DefaultBreakerConfig()
	breaker.RecoveryDuration = cooldown
	tools := &mcphealth.Tools{}
	guard, err := toolhealth.New(tools.Settings(toolhealth.Settings{
		Breaker:      breaker, // of each tool
		GroupBreaker: breaker, // of each server
		// One attempt, so that a failing call is one failure; the default is two.
		Policy: toolhealth.Policy{MaxAttempts: 1, Timeout: 20 * time.Second},
		Tools: map[string]toolhealth.ToolSettings{
			"crm/customers_search": {Substitutes: []string{"archive/customers_search"}},
			"crm/orders_search":    {Substitutes: []string{"archive/orders_search"}},
		},
	}))
	if err != nil {
		return nil, err
	}
	tools.Guard = guard
	a := &agent{guard: guard, tools: make(map[string]tool), log: log, out: out}
	client := tools.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	for _, name := range []string{"crm", "archive"} {
		session, err := tools.Open(mcphealth.Server{Name: name, Client: client, Transport: starter(name)})
		if err != nil {
			a.close()
			return nil, err
		}
		a.servers = append(a.servers, &server{name: name, session: session})
	}
	return a, nil
}

// close ends the servers.
func (a *agent) close() {
	for _, s := range a.servers {
		_ = s.session.Close() // says how a child process ended
	}
}

// list asks the servers for their tools. One that does not answer has none for this task,
// and is asked again before the next one.
func (a *agent) list(ctx context.Context) {
	for _, s := range a.servers {
		if s.listed {
			continue
		}
		limit, cancel := context.WithTimeout(ctx, 30*time.Second)
		all, err := s.session.ListTools(limit)
		cancel()
		if err != nil {
			a.log.Warn("the server did not tell its tools", "server", s.name, "err", err)
			continue
		}
		s.listed = true
		for _, t := range all {
			name := s.session.Name(t.Name)
			// Registered, it is on the page before its first call.
			if err := a.guard.Registry().Register(name, toolhealth.ToolOptions{}); err != nil {
				a.log.Warn("the tool is left out", "tool", name, "err", err)
				continue
			}
			a.names, a.tools[name] = append(a.names, name), tool{t, s.session}
		}
	}
}

// offer returns the tools for the model, without those that would be refused now: a tool
// that is offered is called.
func (a *agent) offer() []*mcp.Tool {
	names, _ := a.guard.Offer(a.names)
	offer := make([]*mcp.Tool, len(names))
	for i, name := range names {
		t := *a.tools[name].Tool
		t.Name = strings.Replace(name, "/", "__", 1) // models take no "/"; no server has "__" in its name
		offer[i] = &t
	}
	return offer
}

// maxTurns bounds what a task may cost.
const maxTurns = 20

// do is the loop: the model asks for calls until it has an answer. An error ends the run:
// the model has failed or ctx is done, but no tool and no server is the reason.
func (a *agent) do(ctx context.Context, m model, task string) (answer string, err error) {
	a.list(ctx)
	history := []message{{role: "user", text: task}}
	for range maxTurns {
		offer := a.offer()
		reply, err := m.next(ctx, offer, history)
		if err != nil {
			return "", err
		}
		if len(reply.calls) == 0 {
			return reply.text, nil
		}
		fmt.Fprintf(a.out, "%d of %d tools offered; model: %s\n", len(offer), len(a.names), reply.text)
		told := message{role: "tool"}
		for _, c := range reply.calls { // a guard may be called from many goroutines, too
			res, err := a.call(ctx, c)
			if err != nil {
				return "", err
			}
			told.results = append(told.results, res)
		}
		a.show(reply.calls, told.results)
		history = append(history, reply, told)
	}
	return fmt.Sprintf("no answer after %d turns", maxTurns), nil
}

// call makes one call for the model. The result is what the model reads: the answer of
// the tool or of its substitute, or a short text why there is none.
func (a *agent) call(ctx context.Context, c call) (result, error) {
	t, ok := a.tools[strings.Replace(c.tool, "__", "/", 1)]
	if !ok {
		return result{text: "there is no tool of this name", isError: true}, nil
	}
	if t.acts() {
		// A refund is not the call to find out with whether the server is well again.
		ctx = toolhealth.WithoutProbe(ctx)
	}
	res, err := t.session.CallTool(ctx, &mcp.CallToolParams{Name: t.Name, Arguments: c.arguments})
	if err != nil {
		return result{}, err
	}
	var text []string
	for _, content := range res.Content {
		if words, ok := content.(*mcp.TextContent); ok {
			text = append(text, words.Text)
		}
	}
	return result{text: strings.Join(text, "\n"), isError: res.IsError}, nil
}

// acts reports whether the tool changes something, as far as its server says.
func (t tool) acts() bool {
	return t.Annotations == nil || !t.Annotations.ReadOnlyHint && !t.Annotations.IdempotentHint
}

// show prints the results, those that are alike as one.
func (a *agent) show(calls []call, results []result) {
	for i := 0; i < len(calls); {
		n := 1
		for i+n < len(calls) && results[i+n].text == results[i].text {
			n++
		}
		name := calls[i].tool
		if n > 1 {
			name = fmt.Sprintf("%s and %d more", name, n-1)
		}
		fmt.Fprintf(a.out, "    %s: %s\n", name, results[i].text)
		i += n
	}
}

// tally prints how many calls of each server there were.
func (a *agent) tally() {
	tools := a.guard.Registry().HealthSummary().Tools
	for _, s := range a.servers {
		var n int
		var answered, failed, refused uint64
		for _, h := range tools {
			if h.Group == s.name {
				n++
				answered, failed, refused = answered+h.Successes, failed+h.Failures, refused+h.Refused
			}
		}
		fmt.Fprintf(a.out, "%s: %d tools; calls: %d answered, %d failed, %d refused\n", s.name, n, answered, failed, refused)
	}
}
