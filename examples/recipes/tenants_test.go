package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/toolhealth/toolhealth"
)

// agency runs tools for many tenants. Each tenant has a breaker of its own for each tool.
type agency struct {
	guard *toolhealth.Guard
	tools map[string]func(ctx context.Context, tenant, arguments string) (string, error)
}

// call runs a tool for a tenant. The tenant comes from the caller's credentials, the
// name of the tool from the model.
func (a *agency) call(ctx context.Context, tenant, tool, arguments string) (string, error) {
	run, ok := a.tools[tool]
	if !ok {
		// before a made-up name gets an entry
		return "", &toolhealth.Refusal{Tool: tool, Reason: toolhealth.StopUnknownTool}
	}
	if strings.Contains(tenant, "|") {
		return "", errors.New("a tenant with | in its name could pass for another one")
	}
	return toolhealth.Call(ctx, a.guard, tenant+"|"+tool, func(ctx context.Context, _ string) (string, error) {
		return run(ctx, tenant, arguments)
	})
}

// forTenants makes the policy of "mail" that of "acme|mail", too. Without it, a tool
// with side effects would be one without.
func forTenants(settings toolhealth.Settings) toolhealth.Settings {
	tools := settings.Tools
	settings.PolicyOf = func(name string, usual toolhealth.Policy) toolhealth.Policy {
		_, tool, _ := strings.Cut(name, "|")
		if own := tools[tool].Policy; own != nil {
			return *own
		}
		return usual
	}
	return settings
}

// The service of one tenant is down. The others do not notice.
func Example_tenants() {
	down := func(_ context.Context, tenant, _ string) (string, error) {
		if tenant == "acme" {
			return "", toolhealth.CheckStatus(503, nil)
		}
		return "done for " + tenant, nil
	}
	settings := toolhealth.Settings{
		Tools:    map[string]toolhealth.ToolSettings{"mail": {Policy: &toolhealth.Policy{SideEffects: true}}},
		MaxTools: 10_000, // tenants times tools
	}
	a := &agency{
		guard: newGuard(forTenants(settings)),
		tools: map[string]func(context.Context, string, string) (string, error){"search": down, "mail": down},
	}
	ctx := context.Background()
	for range 3 {
		fmt.Println(forModel(a.call(ctx, "acme", "search", "go")))
	}
	fmt.Println(forModel(a.call(ctx, "globex", "search", "go")))
	fmt.Println(forModel(a.call(ctx, "acme", "mail", "hello")))
	fmt.Println(forModel(a.call(ctx, "acme", "serach", "go")))
	_, err := a.call(ctx, "acme|search", "mail", "hello")
	fmt.Println(err)
	for name, health := range a.guard.Registry().All() {
		fmt.Println(name, health.State)
	}
	// Output:
	// tool failed: internal error of the tool
	// tool failed: internal error of the tool
	// tool temporarily unavailable: circuit breaker open; retry after 30s
	// done for globex
	// tool outcome unknown: the action may have been carried out, check before repeating it
	// unknown tool
	// a tenant with | in its name could pass for another one
	// acme|mail closed
	// acme|search open
	// globex|search closed
}
