//go:build !linux

package bench

import "time"

// cpuTime returns the time, so that only Linux throws slices away.
func cpuTime(workers int) time.Duration { return time.Duration(max(workers, 1)) * time.Since(base) }

// Interrupted returns 0, because only Linux tells.
func Interrupted() int64 { return 0 }
