package toolhealth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth/internal/race"
)

func TestHealthRouter_TakesFirstHealthySubstitute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		router := routerWith(t, map[string][]string{"a": {"b", "c", "d"}, "b": {"z"}})
		for _, c := range []struct {
			open, weak string // tools with an open breaker; unhealthy tools with a closed one
			want       string
			available  bool
		}{
			{"", "", "a", true},
			{"", "a", "a", true}, // the score refuses no call
			{"a", "", "b", true},
			{"a", "b", "c", true},
			{"ab", "", "c", true},
			{"a", "bc", "d", true},
			{"a", "bcd", "b", true},
			{"ab", "cd", "c", true},
			{"abc", "d", "d", true},
			{"abcd", "", "a", false}, // one hop: not z
		} {
			registry := registryWith(t, func(k *Config) { k.Breaker.FailureThreshold = 4 })
			for _, tool := range strings.Split(c.open, "") {
				failTimes(registry, tool, 4)
			}
			for _, tool := range strings.Split(c.weak, "") {
				failTimes(registry, tool, 3)
				require.Equal(t, Unhealthy, registry.HealthStatus(tool))
			}
			name, available := router.Resolve("a", registry)
			assert.Equal(t, c.want, name, "%+v", c)
			assert.Equal(t, c.available, available, "%+v", c)

			// Gate.Allow chooses the same tool and takes no other permit.
			gate := &Gate{Registry: registry, Router: router}
			permit, err := gate.Allow(t.Context(), "a")
			assert.Equal(t, c.available, err == nil)
			if err == nil {
				assert.Equal(t, c.want, permit.Tool())
				assert.False(t, permit.Probe())
				assert.True(t, permit.Tracked())
			}
			for _, tool := range []string{"a", "b", "c", "d"} {
				if h, ok := registry.Health(tool); ok {
					want := uint64(0)
					if c.available && tool == c.want {
						want = 1
					}
					assert.Equal(t, want, h.InFlight, "%s of %+v", tool, c)
				}
			}
		}

		// A primary whose cooldown is over gets the probe; a failing substitute does
		// not keep it.
		registry := NewRegistry()
		failTimes(registry, "a", 3)
		failTimes(registry, "b", 3)
		time.Sleep(30 * time.Second)
		name, available := router.Resolve("a", registry)
		assert.Equal(t, "a", name)
		assert.True(t, available)
		assert.Equal(t, StateOpen, healthOf(t, registry, "a").State, "asking takes no probe")
	})
}

func TestHealthRouter_ReportsEveryProblem(t *testing.T) {
	_, err := NewHealthRouter(map[string][]string{
		"a": {"b", "", "a", "c", "b"}, "": {"x"}, "b": {"a"},
	})
	got := configProblems(t, err)
	assert.Equal(t, []ConfigError{
		{`substitutes[""]`, "a key without a name", "the name of a tool"},
		{`substitutes["a"][1]`, `""`, "the name of a tool"},
		{`substitutes["a"][2]`, `"a"`, "another tool than the primary"},
		{`substitutes["a"][4]`, `"b"`, "listed once"},
	}, got)
	router, err := NewHealthRouter(map[string][]string{"": {""}})
	assert.Nil(t, router)
	assert.Len(t, configProblems(t, err), 2)
	_, err = NewHealthRouter(map[string][]string{strings.Repeat("x", 1<<20): {""}})
	assert.Less(t, len(err.Error()), 300)
}

func TestHealthRouter_CopiesItsLists(t *testing.T) {
	in := map[string][]string{"a": {"b", "c"}}
	router := routerWith(t, in)
	in["a"][0] = "evil"
	in["x"] = []string{"y"}
	got := router.Substitutes("a")
	assert.Equal(t, []string{"b", "c"}, got)
	got[0] = "evil"
	assert.Equal(t, []string{"b", "c"}, router.Substitutes("a"))
	assert.Nil(t, router.Substitutes("x"))
}

func TestHealthRouter_NilAndZeroHaveNoSubstitutes(t *testing.T) {
	registry := NewRegistry()
	failTimes(registry, "a", 3)
	for _, router := range []*HealthRouter{nil, {}} {
		assert.Nil(t, router.Substitutes("a"))
		name, available := router.Resolve("a", registry)
		assert.Equal(t, "a", name)
		assert.False(t, available)
		name, available = router.Resolve("b", registry)
		assert.Equal(t, "b", name)
		assert.True(t, available)
		_, available = router.Resolve("a", nil)
		assert.True(t, available, "a nil registry refuses no call")
	}
}

// probeOf trips a tool, waits for its probe to be due and takes it.
func probeOf(t testing.TB, g *Gate, tool string) *Permit {
	t.Helper()
	failTimes(g.Registry, tool, 3)
	time.Sleep(30 * time.Second)
	permit, err := g.Allow(t.Context(), tool)
	require.NoError(t, err)
	require.True(t, permit.Probe())
	return &permit
}

func TestPermit_CountsOnceHoweverOftenSettled(t *testing.T) {
	ctx := t.Context()
	settle := map[string]func(*Permit){
		"done well":    func(p *Permit) { p.Done(ctx, nil) },
		"done badly":   func(p *Permit) { p.Done(ctx, errBroken) },
		"settled":      func(p *Permit) { p.Settle(Verdict{Outcome: OutcomeRejected}) },
		"settled well": func(p *Permit) { p.Settle(Verdict{}) },
		"released":     func(p *Permit) { p.Release() },
	}
	want := map[string]Counts{
		"done well":    {Successes: 1, EWMA: 1},
		"settled well": {Successes: 1, EWMA: 1},
		"done badly":   {Failures: 1, ByKind: map[Kind]uint64{KindUnknown: 1}, EWMA: 0.7},
		"settled":      {Rejected: 1, RejectedByKind: map[Kind]uint64{KindUnknown: 1}, EWMA: 1},
		"released":     {EWMA: 1},
	}
	for first, one := range settle {
		for second, other := range settle {
			synctest.Test(t, func(t *testing.T) {
				r := NewRegistry()
				permit, err := (&Gate{Registry: r}).Allow(t.Context(), "search")
				require.NoError(t, err)
				one(&permit)
				other(&permit)
				other(&permit)
				permit.KeepAlive()
				h := healthOf(t, r, "search")
				assert.Equal(t, want[first], h.Counts, "%s, then %s", first, second)
				assert.Equal(t, uint64(0), h.InFlight, "%s, then %s", first, second)
			})
		}
	}
}

func TestPermit_CountsOnceFromManyGoroutines(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold = 0 })
	g := &Gate{Registry: r}
	const rounds = 300
	for range rounds {
		permit, err := g.Allow(t.Context(), "search")
		require.NoError(t, err)
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() {
				switch i {
				case 0:
					permit.Done(t.Context(), nil)
				case 1:
					permit.Done(t.Context(), errBroken)
				case 2:
					permit.Settle(Verdict{Outcome: OutcomeNeutral})
				case 3:
					permit.Settle(Verdict{Outcome: OutcomeThrottled})
				}
			})
		}
		group.Wait()
	}
	h := healthOf(t, r, "search")
	assert.Equal(t, uint64(rounds), h.TotalCalls()+h.Neutral+h.Throttled)
	assert.Equal(t, uint64(0), h.InFlight)
}

func TestPermit_ZeroIsSettled(t *testing.T) {
	var p Permit
	assert.Equal(t, "", p.Tool())
	assert.False(t, p.Probe())
	assert.False(t, p.Tracked())
	p.Done(t.Context(), errBroken)
	p.Settle(Verdict{})
	p.Release()
	p.KeepAlive()
}

func TestGate_NilAndZeroAdmitEverything(t *testing.T) {
	for _, g := range []*Gate{nil, {}, {Router: routerWith(t, map[string][]string{"a": {"b"}})}} {
		permit, err := g.Allow(t.Context(), "a")
		assert.NoError(t, err)
		assert.Equal(t, "a", permit.Tool())
		assert.False(t, permit.Tracked())
		permit.KeepAlive()
		permit.Done(t.Context(), errBroken)
		offer, leaveOut := g.Offer([]string{"a", "b"})
		assert.Equal(t, []string{"a", "b"}, offer)
		assert.Empty(t, leaveOut)
	}
	permit, err := new(Gate).Allow(noContext, "a")
	assert.NoError(t, err)
	permit.Release()
}

func TestGate_CanceledCallerTakesNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := &Gate{Registry: r}
		failTimes(r, "search", 3)
		time.Sleep(30 * time.Second)
		before := healthOf(t, r, "search")
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.Sleep(time.Second)
		synctest.Wait()
		for ctx, want := range map[context.Context]error{canceled: context.Canceled, late: context.DeadlineExceeded} {
			permit, err := g.Allow(ctx, "search")
			assert.Equal(t, want, err)
			assert.NotErrorIs(t, err, ErrRefused)
			assert.False(t, permit.Tracked())
			permit.Done(ctx, errBroken)
			_, err = g.Allow(ctx, "new")
			assert.Equal(t, want, err)
		}
		assert.Equal(t, before, healthOf(t, r, "search"))
		assert.Equal(t, 1, r.Len())
	})
}

func TestGate_WithoutProbeRefusesWhereTheCallWouldBeTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := &Gate{Registry: r}
		failTimes(r, "search", 3)
		time.Sleep(30 * time.Second)
		_, err := g.Allow(WithoutProbe(t.Context()), "search")
		assert.ErrorIs(t, err, ErrRefused)
		permit, err := g.Allow(t.Context(), "search")
		assert.NoError(t, err)
		assert.True(t, permit.Probe())
		permit.Done(t.Context(), nil)
		permit, err = g.Allow(WithoutProbe(t.Context()), "search")
		assert.NoError(t, err, "of a closed tool")
		permit.Done(t.Context(), nil)
	})
}

func TestPermit_MeasuresFromAllowToDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := &Gate{Registry: r}
		for _, settle := range []func(*Permit){
			func(p *Permit) { p.Done(t.Context(), nil) },
			func(p *Permit) { p.Settle(Verdict{}) },
			func(p *Permit) { p.Done(t.Context(), errBroken) },
		} {
			permit, err := g.Allow(t.Context(), "search")
			require.NoError(t, err)
			assert.Equal(t, uint64(1), healthOf(t, r, "search").InFlight)
			time.Sleep(3 * time.Second)
			settle(&permit)
		}
		h := healthOf(t, r, "search")
		assert.Equal(t, [3]time.Duration{3 * time.Second, 3 * time.Second, 3 * time.Second}, [3]time.Duration{h.Average, h.AverageSuccess, h.Max})
		assert.Equal(t, uint64(0), h.InFlight)
	})
}

func TestGate_CallerDeadlineCountsAboveFloor(t *testing.T) {
	for _, c := range []struct {
		floor, ran time.Duration
		failure    bool
	}{
		{0, time.Second - 1, false},
		{0, time.Second, true},
		{5 * time.Second, 5*time.Second - 1, false},
		{5 * time.Second, 5 * time.Second, true},
		{-1, 1, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := NewRegistry()
			g := &Gate{Registry: r, DeadlineFloor: c.floor}
			ctx, cancel := context.WithTimeout(t.Context(), c.ran)
			defer cancel()
			permit, err := g.Allow(ctx, "search")
			require.NoError(t, err)
			<-ctx.Done()
			synctest.Wait()
			permit.Done(ctx, ctx.Err())
			h := healthOf(t, r, "search")
			if c.failure {
				assert.Equal(t, map[Kind]uint64{KindTimeout: 1}, h.ByKind, "%+v", c)
				assert.Equal(t, uint64(0), h.Neutral)
			} else {
				assert.Equal(t, uint64(1), h.Neutral, "%+v", c)
				assert.Equal(t, uint64(0), h.Failures)
			}
		})
	}
	assert.Equal(t, time.Second, DefaultDeadlineFloor)
}

func TestGate_ClassifierDecides(t *testing.T) {
	r := NewRegistry()
	said := Verdict{Outcome: OutcomeRejected, Kind: KindNotFound}
	g := &Gate{Registry: r, Classify: func(ctx context.Context, err error) Verdict {
		assert.Same(t, errBroken, err)
		assert.Equal(t, t.Context(), ctx)
		return said
	}}
	permit, err := g.Allow(t.Context(), "search")
	require.NoError(t, err)
	permit.Done(t.Context(), errBroken)
	assert.Equal(t, uint64(1), healthOf(t, r, "search").Rejected)

	said = Verdict{} // an error that means success
	permit, err = g.Allow(t.Context(), "search")
	require.NoError(t, err)
	permit.Done(t.Context(), errBroken)
	assert.Equal(t, uint64(1), healthOf(t, r, "search").Successes)

	g.Classify = func(context.Context, error) Verdict { panic("classifier") }
	permit, err = g.Allow(t.Context(), "search")
	require.NoError(t, err)
	assert.NotPanics(t, func() { permit.Done(t.Context(), errBroken) })
	assert.Equal(t, map[Kind]uint64{KindUnknown: 1}, healthOf(t, r, "search").ByKind)
	assert.Equal(t, uint64(0), healthOf(t, r, "search").InFlight)
	permit, err = g.Allow(t.Context(), "search")
	require.NoError(t, err)
	permit.Done(t.Context(), nil) // nil is not classified
	assert.Equal(t, uint64(2), healthOf(t, r, "search").Successes)
}

func TestRefusal_SaysWhyAndHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := &Gate{Registry: r}
		failTimes(r, "open", 3)
		r.Record("limited", Verdict{Outcome: OutcomeThrottled, RetryAfter: 2500 * time.Millisecond}, 0)
		r.AllowRequest("isolated")
		r.Isolate("isolated", "")
		time.Sleep(1500 * time.Millisecond)
		for _, c := range []struct {
			want     Refusal
			sentinel error
			text     string
			json     string
		}{
			{
				Refusal{Tool: "open", Reason: StopCircuitOpen, RetryAfter: 28500 * time.Millisecond, Streak: 3, Kind: KindUnknown, InRow: 1},
				ErrCircuitOpen, "tool temporarily unavailable: circuit breaker open; retry after 29s",
				`{"reason":"tool_unavailable:circuit_open","kind":"refused","retry_after_seconds":29,"attempts":0,"text":"tool temporarily unavailable: circuit breaker open; retry after 29s"}`,
			},
			{
				Refusal{Tool: "limited", Reason: StopRateLimited, RetryAfter: time.Second, InRow: 1},
				ErrRateLimited, "tool temporarily unavailable: it asked to wait; retry after 1s",
				`{"reason":"tool_unavailable:rate_limited","kind":"refused","retry_after_seconds":1,"attempts":0,"text":"tool temporarily unavailable: it asked to wait; retry after 1s"}`,
			},
			{
				Refusal{Tool: "isolated", Reason: StopIsolated, RetryAfter: 30 * time.Second, InRow: 1},
				ErrIsolated, "tool temporarily unavailable: taken out of service",
				`{"reason":"tool_unavailable:isolated","kind":"refused","attempts":0,"text":"tool temporarily unavailable: taken out of service"}`,
			},
			{
				Refusal{Tool: "", Reason: StopUnknownTool, RetryAfter: 30 * time.Second, InRow: 1},
				ErrUnknownTool, "unknown tool",
				`{"reason":"tool_unavailable:unknown_tool","kind":"refused","attempts":0,"text":"unknown tool"}`,
			},
		} {
			permit, err := g.Allow(t.Context(), c.want.Tool)
			assert.False(t, permit.Tracked())
			permit.Done(t.Context(), errBroken)
			var refusal *Refusal
			require.ErrorAs(t, fmt.Errorf("call: %w", err), &refusal)
			assert.Equal(t, c.want, *refusal)
			assert.EqualError(t, err, c.text)
			assert.ErrorIs(t, err, ErrRefused)
			for _, sentinel := range []error{ErrCircuitOpen, ErrProbeInFlight, ErrRateLimited, ErrIsolated, ErrBusy, ErrUnknownTool} {
				assert.Equal(t, sentinel == c.sentinel, errors.Is(err, sentinel), "%v is %v", err, sentinel)
			}
			text, err := json.Marshal(refusal)
			require.NoError(t, err)
			assert.JSONEq(t, c.json, string(text))
		}

		probe := probeOf(t, g, "probed")
		time.Sleep(10 * time.Second)
		_, err := g.Allow(t.Context(), "probed")
		assert.ErrorIs(t, err, ErrProbeInFlight)
		assert.EqualError(t, err, "tool temporarily unavailable: recovery is being probed; retry after 50s")
		probe.Release()
	})
}

func TestRefusal_OfAnyReasonIsRefusal(t *testing.T) {
	for _, reason := range []StopReason{StopNone, StopNonRetryable, RetryAllowed, 200} {
		err := error(&Refusal{Reason: reason, RetryAfter: -5})
		assert.Equal(t, "toolhealth: refused", err.Error())
		assert.ErrorIs(t, err, ErrRefused)
		assert.NotErrorIs(t, err, ErrUnknownTool)
	}
	assert.Equal(t, "unknown tool", (&Refusal{Reason: StopUnknownTool}).Error())
	assert.Equal(t, ErrIsolated, errors.Unwrap(&Refusal{Reason: StopIsolated}))
}

func TestRefusal_WaitInTextIsRoundedUpToSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "", 0: "", 1: "; retry after 1s", time.Second: "; retry after 1s", time.Second + 1: "; retry after 2s",
		10 * time.Minute: "; retry after 600s",
	} {
		assert.Equal(t, ErrCircuitOpen.Error()+want, (&Refusal{Reason: StopCircuitOpen, RetryAfter: d}).Error(), "%d", d)
	}
}

func TestRefusal_InRow(t *testing.T) {
	r := NewRegistry()
	g := &Gate{Registry: r}
	failTimes(r, "a", 3)
	refused := func() uint64 {
		_, err := g.Allow(t.Context(), "a")
		var refusal *Refusal
		require.ErrorAs(t, err, &refusal)
		return refusal.InRow
	}
	assert.Equal(t, []uint64{1, 2, 3}, []uint64{refused(), refused(), refused()})
	r.Reset("a", "")
	permit, err := g.Allow(t.Context(), "a")
	require.NoError(t, err)
	permit.Release()
	failTimes(r, "a", 3)
	assert.Equal(t, uint64(1), refused(), "an admission ends the row of refusals")
	assert.Equal(t, uint64(4), healthOf(t, r, "a").Refused)
	assert.Equal(t, uint64(0), healthOf(t, r, "a").InFlight)
}

func TestPermit_ReleasedProbeIsFreeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := &Gate{Registry: r}
		probe := probeOf(t, g, "search")
		before := healthOf(t, r, "search").Counts
		probe.Release()
		assert.Equal(t, before, healthOf(t, r, "search").Counts)
		again, err := g.Allow(t.Context(), "search")
		require.NoError(t, err)
		assert.True(t, again.Probe())
		probe.Release()
		probe.Settle(Verdict{})
		_, err = g.Allow(t.Context(), "search")
		assert.ErrorIs(t, err, ErrProbeInFlight, "a settled permit does not free the slot of another")
		again.Settle(Verdict{})
		assert.Equal(t, StateClosed, healthOf(t, r, "search").State)
		plain, err := g.Allow(t.Context(), "search")
		require.NoError(t, err)
		assert.False(t, plain.Probe())
		plain.Release()
		assert.Equal(t, uint64(0), healthOf(t, r, "search").InFlight)
	})
}

func TestPermit_KeepAliveRenewsLeaseOfLiveProbeOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := &Gate{Registry: r}
		ordinary, err := g.Allow(t.Context(), "search")
		require.NoError(t, err)
		probe := probeOf(t, g, "search")
		for range 5 {
			time.Sleep(29 * time.Second)
			probe.KeepAlive()
			assert.Equal(t, time.Minute, healthOf(t, r, "search").RetryAfter, "the lease and the cooldown start again")
		}
		time.Sleep(20 * time.Second)
		ordinary.KeepAlive()
		assert.Equal(t, 40*time.Second, healthOf(t, r, "search").RetryAfter)
		time.Sleep(10 * time.Second)
		events := recordEvents(r)
		probe.KeepAlive()
		assert.Equal(t, StateOpen, healthOf(t, r, "search").State, "too late")
		assert.Equal(t, []string{"half-open>open lease_expired 4"}, events.of("search"), "the call finds the expired lease, and the hook hears of it")
		probe.Release()
		ordinary.Release()
		assert.False(t, r.Available("search"))

		time.Sleep(30 * time.Second)
		settled, err := g.Allow(t.Context(), "search")
		require.NoError(t, err)
		settled.Release()
		settled.KeepAlive()
		assert.Equal(t, StateOpen, healthOf(t, r, "search").State)
	})
}

func TestPermit_ProbeOutcomeMovesBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := &Gate{Registry: r}
		probe := probeOf(t, g, "search")
		r.Record("other", Verdict{}, 0)
		probe.Done(t.Context(), nil)
		h := healthOf(t, r, "search")
		assert.Equal(t, StateClosed, h.State)
		assert.Equal(t, 0, h.ConsecutiveFailures)

		probe = probeOf(t, g, "search")
		probe.Done(t.Context(), errBroken)
		h = healthOf(t, r, "search")
		assert.Equal(t, StateOpen, h.State)
		assert.Equal(t, 30*time.Second, h.RetryAfter)
		assert.Equal(t, 4, h.ConsecutiveFailures)

		// A lost probe succeeds late, after an operator has closed the breaker. A call
		// that was admitted before the reset does not change the lease.
		time.Sleep(30 * time.Second)
		late, err := g.Allow(t.Context(), "search")
		require.NoError(t, err)
		time.Sleep(50 * time.Second)
		r.Reset("search", "")
		late.Done(t.Context(), nil)
		probe = probeOf(t, g, "search")
		assert.Equal(t, 60*time.Second, healthOf(t, r, "search").RetryAfter, "the lease, and the cooldown")
		probe.Release()
	})
}

func TestPermit_SlowSuccessCountsAgainstBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.Breaker.SlowCallDuration = time.Second })
		g := &Gate{Registry: r}
		for _, took := range []time.Duration{time.Second, time.Second + 1} {
			permit, err := g.Allow(t.Context(), "search")
			require.NoError(t, err)
			time.Sleep(took)
			permit.Done(t.Context(), nil)
		}
		h := healthOf(t, r, "search")
		assert.Equal(t, 1, h.ConsecutiveFailures)
		assert.Equal(t, uint64(2), h.Successes)
		permit, err := g.Allow(t.Context(), "search")
		require.NoError(t, err)
		permit.Done(t.Context(), nil)
		assert.Equal(t, 0, healthOf(t, r, "search").ConsecutiveFailures, "a success ends the streak")
	})
}

func TestPermit_ThrottleOfOldEpochHoldsUnlessOperatorSpoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := &Gate{Registry: r}
		a, err := g.Allow(t.Context(), "search")
		require.NoError(t, err)
		b, err := g.Allow(t.Context(), "search")
		require.NoError(t, err)
		failTimes(r, "search", 3)
		time.Sleep(30 * time.Second)
		require.True(t, r.AllowRequest("search"))
		r.RecordSuccess("search", 0)
		asks := Verdict{Outcome: OutcomeThrottled, RetryAfter: time.Minute}
		a.Settle(asks)
		assert.Equal(t, StopRateLimited, healthOf(t, r, "search").Reason)
		r.Reset("search", "")
		b.Settle(asks)
		h := healthOf(t, r, "search")
		assert.True(t, h.Available)
		assert.Equal(t, uint64(2), h.Throttled, "it is counted all the same")
	})
}

func TestGate_TakesNoProbeThatItDoesNotUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := &Gate{Registry: r, Router: routerWith(t, map[string][]string{"a": {"b", "c"}})}
		failTimes(r, "b", 3)
		failTimes(r, "c", 3)
		time.Sleep(30 * time.Second) // a probe of b and of c is due
		failTimes(r, "a", 3)
		permit, err := g.Allow(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, "b", permit.Tool())
		assert.True(t, permit.Probe())
		assert.Equal(t, StateHalfOpen, healthOf(t, r, "b").State)
		assert.Equal(t, StateOpen, healthOf(t, r, "c").State)
		second, err := g.Allow(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, "c", second.Tool())
		_, err = g.Allow(t.Context(), "a")
		var refusal *Refusal
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, "a", refusal.Tool, "the refusal names the tool that the caller asked for")
		assert.Equal(t, StopCircuitOpen, refusal.Reason)
		assert.Equal(t, uint64(3), refusal.InRow)
		assert.Equal(t, uint64(0), healthOf(t, r, "b").Refused, "a substitute that would refuse is not asked")
		permit.Done(t.Context(), nil)
		second.Release()

		third, err := g.Allow(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, "b", third.Tool(), "b has recovered")
		assert.False(t, third.Probe())
		third.Release()

		// The primary gets its own probe first.
		time.Sleep(30 * time.Second)
		primary, err := g.Allow(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, "a", primary.Tool())
		assert.True(t, primary.Probe())
		primary.Release()
		for name, h := range r.All() {
			assert.Equal(t, uint64(0), h.InFlight, name)
		}
	})
}

// Many callers meet one recovering primary: one gets its probe, all others get the
// substitute.
func TestGate_OneCallerProbesOthersAreRerouted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := &Gate{Registry: r, Router: routerWith(t, map[string][]string{"a": {"b"}})}
		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second)
		var probes, rerouted atomic.Int32
		var group sync.WaitGroup
		for range 64 {
			group.Go(func() {
				permit, err := g.Allow(t.Context(), "a")
				if !assert.NoError(t, err) {
					return
				}
				switch {
				case permit.Probe() && permit.Tool() == "a":
					probes.Add(1)
				case permit.Tool() == "b":
					rerouted.Add(1)
					permit.Done(t.Context(), nil)
				}
			})
		}
		group.Wait()
		assert.Equal(t, int32(1), probes.Load())
		assert.Equal(t, int32(63), rerouted.Load())
	})
}

func TestGate_OfferLeavesOutWhatCannotBeCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := &Gate{Registry: r, Router: routerWith(t, map[string][]string{"down": {"up"}, "lost": {"down"}})}
		for _, tool := range []string{"due", "down", "lost"} {
			if tool == "down" {
				time.Sleep(30 * time.Second)
			}
			failTimes(r, tool, 3)
		}
		offer, leaveOut := g.Offer([]string{"up", "lost", "down", "due", "unheard of", ""})
		assert.Equal(t, []string{"up", "down", "due", "unheard of"}, offer)
		assert.Equal(t, []string{"lost", ""}, leaveOut)
		assert.Equal(t, StateOpen, healthOf(t, r, "due").State)
		assert.Equal(t, 3, r.Len())
		offer, leaveOut = g.Offer(nil)
		assert.Nil(t, offer)
		assert.Nil(t, leaveOut)
	})
}

// However many callers ask at once, one of them gets the probe.
func TestGate_ExactlyOneCallerGetsProbe(t *testing.T) {
	rounds := 200
	if testing.Short() || race.Enabled {
		rounds = 30
	}
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := &Gate{Registry: r}
		failTimes(r, "search", 3)
		for range rounds {
			time.Sleep(time.Until(healthOf(t, r, "search").Since.Add(30 * time.Second)))
			var probes, refused atomic.Int32
			var group sync.WaitGroup
			start := make(chan struct{})
			for i := range 50 {
				group.Go(func() {
					<-start
					if i%2 == 0 {
						if r.AllowRequest("search") {
							probes.Add(1)
						} else {
							refused.Add(1)
						}
						return
					}
					permit, err := g.Allow(t.Context(), "search")
					switch {
					case err == nil && permit.Probe():
						probes.Add(1)
					case errors.Is(err, ErrProbeInFlight):
						refused.Add(1)
					}
				})
			}
			close(start)
			group.Wait()
			require.Equal(t, [2]int32{1, 49}, [2]int32{probes.Load(), refused.Load()})
			r.RecordFailure("search", 0)
		}
	})
}

func TestGate_DeadlineFloorIsComparedWithCall(t *testing.T) {
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

// An expired lease is found by the next admission or report. Release and KeepAlive of
// an ordinary permit are neither.
func TestPermit_OrdinaryReleaseAndKeepAliveDoNotExpireLease(t *testing.T) {
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

func TestGate_ClassifierEndingGoroutineSettlesAsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold, c.Breaker.ProbeTimeout = 1, 0 })
		r.RecordFailure("a", 0)
		time.Sleep(30 * time.Second)
		g := &Gate{Registry: r, Classify: func(context.Context, error) Verdict { runtime.Goexit(); return Verdict{} }}
		endsGoroutine(func() {
			permit, err := g.Allow(t.Context(), "a")
			if err != nil {
				return
			}
			defer permit.Release()
			permit.Done(t.Context(), errBroken)
		})
		h := healthOf(t, r, "a")
		assert.Equal(t, StateOpen, h.State, "the probe failed and freed its slot")
		assert.Zero(t, h.InFlight)
		assert.Equal(t, uint64(2), h.Failures)
	})
}

func TestGate_RefusalHookEndingGoroutineReleasesNothing(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *Registry){
		"refused, because a lease has run out": func(ctx context.Context, r *Registry) { _, _ = (&Gate{Registry: r}).Allow(ctx, "a") },
		"by name":                              func(_ context.Context, r *Registry) { r.AllowRequest("a") },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold, c.Breaker.ProbeTimeout = 1, 10*time.Second })
			r.RecordFailure("a", 0)
			time.Sleep(30 * time.Second)
			if name != "by name" {
				r.AllowRequest("a")
				time.Sleep(10 * time.Second)
			}
			defer r.OnTransition(func(Transition) { runtime.Goexit() })()
			endsGoroutine(func() { ask(t.Context(), r); t.Error("the hook has not ended the goroutine") })
			h := healthOf(t, r, "a")
			assert.Zero(t, h.InFlight, name)
			assert.Equal(t, name == "by name", h.ProbeDue, name+": no caller was admitted")
		})
	}
}

// A deadline is no caller that is gone: the model may be told.
func TestModelText_OutOfTimeIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard, err := New(Settings{})
		require.NoError(t, err)
		wait := Wrap(guard, "wait", func(ctx context.Context, _ string) (string, error) { <-ctx.Done(); return "", ctx.Err() })
		for end, want := range map[time.Duration]string{500 * time.Millisecond: "tool call out of time", 2 * time.Second: "tool failed: no answer in time"} {
			ctx, cancel := context.WithTimeout(t.Context(), end)
			_, err = wait.Call(ctx, "")
			cancel()
			text, ok := ModelText(err)
			assert.True(t, ok, end)
			assert.Equal(t, want, text)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = wait.Call(ctx, "")
		text, ok := ModelText(err)
		assert.False(t, ok)
		assert.Empty(t, text)
	})
}

func TestRegistry_ToolWithHalfTheScoreDoesNotFalter(t *testing.T) {
	r := NewRegistry()
	r.RecordSuccess("search", 0)
	failTimes(r, "search", 1)
	stats := &r.table.Get("search").Value.stats
	stats.missing.Store(ewmaOne / 2)
	require.Equal(t, 0.5, stats.read().Score())
	assert.False(t, r.falters("search"))
	stats.missing.Add(ewmaOne / 100)
	assert.True(t, r.falters("search"))
}

func TestRuleSet_RemembersWhatPolicyOfSays(t *testing.T) {
	attempts := 0
	rs := newRuleSet(new(Gate), GuardConfig{PolicyOf: func(_ string, p Policy) Policy { p.MaxAttempts = attempts; return p }})
	of := func(n int) *policy {
		attempts = n
		p, err := rs.of("a")
		require.NoError(t, err)
		return p
	}
	assert.Same(t, rs.usual, of(0))
	var known []*policy
	for n := range maxAsked {
		known = append(known, of(n+1))
	}
	for n, p := range known {
		assert.Same(t, p, of(n+1))
	}
	assert.NotSame(t, of(maxAsked+1), of(maxAsked+1), "one too many")
}

func TestModelText_SentinelIsItsOwnText(t *testing.T) {
	for _, sentinel := range []error{ErrUnknownTool, ErrCircuitOpen, fmt.Errorf("agent: %w", ErrIsolated)} {
		text, ok := ModelText(sentinel)
		assert.True(t, ok)
		assert.Equal(t, strings.TrimPrefix(sentinel.Error(), "agent: "), text)
	}
}
