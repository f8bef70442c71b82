package retry

import "sync/atomic"

// Bucket is a budget of retries: a retry takes a token, a success gives a tenth of
// one back. The zero Bucket is full, whatever its size, which is the caller's to
// say each time. All methods may be called from any goroutine.
type Bucket struct {
	// missing is how many tenths of a token are not in the bucket, never negative.
	// Every call that changes it does so with a compare-and-swap.
	missing atomic.Int64
}

const tenths = 10 // of a token

// Take takes a token out of a bucket of this size, and reports false if there is
// no whole one.
func (b *Bucket) Take(size int) bool {
	for {
		missing := b.missing.Load()
		if (missing+2*tenths-1)/tenths > int64(size) { // not missing+10 > 10*size: that overflows
			return false
		}
		if b.missing.CompareAndSwap(missing, missing+tenths) {
			return true
		}
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
