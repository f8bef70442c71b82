package hooks

import (
	"sync"
	"sync/atomic"
)

// Ordered hands the events of one source to a [List] in the order of their
// epochs, one at a time. Events may arrive in any order, from any goroutine: one
// that comes too early, or while another goroutine delivers, is left to the
// goroutine that delivers the one before it. So no caller waits for another
// caller's hooks. While a hook hangs, at most MaxPending events wait; then the oldest
// are dropped, and the hooks see a gap. Make one with NewOrdered; it must not be copied.
type Ordered[E any] struct {
	mu   sync.Mutex // never held while a hook runs
	next uint64     // epoch of the next event to deliver
	// busy means that a goroutine delivers. It is written under mu; Delivering
	// reads it without the lock.
	busy atomic.Bool
	// pending holds the events that wait for an earlier one or for the goroutine
	// that delivers; nil if there are none, which is nearly always.
	pending map[uint64]E
}

// MaxPending is how many events of one source wait for a hook at most.
const MaxPending = 1024

// NewOrdered returns an Ordered whose first event has this epoch.
func NewOrdered[E any](first uint64) *Ordered[E] { return &Ordered[E]{next: first} }

// Deliver hands over events of successive epochs, the first of which is epoch. When
// it returns, they have been delivered, or the goroutine that delivers at this moment
// will deliver them; if a hook calls Deliver, that may be its own. A hook that ends
// its goroutine ends it after all others have run.
func (o *Ordered[E]) Deliver(epoch uint64, events []E, list *List[E]) {
	next, dropped := o.begin(epoch, events)
	list.dropped.Add(dropped)
	if next != nil {
		o.drain(next, list)
	}
}

// Delivering reports whether a goroutine delivers at this moment.
func (o *Ordered[E]) Delivering() bool { return o.busy.Load() }

// begin returns the events that the caller has to drain: these, if they are the next
// ones and no goroutine delivers. Else it leaves them pending. It also returns how many
// events it has dropped.
func (o *Ordered[E]) begin(epoch uint64, events []E) (next []E, dropped uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if epoch < o.next { // younger ones were dropped before these came
		dropped = min(o.next-epoch, uint64(len(events)))
		epoch, events = epoch+dropped, events[dropped:]
	}
	if len(events) == 0 {
		return nil, dropped
	}
	if !o.busy.Load() && epoch == o.next {
		o.busy.Store(true)
		o.next += uint64(len(events))
		return events, dropped
	}
	if o.pending == nil {
		o.pending = make(map[uint64]E)
	}
	for i, e := range events {
		o.pending[epoch+uint64(i)] = e
	}
	return nil, dropped + o.dropOldest()
}

// dropOldest drops what is too much while a goroutine delivers. The next event to
// deliver is then the oldest one that is left. The caller holds mu.
func (o *Ordered[E]) dropOldest() (dropped uint64) {
	for o.busy.Load() && len(o.pending) > MaxPending {
		if _, ok := o.pending[o.next]; ok {
			delete(o.pending, o.next)
			dropped++
		}
		o.next++
	}
	return dropped
}

// drain delivers events and then pending ones, up to the first event that has not
// arrived yet. The goroutine that brings that event goes on from there.
func (o *Ordered[E]) drain(events []E, list *List[E]) {
	done := false
	defer func() {
		if !done { // a hook called runtime.Goexit: the rest must not wait forever
			o.drain(events, list)
		}
	}()
	for {
		for len(events) > 0 {
			e := events[0]
			events = events[1:]
			list.Call(e)
		}
		e, ok := o.take()
		if !ok {
			done = true
			return
		}
		list.Call(e)
	}
}

// take removes the next event from pending. It reports false if the event is not
// there; from then on no goroutine delivers.
func (o *Ordered[E]) take() (e E, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e, ok = o.pending[o.next]; ok {
		delete(o.pending, o.next)
		o.next++
	} else {
		o.busy.Store(false)
	}
	if len(o.pending) == 0 {
		o.pending = nil
	}
	return e, ok
}
