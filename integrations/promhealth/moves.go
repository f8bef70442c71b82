package promhealth

import (
	"sync"
	"time"

	"github.com/toolhealth/toolhealth"
)

// maxMoves bounds what is counted between two scrapes. The transitions of further tools
// are counted as those of Other.
const maxMoves = 50_000

// owner is a tool or a group, whichever has the breaker.
type owner struct{ tool, group string }

// move is a transition without its moment.
type move struct {
	owner
	from, to toolhealth.State
	cause    toolhealth.Cause
}

// moved is how often there was a move.
type moved struct {
	n       uint64
	created time.Time // when it was zero
}

// moves counts transitions. It is apart from the rest of the Collector, so that a breaker
// that changes does not wait for a scrape.
type moves struct {
	mu     sync.Mutex
	counts map[move]*moved
	since  time.Time // of the last scrape
}

// count is the hook.
func (m *moves) count(t toolhealth.Transition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := move{owner{t.Tool, t.Group}, t.From, t.To, t.Cause}
	if m.counts[key] == nil && len(m.counts) >= maxMoves {
		key.owner = otherOf(key.owner)
	}
	m.add(key, 1, m.since)
}

// add adds n. The caller holds mu.
func (m *moves) add(key move, n uint64, created time.Time) {
	c := m.counts[key]
	if c == nil {
		c = &moved{created: created}
		m.counts[key] = c
	}
	c.n += n
}

// read returns a copy of the counts.
func (m *moves) read() map[move]moved {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := make(map[move]moved, len(m.counts))
	for key, c := range m.counts {
		counts[key] = *c
	}
	return counts
}

// share returns what read returned by label. Owners without a label are counted as those
// of Other, from now on for good: a tool that gets a label later begins at zero.
func (m *moves) share(counts map[move]moved, names map[owner]string) map[move]moved {
	m.mu.Lock()
	defer m.mu.Unlock()
	shared := make(map[move]moved, len(counts))
	for key, c := range counts {
		label, other := key, otherOf(key.owner)
		if name, ok := names[key.owner]; ok {
			label.owner = labelOf(key.owner, name)
		} else if label.owner = other; key.owner != other {
			m.add(label, m.counts[key].n, c.created)
			delete(m.counts, key)
		}
		sum := shared[label]
		sum.n += c.n
		if sum.created.IsZero() || c.created.Before(sum.created) {
			sum.created = c.created
		}
		shared[label] = sum
	}
	return shared
}

// scraped notes when a scrape was.
func (m *moves) scraped(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.since = at
}

// otherOf returns what stands for an owner that has no label.
func otherOf(o owner) owner { return labelOf(o, Other) }

// labelOf returns the owner with another name.
func labelOf(o owner, name string) owner {
	if o.group != "" {
		return owner{group: name}
	}
	return owner{tool: name}
}
