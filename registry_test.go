package toolhealth

import (
	"testing"
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
