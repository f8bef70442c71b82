package watch

import (
	"math"
	"slices"
	"time"

	"github.com/toolhealth/toolhealth"
)

// reading is the counters of a tool at one moment.
type reading struct {
	successes, failures, rejected, throttled, neutral, refused uint64
}

func readingOf(h *toolhealth.ToolHealth) reading {
	return reading{
		successes: h.Successes, failures: h.Failures, rejected: h.Rejected, throttled: h.Throttled,
		neutral: h.Neutral, refused: h.Refused,
	}
}

// beginsAnew reports whether r counts less than an earlier reading of the same name.
func (r *reading) beginsAnew(was *reading) bool {
	return r.successes < was.successes || r.failures < was.failures || r.rejected < was.rejected ||
		r.throttled < was.throttled || r.neutral < was.neutral || r.refused < was.refused
}

// series is what is kept of the samples of one tool.
type series struct {
	counts      reading
	latency     *toolhealth.Latency // as of counts; never written to, since marks share it
	marks       []mark              // the oldest first, never none; see before
	cells       []cell              // by number; nil if nothing happened in any of them
	tick        int                 // number of the last cell with something in it
	seen        int                 // Watcher.ticks of the last sample that has the tool
	lastSuccess time.Time           // zero if none was seen
}

// mark is what a tool had counted at one of Watcher.marks. A tool that counts nothing
// has no new ones.
type mark struct {
	number  int
	counts  reading
	latency *toolhealth.Latency
}

// cell is what happened to one tool in one slot. Numbers that do not fit are the largest.
type cell struct {
	calls, failures, rejected, throttled, refused uint32
	p90                                           uint32 // in microseconds; 0 without successes
}

// add ends the slot of one tool.
func (s *series) add(w *Watcher, h *toolhealth.ToolHealth) {
	is, was, took := readingOf(h), s.counts, s.latency
	s.seen = w.ticks
	if is.beginsAnew(&was) {
		was, took = reading{}, new(toolhealth.Latency) // the tool was removed and has come back
		s.marks = []mark{{0, was, took}}
	}
	s.counts, s.latency = is, took
	if is.successes != was.successes || is.failures != was.failures {
		s.latency = w.latency(h.Tool)
	}
	if is.successes > was.successes {
		s.lastSuccess = w.at
	}
	s.put(w, w.ticks-1, was, took) // the first sample is of no slot, and brings nothing
}

// put writes the cell of a number: what happened since the counters were these.
func (s *series) put(w *Watcher, number int, was reading, took *toolhealth.Latency) {
	is := s.counts
	if is != was {
		s.tick = number
		if s.cells == nil && w.full < maxSeries {
			s.cells = make([]cell, w.slots)
			w.full++
		}
	}
	switch {
	case s.cells == nil:
	case number-s.tick >= w.slots:
		s.drop(w)
	default:
		c := cell{
			calls:    narrow(is.successes - was.successes + is.failures - was.failures),
			failures: narrow(is.failures - was.failures), rejected: narrow(is.rejected - was.rejected),
			throttled: narrow(is.throttled - was.throttled), refused: narrow(is.refused - was.refused),
		}
		if is.successes > was.successes {
			c.p90 = narrow(uint64(s.latency.Successes.Sub(took.Successes).Quantile(0.9) / time.Microsecond))
		}
		s.cells[number%w.slots] = c
	}
}

// drop makes room for the cells of another tool.
func (s *series) drop(w *Watcher) {
	if s.cells != nil {
		s.cells = nil
		w.full--
	}
}

// mark notes what was counted, under this number, and forgets what no window needs that
// begins at the number first or later.
func (s *series) mark(number, first int) {
	if last := &s.marks[len(s.marks)-1]; last.counts != s.counts {
		s.marks = append(s.marks, mark{number, s.counts, s.latency})
	}
	unused := 0
	for unused+1 < len(s.marks) && s.marks[unused+1].number <= first {
		unused++
	}
	s.marks = slices.Delete(s.marks, 0, unused)
}

// before returns what was counted at the mark of this number: nothing has happened since
// the last one that the tool has.
func (s *series) before(number int) *mark {
	for i := len(s.marks) - 1; i > 0; i-- {
		if s.marks[i].number <= number {
			return &s.marks[i]
		}
	}
	return &s.marks[0]
}

func narrow(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }
