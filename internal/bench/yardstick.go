package bench

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Yardstick tells whether the processors are free for the caller. The kernel knows its
// own processes, but not what the host of a virtual machine runs on the other half of a
// core. In that case a fixed piece of work takes a quarter longer. A Yardstick holds the
// shortest time that the work has taken so far, by the number of goroutines that did
// it at once. An empty map is ready for use, a nil map is not; use it from one
// goroutine.
type Yardstick map[int]time.Duration

// quiet runs the work on one goroutine for each worker, but on no more goroutines than
// there are processors. It reports whether none of them took a tenth longer than the
// best time so far: a processor does not always run at the same speed.
func (y Yardstick) quiet(workers int) bool {
	n := min(max(workers, 1), runtime.GOMAXPROCS(0))
	shortest, longest := workAtOnce(n)
	if y[n] == 0 || shortest < y[n] {
		y[n] = shortest
	}
	return longest <= y[n]+y[n]/10
}

// workAtOnce runs the work on n goroutines at once and returns the shortest and the
// longest time. With n = 1 it uses the caller's goroutine and allocates nothing.
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
			for there.Add(1); int(there.Load()) < n; { // start together, so that all processors are measured
			}
			took[i] = fixedWork()
		})
	}
	wg.Wait()
	return slices.Min(took), slices.Max(took)
}

// fixedWork keeps the processor busy for about 20 microseconds with arithmetic only,
// four sums at a time.
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
