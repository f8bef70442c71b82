// Package queue is a list whose elements carry its links, so that being in it costs 16
// bytes and no allocation. container/list takes 48 bytes more for each element.
package queue

// Links are what an element needs to be in a [Queue]. The zero Links are in none.
type Links[T any] struct {
	next, prev *T // at the ends of the queue the element itself; nil if it is in none
}

// In reports whether the element is in a queue.
func (l *Links[T]) In() bool { return l.next != nil }

// Queue is a list of elements, the first to go first. An element is in one queue at most.
// A Queue may be used by one goroutine at a time.
type Queue[T any] struct {
	links       func(*T) *Links[T]
	front, back *T
	len         int
}

// New returns an empty queue of elements whose links are what the function returns.
func New[T any](links func(*T) *Links[T]) Queue[T] { return Queue[T]{links: links} }

// Len returns the number of elements.
func (q *Queue[T]) Len() int { return q.len }

// Front returns the first element; nil if there is none.
func (q *Queue[T]) Front() *T { return q.front }

// PushBack makes an element the last one. It must not be in a queue.
func (q *Queue[T]) PushBack(e *T) {
	l := q.links(e)
	l.next, l.prev = e, e
	if q.back == nil {
		q.front = e
	} else {
		l.prev = q.back
		q.links(q.back).next = e
	}
	q.back = e
	q.len++
}

// Remove takes an element out. It does nothing if the element is in no queue.
func (q *Queue[T]) Remove(e *T) {
	l := q.links(e)
	if !l.In() {
		return
	}
	first, last := l.prev == e, l.next == e
	switch {
	case first && last:
		q.front, q.back = nil, nil
	case first:
		q.front = l.next
		q.links(l.next).prev = l.next
	case last:
		q.back = l.prev
		q.links(l.prev).next = l.prev
	default:
		q.links(l.prev).next, q.links(l.next).prev = l.next, l.prev
	}
	*l = Links[T]{}
	q.len--
}

// MoveToBack makes an element of the queue the last one.
func (q *Queue[T]) MoveToBack(e *T) {
	q.Remove(e)
	q.PushBack(e)
}
