package otelhealth

import (
	"sync"

	"github.com/toolhealth/toolhealth/integrations/otelhealth/internal/shown"
)

// maxMoves bounds the transitions that wait to be collected, by tool and kind of
// transition.
const maxMoves = 10_000

// ledger credits what a counter has grown by to the tool, if the tool is shown at that
// moment, else to all others together. So no series falls while its tool stays, and nothing
// is counted twice. The caller of its methods holds a lock, but for note.
type ledger struct {
	accounts map[string]*account // of the tools that the registry has
	other    account
	round    uint64

	mu    sync.Mutex
	moves map[string]map[move]uint64 // by tool; noted since the last round
	noted int                        // entries of moves
}

// account is what one tool has been credited with.
type account struct {
	total  []uint64 // the figures as they were read last
	hidden []uint64 // what of them was credited to the others; nil if nothing was
	moves  map[move]uint64
	round  uint64 // in which the tool was seen
}

// move is one kind of transition.
type move struct{ from, to, cause string }

func newLedger(figures int) *ledger {
	return &ledger{
		accounts: make(map[string]*account),
		other:    account{total: make([]uint64, figures), moves: make(map[move]uint64)},
		moves:    make(map[string]map[move]uint64),
	}
}

// note counts a transition.
func (l *ledger) note(name string, m move) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.moves[name][m] == 0 {
		if l.noted >= maxMoves {
			name = shown.Other
		} else {
			l.noted++
		}
	}
	if l.moves[name] == nil {
		l.moves[name] = make(map[move]uint64)
	}
	l.moves[name][m]++
}

// begin begins a round, in which each tool is credited once, and returns the transitions
// that were noted.
func (l *ledger) begin() map[string]map[move]uint64 {
	l.round++
	l.mu.Lock()
	defer l.mu.Unlock()
	moves := l.moves
	l.moves, l.noted = make(map[string]map[move]uint64), 0
	return moves
}

// credit notes the figures of a tool as they are now, and the transitions since the last
// round.
func (l *ledger) credit(name string, figures []uint64, moves map[move]uint64, isShown bool) *account {
	a := l.accounts[name]
	if a == nil || sum(figures) < sum(a.total) { // a new tool, or one that was removed and came back
		a = &account{total: make([]uint64, len(figures))}
		l.accounts[name] = a
	}
	a.round = l.round
	if !isShown {
		l.others(a, figures, moves)
	}
	for i, n := range figures {
		a.total[i] = max(a.total[i], n)
	}
	if isShown && len(moves) > 0 {
		if a.moves == nil {
			a.moves = make(map[move]uint64)
		}
		add(a.moves, moves)
	}
	return a
}

// others credits the growth of a tool that is not shown to the others.
func (l *ledger) others(a *account, figures []uint64, moves map[move]uint64) {
	if a.hidden == nil {
		a.hidden = make([]uint64, len(figures))
	}
	for i, n := range figures {
		if n > a.total[i] {
			a.hidden[i] += n - a.total[i]
			l.other.total[i] += n - a.total[i]
		}
	}
	add(l.other.moves, moves)
}

// end forgets the tools that the registry no longer has, whose last transitions go to the
// others.
func (l *ledger) end(moves map[string]map[move]uint64) {
	for name, a := range l.accounts {
		if a.round != l.round {
			delete(l.accounts, name)
		}
	}
	for name, m := range moves {
		if l.accounts[name] == nil {
			add(l.other.moves, m)
		}
	}
}

// own returns what the tool itself was credited with of figure i.
func (a *account) own(i int) uint64 {
	if a.hidden == nil {
		return a.total[i]
	}
	return a.total[i] - a.hidden[i]
}

func add(to, from map[move]uint64) {
	for m, n := range from {
		to[m] += n
	}
}

func sum(figures []uint64) (total uint64) {
	for _, n := range figures {
		total += n
	}
	return total
}
