package mcpgohealth

import (
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/toolhealth/toolhealth"
)

// Policies knows from the annotations of tools which of them may act twice. Its method Of
// is the PolicyOf of a guard:
//
//   - a tool that is read-only or idempotent has the policy that the guard gives it;
//   - every other tool has SideEffects too, and so has a tool whose list is not known, or
//     has changed and was not read again yet. It is what the protocol says of a tool
//     without annotations.
//   - the policy of a tool that no server has, one without a Session that was given Learn,
//     is left alone.
//
// Annotations are what the server says of itself. For a server that you do not trust, name
// the tools that act in the guard's own settings, which come first.
//
// The zero Policies knows no server. It must not be copied. All methods may be called from
// any goroutine.
type Policies struct {
	mu      sync.RWMutex
	servers map[string]map[string]bool // the tools of each server that may act twice; nil: not known
}

// Of returns the policy of a tool, for PolicyOf in [toolhealth.Settings] and
// [toolhealth.GuardConfig].
func (p *Policies) Of(tool string, policy toolhealth.Policy) toolhealth.Policy {
	server, name := split(tool)
	p.mu.RLock()
	defer p.mu.RUnlock()
	repeatable, ok := p.servers[server]
	if !ok { // a name without a server may have a separator in it, too
		name = tool
		repeatable, ok = p.servers[""]
	}
	if ok && !repeatable[name] {
		policy.SideEffects = true
	}
	return policy
}

// Set sets the tools of a server, in place of those that it had. The server "" is that of a
// [Middleware] without a name.
func (p *Policies) Set(server string, tools []mcp.Tool) {
	repeatable := make(map[string]bool, len(tools))
	for i := range tools {
		a := &tools[i].Annotations
		repeatable[tools[i].Name] = isSet(a.ReadOnlyHint) || isSet(a.IdempotentHint)
	}
	p.put(server, repeatable)
}

// forget makes every tool of the server one that may act, until its list is read.
func (p *Policies) forget(server string) { p.put(server, nil) }

func (p *Policies) put(server string, repeatable map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.servers == nil {
		p.servers = map[string]map[string]bool{}
	}
	p.servers[server] = repeatable
}

func isSet(hint *bool) bool { return hint != nil && *hint }
