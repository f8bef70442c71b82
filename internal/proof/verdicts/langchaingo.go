package verdicts

import (
	"context"
	"net/http"

	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/llms/anthropic"
	"github.com/tmc/langchaingo/llms/ollama"
	"github.com/tmc/langchaingo/llms/openai"
)

// langchainForms are the models of langchaingo. Ollama's API has no codes for
// quotas, keys and the like.
func langchainForms() []*Form {
	var all []*Form
	for _, m := range []struct {
		name    string
		dialect dialect
		make    func(url string, c *http.Client) (llms.Model, error)
		more    []Failure
		streams []Failure
	}{
		{"openai", openaiChat, func(url string, c *http.Client) (llms.Model, error) {
			return openai.New(openai.WithBaseURL(url), openai.WithToken("k"), openai.WithModel("m"), openai.WithHTTPClient(c))
		}, openaiCodes, without(streamFailures, racing...)},
		{"anthropic", anthropicMessages, func(url string, c *http.Client) (llms.Model, error) {
			return anthropic.New(anthropic.WithBaseURL(url), anthropic.WithToken("k"), anthropic.WithModel("m"), anthropic.WithHTTPClient(c))
		}, anthropicCodes, streamFailures},
		{"ollama", ollamaChat, func(url string, c *http.Client) (llms.Model, error) {
			return ollama.New(ollama.WithServerURL(url), ollama.WithModel("m"), ollama.WithHTTPClient(c))
		}, objects, without(streamFailures, saying[1:]...)},
	} {
		all = append(all,
			&Form{SDK: "langchaingo", Name: m.name, dialect: m.dialect, CutsChain: true,
				dial: langchainDial(m.make), Failures: join(llmFailures, m.more)},
			&Form{SDK: "langchaingo", Name: m.name + ", stream", dialect: m.dialect.streaming(), CutsChain: true,
				dial: langchainDial(m.make, llms.WithStreamingFunc(func(context.Context, []byte) error { return nil })), Failures: m.streams})
	}
	return all
}

// racing are failures that langchaingo's OpenAI client reports in some runs only:
// two of its goroutines race for the end of the stream.
var racing = []string{"stream stalls, caller's deadline", "stream stalls, caller cancels"}

// objects are errors of a proxy before an API whose errors are texts.
var objects = []Failure{
	{Name: "500 with an object under error", Answer: func(x *exchange) { x.say(500, "application/json", openaiError(500, "")) }},
	{Name: "429 with an object under error", Answer: func(x *exchange) { x.say(429, "application/json", openaiError(429, "")) }},
}

func langchainDial(makeModel func(string, *http.Client) (llms.Model, error), options ...llms.CallOption) dial {
	return func(_ context.Context, t *target) (func(context.Context) error, func(), error) {
		model, err := makeModel(t.server.URL, t.client)
		return func(ctx context.Context) error {
			_, err := llms.GenerateFromSinglePrompt(ctx, model, "hi", options...)
			return err
		}, func() {}, err
	}
}
