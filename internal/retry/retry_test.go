package retry

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestDelay_GrowsFromBaseToLimit(t *testing.T) {
	for _, c := range []struct {
		base, limit time.Duration
		factor      float64
		attempt     int
		want        time.Duration
	}{
		{time.Second, 0, 2, 1, time.Second},
		{time.Second, 0, 2, 2, 2 * time.Second},
		{time.Second, 0, 2, 5, 16 * time.Second},
		{time.Second, 5 * time.Second, 2, 5, 5 * time.Second},
		{time.Second, 0, 1.5, 3, 2250 * time.Millisecond},
		{time.Second, 0, 1, 100, time.Second},
		{time.Second, 0, 0, 100, time.Second},
		{time.Second, 0, -3, 100, time.Second},
		{time.Second, 0, math.NaN(), 100, time.Second},
		{time.Second, 0, math.Inf(1), 1, time.Second},
		{time.Second, 0, math.Inf(1), 2, math.MaxInt64},
		{time.Second, 0, 2, 0, time.Second},
		{time.Second, 0, 2, math.MinInt, time.Second},
		{time.Second, 0, 2, math.MaxInt, math.MaxInt64},
		{time.Second, time.Millisecond, 2, 1, time.Millisecond},
		{0, time.Second, 2, 9, 0},
		{-time.Second, time.Second, 2, 9, 0},
		{math.MinInt64, 0, 2, 9, 0},
		{math.MaxInt64, 0, 2, 1, math.MaxInt64},
		{math.MaxInt64 - 1, 0, 2, 1, math.MaxInt64 - 1}, // not what a float makes of it
		{1<<53 + 3, 0, 1, 2, 1<<53 + 3},
		{1<<53 + 1, 0, 1.0000000000000002, 2, 1<<53 + 2},
	} {
		if got := Delay(c.base, c.limit, c.factor, c.attempt); got != c.want {
			t.Errorf("Delay(%d, %d, %v, %d) is %d, want %d", c.base, c.limit, c.factor, c.attempt, got, c.want)
		}
	}
}

// The wait never decreases with the number of attempts, whatever the policy is.
func TestDelay_HoldsBoundsForTenThousandAttempts(t *testing.T) {
	for _, base := range []time.Duration{1, 100 * time.Millisecond, time.Second, time.Hour} {
		for _, factor := range []float64{1, 2, 10} {
			for _, limit := range []time.Duration{time.Second, time.Hour, 0} {
				last := time.Duration(0)
				for attempt := range 10_001 {
					d := Delay(base, limit, factor, attempt)
					if d < last || d <= 0 || (limit > 0 && d > limit) {
						t.Fatalf("Delay(%d, %d, %v, %d) is %d after %d", base, limit, factor, attempt, d, last)
					}
					last = d
				}
			}
		}
	}
}

// anyDuration and anyFloat draw from the whole range, and often from its ends.
func anyDuration(rng *rand.Rand) time.Duration {
	switch rng.IntN(6) {
	case 0:
		return []time.Duration{math.MinInt64, -1, 0, 1, 2, 9, math.MaxInt64 - 1, math.MaxInt64}[rng.IntN(8)]
	case 1:
		return time.Duration(rng.Uint64())
	default:
		return time.Duration(rng.Uint64() >> rng.IntN(64))
	}
}

func anyFloat(rng *rand.Rand) float64 {
	switch rng.IntN(5) {
	case 0:
		return []float64{
			math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1, -1, math.MaxFloat64,
			math.SmallestNonzeroFloat64, 1 + 0x1p-52, 1 - 0x1p-53, 2, 1000,
		}[rng.IntN(13)]
	case 1:
		return math.Float64frombits(rng.Uint64())
	case 2:
		return 1 + math.Ldexp(rng.Float64(), -rng.IntN(53))
	default:
		return 4 * rng.Float64()
	}
}

func TestJitter_HoldsBoundsForEveryPolicy(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	for range 200_000 {
		base, limit, factor, jitter := anyDuration(rng), anyDuration(rng), anyFloat(rng), anyFloat(rng)
		attempt := int(rng.Uint64() >> rng.IntN(64))
		draw := rng.Float64()
		if rng.IntN(10) == 0 {
			draw = 1 - 0x1p-53 // the largest that a generator returns
		}
		d := Delay(base, limit, factor, attempt)
		most := time.Duration(math.MaxInt64)
		if limit > 0 {
			most = limit
		}
		if d < 0 || d > most || (base > 0 && d < min(base, most)) {
			t.Fatalf("Delay(%d, %d, %v, %d) is %d", base, limit, factor, attempt, d)
		}
		if attempt < math.MaxInt {
			if next := Delay(base, limit, factor, attempt+1); next < d {
				t.Fatalf("Delay(%d, %d, %v, %d) is %d, and %d for the next attempt", base, limit, factor, attempt, d, next)
			}
		}
		j := Jitter(d, jitter, draw)
		if j < 0 || j > d || (d > 0 && j == 0) {
			t.Fatalf("Jitter(%d, %v, %v) is %d", d, jitter, draw, j)
		}
		if !(jitter > 0) && j != d {
			t.Fatalf("Jitter(%d, %v, %v) is %d", d, jitter, draw, j)
		}
		if share := 1 - jitter; jitter > 0 && jitter <= 1 && float64(j) < float64(d)*share*(1-1e-9)-1 {
			t.Fatalf("Jitter(%d, %v, %v) is %d, less than its share", d, jitter, draw, j)
		}
	}
}

func TestJitter_SmallAndNegativeWaits(t *testing.T) {
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, 2, 9, time.Second, math.MaxInt64} {
		for _, jitter := range []float64{0, 0.1, 1} {
			for range 1000 {
				j := Jitter(d, jitter, rand.Float64())
				if j < 0 || j > max(d, 0) || (jitter == 0 && j != max(d, 0)) {
					t.Fatalf("Jitter(%d, %v) is %d", d, jitter, j)
				}
			}
		}
	}
}

func TestJitter_FullIsUniform(t *testing.T) {
	var tenths [10]int
	const draws = 100_000
	rng := rand.New(rand.NewPCG(1, 1))
	for range draws {
		tenths[min(Jitter(1000, 1, rng.Float64())*10/1001, 9)]++
	}
	for i, n := range tenths {
		if n < draws/10-draws/100 || n > draws/10+draws/100 {
			t.Errorf("%d of %d draws in tenth %d", n, draws, i)
		}
	}
}

func TestSpread_StatedWaitIsNeverShortened(t *testing.T) {
	const second = time.Second
	for _, c := range []struct {
		stated, backoff time.Duration
		jitter, draw    float64
		wait, least     time.Duration
	}{
		{0, 0, 1, 0.5, 0, 0},
		{0, 0, 0, 0.5, 0, 0},
		{0, 4 * second, 0, 0.5, 4 * second, 4 * second},
		{0, 4 * second, 1, 0.5, 2 * second, 0},
		{0, 4 * second, 0.5, 0.5, 3 * second, 2 * second},
		{5 * second, 4 * second, 1, 0.5, 7 * second, 5 * second},
		{5 * second, 4 * second, 0.5, 0, 5 * second, 5 * second},
		{second, 4 * second, 0.5, 0.5, 3 * second, 2 * second},
		{5 * second, 0, 1, 0.9, 5 * second, 5 * second},
		{-second, -second, 1, 0.9, 0, 0},
		{math.MaxInt64, math.MaxInt64, 1, 0.9, math.MaxInt64, math.MaxInt64},
		{second, 4 * second, math.NaN(), 0.5, 4 * second, 4 * second},
		{second, 4 * second, 7, 0.5, 3 * second, second},
	} {
		if wait, least := Spread(c.stated, c.backoff, c.jitter, c.draw); wait != c.wait || least != c.least {
			t.Errorf("%+v: %v, %v", c, wait, least)
		}
	}
}
