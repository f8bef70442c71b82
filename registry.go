package toolhealth

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolhealth/toolhealth/internal/hooks"
	"github.com/toolhealth/toolhealth/internal/machine"
	"github.com/toolhealth/toolhealth/internal/nametable"
	"github.com/toolhealth/toolhealth/internal/queue"
	"github.com/toolhealth/toolhealth/internal/stamp"
)

// Registry keeps the health of every tool by its name: its statistics and a
// breaker. Everything else in this package builds on it.
//
// A tool appears at its first AllowRequest, Record or [Gate.Allow]; reading never
// creates one. Any text but the empty one is a name, byte for byte: "search" and
// "Search" are two tools. The empty name is always refused. For tools with tenants
// use names such as "tenant|tool"; each has a health of its own.
//
// Names come from a language model, so Config.MaxTools bounds the number of
// entries. At the bound a new name takes the place of an entry that is idle and holds
// nothing against its tool: closed, without a streak, not throttled. What is known
// against a tool fades: an entry that was neither asked for nor reported of for
// MaxOpenDuration (10m if that is off) after its last cooldown, throttle or failure may
// go, too. An entry never goes while the tool is registered or isolated, while a permit
// or a guarded call is out or a detached attempt is running, or while retries of that
// time have left its budget less than full. The registry looks at 64 entries at most
// for one that may go. If there is none among them, the call is admitted without an
// entry and counted in Summary.Untracked; a name that keeps calling soon finds room.
//
// Memory is at most about 400 bytes for each entry, and the names themselves: a
// runtime that passes on names of any length should cut them, or set
// RegisteredOnly. What follows is made when it is needed: 448 bytes for how long
// successes took, 48 for each doubling of how long failures took, which are mostly one
// or two and at most 28, and up to 530 for counters by kind and reason.
//
// There are at most as many groups as tools: a tool for which there is no room has none,
// and a group without tools fades like an entry.
//
// All methods may be called from any goroutine. AllowRequest, Available and the
// Record methods take no lock, except for the first call of a new name. They
// allocate nothing unless a breaker changes. The clock is the monotonic one, read
// since the registry was made; inside a testing/synctest bubble, make it there.
//
// The zero Registry, and a nil one, admits everything and records nothing.
type Registry struct {
	base  time.Time
	table nametable.Table[entry]
	hooks hooks.List[Transition]
	waits hooks.List[StatedWait]
	conf  atomic.Pointer[compiled] // replaced as a whole under mu

	untracked atomic.Uint64
	evicted   atomic.Uint64

	// version grows before and after each change of the names in table, so it is odd while
	// one is under way; written under mu.
	version atomic.Uint64
	// ranking has the nodes by name as they were at a version. It is nil until a summary,
	// and after a node has left the table, which it must not keep alive. Written by
	// summaries.
	ranking atomic.Pointer[ranking]

	// mu is held to add, remove and reconfigure entries. No hook and no other
	// code of a user runs under it.
	mu  sync.Mutex
	own map[string]*machine.Params // by Register with a config; under mu
	// queue holds every entry that is not registered, the next candidate for
	// eviction first; under mu.
	queue queue.Queue[node]

	// groups has every group that a tool is in, and those whose tools have gone and
	// against which something is held: these are in vacant, the first to go first.
	groups nametable.Table[group]
	vacant queue.Queue[group] // under mu
}

// node is not used inside of entry: go/types panics on that circle through the alias if it
// sees the files in another order than the compiler.
type node = nametable.Node[entry]

// ranking is the nodes of a table at one version, by name. It never changes.
type ranking struct {
	version uint64
	nodes   []*node
}

// entry is what a registry keeps of one tool. What every call writes lies in the
// middle, so that two tools whose entries are neighbours in memory do not share a
// cache line that is written.
type entry struct {
	guard atomic.Pointer[guardStats] // nil until the first guarded call; set once
	// aside has what few tools need; nil until the first need, set once.
	aside atomic.Pointer[aside]
	// used says that the tool was called again since its entry was made, or was
	// last looked at for eviction. Set by calls, cleared under Registry.mu.
	used atomic.Bool
	// refusing says that the last answer of the gate was a refusal. Set and cleared
	// by calls that were answered. It spares admitted calls a look at the counters of
	// refusals, which lie in another cache line.
	refusing atomic.Bool
	carrier
	stats toolStats
	// place is the entry's place in Registry.queue, in which it is unless it is
	// registered. Under Registry.mu.
	place queue.Links[nametable.Node[entry]]
	// group is what the tool belongs to; nil without one. Set before the entry can be
	// seen, and never changed.
	group *group
	// seen is when the tool was last asked for or reported of, or askedLately. Written by
	// those calls, if something is held against the tool (else used is enough), and under
	// Registry.mu when it is looked at for eviction.
	seen atomic.Int64
}

// aside is what few tools need.
type aside struct {
	// wouldRefuse counts the calls that ObserveOnly let in. Written by those calls.
	wouldRefuse atomic.Uint64
	// labels is nil until Register gives some. It replaces them as a whole.
	labels   atomic.Pointer[map[string]string]
	isolator isolator
}

// asides returns e.aside, made if it is nil.
func (e *entry) asides() *aside { return madeOnce(&e.aside) }

// isolatedBy returns the operator whose Isolate began this epoch; "" if no operator did.
func (e *entry) isolatedBy(epoch uint64) string {
	if a := e.aside.Load(); a != nil {
		return a.isolator.of(epoch)
	}
	return ""
}

// NewRegistry returns an empty registry under the default configuration.
func NewRegistry() *Registry { return newRegistry(compile(Config{})) }

// NewRegistryWithConfig returns an empty registry, or every problem of the
// configuration at once.
func NewRegistryWithConfig(c Config) (*Registry, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return newRegistry(compile(c)), nil
}

func newRegistry(k *compiled) *Registry {
	r := &Registry{
		base: time.Now(), own: make(map[string]*machine.Params),
		queue:  queue.New(func(n *node) *queue.Links[node] { return &n.Value.place }),
		vacant: queue.New(func(g *group) *queue.Links[group] { return &g.vacant }),
	}
	r.conf.Store(k)
	return r
}

// now returns the registry's time.
func (r *Registry) now() int64 { return since(r.base) }

// inert reports whether r keeps nothing: it is nil or zero.
func (r *Registry) inert() bool { return r == nil || r.conf.Load() == nil }

// AllowRequest asks whether a call of the tool may go ahead. It may hand out the
// one probe, so ask only for a call that you will make, and then report it.
// Nothing ties the report to this call; [Gate.Allow] does.
//
// For a healthy tool it costs one lookup and reads no clock.
func (r *Registry) AllowRequest(tool string) bool {
	if r == nil {
		return true
	}
	if n := r.table.Get(tool); n != nil {
		e := &n.Value
		s := e.snap.Load()
		if s.AdmitsAll() && !e.full(s.Params) && e.group.admitsAll() {
			e.touchUnder(s)
			e.admitted()
			return true
		}
		now := r.now()
		if reason, _, quiet := s.Refusal(now); quiet && !s.Params.ObserveOnly {
			e.see(now)
			e.refuse(StopReason(reason))
			return false
		}
	}
	if r.inert() {
		return true
	}
	_, a := r.admit(tool, r.now(), request{})
	return a.Reason == machine.Admitted
}

// touch notes a use, for eviction.
func (e *entry) touch() {
	if !e.used.Load() {
		e.used.Store(true)
	}
}

// askedLately in entry.seen stands for the time of the next look: a call has asked since
// the last one, and to read the clock would cost it a third of its time.
const askedLately = -1

// touchUnder notes a use of a tool that admits everyone.
func (e *entry) touchUnder(s *machine.Snapshot) {
	e.touch()
	if s.Streak > 0 && e.seen.Load() != askedLately {
		e.seen.Store(askedLately)
	}
}

// admitted notes that a call was admitted.
func (e *entry) admitted() {
	if e.refusing.Load() {
		e.refusing.Store(false)
		e.stats.endRefusals()
	}
}

// refuse notes that a call was refused.
func (e *entry) refuse(reason StopReason) {
	e.stats.refused(reason)
	if !e.refusing.Load() {
		e.refusing.Store(true)
	}
}

// sourceOf tells the tools of a group apart in its breaker.
func sourceOf(n *node) uint64 { return n.Hash() | 1 } // zero is no tool

// admit is AllowRequest in full. The node is nil if the call is admitted untracked, or
// the tool is unknown.
func (r *Registry) admit(tool string, now int64, want request) (*node, answer) {
	for {
		n, reason := r.entry(tool, now)
		if n == nil {
			return nil, r.answerUntracked(tool, reason, want.noProbe, now)
		}
		e := &n.Value
		e.see(now)
		want.source = sourceOf(n)
		a, ok := e.decide(now, want, r.hooks.Any())
		if !ok {
			r.notifyGroup(e.group, &a)
			continue // it has just been evicted
		}
		r.notifyAdmission(n, &a, want.permit)
		if a.Reason != machine.Admitted {
			e.refuse(StopReason(a.Reason))
		} else {
			e.admitted()
		}
		return n, a
	}
}

// answerUntracked answers a call of a tool that has no entry, because it is unknown, or
// because the registry is full: then its group may refuse it all the same.
func (r *Registry) answerUntracked(tool string, reason StopReason, noProbe bool, now int64) (a answer) {
	if reason != StopNone {
		a.Reason, a.Wait = machine.Reason(reason), r.conf.Load().breaker.Hint()
		return a
	}
	g := r.groupUnseen(tool)
	why, wait := g.refusal(now)
	if noProbe && why == StopNone && !g.admitsAll() && !g.observes() {
		why, wait = StopCircuitOpen, g.snap.Load().Params.Hint() // it is due for a probe
	}
	if why != StopNone {
		a.Reason, a.Wait, a.refusing = machine.Reason(why), wait, g
		return a
	}
	r.untracked.Add(1)
	return a
}

// decide answers one call, and counts a permit as given out if it lets the call in. It
// reports false if the entry has left the registry.
func (e *entry) decide(now int64, want request, hooked bool) (a answer, ok bool) {
	p := e.snap.Load().Params
	free := e.take(p.MaxInFlight, want.permit) // before the snapshot is looked at: see evict
	a, ok = e.tryAdmit(now, &want, free, p.ObserveOnly, hooked)
	if ok && a.Reason != machine.Admitted && p.ObserveOnly && a.refusing == nil {
		a.Reason, a.observed = machine.Admitted, true
		if want.permit && !free {
			e.stats.admitted.Add(1)
		}
	}
	if a.observed && ok && a.Reason == machine.Admitted {
		e.asides().wouldRefuse.Add(1)
	}
	if want.permit && free && (!ok || a.Reason != machine.Admitted) {
		e.stats.settled.Add(1)
	}
	return a, ok
}

// take reports whether fewer than limit permits are out, and counts a permit as given
// out if so. A limit of zero is none.
func (e *entry) take(limit uint64, permit bool) bool {
	switch {
	case !permit:
		return limit == 0 || e.stats.inFlight() < limit
	case limit > 0:
		return e.stats.admitBelow(limit)
	}
	e.stats.admitted.Add(1)
	return true
}

// full reports whether as many permits are out as may be.
func (e *entry) full(p *machine.Params) bool {
	return p.MaxInFlight > 0 && e.stats.inFlight() >= p.MaxInFlight
}

// busyWait is the wait of a busy tool, where the real one is unknown.
const busyWait = int64(time.Second)

// look says why the tool by itself refuses a caller, which found a free place or not.
// quiet means that its breaker need not be asked.
func (e *entry) look(s *machine.Snapshot, now int64, free bool) (reason machine.Reason, wait int64, quiet bool) {
	reason, wait, quiet = s.Refusal(now)
	switch {
	case free:
		return reason, wait, quiet
	case reason == machine.Admitted:
		return machine.Reason(StopBusy), busyWait, true
	}
	return reason, wait, true
}

// refusal says why a caller would be refused at now and for how long; StopNone and 0 if
// it would not. It is what decide does, seen by those who only look.
func (e *entry) refusal(s *machine.Snapshot, now int64) (StopReason, int64) {
	group, longer := e.group.refusal(now)
	reason, wait, _ := s.Refusal(now)
	switch {
	case s.Params.ObserveOnly:
	case reason != machine.Admitted:
		return StopReason(reason), max(wait, longer)
	case e.full(s.Params):
		return StopBusy, max(busyWait, longer)
	}
	return group, longer
}

// notifyAdmission delivers what a call that asked has changed. If a hook ends the
// goroutine, the caller never gets the permit or the probe, so it is given back.
func (r *Registry) notifyAdmission(n *node, a *answer, permit bool) {
	if !a.changed() {
		return
	}
	tool, group := a.tickets()
	got, told := admission{node: n, tool: tool, group: group}, false
	defer func() {
		switch {
		case told:
		case permit && a.Reason == machine.Admitted:
			got.release(r)
		default: // by name no caller was told yes
			got.tell(r, machine.OpRelease)
		}
	}()
	e := &n.Value
	r.notifyGroup(e.group, a)
	e.deliver(&a.Answer, owner{tool: n.Name()}, "", r.base, &r.hooks)
	got.tell(r, machine.OpBegin) // like the clock of a call, leases begin after hooks were told
	told = true
}

// notifyGroup delivers what an answer has changed in the group.
func (r *Registry) notifyGroup(g *group, a *answer) {
	if g != nil {
		g.deliver(&a.group, owner{group: g.name}, "", r.base, &r.hooks)
		g.deliver(&a.lost, owner{group: g.name}, "", r.base, &r.hooks)
	}
}

// admitFast is admit with a permit for a tool whose breaker admits everyone, which
// is nearly always so. It returns nil for any other tool; then nothing happened.
func (r *Registry) admitFast(tool string) (n *node, epoch, groupEpoch uint64) {
	n = r.table.Get(tool)
	if n == nil {
		return nil, 0, 0
	}
	e := &n.Value
	if e.snap.Load().Params.MaxInFlight > 0 {
		return nil, 0, 0
	}
	e.stats.admitted.Add(1) // before the snapshot is looked at: see evict
	s := e.snap.Load()
	if g := e.group; g != nil {
		in := g.snap.Load()
		groupEpoch = in.Epoch
		if !in.AdmitsAll() {
			s = in // refuse below
		}
	}
	if !s.AdmitsAll() {
		e.stats.settled.Add(1)
		return nil, 0, 0
	}
	e.touchUnder(s)
	e.admitted()
	return n, s.Epoch, groupEpoch
}

// tryAdmit asks the breakers. A refusal needs no step. With observe, the caller is let in
// whatever the tool answers, so the group is asked all the same, and its probe kept.
func (e *entry) tryAdmit(now int64, want *request, free, observe, hooked bool) (a answer, ok bool) {
	s := e.snap.Load()
	reason, wait, quiet := e.look(s, now, free)
	own := machine.Answer{Reason: reason, Wait: wait, Epoch: s.Epoch}
	if quiet && !observe {
		_, longer := e.group.refusal(now)
		own.Wait = max(wait, longer)
		return answer{Answer: own}, !s.Evicted
	}
	if reason == machine.Admitted || observe {
		if a = e.askGroup(now, want, hooked); a.refusing != nil {
			a.Epoch = s.Epoch
			return a, true
		}
	}
	if quiet {
		if a.Answer = own; s.Evicted {
			e.returnProbe(&a, now)
		}
		return a, !s.Evicted
	}
	ev := machine.Event{Op: machine.OpAdmit, LeaseFloor: want.leaseFloor, NoProbe: want.noProbe, Hooked: hooked}
	ok = e.apply(&ev, now, &e.stats, &a.Answer)
	if !ok || a.Reason != machine.Admitted && !observe { // another caller was quicker at the tool
		e.returnProbe(&a, now)
	}
	return a, ok
}

// askGroup asks the group of e, if it has one.
func (e *entry) askGroup(now int64, want *request, hooked bool) (a answer) {
	g := e.group
	if g == nil {
		return a
	}
	a.group, a.shared = g.admit(want, now, hooked)
	switch {
	case a.group.Reason == machine.Admitted:
	case g.observes():
		a.observed = true
	default:
		a.Reason, a.Wait, a.refusing = a.group.Reason, a.group.Wait, g
	}
	return a
}

// returnProbe gives back the probe of the group that an answer has, unless it is that of
// the attempt around the call.
func (e *entry) returnProbe(a *answer, now int64) {
	if !a.group.Probe {
		return
	}
	a.group.Probe = false
	if !a.shared {
		back := machine.Event{Op: machine.OpRelease, Epoch: a.group.Epoch, Probe: true}
		e.group.apply(&back, now, nil, &a.lost)
	}
}

// Available reports what AllowRequest would answer at this instant. It changes
// nothing, takes no probe and creates no entry.
func (r *Registry) Available(tool string) bool {
	if r.inert() {
		return true
	}
	n := r.table.Get(tool)
	if n == nil {
		return r.availableUnseen(tool)
	}
	s := n.Value.snap.Load()
	if s.AdmitsAll() && !n.Value.full(s.Params) && n.Value.group.admitsAll() {
		return true
	}
	if s.Evicted {
		return r.availableUnseen(tool)
	}
	reason, _ := n.Value.refusal(s, r.now())
	return reason == StopNone
}

// registered reports whether the entry of a tool is kept from eviction.
func (r *Registry) registered(tool string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.table.Get(tool)
	return n != nil && !n.Value.place.In()
}

// groupOfCalled returns the group that a tool is in since its first call, "" for none,
// and false if it has no entry.
func (r *Registry) groupOfCalled(tool string) (group string, called bool) {
	n := r.table.Get(tool)
	if n == nil {
		return "", false
	}
	return n.Value.group.named(), true
}

// known reports whether a tool without an entry would be admitted.
func (r *Registry) known(tool string) bool {
	if tool == "" {
		return false
	}
	k := r.conf.Load()
	return !k.config.RegisteredOnly || k.tools[tool] != nil
}

// availableUnseen is Available for a tool without an entry, which has a group all the same.
func (r *Registry) availableUnseen(tool string) bool {
	if !r.known(tool) {
		return false
	}
	reason, _ := r.groupUnseen(tool).refusal(r.now())
	return reason == StopNone
}

// groupUnseen returns the group that a tool without an entry is in; nil if there is no
// such group. It may run the user's function.
func (r *Registry) groupUnseen(tool string) *group {
	n := r.groups.Get(r.conf.Load().groupOf(tool))
	if n == nil {
		return nil
	}
	return &n.Value
}

// RecordSuccess says that a call of the tool succeeded and how long it took. It
// is taken for a call of the current epoch, and for the probe's verdict if one is
// out. A negative duration counts as 0.
func (r *Registry) RecordSuccess(tool string, took time.Duration) {
	if r == nil {
		return
	}
	if n := r.table.Get(tool); n != nil {
		if s := n.Value.snap.Load(); s.UnmovedBy(int64(took)) && n.Value.group.unmoved() {
			n.Value.stats.success(int64(took))
			n.Value.touch()
			return // if n was evicted concurrently, this call linearizes just before that
		}
	}
	r.Record(tool, Verdict{}, took)
}

// RecordFailure says that a call of the tool failed and how long it took: a
// failure of kind unknown. See RecordSuccess and [Registry.Record].
func (r *Registry) RecordFailure(tool string, took time.Duration) {
	r.Record(tool, Verdict{Outcome: OutcomeFailure, Kind: KindUnknown}, took)
}

// Record says how a call of the tool ended, in the words of a [Classifier]. See
// RecordSuccess.
func (r *Registry) Record(tool string, v Verdict, took time.Duration) {
	if r.inert() {
		return
	}
	r.record(tool, v, int64(took))
}

func (r *Registry) record(tool string, v Verdict, took int64) {
	now := r.now()
	for told := false; ; told = true {
		n, _ := r.entry(tool, now)
		if n == nil {
			return
		}
		n.Value.stats.outcome(v, took, now)
		ev := &machine.Event{Op: machine.OpSettle, ByName: true}
		if told && r.settle(n, ev, v, took, now) || !told && r.settleBoth(n, ev, nil, v, took, now) {
			return
		}
	}
}

// settle tells the breaker of n how a call ended; the statistics have it already.
// It reports false if n has left the registry.
func (r *Registry) settle(n *node, ev *machine.Event, v Verdict, took, now int64) bool {
	ev.Outcome, ev.Kind = machine.Outcome(v.Outcome), machine.Kind(kindOfError(v.Kind))
	if v.Outcome == OutcomeRejected && v.NotSent { // refused by the client: the tool was never asked
		ev.Outcome = machine.Neutral
	}
	ev.Took, ev.RetryAfter = took, int64(v.RetryAfter)
	n.Value.seen.Store(now)
	a, ok := r.change(n, ev, now)
	if a.Stated > 0 || len(a.Changes) > 0 {
		r.notifySettled(n, a, kindOfError(v.Kind), now)
	}
	return ok
}

// notifySettled tells the hooks what the end of a call has changed. It is apart from
// settle, because nearly no call changes anything that they hear of.
func (r *Registry) notifySettled(n *node, a machine.Answer, kind Kind, now int64) {
	if a.Stated > 0 { // also if a hook ends the goroutine
		when := r.base.Add(time.Duration(now))
		defer r.waits.Call(StatedWait{Tool: n.Name(), Wait: time.Duration(a.Stated), Kind: kind, When: when})
	}
	n.Value.deliver(&a, owner{tool: n.Name()}, "", r.base, &r.hooks)
}

// settleBoth is settle after settleGroup, also if a hook of the group ends the goroutine.
func (r *Registry) settleBoth(n *node, ev *machine.Event, from *admission, v Verdict, took, now int64) (ok bool) {
	if n.Value.group == nil {
		return r.settle(n, ev, v, took, now)
	}
	defer func() { ok = r.settle(n, ev, v, took, now) }()
	r.settleGroup(n, from, v, took, now)
	return ok
}

// settleGroup tells the group of n how a call ended, whose admission is nil if it was made
// by name.
func (r *Registry) settleGroup(n *node, from *admission, v Verdict, took, now int64) {
	g := n.Value.group
	if g == nil {
		return
	}
	if from != nil && from.inner {
		v = Verdict{Outcome: OutcomeNeutral}
	}
	ev := g.settlement(sourceOf(n), v, took, r.conf.Load().config.GroupServerErrors)
	switch {
	case from == nil:
		ev.ByName = true
	case from.group.Shared && ev.Outcome == machine.Neutral:
		return // the attempt around the call goes on
	default:
		ev.Epoch, ev.Probe = from.group.GroupEpoch(g.snap.Load().Epoch), from.group.Probe
	}
	if ev.Probe || !g.indifferent(&ev) {
		r.applyGroup(g, &ev, now)
	}
}

// applyGroup runs one event on the breaker of a group and delivers the transitions.
func (r *Registry) applyGroup(g *group, ev *machine.Event, now int64) {
	var a machine.Answer
	g.apply(ev, now, nil, &a)
	g.deliver(&a, owner{group: g.name}, "", r.base, &r.hooks)
}

// apply runs one event on the machine of n and delivers the transitions. It
// reports false if n has left the registry.
func (r *Registry) apply(n *node, ev *machine.Event, now int64) bool {
	a, ok := r.change(n, ev, now)
	n.Value.deliver(&a, owner{tool: n.Name()}, "", r.base, &r.hooks) // without ok there is nothing
	return ok
}

// change is apply without the delivery, which the caller has to make.
func (r *Registry) change(n *node, ev *machine.Event, now int64) (a machine.Answer, ok bool) {
	for !n.Value.apply(ev, now, &n.Value.stats, &a) {
		if r.waitEvicted(n) {
			return a, false
		}
	}
	return a, true
}

// waitEvicted reports whether n has left the registry. It waits for an eviction
// that is under way, which may yet be called off.
func (r *Registry) waitEvicted(n *node) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return n.Value.snap.Load().Evicted
}

// entry returns the node of a tool for one call of it, and creates the node if
// there is none. Without a node the reason says why: StopUnknownTool, or StopNone
// if the registry is full.
func (r *Registry) entry(tool string, now int64) (*node, StopReason) {
	if n := r.table.Get(tool); n != nil && !n.Value.snap.Load().Evicted {
		n.Value.touch()
		return n, StopNone
	}
	if !r.known(tool) {
		return nil, StopUnknownTool
	}
	group := r.conf.Load().groupOf(tool) // the user's function, so not under the lock
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.table.Get(tool); n != nil {
		n.Value.touch()
		return n, StopNone
	}
	k := r.conf.Load()
	if !r.makeRoom(k.bound, now) {
		return nil, StopNone
	}
	n := r.put(tool, r.join(group, k, now), k)
	r.enqueue(n)
	return n, StopNone
}

// put creates the entry of a tool that has none. The caller holds mu, and makes
// the entry a candidate for eviction unless it is registered.
func (r *Registry) put(tool string, g *group, k *compiled) *node {
	r.version.Add(1)
	defer r.version.Add(1)
	return r.table.Put(tool, func(e *entry) {
		e.group = g
		e.snap.Store(r.paramsOf(tool, k).Initial)
	})
}

// join returns the group of this name, for one tool more; nil if the name is empty, or
// if there are as many groups as there may be tools. The caller holds mu.
func (r *Registry) join(name string, k *compiled, now int64) *group {
	g := r.groupNamed(name, k, now)
	if g == nil {
		return nil
	}
	r.vacant.Remove(g)
	g.members.Add(1)
	return g
}

// groupNamed returns the group of this name, made if there is none. The caller holds mu.
func (r *Registry) groupNamed(name string, k *compiled, now int64) *group {
	if name == "" {
		return nil
	}
	if n := r.groups.Get(name); n != nil {
		return &n.Value
	}
	if r.groups.Len() >= k.bound && !r.dropVacant(now) {
		return nil
	}
	name = strings.Clone(name)               // it may be a part of a whole request
	n := r.groups.Put(name, func(g *group) { // before it can be seen
		g.name = name
		g.snap.Store(k.groupBreaker.Initial)
	})
	return &n.Value
}

// part notes that a tool of the group has gone. The caller holds mu.
func (r *Registry) part(g *group, now int64) {
	if g == nil {
		return
	}
	if g.members.Add(-1) == 0 {
		r.vacate(g, now)
	}
}

// vacate drops a group without tools, or remembers it for later if something is held
// against it. The caller holds mu.
func (r *Registry) vacate(g *group, now int64) {
	g.since = now
	if g.evict(now) {
		r.groups.Delete(r.groups.Get(g.name))
		return
	}
	r.vacant.PushBack(g)
}

// dropVacant drops one vacant group, and reports whether that worked. It looks at
// maxLooks of them at most. The caller holds mu.
func (r *Registry) dropVacant(now int64) bool {
	for range min(maxLooks, r.vacant.Len()) {
		g := r.vacant.Front()
		if g.evict(now) {
			r.vacant.Remove(g)
			r.groups.Delete(r.groups.Get(g.name))
			return true
		}
		r.vacant.MoveToBack(g)
	}
	return false
}

// paramsOf returns what applies to a tool: what Register was given, else
// Config.Tools, else Config.Breaker. The caller holds mu.
func (r *Registry) paramsOf(tool string, k *compiled) *machine.Params {
	if p := r.own[tool]; p != nil {
		return p
	}
	if p := k.tools[tool]; p != nil {
		return p
	}
	return k.breaker
}

// Eviction is first in, first out with a second chance: an entry that comes to the
// front of the queue and may not go, or was used since it was last there, moves to
// the back. A new name costs at most maxLooks looks, however many entries are open
// or in use; if none of them may go the call is admitted untracked, and the next
// one looks further.

// maxLooks is how many entries are looked at for one that may be evicted.
const maxLooks = 64

// makeRoom evicts until there are fewer than bound entries, and reports whether
// that worked. The caller holds mu.
func (r *Registry) makeRoom(bound int, now int64) bool {
	for r.table.Len() >= bound {
		n := r.victim(now)
		if n == nil {
			return false
		}
		r.drop(n, now)
		r.evicted.Add(1)
	}
	return true
}

// victim finds an entry that may be evicted among the first maxLooks, marks it as
// evicted and returns it; nil if there is none. The caller holds mu.
func (r *Registry) victim(now int64) *node {
	for range maxLooks {
		n := r.queue.Front()
		if n == nil {
			return nil
		}
		e := &n.Value
		e.seen.CompareAndSwap(askedLately, now)
		if e.used.Load() && !e.faded(e.snap.Load(), now) {
			e.used.Store(false)
		} else if e.evict(now) {
			return n
		}
		r.queue.MoveToBack(n)
	}
	return nil
}

// evict marks the entry as evicted if it holds nothing that would be missed. admit
// counts a permit and then looks at the snapshot; evict marks the snapshot and then
// looks for permits. So either evict sees the permit, or the caller sees the mark.
func (e *entry) evict(now int64) bool {
	s := e.snap.Load()
	return (s.Forgettable(now) || e.faded(s, now)) && !e.inUse(now) && !e.delivering() && e.snap.CompareAndSwap(s, evictedUnder(s.Params)) && e.confirm(s, now)
}

// faded reports whether what is held against the tool is so old that it may be
// forgotten.
func (e *entry) faded(s *machine.Snapshot, now int64) bool {
	return !s.Forgettable(now) && now >= s.FadesAt(e.lastSeen(now))
}

// see notes when the tool was asked for, to the second: so a storm of refusals writes
// seldom.
func (e *entry) see(now int64) {
	if now-e.seen.Load() >= int64(time.Second) { // true after askedLately, but for the first second
		e.seen.Store(now)
	}
}

// lastSeen is when the tool was last asked for or reported of, if something is held
// against it.
func (e *entry) lastSeen(now int64) int64 {
	if seen := e.seen.Load(); seen != askedLately {
		return seen
	}
	return now
}

// inUse reports whether a permit or a guarded call is out, a detached attempt is
// running, or retries were made so lately that their budget has to be remembered.
func (e *entry) inUse(now int64) bool {
	if e.stats.inUse() {
		return true
	}
	g := e.guard.Load()
	return g != nil && (g.inUse() || !g.tokens.Full() && now-e.lastSeen(now) < e.snap.Load().Params.Patience())
}

// confirm ends an eviction: if a permit has been given out meanwhile it takes the
// mark back and reports false.
func (e *entry) confirm(before *machine.Snapshot, now int64) bool {
	if !e.inUse(now) {
		return true
	}
	e.snap.Store(before) // no other writer replaces the mark
	return false
}

// enqueue makes n the last candidate for eviction. The caller holds mu.
func (r *Registry) enqueue(n *node) { r.queue.PushBack(n) }

// unqueue makes n no candidate. The caller holds mu.
func (r *Registry) unqueue(n *node) { r.queue.Remove(n) }

// drop removes a node that is marked as evicted. The caller holds mu.
func (r *Registry) drop(n *node, now int64) {
	r.unqueue(n)
	r.version.Add(1)
	r.table.Delete(n)
	r.version.Add(1)
	r.ranking.Store(nil)
	r.part(n.Value.group, now)
}

// OnTransition calls fn after each transition of a tool's breaker, on the
// goroutine that caused it or on one that was delivering for the same tool
// already. The new state is visible by then and no lock is held: fn may call
// anything, also for the same tool. The events of one tool come in order and one
// at a time; those of two tools may come at once. A panic in fn is counted in
// Summary.HookPanics and harms neither the call nor other hooks. While fn runs, at
// most 1,024 events of its tool wait; then the oldest are dropped and counted in
// Summary.HookDropped, and epochs jump.
//
// A hook's time is not the tool's: the clock of the call that became the probe, and
// its lease, begin after fn has returned. A hook that hangs loses the probe after
// MaxOpenDuration, or 10m if that is off.
//
// A lease that runs out is noticed by the next call that asks or reports, not by
// a timer; the event says when it was.
//
// When stop has returned, no call of fn is running and none will begin. It waits
// for calls of fn that are running, except when it is called from inside a hook.
func (r *Registry) OnTransition(fn func(Transition)) (stop func()) {
	if r == nil {
		return func() {}
	}
	return r.hooks.Add(fn)
}

// guardStats returns e.guard, made if it is nil.
func (e *entry) guardStats() *guardStats { return madeOnce(&e.guard) }

// admission is one admitted call. Its end is reported with succeed, report or
// release, once.
type admission struct {
	node        *node // nil if the call is not tracked
	start       int64 // time of admission
	tool, group stamp.Ticket
	inner       bool // the error is that of a guarded call further in, which says nothing of this group
}

// succeed reports the outcome that nearly all calls have.
func (a *admission) succeed(r *Registry, now int64) {
	e, took := &a.node.Value, max(now-a.start, 0)
	e.stats.success(took)
	e.stats.settled.Add(1)
	if s := e.snap.Load(); a.tool.Probe || !s.UnmovedBy(took) || a.group.Probe || !e.group.unmoved() {
		ev := a.event(machine.OpSettle)
		r.settleBoth(a.node, &ev, a, Verdict{}, took, now)
	}
}

// report reports any outcome.
func (a *admission) report(r *Registry, v Verdict, now int64) {
	if v.Outcome == OutcomeSuccess {
		a.succeed(r, now)
		return
	}
	e, took := &a.node.Value, max(now-a.start, 0)
	e.stats.outcome(v, took, now)
	defer e.stats.settled.Add(1) // also if a hook ends the goroutine
	ev := a.event(machine.OpSettle)
	r.settleBoth(a.node, &ev, a, v, took, now)
}

// release gives the admission back unused and counts no outcome.
func (a *admission) release(r *Registry) {
	defer a.node.Value.stats.settled.Add(1)
	a.tell(r, machine.OpRelease)
}

// tell tells the breakers whose probe the call is, if any, what becomes of it: the tool's
// also if a hook of the group ends the goroutine. Of a probe that is shared only a sign of
// life is told: the attempt around the call has it.
func (a *admission) tell(r *Registry, op machine.Op) {
	if a.tool.Probe {
		ev := a.event(op)
		defer r.apply(a.node, &ev, r.now())
	}
	if a.group.Probe && (!a.group.Shared || op == machine.OpKeepAlive) {
		ev := a.groupEvent(op)
		r.applyGroup(a.node.Value.group, &ev, r.now())
	}
}

// event returns an event of the tool's breaker.
func (a *admission) event(op machine.Op) machine.Event {
	return machine.Event{Op: op, Epoch: a.tool.ToolEpoch(a.node.Value.snap.Load().Epoch), Probe: a.tool.Probe}
}

// groupEvent returns an event of the group's breaker.
func (a *admission) groupEvent(op machine.Op) machine.Event {
	return machine.Event{Op: op, Epoch: a.group.GroupEpoch(a.node.Value.group.snap.Load().Epoch), Probe: a.group.Probe}
}
