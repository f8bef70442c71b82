package stamp

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

func TestStamp_KeepsEpochsAndFlagsApart(t *testing.T) {
	epochs := []uint64{0, 1, 1<<29 - 1, 1 << 29, math.MaxUint32, math.MaxUint32 + 1, 1<<62 - 1}
	for _, tool := range epochs {
		for _, group := range epochs {
			for flags := range 8 {
				want := [2]Ticket{{Epoch: tool, Probe: flags&1 != 0}, {Epoch: group, Probe: flags&2 != 0, Shared: flags&4 != 0}}
				s := New(want[0], want[1])
				for _, settled := range []bool{false, true, true} {
					if got := s.Settled(); got != settled {
						t.Errorf("%v: settled %v, want %v", want, got, settled)
					}
					if got := s.Probe(); got != (flags&3 != 0) {
						t.Errorf("%v: probe %v", want, got)
					}
					got := [2]Ticket{s.Tool(), s.Group()}
					got[0].Epoch, got[1].Epoch = got[0].ToolEpoch(tool), got[1].GroupEpoch(group)
					if got != want {
						t.Errorf("%v, want %v", got, want)
					}
					if got := s.Settle(); got == settled {
						t.Errorf("%v: Settle is %v, only the first may be true", want, got)
					}
				}
			}
		}
	}
}

func TestTicket_EpochIsTheLastOneWithItsBits(t *testing.T) {
	for _, c := range []struct{ epoch, present, tool, group uint64 }{
		{7, 7, 7, 7},
		{7, 8, 7, 7},
		{1<<32 + 7, 1<<32 + 9, 1<<32 + 7, 1<<32 + 7},
		{1<<32 - 1, 1 << 32, 1<<32 - 1, 1<<32 - 1},
		{7, 1<<28 + 6, 7, 7},
		{7, 1<<28 + 7, 7, 1<<28 + 7}, // so many changes later it cannot be told apart
		{7, 1<<32 + 6, 7, 1<<32 - 1<<28 + 7},
		{7, 1<<32 + 7, 1<<32 + 7, 1<<32 + 7},
	} {
		s := New(Ticket{Epoch: c.epoch}, Ticket{Epoch: c.epoch})
		if tool := s.Tool().ToolEpoch(c.present); tool != c.tool {
			t.Errorf("%d as of %d is %d, want %d", c.epoch, c.present, tool, c.tool)
		}
		if group := s.Group().GroupEpoch(c.present); group != c.group {
			t.Errorf("%d as of %d is %d in a group, want %d", c.epoch, c.present, group, c.group)
		}
	}
}

func TestStamp_OneOfManyCallersSettles(t *testing.T) {
	for range 200 {
		s := New(Ticket{Epoch: 7, Probe: true}, Ticket{})
		var first atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if s.Settle() {
					first.Add(1)
				}
			})
		}
		if wg.Wait(); first.Load() != 1 {
			t.Fatalf("%d callers settled", first.Load())
		}
	}
}

func TestStamp_IsOneWord(t *testing.T) {
	if size := unsafe.Sizeof(Stamp{}); size != 8 {
		t.Errorf("%d bytes", size)
	}
}
