package toolhealth

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth/internal/errfacts"
)

func canceledContext(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func expiredContext(t *testing.T) context.Context {
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	t.Cleanup(cancel)
	return ctx
}

func TestClassify_FloorIsForCallerDeadlineOnly(t *testing.T) {
	t.Parallel()
	timeout := Verdict{Outcome: OutcomeFailure, Kind: KindTimeout, Retryable: true}
	classify := func(context.Context, error) Verdict { return timeout }
	assert.Equal(t, timeout, verdictAt(t.Context(), classify, io.EOF, 0, time.Second), "the caller has time")
	assert.Equal(t, timeout, verdictAt(noContext, classify, io.EOF, 0, time.Second), "no context")
	assert.Equal(t, timeout, verdictAt(canceledContext(t), classify, io.EOF, 0, time.Second), "the caller gave up")
	assert.Equal(t, Verdict{Outcome: OutcomeNeutral, Kind: KindCanceled}, verdictAt(expiredContext(t), classify, io.EOF, 0, time.Second))
	assert.Zero(t, verdictAt(expiredContext(t), classify, nil, 0, time.Second), "no error")
}

func TestClassify_FactsToVerdict(t *testing.T) {
	status := func(code int) errfacts.Fact { return errfacts.Fact{Class: errfacts.HTTP, Code: code} }
	busy := errfacts.Fact{Class: errfacts.GRPC, Code: 8}
	throttled := Verdict{Outcome: OutcomeThrottled, Kind: KindRateLimited, Retryable: true}
	unknown := Verdict{Outcome: OutcomeFailure, Kind: KindUnknown}
	failed := Verdict{Outcome: OutcomeFailure, Kind: KindServerError}
	unsent := with(failed, 0, true)
	unsent.NotSent = true
	for name, c := range map[string]struct {
		facts errfacts.Facts
		want  Verdict
	}{
		"nothing but a wait":                   {errfacts.Facts{Wait: 1}, with(throttled, 1, true)},
		"a wait, and it may be repeated":       {errfacts.Facts{Wait: 1, Retry: 1}, with(throttled, 1, true)},
		"a wait, and it must not":              {errfacts.Facts{Wait: 1, Retry: -1}, unknown},
		"no wait, but it may be repeated":      {errfacts.Facts{Retry: 1}, with(unknown, 0, true)},
		"the shortest wait of a 429":           {errfacts.Facts{Fact: status(429), Wait: 1}, with(throttled, 1, true)},
		"the shortest wait of a code":          {errfacts.Facts{Fact: busy, Wait: 1}, with(throttled, 1, true)},
		"a throttle that must not be repeated": {errfacts.Facts{Fact: busy, Wait: 5, Retry: -1}, with(throttled, 5, false)},
		"a failure that must not be repeated":  {errfacts.Facts{Fact: status(503), Retry: -1}, failed},
		"a rejection stays one":                {errfacts.Facts{Fact: status(404), Retry: 1, NotSent: true}, Verdict{Outcome: OutcomeRejected, Kind: KindNotFound}},
		"so does a neutral verdict":            {errfacts.Facts{Fact: errfacts.Fact{Class: errfacts.JSON}, Retry: 1, NotSent: true}, Verdict{Outcome: OutcomeNeutral, Kind: KindContract}},
		"an unsent failure":                    {errfacts.Facts{Fact: status(503), NotSent: true}, unsent},
	} {
		assert.Equal(t, c.want, verdictOf(c.facts), name)
	}
}

// with returns v with this wait, retryable or not.
func with(v Verdict, wait time.Duration, retry bool) Verdict {
	v.RetryAfter, v.Retryable = wait, retry
	return v
}

func TestClassify_ShortestWaitMakes429Throttle(t *testing.T) {
	assert.Equal(t, Verdict{Outcome: OutcomeThrottled, Kind: KindRateLimited, Retryable: true, RetryAfter: 1}, ClassifyHTTP(429, map[string][]string{"Retry-After": {"0.000000001"}}))
}

func TestClassify_FloorExcusesTimeoutsOnly(t *testing.T) {
	says := func(v Verdict) Classifier { return func(context.Context, error) Verdict { return v } }
	for _, v := range []Verdict{
		{Outcome: OutcomeFailure, Kind: KindServerError, Retryable: true},
		{Outcome: OutcomeRejected, Kind: KindInvalidRequest},
		{Outcome: OutcomeThrottled, Kind: KindTimeout},
	} {
		assert.Equal(t, v, verdictAt(expiredContext(t), says(v), errBusy, 0, time.Second))
	}
	for _, kind := range []Kind{numKinds, numKinds + 1} {
		assert.Equal(t, Verdict{Outcome: OutcomeFailure, Kind: KindUnknown},
			verdictAt(t.Context(), says(Verdict{Outcome: OutcomeFailure, Kind: kind}), errBusy, 0, 0), "no such kind")
	}
}

func TestClassify_TimeoutOfTheGuardIsAllThatCounts(t *testing.T) {
	t.Parallel()
	ctx := WithNotes(t.Context())
	Note(ctx, Verdict{Outcome: OutcomeFailure, Kind: KindRateLimited, RetryAfter: time.Second})
	assert.Equal(t, Verdict{Outcome: OutcomeFailure, Kind: KindTimeout, Retryable: true}, Classify(ctx, &attemptTimeoutError{errRefusedDial}))
}

// errRefusedDial says that nothing was sent.
var errRefusedDial = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

var (
	retryable = Verdict{Outcome: OutcomeFailure, Kind: KindServerError, Retryable: true}
	invalid   = Verdict{Outcome: OutcomeRejected, Kind: KindInvalidRequest}
)

var noted503 = ClassifyHTTP(503, map[string][]string{"Retry-After": {"7"}})

func TestNote_WithoutAPlaceForItDoesNothing(t *testing.T) {
	t.Parallel()
	Note(t.Context(), noted503)
	Note(noContext, noted503)
	for _, ctx := range []context.Context{t.Context(), noContext, WithNotes(t.Context())} {
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
	Note(inner, retryable)
	v, ok := NoteOf(inner)
	assert.True(t, ok)
	assert.Equal(t, retryable, v)
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
		ctx := t.Context()
		if name == "timeout" { // what is noted further out is no evidence of an attempt
			ctx = WithNotes(ctx)
			Note(ctx, noted503)
		}
		_, err := Call(ctx, guard, name, func(ctx context.Context, _ string) (int, error) {
			switch attempt++; attempt {
			case 1:
				Note(ctx, retryable)
			case 2:
				_, err := Call(ctx, guard, "inner "+name, func(ctx context.Context, _ string) (int, error) {
					_, noted := NoteOf(ctx)
					assert.False(t, noted, "it is another attempt")
					Note(ctx, invalid)
					return 0, failed
				})
				assert.Error(t, err)
				Note(ctx, retryable)
			}
			return 0, failed
		})
		assert.Equal(t, []Verdict{retryable, invalid, retryable, {}}, heard, name)
		e, ok := errors.AsType[*ToolError](err)
		require.True(t, ok)
		assert.Equal(t, KindUnknown, e.Verdict.Kind, "the third attempt left no note")
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
	assert.Equal(t, noted503, Classify(t.Context(), CheckStatus(503, header)))
	throttled := Classify(t.Context(), CheckStatus(429, header))
	assert.Equal(t, Verdict{Outcome: OutcomeThrottled, Kind: KindRateLimited, Retryable: true, RetryAfter: 7 * time.Second}, throttled)
}

func TestClassify_CauseOfCancelAgainstFloor(t *testing.T) {
	t.Parallel()
	canceled := Verdict{Outcome: OutcomeNeutral, Kind: KindCanceled}
	for cause, want := range map[error]Verdict{
		context.DeadlineExceeded:    {Outcome: OutcomeFailure, Kind: KindTimeout},
		errors.New("another cause"): canceled,
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		assert.Equal(t, want, verdictAt(ctx, nil, errBusy, time.Second, time.Second))
		assert.Equal(t, canceled, verdictAt(ctx, nil, errBusy, time.Second-1, time.Second), "no fair chance")
	}
}

func TestBadRequest_IsTheCallersFaultInItsOwnWords(t *testing.T) {
	assert.NoError(t, BadRequest(nil))
	guard, err := New(Settings{})
	require.NoError(t, err)
	list := Wrap(guard, "list", func(context.Context, string) (string, error) {
		return "", BadRequest(errors.New("argument 'path' is required"))
	})
	for range 5 {
		_, err = list.Call(t.Context(), "")
	}
	text, ok := ModelText(err)
	assert.True(t, ok)
	assert.Equal(t, "argument 'path' is required", text)
	h, _ := guard.Registry().Health("list")
	assert.Equal(t, uint64(5), h.Rejected)
	assert.Equal(t, StateClosed, h.State)
}
