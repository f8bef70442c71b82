// Package mcpgohealth ties toolhealth to the MCP SDK github.com/mark3labs/mcp-go, on both
// sides of the protocol.
//
// [Dial] returns a [Session] with a server: a client.MCPClient whose CallTool is guarded,
// and that connects again when the connection is lost. [Middleware] guards the handlers of
// a server.
//
// # The tools of a session
//
// The guard knows a tool as "server/tool". With "/" as the GroupSeparator of its Settings,
// all tools of a server are in one group, so that a dead server costs three failing calls,
// however many tools it has.
//
//	var policies mcpgohealth.Policies
//	guard, err := toolhealth.New(toolhealth.Settings{GroupSeparator: "/", PolicyOf: policies.Of})
//	...
//	session, err := mcpgohealth.Dial(ctx, guard, func(context.Context) (transport.Interface, error) {
//		return transport.NewStdio("github-mcp-server", nil, "stdio"), nil
//	}, mcpgohealth.Server("github"), mcpgohealth.Learn(&policies))
//	...
//	defer session.Close()
//	result, err := session.CallTool(ctx, request)
//
// A tool that a server offers may act. [Policies] learns from the annotations of the
// server's list which tools do not, and which may act twice: all others have SideEffects.
//
// # What the model reads
//
// A refusal, a failure and a rejected request are a result that is marked as an error, and
// no Go error: the run goes on. The text is that of [toolhealth.ModelText], which has the
// server's own words for rejected arguments. A result that the tool itself has marked as an
// error is passed on unchanged; it counts as a rejected request. CallTool returns a Go error
// only if the caller has gone, or if a person has to be asked first.
//
// # Over HTTP
//
// The SDK loses the status of some answers, and each stated wait. Give it a client with
// the Witness of integrations/httphealth:
//
//	transport.NewStreamableHTTP(url, transport.WithHTTPBasicClient(&http.Client{Transport: httphealth.Witness(nil)}))
//
// # What it does not do
//
// It does not leave tools out of a list: ask [toolhealth.Guard.Offer] when the prompt is
// made. In particular, a tool filter of the server is the wrong place: filters also apply to
// calls, so that a refusal would become "tool not found". Tasks of the protocol are
// guarded until the server has taken them up.
package mcpgohealth
