package machine

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What predicts the gate reads no more than the snapshot, as Step does.
func TestSnapshot_RefusalAgreesWithStep(t *testing.T) {
	for _, s := range stepSituations {
		before := stepSituation(t, s.snapshot)
		for now := int64(900); now <= 1200; now++ {
			reason, wait, quiet := before.Refusal(now * stepSecond)
			next, a := Step(before, &Event{Op: OpAdmit}, now*stepSecond)
			require.Equal(t, a.Reason, reason, "%s at %d", s.name, now)
			require.Equal(t, a.Wait, wait, "%s at %d", s.name, now)
			require.Equal(t, reason == Admitted, wait == 0, "%s at %d", s.name, now)
			require.Equal(t, reason != Admitted && next == before, quiet, "%s at %d", s.name, now)
			require.GreaterOrEqual(t, wait, int64(0))
			at := before.AsOf(now * stepSecond)
			reason, wait, _ = at.Refusal(now * stepSecond)
			require.Equal(t, a.Reason, reason, "read through the lease, %s at %d", s.name, now)
			require.Equal(t, a.Wait, wait, "read through the lease, %s at %d", s.name, now)
		}
	}
}

func TestSnapshot_AdmitsAllIsNeverRefused(t *testing.T) {
	var all []string
	for _, c := range stepSituations {
		s := stepSituation(t, c.snapshot)
		if !s.AdmitsAll() {
			continue
		}
		all = append(all, c.name)
		for _, now := range []int64{0, 1000, Forever} {
			_, a := Step(s, &Event{Op: OpAdmit}, now)
			assert.Equal(t, Answer{Epoch: 7}, a, c.name)
		}
		s.Evicted = true
		assert.False(t, s.AdmitsAll(), c.name)
	}
	assert.Equal(t, []string{"closed clean", "closed with streak", "closed suspected", "closed proven"}, all)
	open := stepSituation(t, "state=open")
	assert.False(t, open.AdmitsAll())
	assert.False(t, (&Snapshot{Params: open.Params, Until: 1}).AdmitsAll(), "a throttle of a nanosecond")
}

func TestSnapshot_UnmovedBySuccessThatChangesNothing(t *testing.T) {
	var unmoved []string
	for _, c := range stepSituations {
		s := stepSituation(t, c.snapshot)
		for took := 5*stepSecond - 1; took <= 5*stepSecond+1; took++ {
			next, _ := Step(s, &Event{Op: OpSettle, ByName: true, Took: took}, stepNow*stepSecond)
			assert.Equal(t, s.AdmitsAll() && next == s, s.UnmovedBy(took), "%s, %d", c.name, took)
			if s.UnmovedBy(took) {
				unmoved = append(unmoved, fmt.Sprintf("%s, %d", c.name, took-5*stepSecond))
			}
		}
		s.Evicted = true
		assert.False(t, s.UnmovedBy(0), c.name)
	}
	assert.Equal(t, []string{"closed clean, -1", "closed clean, 0", "closed proven, -1", "closed proven, 0"}, unmoved)
}

func TestSnapshot_Forgettable(t *testing.T) {
	for text, want := range map[string]bool{
		"state=closed":                         true,
		"state=closed until=999":               true,
		"state=closed until=1000":              true,
		"state=closed until=1001":              false,
		"state=closed streak=1":                false,
		"state=open until=999":                 false,
		"state=open until=999 streak=3":        false,
		"state=half-open until=999":            false,
		"state=closed streak=1 kind=timeout":   false,
		"state=closed kind=timeout":            true,
		"state=closed kind=timeout trips=1":    true,
		"state=half-open until=never streak=3": false,
		"state=open until=999 isolated=1":      false,
		"state=closed until=1001 streak=1":     false,
		"state=closed since=900 epoch=9":       true,
		"state=closed doubt=1040":              true,
		"state=closed until=1001 hearsay=1":    true,
		"state=open until=1001 hearsay=1":      true,

		"state=closed until=1001 hearsay=1 streak=1": false,
		"state=open until=1001 hearsay=1 streak=1":   false,
	} {
		s := stepSituation(t, text)
		assert.Equal(t, want, s.Forgettable(1000*stepSecond), text)
	}
}

func TestSnapshot_FadesAfterPatience(t *testing.T) {
	for text, want := range map[string]int64{
		"state=closed streak=1":                                  1100,
		"state=closed until=990":                                 1100,
		"state=closed until=1030":                                1130,
		"state=open since=900 until=1000":                        1100,
		"state=open since=900 until=1030":                        1130,
		"state=half-open since=990 until=1020 cooldown=30":       1150,
		"state=half-open since=800 until=820 cooldown=30":        1100,
		"state=half-open since=990 until=never lease=never":      1100,
		"state=open since=900 until=900 isolated=1":              Forever / stepSecond,
		"state=half-open untold=1 since=990 until=1090 lease=20": 1190,
	} {
		s := stepSituation(t, text)
		assert.Equal(t, want, s.FadesAt(1000*stepSecond)/stepSecond, text)
	}
	s := &Snapshot{Params: NewParams(Config{}), past: new(past)}
	assert.Equal(t, int64(10*time.Minute)+7, s.FadesAt(7), "without a bound")
	assert.Equal(t, int64(Forever), s.FadesAt(Forever-1))
}

// The cooldown of the table is 30 s, and the last failure came at 900 s.
func TestSnapshot_FailedWithinCooldown(t *testing.T) {
	for _, c := range []struct {
		snapshot string
		now      int64
		want     bool
	}{
		{"streak=1", 900, true},
		{"streak=1", 929, true},
		{"streak=1", 930, false},
		{"streak=1 since=929", 0, true}, // an earlier time is the time of the state
		{"streak=1 since=930", 0, false},
		{"streak=0", 900, false},
		{"streak=3 state=open", 900, false},
		{"streak=3 state=half-open", 900, false},
	} {
		got := stepSituation(t, c.snapshot).FailedWithinCooldown(c.now * stepSecond)
		assert.Equal(t, c.want, got, "%s at %d", c.snapshot, c.now)
	}
}

func TestStep_BoundaryOfTimeBelongsToTheLaterSide(t *testing.T) {
	reasonAt := func(text string, now int64) string {
		s := stepSituation(t, text)
		reason, wait, _ := s.Refusal(now)
		return fmt.Sprintf("%s %d", reason.String(), wait)
	}
	open := "state=open since=900 until=1000"
	assert.Equal(t, "circuit_open 1", reasonAt(open, 1000*stepSecond-1))
	assert.Equal(t, "none 0", reasonAt(open, 1000*stepSecond))
	throttled := "state=closed until=1000"
	assert.Equal(t, "rate_limited 1", reasonAt(throttled, 1000*stepSecond-1))
	assert.Equal(t, "none 0", reasonAt(throttled, 1000*stepSecond))
	half := "state=half-open since=900 until=1000 cooldown=30"
	assert.Equal(t, "probe_in_flight 30000000001", reasonAt(half, 1000*stepSecond-1))
	assert.Equal(t, "circuit_open 30000000000", reasonAt(half, 1000*stepSecond))
	assert.Equal(t, "circuit_open 1", reasonAt(half, 1030*stepSecond-1))
	assert.Equal(t, "none 0", reasonAt(half, 1030*stepSecond))

	// A success is slow if it took more than the limit, not at it.
	s := stepSituation(t, "state=closed")
	ev := Event{Op: OpSettle, ByName: true, Took: 5 * stepSecond}
	next, _ := Step(s, &ev, 0)
	assert.Same(t, s, next)
	ev.Took++
	next, _ = Step(s, &ev, 0)
	assert.EqualValues(t, 1, next.Streak)
}

func TestStep_ClockThatGoesBackStandsStill(t *testing.T) {
	s := stepSituation(t, "state=open since=1000 until=1030")
	reason, wait, _ := s.Refusal(500 * stepSecond)
	assert.Equal(t, CircuitOpen, reason)
	assert.Equal(t, 30*stepSecond, wait)
	next, _ := Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: Timeout}, 500*stepSecond)
	assert.Equal(t, 1030*stepSecond, next.Until, "no time has passed, so the cooldown is as it was")
	s.Params = stepParams(func(c *Config) { c.FailureThreshold = 0 })
	next, a := Step(s, &Event{Op: OpReset}, 500*stepSecond)
	assert.Equal(t, 1000*stepSecond, next.Since)
	assert.Equal(t, 1000*stepSecond, a.Changes[0].When)
}

func TestStep_GrowthRunsUntilClose(t *testing.T) {
	s := &Snapshot{Params: stepParams(func(c *Config) {
		c.RecoveryGrowth, c.MaxOpenDuration, c.ProbeSuccesses = 3, 0, 0
	}), past: new(past), Epoch: 1}
	now := int64(0)
	do := func(ev Event) Answer {
		var a Answer
		s, a = Step(s, &ev, now)
		return a
	}
	fail := Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: Timeout}
	for range 3 {
		do(fail)
	}
	for _, want := range []int64{30, 90, 270, 810} {
		require.Equal(t, want*stepSecond, s.Until-now)
		now = s.Until
		require.True(t, do(Event{Op: OpAdmit}).Probe)
		require.Equal(t, want*stepSecond, s.cooldown, "a lost probe costs the same cooldown, it has not failed")
		do(fail)
	}
	assert.EqualValues(t, 4, s.failed)
	assert.EqualValues(t, 7, s.Streak)
	now = s.Until
	do(Event{Op: OpAdmit})
	do(Event{Op: OpSettle, ByName: true})
	require.Equal(t, Closed, s.State)
	for range 3 {
		do(fail)
	}
	assert.Equal(t, 30*stepSecond, s.Until-now, "a close forgets the growth")
	assert.Equal(t, uint64(2), s.Trips)
}

// drawn is an Event's Draw that always returns x.
func drawn(x float64) func() float64 { return func() float64 { return x } }

func TestStep_JitterIsDrawnForOpeningRestartingAndProbing(t *testing.T) {
	cfg := stepParams(func(c *Config) { c.RecoveryJitter, c.FailureThreshold, c.MaxOpenDuration = 1, 1, 0 })
	s := &Snapshot{Params: cfg, past: new(past), Epoch: 1}
	fail := Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: Timeout, Draw: drawn(0.5)}
	s, _ = Step(s, &fail, 0)
	assert.Equal(t, 45*stepSecond, s.Until)
	fail.Draw = drawn(0.9)
	s, _ = Step(s, &fail, stepSecond)
	assert.Equal(t, 58*stepSecond, s.Until)
	s, _ = Step(s, &Event{Op: OpAdmit, Draw: drawn(0.1)}, s.Until)
	assert.Equal(t, 33*stepSecond, s.cooldown)
	fail.Draw = drawn(0.2)
	s, a := Step(s, &fail, s.Since)
	assert.Equal(t, 36*stepSecond, s.Until-s.Since)
	assert.Equal(t, 36*stepSecond, a.Changes[0].Wait)
}

func TestStep_CallThatMayNotProbeIsRefusedWhereOthersProbe(t *testing.T) {
	for text, want := range map[string]struct {
		reason Reason
		wait   int64
	}{
		"state=closed":                                              {Admitted, 0},
		"state=closed until=1010":                                   {RateLimited, 10},
		"state=open since=900 until=1010":                           {CircuitOpen, 10},
		"state=open since=900 until=1000":                           {CircuitOpen, 30}, // the wait for a probe is unknown: one cooldown
		"state=half-open since=900 until=1010 lease=20 cooldown=30": {ProbeInFlight, 40},
		"state=half-open since=900 until=970 lease=20 cooldown=30":  {CircuitOpen, 30},
	} {
		s := stepSituation(t, text)
		got, a := Step(s, &Event{Op: OpAdmit, NoProbe: true}, 1000*stepSecond)
		as := s.AsOf(1000 * stepSecond)
		assert.Equal(t, want.reason, a.Reason, text)
		assert.Equal(t, want.wait*stepSecond, a.Wait, text)
		assert.False(t, a.Probe, text)
		assert.Equal(t, [2]any{as.State, as.Epoch}, [2]any{got.State, got.Epoch}, text)
	}
}

func TestStep_LeaseIsAtLeastItsFloorAndWhatWasLearned(t *testing.T) {
	due := stepSituation(t, "state=open since=900 until=990")
	for _, c := range []struct {
		lease          time.Duration
		learned, floor int64
		want           int64
	}{
		{20 * time.Second, 0, 0, 20},
		{20 * time.Second, 0, 5, 20},
		{20 * time.Second, 0, 45, 45},
		{20 * time.Second, 50, 45, 50},
		{20 * time.Second, 10, 0, 20},
	} {
		s := new(*due)
		s.Params = stepParams(func(b *Config) { b.ProbeTimeout = c.lease })
		s.amend(func(p *past) { p.learned = c.learned * stepSecond })
		s, a := Step(s, &Event{Op: OpAdmit, LeaseFloor: c.floor * stepSecond}, 1000*stepSecond)
		require.True(t, a.Probe)
		assert.Equal(t, c.want*stepSecond, s.lease, "%+v", c)
		assert.Equal(t, (1000+c.want)*stepSecond, s.Until, "%+v", c)
		assert.Equal(t, (c.want+30)*stepSecond, a.Changes[0].Wait)
	}
	s := new(*due)
	s.Params = stepParams(func(b *Config) { b.ProbeTimeout = 0 })
	s.amend(func(p *past) { p.learned = 50 * stepSecond })
	s, a := Step(s, &Event{Op: OpAdmit, LeaseFloor: 45 * stepSecond}, 1000*stepSecond)
	assert.Equal(t, int64(Forever), s.Until, "a lease that is off never ends, whatever was learned")
	assert.Equal(t, int64(0), a.Changes[0].Wait, "the wait is unknown")
}

func TestStep_LateSuccessOfProbeLengthensTheNextLease(t *testing.T) {
	learn := func(text string, max time.Duration, ev Event) int64 {
		s := stepSituation(t, text)
		s.Params = stepParams(func(b *Config) { b.SlowCallDuration, b.MaxOpenDuration = 0, max })
		ev.Op, ev.Took = OpSettle, ev.Took*stepSecond
		next, _ := Step(s, &ev, 1000*stepSecond)
		return next.learned / stepSecond
	}
	lost := "state=half-open since=900 until=920 lease=20 cooldown=30 learned=7"
	assert.Equal(t, int64(80), learn(lost, 100*time.Second, Event{Epoch: 7, Probe: true, Took: 40}))
	assert.Equal(t, int64(100), learn(lost, 100*time.Second, Event{Epoch: 7, Probe: true, Took: 60}), "capped")
	assert.Equal(t, int64(120), learn(lost, 0, Event{Epoch: 7, Probe: true, Took: 60}), "no cap")
	assert.Equal(t, int64(7), learn(lost, 0, Event{Epoch: 7, Probe: true, Took: 3}), "never less than before")
	assert.Equal(t, int64(7), learn(lost, 0, Event{Epoch: 7, Took: 40}), "not a probe")
	// By name: only what outlasted the lease of a probe that was lost.
	assert.Equal(t, int64(42), learn(lost, 0, Event{ByName: true, Took: 21}))
	assert.Equal(t, int64(7), learn(lost, 0, Event{ByName: true, Took: 20}))
	tripped := "state=open since=900 until=1010 learned=7"
	assert.Equal(t, int64(7), learn(tripped, 0, Event{ByName: true, Took: 21}), "no lease was lost")
	assert.Equal(t, int64(MaxDuration)/stepSecond,
		learn(lost, 0, Event{Epoch: 7, Probe: true, Took: math.MaxInt64 / stepSecond}), "a lease that ends")
	assert.Equal(t, int64(7), learn(lost, 0, Event{Epoch: 7, Probe: true, Took: 20}), "it was not longer than the lease")
	late := func(lease time.Duration) int64 {
		s := stepSituation(t, "state=open since=900 until=1010 learned=7")
		s.Params = stepParams(func(b *Config) { b.SlowCallDuration, b.ProbeTimeout = 0, lease })
		s, _ = Step(s, &Event{Op: OpSettle, Epoch: 6, Probe: true, Took: 40 * stepSecond}, 1000*stepSecond)
		return s.learned / stepSecond
	}
	assert.Equal(t, int64(80), late(1), "a lease of a nanosecond can be outlived")
	assert.Equal(t, int64(7), late(0), "one that there is not cannot")
}

func TestStep_ResetForgetsWhatWasLearned(t *testing.T) {
	s := stepSituation(t, "state=open since=900 until=1010 learned=70")
	s, _ = Step(s, &Event{Op: OpReset}, 1000*stepSecond)
	assert.Zero(t, s.learned)
	s = stepSituation(t, "state=half-open since=990 until=1010 learned=70 passed=1")
	s, _ = Step(s, &Event{Op: OpSettle, ByName: true}, 1000*stepSecond)
	assert.Equal(t, Closed, s.State)
	assert.Equal(t, 70*stepSecond, s.learned, "a close does not")
}

func TestStep_ThrottleIsCappedAndNeverShortened(t *testing.T) {
	throttle := func(text string, wait time.Duration) *Snapshot {
		s := stepSituation(t, text)
		s, _ = Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Throttled, RetryAfter: int64(wait)}, 1000*stepSecond)
		return s
	}
	assert.Equal(t, 1100*stepSecond, throttle("state=closed", time.Hour).Until)
	assert.Equal(t, 1050*stepSecond, throttle("state=closed until=1050", 10*time.Second).Until)
	assert.Equal(t, 1000*stepSecond+1, throttle("state=closed", 1).Until)
	for _, none := range []time.Duration{0, -1, math.MinInt64} {
		assert.Zero(t, throttle("state=closed", none).Until, "a wait of %v is none", none)
	}
	probe := throttle("state=half-open since=990 until=1010 cooldown=30", 0)
	assert.Equal(t, Open, probe.State)
	assert.Equal(t, 1000*stepSecond, probe.Until)
	assert.False(t, probe.limited)
	assert.Equal(t, 1100*stepSecond, throttle("state=half-open since=990 until=1010", time.Hour).Until)
	assert.True(t, throttle("state=half-open since=990 until=1010", 1).limited, "a wait of a nanosecond is one")
	assert.Equal(t, 1000*stepSecond, throttle("state=open since=950 until=990", 0).Until)
}

func TestStep_FailureWithStatedWaitIsCappedAndCounted(t *testing.T) {
	ask := func(text string, change func(*Config), wait time.Duration) *Snapshot {
		s := stepSituation(t, text)
		s.Params = stepParams(change)
		s, _ = Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: Timeout, RetryAfter: int64(wait)}, 1000*stepSecond)
		return s
	}
	bound := func(d time.Duration) func(*Config) { return func(c *Config) { c.MaxStatedWait = d } }
	for _, c := range []struct {
		state  string
		change func(*Config)
		wait   time.Duration
		streak int
		until  int64
		asked  bool // the refusal says rate_limited
	}{
		{"state=closed", nil, time.Hour, 1, 1100, true},
		{"state=closed", bound(50 * time.Second), time.Hour, 1, 1050, true},
		{"state=closed until=1070", bound(50 * time.Second), time.Hour, 1, 1070, true},
		{"state=closed", bound(0), time.Hour, 1, 0, false},
		{"state=closed", func(c *Config) { c.FailureThreshold = 0 }, time.Minute, 1, 1060, true},
		{"state=closed streak=2", nil, 10 * time.Second, 3, 1030, false},
		{"state=closed streak=2 until=1050", nil, 10 * time.Second, 3, 1050, true},
		{"state=closed streak=2 until=1050", nil, 70 * time.Second, 3, 1070, true},
		{"state=closed streak=2", bound(0), time.Hour, 3, 1030, false},
		{"state=half-open since=990 until=1010 streak=3", bound(50 * time.Second), time.Hour, 4, 1050, true},
		{"state=half-open since=990 until=1010 streak=3", bound(0), time.Hour, 4, 1030, false},
		{"state=half-open since=990 until=1010 streak=3", nil, 30 * time.Second, 4, 1030, false},
		{"state=open since=950 until=990 streak=3", nil, time.Hour, 3, 1050, true},
		{"state=open since=990 until=1020 streak=3", bound(0), time.Hour, 3, 1030, false},
	} {
		s := ask(c.state, c.change, c.wait)
		assert.Equal(t, c.until*stepSecond, s.Until, "%+v", c)
		assert.EqualValues(t, c.streak, s.Streak, "%+v", c)
		reason, _, _ := s.Refusal(1000 * stepSecond)
		assert.Equal(t, c.asked, reason == RateLimited, "%+v: %s", c, reason)
	}
	slow := stepSituation(t, "state=closed")
	slow, _ = Step(slow, &Event{Op: OpSettle, ByName: true, Took: 6 * stepSecond, RetryAfter: stepSecond}, 1000*stepSecond)
	assert.Equal(t, [2]int64{1, 0}, [2]int64{int64(slow.Streak), slow.Until}, "a slow success asks for nothing")
}

func TestStep_ThrottleThatBindsNobodyElse(t *testing.T) {
	throttle := func(text string) *Snapshot {
		s := stepSituation(t, text)
		s.Params = stepParams(func(c *Config) { c.MaxStatedWait = 0 })
		s, _ = Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Throttled, RetryAfter: 60 * stepSecond}, 1000*stepSecond)
		return s
	}
	closed := throttle("state=closed")
	assert.True(t, closed.AdmitsAll())
	assert.Equal(t, 1020*stepSecond, throttle("state=open since=990 until=1020").Until)
	probe := throttle("state=half-open since=990 until=1010")
	assert.Equal(t, Open, probe.State)
	assert.Equal(t, 1000*stepSecond, probe.Until)
	assert.False(t, probe.limited)
}

func TestStep_TripUnderThrottleKeepsTheLongerWait(t *testing.T) {
	trip := func(text string) *Snapshot {
		s := stepSituation(t, text)
		s, a := Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: Timeout}, 1000*stepSecond)
		assert.Equal(t, CauseFailureThreshold, a.Changes[0].Cause)
		assert.Equal(t, s.Until-s.Since, a.Changes[0].Wait)
		return s
	}
	for _, c := range []struct {
		throttledUntil, want int64
		limited              bool
	}{
		{0, 1030, false}, {990, 1030, false}, {1000, 1030, false}, {1010, 1030, false},
		{1030, 1030, false}, {1031, 1031, true}, {1070, 1070, true}, {1500, 1100, true},
	} {
		s := trip(fmt.Sprintf("state=closed streak=2 until=%d", c.throttledUntil))
		assert.Equal(t, c.want*stepSecond, s.Until, "%+v", c)
		assert.Equal(t, c.limited, s.limited, "%+v", c)
	}
}

// causeOf is the cause of the first transition, CauseNone if there is none.
func causeOf(a *Answer) Cause {
	if len(a.Changes) == 0 {
		return CauseNone
	}
	return a.Changes[0].Cause
}

func TestStep_FailureRateOpensOnFailureAfterEnoughCalls(t *testing.T) {
	cfg := stepParams(func(c *Config) {
		c.FailureThreshold, c.FailureRate, c.FailureRateWindow, c.FailureRateMinCalls = 0, 0.5, 60*time.Second, 4
	})
	s := &Snapshot{Params: cfg, past: new(past), Epoch: 1}
	ended := uint64(100)
	settle := func(at int64, outcome Outcome, others int) Cause { // others have ended in between
		ended += uint64(others) + 1
		var a Answer
		s, a = Step(s, &Event{Op: OpSettle, ByName: true, Outcome: outcome, Kind: Timeout, Ended: ended}, at*stepSecond)
		return causeOf(&a)
	}
	assert.Equal(t, CauseNone, settle(0, Failure, 50), "the window begins here: one call")
	assert.Equal(t, CauseNone, settle(1, Failure, 0), "two of two are too few")
	assert.Equal(t, CauseNone, settle(2, Failure, 4), "three of seven are less than half")
	assert.Equal(t, CauseNone, settle(3, Success, 0), "a success opens nothing")
	assert.Equal(t, CauseNone, settle(4, Failure, 0), "four of nine")
	assert.Equal(t, CauseFailureRate, settle(5, Failure, 0), "five of ten")
	assert.Equal(t, Open, s.State)
	assert.Equal(t, 35*stepSecond, s.Until)

	s, _ = Step(s, &Event{Op: OpReset}, 10*stepSecond)
	assert.Zero(t, s.windowFailed, "the window ends when it closes")
	for _, at := range []int64{10, 69} {
		assert.Equal(t, CauseNone, settle(at, Failure, 0))
	}
	assert.EqualValues(t, 2, s.windowFailed)
	assert.Equal(t, CauseNone, settle(70, Failure, 0), "60 seconds after it began the window has ended")
	assert.EqualValues(t, 1, s.windowFailed)
	assert.Equal(t, 70*stepSecond, s.windowSince)
	assert.EqualValues(t, 3, s.Streak, "the streak does not care")
}

func TestStep_FailureRateBoundaries(t *testing.T) {
	cause := func(failed uint32, ended uint64, change func(*Config)) Cause {
		s := &Snapshot{Params: stepParams(func(c *Config) {
			c.FailureThreshold, c.FailureRate, c.FailureRateMinCalls = 0, 0.1, 30
			change(c)
		}), past: &past{windowEnded: 1000}, Epoch: 1, windowFailed: failed - 1}
		_, a := Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: Timeout, Ended: 1000 + ended}, 0)
		return causeOf(&a)
	}
	same := func(*Config) {}
	assert.Equal(t, CauseFailureRate, cause(3, 30, same), "three of thirty are a tenth, exactly")
	assert.Equal(t, CauseNone, cause(3, 31, same))
	assert.Equal(t, CauseNone, cause(3, 29, same), "too few calls")
	half := func(c *Config) { c.FailureRate = 0.5 }
	assert.Equal(t, CauseNone, cause(500_000_000, 1_000_000_001, half), "one call of many more than half")
	assert.Equal(t, CauseFailureRate, cause(500_000_000, 1_000_000_000, half))
	before := ^uint64(0) // one less than when the window began
	assert.Equal(t, CauseFailureRate, cause(30, before, same), "a count from before the window: its failures are the calls")
	assert.Equal(t, CauseNone, cause(3, 30, func(c *Config) { c.FailureRate = 0 }), "off")
	assert.Equal(t, CauseFailureRate, cause(1, 1, func(c *Config) { c.FailureRate, c.FailureRateMinCalls = 1, 0 }), "no calls are needed")
	assert.Equal(t, CauseFailureRate, cause(2, 2_000_000, func(c *Config) { c.FailureRate = 1e-9 }), "no rate is rounded to off")
	assert.Equal(t, CauseFailureThreshold, cause(3, 30, func(c *Config) { c.FailureThreshold = 1 }), "the threshold comes first")
	assert.Equal(t, CauseFailureRate, cause(30, 3, same), "failures that ended at once are at least as many calls")
	assert.Equal(t, CauseFailureRate, cause(math.MaxUint32, 1<<31, same), "a full counter does not wrap around")

	full := &Snapshot{Params: stepParams(func(c *Config) { c.FailureThreshold, c.FailureRate = 0, 0.5 }), past: new(past), Epoch: 1, windowFailed: math.MaxUint32}
	full, _ = Step(full, &Event{Op: OpSettle, ByName: true, Outcome: Failure}, 0)
	assert.Equal(t, uint32(math.MaxUint32), full.windowFailed)
	first := &Snapshot{Params: full.Params, past: new(past), Epoch: 1}
	first, _ = Step(first, &Event{Op: OpSettle, ByName: true, Outcome: Failure}, 0)
	assert.Zero(t, first.windowEnded, "no counter is less than none")
}

func TestStep_FailureRateCountsSlowSuccessesAndNoOlderPermits(t *testing.T) {
	s := &Snapshot{Params: stepParams(func(c *Config) { c.FailureThreshold, c.FailureRate = 0, 1 }), past: new(past), Epoch: 2}
	s, _ = Step(s, &Event{Op: OpSettle, ByName: true, Took: 6 * stepSecond, Ended: 1}, 0)
	assert.EqualValues(t, 1, s.windowFailed)
	s, _ = Step(s, &Event{Op: OpSettle, Epoch: 1, Outcome: Failure, Ended: 2}, 0)
	assert.EqualValues(t, 1, s.windowFailed)
}

func TestStep_StreakEndsWithItsWindow(t *testing.T) {
	for _, c := range []struct {
		window, later time.Duration
		streak        int
	}{
		{0, time.Hour, 2}, {time.Minute, time.Minute, 2}, {time.Minute, time.Minute + 1, 1}, {1, 1, 2}, {1, 2, 1},
	} {
		s := &Snapshot{Params: stepParams(func(b *Config) { b.FailureWindow = c.window }), past: new(past), Epoch: 1}
		fail := Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: Timeout}
		s, _ = Step(s, &fail, 1000)
		s, _ = Step(s, &fail, 1000+int64(c.later))
		assert.EqualValues(t, c.streak, s.Streak, "%+v", c)
	}
	first := &Snapshot{Params: stepParams(func(b *Config) { b.FailureWindow, b.FailureThreshold = 1, 1 }), past: new(past), Epoch: 1}
	_, a := Step(first, &Event{Op: OpSettle, ByName: true, Outcome: Failure}, int64(time.Hour))
	assert.Equal(t, CauseFailureThreshold, a.Changes[0].Cause, "a failure is within its own window")
}

func TestStep_WithoutAnyRuleConfigurationCloses(t *testing.T) {
	for _, c := range []struct {
		threshold int
		rate      float64
		want      State
	}{{0, 0, Closed}, {1, 0, Open}, {0, 0.5, Open}, {0, 1e-9, Open}} {
		s := stepSituation(t, "state=open since=990 until=1020")
		p := stepParams(func(b *Config) { b.FailureThreshold, b.FailureRate = c.threshold, c.rate })
		s, _ = Step(s, &Event{Op: OpConfigure, Params: p}, 1000*stepSecond)
		assert.Equal(t, c.want, s.State, "%+v", c)
	}
}

func TestStep_ThresholdOfZeroCountsAndNeverOpens(t *testing.T) {
	s := &Snapshot{Params: NewParams(Config{}), past: new(past), Epoch: 1}
	for i := range 100 {
		s, _ = Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: Timeout}, int64(i))
	}
	assert.Equal(t, Closed, s.State)
	assert.EqualValues(t, 100, s.Streak)
	s.Streak = math.MaxInt32
	s, _ = Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Failure}, 0)
	assert.EqualValues(t, math.MaxInt32, s.Streak, "the streak does not wrap around")
}

func TestStep_FailureRestartsCooldownOnlyForward(t *testing.T) {
	s := stepSituation(t, "state=open since=990 until=1095")
	next, _ := Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: Timeout}, 1000*stepSecond)
	assert.Equal(t, 1095*stepSecond, next.Until, "a later deadline stays")
	s = stepSituation(t, "state=open since=990 until=1020 limited=1")
	next, _ = Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: Timeout}, 1000*stepSecond)
	assert.Equal(t, 1030*stepSecond, next.Until)
	assert.False(t, next.limited, "the wait is now the cooldown's")
	s.Params = stepParams(func(c *Config) { c.MaxOpenDuration = 0 })
	next, _ = Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Failure}, 5000*stepSecond)
	assert.Equal(t, 5030*stepSecond, next.Until, "without a bound it restarts forever")
}

func TestStep_WaitThatEndsAtTheSameMomentKeepsItsReason(t *testing.T) {
	limited := stepSituation(t, "state=open since=990 until=1030 limited=1")
	next, _ := Step(limited, &Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: Timeout}, 1000*stepSecond)
	assert.True(t, next.limited)
	assert.Equal(t, limited.Until, next.Until)
	cooling := stepSituation(t, "state=open since=990 until=1030")
	next, _ = Step(cooling, &Event{Op: OpSettle, ByName: true, Outcome: Throttled, RetryAfter: 30 * stepSecond}, 1000*stepSecond)
	assert.False(t, next.limited)
	assert.Same(t, cooling, next)
}

func TestStep_StatedWaitIsForgottenWithTheNextProbe(t *testing.T) {
	s := stepSituation(t, "state=open since=900 until=990 limited=1 lost=1")
	s, a := Step(s, &Event{Op: OpAdmit}, 1000*stepSecond)
	require.True(t, a.Probe)
	assert.False(t, s.limited)
	assert.False(t, s.lost)
	s, _ = Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: Timeout}, 1001*stepSecond)
	reason, _, _ := s.Refusal(1002 * stepSecond)
	assert.Equal(t, CircuitOpen, reason)
}

func TestStep_LeaseBeginsAfterHooksWereTold(t *testing.T) {
	for _, c := range []struct {
		lease, maxOpen, floor time.Duration
		bound                 int64
	}{
		{20 * time.Second, 100 * time.Second, 0, 100}, {20 * time.Second, 0, 0, 600},
		{20 * time.Second, 30 * time.Second, 50 * time.Second, 50},
	} {
		s := stepSituation(t, "state=open since=900 until=990")
		s.Params = stepParams(func(b *Config) { b.ProbeTimeout, b.MaxOpenDuration = c.lease, c.maxOpen })
		lease := max(c.lease, c.floor)
		s, a := Step(s, &Event{Op: OpAdmit, Hooked: true, LeaseFloor: int64(c.floor)}, 1000*stepSecond)
		require.True(t, a.Probe)
		assert.Equal(t, int64(lease)+30*stepSecond, a.Changes[0].Wait)
		assert.Equal(t, (1000+c.bound)*stepSecond, s.Until, "%+v", c)
		begun, _ := Step(s, &Event{Op: OpBegin, Probe: true, Epoch: a.Epoch}, 1040*stepSecond)
		assert.Equal(t, 1040*stepSecond+int64(lease), begun.Until, "%+v", c)
		assert.Equal(t, 1000*stepSecond, begun.Since)
		again, _ := Step(begun, &Event{Op: OpBegin, Probe: true, Epoch: a.Epoch}, 1041*stepSecond)
		assert.Same(t, begun, again, "it begins once")
		hung, _ := Step(s, &Event{Op: OpAdmit}, s.Until)
		assert.Equal(t, Open, hung.State, "a hook that hangs loses the probe")
	}
	s := stepSituation(t, "state=open since=900 until=990")
	s.Params = stepParams(func(b *Config) { b.ProbeTimeout = 0 })
	s, _ = Step(s, &Event{Op: OpAdmit, Hooked: true}, 1000*stepSecond)
	assert.False(t, s.untold, "there is no lease to begin")
	assert.Equal(t, int64(Forever), s.Until)
}

func TestStep_ConfigurationBringsLeaseToProbeWithout(t *testing.T) {
	s := stepSituation(t, "state=half-open since=990 until=never lease=never cooldown=30 learned=45")
	lease := func(d time.Duration) *Snapshot {
		next, a := Step(s, &Event{Op: OpConfigure, Params: stepParams(func(b *Config) { b.ProbeTimeout = d })}, 1000*stepSecond)
		assert.Empty(t, a.Changes)
		return next
	}
	assert.Equal(t, int64(Forever), lease(0).Until)
	assert.Equal(t, 1045*stepSecond, lease(20*time.Second).Until, "as long as was learned")
	assert.Equal(t, 1045*stepSecond, lease(1).Until, "the shortest lease is one, too")
	assert.Equal(t, 1060*stepSecond, lease(time.Minute).Until)
	assert.Equal(t, 60*stepSecond, lease(time.Minute).lease, "and so does a sign of life")
	s = stepSituation(t, "state=half-open since=990 until=1010 lease=20 cooldown=30")
	assert.Equal(t, 1010*stepSecond, lease(time.Minute).Until, "one that it has stays")
	s = stepSituation(t, "state=closed")
	assert.Zero(t, lease(time.Minute).Until)
}

func TestStep_DownSinceOutlastsProbes(t *testing.T) {
	s := &Snapshot{Params: stepConfigs["table"], past: new(past), Epoch: 1}
	step := func(at int64, ev Event) *Snapshot {
		s, _ = Step(s, &ev, at*stepSecond)
		return s
	}
	assert.Zero(t, step(10, Event{Op: OpSettle, ByName: true, Outcome: Failure}).DownSince)
	for range 2 {
		step(20, Event{Op: OpSettle, ByName: true, Outcome: Failure})
	}
	assert.EqualValues(t, 20*stepSecond, s.DownSince)
	assert.Equal(t, HalfOpen, step(50, Event{Op: OpAdmit}).State)
	assert.EqualValues(t, 20*stepSecond, s.DownSince)
	lost := s.AsOf(80 * stepSecond)
	assert.Equal(t, [3]int64{70 * stepSecond, 20 * stepSecond, int64(Open)}, [3]int64{lost.Since, lost.DownSince, int64(lost.State)})
	for at := int64(100); at < 500; at += 100 { // a probe that succeeds is not enough, see stepConfigs
		step(at, Event{Op: OpAdmit})
		step(at+1, Event{Op: OpSettle, Probe: true, Epoch: s.Epoch, Outcome: []Outcome{Failure, Neutral, Throttled, Success}[at/100-1]})
		assert.Equal(t, Open, s.State)
		assert.EqualValues(t, 20*stepSecond, s.DownSince)
	}
	assert.EqualValues(t, 20*stepSecond, step(600, Event{Op: OpIsolate}).DownSince)
	assert.Zero(t, step(610, Event{Op: OpReset}).DownSince)
	assert.EqualValues(t, 620*stepSecond, step(620, Event{Op: OpIsolate}).DownSince)
}

func TestStep_KeepAliveNeverShortensLease(t *testing.T) {
	s := stepSituation(t, "state=half-open since=990 until=1050 lease=20 cooldown=30")
	next, _ := Step(s, &Event{Op: OpKeepAlive, Probe: true, Epoch: 7}, 1000*stepSecond)
	assert.Same(t, s, next)
	next, _ = Step(s, &Event{Op: OpKeepAlive, Probe: true, Epoch: 7}, 1049*stepSecond)
	assert.Equal(t, 1069*stepSecond, next.Until)
	next, _ = Step(s, &Event{Op: OpKeepAlive, Epoch: 7}, 1049*stepSecond)
	assert.Same(t, s, next, "only the probe's permit renews")
}

// While a person is asked, a probe keeps its slot for MaxOpenDuration at most; then it has
// a lease again, as long as before.
func TestStep_PauseHoldsProbeForMaxOpenDuration(t *testing.T) {
	s := stepSituation(t, "state=half-open since=990 until=1010 lease=20 cooldown=30")
	own := func(op Op) *Event { return &Event{Op: op, Probe: true, Epoch: 7} }
	paused, _ := Step(s, own(OpPause), 1000*stepSecond)
	assert.Equal(t, 1100*stepSecond, paused.Until)
	alive, _ := Step(paused, own(OpKeepAlive), 1050*stepSecond)
	assert.Same(t, paused, alive, "the lease is longer already")
	resumed, _ := Step(paused, own(OpResume), 1050*stepSecond)
	assert.Equal(t, 1070*stepSecond, resumed.Until)
	lost, a := Step(paused, own(OpResume), 1100*stepSecond)
	assert.Equal(t, Open, lost.State)
	assert.Equal(t, CauseLeaseExpired, a.Changes[0].Cause)

	long := stepSituation(t, "state=half-open since=990 until=2000 lease=1010 cooldown=30")
	same, _ := Step(long, own(OpPause), 1000*stepSecond)
	assert.Same(t, long, same, "a pause does not shorten a lease")
	endless := stepSituation(t, "state=half-open since=990 until=never lease=never cooldown=30")
	for _, op := range []Op{OpPause, OpResume} {
		same, _ = Step(endless, own(op), 1000*stepSecond)
		assert.Same(t, endless, same, "no lease")
	}
}

func TestC83_EventAtEarlierTimeIsAsIfItWereNow(t *testing.T) {
	base := int64(time.Hour)
	open := NewParams(Config{
		FailureThreshold: 3, RecoveryDuration: 30 * time.Second, ProbeTimeout: 30 * time.Second,
		MaxOpenDuration: 10 * time.Minute, RecoveryGrowth: 1, ProbeSuccesses: 1,
	}).Initial
	for range 3 {
		open, _ = Step(open, &Event{Op: OpSettle, ByName: true, Outcome: Failure}, base)
	}
	require.Equal(t, Open, open.State)
	half, a := Step(open, &Event{Op: OpAdmit}, open.Until)
	require.True(t, a.Probe)
	for name, s := range map[string]*Snapshot{"open": open, "half-open": half} {
		for _, ev := range []Event{
			{Op: OpAdmit}, {Op: OpReset}, {Op: OpIsolate}, {Op: OpKeepAlive, Probe: true, Epoch: s.Epoch},
			{Op: OpSettle, ByName: true, Outcome: Failure}, {Op: OpSettle, ByName: true},
			{Op: OpSettle, ByName: true, Outcome: Throttled, RetryAfter: int64(time.Minute)},
			{Op: OpSettle, ByName: true, Outcome: Neutral},
		} {
			back, backAnswer := Step(s, &ev, 0)
			same, sameAnswer := Step(s, &ev, s.Since)
			assert.Equal(t, same, back, "%s: %+v", name, ev)
			assert.Equal(t, sameAnswer, backAnswer, "%s: %+v", name, ev)
		}
	}
}

func TestStep_WhatTeachesNothingChangesNothing(t *testing.T) {
	late := Event{Op: OpSettle, Probe: true, Epoch: 6, Took: 40 * stepSecond} // two of these are the lease
	taught := func(seconds int64) *Snapshot {
		p := stepParams(func(c *Config) { c.SlowCallDuration = 0 })
		return &Snapshot{Params: p, past: &past{learned: seconds * stepSecond}, Epoch: 7}
	}
	enough, less := taught(80), taught(79)
	next, _ := Step(enough, &late, stepNow*stepSecond)
	assert.Same(t, enough, next)
	next, _ = Step(less, &late, stepNow*stepSecond)
	assert.Equal(t, 80*stepSecond, next.learned)
	assert.Equal(t, 79*stepSecond, less.learned)

	open := stepSituation(t, "state=open since=990 until=1090 kind=timeout")
	next, _ = Step(open, &Event{Op: OpSettle, Epoch: 6, Outcome: Failure, Kind: Timeout}, stepNow*stepSecond)
	assert.Same(t, open, next, "the cooldown is as long as it may be")
}

// Failures in row that are Once count once for each source; any other failure counts, and
// parts two rows.
func TestStep_OnceCountsRowsOfOneSource(t *testing.T) {
	type failure struct {
		source uint64
		once   bool
	}
	a, b, plain := failure{1, true}, failure{2, true}, failure{1, false}
	for _, c := range []struct {
		failures []failure
		want     int32
	}{
		{[]failure{a, a, a}, 1},
		{[]failure{a, b, a}, 3},
		{[]failure{a, a, b, b}, 2},
		{[]failure{plain, plain}, 2},
		{[]failure{plain, a}, 2},
		{[]failure{a, plain, a}, 3},
		{[]failure{{0, true}, {0, true}}, 2}, // of no tool
	} {
		s := NewParams(Config{FailureThreshold: 9}).Initial
		for i, f := range c.failures {
			s, _ = Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Failure, Source: f.source, Once: f.once}, int64(i))
		}
		assert.Equal(t, c.want, s.Streak, "%v", c.failures)
	}
	s := NewParams(Config{FailureThreshold: 9}).Initial
	timeout := &Event{Op: OpSettle, ByName: true, Outcome: Failure, Source: 1, Once: true}
	s, _ = Step(s, timeout, 0)
	s, _ = Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Success}, 1)
	s, _ = Step(s, timeout, 2)
	assert.EqualValues(t, 1, s.Streak, "a success ends the row")
	counted, _ := Step(s, timeout, 3)
	assert.Same(t, s, counted, "what counts already changes nothing")
	first, _ := Step(NewParams(Config{FailureThreshold: 9}).Initial, &Event{Op: OpSettle, ByName: true, Outcome: Failure}, 0)
	second, _ := Step(first, &Event{Op: OpSettle, ByName: true, Outcome: Failure}, 1)
	assert.Same(t, first.past, second.past, "snapshots share what a failure does not change")
}
