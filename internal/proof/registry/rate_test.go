package registry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestRegistry_FailureRateCountsInItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *toolhealth.Config) {
			c.Breaker.FailureThreshold, c.Breaker.FailureRate = 0, 0.5
			c.Breaker.FailureRateMinCalls = 4
		})
		for range 100 {
			r.RecordSuccess("flaky", 0) // before the window
		}
		var last toolhealth.Transition
		r.OnTransition(func(tr toolhealth.Transition) { last = tr })
		for range 2 {
			r.RecordFailure("flaky", 0)
			r.RecordSuccess("flaky", 0)
			assert.True(t, r.Available("flaky"), "only a failure opens")
		}
		r.RecordFailure("flaky", 0)
		assert.False(t, r.Available("flaky"), "three of five")
		assert.Equal(t, toolhealth.CauseFailureRate, last.Cause)

		r.Reset("flaky", "")
		failTimes(r, "flaky", 3)
		assert.True(t, r.Available("flaky"), "three calls since the reset")
		time.Sleep(time.Minute)
		failTimes(r, "flaky", 3)
		assert.True(t, r.Available("flaky"), "three calls in the minute that began with them")
		failTimes(r, "flaky", 1)
		assert.False(t, r.Available("flaky"))
	})
}

func TestRegistry_FailureRateBeginsWithTheFailureAfterSetConfig(t *testing.T) {
	r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold = 100 })
	failTimes(r, "search", 20)
	c := toolhealth.DefaultConfig()
	c.Breaker.FailureThreshold, c.Breaker.FailureRate, c.Breaker.FailureRateMinCalls = 100, 1, 3
	require.NoError(t, r.SetConfig(c))
	failTimes(r, "search", 2)
	assert.True(t, r.Available("search"))
	failTimes(r, "search", 1)
	assert.False(t, r.Available("search"))
}
