package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/dashboard"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

// serve shows the tools on a page until ctx is done, while an agent works through the
// list again and again and the search tool goes through its outages.
func serve(ctx context.Context, list []request, pace time.Duration, address string, stdout io.Writer) error {
	if len(list) == 0 {
		return errors.New("the list has no calls")
	}
	world, err := startTools(3 * pace)
	if err != nil {
		return err
	}
	defer world.stop()
	gate, err := newGate(world.tools, 5*pace)
	if err != nil {
		return err
	}
	watcher := watch.New(gate.Registry, watch.Options{Interval: time.Second})
	defer watcher.Close()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	page := &http.Server{Handler: operatorPage(gate.Registry, watcher, listener.Addr().String()), ReadHeaderTimeout: time.Second}

	var running sync.WaitGroup
	defer running.Wait()
	defer page.Close()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	running.Go(func() { watcher.Run(watching) })
	running.Go(func() { _ = page.Serve(listener) })
	fmt.Fprintf(stdout, "http://%s/tools/ shows the tools, until you press Ctrl-C\n", listener.Addr())

	agent := &agent{gate: gate, tools: world.tools}
	for i := 0; ctx.Err() == nil; i++ {
		if i == len(list) {
			i, world.stage = 0, 0
		}
		news, err := world.turn(float64(i) / float64(len(list)))
		if err != nil {
			return err
		}
		if news != "" {
			fmt.Fprintf(stdout, "%s  %s\n", time.Now().Format(time.TimeOnly), news)
		}
		agent.call(ctx, list[i].tool, list[i].argument)
		select {
		case <-ctx.Done():
		case <-time.After(pace):
		}
	}
	return nil
}

// operatorPage is the page for people on this machine. Who comes by another name than its
// address may only look: it could be a page of a stranger whose name leads here.
func operatorPage(registry *toolhealth.Registry, watcher *watch.Watcher, address string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/tools/", dashboard.New(registry, dashboard.Options{
		Name:    "quickstart",
		Watcher: watcher,
		Operator: func(r *http.Request) (who string, ok bool) {
			return "you", r.Host == address
		},
	}))
	mux.Handle("/{$}", http.RedirectHandler("/tools/", http.StatusSeeOther))
	return mux
}
