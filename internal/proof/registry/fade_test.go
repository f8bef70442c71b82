package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestRegistry_InventedNamesThatFailOnceFade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		for i := range toolhealth.DefaultMaxTools {
			name := fmt.Sprint("invented", i)
			require.True(t, r.AllowRequest(name))
			r.RecordFailure(name, 0)
		}
		fails := func() bool {
			failTimes(r, "new", 3)
			return !r.Available("new")
		}
		time.Sleep(10*time.Minute - 1)
		assert.False(t, fails(), "untracked: it has no breaker")
		time.Sleep(time.Nanosecond)
		assert.True(t, fails())
		for i := range 500 {
			r.AllowRequest(fmt.Sprint("other", i))
		}
		assert.Equal(t, toolhealth.DefaultMaxTools, r.Len())
		assert.False(t, r.Available("new"), "an open breaker is kept")
	})
}

func TestRegistry_WhatIsKnownFadesUnlessItIsInUse(t *testing.T) {
	type story struct {
		name  string
		tell  func(t *testing.T, r *toolhealth.Registry, g *toolhealth.Gate)
		fades time.Duration // after the last event; negative means never
	}
	fail := func(n int) func(*testing.T, *toolhealth.Registry, *toolhealth.Gate) {
		return func(_ *testing.T, r *toolhealth.Registry, _ *toolhealth.Gate) { failTimes(r, "old", n) }
	}
	for _, s := range []story{
		{"streak", fail(1), time.Minute},
		{"open", fail(3), time.Minute + 30*time.Second},
		{"throttled", func(_ *testing.T, r *toolhealth.Registry, _ *toolhealth.Gate) {
			r.Record("old", toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, RetryAfter: 20 * time.Second}, 0)
		}, 20 * time.Second}, // then it holds nothing against the tool
		{"throttled with a streak", func(_ *testing.T, r *toolhealth.Registry, _ *toolhealth.Gate) {
			r.Record("old", toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, RetryAfter: 20 * time.Second}, 0)
		}, time.Minute + 20*time.Second},
		{"asked while open", func(_ *testing.T, r *toolhealth.Registry, _ *toolhealth.Gate) {
			failTimes(r, "old", 3)
			time.Sleep(29 * time.Second)
			r.AllowRequest("old")
		}, time.Minute + time.Second},
		{"asked with a due probe", func(_ *testing.T, r *toolhealth.Registry, g *toolhealth.Gate) {
			failTimes(r, "old", 3)
			time.Sleep(30 * time.Second)
			permit, err := g.Allow(t.Context(), "old")
			require.NoError(t, err)
			permit.Release()
		}, time.Minute},
		{"probe lost by name", func(_ *testing.T, r *toolhealth.Registry, _ *toolhealth.Gate) {
			failTimes(r, "old", 3)
			time.Sleep(30 * time.Second)
			r.AllowRequest("old") // lease and cooldown of 30s each
		}, 2 * time.Minute},
		{"isolated", func(_ *testing.T, r *toolhealth.Registry, _ *toolhealth.Gate) { r.Isolate("old", "") }, -1},
		{"registered", func(t *testing.T, r *toolhealth.Registry, _ *toolhealth.Gate) {
			failTimes(r, "old", 1)
			require.NoError(t, r.Register("old", toolhealth.ToolOptions{}))
		}, -1},
		{"permit out", func(t *testing.T, r *toolhealth.Registry, g *toolhealth.Gate) {
			_, err := g.Allow(t.Context(), "old")
			require.NoError(t, err)
			failTimes(r, "old", 1)
		}, -1},
	} {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := registryWith(t, func(c *toolhealth.Config) { c.MaxTools, c.Breaker.MaxOpenDuration = 1, time.Minute })
				s.tell(t, r, &toolhealth.Gate{Registry: r})
				tracked := func() bool { r.AllowRequest("new"); return slices.Equal(namesOf(r), []string{"new"}) }
				if s.fades < 0 {
					time.Sleep(1000 * time.Hour)
					assert.False(t, tracked())
					return
				}
				time.Sleep(s.fades - 1)
				assert.False(t, tracked())
				time.Sleep(time.Nanosecond)
				assert.True(t, tracked())
			})
		})
	}
}

func TestRegistry_AskingKeepsStreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *toolhealth.Config) { c.MaxTools, c.Breaker.MaxOpenDuration = 1, time.Minute })
		g := &toolhealth.Gate{Registry: r}
		for _, ask := range []func(){
			func() { r.AllowRequest("old") },
			func() {
				permit, err := g.Allow(t.Context(), "old")
				require.NoError(t, err)
				permit.Release()
			},
		} {
			r.RecordFailure("old", 0)
			time.Sleep(59 * time.Second)
			ask()
			time.Sleep(59 * time.Second)
			r.AllowRequest("new")
			assert.Equal(t, []string{"old"}, namesOf(r))
			time.Sleep(time.Minute)
			r.AllowRequest("new")
			assert.Equal(t, []string{"new"}, namesOf(r))
			r.Remove("new")
		}
	})
}

// The probe is lost, and without a lease only Patience ends the wait for it.
func TestRegistry_AskingKeepsProbeWithoutLease(t *testing.T) {
	for name, ask := range map[string]func(*toolhealth.Registry){
		"by name": func(r *toolhealth.Registry) { assert.False(t, r.AllowRequest("old")) },
		"for a permit": func(r *toolhealth.Registry) {
			_, err := (&toolhealth.Gate{Registry: r}).Allow(t.Context(), "old")
			assert.ErrorIs(t, err, toolhealth.ErrProbeInFlight)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := registryWith(t, func(c *toolhealth.Config) {
				c.MaxTools, c.Breaker.MaxOpenDuration, c.Breaker.ProbeTimeout = 1, time.Minute, toolhealth.Off
			})
			failTimes(r, "old", 3)
			time.Sleep(30 * time.Second)
			require.True(t, r.AllowRequest("old"))
			for range 3 {
				time.Sleep(59 * time.Second)
				ask(r)
			}
			time.Sleep(59 * time.Second)
			r.AllowRequest("new")
			assert.Equal(t, []string{"old"}, namesOf(r), name)
			time.Sleep(time.Second)
			r.AllowRequest("new")
			assert.Equal(t, []string{"new"}, namesOf(r), name)
		})
	}
}

func TestRegistry_EvictionSparesWhatGuardKeeps(t *testing.T) {
	policy := func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts, c.Default.RetryBudget = 2, 2 }
	again := toolhealth.WithVerdict(errors.New("again"), toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Retryable: true, RetryAfter: 20 * time.Second})
	full := func(t *testing.T) *toolhealth.Registry {
		return registryWith(t, func(c *toolhealth.Config) { c.MaxTools, c.Breaker.MaxStatedWait = 1, toolhealth.Off })
	}
	ask := func(r *toolhealth.Registry) []string { r.AllowRequest("new"); r.AllowRequest("new"); return namesOf(r) }
	t.Run("a waiting call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := full(t)
			runs := 0
			go func() {
				_, _ = toolhealth.Call(t.Context(), guardOn(t, r, policy), "old", func(context.Context, string) (int, error) {
					if runs++; runs == 1 {
						return 0, again
					}
					return 1, nil
				})
			}()
			time.Sleep(10 * time.Second)
			assert.Equal(t, []string{"old"}, ask(r))
			time.Sleep(time.Hour)
			assert.Equal(t, uint64(1), healthOf(t, r, "old").Guard.Calls)
		})
	})
	t.Run("a budget that is not full", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := full(t)
			time.Sleep(time.Hour)
			g := guardOn(t, r, policy)
			_, err := toolhealth.Call(t.Context(), g, "old", func(context.Context, string) (int, error) {
				return 0, toolhealth.WithVerdict(errors.New("again"), toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout, Retryable: true})
			})
			require.Error(t, err)
			r.RecordSuccess("old", 0) // nothing but the budget is left
			time.Sleep(9 * time.Minute)
			assert.Equal(t, []string{"old"}, ask(r))
			r.AllowRequest("old") // and is no retry
			time.Sleep(time.Minute)
			assert.Equal(t, []string{"new"}, ask(r))
		})
	})
	t.Run("a detached attempt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := full(t)
			g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
				c.Default = toolhealth.Policy{MaxAttempts: 1, Timeout: time.Second, Detach: true}
			})
			_, err := toolhealth.Call(t.Context(), g, "old", func(context.Context, string) (int, error) { time.Sleep(2 * time.Hour); return 0, nil })
			require.Error(t, err)
			time.Sleep(time.Hour)
			assert.Equal(t, []string{"old"}, ask(r))
			assert.Equal(t, int64(1), healthOf(t, r, "old").Guard.Abandoned)
			time.Sleep(2 * time.Hour)
			assert.Equal(t, []string{"new"}, ask(r))
		})
	})
}
