package bench

import (
	"context"
	"time"

	"github.com/toolhealth/toolhealth"
)

// Names of the cases of the guard.
const (
	GuardCall    = "toolhealth/guard/call"
	GuardWrap    = "toolhealth/guard/wrap"
	GuardTimeout = "toolhealth/guard/call-with-timeout"
	GuardRefused = "toolhealth/guard/refused"
)

// timeLimit is the Timeout of the cases that have one; no call comes near it.
const timeLimit = time.Minute

const keepsGuard = keepsPermit + ", attempts, retry budget"

// okTool and failTool are the tools that the cases call.
func okTool(context.Context, string) (int, error)   { return 1, nil }
func failTool(context.Context, string) (int, error) { return 0, errBoom }

func newGuard(r *toolhealth.Registry, change func(*toolhealth.GuardConfig)) *toolhealth.Guard {
	config := toolhealth.GuardConfig{Default: toolhealth.Policy{Timeout: toolhealth.Off}}
	if change != nil {
		change(&config)
	}
	g, err := toolhealth.NewGuard(&toolhealth.Gate{Registry: r}, config)
	must(err == nil)
	return g
}

// guards are the cases of the guard.
func guards() []Case {
	calls := func(name, keeps string, g func() *toolhealth.Guard, tool func(context.Context, string) (int, error), works bool) Case {
		return Case{Name: name, Keeps: keeps, New: func(*Teardown) func(int) {
			g := g()
			return func(n int) {
				c := over(thousand.Lookups)
				for range n {
					_, err := toolhealth.Call(bg, g, c.next(), tool)
					must((err == nil) == works)
				}
			}
		}}
	}
	return []Case{
		calls(GuardCall, keepsGuard, func() *toolhealth.Guard {
			return newGuard(NewRegistry(thousand.Registered), nil)
		}, okTool, true),
		{Name: GuardWrap, Keeps: keepsGuard, New: func(*Teardown) func(int) {
			g := newGuard(NewRegistry(thousand.Registered), nil)
			wrapped := make([]func(context.Context, int) (int, error), 0, tools)
			for _, name := range thousand.Lookups { // in the order of the keyed cases
				wrapped = append(wrapped, toolhealth.Wrap(g, name, func(_ context.Context, x int) (int, error) { return x, nil }).Call)
			}
			return func(n int) {
				i := 0
				for range n {
					_, err := wrapped[i](bg, i)
					must(err == nil)
					if i++; i == len(wrapped) {
						i = 0
					}
				}
			}
		}},
		calls(GuardTimeout, keepsGuard, func() *toolhealth.Guard {
			return newGuard(NewRegistry(thousand.Registered), func(c *toolhealth.GuardConfig) { c.Default.Timeout = timeLimit })
		}, okTool, true),
		calls("toolhealth/guard/failure-without-retry", keepsGuard+", kind", func() *toolhealth.Guard {
			return newGuard(NewRegistry(thousand.Registered, NeverOpens), func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 })
		}, failTool, false),
		calls(GuardRefused, "refusals; the error says why and how long", func() *toolhealth.Guard {
			return newGuard(OpenRegistry(thousand.Registered), nil)
		}, okTool, false),
	}
}
