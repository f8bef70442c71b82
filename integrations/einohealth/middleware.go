package einohealth

import (
	"context"
	"maps"

	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"

	"github.com/toolhealth/toolhealth"
)

// Option changes a Middleware.
type Option func(*middleware)

// Text sets what the model reads of a call that failed or was refused. The error is a
// *toolhealth.ToolError; text is not asked where the error ends the run. By default, and
// if text is nil or panics, it is that of [toolhealth.ModelText]. The errors of tools may
// hold secrets. It is called on the call path, from many goroutines.
func Text(text func(err error) string) Option {
	return func(m *middleware) { m.text = text }
}

// Aliases makes a tool that the model calls by an alias count under its own name. Give it
// the ToolAliases of the ToolsNodeConfig, which it copies: eino hands the alias to a
// middleware, so each alias would have a breaker of its own.
func Aliases(config map[string]compose.ToolAliasConfig) Option {
	names := make(map[string]string)
	for tool, c := range config {
		for _, alias := range c.NameAliases {
			names[alias] = tool
		}
	}
	return func(m *middleware) {
		if m.names == nil {
			m.names = make(map[string]string)
		}
		maps.Copy(m.names, names)
	}
}

// Middleware returns a middleware that makes every call of a tool a call of the guard,
// under the name of the tool. Any number of agents may use it at once. A nil guard is the
// zero Guard.
//
// A call that fails is a result for eino, with the text for the model: see [Text]. An
// error reaches eino, unchanged, in these cases only:
//
//   - the caller's ctx is canceled: the ctx.Err();
//   - the tool interrupts the run, or adk has canceled it: the tool's own error. It counts
//     as neutral, whether the guard has [Rules] or not;
//   - a rule of the guard says denied: the *toolhealth.ToolError;
//   - the guard's Classify calls the error a success.
//
// The guard repeats calls as its policy says: set SideEffects for tools that act. Each
// attempt gets a copy of the ToolInput.
//
// # Streams
//
// The tool's stream is read by two goroutines, which end with it. The call is in flight
// until the stream ends, each chunk is a sign of life, and the tool's ctx lives until
// then. A reader that closes the stream early is no failure of the tool; the tool learns
// of it with the next chunk, by its ctx and by Send. A stream that goes silent for longer
// than the policy's Timeout, or is longer than its MaxDuration, is cut off as a time-out,
// also if the tool does not heed its ctx; then one goroutine stays until the tool's stream
// ends. A reader that stays away for so long gets no more of the stream, either: that is
// neutral. Nothing is repeated once the stream is open. A panic of the stream is a failure.
//
// # Substitutes
//
// An endpoint of eino reaches one tool, so those that the guard's Router names are passed
// over.
func Middleware(guard *toolhealth.Guard, opts ...Option) compose.ToolMiddleware {
	m := &middleware{guard: guard}
	for _, opt := range opts {
		if opt != nil {
			opt(m)
		}
	}
	return compose.ToolMiddleware{
		Invokable: func(next compose.InvokableToolEndpoint) compose.InvokableToolEndpoint {
			return invoke(m, next, func(text string) *compose.ToolOutput {
				return &compose.ToolOutput{Result: text}
			})
		},
		EnhancedInvokable: func(next compose.EnhancedInvokableToolEndpoint) compose.EnhancedInvokableToolEndpoint {
			return invoke(m, next, func(text string) *compose.EnhancedInvokableToolOutput {
				return &compose.EnhancedInvokableToolOutput{Result: part(text)}
			})
		},
		Streamable: func(next compose.StreamableToolEndpoint) compose.StreamableToolEndpoint {
			open := stream(m, func(ctx context.Context, in *compose.ToolInput) (*schema.StreamReader[string], error) {
				out, err := next(ctx, in)
				if err != nil {
					return nil, err
				}
				return out.Result, nil
			}, func(text string) string { return text })
			return func(ctx context.Context, in *compose.ToolInput) (*compose.StreamToolOutput, error) {
				chunks, err := open(ctx, in)
				if err != nil {
					return nil, err
				}
				return &compose.StreamToolOutput{Result: chunks}, nil
			}
		},
		EnhancedStreamable: func(next compose.EnhancedStreamableToolEndpoint) compose.EnhancedStreamableToolEndpoint {
			open := stream(m, func(ctx context.Context, in *compose.ToolInput) (*schema.StreamReader[*schema.ToolResult], error) {
				out, err := next(ctx, in)
				if err != nil {
					return nil, err
				}
				return out.Result, nil
			}, part)
			return func(ctx context.Context, in *compose.ToolInput) (*compose.EnhancedStreamableToolOutput, error) {
				chunks, err := open(ctx, in)
				if err != nil {
					return nil, err
				}
				return &compose.EnhancedStreamableToolOutput{Result: chunks}, nil
			}
		},
	}
}

// part returns a text as the result of an enhanced tool.
func part(text string) *schema.ToolResult {
	return &schema.ToolResult{Parts: []schema.ToolOutputPart{{Type: schema.ToolPartTypeText, Text: text}}}
}

// middleware is what all calls share. It never changes once Middleware has returned.
type middleware struct {
	guard *toolhealth.Guard
	text  func(error) string
	names map[string]string // from an alias to its tool
}

// name returns the name under which a call counts.
func (m *middleware) name(in *compose.ToolInput) string {
	if tool, ok := m.names[in.Name]; ok {
		return tool
	}
	return in.Name
}

// endpoint is what eino calls for one kind of tool.
type endpoint[Out any] = func(context.Context, *compose.ToolInput) (Out, error)

// attempt returns an endpoint as the function of a guarded tool.
func attempt[Out any](next endpoint[Out]) endpoint[Out] {
	return func(ctx context.Context, in *compose.ToolInput) (Out, error) {
		own := *in // an inner middleware may write to it
		out, err := next(ctx, &own)
		return out, mark(err)
	}
}

// invoke returns the guarded endpoint of tools that answer at once; say makes an answer of
// a text.
func invoke[Out any](m *middleware, next endpoint[Out], say func(text string) Out) endpoint[Out] {
	run := attempt(next)
	return func(ctx context.Context, in *compose.ToolInput) (none Out, err error) {
		out, err := toolhealth.Wrap(m.guard, m.name(in), run).Call(ctx, in)
		if err == nil {
			return out, nil
		}
		text, err := m.end(ctx, err)
		if err != nil {
			return none, err
		}
		return say(text), nil
	}
}
