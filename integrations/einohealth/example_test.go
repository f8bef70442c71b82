package einohealth_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/einohealth"
)

// A react agent whose search has failed three times: the next answers are refusals, and
// the run ends with what the model makes of them. The model is a script.
func ExampleMiddleware() {
	search := invokable{"search", func(context.Context, string) (string, error) {
		fmt.Println("search was called")
		return "", errors.New("dial tcp 10.0.0.7:9200: connect: connection refused")
	}}
	model := script{turn("search"), turn("search"), turn("search"), turn("search")}

	guard, err := toolhealth.New(toolhealth.Settings{Policy: toolhealth.Policy{MaxAttempts: 1}})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	agent, err := react.NewAgent(ctx, &react.AgentConfig{
		ToolCallingModel: model,
		ToolsConfig: compose.ToolsNodeConfig{
			Tools:               []tool.BaseTool{search},
			ToolCallMiddlewares: []compose.ToolMiddleware{einohealth.Middleware(guard)},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	answer, err := agent.Generate(ctx, []*schema.Message{schema.UserMessage("What is a circuit breaker?")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Content)
	// Output:
	// search was called
	// search was called
	// search was called
	// I read: tool temporarily unavailable: circuit breaker open; retry after 30s
}
