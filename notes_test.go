package toolhealth

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var noted503 = ClassifyHTTP(503, map[string][]string{"Retry-After": {"7"}})

func TestNote_WithoutAPlaceForItDoesNothing(t *testing.T) {
	t.Parallel()
	Note(t.Context(), noted503)
	Note(nil, noted503) //nolint:staticcheck // hosts do it
	for _, ctx := range []context.Context{t.Context(), nil, WithNotes(t.Context())} {
		v, ok := NoteOf(ctx)
		assert.False(t, ok)
		assert.Zero(t, v)
	}
}

func TestNote_OfTheNearestAttempt(t *testing.T) {
	t.Parallel()
	outer := WithNotes(t.Context())
	type key struct{}
	inner := WithNotes(context.WithValue(outer, key{}, "a value"))
	Note(inner, vRetry)
	v, ok := NoteOf(inner)
	assert.True(t, ok)
	assert.Equal(t, vRetry, v)
	_, ok = NoteOf(outer)
	assert.False(t, ok)
	assert.Equal(t, "a value", inner.Value(key{}))
}

func TestNote_FromManyGoroutines(t *testing.T) {
	t.Parallel()
	ctx := WithNotes(t.Context())
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() { Note(ctx, Verdict{Outcome: OutcomeFailure, Kind: KindConnection, NotSent: i != 7}) })
	}
	wg.Wait()
	v, ok := NoteOf(ctx)
	assert.True(t, ok)
	assert.False(t, v.NotSent, "one of them may have been sent")
	assert.Equal(t, KindConnection, v.Kind)
}

func TestPermit_DoneTakesNotes(t *testing.T) {
	t.Parallel()
	registry := registryWith(t, nil)
	gate := &Gate{Registry: registry}
	ctx := WithNotes(t.Context())
	permit, err := gate.Allow(ctx, "search")
	require.NoError(t, err)
	Note(ctx, ClassifyHTTP(429, http.Header{"Retry-After": {"7"}}))
	permit.Done(ctx, errors.New("the SDK's own words"))
	assert.EqualValues(t, 1, healthOf(t, registry, "search").Throttled)
}

func TestGuard_NotesBelongToTheirAttempt(t *testing.T) {
	t.Parallel()
	registry := registryWith(t, nil)
	var heard []Verdict
	gate := &Gate{Registry: registry, Classify: func(ctx context.Context, err error) Verdict {
		v, _ := NoteOf(ctx)
		heard = append(heard, v)
		assert.NoError(t, ctx.Err(), "the ctx is the caller's")
		return Classify(ctx, err)
	}}
	for name, change := range map[string]func(*GuardConfig){
		"plain":   func(*GuardConfig) {},
		"timeout": func(c *GuardConfig) { c.Default.Timeout = time.Minute },
	} {
		heard = nil
		guard := guardOverGate(t, gate, func(c *GuardConfig) {
			c.Default.MaxAttempts = 3
			c.Default.BackoffBase = time.Nanosecond
			change(c)
		})
		failed := errors.New("the SDK's own words")
		attempt := 0
		_, err := Call(WithNotes(t.Context()), guard, name, func(ctx context.Context, _ string) (int, error) {
			switch attempt++; attempt {
			case 1:
				Note(ctx, vRetry)
			case 2:
				_, err := Call(ctx, guard, "inner "+name, func(ctx context.Context, _ string) (int, error) {
					_, noted := NoteOf(ctx)
					assert.False(t, noted, "it is another attempt")
					Note(ctx, vInvalid)
					return 0, failed
				})
				assert.Error(t, err)
				Note(ctx, vRetry)
			}
			return 0, failed
		})
		assert.Equal(t, []Verdict{vRetry, vInvalid, vRetry, {}}, heard, name)
		e, ok := errors.AsType[*ToolError](err)
		require.True(t, ok)
		assert.Equal(t, KindUnknown, e.Kind, "the third attempt left no note")
	}
}

func TestCheckStatus(t *testing.T) {
	t.Parallel()
	header := http.Header{"Retry-After": {"7"}}
	for _, code := range []int{200, 204, 299, 304} {
		assert.NoError(t, CheckStatus(code, header), code)
	}
	for _, code := range []int{-1, 0, 101, 199, 300, 303, 305, 400, 503, 600} {
		err := CheckStatus(code, header)
		e, ok := errors.AsType[*StatusError](err)
		require.True(t, ok, code)
		assert.Equal(t, code, e.StatusCode)
		assert.Equal(t, header, http.Header(e.Header))
		if code >= 300 && code < 600 {
			assert.Equal(t, ClassifyHTTP(code, header), Classify(t.Context(), err), code)
		} else {
			assert.Equal(t, KindUnknown, Classify(t.Context(), CheckStatus(code, nil)).Kind, code)
		}
	}
	assert.EqualError(t, CheckStatus(503, nil), "HTTP status 503")
	assert.Equal(t, "failure server_error retry 7s", verdictText(Classify(t.Context(), CheckStatus(503, header))))
	assert.Equal(t, "throttled rate_limited retry 7s", verdictText(Classify(t.Context(), CheckStatus(429, header))))
}
