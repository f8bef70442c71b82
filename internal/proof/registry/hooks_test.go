package registry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestRegistry_HookTimeIsNotTheTools(t *testing.T) {
	for name, call := range map[string]func(*testing.T, *toolhealth.Registry){
		"gate": func(t *testing.T, r *toolhealth.Registry) {
			permit, err := (&toolhealth.Gate{Registry: r}).Allow(t.Context(), "search")
			require.NoError(t, err)
			permit.Done(t.Context(), nil)
		},
		"substitute": func(t *testing.T, r *toolhealth.Registry) {
			r.Isolate("primary", "")
			g := &toolhealth.Gate{Registry: r, Router: routerWith(t, map[string][]string{"primary": {"search"}})}
			permit, err := g.Allow(t.Context(), "primary")
			require.NoError(t, err)
			require.Equal(t, "search", permit.Tool())
			permit.Done(t.Context(), nil)
		},
		"guard": func(t *testing.T, r *toolhealth.Registry) {
			_, err := toolhealth.Call(t.Context(), guardOn(t, r, nil), "search", func(context.Context, string) (int, error) { return 1, nil })
			require.NoError(t, err)
		},
		"by name": func(t *testing.T, r *toolhealth.Registry) {
			require.True(t, r.AllowRequest("search"))
			time.Sleep(1500 * time.Millisecond) // within its lease
			r.RecordSuccess("search", time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := registryWith(t, func(c *toolhealth.Config) {
					c.Breaker.SlowCallDuration, c.Breaker.ProbeTimeout = time.Second, 2*time.Second
				})
				r.OnTransition(func(tr toolhealth.Transition) {
					if tr.Cause == toolhealth.CauseProbeAdmitted {
						assert.Equal(t, 32*time.Second, tr.Wait, "lease and cooldown")
						assert.Equal(t, 32*time.Second, healthOf(t, r, "search").RetryAfter)
						time.Sleep(5 * time.Second)
					}
				})
				for range 20 {
					failTimes(r, "search", 3)
					time.Sleep(30 * time.Second)
					call(t, r)
					require.Equal(t, toolhealth.StateClosed, healthOf(t, r, "search").State)
				}
			})
		})
	}
}

func TestRegistry_HookTimeOfPrimaryIsNotTheSubstitutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second)
		require.True(t, r.AllowRequest("a")) // and is lost
		time.Sleep(30 * time.Second)
		r.OnTransition(func(toolhealth.Transition) { time.Sleep(5 * time.Second) })
		g := &toolhealth.Gate{Registry: r, Router: routerWith(t, map[string][]string{"a": {"b"}})}
		permit, err := g.Allow(t.Context(), "a")
		require.NoError(t, err)
		permit.Done(t.Context(), nil)
		assert.Zero(t, healthOf(t, r, "b").Max)
	})
}

func TestRegistry_SubstituteThatIsDueAfterHooksOfPrimaryIsAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second)
		require.True(t, r.AllowRequest("a")) // and is lost
		time.Sleep(3 * time.Second)
		failTimes(r, "b", 3)
		time.Sleep(27 * time.Second)
		r.OnTransition(func(toolhealth.Transition) { time.Sleep(5 * time.Second) })
		g := &toolhealth.Gate{Registry: r, Router: routerWith(t, map[string][]string{"a": {"b"}})}
		permit, err := g.Allow(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, "b", permit.Tool())
		assert.True(t, permit.Probe())
		permit.Release()
	})
}

func TestRegistry_HookThatHangsLosesItsProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		failTimes(r, "search", 3)
		time.Sleep(30 * time.Second)
		over := make(chan struct{})
		stop := r.OnTransition(func(toolhealth.Transition) { <-over })
		defer stop()
		defer close(over)
		go r.AllowRequest("search")
		synctest.Wait()
		assert.Equal(t, toolhealth.StopProbeInFlight, healthOf(t, r, "search").Reason)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, toolhealth.StateOpen, healthOf(t, r, "search").State)
		time.Sleep(30 * time.Second)
		assert.True(t, r.Available("search"))
	})
}

func TestRegistry_HookThatHangsKeepsBoundedTransitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		over := make(chan struct{})
		var epochs []uint64
		r.OnTransition(func(tr toolhealth.Transition) { <-over; epochs = append(epochs, tr.Epoch) })
		go r.Isolate("search", "")
		synctest.Wait()
		for range 5000 {
			r.Reset("search", "")
		}
		close(over)
		synctest.Wait()
		dropped := r.HealthSummary().HookDropped
		assert.Equal(t, uint64(5000-1024), dropped)
		require.Len(t, epochs, 1025)
		assert.Equal(t, []uint64{2, 2 + dropped + 1, 5002}, []uint64{epochs[0], epochs[1], epochs[1024]}, "the epochs jump")
	})
}

func TestRegistry_SetConfigBringsLeaseToLostProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.ProbeTimeout = 0 })
		failTimes(r, "search", 3)
		time.Sleep(30 * time.Second)
		require.True(t, r.AllowRequest("search")) // and is lost
		time.Sleep(time.Hour)
		require.False(t, r.AllowRequest("search"))
		require.NoError(t, r.SetConfig(toolhealth.DefaultConfig()))
		time.Sleep(time.Minute - 1)
		assert.False(t, r.Available("search"))
		time.Sleep(time.Nanosecond)
		assert.True(t, r.AllowRequest("search"), "a lease and a cooldown later")
	})
}
