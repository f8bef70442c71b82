package toolhealth

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// configProblems returns the errors that a Validate has joined.
func configProblems(t *testing.T, err error) []ConfigError {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok, "%T", err)
	var all []ConfigError
	for _, e := range joined.Unwrap() {
		var c *ConfigError
		require.ErrorAs(t, e, &c)
		all = append(all, *c)
	}
	return all
}

func TestConfig_Defaults(t *testing.T) {
	assert.Equal(t, BreakerConfig{
		FailureThreshold: 3, RecoveryDuration: 30 * time.Second, ProbeTimeout: 30 * time.Second,
		MaxOpenDuration: 10 * time.Minute, RecoveryGrowth: 1, RecoveryJitter: 0, ProbeSuccesses: 1,
		FailureRateWindow: time.Minute, FailureRateMinCalls: 20,
	}, DefaultBreakerConfig())
	assert.Equal(t, Config{Breaker: DefaultBreakerConfig(), MaxTools: 10000}, DefaultConfig())
	assert.NoError(t, DefaultConfig().Validate())
	assert.NoError(t, DefaultBreakerConfig().Validate())
	assert.Equal(t, DefaultConfig(), NewRegistry().Config())
	assert.NoError(t, Config{}.Validate())
	assert.NoError(t, BreakerConfig{}.Validate())
}

func TestBreakerConfig_ValidateChecksEveryField(t *testing.T) {
	const years = "between 0s and 87600h0m0s"
	for _, c := range []struct {
		field  string
		change func(*BreakerConfig)
		value  string // "" if it is allowed
		right  string
	}{
		{"failure_threshold", func(c *BreakerConfig) { c.FailureThreshold = -1 }, "-1", "0 or more"},
		{"failure_threshold", func(c *BreakerConfig) { c.FailureThreshold = 1 }, "", ""},
		{"failure_threshold", func(c *BreakerConfig) { c.FailureThreshold = math.MaxInt }, "", ""},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration = -1 }, "-1ns", years},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration = 0 }, "0s", "more than 0s unless failure_threshold and failure_rate are 0"},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration, c.FailureThreshold = 0, 0 }, "", ""},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration = 1 }, "", ""},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration = 10*time.Minute + 1 }, "10m0.000000001s", "at most max_open_duration, which is 10m0s"},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration = 10 * time.Minute }, "", ""},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration, c.MaxOpenDuration = 87600*time.Hour, 0 }, "", ""},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration, c.MaxOpenDuration = 87600*time.Hour+1, 0 }, "87600h0m0.000000001s", years},
		{"probe_timeout", func(c *BreakerConfig) { c.ProbeTimeout = -time.Second }, "-1s", years},
		{"probe_timeout", func(c *BreakerConfig) { c.ProbeTimeout = 0 }, "", ""},
		{"probe_timeout", func(c *BreakerConfig) { c.ProbeTimeout = math.MaxInt64 }, "2562047h47m16.854775807s", years},
		{"max_open_duration", func(c *BreakerConfig) { c.MaxOpenDuration = -time.Second }, "-1s", years},
		{"max_open_duration", func(c *BreakerConfig) { c.MaxOpenDuration = 0 }, "", ""},
		{"max_open_duration", func(c *BreakerConfig) { c.MaxOpenDuration = math.MaxInt64 }, "2562047h47m16.854775807s", years},
		{"max_stated_wait", func(c *BreakerConfig) { c.MaxStatedWait = Off }, "", ""},
		{"max_stated_wait", func(c *BreakerConfig) { c.MaxStatedWait = time.Hour }, "", ""},
		{"max_stated_wait", func(c *BreakerConfig) { c.MaxStatedWait = -2 }, "-2ns", years + ", or -1ns for off"},
		{"recovery_growth", func(c *BreakerConfig) { c.RecoveryGrowth = -2 }, "-2", "0, or between 1 and 1000"},
		{"recovery_growth", func(c *BreakerConfig) { c.RecoveryGrowth = 0 }, "", ""},
		{"recovery_growth", func(c *BreakerConfig) { c.RecoveryGrowth = 0.99 }, "0.99", "0, or between 1 and 1000"},
		{"recovery_growth", func(c *BreakerConfig) { c.RecoveryGrowth = 1000 }, "", ""},
		{"recovery_growth", func(c *BreakerConfig) { c.RecoveryGrowth = 1000.5 }, "1000.5", "0, or between 1 and 1000"},
		{"recovery_growth", func(c *BreakerConfig) { c.RecoveryGrowth = math.NaN() }, "NaN", "0, or between 1 and 1000"},
		{"recovery_growth", func(c *BreakerConfig) { c.RecoveryGrowth = math.Inf(1) }, "+Inf", "0, or between 1 and 1000"},
		{"recovery_jitter", func(c *BreakerConfig) { c.RecoveryJitter = -0.1 }, "-0.1", "between 0 and 1"},
		{"recovery_jitter", func(c *BreakerConfig) { c.RecoveryJitter = 1 }, "", ""},
		{"recovery_jitter", func(c *BreakerConfig) { c.RecoveryJitter = 1.01 }, "1.01", "between 0 and 1"},
		{"recovery_jitter", func(c *BreakerConfig) { c.RecoveryJitter = math.NaN() }, "NaN", "between 0 and 1"},
		{"recovery_jitter", func(c *BreakerConfig) { c.RecoveryJitter = math.Inf(-1) }, "-Inf", "between 0 and 1"},
		{"probe_successes", func(c *BreakerConfig) { c.ProbeSuccesses = -1 }, "-1", "0 or more"},
		{"probe_successes", func(c *BreakerConfig) { c.ProbeSuccesses = 0 }, "", ""},
		{"slow_call_duration", func(c *BreakerConfig) { c.SlowCallDuration = -1 }, "-1ns", years},
		{"slow_call_duration", func(c *BreakerConfig) { c.SlowCallDuration = 87600 * time.Hour }, "", ""},
		{"slow_call_duration", func(c *BreakerConfig) { c.SlowCallDuration = 87601 * time.Hour }, "87601h0m0s", years},
		{"failure_window", func(c *BreakerConfig) { c.FailureWindow = -1 }, "-1ns", years},
		{"failure_window", func(c *BreakerConfig) { c.FailureWindow = time.Hour }, "", ""},
		{"failure_rate", func(c *BreakerConfig) { c.FailureRate = -1e-9 }, "-1e-09", "between 0 and 1"},
		{"failure_rate", func(c *BreakerConfig) { c.FailureRate = 1 }, "", ""},
		{"failure_rate", func(c *BreakerConfig) { c.FailureRate = 80 }, "80", "between 0 and 1"},
		{"failure_rate", func(c *BreakerConfig) { c.FailureRate = math.NaN() }, "NaN", "between 0 and 1"},
		{"failure_rate_window", func(c *BreakerConfig) { c.FailureRateWindow = -1 }, "-1ns", years},
		{"failure_rate_window", func(c *BreakerConfig) { c.FailureRateWindow = 0 }, "", ""},
		{"failure_rate_min_calls", func(c *BreakerConfig) { c.FailureRateMinCalls = -10 }, "-10", "0 or more"},
		{"failure_rate_min_calls", func(c *BreakerConfig) { c.FailureRateMinCalls = 0 }, "", ""},
		{"max_in_flight", func(c *BreakerConfig) { c.MaxInFlight = -1 }, "-1", "0 or more"},
		{"max_in_flight", func(c *BreakerConfig) { c.MaxInFlight = 1 }, "", ""},
	} {
		config := DefaultBreakerConfig()
		c.change(&config)
		got := configProblems(t, config.Validate())
		_, err := NewBreaker(config)
		if c.value == "" {
			assert.Empty(t, got, c.field)
			assert.NoError(t, err)
			continue
		}
		assert.Equal(t, []ConfigError{{Field: c.field, Value: c.value, Allowed: c.right}}, got)
		assert.Equal(t, config.Validate().Error(), err.Error())
		assert.Equal(t, "toolhealth: config: "+c.field+" is "+c.value+", must be "+c.right, err.Error())
	}
}

func TestGuardConfig_DurationsOfTenYearsAreValid(t *testing.T) {
	const most = 87600 * time.Hour
	policy := Policy{Timeout: most, BackoffBase: most, BackoffMax: most, MaxWait: most}
	assert.NoError(t, GuardConfig{Default: policy, DeadlineFloor: most}.Validate())
	var got []string
	policy = Policy{Timeout: most + 1, BackoffBase: most + 1, BackoffMax: most + 1, MaxWait: most + 1}
	for _, p := range configProblems(t, GuardConfig{Default: policy, DeadlineFloor: most + 1}.Validate()) {
		assert.Equal(t, "87600h0m0.000000001s", p.Value)
		got = append(got, p.Field)
	}
	assert.Equal(t, []string{"default.timeout", "default.backoff_base", "default.backoff_max", "default.max_wait", "deadline_floor"}, got)
}

func TestConfig_ValidateReportsEveryProblem(t *testing.T) {
	bad := BreakerConfig{
		FailureThreshold: -1, RecoveryDuration: -1, ProbeTimeout: -1, MaxOpenDuration: -1, MaxStatedWait: -2, RecoveryGrowth: -1,
		RecoveryJitter: -1, ProbeSuccesses: -1, SlowCallDuration: -1, FailureWindow: -1,
		FailureRate: -1, FailureRateWindow: -1, FailureRateMinCalls: -1, MaxInFlight: -1,
	}
	c := Config{
		Breaker:  bad,
		Tools:    map[string]BreakerConfig{"b": bad, "a": {FailureThreshold: 1}, "": {}},
		MaxTools: -1,
	}
	fields := []string{
		"failure_threshold", "recovery_duration", "probe_timeout", "max_open_duration", "max_stated_wait", "recovery_growth",
		"recovery_jitter", "probe_successes", "slow_call_duration", "failure_window",
		"failure_rate", "failure_rate_window", "failure_rate_min_calls", "max_in_flight",
	}
	var want, got []string
	for _, f := range fields {
		want = append(want, "breaker."+f)
	}
	want = append(want, "tools", `tools["a"].recovery_duration`)
	for _, f := range fields {
		want = append(want, `tools["b"].`+f)
	}
	want = append(want, "max_tools")
	for _, p := range configProblems(t, c.Validate()) {
		got = append(got, p.Field)
	}
	assert.Equal(t, want, got)
	r, err := NewRegistryWithConfig(c)
	assert.Nil(t, r)
	assert.Equal(t, c.Validate(), err)
	assert.Equal(t, c.Validate(), NewRegistry().SetConfig(c))
}

func TestConfig_ValidateChecksMaxToolsAndNames(t *testing.T) {
	assert.NoError(t, Config{MaxTools: 1 << 24}.Validate())
	assert.EqualError(t, Config{MaxTools: 1<<24 + 1}.Validate(),
		"toolhealth: config: max_tools is 16777217, must be between 0 and 16777216")
	assert.EqualError(t, Config{Tools: map[string]BreakerConfig{"": {}}}.Validate(),
		`toolhealth: config: tools is the key "", must be a name that is not empty`)
	long := strings.Repeat("x", 1<<20)
	err := Config{Tools: map[string]BreakerConfig{long + "\x1b[31m": {FailureRateMinCalls: -1}}}.Validate()
	assert.Less(t, len(err.Error()), 300, "a long name is cut")
	err = Config{Tools: map[string]BreakerConfig{"\x1b[31m": {FailureRateMinCalls: -1}}}.Validate()
	assert.NotContains(t, err.Error(), "\x1b")
}

func TestConfig_IsCopiedInAndOut(t *testing.T) {
	own := DefaultBreakerConfig()
	own.FailureThreshold = 1
	c := Config{Breaker: DefaultBreakerConfig(), Tools: map[string]BreakerConfig{"a": own}}
	r, err := NewRegistryWithConfig(c)
	require.NoError(t, err)
	delete(c.Tools, "a")
	got := r.Config()
	assert.Equal(t, map[string]BreakerConfig{"a": own}, got.Tools)
	assert.Equal(t, 10000, got.MaxTools, "0 means the default")
	got.Tools["b"] = own
	assert.Len(t, r.Config().Tools, 1)
}

func TestConfig_JSONRoundTrip(t *testing.T) {
	c := Config{
		Breaker: BreakerConfig{
			FailureThreshold: 4, RecoveryDuration: 90 * time.Second, ProbeTimeout: 1500 * time.Millisecond,
			MaxOpenDuration: time.Hour, MaxStatedWait: 2 * time.Minute, RecoveryGrowth: 2.5, RecoveryJitter: 0.25, ProbeSuccesses: 2,
			SlowCallDuration: 7, FailureWindow: 8, FailureRate: 0.4, FailureRateWindow: 9, FailureRateMinCalls: 12,
			MaxInFlight: 13, ObserveOnly: true,
		},
		Tools:    map[string]BreakerConfig{"a": {FailureThreshold: 9}, "b": {FailureRateMinCalls: 1}},
		MaxTools: 77, RegisteredOnly: true,
	}
	const breaker = `{"failure_threshold":4,"recovery_duration":"1m30s","probe_timeout":"1.5s","max_open_duration":"1h0m0s","max_stated_wait":"2m0s",` +
		`"recovery_growth":2.5,"recovery_jitter":0.25,"probe_successes":2,"slow_call_duration":"7ns","failure_window":"8ns",` +
		`"failure_rate":0.4,"failure_rate_window":"9ns","failure_rate_min_calls":12,"max_in_flight":13,"observe_only":true}`
	text, err := json.Marshal(c.Breaker)
	require.NoError(t, err)
	assert.Equal(t, breaker, string(text))
	text, err = json.Marshal(c)
	require.NoError(t, err)
	assert.Contains(t, string(text), `{"breaker":`+breaker+`,"tools":{"a":{`)
	assert.Contains(t, string(text), `,"max_tools":77,"registered_only":true}`)
	var back Config
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, c, back)
	text, err = json.Marshal(Config{})
	require.NoError(t, err)
	assert.NotContains(t, string(text), "tools\":{", "no tools, no key")
}

func TestConfig_AbsentKeyKeepsValue(t *testing.T) {
	var c Config
	require.NoError(t, json.Unmarshal([]byte(`{}`), &c))
	assert.Equal(t, DefaultConfig(), c, "a zero receiver starts from the defaults")

	c = Config{}
	require.NoError(t, json.Unmarshal([]byte(`{"breaker":{"failure_threshold":5},"tools":{"a":{"probe_timeout":"1s"},"b":{}}}`), &c))
	want := DefaultConfig()
	want.Breaker.FailureThreshold = 5
	a := want.Breaker
	a.ProbeTimeout = time.Second
	want.Tools = map[string]BreakerConfig{"a": a, "b": want.Breaker}
	assert.Equal(t, want, c, "an override names only what differs from breaker")

	require.NoError(t, json.Unmarshal([]byte(`{"registered_only":true}`), &c))
	want.RegisteredOnly = true
	assert.Equal(t, want, c, "a receiver that is set keeps its values, the tools too")
	require.NoError(t, json.Unmarshal([]byte(`{"tools":{"c":{}},"max_tools":3}`), &c))
	want.MaxTools, want.Tools = 3, map[string]BreakerConfig{"c": want.Breaker}
	assert.Equal(t, want, c, "tools replaces them all")

	for _, set := range []Config{
		{MaxTools: 7}, {RegisteredOnly: true}, {Breaker: BreakerConfig{FailureRateMinCalls: 1}}, {Tools: map[string]BreakerConfig{}},
	} {
		got := set
		require.NoError(t, json.Unmarshal([]byte(`{"breaker":null,"tools":null,"max_tools":null}`), &got))
		assert.Equal(t, set, got, "a receiver that is not zero has no defaults put in")
	}
	b := BreakerConfig{FailureRateMinCalls: 4}
	require.NoError(t, json.Unmarshal([]byte(`{"failure_threshold":1}`), &b))
	assert.Equal(t, BreakerConfig{FailureThreshold: 1, FailureRateMinCalls: 4}, b)
}

func TestConfig_OverrideInheritsFromLaterBreaker(t *testing.T) {
	var c Config
	require.NoError(t, json.Unmarshal([]byte(`{"tools":{"a":{}},"breaker":{"failure_threshold":8}}`), &c))
	assert.Equal(t, 8, c.Tools["a"].FailureThreshold)
}

func TestConfig_InvalidJSONChangesNothing(t *testing.T) {
	for text, says := range map[string]string{
		`{"breaker":{"failure_treshold":1}}`:         "breaker.failure_treshold is unknown, must be one of failure_threshold, recovery_duration,",
		`{"braker":{}}`:                              "toolhealth: config: braker is unknown, must be one of breaker, tools, max_tools, registered_only",
		`{"max_tools":1,"tools":{"x":{"y":1}}}`:      `config: tools["x"].y is unknown`,
		`{"max_tools":1,"tools":{"x":[]}}`:           `config: tools["x"] is [], must be an object`,
		`{"breaker":{"probe_timeout":30}}`:           `breaker.probe_timeout is 30, must be a duration such as "30s"`,
		`{"breaker":{"probe_timeout":"30"}}`:         `breaker.probe_timeout is "30", must be a duration such as "30s"`,
		`{"breaker":{"recovery_duration":"soon"}}`:   `recovery_duration is "soon", must be a duration such as "30s"`,
		`{"registered_only":true,"max_tools":"ten"}`: `max_tools is "ten", must be a whole number`,
		`[]`:                            `toolhealth: config: the configuration is [], must be an object`,
		`{"max_tools":1,"max_tools":1}`: `toolhealth: config: max_tools is given twice, must be given once`,
		`{"registered_only":true,"breaker":{"failure_rate":"high"}}`: `breaker.failure_rate is "high", must be a number`,
	} {
		c := Config{MaxTools: 5, Tools: map[string]BreakerConfig{"keep": {}}, Breaker: BreakerConfig{FailureRateMinCalls: 3}}
		err := c.UnmarshalJSON([]byte(text))
		assert.ErrorContains(t, err, says, text)
		assert.ErrorContains(t, json.Unmarshal([]byte(text), &c), says, text)
		assert.Equal(t, Config{MaxTools: 5, Tools: map[string]BreakerConfig{"keep": {}}, Breaker: BreakerConfig{FailureRateMinCalls: 3}}, c, text)
	}
	b := BreakerConfig{FailureRateMinCalls: 3}
	assert.Error(t, json.Unmarshal([]byte(`{"failure_threshold":1,"failure_rate":"x"}`), &b))
	assert.Equal(t, BreakerConfig{FailureRateMinCalls: 3}, b)
}

func TestConfig_JSONIsValidatedWhenUsed(t *testing.T) {
	var c Config
	require.NoError(t, json.Unmarshal([]byte(`{"breaker":{"failure_threshold":-1}}`), &c))
	_, err := NewRegistryWithConfig(c)
	var problem *ConfigError
	require.True(t, errors.As(err, &problem))
	assert.Equal(t, "breaker.failure_threshold", problem.Field)
}

func TestConfig_JSONReportsEveryProblem(t *testing.T) {
	var c Config
	err := json.Unmarshal([]byte(`{"max_tools":1.5,"registered_only":1,"breaker":[],"tools":{"a":{"x":1,"probe_timeout":2},"b":3}}`), &c)
	assert.EqualError(t, err, `toolhealth: config: breaker is [], must be an object
toolhealth: config: tools["a"].probe_timeout is 2, must be a duration such as "30s"
toolhealth: config: tools["a"].x is unknown, must be one of failure_threshold, recovery_duration, probe_timeout, max_open_duration, max_stated_wait, recovery_growth, recovery_jitter, probe_successes, slow_call_duration, failure_window, failure_rate, failure_rate_window, failure_rate_min_calls, max_in_flight, observe_only
toolhealth: config: tools["b"] is 3, must be an object
toolhealth: config: max_tools is 1.5, must be a whole number
toolhealth: config: registered_only is 1, must be true or false`, "in the order of the fields")
	assert.Equal(t, Config{}, c)
	assert.EqualError(t, json.Unmarshal([]byte(`{"tools":{"a":{}},"zones":1}`), &c),
		"toolhealth: config: zones is unknown, must be one of breaker, tools, max_tools, registered_only")
	assert.EqualError(t, json.Unmarshal([]byte(`{"about":1,"max_tools":1.5}`), &c), `toolhealth: config: max_tools is 1.5, must be a whole number
toolhealth: config: about is unknown, must be one of breaker, tools, max_tools, registered_only`, "what comes after an unknown key is read, too")
	assert.EqualError(t, json.Unmarshal([]byte(`{"tools":[]}`), &c), "toolhealth: config: tools is [], must be an object")
}

func TestConfig_MarshalErrorNamesField(t *testing.T) {
	_, err := json.Marshal(BreakerConfig{FailureRate: math.NaN()})
	assert.ErrorContains(t, err, "toolhealth: config: failure_rate: ")
	_, err = json.Marshal(Config{Tools: map[string]BreakerConfig{"a": {RecoveryGrowth: math.Inf(1)}}})
	assert.ErrorContains(t, err, `toolhealth: config: tools["a"].recovery_growth: `)
}

func TestBreakerConfig_BoundOfOneNanosecondIsBound(t *testing.T) {
	c := BreakerConfig{FailureThreshold: 1, RecoveryDuration: 2, MaxOpenDuration: 1}
	assert.ErrorContains(t, c.Validate(), "recovery_duration is 2ns, must be at most max_open_duration")
}
