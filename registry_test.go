package toolhealth

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestADeadToolIsRefusedByName(t *testing.T) {
	r := NewRegistry()
	for range 3 {
		assert.True(t, r.AllowRequest("search"))
		r.RecordFailure("search", time.Millisecond)
	}
	assert.False(t, r.AllowRequest("search"))
	assert.False(t, r.Available("search"))
	assert.True(t, r.AllowRequest("weather"))
	assert.Equal(t, Unhealthy, r.HealthStatus("search"))
}

func TestAnEntryThrottledAfterItWasParkedThawsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.MaxTools = 1 })
		g := &Gate{Registry: r}
		permit, err := g.Allow(t.Context(), "busy")
		assert.NoError(t, err)
		assert.True(t, r.AllowRequest("new"))
		assert.Equal(t, uint64(1), r.HealthSummary().Untracked, "busy is in use")
		permit.Settle(Verdict{Outcome: OutcomeThrottled, RetryAfter: 10 * time.Second})

		time.Sleep(9 * time.Second)
		assert.True(t, r.AllowRequest("new"))
		assert.Equal(t, uint64(2), r.HealthSummary().Untracked, "busy is throttled")
		time.Sleep(time.Second)
		assert.True(t, r.AllowRequest("new"))
		assert.Equal(t, uint64(2), r.HealthSummary().Untracked)
		assert.Equal(t, uint64(1), r.HealthSummary().Evicted)
	})
}
