package verdicts

import (
	"context"
	"errors"
	"io"

	"github.com/sashabaranov/go-openai"
)

func goOpenAIForms() []*Form {
	return []*Form{
		{SDK: "go-openai", Name: "chat", dialect: openaiChat, dial: goOpenAIDial(goOpenAIAsk),
			Failures: join(llmFailures, openaiCodes)},
		{SDK: "go-openai", Name: "chat, stream", dialect: openaiChat.streaming(), dial: goOpenAIDial(goOpenAIStream),
			Failures: streamFailures},
	}
}

func goOpenAIDial(ask func(context.Context, *openai.Client) error) dial {
	return func(_ context.Context, t *target) (func(context.Context) error, func(), error) {
		config := openai.DefaultConfig("k")
		config.BaseURL, config.HTTPClient = t.server.URL, t.client
		c := openai.NewClientWithConfig(config)
		return func(ctx context.Context) error { return ask(ctx, c) }, func() {}, nil
	}
}

func goOpenAIQuestion() openai.ChatCompletionRequest {
	return openai.ChatCompletionRequest{Model: "m", Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "hi"}}}
}

func goOpenAIAsk(ctx context.Context, c *openai.Client) error {
	_, err := c.CreateChatCompletion(ctx, goOpenAIQuestion())
	return err
}

func goOpenAIStream(ctx context.Context, c *openai.Client) error {
	s, err := c.CreateChatCompletionStream(ctx, goOpenAIQuestion())
	if err != nil {
		return err
	}
	defer s.Close()
	for {
		switch _, err := s.Recv(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
