package soak_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/internal/race"
)

// history is one random story of a registry, checked after every step. It keeps a
// record of its steps for the message of a failure.
type history struct {
	random   *rand.Rand
	start    time.Time
	config   toolhealth.Config
	r        *toolhealth.Registry
	g        *toolhealth.Gate
	permits  []heldPermit
	refused  map[string]uint64 // refusals in a row, by tool
	last     map[string]toolhealth.Transition
	ended    map[string]int // number of the tool's entry; grows while the tool has none
	steps    []string
	problems []string
	most     int // largest allowed number of entries; more than the bound after that was lowered
}

// heldPermit is a permit that is not settled yet.
type heldPermit struct {
	*toolhealth.Permit
	epoch uint64 // epoch of the tool at the admission
	entry int    // number of the tool's entry at the admission, from ended
}

var historyTools = []string{"a", "b", "c", "d"}

func newHistory(random *rand.Rand) (*history, error) {
	h := &history{
		random: random, start: time.Now(),
		refused: map[string]uint64{}, last: map[string]toolhealth.Transition{}, ended: map[string]int{},
	}
	h.config = h.randomConfig()
	var err error
	if h.r, err = toolhealth.NewRegistryWithConfig(h.config); err != nil {
		return nil, err
	}
	h.most = boundOf(h.r)
	h.g = &toolhealth.Gate{Registry: h.r}
	if random.IntN(2) == 0 {
		if h.g.Router, err = toolhealth.NewHealthRouter(map[string][]string{"a": {"b", "c"}, "b": {"a"}}); err != nil {
			return nil, err
		}
	}
	h.r.OnTransition(h.transition)
	return h, nil
}

func (h *history) randomConfig() toolhealth.Config {
	pick := func(d ...time.Duration) time.Duration { return d[h.random.IntN(len(d))] * time.Second }
	b := toolhealth.BreakerConfig{
		FailureThreshold: 1 + h.random.IntN(4),
		RecoveryDuration: pick(1, 10, 30),
		ProbeTimeout:     pick(0, 1, 20),
		MaxOpenDuration:  pick(0, 30, 100),
		MaxStatedWait:    pick(0, 0, 15),
		RecoveryGrowth:   []float64{0, 1, 2}[h.random.IntN(3)],
		RecoveryJitter:   []float64{0, 0, 0.5}[h.random.IntN(3)],
		ProbeSuccesses:   h.random.IntN(3),
		SlowCallDuration: pick(0, 0, 3),
		FailureWindow:    pick(0, 0, 10),
		FailureRate:      []float64{0, 0, 0.5}[h.random.IntN(3)],

		FailureRateWindow: pick(0, 20), FailureRateMinCalls: h.random.IntN(5),

		MaxInFlight: []int{0, 0, 3}[h.random.IntN(3)],
		ObserveOnly: h.random.IntN(8) == 0,
	}
	if h.random.IntN(8) == 0 {
		b.FailureThreshold = 0
	}
	if b.MaxOpenDuration == 0 {
		b.MaxOpenDuration = toolhealth.Off
	}
	return toolhealth.Config{Breaker: b, MaxTools: []int{0, 0, 2, 3}[h.random.IntN(4)]}
}

// boundOf returns how many entries the registry may have.
func boundOf(r *toolhealth.Registry) int {
	return cmp.Or(r.Config().MaxTools, toolhealth.DefaultMaxTools)
}

func (h *history) fail(format string, args ...any) {
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}

// transition checks that epochs follow each other without a gap.
func (h *history) transition(e toolhealth.Transition) {
	if before, ok := h.last[e.Tool]; ok {
		if e.From != before.To || e.Epoch != before.Epoch+1 || e.When.Before(before.When) {
			h.fail("%+v follows %+v", e, before)
		}
	} else if e.From != toolhealth.StateClosed || e.Epoch != 2 {
		h.fail("%+v is the first event", e)
	}
	if e.Wait < 0 || e.To == toolhealth.StateClosed && e.Wait != 0 {
		h.fail("%+v has a wrong wait", e)
	}
	h.last[e.Tool] = e
}

// expectAdmission checks the first law: the answer to a caller is the one that Available
// and Health announced before. why is the error of a refusal, if the caller got one.
func (h *history) expectAdmission(tool string, available, known bool, before toolhealth.ToolHealth, admitted bool, why error) {
	if available != admitted {
		h.fail("%s was available: %t, admitted: %t", tool, available, admitted)
	}
	if known && before.Available != admitted {
		h.fail("%s had health %+v, admitted: %t", tool, before, admitted)
	}
	if admitted {
		h.refused[tool] = 0
		return
	}
	h.refused[tool]++
	var refusal *toolhealth.Refusal
	if errors.As(why, &refusal) && known {
		want := toolhealth.Refusal{
			Tool: tool, Reason: before.Reason, RetryAfter: before.RetryAfter,
			Streak: before.ConsecutiveFailures, Kind: before.LastFailure, InRow: h.refused[tool],
		}
		if *refusal != want {
			h.fail("refused with %+v, expected %+v", *refusal, want)
		}
	}
}

func (h *history) verdict() toolhealth.Verdict {
	return toolhealth.Verdict{
		Outcome:    toolhealth.Outcome(h.random.IntN(5)),
		Kind:       toolhealth.Kind(h.random.IntN(int(toolhealth.KindUnknown) + 1)),
		RetryAfter: time.Duration(h.random.IntN(40)-2) * time.Second,
	}
}

func (h *history) step() {
	tool := historyTools[h.random.IntN(len(historyTools))]
	available := h.r.Available(tool)
	before, known := h.r.Health(tool)
	if known {
		h.checkHealth(before)
	}
	what := h.random.IntN(20)
	h.steps = append(h.steps, fmt.Sprintf("%v %s #%d", time.Since(h.start), tool, what))
	switch what {
	case 0, 1:
		time.Sleep(time.Duration(h.random.IntN(4)) * time.Second)
	case 2:
		time.Sleep(time.Duration(h.random.IntN(40)) * time.Second)
	case 3: // to the exact moment at which something ends, or just before
		if known {
			time.Sleep(before.RetryAfter - time.Duration(h.random.IntN(2)))
		}
	case 4:
		h.expectAdmission(tool, available, known, before, h.r.AllowRequest(tool), nil)
	case 5, 6, 7, 8:
		h.allow(tool, available, known, before)
	case 9:
		h.r.RecordSuccess(tool, time.Duration(h.random.IntN(6))*time.Second)
	case 10:
		h.r.RecordFailure(tool, time.Second)
	case 11:
		h.r.Record(tool, h.verdict(), time.Second)
	case 12, 13, 14:
		h.settle()
	case 15:
		if len(h.permits) > 0 {
			h.permits[h.random.IntN(len(h.permits))].KeepAlive()
		}
	case 16:
		if h.random.IntN(3) == 0 {
			h.r.Reset(tool, "")
		}
	case 17:
		if h.random.IntN(4) == 0 {
			h.r.Isolate(tool, "")
		}
	case 18:
		if h.random.IntN(4) == 0 {
			h.config = h.randomConfig()
			if err := h.r.SetConfig(h.config); err != nil {
				h.fail("%v", err)
			}
			h.most = max(h.r.Len(), boundOf(h.r))
		}
	case 19:
		if h.random.IntN(6) == 0 && h.r.Remove(tool) {
			h.forget(tool)
		}
	}
	h.checkAll()
}

func (h *history) allow(tool string, available, known bool, before toolhealth.ToolHealth) {
	want, routed := h.g.Router.Resolve(tool, h.r)
	permit, err := h.g.Allow(noContext, tool)
	if err == nil && permit.Tool() != tool {
		h.expectAdmission(tool, available, known, before, false, nil)
		h.refused[permit.Tool()] = 0
	} else {
		h.expectAdmission(tool, available, known, before, err == nil, err)
	}
	if routed != (err == nil) || routed && permit.Tool() != want {
		h.fail("resolved to %s %t, allowed %s, %v", want, routed, permit.Tool(), err)
	}
	if err == nil {
		now, _ := h.r.Health(permit.Tool())
		h.permits = append(h.permits, heldPermit{&permit, now.Epoch, h.ended[permit.Tool()]})
	}
}

func (h *history) settle() {
	if len(h.permits) == 0 {
		return
	}
	i := h.random.IntN(len(h.permits))
	permit := h.permits[i]
	h.permits = append(h.permits[:i], h.permits[i+1:]...)
	switch h.random.IntN(4) {
	case 0:
		permit.Done(noContext, nil)
	case 1:
		permit.Release()
	default:
		permit.Settle(h.verdict())
	}
	permit.Release() // does nothing
}

func (h *history) checkHealth(t toolhealth.ToolHealth) {
	if t.Available != (t.RetryAfter == 0) || t.Available != (t.Reason == toolhealth.StopNone) || t.RetryAfter < 0 {
		h.fail("a tool is available without a wait, or has a wait and a reason: %+v", t)
	}
	if t.ProbeDue && (!t.Available || t.State != toolhealth.StateOpen) || t.State == toolhealth.StateHalfOpen && t.Available && !h.config.Breaker.ObserveOnly {
		h.fail("a probe is due only while open, and half-open admits no other call: %+v", t)
	}
	kinds := uint64(0)
	for _, n := range t.ByKind {
		kinds += n
	}
	rejected, neutral, refused := uint64(0), uint64(0), uint64(0)
	for _, n := range t.RejectedByKind {
		rejected += n
	}
	for _, n := range t.NeutralByKind {
		neutral += n
	}
	for _, n := range t.RefusedByReason {
		refused += n
	}
	if rejected != t.Rejected || neutral != t.Neutral || refused != t.Refused {
		h.fail("counters by kind and reason do not add up: %+v", t)
	}
	if t.DownSince.IsZero() != (t.State == toolhealth.StateClosed) || t.DownSince.After(t.Since) {
		h.fail("down since a time while closed, or after the state began: %+v", t)
	}
	if t.LastFailureAt.IsZero() != (t.Failures == 0) || t.LastRejectedAt.IsZero() != (t.Rejected == 0) {
		h.fail("a last time of nothing: %+v", t)
	}
	if t.Status == toolhealth.Healthy && (!t.Available || t.RejectedInRow >= 10) {
		h.fail("healthy, and refuses or rejects: %+v", t)
	}
	if t.TotalCalls() != t.Successes+t.Failures || kinds != t.Failures {
		h.fail("totals do not add up: %+v", t)
	}
	if t.Average > t.Max || t.AverageSuccess > t.Max || t.Score < 0 || t.Score > 1 {
		h.fail("figures are out of bounds: %+v", t)
	}
}

func (h *history) checkAll() {
	probes, out := map[string]int{}, map[string]uint64{}
	for _, p := range h.permits {
		if !p.Tracked() || p.entry != h.ended[p.Tool()] {
			continue
		}
		out[p.Tool()]++
		now, ok := h.r.Health(p.Tool())
		if p.Probe() && ok && now.State == toolhealth.StateHalfOpen && now.Epoch == p.epoch {
			probes[p.Tool()]++
		}
	}
	if n := h.r.Len(); n > h.most {
		h.fail("%d entries, %d are allowed", n, h.most)
	}
	for tool, health := range h.r.All() {
		h.checkHealth(health)
		if probes[tool] > 1 {
			h.fail("%d live probes of %s", probes[tool], tool)
		}
		if want := out[tool]; health.InFlight != want {
			h.fail("%s has %d permits out, health says %d", tool, want, health.InFlight)
		}
		if last, ok := h.last[tool]; ok && health.Epoch != last.Epoch && health.Epoch != last.Epoch+1 {
			h.fail("%s is in epoch %d, the last event was %+v", tool, health.Epoch, last)
		}
		if health.RefusedInRow != h.refused[tool] {
			h.fail("%s refused %d in a row, health says %d", tool, h.refused[tool], health.RefusedInRow)
		}
	}
	for _, tool := range historyTools { // tools whose entries were evicted
		if _, ok := h.r.Health(tool); !ok {
			h.forget(tool)
		}
	}
}

// forget records that the tool has no entry any more; its next one starts fresh.
func (h *history) forget(tool string) {
	h.ended[tool]++
	delete(h.refused, tool)
	delete(h.last, tool)
}

func envNumber(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// TestRegistry_RandomHistoriesKeepLaws plays ten thousand random histories.
// TOOLHEALTH_SEED chooses others, and TOOLHEALTH_HISTORIES their number.
func TestRegistry_RandomHistoriesKeepLaws(t *testing.T) {
	seed := envNumber("TOOLHEALTH_SEED", 1)
	count := uint64(10_000)
	if testing.Short() || race.Enabled {
		count = 500
	}
	count = envNumber("TOOLHEALTH_HISTORIES", count)
	synctest.Test(t, func(t *testing.T) {
		for n := range count {
			h, err := newHistory(rand.New(rand.NewPCG(seed, n)))
			if err != nil {
				t.Fatal(err)
			}
			for range 40 {
				if h.step(); len(h.problems) > 0 {
					t.Fatalf("TOOLHEALTH_SEED=%d, history %d under %+v:\n%s\nafter\n%s",
						seed, n, h.config, strings.Join(h.problems, "\n"), strings.Join(h.steps, "\n"))
				}
			}
		}
	})
}

// noContext is the nil ctx that a host may pass.
var noContext context.Context
