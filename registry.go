package toolhealth

import (
	"container/list"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolhealth/toolhealth/internal/hooks"
	"github.com/toolhealth/toolhealth/internal/machine"
	"github.com/toolhealth/toolhealth/internal/nametable"
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
// RegisteredOnly. Counters by kind and reason are made when they are needed, and take
// up to 530 bytes more.
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

	// mu is held to add, remove and reconfigure entries. No hook and no other
	// code of a user runs under it.
	mu  sync.Mutex
	own map[string]*machine.Params // by Register with a config; under mu
	// queue holds every entry that is not registered, the next candidate for
	// eviction first; under mu.
	queue list.List
}

type node = nametable.Node[entry]

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
	// place is the entry's place in Registry.queue; nil if it is registered. Under
	// Registry.mu.
	place *list.Element
	// seen is when the tool was last asked for or reported of, or askedLately. Written by
	// those calls, if something is held against the tool (else used is enough), and under
	// Registry.mu when it is looked at for eviction.
	seen atomic.Int64
}

// aside is what few tools need.
type aside struct {
	// wouldRefuse counts the calls that ObserveOnly let in. Written by those calls.
	wouldRefuse atomic.Uint64
	// remark is nil until Register or Isolate says something about the tool. They
	// replace it as a whole; a reader may see the one before for an instant.
	remark atomic.Pointer[remark]
}

// asides returns e.aside, made if it is nil.
func (e *entry) asides() *aside { return madeOnce(&e.aside) }

// remark is what people have said about a tool. It never changes.
type remark struct {
	labels map[string]string // by Register
	// by is the operator of the Isolate that began an epoch. It says nothing about
	// another epoch.
	by    string
	epoch uint64
}

// note replaces the remark by what change makes of it.
func (e *entry) note(change func(*remark)) {
	for {
		old := e.asides().remark.Load()
		next := new(remark)
		if old != nil {
			*next = *old
		}
		change(next)
		if e.asides().remark.CompareAndSwap(old, next) {
			return
		}
	}
}

// compiled is a Config as the registry uses it. It never changes.
type compiled struct {
	config  Config
	bound   int // on the number of entries
	breaker *machine.Params
	tools   map[string]*machine.Params
	labels  map[string]map[string]string // by tool
}

// compile returns a valid Config as the registry uses it.
func compile(c Config) *compiled {
	c = c.clone()
	k := &compiled{
		config: c, bound: c.bound(), breaker: newParams(c.Breaker), tools: make(map[string]*machine.Params, len(c.Tools)),
	}
	for tool, own := range c.Tools {
		k.tools[tool] = newParams(own)
	}
	return k
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
	r := &Registry{base: time.Now(), own: make(map[string]*machine.Params)}
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
		if s.AdmitsAll() && !e.full(s.Params) {
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

// request is what a caller wants beside an admission.
type request struct {
	leaseFloor int64 // the shortest lease, if the call is the probe
	permit     bool  // count a permit as given out
	noProbe    bool  // the call must not be the probe
}

// admit is AllowRequest in full. The node is nil if the call is admitted untracked, or
// the tool is unknown.
func (r *Registry) admit(tool string, now int64, want request) (*node, machine.Answer) {
	for {
		n, reason := r.entry(tool, now)
		if n == nil {
			if reason == StopNone {
				r.untracked.Add(1)
				return nil, machine.Answer{}
			}
			return nil, machine.Answer{Reason: machine.Reason(reason), Wait: r.conf.Load().breaker.Hint()}
		}
		e := &n.Value
		e.see(now)
		a, ok := e.decide(now, want, r.hooks.Any())
		if !ok {
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

// decide answers one call, and counts a permit as given out if it lets the call in. It
// reports false if the entry has left the registry.
func (e *entry) decide(now int64, want request, hooked bool) (a machine.Answer, ok bool) {
	p := e.snap.Load().Params
	free := e.take(p.MaxInFlight, want.permit) // before the snapshot is looked at: see evict
	if free {
		a, ok = e.tryAdmit(now, want, hooked)
	} else {
		a, ok = e.refuseBusy(now)
	}
	if ok && a.Reason != machine.Admitted && p.ObserveOnly {
		a.Reason = machine.Admitted
		e.asides().wouldRefuse.Add(1)
		if want.permit && !free {
			e.stats.admitted.Add(1)
		}
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

// refuseBusy refuses a call of a tool that is busy: for what its breaker has against it,
// if there is anything. It reports false if the entry has left the registry.
func (e *entry) refuseBusy(now int64) (machine.Answer, bool) {
	s := e.snap.Load()
	reason, wait, _ := s.Refusal(now)
	if reason == machine.Admitted {
		reason, wait = machine.Reason(StopBusy), busyWait
	}
	return machine.Answer{Reason: reason, Wait: wait, Epoch: s.Epoch}, !s.Evicted
}

// refusal says why a caller would be refused at now and for how long; StopNone and 0 if
// it would not. It is what decide does, seen by those who only look.
func (e *entry) refusal(s *machine.Snapshot, now int64) (StopReason, int64) {
	reason, wait, _ := s.Refusal(now)
	switch {
	case s.Params.ObserveOnly:
		return StopNone, 0
	case reason != machine.Admitted:
		return StopReason(reason), wait
	case e.full(s.Params):
		return StopBusy, busyWait
	}
	return StopNone, 0
}

// notifyAdmission delivers what a call that asked has changed. If a hook ends the
// goroutine, the caller never gets the permit or the probe, so it is given back.
func (r *Registry) notifyAdmission(n *node, a *machine.Answer, permit bool) {
	if len(a.Changes) == 0 {
		return
	}
	told := false
	defer func() {
		switch {
		case told:
		case permit && a.Reason == machine.Admitted:
			(&admission{node: n, epoch: a.Epoch, probe: a.Probe}).release(r)
		case a.Probe: // by name: no caller was told yes
			r.returnProbe(n, a.Epoch)
		}
	}()
	n.Value.deliver(a, n.Name(), "", r.base, &r.hooks)
	told = true
	if a.Probe { // its lease, like the clock of a call, begins after hooks were told
		r.apply(n, &machine.Event{Op: machine.OpBegin, Epoch: a.Epoch, Probe: true}, r.now())
	}
}

// admitFast is admit with a permit for a tool whose breaker admits everyone, which
// is nearly always so. It returns nil for any other tool; then nothing happened.
func (r *Registry) admitFast(tool string) (*node, uint64) {
	n := r.table.Get(tool)
	if n == nil {
		return nil, 0
	}
	e := &n.Value
	if e.snap.Load().Params.MaxInFlight > 0 {
		return nil, 0
	}
	e.stats.admitted.Add(1) // before the snapshot is looked at: see evict
	s := e.snap.Load()
	if !s.AdmitsAll() {
		e.stats.settled.Add(1)
		return nil, 0
	}
	e.touchUnder(s)
	e.admitted()
	return n, s.Epoch
}

// tryAdmit asks the machine. A refusal needs no step.
func (e *entry) tryAdmit(now int64, want request, hooked bool) (machine.Answer, bool) {
	s := e.snap.Load()
	if reason, wait, quiet := s.Refusal(now); quiet {
		return machine.Answer{Reason: reason, Wait: wait, Epoch: s.Epoch}, true
	}
	var a machine.Answer
	ev := machine.Event{Op: machine.OpAdmit, LeaseFloor: want.leaseFloor, NoProbe: want.noProbe, Hooked: hooked}
	ok := e.apply(&ev, now, &e.stats, &a)
	return a, ok
}

// Available reports what AllowRequest would answer at this instant. It changes
// nothing, takes no probe and creates no entry.
func (r *Registry) Available(tool string) bool {
	if r.inert() {
		return true
	}
	n := r.table.Get(tool)
	if n == nil {
		return r.known(tool)
	}
	s := n.Value.snap.Load()
	if s.AdmitsAll() && !n.Value.full(s.Params) {
		return true
	}
	if s.Evicted {
		return r.known(tool)
	}
	reason, _ := n.Value.refusal(s, r.now())
	return reason == StopNone
}

// registered reports whether the entry of a tool is kept from eviction.
func (r *Registry) registered(tool string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.table.Get(tool)
	return n != nil && n.Value.place == nil
}

// known reports whether a tool without an entry would be admitted.
func (r *Registry) known(tool string) bool {
	if tool == "" {
		return false
	}
	k := r.conf.Load()
	return !k.config.RegisteredOnly || k.tools[tool] != nil
}

// RecordSuccess says that a call of the tool succeeded and how long it took. It
// is taken for a call of the current epoch, and for the probe's verdict if one is
// out. A negative duration counts as 0.
func (r *Registry) RecordSuccess(tool string, took time.Duration) {
	if r == nil {
		return
	}
	if n := r.table.Get(tool); n != nil {
		if s := n.Value.snap.Load(); s.UnmovedBy(int64(took)) {
			n.Value.stats.success(&n.Value.stats.nameOK, int64(took))
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
	for {
		n, _ := r.entry(tool, now)
		if n == nil {
			return
		}
		n.Value.stats.outcome(&n.Value.stats.nameOK, v, took, now)
		if r.settle(n, &machine.Event{Op: machine.OpSettle, ByName: true}, v, took, now) {
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
	defer tellStated(&a, n.Name(), kindOfError(v.Kind), r.base.Add(time.Duration(now)), &r.waits) // also if a hook ends the goroutine
	n.Value.deliver(&a, n.Name(), "", r.base, &r.hooks)
	return ok
}

// apply runs one event on the machine of n and delivers the transitions. It
// reports false if n has left the registry.
func (r *Registry) apply(n *node, ev *machine.Event, now int64) bool {
	a, ok := r.change(n, ev, now)
	n.Value.deliver(&a, n.Name(), "", r.base, &r.hooks) // without ok there is nothing
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
	n := r.put(tool, k)
	r.enqueue(n)
	return n, StopNone
}

// put creates the entry of a tool that has none. The caller holds mu, and makes
// the entry a candidate for eviction unless it is registered.
func (r *Registry) put(tool string, k *compiled) *node {
	return r.table.Put(tool, func(e *entry) { e.snap.Store(r.paramsOf(tool, k).Initial) })
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
		r.drop(n)
		r.evicted.Add(1)
	}
	return true
}

// victim finds an entry that may be evicted among the first maxLooks, marks it as
// evicted and returns it; nil if there is none. The caller holds mu.
func (r *Registry) victim(now int64) *node {
	for range maxLooks {
		front := r.queue.Front()
		if front == nil {
			return nil
		}
		n := front.Value.(*node)
		e := &n.Value
		e.seen.CompareAndSwap(askedLately, now)
		if e.used.Load() && !e.faded(e.snap.Load(), now) {
			e.used.Store(false)
		} else if e.evict(now) {
			return n
		}
		r.queue.MoveToBack(front)
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

// evictedUnder returns the last snapshot of an entry.
func evictedUnder(p *machine.Params) *machine.Snapshot {
	s := *p.Initial
	s.Evicted = true
	return &s
}

// enqueue makes n the last candidate for eviction. The caller holds mu.
func (r *Registry) enqueue(n *node) { n.Value.place = r.queue.PushBack(n) }

// unqueue makes n no candidate. The caller holds mu.
func (r *Registry) unqueue(n *node) {
	if n.Value.place != nil {
		r.queue.Remove(n.Value.place)
		n.Value.place = nil
	}
}

// drop removes a node that is marked as evicted. The caller holds mu.
func (r *Registry) drop(n *node) {
	r.unqueue(n)
	r.table.Delete(n)
}

// ErrRegistryFull is the error of Register when there is no room: MaxTools entries
// are registered, or must not be evicted.
var ErrRegistryFull = errors.New("toolhealth: registry is full")

// ToolOptions is what Register says about one tool. What is nil stays as it was; so
// the zero ToolOptions only makes the tool known.
type ToolOptions struct {
	// Breaker applies to the tool from now on, whatever SetConfig says of other tools,
	// until the tool is removed.
	Breaker *BreakerConfig
	// Labels are shown in ToolHealth, for dashboards: a title, a server, a team. They
	// are copied, and come before those of ToolSettings; an empty map shows none.
	Labels map[string]string
}

// Register makes a tool known and keeps its entry from being evicted. A tool that is
// known already keeps its state. After an error nothing has changed.
func (r *Registry) Register(tool string, o ToolOptions) error {
	switch {
	case r.inert():
		return nil
	case tool == "":
		return errors.New("toolhealth: Register: tool is \"\", must be a name")
	}
	var own *machine.Params
	if o.Breaker != nil {
		if err := o.Breaker.Validate(); err != nil {
			return fmt.Errorf("toolhealth: Register: %.80q: %w", tool, err)
		}
		own = newParams(*o.Breaker)
	}
	n, a, err := r.register(tool, own, o.Labels, r.now())
	if n != nil {
		n.Value.deliver(&a, n.Name(), "", r.base, &r.hooks)
	}
	return err
}

func (r *Registry) register(tool string, own *machine.Params, labels map[string]string, now int64) (n *node, a machine.Answer, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.conf.Load()
	n = r.table.Get(tool)
	if n == nil && !r.makeRoom(k.bound, now) {
		return nil, a, fmt.Errorf("%w: max_tools is %d, registering %.80q", ErrRegistryFull, k.config.MaxTools, tool)
	}
	if own != nil {
		r.own[strings.Clone(tool)] = own
	}
	if n == nil {
		n = r.put(tool, k)
	} else {
		r.unqueue(n)
		a = n.Value.configure(r.paramsOf(tool, k), now)
	}
	if labels != nil {
		labels = maps.Clone(labels)
		n.Value.note(func(m *remark) { m.labels = labels })
	}
	return n, a, nil
}

// configure puts the entry under other params. The caller holds mu, so that the
// params of an entry are those of the latest configuration.
func (e *entry) configure(p *machine.Params, now int64) machine.Answer {
	s := e.snap.Load()
	if s == s.Params.Initial && e.snap.CompareAndSwap(s, p.Initial) {
		return machine.Answer{} // most tools have never changed; they share one snapshot
	}
	var a machine.Answer
	e.apply(&machine.Event{Op: machine.OpConfigure, Params: p}, now, &e.stats, &a)
	return a
}

// Remove forgets a tool and what Register gave it, and reports whether there was
// one. Permits of it that are still out report to no tool; its chain of transitions
// ends without an event. If the name comes back it is another tool: its events do
// not wait for hooks that still run for the old one.
func (r *Registry) Remove(tool string) bool {
	if r.inert() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.own, tool)
	n := r.table.Get(tool)
	if n == nil {
		return false
	}
	n.Value.snap.Store(evictedUnder(n.Value.snap.Load().Params)) // a change in between is lost with the entry
	r.drop(n)
	return true
}

// Len returns the number of entries.
func (r *Registry) Len() int {
	if r == nil {
		return 0
	}
	return r.table.Len()
}

// Reset closes the tool's breaker, lifts a throttle or an isolation, and forgets
// the streak, the growth and the learned lease; statistics stay. What was
// admitted before changes nothing in the breaker. It reports whether there is
// such a tool. If the tool is not mended, FailureThreshold more failures open the
// breaker again. by names the operator, for Transition.By; it may be "".
func (r *Registry) Reset(tool, by string) bool {
	if r.inert() {
		return false
	}
	n := r.table.Get(tool)
	return n != nil && r.operate(n, machine.OpReset, by, r.now())
}

// Isolate holds the tool's breaker open until Reset. What was admitted before
// changes nothing in the breaker. A tool that has not been called yet gets an
// entry; mind the spelling, since without RegisteredOnly any name is a tool. It
// reports whether the tool is held: not if it is unknown (see
// Config.RegisteredOnly), or new and the registry is full. by names the operator, for
// Transition.By and ToolHealth.IsolatedBy; it may be "".
func (r *Registry) Isolate(tool, by string) bool {
	if r.inert() {
		return false
	}
	for now := r.now(); ; {
		n, _ := r.entry(tool, now)
		if n == nil {
			return false
		}
		if r.operate(n, machine.OpIsolate, by, now) {
			return true
		}
	}
}

// operate does what an operator asks for. It reports false if n has left the
// registry.
func (r *Registry) operate(n *node, op machine.Op, by string, now int64) bool {
	by = strings.Clone(by) // it may be a part of a whole request
	a, ok := r.change(n, &machine.Event{Op: op}, now)
	if !ok {
		return false
	}
	if op == machine.OpIsolate {
		n.Value.note(func(m *remark) {
			if a.Epoch > m.epoch { // of two operators the later one counts
				m.by, m.epoch = by, a.Epoch
			}
		})
	}
	n.Value.deliver(&a, n.Name(), by, r.base, &r.hooks)
	return true
}

// SetConfig puts another configuration in force, or returns every problem of that
// configuration and changes nothing. Each tool keeps its state: a running cooldown keeps
// its deadline, a streak stays, a lower threshold does not trip by itself. Only a
// configuration that opens by no rule closes a breaker, unless it is isolated. Lowering
// MaxTools evicts nothing by itself; the next new name does. It takes time in
// proportion to the number of tools, during which no new name can enter.
func (r *Registry) SetConfig(c Config) error {
	if r == nil {
		return nil
	}
	if err := c.Validate(); err != nil {
		return err
	}
	if r.inert() {
		return errors.New("toolhealth: SetConfig: the registry was not made by NewRegistry")
	}
	k := compile(c)
	k.labels = r.conf.Load().labels
	r.notifyClosed(r.reconfigure(k))
	return nil
}

// reconfigure puts k in force and returns the breakers that this closes, whose hooks
// have not been told yet.
func (r *Registry) reconfigure(k *compiled) (closed []closing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.conf.Store(k)
	for n := range r.table.All() {
		if a := n.Value.configure(r.paramsOf(n.Name(), k), now); len(a.Changes) > 0 {
			closed = append(closed, closing{n, a})
		}
	}
	return closed
}

// closing is a breaker that a new configuration has closed.
type closing struct {
	n *node
	a machine.Answer
}

// notifyClosed delivers every closing, also if a hook ends the goroutine: later
// events of a tool wait for the earlier ones.
func (r *Registry) notifyClosed(closed []closing) {
	defer func() {
		if len(closed) > 0 {
			r.notifyClosed(closed)
		}
	}()
	for len(closed) > 0 {
		c := &closed[0]
		closed = closed[1:]
		c.n.Value.deliver(&c.a, c.n.Name(), "", r.base, &r.hooks)
	}
}

// Config returns the configuration that is in force, as a copy.
func (r *Registry) Config() Config {
	if r.inert() {
		return Config{}
	}
	return r.conf.Load().config.clone()
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
	node  *node // nil if the call is not tracked
	epoch uint64
	start int64 // time of admission
	probe bool
}

// succeed reports the outcome that nearly all calls have.
func (a *admission) succeed(r *Registry, now int64) {
	e, took := &a.node.Value, max(now-a.start, 0)
	e.stats.success(&e.stats.permitOK, took)
	if s := e.snap.Load(); a.probe || !s.UnmovedBy(took) {
		r.settle(a.node, a.settlement(), Verdict{}, took, now)
	}
}

// report reports any outcome.
func (a *admission) report(r *Registry, v Verdict, now int64) {
	if v.Outcome == OutcomeSuccess {
		a.succeed(r, now)
		return
	}
	e, took := &a.node.Value, max(now-a.start, 0)
	e.stats.outcome(&e.stats.permitOK, v, took, now)
	defer e.stats.settled.Add(1) // also if a hook ends the goroutine
	r.settle(a.node, a.settlement(), v, took, now)
}

// release gives the admission back unused and counts no outcome.
func (a *admission) release(r *Registry) {
	defer a.node.Value.stats.settled.Add(1)
	if a.probe {
		r.returnProbe(a.node, a.epoch)
	}
}

// returnProbe gives back the probe that n gave out in this epoch.
func (r *Registry) returnProbe(n *node, epoch uint64) {
	r.apply(n, &machine.Event{Op: machine.OpRelease, Epoch: epoch, Probe: true}, r.now())
}

func (a *admission) settlement() *machine.Event {
	return &machine.Event{Op: machine.OpSettle, Epoch: a.epoch, Probe: a.probe}
}
