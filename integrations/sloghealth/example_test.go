package sloghealth_test

import (
	"expvar"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/sloghealth"
)

func ExampleLog() {
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	registry := toolhealth.NewRegistry()

	stop := sloghealth.Log(registry, logger, sloghealth.Options{})
	defer stop()

	for range 3 {
		registry.RecordFailure("search", 0)
	}
	registry.Reset("search", "alice")
	// Output:
	// level=WARN msg="breaker opened" tool=search from=closed to=open cause=failure_threshold epoch=2 streak=3 kind=unknown wait=30s
	// level=INFO msg="breaker closed" tool=search from=open to=closed cause=reset epoch=3 by=alice
}

// The summary under /debug/vars.
func Example_expvar() {
	registry := toolhealth.NewRegistry()
	registry.RecordSuccess("search", 0)

	summary := expvar.Func(func() any { return registry.HealthSummary() })
	expvar.Publish("toolhealth", summary)

	fmt.Println(strings.Contains(expvar.Get("toolhealth").String(), `"tool":"search","status":"healthy"`))
	// Output: true
}
