package genkithealth_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/genkit"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/genkithealth"
)

// A tool whose backend is down, and a model that insists.
func ExampleGuard() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	guard, err := toolhealth.New(toolhealth.Settings{Policy: toolhealth.Policy{MaxAttempts: 1}})
	if err != nil {
		panic(err)
	}
	g := genkit.Init(ctx)
	search := genkit.DefineTool(g, "search", "searches", func(*ai.ToolContext, query) (string, error) {
		return "", errors.New("dial search.internal: no such host")
	})
	insisting := times(4, "search")
	model := genkit.DefineModelAction(g, "test/insisting", withTools, insisting.generate)

	resp, err := genkit.Generate(ctx, g, ai.WithModel(model), ai.WithPrompt("What is a breaker?"), ai.WithTools(search),
		ai.WithUse(genkithealth.Guard{Guard: guard}))
	if err != nil {
		panic(err)
	}
	for _, output := range insisting.told {
		fmt.Println(output)
	}
	fmt.Println(resp.Text())
	// Output:
	// {"attempts":1,"kind":"unknown","reason":"tool_failure:non_retryable","text":"tool failed: unknown error"}
	// {"attempts":1,"kind":"unknown","reason":"tool_failure:non_retryable","text":"tool failed: unknown error"}
	// {"attempts":1,"kind":"unknown","reason":"tool_failure:non_retryable","text":"tool failed: unknown error"}
	// {"attempts":0,"kind":"refused","reason":"tool_unavailable:circuit_open","retry_after_seconds":30,"text":"tool temporarily unavailable: circuit breaker open; retry after 30s"}
	// done
}
