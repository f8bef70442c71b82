package mcpgohealth

import (
	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/toolhealth/toolhealth"
)

// Option changes what [Dial] and [Middleware] do.
type Option func(*options)

type options struct {
	server  string
	text    func(error) string
	flagged error // what a result that is marked as an error means
	learn   *Policies
	hello   mcp.InitializeRequest
	elicit  client.ElicitationHandler
	client  []client.ClientOption
}

func newOptions(list []Option) *options {
	o := &options{}
	FlaggedAs(toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest})(o)
	o.hello.Params.ClientInfo = mcp.Implementation{Name: "toolhealth", Version: "1"}
	for _, option := range list {
		if option != nil {
			option(o)
		}
	}
	return o
}

// Server sets the name of the server, which is the first half of "server/tool". By default
// a Session takes the name that the server gives, with "_" for each "/" in it, and a
// Middleware uses the names of the tools alone. Two servers of one name share the health of
// their tools. A "/" in the name of a Session is an error of [Dial].
func Server(name string) Option {
	return func(o *options) { o.server = name }
}

// Text sets what the model reads of an error, in place of the text of
// [toolhealth.ModelText]. It is not asked where ModelText says that there is nothing to
// tell. It runs on the call path, from any goroutine.
func Text(text func(err error) string) Option { return func(o *options) { o.text = text } }

// FlaggedAs sets what a result means that the tool has marked as an error. By default it is
// a rejected request, of kind invalid_request, so that it does not count against the tool.
// For a server that reports its own outages so, set a failure.
func FlaggedAs(v toolhealth.Verdict) Option {
	return func(o *options) { o.flagged = toolhealth.WithVerdict(errFlagged, v) }
}

// Learn makes a Session tell the policies of its tools to p, each time that it reads the
// server's list.
func Learn(p *Policies) Option { return func(o *options) { o.learn = p } }

// Initialize sets the request with which a Session connects: the name of the client, its
// capabilities, the protocol version.
func Initialize(request mcp.InitializeRequest) Option { return func(o *options) { o.hello = request } }

// Elicitation sets the handler that asks a person what the server wants to know. While it
// runs, the clocks of the call stop: see [toolhealth.Pause]. Where the SDK does not say for
// which call the server asks, as over stdio before protocol version 2026-07-28, those of
// all running calls of the session do.
func Elicitation(handler client.ElicitationHandler) Option {
	return func(o *options) { o.elicit = handler }
}

// Client sets options for each client that a Session makes, such as
// client.WithSamplingHandler.
func Client(list ...client.ClientOption) Option {
	return func(o *options) { o.client = append(o.client, list...) }
}
