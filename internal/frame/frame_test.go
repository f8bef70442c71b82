package frame

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
)

type report struct{ text string }

// attempt returns the ctx of an attempt of the tool.
func attempt(ctx context.Context, tool string, o *Options[report]) *Frame[report] {
	return &Frame[report]{Context: ctx, Tool: &tool, Options: o}
}

func TestFrame_NilHasNoOptionsAndNoAttempt(t *testing.T) {
	none := Of[report](t.Context())
	assert.Nil(t, none)
	assert.Zero(t, none.Ask())
	assert.Nil(t, none.Attempt())
	assert.False(t, none.Inside("a"))
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

func TestFrame_InsideKnowsEveryAttemptFurtherOut(t *testing.T) {
	var ctx context.Context = t.Context()
	for _, tool := range []string{"a", "b", "c"} {
		ctx = &Frame[report]{Context: ctx, Options: &Options[report]{NoFallback: true}}
		ctx = attempt(context.WithoutCancel(ctx), tool, nil)
	}
	f := Of[report](&Frame[report]{Context: ctx})
	for tool, want := range map[string]bool{"a": true, "b": true, "c": true, "d": false, "": false} {
		assert.Equal(t, want, f.Inside(tool), tool)
	}
	assert.Equal(t, "c", *f.Attempt().Tool)
	assert.False(t, Of[report](t.Context()).Inside(""))
}

func TestFrame_CallInsideAttemptDoesNotReportOutside(t *testing.T) {
	o := &Options[report]{Info: new(report), NoFallback: true}
	asked := &Frame[report]{Context: t.Context(), Options: o}
	assert.Equal(t, *o, asked.Ask())
	assert.Equal(t, Options[report]{NoFallback: true}, attempt(asked, "a", o).Ask())
	assert.Same(t, o.Info, asked.Ask().Info, "the options of the caller have not changed")
}
