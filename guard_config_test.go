package toolhealth

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryFieldOfAPolicyIsCheckedAndAllProblemsComeAtOnce(t *testing.T) {
	const tooLong = 11 * 365 * 24 * time.Hour
	bad := []struct {
		field string
		set   []func(*Policy)
	}{
		{"max_attempts", []func(*Policy){func(p *Policy) { p.MaxAttempts = -1 }, func(p *Policy) { p.MaxAttempts = math.MinInt }}},
		{"timeout", []func(*Policy){func(p *Policy) { p.Timeout = -1 }, func(p *Policy) { p.Timeout = tooLong }}},
		{"backoff_base", []func(*Policy){func(p *Policy) { p.BackoffBase = -1 }, func(p *Policy) { p.BackoffBase = tooLong }}},
		{"backoff_max", []func(*Policy){func(p *Policy) { p.BackoffMax = -1 }, func(p *Policy) { p.BackoffMax = tooLong }}},
		{"backoff_factor", []func(*Policy){
			func(p *Policy) { p.BackoffFactor = -1 }, func(p *Policy) { p.BackoffFactor = 0.5 },
			func(p *Policy) { p.BackoffFactor = 1001 }, func(p *Policy) { p.BackoffFactor = math.NaN() },
			func(p *Policy) { p.BackoffFactor = math.Inf(1) },
		}},
		{"jitter", []func(*Policy){
			func(p *Policy) { p.Jitter = -0.1 }, func(p *Policy) { p.Jitter = 1.1 },
			func(p *Policy) { p.Jitter = math.NaN() }, func(p *Policy) { p.Jitter = math.Inf(-1) },
		}},
		{"max_wait", []func(*Policy){func(p *Policy) { p.MaxWait = -1 }, func(p *Policy) { p.MaxWait = tooLong }}},
		{"retry_budget", []func(*Policy){func(p *Policy) { p.RetryBudget = -1 }}},
	}
	all := Policy{}
	for _, b := range bad {
		for _, set := range b.set {
			c := DefaultGuardConfig()
			set(&c.Default)
			set(&all)
			assert.Equal(t, []string{"default." + b.field}, guardConfigFields(c.Validate()))
			_, err := NewGuard(nil, c)
			assert.Error(t, err)
		}
	}
	c := GuardConfig{Default: all, Tools: map[string]Policy{"": {}, "x": all, "fine": {}}, DeadlineFloor: -1}
	want := []string{}
	for _, b := range bad {
		want = append(want, "default."+b.field)
	}
	want = append(want, "tools")
	for _, b := range bad {
		want = append(want, `tools["x"].`+b.field)
	}
	want = append(want, "deadline_floor")
	assert.Equal(t, want, guardConfigFields(c.Validate()))
}

// guardConfigFields are the fields of all the ConfigErrors in err.
func guardConfigFields(err error) (fields []string) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	for _, err := range joined.Unwrap() {
		var c *ConfigError
		if errors.As(err, &c) {
			fields = append(fields, c.Field)
		}
	}
	return fields
}

func TestTheDefaultAndTheZeroGuardConfigAreValid(t *testing.T) {
	assert.NoError(t, GuardConfig{}.Validate())
	d := DefaultGuardConfig()
	assert.NoError(t, d.Validate())
	assert.Equal(t, Policy{
		MaxAttempts: 2, BackoffBase: 100 * time.Millisecond, BackoffMax: 5 * time.Second, BackoffFactor: 2,
		Jitter: 1, MaxWait: 30 * time.Second, RetryBudget: 10,
	}, d.Default)
	assert.Equal(t, time.Second, d.DeadlineFloor)
	extreme := Policy{MaxAttempts: math.MaxInt, BackoffFactor: 1000, Jitter: 1, RetryBudget: math.MaxInt}
	assert.NoError(t, GuardConfig{Default: extreme}.Validate())
}

func TestAGuardKeepsItsOwnCopyOfThePolicies(t *testing.T) {
	tools := map[string]Policy{"a": {MaxAttempts: 3}}
	g := guardOn(t, patient(t), func(c *GuardConfig) { c.Tools = tools })
	tools["a"], tools["b"] = Policy{}, Policy{}
	delete(tools, "a")
	tool := failing(errBusy)
	_, err := Call(t.Context(), g, "a", tool.run)
	require.Error(t, err)
	assert.Equal(t, 3, tool.runs())
}

func TestAHealthyGuardedCallAllocatesTwiceAtMost(t *testing.T) {
	g := guardOn(t, NewRegistry(), nil)
	ctx := context.Background()
	fn := func(context.Context, string) (string, error) { return "x", nil }
	wrapped := Wrap(g, "a", func(_ context.Context, in int) (int, error) { return in, nil })
	checked := CheckResult(func(string) error { return nil })
	for name, c := range map[string]struct {
		most float64
		call func()
	}{
		"Call":            {2, func() { _, _ = Call(ctx, g, "a", fn) }},
		"Wrap":            {2, func() { _, _ = wrapped(ctx, 7) }},
		"Call with check": {4, func() { _, _ = Call(ctx, g, "a", fn, checked) }},
	} {
		if got := testing.AllocsPerRun(1000, c.call); got > c.most {
			t.Errorf("%s allocates %v times, want %v at most", name, got, c.most)
		}
	}
}
