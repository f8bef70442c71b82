package toolhealth

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth/internal/proof/model"
)

// The explorer runs the machine through every interleaving of a few callers, an
// operator and the clock. What the callers do is the real step, admission and at;
// what machine.apply does around them (read the clock, load, step, swap or start
// again) is taken apart into single actions, any of which may come next. One unit
// of time passes at a time, so that every boundary is met before, at and after.
//
// States that were seen are not entered twice. The keys are exact: only what
// cannot change any later answer is left out of them (see key).

// carrier is the machine under test: the real one, or one that is broken on
// purpose and has to be caught.
type carrier struct {
	name      string
	step      func(s snapshot, ev event, now int64) (snapshot, answer)
	admission func(s *snapshot, now int64) (StopReason, int64)
	at        func(s snapshot, now int64) snapshot
	blind     bool // gives out probes by a plain store, not by compare-and-swap
	torn      bool // writes until in a store of its own
	deaf      bool // takes a lost swap for a won one
	forgetful bool // does not remember that a permit is settled
}

var realCarrier = carrier{
	name:      "the real machine",
	step:      step,
	admission: (*snapshot).admission,
	at:        snapshot.at,
}

// scope says what is explored, and how much of it in a short and in a long run.
type scope struct {
	name      string
	callers   int
	short     extent
	long      extent
	outcomes  []Outcome
	byName    bool // callers also report by name
	keepAlive bool
	lose      bool // callers also lose their permit without a word
	breaker   BreakerConfig
	threshold []int // what an operator may configure instead
	tripped   bool  // begins open, one unit before the probe is due
}

type extent struct {
	calls     int // operations of each caller
	ticks     int // units of time
	operators int // calls of an operator, in all
}

// Times are in units: the cooldown, the lease, the bound and the stated wait are
// all different, and so are their sums.
func exploredBreaker(threshold int) BreakerConfig {
	return BreakerConfig{FailureThreshold: threshold, RecoveryDuration: 3, ProbeTimeout: 2, MaxOpenDuration: 7}
}

func withBreaker(c BreakerConfig, change func(*BreakerConfig)) BreakerConfig {
	change(&c)
	return c
}

const statedWait = 5

var everyOutcome = []Outcome{OutcomeSuccess, OutcomeFailure, OutcomeRejected, OutcomeThrottled, OutcomeNeutral}

var scopes = []scope{
	{
		name: "two callers, all outcomes", callers: 2, short: extent{3, 4, 0}, long: extent{4, 9, 0},
		outcomes: everyOutcome, keepAlive: true, lose: true, breaker: exploredBreaker(1),
	},
	{
		name: "two callers and an operator", callers: 2, short: extent{2, 3, 2}, long: extent{3, 6, 2},
		outcomes: []Outcome{OutcomeSuccess, OutcomeFailure}, breaker: exploredBreaker(1), threshold: []int{0, 1, 2},
	},
	{
		name: "two callers, threshold 2", callers: 2, short: extent{3, 3, 0}, long: extent{5, 6, 0},
		outcomes: []Outcome{OutcomeSuccess, OutcomeFailure}, byName: true, breaker: exploredBreaker(2),
	},
	{
		name: "three callers", callers: 3, short: extent{2, 3, 0}, long: extent{3, 6, 0}, tripped: true, lose: true,
		outcomes: []Outcome{OutcomeSuccess, OutcomeFailure, OutcomeNeutral}, breaker: exploredBreaker(1),
	},
	{
		name: "two probes to close, growing cooldown", callers: 2, short: extent{4, 4, 0}, long: extent{5, 11, 0}, tripped: true,
		outcomes: []Outcome{OutcomeSuccess, OutcomeFailure},
		breaker:  withBreaker(exploredBreaker(1), func(c *BreakerConfig) { c.ProbeSuccesses, c.RecoveryGrowth = 2, 2 }),
	},
	{
		name: "no lease, no bound", callers: 2, short: extent{3, 3, 1}, long: extent{4, 6, 1}, lose: true,
		outcomes: []Outcome{OutcomeSuccess, OutcomeFailure, OutcomeThrottled},
		breaker:  withBreaker(exploredBreaker(1), func(c *BreakerConfig) { c.ProbeTimeout, c.MaxOpenDuration = 0, 0 }),
	},
	{
		name: "four callers", callers: 4, short: extent{2, 1, 0}, long: extent{2, 3, 0}, tripped: true,
		outcomes: []Outcome{OutcomeSuccess, OutcomeFailure}, breaker: exploredBreaker(1),
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
	ev    *event    // never changes once it is made
	now   int64     // as it read the clock
	old   *snapshot // as it loaded it; never changes
	lost  bool      // another has swapped since
	left  int       // operations that it may still begin
	holds bool      // it has a permit: probe, epoch, start
	probe bool
	epoch uint64
	start int64
	spent int // how often this permit has changed the machine
}

// world is one state of everything.
type world struct {
	now       int64
	snap      snapshot
	promised  int64 // open: when the last event said that the next probe may go
	ticks     int
	operators int
	callers   [4]caller
}

// exploration is one run over one scope.
type exploration struct {
	carrier
	scope
	extent
	params    map[int]*params    // by threshold
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
	ev     *event
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
	x := &exploration{carrier: c, scope: sc, extent: e, params: map[int]*params{}, seen: map[string]float64{}}
	for _, n := range append(slices.Clone(sc.threshold), sc.breaker.FailureThreshold) {
		x.params[n] = newParams(withBreaker(sc.breaker, func(c *BreakerConfig) { c.FailureThreshold = n }))
	}
	return x
}

// run explores it all and returns the number of complete schedules.
func (x *exploration) run() float64 {
	w := &world{snap: *x.params[x.breaker.FailureThreshold].initial, ticks: x.ticks, operators: x.operators}
	for i := range x.callers {
		w.callers[i].left = x.calls
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
// to an end where nobody has anything left to do.
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
		if t == forever {
			return 127
		}
		return byte(int8(t - w.now))
	}
	span := func(d int64) byte { return byte(int8(min(d, 126))) }
	snap := func(s *snapshot) {
		flags := byte(0)
		for i, set := range [...]bool{s.isolated, s.limited, s.lost} {
			if set {
				flags |= 1 << i
			}
		}
		key = append(key, byte(s.state), flags, byte(s.cfg.threshold), byte(s.streak), rel(s.since), rel(s.until),
			span(s.lease), span(s.cooldown), span(s.learned), byte(s.failed), byte(s.passed), byte(w.snap.epoch-s.epoch))
	}
	snap(&w.snap)
	promised := w.promised
	if w.snap.state != StateOpen {
		promised = w.now
	}
	key = append(key, rel(promised), byte(w.ticks), byte(w.operators))
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
			if c.ev.cfg != nil {
				cfg = byte(c.ev.cfg.threshold + 1)
			}
			key = append(key, byte(c.ev.op), byte(c.ev.outcome), rel(c.now), lost, cfg, boolByte(c.ev.byName))
			if c.pc == pcTorn || c.lost && (x.blind || x.deaf) { // else it will load again
				snap(c.old)
			}
		}
		if c.holds {
			key = append(key, 1+boolByte(c.probe), boolByte(c.epoch != w.snap.epoch)+boolByte(c.epoch < w.snap.operated), rel(c.start), byte(c.spent))
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
			next.snap.until = c.old.until
			next.callers[i].pc, next.callers[i].ev, next.callers[i].old = pcIdle, nil, nil
		case c.lost && x.deaf:
			m.what = "swaps in vain, and does not see it"
			_, a := x.step(*c.old, *c.ev, c.now)
			x.end(&next, i, a)
		case c.lost && !(x.blind && c.ev.op == opAdmit):
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

func describeEvent(ev *event) string {
	switch {
	case ev.op == opSettle && ev.byName:
		return "record " + ev.outcome.String()
	case ev.op == opSettle:
		return fmt.Sprintf("settle %s, epoch %d, probe %v", ev.outcome, ev.epoch, ev.probe)
	case ev.op == opConfigure:
		return fmt.Sprintf("configure threshold %d", ev.cfg.threshold)
	}
	return [...]string{"ask", "settle", "keep alive", "reset", "isolate", "configure"}[ev.op]
}

// begin lets an idle caller choose an operation.
func (x *exploration) begin(w *world, i int, yield func(move, *world)) {
	c := &w.callers[i]
	if c.left == 0 {
		return
	}
	next := *w
	call := func(ev event) {
		next = *w
		n := &next.callers[i]
		n.pc, n.ev, n.now, n.lost = pcCalled, &ev, w.now, false
		n.left--
		if ev.op >= opReset {
			next.operators--
		}
		yield(move{"begins", i, &ev}, &next)
	}
	if c.holds {
		for _, outcome := range x.outcomes {
			ev := event{op: opSettle, probe: c.probe, epoch: c.epoch, outcome: outcome, kind: KindTimeout, took: w.now - c.start}
			if outcome == OutcomeThrottled {
				ev.retryAfter = statedWait
			}
			call(ev)
		}
		if x.keepAlive && c.probe {
			call(event{op: opKeepAlive, probe: true, epoch: c.epoch})
		}
		if x.lose {
			next = *w
			next.callers[i].holds = false
			next.callers[i].left--
			yield(move{what: "loses its permit", caller: i}, &next)
		}
		return
	}
	call(event{op: opAdmit})
	if x.byName {
		for _, outcome := range x.outcomes {
			call(event{op: opSettle, byName: true, outcome: outcome, kind: KindTimeout, retryAfter: statedWait, took: 1})
		}
	}
	if w.operators > 0 {
		call(event{op: opReset})
		call(event{op: opIsolate})
		for _, threshold := range x.threshold {
			call(event{op: opConfigure, cfg: x.params[threshold]})
		}
	}
}

// load is the first half of machine.apply. What changes nothing ends here.
func (x *exploration) load(w *world, i int) {
	c := &w.callers[i]
	c.lost = false
	if next, a := x.step(w.snap, *c.ev, c.now); !a.changed {
		x.checkReport(c, &w.snap, &next)
		x.end(w, i, a)
		return
	}
	c.pc, c.old = pcLoaded, new(w.snap)
}

// swap is the second half: it succeeds.
func (x *exploration) swap(w *world, i int) {
	x.swaps++
	c := &w.callers[i]
	before := w.snap
	next, a := x.step(*c.old, *c.ev, c.now)
	x.checkSwap(w, c, &before, &next, &a)
	for j := range w.callers[:x.callers] {
		if j != i && w.callers[j].pc == pcLoaded {
			w.callers[j].lost = true
		}
	}
	w.snap = next
	for _, ch := range a.changes[:a.n] {
		w.promised = ch.when + ch.wait
	}
	if a.n == 0 && next.state == StateOpen {
		w.promised = max(w.promised, next.until)
	}
	if c.ev.op == opSettle {
		c.spent++
	}
	ev := c.ev
	x.end(w, i, a)
	if x.torn {
		c.pc, c.ev, c.old = pcTorn, ev, &next
		w.snap.until = before.until
	}
}

// end is what a caller does with the answer.
func (x *exploration) end(w *world, i int, a answer) {
	c := &w.callers[i]
	c.pc = pcIdle
	switch {
	case c.ev.op == opAdmit && a.reason == StopNone:
		c.holds, c.probe, c.epoch, c.start, c.spent = true, a.probe, a.epoch, c.now, 0
	case c.ev.op == opSettle && !c.ev.byName && !x.forgetful:
		c.holds = false
	}
	c.ev, c.old, c.lost, c.now = nil, nil, false, 0
}

// checkState checks what has to hold in every state.
func (x *exploration) checkState(w *world) {
	s := &w.snap
	reason, wait := x.admission(s, w.now)

	// The pure queries and the gate agree, at every instant.
	next, a := x.step(*s, event{op: opAdmit}, w.now)
	if a.reason != reason || a.wait != wait {
		x.fail("Available and RetryAfter say %v, %d, and the gate %v, %d", reason, wait, a.reason, a.wait)
	}
	seen := x.at(*s, w.now)
	if r, d := x.admission(&seen, w.now); r != reason || d != wait {
		x.fail("Health says %v, %d, and the gate %v, %d", r, d, reason, wait)
	}
	if s.refuses(w.now) && a.changed {
		x.fail("a refusal without a step, and the step would change something")
	}

	// A wait is exact where anybody can know it.
	unknown := s.isolated || s.state == StateHalfOpen && s.until == forever
	switch {
	case wait < 0 || (wait == 0) != (reason == StopNone):
		x.fail("reason %v and wait %d", reason, wait)
	case wait > 0 && !unknown:
		if r, _ := x.admission(s, w.now+wait); r != StopNone {
			x.fail("after the wait of %d the answer is %v", wait, r)
		}
		if r, _ := x.admission(s, w.now+wait-1); r == StopNone {
			x.fail("a wait of %d is named where less would do", wait)
		}
	}

	// Nobody is shut out for longer than is documented.
	if bound := s.cfg.maxOpen; bound > 0 && !unknown {
		longest := bound
		if seen.state == StateOpen {
			longest = seen.since + bound - w.now
		} else if seen.state == StateHalfOpen {
			longest = s.lease + s.cfg.cooldownFor(s.failed, 0)
		}
		if wait > max(longest, 0) {
			x.fail("refuses for %d, the bound is %d", wait, longest)
		}
	}

	// At most one probe is out.
	out := 0
	for i := range w.callers[:x.callers] {
		if c := &w.callers[i]; c.holds && c.probe && c.epoch == seen.epoch && seen.state == StateHalfOpen {
			out++
		}
	}
	if out > 1 {
		x.fail("%d probes are out", out)
	}

	x.checkRecovery(w, next, a)
}

// checkRecovery finds a way back to closed that needs nobody's help: wait as told
// and let probes succeed. Where nobody knows when, the operator resets.
func (x *exploration) checkRecovery(w *world, asked snapshot, a answer) {
	s, now := w.snap, w.now
	for range s.cfg.successes + 1 {
		if s.state == StateClosed {
			return
		}
		if s.isolated || s.state == StateHalfOpen && s.until == forever {
			if s, _ = x.step(s, event{op: opReset}, now); s.state != StateClosed {
				x.fail("not even Reset closes it")
			}
			return
		}
		if a.reason != StopNone {
			now += a.wait
			asked, a = x.step(s, event{op: opAdmit}, now)
		}
		if !a.probe {
			x.fail("waited as it said, and it gives out no probe: %v", a.reason)
			return
		}
		s, _ = x.step(asked, event{op: opSettle, probe: true, epoch: a.epoch}, now)
		asked, a = x.step(s, event{op: opAdmit}, now)
	}
	x.fail("%d probes succeeded and it is not closed", s.cfg.successes+1)
}

// checkSwap checks one change of the shared snapshot.
func (x *exploration) checkSwap(w *world, c *caller, before, next *snapshot, a *answer) {
	now := max(c.now, before.since)

	// The events form a chain from the old snapshot to the new one.
	at := before.state
	for i, ch := range a.changes[:a.n] {
		if ch.from != at || ch.epoch != before.epoch+1+uint64(i) {
			x.fail("event %v>%v of epoch %d does not follow %v of epoch %d", ch.from, ch.to, ch.epoch, at, before.epoch+uint64(i))
		}
		at = ch.to
	}
	if at != next.state || next.epoch != before.epoch+uint64(a.n) {
		x.fail("the events end at %v, epoch %d, and the snapshot is %v, epoch %d", at, before.epoch+uint64(a.n), next.state, next.epoch)
	}

	// Each has its cause.
	for _, ch := range a.changes[:a.n] {
		if !x.justified(w, c, before, &ch, now) {
			x.fail("%v>%v for %v by %s at %d, from %+v", ch.from, ch.to, ch.cause, describeEvent(c.ev), now, *before)
		}
	}

	switch ev := c.ev; ev.op {
	case opSettle:
		seen := x.at(*before, now)
		if !ev.byName && c.spent > 0 {
			x.fail("one permit has changed the breaker twice")
		}
		if !ev.byName && ev.epoch != seen.epoch && ev.outcome != OutcomeThrottled && seen.state == StateClosed && next.streak != before.streak {
			x.fail("a result of another period moved the streak")
		}
		x.checkReport(c, before, next)
	case opAdmit:
		if a.reason != StopNone { // whoever is refused does not make others wait
			_, was := x.admission(before, now)
			if a.wait > was {
				x.fail("asking moved the next probe from %d to %d", now+was, now+a.wait)
			}
		}
	case opReset, opIsolate, opConfigure:
		if ev.op != opConfigure && next.epoch == x.at(*before, now).epoch {
			x.fail("%s has begun no epoch", describeEvent(ev))
		}
	}
	if x.carrier.name == realCarrier.name {
		x.compareWithModel(c, before, next, a, now)
	}
}

// checkReport checks that a probe's report frees its slot, whatever it says.
func (x *exploration) checkReport(c *caller, before, next *snapshot) {
	ev, seen := c.ev, x.at(*before, max(c.now, before.since))
	if ev.op == opSettle && seen.state == StateHalfOpen && (ev.byName || ev.probe && ev.epoch == seen.epoch) && next.epoch == seen.epoch {
		x.fail("the probe has reported and its slot is still taken")
	}
}

// justified reports whether a transition may have happened.
func (x *exploration) justified(w *world, c *caller, before *snapshot, ch *change, now int64) bool {
	ev := c.ev
	seen := x.at(*before, now)
	ofProbe := ev.op == opSettle && ch.from == StateHalfOpen && seen.state == StateHalfOpen &&
		(ev.byName || ev.probe && ev.epoch == before.epoch)
	switch ch.cause {
	case CauseLeaseExpired:
		return ch.from == StateHalfOpen && ch.to == StateOpen && now >= before.until && ch.when == before.until
	case CauseFailureThreshold:
		return ch.from == StateClosed && ch.to == StateOpen && ev.op == opSettle && ev.outcome == OutcomeFailure &&
			(ev.byName || ev.epoch == before.epoch) && before.streak+1 >= before.cfg.threshold && before.cfg.threshold > 0
	case CauseProbeAdmitted:
		return ch.from == StateOpen && ch.to == StateHalfOpen && ev.op == opAdmit && !before.isolated && now >= seen.until &&
			(before.state != StateOpen || now >= w.promised)
	case CauseProbeSucceeded:
		return ofProbe && ch.to != StateHalfOpen && (ev.outcome == OutcomeSuccess || ev.outcome == OutcomeRejected)
	case CauseProbeFailed:
		return ofProbe && ch.to == StateOpen && ev.outcome == OutcomeFailure
	case CauseProbeThrottled:
		return ofProbe && ch.to == StateOpen && ev.outcome == OutcomeThrottled
	case CauseProbeReturned:
		return ofProbe && ch.to == StateOpen && ev.outcome == OutcomeNeutral
	case CauseReset:
		return ch.to == StateClosed && ev.op == opReset
	case CauseIsolated:
		return ch.to == StateOpen && ev.op == opIsolate
	case CauseReconfigured:
		return ch.from != StateClosed && ch.to == StateClosed && ev.op == opConfigure && ev.cfg.threshold == 0
	}
	return false
}

// compareWithModel checks a swap against the rules in words.
func (x *exploration) compareWithModel(c *caller, before, next *snapshot, a *answer, now int64) {
	at := time.Duration(now)
	b := modelOf(before, now)
	var events []model.Event
	switch ev := c.ev; ev.op {
	case opAdmit:
		var said model.Answer
		said, events = b.Ask(at)
		if said.Reason != a.reason.Detail() || said.Wait != time.Duration(a.wait) || said.Probe != a.probe {
			x.fail("the model answers %+v, the machine %+v", said, *a)
		}
	case opSettle:
		events = b.Report(at, model.Report{
			ByName: ev.byName, Probe: ev.probe, Epoch: int(ev.epoch), Outcome: ev.outcome.String(), Kind: ev.kind.String(),
			Took: time.Duration(ev.took), RetryAfter: time.Duration(ev.retryAfter),
		})
	case opKeepAlive:
		events = b.KeepAlive(at, int(ev.epoch))
	case opReset:
		events = b.Reset(at, 0)
	case opIsolate:
		events = b.Isolate(at)
	case opConfigure:
		events = b.Configure(at, modelConfig(ev.cfg), 0)
	}
	var said []model.Event
	for _, ch := range a.changes[:a.n] {
		said = append(said, model.Event{
			From: ch.from.String(), To: ch.to.String(), Cause: ch.cause.String(), Epoch: int(ch.epoch), When: time.Duration(ch.when),
			Streak: ch.streak, Kind: ch.kind.String(), Wait: time.Duration(ch.wait),
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

func modelConfig(p *params) model.Config {
	return model.Config{
		Threshold: p.threshold, Recovery: time.Duration(p.recovery), Lease: time.Duration(p.lease), MaxOpen: time.Duration(p.maxOpen),
		Growth: int(p.growth), ProbeSuccesses: p.successes,
	}
}

// modelOf returns what a snapshot means in the words of the model.
func modelOf(s *snapshot, now int64) model.Breaker {
	until := time.Duration(s.until)
	b := model.Breaker{
		Config: modelConfig(s.cfg), State: s.state.String(), Epoch: int(s.epoch), Since: time.Duration(s.since),
		Streak: s.streak, Kind: s.kind.String(), Trips: int(s.trips),
		Isolated: s.isolated, Stated: s.limited, Lost: s.lost,
		LeaseFor: time.Duration(s.lease), Cooldown: time.Duration(s.cooldown), LeastLease: time.Duration(s.learned), Operated: int(s.operated),
		FailedProbes: s.failed, GoodProbes: s.passed,
	}
	switch {
	case s.state == StateOpen:
		b.Due = until
	case s.state == StateHalfOpen:
		b.LeaseEnd = until
	case s.until > now:
		b.Throttled = until
	}
	return b
}

func longExploration() bool { return os.Getenv("TOOLHEALTH_LONG") != "" }

func TestNoInterleavingBreaksTheMachine(t *testing.T) {
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
	stepping := func(name string, f func(s snapshot, ev event, now int64) (snapshot, answer)) carrier {
		return broken(name, func(c *carrier) { c.step = f })
	}
	return []carrier{
		broken("state and until are written one after the other", func(c *carrier) { c.torn = true }),
		broken("the probe is given out by a plain store", func(c *carrier) { c.blind = true }),
		broken("a lost swap is taken for a won one", func(c *carrier) { c.deaf = true }),
		broken("a permit settles twice", func(c *carrier) { c.forgetful = true }),
		broken("a lease ends by a timer only", func(c *carrier) {
			hide := func(s snapshot) snapshot {
				if s.state == StateHalfOpen {
					s.until = forever
				}
				return s
			}
			c.at = func(s snapshot, _ int64) snapshot { return s }
			c.admission = func(s *snapshot, now int64) (StopReason, int64) {
				hidden := hide(*s)
				return hidden.admission(now)
			}
			c.step = func(s snapshot, ev event, now int64) (snapshot, answer) {
				n, a := step(hide(s), ev, now)
				if n.epoch == s.epoch && n.state == StateHalfOpen {
					n.until = s.until
				}
				return n, a
			}
		}),
		broken("only the gate notices the end of a lease", func(c *carrier) {
			c.at = func(s snapshot, _ int64) snapshot { return s }
			c.admission = func(s *snapshot, now int64) (StopReason, int64) {
				if s.expired(now) {
					return StopProbeInFlight, 1
				}
				return s.admission(now)
			}
		}),
		broken("the cooldown runs from when the end of the lease is noticed", func(c *carrier) {
			late := func(s snapshot, now int64) snapshot {
				if s.expired(now) {
					s.until = now
				}
				return s
			}
			c.at = func(s snapshot, now int64) snapshot { return late(s, now).at(now) }
			c.admission = func(s *snapshot, now int64) (StopReason, int64) {
				seen := late(*s, now)
				return seen.admission(now)
			}
			c.step = func(s snapshot, ev event, now int64) (snapshot, answer) { return step(late(s, now), ev, now) }
		}),
		stepping("epochs are not looked at", func(s snapshot, ev event, now int64) (snapshot, answer) {
			ev.epoch = s.at(now).epoch
			return step(s, ev, now)
		}),
		stepping("any success closes a half-open breaker", func(s snapshot, ev event, now int64) (snapshot, answer) {
			if ev.op == opSettle && ev.outcome == OutcomeSuccess && s.at(now).state == StateHalfOpen {
				ev.byName = true
			}
			return step(s, ev, now)
		}),
		stepping("a late success closes", func(s snapshot, ev event, now int64) (snapshot, answer) {
			n, a := step(s, ev, now)
			if ev.op == opSettle && ev.outcome == OutcomeSuccess && n.state == StateOpen && !n.isolated {
				n.closeAt(max(now, n.since), 0)
				n.epoch++
				a.record(&n, StateOpen, CauseProbeSucceeded)
				a.changed, a.epoch = true, n.epoch
			}
			return n, a
		}),
		stepping("a neutral probe keeps the slot", func(s snapshot, ev event, now int64) (snapshot, answer) {
			if ev.op == opSettle && ev.outcome == OutcomeNeutral {
				return s, answer{epoch: s.epoch}
			}
			return step(s, ev, now)
		}),
		stepping("a reset keeps the epoch", func(s snapshot, ev event, now int64) (snapshot, answer) {
			n, a := step(s, ev, now)
			if ev.op == opReset {
				n.epoch = s.epoch
				a.changed, a.epoch = n != s, n.epoch
			}
			return n, a
		}),
		stepping("late failures restart the cooldown without a bound", func(s snapshot, ev event, now int64) (snapshot, answer) {
			unbounded := *s.cfg
			unbounded.maxOpen = 0
			loose := s
			loose.cfg = &unbounded
			n, a := step(loose, ev, now)
			if n.cfg == &unbounded {
				n.cfg = s.cfg
			}
			a.changed = n != s
			return n, a
		}),
	}
}

func TestTheExplorerCatchesBrokenMachines(t *testing.T) {
	for _, c := range brokenCarriers() {
		t.Run(c.name, func(t *testing.T) {
			for _, sc := range scopes {
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
