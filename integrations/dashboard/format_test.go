package dashboard

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

func TestFormat_FiguresAreShortAndHonest(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 0.01: "<0.1", 0.2: "0.2", 0.97: "1", 12.4: "12", 9999: "9999", 10_000: "10.0k", 999_940: "999.9k", 2.5e6: "2.5M",
	} {
		assert.Equal(t, want, number(f))
	}
	for share, want := range map[float64]string{
		0: "0 %", 0.0003: "<0.1 %", 0.012: "1.2 %", 0.9994: ">99.9 %", 0.99999: ">99.9 %", 1: "100 %", 0.5: "50.0 %", 1.1: "100 %",
	} {
		assert.Equal(t, want, percent(share))
	}
	for d, want := range map[time.Duration]string{
		0: "", -time.Second: "", 700: "1 µs", 420 * time.Microsecond: "420 µs", 3200 * time.Microsecond: "3.2 ms", 42 * time.Millisecond: "42 ms",
		1400 * time.Millisecond: "1.4 s", 2 * time.Second: "2 s", 30 * time.Second: "30 s", 5 * time.Minute: "5 min", 3 * time.Hour: "3 h", 72 * time.Hour: "3 days",
		math.MaxInt64: "106752 days",
	} {
		assert.Equal(t, want, span(d))
	}
	assert.Equal(t, "just now", ago(-time.Hour))
	assert.Equal(t, "7 s ago", ago(7900*time.Millisecond))
	assert.Equal(t, "12 s", seconds(11500*time.Millisecond))
}

// Every cause has words of its own.
func TestSay_TellsEveryCause(t *testing.T) {
	seen := make(map[string]bool)
	for cause := toolhealth.CauseFailureThreshold; cause <= toolhealth.CauseReconfigured; cause++ {
		text := say(toolhealth.Transition{Cause: cause, From: toolhealth.StateHalfOpen, Streak: 3, Kind: toolhealth.KindServerError, By: "alice"})
		assert.NotContains(t, text, "half-open to")
		assert.NotContains(t, text, "_")
		assert.False(t, seen[text], text)
		seen[text] = true
	}
	assert.Equal(t, "a probe succeeded, more are wanted", say(toolhealth.Transition{Cause: toolhealth.CauseProbeSucceeded, To: toolhealth.StateOpen}))
	assert.Equal(t, "opened after a failure, timeout; next probe after 30 s",
		say(toolhealth.Transition{Cause: toolhealth.CauseFailureThreshold, Streak: 1, Kind: toolhealth.KindTimeout, Wait: 30 * time.Second}))
	assert.Equal(t, "closed to closed", say(toolhealth.Transition{}))
}

func TestSpark_BreaksAtGapsAndMarksFailures(t *testing.T) {
	now := time.Now()
	var slots []watch.Slot
	for i := range 120 {
		s := watch.Slot{End: now.Add(time.Duration(i-119) * 5 * time.Second), P90: time.Second}
		if i > 40 && i < 60 {
			s.P90, s.Failures = 0, 1
		}
		slots = append(slots, s)
	}
	s := newSpark(slots)
	assert.Len(t, s.Lines, 2)
	assert.Len(t, s.Fails, 10)
	assert.Equal(t, "p90 of successes over ten minutes, at most 1 s, with failures", s.Text)
	assert.Empty(t, newSpark(nil).Lines)
	old := slots[:1]
	old = append(old, watch.Slot{End: now.Add(time.Hour), P90: time.Second})
	assert.Equal(t, []string{"119,3.0 119,3.0"}, newSpark(old).Lines, "what is older has no place")
}

func TestHour_ShowsOutagesAndWhatIsNotKnown(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	event := func(minutes int, from, to toolhealth.State, cause toolhealth.Cause) watch.Event {
		at := now.Add(time.Duration(-minutes) * time.Minute)
		return watch.Event{Transition: toolhealth.Transition{From: from, To: to, Cause: cause, When: at}, First: at, Count: 1}
	}
	const closed, open = toolhealth.StateClosed, toolhealth.StateOpen
	s := &watch.Series{Events: []watch.Event{
		event(6, closed, open, toolhealth.CauseIsolated),
		event(30, open, closed, toolhealth.CauseProbeSucceeded),
		event(36, closed, open, toolhealth.CauseFailureThreshold),
		event(70, open, closed, toolhealth.CauseReset),
	}}
	h := newHour(s, nil, now, now.Add(-2*time.Hour))
	assert.Equal(t, []hourPart{{"held", 900, 100}, {"bad", 400, 100}}, h.Parts)
	assert.Equal(t, "opened once in the last hour", h.Text)
	assert.Equal(t, hourPart{"unknown", 0, 500}, newHour(&watch.Series{}, nil, now, now.Add(-30*time.Minute)).Parts[0])
	assert.Equal(t, "closed for the last hour", newHour(&watch.Series{}, nil, now, now.Add(-2*time.Hour)).Text)
	down := &watch.Series{Events: []watch.Event{event(90, closed, open, toolhealth.CauseFailureThreshold)}}
	h = newHour(down, nil, now, now.Add(-2*time.Hour))
	assert.Equal(t, []hourPart{{"bad", 0, 1000}}, h.Parts)
	assert.Equal(t, "not closed in the last hour", h.Text)
	assert.Equal(t, "isolated", newHour(&watch.Series{Events: []watch.Event{event(6, closed, open, toolhealth.CauseIsolated)}}, nil, now, now).Text)

	h = newHour(&watch.Series{}, down, now, now.Add(-2*time.Hour))
	assert.Equal(t, []hourPart{{"bad", 0, 1000}}, h.Parts, "a tool is refused with its group")
	assert.Equal(t, "its group was not closed", h.Text)
	assert.Equal(t, "its group was not closed", newHour(&watch.Series{}, down, now, now.Add(-time.Minute)).Text)
	h = newHour(&watch.Series{}, s, now, now.Add(-2*time.Hour))
	assert.Equal(t, "its group opened once in the last hour", h.Text)
	assert.Zero(t, h.Opened, "its own breaker did not")
	assert.Equal(t, "opened once in the last hour", newHour(s, down, now, now.Add(-2*time.Hour)).Text)
	assert.Equal(t, "closed since 11:30:00", newHour(&watch.Series{}, &watch.Series{}, now, now.Add(-30*time.Minute)).Text)
	assert.Equal(t, "3 times", times(3))
}
