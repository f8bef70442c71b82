package fantasyhealth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"

	"charm.land/fantasy"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/fantasyhealth"
)

// A tool whose backend is down, and a model that insists.
func ExampleTools() {
	guard, err := toolhealth.New(toolhealth.Settings{Policy: toolhealth.Policy{MaxAttempts: 1}})
	if err != nil {
		panic(err)
	}
	type query struct {
		Q string `json:"q"`
	}
	search := fantasy.NewAgentTool("search", "searches", func(context.Context, query, fantasy.ToolCall) (fantasy.ToolResponse, error) {
		return fantasy.ToolResponse{}, errors.New("dial search.internal: no such host")
	})

	server := httptest.NewServer(&model{calls: times(4, "search")})
	defer server.Close()
	language := languageAt(server)
	agent := fantasy.NewAgent(language, fantasy.WithTools(fantasyhealth.Tools(guard, search)...))
	result, err := agent.Generate(context.Background(), fantasy.AgentCall{Prompt: "What is a breaker?"})
	if err != nil {
		panic(err)
	}
	for _, step := range result.Steps {
		for _, r := range step.Content.ToolResults() {
			fmt.Println(r.Result.(fantasy.ToolResultOutputContentError).Error)
		}
	}
	fmt.Println(result.Response.Content.Text())
	// Output:
	// tool failed: unknown error
	// tool failed: unknown error
	// tool failed: unknown error
	// tool temporarily unavailable: circuit breaker open; retry after 30s
	// done
}
