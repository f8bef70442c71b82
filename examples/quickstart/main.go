// Quickstart is an agent loop that keeps working while one of its tools is down.
//
// It starts three HTTP tools on loopback and works through a list of tool calls.
// Meanwhile the search tool answers 503, then hangs, then is gone, then comes
// back. The breaker opens, a backup answers the calls, one probe per cooldown tests
// search, and the first successful probe closes the breaker.
//
//	go run ./examples/quickstart
//
// With -serve it shows the tools on a page, and goes on until it is interrupted:
//
//	go run ./examples/quickstart -serve
//
// The part to copy is newGate and (*agent).call. The tools are in tools.go; verify.go
// checks the story, and the program exits with 1 if it is not as expected.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/toolhealth/toolhealth"
)

//go:embed calls.txt
var embeddedCalls string

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// newGate makes a registry that knows these tools and no others, and a gate in
// front of it that lets the backup stand in for the search.
func newGate(tools map[string]tool, cooldown time.Duration) (*toolhealth.Gate, error) {
	config := toolhealth.DefaultConfig()
	config.Breaker.RecoveryDuration = cooldown
	config.RegisteredOnly = true // a name that the model made up is refused and leaves no trace
	registry, err := toolhealth.NewRegistryWithConfig(config)
	if err != nil {
		return nil, err
	}
	for name := range tools {
		if err := registry.Register(name, toolhealth.ToolOptions{}); err != nil {
			return nil, err
		}
	}
	router, err := toolhealth.NewHealthRouter(map[string][]string{primary: {backup}})
	if err != nil {
		return nil, err
	}
	return &toolhealth.Gate{Registry: registry, Router: router}, nil
}

// agent calls the tools for the model.
type agent struct {
	gate  *toolhealth.Gate
	tools map[string]tool
}

// result is the result of one call.
type result struct {
	servedBy string // tool that ran; empty means none
	probe    bool
	verdict  toolhealth.Verdict
	told     string // text for the model
}

// call runs one call that the model asked for.
func (a *agent) call(ctx context.Context, name, argument string) result {
	permit, err := a.gate.Allow(ctx, name)
	if err != nil {
		// Nothing ran. A refusal is a short text without secrets: show it to the model.
		return result{verdict: toolhealth.Classify(ctx, err), told: err.Error()}
	}
	defer permit.Release() // if the tool panics; after Done it does nothing

	answer, err := a.tools[permit.Tool()](ctx, argument)
	permit.Done(ctx, err)

	r := result{servedBy: permit.Tool(), probe: permit.Probe(), verdict: toolhealth.Classify(ctx, err), told: answer}
	switch r.verdict.Outcome {
	case toolhealth.OutcomeSuccess:
		if r.servedBy != name {
			r.told += " (from " + r.servedBy + ")"
		}
	case toolhealth.OutcomeRejected:
		r.told = fmt.Sprintf("%s does not accept this: %s", name, r.verdict.Kind)
	default:
		r.told = fmt.Sprintf("%s failed: %s", name, r.verdict.Kind) // not err, which names hosts
	}
	return r
}

// run is main with its surroundings as arguments. It returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(stderr)
	file := flags.String("file", "", "read the calls from this `path` instead of the built-in list:\none call a line, the tool's name and its argument; # starts a comment")
	pace := flags.Duration("pace", 80*time.Millisecond, "pause after each call; the cooldown is 5 of them and a tool\nhas 3 of them to answer, so 1s shows it all in slow motion,\nwhich is the default of -serve")
	onPage := flags.Bool("serve", false, "show the tools on a page until the program is interrupted")
	address := flags.String("addr", "127.0.0.1:8344", "`address` of the page")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0 || *pace <= 0:
		fmt.Fprintln(stderr, "quickstart: want no arguments but flags, and a pace above 0")
		return 2
	}
	calls := embeddedCalls
	if *file != "" {
		text, err := os.ReadFile(*file)
		if err != nil {
			fmt.Fprintln(stderr, "quickstart:", err)
			return 2
		}
		calls = string(text)
	}
	var err error
	if *onPage {
		if !isSet(flags, "pace") {
			*pace = time.Second
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		err = serve(ctx, parse(calls), *pace, *address, stdout)
	} else {
		err = play(context.Background(), parse(calls), *pace, stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "quickstart:", err)
		return 1
	}
	return 0
}

// isSet reports whether a flag is on the command line.
func isSet(flags *flag.FlagSet, name string) (found bool) {
	flags.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

type request struct{ tool, argument string }

// parse reads the list of calls.
func parse(text string) (list []request) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		name, argument, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "" {
			list = append(list, request{name, strings.TrimSpace(argument)})
		}
	}
	return list
}

// play works through the list while the search tool goes through its outages, prints
// what happens, and returns an error if that is not as expected.
func play(ctx context.Context, list []request, pace time.Duration, stdout io.Writer) error {
	out := bufio.NewWriter(stdout)
	defer out.Flush()

	world, err := startTools(3 * pace)
	if err != nil {
		return err
	}
	defer world.stop()
	gate, err := newGate(world.tools, 5*pace)
	if err != nil {
		return err
	}
	var seen history
	defer gate.Registry.OnTransition(seen.note)()
	agent := &agent{gate: gate, tools: world.tools}

	fmt.Fprintf(out, "%d calls; a breaker opens after 3 failures in a row and probes after %v\n\n", len(list), 5*pace)
	fmt.Fprintf(out, row, "TIME", "THE MODEL ASKED FOR", "SERVED BY", "OUTCOME", "STATE", "SCORE", "THE MODEL WAS TOLD")
	start := time.Now()
	for i, asked := range list {
		news, err := world.turn(float64(i) / float64(len(list)))
		if err != nil {
			return err
		}
		if news != "" {
			fmt.Fprintf(out, "\n-- %s\n", news)
		}
		at := time.Since(start)
		r := agent.call(ctx, asked.tool, asked.argument)
		state, score := "-", "-"
		if h, ok := gate.Registry.Health(asked.tool); ok {
			state, score = h.State.String(), fmt.Sprintf("%.2f", h.Score)
		}
		fmt.Fprintf(out, row, fmt.Sprintf("%.2fs", at.Seconds()), asked.tool+" "+quote(asked.argument),
			r.servedBy, outcome(r), state, score, r.told)
		for _, t := range seen.add(asked, r) {
			fmt.Fprintf(out, "%9s %s: %s -> %s (%s)\n", "**", t.Tool, t.From, t.To, t.Cause)
		}
		out.Flush()
		time.Sleep(pace)
	}
	summary := gate.Registry.HealthSummary()
	if err := printSummary(out, summary); err != nil {
		return err
	}
	if err := seen.verify(5*pace, summary); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nAs expected: it opened, calls were re-routed, one probe went out per cooldown, and it recovered.")
	return nil
}

const row = "%7s  %-36s  %-13s  %-20s  %-9s  %5s  %s\n"

func quote(argument string) string {
	if text := []rune(argument); len(text) > 20 {
		argument = string(text[:19]) + "…"
	}
	return `"` + argument + `"`
}

func outcome(r result) string {
	switch {
	case r.servedBy == "":
		return "refused"
	case r.verdict.Kind == toolhealth.KindNone:
		return r.verdict.Outcome.String()
	case r.verdict.Outcome == toolhealth.OutcomeFailure:
		return r.verdict.Kind.String()
	}
	return r.verdict.Outcome.String() + ", " + r.verdict.Kind.String()
}

// printSummary prints the summary as a table and as JSON for a dashboard.
func printSummary(out io.Writer, s toolhealth.Summary) error {
	fmt.Fprintf(out, "\nSummary: %s, %d of %d tools unavailable\n\n", s.Overall, s.Unavailable, len(s.Tools))
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "tool\tstatus\tstate\tscore\tcalls\tok\tfailed\trejected\ttrips\taverage\tmax\t")
	for _, h := range s.Tools {
		fmt.Fprintf(table, "%s\t%s\t%s\t%.2f\t%d\t%d\t%d\t%d\t%d\t%v\t%v\t\n", h.Tool, h.Status, h.State, h.Score,
			h.TotalCalls(), h.Successes, h.Failures, h.Rejected, h.Trips,
			h.Average.Round(10*time.Microsecond), h.Max.Round(10*time.Microsecond))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(s, "", "  ")
	fmt.Fprintf(out, "\n%s\n", text)
	return err
}

// history records what happened, for the time line and for verify.
type history struct {
	mu          sync.Mutex // any goroutine that uses the registry may call the hook
	transitions []toolhealth.Transition
	printed     int
	turns       []turn
}

type turn struct {
	request
	result
	after int // number of transitions at the end of the call
}

// note is the transition hook.
func (h *history) note(t toolhealth.Transition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.transitions = append(h.transitions, t)
}

// add keeps one turn and returns the transitions since the last one.
func (h *history) add(asked request, r result) []toolhealth.Transition {
	h.mu.Lock()
	defer h.mu.Unlock()
	news := h.transitions[h.printed:]
	h.printed = len(h.transitions)
	h.turns = append(h.turns, turn{asked, r, h.printed})
	return news
}
