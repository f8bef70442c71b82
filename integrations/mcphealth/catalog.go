package mcphealth

import (
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// catalog is what the lists of servers have told of their tools. The zero catalog knows
// no server.
type catalog struct {
	mu      sync.RWMutex
	servers map[string]*list
	own     map[string]bool // whether tools of this process act, by name
}

// list is what is known of the tools of one server.
type list struct {
	acts    map[string]bool // whether tools act, by name; nil before the first whole list
	fresh   bool            // acts is of this session, and the server has not changed its list since
	changed bool            // the server has said that its list is not acts
	changes int             // how often the server has said so, or was connected
	// parts are the lists that are being read, by the cursor of the page that is to come.
	parts map[string]*part
}

// part is the beginning of a list.
type part struct {
	acts    map[string]bool
	changes int // of the list, when it began
}

// maxParts is how many lists of a server may be read at once. One that is given up half-way
// leaves a part behind.
const maxParts = 16

// acting reports whether doing it twice is worse than not knowing.
func acting(tool *mcp.Tool) bool {
	a := tool.Annotations
	return a == nil || !a.ReadOnlyHint && !a.IdempotentHint
}

// know makes a server known, of whose tools nothing is known yet.
func (c *catalog) know(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(server)
}

// of returns the list of the server. The lock is held.
func (c *catalog) of(server string) *list {
	l := c.servers[server]
	if l == nil {
		if c.servers == nil {
			c.servers = make(map[string]*list)
		}
		l = &list{}
		c.servers[server] = l
	}
	return l
}

// learn takes a page of the server's list: the first one if cursor is "", the last one if
// next is "".
func (c *catalog) learn(server, cursor string, tools []*mcp.Tool, next string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.of(server)
	p := l.parts[cursor]
	delete(l.parts, cursor)
	if cursor == "" {
		p = &part{make(map[string]bool, len(tools)), l.changes}
	}
	if p == nil { // another has read on, or its beginning was not seen
		return
	}
	for _, tool := range tools {
		p.acts[tool.Name] = acting(tool)
	}
	switch {
	case next == "":
		l.acts, l.fresh = p.acts, p.changes == l.changes
		l.changed = l.changed && !l.fresh
	case l.parts == nil, len(l.parts) >= maxParts:
		l.parts = map[string]*part{next: p}
	default:
		l.parts[next] = p
	}
}

// change notes that the list of the server is not what it was.
func (c *catalog) change(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.of(server)
	l.changes++
	l.fresh, l.changed = false, true
}

// reconnect notes that the server was connected, maybe another version of it. What is known
// of its tools counts until there is a new list: a read-only tool is not one that acts while
// the list is under way.
func (c *catalog) reconnect(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.of(server)
	l.changes++
	l.fresh = false
}

// isFresh reports whether the list of the server is known.
func (c *catalog) isFresh(server string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	l := c.servers[server]
	return l != nil && l.fresh
}

// add makes a tool of this process known.
func (c *catalog) add(tool *mcp.Tool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own == nil {
		c.own = make(map[string]bool)
	}
	c.own[tool.Name] = acting(tool)
}

// acts reports whether the tool has side effects, as far as its annotations say.
func (c *catalog) acts(tool string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	server, name, ok := strings.Cut(tool, separator)
	if !ok {
		return c.own[tool]
	}
	l := c.servers[server]
	if l == nil { // not a tool of MCP
		return false
	}
	acts, known := l.acts[name]
	return acts || !known || l.changed
}

// invented reports whether the server surely has no tool of that name.
func (c *catalog) invented(server, name string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	l := c.servers[server]
	if l == nil || !l.fresh {
		return false
	}
	_, known := l.acts[name]
	return !known
}
