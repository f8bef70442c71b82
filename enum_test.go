package toolhealth

import (
	"encoding"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// checkEnum wants exactly these texts for the values from zero on.
func checkEnum[T ~uint8, P interface {
	*T
	encoding.TextUnmarshaler
}](t *testing.T, typ string, texts ...string) {
	t.Helper()
	type enumeration interface {
		fmt.Stringer
		encoding.TextMarshaler
	}
	for i, text := range texts {
		v := any(T(i)).(enumeration)
		assert.Equal(t, text, v.String())
		got, err := v.MarshalText()
		assert.NoError(t, err)
		assert.Equal(t, text, string(got))
		back := T(255)
		require.NoError(t, P(&back).UnmarshalText([]byte(text)))
		assert.Equal(t, T(i), back)
		assert.Equal(t, strings.ToLower(text), text, "texts are lower case")
	}
	for _, i := range []int{len(texts), 255} {
		v := any(T(i)).(enumeration)
		assert.Equal(t, fmt.Sprintf("%s(%d)", typ, i), v.String())
		text, err := v.MarshalText()
		assert.EqualError(t, err, fmt.Sprintf("toolhealth: %s: no text for value %d", typ, i))
		assert.Nil(t, text)
		_, err = json.Marshal(v)
		assert.Error(t, err)
	}
	for _, text := range []string{"", "nonsense", strings.ToUpper(texts[0]), texts[0] + " ", strings.Repeat("\x1b", 1<<20)} {
		v := T(1)
		err := P(&v).UnmarshalText([]byte(text))
		assert.ErrorContains(t, err, "toolhealth: "+typ+": unknown text ")
		assert.Less(t, len(err.Error()), 250, "a long text is cut")
		assert.NotContains(t, err.Error(), "\x1b")
		assert.Equal(t, T(1), v, "the receiver is as it was")
	}
}

func TestEveryEnumerationHasStableTexts(t *testing.T) {
	checkEnum[State](t, "State", "closed", "open", "half-open")
	checkEnum[HealthStatus](t, "HealthStatus", "healthy", "degraded", "unhealthy")
	checkEnum[Outcome](t, "Outcome", "success", "failure", "rejected", "throttled", "neutral")
	checkEnum[Cause](t, "Cause",
		"none", "failure_threshold", "trip_score", "probe_admitted", "probe_succeeded", "probe_failed",
		"probe_throttled", "probe_returned", "lease_expired", "reset", "isolated", "reconfigured")
	checkEnum[Kind](t, "Kind",
		"none", "timeout", "server_error", "rate_limited", "quota_exhausted", "connection", "contract", "panic", "invalid_request",
		"unauthorized", "not_found", "gone", "conflict", "canceled", "not_dispatched", "denied", "refused", "unknown")
	checkEnum[StopReason](t, "StopReason",
		"none", "tool_unavailable:circuit_open", "tool_unavailable:probe_in_flight", "tool_unavailable:rate_limited",
		"tool_unavailable:isolated", "tool_unavailable:unknown_tool", "tool_failure:non_retryable",
		"tool_failure:retry_exhausted", "tool_failure:retry_budget_exhausted", "tool_failure:outcome_unknown",
		"tool_failure:contract_violation", "tool_canceled", "tool_retry:allowed")
	assert.Equal(t, int(numKinds), len(kindTexts))
}

func TestZeroValuesAreTheSensibleOnes(t *testing.T) {
	var (
		state   State
		status  HealthStatus
		outcome Outcome
		kind    Kind
		cause   Cause
		reason  StopReason
	)
	assert.Equal(t, StateClosed, state)
	assert.Equal(t, Healthy, status)
	assert.Equal(t, OutcomeSuccess, outcome)
	assert.Equal(t, KindNone, kind)
	assert.Equal(t, CauseNone, cause)
	assert.Equal(t, StopNone, reason)
}

func TestTheDetailOfAStopReasonIsWhatFollowsTheColon(t *testing.T) {
	for reason, detail := range map[StopReason]string{
		StopNone: "none", StopCircuitOpen: "circuit_open", StopProbeInFlight: "probe_in_flight",
		StopRateLimited: "rate_limited", StopIsolated: "isolated", StopUnknownTool: "unknown_tool",
		StopNonRetryable: "non_retryable", StopCanceled: "tool_canceled", RetryAllowed: "allowed", 200: "StopReason(200)",
	} {
		assert.Equal(t, detail, reason.Detail())
		back, err := refusalReason(detail)
		if reason <= StopUnknownTool {
			assert.NoError(t, err)
			assert.Equal(t, reason, back)
		} else {
			assert.ErrorContains(t, err, "toolhealth: reason: unknown text ")
		}
	}
}
