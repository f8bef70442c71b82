package guard_test

import (
	"context"
	"encoding/json"
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
		{"max_attempts", []func(*toolhealth.Policy){func(p *toolhealth.Policy) { p.MaxAttempts = -1 }, func(p *toolhealth.Policy) { p.MaxAttempts = math.MinInt }}},
		{"timeout", []func(*toolhealth.Policy){func(p *toolhealth.Policy) { p.Timeout = -1 }, func(p *toolhealth.Policy) { p.Timeout = tooLong }}},
		{"backoff_base", []func(*toolhealth.Policy){func(p *toolhealth.Policy) { p.BackoffBase = -1 }, func(p *toolhealth.Policy) { p.BackoffBase = tooLong }}},
		{"backoff_max", []func(*toolhealth.Policy){func(p *toolhealth.Policy) { p.BackoffMax = -1 }, func(p *toolhealth.Policy) { p.BackoffMax = tooLong }}},
		{"backoff_factor", []func(*toolhealth.Policy){
			func(p *toolhealth.Policy) { p.BackoffFactor = -1 }, func(p *toolhealth.Policy) { p.BackoffFactor = 0.5 },
			func(p *toolhealth.Policy) { p.BackoffFactor = 1001 }, func(p *toolhealth.Policy) { p.BackoffFactor = math.NaN() },
			func(p *toolhealth.Policy) { p.BackoffFactor = math.Inf(1) },
		}},
		{"jitter", []func(*toolhealth.Policy){
			func(p *toolhealth.Policy) { p.Jitter = -0.1 }, func(p *toolhealth.Policy) { p.Jitter = 1.1 },
			func(p *toolhealth.Policy) { p.Jitter = math.NaN() }, func(p *toolhealth.Policy) { p.Jitter = math.Inf(-1) },
		}},
		{"max_wait", []func(*toolhealth.Policy){func(p *toolhealth.Policy) { p.MaxWait = -1 }, func(p *toolhealth.Policy) { p.MaxWait = tooLong }}},
		{"retry_budget", []func(*toolhealth.Policy){func(p *toolhealth.Policy) { p.RetryBudget = -1 }}},
	}
	all := toolhealth.Policy{}
	for _, b := range bad {
		for _, set := range b.set {
			c := toolhealth.DefaultGuardConfig()
			set(&c.Default)
			set(&all)
			assert.Equal(t, []string{"default." + b.field}, guardConfigFields(c.Validate()))
			_, err := toolhealth.NewGuard(nil, c)
			assert.Error(t, err)
		}
	}
	c := toolhealth.GuardConfig{Default: all, Tools: map[string]toolhealth.Policy{"": {}, "x": all, "fine": {}}, DeadlineFloor: -1}
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
	_, err := toolhealth.Call(t.Context(), g, "a", tool.run)
	require.Error(t, err)
	assert.Equal(t, 3, tool.runs())
}

func TestGuardConfig_JSON(t *testing.T) {
	var c toolhealth.GuardConfig
	require.NoError(t, json.Unmarshal([]byte(`{"default":{"timeout":"10s"},"tools":{"mail":{"side_effects":true,"max_attempts":1}}}`), &c))
	want := toolhealth.DefaultGuardConfig()
	want.Default.Timeout = 10 * time.Second
	mail := want.Default
	mail.SideEffects, mail.MaxAttempts = true, 1
	want.Tools = map[string]toolhealth.Policy{"mail": mail}
	assert.Equal(t, want, c, "a zero receiver starts from the defaults, an override from the default policy")

	text, err := json.Marshal(c)
	require.NoError(t, err)
	assert.Equal(t, `{"default":{"max_attempts":2,"timeout":"10s","backoff_base":"100ms","backoff_max":"5s","backoff_factor":2,"jitter":1,"max_wait":"30s","retry_budget":10,"retry_refill":"10s","side_effects":false,"detach":false},`+
		`"tools":{"mail":{"max_attempts":1,"timeout":"10s","backoff_base":"100ms","backoff_max":"5s","backoff_factor":2,"jitter":1,"max_wait":"30s","retry_budget":10,"retry_refill":"10s","side_effects":true,"detach":false}},`+
		`"deadline_floor":"1s"}`, string(text))
	var back toolhealth.GuardConfig
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, c, back)
	bare, err := json.Marshal(toolhealth.GuardConfig{})
	require.NoError(t, err)
	assert.NotContains(t, string(bare), "tools")

	heard := 0
	watched := toolhealth.GuardConfig{Observe: func(context.Context, toolhealth.Event) { heard++ }}
	require.NoError(t, json.Unmarshal([]byte(`{"deadline_floor":"2s"}`), &watched))
	assert.Equal(t, 2*time.Second, watched.DeadlineFloor)
	assert.Equal(t, 2, watched.Default.MaxAttempts)
	watched.Observe(t.Context(), toolhealth.Event{})
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
	p := toolhealth.Policy{MaxAttempts: 3}
	require.NoError(t, json.Unmarshal([]byte(`{"jitter":0.5}`), &p))
	assert.Equal(t, toolhealth.Policy{MaxAttempts: 3, Jitter: 0.5}, p)
	assert.ErrorContains(t, json.Unmarshal([]byte(`{"max_attempts":9,"jitter":"x"}`), &p), `jitter is "x", must be a number`)
	assert.Equal(t, toolhealth.Policy{MaxAttempts: 3, Jitter: 0.5}, p)
}

func TestGuardConfig_JSONKeepsNonzeroReceiver(t *testing.T) {
	for name, c := range map[string]toolhealth.GuardConfig{
		"a policy for all": {Default: toolhealth.Policy{MaxAttempts: 7}},
		"a policy for one": {Tools: map[string]toolhealth.Policy{"a": {MaxAttempts: 7}}},
		"a floor":          {DeadlineFloor: time.Minute},
	} {
		before := c
		require.NoError(t, json.Unmarshal([]byte(`{}`), &c))
		assert.Equal(t, before, c, name)
	}
}
