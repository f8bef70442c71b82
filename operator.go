package toolhealth

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/toolhealth/toolhealth/internal/machine"
)

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
	// Group is the group of the tool, such as the server that it is behind; "" means what
	// ToolSettings and Config.Group say. A tool is in the group of its first call for good:
	// another one is an error.
	Group string
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
	usual := r.conf.Load().groupOf(tool)
	n, a, err := r.register(tool, own, o, usual, r.now())
	if n != nil {
		n.Value.deliver(&a, owner{tool: n.Name()}, "", r.base, &r.hooks)
	}
	return err
}

func (r *Registry) register(tool string, own *machine.Params, o ToolOptions, usual string, now int64) (n *node, a machine.Answer, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.conf.Load()
	n = r.table.Get(tool)
	if n == nil && !r.makeRoom(k.bound, now) {
		return nil, a, fmt.Errorf("%w: max_tools is %d, registering %.80q", ErrRegistryFull, k.config.MaxTools, tool)
	}
	if n != nil && o.Group != "" && o.Group != n.Value.group.named() {
		return nil, a, fmt.Errorf("toolhealth: Register: group of %.80q is %.80q, must be %.80q, which it has had since its first call",
			tool, o.Group, n.Value.group.named())
	}
	if own != nil {
		r.own[strings.Clone(tool)] = own
	}
	if n == nil {
		n = r.put(tool, r.join(cmp.Or(o.Group, usual), k, now), k)
	} else {
		r.unqueue(n)
		a = n.Value.configure(r.paramsOf(tool, k), now, &n.Value.stats)
	}
	if o.Labels != nil {
		labels := maps.Clone(o.Labels)
		n.Value.asides().labels.Store(&labels)
	}
	return n, a, nil
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
	r.drop(n, r.now())
	return true
}

// Len returns the number of entries.
func (r *Registry) Len() int {
	if r == nil {
		return 0
	}
	return r.table.Len()
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
	old := r.conf.Load()
	k.labels, k.groups = old.labels, old.groups
	r.notifyClosed(r.reconfigure(k))
	return nil
}

// reconfigure puts k in force and returns the breakers that this closes, whose hooks
// have not been told yet.
func (r *Registry) reconfigure(k *compiled) (closed []closing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	k.config.Group = r.conf.Load().config.Group // the grouping stays
	r.conf.Store(k)
	for n := range r.table.All() {
		e := &n.Value
		if a := e.configure(r.paramsOf(n.Name(), k), now, &e.stats); len(a.Changes) > 0 {
			closed = append(closed, closing{&e.carrier, owner{tool: n.Name()}, a})
		}
	}
	for n := range r.groups.All() {
		g := &n.Value
		if a := g.configure(k.groupBreaker, now, nil); len(a.Changes) > 0 {
			closed = append(closed, closing{&g.carrier, owner{group: g.name}, a})
		}
	}
	return closed
}

// closing is a breaker that a new configuration has closed.
type closing struct {
	*carrier
	owner owner
	a     machine.Answer
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
		c.deliver(&c.a, c.owner, "", r.base, &r.hooks)
	}
}

// Config returns the configuration that is in force, as a copy.
func (r *Registry) Config() Config {
	if r.inert() {
		return Config{}
	}
	return r.conf.Load().config.clone()
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
		n.Value.asides().isolator.note(isolation{a.Epoch, by})
	}
	n.Value.deliver(&a, owner{tool: n.Name()}, by, r.base, &r.hooks)
	return true
}

// ResetGroup is Reset for the breaker of a group. It leaves the breakers of its tools
// alone. It reports whether there is such a group.
func (r *Registry) ResetGroup(group, by string) bool {
	if r.inert() {
		return false
	}
	n := r.groups.Get(group)
	return n != nil && r.operateGroup(&n.Value, machine.OpReset, by)
}

// IsolateGroup is Isolate for the breaker of a group: every tool in it is refused until
// ResetGroup. A group without tools is made, and kept while it is isolated. It reports
// whether the group is held: not if its name is empty, or if there are MaxTools groups.
func (r *Registry) IsolateGroup(group, by string) bool {
	for !r.inert() {
		g := r.vacantGroup(group)
		if g == nil {
			return false
		}
		if r.operateGroup(g, machine.OpIsolate, by) {
			return true
		}
	}
	return false
}

// vacantGroup returns the group of this name, made without tools if there is none; nil if
// there is no room. It may leave the registry again until something is held against it.
func (r *Registry) vacantGroup(name string) *group {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	g := r.groupNamed(name, r.conf.Load(), now)
	if g != nil && g.members.Load() == 0 && !g.vacant.In() {
		g.since = now
		r.vacant.PushBack(g)
	}
	return g
}

// operateGroup is operate for a group.
func (r *Registry) operateGroup(g *group, op machine.Op, by string) bool {
	by = strings.Clone(by)
	var a machine.Answer
	if !g.apply(&machine.Event{Op: op}, r.now(), nil, &a) {
		return false
	}
	if op == machine.OpIsolate {
		g.isolator.note(isolation{a.Epoch, by})
	}
	g.deliver(&a, owner{group: g.name}, by, r.base, &r.hooks)
	if op == machine.OpReset {
		r.dropIfVacant(g)
	}
	return true
}

// dropIfVacant drops a group without tools against which nothing is held any more.
func (r *Registry) dropIfVacant(g *group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.vacant.In() && g.evict(r.now()) {
		r.vacant.Remove(g)
		r.groups.Delete(r.groups.Get(g.name))
	}
}
