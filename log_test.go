package toolhealth

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// logLine returns how a handler for text writes v beside other attributes.
func logLine(v any) string {
	var out bytes.Buffer
	drop := func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
			return slog.Attr{}
		}
		return a
	}
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: drop}))
	log.LogAttrs(context.Background(), slog.LevelInfo, "", slog.Any("", v))
	return string(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
}

func TestLogValue_IsOneGroupOfAttributes(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	failed := &ToolError{
		Tool: "a", Reason: StopRetryExhausted, Kind: KindTimeout, Attempts: 3, RetryAfter: time.Minute,
		Candidates: []Candidate{
			{Tool: "a", Reason: StopRetryExhausted, Err: errors.New("db-7:\nno answer")},
			{Tool: "b", Reason: StopNonRetryable, Err: panickingError{}}, {Tool: "c", Reason: StopCanceled},
		},
	}
	const candidates = `candidates.a.reason=tool_failure:retry_exhausted candidates.a.err="db-7:\nno answer" ` +
		`candidates.b.reason=tool_failure:non_retryable candidates.b.err="a toolhealth.panickingError without a text" ` +
		`candidates.c.reason=tool_canceled`
	for want, v := range map[string]any{
		`tool=a from=closed to=open cause=failure_threshold epoch=2 streak=3 kind=timeout wait=30s`: Transition{
			Tool: "a", To: StateOpen, Epoch: 2, Cause: CauseFailureThreshold, When: at, Streak: 3, Kind: KindTimeout, Wait: 30 * time.Second},
		`tool=a from=open to=half-open cause=probe_admitted epoch=3 streak=3`: Transition{
			Tool: "a", From: StateOpen, To: StateHalfOpen, Epoch: 3, Cause: CauseProbeAdmitted, Streak: 3, Wait: time.Minute},
		`from=open to=closed cause=reset epoch=4 by=alice`: Transition{From: StateOpen, Epoch: 4, Cause: CauseReset, Kind: KindTimeout, By: "alice"},

		`tool=a attempt=1 outcome=success took=1s`: Event{Tool: "a", Served: "a", Attempt: 1, Took: time.Second},
		`tool=a served=b attempt=2 outcome=failure kind=server_error reason=tool_retry:allowed took=1s wait=100ms err="status 503 from db-7.internal"`: Event{
			Tool: "a", Served: "b", Attempt: 2, Verdict: vRetry, Reason: RetryAllowed, Took: time.Second, Wait: 100 * time.Millisecond, Err: errBusy},
		`tool=a attempts=3 outcome=failure kind=timeout reason=tool_failure:retry_exhausted took=2s ` + candidates: Event{
			Tool: "a", Served: "a", Final: true, Attempt: 3, Verdict: vTimeout, Reason: StopRetryExhausted, Took: 2 * time.Second, Err: failed},
		`outcome=success took=0s err="a *toolhealth.ToolError without a text"`: Event{Final: true, Err: (*ToolError)(nil)},

		`tool=a reason=tool_failure:retry_exhausted kind=timeout attempts=3 retry_after=1m0s ` + candidates: failed,
		`tool=a reason=tool_unavailable:isolated kind=refused`: &ToolError{
			Tool: "a", Reason: StopIsolated, Kind: KindRefused, RetryAfter: time.Minute},

		`tool=a reason=tool_unavailable:circuit_open retry_after=12s streak=3 kind=timeout refused_in_row=4`: &Refusal{
			Tool: "a", Reason: StopCircuitOpen, RetryAfter: 12 * time.Second, Streak: 3, Kind: KindTimeout, InRow: 4},

		`tool=a status=unhealthy state=open reason=tool_unavailable:isolated isolated_by=alice score=0.5 calls=5 failures=2 ` +
			`consecutive_failures=2 last_failure_kind=timeout refused_in_row=7 since=2026-01-02T03:04:05.000Z`: ToolHealth{
			Tool: "a", Status: Unhealthy, State: StateOpen, Reason: StopIsolated, RetryAfter: time.Minute, IsolatedBy: "alice", Score: 0.5,
			Counts: Counts{Successes: 3, Failures: 2}, ConsecutiveFailures: 2, LastFailure: KindTimeout, RefusedInRow: 7, Since: at},
		`tool=b status=healthy state=closed score=1 calls=0 since=2026-01-02T03:04:05.000Z`: ToolHealth{Tool: "b", Score: 1, Since: at},
	} {
		assert.Equal(t, want, logLine(v))
	}
	assert.Empty(t, logLine((*ToolError)(nil)))
	assert.Empty(t, logLine((*Refusal)(nil)))
}
