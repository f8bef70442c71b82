// Package stamp keeps what a permit has to remember of its admission in one word
// of 64 bits: the epochs of the tool and of its group, whether it is the probe of each,
// and whether it is settled.
package stamp

import "sync/atomic"

// Ticket is what an admitted call has from one breaker. The zero Ticket is from none.
type Ticket struct {
	Epoch  uint64 // that admitted the call, or its lower bits; see ToolEpoch and GroupEpoch
	Probe  bool   // whether the call is the probe
	Shared bool   // whether that is the probe of a call around it, which gives it back; of a group
}

// A Stamp belongs to one admitted call. The zero Stamp has two zero tickets and is not
// settled. It must not be copied after its first use.
type Stamp struct {
	_    [0]atomic.Bool // go vet reports copies
	tool uint32         // the lower half of the epoch of the tool; never changes
	// high holds the four flags and, below them, the lower bits of the group's epoch.
	// Settle swaps the flag settled in; nothing else ever changes, so a reader sees the
	// epoch and the probe flags as they were made. It is not an atomic.Uint32, because a
	// literal cannot initialize one and a Store costs an atomic write.
	high uint32
}

const (
	settled    uint32 = 1 << 31
	toolProbe  uint32 = 1 << 30
	groupProbe uint32 = 1 << 29
	shared     uint32 = 1 << 28
	groupEpoch        = shared - 1
	toolEpoch         = 1<<32 - 1
)

// New returns the stamp of an admission by a tool and by its group. Of their epochs it
// keeps 32 and 28 bits.
func New(tool, group Ticket) Stamp {
	high := uint32(group.Epoch) & groupEpoch
	if tool.Probe {
		high |= toolProbe
	}
	if group.Probe {
		high |= groupProbe
	}
	if group.Shared {
		high |= shared
	}
	return Stamp{tool: uint32(tool.Epoch), high: high}
}

// Settle marks the stamp as settled. It reports true to exactly one of its callers.
func (s *Stamp) Settle() bool {
	high := atomic.LoadUint32(&s.high)
	return atomic.SwapUint32(&s.high, high|settled)&settled == 0
}

// Settled reports whether Settle was called.
func (s *Stamp) Settled() bool { return atomic.LoadUint32(&s.high)&settled != 0 }

// Probe reports whether the admission is the probe's, of the tool or of the group.
func (s *Stamp) Probe() bool { return atomic.LoadUint32(&s.high)&(toolProbe|groupProbe) != 0 }

// Tool returns the ticket of the tool, with the lower bits of its epoch only.
func (s *Stamp) Tool() Ticket {
	return Ticket{Epoch: uint64(s.tool), Probe: atomic.LoadUint32(&s.high)&toolProbe != 0}
}

// Group returns the ticket of the group, with the lower bits of its epoch only.
func (s *Stamp) Group() Ticket {
	high := atomic.LoadUint32(&s.high)
	return Ticket{Epoch: uint64(high & groupEpoch), Probe: high&groupProbe != 0, Shared: high&shared != 0}
}

// ToolEpoch returns the epoch of a ticket of a tool whose epoch is now present. It is
// right for the last four billion epochs.
func (t Ticket) ToolEpoch(present uint64) uint64 { return last(present, t.Epoch, toolEpoch) }

// GroupEpoch is ToolEpoch for a group. It is right for the last 250 million epochs.
func (t Ticket) GroupEpoch(present uint64) uint64 { return last(present, t.Epoch, uint64(groupEpoch)) }

// last returns the last number up to present whose bits under the mask are those of low.
func last(present, low, mask uint64) uint64 { return present - (present-low)&mask }
