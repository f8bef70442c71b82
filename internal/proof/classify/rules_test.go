package classify_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// The tests follow the order of the rules of Classify. Each test shows one rule, and
// that it comes before the next one.

func canceledContext(t *testing.T, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	return ctx
}

// noContext is nil, which some callers pass.
var noContext context.Context

func expiredContext(t *testing.T) context.Context {
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	t.Cleanup(cancel)
	return ctx
}

// attemptTimeout returns err as a guard hands it to a Classifier when the attempt's
// time was up.
func attemptTimeout(t *testing.T, err error) (timeout error) {
	t.Helper()
	gate := &toolhealth.Gate{Classify: func(_ context.Context, err error) toolhealth.Verdict {
		timeout = err
		return toolhealth.Verdict{}
	}}
	guard, e := toolhealth.NewGuard(gate, toolhealth.GuardConfig{Default: toolhealth.Policy{Timeout: 1}})
	require.NoError(t, e)
	_, _ = toolhealth.Call(t.Context(), guard, "search", func(ctx context.Context, _ string) (int, error) {
		<-ctx.Done()
		return 0, err
	})
	require.ErrorIs(t, timeout, context.DeadlineExceeded)
	return timeout
}

// noAdapter returns the error of a substitute that Wrap was given no function for.
func noAdapter(t *testing.T) error {
	t.Helper()
	router, err := toolhealth.NewHealthRouter(map[string][]string{"search": {"spare"}})
	require.NoError(t, err)
	guard, err := toolhealth.NewGuard(&toolhealth.Gate{Router: router}, toolhealth.GuardConfig{})
	require.NoError(t, err)
	_, err = toolhealth.Wrap(guard, "search", func(context.Context, int) (int, error) { return 0, io.EOF }).Call(t.Context(), 1)
	var failed *toolhealth.ToolError
	require.ErrorAs(t, err, &failed)
	require.Len(t, failed.Candidates, 2)
	return failed.Candidates[1].Err
}

// saysLike is an error that describes itself.
type saysLike struct{ v toolhealth.Verdict }

func (saysLike) Error() string                     { return "says" }
func (e saysLike) ToolVerdict() toolhealth.Verdict { return e.v }

func TestClassify_Rule1_NoErrorIsSuccess(t *testing.T) {
	t.Parallel()
	assert.Zero(t, toolhealth.Classify(canceledContext(t, nil), nil))
	assert.Zero(t, toolhealth.Classify(expiredContext(t), nil))
}

func TestClassify_Rule2_RefusalIsNeutral(t *testing.T) {
	t.Parallel()
	refusal := &toolhealth.Refusal{Tool: "other", Reason: toolhealth.StopProbeInFlight, RetryAfter: 3 * time.Second}
	notRun := &toolhealth.ToolError{Reason: toolhealth.StopCircuitOpen, Candidates: []toolhealth.Candidate{{Err: refusal}}}
	for name, err := range map[string]error{
		"itself":             refusal,
		"wrapped":            fmt.Errorf("nested: %w", refusal),
		"joined":             errors.Join(io.EOF, refusal),
		"of a guarded call":  notRun,
		"described as worse": toolhealth.WithVerdict(refusal, toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure}),
		"after a nil error":  errors.Join((*toolhealth.Refusal)(nil), (*toolhealth.ToolError)(nil), refusal),
	} {
		assert.Equal(t, "neutral refused 3s", verdictText(toolhealth.Classify(t.Context(), err)), name)
	}
	rules := toolhealth.ErrorRules{Own: []toolhealth.Rule{func(error) (toolhealth.Verdict, bool) { return toolhealth.Verdict{}, true }}}
	assert.Equal(t, "neutral refused 3s", verdictText(rules.Classify(t.Context(), refusal)))
	assert.Equal(t, "neutral refused", verdictText(toolhealth.Classify(t.Context(), &toolhealth.Refusal{RetryAfter: -time.Second})))
	assert.Equal(t, "neutral refused 3s", verdictText(toolhealth.Classify(expiredContext(t), refusal)))
}

func TestClassify_Rule2_CallThatRanIsJudgedByItsTool(t *testing.T) {
	t.Parallel()
	ran := &toolhealth.ToolError{Reason: toolhealth.StopCircuitOpen, Attempts: 1, Candidates: []toolhealth.Candidate{
		{Tool: "search", Err: &openaiLike{StatusCode: 503}},
		{Tool: "spare", Err: &toolhealth.Refusal{Reason: toolhealth.StopCircuitOpen}},
		{Tool: "another", Err: noAdapter(t)},
	}}
	assert.Equal(t, "failure server_error retry", verdictText(toolhealth.Classify(t.Context(), ran)))
}

func TestClassify_Rule3_SelfDescribedErrorComesFirst(t *testing.T) {
	t.Parallel()
	said := toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, RetryAfter: time.Minute}
	rules := toolhealth.ErrorRules{Own: []toolhealth.Rule{func(error) (toolhealth.Verdict, bool) {
		return toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected}, true
	}}}
	for name, err := range map[string]error{
		"a method":        saysLike{said},
		"a method inside": fmt.Errorf("call: %w", saysLike{said}),
		"a mark":          toolhealth.WithVerdict(&openaiLike{StatusCode: 404}, said),
		"the outer mark":  toolhealth.WithVerdict(saysLike{toolhealth.Verdict{}}, said),
	} {
		assert.Equal(t, said, rules.Classify(canceledContext(t, nil), err), name)
	}
	assert.Equal(t, "rejected none", verdictText(rules.Classify(t.Context(), panicsLike{})), "a method that panics says nothing")
}

func TestWithVerdict_KeepsError(t *testing.T) {
	t.Parallel()
	marked := toolhealth.WithVerdict(io.EOF, toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral})
	require.ErrorIs(t, marked, io.EOF)
	assert.Equal(t, "EOF", marked.Error())
	assert.NoError(t, toolhealth.WithVerdict(nil, toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure}))
}

func TestClassify_Rule3_OwnRulesDecideInOrder(t *testing.T) {
	t.Parallel()
	interrupt := errors.New("interrupt")
	rules := toolhealth.ErrorRules{Own: []toolhealth.Rule{
		func(error) (toolhealth.Verdict, bool) { panic("a rule with a mistake is passed over") },
		toolhealth.NeutralRule(toolhealth.KindDenied, func(err error) bool { return errors.Is(err, interrupt) }),
		toolhealth.RuleFor(func(e genaiLike) toolhealth.Verdict { return toolhealth.ClassifyHTTP(e.Code+100, nil) }),
		toolhealth.RuleFor(func(e *openaiLike) toolhealth.Verdict {
			return toolhealth.ClassifyHTTP(200, e.Response.Header)
		}),
		toolhealth.RuleFor(func(net.Error) toolhealth.Verdict { return toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected} }),
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

func TestClassify_Rule4_CanceledCallerIsNeutral(t *testing.T) {
	t.Parallel()
	cause := errors.New("a sibling failed")
	for _, err := range []error{context.Canceled, cause, &openaiLike{StatusCode: 503}, context.DeadlineExceeded, errors.New("?"),
		attemptTimeout(t, io.EOF), &openaiLike{StatusCode: 404}, dialError(io.EOF)} {
		assert.Equal(t, "neutral canceled", verdictText(toolhealth.Classify(canceledContext(t, cause), err)), "%v", err)
	}
}

func TestClassify_Rule4_SiblingsOfFailedBranchAreNeutral(t *testing.T) {
	t.Parallel()
	// One branch of a fan-out fails, the group's context ends with its error as
	// the cause, and the nine others return that cause.
	registry := toolhealth.NewRegistry()
	gate := &toolhealth.Gate{Registry: registry}
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
	health, _ := registry.Health("search")
	assert.Equal(t, toolhealth.StateClosed, health.State)
	assert.EqualValues(t, 9, health.Neutral)
	assert.Zero(t, health.Failures)
}

func TestClassify_Rule5_ExpiredCallerIsTimeout(t *testing.T) {
	t.Parallel()
	for _, err := range []error{context.DeadlineExceeded, &openaiLike{StatusCode: 404}, errors.New("?"), attemptTimeout(t, io.EOF)} {
		assert.Equal(t, "failure timeout", verdictText(toolhealth.Classify(expiredContext(t), err)), "%v", err)
	}
}

func TestClassify_Rule5_CallBelowFloorIsNeutral(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		floor, ran time.Duration
		want       string
	}{
		{0, toolhealth.DefaultDeadlineFloor - 1, "neutral"},
		{0, toolhealth.DefaultDeadlineFloor, "failure"},
		{10 * time.Second, 10*time.Second - 1, "neutral"},
		{10 * time.Second, 10 * time.Second, "failure"},
		{-1, 0, "failure"},
	} {
		synctest.Test(t, func(t *testing.T) {
			registry := toolhealth.NewRegistry()
			gate := &toolhealth.Gate{Registry: registry, DeadlineFloor: c.floor}
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
			health, _ := registry.Health("search")
			got := map[string]uint64{"neutral": health.Neutral, "failure": health.Failures}
			assert.EqualValues(t, 1, got[c.want], "floor %v, ran %v: %v", c.floor, c.ran, got)
			assert.EqualValues(t, 1, health.Neutral+health.Failures)
		})
	}
}

func TestClassify_Rule6_GuardTimeoutComesBeforeError(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("call: %w", attemptTimeout(t, &openaiLike{StatusCode: 404}))
	assert.Equal(t, "failure timeout retry", verdictText(toolhealth.Classify(t.Context(), err)))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, "rejected conflict", verdictText(toolhealth.Classify(t.Context(),
		attemptTimeout(t, saysLike{toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindConflict}}))), "rule 3 comes first")
}

func TestClassify_Rule7_MostTellingFactCounts(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"failure connection retry":          errors.Join(&openaiLike{StatusCode: 404}, dialError(io.EOF)),
		"failure connection retry unsent":   errors.Join(fmt.Errorf("a: %w", dialError(io.EOF)), dialError(errors.New("b"))),
		"neutral not_dispatched retry":      errors.Join(&openaiLike{StatusCode: 404}, dialError(syscall.EMFILE)),
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
		assert.Equal(t, want, verdictText(toolhealth.Classify(t.Context(), err)))
	}
}

func TestClassify_Rule8_AnythingElseIsFailure(t *testing.T) {
	t.Parallel()
	for _, err := range []error{errors.New("?"), errors.New(""), fmt.Errorf("a: %w", errors.New("b")), &url.Error{Err: errors.New("c")}} {
		assert.Equal(t, "failure unknown", verdictText(toolhealth.Classify(t.Context(), err)), "%v", err)
		assert.Equal(t, "failure unknown", verdictText(toolhealth.Classify(noContext, err)), "no context: %v", err)
	}
}

func TestClassify_TextsAreLastResort(t *testing.T) {
	t.Parallel()
	err := errors.New("request failed with status 503: busy")
	assert.Equal(t, "failure server_error retry", verdictText(toolhealth.Classify(t.Context(), err)))
	assert.Equal(t, "failure unknown", verdictText(toolhealth.ErrorRules{NoText: true}.Classify(t.Context(), err)))
	assert.Equal(t, "rejected not_found", verdictText(toolhealth.Classify(t.Context(), errors.Join(err, &openaiLike{StatusCode: 404}))))
	far := errors.New(strings.Repeat(".", 2000) + "connection closed")
	assert.Equal(t, "failure unknown", verdictText(toolhealth.Classify(t.Context(), far)), "only the beginning is searched")
}

func TestClassify_PanickingClassifierMeansUnknown(t *testing.T) {
	t.Parallel()
	registry := toolhealth.NewRegistry()
	gate := &toolhealth.Gate{Registry: registry, Classify: func(context.Context, error) toolhealth.Verdict { panic("no") }}
	permit, err := gate.Allow(t.Context(), "search")
	require.NoError(t, err)
	permit.Done(t.Context(), io.EOF)
	health, _ := registry.Health("search")
	assert.EqualValues(t, 1, health.ByKind[toolhealth.KindUnknown])
}
