package machine

import (
	"math"
	"time"
)

// MaxDuration is the longest duration that a configuration may state, and the
// bound of a cooldown and of a learned lease where nothing lower is configured.
const MaxDuration = 10 * 365 * 24 * time.Hour

// rateOne is a failure rate of 1: rates are integers scaled by it.
const rateOne = 1_000_000

// Forever is a time that never comes.
const Forever = math.MaxInt64

// Config is the configuration of one breaker, with the fields of the public one:
// that one is converted to it, so the two cannot drift. It must be valid. Zero
// switches a rule off.
type Config struct {
	FailureThreshold int
	RecoveryDuration time.Duration
	ProbeTimeout     time.Duration
	MaxOpenDuration  time.Duration
	MaxStatedWait    time.Duration
	RecoveryGrowth   float64
	RecoveryJitter   float64
	ProbeSuccesses   int
	SlowCallDuration time.Duration
	FailureWindow    time.Duration

	FailureRate         float64
	FailureRateWindow   time.Duration
	FailureRateMinCalls int

	MaxInFlight int
	ObserveOnly bool

	MaxHintDuration time.Duration
}

// Params are a Config as the machine uses it: in integers, defaults filled in.
// They never change; every snapshot made under them points to them.
type Params struct {
	threshold int   // zero means that no streak of failures opens
	recovery  int64 // the shortest cooldown
	lease     int64 // zero means that a probe has no lease
	maxOpen   int64 // zero means that no wait is bounded
	maxStated int64 // the longest stated wait that binds every caller; zero means that none does
	growth    float64
	jitter    float64
	successes uint32
	slow      int64 // math.MaxInt64 means that no success is slow
	window    int64 // the longest time between two failures of a streak; zero means any
	maxHint   int64 // the longest wait that a hint asks for; zero means that hints change nothing

	rate       int64  // of failures, scaled by rateOne; zero means that no rate opens
	rateWindow int64  // how long a window lasts; Forever means until the breaker closes
	rateCalls  uint64 // calls that must have ended in a window

	// MaxInFlight is how many permits may be out at once; zero means any number.
	// ObserveOnly means that every caller is let in, whatever the machine says. The
	// machine reads neither: its owner does.
	MaxInFlight uint64
	ObserveOnly bool

	// Initial is the first snapshot of every breaker under these params, in epoch
	// 1. It is shared: most tools never leave it.
	Initial *Snapshot
}

// NewParams returns the params of a valid configuration.
func NewParams(c Config) *Params {
	p := &Params{
		threshold: c.FailureThreshold,
		recovery:  int64(c.RecoveryDuration),
		lease:     int64(c.ProbeTimeout),
		maxOpen:   int64(c.MaxOpenDuration),
		maxStated: int64(c.MaxStatedWait),
		growth:    max(c.RecoveryGrowth, 1),
		jitter:    c.RecoveryJitter,
		successes: uint32(min(max(c.ProbeSuccesses, 1), math.MaxInt32)),
		slow:      int64(c.SlowCallDuration),
		window:    int64(c.FailureWindow),
		maxHint:   int64(c.MaxHintDuration),

		rateWindow: int64(c.FailureRateWindow),
		rateCalls:  uint64(c.FailureRateMinCalls),

		MaxInFlight: uint64(c.MaxInFlight),
		ObserveOnly: c.ObserveOnly,
	}
	if p.slow == 0 {
		p.slow = math.MaxInt64
	}
	if c.FailureRate > 0 {
		p.rate = max(int64(math.Round(c.FailureRate*rateOne)), 1)
	}
	if p.rateWindow == 0 {
		p.rateWindow = Forever
	}
	if p.maxOpen > 0 {
		p.maxStated = min(p.maxStated, p.maxOpen)
	}
	p.Initial = &Snapshot{Params: p, past: new(past), Epoch: 1}
	return p
}

// Hint is the wait to report where the real one is unknown: one cooldown, or 30s.
func (p *Params) Hint() int64 {
	if p.recovery > 0 {
		return p.recovery
	}
	return int64(30 * time.Second)
}

// Patience is how long to wait for what may never come: MaxOpenDuration, or 10m if
// that is off.
func (p *Params) Patience() int64 {
	if p.maxOpen > 0 {
		return p.maxOpen
	}
	return int64(10 * time.Minute)
}

// opens reports whether any rule opens the breaker.
func (p *Params) opens() bool { return p.threshold > 0 || p.rate > 0 }

// Cap returns d, at most MaxOpenDuration.
func (p *Params) Cap(d int64) int64 {
	if p.maxOpen > 0 {
		return min(d, p.maxOpen)
	}
	return d
}

// learnable returns a lease that may be learned: at most MaxOpenDuration, and finite.
func (p *Params) learnable(lease int64) int64 { return p.Cap(min(lease, int64(MaxDuration))) }

// stated returns how long a wait that the tool stated binds every caller.
func (p *Params) stated(d int64) int64 { return min(max(d, 0), p.maxStated) }

// Heard returns how long a wait that the tool stated binds the call that heard it:
// as long as every other caller, or up to MaxOpenDuration if it binds no other.
func (p *Params) Heard(d int64) int64 {
	if p.maxStated == 0 {
		return p.Cap(max(d, 0))
	}
	return p.stated(d)
}

// CountsEnded reports whether Step needs to know how many calls have ended.
func (p *Params) CountsEnded() bool { return p.rate > 0 }

// cooldown returns the cooldown after this many failed probes in a row. draw is that
// of the event.
func (p *Params) cooldown(failed uint32, draw func() float64) int64 {
	bound := float64(MaxDuration)
	if p.maxOpen > 0 {
		bound = float64(p.maxOpen)
	}
	d := min(float64(p.recovery)*math.Pow(p.growth, float64(failed)), bound)
	if draw != nil {
		d *= 1 + p.jitter*draw()
	}
	return int64(min(d, bound))
}

// later returns the time d after t, and Forever if that is past it. d is not negative; t
// is, if it is the beginning of a state that was restored.
func later(t, d int64) int64 {
	if t > 0 && d > Forever-t {
		return Forever
	}
	return t + d
}

// saturatingNext returns n + 1, and the maximum if that overflows.
func saturatingNext(n uint32) uint32 { return max(n+1, n) }
