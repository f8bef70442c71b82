package mcpgohealth

import (
	"context"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
)

// Initialize returns what the server said when the session was made, or made anew. It sends
// nothing on a connection that is not lost; the request is that of the option [Initialize].
func (s *Session) Initialize(ctx context.Context, _ mcp.InitializeRequest) (*mcp.InitializeResult, error) {
	c, err := s.acquire(ctx, false)
	if err != nil {
		return nil, err
	}
	defer s.release(c)
	return c.hello, nil
}

// OnNotification adds a handler for the notifications of the server, on this connection and
// all later ones. It runs where the transport reads, so it must not wait for an answer.
func (s *Session) OnNotification(handler func(mcp.JSONRPCNotification)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers = append(s.handlers, handler)
}

// ListTools returns the tools of the server, of all pages. The Session and its Policies
// learn from a list that begins at the beginning.
func (s *Session) ListTools(ctx context.Context, q mcp.ListToolsRequest) (*mcp.ListToolsResult, error) {
	age := s.known.now()
	r, err := do(ctx, s, func(c *client.Client) (*mcp.ListToolsResult, error) { return c.ListTools(ctx, q) })
	if err == nil && q.Params.Cursor == "" {
		s.learned(age, r.Tools)
	}
	return r, err
}

// Ping is that of client.Client, without the guard.
func (s *Session) Ping(ctx context.Context) error {
	//lint:ignore SA1019 client.MCPClient has it
	return act(ctx, s, func(c *client.Client) error { return c.Ping(ctx) })
}

// ListResourcesByPage is that of client.Client, without the guard.
func (s *Session) ListResourcesByPage(ctx context.Context, q mcp.ListResourcesRequest) (*mcp.ListResourcesResult, error) {
	return do(ctx, s, func(c *client.Client) (*mcp.ListResourcesResult, error) { return c.ListResourcesByPage(ctx, q) })
}

// ListResources is that of client.Client, without the guard.
func (s *Session) ListResources(ctx context.Context, q mcp.ListResourcesRequest) (*mcp.ListResourcesResult, error) {
	return do(ctx, s, func(c *client.Client) (*mcp.ListResourcesResult, error) { return c.ListResources(ctx, q) })
}

// ListResourceTemplatesByPage is that of client.Client, without the guard.
func (s *Session) ListResourceTemplatesByPage(ctx context.Context, q mcp.ListResourceTemplatesRequest) (*mcp.ListResourceTemplatesResult, error) {
	return do(ctx, s, func(c *client.Client) (*mcp.ListResourceTemplatesResult, error) {
		return c.ListResourceTemplatesByPage(ctx, q)
	})
}

// ListResourceTemplates is that of client.Client, without the guard.
func (s *Session) ListResourceTemplates(ctx context.Context, q mcp.ListResourceTemplatesRequest) (*mcp.ListResourceTemplatesResult, error) {
	return do(ctx, s, func(c *client.Client) (*mcp.ListResourceTemplatesResult, error) {
		return c.ListResourceTemplates(ctx, q)
	})
}

// ReadResource is that of client.Client, without the guard.
func (s *Session) ReadResource(ctx context.Context, q mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	return do(ctx, s, func(c *client.Client) (*mcp.ReadResourceResult, error) { return c.ReadResource(ctx, q) })
}

// Subscribe is that of client.Client, without the guard.
func (s *Session) Subscribe(ctx context.Context, q mcp.SubscribeRequest) error {
	//lint:ignore SA1019 client.MCPClient has it
	return act(ctx, s, func(c *client.Client) error { return c.Subscribe(ctx, q) })
}

// Unsubscribe is that of client.Client, without the guard.
func (s *Session) Unsubscribe(ctx context.Context, q mcp.UnsubscribeRequest) error {
	//lint:ignore SA1019 client.MCPClient has it
	return act(ctx, s, func(c *client.Client) error { return c.Unsubscribe(ctx, q) })
}

// ListPromptsByPage is that of client.Client, without the guard.
func (s *Session) ListPromptsByPage(ctx context.Context, q mcp.ListPromptsRequest) (*mcp.ListPromptsResult, error) {
	return do(ctx, s, func(c *client.Client) (*mcp.ListPromptsResult, error) { return c.ListPromptsByPage(ctx, q) })
}

// ListPrompts is that of client.Client, without the guard.
func (s *Session) ListPrompts(ctx context.Context, q mcp.ListPromptsRequest) (*mcp.ListPromptsResult, error) {
	return do(ctx, s, func(c *client.Client) (*mcp.ListPromptsResult, error) { return c.ListPrompts(ctx, q) })
}

// GetPrompt is that of client.Client, without the guard.
func (s *Session) GetPrompt(ctx context.Context, q mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	return do(ctx, s, func(c *client.Client) (*mcp.GetPromptResult, error) { return c.GetPrompt(ctx, q) })
}

// ListToolsByPage is that of client.Client, without the guard.
func (s *Session) ListToolsByPage(ctx context.Context, q mcp.ListToolsRequest) (*mcp.ListToolsResult, error) {
	return do(ctx, s, func(c *client.Client) (*mcp.ListToolsResult, error) { return c.ListToolsByPage(ctx, q) })
}

// SetLevel is that of client.Client, without the guard.
func (s *Session) SetLevel(ctx context.Context, q mcp.SetLevelRequest) error {
	//lint:ignore SA1019 client.MCPClient has it
	return act(ctx, s, func(c *client.Client) error { return c.SetLevel(ctx, q) })
}

// Complete is that of client.Client, without the guard.
func (s *Session) Complete(ctx context.Context, q mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	return do(ctx, s, func(c *client.Client) (*mcp.CompleteResult, error) { return c.Complete(ctx, q) })
}

// act is do for a call without a result.
func act(ctx context.Context, s *Session, call func(*client.Client) error) error {
	_, err := do(ctx, s, func(c *client.Client) (struct{}, error) { return struct{}{}, call(c) })
	return err
}
