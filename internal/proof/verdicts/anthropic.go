package verdicts

import (
	"context"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

func anthropicForms() []*Form {
	return []*Form{
		{SDK: "anthropic-sdk-go", Name: "messages", dialect: anthropicMessages, dial: anthropicDial(anthropicAsk),
			Failures: join(llmFailures, variants, anthropicCodes)},
		{SDK: "anthropic-sdk-go", Name: "messages, stream", dialect: anthropicMessages.streaming(), dial: anthropicDial(anthropicStream),
			Failures: streamFailures},
	}
}

func anthropicDial(ask func(context.Context, anthropic.Client) error) dial {
	return func(_ context.Context, t *target) (func(context.Context) error, func(), error) {
		c := anthropic.NewClient(option.WithBaseURL(t.server.URL), option.WithAPIKey("k"),
			option.WithMaxRetries(0), option.WithHTTPClient(t.client))
		return func(ctx context.Context) error { return ask(ctx, c) }, func() {}, nil
	}
}

var anthropicQuestion = anthropic.MessageNewParams{Model: "m", MaxTokens: 10,
	Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))}}

func anthropicAsk(ctx context.Context, c anthropic.Client) error {
	_, err := c.Messages.New(ctx, anthropicQuestion)
	return err
}

func anthropicStream(ctx context.Context, c anthropic.Client) error {
	s := c.Messages.NewStreaming(ctx, anthropicQuestion)
	defer s.Close()
	for s.Next() {
	}
	return s.Err()
}
