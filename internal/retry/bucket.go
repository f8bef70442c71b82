package retry

import (
	"sync/atomic"
	"time"
)

// Bucket is a budget of retries: a retry takes a token, a success gives a tenth of
// one back, and time gives back one at a time. The caller says the size each time. The
// zero Bucket is full; so is one whose size has become smaller. All methods may be
// called from any goroutine.
type Bucket struct {
	// missing is how many tenths of a token are not in the bucket, never negative.
	// Every call that changes it does so with a compare-and-swap, but for a new size.
	missing atomic.Int64
	size    atomic.Int64 // in the last Take
	// counted is the time up to which refills have been given. The Take that moves it
	// gives them.
	counted atomic.Int64
}

const tenths = 10 // of a token

// Take takes a token out of a bucket of this size, and reports false if there is no
// whole one. Before that it puts back one token for each time that refill has passed
// since the bucket was last full; zero or less means that time gives nothing back.
// Times are nanoseconds.
func (b *Bucket) Take(size int, refill time.Duration, now int64) bool {
	if old := b.size.Swap(int64(size)); int64(size) < old {
		b.missing.Store(0)
	}
	b.refill(int64(refill), now)
	for {
		missing := b.missing.Load()
		if (missing+tenths-1)/tenths >= int64(size) { // not missing+10 > 10*size: that overflows
			return false
		}
		if b.missing.CompareAndSwap(missing, missing+tenths) {
			return true
		}
	}
}

func (b *Bucket) refill(every, now int64) {
	counted := b.counted.Load()
	if b.Full() { // nothing to give back, so the time until now counts for nothing
		b.counted.CompareAndSwap(counted, max(counted, now))
		return
	}
	if every <= 0 || now-counted < every {
		return
	}
	tokens := (now - counted) / every
	if b.counted.CompareAndSwap(counted, counted+tokens*every) {
		b.give(min(tokens, b.missing.Load()/tenths+1) * tenths)
	}
}

// Full reports whether no token is missing.
func (b *Bucket) Full() bool { return b.missing.Load() == 0 }

// Return gives back the token of a retry that was not made.
func (b *Bucket) Return() { b.give(tenths) }

// Reward gives back the tenth of a token that a success earns.
func (b *Bucket) Reward() { b.give(1) }

func (b *Bucket) give(n int64) {
	for missing := b.missing.Load(); missing > 0; missing = b.missing.Load() {
		if b.missing.CompareAndSwap(missing, max(missing-n, 0)) {
			return
		}
	}
}
