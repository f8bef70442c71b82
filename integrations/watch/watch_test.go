package watch_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/watch"
	"github.com/toolhealth/toolhealth/internal/race"
)

var (
	timeout   = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout}
	throttled = toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, RetryAfter: time.Second}
	rejected  = toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindNotFound}
)

// bubble runs a test in virtual time, with a registry and a Watcher.
func bubble(t *testing.T, test func(t *testing.T, r *toolhealth.Registry, w *watch.Watcher)) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		w := watch.New(r, watch.Options{})
		defer w.Close()
		test(t, r, w)
	})
}

// window returns the last minutes of one tool.
func window(t *testing.T, w *watch.Watcher, tool string, span time.Duration) watch.Window {
	v := w.View(span)
	i := slices.IndexFunc(v.Summary.Tools, func(h toolhealth.ToolHealth) bool { return h.Tool == tool })
	require.GreaterOrEqual(t, i, 0)
	return v.Windows[i]
}

func TestWatcher_TellsLastMinutes(t *testing.T) {
	bubble(t, func(t *testing.T, r *toolhealth.Registry, w *watch.Watcher) {
		for range 60 { // the first minute is a good one
			r.Record("search", toolhealth.Verdict{}, 100*time.Millisecond)
			time.Sleep(time.Second)
			w.View(time.Minute)
		}
		for range 12 { // in the second one call in two fails, every 5s
			r.Record("search", toolhealth.Verdict{}, 300*time.Millisecond)
			r.Record("search", timeout, 10*time.Second)
			r.Record("search", rejected, 0)
			time.Sleep(5 * time.Second)
			w.View(time.Minute)
		}
		last := window(t, w, "search", time.Minute)
		assert.Equal(t, watch.Window{
			Span: time.Minute, Calls: 24, Failures: 12, Rejected: 12, P50: last.P50, P90: last.P90, P99: last.P99,
		}, last)
		for _, p := range []time.Duration{last.P50, last.P90, last.P99} {
			assert.InEpsilon(t, 300*time.Millisecond, p, 0.19, "of the second minute alone")
		}
		assert.InDelta(t, 0.5, last.SuccessRate(), 1e-9)
		assert.InDelta(t, 24, last.PerMinute(last.Calls), 1e-9)
		both := window(t, w, "search", 5*time.Minute)
		assert.Equal(t, 2*time.Minute, both.Span, "more is not known")
		assert.EqualValues(t, 84, both.Calls)
		assert.InEpsilon(t, 100*time.Millisecond, both.P50, 0.19)
		assert.InEpsilon(t, 300*time.Millisecond, both.P90, 0.19)
		took := w.Latency("search", 5*time.Minute)
		assert.EqualValues(t, 72, took.Successes.Count)
		assert.EqualValues(t, 12, took.Failures.Count)
		assert.Equal(t, both.P90, took.Successes.Quantile(0.9))
		assert.EqualValues(t, 12, w.Latency("search", time.Minute).Successes.Count)
		assert.Zero(t, w.Latency("nobody", time.Minute))
	})
}

func TestWatcher_KnowsNothingFromBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		for range 50 {
			r.RecordSuccess("old", time.Second)
		}
		w := watch.New(r, watch.Options{})
		defer w.Close()
		none := window(t, w, "old", time.Minute)
		assert.Equal(t, watch.Window{}, none)
		assert.InDelta(t, 1, none.SuccessRate(), 0)
		assert.Zero(t, none.PerMinute(5))
		r.RecordSuccess("old", time.Second)
		r.RecordSuccess("new", time.Second)
		time.Sleep(5 * time.Second)
		assert.EqualValues(t, 1, window(t, w, "old", time.Minute).Calls)
		assert.EqualValues(t, 1, window(t, w, "new", time.Minute).Calls, "it came after the first sample")
		assert.Zero(t, w.Series("nobody").Slots)
	})
}

func TestWatcher_SamplesOnlyWhenSomebodyLooks(t *testing.T) {
	bubble(t, func(t *testing.T, r *toolhealth.Registry, w *watch.Watcher) {
		time.Sleep(3 * time.Hour)
		r.RecordSuccess("search", time.Second)
		assert.Zero(t, window(t, w, "search", 5*time.Minute).Span, "what three hours had is not what the last minutes had")
		time.Sleep(5 * time.Second)
		r.RecordSuccess("search", time.Second)
		assert.Equal(t, 5*time.Second, window(t, w, "search", 5*time.Minute).Span)
		before := w.Version()
		time.Sleep(4 * time.Second)
		assert.Equal(t, before, w.Version())
		time.Sleep(time.Second)
		assert.Equal(t, before+1, w.Version())
	})
}

func TestWatcher_RunSamplesUntilContextIsDone(t *testing.T) {
	bubble(t, func(t *testing.T, r *toolhealth.Registry, w *watch.Watcher) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.Run(ctx); close(done) }()
		for range 720 { // an hour
			r.RecordSuccess("search", 100*time.Millisecond)
			time.Sleep(5 * time.Second)
		}
		cancel()
		<-done
		s := w.Series("search")
		require.Len(t, s.Slots, 120, "ten minutes of 5s")
		for _, slot := range s.Slots {
			assert.Equal(t, 5*time.Second, slot.End.Sub(slot.Begin))
			assert.LessOrEqual(t, slot.Calls, uint64(2))
		}
		assert.InDelta(t, 60, window(t, w, "search", 5*time.Minute).Calls, 1)
		assert.WithinDuration(t, time.Now(), s.LastSuccess, 10*time.Second)
	})
}

func TestWatcher_ForgetsWhatIsIdleOrGone(t *testing.T) {
	bubble(t, func(t *testing.T, r *toolhealth.Registry, w *watch.Watcher) {
		r.Record("idle", rejected, 0)
		for range 3 {
			r.Record("gone", timeout, 0)
		}
		time.Sleep(5 * time.Second)
		w.Sample()
		assert.NotEmpty(t, w.Series("idle").Slots)
		assert.Len(t, w.Series("gone").Events, 1)
		r.Remove("gone")
		for range 121 {
			time.Sleep(5 * time.Second)
			w.Sample()
		}
		assert.Empty(t, w.Series("idle").Slots)
		assert.Empty(t, w.Series("gone").Slots)
		assert.Empty(t, w.Series("gone").Events)
		assert.Len(t, w.View(time.Minute).Events, 1, "the history of all tools still has it")
	})
}

// A name that is removed and comes back is another tool, whose counters begin at zero.
func TestWatcher_NameThatComesBackHasNoNegativeRates(t *testing.T) {
	bubble(t, func(t *testing.T, r *toolhealth.Registry, w *watch.Watcher) {
		for range 9 {
			r.RecordSuccess("search", time.Second)
		}
		time.Sleep(5 * time.Second)
		w.Sample()
		r.Remove("search")
		r.RecordSuccess("search", 3*time.Second)
		time.Sleep(5 * time.Second)
		got := window(t, w, "search", 5*time.Second)
		assert.EqualValues(t, 1, got.Calls)
		assert.InEpsilon(t, 3*time.Second, got.P50, 0.19)
		assert.EqualValues(t, 1, w.Latency("search", time.Minute).Successes.Count)

		for _, outcome := range []toolhealth.Verdict{rejected, throttled, {Outcome: toolhealth.OutcomeNeutral}} {
			for range 5 {
				r.Record("other", outcome, 0)
			}
			r.AllowRequest("other")
			time.Sleep(5 * time.Second)
			w.Sample()
			r.Remove("other")
			r.Record("other", outcome, 0)
			time.Sleep(5 * time.Second)
			got := window(t, w, "other", time.Minute)
			assert.LessOrEqual(t, got.Calls+got.Rejected+got.Throttled+got.Refused, uint64(1))
			slots := w.Series("other").Slots
			assert.LessOrEqual(t, slots[len(slots)-1].Rejected+slots[len(slots)-1].Throttled, uint64(1))
			r.Remove("other")
		}
	})
}

// Quantiles of the last minutes are those of the calls that ended in them, within one
// bucket; the sparkline has those of each slot.
func TestWatcher_QuantilesAreOfTheLastMinutes(t *testing.T) {
	bubble(t, func(t *testing.T, r *toolhealth.Registry, w *watch.Watcher) {
		var late []time.Duration
		for i := range 600 { // ten minutes; slow from the eighth on
			took := time.Duration(1+i%100) * time.Millisecond
			if i >= 480 {
				took *= 20
				late = append(late, took)
			}
			r.RecordSuccess("search", took)
			time.Sleep(time.Second)
			w.Version() // a sample every five seconds
		}
		slices.Sort(late)
		got := window(t, w, "search", 2*time.Minute)
		assert.Equal(t, 2*time.Minute, got.Span)
		assert.InEpsilon(t, late[59], got.P50, 0.19)
		assert.InEpsilon(t, late[107], got.P90, 0.19)
		assert.InEpsilon(t, late[118], got.P99, 0.19)
		assert.Less(t, window(t, w, "search", 10*time.Minute).P50, 100*time.Millisecond)
		slots := w.Series("search").Slots
		require.Len(t, slots, 120)
		assert.InEpsilon(t, 5*time.Millisecond, slots[0].P90, 0.19)
		assert.InEpsilon(t, 100*time.Millisecond, slots[19].P90, 0.19)
		assert.InEpsilon(t, 2*time.Second, slots[119].P90, 0.19)

		for range 60 { // five minutes without a call
			time.Sleep(5 * time.Second)
			w.Sample()
		}
		assert.Equal(t, watch.Window{Span: 5 * time.Minute}, window(t, w, "search", 5*time.Minute))
		assert.NotZero(t, window(t, w, "search", 7*time.Minute).P50)
		assert.Zero(t, w.Latency("search", 5*time.Minute).Successes.Count)
	})
}

// Windows begin at a full minute: they are half a minute longer or shorter at most.
func TestWatcher_WindowIsHalfMinuteOffAtMost(t *testing.T) {
	bubble(t, func(t *testing.T, r *toolhealth.Registry, w *watch.Watcher) {
		for i := range 1000 {
			r.RecordSuccess("search", time.Second)
			time.Sleep(5 * time.Second)
			w.Sample()
			known := time.Duration(i+1) * 5 * time.Second
			for _, span := range []time.Duration{time.Minute, 5 * time.Minute, 10 * time.Minute} {
				got := window(t, w, "search", span)
				require.LessOrEqual(t, got.Span, span+30*time.Second)
				require.GreaterOrEqual(t, got.Span, min(known, span-30*time.Second), "known is %v", known)
				require.EqualValues(t, got.Span/(5*time.Second), got.Calls)
				require.Equal(t, got.Calls, w.Latency("search", span).Successes.Count)
			}
		}
	})
}

// A thousand tools have samples; those that are called after them have windows, and
// samples as soon as others are idle or gone.
func TestWatcher_ThousandToolsHaveSamples(t *testing.T) {
	bubble(t, func(t *testing.T, r *toolhealth.Registry, w *watch.Watcher) {
		for i := range 1002 {
			r.RecordSuccess(fmt.Sprintf("%04d", i), time.Second)
		}
		time.Sleep(5 * time.Second)
		w.Sample()
		assert.Len(t, w.Series("0999").Slots, 1)
		assert.Nil(t, w.Series("1000").Slots)
		assert.EqualValues(t, 1, window(t, w, "1000", time.Minute).Calls)
		assert.NotZero(t, window(t, w, "1000", time.Minute).P90)
		r.Remove("0000")
		time.Sleep(5 * time.Second)
		w.Sample()
		r.RecordSuccess("1000", time.Second)
		r.RecordSuccess("1001", time.Second)
		time.Sleep(5 * time.Second)
		w.Sample()
		assert.Len(t, w.Series("1000").Slots, 3)
		assert.Nil(t, w.Series("1001").Slots)
		for range 130 {
			r.RecordSuccess("1000", time.Second)
			time.Sleep(5 * time.Second)
			w.Sample()
		}
		r.RecordSuccess("1001", time.Second)
		time.Sleep(5 * time.Second)
		w.Sample()
		assert.Len(t, w.Series("1001").Slots, 120, "the others are idle")
		assert.Nil(t, w.Series("0999").Slots)
	})
}

func TestWatcher_NightOfFailedProbesIsTwoEvents(t *testing.T) {
	bubble(t, func(t *testing.T, r *toolhealth.Registry, w *watch.Watcher) {
		opened := time.Now()
		for range 3 {
			r.Record("search", timeout, 0)
		}
		for range 960 { // eight hours
			time.Sleep(30 * time.Second)
			require.True(t, r.AllowRequest("search"))
			require.Equal(t, toolhealth.StateHalfOpen, w.Series("search").Events[0].To)
			r.Record("search", timeout, 0)
		}
		w.Sample()
		events := w.Series("search").Events
		require.Len(t, events, 2)
		assert.Equal(t, toolhealth.CauseProbeFailed, events[0].Cause)
		assert.Equal(t, 960, events[0].Count)
		assert.Equal(t, opened.Add(30*time.Second), events[0].First)
		assert.Equal(t, time.Now(), events[0].When)
		assert.Equal(t, toolhealth.CauseFailureThreshold, events[1].Cause)
		assert.Equal(t, opened, events[1].When)
		assert.Equal(t, events, w.View(time.Minute).Events)

		time.Sleep(30 * time.Second)
		require.True(t, r.AllowRequest("search"))
		r.RecordSuccess("search", 0)
		assert.Equal(t, toolhealth.CauseProbeSucceeded, w.Series("search").Events[0].Cause)
		time.Sleep(61 * time.Minute)
		w.Sample()
		assert.Empty(t, w.Series("search").Events, "an outage that ended an hour ago is forgotten")
	})
}

func TestWatcher_EventsOfOperatorsStay(t *testing.T) {
	bubble(t, func(t *testing.T, r *toolhealth.Registry, w *watch.Watcher) {
		for range 2 {
			r.Isolate("search", "alice")
			r.Reset("search", "bob")
		}
		var by []string
		for _, e := range w.Series("search").Events {
			by = append(by, e.By)
		}
		assert.Equal(t, []string{"bob", "alice", "bob", "alice"}, by)
	})
}

func TestWatcher_FlappingToolsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *toolhealth.Registry, w *watch.Watcher) {
		for i := range 400 {
			r.Isolate("flapping", "")
			r.Reset("flapping", "")
			r.Isolate(fmt.Sprint("other ", i), "")
			time.Sleep(time.Second)
		}
		s := w.Series("flapping")
		assert.Len(t, s.Events, 240)
		assert.Equal(t, s.Events[239].First, s.From, "of the time before nothing is known")
		assert.Len(t, w.View(time.Minute).Events, 500)
	})
}

// 5,000 tools that all flap.
func TestWatcher_ManyFlappingToolsKeepLess(t *testing.T) {
	bubble(t, func(t *testing.T, r *toolhealth.Registry, w *watch.Watcher) {
		for i := range 1000 {
			for range 60 {
				r.Isolate(fmt.Sprint(i), "")
				r.Reset(fmt.Sprint(i), "")
			}
		}
		w.Sample()
		kept := 0
		for i := range 1000 {
			kept += len(w.Series(fmt.Sprint(i)).Events)
		}
		assert.Less(t, kept, 50_000+1000*50)
		assert.Len(t, w.Series("0").Events, 120)
		assert.Len(t, w.Series("999").Events, 50)
		time.Sleep(2 * time.Hour)
		w.Sample()
		assert.Empty(t, w.Series("0").Events)
		r.Isolate("0", "")
		assert.Len(t, w.Series("0").Events, 1)
	})
}

func TestWatcher_ZeroRegistryIsEmpty(t *testing.T) {
	for _, r := range []*toolhealth.Registry{nil, new(toolhealth.Registry)} {
		w := watch.New(r, watch.Options{Interval: -1})
		assert.Equal(t, 5*time.Second, w.Interval())
		assert.Empty(t, w.View(time.Minute).Summary.Tools)
		w.Close()
		w.Close()
	}
}

// 5,000 busy tools: a sample is taken in 30ms, and they take 7 KB each. Where the machine
// has other things to do, a sample is held against a summary alone.
func TestWatcher_IsCheapForFiveThousandTools(t *testing.T) {
	tools := 5000
	if race.Enabled || testing.Short() {
		tools = 500
	}
	r := toolhealth.NewRegistry()
	names := make([]string, tools)
	for i := range names {
		names[i] = fmt.Sprint("server/tool-", i)
	}
	var before, after runtime.MemStats
	synctest.Test(t, func(t *testing.T) {
		w := watch.New(r, watch.Options{})
		defer w.Close()
		for i := range 130 { // eleven minutes
			for j, name := range names {
				r.RecordSuccess(name, time.Duration(1+(i*7+j)%40)*time.Millisecond)
				r.RecordSuccess(name, time.Duration(1+(i*11+j)%400)*time.Millisecond)
			}
			if i == 0 {
				runtime.GC()
				runtime.ReadMemStats(&before)
			}
			time.Sleep(5 * time.Second)
			w.Sample()
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(w)
	})
	fastest, summary := time.Hour, time.Hour
	w := watch.New(r, watch.Options{})
	defer w.Close()
	for i := range 20 { // in real time
		for j, name := range names {
			r.RecordSuccess(name, time.Duration(1+(i*7+j)%40)*time.Millisecond)
		}
		start := time.Now()
		w.Sample()
		fastest = min(fastest, time.Since(start))
		start = time.Now()
		r.HealthSummary()
		summary = min(summary, time.Since(start))
	}
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / int64(tools)
	t.Logf("a sample of %d tools: %v at best, a summary %v; %d bytes a tool", tools, fastest, summary, each)
	assert.Less(t, fastest, max(30*time.Millisecond, 8*summary))
	if tools > 1000 { // else all of them have samples
		assert.Less(t, each, int64(7<<10))
	}
	runtime.KeepAlive(r)
}

// Calls that change states, samples and readers at once: totals are right afterwards.
func TestWatcher_ManyReadersAndCallers(t *testing.T) {
	r := toolhealth.NewRegistry()
	w := watch.New(r, watch.Options{Interval: time.Millisecond})
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var readers, callers sync.WaitGroup
	readers.Go(func() { w.Run(ctx) })
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				v := w.View(time.Minute)
				w.Series("b")
				if len(v.Windows) != len(v.Summary.Tools) {
					t.Error("windows and tools differ")
				}
			}
		})
	}
	for _, tool := range []string{"a", "b"} {
		callers.Go(func() {
			for range 300 {
				r.Record(tool, timeout, 0)
				r.Record(tool, throttled, 0)
				r.Reset(tool, "")
				r.Isolate(tool, "")
			}
		})
	}
	callers.Wait()
	cancel()
	readers.Wait()
	w.Sample()
	var failures uint64
	for _, slot := range w.Series("b").Slots {
		failures += slot.Failures
	}
	assert.LessOrEqual(t, failures, uint64(300))
	assert.NotEmpty(t, w.View(time.Minute).Events)
}

func TestWatcher_KeepsEventsOfGroupsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := toolhealth.NewRegistryWithConfig(toolhealth.Config{Group: func(tool string) string { return tool[:1] }})
		require.NoError(t, err)
		w := watch.New(r, watch.Options{})
		defer w.Close()
		for _, tool := range []string{"a1", "b1"} {
			r.IsolateGroup(tool[:1], "ada")
			r.Isolate(tool, "ada")
		}
		var told []string
		for _, e := range w.View(time.Minute).Events {
			told = append(told, e.Tool+e.Group)
			assert.Equal(t, 1, e.Count)
		}
		assert.ElementsMatch(t, []string{"a", "a1", "b", "b1"}, told)
		r.ResetGroup("a", "bob")
		events := w.GroupSeries("a").Events
		require.Len(t, events, 2)
		assert.Equal(t, "bob", events[0].By)
		assert.Empty(t, w.GroupSeries("a1").Events, "that is a tool")
		assert.Len(t, w.Series("a1").Events, 1)
		r.Remove("a1")
		w.Sample()
		assert.Empty(t, w.GroupSeries("a").Events, "the group is gone with its tool")
		assert.Len(t, w.GroupSeries("b").Events, 1)
	})
}
