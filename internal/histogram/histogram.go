// Package histogram counts durations in exponential buckets, four to each doubling, from
// 7.6 microseconds to 17 minutes. They are the buckets of a Prometheus native histogram
// of schema 2 and of an OpenTelemetry exponential histogram of scale 2, in seconds.
//
// [Dense] is for what happens all the time, [Sparse] for what is rare. Both count what
// they are given once, in 64 bits, and never go back.
package histogram

import (
	"math"
	"sync/atomic"
)

const (
	Scale   = 2           // a bucket is 2^(2^-Scale) times as long as the one before it
	Buckets = 108         // 27 doublings
	Offset  = -17 << 2    // the first bucket begins at 2^(Offset/4) seconds
	Lanes   = Buckets + 1 // lane 0 is for what is not above the first bucket's beginning
)

// longestZero is the longest duration of lane 0 in nanoseconds, 2^-17 seconds rounded
// down.
const longestZero = 7629

// mantissa is that part of a float64.
const mantissa uint64 = 1<<52 - 1

// Index returns the lane of a duration in nanoseconds. An upper bound belongs to its
// bucket. What is longer than the last bucket's bound counts in the last bucket.
func Index(ns int64) int {
	if ns <= longestZero {
		return 0
	}
	// Exponent and mantissa of the number just below: a power of two ends a bucket.
	b := math.Float64bits(float64(ns)*1e-9) - 1
	i := int(b>>52)*4 - 1023*4 - Offset + 1
	m := b & mantissa
	if m >= 0x306fe0a31b715 { // 2^(1/4)
		i++
	}
	if m >= 0x6a09e667f3bcd { // 2^(2/4)
		i++
	}
	if m >= 0xae89f995ad3ad { // 2^(3/4)
		i++
	}
	return min(i, Buckets)
}

// Bound returns the upper bound of a lane in seconds.
func Bound(lane int) float64 { return math.Exp2(float64(lane+Offset) / 4) }

// Reading is how often each lane was counted.
type Reading [Lanes]uint64

// Trim returns the buckets of r without the empty ones at both ends, and the offset of the
// first, as [Quantile] takes them; 0 and nil if all are empty.
func (r *Reading) Trim() (offset int, counts []uint64) {
	first, end := 1, len(r)
	for first < end && r[first] == 0 {
		first++
	}
	for first < end && r[end-1] == 0 {
		end--
	}
	if first == end {
		return 0, nil
	}
	return Offset + first - 1, r[first:end]
}

// Quantile returns the q-quantile of n durations in seconds, and 0 if n is 0: zero of
// them are in lane 0, counts[i] in the bucket that begins at 2^((offset+i)/4) seconds. It
// lies in the bucket of the duration that has the rank q*n, rounded up, among the sorted
// ones. A q below 0 counts as 0, one above 1 as 1.
func Quantile(q float64, n, zero uint64, offset int, counts []uint64) float64 {
	if n == 0 {
		return 0
	}
	rank := uint64(1)
	switch x := math.Ceil(q * float64(n)); {
	case x >= float64(n):
		rank = n
	case x > 1:
		rank = uint64(x)
	}
	if rank <= zero {
		return Bound(0) * within(rank, zero)
	}
	rank -= zero
	for i, c := range counts {
		if rank <= c {
			return math.Exp2((float64(offset+i) + within(rank, c)) / 4)
		}
		rank -= c
	}
	return math.Exp2(float64(offset+len(counts)) / 4) // they are not n
}

// within returns how far in a bucket of n the one of this rank is, if they lie evenly.
func within(rank, n uint64) float64 { return (float64(rank) - 0.5) / float64(n) }

// Dense is a histogram that takes one atomic addition for each duration, and 448 bytes.
// The zero Dense is empty and ready for use. All methods may be called from any
// goroutine. It must not be copied.
type Dense struct {
	// Each is added to by Add, and never taken from: it counts modulo 2^32, so sixteen
	// buckets fit in a cache line.
	lanes [Lanes]atomic.Uint32
	// carry is nil until the first lane reaches half, and set once. A lane of it is how
	// often the lane has reached half or 0. Who makes a lane reach these adds to carry,
	// so carry is late by that moment. A reader that loads carry before the lane sees
	// from the lane's highest bit whether carry is late by one; to be late by two,
	// half calls would have to end meanwhile.
	carry atomic.Pointer[[Lanes]atomic.Uint64]
}

const (
	half             = 1 << 31 // of what a lane can count
	belowHalf uint32 = half - 1
)

// NewDense returns a histogram that has counted counts already.
func NewDense(counts *Reading) *Dense {
	d := new(Dense)
	carry := new([Lanes]atomic.Uint64)
	for i, n := range counts {
		carry[i].Store(n / half)
		d.lanes[i].Store(uint32(n))
	}
	d.carry.Store(carry)
	return d
}

// Add counts a duration in nanoseconds.
func (d *Dense) Add(ns int64) {
	i := Index(ns)
	if d.lanes[i].Add(1)&belowHalf == 0 {
		d.carryOver(i)
	}
}

func (d *Dense) carryOver(i int) {
	if d.carry.Load() == nil {
		d.carry.CompareAndSwap(nil, new([Lanes]atomic.Uint64))
	}
	d.carry.Load()[i].Add(1)
}

// count returns how often lane i was counted at the moment when it is loaded.
func (d *Dense) count(carry *[Lanes]atomic.Uint64, i int) uint64 {
	halves := uint64(0)
	if carry != nil {
		halves = carry[i].Load()
	}
	n := uint64(d.lanes[i].Load())
	if halves&1 != n/half {
		halves++ // carry is late
	}
	return halves*half + n%half
}

// Total returns how many durations were counted. It looks at every lane. Each lane is
// exact when it is looked at and only grows, one by one; so there was a moment during the
// call at which Total was exact, and no later call returns less.
func (d *Dense) Total() (n uint64) {
	carry := d.carry.Load()
	for i := range d.lanes {
		n += d.count(carry, i)
	}
	return n
}

// Read adds the lanes to r and returns what Total would.
func (d *Dense) Read(r *Reading) (n uint64) {
	carry := d.carry.Load()
	for i := range d.lanes {
		if carry == nil && d.lanes[i].Load() == 0 {
			continue // as most are; with that, a summary of all tools takes a tenth less
		}
		c := d.count(carry, i)
		r[i] += c
		n += c
	}
	return n
}

// Sparse is a histogram of durations of several kinds. It takes 8 bytes, and 48 for each
// kind in each doubling of which durations have been counted; Add is slower with each.
// The zero Sparse is empty and ready for use. All methods may be called from any
// goroutine. It must not be copied.
type Sparse struct {
	first atomic.Pointer[doubling] // nil until the first Add; set once
}

// doubling has four lanes of one kind.
type doubling struct {
	lanes  [4]atomic.Uint64
	number int32 // of the four; like kind it never changes
	kind   uint8
	next   atomic.Pointer[doubling] // nil until one is needed; set once
}

// Add counts a duration in nanoseconds.
func (s *Sparse) Add(kind uint8, ns int64) { s.AddN(kind, ns, 1) }

// AddN counts a duration n times.
func (s *Sparse) AddN(kind uint8, ns int64, n uint64) {
	i := Index(ns)
	number := int32(i / 4)
	for p := &s.first; ; {
		d := p.Load()
		if d == nil {
			p.CompareAndSwap(nil, &doubling{number: number, kind: kind})
			d = p.Load()
		}
		if d.number == number && d.kind == kind {
			d.lanes[i%4].Add(n)
			return
		}
		p = &d.next
	}
}

// Counts yields the counts that are not zero, each with its kind: a kind comes once for
// each of its lanes. Each is as exact as [Dense.Total].
func (s *Sparse) Counts(yield func(kind uint8, n uint64) bool) {
	for d := s.first.Load(); d != nil; d = d.next.Load() {
		for i := range d.lanes {
			if n := d.lanes[i].Load(); n > 0 && !yield(d.kind, n) {
				return
			}
		}
	}
}

// Read adds the lanes of all kinds to r and returns how many durations were counted, as
// exact as [Dense.Total].
func (s *Sparse) Read(r *Reading) (n uint64) {
	for d := s.first.Load(); d != nil; d = d.next.Load() {
		for i := range d.lanes {
			if c := d.lanes[i].Load(); c > 0 { // the last doubling has one lane
				r[4*int(d.number)+i] += c
				n += c
			}
		}
	}
	return n
}
