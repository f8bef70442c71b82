package llm

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/ssestream"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/httphealth"
)

// AnthropicClient returns a client that sends each request once, and notes what the
// answers say. An http.Client among the options replaces the one that notes.
func AnthropicClient(options ...option.RequestOption) anthropic.Client {
	return anthropic.NewClient(append([]option.RequestOption{
		option.WithMaxRetries(0),
		option.WithHTTPClient(&http.Client{Transport: httphealth.Witness(nil)}),
	}, options...)...)
}

// AnthropicChat returns the messages of the client as a guarded tool.
func AnthropicChat(guard *toolhealth.Guard, client anthropic.Client) *toolhealth.Tool[anthropic.MessageNewParams, *anthropic.Message] {
	return toolhealth.Wrap(guard, "anthropic", func(ctx context.Context, in anthropic.MessageNewParams) (*anthropic.Message, error) {
		return client.Messages.New(ctx, in)
	})
}

// AnthropicStream yields the text of a message piece by piece, and at most one error, at
// the end. A stream that breaks off, or ends without its last event, is a failure; one that
// the reader leaves is neutral.
func AnthropicStream(ctx context.Context, guard *toolhealth.Guard, client anthropic.Client, in anthropic.MessageNewParams) iter.Seq2[string, error] {
	open := toolhealth.Wrap(guard, "anthropic", func(ctx context.Context, in anthropic.MessageNewParams) (*ssestream.Stream[anthropic.MessageStreamEventUnion], error) {
		stream := client.Messages.NewStreaming(ctx, in)
		return stream, stream.Err()
	})
	return func(yield func(string, error) bool) {
		stream, flight, err := open.Begin(ctx, in)
		if err != nil {
			yield("", err)
			return
		}
		defer stream.Close()
		defer flight.Done(errLeft) // after another Done it does nothing
		complete := false
		for stream.Next() {
			flight.KeepAlive()
			event := stream.Current()
			complete = complete || event.Type == "message_stop"
			if event.Delta.Text != "" && !yield(event.Delta.Text, nil) {
				return
			}
		}
		err = stream.Err()
		if err == nil && !complete {
			err = io.ErrUnexpectedEOF // the SDK takes any end for a good one
		}
		if err := flight.Done(err); err != nil {
			yield("", err)
		}
	}
}

// AnthropicTool returns fn as a guarded handler, for the constructors of the SDK's package
// toolrunner. What they refuse, such as arguments that are no JSON of In, never comes here.
//
// The runner makes a tool result with is_error of every error, and goes on. So the error
// has the words that the model may read, and nothing else.
func AnthropicTool[In any](guard *toolhealth.Guard, tool string, fn func(context.Context, In) (anthropic.BetaToolResultBlockParamContentUnion, error)) func(context.Context, In) (anthropic.BetaToolResultBlockParamContentUnion, error) {
	guarded := toolhealth.Wrap(guard, tool, fn)
	return func(ctx context.Context, in In) (anthropic.BetaToolResultBlockParamContentUnion, error) {
		out, err := guarded.Call(ctx, in)
		if text, ok := toolhealth.ModelText(err); err != nil && ok {
			err = errors.New(text)
		}
		return out, err
	}
}
