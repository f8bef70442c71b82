package detach

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRun_ReturnsResultInTime(t *testing.T) {
	var abandoned atomic.Int64
	for _, count := range []*atomic.Int64{nil, &abandoned} {
		got, err := Run(t.Context(), func() string { return "here" }, "lost", count)
		assert.NoError(t, err)
		assert.Equal(t, "here", got)
	}
	assert.Zero(t, abandoned.Load())
}

func TestRun_LeavesLateFunctionAndCountsItWhileItRuns(t *testing.T) {
	for name, count := range map[string]bool{"counted": true, "not counted": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var abandoned *atomic.Int64
				if count {
					abandoned = new(atomic.Int64)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				got, err := Run(ctx, func() string { time.Sleep(time.Minute); return "late" }, "lost", abandoned)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Empty(t, got)
				if count {
					assert.EqualValues(t, 1, abandoned.Load())
				}
				time.Sleep(time.Hour)
				if count {
					assert.Zero(t, abandoned.Load())
				}
			})
		})
	}
}

func TestRun_EndedGoroutineIsLost(t *testing.T) {
	got, err := Run(t.Context(), func() string { runtime.Goexit(); return "here" }, "lost", nil)
	assert.NoError(t, err)
	assert.Equal(t, "lost", got)
}

// fn and ctx end at the same moment: Run returns the result or leaves fn, and in the
// end no function is counted.
func TestRun_ResultThatMeetsEndOfContextIsReturnedOrCountedOnce(t *testing.T) {
	gaveUp := errors.New("gave up")
	var abandoned atomic.Int64
	for range 5000 {
		ctx, cancel := context.WithCancelCause(t.Context())
		go cancel(gaveUp)
		got, err := Run(ctx, func() string { <-ctx.Done(); return "here" }, "lost", &abandoned)
		if err == nil {
			assert.Equal(t, "here", got)
		} else {
			assert.Empty(t, got)
		}
	}
	for abandoned.Load() != 0 { // the last function may still be on its way out
		runtime.Gosched()
	}
}

// lateContext is a context that ends while its Done is being asked for, and not before
// the function has ended.
type lateContext struct {
	context.Context
	over atomic.Bool
}

func (c *lateContext) Done() <-chan struct{} {
	time.Sleep(time.Second)
	c.over.Store(true)
	done := make(chan struct{})
	close(done)
	return done
}

func (c *lateContext) Err() error {
	if c.over.Load() {
		return context.Canceled
	}
	return nil
}

// Run finds a result and the end of ctx at once, and takes one of the two at random:
// the result counts.
func TestRun_ResultBesideEndOfContextIsNotLost(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			var abandoned atomic.Int64
			got, err := Run(&lateContext{Context: t.Context()}, func() string { return "here" }, "lost", &abandoned)
			assert.NoError(t, err)
			assert.Equal(t, "here", got)
			assert.Zero(t, abandoned.Load())
		})
	}
}

// hastyContext is a context whose Done is closed before its Err says so.
type hastyContext struct{ context.Context }

func (hastyContext) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

func TestRun_LeavingIsNeverSuccess(t *testing.T) {
	goOn := make(chan struct{})
	got, err := Run(hastyContext{t.Context()}, func() string { <-goOn; return "late" }, "lost", nil)
	close(goOn)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, got)
}
