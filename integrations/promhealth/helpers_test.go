package promhealth_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/promhealth"
)

// register returns a Prometheus registry that checks every metric, with the Collector of
// a registry.
func register(tb testing.TB, r *toolhealth.Registry, o promhealth.Options) *prometheus.Registry {
	tb.Helper()
	c, err := promhealth.New(r, o)
	require.NoError(tb, err)
	tb.Cleanup(c.Close)
	p := prometheus.NewPedanticRegistry()
	require.NoError(tb, p.Register(c))
	return p
}

// gather returns every metric by its series, such as toolhealth_trips_total{tool="a"}.
func gather(tb testing.TB, g prometheus.Gatherer) map[string]*dto.Metric {
	tb.Helper()
	families, err := g.Gather()
	require.NoError(tb, err)
	series := make(map[string]*dto.Metric)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			require.Nil(tb, series[name], name)
			series[name] = m
		}
	}
	return series
}

// values returns the values of the series whose names begin so, without "toolhealth_". The
// value of a histogram is its count.
func values(series map[string]*dto.Metric, prefixes ...string) map[string]float64 {
	found := make(map[string]float64)
	for name, m := range series {
		name = strings.TrimPrefix(name, "toolhealth_")
		for _, prefix := range prefixes {
			if strings.HasPrefix(name, prefix) {
				found[name] = value(m)
			}
		}
	}
	return found
}

func value(m *dto.Metric) float64 {
	switch {
	case m.GetHistogram() != nil:
		return float64(m.GetHistogram().GetSampleCount())
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	}
	return m.GetGauge().GetValue()
}

// scrape returns the answer to a scrape, as Prometheus asks that takes native histograms,
// or does not.
func scrape(tb testing.TB, g prometheus.Gatherer, native bool) string {
	tb.Helper()
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(g, promhttp.HandlerOpts{}).ServeHTTP(rec, request(native))
	require.Equal(tb, http.StatusOK, rec.Code, rec.Body.String())
	return rec.Body.String()
}

func request(native bool) *http.Request {
	req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	if native {
		req.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	}
	return req
}

// fail records failures of a kind. Lost connections may be repeated, as those to a server
// that is down.
func fail(r *toolhealth.Registry, tool string, kind toolhealth.Kind, n int) {
	for range n {
		r.Record(tool, toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: kind, Retryable: kind == toolhealth.KindConnection}, 0)
	}
}

// counters returns the values of the series that never go back.
func counters(series map[string]*dto.Metric) map[string]float64 {
	found := make(map[string]float64)
	for name, m := range series {
		name = strings.TrimPrefix(name, "toolhealth_")
		if m.GetGauge() == nil {
			found[name] = value(m)
		}
	}
	return found
}
