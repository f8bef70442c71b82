package promhealth_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
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

// busy returns the handler of a registry of n tools in 50 groups, all of which have
// been called through a Guard, took from 1ms to 900ms, and failed in two ways.
func busy(tb testing.TB, n int) http.Handler {
	tb.Helper()
	g, err := toolhealth.New(toolhealth.Settings{GroupSeparator: "/"})
	require.NoError(tb, err)
	r := g.Gate().Registry
	for i := range n {
		name := fmt.Sprintf("server-%d/tool-%d", i%50, i)
		for j := range 20 {
			r.RecordSuccess(name, time.Duration(1+(i+1)*j%900)*time.Millisecond)
		}
		r.Record(name, toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout}, time.Second)
		r.Record(name, toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError}, time.Second)
		r.Record(name, toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindNotFound}, time.Millisecond)
		_, err := toolhealth.Call(context.Background(), g, name, func(context.Context, string) (int, error) { return 0, nil })
		require.NoError(tb, err)
	}
	return handler(tb, r, promhealth.Options{})
}

// handler returns the handler of a registry.
func handler(tb testing.TB, r *toolhealth.Registry, o promhealth.Options) http.Handler {
	tb.Helper()
	return promhttp.HandlerFor(gatherer(tb, r, o), promhttp.HandlerOpts{})
}

// gatherer returns a Prometheus registry that checks everything, with the Collector of a
// registry.
func gatherer(tb testing.TB, r *toolhealth.Registry, o promhealth.Options) *prometheus.Registry {
	tb.Helper()
	c, err := promhealth.New(r, o)
	require.NoError(tb, err)
	tb.Cleanup(c.Close)
	p := prometheus.NewRegistry()
	require.NoError(tb, p.Register(c))
	return p
}

// scrape scrapes once, as Prometheus does that takes native histograms or not.
func scrape(tb testing.TB, h http.Handler, native bool) string {
	tb.Helper()
	req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	if native {
		req.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	require.Equal(tb, http.StatusOK, rec.Code, rec.Body.String())
	return rec.Body.String()
}

// fastest returns how long the fastest of some scrapes took.
func fastest(tb testing.TB, h http.Handler, native bool) time.Duration {
	best := time.Hour
	for range 15 {
		start := time.Now()
		scrape(tb, h, native)
		best = min(best, time.Since(start))
	}
	return best
}

var formats = []struct {
	name   string
	native bool
}{{"native", true}, {"classic", false}}

// A scrape of 500 tools that have everything takes less than 50ms.
func TestCollector_ScrapeOfFiveHundredToolsIsCheap(t *testing.T) {
	h := busy(t, 500)
	for _, f := range formats {
		took := fastest(t, h, f.native)
		t.Logf("%s: %v for %d bytes", f.name, took, len(scrape(t, h, f.native)))
		if !race.Enabled { // ten times slower
			assert.Less(t, took, 50*time.Millisecond, f.name)
		}
	}
}

func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{10, 500} {
		h := busy(b, n)
		for _, f := range formats {
			b.Run(fmt.Sprintf("tools=%d/%s", n, f.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					scrape(b, h, f.native)
				}
			})
		}
	}
}
