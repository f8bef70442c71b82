package guard_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// The rule is written a second time here, independent of the code: the effect of a
// status on the streak, and what the caller does next.
func TestGuardNext_FollowsAfterCallRule(t *testing.T) {
	const threshold, maxAttempts = 3, 3
	const good, stop, spent, again = "good", "stop", "spent", "again"
	statuses := map[int]string{
		200: good, 201: good, 204: good, 206: good,
		400: stop, 401: stop, 402: spent, 403: stop, 404: stop, 405: stop, 406: stop, 407: stop, 409: stop, 410: stop,
		411: stop, 412: stop, 413: stop, 414: stop, 415: stop, 417: stop, 418: stop, 421: stop, 422: stop, 423: stop,
		424: stop, 426: stop, 428: stop, 431: stop, 451: stop, 499: stop, 501: stop, 505: stop,
		408: again, 425: again, 429: again, 500: again, 502: again, 503: again, 504: again, 506: again, 507: again,
		508: again, 511: again, 520: again, 529: again, 599: again,
	}
	for status, class := range statuses {
		for attempt := 1; attempt <= maxAttempts+1; attempt++ {
			for streak := range threshold + 1 {
				r := toolhealth.NewRegistry()
				g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = maxAttempts })
				failTimes(r, "search", streak)
				wasOpen := streak == threshold

				want := toolhealth.Decision{Streak: streak}
				switch {
				case class == good:
					want.Reason = toolhealth.StopNone
					if !wasOpen {
						want.Streak = 0
					}
				case class == spent:
					want.Reason = toolhealth.StopNonRetryable
					if !wasOpen {
						want.Streak++
					}
				case class == stop:
					want.Reason = toolhealth.StopNonRetryable
					if !wasOpen {
						want.Streak = 0
					}
				default:
					if !wasOpen {
						want.Streak++
					}
					switch {
					case want.Streak >= threshold:
						want.Reason = toolhealth.StopCircuitOpen
					case attempt >= maxAttempts:
						want.Reason = toolhealth.StopRetryExhausted
					default:
						want.Reason = toolhealth.RetryAllowed
						want.Wait = 100 * time.Millisecond << (attempt - 1)
					}
				}
				got := g.Next("search", attempt, toolhealth.ClassifyHTTP(status, nil))
				if want.Reason == toolhealth.StopCircuitOpen {
					assert.InDelta(t, 30*time.Second, got.Wait, float64(time.Second))
					got.Wait = 0
				}
				if !assert.Equal(t, want, got, "status %d, attempt %d, streak %d", status, attempt, streak) {
					return
				}
				assert.Equal(t, want.Streak, healthOf(t, r, "search").ConsecutiveFailures)
			}
		}
	}
}

func TestGuardNext_WaitsReasonsAndSideEffects(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy func(*toolhealth.Policy)
		v      toolhealth.Verdict
		want   toolhealth.Decision
	}{
		{"an unexpected redirect is a broken contract", nil, toolhealth.ClassifyHTTP(302, nil), toolhealth.Decision{Reason: toolhealth.StopContractViolation, Streak: 2}},
		{"a stated wait is the wait", nil, toolhealth.ClassifyHTTP(429, map[string][]string{"Retry-After": {"7"}}), toolhealth.Decision{Reason: toolhealth.RetryAllowed, Wait: 7 * time.Second, Streak: 1}},
		{"a stated wait over MaxWait stops", nil, toolhealth.ClassifyHTTP(429, map[string][]string{"Retry-After": {"31"}}), toolhealth.Decision{Reason: toolhealth.StopRateLimited, Wait: 31 * time.Second, Streak: 1}},
		{"a stated wait over MaxWait stops after a failure, too", nil, toolhealth.ClassifyHTTP(503, map[string][]string{"Retry-After": {"31"}}), toolhealth.Decision{Reason: toolhealth.StopRateLimited, Wait: 31 * time.Second, Streak: 2}},
		{"a back-off over MaxWait stops", func(p *toolhealth.Policy) { p.MaxWait = time.Millisecond }, toolhealth.ClassifyHTTP(503, nil), toolhealth.Decision{Reason: toolhealth.StopRetryExhausted, Streak: 2}},
		{"canceled", nil, toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindCanceled}, toolhealth.Decision{Reason: toolhealth.StopCanceled, Streak: 1}},
		{"side effects", func(p *toolhealth.Policy) { p.SideEffects = true }, toolhealth.ClassifyHTTP(503, nil), toolhealth.Decision{Reason: toolhealth.StopOutcomeUnknown, Streak: 2}},
		{"side effects, never sent", func(p *toolhealth.Policy) { p.SideEffects = true }, toolhealth.ClassifyHTTP(425, nil), toolhealth.Decision{Reason: toolhealth.RetryAllowed, Wait: 100 * time.Millisecond, Streak: 2}},
		{"a negative wait counts as none", nil, toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Retryable: true, RetryAfter: -time.Hour}, toolhealth.Decision{Reason: toolhealth.RetryAllowed, Wait: 100 * time.Millisecond, Streak: 2}},
	} {
		r := toolhealth.NewRegistry()
		g := guardOn(t, r, func(gc *toolhealth.GuardConfig) {
			if c.policy != nil {
				c.policy(&gc.Default)
			}
		})
		failTimes(r, "a", 1)
		assert.Equal(t, c.want, g.Next("a", 1, c.v), c.name)
	}
}

func TestGuardNext_IsolatedTool(t *testing.T) {
	r := toolhealth.NewRegistry()
	g := guardOn(t, r, nil)
	failTimes(r, "a", 1)
	r.Isolate("a", "")
	d := g.Next("a", 1, toolhealth.ClassifyHTTP(503, nil))
	assert.Equal(t, toolhealth.StopIsolated, d.Reason, "not circuit_open")
	assert.Equal(t, 30*time.Second, d.Wait)
}

func TestGuardNext_KeepsNothingWithoutRegistry(t *testing.T) {
	for name, g := range map[string]*toolhealth.Guard{"nil": nil, "zero": {}} {
		assert.Equal(t, toolhealth.Decision{}, g.Next("a", 1, toolhealth.Verdict{}), name)
		assert.Equal(t, toolhealth.Decision{Reason: toolhealth.StopRetryExhausted}, g.Next("a", 1, toolhealth.ClassifyHTTP(503, nil)), name)
	}
	g := guardOn(t, nil, nil)
	assert.Equal(t, toolhealth.RetryAllowed, g.Next("a", 1, toolhealth.ClassifyHTTP(503, nil)).Reason)
	assert.Equal(t, toolhealth.StopRetryExhausted, g.Next("a", 2, toolhealth.ClassifyHTTP(503, nil)).Reason)

	unknown := registryWith(t, func(c *toolhealth.Config) { c.RegisteredOnly = true })
	assert.Equal(t, toolhealth.StopNonRetryable, guardOn(t, unknown, nil).Next("made_up", 1, toolhealth.ClassifyHTTP(404, nil)).Reason)
	assert.Zero(t, unknown.Len())
}

func TestGuardNext_PolicyPerTool(t *testing.T) {
	g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) {
		c.Tools = map[string]toolhealth.Policy{"often": bare(toolhealth.Policy{MaxAttempts: 5}), "once": bare(toolhealth.Policy{})}
	})
	for tool, attempts := range map[string]int{"often": 5, "once": 1, "other": 2} {
		for attempt := 1; attempt <= attempts+1; attempt++ {
			want := toolhealth.RetryAllowed
			if attempt >= attempts {
				want = toolhealth.StopRetryExhausted
			}
			assert.Equal(t, want, g.Next(tool, attempt, retryable).Reason, "%s, attempt %d", tool, attempt)
		}
	}
	assert.Equal(t, toolhealth.RetryAllowed, g.Next("often", math.MinInt, retryable).Reason, "an attempt below 1 counts as the first")
}

func TestGuardNext_RecordsNoDuration(t *testing.T) {
	r := toolhealth.NewRegistry()
	guardOn(t, r, nil).Next("a", 1, retryable)
	h := healthOf(t, r, "a")
	assert.Equal(t, uint64(1), h.Failures)
	assert.Zero(t, h.Max)
}

func TestGuardNext_AllowsRetryOfUntrackedTool(t *testing.T) {
	r := registryWith(t, func(c *toolhealth.Config) { c.MaxTools = 1 })
	require.NoError(t, r.Register("a", toolhealth.ToolOptions{}))
	assert.Equal(t, toolhealth.RetryAllowed, guardOn(t, r, nil).Next("b", 1, retryable).Reason)
}

func TestGuardNext_FailureThatOpensDuringThrottleStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		g := guardOn(t, r, nil)
		g.Next("a", 1, retryable)
		g.Next("a", 1, retryable)
		r.Record("a", toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, RetryAfter: time.Minute, Retryable: true}, 0)
		d := g.Next("a", 1, retryable)
		assert.Equal(t, toolhealth.Decision{Reason: toolhealth.StopCircuitOpen, Wait: time.Minute, Streak: 3}, d)

		probe := g.Next("b", 1, toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, RetryAfter: time.Second, Retryable: true})
		assert.Equal(t, toolhealth.RetryAllowed, probe.Reason, "a throttle alone is waited out")
	})
}

func TestGuardNext_StatesNoWaitOfItsOwnWithoutToken(t *testing.T) {
	g := guardOn(t, patient(t), nil)
	retriesLeft(t, g, "a")
	assert.Equal(t, toolhealth.Decision{Reason: toolhealth.StopRetryBudgetExhausted, Streak: 1}, g.Next("a", 1, retryable))
}
