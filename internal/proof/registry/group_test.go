package registry_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

var (
	dead    = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection, Retryable: true, NotSent: true}
	lost    = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection} // an unknown host name, a certificate
	hung    = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout, Retryable: true}
	noDial  = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout, Retryable: true, NotSent: true}
	broken  = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError, Retryable: true}
	changed = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindContract}
	empty   = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindQuotaExhausted}
	badArgs = toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest}
	unasked = toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest, NotSent: true}
	badKey  = toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindUnauthorized}
	limited = toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, RetryAfter: time.Second}
	silent  = toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindUnknown}
)

// server is the part of a name before the slash.
func server(tool string) string {
	if name, _, ok := strings.Cut(tool, "/"); ok {
		return name
	}
	return ""
}

// grouped returns a gate over a registry whose tools are in the group of their server.
func grouped(t testing.TB, change func(*toolhealth.Config)) *toolhealth.Gate {
	t.Helper()
	return &toolhealth.Gate{Registry: registryWith(t, func(c *toolhealth.Config) {
		c.Group = server
		if change != nil {
			change(c)
		}
	})}
}

// ask makes one call and settles it; it reports whether the gate let it in.
func ask(t testing.TB, g *toolhealth.Gate, tool string, v toolhealth.Verdict) bool {
	t.Helper()
	p, err := g.Allow(t.Context(), tool)
	if err == nil {
		p.Settle(v)
	}
	return err == nil
}

// theGroup returns the health of the only group.
func theGroup(t testing.TB, r *toolhealth.Registry) toolhealth.GroupHealth {
	t.Helper()
	groups := r.HealthSummary().Groups
	require.Len(t, groups, 1)
	return groups[0]
}

// kill makes the server of the tools dead: three of them cannot connect.
func kill(t testing.TB, g *toolhealth.Gate, server string) {
	t.Helper()
	for i := range 3 {
		require.True(t, ask(t, g, fmt.Sprintf("%s/%d", server, i), dead))
	}
}

func TestRegistry_DeadServerBehindFortyToolsCostsFewCalls(t *testing.T) {
	roundRobin := func(i int) int { return i % 40 }
	inTurn := func(i int) int { return i / 3 % 40 }
	for _, c := range []struct {
		name    string
		verdict toolhealth.Verdict
		order   func(i int) int
		change  func(*toolhealth.Config)
		want    int
	}{
		{"no groups", dead, roundRobin, func(c *toolhealth.Config) { c.Group = nil }, 120},
		{"refused, round robin", dead, roundRobin, nil, 3},
		{"refused, in turn", dead, inTurn, nil, 3},
		{"hung, round robin", hung, roundRobin, nil, 3},
		{"hung, in turn", hung, inTurn, nil, 7},
		{"no connection in time, in turn", noDial, inTurn, nil, 3},
		{"server errors", broken, roundRobin, nil, 120},
		{"server errors that mean the host", broken, roundRobin, func(c *toolhealth.Config) { c.GroupServerErrors = true }, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := grouped(t, c.change)
			failed := 0
			for i := range 400 {
				if ask(t, g, fmt.Sprint("mcp/", c.order(i)), c.verdict) {
					failed++
				}
			}
			assert.Equal(t, c.want, failed, c.name)
			if c.want < 10 {
				assert.Equal(t, toolhealth.StateOpen, theGroup(t, g.Registry).State, c.name)
			}
		})
	}
}

func TestRegistry_AnswersProveThatServerIsThere(t *testing.T) {
	for _, answer := range []toolhealth.Verdict{{}, badArgs, badKey, limited, broken, changed, empty} {
		g := grouped(t, func(c *toolhealth.Config) { c.Breaker.MaxStatedWait = toolhealth.Off })
		for range 2 {
			ask(t, g, "mcp/a", dead)
			ask(t, g, "mcp/b", dead)
			ask(t, g, "mcp/c", answer)
		}
		assert.Equal(t, toolhealth.StateClosed, theGroup(t, g.Registry).State, "%+v", answer)
	}
	for _, nothing := range []toolhealth.Verdict{silent, unasked, lost, {Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindPanic}} {
		g := grouped(t, nil)
		ask(t, g, "mcp/a", dead)
		ask(t, g, "mcp/b", dead)
		ask(t, g, "mcp/c", nothing)
		assert.Equal(t, 2, theGroup(t, g.Registry).ConsecutiveFailures, "%+v", nothing)
	}
	g := grouped(t, nil)
	for i := range 300 {
		tool := fmt.Sprint("mcp/", i%10)
		ask(t, g, tool, []toolhealth.Verdict{badArgs, badKey, lost}[i%3])
		ask(t, g, "mcp/slow", hung)
	}
	assert.Equal(t, toolhealth.StateClosed, theGroup(t, g.Registry).State)
	assert.Equal(t, toolhealth.KindTimeout, theGroup(t, g.Registry).LastFailure)
	assert.False(t, g.Registry.Available("mcp/slow"), "its own breaker is open")
	assert.True(t, g.Registry.Available("mcp/new"))
}

func TestRegistry_OneProbeOfGroupBringsAllToolsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := grouped(t, nil)
		r := g.Registry
		var told []string
		r.OnTransition(func(tr toolhealth.Transition) {
			if tr.Group != "" {
				told = append(told, fmt.Sprint(tr.Tool, tr.Group, " ", tr.From, ">", tr.To, " ", tr.Cause, " ", tr.Epoch))
			}
		})
		for i := range 40 {
			r.RecordSuccess(fmt.Sprint("mcp/", i), 0)
		}
		kill(t, g, "mcp")
		_, err := g.Allow(t.Context(), "mcp/20")
		var refusal *toolhealth.Refusal
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, toolhealth.Refusal{
			Tool: "mcp/20", Group: "mcp", Reason: toolhealth.StopCircuitOpen, RetryAfter: 30 * time.Second, Streak: 3, Kind: toolhealth.KindConnection, InRow: 1,
		}, *refusal)
		assert.Equal(t, "tool temporarily unavailable: circuit breaker open; retry after 30s", refusal.Error(), "the model hears of no group")
		h := healthOf(t, r, "mcp/20")
		assert.Equal(t, []any{"mcp", false, toolhealth.StopCircuitOpen, 30 * time.Second, toolhealth.Degraded, toolhealth.StateClosed},
			[]any{h.Group, h.Available, h.Reason, h.RetryAfter, h.Status, h.State})
		offer, leaveOut := g.Offer([]string{"mcp/20", "mcp/new", "other/x", "mcp/1"})
		assert.Equal(t, []string{"other/x"}, offer)
		assert.Equal(t, []string{"mcp/20", "mcp/new", "mcp/1"}, leaveOut, "a tool without an entry has a group, too")
		assert.False(t, r.AllowRequest("mcp/20"))
		time.Sleep(30 * time.Second)

		r.Isolate("mcp/7", "")
		_, err = g.Allow(t.Context(), "mcp/7")
		assert.ErrorIs(t, err, toolhealth.ErrIsolated)
		_, err = g.Allow(toolhealth.WithoutProbe(t.Context()), "mcp/20")
		assert.ErrorIs(t, err, toolhealth.ErrCircuitOpen)
		due := theGroup(t, r)
		assert.Equal(t, []any{toolhealth.StateOpen, true, true}, []any{due.State, due.Available, due.ProbeDue}, "neither has taken the probe")
		var in atomic.Int64
		var probe atomic.Pointer[toolhealth.Permit]
		var callers sync.WaitGroup
		for i := range 40 {
			callers.Go(func() {
				p, err := g.Allow(t.Context(), fmt.Sprint("mcp/", i))
				if err == nil {
					in.Add(1)
					probe.Store(&p)
				}
			})
		}
		callers.Wait()
		require.Equal(t, int64(1), in.Load())
		assert.True(t, probe.Load().Probe())
		assert.Equal(t, toolhealth.StopProbeInFlight, theGroup(t, r).Reason)
		probe.Load().Settle(badArgs)
		for i := range 40 {
			assert.Equal(t, i != 7, r.Available(fmt.Sprint("mcp/", i)), i)
		}
		assert.Equal(t, []string{
			"mcp closed>open failure_threshold 2", "mcp open>half-open probe_admitted 3", "mcp half-open>closed probe_succeeded 4",
		}, told)
	})
}

func TestRegistry_ProbeOfGroupThatIsLostCostsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := grouped(t, nil)
		kill(t, g, "mcp")
		time.Sleep(30 * time.Second)
		p, err := g.Allow(t.Context(), "mcp/5") // never settled
		require.NoError(t, err)
		time.Sleep(29 * time.Second)
		p.KeepAlive()
		time.Sleep(time.Second + 58*time.Second)
		assert.False(t, g.Registry.Available("mcp/6"))
		time.Sleep(time.Second)
		assert.True(t, g.Registry.Available("mcp/6"))
		p, err = g.Allow(t.Context(), "mcp/6")
		require.NoError(t, err)
		assert.False(t, g.Registry.Available("mcp/5"))
		p.Release()
		assert.True(t, g.Registry.Available("mcp/5"), "given back")
	})
}

func TestRegistry_ByNameOnlyTheProberDecidesForGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := grouped(t, nil).Registry
		require.True(t, r.AllowRequest("mcp/slow")) // runs all the time
		for i := range 3 {
			require.True(t, r.AllowRequest(fmt.Sprint("mcp/", i)))
			r.Record(fmt.Sprint("mcp/", i), dead, 0)
		}
		assert.False(t, r.AllowRequest("mcp/5"))
		time.Sleep(30 * time.Second)
		require.True(t, r.AllowRequest("mcp/5"))
		r.RecordSuccess("mcp/slow", time.Minute)
		assert.Equal(t, toolhealth.StateHalfOpen, theGroup(t, r).State, "it began before")
		r.RecordSuccess("mcp/5", 0)
		assert.Equal(t, toolhealth.StateClosed, theGroup(t, r).State)
		r.RecordFailure("mcp/6", 0)
		assert.Zero(t, theGroup(t, r).ConsecutiveFailures, "of kind unknown")
	})
}

func TestRegistry_OperatorsOfGroups(t *testing.T) {
	g := grouped(t, nil)
	r := g.Registry
	var last toolhealth.Transition
	r.OnTransition(func(tr toolhealth.Transition) { last = tr })
	assert.False(t, r.ResetGroup("mcp", "ada"))
	assert.False(t, r.IsolateGroup("", "ada"))
	require.True(t, r.IsolateGroup("mcp", "ada"))
	assert.Equal(t, []any{"", "mcp", "ada", toolhealth.CauseIsolated}, []any{last.Tool, last.Group, last.By, last.Cause})
	assert.Equal(t, []any{"ada", 0}, []any{theGroup(t, r).IsolatedBy, theGroup(t, r).Tools})
	_, err := g.Allow(t.Context(), "mcp/a")
	require.ErrorIs(t, err, toolhealth.ErrIsolated)
	assert.Equal(t, 1, theGroup(t, r).Tools)
	assert.Equal(t, "", healthOf(t, r, "mcp/a").IsolatedBy, "the tool is not")
	for range 3 {
		r.RecordFailure("mcp/a", 0)
	}
	require.True(t, r.ResetGroup("mcp", "bob"))
	assert.Equal(t, "bob", last.By)
	assert.Equal(t, toolhealth.StateClosed, theGroup(t, r).State)
	assert.Equal(t, toolhealth.StateOpen, healthOf(t, r, "mcp/a").State, "the tools are left alone")
	var none *toolhealth.Registry
	assert.False(t, none.IsolateGroup("mcp", ""))
	assert.False(t, none.ResetGroup("mcp", ""))
}

func TestRegistry_GroupsAreBoundedAndFade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := grouped(t, func(c *toolhealth.Config) { c.MaxTools = 3 })
		r := g.Registry
		kill(t, g, "dead") // its tools have a streak
		groups := func() (names []string) {
			for _, h := range r.HealthSummary().Groups {
				names = append(names, h.Group)
			}
			return names
		}
		for i := range 3 {
			r.Remove(fmt.Sprint("dead/", i))
		}
		assert.Equal(t, []string{"dead"}, groups(), "what is known of it stays")
		assert.False(t, r.Available("dead/0"))
		r.RecordSuccess("a/1", 0)
		r.RecordSuccess("b/1", 0)
		r.RecordSuccess("c/1", 0)
		assert.Equal(t, []string{"a", "b", "dead"}, groups(), "there are no more groups than tools")
		assert.Equal(t, "", healthOf(t, r, "c/1").Group)
		r.Remove("a/1")
		assert.Equal(t, []string{"b", "dead"}, groups(), "nothing is held against it")
		r.RecordSuccess("d/1", 0)
		assert.Equal(t, []string{"b", "d", "dead"}, groups())
		r.Remove("d/1")
		r.RecordSuccess("b/2", 0)
		time.Sleep(10*time.Minute + 30*time.Second) // MaxOpenDuration after its cooldown
		r.Remove("c/1")
		r.RecordSuccess("e/1", 0)
		assert.Equal(t, []string{"b", "dead", "e"}, groups())
		r.Remove("b/2")
		r.RecordSuccess("f/1", 0)
		assert.Equal(t, []string{"b", "e", "f"}, groups(), "it has faded")
		r.IsolateGroup("e", "")
		r.Remove("e/1")
		time.Sleep(time.Hour)
		r.Remove("f/1")
		r.Remove("b/1")
		assert.Equal(t, []string{"e"}, groups(), "an operator's word does not fade")
		r.ResetGroup("e", "")
		r.RecordSuccess("e/2", 0)
		r.Remove("e/2")
		assert.Empty(t, groups())
	})
}

func TestRegistry_GroupOfToolIsFixedByItsFirstCall(t *testing.T) {
	r := grouped(t, nil).Registry
	require.NoError(t, r.Register("plain", toolhealth.ToolOptions{Group: "mcp"}))
	require.NoError(t, r.Register("mcp/a", toolhealth.ToolOptions{Group: "other"}))
	require.NoError(t, r.Register("mcp/a", toolhealth.ToolOptions{Group: "other"}))
	require.NoError(t, r.Register("mcp/a", toolhealth.ToolOptions{}), "what is not given stays")
	r.AllowRequest("mcp/b")
	err := r.Register("mcp/b", toolhealth.ToolOptions{Group: "other"})
	assert.EqualError(t, err, `toolhealth: Register: group of "mcp/b" is "other", must be "mcp", which it has had since its first call`)
	require.NoError(t, r.Register("mcp/b", toolhealth.ToolOptions{}))
	c := r.Config()
	c.Group = func(string) string { return "none" }
	require.NoError(t, r.SetConfig(c))
	r.AllowRequest("mcp/c")
	var groups []string
	for _, h := range r.All() {
		groups = append(groups, h.Tool+" in "+h.Group)
	}
	assert.Equal(t, []string{"mcp/a in other", "mcp/b in mcp", "mcp/c in mcp", "plain in mcp"}, groups)
	panics := registryWith(t, func(c *toolhealth.Config) { c.Group = func(string) string { panic("no") } })
	assert.True(t, panics.AllowRequest("mcp/a"))
	assert.Empty(t, panics.HealthSummary().Groups)
}

func TestRegistry_GroupThatOnlyObservesLetsEveryoneIn(t *testing.T) {
	g := grouped(t, func(c *toolhealth.Config) { c.GroupBreaker.ObserveOnly = true })
	kill(t, g, "mcp")
	assert.Equal(t, toolhealth.StateOpen, theGroup(t, g.Registry).State)
	assert.True(t, ask(t, g, "mcp/5", toolhealth.Verdict{}))
	h := healthOf(t, g.Registry, "mcp/5")
	assert.Equal(t, []any{uint64(1), uint64(0), true}, []any{h.WouldRefuse, h.InFlight, h.Available})
	require.NoError(t, g.Registry.SetConfig(toolhealth.Config{}))
	assert.False(t, ask(t, g, "mcp/5", toolhealth.Verdict{}), "SetConfig reaches the groups")
}

// A tool that only observes is let in by itself, but not past its group, also while its
// own breaker is open or it is busy.
func TestRegistry_ToolThatOnlyObservesStaysBehindItsGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := toolhealth.NewRegistryWithConfig(toolhealth.Config{
			Breaker: toolhealth.BreakerConfig{FailureThreshold: 3, ObserveOnly: true, MaxInFlight: 1, RecoveryDuration: 2 * time.Hour, MaxOpenDuration: 2 * time.Hour},
			Group:   func(string) string { return "mcp" },
		})
		require.NoError(t, err)
		gate := &toolhealth.Gate{Registry: r}
		for range 3 {
			r.Record("search", dead, 0)
		}
		refused := func(want bool) {
			t.Helper()
			assert.Equal(t, !want, r.Available("search"))
			h, _ := r.Health("search")
			assert.Equal(t, !want, h.Reason == toolhealth.StopNone)
		}
		refused(true)
		assert.False(t, r.AllowRequest("search"))
		_, err = gate.Allow(t.Context(), "search")
		refusal, ok := errors.AsType[*toolhealth.Refusal](err)
		require.True(t, ok)
		assert.Equal(t, "mcp", refusal.Group)
		time.Sleep(time.Hour) // the group is due, the tool is not
		refused(false)
		probe, err := gate.Allow(t.Context(), "search")
		require.NoError(t, err)
		assert.True(t, probe.Probe(), "of the group")
		h, _ := r.Health("search")
		assert.EqualValues(t, 1, h.WouldRefuse)
		refused(true)
		_, err = gate.Allow(t.Context(), "search") // busy, which it observes, but the group is being probed
		assert.ErrorIs(t, err, toolhealth.ErrProbeInFlight)
		probe.Done(t.Context(), nil)
		assert.Equal(t, toolhealth.StateClosed, r.HealthSummary().Groups[0].State)
		first, err := gate.Allow(t.Context(), "search")
		require.NoError(t, err)
		second, err := gate.Allow(t.Context(), "search")
		require.NoError(t, err)
		h, _ = r.Health("search")
		assert.EqualValues(t, 3, h.WouldRefuse, "two by the open breaker, once also busy")
		assert.EqualValues(t, 2, h.InFlight)
		first.Release()
		second.Release()
		h, _ = r.Health("search")
		assert.Zero(t, h.InFlight)
	})
}

// Tool and group that both only observe count one call once.
func TestRegistry_CallThatBothWouldRefuseCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observe := toolhealth.BreakerConfig{FailureThreshold: 3, ObserveOnly: true}
		r, err := toolhealth.NewRegistryWithConfig(toolhealth.Config{
			Breaker: observe, GroupBreaker: observe, Group: func(string) string { return "mcp" },
		})
		require.NoError(t, err)
		for range 3 {
			r.Record("search", dead, 0)
		}
		assert.True(t, r.AllowRequest("search"))
		h, _ := r.Health("search")
		assert.EqualValues(t, 1, h.WouldRefuse)
	})
}

// A tool for which there is no room is behind its group all the same.
func TestRegistry_UntrackedToolStaysBehindItsGroup(t *testing.T) {
	r, err := toolhealth.NewRegistryWithConfig(toolhealth.Config{MaxTools: 1, Group: func(tool string) string { return tool[:3] }})
	require.NoError(t, err)
	require.NoError(t, r.Register("mcp/kept", toolhealth.ToolOptions{}))
	require.True(t, r.IsolateGroup("mcp", "ada"))
	assert.False(t, r.Available("mcp/other"))
	assert.False(t, r.AllowRequest("mcp/other"))
	_, err = (&toolhealth.Gate{Registry: r}).Allow(t.Context(), "mcp/other")
	refusal, ok := errors.AsType[*toolhealth.Refusal](err)
	require.True(t, ok)
	assert.Equal(t, []any{"mcp/other", "mcp", toolhealth.StopIsolated}, []any{refusal.Tool, refusal.Group, refusal.Reason})
	assert.Zero(t, r.HealthSummary().Untracked)
	assert.True(t, r.AllowRequest("web/search"))
	assert.EqualValues(t, 1, r.HealthSummary().Untracked)
	require.True(t, r.ResetGroup("mcp", "ada"))
	assert.True(t, r.AllowRequest("mcp/other"))
}

func TestRegistry_LongerWaitOfToolAndGroupCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := grouped(t, func(c *toolhealth.Config) { c.GroupBreaker.RecoveryDuration = time.Minute })
		g.Registry.Record("mcp/0", toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, RetryAfter: 10 * time.Second}, 0)
		for _, tool := range []string{"mcp/a", "mcp/b", "mcp/c"} {
			ask(t, g, tool, dead)
		}
		_, err := g.Allow(t.Context(), "mcp/0")
		var refusal *toolhealth.Refusal
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, []any{toolhealth.StopRateLimited, "", time.Minute}, []any{refusal.Reason, refusal.Group, refusal.RetryAfter})
		assert.Equal(t, time.Minute, healthOf(t, g.Registry, "mcp/0").RetryAfter)
		assert.Equal(t, toolhealth.StopRateLimited, healthOf(t, g.Registry, "mcp/0").Reason)
	})
}

// A hook that ends the goroutine of the caller who has just got both probes, or one of
// them, must not keep them.
func TestRegistry_HookThatEndsGoroutineKeepsNoProbeOfGroup(t *testing.T) {
	for _, byGroup := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := grouped(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold = 1 })
			kill(t, g, "mcp")
			time.Sleep(30 * time.Second)
			g.Registry.OnTransition(func(tr toolhealth.Transition) {
				if tr.To == toolhealth.StateHalfOpen && (tr.Group != "") == byGroup {
					runtime.Goexit()
				}
			})
			var caller sync.WaitGroup
			caller.Add(2)
			go func() { defer caller.Done(); _, _ = g.Allow(context.Background(), "mcp/0") }()
			synctest.Wait()
			go func() { defer caller.Done(); g.Registry.AllowRequest("mcp/0") }()
			caller.Wait()
			h := healthOf(t, g.Registry, "mcp/0")
			assert.Equal(t, []any{toolhealth.StateOpen, true, uint64(0)}, []any{h.State, h.ProbeDue, h.InFlight})
			assert.True(t, theGroup(t, g.Registry).ProbeDue)
		})
	}
}

// Callers of eight tools behind a server that comes and goes: at most one probe of the
// group is out, what is read is what the gate says, and there is a way back.
func TestRegistry_TwoBreakersUnderOneAdmissionNeverWedge(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			g := grouped(t, nil)
			r := g.Registry
			var dies atomic.Bool
			var half, twice atomic.Int64
			r.OnTransition(func(tr toolhealth.Transition) {
				switch {
				case tr.Group == "":
				case tr.To == toolhealth.StateHalfOpen:
					if half.Add(1) > 1 {
						twice.Add(1)
					}
				case tr.From == toolhealth.StateHalfOpen:
					half.Add(-1)
				}
			})
			var callers sync.WaitGroup
			for c := range uint64(16) {
				callers.Go(func() {
					random := rand.New(rand.NewPCG(seed, c))
					for range 200 {
						time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
						p, err := g.Allow(context.Background(), fmt.Sprint("mcp/", random.IntN(8)))
						if err != nil {
							continue
						}
						time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
						switch k := random.IntN(20); {
						case k == 0: // the permit is lost
						case k == 1:
							p.Release()
						case dies.Load():
							p.Settle([]toolhealth.Verdict{dead, hung, broken}[k%3])
						case k < 5:
							p.Settle(hung)
						default:
							p.Settle(toolhealth.Verdict{})
						}
					}
				})
			}
			for range 6 {
				time.Sleep(40 * time.Second)
				dies.Store(!dies.Load())
			}
			callers.Wait()
			assert.Zero(t, twice.Load(), "two probes of the group at once")
			time.Sleep(20 * time.Minute)
			for i := range 8 {
				tool := fmt.Sprint("mcp/", i)
				require.True(t, r.Available(tool))
				require.True(t, ask(t, g, tool, toolhealth.Verdict{}), "what is read is what the gate says")
			}
			assert.Equal(t, toolhealth.StateClosed, theGroup(t, r).State)
		})
	}
}

// A hook that ends the goroutine when the group closes must not keep the verdict from the
// tool, whose probe the same call was.
func TestRegistry_HookThatEndsGoroutineKeepsNoVerdictFromTool(t *testing.T) {
	for _, byName := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := grouped(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold, c.Breaker.ProbeTimeout = 1, toolhealth.Off })
			kill(t, g, "mcp")
			time.Sleep(30 * time.Second)
			g.Registry.OnTransition(func(tr toolhealth.Transition) {
				if tr.Group != "" && tr.To == toolhealth.StateClosed {
					runtime.Goexit()
				}
			})
			endsGoroutine(func() {
				if byName {
					g.Registry.AllowRequest("mcp/0")
					g.Registry.RecordSuccess("mcp/0", 0)
					return
				}
				p, _ := g.Allow(context.Background(), "mcp/0")
				p.Done(context.Background(), nil)
			})
			assert.Equal(t, toolhealth.StateClosed, theGroup(t, g.Registry).State)
			h := healthOf(t, g.Registry, "mcp/0")
			assert.Equal(t, []any{toolhealth.StateClosed, uint64(0)}, []any{h.State, h.InFlight})
		})
	}
}

// An operator beside the first call of a group's first tool finds the group whole or not at
// all.
func TestRegistry_GroupsAppearWhole(t *testing.T) {
	r := grouped(t, nil).Registry
	told := make(map[string]bool)
	r.OnTransition(func(e toolhealth.Transition) { told[e.Group] = true })
	const groups = 300
	var operator sync.WaitGroup
	operator.Go(func() {
		for i := range groups {
			for !r.ResetGroup(fmt.Sprint("s", i), "") {
				runtime.Gosched()
			}
		}
	})
	for i := range groups {
		r.AllowRequest(fmt.Sprintf("s%d/a", i))
	}
	operator.Wait()
	assert.Len(t, told, groups)
	assert.NotContains(t, told, "")
}

// A group without tools leaves the summary when an operator takes back what was held
// against it.
func TestRegistry_VacantGroupLeavesWithReset(t *testing.T) {
	g := grouped(t, nil)
	require.True(t, g.Registry.IsolateGroup("typo", "ada"))
	require.True(t, g.Registry.ResetGroup("typo", "ada"))
	assert.Empty(t, g.Registry.HealthSummary().Groups)
	kill(t, g, "mcp")
	for i := range 3 {
		g.Registry.Remove(fmt.Sprint("mcp/", i))
	}
	assert.Equal(t, toolhealth.StateOpen, theGroup(t, g.Registry).State, "what is known stays")
	require.True(t, g.Registry.ResetGroup("mcp", "ada"))
	assert.Empty(t, g.Registry.HealthSummary().Groups)
	assert.True(t, ask(t, g, "mcp/0", toolhealth.Verdict{}))
	require.True(t, g.Registry.ResetGroup("mcp", "ada"))
	assert.Len(t, g.Registry.HealthSummary().Groups, 1, "it has a tool")
}

// Also a tool without an entry is no probe where it must not be.
func TestRegistry_UntrackedPaymentIsNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := grouped(t, func(c *toolhealth.Config) { c.MaxTools = 3 })
		kill(t, g, "mcp")
		for i := range 3 {
			require.NoError(t, g.Registry.Register(fmt.Sprint("mcp/", i), toolhealth.ToolOptions{}))
		}
		time.Sleep(time.Hour)
		_, err := g.Allow(toolhealth.WithoutProbe(t.Context()), "mcp/pay")
		assert.ErrorIs(t, err, toolhealth.ErrCircuitOpen)
		_, err = g.Allow(t.Context(), "mcp/read")
		assert.NoError(t, err)
	})
}
