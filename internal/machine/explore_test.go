package machine

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth/internal/proof/model"
)

// The explorer runs the machine through every interleaving of a few callers, an
// operator and the clock. What the callers do is the real step, admission and at;
// what carrier.apply does around them (read the clock, load, step, swap or start
// again) is taken apart into single actions, any of which may come next. One unit
// of time passes at a time, so that every boundary is met before, at and after.
//
// States that were seen are not entered twice. The keys are exact: only what
// cannot change any later answer is left out of them (see key).

// carrier is the machine under test: the real one, or one that is broken on
// purpose and has to be caught.
type carrier struct {
	name      string
	caught    string // the scope that has to catch it; "" means any
	step      func(s *Snapshot, ev *Event, now int64) (*Snapshot, Answer)
	refusal   func(s *Snapshot, now int64) (Reason, int64)
	asOf      func(s *Snapshot, now int64) Snapshot
	blind     bool // gives out probes by a plain store, not by compare-and-swap
	torn      bool // writes until in a store of its own
	deaf      bool // takes a lost swap for a won one
	forgetful bool // does not remember that a permit is settled
	compared  bool // with the rules in words, as the real machine is
}

var realCarrier = carrier{
	name: "the real machine",
	step: Step,
	refusal: func(s *Snapshot, now int64) (Reason, int64) {
		reason, wait, _ := s.Refusal(now)
		return reason, wait
	},
	asOf: (*Snapshot).AsOf,
}

// scope says what is explored, and how much of it in a short and in a long run.
type scope struct {
	name      string
	callers   int
	short     extent
	long      extent
	outcomes  []Outcome
	byName    bool // callers also report by name
	asks      bool // failures of permits also come with a stated wait
	keepAlive bool
	pauses    bool // a probe pauses and resumes
	lose      bool // callers also lose their permit without a word
	release   bool // callers also give their permit back
	hooked    bool // hooks are told of a probe before it begins, which takes time
	leases    bool // an operator may configure a lease of 2 instead
	breaker   Config
	threshold []int // what an operator may configure instead
	tripped   bool  // begins open, one unit before the probe is due
}

// extent bounds what happens in one run of a scope. One more call of each caller makes
// three to eleven times as many states; one more unit of time makes twice as many, and
// up to eleven times as many with four callers. So the long extents are a step or a few
// beyond the short ones, nowhere below them, and stay under 2.6 million states each: all
// of them take 80 s of processor time and 700 MB. The short ones take a second.
type extent struct {
	calls     int // operations of each caller
	ticks     int // units of time
	operators int // calls of an operator, in all
	hints     int // of every kind and with every wait, at any time, in all
}

// Times are in units: the cooldown, the lease, the bound and the stated wait are
// all different, and so are their sums.
func exploredBreaker(threshold int) Config {
	return Config{FailureThreshold: threshold, RecoveryDuration: 3, ProbeTimeout: 2, MaxOpenDuration: 7, MaxStatedWait: 9}
}

func withBreaker(c Config, Change func(*Config)) Config {
	Change(&c)
	return c
}

const statedWait = 5

// hintWaits are waits that hints ask for: a short one, and one above every bound.
var hintWaits = []int64{2, 99}

var everyOutcome = []Outcome{Success, Failure, Rejected, Throttled, Neutral}

var scopes = []scope{
	{
		name: "two callers, all outcomes", callers: 2, short: extent{3, 4, 0, 0}, long: extent{4, 8, 0, 0},
		outcomes: everyOutcome, keepAlive: true, lose: true, breaker: exploredBreaker(1),
	},
	{
		name: "two callers and an operator", callers: 2, short: extent{2, 3, 2, 0}, long: extent{3, 4, 2, 0},
		outcomes: []Outcome{Success, Failure, Throttled}, breaker: exploredBreaker(1), threshold: []int{0, 1, 2},
	},
	{
		name: "two callers, threshold 2", callers: 2, short: extent{3, 3, 0, 0}, long: extent{4, 6, 0, 0},
		outcomes: []Outcome{Success, Failure}, byName: true, breaker: exploredBreaker(2),
	},
	{
		name: "three callers", callers: 3, short: extent{2, 3, 0, 0}, long: extent{3, 5, 0, 0}, tripped: true, lose: true,
		outcomes: []Outcome{Success, Failure, Neutral}, breaker: exploredBreaker(1),
	},
	{
		name: "two probes to close, growing cooldown", callers: 2, short: extent{4, 4, 0, 0}, long: extent{5, 9, 0, 0}, tripped: true,
		outcomes: []Outcome{Success, Failure},
		breaker:  withBreaker(exploredBreaker(1), func(c *Config) { c.ProbeSuccesses, c.RecoveryGrowth = 2, 2 }),
	},
	{
		name: "no lease, no bound", callers: 2, short: extent{3, 3, 1, 0}, long: extent{4, 5, 1, 0}, lose: true,
		outcomes: []Outcome{Success, Failure, Throttled},
		breaker:  withBreaker(exploredBreaker(1), func(c *Config) { c.ProbeTimeout, c.MaxOpenDuration = 0, 0 }),
	},
	{
		name: "probes without a verdict", callers: 2, short: extent{4, 3, 0, 0}, long: extent{6, 6, 0, 0}, tripped: true,
		outcomes: []Outcome{Success, Neutral}, release: true, breaker: exploredBreaker(1),
	},
	{
		name: "hooks take time", callers: 2, short: extent{2, 6, 0, 0}, long: extent{3, 9, 0, 0}, tripped: true, hooked: true, lose: true,
		outcomes: []Outcome{Success, Failure}, keepAlive: true, breaker: exploredBreaker(1),
	},
	{
		name: "probes that pause", callers: 2, short: extent{2, 8, 0, 0}, long: extent{3, 9, 0, 0}, tripped: true, lose: true,
		outcomes: []Outcome{Success, Failure}, keepAlive: true, pauses: true, breaker: exploredBreaker(1),
	},
	{
		name: "a lease comes later", callers: 2, short: extent{2, 4, 2, 0}, long: extent{3, 5, 2, 0}, tripped: true, leases: true, lose: true,
		outcomes: []Outcome{Success, Failure},
		breaker:  withBreaker(exploredBreaker(1), func(c *Config) { c.ProbeTimeout = 0 }),
	},
	{
		name: "share of failures", callers: 2, short: extent{2, 4, 0, 0}, long: extent{2, 5, 1, 0}, byName: true,
		outcomes: []Outcome{Success, Failure},
		breaker: withBreaker(exploredBreaker(0), func(c *Config) {
			c.FailureRate, c.FailureRateWindow, c.FailureRateMinCalls = 0.6, 3, 2
		}),
	},
	{
		name: "streak with a window", callers: 2, short: extent{2, 4, 0, 0}, long: extent{3, 6, 0, 0}, byName: true,
		outcomes: []Outcome{Success, Failure},
		breaker:  withBreaker(exploredBreaker(2), func(c *Config) { c.FailureWindow = 2 }),
	},
	{
		name: "failures that ask to wait", callers: 2, short: extent{3, 4, 0, 0}, long: extent{4, 8, 0, 0},
		outcomes: []Outcome{Success, Failure}, asks: true,
		breaker: withBreaker(exploredBreaker(2), func(c *Config) { c.MaxStatedWait = 4 }),
	},
	{
		name: "two callers and hearsay", callers: 2, short: extent{2, 3, 0, 1}, long: extent{2, 4, 0, 2},
		outcomes: []Outcome{Success, Failure}, lose: true,
		breaker: withBreaker(exploredBreaker(2), func(c *Config) { c.MaxHintDuration = 5 }),
	},
	{
		name: "hearsay and an operator", callers: 2, short: extent{2, 2, 1, 1}, long: extent{2, 3, 1, 1},
		outcomes: []Outcome{Success, Failure, Throttled}, threshold: []int{0},
		breaker: withBreaker(exploredBreaker(2), func(c *Config) { c.MaxHintDuration = 9 }),
	},
	{
		name: "hearsay beside a probe", callers: 2, short: extent{2, 2, 0, 2}, long: extent{2, 4, 0, 2}, tripped: true,
		outcomes: []Outcome{Success, Failure},
		breaker:  withBreaker(exploredBreaker(1), func(c *Config) { c.MaxHintDuration = 4 }),
	},
	{
		name: "deaf", callers: 2, short: extent{2, 3, 0, 1}, long: extent{3, 4, 0, 1},
		outcomes: []Outcome{Success, Failure}, breaker: exploredBreaker(2),
	},
	{
		name: "four callers", callers: 4, short: extent{2, 1, 0, 0}, long: extent{3, 2, 0, 0}, tripped: true,
		outcomes: []Outcome{Success, Failure}, breaker: exploredBreaker(1),
	},
}

// pc is where a caller is in its operation.
type pc uint8

const (
	pcIdle   pc = iota
	pcCalled    // the operation is chosen and the clock is read
	pcLoaded    // the snapshot is loaded; next comes the swap
	pcTorn      // a torn machine has still to write until
)

// caller is one goroutine.
type caller struct {
	pc    pc
	ev    *Event    // never changes once it is made
	now   int64     // as it read the clock
	old   *Snapshot // as it loaded it; never changes
	lost  bool      // another has swapped since
	left  int       // operations that it may still begin
	holds bool      // it has a permit: probe, epoch, start
	probe bool
	begun bool // the hooks were told of its probe
	epoch uint64
	start int64
	spent int // how often this permit has changed the machine
}

// world is one state of everything.
type world struct {
	now       int64
	snap      Snapshot
	promised  int64 // open: when the last event said that the next probe may go
	undecided int   // probes in a row that ended without a verdict
	ended     int   // successes and failures
	ticks     int
	operators int
	hints     int
	callers   [4]caller
}

// exploration is one run over one scope.
type exploration struct {
	carrier
	scope
	extent
	params    map[int]*Params    // by threshold
	leased    *Params            // with a lease
	seen      map[string]float64 // in how many ways it can go on from here
	edges     int
	swaps     int
	lostSwaps int
	path      []move
	violation string
}

// move is one action, for the report of a violation.
type move struct {
	what   string
	caller int
	ev     *Event
}

func (m move) String() string {
	if m.what == "the clock ticks" {
		return m.what
	}
	if m.ev == nil {
		return fmt.Sprintf("caller %d %s", m.caller, m.what)
	}
	return fmt.Sprintf("caller %d %s (%s)", m.caller, m.what, describeEvent(m.ev))
}

func newExploration(c carrier, sc scope, e extent) *exploration {
	x := &exploration{carrier: c, scope: sc, extent: e, params: map[int]*Params{}, seen: map[string]float64{}}
	for _, n := range append(slices.Clone(sc.threshold), sc.breaker.FailureThreshold) {
		x.params[n] = NewParams(withBreaker(sc.breaker, func(c *Config) { c.FailureThreshold = n }))
	}
	x.leased = NewParams(withBreaker(sc.breaker, func(c *Config) { c.ProbeTimeout = 2 }))
	return x
}

// run explores it all and returns the number of complete schedules.
func (x *exploration) run() float64 {
	w := &world{snap: *x.params[x.breaker.FailureThreshold].Initial, ticks: x.ticks, operators: x.operators, hints: x.hints}
	for i := range x.callers {
		w.callers[i].left = x.calls
	}
	if x.tripped {
		for w.snap.State == Closed {
			next, _ := x.step(&w.snap, &Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: Timeout}, 0)
			w.snap = *next
		}
		w.promised, w.now = w.snap.Until, w.snap.Until-1
	}
	return x.visit(w)
}

// fail notes the first violation with the way that led to it.
func (x *exploration) fail(format string, args ...any) {
	if x.violation == "" {
		x.violation = fmt.Sprintf(format, args...) + "\n  after:"
		for _, m := range x.path {
			x.violation += "\n    " + m.String()
		}
	}
}

// visit explores all that can follow, and returns in how many ways it can go on
// to an end where no caller has anything left to do.
func (x *exploration) visit(w *world) float64 {
	key := x.key(w)
	if n, ok := x.seen[string(key)]; ok {
		return n
	}
	x.checkState(w)
	total, ways := 0.0, 0
	x.moves(w, func(m move, next *world) {
		if x.violation != "" {
			return
		}
		ways++
		x.edges++
		x.path = append(x.path, m)
		total += x.visit(next)
		x.path = x.path[:len(x.path)-1]
	})
	if ways == 0 {
		total = 1
	}
	x.seen[string(key)] = total
	return total
}

// key tells two worlds apart whose futures may differ. Times are relative to now,
// epochs to the present one (a permit is of this epoch or it is not, and is older
// than the operator's last act or it is not); callers are alike, so their order does not matter.
func (x *exploration) key(w *world) []byte {
	key := make([]byte, 0, 160)
	rel := func(t int64) byte {
		if t == Forever {
			return 127
		}
		return byte(int8(t - w.now))
	}
	span := func(d int64) byte { return byte(int8(min(d, 126))) }
	snap := func(s *Snapshot) {
		flags := byte(0)
		for i, set := range [...]bool{s.isolated, s.limited, s.lost, s.untold, s.Params == x.leased} {
			if set {
				flags |= 1 << i
			}
		}
		key = append(key, byte(s.State), flags, byte(s.Params.threshold), byte(s.Streak), rel(s.Since), rel(s.Until),
			span(s.lease), span(s.cooldown), span(s.learned), byte(s.failed), byte(s.passed), s.undecided, byte(w.snap.Epoch-s.Epoch))
		if s.Params.window > 0 && s.Streak > 0 {
			key = append(key, rel(s.failedAt))
		}
		if s.windowFailed > 0 {
			key = append(key, rel(s.windowSince), byte(w.ended-int(s.windowEnded)), byte(s.windowFailed))
		}
		if x.hints > 0 { // else nothing reads them
			flags := boolByte(s.hearsay) + 2*boolByte(s.hurried) + 4*boolByte(s.proven) + 8*boolByte(s.doubted)
			key = append(key, flags, rel(max(s.doubt, w.now)))
		}
	}
	snap(&w.snap)
	promised := w.promised
	if w.snap.State != Open {
		promised = w.now
	}
	key = append(key, rel(promised), byte(w.undecided), byte(w.ticks), byte(w.operators), byte(w.hints))
	head := len(key)
	var blocks [len(w.callers)][]byte
	for i := range w.callers[:x.callers] {
		c := &w.callers[i]
		from := len(key)
		key = append(key, byte(c.pc), byte(c.left))
		if c.pc != pcIdle {
			lost, cfg := byte(0), byte(0)
			if c.lost {
				lost = 1
			}
			if c.ev.Params != nil {
				cfg = byte(c.ev.Params.threshold+1) + 16*boolByte(c.ev.Params == x.leased)
			}
			key = append(key, byte(c.ev.Op), byte(c.ev.Outcome), rel(c.now), lost, cfg, boolByte(c.ev.ByName), byte(c.ev.RetryAfter), byte(c.ev.Hint))
			if x.breaker.FailureRate > 0 {
				key = append(key, byte(w.ended-int(c.ev.Ended)))
			}
			if c.pc == pcTorn || c.lost && (x.blind || x.deaf) { // else it will load again
				snap(c.old)
			}
		}
		if c.holds {
			key = append(key, 1+boolByte(c.probe)+2*boolByte(c.begun), boolByte(c.epoch != w.snap.Epoch)+boolByte(c.epoch < w.snap.operated), rel(c.start), byte(c.spent))
		}
		key = append(key, 255)
		blocks[i] = key[from:]
	}
	slices.SortFunc(blocks[:x.callers], bytes.Compare)
	return append(key[:head:head], bytes.Join(blocks[:x.callers], nil)...)
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// moves yields every action that may come next.
func (x *exploration) moves(w *world, yield func(move, *world)) {
	if w.ticks > 0 {
		next := *w
		next.now++
		next.ticks--
		yield(move{what: "the clock ticks"}, &next)
	}
	for i := range w.callers[:x.callers] {
		c := &w.callers[i]
		if c.pc == pcIdle {
			x.begin(w, i, yield)
			continue
		}
		next := *w
		m := move{"", i, c.ev}
		switch {
		case c.pc == pcCalled:
			m.what = "loads"
			x.load(&next, i)
		case c.pc == pcTorn:
			m.what = "writes until"
			next.snap.Until = c.old.Until
			next.callers[i].pc, next.callers[i].ev, next.callers[i].old = pcIdle, nil, nil
		case c.lost && x.deaf:
			m.what = "swaps in vain, and does not see it"
			_, a := x.step(c.old, c.ev, c.now)
			x.end(&next, i, a)
		case c.lost && !(x.blind && c.ev.Op == OpAdmit):
			m.what = "swaps in vain"
			x.lostSwaps++
			next.callers[i].pc, next.callers[i].old, next.callers[i].lost = pcCalled, nil, false
		default:
			m.what = "swaps"
			x.path = append(x.path, m)
			x.swap(&next, i)
			x.path = x.path[:len(x.path)-1]
		}
		yield(m, &next)
	}
}

func describeEvent(ev *Event) string {
	switch {
	case ev.Op == OpSettle && ev.ByName:
		return "record " + ev.Outcome.String()
	case ev.Op == OpSettle:
		return fmt.Sprintf("settle %s, wait %d, epoch %d, probe %v", ev.Outcome, ev.RetryAfter, ev.Epoch, ev.Probe)
	case ev.Op == OpConfigure:
		return fmt.Sprintf("configure threshold %d", ev.Params.threshold)
	case ev.Op == OpHint:
		return fmt.Sprintf("hint %s, wait %d", ev.Hint, ev.RetryAfter)
	}
	return [...]string{"ask", "settle", "release", "begin", "keep alive", "pause", "resume", "reset", "isolate", "configure"}[ev.Op]
}

// begin lets an idle caller choose an operation.
func (x *exploration) begin(w *world, i int, yield func(move, *world)) {
	c := &w.callers[i]
	untold := c.holds && c.probe && !c.begun
	if c.left == 0 && !untold && w.hints == 0 {
		return
	}
	next := *w
	call := func(ev Event) {
		next = *w
		n := &next.callers[i]
		n.pc, n.ev, n.now, n.lost = pcCalled, &ev, w.now, false
		switch ev.Op {
		case OpHint: // it comes with no call
			next.hints--
		case OpBegin:
		case OpReset, OpIsolate, OpConfigure:
			next.operators--
			fallthrough
		default:
			n.left--
		}
		if ev.Op == OpSettle && (ev.Outcome == Success || ev.Outcome == Failure) {
			next.ended++ // the statistics come first
		}
		yield(move{"begins", i, &ev}, &next)
	}
	if untold { // the goroutine is in its hooks
		call(Event{Op: OpBegin, Probe: true, Epoch: c.epoch})
		return
	}
	if w.hints > 0 {
		for hint := range numHints {
			for _, wait := range hintWaits {
				call(Event{Op: OpHint, Hint: hint, RetryAfter: wait})
			}
		}
	}
	if c.left == 0 {
		return
	}
	if c.holds {
		for _, outcome := range x.outcomes {
			ev := Event{Op: OpSettle, Probe: c.probe, Epoch: c.epoch, Outcome: outcome, Kind: Timeout, Took: w.now - c.start}
			if outcome == Throttled {
				ev.RetryAfter = statedWait
			}
			call(ev)
			if outcome == Failure && x.asks {
				ev.RetryAfter = statedWait
				call(ev)
			}
		}
		if x.release {
			call(Event{Op: OpRelease, Probe: c.probe, Epoch: c.epoch})
		}
		if x.keepAlive && c.probe {
			call(Event{Op: OpKeepAlive, Probe: true, Epoch: c.epoch})
		}
		if x.pauses && c.probe {
			call(Event{Op: OpPause, Probe: true, Epoch: c.epoch})
			call(Event{Op: OpResume, Probe: true, Epoch: c.epoch})
		}
		if x.lose {
			next = *w
			next.callers[i].holds = false
			next.callers[i].left--
			yield(move{what: "loses its permit", caller: i}, &next)
		}
		return
	}
	call(Event{Op: OpAdmit, Hooked: x.hooked})
	if x.byName {
		for _, outcome := range x.outcomes {
			call(Event{Op: OpSettle, ByName: true, Outcome: outcome, Kind: Timeout, RetryAfter: statedWait, Took: 1})
		}
	}
	if w.operators > 0 {
		call(Event{Op: OpReset})
		call(Event{Op: OpIsolate})
		if x.leases {
			call(Event{Op: OpConfigure, Params: x.leased})
		}
		for _, threshold := range x.threshold {
			call(Event{Op: OpConfigure, Params: x.params[threshold]})
		}
	}
}

// load is the first half of carrier.apply. What changes nothing ends here.
func (x *exploration) load(w *world, i int) {
	c := &w.callers[i]
	c.lost = false
	if x.breaker.FailureRate > 0 {
		counted := *c.ev
		counted.Ended = uint64(w.ended)
		c.ev = &counted
	}
	if next, a := x.step(&w.snap, c.ev, c.now); next == &w.snap {
		x.checkReport(c, &w.snap, next)
		x.end(w, i, a)
		return
	}
	c.pc, c.old = pcLoaded, new(w.snap)
}

// swap is the second half: it succeeds.
func (x *exploration) swap(w *world, i int) {
	x.swaps++
	c := &w.callers[i]
	before, past := w.snap, *w.snap.past
	next, a := x.step(c.old, c.ev, c.now)
	if *before.past != past {
		x.fail("a step wrote to what snapshots share: %+v to %+v", past, *before.past)
	}
	x.checkSwap(w, c, &before, next, &a)
	for j := range w.callers[:x.callers] {
		if j != i && w.callers[j].pc == pcLoaded {
			w.callers[j].lost = true
		}
	}
	w.snap = *next
	for _, ch := range a.Changes {
		w.promised = ch.When + ch.Wait
	}
	if len(a.Changes) == 0 && next.State == Open {
		w.promised = max(w.promised, next.Until)
	}
	if c.ev.Op == OpHint && c.ev.Hint == HintRecovered && next.State == Open { // it may break a promise, once
		w.promised = next.Until
	}
	if c.ev.Op == OpSettle || c.ev.Op == OpRelease {
		c.spent++
	}
	x.countUndecided(w, c.ev, &before, next, &a)
	ev := c.ev
	x.end(w, i, a)
	if x.torn {
		c.pc, c.ev, c.old = pcTorn, ev, next
		w.snap.Until = before.Until
	}
}

// countUndecided checks that a probe that ended without a verdict is followed by the
// next one at once, or in a cooldown if it was the third in a row.
func (x *exploration) countUndecided(w *world, ev *Event, before, next *Snapshot, a *Answer) {
	for _, ch := range a.Changes {
		switch {
		case ch.Cause == CauseProbeAdmitted:
			continue
		case ch.Cause != CauseProbeReturned:
			w.undecided = 0
			continue
		case ev.Op == OpSettle:
			w.undecided++
		}
		wait := int64(0)
		if w.undecided == 3 && ev.Op == OpSettle {
			w.undecided, wait = 0, before.Params.cooldown(before.failed, nil)
		}
		if next.Until != ch.When+wait || next.failed != before.failed {
			x.fail("the next probe is due at %d after one at %d that is no verdict, %d more in a row", next.Until, ch.When, w.undecided)
		}
	}
}

// end is what a caller does with the answer.
func (x *exploration) end(w *world, i int, a Answer) {
	c := &w.callers[i]
	c.pc = pcIdle
	switch {
	case c.ev.Op == OpAdmit && a.Reason == Admitted:
		c.holds, c.probe, c.begun, c.epoch, c.start, c.spent = true, a.Probe, !(a.Probe && x.hooked), a.Epoch, c.now, 0
	case c.ev.Op == OpBegin:
		c.begun, c.start = true, c.now
	case (c.ev.Op == OpRelease || c.ev.Op == OpSettle && !c.ev.ByName) && !x.forgetful:
		c.holds = false
	}
	c.ev, c.old, c.lost, c.now = nil, nil, false, 0
}

// checkState checks what has to hold in every state.
func (x *exploration) checkState(w *world) {
	s := &w.snap
	reason, wait := x.refusal(s, w.now)

	// The pure queries and the gate agree, at every instant.
	next, a := x.step(s, &Event{Op: OpAdmit}, w.now)
	if a.Reason != reason || a.Wait != wait {
		x.fail("Available and RetryAfter say %v, %d, and the gate %v, %d", reason, wait, a.Reason, a.Wait)
	}
	seen := x.asOf(s, w.now)
	if r, d := x.refusal(&seen, w.now); r != reason || d != wait {
		x.fail("Health says %v, %d, and the gate %v, %d", r, d, reason, wait)
	}
	if _, _, quiet := s.Refusal(w.now); quiet && next != s {
		x.fail("a refusal without a step, and the step would change something")
	}

	// A wait is exact where it can be known.
	unknown := s.isolated || s.State == HalfOpen && (s.Until == Forever || s.untold)
	if s.State == HalfOpen && s.Params.lease > 0 && s.Until == Forever {
		x.fail("a probe without a lease under a configuration with one")
	}
	switch {
	case wait < 0 || (wait == 0) != (reason == Admitted):
		x.fail("reason %v and wait %d", reason, wait)
	case wait > 0 && !unknown:
		if r, _ := x.refusal(s, w.now+wait); r != Admitted {
			x.fail("after the wait of %d the answer is %v", wait, r)
		}
		if r, _ := x.refusal(s, w.now+wait-1); r == Admitted {
			x.fail("a wait of %d is named where less would do", wait)
		}
	}

	// No caller is shut out for longer than is documented.
	if bound := s.Params.maxOpen; bound > 0 && !unknown {
		longest := s.Params.maxStated // closed: a throttle, and nothing else
		if seen.State == Open {
			longest = seen.Since + bound - w.now
		} else if seen.State == HalfOpen {
			longest = s.lease + s.Params.cooldown(s.failed, nil)
			if x.pauses {
				longest = max(s.lease, bound) + s.Params.cooldown(s.failed, nil)
			}
		}
		if wait > max(longest, 0) {
			x.fail("refuses for %d, the bound is %d", wait, longest)
		}
	}

	// At most one probe is out.
	out := 0
	for i := range w.callers[:x.callers] {
		if c := &w.callers[i]; c.holds && c.probe && c.epoch == seen.Epoch && seen.State == HalfOpen {
			out++
		}
	}
	if out > 1 {
		x.fail("%d probes are out", out)
	}

	x.checkRecovery(w, next, a)
}

// checkRecovery finds a way back to closed that needs no operator: wait as told and
// let probes succeed. Where no wait is known, the operator resets.
func (x *exploration) checkRecovery(w *world, asked *Snapshot, a Answer) {
	s, now := &w.snap, w.now
	for range s.Params.successes + 1 {
		if s.State == Closed {
			return
		}
		if s.untold { // the hooks of its probe hang
			now = later(s.Until, s.cooldown)
			asked, a = x.step(s, &Event{Op: OpAdmit}, now)
		}
		if s.isolated || s.State == HalfOpen && s.Until == Forever {
			if s, _ = x.step(s, &Event{Op: OpReset}, now); s.State != Closed {
				x.fail("not even Reset closes it")
			}
			return
		}
		if a.Reason != Admitted {
			now += a.Wait
			asked, a = x.step(s, &Event{Op: OpAdmit}, now)
		}
		if !a.Probe {
			x.fail("waited as it said, and it gives out no probe: %v", a.Reason)
			return
		}
		s, _ = x.step(asked, &Event{Op: OpSettle, Probe: true, Epoch: a.Epoch}, now)
		asked, a = x.step(s, &Event{Op: OpAdmit}, now)
	}
	x.fail("%d probes succeeded and it is not closed", s.Params.successes+1)
}

// checkSwap checks one change of the shared snapshot.
func (x *exploration) checkSwap(w *world, c *caller, before, next *Snapshot, a *Answer) {
	now := max(c.now, before.Since)

	// The events form a chain from the old snapshot to the new one.
	at := before.State
	for i, ch := range a.Changes {
		if ch.From != at || ch.Epoch != before.Epoch+1+uint64(i) {
			x.fail("event %v>%v of epoch %d does not follow %v of epoch %d", ch.From, ch.To, ch.Epoch, at, before.Epoch+uint64(i))
		}
		at = ch.To
	}
	if at != next.State || next.Epoch != before.Epoch+uint64(len(a.Changes)) {
		x.fail("the events end at %v, epoch %d, and the snapshot is %v, epoch %d", at, before.Epoch+uint64(len(a.Changes)), next.State, next.Epoch)
	}

	// Each has its cause.
	for _, ch := range a.Changes {
		if !x.justified(w, c, before, &ch, now) {
			x.fail("%v>%v for %v by %s at %d, from %+v", ch.From, ch.To, ch.Cause, describeEvent(c.ev), now, *before)
		}
	}

	switch ev := c.ev; ev.Op {
	case OpSettle:
		seen := x.asOf(before, now)
		if !ev.ByName && c.spent > 0 {
			x.fail("one permit has changed the breaker twice")
		}
		if !ev.ByName && ev.Epoch != seen.Epoch && ev.Outcome != Throttled && seen.State == Closed && next.Streak != before.Streak {
			x.fail("a result of another period moved the streak")
		}
		x.checkReport(c, before, next)
	case OpBegin:
		x.checkReport(c, before, next)
	case OpAdmit:
		if a.Reason != Admitted { // a refused caller does not make others wait
			_, was := x.refusal(before, now)
			if a.Wait > was {
				x.fail("asking moved the next probe from %d to %d", now+was, now+a.Wait)
			}
		}
	case OpReset, OpIsolate, OpConfigure:
		if ev.Op != OpConfigure && next.Epoch == x.asOf(before, now).Epoch {
			x.fail("%s has begun no epoch", describeEvent(ev))
		}
	case OpHint:
		x.checkHint(ev, before, next, now)
	}
	if x.carrier.name == realCarrier.name || x.compared {
		x.compareWithModel(c, before, next, a, now)
	}
}

// checkReport checks that a probe's report frees its slot, whatever it says.
func (x *exploration) checkReport(c *caller, before, next *Snapshot) {
	ev, seen := c.ev, x.asOf(before, max(c.now, before.Since))
	if (ev.Op == OpSettle || ev.Op == OpRelease) && seen.State == HalfOpen && (ev.ByName || ev.Probe && ev.Epoch == seen.Epoch) && next.Epoch == seen.Epoch {
		x.fail("the probe has reported and its slot is still taken")
	}
	if now := max(c.now, before.Since); ev.Op == OpBegin && before.State == HalfOpen && ev.Epoch == before.Epoch && now < before.Since+before.Params.Patience() && next.Until < now+before.lease {
		x.fail("the hooks were told at %d, and the lease of %d ends at %d", now, before.lease, next.Until)
	}
	if void := ev.Op == OpSettle && !ev.ByName && ev.Epoch < seen.operated; !void {
		x.checkStreak(ev, &seen, next)
		x.checkStatedWait(ev, &seen, next, max(c.now, before.Since))
	} else if *next != seen {
		x.fail("a call from before the operator's word changed %+v to %+v", seen, *next)
	}
}

// checkStreak checks that a failure of the present period counts.
func (x *exploration) checkStreak(ev *Event, seen, next *Snapshot) {
	if ev.Op != OpSettle || ev.Outcome != Failure || seen.State != Closed || !ev.ByName && ev.Epoch != seen.Epoch {
		return
	}
	if restarted := seen.Params.window > 0 && next.Streak == 1; next.Streak != seen.Streak+1 && !restarted {
		x.fail("a failure moved the streak from %d to %d", seen.Streak, next.Streak)
	}
}

// checkStatedWait checks that a tool that asked to be left alone is, by every caller.
func (x *exploration) checkStatedWait(ev *Event, seen, next *Snapshot, now int64) {
	if ev.Op != OpSettle || ev.RetryAfter <= 0 || ev.Outcome != Throttled && ev.Outcome != Failure || seen.isolated {
		return
	}
	mine := ev.ByName || ev.Epoch == seen.Epoch && (seen.State == Closed || ev.Probe)
	if !mine && seen.State != Open && (ev.Outcome == Failure || seen.State == HalfOpen) {
		return
	}
	until := now + next.Params.stated(ev.RetryAfter)
	if bound := next.Params.maxOpen; seen.State == Open && bound > 0 {
		until = min(until, seen.Since+bound)
	}
	if reason, wait := x.refusal(next, now); until > now && (reason == Admitted || now+wait < until) {
		x.fail("asked to wait until %d, and it is %v until %d", until, reason, now+wait)
	}
}

// justified reports whether a transition may have happened.
func (x *exploration) justified(w *world, c *caller, before *Snapshot, ch *Change, now int64) bool {
	ev := c.ev
	seen := x.asOf(before, now)
	ofProbe := ev.Op == OpSettle && ch.From == HalfOpen && seen.State == HalfOpen &&
		(ev.ByName || ev.Probe && ev.Epoch == before.Epoch)
	switch ch.Cause {
	case CauseLeaseExpired:
		return ch.From == HalfOpen && ch.To == Open && now >= before.Until && ch.When == before.Until
	case CauseFailureThreshold:
		return ch.From == Closed && ch.To == Open && ev.Op == OpSettle && ev.Outcome == Failure &&
			(ev.ByName || ev.Epoch == before.Epoch) && int(before.Streak)+1 >= before.Params.threshold && before.Params.threshold > 0
	case CauseFailureRate:
		return ch.From == Closed && ch.To == Open && ev.Op == OpSettle && ev.Outcome == Failure &&
			(ev.ByName || ev.Epoch == before.Epoch) && before.Params.rate > 0 && ev.Ended >= before.Params.rateCalls
	case CauseProbeAdmitted:
		return ch.From == Open && ch.To == HalfOpen && ev.Op == OpAdmit && !before.isolated && now >= seen.Until &&
			(before.State != Open || now >= w.promised)
	case CauseProbeSucceeded:
		return ofProbe && ch.To != HalfOpen && (ev.Outcome == Success || ev.Outcome == Rejected)
	case CauseProbeFailed:
		return ofProbe && ch.To == Open && ev.Outcome == Failure
	case CauseProbeThrottled:
		return ofProbe && ch.To == Open && ev.Outcome == Throttled
	case CauseProbeReturned:
		return ch.To == Open && (ofProbe && ev.Outcome == Neutral || ev.Op == OpRelease && ch.From == HalfOpen && ev.Probe && ev.Epoch == before.Epoch)
	case CauseSuspected:
		return ch.From == Closed && ch.To == Open && ev.Op == OpSettle && ev.Outcome == Failure && before.doubt > now &&
			(ev.ByName || ev.Epoch == before.Epoch) && before.Params.opens()
	case CauseReported:
		return ch.From == Closed && ch.To == Open && ev.Op == OpHint && ev.Hint == HintDown && before.Params.maxHint > 0 && before.Params.opens()
	case CauseReset:
		return ch.To == Closed && ev.Op == OpReset
	case CauseIsolated:
		return ch.To == Open && ev.Op == OpIsolate
	case CauseReconfigured:
		return ch.From != Closed && ch.To == Closed && ev.Op == OpConfigure && ev.Params.threshold == 0 && ev.Params.rate == 0
	}
	return false
}

// checkHint checks that what others say never weighs more than what is known here.
func (x *exploration) checkHint(ev *Event, before, next *Snapshot, now int64) {
	seen := x.asOf(before, now)
	_, was := x.refusal(&seen, now)
	_, is := x.refusal(next, now)
	if seen.State == HalfOpen || seen.isolated || seen.Params.maxHint == 0 {
		if !same(next, &seen) {
			x.fail("%s moved a breaker that is half-open, isolated or deaf: %+v", describeEvent(ev), seen)
		}
		return
	}
	if next.State == Closed && seen.State != Closed {
		x.fail("%s closed it", describeEvent(ev))
	}
	if is < was && (ev.Hint != HintRecovered || seen.hurried || seen.limited || !next.hurried) {
		x.fail("%s shortened the wait from %d to %d", describeEvent(ev), was, is)
	}
	if is > was && is > next.Params.maxHint {
		x.fail("%s asks for a wait of %d", describeEvent(ev), is)
	}
	if is > was && next.State == Open && now+is > next.Since+next.Params.maxHint {
		x.fail("%s holds it %d after it opened", describeEvent(ev), now+is-next.Since)
	}
	if next.doubt > now+next.Params.maxHint && next.doubt > seen.doubt {
		x.fail("%s leaves it in doubt for %d", describeEvent(ev), next.doubt-now)
	}
	if next.Streak != seen.Streak || next.failed != seen.failed || next.passed != seen.passed || next.learned != seen.learned ||
		next.Kind != seen.Kind || next.windowFailed != seen.windowFailed {
		x.fail("%s counts as if it had happened here", describeEvent(ev))
	}
	if next.hearsay && !seen.hearsay && was > 0 && next.Epoch == seen.Epoch {
		x.fail("%s makes hearsay of what is known here", describeEvent(ev))
	}
	if again, _ := x.step(next, ev, now); again != next {
		x.fail("%s twice is not as once: %+v", describeEvent(ev), again)
	}
}

// compareWithModel checks a swap against the rules in words.
func (x *exploration) compareWithModel(c *caller, before, next *Snapshot, a *Answer, now int64) {
	at := time.Duration(now)
	b := modelOf(before, now)
	var events []model.Event
	switch ev := c.ev; ev.Op {
	case OpAdmit:
		var said model.Answer
		said, events = b.Ask(at)
		if ev.Hooked {
			b = modelOf(before, now)
			said, events = b.AskHooked(at)
		}
		if said.Reason != a.Reason.String() || said.Wait != time.Duration(a.Wait) || said.Probe != a.Probe {
			x.fail("the model answers %+v, the machine %+v", said, *a)
		}
	case OpSettle:
		events = b.Report(at, model.Report{
			ByName: ev.ByName, Probe: ev.Probe, Epoch: int(ev.Epoch), Outcome: ev.Outcome.String(), Kind: ev.Kind.String(),
			Took: time.Duration(ev.Took), RetryAfter: time.Duration(ev.RetryAfter), Ended: int(ev.Ended),
		})
	case OpRelease:
		if ev.Probe {
			events = b.Release(at, int(ev.Epoch))
		}
	case OpBegin:
		events = b.Begin(at, int(ev.Epoch))
	case OpKeepAlive:
		events = b.KeepAlive(at, int(ev.Epoch))
	case OpPause:
		events = b.Pause(at, int(ev.Epoch))
	case OpResume:
		events = b.Resume(at, int(ev.Epoch))
	case OpReset:
		events = b.Reset(at)
	case OpIsolate:
		events = b.Isolate(at)
	case OpConfigure:
		events = b.Configure(at, modelConfig(ev.Params))
	case OpHint:
		events = b.Hear(at, ev.Hint.String(), time.Duration(ev.RetryAfter))
	}
	var said []model.Event
	for _, ch := range a.Changes {
		said = append(said, model.Event{
			From: ch.From.String(), To: ch.To.String(), Cause: ch.Cause.String(), Epoch: int(ch.Epoch), When: time.Duration(ch.When),
			Streak: ch.Streak, Kind: ch.Kind.String(), Wait: time.Duration(ch.Wait),
		})
	}
	if !slices.Equal(events, said) {
		x.fail("the model has events %+v, the machine %+v", events, said)
	}
	if b.Throttled <= at {
		b.Throttled = 0
	}
	if is := modelOf(next, now); is != b {
		x.fail("%s\nshould lead from %+v\nto %+v\nand led to %+v", describeEvent(c.ev), modelOf(before, now), b, is)
	}
}

func modelConfig(p *Params) model.Config {
	return model.Config{
		Threshold: p.threshold, Recovery: time.Duration(p.recovery), Lease: time.Duration(p.lease), MaxOpen: time.Duration(p.maxOpen),
		Growth: int(p.growth), ProbeSuccesses: int(p.successes), MaxStated: time.Duration(p.maxStated),
		Window: time.Duration(p.window), Rate: int(p.rate), RateWindow: time.Duration(p.rateWindow), RateMinCalls: int(p.rateCalls),
		MaxHint: time.Duration(p.maxHint),
	}
}

// modelOf returns what a snapshot means in the words of the model.
func modelOf(s *Snapshot, now int64) model.Breaker {
	until := time.Duration(s.Until)
	b := model.Breaker{
		Config: modelConfig(s.Params), State: s.State.String(), Epoch: int(s.Epoch), Since: time.Duration(s.Since),
		Streak: int(s.Streak), Kind: s.Kind.String(), Trips: int(s.Trips), DownSince: time.Duration(s.DownSince),
		Isolated: s.isolated, Stated: s.limited, Lost: s.lost, Untold: s.untold,
		LeaseFor: time.Duration(s.lease), Cooldown: time.Duration(s.cooldown), LeastLease: time.Duration(s.learned), Operated: int(s.operated),
		FailedProbes: int(s.failed), GoodProbes: int(s.passed), Undecided: int(s.undecided), LastFailure: time.Duration(s.failedAt),
		WindowBegan: time.Duration(s.windowSince), WindowBefore: int(s.windowEnded), WindowFailed: int(s.windowFailed),
		Suspected: time.Duration(s.doubt), Hearsay: s.hearsay, Hurried: s.hurried, Proven: s.proven,
	}
	switch {
	case s.State == Open:
		b.Due = until
	case s.State == HalfOpen:
		b.LeaseEnd = until
	case s.Until > now:
		b.Throttled = until
	}
	return b
}

func longExploration() bool { return os.Getenv("TOOLHEALTH_LONG") != "" }

func TestExplore_LongFormHasMoreActions(t *testing.T) {
	for _, sc := range scopes {
		short, long := sc.short, sc.long
		assert.NotEqual(t, short, long, sc.name)
		assert.GreaterOrEqual(t, long.calls, short.calls, "%s: calls", sc.name)
		assert.GreaterOrEqual(t, long.ticks, short.ticks, "%s: units of time", sc.name)
		assert.GreaterOrEqual(t, long.operators, short.operators, "%s: operators", sc.name)
		assert.GreaterOrEqual(t, long.hints, short.hints, "%s: hints", sc.name)
	}
}

func TestExplore_NoInterleavingBreaksTheMachine(t *testing.T) {
	states, edges, swaps, lost := 0, 0, 0, 0
	for _, sc := range scopes {
		e := sc.short
		if longExploration() {
			e = sc.long
		}
		t.Run(sc.name, func(t *testing.T) {
			began := time.Now()
			x := newExploration(realCarrier, sc, e)
			schedules := x.run()
			require.Empty(t, x.violation)
			require.NotZero(t, x.lostSwaps, "no swap was ever lost: nothing was interleaved")
			states += len(x.seen)
			edges += x.edges
			swaps += x.swaps
			lost += x.lostSwaps
			t.Logf("%d states, %d edges, %.3g complete schedules, %v", len(x.seen), x.edges, schedules, time.Since(began).Round(time.Millisecond))
		})
	}
	t.Logf("in all %d states, %d edges, of which %d successful and %d lost swaps", states, edges, swaps, lost)
}

// brokenCarriers are machines as others have built them. A proof that does not
// see what is wrong with them proves nothing.
func brokenCarriers() []carrier {
	broken := func(name string, change func(*carrier)) carrier {
		c := realCarrier
		c.name = name
		change(&c)
		return c
	}
	return append(append(brokenSteps(), gullibleSteps()...),
		broken("state and until are written one after the other", func(c *carrier) { c.torn = true }),
		broken("the probe is given out by a plain store", func(c *carrier) { c.blind = true }),
		broken("a lost swap is taken for a won one", func(c *carrier) { c.deaf = true }),
		broken("a permit settles twice", func(c *carrier) { c.forgetful = true }),
		broken("a lease ends by a timer only", func(c *carrier) {
			hide := func(s Snapshot) Snapshot {
				if s.State == HalfOpen {
					s.Until = Forever
				}
				return s
			}
			c.asOf = func(s *Snapshot, _ int64) Snapshot { return *s }
			c.refusal = func(s *Snapshot, now int64) (Reason, int64) {
				hidden := hide(*s)
				return realCarrier.refusal(&hidden, now)
			}
			c.step = func(s *Snapshot, ev *Event, now int64) (*Snapshot, Answer) {
				hidden := hide(*s)
				next, a := Step(&hidden, ev, now)
				n := *next
				if n.Epoch == s.Epoch && n.State == HalfOpen {
					n.Until = s.Until
				}
				return changed(s, n), a
			}
		}),
		broken("only the gate notices the end of a lease", func(c *carrier) {
			c.asOf = func(s *Snapshot, _ int64) Snapshot { return *s }
			c.refusal = func(s *Snapshot, now int64) (Reason, int64) {
				if s.expired(now) {
					return ProbeInFlight, 1
				}
				return realCarrier.refusal(s, now)
			}
		}),
		broken("the cooldown runs from when the end of the lease is noticed", func(c *carrier) {
			late := func(s Snapshot, now int64) *Snapshot {
				if s.expired(now) {
					s.Until = now
				}
				return &s
			}
			c.asOf = func(s *Snapshot, now int64) Snapshot { return late(*s, now).AsOf(now) }
			c.refusal = func(s *Snapshot, now int64) (Reason, int64) { return realCarrier.refusal(late(*s, now), now) }
			c.step = func(s *Snapshot, ev *Event, now int64) (*Snapshot, Answer) { return Step(late(*s, now), ev, now) }
		}),
	)
}

// changed returns next as Step does: s itself if nothing is different.
func changed(s *Snapshot, next Snapshot) *Snapshot {
	if same(&next, s) {
		return s
	}
	return &next
}

// same reports whether two snapshots say the same.
func same(a, b *Snapshot) bool {
	x := *a
	x.past = b.past
	return x == *b && *a.past == *b.past
}

// stepped is Step with values, for what will be changed afterwards.
func stepped(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
	next, a := Step(&s, &ev, now)
	n := *next
	n.amend(func(*past) {}) // so that n may be written
	return n, a
}

// brokenSteps are those of brokenCarriers that only step otherwise.
func brokenSteps() []carrier {
	stepping := func(name string, f func(s Snapshot, ev Event, now int64) (Snapshot, Answer)) carrier {
		c := realCarrier
		c.name = name
		c.step = func(s *Snapshot, ev *Event, now int64) (*Snapshot, Answer) {
			n, a := f(*s, *ev, now)
			return changed(s, n), a
		}
		return c
	}
	// under is a machine that works under other params than it was given.
	under := func(name, caught string, change func(*Params)) carrier {
		c := stepping(name, func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			other := *s.Params
			change(&other)
			changed := s
			changed.Params = &other
			n, a := stepped(changed, ev, now)
			if n.Params == &other {
				n.Params = s.Params
			}
			return n, a
		})
		c.caught, c.compared = caught, true
		return c
	}
	// in says which scope has to catch a machine.
	in := func(scope string, c carrier) carrier {
		c.caught = scope
		return c
	}
	return []carrier{
		under("a streak outlasts its window", "streak with a window", func(p *Params) { p.window = 0 }),
		under("the window of a rate never ends", "share of failures", func(p *Params) { p.rateWindow = Forever }),
		under("a rate needs no calls", "share of failures", func(p *Params) { p.rateCalls = 1 }),
		under("a threshold of zero is a threshold", "two callers and an operator", func(p *Params) { p.threshold = max(p.threshold, 1) }),
		stepping("epochs are not looked at", func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			seen := s.AsOf(now)
			ev.Epoch = seen.Epoch
			return stepped(s, ev, now)
		}),
		stepping("any success closes a half-open breaker", func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			if seen := s.AsOf(now); ev.Op == OpSettle && ev.Outcome == Success && seen.State == HalfOpen {
				ev.ByName = true
			}
			return stepped(s, ev, now)
		}),
		stepping("a late success closes", func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			n, a := stepped(s, ev, now)
			if ev.Op == OpSettle && ev.Outcome == Success && n.State == Open && !n.isolated {
				n.closeAt(max(now, n.Since))
				n.Epoch++
				a.record(&n, Open, CauseProbeSucceeded)
				a.Epoch = n.Epoch
			}
			return n, a
		}),
		stepping("a neutral probe keeps the slot", func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			if ev.Op == OpSettle && ev.Outcome == Neutral {
				return s, Answer{Epoch: s.Epoch}
			}
			return stepped(s, ev, now)
		}),
		in("probes without a verdict", stepping("probes without a verdict follow each other at once", func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			s.undecided = 0
			n, a := stepped(s, ev, now)
			n.undecided = 0
			return n, a
		})),
		in("probes without a verdict", stepping("a probe that is given back counts as one without a verdict", func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			if ev.Op == OpRelease {
				ev.Op, ev.Outcome = OpSettle, Neutral
			}
			return stepped(s, ev, now)
		})),
		in("hooks take time", stepping("the lease runs while hooks are told", func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			ev.Hooked = false
			return stepped(s, ev, now)
		})),
		in("hooks take time", stepping("a hook that hangs keeps the probe", func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			n, a := stepped(s, ev, now)
			if n.untold {
				n.Until = Forever
			}
			return n, a
		})),
		in("probes that pause", stepping("a pause holds the probe for good", func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			n, a := stepped(s, ev, now)
			if ev.Op == OpPause && n.Until > s.Until {
				n.Until = Forever
			}
			return n, a
		})),
		in("probes that pause", stepping("a pause is as long as two open periods", func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			n, a := stepped(s, ev, now)
			if ev.Op == OpPause && n.Until > s.Until {
				n.Until = later(n.Until, n.Params.maxOpen)
			}
			return n, a
		})),
		in("a lease comes later", stepping("a lease from a configuration comes with the next probe", func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			n, a := stepped(s, ev, now)
			if ev.Op == OpConfigure && s.State == HalfOpen && s.Until == Forever && n.State == HalfOpen {
				n.Until, n.lease = s.Until, s.lease
			}
			return n, a
		})),
		stepping("a reset keeps the epoch", func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			n, a := stepped(s, ev, now)
			if ev.Op == OpReset {
				n.Epoch = s.Epoch
				a.Epoch = n.Epoch
			}
			return n, a
		}),
		in("two callers and an operator", stepping("a throttle outlives an operator's word", func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			if ev.Op == OpSettle && ev.Outcome == Throttled {
				ev.Epoch = max(ev.Epoch, s.operated)
			}
			return stepped(s, ev, now)
		})),
		in("failures that ask to wait", stepping("a failure's stated wait binds its own call only", func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			if ev.Outcome == Failure {
				ev.RetryAfter = 0
			}
			return stepped(s, ev, now)
		})),
		in("failures that ask to wait", stepping("a failure with a stated wait does not count", func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			if ev.Op == OpSettle && ev.Outcome == Failure && ev.RetryAfter > 0 {
				ev.Outcome = Throttled
			}
			return stepped(s, ev, now)
		})),
		in("failures that ask to wait", stepping("a stated wait has no bound of its own", func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			unbounded := *s.Params
			unbounded.maxStated = max(unbounded.maxOpen, statedWait)
			loose := s
			loose.Params = &unbounded
			n, a := stepped(loose, ev, now)
			if n.Params == &unbounded {
				n.Params = s.Params
			}
			return n, a
		})),
		stepping("late failures restart the cooldown without a bound", func(s Snapshot, ev Event, now int64) (Snapshot, Answer) {
			unbounded := *s.Params
			unbounded.maxOpen = 0
			loose := s
			loose.Params = &unbounded
			n, a := stepped(loose, ev, now)
			if n.Params == &unbounded {
				n.Params = s.Params
			}
			return n, a
		}),
	}
}

// gullibleSteps are machines that believe too much, or not enough.
func gullibleSteps() []carrier {
	hearing := func(caught, name string, hear func(s, n *Snapshot, ev *Event, now int64)) carrier {
		c := realCarrier
		c.caught, c.name = caught, name
		c.step = func(s *Snapshot, ev *Event, now int64) (*Snapshot, Answer) {
			n, a := stepped(*s, *ev, now)
			if ev.Op == OpHint {
				seen := s.AsOf(now)
				hear(&seen, &n, ev, max(now, s.Since))
			}
			return changed(s, n), a
		}
		return c
	}
	settling := func(caught, name string, settle func(s, n *Snapshot, ev *Event)) carrier {
		c := realCarrier
		c.caught, c.name, c.compared = caught, name, true
		c.step = func(s *Snapshot, ev *Event, now int64) (*Snapshot, Answer) {
			n, a := stepped(*s, *ev, now)
			if ev.Op == OpSettle {
				settle(s, &n, ev)
			}
			return changed(s, n), a
		}
		return c
	}
	const calls, operator, probe = "two callers and hearsay", "hearsay and an operator", "hearsay beside a probe"
	return []carrier{
		hearing(probe, "a report of recovery closes", func(_, n *Snapshot, ev *Event, now int64) {
			if ev.Hint == HintRecovered && n.State == Open && !n.isolated {
				n.State, n.Until = Closed, 0
			}
		}),
		hearing(probe, "a hint gives up the probe that is out", func(_, n *Snapshot, ev *Event, now int64) {
			if ev.Hint == HintDown && n.State == HalfOpen {
				n.open(now, ev.RetryAfter)
			}
		}),
		hearing(probe, "a probe is put off for ever", func(_, n *Snapshot, ev *Event, now int64) {
			if ev.Hint == HintDefer && n.State == Open && !n.isolated {
				n.Until = max(n.Until, now+ev.RetryAfter)
			}
		}),
		hearing(probe, "every report of recovery is believed", func(_, n *Snapshot, ev *Event, now int64) {
			if ev.Hint == HintRecovered && n.State == Open && !n.isolated {
				n.Until = min(n.Until, now+ev.RetryAfter)
			}
		}),
		hearing(calls, "a suspicion counts as a failure", func(_, n *Snapshot, ev *Event, now int64) {
			if ev.Hint == HintSuspect && n.State == Closed {
				n.Streak++
			}
		}),
		hearing(operator, "a hint lifts an isolation", func(_, n *Snapshot, ev *Event, now int64) {
			if ev.Hint == HintRecovered && n.isolated {
				n.isolated, n.Until = false, now
			}
		}),
		hearing(calls, "a throttle of others has no bound", func(_, n *Snapshot, ev *Event, now int64) {
			if ev.Hint == HintThrottled && n.State == Closed {
				n.Until = max(n.Until, now+ev.RetryAfter)
			}
		}),
		hearing(operator, "a throttle of others takes the place of its own", func(_, n *Snapshot, ev *Event, now int64) {
			if ev.Hint == HintThrottled && n.State == Closed {
				n.Until = now + n.Params.stated(min(ev.RetryAfter, n.Params.maxHint))
			}
		}),
		hearing(probe, "what is known here becomes hearsay", func(_, n *Snapshot, ev *Event, now int64) {
			if ev.Hint == HintDown && n.State == Open && !n.isolated {
				n.hearsay = true
			}
		}),
		hearing(calls, "a suspicion has no end", func(_, n *Snapshot, ev *Event, now int64) {
			if ev.Hint == HintSuspect && n.State == Closed {
				n.doubt, n.doubted = Forever, true
			}
		}),
		hearing(operator, "a report opens a breaker that no rule opens", func(s, n *Snapshot, ev *Event, now int64) {
			if ev.Hint == HintDown && s.State == Closed && !s.Params.opens() {
				n.open(now, ev.RetryAfter)
				n.Epoch++
			}
		}),
		settling(calls, "a success leaves a suspicion", func(s, n *Snapshot, ev *Event) {
			if ev.Outcome == Success && n.State == Closed && s.State == Closed {
				n.doubt, n.doubted = s.doubt, s.doubted
			}
		}),
		settling(calls, "a failure leaves it hearsay", func(s, n *Snapshot, ev *Event) {
			if ev.Outcome == Failure && s.State == Open && n.State == Open {
				n.hearsay = s.hearsay
			}
		}),
		settling(probe, "a probe of its own is no proof", func(_, n *Snapshot, ev *Event) { n.proven = false }),
	}
}

func TestExplore_CatchesBrokenMachines(t *testing.T) {
	for _, c := range brokenCarriers() {
		t.Run(c.name, func(t *testing.T) {
			for _, sc := range scopes {
				if c.caught != "" && c.caught != sc.name {
					continue
				}
				x := newExploration(c, sc, sc.short)
				x.run()
				if x.violation != "" {
					what, _, _ := strings.Cut(x.violation, "\n")
					t.Logf("caught after %d edges of %q: %s", x.edges, sc.name, what)
					return
				}
			}
			t.Fatal("nothing was found wrong with it")
		})
	}
}
