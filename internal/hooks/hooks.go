// Package hooks calls the functions that a host has registered for events. A hook
// that panics or ends its goroutine harms neither the caller nor another hook.
package hooks

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// List is a list of hooks. The zero List is empty and ready for use; all
// methods may be called from any goroutine, also from inside a hook.
type List[E any] struct {
	mu     sync.Mutex                 // guards changes of hooks; never held while a hook runs
	hooks  atomic.Pointer[[]*hook[E]] // replaced as a whole, under mu
	panics atomic.Uint64
}

type hook[E any] struct {
	fn func(E)

	mu      sync.Mutex
	active  int           // running calls, nested ones included
	stopped bool          // set by stop: no further call begins
	idle    chan struct{} // closed once stopped is set and active is 0
}

// Add appends fn. The function stop removes fn: when stop has returned, no call of
// fn is running and none will begin. It waits for running calls, unless a hook calls
// it: a hook that waited would wait for itself. It may be called more than once. A
// nil fn is ignored.
func (l *List[E]) Add(fn func(E)) (stop func()) {
	if fn == nil {
		return func() {}
	}
	h := &hook[E]{fn: fn, idle: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	hooks := append(slices.Clone(l.all()), h)
	l.hooks.Store(&hooks)
	return func() { l.remove(h) }
}

func (l *List[E]) all() []*hook[E] {
	if p := l.hooks.Load(); p != nil {
		return *p
	}
	return nil
}

func (l *List[E]) remove(h *hook[E]) {
	l.mu.Lock()
	hooks := slices.DeleteFunc(slices.Clone(l.all()), func(o *hook[E]) bool { return o == h })
	l.hooks.Store(&hooks)
	l.mu.Unlock()

	h.mu.Lock()
	if !h.stopped {
		h.stopped = true
		if h.active == 0 {
			close(h.idle)
		}
	}
	h.mu.Unlock()
	if !insideHook() {
		<-h.idle
	}
}

// Panics returns how often a hook has panicked.
func (l *List[E]) Panics() uint64 { return l.panics.Load() }

// Call calls every hook with e, in the order in which they were added. A hook
// that panics is counted and otherwise ignored; one that ends its goroutine with
// runtime.Goexit ends it after the other hooks were called.
func (l *List[E]) Call(e E) { l.callAll(l.all(), e) }

func (l *List[E]) callAll(hooks []*hook[E], e E) {
	defer func() {
		if len(hooks) > 0 { // a hook ends this goroutine
			l.callAll(hooks, e)
		}
	}()
	for len(hooks) > 0 {
		h := hooks[0]
		hooks = hooks[1:]
		if h.enter() {
			h.run(e, &l.panics)
		}
	}
}

func (h *hook[E]) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return false
	}
	h.active++
	return true
}

// run is also what insideHook looks for on the stack.
func (h *hook[E]) run(e E, panics *atomic.Uint64) {
	defer func() {
		if recover() != nil {
			panics.Add(1)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.active--; h.active == 0 && h.stopped {
			close(h.idle)
		}
	}()
	h.fn(e)
}

// insideHook reports whether this goroutine is running a hook. Only the stack tells
// a function who called it, and only stop pays for reading it.
func insideHook() bool {
	pcs := make([]uintptr, 64)
	for skip := 0; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs)
		frames := runtime.CallersFrames(pcs[:n])
		for more := n > 0; more; {
			var f runtime.Frame
			f, more = frames.Next()
			if strings.Contains(f.Function, "toolhealth/internal/hooks.(*hook[") && strings.HasSuffix(f.Function, ".run") {
				return true
			}
		}
		if n < len(pcs) {
			return false
		}
	}
}
