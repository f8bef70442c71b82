package verdicts

import (
	"context"

	"google.golang.org/genai"
)

func genaiForms() []*Form {
	return []*Form{
		{SDK: "genai", Name: "generate", dialect: googleContent, dial: genaiDial(genaiAsk),
			Failures: join(llmFailures, googleCodes)},
		{SDK: "genai", Name: "generate, stream", dialect: googleContent.streaming(), dial: genaiDial(genaiStream),
			Failures: without(streamFailures, "event says: quota used up")}, // Google has no such code
	}
}

func genaiDial(ask func(context.Context, *genai.Client) error) dial {
	return func(ctx context.Context, t *target) (func(context.Context) error, func(), error) {
		c, err := genai.NewClient(ctx, &genai.ClientConfig{APIKey: "k", Backend: genai.BackendGeminiAPI,
			HTTPClient: t.client, HTTPOptions: genai.HTTPOptions{BaseURL: t.server.URL}})
		return func(ctx context.Context) error { return ask(ctx, c) }, func() {}, err
	}
}

func genaiAsk(ctx context.Context, c *genai.Client) error {
	_, err := c.Models.GenerateContent(ctx, "m", genai.Text("hi"), nil)
	return err
}

func genaiStream(ctx context.Context, c *genai.Client) error {
	for _, err := range c.Models.GenerateContentStream(ctx, "m", genai.Text("hi"), nil) {
		if err != nil {
			return err
		}
	}
	return nil
}
