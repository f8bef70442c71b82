package guard_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestGuard_TimeoutIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) { c.Default.Timeout = time.Second })
		runs := 0
		out, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, tool string) (string, error) {
			if runs++; runs == 1 {
				return obeys(time.Minute)(ctx, tool)
			}
			return obeys(900*time.Millisecond)(ctx, tool) // each attempt has the full Timeout
		})
		require.NoError(t, err)
		assert.Equal(t, "late", out)
	})
}

func TestGuard_WithoutDetachWaitsForTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.Timeout = time.Second })
		start := time.Now()
		out, err := toolhealth.Call(t.Context(), g, "a", ignores(5*time.Second))
		require.NoError(t, err, "an answer that arrives is an answer")
		assert.Equal(t, "late", out)
		assert.Equal(t, 5*time.Second, time.Since(start))
		assert.Equal(t, uint64(1), healthOf(t, r, "a").Successes)
	})
}

func TestGuard_DetachDropsLateResult(t *testing.T) {
	for _, tool := range []struct {
		name string
		end  func() (string, error)
	}{
		{"success", func() (string, error) { return "late", nil }},
		{"failure", func() (string, error) { return "", errBusy }},
		{"panic", func() (string, error) { panic("late") }},
		{"Goexit", func() (string, error) { runtime.Goexit(); return "", nil }},
	} {
		t.Run(tool.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := patient(t)
				g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
					c.Default = bare(toolhealth.Policy{Timeout: time.Second, Detach: true})
				})
				inner := make(chan context.Context, 1)
				start := time.Now()
				out, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
					inner <- ctx
					time.Sleep(5 * time.Second)
					return tool.end()
				})
				assert.Equal(t, time.Second, time.Since(start))
				assert.Empty(t, out)
				assert.Equal(t, toolhealth.KindTimeout, toolError(t, err).Verdict.Kind)
				assert.Error(t, (<-inner).Err(), "the ctx of the tool is done")
				counts := healthOf(t, r, "a").Guard
				assert.Equal(t, int64(1), counts.Abandoned)
				assert.Zero(t, counts.InFlight, "the call itself is over")

				time.Sleep(time.Minute)
				h := healthOf(t, r, "a")
				assert.Equal(t, toolhealth.GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, h.Guard)
				assert.Equal(t, uint64(1), h.TotalCalls())
				assert.Equal(t, uint64(1), h.Failures)
				assert.Zero(t, h.InFlight)
			})
		})
	}
}

func TestGuard_DetachReturnsOnCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.Detach = true })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, err := toolhealth.Call(ctx, g, "a", ignores(time.Hour))
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, toolhealth.StopCanceled, toolError(t, err).Reason)
		assert.Equal(t, uint64(1), healthOf(t, r, "a").Neutral)
		assert.Equal(t, int64(1), healthOf(t, r, "a").Guard.Abandoned)
		time.Sleep(time.Hour)
		assert.Zero(t, healthOf(t, r, "a").Guard.Abandoned)
	})
}

func TestGuard_DetachChangesNothingInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
			c.Default = bare(toolhealth.Policy{Timeout: time.Second, Detach: true})
		})
		out, err := toolhealth.Call(t.Context(), g, "a", obeys(time.Millisecond))
		require.NoError(t, err)
		assert.Equal(t, "late", out)
		_, err = toolhealth.Call(t.Context(), g, "a", plays(errBusy).Run)
		assert.ErrorIs(t, err, errBusy)
		_, err = toolhealth.Call(t.Context(), g, "a", func(context.Context, string) (string, error) { panic("at once") })
		var p *toolhealth.PanicError
		require.ErrorAs(t, err, &p)
		assert.Equal(t, "at once", p.Value)
		_, err = toolhealth.Call(t.Context(), g, "a", func(context.Context, string) (string, error) { runtime.Goexit(); return "", nil })
		assert.Equal(t, toolhealth.KindNotDispatched, toolError(t, err).Verdict.Kind, "only the goroutine of the tool has ended")
		_, err = toolhealth.Call(t.Context(), g, "a", plays().Run, toolhealth.CheckResult(func(string) error { return errBusy }))
		assert.ErrorIs(t, err, errBusy, "the check runs on the goroutine of the tool, too")
		assert.Zero(t, healthOf(t, r, "a").Guard.Abandoned)
	})
}

func TestGuard_AbandonedAttemptsEndWithTheirTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
			c.Default = bare(toolhealth.Policy{Timeout: 50 * time.Millisecond, Detach: true})
		})
		for range 1000 {
			_, err := toolhealth.Call(t.Context(), g, "a", ignores(500*time.Millisecond))
			require.Error(t, err)
		}
		// The tools of the last 450ms are still running.
		assert.InDelta(t, 9, healthOf(t, r, "a").Guard.Abandoned, 1)
		time.Sleep(2 * time.Second)
		assert.Zero(t, healthOf(t, r, "a").Guard.Abandoned)
	})
}

func TestGuard_AnswerAtTimeoutCountsOnce(t *testing.T) {
	// The answer and the timeout are ready at the same instant. Whichever the guard sees
	// first, the tool counts once and Abandoned is 0 in the end.
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			r := patient(t)
			g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
				c.Default = bare(toolhealth.Policy{Timeout: time.Second, Detach: true})
			})
			_, _ = toolhealth.Call(t.Context(), g, "a", ignores(time.Second))
			synctest.Wait()
			h := healthOf(t, r, "a")
			assert.Equal(t, uint64(1), h.TotalCalls())
			assert.Zero(t, h.Guard.Abandoned)
		})
	}
}

// An attempt that hangs for two minutes is not worth another two. One that a limit of
// the user's own ends is repeated, also if that limit is as long.
func TestPolicy_DefaultTimeoutIsNotRepeated(t *testing.T) {
	for _, c := range []struct {
		timeout  time.Duration
		tries    int
		attempts int
		took     time.Duration
	}{
		{0, 5, 1, 2 * time.Minute},
		{2 * time.Minute, 2, 2, 4 * time.Minute},
		{time.Second, 3, 3, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := guardOn(t, patient(t), func(gc *toolhealth.GuardConfig) {
				gc.Default = bare(toolhealth.Policy{MaxAttempts: c.tries})
				gc.Default.Timeout = c.timeout
			})
			start := time.Now()
			_, err := toolhealth.Call(t.Context(), g, "a", hang)
			e := toolError(t, err)
			assert.Equal(t, toolhealth.StopRetryExhausted, e.Reason)
			assert.Equal(t, toolhealth.KindTimeout, e.Verdict.Kind)
			assert.Equal(t, c.attempts, e.Attempts)
			assert.Equal(t, c.took, time.Since(start))
		})
	}
}

// The default limit says nothing about an attempt that fails by itself.
func TestPolicy_DefaultTimeoutDoesNotForbidOtherRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), func(gc *toolhealth.GuardConfig) { gc.Default.Timeout = 0 })
		tool := failing(errBusy)
		_, err := toolhealth.Call(t.Context(), g, "a", tool.Run)
		assert.Equal(t, 2, toolError(t, err).Attempts)
	})
}

// A substitute may serve after the default limit has ended the attempt.
func TestPolicy_DefaultTimeoutGoesOnToSubstitute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWithBackups(t, patient(t), func(gc *toolhealth.GuardConfig) { gc.Default.Timeout = 0 }, "b")
		out, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, tool string) (string, error) {
			if tool == "a" {
				return hang(ctx, tool)
			}
			return "answer of " + tool, nil
		})
		require.NoError(t, err)
		assert.Equal(t, "answer of b", out)
	})
}

func TestGuard_CallerDeadlineCountsAboveFloor(t *testing.T) {
	for _, c := range []struct {
		name     string
		deadline time.Duration
		floor    time.Duration
		failures uint64
		reason   toolhealth.StopReason
	}{
		{"under the floor", 999 * time.Millisecond, toolhealth.DefaultDeadlineFloor, 0, toolhealth.StopCanceled},
		{"at the floor", time.Second, toolhealth.DefaultDeadlineFloor, 1, toolhealth.StopTimeout},
		{"no floor", time.Millisecond, toolhealth.Off, 1, toolhealth.StopTimeout},
		{"the default, under it", 999 * time.Millisecond, 0, 0, toolhealth.StopCanceled},
		{"the default, at it", time.Second, 0, 1, toolhealth.StopTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := toolhealth.NewRegistry()
				gate := &toolhealth.Gate{Registry: r, DeadlineFloor: c.floor}
				g := guardOverGate(t, gate, func(gc *toolhealth.GuardConfig) { gc.Default.Timeout = time.Hour })
				ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
				defer cancel()
				_, err := toolhealth.Call(ctx, g, "a", func(ctx context.Context, _ string) (string, error) {
					<-ctx.Done()
					return "", errors.New("an SDK that says something else")
				})
				e := toolError(t, err)
				assert.Equal(t, c.reason, e.Reason)
				assert.Equal(t, 1, e.Attempts, "there is no time for a retry")
				assert.Equal(t, c.failures, healthOf(t, r, "a").Failures)
				assert.ErrorIs(t, err, context.DeadlineExceeded, "the deadline of the caller is reachable")
				assert.Equal(t, context.DeadlineExceeded, e.Canceled)
			})
		})
	}
}

func TestGuard_CanceledCallIsNeutral(t *testing.T) {
	own := errors.New("a sibling failed")
	for name, answer := range map[string]error{"the cause": own, "wrapped": context.Canceled, "text": io.ErrUnexpectedEOF, "a status": errBusy} {
		synctest.Test(t, func(t *testing.T) {
			r := toolhealth.NewRegistry()
			g := guardOn(t, r, nil)
			for range 10 {
				ctx, cancel := context.WithCancelCause(t.Context())
				_, err := toolhealth.Call(ctx, g, "a", func(context.Context, string) (string, error) {
					cancel(own)
					return "", answer
				})
				assert.Equal(t, toolhealth.StopCanceled, toolError(t, err).Reason, name)
				assert.ErrorIs(t, err, answer, name)
				assert.ErrorIs(t, err, context.Canceled, name)
			}
			h := healthOf(t, r, "a")
			assert.Zero(t, h.ConsecutiveFailures, name)
			assert.Equal(t, uint64(10), h.Neutral, name)
		})
	}
}

func TestGuard_TimeoutIsLeastLeaseOfProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.Timeout = 2 * time.Minute })
		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second)
		_, err := toolhealth.Call(t.Context(), g, "a", obeys(100*time.Second)) // the configured lease is 30s
		require.NoError(t, err)
		assert.Equal(t, toolhealth.StateClosed, healthOf(t, r, "a").State)
	})
}

// After the timeout of an attempt, its error does not matter.
func TestGuard_AttemptPastTimeoutIsTimeoutWhateverItsError(t *testing.T) {
	for _, own := range []error{errors.New("socket hang up"), context.Canceled, statusErr(499)} {
		synctest.Test(t, func(t *testing.T) {
			r := patient(t)
			g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.Timeout = time.Second })
			runs := 0
			_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
				runs++
				<-ctx.Done()
				return "", own
			})
			e := toolError(t, err)
			assert.Equal(t, toolhealth.KindTimeout, e.Verdict.Kind, "%v", own)
			assert.Equal(t, toolhealth.StopRetryExhausted, e.Reason, "%v", own)
			assert.Equal(t, 2, runs)
			assert.ErrorIs(t, err, own)

			_, err = toolhealth.Call(t.Context(), g, "a", plays(own).Run) // in time, the error counts
			assert.NotEqual(t, toolhealth.KindTimeout, toolError(t, err).Verdict.Kind, "%v", own)
		})
	}
}

func TestGuard_CanceledIsSetOnlyIfItEndedCall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := toolhealth.Call(ctx, guardOn(t, patient(t), nil), "a", func(context.Context, string) (string, error) {
		cancel()
		return "", toolhealth.WithVerdict(errBusy, invalid) // the tool had answered
	})
	assert.NoError(t, toolError(t, err).Canceled)
}

func TestGuard_DurationsStartWithCall(t *testing.T) {
	for name, r := range map[string]func() *toolhealth.Registry{"registry": toolhealth.NewRegistry, "none": func() *toolhealth.Registry { return nil }} {
		synctest.Test(t, func(t *testing.T) {
			var events []toolhealth.Event
			g := guardOn(t, r(), func(c *toolhealth.GuardConfig) {
				c.Observe = func(_ context.Context, e toolhealth.Event) { events = append(events, e) }
			})
			time.Sleep(time.Hour)
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // under the floor
			defer cancel()
			_, err := toolhealth.Call(ctx, g, "a", obeys(time.Minute))
			assert.Equal(t, toolhealth.StopCanceled, toolError(t, err).Reason, name)
			for _, e := range events {
				assert.Equal(t, 500*time.Millisecond, e.Took, name)
			}
			assert.Len(t, events, 2, name)
		})
	}
}

func TestGuard_DetachNeedsNoRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, nil, func(c *toolhealth.GuardConfig) {
			c.Default = bare(toolhealth.Policy{Timeout: time.Second, Detach: true})
		})
		_, err := toolhealth.Call(t.Context(), g, "a", ignores(time.Minute))
		assert.Equal(t, toolhealth.KindTimeout, toolError(t, err).Verdict.Kind)
		time.Sleep(time.Minute) // no figure counts the late end
	})
}

func TestGuard_ClassifierSeesTimeoutAndToolText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read []string
		g := guardOverGate(t, &toolhealth.Gate{Classify: func(_ context.Context, err error) toolhealth.Verdict {
			read = append(read, err.Error())
			var late interface{ Timeout() bool }
			assert.True(t, errors.As(err, &late) && late.Timeout())
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			return unknown
		}}, func(c *toolhealth.GuardConfig) { c.Default = bare(toolhealth.Policy{Timeout: time.Second}) })
		_, _ = toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, _ string) (int, error) {
			<-ctx.Done()
			return 0, errors.New("gave up on page 7")
		})
		assert.Equal(t, []string{"gave up on page 7"}, read)
	})
}

// hang is a tool function that does nothing until its context is done.
func hang(ctx context.Context, _ string) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}
