package frame

import (
	"context"
	"iter"
	"math"
	"sync"
	"time"
)

// Limits are the bounds of an attempt. The zero Limits bound nothing.
type Limits struct {
	Silence time.Duration // the longest time without a sign of life; zero or less means no bound
	Whole   time.Duration // the longest time in all, without pauses; zero or less means no bound
	Lease   Lease         // what a probe holds; nil if the attempt is no probe
}

// Lease is the lease of a probe. Its methods may be called from any goroutine, and may
// call hooks of a user.
type Lease interface {
	KeepAlive()        // the probe shows a sign of life
	Pause(paused bool) // a pause begins, or is over
}

// clock measures an attempt against its limits. Times are durations since began. Of two
// clocks, that of the inner attempt is locked first. No code of a user runs under a lock.
type clock struct {
	Limits
	cancel context.CancelCauseFunc // nil without Limits

	mu      sync.Mutex
	began   time.Time
	alive   time.Duration // the last sign of life; what is paused after it moves it
	pauses  int           // that have not been resumed
	since   time.Duration // when the first of pauses began
	paused  time.Duration // what the pauses that are over took
	held    bool          // the pauses of this clock stop that of the attempt around it
	overdue bool          // the whole time is over
	timer   *time.Timer   // nil without a bound

	told    bool // the lease has been told of a pause
	telling bool // it is being told
}

func (c *clock) now() time.Duration { return time.Since(c.began) }

// start starts the clock of a, which has none yet.
func (a *Attempt) start(c *clock) {
	c.began = time.Now()
	a.clock.Store(c)
	if c.Silence > 0 || c.Whole > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.timer = time.AfterFunc(c.due(), func() { a.expire(c) })
	}
}

// due returns when the attempt has to end, unless it shows a sign of life or is paused.
func (c *clock) due() time.Duration {
	due := time.Duration(math.MaxInt64)
	if c.Silence > 0 {
		due = c.alive + c.Silence
	}
	if c.Whole > 0 {
		due = min(due, c.paused+c.Whole)
	}
	return due
}

// expire ends the ctx of a if its time is up, and else looks again when it may be.
func (a *Attempt) expire(c *clock) {
	c.mu.Lock()
	now := c.now()
	due := c.due()
	running := c.pauses == 0 && !a.ended.Load()
	up := running && now >= due
	switch {
	case up:
		c.overdue = c.Whole > 0 && now >= c.paused+c.Whole
	case running:
		c.timer.Reset(due - now)
	}
	c.mu.Unlock()
	if up {
		defer func() { _ = recover() }() // a ctx of a user may panic when it is left, which comes last
		c.cancel(context.DeadlineExceeded)
	}
}

// Overdue reports whether the bound of the whole time has ended a.
func (a *Attempt) Overdue() bool {
	c := a.clock.Load()
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overdue
}

// deadline returns when the whole time of a is over, and false if it has no bound.
func (a *Attempt) deadline() (time.Time, bool) {
	c := a.clock.Load()
	if c == nil || c.Whole <= 0 {
		return time.Time{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.began.Add(c.pausedUntil(c.now()) + c.Whole), true
}

// pausedUntil returns what all pauses have taken until now.
func (c *clock) pausedUntil(now time.Duration) time.Duration {
	if c.pauses > 0 {
		return c.paused + now - c.since
	}
	return c.paused
}

// Paused returns what the pauses of a have taken.
func (a *Attempt) Paused() time.Duration {
	c := a.clock.Load()
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pausedUntil(c.now())
}

// KeepAlive is a sign of life of a and of the attempts around it. It goes outwards up to
// the first that has ended. A nil a has none.
func (a *Attempt) KeepAlive() {
	for ; a != nil && !a.ended.Load(); a = a.outer {
		c := a.clock.Load()
		if c == nil {
			continue
		}
		c.mu.Lock()
		c.alive = max(c.alive, c.now())
		c.mu.Unlock()
		if c.Lease != nil {
			c.Lease.KeepAlive()
		}
	}
}

// Pause stops the clock of a and of the attempts around it, until resume is called, for
// the first time, or a ends. It goes outwards up to the first that has ended. A nil a
// has no clock.
func (a *Attempt) Pause() (resume func()) {
	if !a.pause() {
		return func() {}
	}
	told := false
	defer func() {
		if !told {
			a.resume() // a hook ends the goroutine
		}
	}()
	a.tellLeases()
	told = true
	var once sync.Once // a OnceFunc panics if a hook ends the goroutine
	return func() {
		once.Do(func() {
			a.resume()
			a.tellLeases()
		})
	}
}

// pause reports false if a has ended, or is nil.
func (a *Attempt) pause() bool {
	if a == nil {
		return false
	}
	if a.clock.Load() == nil {
		a.clock.CompareAndSwap(nil, &clock{began: time.Now()})
	}
	c := a.clock.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.ended.Load() {
		return false
	}
	if c.pauses == 0 { // the timer may fire meanwhile, and does nothing
		c.since = c.now()
		c.held = a.outer.pause()
	}
	c.pauses++
	return true
}

// resume takes one pause of a back.
func (a *Attempt) resume() {
	c := a.clock.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.ended.Load() { // then End resumes
		return
	}
	if c.pauses--; c.pauses > 0 {
		return
	}
	now := c.now()
	took := now - c.since
	c.paused += took
	c.alive = min(c.alive+took, now)
	if c.timer != nil {
		c.timer.Reset(c.due() - now)
	}
	if c.held {
		a.outer.resume()
	}
}

// End notes that a has ended, and returns what its pauses have taken. Those that were
// not resumed end with it.
func (a *Attempt) End() (paused time.Duration) {
	a.ended.Store(true)
	c := a.clock.Load()
	if c == nil {
		return 0
	}
	paused = a.stop(c)
	a.outer.tellLeases()
	return paused
}

// stop stops the clock of a, which has ended.
func (a *Attempt) stop(c *clock) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.paused = c.pausedUntil(c.now()); c.pauses > 0 && c.held {
		a.outer.resume()
	}
	c.pauses = 0
	return c.paused
}

// Probe reports whether a, which is running, is a probe, or part of one of the same tool
// around it.
func (a *Attempt) Probe() bool {
	for in := a; in != nil && !in.ended.Load(); in = in.outer {
		if *in.Tool != *a.Tool || in.Owner != a.Owner {
			return false
		}
		if c := in.clock.Load(); c != nil && c.Lease != nil {
			return true
		}
	}
	return false
}

// Leases yields the leases of a and of the attempts around it, the nearest first, up to
// the first that has ended. A nil a has none.
func (a *Attempt) Leases() iter.Seq[Lease] {
	return func(yield func(Lease) bool) {
		for in := a; in != nil && !in.ended.Load(); in = in.outer {
			if c := in.clock.Load(); c != nil && c.Lease != nil && !yield(c.Lease) {
				return
			}
		}
	}
}

// tellLeases tells the leases of a and of the attempts around it whether they are paused.
func (a *Attempt) tellLeases() {
	for ; a != nil; a = a.outer {
		if c := a.clock.Load(); c != nil && c.Lease != nil {
			c.tellLease()
		}
	}
}

// tellLease tells the lease until what it was told is true. One goroutine at a time does
// that, without the lock.
func (c *clock) tellLease() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.telling && c.told != (c.pauses > 0) {
		c.told = !c.told
		c.tell(c.told)
	}
}

// tell gives up the lock while it tells the lease, also if a hook ends the goroutine.
func (c *clock) tell(paused bool) {
	c.telling = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.telling = false
	}()
	c.Lease.Pause(paused)
}
