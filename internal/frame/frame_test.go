package frame

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

type report struct{}

// attempt returns the ctx of an attempt of the tool.
func attempt(ctx context.Context, tool string, owner any) *Frame[report] {
	f, cancel := Enter(ctx, Of[report](ctx), Limits{}, &tool, owner)
	context.AfterFunc(ctx, func() { cancel(nil) }) // a test ends no attempt, and vet wants every cancel to be used
	return f
}

func TestFrame_NilHasNoOptionsAndNoAttempt(t *testing.T) {
	none := Of[report](t.Context())
	assert.Nil(t, none)
	assert.Zero(t, none.Ask())
	assert.False(t, none.Nested())
	assert.False(t, none.Inside("a", nil))
	none.Act()
	none.Unact()
}

func TestFrame_IsFoundThroughOtherContexts(t *testing.T) {
	type other struct{}
	outer := attempt(t.Context(), "a", nil)
	ctx := context.WithValue(outer, other{}, "kept")
	assert.Same(t, outer, Of[report](ctx))
	inner := attempt(ctx, "b", nil)
	assert.Same(t, inner, Of[report](inner))
	assert.Equal(t, "kept", inner.Value(other{}))
}

func TestNoProbe_IsFoundInEveryFrameInside(t *testing.T) {
	assert.False(t, NoProbe(t.Context()), "no frame")
	assert.False(t, NoProbe(&Frame[report]{Context: t.Context()}), "a frame without options")
	assert.False(t, NoProbe(&Frame[report]{Context: t.Context(), Options: &Options[report]{NoFallback: true}}))
	asked := &Options[report]{NoProbe: true}
	ctx := &Frame[report]{Context: t.Context(), Options: asked}
	assert.True(t, NoProbe(ctx))
	tool := "a"
	f, cancel := Enter(ctx, ctx, Limits{}, &tool, nil)
	defer cancel(nil)
	assert.True(t, NoProbe(f), "an attempt has the options of its caller")
	assert.True(t, NoProbe(context.WithoutCancel(ctx)), "through another ctx")
}

func TestFrame_InsideKnowsEveryRunningAttemptFurtherOut(t *testing.T) {
	var ctx context.Context = t.Context()
	var attempts []*Frame[report]
	for _, tool := range []string{"a", "b", "c"} {
		ctx = &Frame[report]{Context: ctx, Options: &Options[report]{NoFallback: true}}
		attempts = append(attempts, attempt(context.WithoutCancel(ctx), tool, 1))
		ctx = attempts[len(attempts)-1]
	}
	f := Of[report](&Frame[report]{Context: ctx})
	for tool, want := range map[string]bool{"a": true, "b": true, "c": true, "d": false, "": false} {
		assert.Equal(t, want, f.Inside(tool, 1), tool)
		assert.False(t, f.Inside(tool, 2), "another owner's %s", tool)
		assert.False(t, f.Inside(tool, nil), "%s without an owner", tool)
	}
	attempts[1].Attempt.End()
	assert.False(t, f.Inside("b", 1), "an attempt that has ended")
	assert.True(t, f.Inside("a", 1))
	assert.True(t, f.Nested())
	attempts[0].Attempt.End()
	assert.True(t, f.Nested())
	attempts[2].Attempt.End()
	assert.False(t, f.Nested())
}

func TestFrame_ActIsSeenByEveryAttemptFurtherOut(t *testing.T) {
	outer := attempt(t.Context(), "a", nil)
	middle := attempt(outer, "b", nil)
	inner := &Frame[report]{Context: context.WithoutCancel(middle)}
	beside := attempt(outer, "c", nil)
	inner.Act()
	inner.Act()
	inner.Unact()
	assert.False(t, outer.Attempt.GiveUp())
	assert.False(t, middle.Attempt.GiveUp())
	assert.True(t, beside.Attempt.GiveUp())
	middle.Attempt.End()
	inner.Act()
	inner.Unact()
	inner.Unact()
	assert.True(t, outer.Attempt.GiveUp())
	assert.True(t, middle.Attempt.GiveUp())
}

func TestFrame_NothingActsInAttemptThatWasGivenUp(t *testing.T) {
	outer := attempt(t.Context(), "a", nil)
	middle := attempt(outer, "b", nil)
	inner := attempt(middle, "c", nil)
	assert.True(t, middle.Attempt.GiveUp())
	assert.False(t, inner.Act())
	assert.True(t, middle.Attempt.GiveUp(), "again")
	assert.True(t, inner.Attempt.GiveUp(), "the refused run was not noted")
	assert.True(t, outer.Act(), "the attempt further out goes on")
	assert.False(t, inner.Act())
	assert.False(t, outer.Attempt.GiveUp())
}

// Either the run is seen, or it does not begin.
func TestFrame_ActAndGiveUpExcludeEachOther(t *testing.T) {
	for range 1000 {
		outer := attempt(t.Context(), "a", nil)
		inner := attempt(outer, "b", nil)
		var acts atomic.Int32
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if inner.Act() {
					acts.Add(1)
				}
			})
		}
		gone := outer.Attempt.GiveUp()
		if wg.Wait(); gone {
			assert.Zero(t, acts.Load())
		} else {
			assert.NotZero(t, acts.Load())
		}
	}
}

func TestFrame_CallInsideAttemptDoesNotReportOutside(t *testing.T) {
	o := &Options[report]{Info: new(report), NoFallback: true, NoProbe: true}
	asked := &Frame[report]{Context: t.Context(), Options: o}
	assert.Equal(t, *o, asked.Ask())
	tool := "a"
	f, cancel := Enter(asked, asked, Limits{}, &tool, nil)
	defer cancel(nil)
	assert.Equal(t, Options[report]{NoFallback: true, NoProbe: true}, f.Ask())
	assert.Same(t, o.Info, asked.Ask().Info, "the options of the caller have not changed")
}

// closedContext is a context of a user that is done before its Err says so.
type closedContext struct{ context.Context }

func (closedContext) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

func TestFrame_ContextDoneBeforeItsErrIsCanceled(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} {
		tool := "a"
		f, cancel := Enter[report](closedContext{t.Context()}, nil, Limits{Silence: timeout}, &tool, nil)
		assert.ErrorIs(t, f.Err(), context.Canceled)
		f.Attempt.End()
		cancel(nil)
	}
}

func TestFrame_EndsAsItsCallersContextDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		outer := attempt(ctx, "a", nil)
		inner := attempt(outer, "b", nil)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, context.DeadlineExceeded, outer.Err())
		assert.Equal(t, context.DeadlineExceeded, inner.Err())
	})
}

func TestFrame_HasNotesOfItsAttempt(t *testing.T) {
	f := attempt(t.Context(), "a", nil)
	assert.Same(t, &f.Attempt.Notes, f.Value(NotesKey{}))
	inside := &Frame[report]{Context: f}
	assert.Same(t, &f.Attempt.Notes, inside.Value(NotesKey{}), "of the nearest attempt")
	assert.Nil(t, (&Frame[report]{Context: t.Context()}).Value(NotesKey{}))
}

// endedContext is a context of a user whose Err says more than its Done.
type endedContext struct{ context.Context }

func (endedContext) Err() error { return context.DeadlineExceeded }

func TestFrame_ErrOfCallersContextIsPassedOn(t *testing.T) {
	assert.Equal(t, context.DeadlineExceeded, (&outer{endedContext{t.Context()}}).Err())
	assert.NoError(t, (&outer{t.Context()}).Err())
}

func TestFrame_ConcurrentActsAreAllCounted(t *testing.T) {
	const callers, acts = 8, 20_000
	f := attempt(t.Context(), "a", nil)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range acts {
				f.Act()
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, callers*acts, f.Attempt.acting.Load())
}
