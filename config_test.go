package toolhealth

import (
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
		FailureRateWindow: time.Minute, FailureRateMinCalls: 20, MaxHintDuration: 10 * time.Minute,
	}, DefaultBreakerConfig())
	assert.Equal(t, Config{Breaker: DefaultBreakerConfig(), MaxTools: 10000, GroupBreaker: DefaultBreakerConfig()}, DefaultConfig())
	assert.NoError(t, DefaultConfig().Validate())
	assert.NoError(t, DefaultBreakerConfig().Validate())
	assert.Equal(t, Config{}, NewRegistry().Config())
	assert.NoError(t, Config{}.Validate())
	assert.NoError(t, BreakerConfig{}.Validate())
}

func TestBreakerConfig_ZeroIsDefault(t *testing.T) {
	d := DefaultBreakerConfig()
	assert.Zero(t, d.MaxStatedWait, "it follows MaxOpenDuration")
	d.MaxStatedWait = d.MaxOpenDuration
	assert.Equal(t, d, BreakerConfig{}.resolved())
	assert.Equal(t, d, DefaultBreakerConfig().resolved())
	assert.Equal(t, d, d.resolved(), "what is written out stays")
	assert.Equal(t, d, BreakerConfig{FailureThreshold: 3, ProbeTimeout: 30 * time.Second}.resolved(), "a field that is zero has its default")
}

// Two fields have no default once any field is set.
func TestBreakerConfig_ZeroThresholdAndLeaseAreOffInLiteral(t *testing.T) {
	for _, c := range []BreakerConfig{{RecoveryDuration: 30 * time.Second}, {RecoveryDuration: 30 * time.Second, FailureThreshold: Off, ProbeTimeout: Off}} {
		got := c.resolved()
		want := DefaultBreakerConfig().resolved()
		want.FailureThreshold, want.ProbeTimeout = 0, 0
		assert.Equal(t, want, got)
		assert.NoError(t, c.Validate())
		b, err := NewBreaker(c)
		require.NoError(t, err)
		for range 100 {
			b.RecordFailure(KindTimeout)
		}
		assert.True(t, b.AllowRequest(), "it counts and never opens")
	}
}

func TestBreakerConfig_OffSwitchesEachRuleOff(t *testing.T) {
	off := BreakerConfig{
		FailureThreshold: Off, RecoveryDuration: Off, ProbeTimeout: Off, MaxOpenDuration: Off, RecoveryGrowth: Off,
		RecoveryJitter: Off, ProbeSuccesses: Off, SlowCallDuration: Off, MaxStatedWait: Off, FailureWindow: Off,
		FailureRate: Off, FailureRateWindow: Off, FailureRateMinCalls: Off, MaxInFlight: Off, MaxHintDuration: Off,
	}
	assert.NoError(t, off.Validate())
	assert.Equal(t, BreakerConfig{}, off.resolved())
}

func TestBreakerConfig_MaxStatedWaitFollowsMaxOpenDuration(t *testing.T) {
	for _, c := range []struct{ open, stated, want time.Duration }{
		{0, 0, 10 * time.Minute}, {time.Hour, 0, time.Hour}, {Off, 0, math.MaxInt64},
		{time.Hour, time.Minute, time.Minute}, {time.Hour, Off, 0},
	} {
		d := DefaultBreakerConfig()
		d.MaxOpenDuration, d.MaxStatedWait = c.open, c.stated
		assert.Equal(t, c.want, d.resolved().MaxStatedWait, "%+v", c)
	}
}

func TestConfig_MaxToolsOffIsNoBound(t *testing.T) {
	assert.Equal(t, DefaultMaxTools, Config{}.bound())
	assert.Equal(t, 7, Config{MaxTools: 7}.bound())
	assert.Equal(t, math.MaxInt, Config{MaxTools: Off}.bound())
}

func TestBreakerConfig_ValidateChecksEveryField(t *testing.T) {
	const years = "between 0s and 87600h0m0s"
	for _, c := range []struct {
		field  string
		change func(*BreakerConfig)
		value  string // "" if it is allowed
		right  string
	}{
		{"failure_threshold", func(c *BreakerConfig) { c.FailureThreshold = -2 }, "-2", "0 or more, or Off"},
		{"failure_threshold", func(c *BreakerConfig) { c.FailureThreshold = 1 }, "", ""},
		{"failure_threshold", func(c *BreakerConfig) { c.FailureThreshold = math.MaxInt }, "", ""},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration = -2 }, "-2ns", years + ", or Off"},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration = 0 }, "", ""},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration = Off }, "off", "more than 0s unless failure_threshold and failure_rate are off"},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration, c.FailureThreshold = Off, 0 }, "", ""},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration, c.FailureThreshold = Off, Off }, "", ""},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration = 1 }, "", ""},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration = 10*time.Minute + 1 }, "10m0.000000001s", "at most max_open_duration, which is 10m0s"},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration = 10 * time.Minute }, "", ""},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration, c.MaxOpenDuration = 87600*time.Hour, Off }, "", ""},
		{"recovery_duration", func(c *BreakerConfig) { c.RecoveryDuration, c.MaxOpenDuration = 87600*time.Hour+1, Off }, "87600h0m0.000000001s", years},
		{"probe_timeout", func(c *BreakerConfig) { c.ProbeTimeout = -time.Second }, "-1s", years + ", or Off"},
		{"probe_timeout", func(c *BreakerConfig) { c.ProbeTimeout = 0 }, "", ""},
		{"probe_timeout", func(c *BreakerConfig) { c.ProbeTimeout = math.MaxInt64 }, "2562047h47m16.854775807s", years},
		{"max_open_duration", func(c *BreakerConfig) { c.MaxOpenDuration = -time.Second }, "-1s", years + ", or Off"},
		{"max_open_duration", func(c *BreakerConfig) { c.MaxOpenDuration = 0 }, "", ""},
		{"max_open_duration", func(c *BreakerConfig) { c.MaxOpenDuration = math.MaxInt64 }, "2562047h47m16.854775807s", years},
		{"max_stated_wait", func(c *BreakerConfig) { c.MaxStatedWait = Off }, "", ""},
		{"max_stated_wait", func(c *BreakerConfig) { c.MaxStatedWait = time.Hour }, "", ""},
		{"max_stated_wait", func(c *BreakerConfig) { c.MaxStatedWait = -2 }, "-2ns", years + ", or Off"},
		{"recovery_growth", func(c *BreakerConfig) { c.RecoveryGrowth = -2 }, "-2", "0, or between 1 and 1000, or Off"},
		{"recovery_growth", func(c *BreakerConfig) { c.RecoveryGrowth = 0 }, "", ""},
		{"recovery_growth", func(c *BreakerConfig) { c.RecoveryGrowth = 0.99 }, "0.99", "0, or between 1 and 1000"},
		{"recovery_growth", func(c *BreakerConfig) { c.RecoveryGrowth = 1000 }, "", ""},
		{"recovery_growth", func(c *BreakerConfig) { c.RecoveryGrowth = 1000.5 }, "1000.5", "0, or between 1 and 1000"},
		{"recovery_growth", func(c *BreakerConfig) { c.RecoveryGrowth = math.NaN() }, "NaN", "0, or between 1 and 1000"},
		{"recovery_growth", func(c *BreakerConfig) { c.RecoveryGrowth = math.Inf(1) }, "+Inf", "0, or between 1 and 1000"},
		{"recovery_jitter", func(c *BreakerConfig) { c.RecoveryJitter = -0.1 }, "-0.1", "between 0 and 1, or Off"},
		{"recovery_jitter", func(c *BreakerConfig) { c.RecoveryJitter = 1 }, "", ""},
		{"recovery_jitter", func(c *BreakerConfig) { c.RecoveryJitter = 1.01 }, "1.01", "between 0 and 1"},
		{"recovery_jitter", func(c *BreakerConfig) { c.RecoveryJitter = math.NaN() }, "NaN", "between 0 and 1"},
		{"recovery_jitter", func(c *BreakerConfig) { c.RecoveryJitter = math.Inf(-1) }, "-Inf", "between 0 and 1, or Off"},
		{"probe_successes", func(c *BreakerConfig) { c.ProbeSuccesses = -2 }, "-2", "0 or more, or Off"},
		{"probe_successes", func(c *BreakerConfig) { c.ProbeSuccesses = 0 }, "", ""},
		{"slow_call_duration", func(c *BreakerConfig) { c.SlowCallDuration = -2 }, "-2ns", years + ", or Off"},
		{"slow_call_duration", func(c *BreakerConfig) { c.SlowCallDuration = 87600 * time.Hour }, "", ""},
		{"slow_call_duration", func(c *BreakerConfig) { c.SlowCallDuration = 87601 * time.Hour }, "87601h0m0s", years},
		{"failure_window", func(c *BreakerConfig) { c.FailureWindow = -2 }, "-2ns", years + ", or Off"},
		{"failure_window", func(c *BreakerConfig) { c.FailureWindow = time.Hour }, "", ""},
		{"failure_rate", func(c *BreakerConfig) { c.FailureRate = -1e-9 }, "-1e-09", "between 0 and 1, or Off"},
		{"failure_rate", func(c *BreakerConfig) { c.FailureRate = 1 }, "", ""},
		{"failure_rate", func(c *BreakerConfig) { c.FailureRate = 80 }, "80", "between 0 and 1"},
		{"failure_rate", func(c *BreakerConfig) { c.FailureRate = math.NaN() }, "NaN", "between 0 and 1"},
		{"failure_rate_window", func(c *BreakerConfig) { c.FailureRateWindow = -2 }, "-2ns", years + ", or Off"},
		{"failure_rate_window", func(c *BreakerConfig) { c.FailureRateWindow = Off }, "", ""},
		{"failure_rate_min_calls", func(c *BreakerConfig) { c.FailureRateMinCalls = -10 }, "-10", "0 or more, or Off"},
		{"failure_rate_min_calls", func(c *BreakerConfig) { c.FailureRateMinCalls = 0 }, "", ""},
		{"max_in_flight", func(c *BreakerConfig) { c.MaxInFlight = -2 }, "-2", "0 or more, or Off"},
		{"max_in_flight", func(c *BreakerConfig) { c.MaxInFlight = 1 }, "", ""},
		{"max_hint_duration", func(c *BreakerConfig) { c.MaxHintDuration = -2 }, "-2ns", years + ", or Off"},
		{"max_hint_duration", func(c *BreakerConfig) { c.MaxHintDuration = Off }, "", ""},
		{"max_hint_duration", func(c *BreakerConfig) { c.MaxHintDuration = 87601 * time.Hour }, "87601h0m0s", years},
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
	policy := Policy{Timeout: most, MaxDuration: most, BackoffBase: most, BackoffMax: most, MaxWait: most, RetryRefill: most}
	assert.NoError(t, GuardConfig{Default: policy}.Validate())
	var got []string
	policy = Policy{Timeout: most + 1, MaxDuration: most + 1, BackoffBase: most + 1, BackoffMax: most + 1, MaxWait: most + 1, RetryRefill: most + 1}
	for _, p := range configProblems(t, GuardConfig{Default: policy}.Validate()) {
		assert.Equal(t, "87600h0m0.000000001s", p.Value)
		got = append(got, p.Field)
	}
	assert.Equal(t, []string{"default.timeout", "default.max_duration", "default.backoff_base", "default.backoff_max", "default.max_wait", "default.retry_refill"}, got)
}

func TestConfig_ValidateReportsEveryProblem(t *testing.T) {
	bad := BreakerConfig{
		FailureThreshold: -2, RecoveryDuration: -2, ProbeTimeout: -2, MaxOpenDuration: -2, MaxStatedWait: -2, RecoveryGrowth: -2,
		RecoveryJitter: -2, ProbeSuccesses: -2, SlowCallDuration: -2, FailureWindow: -2,
		FailureRate: -2, FailureRateWindow: -2, FailureRateMinCalls: -2, MaxInFlight: -2, MaxHintDuration: -2,
	}
	c := Config{
		Breaker:  bad,
		Tools:    map[string]BreakerConfig{"b": bad, "a": {FailureThreshold: 1, RecoveryDuration: Off}, "": {}},
		MaxTools: -2,
	}
	fields := []string{
		"failure_threshold", "recovery_duration", "probe_timeout", "max_open_duration", "max_stated_wait", "recovery_growth",
		"recovery_jitter", "probe_successes", "slow_call_duration", "failure_window",
		"failure_rate", "failure_rate_window", "failure_rate_min_calls", "max_in_flight", "max_hint_duration",
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
	err := Config{Tools: map[string]BreakerConfig{long + "\x1b[31m": {FailureRateMinCalls: -2}}}.Validate()
	assert.Less(t, len(err.Error()), 300, "a long name is cut")
	err = Config{Tools: map[string]BreakerConfig{"\x1b[31m": {FailureRateMinCalls: -2}}}.Validate()
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
	got.Tools["b"] = own
	assert.Len(t, r.Config().Tools, 1)
}

func TestBreakerConfig_BoundOfOneNanosecondIsBound(t *testing.T) {
	c := BreakerConfig{FailureThreshold: 1, RecoveryDuration: 2, MaxOpenDuration: 1}
	assert.ErrorContains(t, c.Validate(), "recovery_duration is 2ns, must be at most max_open_duration")
}

// The default of one field can be wrong beside a value of another.
func TestBreakerConfig_DefaultsAreCheckedBesideWhatIsSet(t *testing.T) {
	assert.EqualError(t, BreakerConfig{FailureThreshold: 1, MaxOpenDuration: 10 * time.Second}.Validate(),
		"toolhealth: config: recovery_duration is the default 30s, must be at most max_open_duration, which is 10s")
	assert.EqualError(t, BreakerConfig{FailureThreshold: 1, RecoveryDuration: time.Hour}.Validate(),
		"toolhealth: config: recovery_duration is 1h0m0s, must be at most max_open_duration, which is 10m0s")
}

func TestPolicy_SpreadTakesHalfOfTheRoomAtMost(t *testing.T) {
	p, longest := newPolicy(Policy{BackoffBase: time.Hour, BackoffMax: time.Hour, MaxWait: Off}), time.Duration(0)
	for range 1000 { // nearly every draw is longer than that
		reason, wait, _ := p.nextWait(Verdict{Outcome: OutcomeFailure, Retryable: true, RetryAfter: time.Second}, 1, 21*time.Second)
		require.Equal(t, RetryAllowed, reason)
		longest = max(longest, wait)
	}
	assert.Equal(t, 11*time.Second, longest)
}

func TestPolicy_MaxWaitOfOneNanosecondIsBound(t *testing.T) {
	p := newPolicy(Policy{BackoffBase: time.Second, MaxWait: 1})
	reason, wait, _ := p.nextWait(Verdict{Outcome: OutcomeFailure, Retryable: true}, 1, time.Minute)
	assert.Equal(t, RetryAllowed, reason)
	assert.LessOrEqual(t, wait, time.Duration(1))
}

// The longest time without a sign of life is the least lease of a probe.
func TestPolicy_LimitIsShorterOfTwo(t *testing.T) {
	for _, c := range []struct{ timeout, whole, want time.Duration }{
		{0, 0, 2 * time.Minute},
		{0, Off, 2 * time.Minute},
		{Off, Off, 0},
		{1, 2, 1},
		{2, 1, 1},
		{Off, 1, 1},
		{1, Off, 1},
		{0, time.Second, time.Second},
	} {
		assert.Equal(t, c.want, newPolicy(Policy{Timeout: c.timeout, MaxDuration: c.whole}).limit(), "%+v", c)
	}
}
