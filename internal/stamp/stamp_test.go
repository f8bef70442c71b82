package stamp

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

func TestStamp_KeepsEpochAndFlagsApart(t *testing.T) {
	for _, epoch := range []uint64{0, 1, math.MaxUint32, math.MaxUint32 + 1, 1<<62 - 1} {
		for _, probe := range []bool{false, true} {
			s := New(epoch, probe)
			for _, settled := range []bool{false, true, true} {
				if got := s.Settled(); got != settled {
					t.Errorf("epoch %d: settled %v, want %v", epoch, got, settled)
				}
				if got := s.Epoch(); got != epoch {
					t.Errorf("epoch %d, want %d", got, epoch)
				}
				if got := s.Probe(); got != probe {
					t.Errorf("epoch %d: probe %v, want %v", epoch, got, probe)
				}
				if got := s.Settle(); got == settled {
					t.Errorf("epoch %d: Settle is %v, only the first may be true", epoch, got)
				}
			}
		}
	}
}

func TestStamp_OneOfManyCallersSettles(t *testing.T) {
	for range 200 {
		s := New(7, true)
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
