package toolhealth

import (
	"context"
	"encoding/json"
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
	full := registryWith(t, func(c *Config) { c.MaxTools = 1 })
	failTimes(full, "open", 3)
	untracked := guardOn(t, full, nil)
	observed := guardOn(t, NewRegistry(), func(c *GuardConfig) { c.Observe = unheard })
	for name, c := range map[string]struct {
		most float64
		call func()
	}{
		"Call":            {1, func() { _, _ = Call(ctx, g, "a", fn) }},
		"Call, untracked": {2, func() { _, _ = Call(ctx, untracked, "a", fn) }},
		"Call, observed":  {1, func() { _, _ = Call(ctx, observed, "a", fn) }},
		"Wrap":            {2, func() { _, _ = wrapped(ctx, 7) }},
		"Call with check": {4, func() { _, _ = Call(ctx, g, "a", fn, checked) }},
	} {
		if got := testing.AllocsPerRun(1000, c.call); got > c.most {
			t.Errorf("%s allocates %v times, want %v at most", name, got, c.most)
		}
	}
}

func TestAGuardConfigReadsAndWritesJSON(t *testing.T) {
	var c GuardConfig
	require.NoError(t, json.Unmarshal([]byte(`{"default":{"timeout":"10s"},"tools":{"mail":{"side_effects":true,"max_attempts":1}}}`), &c))
	want := DefaultGuardConfig()
	want.Default.Timeout = 10 * time.Second
	mail := want.Default
	mail.SideEffects, mail.MaxAttempts = true, 1
	want.Tools = map[string]Policy{"mail": mail}
	assert.Equal(t, want, c, "a zero receiver starts from the defaults, an override from the default")

	text, err := json.Marshal(c)
	require.NoError(t, err)
	assert.Equal(t, `{"default":{"max_attempts":2,"timeout":"10s","backoff_base":"100ms","backoff_max":"5s","backoff_factor":2,"jitter":1,"max_wait":"30s","retry_budget":10,"side_effects":false,"detach":false},`+
		`"tools":{"mail":{"max_attempts":1,"timeout":"10s","backoff_base":"100ms","backoff_max":"5s","backoff_factor":2,"jitter":1,"max_wait":"30s","retry_budget":10,"side_effects":true,"detach":false}},`+
		`"deadline_floor":"1s"}`, string(text))
	var back GuardConfig
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, c, back)
	bare, err := json.Marshal(GuardConfig{})
	require.NoError(t, err)
	assert.NotContains(t, string(bare), "tools")

	heard := 0
	watched := GuardConfig{Observe: func(context.Context, Event) { heard++ }}
	require.NoError(t, json.Unmarshal([]byte(`{"deadline_floor":"2s"}`), &watched))
	assert.Equal(t, 2*time.Second, watched.DeadlineFloor)
	assert.Equal(t, 2, watched.Default.MaxAttempts)
	watched.Observe(t.Context(), Event{})
	assert.Equal(t, 1, heard, "the observer stays")

	before := c
	for text, says := range map[string]string{
		`{"default":{"max_attempts":"two","detach":0}}`: "default.max_attempts is \"two\", must be a whole number\ntoolhealth: config: default.detach is 0, must be true or false",
		`{"tools":{"a":{"retries":3}}}`:                 `tools["a"].retries is unknown, must be one of max_attempts,`,
		`{"deadline_floor":1}`:                          `deadline_floor is 1, must be a duration such as "30s"`,
	} {
		assert.ErrorContains(t, json.Unmarshal([]byte(text), &c), says)
		assert.Equal(t, before, c, text)
	}
	p := Policy{MaxAttempts: 3}
	require.NoError(t, json.Unmarshal([]byte(`{"jitter":0.5}`), &p))
	assert.Equal(t, Policy{MaxAttempts: 3, Jitter: 0.5}, p)
	assert.ErrorContains(t, json.Unmarshal([]byte(`{"max_attempts":9,"jitter":"x"}`), &p), `jitter is "x", must be a number`)
	assert.Equal(t, Policy{MaxAttempts: 3, Jitter: 0.5}, p)
}
