package histogram

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// atMost reports, in whole numbers, whether ns is at most the upper bound of a lane:
// ns^4 * 2^-Offset <= 2^lane * 10^36.
func atMost(ns int64, lane int) bool {
	left := new(big.Int).Exp(big.NewInt(ns), big.NewInt(4), nil)
	right := new(big.Int).Exp(big.NewInt(10), big.NewInt(36), nil)
	return left.Lsh(left, -Offset).Cmp(right.Lsh(right, uint(lane))) <= 0
}

// The last duration of each lane and the first of the next are found without a float.
func TestIndex_UpperBoundBelongsToItsLane(t *testing.T) {
	last := int64(-1)
	for lane := range Lanes {
		lo, hi := int64(0), int64(math.MaxInt64) // atMost(lo), not atMost(hi)
		for hi-lo > 1 {
			if mid := lo + (hi-lo)/2; atMost(mid, lane) {
				lo = mid
			} else {
				hi = mid
			}
		}
		require.Equal(t, lane, Index(lo), "%d ns", lo)
		require.Equal(t, min(lane+1, Buckets), Index(hi), "%d ns", hi)
		require.Equal(t, lane, Index(last+1), "%d ns", last+1)
		assert.InDelta(t, float64(lo), Bound(lane)*1e9, 1)
		last = lo
	}
	assert.Equal(t, 1024*int64(time.Second), last, "the last bucket ends at 1,024 s")
}

func TestIndex_AnyDurationHasLane(t *testing.T) {
	for ns, want := range map[int64]int{
		math.MinInt64: 0, -1: 0, 0: 0, 1: 0, longestZero: 0, longestZero + 1: 1, int64(time.Second): 68, math.MaxInt64: Buckets,
	} {
		assert.Equal(t, want, Index(ns), "%d ns", ns)
	}
	for range 100_000 {
		ns := int64(math.Exp(rand.Float64() * math.Log(1<<50)))
		lane := Index(ns)
		require.True(t, lane == Buckets || atMost(ns, lane), "%d ns in %d", ns, lane)
		require.True(t, lane == 0 || !atMost(ns, lane-1), "%d ns in %d", ns, lane)
	}
}

func of(durations []int64) (r Reading) {
	for _, ns := range durations {
		r[Index(ns)]++
	}
	return r
}

// Quantiles are compared with those of the sorted durations.
func TestQuantile_LiesInBucketOfExactOne(t *testing.T) {
	ms := func(x float64) int64 { return int64(x * 1e6) }
	for name, draw := range map[string]func() int64{
		"zero":      func() int64 { return 0 },
		"constant":  func() int64 { return ms(137) },
		"a bound":   func() int64 { return int64(time.Second) },
		"short":     func() int64 { return rand.Int64N(20_000) },
		"lognormal": func() int64 { return ms(80 * math.Exp(0.6*rand.NormFloat64())) },
		"pareto":    func() int64 { return min(ms(20*math.Pow(rand.Float64(), -1/1.3)), 1000*int64(time.Second)) },
		"two modes": func() int64 { return ms([]float64{30, 30, 30, 1200}[rand.IntN(4)] * (1 + 0.1*rand.Float64())) },
		"cache":     func() int64 { return ms([]float64{0.2, 90}[rand.IntN(2)] * (1 + rand.Float64())) },
	} {
		for _, n := range []int{1, 2, 3, 10, 99, 100, 101, 3000} {
			durations := make([]int64, n)
			for i := range durations {
				durations[i] = draw()
			}
			r := of(durations)
			slices.Sort(durations)
			last := 0.0
			for _, q := range []float64{0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1} {
				exact := durations[max(int(math.Ceil(q*float64(n)))-1, 0)]
				got := Quantile(q, uint64(n), r[0], Offset, r[1:])
				lane, low := Index(exact), 0.0
				if lane > 0 {
					low = Bound(lane - 1)
				}
				require.True(t, low < got && got <= Bound(lane), "%s: %v of %d: %v, want that of %d ns", name, q, n, got, exact)
				require.GreaterOrEqual(t, got, last, name)
				last = got
			}
		}
	}
}

func TestQuantile_OddArguments(t *testing.T) {
	four := []uint64{0, 4, 0}
	middle := func(x float64) float64 { return math.Exp2((1 + x) / 4) }
	for what, c := range map[string]struct {
		q       float64
		n, zero uint64
		counts  []uint64
		want    float64
	}{
		"nothing":             {0.5, 0, 0, nil, 0},
		"below 0":             {-1, 4, 0, four, middle(0.125)},
		"not a number":        {math.NaN(), 4, 0, four, middle(0.125)},
		"above 1":             {7, 4, 0, four, middle(0.875)},
		"a whole rank":        {0.5, 4, 0, four, middle(0.375)},
		"a rank in between":   {0.51, 4, 0, four, middle(0.625)},
		"the shortest":        {0.5, 2, 2, nil, Bound(0) / 4},
		"the last short one":  {0.5, 8, 4, four, Bound(0) * 7 / 8},
		"the first long one":  {0.51, 8, 4, four, middle(0.125)},
		"more than any float": {1, math.MaxUint64, 0, []uint64{math.MaxUint64}, math.Exp2(0.25)},
		"counts that are not": {1, 9, 1, four, math.Exp2(0.75)},
	} {
		assert.InDelta(t, c.want, Quantile(c.q, c.n, c.zero, 0, c.counts), 1e-12, what)
	}
}

func TestBound_EachBucketIsFourthRootOfTwoWide(t *testing.T) {
	assert.Equal(t, math.Ldexp(1, -17), Bound(0))
	assert.Equal(t, 1.0, Bound(68))
	assert.Equal(t, 1024.0, Bound(Buckets))
	for lane := range Buckets {
		assert.InDelta(t, math.Pow(2, 0.25), Bound(lane+1)/Bound(lane), 1e-12)
	}
}

func TestDense_CountsPastEveryHalf(t *testing.T) {
	const second = int64(time.Second)
	for _, before := range []uint64{0, half - 3, 2*half - 3, 3*half - 3, 1<<40 - 3, 1<<63 - 3} {
		counts := Reading{68: before, 0: 5}
		d := NewDense(&counts)
		if before < half {
			d.carry.Store(nil) // as after so many calls of Add
		}
		for i := range uint64(6) {
			var r Reading
			require.Equal(t, before+5+i, d.Total())
			require.Equal(t, before+5+i, d.Read(&r))
			require.Equal(t, before+i, r[68])
			require.Equal(t, uint64(5), r[0])
			d.Add(second)
		}
		var r Reading
		d.Read(&r)
		d.Read(&r)
		assert.Equal(t, 2*(before+6), r[68], "Read adds")
	}
}

// Every half is carried: late by one would not be noticed before the next.
func TestDense_CarriesEveryHalf(t *testing.T) {
	var d Dense
	for i := range uint64(5) {
		require.Equal(t, i*half, d.Total())
		d.lanes[0].Add(half - 1)
		d.Add(1)
		require.Equal(t, i+1, d.carry.Load()[0].Load())
	}
}

// A reader comes after a lane has reached half or 0 and before carry is told.
func TestDense_LateCarryIsSeen(t *testing.T) {
	var d Dense
	d.lanes[3].Store(half - 1)
	for range 3 {
		n := d.Total()
		d.lanes[3].Add(1)
		require.Equal(t, n+1, d.Total(), "late")
		d.carryOver(3)
		require.Equal(t, n+1, d.Total(), "in time")
		d.lanes[3].Add(half - 1)
	}
}

// ofKinds is a Sparse whose durations are of three kinds in turn.
type ofKinds struct {
	Sparse
	turn atomic.Uint32
}

func (s *ofKinds) Add(ns int64) { s.Sparse.Add(uint8(s.turn.Add(1)%3), ns) }

// A reader sums while writers add, past a half.
func TestDense_TotalNeverGoesBack(t *testing.T) {
	for name, h := range map[string]interface {
		Add(int64)
		Read(*Reading) uint64
	}{"dense": NewDense(&Reading{60: half - 1000, 61: 2*half - 1000}), "sparse": new(ofKinds)} {
		const writers, calls = 4, 20_000
		var begun, ended atomic.Uint64
		start := h.Read(new(Reading))
		begun.Store(start)
		ended.Store(start)
		lane60 := int64(Bound(60) * 1e9)
		var writing, reading sync.WaitGroup
		for w := range writers {
			writing.Go(func() {
				for i := range calls {
					begun.Add(1)
					h.Add([]int64{lane60, lane60 + 1, 1, int64(i) << 20}[(i+w)%4])
					ended.Add(1)
				}
			})
		}
		stop := make(chan struct{})
		for range 2 {
			reading.Go(func() {
				var last Reading
				lastTotal := uint64(0)
				for {
					var r Reading
					least := ended.Load()
					n := h.Read(&r)
					most := begun.Load()
					if n < least || n > most || n < lastTotal {
						t.Errorf("%s: %d after %d, want %d to %d", name, n, lastTotal, least, most)
						return
					}
					for i := range r {
						if r[i] < last[i] {
							t.Errorf("%s: lane %d: %d after %d", name, i, r[i], last[i])
							return
						}
					}
					last, lastTotal = r, n
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
		writing.Wait()
		close(stop)
		reading.Wait()
		assert.Equal(t, start+writers*calls, h.Read(new(Reading)), name)
	}
}

// Several callers find no carry, or no doubling, at once.
func TestDense_FirstConcurrentCallsAreCounted(t *testing.T) {
	const callers = 4
	for range 2000 {
		d, s := new(Dense), new(Sparse)
		for i := range callers {
			d.lanes[50+i].Store(half - 1)
		}
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for i := range callers {
			wg.Go(func() {
				ns := int64(Bound(50+i)*1e9) - 1
				<-begin
				d.Add(ns)
				s.Add(3, ns)
				s.Add(3, 1)
			})
		}
		close(begin)
		wg.Wait()
		var dense, sparse Reading
		require.Equal(t, uint64(callers*half), d.Read(&dense))
		require.Equal(t, uint64(2*callers), s.Read(&sparse))
		for i := range callers {
			require.Equal(t, [3]uint64{half, 1, 1}, [3]uint64{dense[50+i], d.carry.Load()[50+i].Load(), sparse[50+i]})
		}
	}
}

func TestSparse_CountsAsDenseDoes(t *testing.T) {
	var d Dense
	var s Sparse
	assert.Zero(t, s.Read(new(Reading)))
	for range 5000 {
		ns := int64(math.Exp(rand.Float64() * math.Log(1<<50)))
		d.Add(ns)
		s.Add(uint8(ns%5), ns)
	}
	dense, sparse := Reading{7: 1}, Reading{7: 1}
	assert.Equal(t, d.Read(&dense), s.Read(&sparse))
	assert.Equal(t, dense, sparse)
}

func TestDense_TakesSevenCacheLines(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("laid out for 64 bits")
	}
	assert.EqualValues(t, 7*64, unsafe.Sizeof(Dense{}))
	assert.EqualValues(t, 48, unsafe.Sizeof(doubling{}))
	assert.EqualValues(t, 8, unsafe.Sizeof(Sparse{}))
	for range 100 { // the allocator keeps the alignment, so no line is shared with a neighbor
		d := new(Dense)
		_ = fmt.Sprint(d.Total()) // d escapes
		assert.Zero(t, uintptr(unsafe.Pointer(d))%64)
		kept = append(kept, d)
	}
}

var kept []*Dense

func TestDense_AddAllocatesNothing(t *testing.T) {
	var d Dense
	var s Sparse
	s.Add(7, 1)
	assert.Zero(t, testing.AllocsPerRun(100, func() { d.Add(1); s.Add(7, 1) }))
}

func TestSparse_KeepsKindsApart(t *testing.T) {
	var s Sparse
	want := map[uint8]uint64{}
	for i := range 1000 {
		kind := uint8(i % 4)
		s.Add(kind, int64(i)<<(i%40))
		want[kind]++
	}
	s.AddN(200, 1<<30, 1<<40)
	want[200] = 1 << 40
	got := map[uint8]uint64{}
	for kind, n := range s.Counts {
		got[kind] += n
	}
	assert.Equal(t, want, got)
	for kind := range s.Counts {
		assert.Equal(t, uint8(0), kind, "the first that was counted comes first")
		break
	}
}
