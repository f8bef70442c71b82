package toolhealth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/toolhealth/toolhealth/internal/fields"
	"github.com/toolhealth/toolhealth/internal/machine"
)

// What lies beyond these bounds is taken for a mistake.
const (
	maxDuration = machine.MaxDuration
	maxGrowth   = 1000
	maxTools    = 1 << 24
)

// BreakerConfig says when a breaker opens, how long it stays open and what
// closes it.
//
// A zero field switches its rule off; so does the zero value as a whole, which
// never opens. Start from [DefaultBreakerConfig] and change what you need. A
// negative, NaN, infinite or absurd value (a duration over ten years, a factor
// over 1000) is rejected by [NewRegistryWithConfig], [NewBreaker] and
// [Registry.SetConfig]: nothing is corrected silently.
//
// The JSON keys are the field names in lower case with underscores, such as
// "failure_threshold"; the same holds for [Config], [Policy] and [GuardConfig].
// Durations are texts such as "30s" and "1m30s". An unknown key and a key that is
// given twice are errors, and an absent key leaves the field as it was.
type BreakerConfig struct {
	// FailureThreshold is the number of consecutive failures that opens the
	// breaker. Zero means that no rule ever opens it; failures are still counted.
	FailureThreshold int
	// RecoveryDuration is the cooldown: the time from opening to the first probe.
	// It must be positive unless FailureThreshold is zero.
	RecoveryDuration time.Duration
	// ProbeTimeout is the lease of a probe: when it runs out without a verdict,
	// the breaker is open again, with a cooldown that began when the lease ended.
	// Zero means no lease: a probe may take forever, and a lost one blocks the tool
	// until Reset.
	//
	// A probe that succeeds after its lease makes the next lease long enough for
	// it, and one that streams can call KeepAlive, so a tool that is slower than
	// the lease recovers, too.
	ProbeTimeout time.Duration
	// MaxOpenDuration is the bound of every wait, counted from when the breaker
	// opened: a cooldown that late failures restart, a Retry-After, and growth.
	// Zero means no bound.
	MaxOpenDuration time.Duration
	// RecoveryGrowth is the factor on the cooldown for each failed probe in a row.
	// Zero and 1 keep the cooldown fixed; values between them are errors.
	RecoveryGrowth float64
	// RecoveryJitter, 0 to 1, spreads each cooldown d uniformly over
	// [d, d*(1+RecoveryJitter)], so that replicas do not probe together.
	RecoveryJitter float64
	// ProbeSuccesses is the number of probes, one after the other, that must
	// succeed in a row to close the breaker. Zero means 1.
	ProbeSuccesses int
	// SlowCallDuration is the time above which a success counts as a failure for
	// the breaker, though not in the statistics. Zero switches the rule off.
	SlowCallDuration time.Duration
	// TripScore, 0 to 1, is the EWMA of success below which a failure opens the
	// breaker, if at least TripMinCalls calls have ended since the breaker last
	// closed. It catches the tool that fails two times in three. Zero switches the
	// rule off, and so does a FailureThreshold of zero.
	TripScore float64
	// TripMinCalls is the number of calls that TripScore needs.
	TripMinCalls int
}

// DefaultBreakerConfig returns the defaults: FailureThreshold 3, RecoveryDuration
// 30s, ProbeTimeout 30s, MaxOpenDuration 10m, RecoveryGrowth 1, ProbeSuccesses 1,
// TripMinCalls 10. Jitter, slow calls and the trip score are off.
func DefaultBreakerConfig() BreakerConfig {
	return BreakerConfig{
		FailureThreshold: 3,
		RecoveryDuration: 30 * time.Second,
		ProbeTimeout:     30 * time.Second,
		MaxOpenDuration:  10 * time.Minute,
		RecoveryGrowth:   1,
		ProbeSuccesses:   1,
		TripMinCalls:     10,
	}
}

func (c *BreakerConfig) table() fields.Table {
	return fields.Table{
		fields.Count("failure_threshold", &c.FailureThreshold),
		fields.Duration("recovery_duration", &c.RecoveryDuration, maxDuration).Rule(c.allowedRecovery),
		fields.Duration("probe_timeout", &c.ProbeTimeout, maxDuration),
		fields.Duration("max_open_duration", &c.MaxOpenDuration, maxDuration),
		fields.Factor("recovery_growth", &c.RecoveryGrowth, maxGrowth),
		fields.Fraction("recovery_jitter", &c.RecoveryJitter),
		fields.Count("probe_successes", &c.ProbeSuccesses),
		fields.Duration("slow_call_duration", &c.SlowCallDuration, maxDuration),
		fields.Fraction("trip_score", &c.TripScore),
		fields.Count("trip_min_calls", &c.TripMinCalls),
	}
}

// allowedRecovery returns what RecoveryDuration should be, or "" if it fits the
// other fields.
func (c *BreakerConfig) allowedRecovery() string {
	switch {
	case c.RecoveryDuration == 0 && c.FailureThreshold > 0:
		return "more than 0s unless failure_threshold is 0"
	case c.MaxOpenDuration > 0 && c.RecoveryDuration > c.MaxOpenDuration:
		return "at most max_open_duration, which is " + c.MaxOpenDuration.String()
	}
	return ""
}

// Validate returns nil, or every problem at once as joined [ConfigError]s.
func (c BreakerConfig) Validate() error { return configError(c.table().Check()) }

// MarshalJSON writes every field.
func (c BreakerConfig) MarshalJSON() ([]byte, error) { return writeJSON(c.table()) }

// UnmarshalJSON reads what MarshalJSON writes; see [BreakerConfig]. Every problem
// is reported at once, as joined [ConfigError]s; then the receiver is as it was. It
// does not validate.
func (c *BreakerConfig) UnmarshalJSON(data []byte) error {
	return readJSON(c, *c, data, (*BreakerConfig).table)
}

// DefaultMaxTools is the bound on a registry's entries where none is given.
const DefaultMaxTools = 10000

// Config configures a [Registry]. The zero Config is valid and has the breaker
// switched off; start from [DefaultConfig].
//
// In JSON an absent key keeps the value that the receiver has, except that a
// zero receiver starts from DefaultConfig; the entries of "tools" start from
// "breaker", so that an override names only what differs. In Go an override is
// a whole BreakerConfig.
type Config struct {
	// Breaker is the configuration of every tool that has none of its own.
	Breaker BreakerConfig
	// Tools are the configurations of single tools, by name. They are copied.
	// Every name is accepted here, a misspelled one too: compare them with the
	// names of a Summary.
	Tools map[string]BreakerConfig
	// MaxTools is the bound on the number of entries; zero means DefaultMaxTools.
	// The comment of [Registry] says what happens at the bound.
	MaxTools int
	// RegisteredOnly refuses every tool that is neither in Tools nor was passed
	// to [Registry.Register].
	RegisteredOnly bool
}

// DefaultConfig returns the default breaker for every tool and MaxTools 10000.
func DefaultConfig() Config {
	return Config{Breaker: DefaultBreakerConfig(), MaxTools: DefaultMaxTools}
}

func (c *Config) table() fields.Table {
	return fields.Table{
		fields.Object("breaker", c.Breaker.table()),
		fields.Map("tools", &c.Tools, func() BreakerConfig { return c.Breaker }, (*BreakerConfig).table),
		fields.CountUpTo("max_tools", &c.MaxTools, maxTools),
		fields.Bool("registered_only", &c.RegisteredOnly),
	}
}

// Validate returns nil, or every problem at once as joined [ConfigError]s.
func (c Config) Validate() error { return configError(c.table().Check()) }

// MarshalJSON writes every field; see [Config].
func (c Config) MarshalJSON() ([]byte, error) { return writeJSON(c.table()) }

// UnmarshalJSON reads what MarshalJSON writes; see [Config]. Every problem is
// reported at once, as joined [ConfigError]s; then the receiver is as it was. It
// does not validate: [NewRegistryWithConfig] and [Registry.SetConfig] do.
func (c *Config) UnmarshalJSON(data []byte) error {
	start := *c
	if c.Tools == nil && c.MaxTools == 0 && !c.RegisteredOnly && c.Breaker == (BreakerConfig{}) {
		start = DefaultConfig()
	}
	return readJSON(c, start, data, (*Config).table)
}

// clone returns c with a map of its own and the bound filled in.
func (c Config) clone() Config {
	c.Tools = maps.Clone(c.Tools)
	if c.MaxTools == 0 {
		c.MaxTools = DefaultMaxTools
	}
	return c
}

// newParams returns a valid configuration as the machine uses it.
func newParams(c BreakerConfig) *machine.Params { return machine.NewParams(machine.Config(c)) }

// Policy says how calls of a tool are made and repeated. A zero field switches
// its rule off; the zero Policy makes each call once. Start from
// [DefaultGuardConfig].
type Policy struct {
	// MaxAttempts is the number of times that one call runs the tool at most, the
	// first time included. Zero and 1 mean no retry.
	MaxAttempts int
	// Timeout is the time after which the context of an attempt is canceled. Zero
	// means no limit but the caller's. It is also the least lease of a probe.
	Timeout time.Duration
	// BackoffBase is the wait before the second attempt; each later wait is
	// BackoffFactor times as long, up to BackoffMax.
	BackoffBase time.Duration
	// BackoffMax is the longest back-off. Zero means no limit.
	BackoffMax time.Duration
	// BackoffFactor is the growth of the back-off. With zero and 1, all waits are
	// BackoffBase; values between them are errors.
	BackoffFactor float64
	// Jitter, 0 to 1, makes of a back-off d a random one in [d*(1-Jitter), d]. A
	// wait that the tool stated is never shortened.
	Jitter float64
	// MaxWait is the longest wait between attempts: a call that would have to wait
	// longer stops instead. Zero means no limit.
	MaxWait time.Duration
	// RetryBudget is the size of the tool's token bucket. A retry costs a token, a
	// success gives a tenth back; without a token there is no retry. The bucket
	// belongs to the tool in its registry and starts full. Zero means no budget.
	//
	// When a tool fails for every caller, the budget keeps retries from doubling
	// its load.
	RetryBudget int
	// RetryRefill is how long it takes until the budget gets one token back by itself.
	// Zero means never.
	RetryRefill time.Duration
	// SideEffects says that the tool changes something, so that doing it twice is
	// worse than not knowing. A failed attempt is repeated, or handed to a
	// substitute, only if it surely never reached the tool: every branch of its error
	// has to say so. An error that comes from a guarded call further in, or after the
	// caller's ctx is done, does not say so.
	//
	// Set it for tools that send, pay or delete. An idempotency key makes a
	// repetition safe: make it outside the tool function, so that all attempts of
	// one call use the same one, and leave SideEffects off.
	SideEffects bool
	// Detach ends the guard's wait when the attempt's context is done, although
	// the tool function has not returned. The function then runs on, on a
	// goroutine of its own; its late result is dropped.
	//
	// It may still act. Each such attempt counts in GuardCounts.Abandoned until it
	// returns. Use it for functions that you cannot change.
	Detach bool
}

func (c *Policy) table() fields.Table {
	return fields.Table{
		fields.Count("max_attempts", &c.MaxAttempts),
		fields.Duration("timeout", &c.Timeout, maxDuration),
		fields.Duration("backoff_base", &c.BackoffBase, maxDuration),
		fields.Duration("backoff_max", &c.BackoffMax, maxDuration),
		fields.Factor("backoff_factor", &c.BackoffFactor, maxGrowth),
		fields.Fraction("jitter", &c.Jitter),
		fields.Duration("max_wait", &c.MaxWait, maxDuration),
		fields.Count("retry_budget", &c.RetryBudget),
		fields.Duration("retry_refill", &c.RetryRefill, maxDuration),
		fields.Bool("side_effects", &c.SideEffects),
		fields.Bool("detach", &c.Detach),
	}
}

// MarshalJSON writes every field.
func (c Policy) MarshalJSON() ([]byte, error) { return writeJSON(c.table()) }

// UnmarshalJSON reads what MarshalJSON writes, by the rules of [BreakerConfig].
// Every problem is reported at once, as joined [ConfigError]s; then the receiver is
// as it was. It does not validate: [NewGuard] does.
func (c *Policy) UnmarshalJSON(data []byte) error {
	return readJSON(c, *c, data, (*Policy).table)
}

// DefaultDeadlineFloor is the time that a call must have run for the caller's
// deadline to be the tool's fault, where no other is configured.
const DefaultDeadlineFloor = time.Second

// GuardConfig configures a [Guard]. The zero GuardConfig is valid: every call is
// made once and without a time limit. Start from [DefaultGuardConfig].
//
// In JSON the keys are "default", "tools" and "deadline_floor"; Start and Observe are not
// in it. An absent key keeps the value that the receiver has, except that a zero
// receiver starts from DefaultGuardConfig; the entries of "tools" start from
// "default", so that an override names only what differs. In Go an override is a
// whole Policy.
type GuardConfig struct {
	// Default is the policy of every tool that has none of its own.
	Default Policy
	// Tools are the policies of single tools, by name. They are copied.
	Tools map[string]Policy
	// DeadlineFloor is the time that an attempt must have run for a call that ends
	// because the caller's deadline has passed to be a timeout of the tool; a
	// shorter one is neutral. Zero means that it always is a timeout; a negative
	// one is an error. It replaces the Gate's.
	DeadlineFloor time.Duration
	// Start, if set, is called before each attempt, with the caller's ctx and an Event
	// that has Tool, Served and Attempt. The tool function and the attempt's event in
	// Observe get the ctx that it returns, so that a span or a logger of the attempt can
	// be in it. That ctx has to be derived from the caller's; nil, or a panic, leaves it
	// as it is. What Start takes does not count as time of the tool.
	//
	// Each attempt that Start has heard of ends with one event of Observe, also if it
	// panics or ends its goroutine.
	Start func(ctx context.Context, e Event) context.Context
	// Observe, if set, hears of each attempt that has ended, with the ctx that Start
	// returned for it, and of each finished call, with the caller's ctx. Both run on the
	// goroutine of the call, and hear nothing of a call that rides on an outer one of the
	// same tool. A panic in Observe is ignored.
	Observe func(ctx context.Context, e Event)
}

// DefaultGuardConfig returns the defaults: MaxAttempts 2, back-offs of 100ms x 2 up
// to 5s with full jitter, MaxWait 30s, RetryBudget 10, RetryRefill 10s, DeadlineFloor 1s. Timeout,
// SideEffects and Detach are off.
func DefaultGuardConfig() GuardConfig {
	return GuardConfig{
		Default: Policy{
			MaxAttempts:   2,
			BackoffBase:   100 * time.Millisecond,
			BackoffMax:    5 * time.Second,
			BackoffFactor: 2,
			Jitter:        1,
			MaxWait:       30 * time.Second,
			RetryBudget:   10,
			RetryRefill:   10 * time.Second,
		},
		DeadlineFloor: DefaultDeadlineFloor,
	}
}

func (c *GuardConfig) table() fields.Table {
	return fields.Table{
		fields.Object("default", c.Default.table()),
		fields.Map("tools", &c.Tools, func() Policy { return c.Default }, (*Policy).table),
		fields.Duration("deadline_floor", &c.DeadlineFloor, maxDuration),
	}
}

// Validate returns nil, or every problem at once as joined [ConfigError]s.
func (c GuardConfig) Validate() error { return configError(c.table().Check()) }

// MarshalJSON writes every field but Start and Observe.
func (c GuardConfig) MarshalJSON() ([]byte, error) { return writeJSON(c.table()) }

// UnmarshalJSON reads what MarshalJSON writes; see [GuardConfig]. Every problem is
// reported at once, as joined [ConfigError]s; then the receiver is as it was. It
// does not validate: [NewGuard] does.
func (c *GuardConfig) UnmarshalJSON(data []byte) error {
	start := *c
	if c.Tools == nil && c.DeadlineFloor == 0 && c.Default == (Policy{}) {
		start = DefaultGuardConfig()
		start.Start, start.Observe = c.Start, c.Observe
	}
	return readJSON(c, start, data, (*GuardConfig).table)
}

// Event is what GuardConfig.Observe hears, one attempt or one call has ended, and what
// GuardConfig.Start hears of an attempt that begins.
type Event struct {
	Tool    string // name of the tool that the call asked for
	Served  string // name of the tool that ran; for a finished call, the last one
	Final   bool   // whether the call has ended; if not, an attempt has
	Attempt int    // number of this attempt; for a finished call, of all attempts
	Verdict Verdict
	// Reason is StopNone after a success, RetryAllowed after an attempt that will
	// be followed by another of the same tool, else why this tool or call ended.
	Reason StopReason
	Took   time.Duration // time of the attempt, or of the whole call with its waits
	Wait   time.Duration // wait before the next attempt; for a finished call, as in ToolError
	// Err is what the tool function returned, for logs and traces, or the
	// *ToolError of a finished call; nil after a success.
	Err error
}

// ConfigError is one value that a configuration must not have. Each function that
// takes a configuration reports all of them at once, joined by [errors.Join].
type ConfigError struct {
	Field   string // path of JSON names, such as `tools["search"].probe_timeout`
	Value   string // the value, as it was given
	Allowed string // what would have been right
}

// Error names the field, the value and what would have been right.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("toolhealth: config: %s is %s, must be %s", e.Field, e.Value, e.Allowed)
}

// configError returns the problems as joined ConfigErrors, nil if there are none.
func configError(problems fields.Problems) error {
	errs := make([]error, len(problems))
	for i := range problems {
		errs[i] = (*ConfigError)(&problems[i])
	}
	return errors.Join(errs...)
}

// readJSON sets c to start with what data says, or leaves c as it is after an error.
func readJSON[T any](c *T, start T, data []byte, table func(*T) fields.Table) error {
	err := configError(table(&start).Read(data))
	if err == nil {
		*c = start
	}
	return err
}

func writeJSON(t fields.Table) ([]byte, error) {
	data, err := t.JSON()
	if err != nil {
		return nil, fmt.Errorf("toolhealth: config: %w", err)
	}
	return data, nil
}
