package guard_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestGuardConfig_ValidateReportsEveryField(t *testing.T) {
	const tooLong = 11 * 365 * 24 * time.Hour
	bad := []struct {
		field string
		set   []func(*toolhealth.Policy)
	}{
		{"max_attempts", []func(*toolhealth.Policy){func(p *toolhealth.Policy) { p.MaxAttempts = -2 }, func(p *toolhealth.Policy) { p.MaxAttempts = math.MinInt }}},
		{"timeout", []func(*toolhealth.Policy){func(p *toolhealth.Policy) { p.Timeout = -2 }, func(p *toolhealth.Policy) { p.Timeout = tooLong }}},
		{"backoff_base", []func(*toolhealth.Policy){func(p *toolhealth.Policy) { p.BackoffBase = -2 }, func(p *toolhealth.Policy) { p.BackoffBase = tooLong }}},
		{"backoff_max", []func(*toolhealth.Policy){func(p *toolhealth.Policy) { p.BackoffMax = -2 }, func(p *toolhealth.Policy) { p.BackoffMax = tooLong }}},
		{"backoff_factor", []func(*toolhealth.Policy){
			func(p *toolhealth.Policy) { p.BackoffFactor = -2 }, func(p *toolhealth.Policy) { p.BackoffFactor = 0.5 },
			func(p *toolhealth.Policy) { p.BackoffFactor = 1001 }, func(p *toolhealth.Policy) { p.BackoffFactor = math.NaN() },
			func(p *toolhealth.Policy) { p.BackoffFactor = math.Inf(1) },
		}},
		{"jitter", []func(*toolhealth.Policy){
			func(p *toolhealth.Policy) { p.Jitter = -0.1 }, func(p *toolhealth.Policy) { p.Jitter = 1.1 },
			func(p *toolhealth.Policy) { p.Jitter = math.NaN() }, func(p *toolhealth.Policy) { p.Jitter = math.Inf(-1) },
		}},
		{"max_wait", []func(*toolhealth.Policy){func(p *toolhealth.Policy) { p.MaxWait = -2 }, func(p *toolhealth.Policy) { p.MaxWait = tooLong }}},
		{"retry_budget", []func(*toolhealth.Policy){func(p *toolhealth.Policy) { p.RetryBudget = -2 }}},
	}
	all := toolhealth.Policy{}
	for _, b := range bad {
		for _, set := range b.set {
			c := toolhealth.GuardConfig{}
			set(&c.Default)
			set(&all)
			assert.Equal(t, []string{"default." + b.field}, guardConfigFields(c.Validate()))
			_, err := toolhealth.NewGuard(nil, c)
			assert.Error(t, err)
		}
	}
	c := toolhealth.GuardConfig{Default: all, Tools: map[string]toolhealth.Policy{"": {}, "x": all, "fine": {}}}
	want := []string{}
	for _, b := range bad {
		want = append(want, "default."+b.field)
	}
	want = append(want, "tools")
	for _, b := range bad {
		want = append(want, `tools["x"].`+b.field)
	}
	assert.Equal(t, want, guardConfigFields(c.Validate()))
}

// guardConfigFields returns the fields of all ConfigErrors in err.
func guardConfigFields(err error) (fields []string) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	for _, err := range joined.Unwrap() {
		var c *toolhealth.ConfigError
		if errors.As(err, &c) {
			fields = append(fields, c.Field)
		}
	}
	return fields
}

func TestGuard_CopiesPolicies(t *testing.T) {
	tools := map[string]toolhealth.Policy{"a": {MaxAttempts: 3}}
	g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) { c.Tools = tools })
	tools["a"], tools["b"] = toolhealth.Policy{}, toolhealth.Policy{}
	delete(tools, "a")
	tool := failing(errBusy)
	_, err := toolhealth.Call(t.Context(), g, "a", tool.Run)
	require.Error(t, err)
	assert.Equal(t, 3, tool.Runs())
}

func TestGuardConfig_PolicyOfIsAskedForToolsWithoutPolicy(t *testing.T) {
	asked := make(map[string]int)
	usual := bare(toolhealth.Policy{MaxAttempts: 2})
	g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) {
		c.Default = usual
		c.Tools = map[string]toolhealth.Policy{"listed": bare(toolhealth.Policy{MaxAttempts: 3})}
		c.PolicyOf = func(tool string, p toolhealth.Policy) toolhealth.Policy {
			asked[tool]++
			assert.Equal(t, usual, p)
			switch tool {
			case "mail":
				p.SideEffects = true
			case "often":
				p.MaxAttempts = 5
			}
			return p
		}
	})
	for tool, want := range map[string]struct {
		runs   int
		reason toolhealth.StopReason
	}{
		"listed": {3, toolhealth.StopRetryExhausted}, "plain": {2, toolhealth.StopRetryExhausted},
		"often": {5, toolhealth.StopRetryExhausted}, "mail": {1, toolhealth.StopOutcomeUnknown},
	} {
		actor := failing(errBusy)
		_, err := toolhealth.Call(t.Context(), g, tool, actor.Run)
		assert.Equal(t, want.reason, toolError(t, err).Reason, tool)
		assert.Equal(t, want.runs, actor.Runs(), tool)
	}
	assert.Equal(t, map[string]int{"plain": 1, "often": 1, "mail": 1}, asked, "once a call")
	assert.Equal(t, toolhealth.RetryAllowed, g.Next("often", 4, retryable).Reason)
}

func TestGuardConfig_WrongPolicyOfFailsTheCall(t *testing.T) {
	g := guardWithBackups(t, patient(t), func(c *toolhealth.GuardConfig) {
		c.PolicyOf = func(tool string, p toolhealth.Policy) toolhealth.Policy {
			switch tool {
			case "bad":
				p.Timeout, p.Jitter = -2, math.NaN()
			case "b":
				p.RetryBudget = -2
			case "panics":
				panic("no idea")
			}
			return p
		}
	}, "b", "c")
	actor := plays()
	_, err := toolhealth.Call(t.Context(), g, "bad", actor.Run)
	e := toolError(t, err)
	assert.Equal(t, toolhealth.StopNonRetryable, e.Reason)
	assert.Equal(t, toolhealth.KindNotDispatched, e.Verdict.Kind)
	assert.Zero(t, actor.Runs())
	assert.ErrorContains(t, e.Candidates[0].Err, `toolhealth: PolicyOf of "bad": toolhealth: config: timeout is -2ns, must be between 0s and 87600h0m0s, or Off`)
	assert.ErrorContains(t, e.Candidates[0].Err, "jitter is NaN")
	assert.Equal(t, toolhealth.StopNonRetryable, g.Next("bad", 1, retryable).Reason)

	_, err = toolhealth.Call(t.Context(), g, "panics", actor.Run)
	assert.ErrorContains(t, toolError(t, err).Candidates[0].Err, `PolicyOf panicked for "panics": no idea`)
	assert.Zero(t, actor.Runs())

	ctx, info := toolhealth.WithCallInfo(t.Context())
	out, err := toolhealth.Call(ctx, g, "a", func(_ context.Context, tool string) (string, error) {
		if tool == "a" {
			return "", errBroken
		}
		return "answer of " + tool, nil
	})
	require.NoError(t, err)
	assert.Equal(t, "answer of c", out, "a substitute without a policy is passed over")
	require.Len(t, info.Skipped, 2)
	assert.Equal(t, "b", info.Skipped[1].Tool)
	assert.ErrorContains(t, info.Skipped[1].Err, "retry_budget")
}

// Each answer counts, however many there are and although answers are remembered.
func TestGuardConfig_PolicyOfMayAnswerAnything(t *testing.T) {
	attempts := 0
	g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) {
		c.PolicyOf = func(string, toolhealth.Policy) toolhealth.Policy {
			return bare(toolhealth.Policy{MaxAttempts: attempts})
		}
	})
	for range 2 {
		for attempts = 1; attempts <= 100; attempts++ {
			_, err := toolhealth.Call(t.Context(), g, "a", failing(errBusy).Run)
			assert.Equal(t, attempts, toolError(t, err).Attempts)
		}
	}
}
