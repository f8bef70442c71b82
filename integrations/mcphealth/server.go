package mcphealth

import (
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhealth/toolhealth"
)

// AddTool is mcp.AddTool with a guard around the handler. The tool is known by its name
// alone, and has side effects for [Tools.Policy] unless its annotations say that it is
// read-only or idempotent. What the SDK finds wrong with arguments does not get to the
// guard. See [Handler] for what the client is told.
func AddTool[In, Out any](server *mcp.Server, tools *Tools, tool *mcp.Tool, h mcp.ToolHandlerFor[In, Out]) {
	tools.catalog.add(tool)
	mcp.AddTool(server, tool, Handler(tools, tool.Name, h))
}

// Handler returns a handler whose calls are guarded. A refusal is an error with a text for
// the model, of which the SDK makes a result with IsError. The handler's own errors are
// returned as they are, and a *jsonrpc.Error stays an error of the protocol; a panic is an
// error with a safe text. A plain error counts as a failure of what the handler depends
// on: return [toolhealth.BadRequest] for arguments that are wrong.
func Handler[In, Out any](tools *Tools, tool string, h mcp.ToolHandlerFor[In, Out]) mcp.ToolHandlerFor[In, Out] {
	type answer struct {
		res *mcp.CallToolResult
		out Out
	}
	check := toolhealth.CheckResult(func(a answer) error { return tools.judge(a.res) })
	return func(ctx context.Context, req *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		a, err := toolhealth.Call(ctx, tools.Guard, tool, func(ctx context.Context, serving string) (answer, error) {
			if serving != tool {
				return answer{}, errNoServer(serving)
			}
			res, out, err := h(ctx, req, in)
			return answer{res, out}, err
		}, check)
		if a.res != nil && tools.judge(a.res) != nil { // the handler's own answer
			return a.res, a.out, nil
		}
		if err, own := tools.errorOf(err); err != nil {
			if !own {
				a = answer{}
			}
			return a.res, a.out, err
		}
		return a.res, a.out, nil
	}
}

// RawHandler is [Handler] for handlers that work with the protocol. A refusal is a result
// with IsError and with more under [MetaKey].
func RawHandler(tools *Tools, tool string, h mcp.ToolHandler) mcp.ToolHandler {
	check := toolhealth.CheckResult(tools.judge)
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res, failure := toolhealth.Call(ctx, tools.Guard, tool, func(ctx context.Context, serving string) (*mcp.CallToolResult, error) {
			if serving != tool {
				return nil, errNoServer(serving)
			}
			return h(ctx, req)
		}, check)
		if failure == nil || res != nil && tools.judge(res) != nil {
			return res, nil
		}
		err, own := tools.errorOf(failure)
		if own {
			return nil, err
		}
		return failed(err.Error(), failure), nil
	}
}

// errorOf returns the error that a handler's caller gets for that of a guarded call, and
// whether it is the handler's own or that of the caller's ctx.
func (t *Tools) errorOf(err error) (_ error, own bool) {
	var call *toolhealth.ToolError
	switch {
	case !errors.As(err, &call):
		return err, true
	case call.Canceled != nil:
		return call.Canceled, true
	}
	cause := call.Cause()
	var panicked *toolhealth.PanicError
	if errors.Is(cause, toolhealth.ErrRefused) && call.Attempts == 0 || errors.As(cause, &panicked) {
		if text, ok := t.text(err); ok {
			return &saying{text, err}, false
		}
	}
	return cause, true
}

// saying is an error with another text.
type saying struct {
	text string
	error
}

func (s *saying) Error() string { return s.text }
func (s *saying) Unwrap() error { return s.error }
