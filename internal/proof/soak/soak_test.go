package soak_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// soakFor returns the length of the soak: a minute in the long form.
func soakFor() time.Duration {
	switch {
	case os.Getenv("TOOLHEALTH_LONG") != "":
		return time.Minute
	case testing.Short():
		return 200 * time.Millisecond
	}
	return 2 * time.Second
}

// soakTally is what the callers counted for one tool that is never removed.
type soakTally struct {
	success, failure, rejected, throttled, neutral, refused, lost atomic.Uint64
}

func (s *soakTally) count(o toolhealth.Outcome) {
	[...]*atomic.Uint64{&s.success, &s.failure, &s.rejected, &s.throttled, &s.neutral}[o].Add(1)
}

// TestSoak_EveryTotalAddsUp lets 64 goroutines call, report, cancel, lose permits, read,
// register, remove, reset, isolate and reconfigure, with hooks that call back, and then
// compares each total with what the callers counted themselves.
func TestSoak_EveryTotalAddsUp(t *testing.T) {
	const workers, kept = 64, 8
	config := toolhealth.DefaultConfig()
	config.Breaker = toolhealth.BreakerConfig{
		FailureThreshold: 3, RecoveryDuration: 200 * time.Microsecond, ProbeTimeout: 100 * time.Microsecond,
		MaxOpenDuration: time.Millisecond, RecoveryGrowth: 1.5, RecoveryJitter: 0.5, ProbeSuccesses: 2,
		FailureRate: 0.8, FailureRateMinCalls: 20, FailureRateWindow: time.Millisecond, FailureWindow: 100 * time.Microsecond,
	}
	r, err := toolhealth.NewRegistryWithConfig(config)
	require.NoError(t, err)
	gate := &toolhealth.Gate{Registry: r}
	guarding := toolhealth.GuardConfig{Default: toolhealth.Policy{BackoffBase: time.Microsecond, BackoffMax: 10 * time.Microsecond}}
	guard, err := toolhealth.NewGuard(gate, guarding)
	require.NoError(t, err)

	var tallies [kept]soakTally
	var last [kept]toolhealth.Transition // last event by tool; the hook runs for one event of a tool at a time
	var gaps atomic.Uint64
	names := make(map[string]int)
	for i := range kept {
		names[soakName(i)] = i
	}
	stop := r.OnTransition(func(e toolhealth.Transition) {
		i, ok := names[e.Tool]
		if !ok {
			return
		}
		switch before := last[i]; {
		case before.Epoch == 0:
		case e.Epoch > before.Epoch+1: // the hook could not keep up
			gaps.Add(e.Epoch - before.Epoch - 1)
		case e.Epoch != before.Epoch+1 || e.From != before.To:
			t.Errorf("%+v does not follow %+v", e, before)
		}
		last[i] = e
		r.Available(e.Tool)
		r.Health(e.Tool)
		if e.Epoch%64 == 0 {
			r.Reset(e.Tool, "") // calls back for the same tool, whose next event comes after this one
			r.Isolate("visitor", "")
		}
	})
	defer stop()

	over := make(chan struct{})
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for {
				select {
				case <-over:
					return
				default:
				}
				i := rng.IntN(kept)
				soakStep(t, rng, r, gate, guard, config, soakName(i), &tallies[i])
			}
		})
	}
	duration := soakFor()
	time.Sleep(duration / 3)
	goroutines, heap := runtime.NumGoroutine(), soakHeap()
	time.Sleep(duration - duration/3)
	assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines+2, "goroutines grow")
	assert.Less(t, soakHeap(), heap+8<<20, "the heap grows")
	close(over)
	group.Wait()

	assert.LessOrEqual(t, gaps.Load(), r.HealthSummary().HookDropped, "no other event is missing")
	calls := uint64(0)
	for i := range kept {
		h, ok := r.Health(soakName(i))
		require.True(t, ok)
		tally := &tallies[i]
		assert.Equal(t, tally.success.Load(), h.Successes, h.Tool)
		assert.Equal(t, tally.failure.Load(), h.Failures, h.Tool)
		assert.Equal(t, tally.rejected.Load(), h.Rejected, h.Tool)
		assert.Equal(t, tally.throttled.Load(), h.Throttled, h.Tool)
		assert.Equal(t, tally.neutral.Load(), h.Neutral, h.Tool)
		assert.Equal(t, tally.refused.Load()+h.Guard.Refusals, h.Refused, h.Tool)
		assert.Equal(t, tally.lost.Load(), h.InFlight, "lost permits of %s", h.Tool)
		assert.Zero(t, h.Guard.InFlight, h.Tool)
		requireLastEvent(t, r, h, &last[i])
		calls += h.TotalCalls()
	}
	t.Logf("%d counted calls, %d entries, %v", calls, r.Len(), duration)
	assert.Greater(t, calls, uint64(workers))
}

func soakName(i int) string { return fmt.Sprint("kept-", i) }

// requireLastEvent checks that hooks have seen every transition of a tool. A lease that
// has run out shows in Health at once, but is an event only at the next call; Reset is
// one, and the hook checks that its event follows the last.
func requireLastEvent(t *testing.T, r *toolhealth.Registry, h toolhealth.ToolHealth, last *toolhealth.Transition) {
	t.Helper()
	if h.Epoch == last.Epoch+1 {
		assert.Equal(t, toolhealth.StateHalfOpen, last.To, h.Tool)
		assert.Equal(t, toolhealth.StateOpen, h.State, h.Tool)
	} else {
		assert.Equal(t, last.Epoch, h.Epoch, h.Tool)
		assert.Equal(t, last.To, h.State, h.Tool)
	}
	r.Reset(h.Tool, "")
	now, _ := r.Health(h.Tool)
	assert.Equal(t, toolhealth.StateClosed, now.State, h.Tool)
	assert.Equal(t, last.Epoch, now.Epoch, h.Tool)
}

func soakHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func soakVerdict(rng *rand.Rand) toolhealth.Verdict {
	return [...]toolhealth.Verdict{
		{}, {}, {}, {},
		{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError, Retryable: true},
		{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout},
		{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest},
		{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, Retryable: true, RetryAfter: time.Duration(rng.IntN(50_000))},
		{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindCanceled},
	}[rng.IntN(9)]
}

func soakStep(t *testing.T, rng *rand.Rand, r *toolhealth.Registry, gate *toolhealth.Gate, guard *toolhealth.Guard, config toolhealth.Config, tool string, tally *soakTally) {
	ctx := t.Context()
	switch op := rng.IntN(100); {
	case op < 25: // by name
		if !r.AllowRequest(tool) {
			tally.refused.Add(1)
			return
		}
		v := soakVerdict(rng)
		r.Record(tool, v, time.Duration(rng.IntN(1000)))
		tally.count(v.Outcome)
	case op < 60: // with a permit
		permit, err := gate.Allow(ctx, tool)
		if err != nil {
			tally.refused.Add(1)
			return
		}
		switch rng.IntN(20) {
		case 0:
			permit.Release()
		case 1:
			tally.lost.Add(1)
			return // it is never settled
		case 2:
			permit.KeepAlive()
			permit.Done(ctx, nil)
			permit.Done(ctx, errors.New("late"))
			tally.count(toolhealth.OutcomeSuccess)
		default:
			v := soakVerdict(rng)
			if v.Outcome == toolhealth.OutcomeSuccess {
				permit.Done(ctx, nil)
			} else {
				permit.Done(ctx, toolhealth.WithVerdict(errors.New("soak"), v))
			}
			tally.count(v.Outcome)
		}
		permit.Release()
	case op < 80: // a guarded call, by a caller that may give up
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		_, _ = toolhealth.Call(ctx, guard, tool, func(context.Context, string) (int, error) {
			if rng.IntN(16) == 0 {
				tally.count(toolhealth.OutcomeFailure)
				panic("soak")
			}
			if rng.IntN(8) == 0 {
				cancel()
			}
			v := soakVerdict(rng)
			tally.count(v.Outcome)
			if v.Outcome == toolhealth.OutcomeSuccess {
				return 1, nil
			}
			return 0, toolhealth.WithVerdict(errors.New("soak"), v)
		})
	case op < 88:
		r.Health(tool)
		r.Available(tool)
	case op < 90:
		summary := r.HealthSummary()
		for _, h := range summary.Tools {
			if h.Available != (h.Reason == toolhealth.StopNone) || h.RetryAfter < 0 || h.Available != (h.RetryAfter == 0) {
				t.Errorf("does not fit together: %+v", h)
			}
		}
	case op < 94: // tools that are registered and removed
		visitor := fmt.Sprint("visitor-", rng.IntN(32))
		switch rng.IntN(4) {
		case 0:
			_ = r.Register(visitor, toolhealth.ToolOptions{Breaker: &config.Breaker})
		case 1:
			r.Remove(visitor)
		default:
			if r.AllowRequest(visitor) {
				r.RecordFailure(visitor, 0)
			}
		}
	case op < 96:
		r.Reset(tool, "")
	case op < 97:
		r.Isolate(tool, "")
		r.Reset(tool, "")
	case op < 98:
		config.Breaker.FailureThreshold = rng.IntN(5)
		if err := r.SetConfig(config); err != nil {
			t.Error(err)
		}
	default:
		runtime.Gosched()
	}
}
