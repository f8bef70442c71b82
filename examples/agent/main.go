// Agent is a small agent loop over the tools of two MCP servers, which are child
// processes. One of them, with forty tools, dies and comes back: that costs three failing
// calls, and the run goes on to its answer.
//
//	go run .
//
// With -serve it shows the tools on a page, and goes on until it is interrupted:
//
//	go run . -serve
//
// This file and agent.go are what to copy. The model is in model.go, and is a script; the
// servers are in servers.go, and are this program again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/checkpoint"
	"github.com/toolhealth/toolhealth/integrations/dashboard"
	"github.com/toolhealth/toolhealth/integrations/sloghealth"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

func main() {
	if name := os.Getenv(serverVariable); name != "" {
		os.Exit(runServer(name))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for anything
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// options are what the flags say.
type options struct {
	serve      bool
	address    string
	checkpoint string
}

// run is main with its surroundings as arguments. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.serve, "serve", false, "show the tools on a page, and do the task again and again until the\nprogram is interrupted")
	flags.StringVar(&o.address, "addr", "127.0.0.1:8345", "`address` of the page")
	flags.StringVar(&o.checkpoint, "checkpoint", "", "`file` that keeps what is known against the tools until the next run")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "agent: want no arguments but flags, got %q\n", flags.Arg(0))
		return 2
	}
	if err := play(ctx, o, stdout); err != nil {
		fmt.Fprintln(stderr, "agent:", err)
		return 1
	}
	return 0
}

// cooldown is how long a tool or a server that is out is left alone: short, so that the
// story is. The default is 30s.
const cooldown = 2 * time.Second

// play does the task, with all that an operator wants around it.
func play(ctx context.Context, o options, out io.Writer) error {
	log := slog.New(slog.NewTextHandler(out, nil))
	a, err := newAgent(log, out)
	if err != nil {
		return err
	}
	defer a.close()
	registry := a.guard.Registry()
	defer sloghealth.Log(registry, log, sloghealth.Options{})()

	// What runs beside the loop ends after the last call, also if ctx is done before.
	var beside sync.WaitGroup
	defer beside.Wait()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if o.checkpoint != "" {
		restored, err := checkpoint.Load(registry, o.checkpoint)
		if err != nil { // it starts empty
			log.Warn("no checkpoint was restored", "err", err)
		}
		fmt.Fprintf(out, "tools restored: %d, servers: %d\n", restored.Tools, restored.Groups)
		beside.Go(func() {
			checkpoint.Keep(running, registry, o.checkpoint, time.Second, func(err error) {
				log.Warn("the checkpoint was not saved", "err", err)
			})
		})
	}
	m := script{think: 100 * time.Millisecond}
	if o.serve {
		m.think = time.Second
		if err := servePage(running, &beside, registry, o.address, out); err != nil {
			return err
		}
	}
	for {
		answer, err := a.do(ctx, m, task)
		switch {
		case o.serve && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		fmt.Fprintf(out, "answer: %s\n\n", answer)
		if !o.serve {
			a.tally()
			return nil
		}
	}
}

// servePage shows the tools on a page for people on this machine until ctx is done.
func servePage(ctx context.Context, beside *sync.WaitGroup, registry *toolhealth.Registry, address string, out io.Writer) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	address = listener.Addr().String()
	watcher := watch.New(registry, watch.Options{Interval: time.Second})
	mux := http.NewServeMux()
	mux.Handle("/tools/", dashboard.New(registry, dashboard.Options{
		Name:    "agent",
		Watcher: watcher,
		// A page of a stranger can reach this port under a name of its own: it may only look.
		Operator: func(r *http.Request) (who string, ok bool) { return "you", r.Host == address },
	}))
	mux.Handle("/{$}", http.RedirectHandler("/tools/", http.StatusSeeOther))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	beside.Go(func() {
		watcher.Run(ctx)
		watcher.Close()
		_ = server.Close()
	})
	beside.Go(func() { _ = server.Serve(listener) })
	fmt.Fprintf(out, "http://%s/tools/ shows the tools, until you press Ctrl-C\n", address)
	return nil
}
