package mcphealth

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// NewClient is mcp.NewClient for a client whose calls are guarded: it has the Middleware,
// and handlers around those of the options, by which reports of progress keep an attempt
// alive, the clocks of an attempt stop while a person is asked, and a server can say that
// its list of tools has changed. The options are not changed, and may be nil.
func (t *Tools) NewClient(impl *mcp.Implementation, options *mcp.ClientOptions) *mcp.Client {
	var o mcp.ClientOptions
	if options != nil {
		o = *options
	}
	progress, elicit, changed := o.ProgressNotificationHandler, o.ElicitationHandler, o.ToolListChangedHandler
	o.ProgressNotificationHandler = func(ctx context.Context, req *mcp.ProgressNotificationClientRequest) {
		t.flights.progress(req.Session, req.Params.ProgressToken)
		if progress != nil {
			progress(ctx, req)
		}
	}
	if elicit != nil {
		o.ElicitationHandler = func(ctx context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			defer t.flights.pause(ctx, req.Session)()
			return elicit(ctx, req)
		}
	}
	o.ToolListChangedHandler = func(ctx context.Context, req *mcp.ToolListChangedRequest) {
		t.listChanged(req.Session)
		if changed != nil {
			changed(ctx, req)
		}
	}
	client := mcp.NewClient(impl, &o)
	client.AddSendingMiddleware(t.Middleware)
	return client
}

const (
	methodCall = "tools/call"
	methodList = "tools/list"
)

// Middleware guards the tool calls of a client, and learns from the lists of tools that
// the client asks for. It is for AddSendingMiddleware of a client that NewClient has not
// made; add it last, so that it is outside of all others. Calls of a [Session] are guarded
// there, and pass.
func (t *Tools) Middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		session, ok := req.GetSession().(*mcp.ClientSession)
		switch p := req.GetParams().(type) {
		case *mcp.CallToolParams:
			if ok && method == methodCall && p != nil && ctx.Value(inFlight{}) != any(p) {
				return bare(t.call(ctx, t.serverOf(session), p, t.through(next, session)))
			}
		default:
			if ok && method == methodList && (p == nil || ctx.Value(inFlight{}) != any(p)) {
				return t.listed(ctx, session, next, req)
			}
		}
		return next(ctx, method, req)
	}
}

// bare keeps a nil result from becoming one of the interface.
func bare(res *mcp.CallToolResult, err error) (mcp.Result, error) {
	if err != nil {
		return nil, err
	}
	return res, nil
}

// through sends by the rest of the middleware.
func (t *Tools) through(next mcp.MethodHandler, session *mcp.ClientSession) send {
	return func(ctx context.Context, tool string, p *mcp.CallToolParams) (*mcp.CallToolResult, error) {
		ctx, p, done := t.flights.begin(ctx, session, tool, p)
		defer done()
		res, err := next(ctx, methodCall, &mcp.ClientRequest[mcp.Params]{Session: session, Params: p})
		if err != nil {
			return nil, err
		}
		answer, ok := res.(*mcp.CallToolResult)
		if !ok || answer == nil {
			return nil, errNoResult
		}
		return answer, nil
	}
}

var errNoResult = errors.New("mcphealth: the middleware has returned no result")

// listed asks for a page of a list of tools and learns from it.
func (t *Tools) listed(ctx context.Context, session *mcp.ClientSession, next mcp.MethodHandler, req mcp.Request) (mcp.Result, error) {
	server := t.serverOf(session)
	t.catalog.know(server)
	res, err := next(ctx, methodList, req)
	if page, ok := res.(*mcp.ListToolsResult); ok && err == nil && page != nil {
		cursor := ""
		if p, ok := req.GetParams().(*mcp.ListToolsParams); ok && p != nil {
			cursor = p.Cursor
		}
		t.catalog.learn(server, cursor, page.Tools, page.NextCursor)
	}
	return res, err
}

// listChanged notes that the tools of the session's server have changed. Open sessions
// ask for the new list by themselves.
func (t *Tools) listChanged(session *mcp.ClientSession) {
	server, ok := t.names.get(session)
	if !ok { // nothing is known of it
		return
	}
	t.catalog.change(server)
	if s := t.session(server); s != nil {
		s.relist()
	}
}

// serverOf returns the name of the session's server.
func (t *Tools) serverOf(session *mcp.ClientSession) string {
	if name, ok := t.names.get(session); ok {
		return name
	}
	name := ""
	if t.Name != nil {
		name = t.Name(session)
	} else if r := session.InitializeResult(); r != nil && r.ServerInfo != nil {
		name = r.ServerInfo.Name
	}
	name = strings.ReplaceAll(name, separator, "-") // the group ends at the first one
	t.names.put(session, name)
	return name
}

// names are those of the servers of sessions, as long as the sessions are in use.
type names struct{ all sync.Map } // a string by a weak.Pointer

func (n *names) get(session *mcp.ClientSession) (string, bool) {
	name, ok := n.all.Load(weak.Make(session))
	if !ok {
		return "", false
	}
	return name.(string), true
}

func (n *names) put(session *mcp.ClientSession, name string) {
	at := weak.Make(session)
	if _, known := n.all.Swap(at, name); !known {
		runtime.AddCleanup(session, func(at weak.Pointer[mcp.ClientSession]) { n.all.Delete(at) }, at)
	}
}
