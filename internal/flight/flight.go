// Package flight records how many calls are running and when the oldest of them
// began.
package flight

import (
	"math/rand/v2"
	"sync/atomic"
)

// Table holds one slot for each running call. The zero Table is empty and ready
// for use; all methods may be called from any goroutine. It has at most about twice
// as many slots as there were calls at once.
type Table struct {
	first [5]Slot
	more  atomic.Pointer[chunk] // the newest, nil until first was full
}

// A Slot is 0 while it is free. Start takes it with a compare-and-swap, its
// owner frees it with a store, readers load it.
type Slot = atomic.Int64

// chunk has as many slots as all older ones together, so that a free one is found
// after a few looks, however many calls are running.
type chunk struct {
	slots []Slot
	older *chunk
}

// Start notes that a call began at now, in nanoseconds. The caller stores 0 into
// the slot when the call has ended.
func (t *Table) Start(now int64) *Slot {
	now = max(now, 1) // 0 is a free slot
	for {
		newest := t.more.Load()
		for c := newest; c != nil; c = c.older {
			if s := take(c.slots, rand.Uint64(), now); s != nil {
				return s
			}
		}
		// Start anywhere, so that two cores rarely contend for a slot.
		if s := take(t.first[:], uint64(now)>>3, now); s != nil {
			return s
		}
		size := len(t.first)
		if newest != nil {
			size = 2 * len(newest.slots)
		}
		t.more.CompareAndSwap(newest, &chunk{make([]Slot, size), newest})
	}
}

// take takes the first free slot at or after at, wrapping around, and returns nil if
// none is free.
func take(slots []Slot, at uint64, now int64) *Slot {
	for i := range uint64(len(slots)) {
		s := &slots[(at+i)%uint64(len(slots))]
		if s.Load() == 0 && s.CompareAndSwap(0, now) {
			return s
		}
	}
	return nil
}

// Read returns how many calls are running, and when the oldest of them began.
func (t *Table) Read() (n int, oldest int64) {
	count := func(slots []Slot) {
		for i := range slots {
			if start := slots[i].Load(); start != 0 {
				if n++; n == 1 || start < oldest {
					oldest = start
				}
			}
		}
	}
	count(t.first[:])
	for c := t.more.Load(); c != nil; c = c.older {
		count(c.slots)
	}
	return n, oldest
}
