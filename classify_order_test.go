package toolhealth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The rules of Classify in their order; each test shows one rule and that it
// comes before the next.

func canceledContext(t *testing.T, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	return ctx
}

func expiredContext(t *testing.T) context.Context {
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	t.Cleanup(cancel)
	return ctx
}

// saysLike describes itself.
type saysLike struct{ v Verdict }

func (saysLike) Error() string          { return "says" }
func (e saysLike) ToolVerdict() Verdict { return e.v }

func TestRule1NoErrorIsASuccessWhateverTheContextSays(t *testing.T) {
	t.Parallel()
	assert.Zero(t, Classify(canceledContext(t, nil), nil))
	assert.Zero(t, Classify(expiredContext(t), nil))
}

func TestRule2ARefusalIsNeutralWhereverItIsInTheTree(t *testing.T) {
	t.Parallel()
	refusal := &Refusal{Tool: "other", Reason: StopProbeInFlight, RetryAfter: 3 * time.Second}
	notRun := &ToolError{Reason: StopCircuitOpen, Candidates: []Candidate{{Err: refusal}}}
	for name, err := range map[string]error{
		"itself":             refusal,
		"wrapped":            fmt.Errorf("nested: %w", refusal),
		"joined":             errors.Join(io.EOF, refusal),
		"of a guarded call":  notRun,
		"described as worse": WithVerdict(refusal, Verdict{Outcome: OutcomeFailure}),
		"with a nil before":  errors.Join((*Refusal)(nil), (*ToolError)(nil), refusal),
	} {
		assert.Equal(t, "neutral refused 3s", verdictText(Classify(t.Context(), err)), name)
	}
	rules := ErrorRules{Own: []Rule{func(error) (Verdict, bool) { return Verdict{}, true }}}
	assert.Equal(t, "neutral refused 3s", verdictText(rules.Classify(t.Context(), refusal)))
	assert.Equal(t, "neutral refused", verdictText(Classify(t.Context(), &Refusal{RetryAfter: -time.Second})))
	assert.Equal(t, "neutral refused 3s", verdictText(Classify(expiredContext(t), refusal)))
}

func TestRule2AGuardedCallThatRanAToolIsJudgedByWhatTheToolSaid(t *testing.T) {
	t.Parallel()
	ran := &ToolError{Reason: StopCircuitOpen, Attempts: 1, Candidates: []Candidate{
		{Tool: "search", Err: &openaiLike{StatusCode: 503}},
		{Tool: "spare", Err: &Refusal{Reason: StopCircuitOpen}},
		{Tool: "another", Err: errNoAdapter},
	}}
	assert.Equal(t, "failure server_error retry", verdictText(Classify(t.Context(), ran)))
}

func TestRule3WhatAnErrorSaysOfItselfComesBeforeTheRulesAndTheContext(t *testing.T) {
	t.Parallel()
	said := Verdict{Outcome: OutcomeThrottled, Kind: KindRateLimited, RetryAfter: time.Minute}
	rules := ErrorRules{Own: []Rule{func(error) (Verdict, bool) { return Verdict{Outcome: OutcomeRejected}, true }}}
	for name, err := range map[string]error{
		"a method":        saysLike{said},
		"a method inside": fmt.Errorf("call: %w", saysLike{said}),
		"a mark":          WithVerdict(&openaiLike{StatusCode: 404}, said),
		"the outer mark":  WithVerdict(saysLike{Verdict{}}, said),
	} {
		assert.Equal(t, said, rules.Classify(canceledContext(t, nil), err), name)
	}
	assert.Equal(t, "rejected none", verdictText(rules.Classify(t.Context(), panicsLike{})), "a method that panics says nothing")
}

func TestAMarkedErrorIsStillTheError(t *testing.T) {
	t.Parallel()
	marked := WithVerdict(io.EOF, Verdict{Outcome: OutcomeNeutral})
	require.ErrorIs(t, marked, io.EOF)
	assert.Equal(t, "EOF", marked.Error())
	assert.NoError(t, WithVerdict(nil, Verdict{Outcome: OutcomeFailure}))
}

func TestRule3OwnRulesDecideInTheirOrderBeforeTheContext(t *testing.T) {
	t.Parallel()
	interrupt := errors.New("interrupt")
	rules := ErrorRules{Own: []Rule{
		func(error) (Verdict, bool) { panic("a rule with a mistake is passed over") },
		Neutral(KindDenied, func(err error) bool { return errors.Is(err, interrupt) }),
		For(func(e genaiLike) Verdict { return ClassifyHTTP(e.Code+100, nil) }),
		For(func(e *openaiLike) Verdict { return ClassifyHTTP(200, e.Response.Header) }),
		For(func(net.Error) Verdict { return Verdict{Outcome: OutcomeRejected} }),
	}}
	for want, err := range map[string]error{
		"neutral denied":             fmt.Errorf("tool: %w", interrupt),
		"failure server_error retry": errors.Join(io.EOF, fmt.Errorf("tool: %w", genaiLike{Code: 403})),
		"rejected none":              fmt.Errorf("tool: %w", &url.Error{Err: io.EOF}),
	} {
		assert.Equal(t, want, verdictText(rules.Classify(t.Context(), err)))
		assert.Equal(t, want, verdictText(rules.Classify(canceledContext(t, nil), err)))
	}
	// The rule for *openaiLike panics at the nil Response.
	assert.Equal(t, "rejected not_found", verdictText(rules.Classify(t.Context(), &openaiLike{StatusCode: 404})))
	assert.Equal(t, "success none", verdictText(rules.Classify(t.Context(), &openaiLike{StatusCode: 404, Response: httpAnswer(0)})))
	assert.Equal(t, "failure unknown", verdictText(rules.Classify(t.Context(), errors.New("?"))), "no rule knows it")
}

func TestRule4ACancelledCallerIsNeutralWhateverTheErrorSays(t *testing.T) {
	t.Parallel()
	cause := errors.New("a sibling failed")
	for _, err := range []error{context.Canceled, cause, &openaiLike{StatusCode: 503}, context.DeadlineExceeded, errors.New("?"),
		&attemptTimeoutError{io.EOF}, &openaiLike{StatusCode: 404}, syscallRefused()} {
		assert.Equal(t, "neutral canceled", verdictText(Classify(canceledContext(t, cause), err)), "%v", err)
	}
}

func syscallRefused() error { return dialError(io.EOF) }

func TestSiblingsOfAFailedBranchDoNotOpenTheBreaker(t *testing.T) {
	t.Parallel()
	// One branch of a fan-out fails, the group's context ends with its error as
	// the cause, and the nine others return that cause.
	registry := registryWith(t, nil)
	gate := &Gate{Registry: registry}
	group, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("branch failed")
	var wg sync.WaitGroup
	for range 9 {
		permit, err := gate.Allow(group, "search")
		require.NoError(t, err)
		wg.Go(func() {
			<-group.Done()
			permit.Done(group, context.Cause(group))
		})
	}
	cancel(cause)
	wg.Wait()
	health := healthOf(t, registry, "search")
	assert.Equal(t, StateClosed, health.State)
	assert.EqualValues(t, 9, health.Neutral)
	assert.Zero(t, health.Failures)
}

func TestRule5AnExpiredCallerIsATimeoutThatIsNotRetried(t *testing.T) {
	t.Parallel()
	for _, err := range []error{context.DeadlineExceeded, &openaiLike{StatusCode: 404}, errors.New("?"), &attemptTimeoutError{io.EOF}} {
		assert.Equal(t, "failure timeout", verdictText(Classify(expiredContext(t), err)), "%v", err)
	}
}

func TestRule5ACallWithoutAFairChanceIsNoEvidence(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		floor, ran time.Duration
		want       string
	}{
		{0, DefaultDeadlineFloor - 1, "neutral"},
		{0, DefaultDeadlineFloor, "failure"},
		{10 * time.Second, 10*time.Second - 1, "neutral"},
		{10 * time.Second, 10 * time.Second, "failure"},
		{-1, 0, "failure"},
	} {
		synctest.Test(t, func(t *testing.T) {
			registry := registryWith(t, nil)
			gate := &Gate{Registry: registry, DeadlineFloor: c.floor}
			ctx, cancel := context.WithTimeout(t.Context(), max(c.ran, 1))
			defer cancel()
			if c.ran == 0 {
				permit, err := gate.Allow(ctx, "search")
				require.NoError(t, err)
				cancel()
				permit.Done(expiredContext(t), context.DeadlineExceeded)
			} else {
				permit, err := gate.Allow(ctx, "search")
				require.NoError(t, err)
				<-ctx.Done()
				permit.Done(ctx, ctx.Err())
			}
			health := healthOf(t, registry, "search")
			got := map[string]uint64{"neutral": health.Neutral, "failure": health.Failures}
			assert.EqualValues(t, 1, got[c.want], "floor %v, ran %v: %v", c.floor, c.ran, got)
			assert.EqualValues(t, 1, health.Neutral+health.Failures)
		})
	}
}

func TestTheFloorIsForTheCallersDeadlineOnly(t *testing.T) {
	t.Parallel()
	timeout := Verdict{Outcome: OutcomeFailure, Kind: KindTimeout, Retryable: true}
	classify := func(context.Context, error) Verdict { return timeout }
	assert.Equal(t, timeout, verdictAt(t.Context(), classify, io.EOF, 0, time.Second), "the caller has time")
	assert.Equal(t, timeout, verdictAt(nil, classify, io.EOF, 0, time.Second), "no context") //nolint:staticcheck // hosts do it
	assert.Equal(t, timeout, verdictAt(canceledContext(t, nil), classify, io.EOF, 0, time.Second), "the caller gave up")
	assert.Equal(t, "neutral canceled", verdictText(verdictAt(expiredContext(t), classify, io.EOF, 0, time.Second)))
	assert.Zero(t, verdictAt(expiredContext(t), classify, nil, 0, time.Second), "no error")
}

func TestRule6TheGuardsOwnTimeoutComesBeforeWhatTheErrorSays(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("call: %w", &attemptTimeoutError{&openaiLike{StatusCode: 404}})
	assert.Equal(t, "failure timeout retry", verdictText(Classify(t.Context(), err)))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, "rejected conflict", verdictText(Classify(t.Context(),
		&attemptTimeoutError{saysLike{Verdict{Outcome: OutcomeRejected, Kind: KindConflict}}})), "rule 3 is before it")
}

func TestRule7OfManyFactsTheTellingOneCounts(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"failure connection retry":          errors.Join(&openaiLike{StatusCode: 404}, dialError(io.EOF)),
		"failure connection retry unsent":   errors.Join(fmt.Errorf("a: %w", dialError(io.EOF)), dialError(errors.New("b"))),
		"neutral not_dispatched retry":      errors.Join(&openaiLike{StatusCode: 404}, dialError(errEMFILE)),
		"failure timeout retry":             errors.Join(&openaiLike{StatusCode: 404}, context.DeadlineExceeded),
		"rejected not_found":                errors.Join(io.EOF, &openaiLike{StatusCode: 404}, context.Canceled, errors.New("?")),
		"failure server_error retry unsent": errors.Join(pgxSafeLike(true), &smithyLike{status: 503, Err: pgxSafeLike(true)}),
		"failure server_error":              errors.Join(&openaiLike{StatusCode: 503}, retryableLike(false)),
		"failure rate_limited retry":        errors.Join(&openaiLike{StatusCode: 429}, httpDead{}),
		"throttled rate_limited retry 2s":   errors.Join(&jsonrpcLike{Code: -32029}, &slackLimitLike{RetryAfter: 2 * time.Second}),
		"throttled rate_limited 2s":         errors.Join(retryableLike(false), &googleLike{Code: 429}, &slackLimitLike{RetryAfter: 2 * time.Second}),
		"failure unknown retry 4s":          errors.Join(&mysqlLike{Number: 9999}, &slackLimitLike{RetryAfter: 4 * time.Second}),
		"failure unknown":                   errors.Join(retryableLike(false), &kubeLike{ErrStatus: kubeStatus{Details: &kubeDetails{7}}}),
	} {
		assert.Equal(t, want, verdictText(Classify(t.Context(), err)))
	}
}

// httpDead has a status that its own fields deny: methods come first.
type httpDead struct{ StatusCode int }

func (httpDead) Error() string       { return "dead" }
func (httpDead) HTTPStatusCode() int { return 0 }

func TestRule8AnythingElseIsAFailureThatIsNotRetried(t *testing.T) {
	t.Parallel()
	for _, err := range []error{errors.New("?"), errors.New(""), fmt.Errorf("a: %w", errors.New("b")), &url.Error{Err: errors.New("c")}} {
		assert.Equal(t, "failure unknown", verdictText(Classify(t.Context(), err)), "%v", err)
		assert.Equal(t, "failure unknown", verdictText(Classify(nil, err)), "no context: %v", err) //nolint:staticcheck // hosts do it
	}
}

func TestTextsAreTheLastResortAndCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	err := errors.New("request failed with status 503: busy")
	assert.Equal(t, "failure server_error retry", verdictText(Classify(t.Context(), err)))
	assert.Equal(t, "failure unknown", verdictText(ErrorRules{NoText: true}.Classify(t.Context(), err)))
	assert.Equal(t, "rejected not_found", verdictText(Classify(t.Context(), errors.Join(err, &openaiLike{StatusCode: 404}))))
	far := errors.New(strings.Repeat(".", 2000) + "connection closed")
	assert.Equal(t, "failure unknown", verdictText(Classify(t.Context(), far)), "only the beginning is searched")
}

func TestAClassifierThatPanicsHasSaidUnknown(t *testing.T) {
	t.Parallel()
	registry := registryWith(t, nil)
	gate := &Gate{Registry: registry, Classify: func(context.Context, error) Verdict { panic("no") }}
	permit, err := gate.Allow(t.Context(), "search")
	require.NoError(t, err)
	permit.Done(t.Context(), io.EOF)
	assert.EqualValues(t, 1, healthOf(t, registry, "search").ByKind[KindUnknown])
}

func TestRetryAfterInAllItsForms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // the clock says 2000-01-01 00:00:00 UTC
		for header, want := range map[string]time.Duration{
			"":                                 0,
			"120":                              2 * time.Minute,
			" 5 ":                              5 * time.Second,
			"0.25":                             250 * time.Millisecond,
			"0":                                0,
			"-5":                               0,
			"+5":                               0,
			"soon":                             0,
			"1.2.3":                            0,
			".":                                0,
			"1e3":                              0,
			"0x10":                             0,
			"NaN":                              0,
			"inf":                              0,
			"-inf":                             0,
			"5s":                               5 * time.Second,
			"6m0s":                             6 * time.Minute,
			"17ms":                             17 * time.Millisecond,
			"-5s":                              0,
			"+5s":                              0,
			"31536000":                         365 * 24 * time.Hour,
			"31536001":                         0, // no wait is longer than a year: it is a time, long past
			"946684810":                        10 * time.Second,
			"946684810.5":                      10*time.Second + 500*time.Millisecond,
			"946684810250":                     10*time.Second + 250*time.Millisecond,
			"978307200":                        0, // more than a year ahead
			"9223372037":                       0,
			"99999999999999999999999":          0,
			strings.Repeat("9", 400):           0,
			"Sat, 01 Jan 2000 00:00:10 GMT":    10 * time.Second,
			"Saturday, 01-Jan-00 00:01:00 GMT": time.Minute,
			"Sat Jan  1 01:00:00 2000":         time.Hour,
			"Sat, 01 Jan 2000 00:00:00 GMT":    0,
			"Fri, 31 Dec 1999 23:59:59 GMT":    0,
			"Sun, 06 Nov 1994 08:49:37 GMT":    0,
			"Fri, 31 Dec 9999 23:59:59 GMT":    math.MaxInt64,
			"Sat, 01 Jan 2000 00:00:10 +0100":  0,
			"2000-01-01T00:00:10Z":             10 * time.Second,
			"1999-12-31T23:00:10-01:00":        10 * time.Second,
			"1999-12-31T00:00:10Z":             0,
		} {
			v := ClassifyHTTP(429, map[string][]string{"Retry-After": {header}})
			assert.Equal(t, want, v.RetryAfter, "%.40q", header)
			assert.Equal(t, want > 0, v.Outcome == OutcomeThrottled, "%.40q", header)
			assert.Equal(t, v, Classify(t.Context(), &openaiLike{StatusCode: 429, Response: httpAnswer(429, "Retry-After", header)}), "%.40q", header)
		}
	})
}

func TestRetryAfterWhereverAnErrorKeepsIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"milliseconds":                       {&googleLike{Code: 503, Header: httpAnswer(0, "Retry-After-Ms", "1500").Header}, 1500 * time.Millisecond},
		"milliseconds win":                   {&googleLike{Code: 503, Header: httpAnswer(0, "Retry-After-Ms", "250.5", "Retry-After", "1").Header}, 250500 * time.Microsecond},
		"unless they are none":               {&googleLike{Code: 503, Header: httpAnswer(0, "Retry-After-Ms", "soon", "Retry-After", "1").Header}, time.Second},
		"or negative":                        {&googleLike{Code: 503, Header: httpAnswer(0, "Retry-After-Ms", "-5", "Retry-After", "1").Header}, time.Second},
		"or huge":                            {&googleLike{Code: 503, Header: httpAnswer(0, "Retry-After-Ms", strings.Repeat("9", 30)).Header}, 0},
		"a header without it":                {&googleLike{Code: 503, Header: httpAnswer(0, "X", "1").Header}, 0},
		"no header":                          {&googleLike{Code: 503}, 0},
		"Response":                           {&openaiLike{StatusCode: 503, Response: httpAnswer(0, "Retry-After", "2")}, 2 * time.Second},
		"RawResponse":                        {&azureLike{StatusCode: 503, RawResponse: httpAnswer(0, "Retry-After", "3")}, 3 * time.Second},
		"headers as a flat map":              {&fantasyLike{StatusCode: 503, ResponseHeaders: map[string]string{"retry-after-ms": "10"}}, 10 * time.Millisecond},
		"kubernetes, huge":                   {&kubeLike{ErrStatus: kubeStatus{Code: 503, Details: &kubeDetails{math.MaxInt32}}}, 0},
		"kubernetes, negative":               {&kubeLike{ErrStatus: kubeStatus{Code: 503, Details: &kubeDetails{-1}}}, 0},
		"GetRetryAfter":                      {waitMethodLike{StatusCode: 503, wait: 4 * time.Second}, 4 * time.Second},
		"RetryAfter()":                       {waitOtherMethodLike{StatusCode: 503, wait: 5 * time.Second}, 5 * time.Second},
		"a negative one leaves it to others": {errors.Join(waitMethodLike{StatusCode: 503, wait: -1}, &slackLimitLike{time.Second}), time.Second},
		"the outer one counts":               {errors.Join(&openaiLike{StatusCode: 503, Response: httpAnswer(0, "Retry-After", "2")}, &slackLimitLike{time.Second}), 2 * time.Second},
		"whole seconds":                      {&waitIntLike{StatusCode: 503, RetryAfter: 5}, 5 * time.Second},
	} {
		v := Classify(t.Context(), c.err)
		assert.Equal(t, c.want, v.RetryAfter, name)
		assert.Equal(t, OutcomeFailure, v.Outcome, name)
	}
}

type waitMethodLike struct {
	StatusCode int
	wait       time.Duration
}

func (waitMethodLike) Error() string                  { return "wait" }
func (e waitMethodLike) GetRetryAfter() time.Duration { return e.wait }

type waitOtherMethodLike struct {
	StatusCode int
	wait       time.Duration
}

func (waitOtherMethodLike) Error() string               { return "wait" }
func (e waitOtherMethodLike) RetryAfter() time.Duration { return e.wait }

type waitIntLike struct {
	StatusCode int
	RetryAfter int
}

func (*waitIntLike) Error() string { return "wait" }

func TestAWaitWithoutEndDoesNotOverflow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		registry := registryWith(t, func(c *Config) { c.Breaker.MaxOpenDuration = 0 })
		gate := &Gate{Registry: registry}
		permit, err := gate.Allow(t.Context(), "search")
		require.NoError(t, err)
		permit.Settle(ClassifyHTTP(429, map[string][]string{"Retry-After": {"Fri, 31 Dec 9999 23:59:59 GMT"}}))
		time.Sleep(24 * time.Hour)
		_, err = gate.Allow(t.Context(), "search")
		var refusal *Refusal
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, StopRateLimited, refusal.Reason)
		assert.Greater(t, refusal.RetryAfter, 200*365*24*time.Hour)
	})
}
