package guard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/internal/race"
)

// A site is a place where a program makes a guarded call: outermost, or once in each
// run of the tool function of the site around it. Where the tool that was asked for has
// side effects, every run may act, whichever tool serves; else every run of a
// substitute that has them.
//
// The property is that the runs of one site act at most once for one outermost call,
// whatever is repeated, handed to substitutes, timed out, canceled or left running. The
// program passes its ctx on, perhaps without its cancel. A run that has acted does not
// say itself that it was not sent, but returns what others say: the errors of calls
// further in and of ctxs. Nor does a check mark its error as not sent.
//
// When everything has ended, no permit, running call, probe or token may be missing.
type site struct {
	id      uint64
	tool    string
	guard   *toolhealth.Guard
	inner   []*site
	partial *site // called by the Partial handler; nil for no handler
	check   bool  // a CheckResult may fail
	wrapped bool  // the call is made by Wrap, with an adapter for each tool
	runs    atomic.Uint64
	acts    atomic.Int32
}

// program is a random tree of sites and what they run on. The same seed makes the same
// program, and each run of a site draws from a generator of its own.
type program struct {
	seed       uint64
	registries []*toolhealth.Registry // nil among them
	gates      []*toolhealth.Gate     // of the guards
	guards     []*toolhealth.Guard
	acting     map[string]bool
	sites      []*site
}

const (
	programTools  = 6
	programBudget = 5
)

func toolNamed(i int) string { return "tool" + strconv.Itoa(i) }

func anyTool(rng *rand.Rand) string { return toolNamed(rng.IntN(programTools)) }

// oneIn reports true once in n times.
func oneIn(rng *rand.Rand, n int) bool { return rng.IntN(n) == 0 }

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

func newProgram(t *testing.T, seed uint64) *program {
	rng := rand.New(rand.NewPCG(seed, 0))
	p := &program{seed: seed, acting: make(map[string]bool)}
	for i := range programTools {
		p.acting[toolNamed(i)] = oneIn(rng, 2)
	}
	for range 1 + rng.IntN(2) {
		p.registries = append(p.registries, newPlayRegistry(t, rng))
	}
	if oneIn(rng, 8) {
		p.registries[0] = nil
	}
	for range 1 + rng.IntN(3) {
		p.guards = append(p.guards, p.newGuard(t, rng))
	}
	p.grow(rng, 0)
	return p
}

// newPlayRegistry returns a registry that may have no room, in which some breakers are
// open or about to open, an operator may be at work, and a hook may be slow or end its
// goroutine.
func newPlayRegistry(t *testing.T, rng *rand.Rand) *toolhealth.Registry {
	r := registryWith(t, func(c *toolhealth.Config) {
		c.Breaker.FailureThreshold = pick(rng, 1, 3, 1000, 1000)
		c.Breaker.RecoveryDuration = pick(rng, 10*time.Millisecond, time.Second, time.Minute)
		c.Breaker.ProbeTimeout = pick(rng, 0, time.Second, time.Minute)
		c.Breaker.SlowCallDuration = pick(rng, 0, 0, 0, time.Second)
		c.MaxTools = pick(rng, 1, 3, 1000, 1000, 1000)
	})
	for i := range programTools {
		switch rng.IntN(12) {
		case 0:
			failTimes(r, toolNamed(i), 1000)
		case 1:
			failTimes(r, toolNamed(i), 1)
		case 2:
			r.Isolate(toolNamed(i), "")
		}
	}
	if tool := anyTool(rng); oneIn(rng, 4) {
		act := pick(rng, func() { r.Remove(tool) }, func() { r.Reset(tool, "") }, func() { r.Isolate(tool, "") })
		time.AfterFunc(pick(rng, time.Millisecond, 100*time.Millisecond, 3*time.Second), act) // an operator
	}
	hook := rng.IntN(16)
	r.OnTransition(func(e toolhealth.Transition) {
		switch hook {
		case 0:
			panic("hook")
		case 1:
			runtime.Goexit()
		case 2:
			time.Sleep(2 * time.Second)
		case 3:
			if e.To == toolhealth.StateHalfOpen {
				r.Reset(e.Tool, "")
				time.Sleep(2 * time.Second)
			}
		}
	})
	return r
}

func (p *program) newGuard(t *testing.T, rng *rand.Rand) *toolhealth.Guard {
	substitutes := make(map[string][]string)
	for i := range programTools {
		for range rng.IntN(3) {
			if s := toolNamed((i + 1 + rng.IntN(programTools-1)) % programTools); len(substitutes[toolNamed(i)]) == 0 || substitutes[toolNamed(i)][0] != s {
				substitutes[toolNamed(i)] = append(substitutes[toolNamed(i)], s)
			}
		}
	}
	router, err := toolhealth.NewHealthRouter(substitutes)
	require.NoError(t, err)
	gate := &toolhealth.Gate{Registry: pick(rng, p.registries...), Router: router, Classify: anyClassifier(rng), DeadlineFloor: pick(rng, toolhealth.Off, 10*time.Millisecond, time.Second)}
	p.gates = append(p.gates, gate)
	observer := rng.IntN(20)
	return guardOverGate(t, gate, func(c *toolhealth.GuardConfig) {
		c.Tools = make(map[string]toolhealth.Policy)
		for i := range programTools {
			c.Tools[toolNamed(i)] = toolhealth.Policy{
				MaxAttempts: pick(rng, 1, 2, 3, 5), Timeout: pick(rng, toolhealth.Off, 0, 10*time.Millisecond, time.Second, time.Minute),
				BackoffBase: pick(rng, toolhealth.Off, time.Millisecond, time.Second), Jitter: pick(rng, toolhealth.Off, 0.5, 1),
				MaxWait: pick(rng, toolhealth.Off, time.Second, time.Minute), RetryBudget: programBudget, RetryRefill: toolhealth.Off,
				SideEffects: p.acting[toolNamed(i)], Detach: oneIn(rng, 3),
			}
		}
		if tools := c.Tools; oneIn(rng, 3) {
			c.Tools, c.PolicyOf = nil, func(tool string, _ toolhealth.Policy) toolhealth.Policy { return tools[tool] }
		}
		c.Observe = func(context.Context, toolhealth.Event) {
			switch observer {
			case 0:
				panic("observer")
			case 1:
				runtime.Goexit()
			case 2, 3:
				time.Sleep(20 * time.Millisecond)
			}
		}
	})
}

// anyClassifier returns the default, or a Classifier that finds nearly everything worth
// a repetition, panics, or ends its goroutine.
func anyClassifier(rng *rand.Rand) toolhealth.Classifier {
	eager := func(ctx context.Context, err error) toolhealth.Verdict {
		v := toolhealth.Classify(ctx, err)
		if v.Outcome == toolhealth.OutcomeFailure || v.Kind == toolhealth.KindRefused {
			v.Retryable = true
		}
		return v
	}
	return pick[toolhealth.Classifier](rng, nil, nil, nil, eager, eager, eager,
		func(context.Context, error) toolhealth.Verdict { panic("classifier") },
		func(context.Context, error) toolhealth.Verdict { runtime.Goexit(); return toolhealth.Verdict{} })
}

// grow adds a site with the sites inside of it.
func (p *program) grow(rng *rand.Rand, depth int) *site {
	s := &site{
		id: uint64(len(p.sites)), tool: anyTool(rng), guard: pick(rng, p.guards...),
		check: oneIn(rng, 3), wrapped: oneIn(rng, 3),
	}
	if depth == 0 { // is repeated more often if it does not act itself
		for range programTools {
			if p.acting[s.tool] {
				s.tool = anyTool(rng)
			}
		}
	}
	p.sites = append(p.sites, s)
	if depth < 3 {
		for range rng.IntN(4 - depth) {
			s.inner = append(s.inner, p.grow(rng, depth+1))
		}
		if oneIn(rng, 8) {
			s.partial = p.grow(rng, depth+1)
		}
	}
	return s
}

// call makes the guarded call of a site.
func (p *program) call(ctx context.Context, s *site) error {
	run := func(ctx context.Context, tool string) (string, error) { return tool, p.run(ctx, s, tool) }
	check := func(string) error {
		return pick[error](p.draws(s, 1), nil, errDial, errDial, safeToRetry{errBroken}, errBusy)
	}
	partial := func(ctx context.Context, _ *toolhealth.ToolError) (string, error) { return "", p.call(ctx, s.partial) }
	if !s.wrapped {
		var options []toolhealth.CallOption[string]
		if s.check {
			options = append(options, toolhealth.CheckResult(check))
		}
		if s.partial != nil {
			options = append(options, toolhealth.Partial(partial))
		}
		_, err := toolhealth.Call(ctx, s.guard, s.tool, run, options...)
		return err
	}
	serve := func(name string) func(context.Context, int) (string, error) {
		return func(ctx context.Context, _ int) (string, error) { return run(ctx, name) }
	}
	tool := toolhealth.Wrap(s.guard, s.tool, serve(s.tool))
	if s.check {
		tool = tool.CheckResult(check)
	}
	if s.partial != nil {
		tool = tool.Partial(partial)
	}
	for i := range programTools {
		if name := toolNamed(i); name != s.tool {
			tool = tool.Substitute(name, serve(name))
		}
	}
	_, err := tool.Call(ctx, 0)
	return err
}

// draws returns the generator of a run, of its stream n.
func (p *program) draws(s *site, n uint64) *rand.Rand {
	return rand.New(rand.NewPCG(p.seed, 1+s.id<<32+s.runs.Load()<<8+n))
}

// run is the tool function of a site.
func (p *program) run(ctx context.Context, s *site, tool string) error {
	s.runs.Add(1)
	rng := p.draws(s, 0)
	acts := (p.acting[s.tool] || p.acting[tool]) && !oneIn(rng, 4)
	acted, act := false, rng.IntN(len(s.inner)+1)
	witnessed := oneIn(rng, 8) // a lower layer takes notes, here of a request before the act
	if witnessed {
		toolhealth.Note(ctx, toolhealth.Classify(ctx, unsentError(rng)))
	}
	if oneIn(rng, 8) {
		defer p.permit(ctx, rng)()
	}
	var last error // of a call further in
	for i := range len(s.inner) + 1 {
		pass(ctx, rng)
		if i == act && acts {
			s.acts.Add(1)
			acted = true
			if witnessed {
				toolhealth.Note(ctx, toolhealth.Verdict{})
			}
		}
		if i == len(s.inner) {
			break
		}
		if err := p.callInside(ctx, rng, s.inner[i]); err != nil {
			if last = err; oneIn(rng, 3) {
				break
			}
		}
	}
	return p.end(ctx, rng, acted, last)
}

// permit asks a Gate for a permit of any tool, and returns how it is settled or given
// back on the way out.
func (p *program) permit(ctx context.Context, rng *rand.Rand) (end func()) {
	permit, err := pick(rng, p.gates...).Allow(ctx, anyTool(rng))
	if err != nil {
		return func() {}
	}
	how, failure := rng.IntN(3), pick[error](rng, nil, errBusy, throttledFor(time.Second))
	return func() {
		defer permit.Release()
		switch how {
		case 0:
			permit.Done(ctx, failure)
		case 1:
			permit.Settle(toolhealth.Classify(ctx, failure))
		}
	}
}

// pass lets some time go, as a tool does that listens to its ctx or does not.
func pass(ctx context.Context, rng *rand.Rand) {
	d := pick(rng, 0, 0, 0, 0, 0, time.Millisecond, 10*time.Millisecond, 2*time.Second, 2*time.Minute)
	if oneIn(rng, 3) {
		time.Sleep(d)
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// callInside makes a call of a site further in, and waits for it or does not.
func (p *program) callInside(ctx context.Context, rng *rand.Rand, s *site) error {
	ctx, cancel := anyContext(ctx, rng)
	if oneIn(rng, 5) {
		delay := pick(rng, 0, time.Millisecond, 15*time.Millisecond, 5*time.Second)
		done := make(chan error, 1)
		go func() {
			defer close(done)
			defer cancel()
			defer func() { _ = recover() }() // a moody ctx panics
			time.Sleep(delay)
			done <- p.call(ctx, s)
		}()
		if oneIn(rng, 2) {
			return <-done
		}
		return nil
	}
	defer cancel()
	return p.call(ctx, s)
}

type valueKey struct{}

// anyContext returns a ctx for a call further in.
func anyContext(ctx context.Context, rng *rand.Rand) (context.Context, context.CancelFunc) {
	if oneIn(rng, 6) {
		ctx = context.WithoutCancel(ctx)
	}
	switch rng.IntN(8) {
	case 0:
		return context.WithTimeout(ctx, pick(rng, time.Millisecond, 100*time.Millisecond, 5*time.Second))
	case 1:
		ctx, cancel := context.WithCancelCause(ctx)
		cause := pick(rng, errUnsent, errUnsent, unsentError(rng), toolhealth.ErrCircuitOpen)
		timer := time.AfterFunc(pick(rng, 0, time.Millisecond, time.Second), func() { cancel(cause) })
		return ctx, func() { timer.Stop(); cancel(nil) }
	case 2:
		ctx = toolhealth.WithoutFallback(ctx)
	case 3:
		ctx = toolhealth.WithoutProbe(ctx)
	case 4:
		ctx, _ = toolhealth.WithCallInfo(ctx)
	case 5:
		ctx = context.WithValue(ctx, valueKey{}, 1)
	}
	return ctx, func() {}
}

// unsentError returns an error that says that nothing was sent.
func unsentError(rng *rand.Rand) error {
	return pick[error](rng, errUnsent, errDial, statusErr(425), safeToRetry{errBroken},
		toolhealth.WithVerdict(errBroken, toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, Retryable: true, NotSent: true, RetryAfter: 2 * time.Second}))
}

// end returns what a run returns, or ends it in another way. acted says that the run
// has acted, last is the error of a call further in.
func (p *program) end(ctx context.Context, rng *rand.Rand, acted bool, last error) error {
	own := pick[error](rng, nil, nil, nil, errBusy, errBusy, errBusy, errReset, errReset, errBroken, io.ErrUnexpectedEOF, statusErr(408), statusErr(409), statusErr(422), statusErr(429),
		throttledFor(10*time.Millisecond), throttledFor(3*time.Second),
		toolhealth.WithVerdict(errBroken, collided), toolhealth.WithVerdict(errBroken, denied), toolhealth.WithVerdict(errBroken, hostExhausted),
		context.Canceled, context.DeadlineExceeded)
	switch {
	case !acted && oneIn(rng, 2):
		own = unsentError(rng)
	case own != nil && oneIn(rng, 6):
		own = pick(rng, errors.Join(own, unsentError(rng)), fmt.Errorf("%w before %w", unsentError(rng), own))
	}
	if acted && oneIn(rng, 3) {
		own = last // nil if all is well
	} else if last != nil {
		own = pick(rng, own, own, own, last, fmt.Errorf("further in: %w", last), errors.Join(last, own), errors.Join(own, last))
	}
	switch rng.IntN(32) {
	case 0:
		panic("tool")
	case 1:
		panic(own)
	case 2:
		runtime.Goexit()
	}
	if ctx.Err() != nil && oneIn(rng, 2) {
		return context.Cause(ctx)
	}
	return own
}

// play makes the outermost call, as an impatient caller or a patient one.
func (p *program) play() {
	rng := rand.New(rand.NewPCG(p.seed, 1))
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	switch rng.IntN(10) {
	case 0:
		timed, stop := context.WithTimeout(ctx, pick(rng, time.Millisecond, 500*time.Millisecond, 5*time.Second))
		defer stop()
		ctx = timed
	case 1:
		time.AfterFunc(pick(rng, time.Millisecond, 500*time.Millisecond, 5*time.Second), func() { cancel(errUnsent) })
	}
	if oneIn(rng, 16) {
		ctx = &moody{Context: ctx, after: int64(rng.IntN(40))}
	}
	endsGoroutine(func() {
		defer func() { _ = recover() }() // a moody ctx panics
		_ = p.call(ctx, p.sites[0])
	})
}

// moody is a ctx that panics once when the library asks it for its error or deadline.
type moody struct {
	context.Context
	after int64
	asked atomic.Int64
}

func (m *moody) mood() {
	if m.asked.Add(1) == m.after {
		panic("moody")
	}
}

func (m *moody) Err() error                  { m.mood(); return m.Context.Err() }
func (m *moody) Deadline() (time.Time, bool) { m.mood(); return m.Context.Deadline() }

// leaks reports what is missing when everything has ended.
func (p *program) leaks(t *testing.T) {
	for i, r := range p.registries {
		if r == nil {
			continue
		}
		for tool, h := range r.All() {
			what := fmt.Sprintf("seed %d, registry %d, %s", p.seed, i, tool)
			assert.Zero(t, h.InFlight, "%s: permits", what)
			assert.Zero(t, h.Guard.InFlight, "%s: running calls", what)
			assert.Zero(t, h.Guard.Abandoned, "%s: abandoned attempts", what)
			assert.NotEqual(t, toolhealth.StateHalfOpen, h.State, "%s: probe", what)
		}
		accountant, err := toolhealth.NewGuard(&toolhealth.Gate{Registry: r}, toolhealth.GuardConfig{Default: toolhealth.Policy{MaxAttempts: 2, RetryBudget: programBudget, RetryRefill: toolhealth.Off}})
		require.NoError(t, err)
		for i := range programTools {
			tool := toolNamed(i)
			h, _ := r.Health(tool)
			endsGoroutine(func() { r.Reset(tool, "") }) // a hook may end the goroutine
			left := 0
			for left <= programBudget && accountant.Next(tool, 1, hostExhausted).Reason == toolhealth.RetryAllowed {
				left++
			}
			assert.GreaterOrEqual(t, uint64(left)+h.Guard.Retries, uint64(programBudget), "seed %d, %s: tokens", p.seed, tool)
		}
	}
}

// programCount is how many programs are played.
func programCount() int {
	switch {
	case os.Getenv("TOOLHEALTH_LONG") != "":
		return 400_000
	case race.Enabled: // ten times slower
		return 500
	case testing.Short():
		return 4000
	}
	return 10_000
}

// To play one program alone, give its seed to -run: Nesting/17$.
func TestGuard_SideEffectsActOnceInEveryNesting(t *testing.T) {
	var acts, runs, repeated, after atomic.Int64
	for seed := range uint64(programCount()) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProgram(t, seed)
				p.play()
				time.Sleep(24 * time.Hour)
				for _, s := range p.sites {
					assert.LessOrEqual(t, s.acts.Load(), int32(1), "seed %d: acts at site %d, which calls %s", seed, s.id, s.tool)
					acts.Add(int64(s.acts.Load()))
					if s.runs.Load() > 1 {
						after.Add(int64(s.acts.Load()))
					}
					runs.Add(int64(s.runs.Load()))
				}
				if p.sites[0].runs.Load() > 1 {
					repeated.Add(1)
				}
				p.leaks(t)
			})
		})
	}
	t.Logf("%d acts in %d runs; %d outermost tools ran more than once; %d acts at sites that ran more than once", acts.Load(), runs.Load(), repeated.Load(), after.Load())
}
