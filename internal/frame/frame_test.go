package frame

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

type report struct{ text string }

// attempt returns the ctx of an attempt of the tool.
func attempt(ctx context.Context, tool string, owner any) *Frame[report] {
	return Enter[report](ctx, nil, &tool, owner)
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
	assert.Equal(t, Options[report]{NoFallback: true, NoProbe: true}, Enter(asked, o, &tool, nil).Ask())
	assert.Same(t, o.Info, asked.Ask().Info, "the options of the caller have not changed")
}
