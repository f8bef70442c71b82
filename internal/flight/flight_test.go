package flight

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

func TestTable_ReadsNumberAndOldestOfRunningCalls(t *testing.T) {
	var table Table
	want := func(n int, oldest int64) {
		t.Helper()
		if gotN, gotOldest := table.Read(); gotN != n || gotOldest != oldest {
			t.Fatalf("%d calls since %d, want %d since %d", gotN, gotOldest, n, oldest)
		}
	}
	want(0, 0)
	a, b, c := table.Start(300), table.Start(100), table.Start(200)
	want(3, 100)
	b.Store(0)
	want(2, 200)
	c.Store(0)
	want(1, 300)
	a.Store(0)
	want(0, 0)
}

func TestTable_SeesCallsThatBeganAtZeroOrBefore(t *testing.T) {
	var table Table
	table.Start(0)
	table.Start(-5)
	if n, oldest := table.Read(); n != 2 || oldest != 1 {
		t.Fatalf("%d calls since %d", n, oldest)
	}
}

// Random starts and ends are compared with a plain map.
func TestTable_AgreesWithMapOfRunningCalls(t *testing.T) {
	var table Table
	running := make(map[*Slot]int64)
	rng := rand.New(rand.NewPCG(1, 2))
	for step := range 20_000 {
		if rng.IntN(100) < 52-step/1000 || len(running) == 0 {
			now := rng.Int64N(1_000_000) + 1
			s := table.Start(now)
			if _, taken := running[s]; taken {
				t.Fatal("one slot for two calls")
			}
			running[s] = now
		} else {
			for s := range running {
				s.Store(0)
				delete(running, s)
				break
			}
		}
		if step%50 != 0 {
			continue
		}
		oldest := int64(0)
		for _, start := range running {
			if oldest == 0 || start < oldest {
				oldest = start
			}
		}
		if n, got := table.Read(); n != len(running) || got != oldest {
			t.Fatalf("step %d: %d calls since %d, want %d since %d", step, n, got, len(running), oldest)
		}
	}
}

func TestTable_GoroutinesNeverShareSlot(t *testing.T) {
	var table Table
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range int64(2000) {
				s := table.Start(i + 1)
				if got := s.Load(); got != i+1 {
					t.Errorf("the slot says %d, want %d", got, i+1)
				}
				s.Store(0)
			}
		})
	}
	all.Wait()
	if n, _ := table.Read(); n != 0 {
		t.Errorf("%d calls are left", n)
	}
}

// A table that looked at every slot before it made a new one would look billions of
// times for a hundred thousand calls.
func TestTable_HundredThousandCallsNeedFewChunks(t *testing.T) {
	var table Table
	const calls = 100_000
	for range calls {
		table.Start(7) // at one time, as in a bubble
	}
	if n, _ := table.Read(); n != calls {
		t.Fatalf("%d calls", n)
	}
	slots, chunks := len(table.first), 0
	for c := table.more.Load(); c != nil; c = c.older {
		slots += len(c.slots)
		chunks++
	}
	if slots > 3*calls || chunks > 20 {
		t.Errorf("%d slots in %d chunks", slots, chunks)
	}
}

func TestTable_DoublesOnlyWhenFull(t *testing.T) {
	var table Table
	slots := len(table.first)
	for range slots {
		table.Start(1)
	}
	if table.more.Load() != nil {
		t.Fatal("a chunk while a slot was free")
	}
	for range 4 {
		table.Start(1)
		newest := table.more.Load()
		if len(newest.slots) != slots {
			t.Fatalf("%d new slots after %d", len(newest.slots), slots)
		}
		for range slots - 1 {
			table.Start(1)
		}
		if slots *= 2; table.more.Load() != newest {
			t.Fatalf("a new chunk while one of %d slots was free", slots)
		}
	}
}

// All goroutines search from the same slot and need new chunks at the same moment. A
// slot that two of them took, or a chunk that another one replaced, loses a call.
func TestTable_SeesAllCallsThatBeginAtOnce(t *testing.T) {
	const goroutines, calls = 4, 6
	start := time.Now() // the race detector makes a round slow
	for round := 0; round < 15_000 && time.Since(start) < 2*time.Second; round++ {
		var table Table
		var ready, all sync.WaitGroup
		ready.Add(goroutines)
		for range goroutines {
			all.Go(func() {
				ready.Done()
				ready.Wait()
				for range calls {
					table.Start(1)
				}
			})
		}
		all.Wait()
		if n, _ := table.Read(); n != goroutines*calls {
			t.Fatalf("round %d: %d calls are seen of %d", round, n, goroutines*calls)
		}
	}
}
