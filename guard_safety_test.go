package toolhealth

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAToolWithSideEffectsIsRepeatedOnlyIfItSurelyNeverRan(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		name    string
		err     error
		runs    int
		backup  bool // a substitute may step in
		reason  StopReason
		failure uint64
	}{
		{"connection refused", errUnsent, 2, true, StopRetryExhausted, 2},
		{"server error", errBusy, 1, false, StopOutcomeUnknown, 1},
		{"unknown error", errors.New("?"), 1, false, StopOutcomeUnknown, 1},
		{"throttled", askedToWait(ms), 1, false, StopRateLimited, 0},
		{"throttled, never sent", WithVerdict(errBusy, Verdict{Outcome: OutcomeThrottled, Retryable: true, NotSent: true, RetryAfter: ms}), 2, true, StopRetryExhausted, 0},
		{"rejected", statusErr(422), 1, false, StopNonRetryable, 0},
		{"a collision that could be repeated", WithVerdict(errBusy, vCollided), 1, false, StopNonRetryable, 0},
		{"a host without descriptors", WithVerdict(errBusy, vHost), 1, false, StopNonRetryable, 0},
		{"denied", WithVerdict(errBusy, vPending), 1, false, StopNonRetryable, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := patient(t)
				g := guardWithBackups(t, r, func(gc *GuardConfig) { gc.Default.SideEffects = true }, "b")
				a, b := failing(c.err), plays()
				_, err := Call(t.Context(), g, "a", func(ctx context.Context, tool string) (string, error) {
					if tool == "b" {
						return b.run(ctx, tool)
					}
					return a.run(ctx, tool)
				})
				assert.Equal(t, c.runs, a.runs())
				assert.Equal(t, c.backup, b.runs() == 1)
				assert.Equal(t, c.failure, healthOf(t, r, "a").Failures)
				if c.backup {
					require.NoError(t, err)
					return
				}
				assert.Equal(t, c.reason, toolError(t, err).Reason)
				assert.ErrorIs(t, err, c.err)
			})
		})
	}
}

func TestATimeoutOfAToolWithSideEffectsIsAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		partial := false
		g := guardWithBackups(t, r, func(c *GuardConfig) { c.Default.SideEffects, c.Default.Timeout = true, time.Second }, "b")
		_, err := Call(t.Context(), g, "a", obeys(time.Hour),
			Partial(func(context.Context, *ToolError) (string, error) { partial = true; return "", nil }))
		e := toolError(t, err)
		assert.Equal(t, StopOutcomeUnknown, e.Reason)
		assert.Equal(t, "tool outcome unknown: the action may have been carried out, check before repeating it", err.Error())
		assert.Equal(t, 1, e.Attempts)
		assert.Equal(t, uint64(1), healthOf(t, r, "a").Failures, "it counts all the same")
		_, tried := r.Health("b")
		assert.False(t, tried)
		assert.False(t, partial, "a partial answer would hide it")
	})
}

func TestASubstituteWithSideEffectsThatMayHaveActedEndsTheCall(t *testing.T) {
	r := patient(t)
	g := guardWithBackups(t, r, func(c *GuardConfig) {
		c.Tools = map[string]Policy{"b": {SideEffects: true}}
	}, "b", "c")
	r.RecordSuccess("a", 0)
	r.Isolate("a")
	tool := failing(errBusy)
	_, err := Call(t.Context(), g, "a", tool.run)
	e := toolError(t, err)
	assert.Equal(t, []string{"b"}, tool.names)
	assert.Equal(t, StopOutcomeUnknown, e.Reason, "that matters more than that a is isolated")
	assert.Equal(t, KindServerError, e.Kind)
	assert.Equal(t, "b", e.Candidates[1].Tool)
}

// What used to happen: the outer call saw only "503", ran its tool again, and the
// mail went out twice.
func TestAnOuterCallDoesNotRepeatWhatAnInnerOneMayHaveDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardWithBackups(t, r, func(c *GuardConfig) {
			c.Default.MaxAttempts = 3
			c.Tools = map[string]Policy{"send_mail": {SideEffects: true}}
		}, "b")
		mails := failing(errBusy)
		workflow := func(ctx context.Context, _ string) (string, error) {
			out, err := Call(ctx, g, "send_mail", mails.run)
			if err != nil {
				return "", errors.Join(errors.New("the second step failed"), err)
			}
			return out, nil
		}
		_, err := Call(t.Context(), g, "a", workflow)
		assert.Equal(t, 1, mails.runs())
		assert.Equal(t, StopOutcomeUnknown, toolError(t, err).Reason)
		_, tried := r.Health("b")
		assert.False(t, tried)

		mails = plays(errUnsent, errUnsent)
		_, err = Call(t.Context(), g, "a", workflow)
		require.NoError(t, err, "what surely was not sent can be repeated")
		assert.Equal(t, 3, mails.runs())
	})
}

// Three guards, one in the other, each with three attempts: the innermost tool
// runs three times, the attempts of the outermost policy, not 9 or 27.
func TestRetriesAreThoseOfTheOutermostCallOnly(t *testing.T) {
	for depth, names := range map[int][]string{1: {"a"}, 2: {"a", "b"}, 3: {"a", "b", "c"}} {
		synctest.Test(t, func(t *testing.T) {
			r := patient(t)
			g := guardOn(t, r, func(c *GuardConfig) { c.Default.MaxAttempts = 3 })
			innermost := failing(errBusy)
			var nest func(i int) func(context.Context, string) (string, error)
			nest = func(i int) func(context.Context, string) (string, error) {
				if i == len(names) {
					return innermost.run
				}
				return func(ctx context.Context, _ string) (string, error) { return Call(ctx, g, names[i], nest(i+1)) }
			}
			_, err := Call(t.Context(), g, names[0], nest(1))
			assert.Equal(t, 3, innermost.runs(), "%d deep", depth)
			assert.ErrorIs(t, err, errBusy)
			e := toolError(t, err)
			assert.Equal(t, 3, e.Attempts)
			assert.Equal(t, StopRetryExhausted, e.Reason)
			for i, name := range names {
				want := GuardCounts{Calls: 1, Failed: 1, Attempts: 3, Retries: 2}
				if i > 0 { // the inner calls are calls of their own, and never retry
					want = GuardCounts{Calls: 3, Failed: 3, Attempts: 3}
				}
				assert.Equal(t, want, healthOf(t, r, name).Guard, name)
				assert.Equal(t, uint64(3), healthOf(t, r, name).Failures, name)
			}
		})
	}
}

func TestACallInsideOneOfTheSameToolRidesOnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		var events []Event
		g := guardOn(t, r, func(c *GuardConfig) { c.Observe = func(_ context.Context, e Event) { events = append(events, e) } })
		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second) // now a single probe is let in
		var inner error
		out, err := Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
			_, inner = Call(ctx, g, "a", failing(errBusy).run)
			return Call(ctx, g, "between", func(ctx context.Context, _ string) (string, error) {
				return Call(ctx, g, "a", plays().run) // also from further in
			})
		})
		require.NoError(t, err)
		assert.Equal(t, "answer of a", out)
		e := toolError(t, inner)
		assert.Equal(t, StopRetryExhausted, e.Reason, "a riding call is not retried")
		assert.Equal(t, 1, e.Attempts)
		h := healthOf(t, r, "a")
		assert.Equal(t, StateClosed, h.State)
		assert.Equal(t, uint64(1), h.Successes)
		assert.Equal(t, uint64(3), h.Failures, "the ones that opened it")
		assert.Equal(t, GuardCounts{Calls: 1, Attempts: 1}, h.Guard)
		var told []string
		for _, e := range events {
			told = append(told, e.Tool)
		}
		assert.Equal(t, []string{"between", "between", "a", "a"}, told, "nor is it observed a second time")
	})
}

// asked is a context that counts how often it is asked for the settings of calls.
type asked struct {
	context.Context
	times int
}

func (c *asked) Value(key any) any {
	if key == (frameKey{}) {
		c.times++
	}
	return c.Context.Value(key)
}

func TestACallDeepInsideOthersGoesAllTheWayOutTwiceAtMost(t *testing.T) {
	g := guardOn(t, NewRegistry(), nil)
	outermost := &asked{Context: t.Context()}
	var nest func(ctx context.Context, depth int)
	nest = func(ctx context.Context, depth int) {
		before := outermost.times
		_, err := Call(ctx, g, strconv.Itoa(depth), func(ctx context.Context, _ string) (int, error) {
			assert.LessOrEqual(t, outermost.times-before, 2, "depth %d", depth)
			if depth < 20 {
				nest(ctx, depth+1)
			}
			return 0, nil
		})
		assert.NoError(t, err)
	}
	nest(outermost, 0)
	assert.Positive(t, outermost.times)
}

func TestACallRidesOnOneOfTheSameToolBeyondAContextWithSettings(t *testing.T) {
	r := NewRegistry()
	g := guardOn(t, r, nil)
	_, err := Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
		ctx, _ = WithCallInfo(context.WithoutCancel(ctx))
		return Call(WithoutFallback(ctx), g, "between", func(ctx context.Context, _ string) (string, error) {
			return Call(ctx, g, "a", plays().run)
		})
	})
	require.NoError(t, err)
	assert.EqualValues(t, 1, healthOf(t, r, "a").TotalCalls())
}

func TestTwentyNestedCallsAtTheEndOfACooldownCloseTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := guardOn(t, r, nil)
		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second)
		done := make(chan error, 20)
		for range 20 {
			go func() {
				_, err := Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
					time.Sleep(time.Second)
					return Call(ctx, g, "a", plays().run)
				})
				done <- err
			}()
		}
		good := 0
		for range 20 {
			if <-done == nil {
				good++
			}
		}
		assert.Equal(t, 1, good, "only the probe may run")
		assert.Equal(t, StateClosed, healthOf(t, r, "a").State)
	})
}

func TestASubstituteThatIsRunningFurtherOutIsNotUsedAgain(t *testing.T) {
	r := patient(t)
	router, err := NewHealthRouter(map[string][]string{"a": {"b"}, "b": {"a"}})
	require.NoError(t, err)
	g := guardOverGate(t, &Gate{Registry: r, Router: router}, func(c *GuardConfig) { c.Default.MaxAttempts = 1 })
	var ran []string
	var fn func(ctx context.Context, tool string) (string, error)
	fn = func(ctx context.Context, tool string) (string, error) {
		ran = append(ran, tool)
		if len(ran) > 10 {
			t.Fatal("a circle")
		}
		if tool == "a" {
			return Call(ctx, g, "b", fn) // whose substitute is a
		}
		return "", errBusy
	}
	_, err = Call(t.Context(), g, "a", fn)
	require.Error(t, err)
	assert.Equal(t, []string{"a", "b", "b"}, ran, "b inside a, then b in a's place")
}

func TestAnInnerRefusalIsNoFailureOfTheOuterTool(t *testing.T) {
	r := NewRegistry()
	g := guardOn(t, r, nil)
	failTimes(r, "in", 3)
	for range 5 {
		_, err := Call(t.Context(), g, "out", func(ctx context.Context, _ string) (string, error) {
			return Call(ctx, g, "in", plays().run)
		})
		e := toolError(t, err)
		assert.Equal(t, StopNonRetryable, e.Reason)
		assert.Equal(t, KindRefused, e.Kind)
		assert.ErrorIs(t, err, ErrCircuitOpen, "it can be told through the wrapping")
		assert.Equal(t, 1, e.Attempts)
		var refusal *Refusal
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, "in", refusal.Tool)
	}
	h := healthOf(t, r, "out")
	assert.Equal(t, uint64(5), h.Neutral)
	assert.Zero(t, h.ConsecutiveFailures)
}

func TestAnInnerCallMayOutliveItsOuterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), func(c *GuardConfig) { c.Default.Timeout = time.Second })
		late := make(chan error, 1)
		_, err := Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
			go func() {
				time.Sleep(time.Minute)
				_, err := Call(ctx, g, "b", plays().run)
				late <- err
			}()
			return "", nil
		})
		require.NoError(t, err)
		assert.ErrorIs(t, <-late, context.Canceled)
	})
}
