package mcpgohealth

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// known are the names in the server's list.
type known struct {
	mu    sync.RWMutex
	age   int             // how often the list has changed
	names map[string]bool // nil: not known
}

// lacks reports whether a list that is known does not have the name.
func (k *known) lacks(name string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.names != nil && !k.names[name]
}

// now returns the age, to read before a list is asked for.
func (k *known) now() int {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.age
}

// relisting is the state of reading a list again.
type relisting struct {
	mu      sync.Mutex
	changed bool // since it was read last
	reading bool
}

// Limits of what a Session does by itself.
const (
	listTimeout = 30 * time.Second // for reading the list again
	followPause = 10 * time.Second // before listening again
)

// list reads the list of tools. A server without tools has none.
func (s *Session) list(ctx context.Context, c *conn) error {
	if !s.named(c.hello.ServerInfo.Name) {
		return errors.New("mcpgohealth: the server gives no name: use the option Server")
	}
	age := s.known.now()
	all, err := c.client.ListTools(ctx, mcp.ListToolsRequest{})
	if errors.Is(err, mcp.ErrMethodNotFound) {
		all, err = &mcp.ListToolsResult{}, nil
	}
	if err == nil {
		s.learned(age, all.Tools)
	}
	return err
}

// named names the server by what it says of itself, if it has no name yet.
func (s *Session) named(itself string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == "" {
		s.server = strings.ReplaceAll(itself, separator, "_")
	}
	return s.server != ""
}

// learned takes note of a list, if it has not changed since it was asked for.
func (s *Session) learned(age int, tools []mcp.Tool) {
	names := make(map[string]bool, len(tools))
	for i := range tools {
		names[tools[i].Name] = true
	}
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	if s.known.age != age {
		return
	}
	s.known.names = names
	if s.learn != nil {
		s.learn.Set(s.Server(), tools)
	}
}

// unlearned takes note that the list is not what it was.
func (s *Session) unlearned() {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	s.known.age++
	s.known.names = nil
	if s.learn != nil {
		s.learn.forget(s.Server())
	}
}

// notified hears each notification of the server. It runs where the transport reads, so it
// must not wait.
func (s *Session) notified(c *conn, n mcp.JSONRPCNotification) {
	switch n.Method {
	case "notifications/progress":
		c.calls.progress(n)
	case mcp.MethodNotificationToolsListChanged:
		s.listChanged(c)
	}
	s.mu.Lock()
	handlers := s.handlers[:len(s.handlers):len(s.handlers)]
	s.mu.Unlock()
	for _, handler := range handlers {
		handler(n)
	}
}

// listChanged reads the list again in the background. Until then nothing is known of it.
func (s *Session) listChanged(c *conn) {
	s.unlearned()
	c.list.mu.Lock()
	defer c.list.mu.Unlock()
	c.list.changed = true
	if !c.list.reading {
		c.list.reading = c.work(func() { s.relist(c) })
	}
}

// relist reads the list until it has not changed meanwhile.
func (s *Session) relist(c *conn) {
	for {
		c.list.mu.Lock()
		if !c.list.changed || c.life.Err() != nil {
			c.list.reading = false
			c.list.mu.Unlock()
			return
		}
		c.list.changed = false
		c.list.mu.Unlock()

		ctx, cancel := context.WithTimeout(c.life, listTimeout)
		_ = s.list(ctx, c) // without a list, nothing is known of it
		cancel()
	}
}

// follow listens for changes of the list where the protocol wants to be asked for them.
func (s *Session) follow(c *conn) {
	tools := c.hello.Capabilities.Tools
	if tools == nil || !tools.ListChanged || !mcp.IsModernProtocol(c.client.ProtocolVersion()) {
		return
	}
	c.work(func() {
		for {
			err := c.client.Listen(c.life, mcp.SubscriptionFilter{ToolsListChanged: true})
			if errors.Is(err, mcp.ErrMethodNotFound) {
				return
			}
			select {
			case <-c.life.Done():
				return
			case <-time.After(followPause):
			}
			s.listChanged(c) // it may have, before the session listened
		}
	})
}
