package toolhealth

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A guarded call takes a shorter way if nothing special is asked of it. Nothing
// but the time that it takes may tell the two apart: the same random history is
// played on a guard that nobody observes, and on one that has an observer, whose
// calls all go the long way.
func TestAQuickCallIsAsAnyOther(t *testing.T) {
	histories := 400
	if testing.Short() {
		histories = 100
	}
	for seed := range histories {
		quick := quickHistory(t, uint64(seed), nil)
		long := quickHistory(t, uint64(seed), unheard)
		for i, line := range long { // one by one: the whole is long
			require.Equal(t, line, quick[i], "seed %d, line %d", seed, i)
		}
		require.Len(t, quick, len(long))
	}
}

// quickHistory plays the history of a seed and returns what could be seen.
func quickHistory(t *testing.T, seed uint64, observe func(context.Context, Event)) (seen []string) {
	synctest.Test(t, func(t *testing.T) {
		h := newQuickPlay(t, rand.New(rand.NewPCG(seed, 1)), observe)
		for range 40 {
			endsGoroutine(h.step)
			h.look()
		}
		seen = h.seen
		for _, tool := range quickTools {
			health, _ := h.registry.Health(tool)
			assert.Zero(t, health.InFlight, "seed %d: %s", seed, tool)
			assert.Zero(t, health.Guard.InFlight, "seed %d: %s", seed, tool)
		}
	})
	return seen
}

type quickPlay struct {
	rng      *rand.Rand
	registry *Registry
	guard    *Guard
	hookEnds bool // the next transition ends its goroutine
	seen     []string
}

func (h *quickPlay) saw(format string, args ...any) {
	h.seen = append(h.seen, fmt.Sprintf(format, args...))
}

var quickTools = []string{"a", "b", "c"}

func newQuickPlay(t *testing.T, rng *rand.Rand, observe func(context.Context, Event)) *quickPlay {
	h := &quickPlay{rng: rng}
	h.registry = registryWith(t, func(c *Config) {
		c.Breaker.FailureThreshold = 1 + rng.IntN(4)
		c.Breaker.SlowCallDuration = 2 * time.Second
	})
	stop := h.registry.OnTransition(func(Transition) {
		if h.hookEnds {
			h.hookEnds = false
			runtime.Goexit()
		}
	})
	t.Cleanup(stop)
	router, err := NewHealthRouter(map[string][]string{"a": {"b", "c"}})
	require.NoError(t, err)
	h.guard = guardOverGate(t, &Gate{Registry: h.registry, Router: router}, func(c *GuardConfig) {
		c.Default.MaxAttempts, c.Default.RetryBudget = 1+rng.IntN(3), rng.IntN(4)
		c.Default.SideEffects = rng.IntN(4) == 0
		c.Tools = map[string]Policy{"c": {Timeout: time.Second}}
		c.Observe = observe
	})
	return h
}

func (h *quickPlay) step() {
	tool := quickTools[h.rng.IntN(len(quickTools))]
	switch h.rng.IntN(12) {
	case 0:
		h.registry.Reset(tool)
	case 1:
		h.registry.Isolate(tool)
	case 2:
		h.registry.Remove(tool)
	case 3:
		time.Sleep(time.Duration(h.rng.IntN(40)) * time.Second)
	case 4:
		h.hookEnds = true
	default:
		h.call(tool)
	}
}

func (h *quickPlay) look() {
	for _, tool := range quickTools {
		health, known := h.registry.Health(tool)
		h.saw("%+v %v", health, known)
		if n := h.registry.table.Get(tool); n != nil {
			h.saw("%d tenths of tokens missing", n.Value.guardStats().spent.Load())
		}
	}
}

func (h *quickPlay) call(tool string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if h.rng.IntN(10) == 0 {
		cancel()
	}
	var options []CallOption[string]
	switch h.rng.IntN(6) {
	case 0:
		options = append(options, CheckResult(func(out string) error {
			if strings.HasSuffix(out, "2") {
				return errBusy
			}
			return nil
		}))
	case 1:
		options = append(options, Partial(func(_ context.Context, e *ToolError) (string, error) { return "partial", e.Canceled }))
	}
	out, err := Call(ctx, h.guard, tool, func(ctx context.Context, serving string) (string, error) {
		return h.answer(ctx, cancel, serving)
	}, options...)
	h.saw("%s: %q %v", tool, out, err)
	if e := (*ToolError)(nil); errors.As(err, &e) {
		for _, c := range e.Candidates {
			h.saw("%+v %v %v", c, e.Canceled, e.RetryAfter)
		}
	}
}

// answer is what a tool may do to the call it is in.
func (h *quickPlay) answer(ctx context.Context, cancel func(), tool string) (string, error) {
	answer := fmt.Sprint(tool, h.rng.IntN(3))
	switch h.rng.IntN(14) {
	case 0:
		return answer, errBusy
	case 1:
		return answer, statusErr(400)
	case 2:
		return answer, askedToWait(time.Duration(h.rng.IntN(50)) * time.Second)
	case 3:
		return answer, errUnsent
	case 4:
		panic(answer)
	case 5:
		if h.rng.IntN(2) == 0 {
			defer func() { panic(answer) }()
		}
		runtime.Goexit()
	case 6:
		cancel()
		return answer, ctx.Err()
	case 7:
		time.Sleep(3 * time.Second)
	case 8:
		inner := quickTools[h.rng.IntN(len(quickTools))]
		return Call(ctx, h.guard, inner, func(ctx context.Context, serving string) (string, error) {
			return h.answer(ctx, cancel, serving)
		})
	case 9:
		return answer, WithVerdict(errBusy, Verdict{Outcome: OutcomeSuccess})
	}
	return answer, nil
}

// The end of a call frees the place that it has among the running ones, which
// another call may have taken by the time that its Partial handler returns.
func TestACallDoesNotFreeAPlaceTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const others = 5 // as many places as there are at first
		g := guardOn(t, patient(t), func(c *GuardConfig) { c.Default.MaxAttempts = 1 })
		r := g.gate.Registry
		r.RecordSuccess("a", 0)
		_, err := Call(t.Context(), g, "a", failing(errBusy).run, Partial(func(context.Context, *ToolError) (string, error) {
			for range others {
				go func() {
					_, _ = Call(t.Context(), g, "a", func(context.Context, string) (int, error) { time.Sleep(time.Hour); return 0, nil })
				}()
			}
			synctest.Wait()
			return "", nil
		}))
		require.NoError(t, err)
		assert.Equal(t, others, healthOf(t, r, "a").Guard.InFlight)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Zero(t, healthOf(t, r, "a").Guard.InFlight)
	})
}

func TestACallWithWrongOptionsIsNotMade(t *testing.T) {
	r := patient(t)
	r.RecordSuccess("a", 0) // known and well
	ran := false
	fn := func(context.Context, int) (string, error) { ran = true; return "", nil }
	wrong := Substitute("b", func(context.Context, string) (string, error) { return "", nil })
	_, err := Wrap(guardOn(t, r, nil), "a", fn, wrong)(t.Context(), 1)
	assert.Equal(t, StopNonRetryable, toolError(t, err).Reason)
	assert.False(t, ran)
	right := WithCallOptions(CheckResult(func(string) error { return nil }))
	_, err = Wrap(guardOn(t, r, nil), "a", fn, right)(t.Context(), 1)
	assert.NoError(t, err)
	assert.True(t, ran)
}

// What makes a call go the long way, so that the property above compares two.
func TestACallIsQuickOnlyIfNothingSpecialIsAskedOfIt(t *testing.T) {
	r := patient(t)
	r.RecordSuccess("a", 0)
	failTimes(r, "isolated", 1)
	r.Isolate("isolated")
	quick := func(ctx context.Context, g *Guard, tool string) bool {
		n, _ := g.enterQuick(ctx, tool)
		return n != nil
	}
	ctx := context.Background()
	plain := guardOn(t, r, nil)
	assert.True(t, quick(ctx, plain, "a"))

	canceled, cancel := context.WithCancel(ctx)
	cancel()
	withInfo, _ := WithCallInfo(ctx)
	for name, special := range map[string]context.Context{
		"nil": nil, "done": canceled, "with settings": withInfo, "of an attempt": untrackedFrame(ctx, "b"), "without fallback": WithoutFallback(ctx),
	} {
		assert.False(t, quick(special, plain, "a"), name)
	}
	for name, change := range map[string]func(*GuardConfig){
		"observed": func(c *GuardConfig) { c.Observe = unheard },
		"timeout":  func(c *GuardConfig) { c.Default.Timeout = 1 },
		"detached": func(c *GuardConfig) { c.Tools = map[string]Policy{"a": {Detach: true}} },
	} {
		assert.False(t, quick(ctx, guardOn(t, r, change), "a"), name)
	}
	for _, g := range []*Guard{nil, {}, guardOn(t, nil, nil), guardOn(t, new(Registry), nil)} {
		assert.False(t, quick(ctx, g, "a"))
	}
	assert.False(t, quick(ctx, plain, "isolated"))
	assert.False(t, quick(ctx, plain, "never seen"))
	assert.Equal(t, uint64(1), healthOf(t, r, "a").InFlight, "what was not let in has left nothing behind")
	assert.False(t, slices.Contains(namesOf(r), "never seen"))
}
