package fuzz_test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/internal/histogram"
)

// FuzzLatency reads its input as calls, eight bytes each: how long it took, and whether
// it worked. The quantiles lie in the buckets of the exact ones, and the histograms have
// each call in its bucket.
func FuzzLatency(f *testing.F) {
	second := uint64(time.Second)
	for _, calls := range [][]uint64{
		{}, {0}, {1}, {second}, {second + 1, second, second - 1}, {math.MaxInt64, 1}, {1 << 63}, {math.MaxUint64, 5},
		{7629, 7630, 7631}, {1024 * second, 1024*second + 1}, {second / 8, second / 8, second/8 | 1<<63, 30*second | 1<<63},
	} {
		var seed []byte
		for _, call := range calls {
			seed = binary.BigEndian.AppendUint64(seed, call)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, calls []byte) {
		r := toolhealth.NewRegistry()
		var good, bad []time.Duration
		for ; len(calls) >= 8; calls = calls[8:] {
			call := binary.BigEndian.Uint64(calls)
			took := time.Duration(call &^ (1 << 63))
			if call>>63 == 0 {
				good = append(good, took)
				r.RecordSuccess("search", took)
			} else {
				bad = append(bad, took)
				r.RecordFailure("search", took)
			}
		}
		l, ok := r.Latency("search")
		require.Equal(t, len(good)+len(bad) > 0, ok)
		if !ok {
			return
		}
		h, _ := r.Health("search")
		requireHistogram(t, good, l.Successes)
		requireHistogram(t, bad, l.Failures)
		requireQuantiles(t, good, h.Counts)
		require.Equal(t, h.Successes, l.Successes.Count)
		require.Equal(t, h.Failures, l.Failures.Count)
	})
}

// requireQuantiles checks the quantiles of successes that took so long.
func requireQuantiles(t *testing.T, took []time.Duration, c toolhealth.Counts) {
	t.Helper()
	require.LessOrEqual(t, max(c.P50, c.P90, c.P99), c.Max)
	for q, got := range map[float64]time.Duration{0.5: c.P50, 0.9: c.P90, 0.99: c.P99} {
		requireQuantile(t, took, q, got)
	}
}

// requireQuantile checks that a quantile is in the bucket of the exact one, but for a
// nanosecond at its bounds.
func requireQuantile(t *testing.T, took []time.Duration, q float64, got time.Duration) {
	t.Helper()
	if len(took) == 0 {
		require.Zero(t, got)
		return
	}
	took = slices.Sorted(slices.Values(took))
	exact := took[max(int(math.Ceil(q*float64(len(took))))-1, 0)]
	lane := histogram.Index(int64(exact))
	require.LessOrEqual(t, histogram.Index(int64(got)-1), lane, "%v, want %v", got, exact)
	require.GreaterOrEqual(t, histogram.Index(int64(got)+1), lane, "%v, want %v", got, exact)
}

// requireHistogram checks the histogram of calls that took so long.
func requireHistogram(t *testing.T, took []time.Duration, h toolhealth.Histogram) {
	t.Helper()
	if len(took) == 0 {
		require.Equal(t, toolhealth.Histogram{}, h)
		return
	}
	lanes, sum := [histogram.Lanes]uint64{}, time.Duration(0)
	for _, d := range took {
		lanes[histogram.Index(int64(d))]++
		if sum += d; sum < 0 {
			sum = math.MaxInt64
		}
	}
	require.Equal(t, [2]uint64{uint64(len(took)), lanes[0]}, [2]uint64{h.Count, h.ZeroCount})
	require.Equal(t, sum, h.Sum)
	require.Equal(t, 2, h.Scale)
	require.Equal(t, math.Ldexp(1, -17), h.ZeroThreshold)
	total := h.ZeroCount
	for i, n := range h.Counts {
		require.Equal(t, lanes[h.Offset-histogram.Offset+1+i], n)
		total += n
	}
	require.Equal(t, h.Count, total)
	if len(h.Counts) > 0 {
		require.NotZero(t, h.Counts[0])
		require.NotZero(t, h.Counts[len(h.Counts)-1])
	}
	for _, q := range []float64{0, 0.3, 0.5, 1} {
		requireQuantile(t, took, q, h.Quantile(q))
	}
	require.Equal(t, h, h.Sub(toolhealth.Histogram{}))
	require.Equal(t, toolhealth.Histogram{}, h.Sub(h))
}
