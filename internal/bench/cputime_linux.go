package bench

import (
	"syscall"
	"time"
)

// Interrupted returns how often the kernel took the processor away from this
// thread although it had work to do. Waiting for a lock does not count.
func Interrupted() int64 {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_THREAD, &u) == nil)
	return u.Nivcsw
}

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
