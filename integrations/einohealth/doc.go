// Package einohealth puts the tools of an eino agent (github.com/cloudwego/eino) behind a
// [toolhealth.Guard].
//
// [Middleware] goes into compose.ToolsNodeConfig.ToolCallMiddlewares, which the react
// agent, the adk agents and a ToolsNode of your own take alike. It guards all four kinds
// of tools, invokable and streamable, plain and enhanced. A tool that fails or that its
// breaker refuses ends no run any more: the model reads a short text, and the run goes on.
// A canceled caller and an interrupt still end it, with the errors that eino expects.
//
// A stream is judged where it ends, not where it is opened: one that is cut counts as a
// failure, what it has said stays said, and the text that a call would read follows.
//
// The package does not guard models, and it does not see the tool names that a model
// invents: eino sends those to UnknownToolsHandler. It has no global state, and nothing
// to close.
package einohealth
