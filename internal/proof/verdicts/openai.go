package verdicts

import (
	"context"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// llmFailures are those of a model's API without and with a stream.
var (
	llmFailures    = join(statuses, stated, bodies, ways)
	streamFailures = join(openings, streams)
)

func openaiForms() []*Form {
	return []*Form{
		{SDK: "openai-go", Name: "chat", dialect: openaiChat, dial: openaiDial(openaiAsk),
			Failures: join(llmFailures, variants, openaiCodes)},
		{SDK: "openai-go", Name: "chat, stream", dialect: openaiChat.streaming(), dial: openaiDial(openaiStream),
			Failures: streamFailures},
		{SDK: "openai-go", Name: "responses", dialect: openaiResponses, dial: openaiDial(openaiRespond),
			Failures: join(llmFailures, openaiCodes)},
		{SDK: "openai-go", Name: "responses, stream", dialect: openaiResponses.streaming(), dial: openaiDial(openaiRespondStream),
			Failures: streamFailures},
	}
}

func openaiDial(ask func(context.Context, openai.Client) error) dial {
	return func(_ context.Context, t *target) (func(context.Context) error, func(), error) {
		c := openai.NewClient(option.WithBaseURL(t.server.URL), option.WithAPIKey("k"),
			option.WithMaxRetries(0), option.WithHTTPClient(t.client))
		return func(ctx context.Context) error { return ask(ctx, c) }, func() {}, nil
	}
}

var openaiQuestion = openai.ChatCompletionNewParams{Model: "m",
	Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}}

func openaiAsk(ctx context.Context, c openai.Client) error {
	_, err := c.Chat.Completions.New(ctx, openaiQuestion)
	return err
}

func openaiStream(ctx context.Context, c openai.Client) error {
	s := c.Chat.Completions.NewStreaming(ctx, openaiQuestion)
	defer s.Close()
	for s.Next() {
	}
	return s.Err()
}

var openaiInput = responses.ResponseNewParams{Model: "m",
	Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hi")}}

func openaiRespond(ctx context.Context, c openai.Client) error {
	_, err := c.Responses.New(ctx, openaiInput)
	return err
}

func openaiRespondStream(ctx context.Context, c openai.Client) error {
	s := c.Responses.NewStreaming(ctx, openaiInput)
	defer s.Close()
	for s.Next() {
	}
	return s.Err()
}
