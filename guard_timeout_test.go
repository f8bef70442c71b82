package toolhealth

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// obeys is a tool function that takes this long and gives up when its ctx is done.
func obeys(d time.Duration) func(context.Context, string) (string, error) {
	return func(ctx context.Context, _ string) (string, error) {
		select {
		case <-time.After(d):
			return "late", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// ignores is one that does not look at its ctx.
func ignores(d time.Duration) func(context.Context, string) (string, error) {
	return func(context.Context, string) (string, error) {
		time.Sleep(d)
		return "late", nil
	}
}

func TestAnAttemptsTimeoutIsAFailureOfTheTool(t *testing.T) {
	for _, detach := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := NewRegistry()
			g := guardOn(t, r, func(c *GuardConfig) { c.Default = Policy{Timeout: time.Second, Detach: detach} })
			for range 3 {
				start := time.Now()
				_, err := Call(t.Context(), g, "a", obeys(time.Minute))
				e := toolError(t, err)
				assert.Equal(t, time.Second, time.Since(start))
				assert.Equal(t, KindTimeout, e.Kind)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.NoError(t, e.Canceled, "the caller has not given up")
				synctest.Wait()
			}
			h := healthOf(t, r, "a")
			assert.Equal(t, StateOpen, h.State)
			assert.Equal(t, map[Kind]uint64{KindTimeout: 3}, h.ByKind)
			assert.Zero(t, h.Guard.Abandoned)
		})
	}
}

func TestATimeoutIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), func(c *GuardConfig) { c.Default.Timeout = time.Second })
		runs := 0
		out, err := Call(t.Context(), g, "a", func(ctx context.Context, tool string) (string, error) {
			if runs++; runs == 1 {
				return obeys(time.Minute)(ctx, tool)
			}
			return obeys(900*time.Millisecond)(ctx, tool) // each attempt has all of its time
		})
		require.NoError(t, err)
		assert.Equal(t, "late", out)
	})
}

func TestWithoutDetachAToolThatIgnoresItsContextIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := guardOn(t, r, func(c *GuardConfig) { c.Default.Timeout = time.Second })
		start := time.Now()
		out, err := Call(t.Context(), g, "a", ignores(5*time.Second))
		require.NoError(t, err, "an answer that arrives is an answer")
		assert.Equal(t, "late", out)
		assert.Equal(t, 5*time.Second, time.Since(start))
		assert.Equal(t, uint64(1), healthOf(t, r, "a").Successes)
	})
}

func TestWithDetachALateResultIsDroppedAndCountedOnce(t *testing.T) {
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
				g := guardOn(t, r, func(c *GuardConfig) { c.Default = Policy{Timeout: time.Second, Detach: true} })
				inner := make(chan context.Context, 1)
				start := time.Now()
				out, err := Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
					inner <- ctx
					time.Sleep(5 * time.Second)
					return tool.end()
				})
				assert.Equal(t, time.Second, time.Since(start))
				assert.Empty(t, out)
				assert.Equal(t, KindTimeout, toolError(t, err).Kind)
				assert.Error(t, (<-inner).Err(), "the tool has been told")
				counts := healthOf(t, r, "a").Guard
				assert.Equal(t, int64(1), counts.Abandoned)
				assert.Zero(t, counts.InFlight, "the call itself is over")

				time.Sleep(time.Minute)
				h := healthOf(t, r, "a")
				assert.Equal(t, GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, h.Guard)
				assert.Equal(t, uint64(1), h.TotalCalls())
				assert.Equal(t, uint64(1), h.Failures)
				assert.Zero(t, h.InFlight)
			})
		})
	}
}

func TestWithDetachCancellationReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := guardOn(t, r, func(c *GuardConfig) { c.Default.Detach = true })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, err := Call(ctx, g, "a", ignores(time.Hour))
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, StopCanceled, toolError(t, err).Reason)
		assert.Equal(t, uint64(1), healthOf(t, r, "a").Neutral)
		assert.Equal(t, int64(1), healthOf(t, r, "a").Guard.Abandoned)
		time.Sleep(time.Hour)
		assert.Zero(t, healthOf(t, r, "a").Guard.Abandoned)
	})
}

func TestWithDetachAToolInTimeIsAsWithout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *GuardConfig) { c.Default = Policy{Timeout: time.Second, Detach: true} })
		out, err := Call(t.Context(), g, "a", obeys(time.Millisecond))
		require.NoError(t, err)
		assert.Equal(t, "late", out)
		_, err = Call(t.Context(), g, "a", plays(errBusy).run)
		assert.ErrorIs(t, err, errBusy)
		_, err = Call(t.Context(), g, "a", func(context.Context, string) (string, error) { panic("at once") })
		var p *PanicError
		require.ErrorAs(t, err, &p)
		assert.Equal(t, "at once", p.Value)
		_, err = Call(t.Context(), g, "a", func(context.Context, string) (string, error) { runtime.Goexit(); return "", nil })
		assert.Equal(t, KindNotDispatched, toolError(t, err).Kind, "only its own goroutine has ended")
		_, err = Call(t.Context(), g, "a", plays().run, CheckResult(func(string) error { return errBusy }))
		assert.ErrorIs(t, err, errBusy, "the check runs there, too")
		assert.Zero(t, healthOf(t, r, "a").Guard.Abandoned)
	})
}

func TestManyAbandonedAttemptsEndWithTheirTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *GuardConfig) { c.Default = Policy{Timeout: 50 * time.Millisecond, Detach: true} })
		for range 1000 {
			_, err := Call(t.Context(), g, "a", ignores(500*time.Millisecond))
			require.Error(t, err)
		}
		// Those of the last 450ms are still at it.
		assert.InDelta(t, 9, healthOf(t, r, "a").Guard.Abandoned, 1)
		time.Sleep(2 * time.Second)
		assert.Zero(t, healthOf(t, r, "a").Guard.Abandoned)
	})
}

func TestAnAnswerThatComesWithTheTimeoutIsNotLost(t *testing.T) {
	// Both are ready at the same instant; whichever the guard sees first, the tool
	// counts once and Abandoned is 0 in the end.
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			r := patient(t)
			g := guardOn(t, r, func(c *GuardConfig) { c.Default = Policy{Timeout: time.Second, Detach: true} })
			_, _ = Call(t.Context(), g, "a", ignores(time.Second))
			synctest.Wait()
			h := healthOf(t, r, "a")
			assert.Equal(t, uint64(1), h.TotalCalls())
			assert.Zero(t, h.Guard.Abandoned)
		})
	}
}

func TestTheCallersDeadlineCountsOnlyIfTheToolHadAFairChance(t *testing.T) {
	for _, c := range []struct {
		name     string
		deadline time.Duration
		floor    time.Duration
		failures uint64
		reason   StopReason
	}{
		{"under the floor", 999 * time.Millisecond, DefaultDeadlineFloor, 0, StopCanceled},
		{"at the floor", time.Second, DefaultDeadlineFloor, 1, StopNonRetryable},
		{"no floor", time.Millisecond, 0, 1, StopNonRetryable},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := NewRegistry()
				g := guardOn(t, r, func(gc *GuardConfig) { gc.DeadlineFloor = c.floor; gc.Default.Timeout = time.Hour })
				ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
				defer cancel()
				_, err := Call(ctx, g, "a", func(ctx context.Context, _ string) (string, error) {
					<-ctx.Done()
					return "", errors.New("an SDK that says something else")
				})
				e := toolError(t, err)
				assert.Equal(t, c.reason, e.Reason)
				assert.Equal(t, 1, e.Attempts, "there is no time for a retry")
				assert.Equal(t, c.failures, healthOf(t, r, "a").Failures)
				assert.ErrorIs(t, err, context.DeadlineExceeded, "the caller's own deadline can be told")
				assert.Equal(t, context.DeadlineExceeded, e.Canceled)
			})
		})
	}
}

func TestACancelledCallIsNeutralWhateverItsErrorSays(t *testing.T) {
	own := errors.New("a sibling failed")
	for name, answer := range map[string]error{"the cause": own, "wrapped": context.Canceled, "text": io.ErrUnexpectedEOF, "a status": errBusy} {
		synctest.Test(t, func(t *testing.T) {
			r := NewRegistry()
			g := guardOn(t, r, nil)
			for range 10 {
				ctx, cancel := context.WithCancelCause(t.Context())
				_, err := Call(ctx, g, "a", func(context.Context, string) (string, error) {
					cancel(own)
					return "", answer
				})
				assert.Equal(t, StopCanceled, toolError(t, err).Reason, name)
				assert.ErrorIs(t, err, answer, name)
				assert.ErrorIs(t, err, context.Canceled, name)
			}
			h := healthOf(t, r, "a")
			assert.Zero(t, h.ConsecutiveFailures, name)
			assert.Equal(t, uint64(10), h.Neutral, name)
		})
	}
}

func TestTheTimeoutIsTheLeastLeaseOfAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := guardOn(t, r, func(c *GuardConfig) { c.Default.Timeout = 2 * time.Minute })
		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second)
		_, err := Call(t.Context(), g, "a", obeys(100*time.Second)) // the configured lease is 30s
		require.NoError(t, err)
		assert.Equal(t, StateClosed, healthOf(t, r, "a").State)
	})
}

func TestAPanicIsOneFailureAndComesBackAsAnError(t *testing.T) {
	for _, detach := range []bool{false, true} {
		r := NewRegistry()
		g := guardOn(t, r, func(c *GuardConfig) { c.Default.Detach = detach; c.Default.MaxAttempts = 5 })
		for range 3 {
			_, err := Call(t.Context(), g, "a", func(context.Context, string) (string, error) { explode(); return "", nil })
			e := toolError(t, err)
			assert.Equal(t, StopNonRetryable, e.Reason)
			assert.Equal(t, KindPanic, e.Kind)
			assert.Equal(t, 1, e.Attempts)
			assert.Equal(t, "tool failed: the tool crashed", err.Error())
			var p *PanicError
			require.ErrorAs(t, err, &p)
			assert.Equal(t, "a secret", p.Value)
			assert.Contains(t, string(p.Stack), "explode", "the stack is that of the panic")
			assert.Contains(t, p.Error(), "a secret")
			assert.NoError(t, p.Unwrap())
		}
		h := healthOf(t, r, "a")
		assert.Equal(t, map[Kind]uint64{KindPanic: 3}, h.ByKind)
		assert.Equal(t, StateOpen, h.State)
		assert.Zero(t, h.InFlight)
	}
}

//go:noinline
func explode() { panic("a secret") }

func TestAPanicWithNilAndOneWithAnErrorAreTold(t *testing.T) {
	g := guardOn(t, patient(t), nil)
	_, err := Call(t.Context(), g, "a", func(context.Context, string) (string, error) { panic(nil) })
	var none *runtime.PanicNilError
	assert.ErrorAs(t, err, &none)
	_, err = Call(t.Context(), g, "a", func(context.Context, string) (string, error) { panic(io.ErrNoProgress) })
	assert.ErrorIs(t, err, io.ErrNoProgress)
	_, err = Call(t.Context(), g, "a", func(context.Context, string) (string, error) { return "x", nil },
		CheckResult(func(string) error { panic("in a check") }))
	assert.Equal(t, KindPanic, toolError(t, err).Kind)
}

func TestAPanicInAProbeReopens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := guardOn(t, r, nil)
		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second)
		_, err := Call(t.Context(), g, "a", func(context.Context, string) (string, error) { panic("again") })
		require.Error(t, err)
		assert.Equal(t, StateOpen, healthOf(t, r, "a").State)
		time.Sleep(30 * time.Second)
		_, err = Call(t.Context(), g, "a", plays().run)
		assert.NoError(t, err)
	})
}

func TestGoexitSettlesThePermitAndGoesOn(t *testing.T) {
	retry := func(context.Context, error) Verdict { return Verdict{Outcome: OutcomeFailure, Retryable: true} }
	for name, classify := range map[string]Classifier{"default": nil, "one that would retry": retry} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := NewRegistry()
				var last Event
				g := guardOverGate(t, &Gate{Registry: r, Classify: classify}, func(c *GuardConfig) {
					c.Observe = func(_ context.Context, e Event) { last = e }
				})
				failTimes(r, "a", 3)
				time.Sleep(30 * time.Second)
				wentOn := make(chan bool, 1)
				go func() {
					defer func() { wentOn <- recover() == nil }()
					_, _ = Call(t.Context(), g, "a", func(context.Context, string) (string, error) {
						runtime.Goexit()
						return "", nil
					})
					t.Error("Goexit did not end the goroutine")
				}()
				assert.True(t, <-wentOn, "it became a panic")
				h := healthOf(t, r, "a")
				assert.Zero(t, h.InFlight)
				assert.Equal(t, StateOpen, h.State, "the probe's slot is not free")
				assert.Equal(t, GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, h.Guard)
				assert.True(t, last.Final)
				time.Sleep(30 * time.Second)
				_, err := Call(t.Context(), g, "a", plays().run)
				assert.NoError(t, err, "the tool is wedged")
			})
		})
	}
}

func TestGoexitOfAProbeGivesItsSlotBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := guardOn(t, r, nil)
		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second)
		go func() {
			_, _ = Call(t.Context(), g, "a", func(context.Context, string) (string, error) {
				runtime.Goexit()
				return "", nil
			})
		}()
		synctest.Wait()
		assert.True(t, healthOf(t, r, "a").ProbeDue)
		assert.Equal(t, 3, healthOf(t, r, "a").ConsecutiveFailures)
	})
}

// An observer or a hook that ends its goroutine, as t.FailNow does, used to leave
// the call among those that are running, for ever.
func TestACallEndsAlthoughAnObserverOrAHookEndsItsGoroutine(t *testing.T) {
	for name, answer := range map[string]error{"success": nil, "failure": errBusy, "last failure": statusErr(400)} {
		for _, who := range []string{"observer of the attempt", "observer of the end", "hook"} {
			t.Run(name+", "+who, func(t *testing.T) {
				r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold = 1 })
				if who == "hook" {
					defer r.OnTransition(func(Transition) { runtime.Goexit() })()
				}
				g := guardOn(t, r, func(c *GuardConfig) {
					c.Observe = func(_ context.Context, e Event) {
						if who == "observer of the attempt" && !e.Final || who == "observer of the end" && e.Final {
							runtime.Goexit()
						}
					}
				})
				done := make(chan any)
				go func() {
					defer func() { done <- recover() }()
					_, _ = Call(context.Background(), g, "a", plays(answer).run)
				}()
				assert.Nil(t, <-done)
				h := healthOf(t, r, "a")
				assert.Zero(t, h.Guard.InFlight)
				assert.Zero(t, h.InFlight)
				assert.Equal(t, uint64(1), h.Guard.Calls)
				assert.Equal(t, answer != nil, h.Guard.Failed+h.Guard.Rejected == 1)
			})
		}
	}
}

func TestTheTextOfAFailureHasNothingOfTheToolsErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), nil)
		_, err := Call(t.Context(), g, "a", failing(errBusy).run)
		assert.Equal(t, "tool failed after 2 attempts: internal error of the tool", err.Error())
		assert.False(t, strings.Contains(err.Error(), "db-7"))
	})
}

// What a tool says when its time is up is its own affair.
func TestAnAttemptWhoseTimeIsUpIsATimeoutWhateverItsErrorSays(t *testing.T) {
	for _, own := range []error{errors.New("socket hang up"), context.Canceled, statusErr(499)} {
		synctest.Test(t, func(t *testing.T) {
			r := patient(t)
			g := guardOn(t, r, func(c *GuardConfig) { c.Default.Timeout = time.Second })
			runs := 0
			_, err := Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
				runs++
				<-ctx.Done()
				return "", own
			})
			e := toolError(t, err)
			assert.Equal(t, KindTimeout, e.Kind, "%v", own)
			assert.Equal(t, StopRetryExhausted, e.Reason, "%v", own)
			assert.Equal(t, 2, runs)
			assert.ErrorIs(t, err, own)

			_, err = Call(t.Context(), g, "a", plays(own).run) // in time: then it means what it says
			assert.NotEqual(t, KindTimeout, toolError(t, err).Kind, "%v", own)
		})
	}
}

func TestADeadlineIsOnlyNamedIfItEndedTheCall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Call(ctx, guardOn(t, patient(t), nil), "a", func(context.Context, string) (string, error) {
		cancel()
		return "", WithVerdict(errBusy, vInvalid) // the tool had answered
	})
	assert.NoError(t, toolError(t, err).Canceled)
}

func TestDurationsAreMeasuredFromTheirBeginning(t *testing.T) {
	for name, r := range map[string]func() *Registry{"registry": NewRegistry, "none": func() *Registry { return nil }} {
		synctest.Test(t, func(t *testing.T) {
			var events []Event
			g := guardOn(t, r(), func(c *GuardConfig) { c.Observe = func(_ context.Context, e Event) { events = append(events, e) } })
			time.Sleep(time.Hour)
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // under the floor
			defer cancel()
			_, err := Call(ctx, g, "a", obeys(time.Minute))
			assert.Equal(t, StopCanceled, toolError(t, err).Reason, name)
			for _, e := range events {
				assert.Equal(t, 500*time.Millisecond, e.Took, name)
			}
			assert.Len(t, events, 2, name)
		})
	}
}

func TestADetachedCallNeedsNoRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, nil, func(c *GuardConfig) { c.Default = Policy{Timeout: time.Second, Detach: true} })
		_, err := Call(t.Context(), g, "a", ignores(time.Minute))
		assert.Equal(t, KindTimeout, toolError(t, err).Kind)
		time.Sleep(time.Minute) // the late end is nobody's
	})
}

func TestANilToolErrorInAnotherErrorIsHarmless(t *testing.T) {
	var none *ToolError
	_, err := Call(t.Context(), guardOn(t, patient(t), nil), "a", plays(errors.Join(none, statusErr(404))).run)
	assert.Equal(t, StopNonRetryable, toolError(t, err).Reason)
}
