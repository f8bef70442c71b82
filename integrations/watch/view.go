package watch

import (
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
	// Span is the time that the figures cover, the same for all tools: it is half a minute
	// longer or shorter than what was asked for, since windows begin at a full minute. It
	// is zero if they are not known yet.
	Span time.Duration
	// Calls are attempts that succeeded or failed, as in Counts.TotalCalls.
	Calls, Failures, Rejected, Throttled, Refused uint64
	// P50, P90 and P99 are the quantiles of how long the successes took, as exact as those
	// of toolhealth.Counts; 0 without any.
	P50, P90, P99 time.Duration
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
	// P90 is how long nine in ten of the successes took at most; 0 without any.
	P90 time.Duration
}

// Series is what is kept of one tool, or of one group.
type Series struct {
	// Slots are the oldest first; nil for a group, if nothing happened to the tool in any
	// of them, and if 1,000 other tools were called already.
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
		if s := w.tools[v.Summary.Tools[i].Tool]; s != nil {
			v.Windows[i].fill(s, s.before(number))
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
		for n := max(0, w.ticks-w.slots); n < w.ticks; n++ {
			c := s.cells[n%w.slots]
			out.Slots = append(out.Slots, Slot{
				Begin: w.begins[n%w.slots], End: w.ends[n%w.slots],
				Calls: uint64(c.calls), Failures: uint64(c.failures), Rejected: uint64(c.rejected),
				Throttled: uint64(c.throttled), Refused: uint64(c.refused),
				P90: time.Duration(c.p90) * time.Microsecond,
			})
		}
	}
	w.events(&out, owner{tool: tool})
	return out
}

// GroupSeries returns what is kept of one group: Events and From.
func (w *Watcher) GroupSeries(group string) Series {
	out := Series{From: w.began}
	w.events(&out, owner{group: group})
	return out
}

// events adds the events of one breaker.
func (w *Watcher) events(out *Series, of owner) {
	events, from := w.diary.of(of)
	if from.After(out.From) {
		out.From = from
	}
	slices.Reverse(events)
	out.Events = events
}

// Latency returns how long the calls of one tool took that ended in the last minutes: the
// histograms behind its Window, at the last sample.
func (w *Watcher) Latency(tool string, span time.Duration) toolhealth.Latency {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.tools[tool]
	number, covered := w.within(span)
	if s == nil || covered == 0 {
		return toolhealth.Latency{}
	}
	was := s.before(number).latency
	return toolhealth.Latency{Successes: s.latency.Successes.Sub(was.Successes), Failures: s.latency.Failures.Sub(was.Failures)}
}

// within returns the number of the mark at which the last minutes begin, and the time
// that they really cover: the one of the oldest mark that is not half a minute, or half
// an interval, older. Without one nothing is covered. The caller holds mu.
func (w *Watcher) within(span time.Duration) (number int, covered time.Duration) {
	slack := max(time.Minute, w.interval) / 2
	for i, at := range w.marks {
		if age := w.at.Sub(at); age <= span+slack {
			return w.lost + i, age
		}
	}
	return 0, 0
}

// fill writes down what a tool has counted since a mark.
func (v *Window) fill(s *series, was *mark) {
	if v.Span == 0 || s.counts == was.counts {
		return
	}
	is, before := &s.counts, &was.counts
	v.Failures = is.failures - before.failures
	v.Calls = is.successes - before.successes + v.Failures
	v.Rejected, v.Throttled, v.Refused = is.rejected-before.rejected, is.throttled-before.throttled, is.refused-before.refused
	took := s.latency.Successes.Sub(was.latency.Successes)
	v.P50, v.P90, v.P99 = took.Quantile(0.5), took.Quantile(0.9), took.Quantile(0.99)
}
