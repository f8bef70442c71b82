package frame

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// limited returns the ctx of an attempt of the tool "a" with these limits, inside of ctx.
func limited(t *testing.T, ctx context.Context, l Limits) *Frame[report] {
	tool := "a"
	f, cancel := Enter(ctx, Of[report](ctx), l, &tool, nil)
	t.Cleanup(func() {
		f.Attempt.End()
		cancel(nil)
	})
	return f
}

// endsAfter waits until f is done, and checks how long that took.
func endsAfter(t *testing.T, f *Frame[report], want time.Duration) {
	t.Helper()
	start := time.Now()
	<-f.Done()
	assert.Equal(t, want, time.Since(start))
	assert.Equal(t, context.DeadlineExceeded, f.Err())
}

func TestEnter_LimitsTheTimeOfAttempt(t *testing.T) {
	for _, c := range []struct {
		limits Limits
		want   time.Duration
	}{
		{Limits{Silence: 1}, 1},
		{Limits{Whole: 1}, 1},
		{Limits{Silence: time.Hour}, time.Hour},
		{Limits{Whole: time.Hour}, time.Hour},
		{Limits{Silence: time.Minute, Whole: time.Hour}, time.Minute},
		{Limits{Silence: time.Hour, Whole: time.Minute}, time.Minute},
		{Limits{Silence: -1, Whole: time.Minute}, time.Minute},
		{Limits{Silence: time.Minute, Whole: -1}, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := limited(t, t.Context(), c.limits)
			endsAfter(t, f, c.want)
			assert.Equal(t, c.limits.Whole == c.want, f.Attempt.Overdue(), "%+v", c)
		})
	}
}

func TestEnter_WithoutLimitsNeverEnds(t *testing.T) {
	for _, l := range []Limits{{}, {Silence: -1}, {Whole: -1}} {
		synctest.Test(t, func(t *testing.T) {
			f := limited(t, t.Context(), l)
			time.Sleep(1000 * time.Hour)
			assert.NoError(t, f.Err())
			assert.False(t, f.Attempt.Overdue())
			_, bounded := f.Deadline()
			assert.False(t, bounded)
			f.Attempt.KeepAlive()
			assert.Equal(t, l == (Limits{}), f.Attempt.clock.Load() == nil, "a clock costs memory")
			assert.Zero(t, f.Attempt.Paused())
			assert.Zero(t, f.Attempt.End())
		})
	}
}

func TestFrame_DeadlineIsCallersOrThatOfWholeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		ctx, cancel := context.WithDeadline(t.Context(), now.Add(time.Hour))
		defer cancel()
		for _, c := range []struct {
			ctx    context.Context
			limits Limits
			want   time.Duration
		}{
			{ctx, Limits{}, time.Hour},
			{ctx, Limits{Silence: time.Second}, time.Hour},
			{ctx, Limits{Whole: 2 * time.Hour}, time.Hour},
			{ctx, Limits{Whole: time.Minute}, time.Minute},
			{t.Context(), Limits{Whole: time.Minute}, time.Minute},
			{t.Context(), Limits{Whole: 1}, 1},
		} {
			f := limited(t, c.ctx, c.limits)
			deadline, bounded := f.Deadline()
			assert.True(t, bounded)
			assert.Equal(t, now.Add(c.want), deadline, "%+v", c.limits)
		}
		_, bounded := limited(t, t.Context(), Limits{Silence: time.Second}).Deadline()
		assert.False(t, bounded, "the silence may last longer")
		deadline, bounded := (&Frame[report]{Context: ctx}).Deadline()
		assert.True(t, bounded)
		assert.Equal(t, now.Add(time.Hour), deadline, "of no attempt")
	})
}

func TestFrame_PauseMovesDeadlineOfWholeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		f := limited(t, t.Context(), Limits{Whole: time.Minute})
		resume := f.Attempt.Pause()
		time.Sleep(time.Hour)
		deadline, _ := f.Deadline()
		assert.Equal(t, now.Add(time.Hour+time.Minute), deadline)
		resume()
		time.Sleep(time.Second)
		deadline, _ = f.Deadline()
		assert.Equal(t, now.Add(time.Hour+time.Minute), deadline)
		endsAfter(t, f, 59*time.Second)
	})
}

// A ctx that is derived from the attempt's has the end of the time as its cause.
func TestFrame_DerivedContextHasCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := limited(t, t.Context(), Limits{Silence: time.Second})
		derived, cancel := context.WithCancel(f)
		defer cancel()
		inner := limited(t, derived, Limits{})
		<-derived.Done()
		assert.Equal(t, context.DeadlineExceeded, context.Cause(derived))
		assert.Equal(t, context.DeadlineExceeded, context.Cause(f))
		assert.Equal(t, context.DeadlineExceeded, inner.Err(), "an attempt further in")
	})
}

func TestFrame_CanceledCallerIsNoTimeout(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := limited(t, ctx, Limits{Silence: time.Hour})
	cancel()
	assert.Equal(t, context.Canceled, f.Err(), "at once")
	limit, end := context.WithCancelCause(t.Context())
	end(context.DeadlineExceeded)
	option := &Frame[report]{Context: limit}
	assert.Equal(t, context.Canceled, option.Err(), "of no attempt")
}

func TestAttempt_KeepAliveBeginsSilenceAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer := limited(t, t.Context(), Limits{Silence: time.Minute})
		f := limited(t, limited(t, outer, Limits{}), Limits{Silence: 10 * time.Second, Whole: 10 * time.Minute})
		for range 100 {
			time.Sleep(5 * time.Second)
			f.Attempt.KeepAlive()
		}
		assert.NoError(t, f.Err())
		endsAfter(t, f, 10*time.Second)
		assert.False(t, f.Attempt.Overdue())
		endsAfter(t, outer, 50*time.Second)
	})
}

func TestAttempt_KeepAliveDoesNotPutOffWholeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := limited(t, t.Context(), Limits{Silence: 10 * time.Second, Whole: time.Minute})
		for range 11 {
			time.Sleep(5 * time.Second)
			f.Attempt.KeepAlive()
		}
		endsAfter(t, f, 5*time.Second)
		assert.True(t, f.Attempt.Overdue())
	})
}

func TestAttempt_PauseStopsClocksOutwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer := limited(t, t.Context(), Limits{Silence: time.Minute})
		f := limited(t, outer, Limits{Silence: 10 * time.Second, Whole: 20 * time.Second})
		time.Sleep(4 * time.Second)
		first, second := f.Attempt.Pause(), f.Attempt.Pause()
		time.Sleep(time.Hour)
		first()
		first()
		time.Sleep(time.Hour)
		assert.NoError(t, f.Err())
		assert.Equal(t, 2*time.Hour, f.Attempt.Paused())
		second()
		endsAfter(t, f, 6*time.Second)
		assert.Equal(t, 2*time.Hour, f.Attempt.Paused())
		endsAfter(t, outer, 50*time.Second)
	})
}

func TestAttempt_PausesAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := limited(t, t.Context(), Limits{Whole: time.Minute})
		for range 3 {
			resume := f.Attempt.Pause()
			time.Sleep(time.Hour)
			resume()
			time.Sleep(10 * time.Second)
		}
		assert.Equal(t, 3*time.Hour, f.Attempt.Paused())
		endsAfter(t, f, 30*time.Second)
	})
}

// A timer that fires just when a pause begins, or the attempt ends, does nothing.
func TestAttempt_TimerThatFiresLateDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := limited(t, t.Context(), Limits{Silence: time.Second})
		c := f.Attempt.clock.Load()
		resume := f.Attempt.Pause()
		time.Sleep(time.Minute)
		f.Attempt.expire(c)
		assert.NoError(t, f.Err())
		resume()
		f.Attempt.End()
		time.Sleep(time.Minute)
		f.Attempt.expire(c)
		assert.NoError(t, f.Err())
	})
}

func TestAttempt_LeaseAloneNeedsNoTimer(t *testing.T) {
	f := limited(t, t.Context(), Limits{Lease: new(lease)})
	assert.Nil(t, f.Attempt.clock.Load().timer)
}

func TestAttempt_FirstPausesOfManyGoroutinesAllCount(t *testing.T) {
	for range 2000 {
		outer := limited(t, t.Context(), Limits{})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { outer.Attempt.Pause() })
		}
		wg.Wait()
		assert.Equal(t, 3, outer.Attempt.clock.Load().pauses)
	}
}

func TestAttempt_KeepAliveInPauseCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := limited(t, t.Context(), Limits{Silence: 10 * time.Second})
		time.Sleep(4 * time.Second)
		resume := f.Attempt.Pause()
		time.Sleep(time.Hour)
		f.Attempt.KeepAlive()
		time.Sleep(time.Hour)
		resume()
		endsAfter(t, f, 10*time.Second)
	})
}

// A pause that is not resumed ends with its attempt, and the attempt around goes on.
func TestAttempt_EndResumesAttemptsOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer := limited(t, t.Context(), Limits{Silence: time.Minute})
		f := limited(t, outer, Limits{})
		resume := f.Attempt.Pause()
		_ = f.Attempt.Pause()
		time.Sleep(time.Hour)
		assert.Equal(t, time.Hour, f.Attempt.End())
		resume()
		f.Attempt.Pause()()
		f.Attempt.KeepAlive()
		assert.Equal(t, time.Hour, f.Attempt.End(), "again")
		endsAfter(t, outer, time.Minute)
		assert.Equal(t, time.Hour, outer.Attempt.Paused())
	})
}

func TestAttempt_NothingPassesAttemptThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer := limited(t, t.Context(), Limits{Silence: time.Minute})
		left := limited(t, outer, Limits{Silence: time.Minute})
		f := limited(t, context.WithoutCancel(left), Limits{Silence: time.Hour})
		left.Attempt.End()
		time.Sleep(30 * time.Second)
		f.Attempt.KeepAlive()
		defer f.Attempt.Pause()()
		endsAfter(t, outer, 30*time.Second)
	})
}

func TestAttempt_NilHasNoClock(t *testing.T) {
	var none *Attempt
	none.KeepAlive()
	none.Pause()()
	assert.False(t, none.Probe())
	assert.Nil(t, Of[report](t.Context()).Current())
}

// lease writes down what it is told.
type lease struct {
	mu     sync.Mutex
	alive  int
	told   []bool
	during func()
}

func (l *lease) KeepAlive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alive++
}

func (l *lease) Pause(paused bool) {
	if l.during != nil {
		l.during()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, paused)
}

func TestAttempt_LeaseHearsOfSignsOfLifeAndPauses(t *testing.T) {
	l := new(lease)
	outer := limited(t, t.Context(), Limits{Lease: l})
	f := limited(t, outer, Limits{})
	f.Attempt.KeepAlive()
	assert.Equal(t, 1, l.alive)
	first, second := f.Attempt.Pause(), f.Attempt.Pause()
	first()
	second()
	assert.Equal(t, []bool{true, false}, l.told)
	_ = f.Attempt.Pause()
	f.Attempt.End()
	assert.Equal(t, []bool{true, false, true, false}, l.told)
	outer.Attempt.End()
	f.Attempt.KeepAlive()
	outer.Attempt.KeepAlive()
	assert.Equal(t, 1, l.alive)
}

// A hook that the lease calls may pause and resume by itself.
func TestAttempt_LeaseIsToldWhatIsTrueLast(t *testing.T) {
	l := new(lease)
	f := limited(t, t.Context(), Limits{Lease: l})
	resume := func() {}
	l.during = func() {
		l.during = nil
		resume()
	}
	first := f.Attempt.Pause()
	assert.Equal(t, []bool{true}, l.told)
	l.during = func() {
		l.during = nil
		_ = f.Attempt.Pause()
	}
	first()
	assert.Equal(t, []bool{true, false, true}, l.told)
}

// A hook that ends its goroutine while the lease is told does not silence the lease.
func TestAttempt_LeaseIsToldAfterHookHasEndedGoroutine(t *testing.T) {
	l := new(lease)
	f := limited(t, t.Context(), Limits{Lease: l})
	resume := f.Attempt.Pause()
	l.during = func() {
		l.during = nil
		runtime.Goexit()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		resume()
	}()
	<-done
	_ = f.Attempt.Pause()
	assert.Equal(t, []bool{true, true}, l.told, "the end of the first pause was not written down")
}

// A pause that a hook cuts short, by ending its goroutine, ends with it.
func TestAttempt_PauseOfGoroutineThatEndsIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(lease)
		f := limited(t, t.Context(), Limits{Lease: l, Whole: time.Hour})
		l.during = func() {
			l.during = nil
			runtime.Goexit()
		}
		var asks sync.WaitGroup
		asks.Go(func() { f.Attempt.Pause() })
		asks.Wait()
		endsAfter(t, f, time.Hour)
		assert.Zero(t, f.Attempt.Paused())
	})
}

func TestAttempt_LeasesComeFromInsideOut(t *testing.T) {
	one, two := new(lease), new(lease)
	outer := limited(t, t.Context(), Limits{Lease: one})
	middle := limited(t, outer, Limits{Whole: time.Hour})
	inner := limited(t, middle, Limits{Lease: two})
	assert.Equal(t, []Lease{two, one}, slices.Collect(inner.Attempt.Leases()))
	for first := range inner.Attempt.Leases() {
		assert.Equal(t, Lease(two), first)
		break
	}
	assert.Same(t, inner.Attempt, Around(inner))
	assert.Nil(t, Around(t.Context()))
	assert.Empty(t, slices.Collect(Around(t.Context()).Leases()))
	middle.Attempt.End()
	assert.Equal(t, []Lease{two}, slices.Collect(inner.Attempt.Leases()), "not past an attempt that has ended")
}

func TestAttempt_Probe(t *testing.T) {
	a, b := "a", "b"
	enter := func(ctx context.Context, tool *string, owner any, l Limits) *Frame[report] {
		f, cancel := Enter(ctx, Of[report](ctx), l, tool, owner)
		t.Cleanup(func() { cancel(nil) })
		return f
	}
	probe := enter(t.Context(), &a, 1, Limits{Lease: new(lease)})
	assert.True(t, probe.Attempt.Probe())
	rides := enter(probe, &a, 1, Limits{})
	assert.True(t, rides.Attempt.Probe(), "part of the probe")
	assert.False(t, enter(probe, &b, 1, Limits{}).Attempt.Probe(), "another tool")
	assert.False(t, enter(probe, &a, 2, Limits{}).Attempt.Probe(), "another owner")
	assert.False(t, enter(t.Context(), &a, 1, Limits{Whole: time.Hour}).Attempt.Probe(), "no lease")
	probe.Attempt.End()
	assert.False(t, probe.Attempt.Probe())
	assert.False(t, rides.Attempt.Probe())
}

func TestAttempt_ClocksMayBeUsedByManyGoroutines(t *testing.T) {
	l := new(lease)
	outer := limited(t, t.Context(), Limits{Silence: time.Hour, Lease: l})
	f := limited(t, outer, Limits{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				resume := f.Attempt.Pause()
				f.Attempt.KeepAlive()
				f.Deadline()
				resume()
			}
		})
	}
	wg.Wait()
	assert.NotEmpty(t, l.told)
	assert.False(t, l.told[len(l.told)-1])
	assert.Zero(t, outer.Attempt.clock.Load().pauses)
}

// Each attempt makes one: the frame, with or without a clock, the ctx of the standard
// library and what cancels it, and for a limit a timer and its function.
func TestEnter_AllocatesAtMost(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(Frame[report]{})+unsafe.Sizeof(Attempt{})+unsafe.Sizeof(outer{}), uintptr(112))
	ctx, tool := context.Background(), "a"
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		_, cancel := Enter[report](ctx, nil, Limits{}, &tool, nil)
		cancel(nil)
	}), 3.0)
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		f, cancel := Enter[report](ctx, nil, Limits{Silence: time.Hour}, &tool, nil)
		f.Attempt.End()
		cancel(nil)
	}), 5.0)
}

// panickingContext is a context of a user whose Value panics once it is set.
type panickingContext struct {
	context.Context
	panics *atomic.Bool
}

func (c panickingContext) Value(any) any {
	if c.panics.Load() {
		panic("Value")
	}
	return nil
}

// No caller can recover on the timer's goroutine.
func TestAttempt_LimitSurvivesPanickingContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		panics := new(atomic.Bool)
		f := limited(t, panickingContext{ctx, panics}, Limits{Silence: time.Second})
		panics.Store(true)
		endsAfter(t, f, time.Second)
		panics.Store(false)
	})
}
