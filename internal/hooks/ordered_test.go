package hooks

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recorded returns a list that notes the events it is called with.
func recorded() (list *List[int], log *[]int) {
	list, log = new(List[int]), new([]int)
	list.Add(func(e int) { *log = append(*log, e) })
	return list, log
}

// Two goroutines may win their swaps in one order and deliver in the other.
func TestOrdered_EarlyEventWaitsForPredecessor(t *testing.T) {
	list, log := recorded()
	o := NewOrdered[int](2)
	o.Deliver(5, []int{50}, list)
	o.Deliver(3, []int{30, 40}, list)
	assert.Empty(t, *log)
	assert.Len(t, o.pending, 3)
	assert.False(t, o.Delivering(), "the first one has not arrived")
	o.Deliver(2, []int{20}, list)
	assert.Equal(t, []int{20, 30, 40, 50}, *log)
	assert.Nil(t, o.pending, "delivered events leave nothing pending")
	o.Deliver(6, []int{60, 70}, list)
	o.Deliver(8, []int{80}, list)
	assert.Equal(t, []int{20, 30, 40, 50, 60, 70, 80}, *log)
	assert.Nil(t, o.pending)
	assert.False(t, o.Delivering())
}

func TestOrdered_GapHoldsBackWhatFollows(t *testing.T) {
	list, log := recorded()
	o := NewOrdered[int](1)
	o.Deliver(2, []int{20}, list)
	o.Deliver(4, []int{40}, list)
	o.Deliver(1, []int{10}, list)
	assert.Equal(t, []int{10, 20}, *log)
	assert.Len(t, o.pending, 1)
	assert.False(t, o.Delivering(), "otherwise no goroutine would deliver the missing event")
	o.Deliver(3, []int{30}, list)
	assert.Equal(t, []int{10, 20, 30, 40}, *log)
	assert.Nil(t, o.pending)
}

func TestOrdered_ReentrantHookGetsItsOwnEventsInOrder(t *testing.T) {
	var list List[int]
	var log []string
	o := NewOrdered[int](2)
	list.Add(func(e int) {
		assert.True(t, o.Delivering())
		log = append(log, fmt.Sprintf("begin %d", e))
		if e < 5 {
			o.Deliver(uint64(e)+1, []int{e + 1}, &list)
		}
		log = append(log, fmt.Sprintf("end %d", e))
	})
	o.Deliver(2, []int{2}, &list)
	assert.Equal(t, []string{"begin 2", "end 2", "begin 3", "end 3", "begin 4", "end 4", "begin 5", "end 5"}, log)
	assert.False(t, o.Delivering())
}

func TestOrdered_HookThatEndsItsGoroutineLosesNoEvent(t *testing.T) {
	var list List[int]
	o := NewOrdered[int](2)
	list.Add(func(e int) {
		if e == 2 {
			o.Deliver(4, []int{4}, &list) // queued behind this one
		}
		if e != 3 {
			runtime.Goexit()
		}
	})
	var log []int
	list.Add(func(e int) { log = append(log, e) })
	var group sync.WaitGroup
	group.Go(func() {
		o.Deliver(2, []int{2, 3}, &list)
		t.Error("the goroutine goes on")
	})
	group.Wait()
	assert.Equal(t, []int{2, 3, 4}, log)
	assert.False(t, o.Delivering())
	assert.Nil(t, o.pending)
	o.Deliver(5, []int{3}, &list)
	assert.Equal(t, []int{2, 3, 4, 3}, log, "and the queue is not stuck")
}

// While one goroutine delivers, the others leave their events to it and go on.
func TestOrdered_DeliveringGoroutineTakesWhatOthersBring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list List[int]
		var log []string
		start := time.Now()
		list.Add(func(e int) {
			time.Sleep(time.Minute)
			log = append(log, fmt.Sprint(e, " after ", time.Since(start)))
		})
		o := NewOrdered[int](1)
		var group sync.WaitGroup
		group.Go(func() { o.Deliver(1, []int{1}, &list) })
		synctest.Wait()
		assert.True(t, o.Delivering())
		o.Deliver(3, []int{3}, &list)
		o.Deliver(2, []int{2}, &list)
		assert.Equal(t, time.Duration(0), time.Since(start), "they do not wait")
		group.Wait()
		assert.Equal(t, []string{"1 after 1m0s", "2 after 2m0s", "3 after 3m0s"}, log)
		assert.False(t, o.Delivering())
	})
}

func TestOrdered_ManyGoroutines(t *testing.T) {
	for range 100 {
		list, log := recorded() // one goroutine at a time delivers
		o := NewOrdered[int](1)
		var group sync.WaitGroup
		begin := make(chan struct{})
		var want []int
		for i := range 8 {
			first := 1 + 2*i
			want = append(want, first, first+1)
			group.Go(func() {
				<-begin
				o.Deliver(uint64(first), []int{first, first + 1}, list)
			})
		}
		close(begin)
		group.Wait()
		require.Equal(t, want, *log)
		require.False(t, o.Delivering())
		require.Nil(t, o.pending, "delivered events leave nothing pending")
	}
}
