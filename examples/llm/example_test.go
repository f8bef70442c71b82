package llm_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/toolrunner"
	"github.com/openai/openai-go/v3"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/examples/llm"
)

// overloaded is a provider that answers every request with 529.
func overloaded(w http.ResponseWriter, _ *http.Request) {
	fmt.Println("a request")
	w.WriteHeader(529)
}

// A provider that has failed three times is asked no more until the cooldown is over. The
// third error says so already.
func ExampleOpenAIChat() {
	server := httptest.NewServer(http.HandlerFunc(overloaded))
	defer server.Close()
	guard, err := toolhealth.New(toolhealth.Settings{Policy: toolhealth.Policy{MaxAttempts: 1}})
	if err != nil {
		log.Fatal(err)
	}

	chat := llm.OpenAIChat(guard, openAIClient(server.URL))
	for range 4 {
		_, err := chat.Call(context.Background(), openAIQuestion)
		fmt.Println(err)
	}
	// Output:
	// a request
	// tool failed: internal error of the tool
	// a request
	// tool failed: internal error of the tool
	// a request
	// tool temporarily unavailable: circuit breaker open; retry after 30s
	// tool temporarily unavailable: circuit breaker open; retry after 30s
}

// A stream that breaks off has said what it has said, and then that it is not whole.
func ExampleAnthropicStream() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		write(w, claude.begin+claude.pieces("A circuit breaker ")+claude.pieces("is "))
		cut(w, r)
	}))
	defer server.Close()
	guard, err := toolhealth.New(toolhealth.Settings{})
	if err != nil {
		log.Fatal(err)
	}

	for text, err := range llm.AnthropicStream(context.Background(), guard, anthropicClient(server.URL), anthropicQuestion) {
		if err != nil {
			fmt.Println("...", err)
			break
		}
		fmt.Print(text)
	}
	health, _ := guard.Registry().Health("anthropic")
	fmt.Println(health.ByKind)
	// Output:
	// A circuit breaker is ... tool failed: the tool cannot be reached
	// map[connection:1]
}

// The tool of a tool runner fails. The model reads it, and the run finishes. The model is a
// script.
func ExampleAnthropicTool() {
	model := &script{turns: []string{
		anthropicMessage("tool_use", `{"type":"tool_use","id":"t","name":"search","input":{"query":"x"}}`),
		anthropicMessage("end_turn", `{"type":"text","text":"The search does not work."}`),
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, model.answer(r))
	}))
	defer server.Close()
	guard, err := toolhealth.New(toolhealth.Settings{Policy: toolhealth.Policy{MaxAttempts: 1}})
	if err != nil {
		log.Fatal(err)
	}

	search, err := toolrunner.NewBetaToolFromJSONSchema("search", "Searches.", llm.AnthropicTool(guard, "search",
		func(context.Context, searchInput) (out anthropic.BetaToolResultBlockParamContentUnion, err error) {
			return out, errBackend
		}))
	if err != nil {
		log.Fatal(err)
	}
	client := anthropicClient(server.URL)
	answer, err := client.Beta.Messages.NewToolRunner([]anthropic.BetaTool{search}, runnerParams).RunToCompletion(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lastResult(model.requests()[1]))
	fmt.Println(answer.Content[0].Text)
	// Output:
	// Error: tool failed: the tool cannot be reached true <nil>
	// The search does not work.
}

// One provider stands in for another. Once the breaker of the first is open, it costs no
// request any more.
func Example_substitute() {
	down := httptest.NewServer(http.HandlerFunc(overloaded))
	defer down.Close()
	well := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, claude.good)
	}))
	defer well.Close()
	guard, err := toolhealth.New(toolhealth.Settings{Policy: toolhealth.Policy{MaxAttempts: 1}})
	if err != nil {
		log.Fatal(err)
	}

	first, second := openAIClient(down.URL), anthropicClient(well.URL)
	ask := toolhealth.Wrap(guard, "openai", func(ctx context.Context, question string) (string, error) {
		answer, err := first.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: "m",
			Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)}})
		if err != nil || len(answer.Choices) == 0 {
			return "", err
		}
		return answer.Choices[0].Message.Content, nil
	}).Substitute("anthropic", func(ctx context.Context, question string) (string, error) {
		answer, err := second.Messages.New(ctx, anthropic.MessageNewParams{Model: "m", MaxTokens: 10,
			Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(question))}})
		if err != nil || len(answer.Content) == 0 {
			return "", err
		}
		return answer.Content[0].Text, nil
	})
	for range 5 {
		fmt.Println(ask.Call(context.Background(), "Are you there?"))
	}
	// Output:
	// a request
	// hello <nil>
	// a request
	// hello <nil>
	// a request
	// hello <nil>
	// hello <nil>
	// hello <nil>
}
