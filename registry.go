package toolhealth

import (
	"container/list"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolhealth/toolhealth/internal/hooks"
	"github.com/toolhealth/toolhealth/internal/machine"
	"github.com/toolhealth/toolhealth/internal/nametable"
)

// Registry keeps the health of every tool by its name: one [Stats] and one
// breaker each. It is the seam that everything else is built on.
//
// A tool appears at its first AllowRequest, Record or [Gate.Allow]; reading never
// creates one. Names come from a language model, so the number of entries is
// bounded by Config.MaxTools. At the bound a new name takes the place of an entry
// that is closed, without a streak, not throttled, without a permit out and not
// registered, the longest idle one or near it. If there is none, the call is
// admitted without an entry and counted in Summary.Untracked. What is known
// against a tool is never evicted. Memory is at most about 400 bytes for each
// entry and the names themselves: a runtime that passes on names of any length
// should cut them, or set RegisteredOnly. The empty name is always refused.
//
// All methods may be called from any goroutine. AllowRequest, Available and the
// Record methods take no lock, except for the first call of a new name; they
// allocate nothing unless a breaker changes. The clock is the monotonic one,
// read since the registry was made; inside a testing/synctest bubble, make it
// there. A nil Registry, and the zero one, admits everything and records nothing.
type Registry struct {
	base  time.Time
	table nametable.Table[entry]
	hooks hooks.List[Transition]
	conf  atomic.Pointer[compiled] // replaced as a whole under mu

	untracked atomic.Uint64
	evicted   atomic.Uint64

	// mu is held to add, remove and reconfigure entries. No hook and no other
	// code of a user runs under it.
	mu  sync.Mutex
	own map[string]*machine.Params // by Register with a config; under mu
	// queue holds the candidates for eviction, the next one first, see makeRoom;
	// under mu.
	queue list.List
	// thaw is when the first parked entry stops being throttled, 0 if none is.
	// Written under mu, read by calls.
	thaw atomic.Int64
}

type node = nametable.Node[entry]

// entry is what a registry keeps of one tool. What every call writes lies in the
// middle, so that two tools whose entries are neighbours in memory do not share a
// cache line that is written.
type entry struct {
	guard atomic.Pointer[guardStats] // nil until the first guarded call; set once
	// parked: taken out of the queue because it could not be evicted. Whoever
	// makes it evictable again sees the flag and puts it back. Set under
	// Registry.mu, read by calls.
	parked atomic.Bool
	// used: called since it was last looked at for eviction. Set by calls,
	// cleared under Registry.mu.
	used atomic.Bool
	// refusing: the last answer of the gate was a refusal. It spares admitted
	// calls a look at the counters of refusals, which lie in another cache line.
	refusing atomic.Bool
	carrier
	stats Stats
	// place is where it waits in Registry.queue to be evicted; nil if it is parked,
	// or registered. Under Registry.mu.
	place *list.Element
}

// compiled is a Config as the registry uses it. It never changes.
type compiled struct {
	config  Config
	breaker *machine.Params
	tools   map[string]*machine.Params
}

func compile(c Config) (*compiled, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.clone()
	k := &compiled{config: c, breaker: newParams(c.Breaker), tools: make(map[string]*machine.Params, len(c.Tools))}
	for tool, own := range c.Tools {
		k.tools[tool] = newParams(own)
	}
	return k, nil
}

// NewRegistry returns an empty registry under DefaultConfig.
func NewRegistry() *Registry {
	r, err := NewRegistryWithConfig(DefaultConfig())
	if err != nil {
		panic(err) // the defaults are valid; a test says so
	}
	return r
}

// NewRegistryWithConfig returns an empty registry, or every problem of the
// configuration at once.
func NewRegistryWithConfig(c Config) (*Registry, error) {
	k, err := compile(c)
	if err != nil {
		return nil, err
	}
	r := &Registry{base: time.Now(), own: make(map[string]*machine.Params)}
	r.conf.Store(k)
	return r, nil
}

// now returns the registry's time.
func (r *Registry) now() int64 { return since(r.base) }

// inert reports whether there is nothing to keep anything in.
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
		if s.AdmitsAll() {
			e.letIn()
			return true
		}
		if _, _, quiet := s.Refusal(r.now()); quiet {
			e.turnAway()
			return false
		}
	}
	if r.inert() {
		return true
	}
	_, a := r.admit(tool, r.now(), 0, false)
	return a.Reason == machine.Admitted
}

// touch notes a use, for eviction.
func (e *entry) touch() {
	if !e.used.Load() {
		e.used.Store(true)
	}
}

// letIn notes that a call was admitted.
func (e *entry) letIn() {
	e.touch()
	if e.refusing.Load() {
		e.refusing.Store(false)
		e.stats.endRefusals()
	}
}

// turnAway notes that a call was refused.
func (e *entry) turnAway() {
	e.stats.refused.Add(1)
	if !e.refusing.Load() {
		e.refusing.Store(true)
	}
}

// admit is AllowRequest in full. With permit it also counts a permit as given
// out. The node is nil if the call is admitted untracked, or the tool is unknown.
func (r *Registry) admit(tool string, now, leaseFloor int64, permit bool) (*node, machine.Answer) {
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
		if permit { // before the snapshot is looked at: see evictable
			e.stats.admitted.Add(1)
		}
		a, ok := e.tryAdmit(now, leaseFloor)
		if permit && (!ok || a.Reason != machine.Admitted) {
			e.stats.settled.Add(1)
		}
		if !ok {
			continue // it has just been evicted
		}
		r.tellOfAdmission(n, &a, permit)
		if a.Reason != machine.Admitted {
			e.turnAway()
		} else {
			e.letIn()
		}
		r.unpark(n)
		return n, a
	}
}

// tellOfAdmission delivers what a call that asked has changed. If a hook ends the
// goroutine, nobody gets the permit or the probe: it is given back.
func (r *Registry) tellOfAdmission(n *node, a *machine.Answer, permit bool) {
	if len(a.Changes()) == 0 {
		return
	}
	told := false
	defer func() {
		switch {
		case told:
		case permit && a.Reason == machine.Admitted:
			(&admission{node: n, epoch: a.Epoch, probe: a.Probe}).release(r)
		case a.Probe: // by name: nobody has been told yes
			r.settle(n, &machine.Event{Op: machine.OpSettle, ByName: true}, Verdict{Outcome: OutcomeNeutral}, 0, r.now())
		}
	}()
	n.Value.deliver(a, n.Name(), r.base, &r.hooks)
	told = true
}

// enterHealthy is admit with a permit for a tool that refuses nobody, which is to
// say nearly always. It returns nil if that is not so; then nothing happened.
func (r *Registry) enterHealthy(tool string) (*node, uint64) {
	n := r.table.Get(tool)
	if n == nil {
		return nil, 0
	}
	e := &n.Value
	e.stats.admitted.Add(1) // before the snapshot is looked at: see evict
	s := e.snap.Load()
	if !s.AdmitsAll() {
		e.stats.settled.Add(1)
		r.unpark(n)
		return nil, 0
	}
	e.letIn()
	return n, s.Epoch
}

// tryAdmit asks the machine. A refusal needs no step.
func (e *entry) tryAdmit(now, leaseFloor int64) (machine.Answer, bool) {
	if reason, wait, quiet := e.snap.Load().Refusal(now); quiet {
		return machine.Answer{Reason: reason, Wait: wait}, true
	}
	var a machine.Answer
	ok := e.apply(&machine.Event{Op: machine.OpAdmit, LeaseFloor: leaseFloor}, now, &e.stats, &a)
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
	if s.AdmitsAll() {
		return true
	}
	if s.Evicted {
		return r.known(tool)
	}
	reason, _, _ := s.Refusal(r.now())
	return reason == machine.Admitted
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
			return // if it has left meanwhile, then just after this call
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
		n.Value.touch()
		n.Value.stats.outcome(&n.Value.stats.nameOK, v, took)
		if r.settle(n, &machine.Event{Op: machine.OpSettle, ByName: true}, v, took, now) {
			return
		}
	}
}

// settle tells the breaker of n how a call ended; the statistics have it already.
// It reports false if n has left the registry.
func (r *Registry) settle(n *node, ev *machine.Event, v Verdict, took, now int64) bool {
	ev.Outcome, ev.Kind = machine.Outcome(v.Outcome), machine.Kind(kindOfFailure(v.Kind))
	ev.Took, ev.RetryAfter = took, int64(v.RetryAfter)
	return r.apply(n, ev, now)
}

// apply runs one event on the machine of n and delivers what came of it. It
// reports false if n has left the registry.
func (r *Registry) apply(n *node, ev *machine.Event, now int64) bool {
	var a machine.Answer
	for !n.Value.apply(ev, now, &n.Value.stats, &a) {
		if r.left(n) {
			return false
		}
	}
	defer r.unpark(n) // also if a hook ends the goroutine
	n.Value.deliver(&a, n.Name(), r.base, &r.hooks)
	return true
}

// left reports whether n has left the registry. An eviction that is under way may
// yet be called off, so it waits for its end.
func (r *Registry) left(n *node) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return n.Value.snap.Load().Evicted
}

// entry returns the node of a tool and creates it if there is none. Without a
// node the reason says why: StopUnknownTool, or StopNone if the registry is full.
func (r *Registry) entry(tool string, now int64) (*node, StopReason) {
	if n := r.table.Get(tool); n != nil && !n.Value.snap.Load().Evicted {
		return n, StopNone
	}
	if !r.known(tool) {
		return nil, StopUnknownTool
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.table.Get(tool); n != nil {
		return n, StopNone
	}
	k := r.conf.Load()
	if !r.makeRoom(k.config.MaxTools, now) {
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

// Eviction is first in, first out with a second chance: an entry that comes to
// the front of the queue and was used since it was last there goes to the back;
// one that must not be evicted is parked, outside the queue, until it may be
// again. So each step is paid for by an earlier call: there is no scan of the
// registry for each name, however many entries are open or in use.

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

// victim finds an entry that may be evicted, marks its snapshot as gone and
// returns it; nil if there is none. The caller holds mu.
func (r *Registry) victim(now int64) *node {
	r.unparkThrottled(now)
	for {
		front := r.queue.Front()
		if front == nil {
			return nil
		}
		n := front.Value.(*node)
		e := &n.Value
		switch {
		case e.used.Load():
			e.used.Store(false)
			r.queue.MoveToBack(front)
		case e.evict(now):
			return n
		default:
			r.park(n, now)
		}
	}
}

// park takes n out of the queue until it may be evicted. The caller holds mu.
func (r *Registry) park(n *node, now int64) {
	e := &n.Value
	r.unqueue(n)
	e.parked.Store(true)
	// Whoever made it evictable in this moment may have looked for the flag just
	// before it was set.
	if e.evictable(now) {
		r.enqueue(n)
	} else if until, first := r.thawsFirst(e, now); first {
		r.thaw.Store(until)
	}
}

// thawsFirst reports whether e is throttled and the first to stop being so: time
// will end it, no call has to.
func (r *Registry) thawsFirst(e *entry, now int64) (until int64, first bool) {
	s, thaw := e.snap.Load(), r.thaw.Load()
	return s.Until, s.State == machine.Closed && s.Until > now && (thaw == 0 || s.Until < thaw)
}

// unparkThrottled puts back what was parked for a throttle that is over. It looks
// at every entry, once for each throttle that ends while the registry is full.
// The caller holds mu.
func (r *Registry) unparkThrottled(now int64) {
	if thaw := r.thaw.Load(); thaw == 0 || now < thaw {
		return
	}
	r.thaw.Store(0)
	for n := range r.table.All() {
		if n.Value.parked.Load() {
			r.park(n, now)
		}
	}
}

// evictable reports whether nothing would be missed.
func (e *entry) evictable(now int64) bool {
	s := e.snap.Load()
	return s.Forgettable(now) && !s.Evicted && !e.stats.inUse() && !e.delivering()
}

// evict marks the entry as gone if it is evictable. A permit is counted before
// the snapshot is looked at (admit), and here it is the other way round: either
// the permit is seen here, or the caller sees that the entry has gone.
func (e *entry) evict(now int64) bool {
	s := e.snap.Load()
	return s.Forgettable(now) && !e.stats.inUse() && !e.delivering() && e.snap.CompareAndSwap(s, goneUnder(s.Params)) && e.confirm(s)
}

// confirm ends an eviction: if a permit has been given out meanwhile it takes the
// mark back and reports false.
func (e *entry) confirm(before *machine.Snapshot) bool {
	if !e.stats.inUse() {
		return true
	}
	e.snap.Store(before) // nobody changes a snapshot that has gone
	return false
}

// goneUnder returns the last snapshot of an entry.
func goneUnder(p *machine.Params) *machine.Snapshot {
	return &machine.Snapshot{Params: p, Evicted: true}
}

// unpark puts an entry that may be evicted again back into the queue. One that
// was parked for something else and is now throttled will come back in time.
func (r *Registry) unpark(n *node) {
	if n.Value.parked.Load() {
		r.tryUnpark(n)
	}
}

func (r *Registry) tryUnpark(n *node) {
	e := &n.Value
	now := r.now()
	if _, first := r.thawsFirst(e, now); !first && !e.evictable(now) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.parked.Load() {
		r.park(n, now)
	}
}

// enqueue makes n the last candidate. The caller holds mu.
func (r *Registry) enqueue(n *node) {
	n.Value.parked.Store(false)
	n.Value.place = r.queue.PushBack(n)
}

// unqueue makes n no candidate. The caller holds mu.
func (r *Registry) unqueue(n *node) {
	if n.Value.place != nil {
		r.queue.Remove(n.Value.place)
		n.Value.place = nil
	}
	n.Value.parked.Store(false)
}

// drop takes a node whose snapshot has gone out of the registry. The caller
// holds mu.
func (r *Registry) drop(n *node) {
	r.unqueue(n)
	r.table.Delete(n)
}

// ErrRegistryFull is what Register says when MaxTools entries are registered or
// must not be evicted.
var ErrRegistryFull = errors.New("toolhealth: registry is full")

// Register makes a tool known and keeps its entry from being evicted. With a
// configuration, the tool has that one from now on, whatever SetConfig says of
// others, until it is removed; more than one is an error. A tool that is known
// already keeps its state.
func (r *Registry) Register(tool string, config ...BreakerConfig) error {
	switch {
	case r.inert():
		return nil
	case tool == "":
		return errors.New("toolhealth: Register: tool is \"\", must be a name")
	case len(config) > 1:
		return fmt.Errorf("toolhealth: Register: %d configs for %.80q, must be at most 1", len(config), tool)
	}
	var own *machine.Params
	for _, c := range config {
		if err := c.Validate(); err != nil {
			return fmt.Errorf("toolhealth: Register: %.80q: %w", tool, err)
		}
		own = newParams(c)
	}
	n, a, err := r.register(tool, own, r.now())
	if n != nil {
		n.Value.deliver(&a, n.Name(), r.base, &r.hooks)
	}
	return err
}

func (r *Registry) register(tool string, own *machine.Params, now int64) (n *node, a machine.Answer, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.conf.Load()
	n = r.table.Get(tool)
	if n == nil && !r.makeRoom(k.config.MaxTools, now) {
		return nil, a, fmt.Errorf("%w: max_tools is %d, registering %.80q", ErrRegistryFull, k.config.MaxTools, tool)
	}
	if own != nil {
		r.own[strings.Clone(tool)] = own
	}
	if n == nil {
		return r.put(tool, k), a, nil
	}
	r.unqueue(n)
	return n, n.Value.configure(r.paramsOf(tool, k), now), nil
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
// one. Permits of it that are still out come to nothing; its chain of transitions
// ends without an event. If the name comes back it is another tool: its events
// do not wait for hooks that are still being told of the old one's.
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
	n.Value.snap.Store(goneUnder(n.Value.snap.Load().Params)) // what comes in between goes with it
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
// admitted before no longer counts for the breaker. It reports whether there is
// such a tool.
func (r *Registry) Reset(tool string) bool {
	if r.inert() {
		return false
	}
	n := r.table.Get(tool)
	return n != nil && r.apply(n, &machine.Event{Op: machine.OpReset}, r.now())
}

// Isolate holds the tool's breaker open until Reset. What was admitted before no
// longer counts for the breaker. A tool that has not been called yet gets an
// entry. It reports whether the tool is held: not if it is unknown (see
// Config.RegisteredOnly), or new and the registry is full.
func (r *Registry) Isolate(tool string) bool {
	if r.inert() {
		return false
	}
	for now := r.now(); ; {
		n, _ := r.entry(tool, now)
		if n == nil {
			return false
		}
		if r.apply(n, &machine.Event{Op: machine.OpIsolate}, now) {
			return true
		}
	}
}

// SetConfig puts another configuration in force, or returns every problem of it
// and changes nothing. Each tool keeps its state: a running cooldown keeps its
// deadline, a streak stays, a lower threshold does not trip by itself. Only a
// FailureThreshold set to 0 closes a breaker, unless it is isolated. Lowering
// MaxTools evicts nothing by itself; the next new name does. It takes time in
// proportion to the number of tools, during which no new name can enter.
func (r *Registry) SetConfig(c Config) error {
	if r == nil {
		return nil
	}
	k, err := compile(c)
	if err != nil {
		return err
	}
	if r.inert() {
		return errors.New("toolhealth: SetConfig: the registry was not made by NewRegistry")
	}
	var closed []closing
	r.mu.Lock()
	now := r.now()
	r.conf.Store(k)
	for n := range r.table.All() {
		if a := n.Value.configure(r.paramsOf(n.Name(), k), now); len(a.Changes()) > 0 {
			closed = append(closed, closing{n, a})
		}
	}
	r.mu.Unlock()
	r.tellOfClosed(closed)
	return nil
}

// closing is a tool that a new configuration has closed.
type closing struct {
	n *node
	a machine.Answer
}

// tellOfClosed delivers what has closed, all of it, also if a hook ends the
// goroutine: later events of a tool wait for the earlier ones.
func (r *Registry) tellOfClosed(closed []closing) {
	i := 0
	defer func() {
		if i < len(closed) {
			r.unpark(closed[i].n)
			r.tellOfClosed(closed[i+1:])
		}
	}()
	for ; i < len(closed); i++ {
		c := &closed[i]
		c.n.Value.deliver(&c.a, c.n.Name(), r.base, &r.hooks)
		r.unpark(c.n)
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
// Summary.HookPanics and harms nobody.
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

func (e *entry) guardStats() *guardStats {
	if g := e.guard.Load(); g != nil {
		return g
	}
	return e.newGuardStats()
}

func (e *entry) newGuardStats() *guardStats {
	e.guard.CompareAndSwap(nil, new(guardStats))
	return e.guard.Load()
}

// admission is one admitted call, as the registry has to hear of its end.
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
	r.unpark(a.node)
}

// report reports any outcome.
func (a *admission) report(r *Registry, v Verdict, now int64) {
	if v.Outcome == OutcomeSuccess {
		a.succeed(r, now)
		return
	}
	e, took := &a.node.Value, max(now-a.start, 0)
	e.stats.outcome(&e.stats.permitOK, v, took)
	defer a.settled(r) // also if a hook ends the goroutine
	r.settle(a.node, a.settlement(), v, took, now)
}

// settled counts the permit as no longer out.
func (a *admission) settled(r *Registry) {
	a.node.Value.stats.settled.Add(1)
	r.unpark(a.node)
}

// release gives the admission back unused: nothing is counted.
func (a *admission) release(r *Registry) {
	defer a.settled(r)
	if a.probe {
		r.settle(a.node, a.settlement(), Verdict{Outcome: OutcomeNeutral}, 0, r.now())
	}
}

func (a *admission) settlement() *machine.Event {
	return &machine.Event{Op: machine.OpSettle, Epoch: a.epoch, Probe: a.probe}
}

// openFor says whether the tool's breaker is open and refuses for another reason
// than the wait that a throttled attempt has just stated, and for how long:
// StopCircuitOpen, StopIsolated or StopNone.
func (r *Registry) openFor(tool string, o Outcome) (StopReason, time.Duration) {
	if r.inert() {
		return StopNone, 0
	}
	n := r.table.Get(tool)
	if n == nil {
		return StopNone, 0
	}
	s, now := n.Value.snap.Load(), r.now()
	reason, wait, _ := s.Refusal(now)
	switch {
	case reason == machine.Admitted, reason == machine.RateLimited && (o == OutcomeThrottled || s.State == machine.Closed):
		return StopNone, 0
	case reason == machine.Isolated:
		return StopIsolated, time.Duration(wait)
	}
	return StopCircuitOpen, time.Duration(wait)
}

// bounded returns a stated wait, at most the tool's MaxOpenDuration: the gate
// refuses for no longer.
func (e *entry) bounded(wait time.Duration) time.Duration {
	return time.Duration(e.snap.Load().Params.Cap(int64(max(wait, 0))))
}
