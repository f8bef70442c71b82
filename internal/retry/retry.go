// Package retry computes how long to wait before a retry, and keeps a budget of
// retries. Waits cannot overflow.
package retry

import (
	"math"
	"time"
)

// Delay returns the wait before attempt+1, attempt counting from 1: base times
// factor for each attempt after the first, never below 0, never above limit, never
// decreasing with attempt. A limit of zero or less means none. A factor below 1, NaN
// included, counts as 1.
func Delay(base, limit time.Duration, factor float64, attempt int) time.Duration {
	if base <= 0 {
		return 0
	}
	if limit <= 0 {
		limit = math.MaxInt64
	}
	if !(factor > 1) || attempt <= 1 {
		return min(base, limit)
	}
	d := float64(base) * math.Pow(factor, float64(attempt-1))
	if d >= float64(limit) { // also if d is +Inf
		return limit
	}
	return max(time.Duration(d), base) // the product may be rounded down
}

// Jitter takes up to the fraction jitter away from d, uniformly by draw in [0,1):
// the result is in [d*(1-jitter), d]. A jitter outside 0..1 counts as the nearer
// end, NaN as 0; a negative d as 0.
func Jitter(d time.Duration, jitter, draw float64) time.Duration {
	d = max(d, 0)
	if !(jitter > 0) {
		return d
	}
	cut := time.Duration(float64(d) * min(jitter, 1) * draw)
	return max(d-cut, 0)
}

// Spread returns how long to wait before a retry for which the tool stated a wait, and
// the least part of that, which has to fit the caller's time. The least wait is the
// stated one, or what a back-off keeps of itself under its jitter if that is longer.
// The rest is drawn, in [0,1), so that callers who were told the same wait do not
// return together. A jitter outside 0..1 counts as the nearer end, NaN as 0.
func Spread(stated, backoff time.Duration, jitter, draw float64) (wait, least time.Duration) {
	stated, backoff = max(stated, 0), max(backoff, 0)
	kept := Jitter(backoff, jitter, 1)
	least = max(stated, kept)
	rest := time.Duration(float64(backoff-kept) * draw)
	return least + min(rest, math.MaxInt64-least), least
}
