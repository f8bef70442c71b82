package mcpgohealth

import (
	"context"
	"errors"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/toolhealth/toolhealth"
)

// Middleware returns a middleware that guards the handlers of a server, for
// server.WithToolHandlerMiddleware or MCPServer.Use. The name of a tool is its own, or
// "server/tool" with the option [Server]. Of the options, only Server, [Text] and
// [FlaggedAs] matter.
//
// A refusal is a result that is marked as an error. Everything else is what it was without
// the middleware: the results of handlers, and their errors, which the SDK sends as -32603.
// A panic is such an error, too, also without server.WithRecovery. Names that are no tools,
// and arguments that server.WithInputSchemaValidation refuses, do not reach it.
//
// A plain error of a handler is a failure. Return mcp.NewToolResultError for arguments that
// are wrong, or mark the error with [toolhealth.BadRequest]. With the default policy a
// handler whose error may be retried runs twice: set SideEffects for those that act, or
// give [Policies.Of] to the guard and the tools to [Policies.Set].
//
// A handler runs for its own tool only: substitutes that the guard knows do not serve.
func Middleware(guard *toolhealth.Guard, list ...Option) server.ToolHandlerMiddleware {
	o := newOptions(list)
	verify := toolhealth.CheckResult(o.verify)
	return func(next server.ToolHandlerFunc) server.ToolHandlerFunc {
		return func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			name := join(o.server, request.Params.Name)
			r, err := toolhealth.Call(ctx, guard, name, func(ctx context.Context, served string) (*mcp.CallToolResult, error) {
				if served != name {
					return nil, errElsewhere
				}
				return next(ctx, request)
			}, verify)
			return o.handled(r, err)
		}
	}
}

// handled returns what a handler has returned, or a refusal as a result.
func (o *options) handled(r *mcp.CallToolResult, err error) (*mcp.CallToolResult, error) {
	if err == nil || own(r, err) {
		return r, nil
	}
	var failed *toolhealth.ToolError
	if errors.As(err, &failed) {
		if cause := failed.Cause(); cause != nil && !errors.Is(cause, toolhealth.ErrRefused) {
			return nil, cause
		}
	}
	return o.soften(err)
}
