package machine

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Every interleaving of callers of two tools that share a group. An admission looks at
// the tool, then swaps the group's snapshot, then the tool's; each of the three is an
// action of its own, and so are the two swaps of a settlement. What the registry does in
// one goroutine is done here one action at a time.

// admissions is how a call asks and reports. The careless ones differ in one place.
type admissions struct {
	name         string
	groupFirst   bool // the group is asked although the tool refuses
	toolFirst    bool // the tool is asked before the group, and keeps its probe
	keepsLost    bool // the group's probe is not given back by a caller who lost at the tool
	presentEpoch bool // the group's epoch is not carried, but read at the end
	deafGroup    bool // the group hears of failures only
	anySource    bool // by name, every tool's outcome is the group's verdict
	sharesNone   bool // a call inside of the group's probe is refused because of it
	innerReturns bool // a call that shares the group's probe gives it back if it has no verdict
}

// sharing is one run over one scope.
type sharing struct {
	admissions
	callers, calls, ticks int
	byName                bool
	nested                bool // calls ask inside of others, too
	outcomes              []Outcome
	params                *Params
	seen                  map[string]bool
	path                  []string
	violation             string
}

type place uint8

const (
	idle     place = iota
	toGroup        // the tool would admit; next the group is asked
	toTool         // the group has admitted; next the tool is asked
	toReturn       // the tool has refused; next the group's probe is given back
	inside         // the call runs
	toSettle       // the group has heard of the outcome; next the tool does
)

// member is one goroutine that calls tools.
type member struct {
	place   place
	tool    int
	byName  bool
	probes  [2]bool   // of the group and of the tool
	epochs  [2]uint64 // of the group and of the tool
	outcome Outcome
	left    int
	shared  bool // probes[0] is that of the call around it
	around  int  // the caller inside of whose call it asks, counted from 1; 0 for none
}

// shared is one state of everything: the breakers of the group and of two tools.
type shared struct {
	now, ticks int64
	group      *Snapshot
	tools      [2]*Snapshot
	members    [3]member
	forgotten  bool // a caller has lost its permit without a word, or works by name
}

func (x *sharing) fail(format string, args ...any) {
	if x.violation == "" {
		x.violation = fmt.Sprintf(format, args...) + "\n  after:\n    " + strings.Join(x.path, "\n    ")
	}
}

// key tells two worlds apart whose futures may differ.
func (x *sharing) key(w *shared) string {
	b := make([]byte, 0, 96)
	snap := func(s *Snapshot) {
		until := byte(s.Until - w.now)
		if s.Until == 0 || s.Until == Forever {
			until = 99
		}
		b = append(b, byte(s.State), s.undecided, byte(s.Streak), byte(s.Since-w.now), until, byte(s.lease), byte(s.cooldown), byte(s.learned), byte(s.failed), byte(s.source))
	}
	snap(w.group)
	snap(w.tools[0])
	snap(w.tools[1])
	for i := range w.members[:x.callers] {
		m := &w.members[i]
		b = append(b, byte(m.place), byte(m.left), byte(m.around))
		if m.place != idle {
			b = append(b, byte(m.tool), byte(m.outcome), boolByte(m.byName)+2*boolByte(m.probes[0])+4*boolByte(m.probes[1])+8*boolByte(m.shared),
				byte(w.group.Epoch-m.epochs[0]), byte(w.tools[m.tool].Epoch-m.epochs[1]))
		}
	}
	return string(append(b, byte(w.ticks), boolByte(w.forgotten)))
}

func (x *sharing) visit(w shared) {
	key := x.key(&w)
	if x.seen[key] || x.violation != "" {
		return
	}
	x.seen[key] = true
	x.check(w)
	try := func(what string, move func(w *shared)) {
		next := w
		x.path = append(x.path, what)
		move(&next)
		x.visit(next)
		x.path = x.path[:len(x.path)-1]
	}
	for i := range x.callers {
		x.moves(&w, i, try)
	}
	if w.ticks > 0 {
		try("the clock ticks", func(w *shared) { w.now, w.ticks = w.now+1, w.ticks-1 })
	}
}

func (x *sharing) moves(w *shared, i int, try func(string, func(*shared))) {
	m := &w.members[i]
	does := func(what string, act func(w *shared, m *member)) {
		try(fmt.Sprintf("caller %d %s", i, what), func(w *shared) { act(w, &w.members[i]) })
	}
	for _, other := range w.members[:x.callers] {
		if other.around == i+1 {
			return // its tool waits for the call inside of it
		}
	}
	switch m.place {
	case idle:
		if m.left == 0 {
			return
		}
		for tool := range w.tools {
			does(fmt.Sprint("asks for tool ", tool), func(w *shared, m *member) { x.ask(w, m, tool, 0) })
			for o, outer := range w.members[:x.callers] {
				if x.nested && o != i && outer.place == inside && outer.tool != tool {
					does(fmt.Sprintf("asks for tool %d inside of the call of %d", tool, o), func(w *shared, m *member) { x.ask(w, m, tool, o+1) })
				}
			}
		}
	case toGroup:
		does("asks the group", x.askGroup)
	case toTool:
		does("asks the tool", x.askTool)
	case toReturn:
		does("gives the group's probe back", func(w *shared, m *member) {
			w.group, _ = Step(w.group, &Event{Op: OpRelease, Probe: true, Epoch: m.epochs[0]}, w.now)
			m.end()
		})
	case inside:
		for _, outcome := range x.outcomes {
			does(fmt.Sprint("tells the group of outcome ", outcome), func(w *shared, m *member) { x.tellGroup(w, m, outcome) })
		}
		if !m.byName {
			does("loses its permit", func(w *shared, m *member) { m.end(); w.forgotten = true })
		}
	case toSettle:
		does("tells the tool", func(w *shared, m *member) {
			w.tools[m.tool], _ = Step(w.tools[m.tool], &Event{
				Op: OpSettle, ByName: m.byName, Probe: m.probes[1], Epoch: m.epochs[1], Outcome: m.outcome, Kind: Timeout,
			}, w.now)
			m.end()
		})
	}
}

// ask begins a call of m, inside of that of another caller if around is not 0.
func (x *sharing) ask(w *shared, m *member, tool, around int) {
	*m = member{tool: tool, byName: x.byName, left: m.left - 1, around: around}
	w.forgotten = w.forgotten || x.byName
	x.look(w, m)
}

// end ends the call of m, or its admission.
func (m *member) end() { m.place, m.around = idle, 0 }

// look looks at the tool without taking anything.
func (x *sharing) look(w *shared, m *member) {
	reason, _, _ := w.tools[m.tool].Refusal(w.now)
	m.place = toGroup
	if reason != Admitted && !x.groupFirst {
		m.end()
	}
	if x.toolFirst {
		m.place = toTool
	}
}

// insideProbe reports whether the call around that of m has the group's probe.
func (m *member) insideProbe(w *shared) bool {
	if m.around == 0 || !w.group.ProbeIsOut(w.now) {
		return false
	}
	outer := &w.members[m.around-1]
	return outer.probes[0] && outer.epochs[0] == w.group.Epoch
}

func (x *sharing) askGroup(w *shared, m *member) {
	before := w.group
	shares := m.insideProbe(w)
	if shares && !x.sharesNone {
		m.probes[0], m.shared, m.epochs[0], m.place = true, true, w.group.Epoch, toTool
		return
	}
	next, a := Step(before, &Event{Op: OpAdmit, Source: uint64(m.tool + 1)}, w.now)
	w.group, m.probes[0], m.epochs[0] = next, a.Probe, a.Epoch
	switch {
	case a.Reason != Admitted:
		if m.end(); shares {
			x.fail("a call is refused because of a probe that waits for it")
		}
		if len(a.Changes) == 0 && next != before || m.probes[1] {
			x.fail("the group refuses, and something has changed: the call has probes %v", m.probes)
		}
	case x.toolFirst:
		m.place = inside
	default:
		m.place = toTool
	}
}

func (x *sharing) askTool(w *shared, m *member) {
	next, a := Step(w.tools[m.tool], &Event{Op: OpAdmit}, w.now)
	w.tools[m.tool], m.probes[1], m.epochs[1] = next, a.Probe, a.Epoch
	switch {
	case a.Reason == Admitted && x.toolFirst:
		m.place = toGroup
	case a.Reason == Admitted:
		m.place = inside
	case m.probes[0] && !x.keepsLost && !m.shared:
		m.place = toReturn
	default:
		m.end()
	}
}

func (x *sharing) tellGroup(w *shared, m *member, outcome Outcome) {
	m.outcome, m.place = outcome, toSettle
	if x.deafGroup && outcome != Failure || m.shared && outcome == Neutral && !x.innerReturns {
		return
	}
	ev := Event{
		Op: OpSettle, ByName: m.byName, Probe: m.probes[0] && !m.byName, Epoch: m.epochs[0],
		Source: uint64(m.tool + 1), Outcome: outcome, Kind: Timeout,
	}
	if x.presentEpoch {
		ev.Epoch = w.group.Epoch
	}
	if x.anySource {
		ev.Source = w.group.source
	}
	before := w.group.AsOf(w.now)
	w.group, _ = Step(w.group, &ev, w.now)
	if m.shared && outcome == Neutral && w.group.Epoch != before.Epoch {
		x.fail("a call without a verdict has ended the probe of the call around it")
	}
	if before.State == HalfOpen && w.group.State != HalfOpen && (m.byName && before.source != uint64(m.tool+1) || !m.byName && (!m.probes[0] || m.epochs[0] != before.Epoch)) {
		x.fail("a call that is not the group's probe has decided")
	}
	if before.State == Closed && w.group.Streak > before.Streak && !m.byName && m.epochs[0] != before.Epoch {
		x.fail("a failure of an older period counts in the group")
	}
}

// check looks at one state: what is predicted is what happens, no probe is lost, and
// there is a way back.
func (x *sharing) check(w shared) {
	held := w.forgotten
	for i := range w.members[:x.callers] {
		m := &w.members[i]
		held = held || m.place != idle && m.probes[0]
	}
	if group := w.group.AsOf(w.now); group.State == HalfOpen && !held {
		x.fail("the group's probe is out, and nobody has it")
	}
	for tool := range w.tools {
		x.checkPrediction(w, tool)
	}
	x.checkWayBack(w)
}

// checkPrediction lets one caller ask while no other does.
func (x *sharing) checkPrediction(w shared, tool int) {
	own, _, _ := w.tools[tool].Refusal(w.now)
	group, _, _ := w.group.Refusal(w.now)
	before := w.group.AsOf(w.now)
	m := &member{tool: tool}
	for x.look(&w, m); m.place != idle && m.place != inside; {
		switch m.place {
		case toGroup:
			x.askGroup(&w, m)
		case toTool:
			x.askTool(&w, m)
		case toReturn:
			m.place = idle
		}
	}
	if in := m.place == inside; in != (own == Admitted && group == Admitted) {
		x.fail("tool %d: the tool says %v, the group %v, and the gate lets in: %v", tool, own, group, in)
	}
	if after := w.group.AsOf(w.now); own != Admitted && after.Epoch != before.Epoch {
		x.fail("tool %d refuses, and the group has changed", tool)
	}
}

// checkWayBack lets everyone be lost and time go by: then successful calls close all.
func (x *sharing) checkWayBack(w shared) {
	w.now += 100
	for range 4 {
		for tool := range w.tools {
			m := &member{tool: tool}
			x.look(&w, m)
			if m.place != idle {
				if !x.toolFirst {
					x.askGroup(&w, m)
				} else if x.askTool(&w, m); m.place != idle {
					x.askGroup(&w, m)
				}
			}
			if m.place == toTool {
				x.askTool(&w, m)
			}
			if m.place == inside {
				x.tellGroup(&w, m, Success)
				w.tools[tool], _ = Step(w.tools[tool], &Event{Op: OpSettle, Probe: m.probes[1], Epoch: m.epochs[1]}, w.now)
			}
		}
		w.now += 100
	}
	if w.group.State != Closed || w.tools[0].State != Closed || w.tools[1].State != Closed {
		x.fail("there is no way back: the group is %v, the tools %v and %v", w.group.State, w.tools[0].State, w.tools[1].State)
	}
}

// shareScopes are bounded like the scopes of one breaker: short ones take a second, long
// ones a minute.
func shareScopes(long bool) []sharing {
	p := NewParams(Config{FailureThreshold: 1, RecoveryDuration: 3, ProbeTimeout: 2, MaxOpenDuration: 7, MaxStatedWait: 9})
	verdicts := []Outcome{Success, Failure}
	if !long {
		return []sharing{
			{callers: 2, calls: 2, ticks: 3, outcomes: verdicts, params: p},
			{callers: 2, calls: 1, ticks: 4, outcomes: everyOutcome, params: p},
			{callers: 2, calls: 2, ticks: 3, outcomes: verdicts, params: p, byName: true},
			{callers: 3, calls: 1, ticks: 1, outcomes: verdicts, params: p},
			{callers: 2, calls: 2, ticks: 2, outcomes: []Outcome{Success, Failure, Neutral}, params: p, nested: true},
		}
	}
	return []sharing{
		{callers: 2, calls: 2, ticks: 5, outcomes: []Outcome{Success, Failure, Neutral}, params: p},
		{callers: 2, calls: 2, ticks: 5, outcomes: verdicts, params: p, byName: true},
		{callers: 3, calls: 1, ticks: 4, outcomes: verdicts, params: p},
		{callers: 2, calls: 2, ticks: 4, outcomes: []Outcome{Success, Failure, Neutral}, params: p, nested: true},
		{callers: 3, calls: 1, ticks: 3, outcomes: verdicts, params: p, nested: true},
	}
}

// begun is the state that a scope begins with: all breakers are closed, or all are open
// and due in a unit.
func (x *sharing) begun(tripped bool) shared {
	w := shared{ticks: int64(x.ticks)}
	first := x.params.Initial
	if tripped {
		first, _ = Step(first, &Event{Op: OpSettle, ByName: true, Outcome: Failure, Kind: Timeout}, 0)
		w.now = first.Until - 1
	}
	w.group, w.tools[0], w.tools[1] = first, first, first
	for i := range w.members[:x.callers] {
		w.members[i].left = x.calls
	}
	return w
}

func TestExplore_ToolsOfOneGroupShareNoProbeAndLoseNone(t *testing.T) {
	for i, x := range shareScopes(os.Getenv("TOOLHEALTH_LONG") != "") {
		for _, tripped := range []bool{true, false} {
			x.seen = make(map[string]bool)
			x.visit(x.begun(tripped))
			assert.Empty(t, x.violation)
			t.Logf("scope %d, tripped %v: %d states", i, tripped, len(x.seen))
			assert.Greater(t, len(x.seen), 1000, "the scope is explored")
		}
	}
}

func TestExplore_CarelessAdmissionsAreCaught(t *testing.T) {
	for _, careless := range []admissions{
		{name: "a tool that refuses takes the group's probe", groupFirst: true},
		{name: "the tool is asked first and keeps its probe", toolFirst: true},
		{name: "who loses at the tool keeps the group's probe", keepsLost: true},
		{name: "the group's epoch is not carried", presentEpoch: true},
		{name: "an answer is not counted", deafGroup: true},
		{name: "by name, any tool of the group decides", anySource: true},
		{name: "a call inside of the group's probe does not share it", sharesNone: true},
		{name: "a call that shares the group's probe gives it back", innerReturns: true},
	} {
		caught := ""
		for _, x := range shareScopes(false) {
			x.admissions = careless
			for _, w := range []shared{x.begun(true), x.begun(false)} {
				if x.seen = make(map[string]bool); caught == "" {
					x.visit(w)
					caught = x.violation
				}
			}
		}
		assert.NotEmpty(t, caught, careless.name)
		t.Logf("%s: %.150s", careless.name, caught)
	}
}
