package toolhealth

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The least value of a rule, the last one, and what a rule must leave alone.

func TestTheFloorIsComparedWithTheCallAndNotWithTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		time.Sleep(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		permit, err := (&Gate{Registry: r}).Allow(ctx, "search")
		require.NoError(t, err)
		<-ctx.Done()
		permit.Done(ctx, ctx.Err())
		h := healthOf(t, r, "search")
		assert.Equal(t, uint64(1), h.Neutral)
		assert.Zero(t, h.Failures)
	})
}

// A lease that has run out becomes known by a question or a report. A permit that
// is no probe's, and is only given back or said to be alive, is neither.
func TestAPermitThatIsNoProbesAndReportsNothingMakesNothingKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := &Gate{Registry: r}
		old, err := g.Allow(t.Context(), "search")
		require.NoError(t, err)
		failTimes(r, "search", 3)
		time.Sleep(30 * time.Second)
		probe, err := g.Allow(t.Context(), "search")
		require.NoError(t, err)
		require.True(t, probe.Probe())
		time.Sleep(30 * time.Second)
		events := recordEvents(r)
		old.KeepAlive()
		old.Release()
		assert.Empty(t, events.of("search"))
		probe.Release()
		assert.Equal(t, []string{"half-open>open lease_expired 4"}, events.of("search"))
	})
}

func TestACallIsZeroOldWhenItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		time.Sleep(time.Second)
		_, err := Call(t.Context(), guardOn(t, r, nil), "a", func(context.Context, string) (int, error) {
			counts := healthOf(t, r, "a").Guard
			assert.Equal(t, 1, counts.InFlight)
			assert.Zero(t, counts.Oldest)
			return 0, nil
		})
		require.NoError(t, err)
	})
}

func TestAReceiverThatHasAnythingKeepsAllOfIt(t *testing.T) {
	for name, c := range map[string]GuardConfig{
		"a policy for all": {Default: Policy{MaxAttempts: 7}},
		"a policy for one": {Tools: map[string]Policy{"a": {MaxAttempts: 7}}},
		"a floor":          {DeadlineFloor: time.Minute},
	} {
		before := c
		require.NoError(t, json.Unmarshal([]byte(`{}`), &c))
		assert.Equal(t, before, c, name)
	}
}

func TestWhatNextRecordsTookNoTime(t *testing.T) {
	r := NewRegistry()
	guardOn(t, r, nil).Next("a", 1, vRetry)
	h := healthOf(t, r, "a")
	assert.Equal(t, uint64(1), h.Failures)
	assert.Zero(t, h.Max)
}

func TestNextAllowsARetryOfAToolThatHasNoRoomInTheRegistry(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.MaxTools = 1 })
	require.NoError(t, r.Register("a"))
	assert.Equal(t, RetryAllowed, guardOn(t, r, nil).Next("b", 1, vRetry).Reason)
}

func TestTheReasonOfAWaitThatDoesNotFitIsTheToolsOnlyIfItStatedOne(t *testing.T) {
	past := time.Now().Add(-time.Second)
	for _, c := range []struct {
		policy   Policy
		deadline time.Time
		stated   time.Duration
		reason   StopReason
		wait     time.Duration
	}{
		{Policy{}, past, 0, StopRetryExhausted, 0},
		{Policy{}, past, 1, StopRateLimited, 1},
		{Policy{BackoffBase: 2, MaxWait: 1}, time.Time{}, 0, StopRetryExhausted, 0},
		{Policy{BackoffBase: 2, MaxWait: 2}, time.Time{}, 0, RetryAllowed, 2},
	} {
		reason, wait := c.policy.nextWait(Verdict{Retryable: true, RetryAfter: c.stated}, 1, c.deadline, nil)
		assert.Equal(t, c.reason, reason, "%+v", c)
		assert.Equal(t, c.wait, wait, "%+v", c)
	}
}

func TestTheLeastTimeoutAndTheLeastBackoffCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), func(c *GuardConfig) {
			c.Default = Policy{MaxAttempts: 2, Timeout: 1, BackoffBase: 1}
		})
		tool := plays(errBusy)
		_, err := Call(t.Context(), g, "a", func(ctx context.Context, name string) (string, error) {
			_, limited := ctx.Deadline()
			assert.True(t, limited)
			return tool.run(ctx, name)
		})
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{1}, tool.gaps())
	})
}

func TestTheOnlyTokenComesBackIfItsRetryIsNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *GuardConfig) { c.Default.RetryBudget = 1 })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err := Call(ctx, g, "a", failing(errBusy).run)
		require.Equal(t, StopCanceled, toolError(t, err).Reason)
		_, err = Call(t.Context(), g, "a", plays(errBusy).run)
		assert.NoError(t, err)
	})
}

func TestACancelledCallKnowsNoWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var waits []time.Duration
	g := guardOn(t, NewRegistry(), func(c *GuardConfig) {
		c.Observe = func(_ context.Context, e Event) { waits = append(waits, e.Wait) }
	})
	_, err := Call(ctx, g, "a", func(context.Context, string) (int, error) {
		cancel()
		return 0, errBusy
	})
	assert.Equal(t, StopCanceled, toolError(t, err).Reason)
	assert.Zero(t, toolError(t, err).RetryAfter)
	assert.Equal(t, []time.Duration{0, 0}, waits)
}

func TestTheSmallestWaitIsOfThoseThatAreKnown(t *testing.T) {
	c := call{failures: []Candidate{{RetryAfter: 7}, {}, {RetryAfter: 9}}}
	assert.Equal(t, time.Duration(7), c.failure().RetryAfter)
	c.failures = append(c.failures, Candidate{RetryAfter: 1})
	assert.Equal(t, time.Duration(1), c.failure().RetryAfter)
}

func TestTheDetailsOfACandidateWithoutAnErrorEndWithItsReason(t *testing.T) {
	e := &ToolError{Tool: "a", Reason: StopCanceled, Kind: KindCanceled, Candidates: []Candidate{{Tool: "a", Reason: StopCanceled}}}
	assert.Equal(t, `"a": tool_canceled, kind canceled, 0 attempts; "a": tool_canceled`, e.Details())
}

func TestACallWhoseGoroutineEndsHasOneCandidateForEachTool(t *testing.T) {
	for name, tool := range map[string]func(context.Context, string) (int, error){
		"the tool ends it":     func(context.Context, string) (int, error) { runtime.Goexit(); return 0, nil },
		"the observer ends it": func(context.Context, string) (int, error) { return 0, errBusy },
	} {
		var heard error
		g := guardOn(t, NewRegistry(), func(c *GuardConfig) {
			c.Observe = func(_ context.Context, e Event) {
				if e.Final {
					heard = e.Err
				} else if !errors.Is(e.Err, errGoexit) {
					runtime.Goexit()
				}
			}
		})
		done := make(chan bool)
		go func() {
			defer close(done)
			_, _ = Call(context.Background(), g, "a", tool)
		}()
		<-done
		e := toolError(t, heard)
		assert.Len(t, e.Candidates, 1, name)
		assert.Equal(t, StopNonRetryable, e.Reason, name)
	}
}

func TestAnAdapterOfTheWrongTypeIsToldWithoutARouterToo(t *testing.T) {
	fn := func(context.Context, int) (string, error) { return "a", nil }
	g := guardOn(t, NewRegistry(), nil)
	wrong := Substitute("b", func(context.Context, string) (string, error) { return "b", nil })
	_, err := Wrap(g, "a", fn, wrong)(t.Context(), 1)
	assert.Contains(t, toolError(t, err).Details(), `Substitute("b") is a func(context.Context, string)`)
}

func TestAnAdapterForTheToolItselfDoesNotReplaceIt(t *testing.T) {
	fn := func(context.Context, int) (string, error) { return "the tool", nil }
	other := func(context.Context, int) (string, error) { return "another", nil }
	out, err := Wrap(guardOn(t, NewRegistry(), nil), "a", fn, Substitute("a", other))(t.Context(), 1)
	require.NoError(t, err)
	assert.Equal(t, "the tool", out)
}

func TestABusyEntryDoesNotHideWhenAnothersThrottleEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.MaxTools = 3 })
		r.Record("throttled", Verdict{Outcome: OutcomeThrottled, RetryAfter: 10 * time.Second}, 0)
		_, err := (&Gate{Registry: r}).Allow(t.Context(), "busy")
		require.NoError(t, err)
		require.NoError(t, r.Register("kept"))
		r.AllowRequest("x") // looks at both, and finds no room
		time.Sleep(10 * time.Second)
		for _, name := range []string{"x", "y", "z", "last"} {
			r.AllowRequest(name)
			assert.Equal(t, slices.Sorted(slices.Values([]string{"busy", "kept", name})), namesOf(r), "the registered one stays")
		}
	})
}

func TestAPanicEndsItsCallOnce(t *testing.T) {
	r := NewRegistry()
	ends := 0
	g := guardOn(t, r, func(c *GuardConfig) {
		c.Observe = func(_ context.Context, e Event) {
			if e.Final {
				ends++
			}
		}
	})
	_, err := Call(t.Context(), g, "a", func(context.Context, string) (int, error) { panic("x") })
	assert.Equal(t, KindPanic, toolError(t, err).Kind)
	assert.Equal(t, GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, healthOf(t, r, "a").Guard)
	assert.Equal(t, 1, ends)
}

func TestAPartialHandlerHasTheCallersContext(t *testing.T) {
	type key struct{}
	plain := context.WithValue(t.Context(), key{}, "the caller's")
	informed, _ := WithCallInfo(plain)
	for name, ctx := range map[string]context.Context{"plain": plain, "informed": informed} {
		out, err := Call(ctx, guardOn(t, NewRegistry(), nil), "a", failing(io.EOF).run,
			Partial(func(ctx context.Context, _ *ToolError) (string, error) { return ctx.Value(key{}).(string), nil }))
		require.NoError(t, err, name)
		assert.Equal(t, "the caller's", out, name)
	}
}

func TestACallInfoThatIsUsedAgainForgetsTheCallBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, info := WithCallInfo(t.Context())
		g := guardOn(t, patient(t), nil)
		_, err := Call(ctx, g, "a", failing(errBusy).run)
		require.Error(t, err)
		require.Equal(t, StopRetryExhausted, info.Reason)
		require.Len(t, info.Waits, 1)
		_, err = Call(ctx, g, "b", plays().run)
		require.NoError(t, err)
		assert.Equal(t, CallInfo{Requested: "b", Served: "b", Attempts: 1}, *info)
	})
}
