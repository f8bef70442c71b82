package documents_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// These tests are for promises of the README that no other test checks.

func TestREADME_NoErrorTextGetsOut(t *testing.T) {
	const secret = "sk-12345 at db.internal"
	ctx := context.Background()
	r := toolhealth.NewRegistry()
	gate := &toolhealth.Gate{Registry: r}
	for range 3 {
		permit, err := gate.Allow(ctx, "search")
		require.NoError(t, err)
		permit.Done(ctx, errors.New("invalid key "+secret))
	}
	_, refusal := gate.Allow(ctx, "search")
	require.Error(t, refusal)

	guard, err := toolhealth.NewGuard(&toolhealth.Gate{Registry: toolhealth.NewRegistry()}, toolhealth.GuardConfig{})
	require.NoError(t, err)
	_, failed := toolhealth.Call(ctx, guard, "search", func(context.Context, string) (string, error) {
		panic(secret)
	})
	require.Error(t, failed)

	for name, v := range map[string]any{"summary": r.HealthSummary(), "refusal": refusal, "tool error": failed} {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		assert.Greater(t, len(text), 50, name) // long enough to have such a text in it
		for _, part := range []string{"sk-12345", "db.internal"} {
			assert.NotContains(t, string(text), part, name)
		}
	}
	assert.NotContains(t, refusal.Error()+failed.Error(), "12345")
}

// N replicas: N times the threshold in failures, and up to N probes a cooldown.
func TestREADME_ReplicasKnowNothingOfEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := []*toolhealth.Registry{toolhealth.NewRegistry(), toolhealth.NewRegistry(), toolhealth.NewRegistry()}
		failures, probes := 0, 0
		for second := range 61 {
			for i := range replicas {
				r := replicas[i]
				if !r.AllowRequest("search") {
					continue
				}
				r.RecordFailure("search", 0)
				if second < 3 {
					failures++
				} else {
					probes++
				}
			}
			time.Sleep(time.Second)
		}
		assert.Equal(t, 9, failures)
		assert.Equal(t, 3, probes, "one probe of each replica after the only cooldown that ended")
	})
}
