package toolhealth

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
)

// soakFor is how long the soak takes: a minute in the long form.
func soakFor() time.Duration {
	switch {
	case os.Getenv("TOOLHEALTH_LONG") != "":
		return time.Minute
	case testing.Short():
		return 200 * time.Millisecond
	}
	return 2 * time.Second
}

// soakTally is what the callers know of one tool that is never removed.
type soakTally struct {
	success, failure, rejected, throttled, neutral, refused, lost atomic.Uint64
}

func (s *soakTally) count(o Outcome) {
	[...]*atomic.Uint64{&s.success, &s.failure, &s.rejected, &s.throttled, &s.neutral}[o].Add(1)
}

// TestSixtyFourCallersDoEverythingAtOnceAndEveryTotalAddsUp lets 64 goroutines
// call, report, cancel, lose permits, read, register, remove, reset, isolate and
// reconfigure, with hooks that call back, and then compares each total with what
// the callers counted themselves.
func TestSixtyFourCallersDoEverythingAtOnceAndEveryTotalAddsUp(t *testing.T) {
	const workers, kept = 64, 8
	config := DefaultConfig()
	config.Breaker = BreakerConfig{
		FailureThreshold: 3, RecoveryDuration: 200 * time.Microsecond, ProbeTimeout: 100 * time.Microsecond,
		MaxOpenDuration: time.Millisecond, RecoveryGrowth: 1.5, RecoveryJitter: 0.5, ProbeSuccesses: 2,
		TripScore: 0.2, TripMinCalls: 20,
	}
	r, err := NewRegistryWithConfig(config)
	require.NoError(t, err)
	gate := &Gate{Registry: r}
	guarding := DefaultGuardConfig()
	guarding.Default.BackoffBase, guarding.Default.BackoffMax = time.Microsecond, 10*time.Microsecond
	guard, err := NewGuard(gate, guarding)
	require.NoError(t, err)

	var tallies [kept]soakTally
	var last [kept]Transition // of each tool; one event of a tool at a time
	names := make(map[string]int)
	for i := range kept {
		names[soakName(i)] = i
	}
	stop := r.OnTransition(func(e Transition) {
		i, ok := names[e.Tool]
		if !ok {
			return
		}
		if before := last[i]; before.Epoch != 0 && (e.Epoch != before.Epoch+1 || e.From != before.To) {
			t.Errorf("%+v does not follow %+v", e, before)
		}
		last[i] = e
		r.Available(e.Tool)
		r.Health(e.Tool)
		if e.Epoch%64 == 0 {
			r.Reset(e.Tool) // calls back for the same tool; its event comes after this one
			r.Isolate("visitor")
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
		assert.Equal(t, last[i].Epoch, h.Epoch-soakUntold(r, h.Tool), h.Tool)
		calls += h.TotalCalls()
	}
	t.Logf("%d counted calls, %d entries, %v", calls, r.Len(), duration)
	assert.Greater(t, calls, uint64(workers))
}

func soakName(i int) string { return fmt.Sprint("kept-", i) }

// soakUntold is 1 if the tool's lease has run out and nobody has asked since: a
// reader sees that, a hook hears of it when somebody asks.
func soakUntold(r *Registry, tool string) uint64 {
	n := r.table.Get(tool)
	s := n.Value.snap.Load()
	seen := s.AsOf(r.now())
	return seen.Epoch - s.Epoch
}

func soakHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func soakVerdict(rng *rand.Rand) Verdict {
	return [...]Verdict{
		{}, {}, {}, {},
		{Outcome: OutcomeFailure, Kind: KindServerError, Retryable: true},
		{Outcome: OutcomeFailure, Kind: KindTimeout},
		{Outcome: OutcomeRejected, Kind: KindInvalidRequest},
		{Outcome: OutcomeThrottled, Kind: KindRateLimited, Retryable: true, RetryAfter: time.Duration(rng.IntN(50_000))},
		{Outcome: OutcomeNeutral, Kind: KindCanceled},
	}[rng.IntN(9)]
}

func soakStep(t *testing.T, rng *rand.Rand, r *Registry, gate *Gate, guard *Guard, config Config, tool string, tally *soakTally) {
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
			return // nobody will ever settle it
		case 2:
			permit.KeepAlive()
			permit.Done(ctx, nil)
			permit.Done(ctx, errors.New("late"))
			tally.count(OutcomeSuccess)
		default:
			v := soakVerdict(rng)
			if v.Outcome == OutcomeSuccess {
				permit.Done(ctx, nil)
			} else {
				permit.Done(ctx, WithVerdict(errors.New("soak"), v))
			}
			tally.count(v.Outcome)
		}
		permit.Release()
	case op < 80: // guarded, by a caller who may give up
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		_, _ = Call(ctx, guard, tool, func(context.Context, string) (int, error) {
			if rng.IntN(16) == 0 {
				tally.count(OutcomeFailure)
				panic("soak")
			}
			if rng.IntN(8) == 0 {
				cancel()
			}
			v := soakVerdict(rng)
			tally.count(v.Outcome)
			if v.Outcome == OutcomeSuccess {
				return 1, nil
			}
			return 0, WithVerdict(errors.New("soak"), v)
		})
	case op < 88:
		r.Health(tool)
		r.Available(tool)
	case op < 90:
		summary := r.HealthSummary()
		for _, h := range summary.Tools {
			if h.Available != (h.Reason == StopNone) || h.RetryAfter < 0 || h.Available != (h.RetryAfter == 0) {
				t.Errorf("does not fit together: %+v", h)
			}
		}
	case op < 94: // tools that come and go
		visitor := fmt.Sprint("visitor-", rng.IntN(32))
		switch rng.IntN(4) {
		case 0:
			_ = r.Register(visitor, config.Breaker)
		case 1:
			r.Remove(visitor)
		default:
			if r.AllowRequest(visitor) {
				r.RecordFailure(visitor, 0)
			}
		}
	case op < 96:
		r.Reset(tool)
	case op < 97:
		r.Isolate(tool)
		r.Reset(tool)
	case op < 98:
		config.Breaker.FailureThreshold = rng.IntN(5)
		if err := r.SetConfig(config); err != nil {
			t.Error(err)
		}
	default:
		runtime.Gosched()
	}
}
