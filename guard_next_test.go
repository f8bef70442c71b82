package toolhealth

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// The rule, once more and without the code's words: what a status does to the
// streak, and what comes after it.
func TestNextFollowsTheAfterCallRuleForEveryStatusAttemptAndStreak(t *testing.T) {
	const threshold, maxAttempts = 3, 3
	const good, stop, spent, again = "good", "stop", "spent", "again"
	statuses := map[int]string{
		200: good, 201: good, 204: good, 206: good,
		400: stop, 401: stop, 403: stop, 404: stop, 405: stop, 406: stop, 407: stop, 409: stop, 410: stop,
		411: stop, 412: stop, 413: stop, 414: stop, 415: stop, 417: stop, 418: stop, 421: stop, 422: stop, 423: stop,
		424: stop, 426: stop, 428: stop, 431: stop, 451: stop, 499: stop, 501: stop, 505: stop,
		408: again, 425: again, 429: again, 500: again, 502: again, 503: again, 504: again, 506: again, 507: again,
		508: again, 511: again, 520: again, 529: again, 599: again,
	}
	statuses[402] = spent
	for status, class := range statuses {
		for attempt := 1; attempt <= maxAttempts+1; attempt++ {
			for streak := range threshold + 1 {
				r := NewRegistry()
				g := guardOn(t, r, func(c *GuardConfig) { c.Default.MaxAttempts = maxAttempts })
				failTimes(r, "search", streak)
				wasOpen := streak == threshold

				want := Decision{Streak: streak}
				switch {
				case class == good:
					want.Reason = StopNone
					if !wasOpen {
						want.Streak = 0
					}
				case class == spent:
					want.Reason = StopNonRetryable
					if !wasOpen {
						want.Streak++
					}
				case class == stop:
					want.Reason = StopNonRetryable
					if !wasOpen {
						want.Streak = 0
					}
				default:
					if !wasOpen {
						want.Streak++
					}
					switch {
					case want.Streak >= threshold:
						want.Reason = StopCircuitOpen
					case attempt >= maxAttempts:
						want.Reason = StopRetryExhausted
					default:
						want.Reason = RetryAllowed
						want.Wait = 100 * time.Millisecond << (attempt - 1)
					}
				}
				got := g.Next("search", attempt, ClassifyHTTP(status, nil))
				if want.Reason == StopCircuitOpen {
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

func TestNextForWhatIsNoPlainStatus(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy func(*Policy)
		v      Verdict
		want   Decision
	}{
		{"an unexpected redirect is a broken contract", nil, ClassifyHTTP(302, nil), Decision{Reason: StopContractViolation, Streak: 2}},
		{"a stated wait is the wait", nil, ClassifyHTTP(429, map[string][]string{"Retry-After": {"7"}}), Decision{Reason: RetryAllowed, Wait: 7 * time.Second, Streak: 1}},
		{"a stated wait over MaxWait stops", nil, ClassifyHTTP(429, map[string][]string{"Retry-After": {"31"}}), Decision{Reason: StopRateLimited, Wait: 31 * time.Second, Streak: 1}},
		{"so does that of a failure", nil, ClassifyHTTP(503, map[string][]string{"Retry-After": {"31"}}), Decision{Reason: StopRateLimited, Wait: 31 * time.Second, Streak: 2}},
		{"a back-off over MaxWait stops", func(p *Policy) { p.MaxWait = time.Millisecond }, ClassifyHTTP(503, nil), Decision{Reason: StopRetryExhausted, Streak: 2}},
		{"cancelled", nil, Verdict{Outcome: OutcomeNeutral, Kind: KindCanceled}, Decision{Reason: StopCanceled, Streak: 1}},
		{"side effects", func(p *Policy) { p.SideEffects = true }, ClassifyHTTP(503, nil), Decision{Reason: StopOutcomeUnknown, Streak: 2}},
		{"side effects, never sent", func(p *Policy) { p.SideEffects = true }, ClassifyHTTP(425, nil), Decision{Reason: RetryAllowed, Wait: 100 * time.Millisecond, Streak: 2}},
		{"a negative wait counts as none", nil, Verdict{Outcome: OutcomeFailure, Retryable: true, RetryAfter: -time.Hour}, Decision{Reason: RetryAllowed, Wait: 100 * time.Millisecond, Streak: 2}},
	} {
		r := NewRegistry()
		g := guardOn(t, r, func(gc *GuardConfig) {
			if c.policy != nil {
				c.policy(&gc.Default)
			}
		})
		failTimes(r, "a", 1)
		assert.Equal(t, c.want, g.Next("a", 1, c.v), c.name)
	}
}

func TestNextSpendsTheBudgetAndASuccessGivesATenthBack(t *testing.T) {
	g := guardOn(t, patient(t), func(c *GuardConfig) { c.Default.MaxAttempts, c.Default.RetryBudget = 9, 2 })
	next := func(status int) StopReason { return g.Next("a", 1, ClassifyHTTP(status, nil)).Reason }
	assert.Equal(t, RetryAllowed, next(503))
	assert.Equal(t, RetryAllowed, next(503))
	assert.Equal(t, StopRetryBudgetExhausted, next(503))
	for range 9 {
		next(200)
	}
	assert.Equal(t, StopRetryBudgetExhausted, next(503), "nine tenths are no token")
	next(200)
	assert.Equal(t, RetryAllowed, next(503))
}

func TestNextSaysThatAnOperatorHasIsolatedTheTool(t *testing.T) {
	r := NewRegistry()
	g := guardOn(t, r, nil)
	failTimes(r, "a", 1)
	r.Isolate("a")
	d := g.Next("a", 1, ClassifyHTTP(503, nil))
	assert.Equal(t, StopIsolated, d.Reason, "it used to say circuit_open")
	assert.Equal(t, 30*time.Second, d.Wait)
}

func TestNextKeepsNothingWithoutARegistry(t *testing.T) {
	for name, g := range map[string]*Guard{"nil": nil, "zero": {}} {
		assert.Equal(t, Decision{}, g.Next("a", 1, Verdict{}), name)
		assert.Equal(t, Decision{Reason: StopRetryExhausted}, g.Next("a", 1, ClassifyHTTP(503, nil)), name)
	}
	g := guardOn(t, nil, nil)
	assert.Equal(t, RetryAllowed, g.Next("a", 1, ClassifyHTTP(503, nil)).Reason)
	assert.Equal(t, StopRetryExhausted, g.Next("a", 2, ClassifyHTTP(503, nil)).Reason)

	unknown := registryWith(t, func(c *Config) { c.RegisteredOnly = true })
	assert.Equal(t, StopNonRetryable, guardOn(t, unknown, nil).Next("made_up", 1, ClassifyHTTP(404, nil)).Reason)
	assert.Zero(t, unknown.Len())
}

func TestNextHasAPolicyForEachTool(t *testing.T) {
	g := guardOn(t, patient(t), func(c *GuardConfig) {
		c.Tools = map[string]Policy{"often": {MaxAttempts: 5}, "once": {}}
	})
	for tool, attempts := range map[string]int{"often": 5, "once": 1, "other": 2} {
		for attempt := 1; attempt <= attempts+1; attempt++ {
			want := RetryAllowed
			if attempt >= attempts {
				want = StopRetryExhausted
			}
			assert.Equal(t, want, g.Next(tool, attempt, vRetry).Reason, "%s, attempt %d", tool, attempt)
		}
	}
	assert.Equal(t, RetryAllowed, g.Next("often", math.MinInt, vRetry).Reason, "a nonsensical attempt counts as the first")
}

// An engine's own loop makes as many runs as a guarded call.
func TestALoopOverNextEndsAsACallDoes(t *testing.T) {
	for failures := range 6 {
		for maxAttempts := range 5 {
			t.Run(fmt.Sprintf("%d failures, %d attempts", failures, maxAttempts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					configure := func(c *GuardConfig) { c.Default.MaxAttempts = maxAttempts }
					tool := plays(make([]error, failures)...)
					for i := range tool.errs {
						tool.errs[i] = errBusy
					}
					_, err := Call(t.Context(), guardOn(t, NewRegistry(), configure), "a", tool.run)
					want := StopNone
					if err != nil {
						want = toolError(t, err).Reason
					}

					r := NewRegistry()
					g, runs, reason := guardOn(t, r, configure), 0, RetryAllowed
					for reason == RetryAllowed && r.AllowRequest("a") {
						runs++
						v := Verdict{}
						if runs <= failures {
							v = ClassifyHTTP(503, nil)
						}
						d := g.Next("a", runs, v)
						reason = d.Reason
						time.Sleep(d.Wait)
					}
					assert.Equal(t, tool.runs(), runs)
					assert.Equal(t, want, reason)
				})
			})
		}
	}
}
