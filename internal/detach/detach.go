// Package detach runs a function that its caller may stop waiting for.
package detach

import (
	"context"
	"sync/atomic"
)

// Run runs fn on a new goroutine and waits for its result or for the end of ctx. If
// ctx ends first, Run returns the zero T and ctx.Err(), fn runs on, and its result is
// dropped. If fn returns at the same moment as ctx ends, its result counts. If fn ends
// its goroutine, Run returns lost. fn must not panic.
//
// abandoned counts the functions that Run has left and that are still running. Nil
// means that they are not counted.
func Run[T any](ctx context.Context, fn func() T, lost T, abandoned *atomic.Int64) (T, error) {
	if abandoned == nil {
		abandoned = new(atomic.Int64)
	}
	results := make(chan T, 1)
	// left is set by the caller when it leaves and by the goroutine when fn has ended.
	// The second of the two finds it set.
	var left atomic.Bool
	go func() {
		result := lost
		defer func() {
			if left.Swap(true) {
				abandoned.Add(-1)
			}
			results <- result
		}()
		result = fn()
	}()
	select {
	case result := <-results:
		return result, nil
	case <-ctx.Done():
	}
	abandoned.Add(1)
	if left.Swap(true) { // fn has just ended
		abandoned.Add(-1)
		return <-results, nil
	}
	var none T
	return none, ctx.Err()
}
