package llm

import (
	"context"
	"io"
	"iter"
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/httphealth"
)

// OpenAIClient returns a client that sends each request once, and notes what the answers
// say. An http.Client among the options replaces the one that notes.
func OpenAIClient(options ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithMaxRetries(0),
		option.WithHTTPClient(&http.Client{Transport: httphealth.Witness(nil)}),
	}, options...)...)
}

// OpenAIChat returns the chat completions of the client as a guarded tool.
func OpenAIChat(guard *toolhealth.Guard, client openai.Client) *toolhealth.Tool[openai.ChatCompletionNewParams, *openai.ChatCompletion] {
	return toolhealth.Wrap(guard, "openai", func(ctx context.Context, in openai.ChatCompletionNewParams) (*openai.ChatCompletion, error) {
		return client.Chat.Completions.New(ctx, in)
	})
}

// OpenAIStream yields the text of a chat completion piece by piece, and at most one error,
// at the end. A stream that breaks off, or ends without a finish reason, is a failure; one
// that the reader leaves is neutral.
func OpenAIStream(ctx context.Context, guard *toolhealth.Guard, client openai.Client, in openai.ChatCompletionNewParams) iter.Seq2[string, error] {
	open := toolhealth.Wrap(guard, "openai", func(ctx context.Context, in openai.ChatCompletionNewParams) (*ssestream.Stream[openai.ChatCompletionChunk], error) {
		stream := client.Chat.Completions.NewStreaming(ctx, in)
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
			for _, choice := range stream.Current().Choices {
				complete = complete || choice.FinishReason != ""
				if choice.Delta.Content != "" && !yield(choice.Delta.Content, nil) {
					return
				}
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

// OpenAIHandler returns a handler of agent sessions as a guarded tool. The model reads why
// a call has failed; of an error the SDK tells it only that there was one. Where there is
// nothing to tell, the error is returned as it is.
func OpenAIHandler(guard *toolhealth.Guard, tool string, handler openai.AgentToolHandler) openai.AgentToolHandler {
	guarded := toolhealth.Wrap(guard, tool, handler)
	return func(ctx context.Context, args map[string]any) (any, error) {
		out, err := guarded.Call(ctx, args)
		if text, ok := toolhealth.ModelText(err); err != nil && ok {
			return map[string]any{"error": text}, nil
		}
		return out, err
	}
}
