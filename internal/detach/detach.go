// Package detach runs a function that its caller may stop waiting for.
package detach

import (
	"cmp"
	"context"
	"sync/atomic"
)

// Run runs fn on a goroutine of its own and waits for its result, or until ctx is
// done: then it returns ctx.Err(), which is never nil, beside the zero T, and fn runs
// on. The result of an fn that was left is dropped; one that has just returned when ctx
// ends still counts. A goroutine that fn ends returns lost. fn must not panic.
//
// abandoned counts the functions that were left and are still running; nil counts
// nothing.
func Run[T any](ctx context.Context, fn func() T, lost T, abandoned *atomic.Int64) (T, error) {
	if abandoned == nil {
		abandoned = new(atomic.Int64)
	}
	results := make(chan T, 1)
	var left atomic.Bool // swapped in by both, the caller that leaves and fn that ends
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
	return none, cmp.Or(ctx.Err(), context.Canceled) // a ctx of a user may be done before its Err says so
}
