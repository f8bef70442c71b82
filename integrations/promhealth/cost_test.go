package promhealth_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/promhealth"
	"github.com/toolhealth/toolhealth/internal/race"
)

// A scrape of 500 tools that have everything takes less than three times what
// client_golang takes for as many series of its own, busy machine or not. BenchmarkScrape has the figures.
func TestCollector_ScrapeOfFiveHundredToolsIsCheap(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes both ten times slower")
	}
	ours := busy(t, 500)
	theirs := copyOf(t, ours)
	for _, native := range []bool{true, false} {
		best := [2]time.Duration{time.Hour, time.Hour}
		cheap := func() bool { return best[0] < 3*best[1] }
		for round := 0; round < 5 || round < 30 && !cheap(); round++ { // others may use the machine
			for i, g := range []prometheus.Gatherer{ours, theirs} {
				start := time.Now()
				size := drain(g, native)
				best[i] = min(best[i], time.Since(start))
				require.Greater(t, size, 1_000_000)
			}
		}
		t.Logf("native %t: %v, client_golang itself %v", native, best[0], best[1])
		assert.True(t, cheap())
	}
}

func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{10, 500} {
		g := busy(b, n)
		for _, native := range []bool{true, false} {
			b.Run(fmt.Sprintf("tools=%d/native=%t", n, native), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					drain(g, native)
				}
			})
		}
	}
}

// busy returns a registry of n tools in 50 groups, all of which have been called through a
// Guard, took from 1ms to 900ms, and failed in two ways.
func busy(tb testing.TB, n int) prometheus.Gatherer {
	tb.Helper()
	guard, err := toolhealth.New(toolhealth.Settings{GroupSeparator: "/"})
	require.NoError(tb, err)
	r := guard.Gate().Registry
	for i := range n {
		name := fmt.Sprintf("server-%d/tool-%d", i%50, i)
		for j := range 20 {
			r.RecordSuccess(name, time.Duration(1+(i+1)*j%900)*time.Millisecond)
		}
		fail(r, name, toolhealth.KindTimeout, 1)
		fail(r, name, toolhealth.KindServerError, 1)
		r.Record(name, toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindNotFound}, 0)
		_, err := toolhealth.Call(context.Background(), guard, name, func(context.Context, string) (int, error) { return 0, nil })
		require.NoError(tb, err)
	}
	c, err := promhealth.New(r, promhealth.Options{})
	require.NoError(tb, err)
	tb.Cleanup(c.Close)
	p := prometheus.NewRegistry()
	require.NoError(tb, p.Register(c))
	return p
}

// copyOf returns the same series as vectors of client_golang.
func copyOf(tb testing.TB, g prometheus.Gatherer) prometheus.Gatherer {
	tb.Helper()
	p := prometheus.NewRegistry()
	families, err := g.Gather()
	require.NoError(tb, err)
	for _, f := range families {
		var names []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			names = append(names, l.GetName())
		}
		var bounds []float64
		for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
			bounds = append(bounds, b.GetUpperBound())
		}
		plain := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.GetName(), Help: f.GetHelp()}, names)
		histogram := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.GetName(), Help: f.GetHelp(), Buckets: bounds, NativeHistogramBucketFactor: 1.19}, names)
		for _, m := range f.GetMetric() {
			labels := prometheus.Labels{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if m.GetHistogram() == nil {
				plain.With(labels).Set(value(m))
				continue
			}
			for i := range m.GetHistogram().GetSampleCount() {
				histogram.With(labels).Observe(float64(1+i*40) / 1000)
			}
		}
		if bounds == nil {
			require.NoError(tb, p.Register(plain))
		} else {
			require.NoError(tb, p.Register(histogram))
		}
	}
	return p
}

// drain scrapes and returns how many bytes came.
func drain(g prometheus.Gatherer, native bool) int {
	w := &counting{header: http.Header{}}
	promhttp.HandlerFor(g, promhttp.HandlerOpts{}).ServeHTTP(w, request(native))
	return w.n
}

// counting is a ResponseWriter that drops what it gets.
type counting struct {
	header http.Header
	n      int
}

func (w *counting) Header() http.Header { return w.header }
func (w *counting) WriteHeader(int)     {}

func (w *counting) Write(p []byte) (int, error) {
	w.n += len(p)
	return len(p), nil
}
