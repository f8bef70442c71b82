package linear

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// The breaker of a group, under the calls of three tools whose own breakers never refuse.
// (Where they do, an admission has two effects, one after the other: while a call that is
// about to lose at its tool has the group's probe, others are refused because of it.
// TestExplore_ToolsOfOneGroupShareNoProbeAndLoseNone is about that.)

var grouped = [3]string{"a", "b", "c"}

func groupConfig(threshold int) toolhealth.Config {
	return toolhealth.Config{
		Breaker:      toolhealth.BreakerConfig{FailureThreshold: toolhealth.Off, MaxStatedWait: toolhealth.Off},
		Group:        func(string) string { return "server" },
		GroupBreaker: registryConfig(threshold).Breaker,
	}
}

// recordGroup makes one history.
func recordGroup(seed uint64) *recorder {
	c := &recorder{start: time.Now()}
	var err error
	if c.r, err = toolhealth.NewRegistryWithConfig(groupConfig(config.Threshold)); err != nil {
		panic(err)
	}
	c.gate = &toolhealth.Gate{Registry: c.r}
	for _, name := range grouped {
		if err := c.r.Register(name, toolhealth.ToolOptions{}); err != nil {
			panic(err)
		}
	}
	c.play(seed, c.callInGroup, func() { c.lookAtGroup(goroutines) })
	return c
}

// lookAtGroup reads the health of the group.
func (c *recorder) lookAtGroup(client int) {
	c.do(client, input{what: "health"}, func() output {
		h := c.r.HealthSummary().Groups[0]
		return output{seen: seen{
			h.State.String(), h.Reason.Detail(), h.LastFailure.String(), h.RetryAfter, h.Since.Sub(c.start), c.after(h.DownSince),
			h.ConsecutiveFailures, int(h.Epoch), int(h.Trips), false, false, // no hints
		}}
	})
}

// callInGroup makes one random call of one tool, or of an operator.
func (c *recorder) callInGroup(g int, hand *[]held, random *rand.Rand) {
	tool := random.IntN(len(grouped))
	name := grouped[tool]
	v := []toolhealth.Verdict{
		{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout},
		{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout},
		{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout, NotSent: true}, // counts each time
		{},
		{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest},
		{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindUnknown},
	}[random.IntN(6)]
	in := input{source: tool + 1, outcome: v.Outcome.String(), once: v.Kind == toolhealth.KindTimeout && !v.NotSent}
	if v.Outcome == toolhealth.OutcomeRejected {
		in.outcome = "success" // the server has answered
	}
	if len(*hand) > 0 && random.IntN(2) == 0 {
		h := (*hand)[0]
		*hand = slices.Delete(*hand, 0, 1)
		in.source, in.permit, in.took = h.tool+1, h.number, time.Since(c.start)-h.since
		switch in.what = []string{"settle", "settle", "settle", "release"}[random.IntN(4)]; in.what {
		case "settle":
			c.do(g, in, func() output { h.permit.Settle(v); return output{} })
		default:
			c.do(g, in, func() output { h.permit.Release(); return output{} })
		}
		return
	}
	switch random.IntN(16) {
	case 0:
		in.what = "reset"
		c.do(g, in, func() output { c.r.ResetGroup("server", ""); return output{} })
	case 1:
		in.what = "isolate"
		c.do(g, in, func() output { c.r.IsolateGroup("server", ""); return output{} })
	case 2:
		c.lookAtGroup(g)
	case 3, 4:
		in.what = "available"
		c.do(g, in, func() output { return output{ok: c.r.Available(name)} })
	case 5, 6:
		in.what = "ask"
		c.do(g, in, func() output { return output{ok: c.r.AllowRequest(name)} })
	case 7, 8, 9, 10:
		in.what, in.took = "record", time.Second
		c.do(g, in, func() output { c.r.Record(name, v, time.Second); return output{} })
	default:
		c.allow(g, in, hand, tool, name)
	}
}

func TestRegistry_RecordedHistoriesOfGroupAreLinearizable(t *testing.T) {
	right := breakerModel(step)
	n, overlapping, probes := histories(t)/2, 0, 0
	for seed := range n {
		var c *recorder
		synctest.Test(t, func(*testing.T) { c = recordGroup(uint64(seed)) })
		if !porcupine.CheckOperations(right, c.calls) {
			t.Fatalf("seed %d has no order:\n%s", seed, describe(c.calls))
		}
		overlapping += overlaps(c.calls)
		for _, o := range c.calls {
			if o.Output.(output).probe {
				probes++
			}
		}
	}
	require.Positive(t, overlapping, "no calls overlapped")
	require.Positive(t, probes, "no probe was admitted")
	t.Logf("%d histories, %d overlapping calls, %d probes", n, overlapping, probes)
}

func TestChecker_RejectsHistoriesOfGroupForAnotherModel(t *testing.T) {
	for name, wrong := range map[string]func(breakerState, input, output) (bool, breakerState){
		"each time-out counts": func(s breakerState, in input, out output) (bool, breakerState) {
			in.once = false
			return step(s, in, out)
		},
		"by name any tool decides": func(s breakerState, in input, out output) (bool, breakerState) {
			if in.what == "record" {
				s.b.Tick(in.now)
				in.source = max(s.b.Prober, 1)
			}
			return step(s, in, out)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range 500 {
				var c *recorder
				synctest.Test(t, func(*testing.T) { c = recordGroup(uint64(seed)) })
				if !porcupine.CheckOperations(breakerModel(wrong), c.calls) {
					return
				}
			}
			t.Fatal("500 histories fit it as well")
		})
	}
}
