package cases_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// The cases of what an error means that a scenario cannot tell.

// answered is the error of an answer with this header, given as names and values in
// turn.
func answered(code int, header ...string) error {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return toolhealth.CheckStatus(code, h)
}

// throttled shows that one call that ends so makes the next caller wait this long.
func throttled(t *testing.T, err error, wait time.Duration) {
	t.Helper()
	gate := &toolhealth.Gate{Registry: toolhealth.NewRegistry()}
	permit, refusal := gate.Allow(t.Context(), "search")
	require.NoError(t, refusal)
	permit.Done(t.Context(), err)
	_, refusal = gate.Allow(t.Context(), "search")
	require.ErrorIs(t, refusal, toolhealth.ErrRateLimited, "%v", err)
	r, ok := errors.AsType[*toolhealth.Refusal](refusal)
	require.True(t, ok)
	assert.Equal(t, wait, r.RetryAfter, "%v", err)
}

func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func TestC146_ForbiddenThatStatesAWaitIsAThrottle(t *testing.T) {
	inBubble(t, func(t *testing.T) { throttled(t, answered(403, "Retry-After", "60"), time.Minute) })
	assert.Equal(t, toolhealth.OutcomeRejected, toolhealth.Classify(t.Context(), answered(403)).Outcome, "without a wait it is a rejection")
}

func TestC147_ResetTimeSince1970IsAWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		reset := strconv.FormatInt(time.Now().Add(90*time.Second).Unix(), 10)
		for _, code := range []int{403, 429} {
			throttled(t, answered(code, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", reset), 90*time.Second)
		}
		denied := toolhealth.Classify(t.Context(), answered(403, "X-RateLimit-Remaining", "59", "X-RateLimit-Reset", reset))
		assert.Equal(t, toolhealth.OutcomeRejected, denied.Outcome, "calls remain")
	})
}

func TestC148_ResetAsADurationIsAWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		throttled(t, answered(429, "X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "6m0s", "X-Ratelimit-Reset-Tokens", "17ms"), 6*time.Minute)
	})
}

// geminiError has the shape of genai's.
type geminiError struct {
	Code    int
	Details []map[string]any
}

func (e geminiError) Error() string { return "Error " + strconv.Itoa(e.Code) }

func TestC150_RetryInfoInTheBodyIsAWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		throttled(t, geminiError{429, []map[string]any{{"retryDelay": "13.837906927s"}}}, 13837906927*time.Nanosecond)
	})
}

func TestC154_BadRequestOfWhichNothingRemainsIsAThrottle(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		reset := strconv.FormatInt(time.Now().Add(40*time.Second).UnixMilli(), 10)
		throttled(t, answered(400, "X-Ratelimit-Requests-Remaining", "0", "X-Ratelimit-Requests-Reset", reset), 40*time.Second)
	})
}

// nestedResponse, nestedInner and nestedError have the shapes of the AWS SDK's: a
// response is embedded, twice.
type (
	nestedResponse struct{ *http.Response }
	nestedInner    struct{ Response *nestedResponse }
	nestedError    struct{ *nestedInner }
)

func (*nestedError) Error() string { return "https response error" }

func TestC156_HeaderOfAnEmbeddedResponseIsRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		response := &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"7"}}}
		throttled(t, &nestedError{&nestedInner{&nestedResponse{response}}}, 7*time.Second)
	})
}

func TestC158_TimeoutCommandSaysThatTimeWasUp(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no shell")
	}
	err := exec.CommandContext(t.Context(), "sh", "-c", "exit 124").Run()
	assert.Equal(t, toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout, Retryable: true}, toolhealth.Classify(t.Context(), err))
	err = exec.CommandContext(t.Context(), "sh", "-c", "exit 123").Run()
	assert.Equal(t, toolhealth.OutcomeRejected, toolhealth.Classify(t.Context(), err).Outcome)
}

// notModified is what a client returns that takes 304 for an error.
type notModified struct{ StatusCode int }

func (notModified) Error() string { return "not modified" }

func TestC159_NotModifiedIsNoFailure(t *testing.T) {
	assert.Zero(t, toolhealth.ClassifyHTTP(304, nil))
	assert.Zero(t, toolhealth.Classify(t.Context(), notModified{304}))
	assert.NoError(t, toolhealth.CheckStatus(304, nil))
}

func TestC165_DateIsComparedWithTheAnswersOwn(t *testing.T) {
	for _, skew := range []time.Duration{time.Hour, -time.Hour} {
		inBubble(t, func(t *testing.T) {
			server := time.Now().Add(skew).UTC()
			throttled(t, answered(429, "Date", server.Format(http.TimeFormat), "Retry-After", server.Add(37*time.Second).Format(http.TimeFormat)), 37*time.Second)
		})
	}
}

func TestC168_AnswerOfAServerThatWantsATokenDoesNotTrip(t *testing.T) {
	registry := toolhealth.NewRegistry()
	for _, err := range []error{
		errors.New(`calling "tools/call": sending "tools/call": Unauthorized`),  // go-sdk
		fmt.Errorf("transport error: %w", errors.New("authorization required")), // mcp-go
		fmt.Errorf("transport error: %w", errors.New("no valid token available, authorization required")),
	} {
		v := toolhealth.Classify(t.Context(), err)
		assert.Equal(t, toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindUnauthorized}, v, "%v", err)
		registry.Record("search", v, time.Second)
	}
	health, _ := registry.Health("search")
	assert.Equal(t, toolhealth.StateClosed, health.State)
	assert.EqualValues(t, 3, health.Rejected)
}

// gatewayError has the shape of the MCP go-sdk's.
type gatewayError struct {
	Code    int64
	Message string
	Data    json.RawMessage
}

func (e *gatewayError) Error() string { return e.Message }

func TestC169_RateLimitOfAGatewayStatesItsWait(t *testing.T) {
	for _, code := range []int64{429, -32029, -32004, -32000} {
		inBubble(t, func(t *testing.T) {
			throttled(t, &gatewayError{code, "Rate limit exceeded", json.RawMessage(`{"retryAfterSeconds":12}`)}, 12*time.Second)
		})
	}
	inBubble(t, func(t *testing.T) { // the SDK keeps the header to itself, a note tells it
		ctx := toolhealth.WithNotes(t.Context())
		toolhealth.Note(ctx, toolhealth.ClassifyHTTP(429, http.Header{"Retry-After": {"30"}}))
		v := toolhealth.Classify(ctx, errors.New(`calling "tools/call": sending "tools/call": Too Many Requests`))
		assert.Equal(t, toolhealth.OutcomeThrottled, v.Outcome)
		assert.Equal(t, 30*time.Second, v.RetryAfter)
	})
}

func TestC170_PageInThePlaceOfJSONOpensTheBreaker(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		gate := &toolhealth.Gate{Registry: toolhealth.NewRegistry()}
		ran := 0
		for range 200 { // in 20s
			if permit, err := gate.Allow(t.Context(), "search"); err == nil {
				ran++
				var out map[string]any
				permit.Done(t.Context(), json.Unmarshal([]byte("<!DOCTYPE html><html>502 Bad Gateway"), &out))
			}
			time.Sleep(100 * time.Millisecond)
		}
		assert.Equal(t, 3, ran)
		health, _ := gate.Registry.Health("search")
		assert.Equal(t, toolhealth.Unhealthy, health.Status)
	})
}

func TestC171_ProxysAnswerIsAFailureByARule(t *testing.T) {
	rules := toolhealth.ErrorRules{Own: []toolhealth.Rule{toolhealth.RuleFor(func(e *toolhealth.StatusError) toolhealth.Verdict {
		if e.StatusCode == 404 {
			return toolhealth.ClassifyHTTP(502, e.Header)
		}
		return toolhealth.ClassifyHTTP(e.StatusCode, e.Header)
	})}}
	assert.Equal(t, toolhealth.KindServerError, rules.Classify(t.Context(), answered(404)).Kind)
	assert.Equal(t, toolhealth.KindUnauthorized, rules.Classify(t.Context(), answered(401)).Kind)
	assert.Equal(t, toolhealth.KindNotFound, toolhealth.Classify(t.Context(), answered(404)).Kind)
}

func TestC183_CancelWhoseCauseIsADeadlineCounts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for cause, want := range map[error]uint64{context.DeadlineExceeded: 3, nil: 0, errors.New("a sibling failed"): 0} {
			registry := toolhealth.NewRegistry()
			gate := &toolhealth.Gate{Registry: registry}
			for range 3 {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(45*time.Second, func() { cancel(cause) })
				permit, err := gate.Allow(ctx, "search")
				require.NoError(t, err)
				<-ctx.Done()
				permit.Done(ctx, ctx.Err())
			}
			health, _ := registry.Health("search")
			assert.Equal(t, want, health.Failures, "%v", cause)
			assert.Equal(t, 3-want, health.Neutral, "%v", cause)
		}
	})
}
