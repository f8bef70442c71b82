// Package flight knows which calls are running and since when.
package flight

import "sync/atomic"

// Table holds one slot for each running call. The zero Table is empty and ready
// for use; all methods may be called from any goroutine. Its memory is that of
// the most calls that ever ran at once.
type Table struct{ first chunk }

// A Slot is 0 while it is free. Start takes it with a compare-and-swap, its
// owner frees it with a store, readers load it.
type Slot = atomic.Int64

type chunk struct {
	slots [8]Slot
	next  atomic.Pointer[chunk] // set once
}

// Start notes that a call began at now, in nanoseconds. The caller stores 0 into
// the slot when the call has ended.
func (t *Table) Start(now int64) *Slot {
	now = max(now, 1) // 0 is a free slot
	for c := &t.first; ; c = c.more() {
		for i := range c.slots {
			// Begin anywhere, so that calls on two cores seldom want one slot.
			s := &c.slots[(uint64(now)>>3+uint64(i))%uint64(len(c.slots))]
			if s.Load() == 0 && s.CompareAndSwap(0, now) {
				return s
			}
		}
	}
}

func (c *chunk) more() *chunk {
	if next := c.next.Load(); next != nil {
		return next
	}
	c.next.CompareAndSwap(nil, new(chunk))
	return c.next.Load()
}

// Read returns how many calls are running, and when the oldest of them began.
func (t *Table) Read() (n int, oldest int64) {
	for c := &t.first; c != nil; c = c.next.Load() {
		for i := range c.slots {
			if start := c.slots[i].Load(); start != 0 {
				if n++; n == 1 || start < oldest {
					oldest = start
				}
			}
		}
	}
	return n, oldest
}
