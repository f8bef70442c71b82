package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/internal/proof/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// In a synctest bubble time stands still while goroutines run in parallel. So a history
// consists of rounds: all goroutines call at the same instant, then the clock moves to
// the next time at which something happens, then they call again.
const (
	tools      = 2
	goroutines = 4
	rounds     = 4
	perRound   = 3
	maxPermits = goroutines * rounds * perRound
)

var config = model.Config{
	Threshold: 2, Recovery: 3 * time.Second, Lease: 2 * time.Second, MaxOpen: 7 * time.Second,
	MaxStated: 4 * time.Second, Window: 4 * time.Second, MaxHint: 6 * time.Second,
}

func registryConfig(threshold int) toolhealth.Config {
	return toolhealth.Config{Breaker: toolhealth.BreakerConfig{
		FailureThreshold: threshold, RecoveryDuration: config.Recovery, ProbeTimeout: config.Lease, MaxOpenDuration: config.MaxOpen,
		MaxStatedWait: config.MaxStated, FailureWindow: config.Window, MaxHintDuration: config.MaxHint,
	}}
}

// input is one call.
type input struct {
	what      string
	tool      int
	now       time.Duration
	permit    int // its number in the history
	outcome   string
	took      time.Duration
	wait      time.Duration
	threshold int
	source    int    // in a group: the tool
	once      bool   // in a group: the outcome is a time-out
	hint      string // its wait is in wait
}

// output is the answer to a call. A field that the call does not answer is zero.
type output struct {
	ok     bool
	probe  bool
	reason string
	wait   time.Duration
	seen   seen
}

// seen is what Health says of a breaker. All its fields come from one snapshot.
type seen struct {
	state, reason, kind  string
	wait, since, down    time.Duration
	streak, epoch, trips int
	suspected, reported  bool
}

// breakerState is the checker's state of one tool.
type breakerState struct {
	b      model.Breaker
	epochs [maxPermits]int8
	probes [maxPermits]bool
}

// step reports whether the model gives this answer, and returns its next state.
func step(s breakerState, in input, out output) (bool, breakerState) {
	report := model.Report{Outcome: in.outcome, Kind: "timeout", Took: in.took, RetryAfter: in.wait, Source: in.source, Once: in.once}
	switch in.what {
	case "ask":
		a, _ := s.b.AskAs(in.now, in.source)
		return out.ok == (a.Reason == "none"), s
	case "allow":
		a, _ := s.b.AskAs(in.now, in.source)
		s.epochs[in.permit], s.probes[in.permit] = int8(a.Epoch), a.Probe
		return out.reason == a.Reason && out.wait == a.Wait && out.probe == a.Probe, s
	case "available":
		return out.ok == (s.b.Look(in.now).Reason == "none"), s
	case "settle":
		report.Probe, report.Epoch = s.probes[in.permit], int(s.epochs[in.permit])
		s.b.Report(in.now, report)
	case "release":
		if s.probes[in.permit] {
			s.b.Release(in.now, int(s.epochs[in.permit]))
		}
	case "keepalive":
		if s.probes[in.permit] {
			s.b.KeepAlive(in.now, int(s.epochs[in.permit]))
		}
	case "record":
		report.ByName = true
		s.b.Report(in.now, report)
	case "reset":
		s.b.Reset(in.now)
	case "isolate":
		s.b.Isolate(in.now)
	case "hint":
		s.b.Hear(in.now, in.hint, in.wait)
	case "configure":
		c := config
		c.Threshold = in.threshold
		s.b.Configure(in.now, c)
	case "health":
		look, b := s.b.Look(in.now), s.b
		b.Tick(in.now)
		return out.seen == seen{
			b.State, look.Reason, b.Kind, look.Wait, b.Since, b.DownSince, b.Streak, b.Epoch, b.Trips,
			b.Suspected > in.now, b.State == "open" && b.Hearsay,
		}, s
	default:
		panic(in.what)
	}
	return true, s
}

func breakerModel(step func(breakerState, input, output) (bool, breakerState)) porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			parts := make([][]porcupine.Operation, tools)
			for _, o := range history {
				tool := o.Input.(input).tool
				parts[tool] = append(parts[tool], o)
			}
			return parts
		},
		Init: func() any { return breakerState{b: model.New(config)} },
		Step: func(state, in, out any) (bool, any) {
			ok, next := step(state.(breakerState), in.(input), out.(output))
			return ok, next
		},
	}
}

// counted is a call as the statistics see it, or a reading of one of the figures.
type counted struct {
	tool   int
	figure string
	read   bool
	ok     bool // ewma: the call was a success
}

// statsModel is one figure of one tool: a counter, or the EWMA. Each figure by itself
// has to be exact; Stats.Read promises no more.
var statsModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := map[counted][]porcupine.Operation{}
		for _, o := range history {
			c := o.Input.(counted)
			key := counted{tool: c.tool, figure: c.figure}
			parts[key] = append(parts[key], o)
		}
		var all [][]porcupine.Operation
		for _, part := range parts {
			all = append(all, part)
		}
		return all
	},
	Init: func() any { return -1 },
	Step: func(state, in, out any) (bool, any) {
		n, c := state.(int), in.(counted)
		if n < 0 {
			n = 0
			if c.figure == "ewma" {
				n = 1_000_000
			}
		}
		switch {
		case c.read:
			return out.(int) == n, n
		case c.figure != "ewma":
			return true, n + 1
		case c.ok:
			return true, (7*n + 3_000_000) / 10
		}
		return true, 7 * n / 10
	},
}

// recorder makes one history.
type recorder struct {
	r     *toolhealth.Registry
	gate  *toolhealth.Gate
	start time.Time
	clock atomic.Int64 // orders the calls and their returns

	mu      sync.Mutex
	calls   []porcupine.Operation
	figures []porcupine.Operation
	permits int
}

// held is a permit that a goroutine holds.
type held struct {
	permit *toolhealth.Permit
	number int
	tool   int
	since  time.Duration
}

var names = [tools]string{"a", "b"}

// record makes one history.
func record(seed uint64) *recorder {
	c := &recorder{start: time.Now()}
	var err error
	if c.r, err = toolhealth.NewRegistryWithConfig(registryConfig(config.Threshold)); err != nil {
		panic(err)
	}
	c.gate = &toolhealth.Gate{Registry: c.r}
	if seed%2 == 1 { // then a probe begins in a step of its own, after the hook
		c.r.OnTransition(func(toolhealth.Transition) { runtime.Gosched() })
	}
	for _, name := range names {
		if err := c.r.Register(name, toolhealth.ToolOptions{}); err != nil {
			panic(err)
		}
	}
	c.play(seed, c.call, func() {
		for tool := range names {
			c.look(goroutines, tool)
		}
	})
	return c
}

// play makes rounds of calls by all goroutines, after each of which look looks.
func (c *recorder) play(seed uint64, call func(g int, hand *[]held, random *rand.Rand), look func()) {
	random := rand.New(rand.NewPCG(seed, 0))
	hands := make([][]held, goroutines)
	for range rounds {
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for g := range goroutines {
			own := rand.New(rand.NewPCG(random.Uint64(), 1))
			wg.Go(func() {
				<-begin
				for range perRound {
					call(g, &hands[g], own)
				}
			})
		}
		close(begin)
		wg.Wait()
		look()
		pause := []time.Duration{0, config.Recovery, config.Lease, config.Recovery + config.Lease, config.MaxOpen, 5 * time.Second}
		time.Sleep(max(pause[random.IntN(len(pause))]+time.Duration(random.IntN(3)-1), 0))
	}
}

// do runs one call and records it.
func (c *recorder) do(client int, in input, call func() output) output {
	in.now = time.Since(c.start)
	from := c.clock.Add(1)
	c.yield()
	out := call()
	c.yield()
	to := c.clock.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, porcupine.Operation{ClientId: client, Input: in, Call: from, Output: out, Return: to})
	count := func(figure string, ok bool) {
		c.figures = append(c.figures, porcupine.Operation{ClientId: client, Input: counted{tool: in.tool, figure: figure, ok: ok}, Call: from, Output: 0, Return: to})
	}
	switch {
	case in.what == "settle" || in.what == "record":
		count(in.outcome, false)
		if in.outcome == "success" || in.outcome == "failure" {
			count("ewma", in.outcome == "success")
		}
	case in.what == "ask" && !out.ok || in.what == "allow" && out.reason != "none":
		count("refused", false)
	}
	return out
}

// yield lets another goroutine run, every other time, so that calls overlap on few
// processors, too.
func (c *recorder) yield() {
	if c.clock.Load()%2 == 0 {
		runtime.Gosched()
	}
}

// after returns how long after the start t is; 0 if t is zero.
func (c *recorder) after(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return t.Sub(c.start)
}

// look reads the health of a tool.
func (c *recorder) look(client, tool int) {
	var h toolhealth.ToolHealth
	from := c.clock.Load() + 1
	c.do(client, input{what: "health", tool: tool}, func() output {
		h, _ = c.r.Health(names[tool])
		return output{seen: seen{
			h.State.String(), h.Reason.Detail(), h.LastFailure.String(), h.RetryAfter, h.Since.Sub(c.start), c.after(h.DownSince),
			h.ConsecutiveFailures, int(h.Epoch), int(h.Trips), h.Suspected, h.Reported,
		}}
	})
	to := c.clock.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	for figure, n := range map[string]int{
		"success": int(h.Successes), "failure": int(h.Failures), "rejected": int(h.Rejected), "throttled": int(h.Throttled),
		"neutral": int(h.Neutral), "refused": int(h.Refused), "ewma": int(h.EWMA*1e6 + 0.5),
	} {
		c.figures = append(c.figures, porcupine.Operation{
			ClientId: client, Input: counted{tool: tool, figure: figure, read: true}, Call: from, Output: n, Return: to,
		})
	}
}

// call makes one random call.
func (c *recorder) call(g int, hand *[]held, random *rand.Rand) {
	tool := random.IntN(tools+1) % tools // the first one more often
	name := names[tool]
	outcomes := []toolhealth.Outcome{
		toolhealth.OutcomeFailure, toolhealth.OutcomeFailure, toolhealth.OutcomeFailure, toolhealth.OutcomeSuccess,
		toolhealth.OutcomeSuccess, toolhealth.OutcomeRejected, toolhealth.OutcomeThrottled, toolhealth.OutcomeNeutral,
	}
	v := toolhealth.Verdict{Outcome: outcomes[random.IntN(len(outcomes))], Kind: toolhealth.KindTimeout}
	if v.Outcome == toolhealth.OutcomeThrottled || v.Outcome == toolhealth.OutcomeFailure && random.IntN(3) == 0 {
		v.RetryAfter = 5 * time.Second
	}
	in := input{tool: tool, outcome: v.Outcome.String(), wait: v.RetryAfter}
	if len(*hand) > 0 && random.IntN(2) == 0 {
		i := random.IntN(len(*hand))
		h := (*hand)[i]
		in.tool, in.permit, in.took = h.tool, h.number, time.Since(c.start)-h.since
		switch random.IntN(8) {
		case 0:
			in.what = "keepalive"
			c.do(g, in, func() output { h.permit.KeepAlive(); return output{} })
			return
		case 1:
			in.what = "release"
			c.do(g, in, func() output { h.permit.Release(); return output{} })
		default:
			in.what = "settle"
			c.do(g, in, func() output {
				if v.Outcome == toolhealth.OutcomeSuccess {
					h.permit.Done(context.Background(), nil)
				} else {
					h.permit.Done(context.Background(), toolhealth.WithVerdict(errors.New("told"), v))
				}
				return output{}
			})
		}
		*hand = slices.Delete(*hand, i, i+1)
		return
	}
	switch random.IntN(23) {
	case 20, 21, 22:
		kind := toolhealth.HintKind(random.IntN(5))
		in.what, in.hint, in.wait = "hint", kind.String(), []time.Duration{0, time.Second, 5 * time.Second, time.Hour}[random.IntN(4)]
		c.do(g, in, func() output { c.r.Hint(name, kind, in.wait); return output{} })
	case 0:
		in.what = "reset"
		c.do(g, in, func() output { c.r.Reset(name, ""); return output{} })
	case 1:
		in.what = "isolate"
		c.do(g, in, func() output { c.r.Isolate(name, ""); return output{} })
	case 2:
		in.what, in.threshold = "configure", []int{0, 1, 2, 2, 2, 2}[random.IntN(6)]
		c.configure(g, in)
	case 3:
		c.look(g, tool)
	case 4, 5:
		in.what = "available"
		c.do(g, in, func() output { return output{ok: c.r.Available(name)} })
	case 6, 7:
		in.what = "ask"
		c.do(g, in, func() output { return output{ok: c.r.AllowRequest(name)} })
	case 8, 9, 10, 11, 12:
		in.what, in.took = "record", time.Second
		c.do(g, in, func() output { c.r.Record(name, v, time.Second); return output{} })
	default:
		c.allow(g, in, hand, tool, name)
	}
}

// allow asks for a permit of a tool and keeps it in the hand.
func (c *recorder) allow(g int, in input, hand *[]held, tool int, name string) {
	in.what = "allow"
	c.mu.Lock()
	in.permit = c.permits
	c.permits++
	c.mu.Unlock()
	h := held{number: in.permit, tool: tool, since: time.Since(c.start)}
	out := c.do(g, in, func() output {
		permit, err := c.gate.Allow(context.Background(), name)
		if refusal, ok := errors.AsType[*toolhealth.Refusal](err); ok {
			return output{reason: refusal.Reason.Detail(), wait: refusal.RetryAfter}
		}
		h.permit = &permit
		return output{reason: "none", probe: permit.Probe()}
	})
	if out.reason == "none" {
		*hand = append(*hand, h)
	}
}

// configure makes one call that concerns every tool.
func (c *recorder) configure(client int, in input) {
	in.now = time.Since(c.start)
	from := c.clock.Add(1)
	err := c.r.SetConfig(registryConfig(in.threshold))
	to := c.clock.Add(1)
	if err != nil {
		panic(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for in.tool = range tools {
		c.calls = append(c.calls, porcupine.Operation{ClientId: client, Input: in, Call: from, Output: output{}, Return: to})
	}
}

func histories(t *testing.T) int {
	switch {
	case os.Getenv("TOOLHEALTH_LONG") != "":
		return 50_000
	case testing.Short():
		return 1000
	}
	return 5000
}

// overlaps counts the calls that began before an earlier one of their tool had ended.
func overlaps(history []porcupine.Operation) (n int) {
	sorted := slices.SortedFunc(slices.Values(history), func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var last [tools]int64
	for _, o := range sorted {
		tool := o.Input.(input).tool
		if o.Call < last[tool] {
			n++
		}
		last[tool] = max(last[tool], o.Return)
	}
	return n
}

func TestRegistry_RecordedHistoriesAreLinearizable(t *testing.T) {
	right := breakerModel(step)
	calls, figures, overlapping, probes := 0, 0, 0, 0
	n := histories(t)
	for seed := range n {
		var c *recorder
		synctest.Test(t, func(*testing.T) { c = record(uint64(seed)) })
		if !porcupine.CheckOperations(right, c.calls) {
			t.Fatalf("seed %d has no order:\n%s", seed, describe(c.calls))
		}
		require.True(t, porcupine.CheckOperations(statsModel, c.figures), "the figures of seed %d have no order", seed)
		calls += len(c.calls)
		figures += len(c.figures)
		overlapping += overlaps(c.calls)
		for _, o := range c.calls {
			if o.Output.(output).probe {
				probes++
			}
		}
	}
	require.Positive(t, overlapping, "no calls overlapped")
	require.Positive(t, probes, "no probe was admitted")
	t.Logf("%d histories, %d calls, %d of them overlapping another, %d probes, %d operations on figures", n, calls, overlapping, probes, figures)
}

func describe(history []porcupine.Operation) (text string) {
	for _, o := range slices.SortedFunc(slices.Values(history), func(a, b porcupine.Operation) int { return int(a.Call - b.Call) }) {
		text += fmt.Sprintf("%d..%d by %d: %+v -> %+v\n", o.Call, o.Return, o.ClientId, o.Input, o.Output)
	}
	return text
}

// The checker has to reject a wrong history.

func TestChecker_RejectsWrongAnswer(t *testing.T) {
	right := breakerModel(step)
	rejected, tried := 0, 0
	for seed := range 200 {
		var c *recorder
		synctest.Test(t, func(*testing.T) { c = record(uint64(seed)) })
		for i := range c.calls {
			in, out := c.calls[i].Input.(input), c.calls[i].Output.(output)
			if in.what != "health" || c.calls[i].ClientId != goroutines { // these overlap no other call
				continue
			}
			out.seen.streak++
			c.calls[i].Output = out
			tried++
			if !porcupine.CheckOperations(right, c.calls) {
				rejected++
			}
			break
		}
	}
	// If a success and a failure overlap, both streaks may be right.
	require.Greater(t, rejected, tried*9/10)
}

func TestChecker_RejectsTwoProbesAtOnce(t *testing.T) {
	due := config.Recovery
	history := []porcupine.Operation{
		{Input: input{what: "record", outcome: "failure"}, Call: 1, Output: output{}, Return: 2},
		{Input: input{what: "record", outcome: "failure"}, Call: 3, Output: output{}, Return: 4},
		{ClientId: 1, Input: input{what: "allow", now: due}, Call: 5, Output: output{reason: "none", probe: true}, Return: 8},
		{ClientId: 2, Input: input{what: "allow", now: due, permit: 1}, Call: 6, Output: output{reason: "none", probe: true}, Return: 7},
	}
	require.False(t, porcupine.CheckOperations(breakerModel(step), history))

	history[3].Output = output{reason: "probe_in_flight", wait: config.Lease + config.Recovery}
	require.True(t, porcupine.CheckOperations(breakerModel(step), history), "one probe and one refusal are right, in either order")
	history[2].Output, history[3].Output = history[3].Output, history[2].Output
	require.True(t, porcupine.CheckOperations(breakerModel(step), history))
}

func TestChecker_RejectsLostCount(t *testing.T) {
	end := counted{figure: "failure"}
	read := counted{figure: "failure", read: true}
	history := []porcupine.Operation{
		{ClientId: 1, Input: end, Call: 1, Output: 0, Return: 3},
		{ClientId: 2, Input: end, Call: 2, Output: 0, Return: 4},
		{ClientId: 1, Input: read, Call: 5, Output: 1, Return: 6},
	}
	require.False(t, porcupine.CheckOperations(statsModel, history))
	history[2].Output = 2
	require.True(t, porcupine.CheckOperations(statsModel, history))
}

func TestChecker_RejectsHistoriesForAnotherModel(t *testing.T) {
	for name, wrong := range map[string]func(breakerState, input, output) (bool, breakerState){
		"a success leaves the streak": func(s breakerState, in input, out output) (bool, breakerState) {
			streak := s.b.Streak
			ok, next := step(s, in, out)
			if in.outcome == "success" && next.b.State == "closed" && s.b.State == "closed" {
				next.b.Streak = streak
			}
			return ok, next
		},
		"a report of recovery closes": func(s breakerState, in input, out output) (bool, breakerState) {
			if in.hint == "recovered" && s.b.State == "open" && !s.b.Isolated {
				s.b.Reset(in.now)
				return true, s
			}
			return step(s, in, out)
		},
		"a lease never ends": func(s breakerState, in input, out output) (bool, breakerState) {
			ok, next := step(s, in, out)
			if next.b.State == "half-open" {
				next.b.LeaseEnd = model.Never
			}
			return ok, next
		},
		"epochs are ignored": func(s breakerState, in input, out output) (bool, breakerState) {
			if in.what == "settle" {
				s.b.Tick(in.now)
				s.epochs[in.permit] = int8(s.b.Epoch)
			}
			return step(s, in, out)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range 500 {
				var c *recorder
				synctest.Test(t, func(*testing.T) { c = record(uint64(seed)) })
				if !porcupine.CheckOperations(breakerModel(wrong), c.calls) {
					t.Logf("rejected with seed %d", seed)
					return
				}
			}
			t.Fatal("500 histories fit it as well")
		})
	}
}
