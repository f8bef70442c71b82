package retry

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
)

// take takes n tokens out of a bucket of this size and reports how many it got.
func take(b *Bucket, size, n int) (got int) {
	for range n {
		if b.Take(size) {
			got++
		}
	}
	return got
}

func TestBucket_HoldsItsSize(t *testing.T) {
	for _, size := range []int{0, 1, 2, 10} {
		var b Bucket
		if got := take(&b, size, size+5); got != size {
			t.Errorf("%d tokens from a bucket of %d", got, size)
		}
	}
	var b Bucket
	if !b.Take(math.MaxInt) {
		t.Error("no token from the largest bucket")
	}
}

func TestBucket_TenSuccessesEarnOneRetry(t *testing.T) {
	var b Bucket
	take(&b, 3, 3)
	for i := range 9 {
		if b.Reward(); b.Take(3) {
			t.Fatalf("a token after %d successes", i+1)
		}
	}
	if b.Reward(); take(&b, 3, 2) != 1 {
		t.Error("not one token after ten successes")
	}
}

func TestBucket_NeverHoldsMoreThanItsSize(t *testing.T) {
	var b Bucket
	b.Reward()
	b.Return()
	take(&b, 2, 1)
	b.Reward()
	b.Return()
	if got := take(&b, 2, 5); got != 2 {
		t.Errorf("%d tokens, want 2", got)
	}
}

func TestBucket_SmallerSizeCountsWhatIsMissing(t *testing.T) {
	var b Bucket
	take(&b, 10, 4)
	if b.Take(4) {
		t.Error("a token although as many are missing as the bucket holds")
	}
	if b.Return(); !b.Take(4) {
		t.Error("no token although one came back")
	}
}

func TestBucket_ConcurrentTakersGetEachTokenOnce(t *testing.T) {
	const size = 1000
	var b Bucket
	var got atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { got.Add(int64(take(&b, size, size))) })
	}
	if wg.Wait(); got.Load() != size {
		t.Errorf("%d tokens from a bucket of %d", got.Load(), size)
	}
	for range 8 {
		wg.Go(func() {
			for range 10 * size / 8 {
				b.Reward()
			}
		})
	}
	if wg.Wait(); b.missing.Load() != 0 {
		t.Errorf("%d tenths are missing from a bucket that got all back", b.missing.Load())
	}
}

func TestBucket_FullWithoutMissingToken(t *testing.T) {
	var b Bucket
	if !b.Full() {
		t.Error("the zero bucket is not full")
	}
	take(&b, 2, 1)
	for range 10 {
		if b.Full() {
			t.Error("full too soon")
		}
		b.Reward()
	}
	if !b.Full() {
		t.Error("not full with every token in it")
	}
}
