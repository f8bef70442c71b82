package guard_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// Resolve, Offer, Gate and Guard choose the same tool in every state of four tools.
func TestGate_ChoosesAsResolveOfferAndGuardDo(t *testing.T) {
	histories := 300
	if testing.Short() {
		histories = 60
	}
	served := map[string]int{}
	for seed := range histories {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 12))
			r := toolhealth.NewRegistry()
			router, err := toolhealth.NewHealthRouter(map[string][]string{"a": {"b", "c", "d"}})
			require.NoError(t, err)
			gate := &toolhealth.Gate{Registry: r, Router: router}
			g := guardOverGate(t, gate, nil)
			for range 60 {
				happen(r, []string{"a", "b", "c", "d"}[rng.IntN(4)], rng)
				want, available := router.Resolve("a", r)
				offer, _ := gate.Offer([]string{"a"})
				require.Equal(t, available, len(offer) == 1, "seed %d", seed)
				if rng.IntN(2) == 0 {
					permit, err := gate.Allow(t.Context(), "a")
					require.Equal(t, available, err == nil, "seed %d", seed)
					if err == nil {
						require.Equal(t, want, permit.Tool(), "seed %d", seed)
						served[want]++
						permit.Release()
					}
					continue
				}
				ctx, info := toolhealth.WithCallInfo(t.Context())
				_, err := toolhealth.Call(ctx, g, "a", plays().Run)
				require.Equal(t, available, err == nil, "seed %d", seed)
				if err == nil {
					require.Equal(t, want, info.Served, "seed %d", seed)
					served[want]++
				}
			}
		})
	}
	for _, tool := range []string{"a", "b", "c", "d"} {
		assert.NotZero(t, served[tool], "%s never served", tool)
	}
}

// happen lets something happen to a tool.
func happen(r *toolhealth.Registry, tool string, rng *rand.Rand) {
	switch rng.IntN(12) {
	case 0:
		r.Isolate(tool, "")
	case 1:
		r.Reset(tool, "")
	case 2:
		r.Record(tool, throttledVerdict(time.Duration(rng.IntN(60))*time.Second), 0)
	case 3:
		time.Sleep(time.Duration(rng.IntN(40)) * time.Second)
	case 4, 5:
		r.RecordSuccess(tool, 0)
	default:
		r.RecordFailure(tool, 0)
	}
}

func throttledVerdict(wait time.Duration) toolhealth.Verdict {
	return toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, RetryAfter: wait}
}

// A substitute that falters comes after the others, in the order of the list, and comes
// back with its first success.
func TestGuard_FalteringSubstitutesComeLast(t *testing.T) {
	r := toolhealth.NewRegistry()
	g := guardWithBackups(t, r, nil, "b", "c", "d")
	router, err := toolhealth.NewHealthRouter(map[string][]string{"a": {"b", "c", "d"}})
	require.NoError(t, err)
	r.Isolate("a", "")
	order := func() []string {
		tool := failing(statusErr(422)) // counts against none of them
		_, err := toolhealth.Call(t.Context(), g, "a", tool.Run)
		require.Error(t, err)
		first, _ := router.Resolve("a", r)
		require.Equal(t, tool.Names[0], first)
		return tool.Names
	}
	assert.Equal(t, []string{"b", "c", "d"}, order())
	failTimes(r, "b", 2)
	failTimes(r, "c", 2)
	first, _ := router.Resolve("a", r)
	assert.Equal(t, "d", first)
	tool := failing(statusErr(422))
	_, err = toolhealth.Call(t.Context(), g, "a", tool.Run)
	require.Error(t, err)
	assert.Equal(t, []string{"d", "b", "c"}, tool.Names)
	assert.Equal(t, []string{"b", "c", "d"}, order(), "a rejection ends the streak")
	failTimes(r, "b", 1)
	failTimes(r, "b", 1)
	r.RecordSuccess("b", 0)
	assert.Equal(t, []string{"b", "c", "d"}, order(), "and so does a success, whatever the score is")
}
