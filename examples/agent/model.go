package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// model is where your model goes. next sends the conversation and the tools to it, each
// with its Name, Description and InputSchema, and returns what it says: calls, or a text
// without any, which is the answer. An error ends the run, so repeat what may be repeated
// here, by the SDK of the model or by a guard.
type model interface {
	next(ctx context.Context, tools []*mcp.Tool, history []message) (message, error)
}

// message is a part of the conversation: of the user, of the assistant or of the tools.
type message struct {
	role    string
	text    string
	calls   []call   // of an assistant
	results []result // of the tools, one for each call of the message before
}

type call struct {
	tool      string
	arguments map[string]any
}

type result struct {
	text    string
	isError bool // providers have a field for it, such as is_error
}

const task = "Write the report of the week, and refund order 4711."

// script is a model that needs no network. It says always the same, but for what it has
// read.
type script struct {
	think time.Duration // what a turn takes; a real model needs seconds
}

func (s script) next(ctx context.Context, tools []*mcp.Tool, history []message) (message, error) {
	order := map[string]any{"id": "4711"}
	reply := message{role: "assistant"}
	switch len(history) / 2 { // turns so far
	case 0:
		reply.text = "I look at the order."
		reply.calls = []call{{"crm__orders_get", order}}
	case 1:
		reply.text = "The report needs the day and every figure."
		reply.calls = []call{{tool: "archive__today"}}
		for _, tool := range tools {
			if strings.HasPrefix(tool.Name, "crm__") && !strings.HasSuffix(tool.Name, "_create") && !strings.HasSuffix(tool.Name, "_search") {
				reply.calls = append(reply.calls, call{tool: tool.Name})
			}
		}
	case 2:
		reply.text = "I search, and write a draft."
		reply.calls = []call{{"crm__orders_search", order}, {"crm__customers_search", order}, {tool: "archive__draft"}}
	case 3:
		reply.text = "Now the refund."
		reply.calls = []call{{"crm__refunds_create", order}, {"crm__orders_get", order}}
	case 4:
		reply.text = "The refund again, and a figure."
		reply.calls = []call{{"crm__refunds_create", order}, {tool: "crm__orders_count"}}
	default:
		reply.text = s.answer(history)
	}
	select {
	case <-ctx.Done():
		return message{}, ctx.Err()
	case <-time.After(s.think):
		return reply, nil
	}
}

// answer makes the best of what there is.
func (s script) answer(history []message) string {
	missing := 0
	for _, r := range history[4].results {
		if r.isError {
			missing++
		}
	}
	refund := history[len(history)-1].results[0]
	if refund.isError {
		return fmt.Sprintf("Order 4711 is not refunded: %s. The report lacks %d figures.", refund.text, missing)
	}
	return fmt.Sprintf("Order 4711 is refunded. The report lacks %d figures.", missing)
}
