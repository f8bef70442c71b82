package queue

import (
	"container/list"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

type element struct {
	number int
	links  Links[element]
}

// What is done at random to a Queue and to a container/list has the same effect.
func TestQueue_AgreesWithList(t *testing.T) {
	q := New(func(e *element) *Links[element] { return &e.links })
	var l list.List
	elements := make([]element, 6)
	places := make([]*list.Element, len(elements))
	for i := range elements {
		elements[i].number = i
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		i := random.IntN(len(elements))
		e := &elements[i]
		require.Equal(t, places[i] != nil, e.links.In())
		switch act := random.IntN(3); {
		case places[i] == nil && act == 0:
			q.Remove(e) // does nothing
		case places[i] == nil:
			q.PushBack(e)
			places[i] = l.PushBack(i)
		case act == 0:
			q.MoveToBack(e)
			l.MoveToBack(places[i])
		default:
			q.Remove(e)
			l.Remove(places[i])
			places[i] = nil
		}
		var want, got []int
		for p := l.Front(); p != nil; p = p.Next() {
			want = append(want, p.Value.(int))
		}
		for e := q.Front(); e != nil; e = e.links.next {
			if got = append(got, e.number); e.links.next == e {
				break
			}
		}
		require.Equal(t, want, got)
		var back []int
		for e := q.back; e != nil; e = e.links.prev {
			if back = append(back, e.number); e.links.prev == e {
				break
			}
		}
		require.Len(t, back, len(want))
		for i := range back {
			require.Equal(t, want[len(want)-1-i], back[i])
		}
		require.Equal(t, len(want), q.Len())
	}
}
