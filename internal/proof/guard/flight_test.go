package guard_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// opens is a tool function that opens a stream after a second: its ctx.
func opens(ctx context.Context, _ string) (context.Context, error) {
	time.Sleep(time.Second)
	return ctx, nil
}

// open begins a call of "a" with opens, which has to succeed.
func open(t testing.TB, ctx context.Context, g *toolhealth.Guard) (context.Context, *toolhealth.Flight) {
	t.Helper()
	stream, flight, err := toolhealth.Begin(ctx, g, "a", opens)
	require.NoError(t, err)
	require.NotNil(t, flight)
	return stream, flight
}

// nothingIsOut checks that no call and no permit of the tool is out.
func nothingIsOut(t testing.TB, r *toolhealth.Registry, tool string) toolhealth.ToolHealth {
	t.Helper()
	h := healthOf(t, r, tool)
	assert.Zero(t, h.InFlight)
	assert.Zero(t, h.Guard.InFlight)
	assert.Zero(t, h.Guard.Abandoned)
	return h
}

func TestFlight_RecordsOutcomeAtItsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		outcome  toolhealth.Outcome
		reason   toolhealth.StopReason
		failed   uint64
		rejected uint64
	}{
		"nil":       {nil, toolhealth.OutcomeSuccess, toolhealth.StopNone, 0, 0},
		"cut":       {io.ErrUnexpectedEOF, toolhealth.OutcomeFailure, toolhealth.StopRetryExhausted, 1, 0},
		"busy":      {errBusy, toolhealth.OutcomeFailure, toolhealth.StopRetryExhausted, 1, 0},
		"not sent":  {errUnsent, toolhealth.OutcomeFailure, toolhealth.StopRetryExhausted, 1, 0},
		"rejected":  {statusErr(400), toolhealth.OutcomeRejected, toolhealth.StopNonRetryable, 0, 1},
		"throttled": {throttledFor(time.Minute), toolhealth.OutcomeThrottled, toolhealth.StopRetryExhausted, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := patient(t)
				var events []toolhealth.Event
				g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
					c.Observe = func(_ context.Context, e toolhealth.Event) { events = append(events, e) }
				})
				stream, flight := open(t, t.Context(), g)
				assert.Equal(t, "a", flight.Tool())
				time.Sleep(time.Hour)
				h := healthOf(t, r, "a")
				assert.EqualValues(t, 1, h.InFlight)
				assert.EqualValues(t, 1, h.Guard.InFlight)
				assert.Zero(t, h.TotalCalls()+h.Rejected+h.Throttled+h.Neutral, "nothing is recorded yet")
				assert.Empty(t, events)
				assert.NoError(t, stream.Err())

				err := flight.Done(c.err)
				again := errors.New("again")
				assert.Same(t, again, flight.Done(again), "the first counts")
				assert.NoError(t, flight.Done(nil))
				if failed, ok := errors.AsType[*toolhealth.ToolError](err); ok {
					assert.Equal(t, c.reason, failed.Reason)
					assert.ErrorIs(t, err, c.err)
				} else {
					assert.NoError(t, err)
					assert.Equal(t, toolhealth.StopNone, c.reason)
				}
				flight.KeepAlive()
				assert.Error(t, stream.Err(), "the ctx ends with the flight")
				h = nothingIsOut(t, r, "a")
				assert.Equal(t, toolhealth.GuardCounts{Calls: 1, Attempts: 1, Failed: c.failed, Rejected: c.rejected}, h.Guard)
				require.Len(t, events, 2)
				assert.Equal(t, c.outcome, events[0].Verdict.Outcome)
				assert.Equal(t, c.reason, events[0].Reason)
				assert.Equal(t, c.err, events[0].Err)
				assert.False(t, events[0].Verdict.NotSent, "it was open")
				assert.Equal(t, time.Second, events[0].Took, "Took ends when the function returns")
				assert.Equal(t, 1, events[0].Attempt)
				assert.True(t, events[1].Final)
				assert.Equal(t, c.reason, events[1].Reason)
				assert.Equal(t, c.err != nil, events[1].Err != nil)
				assert.Equal(t, time.Hour+time.Second, events[1].Took)
			})
		})
	}
}

func TestFlight_AverageAndSlowRuleEndWhenFunctionReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.SlowCallDuration = 2 * time.Second })
		g := guardOn(t, r, nil)
		for range 5 {
			_, flight := open(t, t.Context(), g)
			time.Sleep(time.Hour)
			flight.Done(nil)
		}
		h := nothingIsOut(t, r, "a")
		assert.Equal(t, time.Second, h.AverageSuccess)
		assert.Zero(t, h.ConsecutiveFailures)
		_, flight, err := toolhealth.Begin(t.Context(), g, "a", ignores(3*time.Second))
		require.NoError(t, err)
		flight.Done(nil)
		assert.Equal(t, 1, healthOf(t, r, "a").ConsecutiveFailures, "slow to open")
	})
}

// A reader that hears of the end of its ctx after the Flight has settled by itself has an
// error all the same.
func TestFlight_DoneThatComesTooLateIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		ctx, cancel := context.WithCancel(t.Context())
		_, flight := open(t, ctx, guardOn(t, r, nil))
		cancel()
		synctest.Wait()
		err := flight.Done(ctx.Err())
		assert.ErrorIs(t, err, context.Canceled)
		_, ok := toolhealth.ModelText(err)
		assert.False(t, ok, "the run ends")
		assert.EqualValues(t, 1, nothingIsOut(t, r, "a").Neutral)
	})
}

func TestFlight_NilDoesNothing(t *testing.T) {
	var none *toolhealth.Flight
	none.KeepAlive()
	none.Done(nil)
	none.Done(errBroken)
	assert.Empty(t, none.Tool())
}

func TestBegin_RetriesUntilOpenAndThenNeverAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, nil)
		tool := plays(errBusy)
		ctx, info := toolhealth.WithCallInfo(t.Context())
		out, flight, err := toolhealth.Begin(ctx, g, "a", tool.Run)
		require.NoError(t, err)
		assert.Equal(t, "answer of a", out)
		assert.Equal(t, 2, info.Attempts)
		assert.Equal(t, "a", info.Served)
		was := *info
		flight.Done(errBusy)
		assert.Equal(t, 2, tool.Runs())
		assert.Equal(t, was, *info, "it was complete")
		h := nothingIsOut(t, r, "a")
		assert.Equal(t, toolhealth.GuardCounts{Calls: 1, Attempts: 2, Retries: 1, Failed: 1}, h.Guard)
	})
}

func TestBegin_GoesOnToSubstitute(t *testing.T) {
	for _, end := range []error{nil, errBusy} {
		synctest.Test(t, func(t *testing.T) {
			r := toolhealth.NewRegistry()
			g := guardWithBackups(t, r, nil, "b", "c")
			r.Isolate("a", "")
			_, flight, err := toolhealth.Begin(t.Context(), g, "a", plays().Run)
			require.NoError(t, err)
			assert.Equal(t, "b", flight.Tool())
			assert.EqualValues(t, 1, healthOf(t, r, "b").InFlight)
			flight.Done(end)
			a, b := nothingIsOut(t, r, "a"), nothingIsOut(t, r, "b")
			if end == nil {
				assert.Equal(t, uint64(1), b.Successes)
				assert.Equal(t, uint64(1), a.Guard.Fallbacks)
			} else {
				assert.Equal(t, 1, b.ConsecutiveFailures)
				assert.Equal(t, uint64(1), a.Guard.Failed)
				assert.Zero(t, a.Guard.Fallbacks)
			}
			_, ok := r.Health("c")
			assert.False(t, ok, "nothing else is tried after it was open")
		})
	}
}

func TestBegin_WithoutOpenCallHasNoFlight(t *testing.T) {
	fine := toolhealth.WithVerdict(errors.New("fine"), toolhealth.Verdict{})
	for name, c := range map[string]struct {
		fn      toolFunc
		options []toolhealth.CallOption[string]
		want    error
		ok      bool
		out     string
	}{
		"failure": {fn: plays(errBroken).Run, want: errBroken},
		"panic":   {fn: func(context.Context, string) (string, error) { panic(errBroken) }, want: errBroken},
		"check":   {fn: plays().Run, options: []toolhealth.CallOption[string]{toolhealth.CheckResult(func(string) error { return errBroken })}, want: errBroken, out: "answer of a"},
		"partial": {fn: plays(errBroken).Run, ok: true, out: "part", options: []toolhealth.CallOption[string]{
			toolhealth.Partial(func(context.Context, *toolhealth.ToolError) (string, error) { return "part", nil }),
		}},
		"success by its verdict": {fn: plays(fine).Run, want: fine, ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := patient(t)
			out, flight, err := toolhealth.Begin(t.Context(), guardOn(t, r, nil), "a", c.fn, c.options...)
			assert.Nil(t, flight)
			assert.Equal(t, c.out, out)
			assert.ErrorIs(t, err, c.want)
			if !c.ok {
				toolError(t, err)
			}
			nothingIsOut(t, r, "a")
		})
	}
}

func TestBegin_OfWrappedTool(t *testing.T) {
	r := toolhealth.NewRegistry()
	tool := toolhealth.Wrap(guardOn(t, r, nil), "a", func(_ context.Context, in int) (int, error) { return 0, errBroken }).
		Substitute("b", func(_ context.Context, in int) (int, error) { return 2 * in, nil })
	out, flight, err := tool.Begin(t.Context(), 7)
	require.NoError(t, err)
	assert.Equal(t, 14, out)
	assert.Equal(t, "b", flight.Tool())
	flight.Done(nil)
	nothingIsOut(t, r, "b")

	var none *toolhealth.Tool[int, int]
	_, flight, err = none.Begin(t.Context(), 7)
	assert.Error(t, err)
	assert.Nil(t, flight)
}

func TestBegin_WithoutRegistry(t *testing.T) {
	for _, g := range []*toolhealth.Guard{nil, new(toolhealth.Guard), guardOn(t, nil, nil)} {
		out, flight, err := toolhealth.Begin(t.Context(), g, "a", plays().Run)
		require.NoError(t, err)
		assert.Equal(t, "answer of a", out)
		flight.KeepAlive()
		flight.Done(errBroken)
		assert.Equal(t, "a", flight.Tool())
	}
}

func TestBegin_GoexitLosesNothing(t *testing.T) {
	r := patient(t)
	g := guardOn(t, r, nil)
	endsGoroutine(func() {
		_, _, _ = toolhealth.Begin(t.Context(), g, "a", func(context.Context, string) (string, error) {
			runtime.Goexit()
			return "", nil
		})
	})
	nothingIsOut(t, r, "a")
}

// A hook that hears of a lost lease when the call opens may end the goroutine of Begin.
func TestBegin_HookThatEndsGoroutineLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := probeIsDue(t)
		var kept context.Context
		ended := false
		defer r.OnTransition(func(tr toolhealth.Transition) {
			if tr.Cause == toolhealth.CauseLeaseExpired {
				runtime.Goexit()
			}
		})()
		endsGoroutine(func() {
			defer func() { ended = true }()
			_, _, _ = toolhealth.Begin(t.Context(), boundedBy(t, r, toolhealth.Off, 0), "a", func(ctx context.Context, _ string) (string, error) {
				kept = ctx
				time.Sleep(31 * time.Second)
				return "", nil
			})
			t.Error("the hook has not ended the goroutine")
		})
		assert.True(t, ended)
		assert.Error(t, kept.Err())
		assert.Equal(t, uint64(1), nothingIsOut(t, r, "a").Neutral)
	})
}

// Code of a user that panics or ends the goroutine of Done leaves nothing behind.
func TestFlight_DoneSurvivesObserverHookAndClassifier(t *testing.T) {
	for name, bad := range map[string]func(){"panic": func() { panic("bad") }, "Goexit": runtime.Goexit} {
		for _, who := range []string{"attempt", "end", "hook", "classifier"} {
			t.Run(who+", "+name, func(t *testing.T) {
				r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold = 1 })
				does := func(when string) {
					if when == who {
						bad()
					}
				}
				r.OnTransition(func(toolhealth.Transition) { does("hook") })
				gate := &toolhealth.Gate{Registry: r, Classify: func(ctx context.Context, err error) toolhealth.Verdict {
					does("classifier")
					return toolhealth.Classify(ctx, err)
				}}
				g := guardOverGate(t, gate, func(c *toolhealth.GuardConfig) {
					c.Observe = func(_ context.Context, e toolhealth.Event) {
						if e.Final {
							does("end")
						} else {
							does("attempt")
						}
					}
				})
				endsGoroutine(func() {
					_, flight, _ := toolhealth.Begin(t.Context(), g, "a", plays().Run)
					flight.Done(errBusy)
				})
				h := nothingIsOut(t, r, "a")
				assert.Equal(t, uint64(1), h.Failures)
				assert.Equal(t, uint64(1), h.Guard.Failed)
			})
		}
	}
}

func TestFlight_HostileContextLosesNothing(t *testing.T) {
	for _, method := range []string{"Deadline", "Done", "Err", "Value"} {
		for works := range 20 {
			r := patient(t)
			g := boundedBy(t, r, time.Minute, time.Hour)
			ctx := hostileContext{t.Context(), method, new(atomic.Int64)}
			ctx.left.Store(int64(works))
			func() {
				defer func() { _ = recover() }()
				_, flight, err := toolhealth.Begin(ctx, g, "a", plays().Run)
				if err == nil {
					flight.KeepAlive()
					flight.Done(errBroken)
				}
			}()
			if _, ok := r.Health("a"); ok {
				nothingIsOut(t, r, "a")
			}
		}
	}
}

func TestFlight_StreamThatIsCutOpens(t *testing.T) {
	r := toolhealth.NewRegistry()
	g := guardOn(t, r, nil)
	for range 3 {
		_, flight, err := toolhealth.Begin(t.Context(), g, "a", plays().Run)
		require.NoError(t, err)
		flight.Done(io.ErrUnexpectedEOF)
	}
	h := nothingIsOut(t, r, "a")
	assert.Equal(t, toolhealth.StateOpen, h.State)
	assert.Equal(t, toolhealth.KindConnection, h.LastFailure)
}

func TestFlight_ReaderWhoLeavesIsNeutral(t *testing.T) {
	r := toolhealth.NewRegistry()
	g := guardOn(t, r, nil)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		stream, flight, err := toolhealth.Begin(ctx, g, "a", func(ctx context.Context, _ string) (context.Context, error) { return ctx, nil })
		require.NoError(t, err)
		cancel()
		flight.Done(stream.Err())
	}
	h := nothingIsOut(t, r, "a")
	assert.Equal(t, uint64(3), h.Neutral)
	assert.Equal(t, uint64(3), h.Guard.Canceled)
	assert.Zero(t, h.ConsecutiveFailures)
}

func TestFlight_KeepAliveRenewsTimeoutAndLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := probeIsDue(t)
		stream, flight := open(t, t.Context(), boundedBy(t, r, time.Minute, 0))
		assert.True(t, toolhealth.IsProbe(stream))
		for n := range 100 {
			time.Sleep(50 * time.Second)
			if n%2 == 0 {
				flight.KeepAlive()
			} else {
				toolhealth.KeepAlive(stream)
			}
		}
		require.NoError(t, stream.Err())
		flight.Done(nil)
		assert.Equal(t, toolhealth.StateClosed, nothingIsOut(t, r, "a").State)
	})
}

// That a stream has opened is a sign of life.
func TestBegin_OpeningRenewsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream, flight := open(t, t.Context(), boundedBy(t, patient(t), 2*time.Second, 0))
		start := time.Now()
		<-stream.Done()
		assert.Equal(t, 2*time.Second, time.Since(start))
		flight.Done(nil)
	})
}

func TestFlight_PauseStopsClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := probeIsDue(t)
		stream, flight := open(t, t.Context(), boundedBy(t, r, 3*time.Second, 3*time.Second))
		resume := toolhealth.Pause(stream)
		time.Sleep(5 * time.Minute)
		resume()
		time.Sleep(time.Second)
		require.NoError(t, stream.Err())
		flight.Done(nil)
		h := nothingIsOut(t, r, "a")
		assert.Equal(t, toolhealth.StateClosed, h.State)
		assert.Equal(t, time.Second, h.AverageSuccess)
	})
}

func TestBegin_PauseInFunctionIsNoTimeOfTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		asked := 0
		_, flight, err := toolhealth.Begin(t.Context(), boundedBy(t, r, 3*time.Second, 3*time.Second), "a", asks(5*time.Minute, &asked))
		require.NoError(t, err)
		flight.Done(nil)
		assert.Equal(t, 2*time.Second, nothingIsOut(t, r, "a").AverageSuccess)
	})
}

// A stream that falls silent is a timeout, if its reader says that it has not ended well.
func TestFlight_SilentStreamIsTimeout(t *testing.T) {
	for name, c := range map[string]struct{ timeout, whole time.Duration }{
		"Timeout":     {time.Minute, 0},
		"MaxDuration": {toolhealth.Off, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := patient(t)
				stream, flight := open(t, t.Context(), boundedBy(t, r, c.timeout, c.whole))
				<-stream.Done()
				assert.Equal(t, context.DeadlineExceeded, stream.Err())
				flight.Done(errors.New("read: closed"))
				h := nothingIsOut(t, r, "a")
				assert.Equal(t, uint64(1), h.Failures)
				assert.Equal(t, toolhealth.KindTimeout, h.LastFailure)
				time.Sleep(time.Hour)
				assert.Zero(t, nothingIsOut(t, r, "a").Neutral)
			})
		})
	}
}

// The caller's deadline is the tool's fault if the stream was open for longer than the
// floor, as it is for a call that took so long.
func TestFlight_CallersDeadlineCountsAboveFloor(t *testing.T) {
	for deadline, failures := range map[time.Duration]uint64{1999 * time.Millisecond: 0, 2 * time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			r := patient(t)
			g := guardOverGate(t, &toolhealth.Gate{Registry: r, DeadlineFloor: 2 * time.Second}, nil)
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			stream, flight := open(t, ctx, g)
			<-stream.Done()
			flight.Done(stream.Err())
			h := nothingIsOut(t, r, "a")
			assert.Equal(t, failures, h.Failures)
			assert.Equal(t, 1-failures, h.Neutral)
		})
	}
}

func TestFlight_ThatNobodyEndsIsNeutral(t *testing.T) {
	for name, c := range map[string]struct {
		timeout, whole, after time.Duration
		end                   func(ctx context.Context) (context.Context, context.CancelFunc)
	}{
		"caller": {toolhealth.Off, 0, 10 * time.Second, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(10*time.Second, cancel)
			return ctx, cancel
		}},
		"caller's deadline": {toolhealth.Off, 0, 10 * time.Second, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 10*time.Second)
		}},
		"Timeout":     {9 * time.Second, 0, 10 * time.Second, context.WithCancel},
		"MaxDuration": {toolhealth.Off, 10 * time.Second, 10 * time.Second, context.WithCancel},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := probeIsDue(t)
				var events []toolhealth.Event
				g := guardOn(t, r, func(gc *toolhealth.GuardConfig) {
					gc.Default = bare(toolhealth.Policy{Timeout: c.timeout, MaxDuration: c.whole})
					gc.Observe = func(_ context.Context, e toolhealth.Event) { events = append(events, e) }
				})
				ctx, cancel := c.end(t.Context())
				defer cancel()
				start := time.Now()
				stream, flight := open(t, ctx, g)
				assert.EqualValues(t, 1, healthOf(t, r, "a").Guard.InFlight)
				<-stream.Done()
				assert.Equal(t, c.after, time.Since(start))
				synctest.Wait()
				if name != "caller" {
					time.Sleep(100*time.Millisecond - 1)
					assert.EqualValues(t, 1, healthOf(t, r, "a").Guard.InFlight, "its reader may say how it ended")
					time.Sleep(time.Nanosecond)
					synctest.Wait()
				}
				h := nothingIsOut(t, r, "a")
				assert.Equal(t, uint64(1), h.Neutral)
				assert.Equal(t, 3, h.ConsecutiveFailures)
				assert.True(t, h.ProbeDue, "the probe is free")
				assert.Equal(t, toolhealth.GuardCounts{Calls: 1, Attempts: 1, Canceled: 1}, h.Guard)
				require.Len(t, events, 2)
				assert.Equal(t, toolhealth.OutcomeNeutral, events[0].Verdict.Outcome)
				for _, e := range events {
					assert.Equal(t, toolhealth.StopCanceled, e.Reason)
					assert.Zero(t, e.Wait)
				}
				assert.EqualError(t, events[0].Err, "the call was left open")
				assert.Equal(t, stream.Err(), toolError(t, events[1].Err).Canceled)
				flight.Done(errBusy)
				assert.Equal(t, h, healthOf(t, r, "a"), "Done comes too late")
			})
		})
	}
}

func TestFlight_ThatNobodyEndsNeedsNoRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []toolhealth.Event
		g := guardOn(t, nil, func(c *toolhealth.GuardConfig) {
			c.Observe = func(_ context.Context, e toolhealth.Event) { events = append(events, e) }
		})
		ctx, cancel := context.WithCancel(t.Context())
		open(t, ctx, g)
		cancel()
		synctest.Wait()
		require.Len(t, events, 2)
		assert.Equal(t, toolhealth.StopCanceled, events[1].Reason)
	})
}

// A caller who cancels is told from the others at once.
func TestFlight_CanceledCallerFreesProbeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := probeIsDue(t)
		ctx, cancel := context.WithCancel(t.Context())
		open(t, ctx, guardOn(t, r, nil))
		cancel()
		synctest.Wait()
		assert.True(t, nothingIsOut(t, r, "a").ProbeDue)
	})
}

func TestFlight_SettlesWhenCollected(t *testing.T) {
	r := toolhealth.NewRegistry()
	var canceled atomic.Value
	g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
		c.Observe = func(_ context.Context, e toolhealth.Event) {
			if e.Final {
				canceled.Store(e.Err)
			}
		}
	})
	func() {
		_, flight, err := toolhealth.Begin(t.Context(), g, "a", plays().Run)
		require.NoError(t, err)
		flight.KeepAlive()
	}()
	assert.EqualValues(t, 1, healthOf(t, r, "a").InFlight)
	assert.Eventually(t, func() bool {
		runtime.GC()
		h := healthOf(t, r, "a")
		return h.InFlight == 0 && h.Guard.InFlight == 0
	}, 10*time.Second, time.Millisecond)
	h := healthOf(t, r, "a")
	assert.Equal(t, uint64(1), h.Neutral)
	assert.Equal(t, uint64(1), h.Guard.Canceled)
	require.Eventually(t, func() bool { return canceled.Load() != nil }, 10*time.Second, time.Millisecond)
	assert.ErrorIs(t, canceled.Load().(error), context.Canceled)
}

// A flight of a bubble may be collected outside of it, which must not touch what belongs
// to the bubble; its clock ends its ctx there.
func TestFlight_OfBubbleMayBeCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		stream, _, err := toolhealth.Begin(t.Context(), boundedBy(t, r, time.Minute, 0), "a", opens)
		require.NoError(t, err)
		for healthOf(t, r, "a").InFlight > 0 {
			runtime.GC()
			runtime.Gosched()
		}
		<-stream.Done()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, uint64(1), nothingIsOut(t, r, "a").Neutral)
	})
}

func TestFlight_OfEndedCallIsNotSettledWhenCollected(t *testing.T) {
	r := toolhealth.NewRegistry()
	g := guardOn(t, r, nil)
	for range 100 {
		_, flight, err := toolhealth.Begin(t.Context(), g, "a", plays().Run)
		require.NoError(t, err)
		flight.Done(nil) // the last use
		runtime.GC()
	}
	h := nothingIsOut(t, r, "a")
	assert.Equal(t, uint64(100), h.Successes)
	assert.Zero(t, h.Neutral)
}

func TestFlight_OneOfManyEndsCounts(t *testing.T) {
	r := patient(t)
	g := boundedBy(t, r, time.Hour, time.Hour)
	const flights = 100
	for range flights {
		ctx, cancel := context.WithCancel(t.Context())
		_, flight, err := toolhealth.Begin(ctx, g, "a", plays().Run)
		require.NoError(t, err)
		var wg sync.WaitGroup
		for _, end := range []func(){
			cancel, func() { flight.Done(nil) }, func() { flight.Done(errBusy) }, flight.KeepAlive, func() { flight.Tool() },
		} {
			wg.Go(end)
		}
		wg.Wait()
	}
	require.Eventually(t, func() bool { return healthOf(t, r, "a").Guard.InFlight == 0 }, 10*time.Second, time.Millisecond)
	h := nothingIsOut(t, r, "a")
	assert.Equal(t, uint64(flights), h.TotalCalls()+h.Neutral)
}

// A detached function that returns in time opens as any other; one that is late is left.
func TestBegin_Detach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
			c.Default = bare(toolhealth.Policy{Timeout: 5 * time.Second, Detach: true})
		})
		stream, flight := open(t, t.Context(), g)
		for range 10 {
			time.Sleep(4 * time.Second)
			flight.KeepAlive()
		}
		require.NoError(t, stream.Err())
		flight.Done(nil)
		assert.Equal(t, uint64(1), nothingIsOut(t, r, "a").Successes)

		_, flight, err := toolhealth.Begin(t.Context(), g, "a", ignores(time.Minute))
		assert.Equal(t, toolhealth.KindTimeout, toolError(t, err).Verdict.Kind)
		assert.Nil(t, flight)
		time.Sleep(time.Minute)
		nothingIsOut(t, r, "a")
	})
}

// Once it is open, a tool with side effects may have acted: the attempt around it is not
// repeated, however the flight ends.
func TestFlight_OfToolThatActsForbidsRepetitionOutside(t *testing.T) {
	for name, end := range map[string]func(*toolhealth.Flight){
		"success": func(f *toolhealth.Flight) { assert.NoError(t, f.Done(nil)) },
		"failure": func(f *toolhealth.Flight) {
			assert.Equal(t, toolhealth.StopOutcomeUnknown, toolError(t, f.Done(errBusy)).Reason)
		},
		"unsent": func(f *toolhealth.Flight) {
			assert.Equal(t, toolhealth.StopOutcomeUnknown, toolError(t, f.Done(errUnsent)).Reason)
		},
		"nothing": func(*toolhealth.Flight) {},
	} {
		t.Run(name, func(t *testing.T) {
			r := patient(t)
			g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
				c.Tools = map[string]toolhealth.Policy{"mail": {SideEffects: true, Timeout: toolhealth.Off}}
			})
			runs := 0
			_, err := toolhealth.Call(t.Context(), g, "outer", func(ctx context.Context, _ string) (string, error) {
				runs++
				_, flight, err := toolhealth.Begin(ctx, g, "mail", plays().Run)
				require.NoError(t, err)
				end(flight)
				return "", errBusy
			})
			assert.Equal(t, toolhealth.StopOutcomeUnknown, toolError(t, err).Reason)
			assert.Equal(t, 1, runs)
		})
	}
}

// The flight lives in the attempt around it, and ends with it.
func TestFlight_EndsWithAttemptOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := probeIsDue(t)
		g := guardOn(t, r, nil)
		var stream context.Context
		_, err := toolhealth.Call(t.Context(), g, "outer", func(ctx context.Context, _ string) (string, error) {
			stream, _ = open(t, ctx, g)
			time.Sleep(time.Second)
			return "", stream.Err()
		})
		require.NoError(t, err)
		assert.Error(t, stream.Err())
		synctest.Wait()
		h := nothingIsOut(t, r, "a")
		assert.Equal(t, uint64(1), h.Neutral)
		assert.True(t, h.ProbeDue)
	})
}

// A pause that is not resumed ends with a flight that is not ended.
func TestFlight_ThatNobodyEndsHoldsNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := boundedBy(t, patient(t), time.Minute, 0)
		start := time.Now()
		_, err := toolhealth.Call(t.Context(), g, "outer", func(outer context.Context, tool string) (string, error) {
			ctx, cancel := context.WithCancel(outer)
			stream, _ := open(t, ctx, g)
			toolhealth.Pause(stream)
			cancel()
			synctest.Wait()
			return hang(outer, tool)
		})
		assert.Equal(t, toolhealth.KindTimeout, toolError(t, err).Verdict.Kind)
		assert.Equal(t, 2*(time.Second+time.Minute), time.Since(start), "what has opened after a second is a sign of life")
	})
}

// Pauses are no time in which the tool had a chance, wherever they are.
func TestFlight_PausesDoNotCountForFloor(t *testing.T) {
	const asked = 10 * time.Second
	pause := func(ctx context.Context) {
		defer toolhealth.Pause(ctx)()
		time.Sleep(asked)
	}
	for left, failures := range map[time.Duration]uint64{2*time.Second - 1: 0, 2 * time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			r := patient(t)
			g := guardOverGate(t, &toolhealth.Gate{Registry: r, DeadlineFloor: 2 * time.Second}, nil)
			ctx, cancel := context.WithTimeout(t.Context(), 2*asked+left)
			defer cancel()
			stream, flight, err := toolhealth.Begin(ctx, g, "a", func(ctx context.Context, tool string) (context.Context, error) {
				pause(ctx)
				return opens(ctx, tool)
			})
			require.NoError(t, err)
			pause(stream)
			<-stream.Done()
			flight.Done(stream.Err())
			assert.Equal(t, failures, nothingIsOut(t, r, "a").Failures)
		})
	}
}

// A call of the same tool inside is part of the call around it.
func TestBegin_RidesOnCallOfSameTool(t *testing.T) {
	r := toolhealth.NewRegistry()
	g := guardOn(t, r, nil)
	_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
		out, flight, err := toolhealth.Begin(ctx, g, "a", plays().Run)
		assert.EqualValues(t, 1, healthOf(t, r, "a").InFlight)
		flight.Done(errBusy)
		return out, err
	})
	require.NoError(t, err)
	h := nothingIsOut(t, r, "a")
	assert.Equal(t, uint64(1), h.Successes)
	assert.Equal(t, uint64(1), h.TotalCalls())
}

// Calls inside an open stream are nested, until it ends.
func TestFlight_CallsInsideAreNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), nil)
		stream, flight := open(t, t.Context(), g)
		inner := failing(errBusy)
		_, err := toolhealth.Call(stream, g, "b", inner.Run)
		assert.Equal(t, 1, toolError(t, err).Attempts, "it does not retry")
		flight.Done(nil)
		_, err = toolhealth.Call(context.WithoutCancel(stream), g, "b", inner.Run)
		assert.Equal(t, 2, toolError(t, err).Attempts)
	})
}
