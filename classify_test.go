package toolhealth

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
	assert.Equal(t, Verdict{Outcome: OutcomeThrottled, Kind: KindRateLimited, Retryable: true, RetryAfter: 1}, httpVerdict(429, "", 1))
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
