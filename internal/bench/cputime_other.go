//go:build !linux

package bench

import "time"

// cpuTime returns the time: elsewhere than on Linux no slice is thrown away.
func cpuTime(workers int) time.Duration { return time.Duration(max(workers, 1)) * time.Since(base) }

// Interrupted returns 0: it is known on Linux only.
func Interrupted() int64 { return 0 }
