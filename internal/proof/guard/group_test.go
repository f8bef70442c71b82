package guard_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// A call whose failures open the group stops there, and a substitute behind another
// server serves.
func TestGuard_CallStopsWhenItsGroupOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := toolhealth.New(toolhealth.Settings{
			GroupSeparator: "/",
			Policy:         toolhealth.Policy{MaxAttempts: 10, Timeout: toolhealth.Off},
			Breaker:        toolhealth.BreakerConfig{FailureThreshold: 100, RecoveryDuration: time.Second},
		})
		require.NoError(t, err)
		runs := 0
		reset := toolhealth.WithVerdict(errors.New("reset"), toolhealth.Verdict{
			Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection, Retryable: true,
		})
		search := toolhealth.Wrap(g, "dead/search", func(context.Context, int) (string, error) { runs++; return "", reset })
		_, err = search.Call(t.Context(), 0)
		failed, ok := errors.AsType[*toolhealth.ToolError](err)
		require.True(t, ok)
		assert.Equal(t, []any{3, toolhealth.StopCircuitOpen}, []any{runs, failed.Reason})
		assert.Equal(t, toolhealth.StateClosed, healthOf(t, g.Registry(), "dead/search").State)
		_, err = search.Call(t.Context(), 0)
		refusal, ok := errors.AsType[*toolhealth.Refusal](err)
		require.True(t, ok)
		assert.Equal(t, "dead", refusal.Group)
		assert.Equal(t, 3, runs)
		both := search.Substitute("alive/search", func(context.Context, int) (string, error) { return "found", nil })
		out, err := both.Call(t.Context(), 0)
		require.NoError(t, err)
		assert.Equal(t, "found", out)
		time.Sleep(time.Minute)
		_, err = search.Call(t.Context(), 0)
		require.Error(t, err)
		assert.Equal(t, 4, runs, "the probe of the group has failed, so there is no second attempt")
		assert.True(t, g.Registry().IsolateGroup("dead", "ada"))
		_, err = search.Call(t.Context(), 0)
		assert.ErrorIs(t, err, toolhealth.ErrIsolated)
		assert.Zero(t, healthOf(t, g.Registry(), "dead/search").InFlight)
	})
}

// A call whose group an operator takes out while it runs does not wait for what the tool
// has stated.
func TestGuard_NoWaitBesideGroupThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := toolhealth.New(toolhealth.Settings{GroupSeparator: "/"})
		require.NoError(t, err)
		search := toolhealth.Wrap(g, "mcp/search", func(context.Context, int) (string, error) {
			g.Registry().IsolateGroup("mcp", "ada")
			return "", toolhealth.WithVerdict(errors.New("wait"), toolhealth.Verdict{
				Outcome: toolhealth.OutcomeThrottled, Retryable: true, RetryAfter: 20 * time.Second,
			})
		})
		began := time.Now()
		_, err = search.Call(t.Context(), 0)
		failed, ok := errors.AsType[*toolhealth.ToolError](err)
		require.True(t, ok)
		assert.Equal(t, []any{toolhealth.StopIsolated, time.Duration(0)}, []any{failed.Reason, time.Since(began)})
	})
}

// nested is a guard of a group that is due for its probe: two tools of "mcp", the outer
// of which calls the inner.
func nested(t *testing.T, inner func(context.Context) error, s toolhealth.Settings) (g *toolhealth.Guard, call func() error) {
	s.GroupSeparator = "/"
	g, err := toolhealth.New(s)
	require.NoError(t, err)
	trip(g, "mcp")
	require.Equal(t, toolhealth.StateOpen, groupOf(t, g).State)
	time.Sleep(time.Hour)
	calls := func(ctx context.Context, tool string) (string, error) {
		return toolhealth.Call(ctx, g, "mcp/inner", func(ctx context.Context, _ string) (string, error) {
			return "", inner(ctx)
		})
	}
	return g, func() error {
		_, err := toolhealth.Call(t.Context(), g, "mcp/outer", calls)
		return err
	}
}

func groupOf(t *testing.T, g *toolhealth.Guard) toolhealth.GroupHealth {
	t.Helper()
	groups := g.Registry().HealthSummary().Groups
	require.Len(t, groups, 1)
	return groups[0]
}

// The inner of two nested calls shares the probe of the outer one, which waits for it:
// what the inner one hears decides.
func TestGuard_NestedCallsOfGroupShareItsProbe(t *testing.T) {
	reset := toolhealth.WithVerdict(errors.New("reset"), toolhealth.Verdict{
		Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection, Retryable: true,
	})
	bad := toolhealth.WithVerdict(errors.New("bad"), toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest})
	local := toolhealth.WithVerdict(errors.New("not dispatched"), toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, NotSent: true})
	for _, c := range []struct {
		answer error
		want   toolhealth.State
	}{{nil, toolhealth.StateClosed}, {bad, toolhealth.StateClosed}, {reset, toolhealth.StateOpen}, {local, toolhealth.StateOpen}} {
		synctest.Test(t, func(t *testing.T) {
			runs := 0
			var g *toolhealth.Guard
			g, call := nested(t, func(ctx context.Context) error {
				runs++
				assert.True(t, toolhealth.IsProbe(ctx))
				assert.Equal(t, toolhealth.StateHalfOpen, groupOf(t, g).State)
				assert.False(t, g.Registry().AllowRequest("mcp/other"), "one probe")
				return c.answer
			}, toolhealth.Settings{})
			_ = call()
			assert.Equal(t, 1, runs)
			assert.Equal(t, c.want, groupOf(t, g).State, "%v", c.answer)
			assert.Zero(t, healthOf(t, g.Registry(), "mcp/inner").InFlight)
			assert.Zero(t, healthOf(t, g.Registry(), "mcp/outer").InFlight)
			if c.answer == local { // no verdict: the next call is the probe, at once
				c.answer = nil
				require.NoError(t, call())
				assert.Equal(t, toolhealth.StateClosed, groupOf(t, g).State)
			}
		})
	}
}

// A permit that a tool function asks for with its ctx shares the probe, too; one that it
// asks for without is refused.
func TestGate_PermitInsideProbeOfGroupSharesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *toolhealth.Guard
		g, call := nested(t, func(ctx context.Context) error {
			_, err := g.Gate().Allow(context.Background(), "mcp/third")
			assert.ErrorIs(t, err, toolhealth.ErrProbeInFlight)
			permit, err := g.Gate().Allow(ctx, "mcp/third")
			require.NoError(t, err)
			assert.True(t, permit.Probe())
			permit.Done(ctx, nil)
			assert.Equal(t, toolhealth.StateClosed, groupOf(t, g).State)
			return nil
		}, toolhealth.Settings{})
		require.NoError(t, call())
		assert.Equal(t, toolhealth.StateClosed, groupOf(t, g).State)
	})
}

// Where the inner tool itself refuses, the outer call keeps the probe of the group.
func TestGuard_InnerToolThatRefusesLeavesProbeToOuterCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, call := nested(t, func(context.Context) error { return nil }, toolhealth.Settings{})
		require.True(t, g.Registry().Isolate("mcp/inner", "ada"))
		assert.Error(t, call())
		state := groupOf(t, g)
		assert.Equal(t, toolhealth.StateOpen, state.State, "the outer call had no evidence either")
		assert.Zero(t, state.RetryAfter, "so the next call is the probe")
		require.True(t, g.Registry().Reset("mcp/inner", "ada"))
		require.NoError(t, call())
		assert.Equal(t, toolhealth.StateClosed, groupOf(t, g).State)
	})
}

// A call of the group that a goroutine makes after the probe's attempt has ended is no
// part of it.
func TestGuard_CallAfterProbeHasEndedSharesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := toolhealth.WithVerdict(errors.New("not dispatched"), toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, NotSent: true})
		var kept context.Context
		g, call := nested(t, func(ctx context.Context) error { kept = ctx; return local }, toolhealth.Settings{})
		assert.Error(t, call())
		permit, err := g.Gate().Allow(t.Context(), "mcp/other") // takes the probe
		require.NoError(t, err)
		require.True(t, permit.Probe())
		_, err = g.Gate().Allow(context.WithoutCancel(kept), "mcp/third")
		assert.ErrorIs(t, err, toolhealth.ErrProbeInFlight)
		permit.Release()
	})
}

// An inner call that ends without a verdict leaves the probe to the outer one, whose
// verdict then decides.
func TestGuard_InnerCallWithoutVerdictLeavesProbe(t *testing.T) {
	verdict := func(v toolhealth.Verdict) error { return toolhealth.WithVerdict(errors.New("told"), v) }
	for name, inner := range map[string]func(g *toolhealth.Guard, ctx context.Context){
		"not sent": func(g *toolhealth.Guard, ctx context.Context) {
			_, _ = toolhealth.Call(ctx, g, "mcp/inner", plays(verdict(toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, NotSent: true})).Run)
		},
		"denied": func(g *toolhealth.Guard, ctx context.Context) {
			_, _ = toolhealth.Call(ctx, g, "mcp/inner", plays(verdict(toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindDenied})).Run)
		},
		"canceled": func(g *toolhealth.Guard, ctx context.Context) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			_, _ = toolhealth.Call(ctx, g, "mcp/inner", func(ctx context.Context, _ string) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			})
		},
		"released": func(g *toolhealth.Guard, ctx context.Context) {
			permit, err := g.Gate().Allow(ctx, "mcp/inner")
			require.NoError(t, err)
			permit.Release()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			g, err := toolhealth.New(toolhealth.Settings{GroupSeparator: "/"})
			require.NoError(t, err)
			trip(g, "mcp")
			time.Sleep(time.Hour)
			_, err = toolhealth.Call(t.Context(), g, "mcp/outer", func(ctx context.Context, _ string) (string, error) {
				inner(g, ctx)
				assert.Equal(t, toolhealth.StateHalfOpen, groupOf(t, g).State, name)
				assert.False(t, g.Registry().AllowRequest("mcp/stranger"), "%s: one probe", name)
				return "", nil
			})
			require.NoError(t, err)
			assert.Equal(t, toolhealth.StateClosed, groupOf(t, g).State, name)
		})
	}
}

// trip opens a group.
func trip(g *toolhealth.Guard, group string) {
	down := toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection, Retryable: true}
	for range 3 {
		g.Registry().Record(group+"/ping", down, 0)
	}
}

// A payment inside of a probe is no probe.
func TestGuard_WithoutProbeInsideProbeOfGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := toolhealth.New(toolhealth.Settings{GroupSeparator: "/"})
		require.NoError(t, err)
		trip(g, "mcp")
		time.Sleep(time.Hour)
		_, err = toolhealth.Call(t.Context(), g, "mcp/outer", func(ctx context.Context, _ string) (string, error) {
			_, err := g.Gate().Allow(toolhealth.WithoutProbe(ctx), "mcp/pay")
			assert.ErrorIs(t, err, toolhealth.ErrProbeInFlight)
			return "", nil
		})
		require.NoError(t, err)
	})
}

// Two calls inside of a probe wait for people. The one that is answered first does not
// restart the clock of the other.
func TestGuard_PausesOfSharedProbeNest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		minute := toolhealth.Policy{Timeout: time.Minute}
		g, err := toolhealth.New(toolhealth.Settings{GroupSeparator: "/", Policy: minute})
		require.NoError(t, err)
		trip(g, "mcp")
		time.Sleep(time.Hour)
		asks := func(ctx context.Context, tool string, thinks time.Duration) {
			_, _ = toolhealth.Call(ctx, g, tool, func(ctx context.Context, _ string) (string, error) {
				resume := toolhealth.Pause(ctx)
				time.Sleep(thinks)
				resume()
				return "", toolhealth.WithVerdict(errors.New("no"), toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindDenied})
			})
		}
		_, err = toolhealth.Call(t.Context(), g, "mcp/outer", func(ctx context.Context, _ string) (string, error) {
			var both sync.WaitGroup
			both.Go(func() { asks(ctx, "mcp/long", 8*time.Minute) })
			both.Go(func() { asks(ctx, "mcp/short", time.Second) })
			time.Sleep(8*time.Minute - 1)
			assert.Equal(t, toolhealth.StateHalfOpen, groupOf(t, g).State)
			both.Wait()
			return "", nil
		})
		require.NoError(t, err)
		assert.Equal(t, toolhealth.StateClosed, groupOf(t, g).State)
	})
}

// What a tool further in has failed of says nothing of the server of the outer tool.
func TestGuard_FailureFurtherInIsNoEvidenceForGroup(t *testing.T) {
	g, err := toolhealth.New(toolhealth.Settings{GroupSeparator: "/", Policy: toolhealth.Policy{MaxAttempts: 1}})
	require.NoError(t, err)
	reset := toolhealth.WithVerdict(errors.New("reset"), toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection, Retryable: true})
	fetch := func(ctx context.Context) error {
		_, err := toolhealth.Call(ctx, g, "far/fetch", plays(reset).Run)
		return err
	}
	for range 2 {
		_, err = toolhealth.Call(t.Context(), g, "near/search", func(ctx context.Context, _ string) (string, error) { return "", fetch(ctx) })
		require.Error(t, err)
		permit, err := g.Gate().Allow(t.Context(), "near/other")
		require.NoError(t, err)
		permit.Done(t.Context(), fetch(t.Context()))
	}
	streaks := make(map[string]int)
	for _, h := range g.Registry().HealthSummary().Groups {
		streaks[h.Group] = h.ConsecutiveFailures
	}
	assert.Equal(t, map[string]int{"near": 0, "far": 3}, streaks, "the fourth call was refused")
	assert.True(t, g.Registry().Available("near/third"))
	_, err = toolhealth.Call(t.Context(), g, "near/own", func(context.Context, string) (string, error) { return "", reset })
	require.Error(t, err)
	assert.Equal(t, 1, g.Registry().HealthSummary().Groups[1].ConsecutiveFailures, "its own failure counts")
}

// Inside of a probe a gate finds a substitute of the same group, as a guard does.
func TestGate_SubstituteInsideProbeOfGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := toolhealth.New(toolhealth.Settings{GroupSeparator: "/", Tools: map[string]toolhealth.ToolSettings{
			"mcp/a": {Substitutes: []string{"mcp/b"}}, "mcp/b": {},
		}})
		require.NoError(t, err)
		trip(g, "mcp")
		time.Sleep(time.Hour)
		require.True(t, g.Registry().Isolate("mcp/a", "ada"))
		_, err = toolhealth.Call(t.Context(), g, "mcp/outer", func(ctx context.Context, _ string) (string, error) {
			permit, err := g.Gate().Allow(ctx, "mcp/a")
			require.NoError(t, err)
			assert.Equal(t, "mcp/b", permit.Tool())
			permit.Done(ctx, nil)
			return "", nil
		})
		require.NoError(t, err)
	})
}
