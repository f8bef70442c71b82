package toolhealth

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The cases that need a look inside: clocks that a test cannot turn, and counters
// that it cannot fill.

func TestC83_OnlyMonotonicTimeDecides(t *testing.T) {
	r := NewRegistry()
	assert.Contains(t, r.base.String(), " m=", "the base must keep its monotonic reading, and so each difference")
	b, err := NewBreaker(DefaultBreakerConfig())
	require.NoError(t, err)
	assert.Contains(t, b.base.String(), " m=")
}

func TestC83_ClockThatGoesBackStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		time.Sleep(time.Minute)
		failTimes(r, "search", 3)
		require.Equal(t, 30*time.Second, healthOf(t, r, "search").RetryAfter)

		r.base = r.base.Add(time.Hour) // an hour back
		assert.False(t, r.Available("search"))
		assert.False(t, r.AllowRequest("search"))
		assert.Equal(t, 30*time.Second, healthOf(t, r, "search").RetryAfter, "no more than from the trip")
		_, err := (&Gate{Registry: r}).Allow(t.Context(), "search")
		require.IsType(t, &Refusal{}, err)
		assert.Equal(t, 30*time.Second, err.(*Refusal).RetryAfter)

		r.base = r.base.Add(-time.Hour)
		time.Sleep(29 * time.Second)
		assert.False(t, r.Available("search"))
		time.Sleep(time.Second)
		assert.True(t, r.AllowRequest("search"))
	})
}

func TestC84_SuspendedHostCostsNobodyAnything(t *testing.T) {
	// Monotonic time stands still while the host sleeps, on systems where it does:
	// calls have taken what it says, and a cooldown goes on where it was.
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.Breaker.SlowCallDuration = 10 * time.Second })
		gate := &Gate{Registry: r}
		var permits [3]Permit
		for i := range permits {
			var err error
			permits[i], err = gate.Allow(t.Context(), "search")
			require.NoError(t, err)
		}
		failTimes(r, "other", 3)
		time.Sleep(time.Second)
		for i := range permits {
			permits[i].Done(t.Context(), nil)
		}
		h := healthOf(t, r, "search")
		assert.Equal(t, time.Second, h.Max)
		assert.Zero(t, h.ConsecutiveFailures)
		assert.Equal(t, 29*time.Second, healthOf(t, r, "other").RetryAfter)
	})
}

func TestC86_CountersNeitherWrapNorDisturbTheBreaker(t *testing.T) {
	for _, total := range []uint64{1<<31 - 2, 1<<32 - 2, 1<<63 - 2} {
		r := NewRegistry()
		r.Record("search", Verdict{Outcome: OutcomeFailure, Kind: KindTimeout}, time.Second)
		r.Reset("search")
		stats := &r.table.Get("search").Value.stats
		stats.nameOK.Store(total)
		stats.failures.Load()[KindTimeout].Store(total)
		stats.rejected.Store(total)
		stats.throttled.Store(total)
		stats.neutral.Store(total)
		stats.refused.Store(total)
		for range 10 {
			r.Record("search", Verdict{Outcome: OutcomeFailure, Kind: KindTimeout}, time.Second)
			r.Record("search", Verdict{}, time.Second)
			r.Record("search", Verdict{Outcome: OutcomeRejected}, 0)
			r.Record("search", Verdict{Outcome: OutcomeThrottled}, 0)
			r.Record("search", Verdict{Outcome: OutcomeNeutral}, 0)
		}
		require.Equal(t, StateClosed, healthOf(t, r, "search").State)
		failTimes(r, "search", 3)
		for range 10 {
			assert.False(t, r.AllowRequest("search"))
		}
		h := healthOf(t, r, "search")
		assert.Equal(t, StateOpen, h.State)
		assert.Equal(t, []uint64{total + 10, total + 13, total + 10, total + 10, total + 10, total + 10},
			[]uint64{h.Successes, h.Failures, h.Rejected, h.Throttled, h.Neutral, h.Refused})
		assert.GreaterOrEqual(t, h.TotalCalls(), h.Failures)
		assert.InDelta(t, 0.5, h.SuccessRate(), 0.001)
		assert.InDelta(t, 0.15+0.7*h.EWMA, h.Score, 0.001)
		data, err := json.Marshal(h)
		require.NoError(t, err)
		assert.False(t, strings.Contains(string(data), ":-"), "a negative number in %s", data)
	}
}
