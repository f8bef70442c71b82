package documents_test

import (
	"encoding"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// checkEnum checks that the values from zero on have these texts, and that no other value
// has a text.
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
		assert.Equal(t, strings.ToLower(text), text, "texts are in lower case")
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
		assert.Equal(t, T(1), v, "the receiver is unchanged")
	}
}

var kindTexts = []string{
	"none", "timeout", "server_error", "rate_limited", "quota_exhausted", "connection", "contract", "panic", "invalid_request",
	"unauthorized", "not_found", "gone", "conflict", "canceled", "not_dispatched", "denied", "refused", "unknown",
}

func TestEnum_TextsAreStable(t *testing.T) {
	checkEnum[toolhealth.State](t, "State", "closed", "open", "half-open")
	checkEnum[toolhealth.HealthStatus](t, "HealthStatus", "healthy", "degraded", "unhealthy")
	checkEnum[toolhealth.Outcome](t, "Outcome", "success", "failure", "rejected", "throttled", "neutral")
	checkEnum[toolhealth.Cause](t, "Cause",
		"none", "failure_threshold", "failure_rate", "probe_admitted", "probe_succeeded", "probe_failed",
		"probe_throttled", "probe_returned", "lease_expired", "reset", "isolated", "reconfigured",
		"suspected", "reported", "restored")
	checkEnum[toolhealth.HintKind](t, "HintKind", "suspect", "down", "defer", "throttled", "recovered")
	checkEnum[toolhealth.Kind](t, "Kind", kindTexts...)
	checkEnum[toolhealth.StopReason](t, "StopReason",
		"none", "tool_unavailable:circuit_open", "tool_unavailable:probe_in_flight", "tool_unavailable:rate_limited",
		"tool_unavailable:isolated", "tool_unavailable:busy", "tool_unavailable:unknown_tool", "tool_failure:non_retryable",
		"tool_failure:retry_exhausted", "tool_failure:retry_budget_exhausted", "tool_failure:timeout", "tool_failure:outcome_unknown",
		"tool_failure:contract_violation", "tool_canceled", "tool_retry:allowed")
}

// A kind of failure is counted under its own name if it has a text, and as unknown if it
// has none.
func TestKind_EachWithTextIsCountedByItself(t *testing.T) {
	for i := range len(kindTexts) + 1 {
		kind := toolhealth.Kind(i)
		want := kind
		if kind == toolhealth.KindNone || i == len(kindTexts) {
			want = toolhealth.KindUnknown
		}
		r := toolhealth.NewRegistry()
		r.Record("tool", toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: kind}, 0)
		h, _ := r.Health("tool")
		assert.Equal(t, map[toolhealth.Kind]uint64{want: 1}, h.ByKind)
	}
	assert.EqualValues(t, len(kindTexts)-1, toolhealth.KindUnknown, "unknown is the last kind")
}

func TestEnum_ZeroValuesAreSensible(t *testing.T) {
	var (
		state   toolhealth.State
		status  toolhealth.HealthStatus
		outcome toolhealth.Outcome
		kind    toolhealth.Kind
		cause   toolhealth.Cause
		reason  toolhealth.StopReason
	)
	assert.Equal(t, toolhealth.StateClosed, state)
	assert.Equal(t, toolhealth.Healthy, status)
	assert.Equal(t, toolhealth.OutcomeSuccess, outcome)
	assert.Equal(t, toolhealth.KindNone, kind)
	assert.Equal(t, toolhealth.CauseNone, cause)
	assert.Equal(t, toolhealth.StopNone, reason)
}

func TestStopReason_DetailFollowsColon(t *testing.T) {
	for reason, detail := range map[toolhealth.StopReason]string{
		toolhealth.StopNone: "none", toolhealth.StopCircuitOpen: "circuit_open", toolhealth.StopProbeInFlight: "probe_in_flight",
		toolhealth.StopRateLimited: "rate_limited", toolhealth.StopIsolated: "isolated", toolhealth.StopBusy: "busy", toolhealth.StopUnknownTool: "unknown_tool",
		toolhealth.StopNonRetryable: "non_retryable", toolhealth.StopCanceled: "tool_canceled", toolhealth.RetryAllowed: "allowed", 200: "StopReason(200)",
	} {
		assert.Equal(t, detail, reason.Detail())
		var h toolhealth.ToolHealth // its JSON has the details of refusals
		err := json.Unmarshal([]byte(`{"reason":"`+detail+`"}`), &h)
		if reason <= toolhealth.StopUnknownTool {
			assert.NoError(t, err)
			assert.Equal(t, reason, h.Reason)
		} else {
			assert.ErrorContains(t, err, "toolhealth: reason: unknown text ")
		}
	}
}
