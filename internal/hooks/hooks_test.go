package hooks

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestList_CallsHooksInOrderOfAdding(t *testing.T) {
	var list List[int]
	list.Call(0) // the zero list has none
	var got []string
	for i := range 3 {
		list.Add(func(e int) { got = append(got, fmt.Sprint(i, ":", e)) })
	}
	list.Add(nil)
	list.Add(nil)()
	list.Call(7)
	assert.Equal(t, []string{"0:7", "1:7", "2:7"}, got)
	assert.Zero(t, list.Panics(), "the nil hook is not called")
}

func TestList_AnyWhileThereAreHooks(t *testing.T) {
	var l List[int]
	assert.False(t, l.Any())
	stop := l.Add(func(int) {})
	assert.True(t, l.Any())
	stop()
	assert.False(t, l.Any())
}

func TestList_StopRemovesOneHookAndMayBeRepeated(t *testing.T) {
	var list List[int]
	var got []string
	hook := func(name string) func(int) { return func(int) { got = append(got, name) } }
	list.Add(hook("a"))
	stop := list.Add(hook("b"))
	list.Add(hook("c"))
	stop()
	stop()
	list.Call(1)
	assert.Equal(t, []string{"a", "c"}, got)
	got = nil
	list.Add(hook("b"))
	list.Call(1)
	assert.Equal(t, []string{"a", "c", "b"}, got)
}

func TestList_PanicIsCountedAndHarmsNoOtherHook(t *testing.T) {
	var list List[int]
	calls := 0
	list.Add(func(int) { panic("first") })
	list.Add(func(int) { calls++ })
	list.Add(func(int) { panic(nil) })
	assert.NotPanics(t, func() { list.Call(1); list.Call(2) })
	assert.Equal(t, 2, calls)
	assert.Equal(t, uint64(4), list.Panics())
}

func TestList_PanickingHookCanBeStopped(t *testing.T) {
	var list List[int]
	stop := list.Add(func(int) { panic("x") })
	list.Call(1)
	stop()
	list.Call(2)
	assert.Equal(t, uint64(1), list.Panics())
}

func TestList_GoexitTakesEffectAfterOtherHooks(t *testing.T) {
	var list List[int]
	var got []string
	var stops []func()
	add := func(fn func(int)) { stops = append(stops, list.Add(fn)) }
	add(func(int) { got = append(got, "a"); runtime.Goexit() })
	add(func(int) { got = append(got, "b"); runtime.Goexit() })
	add(func(int) { panic("c") })
	add(func(int) { got = append(got, "d"); runtime.Goexit() })
	add(func(int) { got = append(got, "e") })
	returned := false
	var group sync.WaitGroup
	group.Go(func() {
		list.Call(1)
		returned = true
	})
	group.Wait()
	assert.False(t, returned)
	assert.Equal(t, []string{"a", "b", "d", "e"}, got)
	assert.Equal(t, uint64(1), list.Panics(), "ending a goroutine is not a panic")
	for _, stop := range stops {
		stop() // does not wait for calls that have ended this way
	}
}

func TestList_StopWaitsForRunningCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list List[int]
		var running, calls atomic.Int32
		stop := list.Add(func(int) {
			calls.Add(1)
			running.Add(1)
			time.Sleep(time.Minute)
			running.Add(-1)
		})
		for range 3 {
			go list.Call(1)
		}
		time.Sleep(time.Second)
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() {
				start := time.Now()
				stop()
				assert.Equal(t, 59*time.Second, time.Since(start))
				assert.Zero(t, running.Load(), "no call is running")
			})
		}
		synctest.Wait()
		list.Call(2) // stopped already, though stop has not returned
		assert.Equal(t, int32(3), calls.Load())
		group.Wait()
		list.Call(3)
		assert.Equal(t, int32(3), calls.Load(), "no call begins")
	})
}

func TestList_StopInsideHookDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list List[int]
		var got []int
		var stop func()
		stop = list.Add(func(e int) {
			got = append(got, e)
			deep(200, stop)
			got = append(got, -e)
		})
		list.Call(1)
		list.Call(2)
		assert.Equal(t, []int{1, -1}, got)
		stop()

		// Two hooks that run at once and stop each other must not wait for each
		// other either.
		var other List[int]
		var stopA, stopB func()
		var calls atomic.Int32
		stopA = list.Add(func(int) { calls.Add(1); time.Sleep(time.Second); stopB() })
		stopB = other.Add(func(int) { calls.Add(1); time.Sleep(time.Second); stopA() })
		go list.Call(3)
		other.Call(3)
		synctest.Wait()
		list.Call(4)
		other.Call(4)
		assert.Equal(t, int32(2), calls.Load())
	})
}

func TestList_HookRemovedByEarlierHookIsNotCalled(t *testing.T) {
	var list List[int]
	var stop func()
	list.Add(func(int) { stop() })
	stop = list.Add(func(int) { t.Error("called after it was stopped") })
	list.Call(1)
}

// deep calls fn from far down the stack.
//
//go:noinline
func deep(n int, fn func()) {
	if n > 0 {
		deep(n-1, fn)
		return
	}
	fn()
}

func TestList_StopWaitsForNestedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list List[int]
		var log []string
		stop := list.Add(func(e int) {
			log = append(log, fmt.Sprint("in ", e))
			if e > 0 {
				list.Call(e - 1)
				time.Sleep(time.Second)
			}
			log = append(log, fmt.Sprint("out ", e))
		})
		go list.Call(2)
		time.Sleep(time.Millisecond)
		start := time.Now()
		stop()
		assert.Equal(t, 2*time.Second-time.Millisecond, time.Since(start))
		assert.Equal(t, []string{"in 2", "in 1", "in 0", "out 0", "out 1", "out 2"}, log)
	})
}

func TestInsideHook_SeesOnlyHooks(t *testing.T) {
	assert.False(t, insideHook())
	inside, below := false, false
	var list List[string]
	list.Add(func(string) {
		inside = insideHook()
		deep(1000, func() { below = insideHook() })
	})
	list.Call("")
	assert.True(t, inside)
	assert.True(t, below)
	var another sync.WaitGroup
	list.Add(func(string) { another.Go(func() { inside = insideHook() }) })
	list.Call("")
	another.Wait()
	assert.False(t, inside, "a goroutine that a hook started is not inside it")
	deep(63, func() { assert.False(t, insideHook()) })
	deep(64*3, func() { assert.False(t, insideHook()) })
}

// insideHook looks for a name: a change that renames the package, the type or the
// method has to change insideHook, too.
func TestInsideHook_LooksForNameOfRun(t *testing.T) {
	var names []string
	var list List[int]
	list.Add(func(int) {
		pcs := make([]uintptr, 16)
		frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			names = append(names, f.Function)
		}
	})
	list.Call(1)
	assert.Contains(t, names, "github.com/toolhealth/toolhealth/internal/hooks.(*hook[...]).run")
}

// runner has a method by the name that insideHook looks for.
type runner struct{}

//go:noinline
func (*runner) run(fn func()) { fn() }

func TestInsideHook_IgnoresOtherRunMethods(t *testing.T) {
	new(runner).run(func() { assert.False(t, insideHook()) })
}

func TestList_MayChangeDuringCalls(t *testing.T) {
	var list List[int]
	var steady, passing atomic.Int64
	list.Add(func(int) { steady.Add(1) })
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range 300 {
				list.Call(i)
			}
		})
		group.Go(func() {
			for range 100 {
				var stopped atomic.Bool
				stop := list.Add(func(int) {
					passing.Add(1)
					assert.False(t, stopped.Load(), "called after stop had returned")
				})
				runtime.Gosched()
				stop()
				stopped.Store(true)
			}
		})
	}
	group.Wait()
	assert.Equal(t, int64(1200), steady.Load())
	assert.Len(t, list.all(), 1)
}
