package langchainhealth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/tmc/langchaingo/agents"
	"github.com/tmc/langchaingo/chains"
	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/llms/fake"
	"github.com/tmc/langchaingo/llms/openai"
	"github.com/tmc/langchaingo/schema"
	"github.com/tmc/langchaingo/tools"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/langchainhealth"
)

// A tool whose backend is down, and a model that insists.
func ExampleTools() {
	guard, err := toolhealth.New(toolhealth.Settings{Policy: toolhealth.Policy{MaxAttempts: 1}})
	if err != nil {
		panic(err)
	}
	search := &stub{name: "search", call: func(context.Context, string) (string, error) {
		return "", errors.New("dial search.internal: no such host")
	}}

	ask := "Action: search\nAction Input: breakers"
	model := fake.NewFakeLLM([]string{ask, ask, ask, ask, "Final Answer: I cannot search now."})
	agent := agents.NewOneShotAgent(model, langchainhealth.Tools(guard, search))
	out, err := chains.Call(context.Background(),
		agents.NewExecutor(agent, agents.WithReturnIntermediateSteps()), map[string]any{"input": "What is a breaker?"})
	if err != nil {
		panic(err)
	}
	for _, step := range out["intermediateSteps"].([]schema.AgentStep) {
		fmt.Println("Observation:", step.Observation)
	}
	fmt.Println(out["output"])
	// Output:
	// Observation: tool failed: unknown error
	// Observation: tool failed: unknown error
	// Observation: tool failed: unknown error
	// Observation: tool temporarily unavailable: circuit breaker open; retry after 30s
	// I cannot search now.
}

// The calculator of langchaingo returns the text of an error as its result.
func ExampleTool() {
	guard, err := toolhealth.New(toolhealth.Settings{})
	if err != nil {
		panic(err)
	}
	calculator := langchainhealth.Tool(guard, tools.Calculator{}, func(result string) error {
		if strings.HasPrefix(result, "error from evaluator: ") {
			return toolhealth.BadRequest(errors.New(result))
		}
		return nil
	})
	fmt.Println(calculator.Call(context.Background(), "6 * 7"))
	fmt.Println(calculator.Call(context.Background(), "six"))
	h, _ := guard.Registry().Health("calculator")
	fmt.Println(h.Successes, h.Rejected, h.Failures)
	// Output:
	// 42 <nil>
	// error from evaluator: input:1:1: undefined: six <nil>
	// 1 1 0
}

// The breaker of a tool that asks a model learns how long the server wants to be left
// alone, although the error of the model does not say it.
func ExampleHTTPClient() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()

	client := langchainhealth.HTTPClient(nil)
	model, err := openai.New(openai.WithHTTPClient(client), openai.WithBaseURL(server.URL), openai.WithToken("key"))
	if err != nil {
		panic(err)
	}
	guard, err := toolhealth.New(toolhealth.Settings{})
	if err != nil {
		panic(err)
	}
	summary := langchainhealth.Tool(guard, &stub{name: "summary", call: func(ctx context.Context, text string) (string, error) {
		return llms.GenerateFromSinglePrompt(ctx, model, "Sum up: "+text) // with the ctx of the tool
	}})
	fmt.Println(summary.Call(context.Background(), "a long story"))
	// Output:
	// tool temporarily unavailable: it asked to wait; retry after 120s <nil>
}

// stub is a tool of one function.
type stub struct {
	name string
	call func(ctx context.Context, input string) (string, error)
}

func (s *stub) Name() string                                        { return s.name }
func (s *stub) Description() string                                 { return "does what is asked of " + s.name }
func (s *stub) Call(ctx context.Context, in string) (string, error) { return s.call(ctx, in) }
