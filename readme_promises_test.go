package toolhealth_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// Promises of the README that no other test is about.

func TestNothingIsRequiredOfANilOrZeroValue(t *testing.T) {
	ctx := context.Background()
	failing := errors.New("failing")
	registries := map[string]*toolhealth.Registry{"nil": nil, "zero": new(toolhealth.Registry)}
	for name, r := range registries {
		t.Run(name+" registry", func(t *testing.T) {
			for range 5 {
				assert.True(t, r.AllowRequest("search"))
				r.RecordFailure("search", time.Second)
				r.RecordSuccess("search", time.Second)
			}
			assert.True(t, r.Available("search"))
			assert.Zero(t, r.Len())
			assert.Empty(t, r.HealthSummary().Tools)
			_, known := r.Health("search")
			assert.False(t, known)
			assert.False(t, r.Isolate("search"))
			assert.False(t, r.Reset("search"))
			assert.False(t, r.Remove("search"))
			for range r.All() {
				t.Error("a tool")
			}
			r.OnTransition(func(toolhealth.Transition) { t.Error("a transition") })()
		})
	}
	for name, g := range map[string]*toolhealth.Gate{
		"nil": nil, "zero": new(toolhealth.Gate), "of a zero registry": {Registry: registries["zero"]},
	} {
		t.Run(name+" gate", func(t *testing.T) {
			for range 5 {
				permit, err := g.Allow(ctx, "search")
				require.NoError(t, err)
				assert.Equal(t, "search", permit.Tool())
				assert.False(t, permit.Tracked())
				permit.KeepAlive()
				permit.Done(ctx, failing)
				permit.Release()
			}
			offer, leaveOut := g.Offer([]string{"search"})
			assert.Equal(t, []string{"search"}, offer)
			assert.Empty(t, leaveOut)
		})
	}
	for name, g := range map[string]*toolhealth.Guard{"nil": nil, "zero": new(toolhealth.Guard)} {
		t.Run(name+" guard", func(t *testing.T) {
			for range 5 {
				runs := 0
				_, err := toolhealth.Call(ctx, g, "search", func(context.Context, string) (string, error) {
					runs++
					return "", failing
				})
				require.ErrorIs(t, err, failing)
				assert.Equal(t, 1, runs)
			}
		})
	}
	t.Run("zero permit", func(t *testing.T) {
		var permit toolhealth.Permit
		permit.Done(ctx, failing)
		permit.Settle(toolhealth.Verdict{})
		permit.Release()
		permit.KeepAlive()
		assert.Empty(t, permit.Tool())
	})
}

func TestADoneContextTakesNoProbeAndCountsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		gate := &toolhealth.Gate{Registry: r}
		for range 3 {
			r.RecordFailure("search", time.Second)
		}
		time.Sleep(30 * time.Second)
		before, _ := r.Health("search")
		require.True(t, before.ProbeDue)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := gate.Allow(ctx, "search")
		require.ErrorIs(t, err, context.Canceled)
		_, err = gate.Allow(ctx, "never seen")
		require.ErrorIs(t, err, context.Canceled)

		after, _ := r.Health("search")
		assert.Equal(t, before, after)
		assert.Equal(t, 1, r.Len())
		assert.True(t, r.AllowRequest("search"), "the probe is still to be had")
	})
}

func TestATextOfAnErrorGoesNowhere(t *testing.T) {
	const secret = "sk-12345 at db.internal"
	ctx := context.Background()
	r := toolhealth.NewRegistry()
	gate := &toolhealth.Gate{Registry: r}
	for range 3 {
		permit, err := gate.Allow(ctx, "search")
		require.NoError(t, err)
		permit.Done(ctx, errors.New("invalid key "+secret))
	}
	_, refusal := gate.Allow(ctx, "search")
	require.Error(t, refusal)

	guard, err := toolhealth.NewGuard(&toolhealth.Gate{Registry: toolhealth.NewRegistry()}, toolhealth.DefaultGuardConfig())
	require.NoError(t, err)
	_, failed := toolhealth.Call(ctx, guard, "search", func(context.Context, string) (string, error) {
		panic(secret)
	})
	require.Error(t, failed)

	for name, v := range map[string]any{"summary": r.HealthSummary(), "refusal": refusal, "tool error": failed} {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		assert.Greater(t, len(text), 50, name) // there is something that it could be in
		for _, part := range []string{"sk-12345", "db.internal"} {
			assert.NotContains(t, string(text), part, name)
		}
	}
	assert.NotContains(t, refusal.Error()+failed.Error(), "12345")
}

func TestNamesAreTakenByteForByte(t *testing.T) {
	r := toolhealth.NewRegistry()
	for _, name := range []string{"search", "Search", " search", "search ", strings.Repeat("x", 100_000), "\xff", "a\x00b"} {
		for range 3 {
			require.True(t, r.AllowRequest(name))
			r.RecordFailure(name, time.Second)
		}
		assert.False(t, r.AllowRequest(name))
	}
	assert.Equal(t, 7, r.Len())
	assert.False(t, r.AllowRequest(""), "the empty name is refused")
	assert.Equal(t, 7, r.Len())
}

// N replicas: N times the threshold in failures, and up to N probes a cooldown.
func TestReplicasKnowNothingOfEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := []*toolhealth.Registry{toolhealth.NewRegistry(), toolhealth.NewRegistry(), toolhealth.NewRegistry()}
		failures, probes := 0, 0
		for second := range 61 {
			for i := range replicas {
				r := replicas[i]
				if !r.AllowRequest("search") {
					continue
				}
				r.RecordFailure("search", 0)
				if second < 3 {
					failures++
				} else {
					probes++
				}
			}
			time.Sleep(time.Second)
		}
		assert.Equal(t, 9, failures)
		assert.Equal(t, 3, probes, "one of each in the one cooldown that ended")
	})
}
