package watch_test

import (
	"context"
	"fmt"
	"time"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

// How many calls there were lately, and what breakers did.
func Example() {
	registry := toolhealth.NewRegistry()
	watcher := watch.New(registry, watch.Options{Interval: 20 * time.Millisecond})
	defer watcher.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go watcher.Run(ctx)

	for range 3 {
		registry.RecordFailure("search", time.Second)
	}
	time.Sleep(60 * time.Millisecond)
	view := watcher.View(5 * time.Minute)
	for i, h := range view.Summary.Tools {
		fmt.Println(h.Tool, view.Windows[i].Calls, "calls,", view.Windows[i].Failures, "failed")
	}
	for _, e := range view.Events {
		fmt.Println(e.Tool, "is", e.To, "because of", e.Cause)
	}
	// Output:
	// search 3 calls, 3 failed
	// search is open because of failure_threshold
}
