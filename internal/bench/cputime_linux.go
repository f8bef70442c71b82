package bench

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Interrupted returns how often the kernel took the processor away from this
// thread although it had work to do. Waiting for a lock does not count.
func Interrupted() int64 {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_THREAD, &u) == nil)
	return u.Nivcsw
}

// cpuTime returns the processor time that this thread has used, or with workers
// the whole process. It is exact: getrusage counts in ticks of some kernels, so
// that most slices of two milliseconds would seem to have used no time at all.
func cpuTime(workers int) time.Duration {
	clock := int32(unix.CLOCK_THREAD_CPUTIME_ID)
	if workers > 0 {
		clock = unix.CLOCK_PROCESS_CPUTIME_ID
	}
	var t unix.Timespec
	must(unix.ClockGettime(clock, &t) == nil)
	return time.Duration(t.Nano())
}
