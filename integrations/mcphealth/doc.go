// Package mcphealth puts toolhealth into the Go SDK of the Model Context Protocol, on
// both sides of it.
//
// # A host that calls tools of servers
//
// One [Tools] belongs to one guard. A tool is known as "server/tool", and the tools of a
// server are a group, so that a dead server costs a few failing calls and not a few of
// each tool:
//
//	tools := &mcphealth.Tools{}
//	guard, err := toolhealth.New(tools.Settings(toolhealth.Settings{}))
//	...
//	tools.Guard = guard
//	client := tools.NewClient(implementation, nil)
//	github, err := tools.Open(mcphealth.Server{Name: "github", Client: client, Transport: start})
//	...
//	defer github.Close()
//	res, err := github.CallTool(ctx, params)
//
// A [Session] is a session of the SDK that comes back: it connects when it is first
// needed, after its session was lost, and before a probe if the server has been silent.
// A breaker around a session that cannot come back never closes again: the SDK ends a
// session for good at the death of a child process, and at many an answer of HTTP.
//
// Hosts that make their sessions themselves take the middleware alone, which NewClient
// and [Tools.Middleware] put in.
//
// What the host gets is what the model may see: a refusal and a failure are results with
// IsError and a safe text, and with more under [MetaKey]; the answer of a tool that says
// IsError is left as it is; for arguments that were rejected, the text is the server's own.
// An error ends the run: the caller is gone, or a person has to be asked.
//
// # A server with tools
//
// [AddTool] is mcp.AddTool with a guard around the handler, for what the handler depends
// on. [Handler] and [RawHandler] wrap handlers. A receiving middleware of the server is
// the wrong place: it would count invented names and wrong arguments, which the SDK finds
// further in, against the tool.
//
// # What the annotations of tools are for
//
// A call is not repeated if the tool may have acted. [Tools.Policy] takes a tool of a
// server that is neither read-only nor idempotent for one with side effects, and so one of
// which no list of the server has told. Annotations are what the server says of itself: for
// a server that you do not trust, set Policy.SideEffects.
//
// There is nothing to close but sessions.
package mcphealth
