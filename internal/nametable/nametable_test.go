package nametable

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func put(t *Table[int], name string, value int) *Node[int] {
	return t.Put(name, func(v *int) { *v = value })
}

func collect(t *Table[int]) map[string]int {
	all := map[string]int{}
	for n := range t.All() {
		all[n.Name()] = n.Value
	}
	return all
}

func TestTable_ZeroValueIsEmpty(t *testing.T) {
	var table Table[int]
	assert.Nil(t, table.Get("a"))
	assert.Nil(t, table.Get(""))
	assert.Zero(t, table.Len())
	assert.Empty(t, collect(&table))
}

func TestNode_StaysValidAfterDelete(t *testing.T) {
	var table Table[int]
	name := []byte("search")
	n := table.Put(string(name), func(v *int) {
		assert.Nil(t, table.Get("search"), "no reader sees it before it is ready")
		*v = 7
	})
	name[0] = 'X'
	assert.Same(t, n, table.Get("search"))
	assert.Equal(t, "search", n.Name())
	table.Delete(n)
	assert.Nil(t, table.Get("search"))
	assert.Zero(t, table.Len())
	assert.Equal(t, 7, n.Value)
	again := put(&table, "search", 8)
	assert.NotSame(t, n, again)
	assert.Same(t, again, table.Get("search"))
}

// Random changes, compared with a map after each.
func TestTable_AgreesWithMap(t *testing.T) {
	seed := uint64(1)
	if text := os.Getenv("TOOLHEALTH_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	for round := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, round))
		var table Table[int]
		model := map[string]int{}
		names := 1 + random.IntN(60)
		for i := range 600 {
			name := fmt.Sprint("n", random.IntN(names))
			n := table.Get(name)
			value, in := model[name]
			require.Equal(t, in, n != nil, "seed %d round %d step %d: %s", seed, round, i, name)
			if !in {
				put(&table, name, i)
				model[name] = i
			} else {
				require.Equal(t, value, n.Value)
				if random.IntN(3) > 0 {
					table.Delete(n)
					delete(model, name)
				}
			}
			require.Equal(t, len(model), table.Len(), "seed %d round %d step %d", seed, round, i)
			if i%20 == 0 {
				require.True(t, maps.Equal(model, collect(&table)), "seed %d round %d step %d", seed, round, i)
			}
		}
	}
}

func TestTable_GrowsAtHalfFullAndShedsTombstones(t *testing.T) {
	var table Table[int]
	slots := func() int { return len(table.view.Load().slots) }
	for i := range 8 {
		put(&table, fmt.Sprint(i), i)
	}
	assert.Equal(t, 16, slots())
	put(&table, "8", 8)
	assert.Equal(t, 64, slots(), "at most a quarter full after it has grown")
	for i := 9; i < 32; i++ {
		put(&table, fmt.Sprint(i), i)
	}
	assert.Equal(t, 64, slots())
	put(&table, "32", 32)
	assert.Equal(t, 256, slots())

	// A table that is a quarter full without its tombstones keeps its size.
	var quarter Table[int]
	for i := range 8 {
		put(&quarter, fmt.Sprint(i), i)
	}
	for i := range 5 {
		quarter.Delete(quarter.Get(fmt.Sprint(i)))
	}
	put(&quarter, "8", 8)
	assert.Equal(t, 16, len(quarter.view.Load().slots))
	assert.Zero(t, quarter.dead)

	// One name is put and deleted again and again: tombstones must not fill the table.
	var churn Table[int]
	for i := range 10_000 {
		n := put(&churn, fmt.Sprint(i), i)
		assert.LessOrEqual(t, 2*(churn.Len()+churn.dead), len(churn.view.Load().slots))
		churn.Delete(n)
	}
	assert.Equal(t, 16, len(churn.view.Load().slots))
	assert.Zero(t, churn.Len())
	assert.Empty(t, collect(&churn))

	// The table shrinks when most names have gone.
	for n := range table.All() {
		table.Delete(n)
	}
	for i := range 200 {
		table.Delete(put(&table, fmt.Sprint("x", i), i))
	}
	assert.Equal(t, 16, slots())
}

func TestTable_ProbeSequencePassesTombstones(t *testing.T) {
	var table Table[int]
	// Eight names in sixteen slots: some collide, whatever the seed is. Deleting
	// one must not hide another.
	for round := range 50 {
		var nodes []*Node[int]
		for i := range 8 {
			nodes = append(nodes, put(&table, fmt.Sprint(round, "-", i), i))
		}
		for i, n := range nodes {
			table.Delete(n)
			for j, other := range nodes {
				if j <= i {
					assert.Nil(t, table.Get(other.Name()))
				} else {
					assert.Same(t, other, table.Get(other.Name()))
				}
			}
		}
	}
}

// The tombstone's name is empty, and a caller may look up the empty name.
func TestTable_EmptyNameFindsNoTombstone(t *testing.T) {
	for range 20 { // each with a seed of its own
		var table Table[int]
		for i := range 8 {
			table.Delete(put(&table, fmt.Sprint(i), i))
		}
		assert.Nil(t, table.Get(""))
	}
}

func TestTable_AllMayStopEarlyAndSeeChanges(t *testing.T) {
	var table Table[int]
	for i := range 8 {
		put(&table, fmt.Sprint(i), i)
	}
	seen := 0
	for range table.All() {
		if seen++; seen == 3 {
			break
		}
	}
	assert.Equal(t, 3, seen)
	seen = 0
	for n := range table.All() {
		seen++
		table.Delete(n)
		put(&table, n.Name()+"'", 0) // grows on the way
	}
	assert.Equal(t, 8, table.Len())
	assert.GreaterOrEqual(t, seen, 8, "every node that was there is seen")
}

// Every reader finds the names that stay at every moment, while other names come and
// go and make the table grow.
func TestTable_ReadersFindWhatStaysDuringWrites(t *testing.T) {
	var table Table[int]
	for i := range 5 {
		put(&table, fmt.Sprint("stays", i), i)
	}
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for !stop.Load() {
				for i := range 5 {
					n := table.Get(fmt.Sprint("stays", i))
					if !assert.NotNil(t, n) || !assert.Equal(t, i, n.Value) {
						return
					}
				}
				stays := 0
				for n := range table.All() {
					if n.Name()[0] == 's' {
						stays++
					} else if !assert.GreaterOrEqual(t, n.Value, 100, "ready before it is seen") {
						return
					}
				}
				if !assert.Equal(t, 5, stays, "each exactly once") {
					return
				}
				assert.GreaterOrEqual(t, table.Len(), 5)
			}
		})
	}
	for round := range 60 {
		var nodes []*Node[int]
		for i := range 1 + round*5%97 {
			nodes = append(nodes, put(&table, fmt.Sprint("goes", round, "-", i), 100+i))
		}
		for _, n := range nodes {
			table.Delete(n)
		}
	}
	stop.Store(true)
	readers.Wait()
	assert.Equal(t, 5, table.Len())
}

func TestLoose_NodeIsInNoTable(t *testing.T) {
	var table Table[int]
	n := Loose[int]("name")
	assert.Equal(t, "name", n.Name())
	assert.Nil(t, table.Get("name"))
	in := table.Put("name", func(*int) {})
	assert.NotSame(t, n, in)
	assert.Equal(t, 1, table.Len())
}

func TestNode_NameRefPointsAtName(t *testing.T) {
	var table Table[int]
	n := table.Put("a", func(*int) {})
	ref := n.NameRef()
	assert.Equal(t, "a", *ref)
	assert.Same(t, ref, n.NameRef())
}
