package bench

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Yardstick tells whether the processors do nothing else. The kernel knows what else
// it runs itself, but not what the host of a virtual machine runs on the other half of
// a core; a fixed piece of work takes a quarter longer then. A Yardstick holds the
// shortest time that the work has taken so far, by the number of goroutines that did
// it at once. An empty map is ready for use, a nil map is not; use it from one
// goroutine.
type Yardstick map[int]time.Duration

// quiet has as many goroutines as there are workers, but no more than processors,
// do the work, and reports whether it took all of them what it takes at best, give
// or take a tenth: a processor does not always run at the same speed.
func (y Yardstick) quiet(workers int) bool {
	n := min(max(workers, 1), runtime.GOMAXPROCS(0))
	shortest, longest := workAtOnce(n)
	if y[n] == 0 || shortest < y[n] {
		y[n] = shortest
	}
	return longest <= y[n]+y[n]/10
}

// workAtOnce has n goroutines do the work and returns the shortest and the longest
// time. One does it where it is and allocates nothing.
func workAtOnce(n int) (shortest, longest time.Duration) {
	if n == 1 {
		d := fixedWork()
		return d, d
	}
	took := make([]time.Duration, n)
	var there atomic.Int64
	var wg sync.WaitGroup
	for i := range took {
		wg.Go(func() {
			for there.Add(1); int(there.Load()) < n; { // all start at once, so that all processors are measured
			}
			took[i] = fixedWork()
		})
	}
	wg.Wait()
	return slices.Min(took), slices.Max(took)
}

// fixedWork keeps the processor busy for some 20 microseconds with nothing but
// arithmetic, four sums at a time.
func fixedWork() time.Duration {
	start := time.Now()
	a, b, c, d := uint64(1), uint64(2), uint64(3), uint64(4)
	for range 20_000 {
		a, b, c, d = 3*a+1, 5*b+2, 7*c+3, 9*d+4
	}
	took := time.Since(start)
	must(a^b^c^d != 0)
	return took
}
