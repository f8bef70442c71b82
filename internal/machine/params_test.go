package machine

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestParams_AreTheConfigInIntegers(t *testing.T) {
	p := NewParams(Config{
		FailureThreshold: 4, RecoveryDuration: 5, ProbeTimeout: 6, MaxOpenDuration: 7, MaxStatedWait: 4, RecoveryGrowth: 8,
		RecoveryJitter: 0.25, ProbeSuccesses: 9, SlowCallDuration: 10, FailureWindow: 12,
		FailureRate: 0.7, FailureRateWindow: 13, FailureRateMinCalls: 11, MaxInFlight: 14, ObserveOnly: true,
		MaxHintDuration: 15,
	})
	assert.Equal(t, Snapshot{Params: p, past: new(past), Epoch: 1}, *p.Initial)
	p.Initial = nil
	assert.Equal(t, Params{
		threshold: 4, recovery: 5, lease: 6, maxOpen: 7, maxStated: 4, growth: 8, jitter: 0.25, successes: 9, slow: 10,
		window: 12, rate: 700_000, rateWindow: 13, rateCalls: 11, MaxInFlight: 14, ObserveOnly: true, maxHint: 15,
	}, *p)
	zero := NewParams(Config{})
	zero.Initial = nil
	assert.Equal(t, Params{growth: 1, successes: 1, slow: math.MaxInt64, rateWindow: Forever}, *zero)
}

func TestParams_Hint(t *testing.T) {
	assert.Equal(t, int64(30*time.Second), NewParams(Config{}).Hint())
	assert.Equal(t, int64(7*time.Second), NewParams(Config{RecoveryDuration: 7 * time.Second}).Hint())
	assert.Equal(t, int64(1), NewParams(Config{RecoveryDuration: 1}).Hint())
}

func TestParams_StatedWaitIsBoundByBoth(t *testing.T) {
	for _, c := range []struct{ open, stated, asked, binds, heard time.Duration }{
		{50, 20, 100, 20, 20},
		{50, 20, 19, 19, 19},
		{50, 20, -1, 0, 0},
		{50, 70, 100, 50, 50},
		{1, 70, 100, 1, 1},
		{0, 70, 100, 70, 70},
		{50, 0, 100, 0, 50},
		{0, 0, 100, 0, 100},
		{50, 0, -7, 0, 0},
	} {
		p := NewParams(Config{MaxOpenDuration: c.open, MaxStatedWait: c.stated})
		assert.Equal(t, int64(c.binds), p.stated(int64(c.asked)), "%+v", c)
		assert.Equal(t, int64(c.heard), p.Heard(int64(c.asked)), "%+v", c)
	}
}

func TestParams_Patience(t *testing.T) {
	assert.Equal(t, int64(10*time.Minute), NewParams(Config{}).Patience())
	assert.Equal(t, int64(1), NewParams(Config{MaxOpenDuration: 1}).Patience())
}

func TestParams_GrowthMultipliesTheCooldown(t *testing.T) {
	for _, c := range []struct {
		growth, jitter, draw float64
		max                  time.Duration
		failed               uint32
		want                 time.Duration
	}{
		{0, 0, 0, 0, 0, 30 * time.Second},
		{1, 0, 0, 0, 5, 30 * time.Second},
		{2, 0, 0, 0, 0, 30 * time.Second},
		{2, 0, 0, 0, 1, 60 * time.Second},
		{2, 0, 0, 0, 3, 240 * time.Second},
		{1.5, 0, 0, 0, 2, 67500 * time.Millisecond},
		{2, 0, 0, 100 * time.Second, 1, 60 * time.Second},
		{2, 0, 0, 100 * time.Second, 2, 100 * time.Second},
		{2, 0, 0, 0, math.MaxUint32, MaxDuration},
		{1, 0.5, 0, 0, 0, 30 * time.Second},
		{1, 0.5, 0.5, 0, 0, 37500 * time.Millisecond},
		{2, 0.5, 0.5, 0, 1, 75 * time.Second},
		{1, 1, 0.999999, 40 * time.Second, 0, 40 * time.Second},
		{1, 0.5, 0.5, 35 * time.Second, 0, 35 * time.Second},
	} {
		p := stepParams(func(b *Config) {
			b.RecoveryGrowth, b.RecoveryJitter, b.MaxOpenDuration = c.growth, c.jitter, c.max
		})
		assert.Equal(t, c.want, time.Duration(p.cooldown(c.failed, drawn(c.draw))), "%+v", c)
	}
}

func TestParams_OnlyFailureRateCountsEnded(t *testing.T) {
	assert.False(t, stepParams(func(c *Config) { c.FailureRate = 0 }).CountsEnded())
	assert.True(t, stepParams(func(c *Config) { c.FailureRate = 1.0 / rateOne }).CountsEnded(), "the least rate")
}

func TestParams_BoundOfOneNanosecondIsBound(t *testing.T) {
	c := Config{FailureThreshold: 1, RecoveryDuration: 1, MaxOpenDuration: 1, RecoveryGrowth: 10, ProbeTimeout: 1}
	p := NewParams(c)
	assert.Equal(t, int64(1), p.cooldown(5, nil))
	assert.Equal(t, int64(1), p.Cap(9))
	s := &Snapshot{Params: p, past: new(past), State: Open, Since: 100, Until: 100, Epoch: 2}
	assert.True(t, s.postpone(100, 50))
	assert.Equal(t, int64(101), s.Until)
	s, _ = Step(s, &Event{Op: OpAdmit}, 200)
	assert.Equal(t, int64(201), s.Until, "a lease of one nanosecond is a lease")

	p = NewParams(Config{FailureThreshold: 1, RecoveryDuration: 1})
	s = &Snapshot{Params: p, past: new(past)}
	s.learn(math.MaxInt64)
	assert.Equal(t, int64(MaxDuration), s.learned, "without a bound a lease still ends")
}

func TestLater_EndsAtForever(t *testing.T) {
	for _, c := range []struct{ t, d, want int64 }{
		{0, 7, 7}, {0, Forever, Forever}, {1, Forever, Forever}, {5, Forever - 4, Forever}, {5, Forever - 5, Forever}, {5, Forever - 6, Forever - 1},
		{-5, Forever, Forever - 5}, {-5, 2, -3},
	} {
		assert.Equal(t, c.want, later(c.t, c.d), "%d + %d", c.t, c.d)
	}
}
