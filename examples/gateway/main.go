// Gateway serves HTTP tools to agents through a guard, and shows what the guard is
// worth while one of the tools is down.
//
// The program starts three tools on loopback and lets an agent work through the
// same list of calls twice: first against the tools themselves, with the three
// attempts that a usual SDK makes, then through the gateway, which knows a
// substitute for the search. Meanwhile the search tool answers 503, then hangs, then
// works again. Both runs are shown side by side. Then an operator isolates a tool,
// re-routes its calls, changes the configuration and resets the tool, all on the
// admin port.
//
//	go run ./examples/gateway
//
// The parts to copy are gateway.go and log.go. story.go has the outage and
// the expected results: the program exits with 1 if it does not get them. README.md is the
// runbook for operators.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its surroundings as arguments. It returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	flags.SetOutput(stderr)
	pace := flags.Duration("pace", 20*time.Millisecond, "pause after each call; an attempt may take 4 of them,\nand a cooldown lasts 5")
	price := flags.Float64("price", 0.01, "what one request to a tool costs, in dollars")
	logged := flags.Bool("log", false, "log breakers and failed calls to stderr, as JSON")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0 || *pace <= 0 || !(*price >= 0):
		fmt.Fprintln(stderr, "gateway: want no arguments but flags, a pace above 0 and a price of 0 or more")
		return 2
	}
	if err := tell(context.Background(), *pace, *price, stdout, newLog(*logged, stderr)); err != nil {
		fmt.Fprintln(stderr, "gateway:", err)
		return 1
	}
	return 0
}
