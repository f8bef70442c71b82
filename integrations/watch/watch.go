package watch

import (
	"context"
	"sync"
	"time"

	"github.com/toolhealth/toolhealth"
)

// What is kept, at most.
const (
	remembered = 10 * time.Minute // of samples
	maxSlots   = 600              // samples, however short the interval is
	hour       = time.Hour        // of transitions
	perTool    = 240              // events of one tool: an hour of flapping
	manyEvents = 50_000           // events of all tools together; from then on
	fewPerTool = 50               // events of one tool
	perWatcher = 500              // events in the history of all tools
	maxTools   = 5000             // tools with samples and events of their own
)

// Options of a Watcher. The zero Options are the defaults.
type Options struct {
	// Interval is the time between two samples; 0 or less: 5s.
	Interval time.Duration
}

// A Watcher watches one registry. All methods may be called from any goroutine.
type Watcher struct {
	registry *toolhealth.Registry
	interval time.Duration
	slots    int // that are kept of each tool
	began    time.Time
	stop     func()

	// mu is held to take a sample and to read samples. No hook waits for it.
	mu     sync.Mutex
	at     time.Time   // of the last sample
	ticks  int         // samples so far, but for the first, which ends no slot
	ends   []time.Time // of the slots; slot n lies at n % slots, as in series.cells
	begins []time.Time
	tools  map[string]*series
	// crowded says that the last sample had more than maxTools: what another one counts
	// may be older than a slot.
	crowded bool

	diary diary
}

// New returns a Watcher of r. It takes the first sample, hears of transitions from now
// on, and knows nothing from before.
func New(r *toolhealth.Registry, o Options) *Watcher {
	if o.Interval <= 0 {
		o.Interval = 5 * time.Second
	}
	slots := min(max(int(remembered/o.Interval), 1), maxSlots)
	w := &Watcher{
		registry: r, interval: o.Interval, slots: slots, began: time.Now(),
		begins: make([]time.Time, slots), ends: make([]time.Time, slots), tools: make(map[string]*series),
		diary: diary{tools: make(map[owner]*chapter)},
	}
	w.stop = r.OnTransition(w.diary.hear)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sample()
	return w
}

// Close ends the hearing of transitions. What is known can still be read.
func (w *Watcher) Close() { w.stop() }

// Interval returns the time between two samples.
func (w *Watcher) Interval() time.Duration { return w.interval }

// Run takes a sample at each interval until ctx is done.
func (w *Watcher) Run(ctx context.Context) {
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.Sample()
		}
	}
}

// Sample takes a sample now. The last sample is that old at most: several in a row
// shorten what is remembered.
func (w *Watcher) Sample() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sample()
}

// freshen takes a sample if the last one is an interval old: no other goroutine did. The caller
// holds mu.
func (w *Watcher) freshen() {
	if time.Since(w.at) >= w.interval {
		w.sample()
	}
}

// sample reads the summary and ends a slot. The caller holds mu.
func (w *Watcher) sample() {
	first := w.at.IsZero()
	before := w.at
	summary := w.registry.HealthSummary()
	w.at = time.Now()
	if !first {
		w.begins[w.ticks%w.slots], w.ends[w.ticks%w.slots] = before, w.at
		w.ticks++
	}
	old := first || w.crowded
	w.crowded = false
	for i := range summary.Tools {
		h := &summary.Tools[i]
		s := w.tools[h.Tool]
		if s == nil {
			if len(w.tools) >= maxTools {
				w.crowded = true
				continue
			}
			s = &series{tick: -1}
			if old { // what it counts is from before
				s.counts = readingOf(h)
			}
			w.tools[h.Tool] = s
		}
		s.add(w, h)
	}
	for tool, s := range w.tools {
		if s.seen != w.ticks {
			delete(w.tools, tool)
		}
	}
	w.diary.forget(w.at, w.tools)
}

// reading is the counters of a tool at one moment.
type reading struct {
	successes, failures, rejected, throttled, neutral, refused uint64
	sum                                                        uint64 // nanoseconds of the successes
}

func readingOf(h *toolhealth.ToolHealth) reading {
	return reading{
		successes: h.Successes, failures: h.Failures, rejected: h.Rejected, throttled: h.Throttled,
		neutral: h.Neutral, refused: h.Refused, sum: h.Successes * uint64(h.AverageSuccess),
	}
}

// series is what is kept of the samples of one tool.
type series struct {
	counts      reading
	cells       []cell    // by number; nil if nothing happened in any of them
	tick        int       // number of the last cell with something in it
	seen        int       // Watcher.ticks of the last sample that has the tool
	lastSuccess time.Time // zero if none was seen
}

// cell is what happened to one tool in one slot. Numbers that do not fit are the largest.
type cell struct {
	calls, failures, rejected, throttled, refused uint32
	latency                                       uint32 // in microseconds; 0 without successes
}

// add ends the slot of one tool.
func (s *series) add(w *Watcher, h *toolhealth.ToolHealth) {
	is, was := readingOf(h), s.counts
	s.counts, s.seen = is, w.ticks
	if is.successes < was.successes || is.failures < was.failures || is.refused < was.refused {
		was = reading{} // the tool was removed and has come back
	}
	if is.successes > was.successes {
		s.lastSuccess = w.at
	}
	number := w.ticks - 1
	if number < 0 {
		return
	}
	c := cell{
		calls:    narrow(is.successes - was.successes + is.failures - was.failures),
		failures: narrow(is.failures - was.failures), rejected: narrow(is.rejected - was.rejected),
		throttled: narrow(is.throttled - was.throttled), refused: narrow(is.refused - was.refused),
		latency: narrow(uint64(latency(was, is) / time.Microsecond)),
	}
	if c != (cell{}) {
		s.tick = number
		if s.cells == nil {
			s.cells = make([]cell, w.slots)
		}
	}
	switch {
	case s.cells == nil:
	case number-s.tick >= w.slots:
		s.cells = nil
	default:
		s.cells[number%w.slots] = c
	}
}

// latency is how slow the successes between two readings were: their average. It is the
// one place that knows how the registry tells it.
func latency(was, is reading) time.Duration {
	if is.successes <= was.successes || is.sum <= was.sum {
		return 0
	}
	return time.Duration((is.sum - was.sum) / (is.successes - was.successes))
}

func narrow(n uint64) uint32 { return uint32(min(n, 1<<32-1)) }
