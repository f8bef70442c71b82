package toolhealth

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth/internal/machine"
)

// BreakerConfig says when a breaker opens, how long it stays open and what
// closes it.
//
// A zero field switches its rule off; so does the zero value as a whole, which
// never opens. Start from [DefaultBreakerConfig] and change what you need. A
// negative, NaN, infinite or absurd value (a duration over ten years, a factor
// over 1000) is an error of whoever takes the config: nothing is corrected
// silently.
//
// In JSON, durations are texts such as "30s" and "1m30s", an unknown key is an
// error, and an absent key leaves the field as it was.
type BreakerConfig struct {
	// FailureThreshold is the number of consecutive failures that opens the breaker.
	// Zero means that no number of them does; failures are still counted.
	FailureThreshold int
	// RecoveryDuration is the cooldown: how long after opening a probe is let
	// through. It must be positive unless FailureThreshold and FailureRate are zero.
	RecoveryDuration time.Duration
	// ProbeTimeout is the lease of a probe: when it runs out without a verdict
	// the breaker is open again, with a cooldown that began when the lease
	// ended. 0: a probe may take for ever, and one that is lost wedges the tool
	// until Reset.
	ProbeTimeout time.Duration
	// MaxOpenDuration bounds every wait, counted from when the breaker opened:
	// late failures that restart the cooldown, a stated wait, and growth. Zero means
	// no bound.
	MaxOpenDuration time.Duration
	// MaxStatedWait bounds the waits that the tool states, in a throttle or in a
	// failure with a Retry-After: for so long every caller is refused with
	// StopRateLimited. MaxOpenDuration bounds them, too. Zero means MaxOpenDuration.
	// Off means that a stated wait binds only the call that heard it, for a tool that
	// reaches many sites.
	MaxStatedWait time.Duration
	// RecoveryGrowth is the factor on the cooldown for each failed probe in a
	// row. 0 and 1 keep the cooldown fixed; between them is an error.
	RecoveryGrowth float64
	// RecoveryJitter, 0 to 1, spreads each cooldown d uniformly over
	// [d, d*(1+RecoveryJitter)], so that replicas do not probe together.
	RecoveryJitter float64
	// ProbeSuccesses is how many probes in a row, one at a time, have to succeed
	// to close the breaker. 0 means 1.
	ProbeSuccesses int
	// SlowCallDuration: a success that took longer than this counts as a failure
	// for the breaker, not for the statistics. 0: off.
	SlowCallDuration time.Duration
	// FailureWindow is the longest time between two failures of one streak: a failure
	// that comes later than this after the one before begins a new streak. Zero means
	// that a streak ends only with an answer of the tool.
	FailureWindow time.Duration
	// FailureRate, 0 to 1, is the share of failures that opens the breaker, for a tool
	// that fails two times in three and never three times in a row. It is worked out
	// when a failure comes, among the successes and failures of a window. A window
	// begins with a failure. It ends after FailureRateWindow, or when the breaker
	// closes; the next failure begins the next. Zero means off. A Breaker without a
	// Registry has no such rule.
	FailureRate float64
	// FailureRateWindow is how long a window lasts. Zero means a minute.
	FailureRateWindow time.Duration
	// FailureRateMinCalls is how many calls must have ended in a window, its first
	// failure included, before FailureRate opens. Zero means 20.
	FailureRateMinCalls int
	// MaxInFlight is how many permits of the tool may be out at once. While so many are
	// out, every caller is refused with StopBusy, and nothing is counted against the
	// tool. Calls by name have no permit, so they are refused but not counted; a permit
	// that is lost is out for good. Zero means any number. A Breaker without a Registry
	// has no permits and no such rule.
	MaxInFlight int
	// ObserveOnly lets every caller in, whatever the breaker, MaxInFlight or an
	// operator's Isolate say. The breaker moves and tells its hooks as ever;
	// ToolHealth.WouldRefuse counts the calls that it would have refused. It is for the
	// first weeks in a host.
	ObserveOnly bool
}

// Off switches a rule off where zero means its default: see
// BreakerConfig.MaxStatedWait.
const Off = -1

// DefaultBreakerConfig returns the defaults: open after 3 consecutive failures,
// probe after 30s under a lease of 30s, never wait longer than 10m.
func DefaultBreakerConfig() BreakerConfig {
	return BreakerConfig{
		FailureThreshold: 3,
		RecoveryDuration: 30 * time.Second,
		ProbeTimeout:     30 * time.Second,
		MaxOpenDuration:  10 * time.Minute,
		RecoveryGrowth:   1,
		ProbeSuccesses:   1,

		FailureRateWindow:   machine.DefaultRateWindow,
		FailureRateMinCalls: machine.DefaultRateMinCalls,
	}
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
	Tools map[string]BreakerConfig
	// MaxTools bounds the number of entries; 0 means DefaultMaxTools. What
	// happens at the bound is said at [Registry].
	MaxTools int
	// RegisteredOnly refuses every tool that is neither in Tools nor was passed
	// to [Registry.Register].
	RegisteredOnly bool
}

// DefaultConfig returns the default breaker for every tool and MaxTools 10000.
func DefaultConfig() Config {
	return Config{Breaker: DefaultBreakerConfig(), MaxTools: DefaultMaxTools}
}

// ConfigError is one value that a configuration must not have. What takes a
// configuration reports all of them at once, joined by [errors.Join].
type ConfigError struct {
	Field   string // by its JSON name, such as `tools["search"].probe_timeout`
	Value   string // as it was given
	Allowed string // what would have been right
}

// Error names the field, the value and what would have been right.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("toolhealth: config: %s is %s, must be %s", e.Field, e.Value, e.Allowed)
}

const (
	maxDuration = machine.MaxDuration // what is longer is taken for a mistake
	maxGrowth   = 1000
	maxTools    = 1 << 24
)

// problems collects what is wrong with one configuration.
type problems struct {
	prefix string
	errs   []error
}

func (p *problems) add(field, value, allowed string) {
	p.errs = append(p.errs, &ConfigError{Field: p.prefix + field, Value: value, Allowed: allowed})
}

func (p *problems) duration(field string, d time.Duration) {
	if d < 0 || d > maxDuration {
		p.add(field, d.String(), "between 0s and "+maxDuration.String())
	}
}

func (p *problems) count(field string, n int) {
	if n < 0 {
		p.add(field, strconv.Itoa(n), "0 or more")
	}
}

// fraction refuses what is not in 0..1; NaN fails every comparison.
func (p *problems) fraction(field string, f float64) {
	if !(f >= 0 && f <= 1) {
		p.add(field, formatFloat(f), "between 0 and 1")
	}
}

// factor refuses what is neither 0 nor in 1..maxGrowth.
func (p *problems) factor(field string, f float64) {
	if f != 0 && !(f >= 1 && f <= maxGrowth) {
		p.add(field, formatFloat(f), fmt.Sprintf("0, or between 1 and %d", maxGrowth))
	}
}

func formatFloat(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

func (c BreakerConfig) check(p *problems) {
	p.count("failure_threshold", c.FailureThreshold)
	p.duration("recovery_duration", c.RecoveryDuration)
	if c.RecoveryDuration == 0 && (c.FailureThreshold > 0 || c.FailureRate > 0) {
		p.add("recovery_duration", "0s", "more than 0s unless failure_threshold and failure_rate are 0")
	}
	if c.MaxOpenDuration > 0 && c.RecoveryDuration > c.MaxOpenDuration {
		p.add("recovery_duration", c.RecoveryDuration.String(),
			"at most max_open_duration, which is "+c.MaxOpenDuration.String())
	}
	p.duration("probe_timeout", c.ProbeTimeout)
	p.duration("max_open_duration", c.MaxOpenDuration)
	if c.MaxStatedWait != Off {
		p.duration("max_stated_wait", c.MaxStatedWait)
	}
	p.factor("recovery_growth", c.RecoveryGrowth)
	p.fraction("recovery_jitter", c.RecoveryJitter)
	p.count("probe_successes", c.ProbeSuccesses)
	p.duration("slow_call_duration", c.SlowCallDuration)
	p.duration("failure_window", c.FailureWindow)
	p.fraction("failure_rate", c.FailureRate)
	p.duration("failure_rate_window", c.FailureRateWindow)
	p.count("failure_rate_min_calls", c.FailureRateMinCalls)
	p.count("max_in_flight", c.MaxInFlight)
}

// Validate returns nil, or every problem at once as joined [ConfigError]s.
func (c BreakerConfig) Validate() error {
	var p problems
	c.check(&p)
	return errors.Join(p.errs...)
}

// checkTools checks the overrides of single tools, and leaves no prefix.
func checkTools[T interface{ check(*problems) }](p *problems, tools map[string]T) {
	for _, tool := range slices.Sorted(maps.Keys(tools)) {
		p.prefix = fmt.Sprintf("tools[%.80q].", tool)
		tools[tool].check(p)
		if tool == "" {
			p.prefix = ""
			p.add("tools", `the key ""`, "a name that is not empty")
		}
	}
	p.prefix = ""
}

// Validate returns nil, or every problem at once as joined [ConfigError]s.
func (c Config) Validate() error {
	p := problems{prefix: "breaker."}
	c.Breaker.check(&p)
	checkTools(&p, c.Tools)
	if c.MaxTools < 0 || c.MaxTools > maxTools {
		p.add("max_tools", strconv.Itoa(c.MaxTools), fmt.Sprintf("between 0 and %d", maxTools))
	}
	return errors.Join(p.errs...)
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

// jsonField is one key of a configuration in JSON: its name, a pointer to the
// value, and what the value must be. A list of them serves both directions.
type jsonField struct {
	name  string
	value any
	must  string
}

const (
	mustCount    = "a whole number"
	mustNumber   = "a number"
	mustBool     = "true or false"
	mustDuration = `a duration such as "30s"`
	mustObject   = "an object"
)

func duration(name string, d *time.Duration) jsonField {
	return jsonField{name, (*jsonDuration)(d), mustDuration}
}

func (c *BreakerConfig) fields() []jsonField {
	return []jsonField{
		{"failure_threshold", &c.FailureThreshold, mustCount},
		duration("recovery_duration", &c.RecoveryDuration),
		duration("probe_timeout", &c.ProbeTimeout),
		duration("max_open_duration", &c.MaxOpenDuration),
		duration("max_stated_wait", &c.MaxStatedWait),
		{"recovery_growth", &c.RecoveryGrowth, mustNumber},
		{"recovery_jitter", &c.RecoveryJitter, mustNumber},
		{"probe_successes", &c.ProbeSuccesses, mustCount},
		duration("slow_call_duration", &c.SlowCallDuration),
		duration("failure_window", &c.FailureWindow),
		{"failure_rate", &c.FailureRate, mustNumber},
		duration("failure_rate_window", &c.FailureRateWindow),
		{"failure_rate_min_calls", &c.FailureRateMinCalls, mustCount},
		{"max_in_flight", &c.MaxInFlight, mustCount},
		{"observe_only", &c.ObserveOnly, mustBool},
	}
}

// encodeFields writes an object with the fields in their order.
func encodeFields(fields []jsonField) ([]byte, error) {
	b := []byte{'{'}
	for i, f := range fields {
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, fmt.Errorf("toolhealth: config: %s: %w", f.name, err)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendQuote(b, f.name), ':')
		b = append(b, value...)
	}
	return append(b, '}'), nil
}

// decodeFields reads an object into the fields. An unknown key and a value of the
// wrong type are problems; an absent key leaves its field as it was.
func decodeFields(p *problems, data []byte, fields []jsonField) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil { // null is as good as absent
		what := cmp.Or(strings.TrimSuffix(p.prefix, "."), "the configuration")
		p.errs = append(p.errs, &ConfigError{what, snippet(data), mustObject})
		return
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		i := slices.IndexFunc(fields, func(f jsonField) bool { return f.name == key })
		if i < 0 {
			p.add(strings.Trim(fmt.Sprintf("%.80q", key), `"`), "unknown", "one of "+fieldNames(fields))
			continue
		}
		if read, ok := fields[i].value.(func(json.RawMessage)); ok {
			read(object[key])
		} else if err := json.Unmarshal(object[key], fields[i].value); err != nil {
			p.add(key, snippet(object[key]), fields[i].must)
		}
	}
}

func fieldNames(fields []jsonField) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

// snippet is the beginning of some JSON, for an error.
func snippet(data []byte) string { return fmt.Sprintf("%.80s", bytes.TrimSpace(data)) }

// nested returns a field of a whole configuration that is an object itself. Its
// problems have its name.
func nested(p *problems, name string, fields []jsonField) jsonField {
	return jsonField{name, func(data json.RawMessage) {
		p.prefix = name + "."
		decodeFields(p, data, fields)
		p.prefix = ""
	}, mustObject}
}

// overrides returns a field that is an object of overrides by name of tool; each
// starts from base, which has to be read before.
func overrides[T any](p *problems, name string, into *map[string]T, base *T, fields func(*T) []jsonField) jsonField {
	return jsonField{name, func(data json.RawMessage) {
		var byTool map[string]json.RawMessage
		if err := json.Unmarshal(data, &byTool); err != nil {
			p.add(name, snippet(data), mustObject)
			return
		}
		if byTool != nil {
			*into = make(map[string]T, len(byTool))
		}
		for _, tool := range slices.Sorted(maps.Keys(byTool)) {
			own := *base
			p.prefix = fmt.Sprintf("%s[%.80q].", name, tool)
			decodeFields(p, byTool[tool], fields(&own))
			(*into)[tool] = own
		}
		p.prefix = ""
	}, mustObject}
}

// MarshalJSON writes every field, durations as texts.
func (c BreakerConfig) MarshalJSON() ([]byte, error) { return encodeFields(c.fields()) }

// UnmarshalJSON reads what MarshalJSON writes; see [BreakerConfig]. Every problem
// is reported at once, as joined [ConfigError]s; then the receiver is as it was.
func (c *BreakerConfig) UnmarshalJSON(data []byte) error {
	return readObject(c, data, (*BreakerConfig).fields)
}

// readObject decodes data into c, or leaves c as it was.
func readObject[T any](c *T, data []byte, fields func(*T) []jsonField) error {
	var p problems
	next := *c
	if decodeFields(&p, data, fields(&next)); len(p.errs) == 0 {
		*c = next
	}
	return errors.Join(p.errs...)
}

// MarshalJSON writes every field; see [Config].
func (c Config) MarshalJSON() ([]byte, error) {
	fields := []jsonField{{"breaker", c.Breaker, ""}}
	if len(c.Tools) > 0 {
		fields = append(fields, jsonField{"tools", c.Tools, ""})
	}
	return encodeFields(append(fields,
		jsonField{"max_tools", c.MaxTools, ""}, jsonField{"registered_only", c.RegisteredOnly, ""}))
}

// UnmarshalJSON reads what MarshalJSON writes; see [Config]. Every problem is
// reported at once, as joined [ConfigError]s; then the receiver is as it was. It
// does not validate: [NewRegistryWithConfig] and [Registry.SetConfig] do.
func (c *Config) UnmarshalJSON(data []byte) error {
	var p problems
	next := *c
	if next.Tools == nil && next.MaxTools == 0 && !next.RegisteredOnly && next.Breaker == (BreakerConfig{}) {
		next = DefaultConfig()
	}
	decodeFields(&p, data, []jsonField{ // by name: "breaker" is read before "tools"
		nested(&p, "breaker", next.Breaker.fields()),
		overrides(&p, "tools", &next.Tools, &next.Breaker, (*BreakerConfig).fields),
		{"max_tools", &next.MaxTools, mustCount},
		{"registered_only", &next.RegisteredOnly, mustBool},
	})
	if len(p.errs) == 0 {
		*c = next
	}
	return errors.Join(p.errs...)
}

// jsonDuration is a duration that JSON writes as "1m30s".
type jsonDuration time.Duration

func (d jsonDuration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *jsonDuration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return err
	}
	*d = jsonDuration(v)
	return nil
}

// DefaultDeadlineFloor is how long a call must have run for the caller's deadline
// to be the tool's fault, where nothing else is configured.
const DefaultDeadlineFloor = time.Second

// Policy says how calls of a tool are made and repeated. A zero field switches
// its rule off; the zero Policy makes each call once. Start from
// [DefaultGuardConfig].
type Policy struct {
	// MaxAttempts is how often the tool is run at most in one call, the first
	// time included. 0 and 1: no retry.
	MaxAttempts int
	// Timeout cancels the context of an attempt that takes longer. 0: no limit
	// but the caller's. It is also the least lease of a probe.
	Timeout time.Duration
	// BackoffBase is the wait before the second attempt, each later one is
	// BackoffFactor times as long, up to BackoffMax (0: no limit).
	BackoffBase   time.Duration
	BackoffMax    time.Duration
	BackoffFactor float64 // 0 and 1: all waits are BackoffBase
	// Jitter, 0 to 1: a back-off d becomes a random one in [d*(1-Jitter), d]. A
	// wait that the tool stated is never shortened.
	Jitter float64
	// MaxWait: what would have to wait longer than this stops instead. 0: no limit.
	MaxWait time.Duration
	// RetryBudget is the size of the tool's token bucket. A retry costs a token, a
	// success gives a tenth back; without a token there is no retry. The bucket
	// belongs to the tool in its registry and starts full. 0: no budget.
	RetryBudget int
	// SideEffects: the tool changes something, so that doing it twice is worse
	// than not knowing. A failed attempt is repeated, or handed to a substitute,
	// only if it surely never reached the tool.
	SideEffects bool
	// Detach: the guard stops waiting when the attempt's context is done, although
	// the tool function has not returned. The function then runs on, on a
	// goroutine of its own; its late result is dropped.
	Detach bool
}

func (c Policy) check(p *problems) {
	p.count("max_attempts", c.MaxAttempts)
	p.duration("timeout", c.Timeout)
	p.duration("backoff_base", c.BackoffBase)
	p.duration("backoff_max", c.BackoffMax)
	p.factor("backoff_factor", c.BackoffFactor)
	p.fraction("jitter", c.Jitter)
	p.duration("max_wait", c.MaxWait)
	p.count("retry_budget", c.RetryBudget)
}

func (c *Policy) fields() []jsonField {
	return []jsonField{
		{"max_attempts", &c.MaxAttempts, mustCount},
		duration("timeout", &c.Timeout),
		duration("backoff_base", &c.BackoffBase),
		duration("backoff_max", &c.BackoffMax),
		{"backoff_factor", &c.BackoffFactor, mustNumber},
		{"jitter", &c.Jitter, mustNumber},
		duration("max_wait", &c.MaxWait),
		{"retry_budget", &c.RetryBudget, mustCount},
		{"side_effects", &c.SideEffects, mustBool},
		{"detach", &c.Detach, mustBool},
	}
}

// MarshalJSON writes every field, durations as texts.
func (c Policy) MarshalJSON() ([]byte, error) { return encodeFields(c.fields()) }

// UnmarshalJSON reads what MarshalJSON writes. An absent key leaves its field as
// it was, an unknown one is an error. Every problem is reported at once, as joined
// [ConfigError]s; then the receiver is as it was.
func (c *Policy) UnmarshalJSON(data []byte) error {
	return readObject(c, data, (*Policy).fields)
}

// GuardConfig configures a [Guard]. The zero GuardConfig is valid: every call is
// made once and without a time limit. Start from [DefaultGuardConfig].
//
// In JSON the keys are "default", "tools" and "deadline_floor"; Observe is not in
// it. An absent key keeps the value that the receiver has, except that a zero
// receiver starts from DefaultGuardConfig; the entries of "tools" start from
// "default", so that an override names only what differs. In Go an override is a
// whole Policy.
type GuardConfig struct {
	// Default is the policy of every tool that has none of its own.
	Default Policy
	// Tools are the policies of single tools, by name. They are copied.
	Tools map[string]Policy
	// DeadlineFloor: a call that ends because the caller's deadline has passed is
	// a timeout of the tool only if the attempt had run for at least this long;
	// else it is neutral. 0: it always is a timeout. It replaces the Gate's.
	DeadlineFloor time.Duration
	// Observe, if set, hears of each attempt and of each finished call, on the
	// goroutine of the call and with the caller's ctx; not of one that rides on an
	// outer call of the same tool. A panic in it is ignored.
	Observe func(ctx context.Context, e Event)
}

// DefaultGuardConfig returns the defaults: two attempts, a back-off from 100ms to
// 5s with full jitter, no waits over 30s, a budget of 10 retries.
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
		},
		DeadlineFloor: DefaultDeadlineFloor,
	}
}

// Validate returns nil, or every problem at once as joined [ConfigError]s.
func (c GuardConfig) Validate() error {
	p := problems{prefix: "default."}
	c.Default.check(&p)
	checkTools(&p, c.Tools)
	p.duration("deadline_floor", c.DeadlineFloor)
	return errors.Join(p.errs...)
}

// MarshalJSON writes every field but Observe.
func (c GuardConfig) MarshalJSON() ([]byte, error) {
	fields := []jsonField{{"default", c.Default, ""}}
	if len(c.Tools) > 0 {
		fields = append(fields, jsonField{"tools", c.Tools, ""})
	}
	return encodeFields(append(fields, duration("deadline_floor", &c.DeadlineFloor)))
}

// UnmarshalJSON reads what MarshalJSON writes; see [GuardConfig]. Every problem is
// reported at once, as joined [ConfigError]s; then the receiver is as it was. It
// does not validate: [NewGuard] does.
func (c *GuardConfig) UnmarshalJSON(data []byte) error {
	var p problems
	next := *c
	if next.Tools == nil && next.DeadlineFloor == 0 && next.Default == (Policy{}) {
		next = DefaultGuardConfig()
		next.Observe = c.Observe
	}
	decodeFields(&p, data, []jsonField{ // by name: "default" is read before "tools"
		nested(&p, "default", next.Default.fields()),
		overrides(&p, "tools", &next.Tools, &next.Default, (*Policy).fields),
		duration("deadline_floor", &next.DeadlineFloor),
	})
	if len(p.errs) == 0 {
		*c = next
	}
	return errors.Join(p.errs...)
}

// Event is what an observer of a Guard hears.
type Event struct {
	Tool    string // asked for
	Served  string // that ran; for a finished call, that answered or failed last
	Final   bool   // false: an attempt has ended. true: the call has ended
	Attempt int    // number of this attempt; for a finished call, of all attempts
	Verdict Verdict
	// Reason is StopNone after a success, RetryAllowed after an attempt that will
	// be followed by another of the same tool, else why this tool or call ended.
	Reason StopReason
	Took   time.Duration // of the attempt, or of the whole call with its waits
	Wait   time.Duration // before the next attempt; for a finished call, as in ToolError
	// Err is what the tool function returned, for logs and traces, or the
	// *ToolError of a finished call; nil after a success.
	Err error
}
