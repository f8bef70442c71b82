package machine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The five hints in every situation of the table of Step. At 1000 each asks for a wait of
// 40; no hint asks for more than 50. A cell has the fields that change, "-" is none.
var hintTable = map[string][5]string{ // suspect, down, defer, throttled, recovered
	"closed clean":       {"doubt=1040", opensByHearsay, "-", "until=1040 hearsay=1", "-"},
	"closed with streak": {"doubt=1040", opensByHearsay, "-", "until=1040 hearsay=1", "-"},
	"closed throttled":   {"doubt=1040", opensByHearsay, "-", "until=1040", "-"},
	"closed thawed":      {"doubt=1040", opensByHearsay, "-", "until=1040 hearsay=1", "-"},
	"closed suspected":   {"doubt=1040", opensByHearsay + " doubt=0", "-", "until=1040 hearsay=1", "doubt=0"},
	"closed proven":      {"doubt=1040", "-", "-", "until=1040 hearsay=1", "-"},
	"closed hearsay":     {"doubt=1040", opensByHearsay, "-", "until=1040", "-"},

	"open cooling": {"-", "until=1040", "until=1040", "until=1040 limited=1", "-"},
	"open hearsay": {"-", "until=1040", "until=1040", "until=1040 limited=1", "-"},
	"open due":     {"-", "until=1005", "until=1005", "until=1005 limited=1", "-"}, // open since 955
	"open limited": {"-", "-", "-", "-", "-"},
	"isolated":     {"-", "-", "-", "-", "-"},

	"half-open live":      {"-", "-", "-", "-", "-"},
	"half-open untold":    {"-", "-", "-", "-", "-"},
	"half-open undecided": {"-", "-", "-", "-", "-"},
	"half-open no lease":  {"-", "-", "-", "-", "-"},

	// The lease is over: this is open since 980, or since 955.
	"half-open lost cooling": {lost980, lost980 + " until=1030", lost980 + " until=1030", lost980 + " until=1030 limited=1", lost980},
	"half-open lost due":     {lost955, lost955 + " until=1005", lost955 + " until=1005", lost955 + " until=1005 limited=1", lost955},
}

const opensByHearsay = "state=open since=1000 until=1040 hearsay=1 proven=0 down=1000 trips=1 epoch=8"

// hinted is the event of a hint that asks for this many seconds.
func hinted(h Hint, wait int64) Event {
	return Event{Op: OpHint, Hint: h, RetryAfter: wait * stepSecond}
}

func TestStep_HintTable(t *testing.T) {
	require.Len(t, hintTable, len(stepSituations))
	for _, s := range stepSituations {
		for h := range numHints {
			pair := fmt.Sprintf("%s | %s", s.name, h)
			before := stepSituation(t, s.snapshot)
			was, wasPast, want := *before, *before.past, new(*before)
			cell := strings.TrimPrefix(hintTable[s.name][h], "-")
			changeSnapshot(t, want, cell)
			ev := hinted(h, 40)
			got, a := Step(before, &ev, stepNow*stepSecond)
			assert.Equal(t, want, got, pair)
			events := ""
			switch {
			case strings.HasPrefix(cell, opensByHearsay):
				events = "closed>open reported @1000 wait=40"
			case strings.HasPrefix(cell, lost980):
				events = wasLost980
			case strings.HasPrefix(cell, lost955):
				events = wasLost955
			}
			assert.Equal(t, events, stepAnswerText(ev, a), pair)
			assert.Zero(t, a.Stated, pair)
			assert.Equal(t, was, *before, "a snapshot never changes: %s", pair)
			assert.Equal(t, wasPast, *before.past, pair)
			again, _ := Step(got, &ev, stepNow*stepSecond)
			assert.Same(t, got, again, "twice is as once: %s", pair)
		}
	}
}

func TestStep_HintToDeafBreakerChangesNothing(t *testing.T) {
	deaf := stepParams(func(c *Config) { c.MaxHintDuration = 0 })
	never := stepParams(func(c *Config) { c.FailureThreshold = 0 })
	for _, s := range stepSituations {
		for h := range numHints {
			before := stepSituation(t, s.snapshot)
			if before.State == HalfOpen {
				continue // the end of a lease is noted in any case
			}
			before.Params = deaf
			ev := hinted(h, 40)
			got, _ := Step(before, &ev, stepNow*stepSecond)
			assert.Same(t, before, got, "%s, %s", s.name, h)
			before.Params = never
			if got, _ = Step(before, &ev, stepNow*stepSecond); h != HintThrottled {
				assert.Same(t, before, got, "no rule opens it: %s, %s", s.name, h)
			}
		}
	}
	s := stepSituation(t, "state=closed since=900")
	s.Params = never
	ev := hinted(HintThrottled, 40)
	s, _ = Step(s, &ev, stepNow*stepSecond)
	assert.Equal(t, 1040*stepSecond, s.Until, "a stated wait binds all the same")
}

// Each row is a situation, hints and what has become of it.
func TestStep_HintBounds(t *testing.T) {
	const (
		long = 999
		open = "state=open since=990 until=1020 streak=3 trips=1 down=990 "
	)
	for _, c := range []struct {
		name, before string
		hint         Hint
		wait         int64
		changes      string
	}{
		{"a suspicion is bounded", "state=closed since=900", HintSuspect, long, "doubt=1050"},
		{"a shorter suspicion changes nothing", "state=closed since=900 doubt=1030", HintSuspect, 29, ""},
		{"a suspicion of no time is none", "state=closed since=900", HintSuspect, 0, ""},
		{"nor is one of less", "state=closed since=900", HintSuspect, -9, ""},
		{"down is bounded", "state=closed since=900", HintDown, long, "state=open since=1000 until=1050 hearsay=1 down=1000 trips=1 epoch=8"},
		{"down for no time is nothing", "state=closed since=900", HintDown, 0, ""},
		{"a throttle that lasts as long says more", "state=closed since=900 until=1040", HintDown, 40, ""},
		{"a throttle that is over does not", "state=closed since=900 until=1000", HintDown, 1, "state=open since=1000 until=1001 hearsay=1 down=1000 trips=1 epoch=8"},
		{"a probe of its own is proof for max_hint", "state=closed since=951 proven=1", HintDown, 40, ""},
		{"and not longer", "state=closed since=950 proven=1", HintDown, 40, "state=open since=1000 until=1040 hearsay=1 proven=0 down=1000 trips=1 epoch=8"},
		{"a throttle for no time is none", "state=closed since=900", HintThrottled, 0, ""},
		{"a throttle is bounded", "state=closed since=900", HintThrottled, long, "until=1050 hearsay=1"},
		{"a shorter throttle changes nothing", "state=closed since=900 until=1030", HintThrottled, 30, ""},
		{"defer is bounded from the opening", open, HintDefer, long, "until=1040"},
		{"a shorter defer changes nothing", open, HintDefer, 20, ""},
		{"a probe that is due stays due for a hint without a wait", "state=open since=900 until=980", HintDefer, 0, ""},
		{"a breaker that is open for longer is held no more", "state=open since=950 until=980", HintDown, 40, ""},
		{"recovery brings the probe forward", open, HintRecovered, 5, "until=1005 hurried=1"},
		{"at once", open, HintRecovered, -1, "until=1000 hurried=1"},
		{"but once", open + "hurried=1", HintRecovered, 5, ""},
		{"not a wait that the tool stated", open + "limited=1", HintRecovered, 5, ""},
		{"and puts nothing off", open, HintRecovered, 20, ""},
	} {
		s := stepSituation(t, c.before)
		want := new(*s)
		changeSnapshot(t, want, c.changes)
		ev := hinted(c.hint, c.wait)
		got, _ := Step(s, &ev, stepNow*stepSecond)
		assert.Equal(t, want, got, c.name)
	}
	// What bounds a wait that the tool states here bounds one that it stated elsewhere.
	for _, before := range []string{"state=closed since=900", "state=open since=990 until=1001"} {
		s := stepSituation(t, before)
		s.Params = stepParams(func(c *Config) { c.MaxStatedWait = 1e10 })
		ev := hinted(HintThrottled, 40)
		got, _ := Step(s, &ev, stepNow*stepSecond)
		assert.Equal(t, 1010*stepSecond, got.Until, before)
		s.Params = stepParams(func(c *Config) { c.MaxStatedWait = 0 })
		got, _ = Step(s, &ev, stepNow*stepSecond)
		assert.Same(t, s, got, before)
		s.Params = stepParams(func(c *Config) { c.MaxOpenDuration = 2e10 })
		got, _ = Step(s, &ev, stepNow*stepSecond)
		assert.LessOrEqual(t, got.Until, 1020*stepSecond, before)
	}
}

func TestStep_ShortenedOnceUntilItCloses(t *testing.T) {
	s := stepSituation(t, "state=open since=990 until=1020 streak=3")
	now := stepNow * stepSecond
	do := func(ev Event) Answer {
		var a Answer
		s, a = Step(s, &ev, now)
		return a
	}
	recovered := hinted(HintRecovered, 0)
	do(recovered)
	require.Equal(t, now, s.Until)
	a := do(Event{Op: OpAdmit})
	require.True(t, a.Probe)
	do(Event{Op: OpSettle, Probe: true, Epoch: a.Epoch, Outcome: Failure, Kind: Connection})
	due := s.Until
	do(recovered)
	assert.Equal(t, due, s.Until, "believed once")
	now = due
	for s.State != Closed {
		a = do(Event{Op: OpAdmit})
		do(Event{Op: OpSettle, Probe: true, Epoch: a.Epoch})
	}
	for range 3 {
		do(Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: Connection})
	}
	do(recovered)
	assert.Equal(t, now, s.Until, "and once more after it has closed")
}

func TestStep_OnlySomeKindsConfirmSuspicion(t *testing.T) {
	for kind := range Kind(20) {
		s := stepSituation(t, "state=closed since=900 doubt=1030")
		got, a := Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: kind}, stepNow*stepSecond)
		if kind == Timeout || kind == ServerError || kind == Connection {
			require.Len(t, a.Changes, 1, "kind %d", kind)
			assert.Equal(t, CauseSuspected, a.Changes[0].Cause)
			continue
		}
		assert.Equal(t, Closed, got.State, "kind %d", kind)
		assert.True(t, got.Suspected(stepNow*stepSecond), "it is no proof of the contrary either")
	}
	s := stepSituation(t, "state=closed since=900 doubt=1000")
	assert.False(t, s.Suspected(stepNow*stepSecond), "a suspicion that is over")
	assert.True(t, s.Suspected(stepNow*stepSecond-1))
	got, _ := Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: Timeout}, stepNow*stepSecond)
	assert.Equal(t, Closed, got.State)
	s = stepSituation(t, "state=closed since=900 streak=2 doubt=1030")
	_, a := Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: Timeout}, stepNow*stepSecond)
	assert.Equal(t, CauseFailureThreshold, a.Changes[0].Cause, "what is known here comes first")
}

func TestStep_ConfigurationWithoutHintsEndsSuspicion(t *testing.T) {
	for _, p := range []*Params{stepParams(func(c *Config) { c.MaxHintDuration = 0 }), stepConfigs["zero"]} {
		s := stepSituation(t, "state=closed since=900 doubt=1030")
		got, _ := Step(s, &Event{Op: OpConfigure, Params: p}, stepNow*stepSecond)
		assert.False(t, got.Suspected(stepNow*stepSecond))
		assert.True(t, got.UnmovedBy(0))
	}
}

func TestSnapshot_ReportedWhileOpenByHearsay(t *testing.T) {
	for text, want := range map[string]bool{
		"state=open hearsay=1": true, "state=open": false, "state=closed until=1001 hearsay=1": false,
	} {
		s := stepSituation(t, text)
		assert.Equal(t, want, s.Reported(), text)
	}
}

// Told is what the next callers are refused for, because of this call.
func TestStep_AnswerHasStatedWaitThatBindsOthers(t *testing.T) {
	for _, c := range []struct {
		before, what, permit string
		wait                 int64
	}{
		{"state=closed since=900", "throttled", "name", 60},
		{"state=closed since=900", "throttled", "stale", 60},
		{"state=closed since=900", "asked", "current", 60},
		{"state=closed since=900", "asked", "stale", 0},
		{"state=closed since=900", "failure", "name", 0},
		{"state=closed since=900 until=1060", "throttled", "name", 0},
		{"state=closed since=900 until=1059", "throttled", "name", 60},
		{"state=closed since=900 streak=2", "asked", "name", 60},
		{"state=closed since=900 streak=2 until=1070", "asked", "name", 0},
		{"state=open since=990 until=1020", "throttled", "name", 60},
		{"state=open since=990 until=1020", "asked", "stale", 60},
		{"state=open since=990 until=1020", "failure", "stale", 0},
		{"state=open since=930 until=1020", "throttled", "name", 30},
		{"state=open since=990 until=1070 limited=1", "asked", "name", 0},
		{"state=open since=990 until=990 isolated=1", "throttled", "name", 0},
		{"state=closed since=900 operated=7", "throttled", "stale", 0},
		{"state=half-open since=990 until=1010 lease=20 cooldown=30", "throttled", "probe", 60},
		{"state=half-open since=990 until=1060 lease=20 cooldown=30", "throttled", "probe", 60},
		{"state=half-open since=990 until=1010 lease=20 cooldown=30", "throttled", "stale", 0},
		{"state=half-open since=990 until=1010 lease=20 cooldown=30", "asked", "probe", 60},
		{"state=half-open since=960 until=980 lease=20 cooldown=30", "throttled", "probe", 60},
		{"state=closed since=900", "success", "name", 0},
	} {
		s := stepSituation(t, c.before)
		ev := stepEvent(c.what, c.permit)
		_, a := Step(s, &ev, stepNow*stepSecond)
		assert.Equal(t, c.wait*stepSecond, a.Stated, "%s | %s | %s", c.before, c.what, c.permit)
	}
	s := stepSituation(t, "state=closed since=900 streak=2") // the cooldown is longer
	_, a := Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Failure, RetryAfter: 20 * stepSecond}, stepNow*stepSecond)
	assert.Zero(t, a.Stated)
	s = stepSituation(t, "state=half-open since=990 until=1010 lease=20 cooldown=30")
	_, a = Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Failure, RetryAfter: 20 * stepSecond}, stepNow*stepSecond)
	assert.Zero(t, a.Stated)
	s.Params = stepParams(func(c *Config) { c.MaxStatedWait = 0 })
	_, a = Step(s, &Event{Op: OpSettle, ByName: true, Outcome: Throttled, RetryAfter: 20 * stepSecond}, stepNow*stepSecond)
	assert.Zero(t, a.Stated)
}

func TestHint_ValidAndWhatMakesEntry(t *testing.T) {
	for hint, makes := range map[Hint]bool{HintSuspect: false, HintDown: true, HintDefer: false, HintThrottled: true, HintRecovered: false} {
		assert.True(t, hint.Valid())
		assert.Equal(t, makes, hint.MakesEntry(), "%d", hint)
	}
	assert.False(t, (HintRecovered + 1).Valid())
	assert.False(t, (HintRecovered + 1).MakesEntry())
}

func TestStep_ShortestSuspicion(t *testing.T) {
	p := NewParams(Config{FailureThreshold: 3, MaxHintDuration: 50})
	next, _ := Step(p.Initial, &Event{Op: OpHint, Hint: HintSuspect, RetryAfter: 1}, 1000)
	assert.True(t, next.Suspected(1000))
	assert.False(t, next.Suspected(1001))
	next, _ = Step(p.Initial, &Event{Op: OpHint, Hint: HintSuspect}, 1000)
	assert.Same(t, p.Initial, next)
}

func TestSnapshot_ProbeIsOut(t *testing.T) {
	p := NewParams(Config{FailureThreshold: 1, RecoveryDuration: 10, ProbeTimeout: 5, MaxStatedWait: 100})
	throttled, _ := Step(p.Initial, &Event{Op: OpSettle, ByName: true, Outcome: Throttled, RetryAfter: 50}, 0)
	assert.False(t, throttled.ProbeIsOut(1))
	open, _ := Step(p.Initial, &Event{Op: OpSettle, ByName: true, Outcome: Failure}, 0)
	assert.False(t, open.ProbeIsOut(1))
	probed, a := Step(open, &Event{Op: OpAdmit}, 10)
	assert.True(t, a.Probe)
	assert.True(t, probed.ProbeIsOut(14))
	assert.False(t, probed.ProbeIsOut(15), "its lease has run out")
}

func TestStep_SuccessStatesNoWait(t *testing.T) {
	p := NewParams(Config{FailureThreshold: 1, RecoveryDuration: 10, ProbeTimeout: 5, MaxStatedWait: 100})
	open, _ := Step(p.Initial, &Event{Op: OpSettle, ByName: true, Outcome: Failure}, 0)
	probed, a := Step(open, &Event{Op: OpAdmit}, 10)
	closed, a := Step(probed, &Event{Op: OpSettle, Probe: true, Epoch: a.Epoch, Outcome: Success, RetryAfter: 50}, 11)
	assert.Equal(t, Closed, closed.State)
	assert.Zero(t, a.Stated)
	_, a = Step(p.Initial, &Event{Op: OpSettle, ByName: true, Outcome: Throttled, RetryAfter: 1}, 0)
	assert.EqualValues(t, 1, a.Stated, "the shortest wait")
}
