package cases_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/internal/proof/setup"
	"github.com/toolhealth/toolhealth/internal/race"
)

var (
	caseFailure = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError}
	caseSuccess = toolhealth.Verdict{}
)

// What setup makes, by the names of the cases.
var (
	caseRegistry = setup.Registry
	caseHealth   = setup.Health
	caseRouter   = setup.Router
	caseGuard    = setup.GuardOver
)

func tripByName(r *toolhealth.Registry, tool string) {
	for range 3 {
		r.RecordFailure(tool, time.Millisecond)
	}
}

// unlessShort returns full, or short under -short and under the race detector.
func unlessShort(full, short int) int {
	if testing.Short() || race.Enabled {
		return short
	}
	return full
}

func TestC07_OneOfTwoHundredCallersProbes(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 50
	}
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, nil)
		gate := &toolhealth.Gate{Registry: r}
		for round := range rounds {
			tripByName(r, "search")
			time.Sleep(30 * time.Second)
			var probes, refused, wrong atomic.Int64
			barrier := make(chan struct{})
			var wg sync.WaitGroup
			for range 200 {
				wg.Go(func() {
					<-barrier
					permit, err := gate.Allow(context.Background(), "search")
					refusal, _ := errors.AsType[*toolhealth.Refusal](err)
					switch {
					case err == nil && permit.Probe():
						probes.Add(1)
					case errors.Is(err, toolhealth.ErrProbeInFlight) && refusal.RetryAfter > 0:
						refused.Add(1)
					default:
						wrong.Add(1)
					}
				})
			}
			close(barrier)
			wg.Wait()
			require.Equal(t, []int64{1, 199, 0}, []int64{probes.Load(), refused.Load(), wrong.Load()}, "round %d", round)
			r.Reset("search", "")
		}
	})
}

func TestC19_ReadingChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, nil)
		router, err := toolhealth.NewHealthRouter(map[string][]string{"search": {"other"}})
		require.NoError(t, err)
		var events atomic.Int64
		r.OnTransition(func(toolhealth.Transition) { events.Add(1) })
		readAll := func() {
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 125 {
						r.Available("search")
						r.Health("search")
						r.HealthStatus("search")
						r.HealthSummary()
						for range r.All() {
						}
						router.Resolve("search", r)
						(&toolhealth.Gate{Registry: r, Router: router}).Offer([]string{"search"})
					}
				})
			}
			wg.Wait()
		}
		r.RecordFailure("search", 0)
		r.RecordFailure("search", 0)
		readAll()
		r.RecordFailure("search", 0)
		require.Equal(t, toolhealth.StateOpen, caseHealth(t, r, "search").State)
		require.EqualValues(t, 1, events.Load())

		time.Sleep(30 * time.Second)
		readAll()
		assert.EqualValues(t, 1, events.Load(), "no read is an event")
		permit, err := (&toolhealth.Gate{Registry: r}).Allow(t.Context(), "search")
		require.NoError(t, err)
		assert.True(t, permit.Probe(), "no read takes the probe")
		assert.Equal(t, 1, r.Len(), "no read makes an entry")
	})
}

func TestC27_TextErrorsOfCanceledCallAreNeutral(t *testing.T) {
	r := caseRegistry(t, nil)
	gate := &toolhealth.Gate{Registry: r}
	for i := range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		permit, err := gate.Allow(ctx, "search")
		require.NoError(t, err)
		cancel()
		if i%2 == 0 {
			permit.Done(ctx, fmt.Errorf("searching: %w", ctx.Err()))
		} else {
			permit.Done(ctx, errors.New("the query was interrupted"))
		}
	}
	h := caseHealth(t, r, "search")
	assert.Equal(t, toolhealth.StateClosed, h.State)
	assert.Zero(t, h.ConsecutiveFailures)
	assert.EqualValues(t, 50, h.Neutral)
	assert.Zero(t, h.TotalCalls())
}

func TestC28_CauseOfSiblingIsNoFailureOfTool(t *testing.T) {
	r := caseRegistry(t, nil)
	gate := &toolhealth.Gate{Registry: r}
	guard, err := toolhealth.NewGuard(gate, toolhealth.GuardConfig{})
	require.NoError(t, err)
	cause := errors.New("another branch of the fan-out failed")
	ctx, cancel := context.WithCancelCause(t.Context())
	var inside, done sync.WaitGroup
	inside.Add(9)
	for i := range 9 {
		done.Go(func() {
			call := func(ctx context.Context, _ string) (int, error) {
				inside.Done()
				<-ctx.Done()
				return 0, context.Cause(ctx)
			}
			if i%2 == 0 {
				_, err := toolhealth.Call(ctx, guard, "search", call)
				assert.ErrorIs(t, err, cause)
				return
			}
			permit, err := gate.Allow(ctx, "search")
			if assert.NoError(t, err) {
				_, err = call(ctx, "search")
				permit.Done(ctx, err)
			}
		})
	}
	inside.Wait()
	cancel(cause)
	done.Wait()
	h := caseHealth(t, r, "search")
	assert.Equal(t, toolhealth.StateClosed, h.State)
	assert.EqualValues(t, 9, h.Neutral)
	assert.Zero(t, h.Failures)
}

// shellExitError is the error of a shell tool that ended with a code.
type shellExitError struct {
	code   int
	output string
}

func (e *shellExitError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

func TestC36_HostDecidesWhatExitCodeMeans(t *testing.T) {
	r := caseRegistry(t, nil)
	gate := &toolhealth.Gate{Registry: r, Classify: toolhealth.ErrorRules{Own: []toolhealth.Rule{
		toolhealth.RuleFor(func(e *shellExitError) toolhealth.Verdict {
			if e.code == 1 && e.output != "" {
				return toolhealth.Verdict{}
			}
			return caseFailure
		}),
	}}.Classify}
	settle := func(err error) {
		permit, refused := gate.Allow(t.Context(), "grep")
		require.NoError(t, refused)
		permit.Done(t.Context(), err)
	}
	for range 8 {
		settle(&shellExitError{1, "no match"})
	}
	settle(fmt.Errorf("running grep: %w", &shellExitError{2, ""}))
	h := caseHealth(t, r, "grep")
	assert.EqualValues(t, 8, h.Successes)
	assert.EqualValues(t, 1, h.Failures)
	assert.Equal(t, 1, h.ConsecutiveFailures)

	plain := &toolhealth.Gate{Registry: caseRegistry(t, nil)}
	permit, err := plain.Allow(t.Context(), "grep")
	require.NoError(t, err)
	permit.Done(t.Context(), nil)
	assert.EqualValues(t, 1, caseHealth(t, plain.Registry, "grep").Successes)
}

func TestC50_KindsAreKeptApartInStatisticsAndRefusals(t *testing.T) {
	r := caseRegistry(t, nil)
	gate := &toolhealth.Gate{Registry: r}
	for tool, failure := range map[string]error{
		"slow": os.ErrDeadlineExceeded,
		"dead": &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
	} {
		for range 3 {
			permit, err := gate.Allow(t.Context(), tool)
			require.NoError(t, err)
			permit.Done(t.Context(), failure)
		}
	}
	for tool, kind := range map[string]toolhealth.Kind{
		"slow": toolhealth.KindTimeout, "dead": toolhealth.KindConnection,
	} {
		h := caseHealth(t, r, tool)
		assert.Equal(t, map[toolhealth.Kind]uint64{kind: 3}, h.ByKind)
		assert.Equal(t, kind, h.LastFailure)
		_, err := gate.Allow(t.Context(), tool)
		refusal, ok := errors.AsType[*toolhealth.Refusal](err)
		require.True(t, ok)
		assert.Equal(t, kind, refusal.Kind)
	}
}

// heapInUse returns the bytes of reachable objects.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestC58_MillionNamesLeaveRegistryUnchanged(t *testing.T) {
	names := unlessShort(1_000_000, 50_000)
	for _, registeredOnly := range []bool{true, false} {
		r := caseRegistry(t, func(c *toolhealth.Config) {
			c.RegisteredOnly, c.MaxTools = registeredOnly, 1000
		})
		gate := &toolhealth.Gate{Registry: r}
		for i := range 10 {
			require.NoError(t, r.Register(fmt.Sprint("tool", i), toolhealth.ToolOptions{}))
		}
		flood := func(from, to int) {
			for i := from; i < to; i++ {
				name := fmt.Sprint("made-up-", i)
				r.Available(name)
				r.Health(name)
				r.RecordSuccess(name, time.Millisecond)
				permit, err := gate.Allow(context.Background(), name)
				permit.Release()
				if registeredOnly != errors.Is(err, toolhealth.ErrUnknownTool) {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
		flood(0, names/10) // fills the registry up to its bound
		before := heapInUse()
		flood(names/10, names)
		grown := heapInUse() - before
		want := 1000
		if registeredOnly {
			want = 10
		}
		assert.Equal(t, want, r.Len())
		assert.Len(t, r.HealthSummary().Tools, want)
		assert.Less(t, grown, int64(1<<20), "bytes that remain after the flood")
		for i := range 10 {
			_, known := r.Health(fmt.Sprint("tool", i))
			assert.True(t, known, "a registered tool must stay")
		}
	}
}

func TestC60_FailedToolStaysUntilItFades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, func(c *toolhealth.Config) { c.MaxTools = 500 })
		for i := range 500 {
			r.RecordFailure(fmt.Sprint("tool", i), 0)
		}
		known := func() bool { r.RecordSuccess("new", 0); _, ok := r.Health("new"); return ok }
		time.Sleep(10*time.Minute - 1)
		assert.False(t, known(), "what is known against a tool is remembered for MaxOpenDuration")
		assert.Equal(t, 500, r.Len())
		assert.True(t, r.Remove("tool7"))
		assert.True(t, known(), "what is removed makes room")
		r.Remove("new")
		r.RecordFailure("tool7", 0)
		assert.False(t, known())
		time.Sleep(time.Nanosecond)
		assert.True(t, known(), "and then it may go")
	})
}

func TestC72_GrowthNeverOverflows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, func(c *toolhealth.Config) {
			c.Breaker.RecoveryGrowth, c.Breaker.MaxOpenDuration = 2, 15*time.Minute
		})
		tripByName(r, "search")
		want := 30 * time.Second
		for i := range 200 {
			h := caseHealth(t, r, "search")
			require.Equal(t, want, h.RetryAfter, "after %d failed probes", i)
			time.Sleep(h.RetryAfter)
			require.True(t, r.AllowRequest("search"))
			r.RecordFailure("search", 0)
			want = min(2*want, 15*time.Minute)
		}
		time.Sleep(15 * time.Minute)
		require.True(t, r.AllowRequest("search"))
		r.RecordSuccess("search", 0)
		tripByName(r, "search")
		assert.Equal(t, 30*time.Second, caseHealth(t, r, "search").RetryAfter)
	})
}

func TestC72_GrowthWithoutCapStaysPositive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, func(c *toolhealth.Config) {
			c.Breaker.RecoveryGrowth, c.Breaker.RecoveryJitter, c.Breaker.MaxOpenDuration = 1000, 1, toolhealth.Off
		})
		tripByName(r, "search")
		last := time.Duration(0)
		for range 6 { // after that the cap of ten years applies, and virtual time ends after 292
			wait := caseHealth(t, r, "search").RetryAfter
			require.Positive(t, wait)
			require.Greater(t, 2*wait, last, "shorter than jitter can make it")
			last = wait
			time.Sleep(wait)
			require.True(t, r.AllowRequest("search"))
			r.RecordFailure("search", 0)
		}
	})
}

func TestC80_NotANumberIsRefused(t *testing.T) {
	r := caseRegistry(t, nil)
	before := r.Config()
	for field, change := range map[string]func(*toolhealth.BreakerConfig){
		"breaker.recovery_growth": func(c *toolhealth.BreakerConfig) { c.RecoveryGrowth = math.NaN() },
		"breaker.failure_rate":    func(c *toolhealth.BreakerConfig) { c.FailureRate = math.NaN() },
	} {
		c := before
		change(&c.Breaker)
		problem, ok := errors.AsType[*toolhealth.ConfigError](r.SetConfig(c))
		if assert.True(t, ok, field) {
			assert.Equal(t, field, problem.Field)
		}
		assert.Equal(t, before, r.Config())
	}
}

func TestC88_BadDurationsHarmNoAverage(t *testing.T) {
	r := caseRegistry(t, nil)
	encode := func() {
		data, err := json.Marshal(r.HealthSummary())
		require.NoError(t, err)
		require.NotContains(t, string(data), "NaN")
	}
	r.RecordSuccess("search", 100*time.Millisecond)
	r.RecordSuccess("search", -5*time.Millisecond)
	encode()
	h := caseHealth(t, r, "search")
	assert.Equal(t, 50*time.Millisecond, h.Average, "a negative duration counts as 0")
	assert.Equal(t, 100*time.Millisecond, h.Max)

	r.RecordSuccess("search", 0)
	for range 1000 {
		r.RecordSuccess("search", 100*time.Millisecond)
	}
	assert.InDelta(t, 0.1, caseHealth(t, r, "search").Average.Seconds(), 0.001)

	const longest = time.Duration(1<<63 - 1)
	r.RecordSuccess("search", longest)
	r.RecordFailure("search", longest)
	encode()
	h = caseHealth(t, r, "search")
	assert.Equal(t, longest, h.Max)
	assert.Equal(t, longest/1005, h.Average, "the sum stays at the longest duration")
	assert.Equal(t, longest/1004, h.AverageSuccess)
}

func TestC92_JSONOfUntouchedToolHasNoStrangeNumbers(t *testing.T) {
	r := caseRegistry(t, nil)
	require.NoError(t, r.Register("search", toolhealth.ToolOptions{}))
	require.NoError(t, r.Register("weather", toolhealth.ToolOptions{}))
	data, err := json.Marshal(r.HealthSummary())
	require.NoError(t, err)
	var summary struct {
		Overall string
		Tools   []map[string]any
	}
	require.NoError(t, json.Unmarshal(data, &summary))
	assert.Equal(t, "healthy", summary.Overall)
	require.Len(t, summary.Tools, 2)
	for _, tool := range summary.Tools {
		assert.Equal(t, "closed", tool["state"])
		assert.Equal(t, 0.0, tool["calls"])
		assert.Equal(t, 1.0, tool["success_rate"])
		assert.Equal(t, 0.0, tool["average_seconds"])
	}
}

func TestC101_NamesAndTextsOfUsersBecomeNoLabels(t *testing.T) {
	r := caseRegistry(t, func(c *toolhealth.Config) { c.RegisteredOnly = true })
	labels := map[string]bool{}
	r.OnTransition(func(e toolhealth.Transition) { labels[fmt.Sprint(e.Tool, e.From, e.To, e.Cause)] = true })
	config := toolhealth.GuardConfig{Default: toolhealth.Policy{MaxAttempts: 1}}
	config.Observe = func(_ context.Context, e toolhealth.Event) {
		tool := e.Tool
		if e.Reason == toolhealth.StopUnknownTool { // the only special case of an exporter
			tool = "unknown"
		}
		labels[fmt.Sprint(tool, e.Final, e.Reason, e.Verdict.Outcome, e.Verdict.Kind)] = true
	}
	guard, err := toolhealth.NewGuard(&toolhealth.Gate{Registry: r}, config)
	require.NoError(t, err)
	for i := range 10 {
		require.NoError(t, r.Register(fmt.Sprint("tool", i), toolhealth.ToolOptions{}))
	}
	fail := func(i int) func(context.Context, string) (int, error) {
		return func(context.Context, string) (int, error) { return 0, fmt.Errorf("error text %d", i) }
	}
	for i := range 10_000 {
		_, err := toolhealth.Call(t.Context(), guard, fmt.Sprint("made-up-", i), fail(i))
		require.ErrorIs(t, err, toolhealth.ErrUnknownTool)
	}
	for i := range 100 {
		_, err := toolhealth.Call(t.Context(), guard, fmt.Sprint("tool", i%10), fail(i))
		require.Error(t, err)
	}
	assert.Len(t, r.HealthSummary().Tools, 10)
	// Ten tools have four labels each: a failed attempt, a failed call, a refused call
	// and a trip. All unknown names share one label.
	assert.Len(t, labels, 10*4+1)
	for label := range labels {
		assert.NotContains(t, label, "error text")
		assert.NotContains(t, label, "made-up")
	}
}

// within fails if f does not end in time, for example because of a deadlock.
func within(t *testing.T, limit time.Duration, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(limit):
		buf := make([]byte, 1<<20)
		t.Fatalf("hangs:\n%s", buf[:runtime.Stack(buf, true)])
	}
}

func TestC103_HookMayCallAnything(t *testing.T) {
	r := caseRegistry(t, func(c *toolhealth.Config) {
		c.Breaker.FailureThreshold, c.Breaker.RecoveryDuration = 1, time.Nanosecond
	})
	gate := &toolhealth.Gate{Registry: r}
	require.NoError(t, r.Register("other", toolhealth.ToolOptions{}))
	var calls, stale, nested atomic.Int64
	r.OnTransition(func(e toolhealth.Transition) {
		calls.Add(1)
		for _, tool := range []string{e.Tool, "other"} {
			r.Available(tool)
			h, ok := r.Health(tool)
			if ok && tool == e.Tool && h.Epoch < e.Epoch {
				stale.Add(1)
			}
			r.HealthSummary()
			for range r.All() {
			}
			if nested.Add(1) > 2000 {
				continue // the calls below cause events themselves
			}
			if permit, err := gate.Allow(context.Background(), tool); err == nil {
				permit.Settle(caseFailure)
			}
			r.RecordFailure(tool, 0)
			r.Reset(tool, "")
			_ = r.SetConfig(r.Config())
			r.OnTransition(func(toolhealth.Transition) {})()
		}
	})
	within(t, 20*time.Second, func() {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				tool := fmt.Sprint("tool", i%3)
				for range 50 {
					r.RecordFailure(tool, 0)
					r.AllowRequest(tool)
					r.RecordSuccess(tool, 0)
					r.Isolate(tool, "")
					r.Reset(tool, "")
				}
			})
		}
		wg.Wait()
	})
	assert.Greater(t, calls.Load(), int64(1000))
	assert.Zero(t, stale.Load(), "the new state is visible to its hook")
	assert.Zero(t, r.HealthSummary().HookPanics)
}

func TestC104_PanickingHookHarmsNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold = 1 })
		r.OnTransition(func(toolhealth.Transition) { panic("first observer") })
		var seen []string
		r.OnTransition(func(e toolhealth.Transition) { seen = append(seen, e.To.String()) })
		guard, err := toolhealth.NewGuard(&toolhealth.Gate{Registry: r}, toolhealth.GuardConfig{})
		require.NoError(t, err)
		broken := errors.New("the tool's own error")
		answer := func(err error) func(context.Context, string) (string, error) {
			return func(context.Context, string) (string, error) { return "answer", err }
		}
		_, err = toolhealth.Call(t.Context(), guard, "search", answer(broken))
		assert.ErrorIs(t, err, broken)
		assert.Equal(t, toolhealth.StateOpen, caseHealth(t, r, "search").State)
		time.Sleep(30 * time.Second)
		_, err = toolhealth.Call(t.Context(), guard, "search", answer(nil))
		assert.NoError(t, err)
		assert.Equal(t, []string{"open", "half-open", "closed"}, seen)
		assert.EqualValues(t, 3, r.HealthSummary().HookPanics)
	})
}

func TestC106_EventsOfOneToolAreChained(t *testing.T) {
	r := caseRegistry(t, func(c *toolhealth.Config) {
		c.Breaker.FailureThreshold, c.Breaker.RecoveryDuration = 1, time.Nanosecond
	})
	var events []toolhealth.Transition
	var running, overlaps atomic.Int64
	r.OnTransition(func(e toolhealth.Transition) {
		if running.Add(1) > 1 {
			overlaps.Add(1)
		}
		events = append(events, e) // the race detector proves that hooks run one at a time
		running.Add(-1)
	})
	rounds := unlessShort(200, 40)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for n := range rounds {
				r.AllowRequest("search")
				r.RecordFailure("search", 0)
				r.AllowRequest("search")
				r.RecordSuccess("search", 0)
				if (i+n)%4 == 0 {
					r.Reset("search", "")
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, overlaps.Load())
	require.Greater(t, len(events), rounds*32/4)
	from, epoch, missing := toolhealth.StateClosed, uint64(1), uint64(0)
	for _, e := range events {
		require.Greater(t, e.Epoch, epoch)
		if gap := e.Epoch - epoch - 1; gap > 0 { // the hook could not keep up with 32 goroutines
			missing += gap
		} else {
			require.Equal(t, from, e.From)
		}
		from, epoch = e.To, e.Epoch
	}
	assert.Equal(t, r.HealthSummary().HookDropped, missing)
	h := caseHealth(t, r, "search")
	assert.Equal(t, h.State, from)
	assert.Equal(t, h.Epoch, epoch)
}

func TestC108_EventSaysWhatTripped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, nil)
		var events []toolhealth.Transition
		r.OnTransition(func(e toolhealth.Transition) { events = append(events, e) })
		time.Sleep(time.Minute)
		for _, kind := range []toolhealth.Kind{toolhealth.KindTimeout, toolhealth.KindTimeout, toolhealth.KindServerError} {
			r.Record("search", toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: kind}, time.Second)
		}
		require.Len(t, events, 1)
		assert.True(t, events[0].When.Equal(time.Now()))
		events[0].When = time.Time{}
		assert.Equal(t, toolhealth.Transition{
			Tool: "search", From: toolhealth.StateClosed, To: toolhealth.StateOpen, Epoch: 2,
			Cause: toolhealth.CauseFailureThreshold, Streak: 3, Kind: toolhealth.KindServerError,
			Wait: 30 * time.Second,
		}, events[0])
	})
}

func TestC109_SnapshotsAddUpUnderLoad(t *testing.T) {
	r := caseRegistry(t, func(c *toolhealth.Config) { c.Breaker.RecoveryDuration = time.Millisecond })
	gate := &toolhealth.Gate{Registry: r}
	outcomes := []toolhealth.Verdict{
		caseSuccess, caseFailure, {Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout},
		{Outcome: toolhealth.OutcomeRejected}, {Outcome: toolhealth.OutcomeNeutral},
	}
	var settled [5]atomic.Uint64 // by outcome
	var refused atomic.Uint64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 16 {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				permit, err := gate.Allow(context.Background(), "search")
				if err != nil {
					refused.Add(1)
					runtime.Gosched()
					continue
				}
				v := outcomes[random.IntN(len(outcomes))]
				permit.Settle(v)
				settled[v.Outcome].Add(1)
			}
		})
	}
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, h := range r.HealthSummary().Tools {
					var byKind uint64
					for _, n := range h.ByKind {
						byKind += n
					}
					switch {
					case byKind != h.Failures, h.TotalCalls() != h.Successes+h.Failures:
						t.Errorf("does not add up: %+v", h.Counts)
					case h.State == toolhealth.StateClosed && h.ConsecutiveFailures >= 3:
						t.Errorf("closed with a streak of %d", h.ConsecutiveFailures)
					case h.Average > h.Max, h.Score < 0, h.Score > 1:
						t.Errorf("impossible: %+v", h)
					case h.Available != (h.RetryAfter == 0), h.Available != (h.Reason == toolhealth.StopNone):
						t.Errorf("contradicts itself: %+v", h)
					}
					clear(h.ByKind) // changes a copy only; other readers must not see the change
				}
			}
		})
	}
	time.Sleep(time.Duration(unlessShort(1000, 200)) * time.Millisecond)
	close(stop)
	wg.Wait()
	h := caseHealth(t, r, "search")
	got := []uint64{h.Successes, h.Failures, h.Rejected, h.Neutral, h.Refused}
	want := []uint64{settled[0].Load(), settled[1].Load(), settled[2].Load(), settled[4].Load(), refused.Load()}
	assert.Equal(t, want, got)
	assert.Zero(t, h.InFlight)
	assert.Positive(t, h.Trips, "the breaker must have worked too")
}

func TestC114_RefusingSoleFlakyToolLosesAnswersAndIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, nil)
		random := rand.New(rand.NewPCG(114, 0))
		var answered, failed, refused, lost uint64
		for range 1000 {
			good := random.Float64() >= 0.6
			switch {
			case !r.AllowRequest("only"):
				refused++
				if good {
					lost++
				}
			case good:
				answered++
				r.RecordSuccess("only", 0)
			default:
				failed++
				r.RecordFailure("only", 0)
			}
			time.Sleep(time.Second)
		}
		h := caseHealth(t, r, "only")
		assert.Equal(t, []uint64{answered, failed, refused}, []uint64{h.Successes, h.Failures, h.Refused})
		assert.Positive(t, lost)
		assert.Greater(t, refused, answered+failed, "there is no last resort")
		t.Logf("%d answered, %d failed, %d refused, of which %d would have been answered", answered, failed, refused, lost)
	})
}

func TestC131_EachReplicaLearnsForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := []*toolhealth.Registry{caseRegistry(t, nil), caseRegistry(t, nil), caseRegistry(t, nil)}
		failures, probes := 0, 0
		for second := range 120 {
			r := replicas[second%3]
			if r.AllowRequest("dead") {
				if r.HealthSummary().Tools[0].State == toolhealth.StateHalfOpen {
					probes++
				} else {
					failures++
				}
				r.RecordFailure("dead", 0)
			}
			time.Sleep(time.Second)
		}
		assert.Equal(t, 9, failures, "three failures for each of the three replicas")
		// They tripped at 6, 7 and 8s, so each has probed at about 36, 66 and 96s.
		assert.Equal(t, 9, probes, "one probe for each replica and cooldown")
		for _, r := range replicas {
			assert.Equal(t, 1, r.HealthSummary().Unavailable)
		}
	})
}

func TestC131_JitterSpreadsProbesOfReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := map[time.Duration]bool{}
		for range 100 {
			r := caseRegistry(t, func(c *toolhealth.Config) { c.Breaker.RecoveryJitter = 0.5 })
			tripByName(r, "dead")
			wait := caseHealth(t, r, "dead").RetryAfter
			require.GreaterOrEqual(t, wait, 30*time.Second)
			require.LessOrEqual(t, wait, 45*time.Second)
			waits[wait] = true
		}
		assert.Greater(t, len(waits), 90)
	})
}

func TestC133_OnlyOrderOfBatchDecides(t *testing.T) {
	opened := map[int]int{} // how often the breaker opened, by failures in a batch of eight
	for seed := range uint64(2000) {
		failures := 5 + 2*int(seed%2)
		verdicts := make([]toolhealth.Verdict, 8)
		for i := range failures {
			verdicts[i] = caseFailure
		}
		rand.New(rand.NewPCG(seed, 0)).Shuffle(8, func(i, j int) { verdicts[i], verdicts[j] = verdicts[j], verdicts[i] })
		gate := &toolhealth.Gate{Registry: caseRegistry(t, nil)}
		var permits [8]toolhealth.Permit
		for i := range permits {
			permits[i], _ = gate.Allow(t.Context(), "search")
		}
		streak, open := 0, false
		for i, v := range verdicts {
			permits[i].Settle(v)
			if streak++; v == caseSuccess {
				streak = 0
			}
			open = open || streak == 3
		}
		state := caseHealth(t, gate.Registry, "search").State
		require.Equal(t, open, state == toolhealth.StateOpen, "seed %d", seed)
		if open {
			opened[failures]++
		}
	}
	assert.Equal(t, 1000, opened[7], "seven failures have three in a row, wherever the success is")
	assert.InDelta(t, 500, opened[5], 400, "five failures have three in a row in some orders only")
}

func TestC134_OnlyThreeFailuresInRowOpen(t *testing.T) {
	r := caseRegistry(t, func(c *toolhealth.Config) {
		c.Breaker.RecoveryDuration = time.Hour
		c.Breaker.MaxOpenDuration = toolhealth.Off
	})
	random := rand.New(rand.NewPCG(134, 0))
	streak, rows, calls, failures := 0, 0, unlessShort(2_000_000, 200_000), 0
	for range calls { // 1 % failures at 1,000 calls a second for half an hour
		if random.IntN(100) > 0 {
			streak = 0
			r.RecordSuccess("search", 0)
			continue
		}
		failures++
		r.RecordFailure("search", 0)
		if streak++; streak == 3 {
			rows, streak = rows+1, 0
			require.Equal(t, toolhealth.StateOpen, caseHealth(t, r, "search").State)
			r.Reset("search", "")
		}
	}
	h := caseHealth(t, r, "search")
	assert.EqualValues(t, rows, h.Trips)
	assert.Less(t, rows, failures/1000)
	assert.Equal(t, toolhealth.Healthy, h.Status)
}

// lonelyTarget plays a tool that fifty callers poll every 100ms. Each call takes 50ms
// and succeeds if answers returns true for the number of calls in flight.
func lonelyTarget(t *testing.T, minutes int, config func(*toolhealth.BreakerConfig), answers func(inFlight int) bool) (runs int, trips uint64) {
	synctest.Test(t, func(t *testing.T) {
		gate := &toolhealth.Gate{Registry: caseRegistry(t, func(c *toolhealth.Config) { config(&c.Breaker) })}
		tripByName(gate.Registry, "search")
		for range minutes * 60 * 10 {
			var admitted []*toolhealth.Permit
			for range 50 {
				if permit, err := gate.Allow(t.Context(), "search"); err == nil {
					admitted = append(admitted, &permit)
				}
			}
			time.Sleep(50 * time.Millisecond)
			runs += len(admitted)
			for _, permit := range admitted {
				v := caseFailure
				if answers(len(admitted)) {
					v = caseSuccess
				}
				permit.Settle(v)
			}
			time.Sleep(50 * time.Millisecond)
		}
		trips = caseHealth(t, gate.Registry, "search").Trips
	})
	return runs, trips
}

func TestC138_OneGoodProbeReopensFlood(t *testing.T) {
	usual := func(*toolhealth.BreakerConfig) {}
	strict := func(c *toolhealth.BreakerConfig) { c.ProbeSuccesses = 2 }
	alone := func(inFlight int) bool { return inFlight == 1 }
	lucky := func() func(int) bool {
		random := rand.New(rand.NewPCG(138, 0))
		return func(int) bool { return random.Float64() < 0.3 }
	}

	// A: each cooldown ends with one successful probe, and then the flood fails.
	minutes := unlessShort(10, 5)
	runs, trips := lonelyTarget(t, minutes, usual, alone)
	assert.InDelta(t, 2*minutes, trips, 2)
	assert.InDelta(t, 2*minutes*51, runs, 150, "one probe and fifty calls for each cooldown")
	strictRuns, strictTrips := lonelyTarget(t, minutes, strict, alone)
	assert.InDelta(t, runs, strictRuns, 150, "a second good probe does not help against a flood")
	assert.InDelta(t, trips, strictTrips, 2)

	// B: where one call in three succeeds, two good probes in a row are rarer than one.
	runs, trips = lonelyTarget(t, 10, usual, lucky())
	strictRuns, strictTrips = lonelyTarget(t, 10, strict, lucky())
	assert.Less(t, strictTrips, trips)
	assert.Less(t, strictRuns, runs)
	t.Logf("B: %d runs and %d trips with one success, %d and %d with two", runs, trips, strictRuns, strictTrips)
}

func TestC139_RefusalHasTypedReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, nil)
		gate := &toolhealth.Gate{Registry: r}
		dial := &net.OpError{Op: "dial", Err: fmt.Errorf("dialing secret.internal:80: %w", syscall.ECONNREFUSED)}
		for range 3 {
			permit, err := gate.Allow(t.Context(), "probing")
			require.NoError(t, err)
			permit.Done(t.Context(), dial)
		}
		time.Sleep(30 * time.Second)
		_, err := gate.Allow(t.Context(), "probing")
		require.NoError(t, err)
		for range 3 {
			permit, err := gate.Allow(t.Context(), "open")
			require.NoError(t, err)
			permit.Done(t.Context(), dial)
		}
		permit, err := gate.Allow(t.Context(), "limited")
		require.NoError(t, err)
		permit.Settle(toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, RetryAfter: 1500 * time.Millisecond})
		require.NoError(t, r.Register("isolated", toolhealth.ToolOptions{}))
		r.Isolate("isolated", "")
		c := r.Config()
		c.RegisteredOnly = true
		require.NoError(t, r.SetConfig(c))

		for _, want := range []struct {
			sentinel error
			text     string
			refusal  toolhealth.Refusal
		}{
			{toolhealth.ErrCircuitOpen, "tool temporarily unavailable: circuit breaker open; retry after 30s", toolhealth.Refusal{
				Tool: "open", Reason: toolhealth.StopCircuitOpen, RetryAfter: 30 * time.Second, Streak: 3, Kind: toolhealth.KindConnection, InRow: 1,
			}},
			{toolhealth.ErrProbeInFlight, "tool temporarily unavailable: recovery is being probed; retry after 60s", toolhealth.Refusal{
				Tool: "probing", Reason: toolhealth.StopProbeInFlight, RetryAfter: time.Minute, Streak: 3, Kind: toolhealth.KindConnection, InRow: 1,
			}},
			{toolhealth.ErrRateLimited, "tool temporarily unavailable: it asked to wait; retry after 2s", toolhealth.Refusal{
				Tool: "limited", Reason: toolhealth.StopRateLimited, RetryAfter: 1500 * time.Millisecond, InRow: 1,
			}},
			{toolhealth.ErrIsolated, "tool temporarily unavailable: taken out of service", toolhealth.Refusal{
				Tool: "isolated", Reason: toolhealth.StopIsolated, RetryAfter: 30 * time.Second, InRow: 1,
			}},
			{toolhealth.ErrUnknownTool, "unknown tool", toolhealth.Refusal{
				Tool: "missing", Reason: toolhealth.StopUnknownTool, RetryAfter: 30 * time.Second, InRow: 1,
			}},
		} {
			_, err := gate.Allow(t.Context(), want.refusal.Tool)
			err = fmt.Errorf("calling a tool: %w", err)
			refusal, ok := errors.AsType[*toolhealth.Refusal](err)
			require.True(t, ok)
			assert.Equal(t, want.refusal, *refusal)
			assert.Equal(t, want.text, refusal.Error())
			assert.ErrorIs(t, err, toolhealth.ErrRefused)
			for _, sentinel := range []error{
				toolhealth.ErrCircuitOpen, toolhealth.ErrProbeInFlight, toolhealth.ErrRateLimited,
				toolhealth.ErrIsolated, toolhealth.ErrBusy, toolhealth.ErrUnknownTool,
			} {
				assert.Equal(t, sentinel == want.sentinel, errors.Is(err, sentinel), "%v is %v", err, sentinel)
			}
		}
		_, err = gate.Allow(t.Context(), "open")
		refusal, _ := errors.AsType[*toolhealth.Refusal](err)
		assert.EqualValues(t, 2, refusal.InRow, "how often the model has been told")
	})
}

func TestC145_ErrorTextsOfToolsStayPrivate(t *testing.T) {
	r := caseRegistry(t, nil)
	var out bytes.Buffer
	r.OnTransition(func(e toolhealth.Transition) { fmt.Fprintf(&out, "%+v\n", e) })
	var config toolhealth.GuardConfig
	config.Observe = func(_ context.Context, e toolhealth.Event) {
		e.Err = nil // the only field with the tool's own text, for callers that ask for it
		fmt.Fprintf(&out, "%+v\n", e)
	}
	guard, err := toolhealth.NewGuard(&toolhealth.Gate{Registry: r}, config)
	require.NoError(t, err)
	secret := errors.New("invalid key sk-test-123 at secret.internal: " + strings.Repeat("body ", 400_000))
	for range 4 {
		_, err := toolhealth.Call(t.Context(), guard, "search", func(context.Context, string) (int, error) {
			return 0, secret
		})
		failure, ok := errors.AsType[*toolhealth.ToolError](err)
		require.True(t, ok)
		fmt.Fprintln(&out, failure.Error())
		data, err := json.Marshal(failure)
		require.NoError(t, err)
		out.Write(data)
	}
	_, err = (&toolhealth.Gate{Registry: r}).Allow(t.Context(), "search")
	refusal, ok := errors.AsType[*toolhealth.Refusal](err)
	require.True(t, ok)
	data, err := json.Marshal(refusal)
	require.NoError(t, err)
	fmt.Fprintf(&out, "%s %v %+v %s\n", data, refusal, *refusal, refusal.Error())
	summary := r.HealthSummary()
	data, err = json.Marshal(summary)
	require.NoError(t, err)
	fmt.Fprintf(&out, "%s %+v", data, summary)

	all := out.String()
	assert.Contains(t, all, "circuit_open", "the summaries must have texts")
	for _, word := range []string{"sk-test", "secret", "invalid key", "body"} {
		assert.NotContains(t, all, word)
	}
	assert.Less(t, len(all), 20_000)
}

// A server that answers 401 to every call is told from one that gets wrong arguments, and
// its page says when it last worked.
func TestC178_DeadKeyIsToldFromWrongArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, nil)
		gate := &toolhealth.Gate{Registry: r}
		answer := func(tool string, code int) {
			permit, err := gate.Allow(t.Context(), tool)
			require.NoError(t, err)
			permit.Settle(toolhealth.ClassifyHTTP(code, nil))
		}
		answer("keyed", 500)
		failed := time.Now()
		time.Sleep(time.Minute)
		for range 5 {
			answer("keyed", 200)
			answer("asked wrong", 200)
		}
		for range 50 {
			time.Sleep(time.Second)
			answer("keyed", 401)
			answer("asked wrong", 400)
		}
		rejected := time.Now()
		time.Sleep(time.Hour)

		keyed, wrong := caseHealth(t, r, "keyed"), caseHealth(t, r, "asked wrong")
		assert.Equal(t, toolhealth.Degraded, keyed.Status)
		assert.Equal(t, toolhealth.Healthy, wrong.Status)
		assert.Equal(t, map[toolhealth.Kind]uint64{toolhealth.KindUnauthorized: 50}, keyed.RejectedByKind)
		assert.Equal(t, map[toolhealth.Kind]uint64{toolhealth.KindInvalidRequest: 50}, wrong.RejectedByKind)
		assert.Equal(t, [2]uint64{50, 0}, [2]uint64{keyed.RejectedInRow, wrong.RejectedInRow})
		assert.True(t, keyed.Available, "the breaker stays closed")
		assert.True(t, failed.Equal(keyed.LastFailureAt))
		assert.True(t, rejected.Equal(keyed.LastRejectedAt))
		assert.Equal(t, toolhealth.Degraded, r.HealthSummary().Overall)

		answer("keyed", 200) // the key is renewed
		assert.Equal(t, toolhealth.Healthy, r.HealthStatus("keyed"))
	})
}
