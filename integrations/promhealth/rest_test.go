package promhealth_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/promhealth"
)

// The tool that is not well has a name, then those that are called most; no call is lost.
func TestCollector_CapKeepsEveryTotal(t *testing.T) {
	r := toolhealth.NewRegistry()
	p := register(t, r, promhealth.Options{MaxTools: 5})
	for i := range 50 {
		for range 10 + i/46*90 {
			r.RecordSuccess(fmt.Sprint("tool-", i), time.Second)
		}
	}
	fail(r, "tool-45", toolhealth.KindTimeout, 3)
	series := gather(t, p)
	assert.Equal(t, map[string]float64{
		`trips_total{tool="tool-45"}`: 1, `trips_total{tool="tool-46"}`: 0, `trips_total{tool="tool-47"}`: 0,
		`trips_total{tool="tool-48"}`: 0, `trips_total{tool="tool-49"}`: 0, `trips_total{tool="_other"}`: 0,
	}, values(series, "trips_total"))
	assert.Len(t, values(series, "tool_state{"), 3*5, "there is no state of many tools")
	for _, prefix := range []string{`calls_total{outcome="success"`, `call_duration_seconds{outcome="success"`} {
		total := 0.0
		for _, n := range values(series, prefix) {
			total += n
		}
		assert.Equal(t, 46*10+4*100.0, total, prefix)
	}
	assert.Equal(t, 450.0, series[`toolhealth_call_duration_seconds{outcome="success",tool="_other"}`].GetHistogram().GetSampleSum())
	assert.Equal(t, 50.0, value(series["toolhealth_tools"]))
}

func TestCollector_NoBoundWithOff(t *testing.T) {
	r := toolhealth.NewRegistry()
	p := register(t, r, promhealth.Options{MaxTools: toolhealth.Off})
	for i := range 1500 {
		r.RecordSuccess(fmt.Sprint(i), 0)
	}
	assert.Len(t, values(gather(t, p), "trips_total"), 1500)
	p = register(t, r, promhealth.Options{})
	assert.Len(t, values(gather(t, p), "trips_total"), 1001)
}

// Tools that are called about as much do not take turns: each turn would be a new series.
func TestCollector_NamesStay(t *testing.T) {
	r := toolhealth.NewRegistry()
	p := register(t, r, promhealth.Options{MaxTools: 3})
	calls := func(tool string, n int) {
		for range n {
			r.RecordSuccess(tool, 0)
		}
	}
	for i := 3; i < 6; i++ {
		calls(fmt.Sprint(i), 100)
	}
	require.Len(t, values(gather(t, p), "tool_score_ratio"), 3)
	for i := range 3 {
		calls(fmt.Sprint(i), 110)
	}
	before := values(gather(t, p), "tool_score_ratio")
	for i := range 6 {
		calls(fmt.Sprint(i), i)
		assert.Equal(t, before, values(gather(t, p), "tool_score_ratio"))
	}
	assert.Contains(t, before, `tool_score_ratio{tool="3"}`)
	calls("1", 200)
	assert.Contains(t, values(gather(t, p), "tool_score_ratio"), `tool_score_ratio{tool="1"}`)
}

// Whatever tools do, go and come back, Prometheus sees no counter go back but that of a
// tool that was removed, and the increases that it sees are never more than there were.
func TestCollector_OtherNeverGoesBack(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for seed := range rounds {
		rnd := rand.New(rand.NewPCG(uint64(seed), 1))
		r := toolhealth.NewRegistry()
		p := register(t, r, promhealth.Options{MaxTools: 3})
		last := map[string]float64{}
		done := 0.0
		var seen float64
		for range 60 {
			removed := map[string]bool{}
			for range rnd.IntN(40) {
				tool := fmt.Sprint("t", rnd.IntN(12))
				switch rnd.IntN(20) {
				case 0:
					removed[tool] = r.Remove(tool) || removed[tool]
				case 1:
					fail(r, tool, toolhealth.KindTimeout, 3)
				case 2:
					r.Reset(tool, "")
				default:
					r.RecordSuccess(tool, time.Duration(rnd.IntN(1e9)))
					done++
				}
			}
			now := counters(gather(t, p))
			for name, n := range now {
				_, label, _ := strings.Cut(name, `tool="`)
				label, _, _ = strings.Cut(label, `"`)
				before, was := last[name]
				if n < before {
					require.True(t, removed[label], "%s went from %v to %v", name, before, n)
				}
				if strings.HasPrefix(name, `calls_total{outcome="success"`) && was {
					seen += n - min(before, n)
				}
			}
			last = now
		}
		require.LessOrEqual(t, seen, done, "seed %d", seed)
		require.Greater(t, seen, done/2, "seed %d", seed)
	}
}

// What moved while a tool had no name of its own is counted once.
func TestCollector_TransitionsOfOtherAreCountedOnce(t *testing.T) {
	r := toolhealth.NewRegistry()
	p := register(t, r, promhealth.Options{MaxTools: 1})
	moves := func() map[string]float64 {
		return values(gather(t, p), `transitions_total{cause="isolated"`)
	}
	const name = `transitions_total{cause="isolated",from="closed",to="open",tool="`
	r.Isolate("a", "")
	assert.Equal(t, map[string]float64{name + `a"}`: 1}, moves())
	for range 10 {
		r.RecordSuccess("b", 0)
	}
	r.Isolate("b", "") // has more calls
	assert.Equal(t, map[string]float64{name + `b"}`: 1, name + `_other"}`: 1}, moves())
	r.Reset("b", "")
	assert.Equal(t, map[string]float64{name + `_other"}`: 2}, moves(), "a has the name, and nothing new to tell")
	r.Reset("a", "")
	r.Isolate("a", "")
	assert.Equal(t, map[string]float64{name + `a"}`: 1, name + `_other"}`: 2}, moves())
	r.Remove("a")
	assert.Equal(t, map[string]float64{name + `_other"}`: 3}, moves())
}
