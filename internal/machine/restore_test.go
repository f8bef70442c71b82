package machine

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const hours = 3600 * stepSecond

// Each row is what was kept, and what a tool of which nothing is known becomes at 1000.
// "-" is nothing.
var restoreTable = []struct {
	saved   Saved
	config  func(*Config)
	changes string
}{
	{Saved{}, nil, "-"},
	{Saved{Streak: 2, Kind: Connection, Age: 30 * stepSecond}, nil, "streak=2 kind=connection failedat=970"},
	{Saved{Streak: 7, Kind: Connection}, nil, "streak=2 kind=connection failedat=1000"},
	{Saved{Streak: 7, Kind: Connection}, func(c *Config) { c.FailureThreshold = 0 }, "streak=7 kind=connection failedat=1000"},
	{Saved{Wait: 40 * stepSecond}, nil, "until=1040"},
	{Saved{Wait: 40 * stepSecond}, func(c *Config) { c.FailureThreshold = 0 }, "until=1040"},
	{Saved{Wait: 40 * stepSecond}, func(c *Config) { c.MaxStatedWait = 0 }, "-"},
	{Saved{Wait: math.MaxInt64}, nil, "until=1100"},
	{Saved{Wait: 60 * stepSecond, Hearsay: true}, nil, "until=1050 hearsay=1"},
	{Saved{Hearsay: true}, nil, "-"},
	{Saved{Wait: 60 * stepSecond, Hearsay: true}, func(c *Config) { c.MaxHintDuration = 0 }, "-"},
	{Saved{Learned: 60 * stepSecond}, nil, "learned=60"},
	{Saved{Learned: hours}, nil, "learned=100"},

	{
		Saved{State: Open, Streak: 4, Kind: Connection, Failed: 2, Learned: 60 * stepSecond, Age: 20 * stepSecond, Down: 50 * stepSecond, Wait: 10 * stepSecond}, nil,
		"state=open since=980 until=1010 streak=4 kind=connection failed=2 learned=60 trips=1 down=950 epoch=2",
	},
	{Saved{State: Open, Limited: true, Wait: 10 * stepSecond}, nil, "state=open since=1000 until=1010 limited=1 trips=1 down=1000 epoch=2"},
	{Saved{State: Open, Limited: true, Age: 5 * stepSecond}, nil, "state=open since=995 until=1000 trips=1 down=995 epoch=2"},
	{Saved{State: Open, Age: 30 * stepSecond, Wait: hours}, nil, "state=open since=970 until=1070 trips=1 down=970 epoch=2"},
	{Saved{State: Open, Age: 130 * stepSecond, Wait: hours}, nil, "state=open since=870 until=1000 trips=1 down=870 epoch=2"},
	{Saved{State: Open, Age: 30 * stepSecond, Down: 10 * stepSecond}, nil, "state=open since=970 until=1000 trips=1 down=970 epoch=2"},
	{Saved{State: Open, Age: 30 * stepSecond, Wait: 90 * stepSecond}, func(c *Config) { c.MaxOpenDuration = 0 }, "state=open since=970 until=1090 trips=1 down=970 epoch=2"},
	{Saved{State: Open, Hearsay: true, Age: 20 * stepSecond, Wait: 40 * stepSecond}, nil, "state=open since=980 until=1030 hearsay=1 trips=1 down=980 epoch=2"},
	{Saved{State: Open, Hearsay: true, Age: 60 * stepSecond, Wait: 40 * stepSecond}, nil, "state=open since=940 until=1000 hearsay=1 trips=1 down=940 epoch=2"},
	{Saved{State: Open, Hearsay: true, Wait: 40 * stepSecond}, func(c *Config) { c.MaxHintDuration = 0 }, "-"},
	{Saved{State: Open, Streak: 4, Wait: 10 * stepSecond}, func(c *Config) { c.FailureThreshold = 0 }, "-"},
	{
		Saved{State: Open, Isolated: true, Age: 20 * stepSecond, Down: 20 * stepSecond, Wait: 40 * stepSecond, Streak: 1}, nil,
		"state=open isolated=1 since=980 until=1000 streak=1 trips=1 down=980 epoch=2",
	},
	{Saved{State: Open, Isolated: true}, func(c *Config) { c.FailureThreshold = 0 }, "state=open isolated=1 since=1000 until=1000 trips=1 down=1000 epoch=2"},
}

func TestStep_RestoreTable(t *testing.T) {
	for _, row := range restoreTable {
		before := stepParams(row.config).Initial
		want := new(*before)
		changeSnapshot(t, want, strings.TrimPrefix(row.changes, "-"))
		got, a := Step(before, &Event{Op: OpRestore, Saved: &row.saved}, stepNow*stepSecond)
		assert.Equal(t, want, got, "%+v", row.saved)
		if got.State == Closed {
			assert.Empty(t, a.Changes, "%+v", row.saved)
			continue
		}
		require.Len(t, a.Changes, 1, "%+v", row.saved)
		c := a.Changes[0]
		assert.Equal(t, CauseRestored, c.Cause)
		assert.Equal(t, [2]State{Closed, Open}, [2]State{c.From, c.To})
		if !row.saved.Isolated {
			assert.Equal(t, got.Until, c.When+c.Wait)
		}
	}
}

// What is known already is known better.
func TestStep_RestoreLeavesWhatIsKnown(t *testing.T) {
	saved := Saved{State: Open, Isolated: true}
	for _, s := range stepSituations {
		before := stepSituation(t, s.snapshot)
		noted, _ := Step(before, &Event{Op: OpKeepAlive}, stepNow*stepSecond) // the end of a lease
		got, _ := Step(before, &Event{Op: OpRestore, Saved: &saved}, stepNow*stepSecond)
		assert.Equal(t, noted, got, s.name)
	}
	for _, text := range []string{"kind=connection", "until=990", "learned=3", "doubt=1001", "proven=1", "operated=1"} {
		s := new(*stepConfigs["table"].Initial)
		changeSnapshot(t, s, text)
		got, _ := Step(s, &Event{Op: OpRestore, Saved: &saved}, stepNow*stepSecond)
		assert.Same(t, s, got, text)
	}
	s := new(*stepConfigs["table"].Initial)
	s.amend(func(*past) {})
	got, _ := Step(s, &Event{Op: OpRestore, Saved: &saved}, stepNow*stepSecond)
	assert.True(t, got.isolated, "what was noted and is over is nothing")
}

func TestSaved_GoesOnWhereItWas(t *testing.T) {
	for _, c := range stepSituations {
		s := stepSituation(t, c.snapshot)
		at := s.AsOf(stepNow * stepSecond)
		saved := s.Save(stepNow * stepSecond)
		reason, wait, _ := s.Refusal(stepNow * stepSecond)
		assert.Equal(t, at.State != Closed || at.Streak > 0 || at.Until > stepNow*stepSecond, saved.Worth(), c.name)
		if !saved.Worth() {
			continue
		}
		next, _ := Step(stepConfigs["table"].Initial, &Event{Op: OpRestore, Saved: &saved}, 0)
		is, left, _ := next.Refusal(0)
		if at.State == HalfOpen { // the probe has gone with its process
			assert.Equal(t, Admitted, is, c.name)
			assert.Zero(t, saved.Wait)
		} else {
			assert.Equal(t, reason, is, c.name)
			assert.Equal(t, wait, left, c.name)
		}
		assert.Equal(t, at.Streak, next.Streak, c.name)
		assert.Equal(t, at.Kind, next.Kind, c.name)
		assert.Equal(t, at.failed, next.failed, c.name)
		if next.State == Open {
			assert.Equal(t, at.DownSince-stepNow*stepSecond, next.DownSince, c.name)
		}
		assert.Equal(t, saved, next.Save(0), "restored and saved again nothing is lost: %s", c.name)
	}
}

func TestSaved_TimeAwayIsTakenOff(t *testing.T) {
	d := Saved{State: Open, Age: 10, Down: 20, Wait: 30}
	assert.Equal(t, Saved{State: Open, Age: 14, Down: 24, Wait: 26}, d.After(4))
	assert.Equal(t, Saved{State: Open, Age: 50, Down: 60}, d.After(40))
	assert.Equal(t, Saved{State: Open, Age: Forever, Down: Forever}, d.After(Forever))
}

// A state that began before its process has times before zero.
func TestStep_RestoredTimesBeforeZero(t *testing.T) {
	saved := Saved{State: Open, Age: math.MaxInt64, Down: math.MaxInt64, Wait: math.MaxInt64}
	for _, p := range []*Params{stepConfigs["table"], stepParams(func(c *Config) { c.MaxOpenDuration, c.MaxStatedWait = 0, 1<<63-1 })} {
		s, _ := Step(p.Initial, &Event{Op: OpRestore, Saved: &saved}, 0)
		assert.Equal(t, -int64(MaxDuration), s.Since)
		assert.GreaterOrEqual(t, s.DownSince, -2*int64(MaxDuration))
		assert.LessOrEqual(t, s.Until, int64(MaxDuration))
		next, _ := Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Failure, RetryAfter: 1}, 0)
		assert.GreaterOrEqual(t, next.Until, s.Until)
		assert.LessOrEqual(t, next.Until, int64(MaxDuration))
	}
}

// What is worth keeping of each situation at 1000, in seconds before and after it.
func TestSnapshot_SaveTable(t *testing.T) {
	for _, row := range []struct {
		situation string
		want      Saved
		worth     bool
	}{
		{"state=closed since=900", Saved{}, false},
		{"state=closed since=900 streak=1 kind=connection failedat=970", Saved{Streak: 1, Kind: Connection, Age: 30}, true},
		{"state=closed since=900 streak=1 failedat=1001", Saved{Streak: 1}, true}, // the clock went back
		{"state=closed since=900 until=1040", Saved{Wait: 40}, true},
		{"state=closed since=900 until=990", Saved{}, false},
		{"state=closed since=900 until=1040 hearsay=1", Saved{Wait: 40, Hearsay: true}, true},
		{"state=closed since=900 until=1000 hearsay=1", Saved{}, false},
		{"state=closed since=900 learned=60", Saved{Learned: 60}, true},
		{"state=open since=980 until=1010 streak=4 failed=2 down=950", Saved{State: Open, Streak: 4, Failed: 2, Age: 20, Down: 50, Wait: 10}, true},
		{"state=open since=980 until=1010 limited=1 down=980", Saved{State: Open, Limited: true, Age: 20, Down: 20, Wait: 10}, true},
		{"state=open since=980 until=1010 hearsay=1 down=980", Saved{State: Open, Hearsay: true, Age: 20, Down: 20, Wait: 10}, true},
		{"state=open since=980 until=990 down=980", Saved{State: Open, Age: 20, Down: 20}, true},
		{"state=open since=980 until=1010 isolated=1 down=980", Saved{State: Open, Isolated: true, Age: 20, Down: 20}, true},
		{"state=open since=1001 until=1010 down=1001", Saved{State: Open, Wait: 10}, true},
		{"state=half-open since=990 until=1010 lease=20 cooldown=30 down=950", Saved{State: Open, Age: 10, Down: 50}, true},
		{"state=half-open since=960 until=980 lease=20 cooldown=30 down=950", Saved{State: Open, Age: 20, Down: 50, Wait: 10}, true}, // lost
	} {
		got := stepSituation(t, row.situation).Save(stepNow * stepSecond)
		for _, d := range []*int64{&row.want.Age, &row.want.Down, &row.want.Wait, &row.want.Learned} {
			*d *= stepSecond
		}
		assert.Equal(t, row.want, got, row.situation)
		assert.Equal(t, row.worth, got.Worth(), row.situation)
	}
	for _, least := range []Saved{{Streak: 1}, {Wait: 1}, {Learned: 1}, {State: Open}} {
		assert.True(t, least.Worth(), "%+v", least)
	}
	s := stepSituation(t, "state=closed since=900 streak=1 failedat=970")
	assert.EqualValues(t, 30*stepSecond+1, s.Save(stepNow*stepSecond+1).Age)
	for _, past := range []string{"state=closed since=900 streak=1 failedat=1001", "state=open since=1001 until=1010 down=1001"} {
		d := stepSituation(t, past).Save(stepNow * stepSecond)
		assert.Zero(t, d.Age+d.Down, past)
	}
}

// Snapshots share what a restore does not change, and the shortest wait is one.
func TestStep_RestoreOfLittle(t *testing.T) {
	p := stepParams(nil)
	next, _ := Step(p.Initial, &Event{Op: OpRestore, Saved: &Saved{Streak: 1}}, stepNow*stepSecond)
	assert.Same(t, p.Initial.past, next.past)
	next, _ = Step(p.Initial, &Event{Op: OpRestore, Saved: &Saved{Wait: 1, Hearsay: true}}, stepNow*stepSecond)
	assert.EqualValues(t, stepNow*stepSecond+1, next.Until)
	assert.True(t, next.hearsay)
	next, _ = Step(p.Initial, &Event{Op: OpRestore, Saved: &Saved{Learned: 1}}, stepNow*stepSecond)
	assert.EqualValues(t, 1, next.learned)
}
