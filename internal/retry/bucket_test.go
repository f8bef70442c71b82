package retry

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// take takes n tokens out of a bucket of this size and reports how many it got.
func take(b *Bucket, size, n int) (got int) {
	for range n {
		if b.Take(size, 0, 0) {
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
	if !b.Take(math.MaxInt, 0, 0) {
		t.Error("no token from the largest bucket")
	}
}

func TestBucket_TenSuccessesEarnOneRetry(t *testing.T) {
	var b Bucket
	take(&b, 3, 3)
	for i := range 9 {
		if b.Reward(); b.Take(3, 0, 0) {
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
	if b.Take(2, time.Second, int64(time.Hour)); take(&b, 2, 5) != 1 {
		t.Error("an hour of refills gave more than the bucket holds")
	}
}

func TestBucket_TimeGivesOneTokenBackAtATime(t *testing.T) {
	const every, start = 10 * time.Second, int64(time.Hour + 3*time.Second)
	var b Bucket
	for range 3 {
		if !b.Take(3, every, start) {
			t.Fatal("no token from a full bucket")
		}
	}
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{
		{0, false}, {every - 1, false}, {every, true}, {2*every - 1, false}, {4 * every, true}, {4 * every, true}, {4 * every, true}, {4 * every, false},
		{5*every - 1, false}, {5 * every, true},
	} {
		if got := b.Take(3, every, start+int64(step.after)); got != step.want {
			t.Errorf("after %v: %v", step.after, got)
		}
	}
}

func TestBucket_TimeGivesBackAllThatIsMissing(t *testing.T) {
	const size = 100
	var b Bucket
	take(&b, size, size)
	b.Take(size, 1, 1000) // the shortest refill is one
	if got := take(&b, size, size); got != size-1 {
		t.Errorf("%d tokens after a thousand refills, want %d", got, size-1)
	}
}

// After nine successes a tenth is still missing.
func TestBucket_TokenHasTenTenths(t *testing.T) {
	for name, back := range map[string]func(*Bucket) bool{
		"returned": func(b *Bucket) bool { b.Return(); return b.Take(2, 0, 0) },
		"refilled": func(b *Bucket) bool { return b.Take(2, time.Second, int64(time.Second)) },
	} {
		var b Bucket
		take(&b, 2, 2)
		if !back(&b) {
			t.Errorf("%s: no token", name)
		}
		for range 9 {
			b.Reward()
		}
		if b.Take(2, 0, 0) {
			t.Errorf("%s: more than a token", name)
		}
	}
}

func TestBucket_SmallerSizeStartsFull(t *testing.T) {
	var b Bucket
	take(&b, 10, 10)
	if got := take(&b, 2, 5); got != 2 {
		t.Errorf("%d tokens from a bucket that became smaller, want 2", got)
	}
	if got := take(&b, 4, 5); got != 2 {
		t.Errorf("%d tokens from one that became larger by 2, want 2", got)
	}
	if b.Full() {
		t.Error("full with every token taken")
	}
}

func TestBucket_ConcurrentTakersGetEachTokenOnce(t *testing.T) {
	const size = 50_000 // long enough for two processors to meet
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
	if wg.Wait(); !b.Full() {
		t.Errorf("%d tenths are missing from a bucket that got all back", b.missing.Load())
	}
}

func TestBucket_ConcurrentTakersGetEachRefillOnce(t *testing.T) {
	for range 3000 {
		var b Bucket
		b.Take(4, time.Second, 0)
		take(&b, 4, 3)
		var got atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if b.Take(4, time.Second, int64(3*time.Second)) {
					got.Add(1)
				}
			})
		}
		wg.Wait()
		if all := int(got.Load()) + take(&b, 4, 5); all != 3 {
			t.Fatalf("%d tokens after three refills", all)
		}
	}
}
