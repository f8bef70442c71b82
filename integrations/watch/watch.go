package watch

import (
	"context"
	"slices"
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
	maxTools   = 5000             // tools and groups with windows and events of their own
	maxSeries  = 1000             // tools with samples
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
	full   int // of tools, those that have cells
	// marks are when the marks of the tools were made, the oldest first, those of the time
	// that is remembered; lost is how many there were before them.
	marks []time.Time
	lost  int
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
	marked := w.mark()
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
			s = &series{latency: new(toolhealth.Latency)}
			if old { // what it counts is from before
				s.counts, s.latency = readingOf(h), w.latency(h.Tool)
			}
			s.marks = []mark{{0, s.counts, s.latency}}
			w.tools[h.Tool] = s
		}
		s.add(w, h)
		if marked {
			s.mark(w.lost+len(w.marks)-1, w.lost)
		}
	}
	for tool, s := range w.tools {
		if s.seen != w.ticks {
			s.drop(w)
			delete(w.tools, tool)
		}
	}
	w.diary.forget(w.at, w.tools, summary.Groups)
}

// mark begins a mark if the last one is a minute old, and forgets those that are older
// than what is remembered, but for the newest of them: windows begin there. The caller
// holds mu.
func (w *Watcher) mark() bool {
	if n := len(w.marks); n > 0 && w.at.Sub(w.marks[n-1]) < time.Minute-w.interval/2 {
		return false
	}
	w.marks = append(w.marks, w.at)
	old := slices.IndexFunc(w.marks, func(at time.Time) bool { return w.at.Sub(at) < remembered })
	unused := max(0, old-1)
	w.marks = slices.Delete(w.marks, 0, unused)
	w.lost += unused
	return true
}

// latency reads how long the calls of a tool took. It allocates, so it is for tools that
// were called since it was read.
func (w *Watcher) latency(tool string) *toolhealth.Latency {
	l, _ := w.registry.Latency(tool)
	return &l
}
