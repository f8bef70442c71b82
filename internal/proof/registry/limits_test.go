package registry_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestRegistry_MaxInFlightIsNeverExceededAndReached(t *testing.T) {
	const limit = 5
	r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.MaxInFlight = limit })
	g := &toolhealth.Gate{Registry: r}
	var out, most, busy atomic.Int64
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for range 500 {
				permit, err := g.Allow(t.Context(), "search")
				if err != nil {
					assert.ErrorIs(t, err, toolhealth.ErrBusy)
					assert.ErrorIs(t, err, toolhealth.ErrRefused)
					busy.Add(1)
					runtime.Gosched()
					continue
				}
				now := out.Add(1)
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
				}
				runtime.Gosched()
				out.Add(-1)
				permit.Done(t.Context(), nil)
			}
		})
	}
	group.Wait()
	assert.LessOrEqual(t, most.Load(), int64(limit))
	h := healthOf(t, r, "search")
	assert.Zero(t, h.InFlight)
	assert.Equal(t, uint64(busy.Load()), h.Refused)
	assert.Equal(t, uint64(16*500)-h.Refused, h.Successes)

	var begin sync.WaitGroup
	begin.Add(1)
	admitted := atomic.Int64{}
	for range 100 {
		group.Go(func() {
			begin.Wait()
			if _, err := g.Allow(t.Context(), "search"); err == nil {
				admitted.Add(1)
			}
		})
	}
	begin.Done()
	group.Wait()
	assert.Equal(t, int64(limit), admitted.Load(), "callers that come at once do not keep each other out")
}

func TestRegistry_ObserveOnlyKeepsNoPermitOfHookThatEndsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.ObserveOnly, c.Breaker.MaxInFlight = true, 1 })
		g := &toolhealth.Gate{Registry: r}
		failTimes(r, "search", 3)
		time.Sleep(30 * time.Second)
		require.True(t, r.AllowRequest("search")) // and is lost
		time.Sleep(30 * time.Second)
		stop := r.OnTransition(func(toolhealth.Transition) { runtime.Goexit() })
		endsGoroutine(func() { // sees the end of the lease
			_, _ = g.Allow(t.Context(), "search")
			t.Error("the hook has not ended the goroutine")
		})
		stop()
		assert.Zero(t, healthOf(t, r, "search").InFlight)
		for range 3 {
			_, err := g.Allow(t.Context(), "search")
			require.NoError(t, err)
		}
		h := healthOf(t, r, "search")
		assert.Equal(t, uint64(3), h.InFlight, "ObserveOnly counts beyond MaxInFlight")
		assert.Equal(t, uint64(4), h.WouldRefuse)
		assert.Zero(t, h.Refused)
	})
}

func TestRegistry_HookThatEndsGoroutineAskingByNameFreesNoPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		failTimes(r, "search", 3)
		time.Sleep(30 * time.Second)
		stop := r.OnTransition(func(toolhealth.Transition) { runtime.Goexit() })
		endsGoroutine(func() {
			r.AllowRequest("search")
			t.Error("the hook has not ended the goroutine")
		})
		stop()
		_, err := (&toolhealth.Gate{Registry: r}).Allow(t.Context(), "search")
		require.NoError(t, err, "the probe was given back")
		assert.Equal(t, uint64(1), healthOf(t, r, "search").InFlight)
	})
}

func TestRegistry_ObserveOnlyStopsNoRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.ObserveOnly, c.Breaker.FailureThreshold = true, 1 })
		runs := 0
		g := guardOn(t, r, nil)
		_, err := toolhealth.Call(t.Context(), g, "search", func(context.Context, string) (int, error) {
			runs++
			return 0, toolhealth.WithVerdict(errors.New("no"), toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout, Retryable: true})
		})
		var failed *toolhealth.ToolError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, 2, runs)
		assert.Equal(t, toolhealth.StopRetryExhausted, failed.Reason)
		assert.Equal(t, toolhealth.StateOpen, healthOf(t, r, "search").State)
	})
}
