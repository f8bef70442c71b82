package toolhealth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
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
	// FailureThreshold is the number of consecutive failures that opens the
	// breaker. 0: it never opens, by whatever rule; failures are still counted.
	FailureThreshold int
	// RecoveryDuration is the cooldown: how long after opening a probe is let
	// through. It must be positive unless FailureThreshold is 0.
	RecoveryDuration time.Duration
	// ProbeTimeout is the lease of a probe: when it runs out without a verdict
	// the breaker is open again, with a cooldown that began when the lease
	// ended. 0: a probe may take for ever, and one that is lost wedges the tool
	// until Reset.
	ProbeTimeout time.Duration
	// MaxOpenDuration bounds every wait, counted from when the breaker opened:
	// late failures that restart the cooldown, a Retry-After, and growth.
	// 0: no bound.
	MaxOpenDuration time.Duration
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
	// TripScore, 0 to 1: a failure also opens the breaker if the EWMA of success
	// is below this by then and at least TripMinCalls calls have ended since the
	// breaker last closed. It catches the tool that fails two times in three.
	// 0: off. A FailureThreshold of 0 switches this rule off too.
	TripScore float64
	// TripMinCalls: see TripScore.
	TripMinCalls int
}

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
		TripMinCalls:     10,
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

func (e *ConfigError) Error() string {
	return fmt.Sprintf("toolhealth: config: %s is %s, must be %s", e.Field, e.Value, e.Allowed)
}

const (
	maxDuration = 10 * 365 * 24 * time.Hour // what is longer is taken for a mistake
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
	if c.RecoveryDuration == 0 && c.FailureThreshold > 0 {
		p.add("recovery_duration", "0s", "more than 0s unless failure_threshold is 0")
	}
	if c.MaxOpenDuration > 0 && c.RecoveryDuration > c.MaxOpenDuration {
		p.add("recovery_duration", c.RecoveryDuration.String(),
			"at most max_open_duration, which is "+c.MaxOpenDuration.String())
	}
	p.duration("probe_timeout", c.ProbeTimeout)
	p.duration("max_open_duration", c.MaxOpenDuration)
	p.factor("recovery_growth", c.RecoveryGrowth)
	p.fraction("recovery_jitter", c.RecoveryJitter)
	p.count("probe_successes", c.ProbeSuccesses)
	p.duration("slow_call_duration", c.SlowCallDuration)
	p.fraction("trip_score", c.TripScore)
	p.count("trip_min_calls", c.TripMinCalls)
}

// Validate returns nil, or every problem at once as joined [ConfigError]s.
func (c BreakerConfig) Validate() error {
	var p problems
	c.check(&p)
	return errors.Join(p.errs...)
}

// Validate returns nil, or every problem at once as joined [ConfigError]s.
func (c Config) Validate() error {
	p := problems{prefix: "breaker."}
	c.Breaker.check(&p)
	for _, tool := range slices.Sorted(maps.Keys(c.Tools)) {
		p.prefix = fmt.Sprintf("tools[%.80q].", tool)
		c.Tools[tool].check(&p)
		if tool == "" {
			p.prefix = ""
			p.add("tools", `the key ""`, "a name that is not empty")
		}
	}
	p.prefix = ""
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

// params is a valid BreakerConfig as the machine uses it: integers, defaults
// filled in. It never changes; every snapshot made under it points to it.
type params struct {
	config    BreakerConfig
	threshold int
	recovery  int64
	lease     int64
	maxOpen   int64 // 0: no bound
	growth    float64
	jitter    float64
	successes int
	slow      int64 // math.MaxInt64: off
	tripBelow int64 // EWMA scaled by ewmaOne; 0: off
	tripCalls uint64
	initial   *snapshot // what a tool under these params starts with; shared
}

func newParams(c BreakerConfig) *params {
	p := &params{
		config:    c,
		threshold: c.FailureThreshold,
		recovery:  int64(c.RecoveryDuration),
		lease:     int64(c.ProbeTimeout),
		maxOpen:   int64(c.MaxOpenDuration),
		growth:    max(c.RecoveryGrowth, 1),
		jitter:    c.RecoveryJitter,
		successes: max(c.ProbeSuccesses, 1),
		slow:      int64(c.SlowCallDuration),
		tripBelow: int64(math.Round(c.TripScore * ewmaOne)),
		tripCalls: uint64(c.TripMinCalls),
	}
	if p.slow == 0 {
		p.slow = math.MaxInt64
	}
	p.initial = &snapshot{cfg: p, epoch: 1}
	return p
}

// breakerJSON is BreakerConfig as JSON has it.
type breakerJSON struct {
	FailureThreshold int          `json:"failure_threshold"`
	RecoveryDuration jsonDuration `json:"recovery_duration"`
	ProbeTimeout     jsonDuration `json:"probe_timeout"`
	MaxOpenDuration  jsonDuration `json:"max_open_duration"`
	RecoveryGrowth   float64      `json:"recovery_growth"`
	RecoveryJitter   float64      `json:"recovery_jitter"`
	ProbeSuccesses   int          `json:"probe_successes"`
	SlowCallDuration jsonDuration `json:"slow_call_duration"`
	TripScore        float64      `json:"trip_score"`
	TripMinCalls     int          `json:"trip_min_calls"`
}

func (c BreakerConfig) toJSON() breakerJSON {
	return breakerJSON{
		c.FailureThreshold, jsonDuration(c.RecoveryDuration), jsonDuration(c.ProbeTimeout),
		jsonDuration(c.MaxOpenDuration), c.RecoveryGrowth, c.RecoveryJitter, c.ProbeSuccesses,
		jsonDuration(c.SlowCallDuration), c.TripScore, c.TripMinCalls,
	}
}

func (j breakerJSON) config() BreakerConfig {
	return BreakerConfig{
		j.FailureThreshold, time.Duration(j.RecoveryDuration), time.Duration(j.ProbeTimeout),
		time.Duration(j.MaxOpenDuration), j.RecoveryGrowth, j.RecoveryJitter, j.ProbeSuccesses,
		time.Duration(j.SlowCallDuration), j.TripScore, j.TripMinCalls,
	}
}

// MarshalJSON writes every field, durations as texts.
func (c BreakerConfig) MarshalJSON() ([]byte, error) { return json.Marshal(c.toJSON()) }

// UnmarshalJSON reads what MarshalJSON writes; see [BreakerConfig]. After an
// error the receiver is as it was.
func (c *BreakerConfig) UnmarshalJSON(data []byte) error {
	j := c.toJSON()
	if err := decodeStrict(data, &j); err != nil {
		return err
	}
	*c = j.config()
	return nil
}

// MarshalJSON writes every field; see [Config].
func (c Config) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Breaker        BreakerConfig            `json:"breaker"`
		Tools          map[string]BreakerConfig `json:"tools,omitempty"`
		MaxTools       int                      `json:"max_tools"`
		RegisteredOnly bool                     `json:"registered_only"`
	}{c.Breaker, c.Tools, c.MaxTools, c.RegisteredOnly})
}

// UnmarshalJSON reads what MarshalJSON writes; see [Config]. After an error the
// receiver is as it was. It does not validate: [NewRegistryWithConfig] and
// [Registry.SetConfig] do.
func (c *Config) UnmarshalJSON(data []byte) error {
	start := *c
	if start.Tools == nil && start.MaxTools == 0 && !start.RegisteredOnly && start.Breaker == (BreakerConfig{}) {
		start = DefaultConfig()
	}
	j := struct {
		Breaker        *BreakerConfig             `json:"breaker"`
		Tools          map[string]json.RawMessage `json:"tools"`
		MaxTools       *int                       `json:"max_tools"`
		RegisteredOnly *bool                      `json:"registered_only"`
	}{&start.Breaker, nil, &start.MaxTools, &start.RegisteredOnly}
	if err := decodeStrict(data, &j); err != nil {
		return err
	}
	if j.Tools != nil {
		start.Tools = make(map[string]BreakerConfig, len(j.Tools))
	}
	for tool, raw := range j.Tools {
		own := start.Breaker
		if err := json.Unmarshal(raw, &own); err != nil {
			return fmt.Errorf("tools[%.80q]: %w", tool, err)
		}
		start.Tools[tool] = own
	}
	*c = start
	return nil
}

// decodeStrict decodes one JSON value and refuses unknown keys.
func decodeStrict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("toolhealth: config: %w", err)
	}
	return nil
}

// jsonDuration is a duration that JSON writes as "1m30s".
type jsonDuration time.Duration

func (d jsonDuration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *jsonDuration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("a duration must be a text such as \"30s\": %w", err)
	}
	*d = jsonDuration(v)
	return nil
}
