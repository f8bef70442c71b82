package toolhealth

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBreaker_GoesThroughItsStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, nil)
		start := time.Now()
		var events []Transition
		stop := b.OnTransition(func(e Transition) {
			e.When = e.When.Round(0)
			events = append(events, e)
		})
		fail := func(n int) {
			for range n {
				b.RecordFailure(KindServerError)
			}
		}
		fail(2)
		b.RecordSuccess(0)
		fail(2)
		assert.True(t, b.AllowRequest())
		assert.Equal(t, StateClosed, b.State())
		assert.Equal(t, time.Duration(0), b.RetryAfter())
		fail(1)
		assert.Equal(t, StateOpen, b.State())
		assert.False(t, b.AllowRequest())
		assert.False(t, b.Available())
		assert.Equal(t, 30*time.Second, b.RetryAfter())
		time.Sleep(30*time.Second - 1)
		assert.False(t, b.AllowRequest())
		assert.Equal(t, time.Duration(1), b.RetryAfter())
		time.Sleep(time.Nanosecond)
		assert.True(t, b.Available())
		assert.True(t, b.Available(), "Available takes no probe")
		assert.True(t, b.AllowRequest())
		assert.Equal(t, StateHalfOpen, b.State())
		assert.False(t, b.AllowRequest())
		assert.False(t, b.Available())
		assert.Equal(t, time.Minute, b.RetryAfter())
		time.Sleep(30 * time.Second)
		assert.Equal(t, StateOpen, b.State(), "the lease has run out")
		assert.Len(t, events, 2, "no call has found the expired lease yet")
		assert.False(t, b.AllowRequest())
		assert.Len(t, events, 3)
		time.Sleep(30 * time.Second)
		assert.True(t, b.AllowRequest())
		fail(1)
		assert.Equal(t, 30*time.Second, b.RetryAfter())
		time.Sleep(30 * time.Second)
		assert.True(t, b.AllowRequest())
		b.RecordSuccess(time.Second)
		assert.Equal(t, StateClosed, b.State())
		at := func(s time.Duration) time.Time { return start.Add(s * time.Second).Round(0) }
		assert.Equal(t, []Transition{
			{"", StateClosed, StateOpen, 2, CauseFailureThreshold, at(0), 3, KindServerError, 30 * time.Second},
			{"", StateOpen, StateHalfOpen, 3, CauseProbeAdmitted, at(30), 3, KindServerError, 60 * time.Second},
			{"", StateHalfOpen, StateOpen, 4, CauseLeaseExpired, at(60), 3, KindServerError, 30 * time.Second},
			{"", StateOpen, StateHalfOpen, 5, CauseProbeAdmitted, at(90), 3, KindServerError, 60 * time.Second},
			{"", StateHalfOpen, StateOpen, 6, CauseProbeFailed, at(90), 4, KindServerError, 30 * time.Second},
			{"", StateOpen, StateHalfOpen, 7, CauseProbeAdmitted, at(120), 4, KindServerError, 60 * time.Second},
			{"", StateHalfOpen, StateClosed, 8, CauseProbeSucceeded, at(120), 0, KindServerError, 0},
		}, events)
		stop()
		b.Isolate()
		assert.False(t, b.AllowRequest())
		b.RecordSuccess(0)
		assert.Equal(t, StateOpen, b.State())
		b.Reset()
		assert.True(t, b.AllowRequest())
		assert.Len(t, events, 7, "the hook has been stopped")
		fail(2)
		b.Reset()
		fail(2)
		assert.True(t, b.AllowRequest(), "a reset forgets the streak")
	})
}

func TestBreaker_SuccessEndsStreakOfOne(t *testing.T) {
	b := newBreaker(t, func(c *BreakerConfig) { c.FailureThreshold = 2 })
	b.RecordFailure(KindTimeout)
	b.RecordSuccess(0)
	b.RecordFailure(KindTimeout)
	assert.True(t, b.Available())
}

func TestBreaker_EventThatChangesNothingStoresNothing(t *testing.T) {
	b := newBreaker(t, func(c *BreakerConfig) { c.FailureThreshold = 1 })
	b.RecordFailure(KindTimeout)
	before := b.load()
	b.RecordSuccess(0) // of a call that began before it opened
	assert.False(t, b.AllowRequest())
	assert.Same(t, before, b.load())
}

func TestBreaker_SlowSuccessIsFailure(t *testing.T) {
	b := newBreaker(t, func(c *BreakerConfig) { c.SlowCallDuration, c.FailureThreshold = time.Second, 1 })
	b.RecordSuccess(time.Second)
	assert.True(t, b.Available())
	b.RecordSuccess(time.Second + 1)
	assert.False(t, b.Available())
}

func TestBreaker_HasNoTripScore(t *testing.T) {
	b := newBreaker(t, func(c *BreakerConfig) { c.FailureThreshold, c.TripScore, c.TripMinCalls = 100, 1, 0 })
	for range 99 {
		b.RecordFailure(KindTimeout)
	}
	assert.True(t, b.AllowRequest())
}

func TestBreaker_NilAndZeroAdmitAll(t *testing.T) {
	for _, b := range []*Breaker{nil, {}} {
		for range 5 {
			b.RecordFailure(KindTimeout)
		}
		b.RecordSuccess(0)
		b.Isolate()
		b.Reset()
		assert.True(t, b.AllowRequest())
		assert.True(t, b.Available())
		assert.Equal(t, time.Duration(0), b.RetryAfter())
		assert.Equal(t, StateClosed, b.State())
		b.OnTransition(func(Transition) { t.Error("an event") })()
	}
	b, err := NewBreaker(BreakerConfig{FailureThreshold: -1})
	assert.Nil(t, b)
	assert.Error(t, err)
}

// Each cooldown has its own jitter, within the bounds.
func TestBreaker_JitterSpreadsCooldowns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, func(c *BreakerConfig) { c.FailureThreshold, c.RecoveryJitter = 1, 0.5 })
		seen := map[time.Duration]bool{}
		low, high := false, false
		for range 200 {
			b.RecordFailure(KindTimeout)
			wait := b.RetryAfter()
			seen[wait] = true
			require.True(t, wait >= 30*time.Second && wait <= 45*time.Second, "%v", wait)
			low, high = low || wait < 37*time.Second, high || wait > 38*time.Second
			b.Reset()
		}
		assert.Greater(t, len(seen), 100)
		assert.True(t, low && high)
	})
}

func TestSince_TimeBeforeBaseIsZero(t *testing.T) {
	assert.Equal(t, int64(0), since(time.Now().Add(time.Hour)))
	assert.Greater(t, since(time.Now().Add(-time.Hour)), int64(time.Hour-1))
}
