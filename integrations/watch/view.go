package watch

import (
	"math"
	"slices"
	"time"

	"github.com/toolhealth/toolhealth"
)

// View is what a Watcher knows at one moment.
type View struct {
	// Version changes whenever there is something new: a sample or a transition.
	Version uint64
	// Began is when the watching began: of the time before nothing is known.
	Began time.Time
	// Summary is the health of all tools now. It is newer than the last sample.
	Summary toolhealth.Summary
	// Windows are the last minutes of the tools of Summary, in the same order.
	Windows []Window
	// Events are what breakers did, the newest first.
	Events []Event
}

// Window is what happened to one tool in the last minutes.
type Window struct {
	// Span is the time that the figures cover. It is zero if they are not known yet.
	Span time.Duration
	// Calls are attempts that succeeded or failed, as in Counts.TotalCalls.
	Calls, Failures, Rejected, Throttled, Refused uint64
	// Latency is the average of the successes; 0 without any.
	Latency time.Duration
}

// SuccessRate returns the share of Calls that did not fail; 1 with no calls.
func (w *Window) SuccessRate() float64 {
	if w.Calls == 0 {
		return 1
	}
	return 1 - float64(w.Failures)/float64(w.Calls)
}

// PerMinute returns n in Span as a rate a minute; 0 if Span is zero.
func (w *Window) PerMinute(n uint64) float64 {
	if w.Span <= 0 {
		return 0
	}
	return float64(n) / w.Span.Minutes()
}

// Slot is what happened to one tool between two samples.
type Slot struct {
	Begin, End time.Time
	// Calls are attempts that succeeded or failed.
	Calls, Failures, Rejected, Throttled, Refused uint64
	// Latency is the average of the successes; 0 without any.
	Latency time.Duration
}

// Series is what is kept of one tool.
type Series struct {
	// Slots are the oldest first; nil if nothing happened to the tool in any of them.
	Slots []Slot
	// Events are what the breaker did, the newest first.
	Events []Event
	// From is when Events begin: before, the state is not known.
	From time.Time
	// LastSuccess is the time of the sample that saw the last success; zero if none did.
	LastSuccess time.Time
}

// View returns what is known now, with windows of this length; they are shorter
// while less is known, and end with the last sample. It takes a sample first if the last
// one is an interval old.
func (w *Watcher) View(span time.Duration) View {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freshen()
	v := View{Began: w.began}
	var heard uint64
	v.Events, heard = w.diary.read() // before the summary, which so has what they say
	v.Version = uint64(w.ticks) + heard
	v.Summary = w.registry.HealthSummary()
	v.Windows = make([]Window, len(v.Summary.Tools))
	number, covered := w.within(span)
	for i := range v.Summary.Tools {
		v.Windows[i].Span = covered
		if s := w.tools[v.Summary.Tools[i].Tool]; s != nil && s.cells != nil {
			w.sum(s, number, &v.Windows[i])
		}
	}
	return v
}

// Version returns what View would give as Version, and costs little.
func (w *Watcher) Version() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freshen()
	return uint64(w.ticks) + w.diary.number()
}

// Series returns what is kept of one tool, at the last sample.
func (w *Watcher) Series(tool string) Series {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.tools[tool]
	if s == nil {
		s = new(series)
	}
	out := Series{LastSuccess: s.lastSuccess, From: w.began}
	if s.cells != nil {
		out.Slots = make([]Slot, 0, w.slots)
		for n := max(0, w.ticks-w.slots); n < w.ticks; n++ {
			c := s.cells[n%w.slots]
			out.Slots = append(out.Slots, Slot{
				Begin: w.begins[n%w.slots], End: w.ends[n%w.slots],
				Calls: uint64(c.calls), Failures: uint64(c.failures), Rejected: uint64(c.rejected),
				Throttled: uint64(c.throttled), Refused: uint64(c.refused),
				Latency: time.Duration(c.latency) * time.Microsecond,
			})
		}
	}
	if events, from := w.diary.of(tool); len(events) > 0 {
		out.Events = events
		if from.After(out.From) {
			out.From = from
		}
	}
	slices.Reverse(out.Events)
	return out
}

// within returns the number of the first slot of the last minutes, and the time that
// they really cover. A slot counts if half an interval of it at most is older. The caller
// holds mu.
func (w *Watcher) within(span time.Duration) (first int, covered time.Duration) {
	first = w.ticks
	for n := w.ticks - 1; n >= max(0, w.ticks-w.slots); n-- {
		if w.at.Sub(w.begins[n%w.slots]) > span+w.interval/2 {
			break
		}
		first, covered = n, w.at.Sub(w.begins[n%w.slots])
	}
	return first, covered
}

// sum adds the slots from a number on up. The caller holds mu.
func (w *Watcher) sum(s *series, from int, out *Window) {
	var micros float64
	for n := from; n < w.ticks; n++ {
		c := &s.cells[n%w.slots]
		out.Calls += uint64(c.calls)
		out.Failures += uint64(c.failures)
		out.Rejected += uint64(c.rejected)
		out.Throttled += uint64(c.throttled)
		out.Refused += uint64(c.refused)
		micros += float64(c.latency) * float64(c.calls-c.failures)
	}
	if ok := out.Calls - out.Failures; ok > 0 {
		out.Latency = time.Duration(math.Round(micros/float64(ok))) * time.Microsecond
	}
}
