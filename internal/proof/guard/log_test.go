package guard_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/toolhealth/toolhealth"
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
	failed := &toolhealth.ToolError{
		Tool: "a", Reason: toolhealth.StopRetryExhausted, Verdict: toolhealth.Verdict{Kind: toolhealth.KindTimeout}, Attempts: 3, RetryAfter: time.Minute,
		Candidates: []toolhealth.Candidate{
			{Tool: "a", Reason: toolhealth.StopRetryExhausted, Err: errors.New("db-7:\nno answer")},
			{Tool: "b", Reason: toolhealth.StopNonRetryable, Err: panickingError{}}, {Tool: "c", Reason: toolhealth.StopCanceled},
		},
	}
	const candidates = `candidates.a.reason=tool_failure:retry_exhausted candidates.a.err="db-7:\nno answer" ` +
		`candidates.b.reason=tool_failure:non_retryable candidates.b.err="a guard_test.panickingError without a text" ` +
		`candidates.c.reason=tool_canceled`
	for want, v := range map[string]any{
		`tool=a from=closed to=open cause=failure_threshold epoch=2 streak=3 kind=timeout wait=30s`: toolhealth.Transition{
			Tool: "a", To: toolhealth.StateOpen, Epoch: 2, Cause: toolhealth.CauseFailureThreshold, When: at, Streak: 3, Kind: toolhealth.KindTimeout, Wait: 30 * time.Second},
		`tool=a from=open to=half-open cause=probe_admitted epoch=3 streak=3`: toolhealth.Transition{
			Tool: "a", From: toolhealth.StateOpen, To: toolhealth.StateHalfOpen, Epoch: 3, Cause: toolhealth.CauseProbeAdmitted, Streak: 3, Wait: time.Minute},
		`tool=a from=closed to=open cause=isolated epoch=2 by=alice wait=1ns`: toolhealth.Transition{
			Tool: "a", To: toolhealth.StateOpen, Epoch: 2, Cause: toolhealth.CauseIsolated, By: "alice", Wait: 1},
		`from=open to=closed cause=reset epoch=4 by=alice`: toolhealth.Transition{From: toolhealth.StateOpen, Epoch: 4, Cause: toolhealth.CauseReset, Kind: toolhealth.KindTimeout, By: "alice"},

		`tool=a attempt=1 outcome=success took=1s`: toolhealth.Event{Tool: "a", Served: "a", Attempt: 1, Took: time.Second},
		`tool=a served=b attempt=2 outcome=failure kind=server_error reason=tool_retry:allowed took=1s wait=100ms err="status 503 from db-7.internal"`: toolhealth.Event{
			Tool: "a", Served: "b", Attempt: 2, Verdict: retryable, Reason: toolhealth.RetryAllowed, Took: time.Second, Wait: 100 * time.Millisecond, Err: errBusy},
		`tool=a attempts=3 outcome=failure kind=timeout reason=tool_failure:retry_exhausted took=2s ` + candidates: toolhealth.Event{
			Tool: "a", Served: "a", Final: true, Attempt: 3, Verdict: toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout, Retryable: true}, Reason: toolhealth.StopRetryExhausted, Took: 2 * time.Second, Err: failed},
		`outcome=success took=0s err="a *toolhealth.ToolError without a text"`: toolhealth.Event{Final: true, Err: (*toolhealth.ToolError)(nil)},

		`tool=a reason=tool_failure:retry_exhausted kind=timeout attempts=3 retry_after=1m0s ` + candidates: failed,
		`tool=a reason=tool_unavailable:isolated kind=refused`: &toolhealth.ToolError{
			Tool: "a", Reason: toolhealth.StopIsolated, Verdict: toolhealth.Verdict{Kind: toolhealth.KindRefused}, RetryAfter: time.Minute},

		`tool=a reason=tool_unavailable:circuit_open retry_after=12s streak=3 kind=timeout refused_in_row=4`: &toolhealth.Refusal{
			Tool: "a", Reason: toolhealth.StopCircuitOpen, RetryAfter: 12 * time.Second, Streak: 3, Kind: toolhealth.KindTimeout, InRow: 4},

		`tool=a reason=tool_unavailable:isolated refused_in_row=1`: &toolhealth.Refusal{Tool: "a", Reason: toolhealth.StopIsolated, RetryAfter: time.Minute, InRow: 1},

		`tool=a status=unhealthy state=open reason=tool_unavailable:isolated isolated_by=alice score=0.5 calls=5 failures=2 ` +
			`consecutive_failures=2 last_failure_kind=timeout refused_in_row=7 since=2026-01-02T03:04:05.000Z`: toolhealth.ToolHealth{
			Tool: "a", Status: toolhealth.Unhealthy, State: toolhealth.StateOpen, Reason: toolhealth.StopIsolated, RetryAfter: time.Minute, IsolatedBy: "alice", Score: 0.5,
			Counts: toolhealth.Counts{Successes: 3, Failures: 2}, ConsecutiveFailures: 2, LastFailure: toolhealth.KindTimeout, RefusedInRow: 7, Since: at},
		`tool=c status=unhealthy state=open reason=tool_unavailable:circuit_open retry_after=12s score=0.5 calls=0 since=2026-01-02T03:04:05.000Z`: toolhealth.ToolHealth{
			Tool: "c", Status: toolhealth.Unhealthy, State: toolhealth.StateOpen, Reason: toolhealth.StopCircuitOpen, RetryAfter: 12 * time.Second, Score: 0.5, Since: at},
		`tool=d status=degraded state=closed score=1 calls=0 rejected_in_row=10 down_since=2026-01-02T03:04:05.000Z since=2026-01-02T03:04:06.000Z`: toolhealth.ToolHealth{
			Tool: "d", Status: toolhealth.Degraded, Score: 1, RejectedInRow: 10, DownSince: at, Since: at.Add(time.Second)},
		`tool=b status=healthy state=closed score=1 calls=0 since=2026-01-02T03:04:05.000Z`: toolhealth.ToolHealth{Tool: "b", Score: 1, Since: at},
	} {
		assert.Equal(t, want, logLine(v))
	}
	assert.Empty(t, logLine((*toolhealth.ToolError)(nil)))
	assert.Empty(t, logLine((*toolhealth.Refusal)(nil)))
}
