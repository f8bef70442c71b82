package watch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// watched runs a test in virtual time, with a registry and a Watcher that has taken its
// first sample.
func watched(t *testing.T, interval time.Duration, test func(r *toolhealth.Registry, w *Watcher)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		config := toolhealth.DefaultConfig()
		config.MaxTools = 2 * maxTools
		r, err := toolhealth.NewRegistryWithConfig(config)
		require.NoError(t, err)
		w := New(r, Options{Interval: interval})
		defer w.Close()
		test(r, w)
	})
}

// tick waits for an interval and takes a sample.
func tick(w *Watcher) {
	time.Sleep(w.interval)
	w.Sample()
}

func TestReading_BeginsAnewIfAnyCounterIsLess(t *testing.T) {
	was := reading{2, 2, 2, 2, 2, 2}
	same := was
	assert.False(t, same.beginsAnew(&was))
	for i, is := range []reading{{1, 2, 2, 2, 2, 2}, {2, 1, 2, 2, 2, 2}, {2, 2, 1, 2, 2, 2}, {2, 2, 2, 1, 2, 2}, {2, 2, 2, 2, 1, 2}, {2, 2, 2, 2, 2, 1}} {
		assert.True(t, is.beginsAnew(&was), i)
		assert.False(t, was.beginsAnew(&is), i)
	}
}

// A mark is made each minute, of what was counted since; ten minutes are kept.
func TestSeries_HasMarkForEachMinuteWithCalls(t *testing.T) {
	watched(t, 5*time.Second, func(r *toolhealth.Registry, w *Watcher) {
		r.RecordSuccess("idle", 0)
		for i := 1; i <= 30*12; i++ {
			r.RecordSuccess("busy", time.Second)
			tick(w)
			minutes := i / 12
			require.Len(t, w.marks, min(minutes, 10)+1)
			require.Len(t, w.tools["busy"].marks, min(minutes, 10)+1)
			require.Equal(t, max(0, minutes-10), w.lost)
			require.Equal(t, 1, w.full-min(1, max(0, 121-i)), "idle is dropped")
		}
		assert.Len(t, w.tools["idle"].marks, 1, "nothing has happened")
		assert.Same(t, w.tools["idle"].latency, w.tools["idle"].marks[0].latency)
		for range 12 * 9 {
			tick(w)
		}
		assert.Len(t, w.tools["busy"].marks, 2)
		for range 12 {
			tick(w)
		}
		assert.Len(t, w.tools["busy"].marks, 1)
	})
}

// A minute is over if half an interval of it is left.
func TestWatcher_MarksAreNotEarlyOrLate(t *testing.T) {
	watched(t, 24*time.Second, func(_ *toolhealth.Registry, w *Watcher) {
		for range 4 {
			tick(w)
		}
		assert.Equal(t, []time.Time{w.began, w.began.Add(48 * time.Second), w.began.Add(96 * time.Second)}, w.marks)
	})
}

func TestWatcher_KeepsSlotsOfTenMinutes(t *testing.T) {
	for interval, want := range map[time.Duration]int{time.Millisecond: 600, time.Second: 600, 5 * time.Second: 120, 20 * time.Minute: 1} {
		watched(t, interval, func(r *toolhealth.Registry, w *Watcher) {
			for range want + 2 {
				r.RecordSuccess("x", time.Second)
				tick(w)
			}
			assert.Len(t, w.Series("x").Slots, want)
		})
	}
	assert.Equal(t, time.Duration(1), New(nil, Options{Interval: 1}).Interval())
}

// Each slot and window has what happened in it, and not what happened before.
func TestWatcher_CountsWhatHappensInSlotsAndWindows(t *testing.T) {
	watched(t, 5*time.Second, func(r *toolhealth.Registry, w *Watcher) {
		play := func(times int) {
			for range times {
				r.RecordSuccess("x", time.Second)
				r.Record("x", toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout}, 2*time.Second)
				r.Record("x", toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindNotFound}, 0)
				r.Record("x", toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited}, 0)
			}
			r.Isolate("x", "")
			for range times {
				r.AllowRequest("x")
			}
			r.Reset("x", "")
		}
		began := time.Now()
		play(2)
		tick(w)
		play(3)
		tick(w)
		s := w.Series("x")
		require.Len(t, s.Slots, 2)
		for i, n := range []uint64{2, 3} {
			assert.Equal(t, Slot{
				Begin: began.Add(time.Duration(i) * 5 * time.Second), End: began.Add(time.Duration(i+1) * 5 * time.Second),
				Calls: 2 * n, Failures: n, Rejected: n, Throttled: n, Refused: n, P90: s.Slots[i].P90,
			}, s.Slots[i])
		}
		assert.Equal(t, began, s.From, "all is known")
		for range 22 {
			tick(w)
		}
		play(4)
		tick(w)
		v := w.View(time.Minute)
		got := v.Windows[0]
		assert.Equal(t, Window{
			Span: 65 * time.Second, Calls: 8, Failures: 4, Rejected: 4, Throttled: 4, Refused: 4, P50: got.P50, P90: got.P90, P99: got.P99,
		}, got)
		assert.InDelta(t, 8/(65.0/60), got.PerMinute(8), 1e-9)
		assert.EqualValues(t, 4, w.Latency("x", time.Minute).Failures.Count)
		assert.InDelta(t, 6e10, (&Window{Span: 1}).PerMinute(1), 1)
	})
}

func TestWatcher_QuantilesAreNotMaximum(t *testing.T) {
	watched(t, 5*time.Second, func(r *toolhealth.Registry, w *Watcher) {
		for i := range 1000 {
			took := time.Millisecond
			switch {
			case i == 0:
				took = time.Minute
			case i < 50:
				took = time.Second
			}
			r.RecordSuccess("x", took)
		}
		tick(w)
		got := w.View(time.Minute).Windows[0]
		assert.InEpsilon(t, time.Millisecond, got.P50, 0.19)
		assert.InEpsilon(t, time.Millisecond, got.P90, 0.19)
		assert.InEpsilon(t, time.Second, got.P99, 0.19)
		assert.InEpsilon(t, time.Millisecond, w.Series("x").Slots[0].P90, 0.19)
	})
}

func TestWatcher_WindowThatIsNotKnownIsEmpty(t *testing.T) {
	watched(t, 5*time.Second, func(r *toolhealth.Registry, w *Watcher) {
		r.RecordSuccess("x", time.Second)
		for range 9 {
			tick(w)
		}
		assert.Equal(t, Window{}, w.View(0).Windows[0], "the last mark is 45s old")
		assert.Zero(t, w.Latency("x", 0).Successes.Count)
		assert.EqualValues(t, 1, w.View(15 * time.Second).Windows[0].Calls, "that is half a minute less")
		assert.Equal(t, Window{}, w.View(15*time.Second - 1).Windows[0])
		for range 3 {
			tick(w)
		}
		r.RecordSuccess("x", time.Second)
		time.Sleep(time.Nanosecond)
		w.Sample()
		got := w.View(0).Windows[0]
		assert.Equal(t, time.Duration(1), got.Span)
		assert.EqualValues(t, 1, got.Calls)
	})
}

func TestWatcher_LastSuccessIsTold(t *testing.T) {
	watched(t, 5*time.Second, func(r *toolhealth.Registry, w *Watcher) {
		r.Record("x", toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure}, time.Second)
		tick(w)
		assert.Zero(t, w.Series("x").LastSuccess)
		assert.EqualValues(t, 1, w.Latency("x", time.Minute).Failures.Count, "a failure alone is read")
		r.RecordSuccess("x", time.Second)
		tick(w)
		at := time.Now()
		for range 3 {
			r.Record("x", toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure}, time.Second)
			tick(w)
		}
		assert.Equal(t, at, w.Series("x").LastSuccess)
	})
}

func TestSeries_SamplesOfIdleToolAreDropped(t *testing.T) {
	watched(t, 5*time.Second, func(r *toolhealth.Registry, w *Watcher) {
		r.RecordSuccess("x", 0)
		for range 120 {
			tick(w)
		}
		assert.Len(t, w.Series("x").Slots, 120)
		assert.EqualValues(t, 1, w.Series("x").Slots[0].Calls)
		tick(w)
		assert.Empty(t, w.Series("x").Slots)
		assert.Zero(t, w.full)
	})
}

// A name that comes back after some minutes is counted from zero in longer windows, too.
func TestSeries_NameThatComesBackHasNewMarks(t *testing.T) {
	watched(t, 5*time.Second, func(r *toolhealth.Registry, w *Watcher) {
		for range 9 {
			r.RecordSuccess("x", time.Second)
		}
		for range 30 {
			tick(w)
		}
		r.Remove("x")
		r.RecordSuccess("x", 3*time.Second)
		tick(w)
		got := w.View(time.Minute).Windows[0]
		assert.EqualValues(t, 1, got.Calls)
		assert.InEpsilon(t, 3*time.Second, got.P50, 0.19)
	})
}

// 5,000 tools are watched. One more is watched as soon as there is room, from then on.
func TestWatcher_ToolsAreBounded(t *testing.T) {
	watched(t, 5*time.Second, func(r *toolhealth.Registry, w *Watcher) {
		for i := range maxTools {
			r.RecordSuccess(fmt.Sprintf("%05d", i), time.Second)
		}
		tick(w)
		late := "00000 late" // among the others by its name
		r.RecordSuccess(late, time.Second)
		tick(w)
		assert.Len(t, w.tools, maxTools)
		assert.Nil(t, w.tools[late])
		assert.Equal(t, maxSeries, w.full)
		window := func(tool string) Window {
			v := w.View(time.Minute)
			for i := range v.Windows {
				if v.Summary.Tools[i].Tool == tool {
					return v.Windows[i]
				}
			}
			return Window{}
		}
		assert.Zero(t, window(late).Calls)
		r.Remove("04000") // which has no samples
		r.Remove("04001")
		tick(w) // they are gone by its end
		assert.Equal(t, maxSeries, w.full)
		tick(w)
		assert.Len(t, w.tools, maxTools-1)
		assert.Zero(t, window(late).Calls, "what it had counted is from before")
		assert.Zero(t, w.Latency(late, time.Minute).Successes.Count)
		r.RecordSuccess(late, time.Second)
		r.RecordSuccess("new", time.Second)
		tick(w)
		assert.EqualValues(t, 1, window(late).Calls)
		assert.EqualValues(t, 1, w.Latency(late, time.Minute).Successes.Count)
		assert.EqualValues(t, 1, window("new").Calls, "nobody was left out when it came")
	})
}

func TestWatcher_VersionCountsSamplesAndTransitions(t *testing.T) {
	watched(t, 5*time.Second, func(r *toolhealth.Registry, w *Watcher) {
		before := w.Version()
		r.Isolate("x", "")
		assert.Equal(t, before+1, w.Version())
		assert.Equal(t, before+1, w.View(time.Minute).Version)
		tick(w)
		assert.Equal(t, before+2, w.Version())
		w.Close()
		r.Reset("x", "")
		assert.Equal(t, before+2, w.Version(), "it hears no more")
		assert.Len(t, w.View(time.Minute).Events, 1)
	})
}
