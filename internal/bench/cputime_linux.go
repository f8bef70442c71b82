package bench

import (
	"syscall"
	"time"
)

// cpuTime returns the processor time that this thread has used, or with workers
// the whole process.
func cpuTime(workers int) time.Duration {
	who := syscall.RUSAGE_THREAD
	if workers > 0 {
		who = syscall.RUSAGE_SELF
	}
	var u syscall.Rusage
	must(syscall.Getrusage(who, &u) == nil)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
