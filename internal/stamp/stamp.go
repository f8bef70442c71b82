// Package stamp keeps what a permit has to remember of its admission in one word
// of 64 bits: the epoch, whether it is the probe's, and whether it is settled.
package stamp

import "sync/atomic"

// A Stamp belongs to one admitted call. The zero Stamp has epoch 0, is not a
// probe's, and is not settled. It must not be copied after its first use.
type Stamp struct {
	_   [0]atomic.Bool // go vet reports copies
	low uint32         // the lower half of the epoch; never changes
	// high holds the two flags and, below them, the rest of the epoch. Settle
	// swaps the flag settled in; nothing else ever changes, so a reader sees the
	// epoch and the probe flag as they were made. It is not an atomic.Uint32,
	// because a literal cannot initialize one and a Store costs an atomic write.
	high uint32
}

const (
	settled uint32 = 1 << 31
	probe   uint32 = 1 << 30
)

// New returns the stamp of an admission. An epoch has at most 62 bits.
func New(epoch uint64, isProbe bool) Stamp {
	high := uint32(epoch >> 32)
	if isProbe {
		high |= probe
	}
	return Stamp{low: uint32(epoch), high: high}
}

// Settle marks the stamp as settled. It reports true to exactly one of its callers.
func (s *Stamp) Settle() bool {
	high := atomic.LoadUint32(&s.high)
	return atomic.SwapUint32(&s.high, high|settled)&settled == 0
}

// Settled reports whether Settle was called.
func (s *Stamp) Settled() bool { return atomic.LoadUint32(&s.high)&settled != 0 }

// Probe reports whether the admission is the probe's.
func (s *Stamp) Probe() bool { return atomic.LoadUint32(&s.high)&probe != 0 }

// Epoch returns the epoch of the admission.
func (s *Stamp) Epoch() uint64 {
	high := atomic.LoadUint32(&s.high) &^ (settled | probe)
	return uint64(high)<<32 | uint64(s.low)
}
