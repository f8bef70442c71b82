package toolhealth

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/toolhealth/toolhealth/internal/errfacts"
)

func TestWhatAnErrorSaysOfWaitsAndRepetitionsIsPutIntoItsVerdict(t *testing.T) {
	status := func(code int) errfacts.Fact { return errfacts.Fact{Class: errfacts.HTTP, Code: code} }
	busy := errfacts.Fact{Class: errfacts.GRPC, Code: 8}
	throttled := Verdict{Outcome: OutcomeThrottled, Kind: KindRateLimited, Retryable: true}
	for name, c := range map[string]struct {
		facts errfacts.Facts
		want  Verdict
	}{
		"nothing but a wait":                 {errfacts.Facts{Wait: 1}, with(throttled, 1, true)},
		"a wait, and it may be repeated":     {errfacts.Facts{Wait: 1, Retry: 1}, with(throttled, 1, true)},
		"a wait, and it must not":            {errfacts.Facts{Wait: 1, Retry: -1}, vUnknown},
		"no wait, but it may be repeated":    {errfacts.Facts{Retry: 1}, with(vUnknown, 0, true)},
		"the shortest wait of a 429":         {errfacts.Facts{Fact: status(429), Wait: 1}, with(throttled, 1, true)},
		"the shortest wait of a code":        {errfacts.Facts{Fact: busy, Wait: 1}, with(throttled, 1, true)},
		"a throttle that must not be tried":  {errfacts.Facts{Fact: busy, Wait: 5, Retry: -1}, with(throttled, 5, false)},
		"a failure that must not be tried":   {errfacts.Facts{Fact: status(503), Retry: -1}, with(vRetry, 0, false)},
		"a rejection stays one":              {errfacts.Facts{Fact: status(404), Retry: 1, NotSent: true}, vNotFound},
		"so does what is no evidence at all": {errfacts.Facts{Fact: errfacts.Fact{Class: errfacts.JSON}, Retry: 1, NotSent: true}, vUndecided},
		"an unsent failure":                  {errfacts.Facts{Fact: status(503), NotSent: true}, Verdict{Outcome: OutcomeFailure, Kind: KindServerError, Retryable: true, NotSent: true}},
	} {
		assert.Equal(t, c.want, verdictOf(c.facts), name)
	}
}

// with returns v with another wait and word on repetition.
func with(v Verdict, wait time.Duration, retry bool) Verdict {
	v.RetryAfter, v.Retryable = wait, retry
	return v
}

func TestTheShortestWaitMakesA429AThrottle(t *testing.T) {
	assert.Equal(t, Verdict{Outcome: OutcomeThrottled, Kind: KindRateLimited, Retryable: true, RetryAfter: 1}, ClassifyHTTP(429, map[string][]string{"Retry-After": {"0.000000001"}}))
}

func TestOnlyATimeoutIsExcusedByADeadlineThatWasTooShort(t *testing.T) {
	says := func(v Verdict) Classifier { return func(context.Context, error) Verdict { return v } }
	for _, v := range []Verdict{vRetry, vInvalid, {Outcome: OutcomeThrottled, Kind: KindTimeout}} {
		assert.Equal(t, v, verdictAt(expiredContext(t), says(v), errBusy, 0, time.Second))
	}
	for _, kind := range []Kind{numKinds, numKinds + 1} {
		assert.Equal(t, vUnknown, verdictAt(t.Context(), says(Verdict{Outcome: OutcomeFailure, Kind: kind}), errBusy, 0, 0), "no such kind")
	}
}

func TestAnAttemptsTimeoutIsOneAroundACyclicErrorToo(t *testing.T) {
	self := &cyclic{}
	self.cause = self
	assert.Equal(t, vTimeout, Classify(t.Context(), &attemptTimeoutError{self}))
}

func TestAClassifierSeesThatTheTimeWasUpAndReadsTheToolsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read []string
		g := guardOverGate(t, &Gate{Classify: func(_ context.Context, err error) Verdict {
			read = append(read, err.Error())
			var late interface{ Timeout() bool }
			assert.True(t, errors.As(err, &late) && late.Timeout())
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			return vUnknown
		}}, func(c *GuardConfig) { c.Default = Policy{Timeout: time.Second} })
		_, _ = Call(t.Context(), g, "a", func(ctx context.Context, _ string) (int, error) {
			<-ctx.Done()
			return 0, errors.New("gave up on page 7")
		})
		assert.Equal(t, []string{"gave up on page 7"}, read)
	})
}
