package fuzz_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestRegistry_UnknownVerdictLeavesSummaryReadable(t *testing.T) {
	r := toolhealth.NewRegistry()
	r.Record("tool", toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: 200}, time.Second)
	r.Record("tool", toolhealth.Verdict{Outcome: 99, Kind: 200, RetryAfter: -1}, time.Second)

	_, err := json.Marshal(r.HealthSummary())
	require.NoError(t, err)
	h, _ := r.Health("tool")
	assert.Equal(t, toolhealth.KindUnknown, h.LastFailure)
	assert.Equal(t, map[toolhealth.Kind]uint64{toolhealth.KindUnknown: 1}, h.ByKind)
	assert.EqualValues(t, 1, h.Neutral)
}

func TestBreaker_HooksSeeUnknownKindAsKindUnknown(t *testing.T) {
	c := toolhealth.DefaultBreakerConfig()
	c.FailureThreshold = 1
	b, err := toolhealth.NewBreaker(c)
	require.NoError(t, err)
	var kinds []toolhealth.Kind
	b.OnTransition(func(tr toolhealth.Transition) { kinds = append(kinds, tr.Kind) })
	b.RecordFailure(200)
	assert.Equal(t, []toolhealth.Kind{toolhealth.KindUnknown}, kinds)
}
