package toolhealth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth/internal/fields"
	"github.com/toolhealth/toolhealth/internal/machine"
	"github.com/toolhealth/toolhealth/internal/retry"
)

// Off switches a rule off. In every configuration a field that is zero has its
// default, and Off, which fits every kind of number, is the one negative value that
// is no error. In JSON an absent key is the default, and 0 or "0s" is off.
const Off = fields.Off

// What lies beyond these bounds is taken for a mistake.
const (
	maxDuration = machine.MaxDuration
	maxGrowth   = 1000
	maxTools    = 1 << 24
)

// BreakerConfig says when a breaker opens, how long it stays open and what
// closes it.
//
// The zero BreakerConfig is the default one. A field that is zero has its default,
// and [Off] switches its rule off; but once any field is set, a FailureThreshold of
// zero never opens and a ProbeTimeout of zero is no lease. So start a literal from
// [DefaultBreakerConfig] and change what you need.
//
// Another negative value, NaN, an infinite or an absurd value (a duration over ten
// years, a factor over 1000) is an error of every function that takes a
// configuration: nothing is corrected silently.
type BreakerConfig struct {
	// FailureThreshold is the number of consecutive failures that opens the
	// breaker, 3 by default. If another field is set, zero is no default: like Off it
	// means that no number of them opens the breaker, and failures are still counted.
	// Start a literal from DefaultBreakerConfig.
	FailureThreshold int
	// RecoveryDuration is the cooldown: the time from opening to the first probe, 30s
	// by default. It may be Off only if FailureThreshold and FailureRate are.
	RecoveryDuration time.Duration
	// ProbeTimeout is the lease of a probe: when it runs out without a verdict,
	// the breaker is open again, with a cooldown that began when the lease ended. It
	// is 30s by default. If another field is set, zero is no default: like Off it means
	// no lease. Then a probe may take forever, and a lost one blocks the tool until
	// Reset. Start a literal from DefaultBreakerConfig.
	//
	// A probe that succeeds after its lease makes the next lease long enough for
	// it, and one that streams can call KeepAlive, so a tool that is slower than
	// the lease recovers, too.
	ProbeTimeout time.Duration
	// MaxOpenDuration is the bound of every wait, counted from when the breaker
	// opened: a cooldown that late failures restart, a stated wait, and growth. It is
	// 10m by default; Off means no bound.
	MaxOpenDuration time.Duration
	// MaxStatedWait bounds the waits that the tool states, in a throttle or in a
	// failure with a Retry-After: for so long every caller is refused with
	// StopRateLimited. It is MaxOpenDuration by default, which bounds them, too. Off
	// means that a stated wait binds only the call that heard it, for a tool that
	// reaches many sites.
	MaxStatedWait time.Duration
	// RecoveryGrowth is the factor on the cooldown for each failed probe in a row, 1
	// by default, which keeps the cooldown fixed. Values between 0 and 1 are errors.
	RecoveryGrowth float64
	// RecoveryJitter, 0 to 1, spreads each cooldown d uniformly over
	// [d, d*(1+RecoveryJitter)], so that replicas do not probe together. It is off by
	// default.
	RecoveryJitter float64
	// ProbeSuccesses is the number of probes, one after the other, that must
	// succeed in a row to close the breaker, 1 by default.
	ProbeSuccesses int
	// SlowCallDuration is the time above which a success counts as a failure for
	// the breaker, though not in the statistics. It is off by default.
	SlowCallDuration time.Duration
	// FailureWindow is the longest time between two failures of one streak: a failure
	// that comes later than this after the one before begins a new streak. It is off by
	// default: a streak ends only with an answer of the tool.
	FailureWindow time.Duration
	// FailureRate, 0 to 1, is the share of failures that opens the breaker, for a tool
	// that fails two times in three and never three times in a row. It is worked out
	// when a failure comes, among the successes and failures of a window. A window
	// begins with a failure. It ends after FailureRateWindow, or when the breaker
	// closes; the next failure begins the next. It is off by default. A Breaker without
	// a Registry has no such rule. The number of successes is the sum of a histogram of
	// 448 bytes, which each failure then reads.
	FailureRate float64
	// FailureRateWindow is how long a window lasts, a minute by default. Off means
	// until the breaker closes.
	FailureRateWindow time.Duration
	// FailureRateMinCalls is how many calls must have ended in a window, its first
	// failure included, before FailureRate opens: 20 by default.
	FailureRateMinCalls int
	// MaxInFlight is how many permits of the tool may be out at once. While so many are
	// out, every caller is refused with StopBusy, and nothing is counted against the
	// tool. Calls by name have no permit, so they are refused but not counted; a permit
	// that is lost is out for good. It is off by default. A Breaker without a Registry
	// has no permits and no such rule.
	MaxInFlight int
	// ObserveOnly lets every caller in, whatever the breaker, MaxInFlight or an
	// operator's Isolate say. The breaker moves and tells its hooks as ever;
	// ToolHealth.WouldRefuse counts the calls that it would have refused. It is for the
	// first weeks in a host.
	ObserveOnly bool
	// MaxHintDuration bounds every wait that [Registry.Hint] asks for, counted from when
	// the breaker opened if it is open. It is 10m by default. Off means that the breaker
	// is deaf: no hint changes anything. A Breaker without a Registry gets no hints.
	MaxHintDuration time.Duration
}

// DefaultBreakerConfig returns what the zero BreakerConfig stands for, field by
// field: FailureThreshold 3, RecoveryDuration 30s, ProbeTimeout 30s, MaxOpenDuration
// 10m, RecoveryGrowth 1, ProbeSuccesses 1, FailureRateWindow 1m, FailureRateMinCalls
// 20, MaxHintDuration 10m. MaxStatedWait stays zero, so that it follows MaxOpenDuration.
// Everything else is off.
func DefaultBreakerConfig() BreakerConfig {
	return BreakerConfig{
		FailureThreshold: 3,
		RecoveryDuration: 30 * time.Second,
		ProbeTimeout:     30 * time.Second,
		MaxOpenDuration:  10 * time.Minute,
		RecoveryGrowth:   1,
		ProbeSuccesses:   1,

		FailureRateWindow:   time.Minute,
		FailureRateMinCalls: 20,

		MaxHintDuration: 10 * time.Minute,
	}
}

func (c *BreakerConfig) table() fields.Table {
	d := DefaultBreakerConfig()
	return fields.Table{
		fields.Count("failure_threshold", &c.FailureThreshold, 0),
		fields.Duration("recovery_duration", &c.RecoveryDuration, d.RecoveryDuration, maxDuration).Rule(c.allowedRecovery),
		fields.Duration("probe_timeout", &c.ProbeTimeout, 0, maxDuration),
		fields.Duration("max_open_duration", &c.MaxOpenDuration, d.MaxOpenDuration, maxDuration),
		fields.Duration("max_stated_wait", &c.MaxStatedWait, c.usualStatedWait(), maxDuration),
		fields.Factor("recovery_growth", &c.RecoveryGrowth, d.RecoveryGrowth, maxGrowth),
		fields.Fraction("recovery_jitter", &c.RecoveryJitter, 0),
		fields.Count("probe_successes", &c.ProbeSuccesses, d.ProbeSuccesses),
		fields.Duration("slow_call_duration", &c.SlowCallDuration, 0, maxDuration),
		fields.Duration("failure_window", &c.FailureWindow, 0, maxDuration),
		fields.Fraction("failure_rate", &c.FailureRate, 0),
		fields.Duration("failure_rate_window", &c.FailureRateWindow, d.FailureRateWindow, maxDuration),
		fields.Count("failure_rate_min_calls", &c.FailureRateMinCalls, d.FailureRateMinCalls),
		fields.Count("max_in_flight", &c.MaxInFlight, 0),
		fields.Bool("observe_only", &c.ObserveOnly),
		fields.Duration("max_hint_duration", &c.MaxHintDuration, d.MaxHintDuration, maxDuration),
	}
}

// groupTable is the table of a breaker of a group.
func (c *BreakerConfig) groupTable() fields.Table {
	off := func(isOff bool) func() string {
		return func() string {
			if isOff {
				return ""
			}
			return "off: it is a rule for the breakers of tools"
		}
	}
	return c.table().Rule("slow_call_duration", off(c.SlowCallDuration <= 0)).
		Rule("failure_rate", off(c.FailureRate <= 0)).
		Rule("max_in_flight", off(c.MaxInFlight <= 0))
}

// usualStatedWait returns what a MaxStatedWait of zero stands for.
func (c *BreakerConfig) usualStatedWait() time.Duration {
	switch c.MaxOpenDuration {
	case 0:
		return DefaultBreakerConfig().MaxOpenDuration
	case Off:
		return math.MaxInt64 // no bound
	}
	return c.MaxOpenDuration
}

// allowedRecovery returns what RecoveryDuration should be, or "" if it fits the
// other fields.
func (c *BreakerConfig) allowedRecovery() string {
	r := c.resolved()
	switch {
	case r.RecoveryDuration == 0 && (r.FailureThreshold > 0 || r.FailureRate > 0):
		return "more than 0s unless failure_threshold and failure_rate are off"
	case r.MaxOpenDuration > 0 && r.RecoveryDuration > r.MaxOpenDuration:
		return fmt.Sprintf("at most max_open_duration, which is %v", r.MaxOpenDuration)
	}
	return ""
}

// explicit returns c with a threshold and a lease if c is zero: in a BreakerConfig
// that has something set they are off.
func (c BreakerConfig) explicit() BreakerConfig {
	if c == (BreakerConfig{}) {
		d := DefaultBreakerConfig()
		c.FailureThreshold, c.ProbeTimeout = d.FailureThreshold, d.ProbeTimeout
	}
	return c
}

// resolved returns c with all defaults filled in. Then zero means off.
func (c BreakerConfig) resolved() BreakerConfig {
	c = c.explicit()
	c.table().Resolve()
	return c
}

// Validate returns nil, or every problem at once as joined [ConfigError]s.
func (c BreakerConfig) Validate() error { return configError(c.table().Check()) }

// DefaultMaxTools is the bound on a registry's entries where none is given.
const DefaultMaxTools = 10000

// Config configures a [Registry] that is made by [NewRegistryWithConfig]. The zero
// Config has the default breaker for every tool.
type Config struct {
	// Breaker is the configuration of every tool that has none of its own.
	Breaker BreakerConfig
	// Tools are the configurations of single tools, by name. They are copied. Each is
	// a whole BreakerConfig: a field that is zero has its default, whatever Breaker
	// says.
	// Every name is accepted here, a misspelled one too: compare them with the
	// names of a Summary.
	Tools map[string]BreakerConfig
	// MaxTools is the bound on the number of entries; zero means DefaultMaxTools, and
	// Off means no bound. The comment of [Registry] says what happens at the bound.
	MaxTools int
	// RegisteredOnly refuses every tool that is neither in Tools nor was passed
	// to [Registry.Register].
	RegisteredOnly bool

	// Group returns the name of the group of a tool, such as the server that it is
	// behind, and "" for a tool without one; nil means that there are no groups. A group
	// has a breaker of its own that counts what says that the server cannot be reached, so
	// a dead server costs a few failing calls, however many tools are behind it.
	//
	// It is called at a tool's first call, and when it is asked whether a tool without an
	// entry is available, from any goroutine: it must be quick, and say the same each
	// time. If it panics, the tool has no group. SetConfig does not change it.
	//
	// What says that the server cannot be reached is a failure of kind connection that is
	// retryable, and a timeout. A verdict of your own, as for [Registry.Record] and
	// [Permit.Settle], has to say Retryable, too: without it the kind is that of an unknown
	// host name or a bad certificate, which an argument of the tool may be at fault for. The
	// error of a guarded call further in says nothing of the outer tool's group.
	//
	// A call of another tool of the group that is made inside of the probe's attempt, with
	// its ctx, shares the probe: the first verdict counts, and a call without one leaves it.
	Group func(tool string) string
	// GroupBreaker is the configuration of every group's breaker. SlowCallDuration,
	// FailureRate and MaxInFlight are rules for tools: there they are errors.
	GroupBreaker BreakerConfig
	// GroupServerErrors makes failures of kind server_error count against the group, for
	// hosts where a 503 means the host. By default such an answer proves that it is alive.
	GroupServerErrors bool
}

// DefaultConfig returns what the zero Config stands for, field by field.
func DefaultConfig() Config {
	return Config{Breaker: DefaultBreakerConfig(), MaxTools: DefaultMaxTools, GroupBreaker: DefaultBreakerConfig()}
}

func (c *Config) table() fields.Table {
	return fields.Table{
		fields.Object("breaker", c.Breaker.table(), nil),
		fields.Map("tools", &c.Tools, (*BreakerConfig).table),
		maxToolsField(&c.MaxTools),
		fields.Bool("registered_only", &c.RegisteredOnly),
		fields.Object("group_breaker", c.GroupBreaker.groupTable(), nil),
		fields.Bool("group_server_errors", &c.GroupServerErrors),
	}
}

func maxToolsField(n *int) fields.Field {
	return fields.CountUpTo("max_tools", n, DefaultMaxTools, maxTools)
}

// Validate returns nil, or every problem at once as joined [ConfigError]s.
func (c Config) Validate() error { return configError(c.table().Check()) }

// clone returns c with a map of its own.
func (c Config) clone() Config {
	c.Tools = maps.Clone(c.Tools)
	return c
}

// bound is the number of entries that c allows.
func (c Config) bound() int {
	maxToolsField(&c.MaxTools).Resolve()
	if c.MaxTools == 0 {
		return math.MaxInt
	}
	return c.MaxTools
}

// compiled is a Config as the registry uses it. It never changes.
type compiled struct {
	config  Config
	bound   int // on the number of entries
	breaker *machine.Params
	tools   map[string]*machine.Params
	labels  map[string]map[string]string // by tool

	groupBreaker *machine.Params
	groups       map[string]string // by tool; before Config.Group
}

// compile returns a valid Config as the registry uses it.
func compile(c Config) *compiled {
	c = c.clone()
	k := &compiled{
		config: c, bound: c.bound(), breaker: newParams(c.Breaker), tools: make(map[string]*machine.Params, len(c.Tools)),
		groupBreaker: newParams(c.GroupBreaker),
	}
	for tool, own := range c.Tools {
		k.tools[tool] = newParams(own)
	}
	return k
}

// groupOf returns the name of a tool's group, "" without one. It may run the user's
// function.
func (k *compiled) groupOf(tool string) (name string) {
	if name, ok := k.groups[tool]; ok {
		return name
	}
	if k.config.Group == nil {
		return ""
	}
	defer func() { _ = recover() }() // then there is no group
	return k.config.Group(tool)
}

// newParams returns a valid configuration as the machine uses it.
func newParams(c BreakerConfig) *machine.Params {
	return machine.NewParams(machine.Config(c.resolved()))
}

// Policy says how calls of a tool are made and repeated. A field that is zero has
// its default, and [Off] switches its rule off. So Policy{SideEffects: true} has every
// other default, and Policy{MaxAttempts: 1} repeats nothing.
type Policy struct {
	// MaxAttempts is the number of times that one call runs the tool at most, the
	// first time included. It is 2 by default; 1 and Off mean no retry.
	MaxAttempts int
	// Timeout is the longest silence: how long an attempt may go without a sign of life
	// until its ctx is done. It begins with the attempt, and each [KeepAlive] begins it
	// anew, so for a tool that never calls that it is the time of the attempt. It is also
	// the least lease of a probe. Off means no limit.
	//
	// The ctx of the attempt says context.DeadlineExceeded then; one that is derived from
	// it may say context.Canceled, and has context.DeadlineExceeded as its cause. Its
	// Deadline is the caller's, or that of MaxDuration: a Timeout may move.
	//
	// By default it is 2m, and an attempt that this default ends is not repeated. One
	// that a Timeout of yours ends is.
	Timeout time.Duration
	// MaxDuration is the longest time of an attempt, whatever signs of life it shows. It
	// is off by default. An attempt that it ends is a timeout, too, and is repeated.
	MaxDuration time.Duration
	// BackoffBase is the wait before the second attempt, 100ms by default; each later
	// wait is BackoffFactor times as long, up to BackoffMax. Off means no wait.
	BackoffBase time.Duration
	// BackoffMax is the longest back-off, 5s by default. Off means no limit.
	BackoffMax time.Duration
	// BackoffFactor is the growth of the back-off, 2 by default. With 1 and Off, all
	// waits are BackoffBase; values between 0 and 1 are errors.
	BackoffFactor float64
	// Jitter, 0 to 1, is the share of a back-off that is drawn at random; it is 1 by
	// default. A wait is the longer of the back-off without this share and what the tool
	// stated, and up to this share more: no wait is shorter than stated, and callers who
	// were told the same wait do not return together.
	Jitter float64
	// MaxWait is the longest wait between attempts, 30s by default. A call stops if even
	// the least wait is longer, or not shorter than the time until the caller's deadline;
	// of the random share, what does not fit is cut. Off means no limit.
	MaxWait time.Duration
	// RetryBudget is the size of the tool's token bucket, 10 by default. A retry costs a
	// token, but for one whose wait is what the tool stated; a success gives a tenth back;
	// without a token there is no retry. The bucket belongs to the tool in its registry
	// and starts full, and again when a smaller size is asked for: guards that share a
	// registry should agree on it. Off means no budget.
	//
	// When a tool fails for every caller, the budget keeps retries from doubling
	// its load.
	RetryBudget int
	// RetryRefill is how long it takes until the budget gets one token back by itself,
	// 10s by default. Off means never.
	RetryRefill time.Duration
	// SideEffects says that the tool changes something, so that doing it twice is
	// worse than not knowing. A failed attempt is repeated, or handed to a
	// substitute, only if it surely never reached the tool: every branch of its error
	// has to say so. An error that comes from a guarded call further in, or after the
	// caller's ctx is done, does not say so.
	//
	// It holds for whatever serves in this tool's place, and for the attempts that a call
	// lies in: none of them is repeated or handed on once this tool may have acted, also
	// if it succeeded. The calls have to be made with the ctx of those attempts.
	//
	// A function that sends two requests, or follows a redirect, returns the error of
	// the last one, which may say that it was not sent although the first one was. Let
	// such a function use one client with the Witness of integrations/httphealth, write
	// a [Note] of each request, or mark its errors with [WithVerdict].
	//
	// Set it for tools that send, pay or delete. It holds within one call: a model that
	// calls again acts again. An idempotency key that the tool honors makes a repetition
	// safe: derive it from what is to be done, such as the arguments and the task, so
	// that all attempts and all calls use the same one, and leave SideEffects off.
	// A call that Start, Observe or a check of a result makes is a call of its own, too.
	SideEffects bool
	// Detach ends the guard's wait when the attempt's context is done, although
	// the tool function has not returned. The function then runs on, on a
	// goroutine of its own; its late result is dropped.
	//
	// It may still act. Each such attempt counts in GuardCounts.Abandoned until it
	// returns, and the next attempt runs beside it: set MaxAttempts 1, or SideEffects,
	// for a tool that must not run twice at once. Use Detach for functions that you
	// cannot change.
	Detach bool
}

// defaultTimeout is the Timeout of a Policy that has none.
const defaultTimeout = 2 * time.Minute

func (c *Policy) table() fields.Table {
	return fields.Table{
		fields.Count("max_attempts", &c.MaxAttempts, 2),
		fields.Duration("timeout", &c.Timeout, defaultTimeout, maxDuration),
		fields.Duration("max_duration", &c.MaxDuration, 0, maxDuration),
		fields.Duration("backoff_base", &c.BackoffBase, 100*time.Millisecond, maxDuration),
		fields.Duration("backoff_max", &c.BackoffMax, 5*time.Second, maxDuration),
		fields.Factor("backoff_factor", &c.BackoffFactor, 2, maxGrowth),
		fields.Fraction("jitter", &c.Jitter, 1),
		fields.Duration("max_wait", &c.MaxWait, 30*time.Second, maxDuration),
		fields.Count("retry_budget", &c.RetryBudget, 10),
		fields.Duration("retry_refill", &c.RetryRefill, 10*time.Second, maxDuration),
		fields.Bool("side_effects", &c.SideEffects),
		fields.Bool("detach", &c.Detach),
	}
}

// DefaultDeadlineFloor is the time that a call must have run for the caller's
// deadline to be the tool's fault, where no other is configured.
const DefaultDeadlineFloor = time.Second

// GuardConfig configures a [Guard] that is made by [NewGuard]. The zero GuardConfig
// has the default policy for every tool.
type GuardConfig struct {
	// Default is the policy of every tool that has none of its own.
	Default Policy
	// Tools are the policies of single tools, by name. They are copied. Each is a
	// whole Policy: a field that is zero has its default, whatever Default says.
	Tools map[string]Policy
	// PolicyOf, if set, is asked in each call of a tool that has no policy in Tools.
	// It is given Default and returns the policy of the tool, for tools whose
	// properties are known only when they are called. It runs on the call path, from
	// any goroutine, so it must be quick. A call whose policy is wrong, or for which it
	// panics, fails with StopNonRetryable before the tool runs.
	PolicyOf func(tool string, p Policy) Policy
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
	// same tool. A panic in Observe is ignored. It hears of a call of [Begin] when the
	// Flight ends, on the goroutine that calls Done, or on one of the guard's if its
	// reader does not.
	Observe func(ctx context.Context, e Event)
}

func (c *GuardConfig) table() fields.Table {
	return fields.Table{
		fields.Object("default", c.Default.table(), nil),
		fields.Map("tools", &c.Tools, (*Policy).table),
	}
}

// Validate returns nil, or every problem at once as joined [ConfigError]s.
func (c GuardConfig) Validate() error { return configError(c.table().Check()) }

// Settings configures a registry, the substitutes, a gate and a guard at once, for
// [New] and [Guard.SetSettings]. The zero Settings is the default.
//
// It is the only configuration with a JSON form; [Load] reads it from a file. The keys
// are the field names in lower case with underscores, such as "registered_only", and
// so are those of BreakerConfig and Policy. Durations are texts such as "1m30s". An
// absent key is the default, and 0 or "0s" switches a rule off. In the "breaker" and
// the "policy" of a tool an absent key is what Breaker and Policy say, so that they name
// only what differs. An unknown key and a key that is given twice are errors. The
// functions are not in JSON.
type Settings struct {
	// Breaker is the breaker of every tool that has none of its own.
	Breaker BreakerConfig
	// Policy is the policy of every tool that has none of its own.
	Policy Policy
	// Tools says what is special about single tools, by name.
	Tools map[string]ToolSettings
	// MaxTools and RegisteredOnly are those of Config. A tool is known if it is in
	// Tools or was passed to Registry.Register.
	MaxTools       int
	RegisteredOnly bool
	// GroupBreaker, GroupServerErrors and Group are those of Config. SetSettings keeps the
	// function that New was given.
	GroupBreaker      BreakerConfig
	GroupServerErrors bool
	Group             func(tool string) string
	// GroupSeparator makes the part of a name before it the group of the tool: with "/",
	// "github" is that of "github/search". A tool without it in the name has no group. It
	// is instead of Group; with both it is an error. "" means no groups.
	GroupSeparator string
	// DeadlineFloor is the least time that an attempt must have run for the caller's
	// deadline to count as a timeout of the tool; one that ended sooner is neutral. It
	// is DefaultDeadlineFloor by default. Off means no floor.
	DeadlineFloor time.Duration

	// Classify says what errors mean. Nil means the function of that name.
	Classify Classifier
	// PolicyOf, Start and Observe are those of GuardConfig: PolicyOf is given Policy.
	PolicyOf func(tool string, p Policy) Policy
	Start    func(ctx context.Context, e Event) context.Context
	Observe  func(ctx context.Context, e Event)
}

// ToolSettings says what is special about one tool. The zero ToolSettings says only
// that there is such a tool.
type ToolSettings struct {
	// Breaker and Policy are the tool's own; nil means those of Settings. Each is a
	// whole configuration: a field that is zero has its default, whatever Settings say.
	// To keep what they say, copy theirs and change the copy.
	Breaker *BreakerConfig
	Policy  *Policy
	// Substitutes are the tools that may stand in for this one, in the order of
	// preference. The substitutes of a substitute are not followed. If it is nil, those
	// that Tool.Substitute was given count; an empty list means none.
	Substitutes []string
	// Labels are shown in ToolHealth and mean nothing to the library.
	Labels map[string]string
	// Group is the group of the tool, whatever Group and GroupSeparator of Settings say;
	// "" means what they say.
	Group string
}

func (s *Settings) table() fields.Table {
	base := BreakerConfig{}.explicit()
	return fields.Table{
		fields.Object("breaker", s.Breaker.table(), base.table()),
		fields.Object("policy", s.Policy.table(), new(Policy).table()),
		fields.Map("tools", &s.Tools, func(t *ToolSettings) fields.Table {
			return fields.Table{
				fields.Optional("breaker", &t.Breaker, func() BreakerConfig { return s.Breaker.explicit() }, (*BreakerConfig).table),
				fields.Optional("policy", &t.Policy, func() Policy { return s.Policy }, (*Policy).table),
				fields.Names("substitutes", &t.Substitutes),
				fields.Texts("labels", &t.Labels),
				fields.Text("group", &t.Group),
			}
		}),
		maxToolsField(&s.MaxTools),
		fields.Bool("registered_only", &s.RegisteredOnly),
		fields.Object("group_breaker", s.GroupBreaker.groupTable(), base.table()),
		fields.Bool("group_server_errors", &s.GroupServerErrors),
		fields.Text("group_separator", &s.GroupSeparator).Rule(func() string {
			if s.GroupSeparator != "" && s.Group != nil {
				return "empty, because Group is set"
			}
			return ""
		}),
		fields.Duration("deadline_floor", &s.DeadlineFloor, DefaultDeadlineFloor, maxDuration),
	}
}

// MarshalJSON writes what differs from the default, and of a tool what differs from
// Breaker and Policy.
func (s Settings) MarshalJSON() ([]byte, error) {
	s.Breaker, s.GroupBreaker = s.Breaker.explicit(), s.GroupBreaker.explicit()
	s.Tools = maps.Clone(s.Tools)
	for name, t := range s.Tools {
		if t.Breaker != nil {
			own := t.Breaker.explicit()
			t.Breaker = &own
			s.Tools[name] = t
		}
	}
	data, err := s.table().JSON(new(Settings).table())
	if err != nil {
		return nil, fmt.Errorf("toolhealth: config: %w", err)
	}
	return data, nil
}

// UnmarshalJSON reads what MarshalJSON writes. An absent key keeps the value that the
// receiver has; "tools" replaces them all. Every problem is reported at once, as joined
// [ConfigError]s; then the receiver is as it was. It does not look at bounds: Load and
// New do.
func (s *Settings) UnmarshalJSON(data []byte) error {
	next := *s
	if err := configError(next.read(data)); err != nil {
		return err
	}
	*s = next
	return nil
}

func (s *Settings) read(data []byte) fields.Problems {
	base := BreakerConfig{}.explicit()
	s.Breaker, s.GroupBreaker = s.Breaker.explicit(), s.GroupBreaker.explicit()
	problems := s.table().Read(data)
	for _, c := range []*BreakerConfig{&s.Breaker, &s.GroupBreaker} {
		if *c == base {
			*c = BreakerConfig{}
		}
	}
	return problems
}

// Load reads Settings from JSON, or returns every problem at once as joined
// [ConfigError]s: what is no JSON of Settings, and what New would refuse.
func Load(r io.Reader) (Settings, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return Settings{}, fmt.Errorf("toolhealth: config: %w", err)
	}
	var s Settings
	problems := s.read(data)
	problems = append(problems, s.problems(nil)...)
	if err := configError(problems); err != nil {
		return Settings{}, err
	}
	return s, nil
}

// Validate returns nil, or every problem at once as joined [ConfigError]s: what New
// would return.
func (s Settings) Validate() error { return configError(s.problems(nil)) }

// problems returns what is wrong with s. known reports whether there is a tool that is
// not in Tools; it may be nil.
func (s *Settings) problems(known func(tool string) bool) fields.Problems {
	p := s.table().Check()
	for _, tool := range slices.Sorted(maps.Keys(s.Tools)) {
		field, list := substitutesField(tool), s.Tools[tool].Substitutes
		checkSubstitutes(&p, field, tool, list)
		for i, name := range list {
			_, listed := s.Tools[name]
			if s.RegisteredOnly && name != "" && !listed && (known == nil || !known(name)) {
				p.Add(fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("%.80q", name), "in tools, because registered_only is true")
			}
		}
	}
	return append(p, s.circles()...)
}

// grouping returns Config.Group for s.
func (s *Settings) grouping() func(tool string) string {
	if s.GroupSeparator == "" {
		return s.Group
	}
	return func(tool string) string {
		if group, _, ok := strings.Cut(tool, s.GroupSeparator); ok {
			return group
		}
		return ""
	}
}

// regrouped returns a problem for each tool that s puts into another group than old did,
// or than groupOf says, which knows the tools that have been called.
func (s *Settings) regrouped(old *Settings, groupOf func(tool string) (group string, called bool)) (p fields.Problems) {
	stays := func(field, is, was string) {
		p.Add(field, is, was+" as before: tools stay in their groups")
	}
	if s.GroupSeparator != old.GroupSeparator {
		stays("group_separator", fmt.Sprintf("%.80q", s.GroupSeparator), fmt.Sprintf("%.80q", old.GroupSeparator))
	}
	if set := map[bool]string{true: "set", false: "nil"}; (s.Group == nil) != (old.Group == nil) {
		stays("group", set[s.Group != nil], set[old.Group != nil])
	}
	for _, tool := range slices.Sorted(maps.Keys(s.Tools)) {
		group, listed := s.Tools[tool].Group, false
		was, fixed := groupOf(tool)
		if before, ok := old.Tools[tool]; ok {
			was, listed = before.Group, true
		}
		if listed && group != was || !listed && fixed && group != "" && group != was {
			stays(fields.Key("tools", tool)+".group", fmt.Sprintf("%.80q", group), fmt.Sprintf("%.80q", was))
		}
	}
	return p
}

// checkSubstitutes notes what is wrong with the list of one tool.
func checkSubstitutes(p *fields.Problems, field, primary string, list []string) {
	seen := map[string]bool{primary: true}
	for i, name := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch {
		case name == "":
			p.Add(at, `""`, "the name of a tool")
		case name == primary:
			p.Add(at, fmt.Sprintf("%.80q", name), "another tool than the primary")
		case seen[name]:
			p.Add(at, fmt.Sprintf("%.80q", name), "listed once")
		}
		seen[name] = true
	}
}

func substitutesField(tool string) string { return fields.Key("tools", tool) + ".substitutes" }

// circles returns a problem for each circle of substitutes, such as a, b and c where b
// stands in for a, c for b and a for c. Such a circle takes it that lists are followed
// further, and they are not. Two tools that stand in for each other make no circle.
func (s *Settings) circles() (p fields.Problems) {
	done := make(map[string]bool, len(s.Tools))
	var path []string
	var follow func(tool string)
	follow = func(tool string) {
		if i := slices.Index(path, tool); i >= 0 {
			circle := strings.Join(append(slices.Clone(path[i:]), tool), " > ")
			p.Add(substitutesField(path[len(path)-1]), fmt.Sprintf("part of the circle %.200q", circle),
				"without a way back to the tool: a substitute's own substitutes are not tried")
			return
		}
		if done[tool] {
			return
		}
		path = append(path, tool)
		for _, next := range s.Tools[tool].Substitutes {
			if !slices.Contains(s.Tools[next].Substitutes, tool) {
				follow(next)
			}
		}
		path = path[:len(path)-1]
		done[tool] = true
	}
	for _, tool := range slices.Sorted(maps.Keys(s.Tools)) {
		follow(tool)
	}
	return p
}

// clone returns a copy that shares nothing with s that can be changed.
func (s Settings) clone() Settings {
	s.Tools = maps.Clone(s.Tools)
	for name, t := range s.Tools {
		t.Breaker, t.Policy = cloneOf(t.Breaker), cloneOf(t.Policy)
		t.Substitutes, t.Labels = slices.Clone(t.Substitutes), maps.Clone(t.Labels)
		s.Tools[name] = t
	}
	return s
}

func cloneOf[T any](v *T) *T {
	if v == nil {
		return nil
	}
	c := *v
	return &c
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
	// be followed by another of the same tool, else why this tool or call ended, or
	// why substitutes are tried before the tool's next attempt.
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

// policy is a Policy with all defaults filled in: a number that is zero is off.
type policy struct {
	Policy
	// usualTimeout says that Timeout is the default. An attempt that it ends is not
	// repeated.
	usualTimeout bool
}

func newPolicy(p Policy) *policy {
	c := &policy{Policy: p, usualTimeout: p.Timeout == 0}
	c.table().Resolve()
	return c
}

// limit returns the longest time that an attempt may last without a sign of life; zero
// if there is none.
func (c *policy) limit() time.Duration {
	if c.Timeout > 0 && c.MaxDuration > 0 {
		return min(c.Timeout, c.MaxDuration)
	}
	return max(c.Timeout, c.MaxDuration)
}

// nextWait says how long to wait before the next attempt, and whether that costs a
// token, or why there is none. room is the time that the caller has left. The wait that
// the tool stated, or the back-off without its jitter, has to fit; the jitter takes at
// most half of the room after it. A wait as the tool stated it costs no token.
func (c *policy) nextWait(v Verdict, attempt int, room time.Duration) (reason StopReason, wait time.Duration, costs bool) {
	stated := max(v.RetryAfter, 0)
	backoff := retry.Delay(c.BackoffBase, c.BackoffMax, c.BackoffFactor, attempt)
	wait, least := retry.Spread(stated, backoff, c.Jitter, rand.Float64())
	if least >= room || c.MaxWait > 0 && least > c.MaxWait {
		if stated > 0 && stated == least {
			return StopRateLimited, stated, false
		}
		return StopRetryExhausted, stated, false
	}
	if c.MaxWait > 0 {
		wait = min(wait, c.MaxWait)
	}
	wait = min(wait, least+(room-least)/2)
	return RetryAllowed, wait, c.RetryBudget > 0 && (stated == 0 || stated < least)
}
