package checkpoint_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/checkpoint"
)

func Example() {
	folder, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "tools.json")

	run := func(work func(*toolhealth.Registry)) {
		registry := toolhealth.NewRegistry()
		restored, err := checkpoint.Load(registry, path)
		if err != nil {
			log.Print(err) // it starts empty
		}
		fmt.Println("restored:", restored.Tools)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			checkpoint.Keep(ctx, registry, path, time.Second, func(err error) { log.Print(err) })
		}()
		work(registry)
		cancel()
		<-done
	}
	run(func(registry *toolhealth.Registry) {
		for range 3 {
			registry.RecordFailure("search", time.Second)
		}
	})
	run(func(registry *toolhealth.Registry) {
		fmt.Println("search is available:", registry.Available("search"))
	})
	// Output:
	// restored: 0
	// restored: 1
	// search is available: false
}
