package dashboard

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/dashboard/internal/scene"
)

// took is the latency of a tool whose successes and failures took this long.
func took(successes, failures []time.Duration) toolhealth.Latency {
	r := toolhealth.NewRegistry()
	for _, d := range successes {
		r.RecordSuccess("x", d)
	}
	for _, d := range failures {
		r.Record("x", scene.Timeout, d)
	}
	l, _ := r.Latency("x")
	return l
}

func TestChart_HasBarForEachBucket(t *testing.T) {
	assert.Zero(t, newChart(toolhealth.Latency{}))

	one := newChart(took([]time.Duration{time.Second}, nil))
	require.Len(t, one.Bars, 1)
	assert.Equal(t, chartBar{X: 437.5, Width: 53.8, OK: 54, OKTop: 6, Top: 6}, one.Bars[0])
	assert.Equal(t, "250 ms", one.From, "one bucket is no wall")
	assert.Equal(t, "4 s", one.To)
	assert.Equal(t, []chartMark{{"p50", "917 ms", 468.7}, {"p90", "917 ms", 468.7}, {"p99", "917 ms", 468.7}}, one.Marks)
	assert.False(t, one.Failed)
	assert.Equal(t, "1 successes and 0 failures by how long they took, p50 917 ms, p90 917 ms, p99 917 ms", one.Text)

	var many []time.Duration
	for range 99 {
		many = append(many, time.Second)
	}
	both := newChart(took(many, []time.Duration{time.Second, 256 * time.Second, 0}))
	require.Len(t, both.Bars, 3)
	assert.Equal(t, chartBar{X: 0, Width: 8.5, Bad: 2, OKTop: 60, Top: 58}, both.Bars[0], "what is too short for a bucket")
	assert.Equal(t, 53.5, both.Bars[1].OK)
	assert.Equal(t, 2.0, both.Bars[1].Bad, "however few, they are seen")
	assert.Equal(t, 6.5, both.Bars[1].OKTop)
	assert.Equal(t, 4.5, both.Bars[1].Top, "failures lie on successes")
	assert.Zero(t, both.Bars[2].OK)
	assert.True(t, both.Failed)
	assert.Equal(t, "4 min", both.To)

	bad := newChart(took(nil, []time.Duration{time.Second}))
	assert.Empty(t, bad.Marks)
	assert.Len(t, bad.Bars, 1)
	assert.True(t, bad.Failed)
	assert.Len(t, newChart(took([]time.Duration{time.Second}, []time.Duration{time.Second})).Bars, 1, "as many failures as successes")

	low := newChart(took(append(make([]time.Duration, 10), time.Second), nil))
	assert.Zero(t, low.Marks[0].X, "what is too short has its place at the edge")
	assert.Equal(t, "4 µs", low.Marks[0].Value)
	rare := newChart(took(append(slices.Repeat([]time.Duration{time.Second}, 999), time.Hour), nil))
	assert.Regexp(t, "ms|^1 s", rare.Marks[2].Value, "p99 is not the longest")
}

// A tool whose quantiles were shown before it fell silent keeps the chart of all time.
func TestPage_ShowsHowLongCallsTook(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s site) {
		for i := range 100 {
			s.registry.RecordSuccess("x", time.Duration(1+i)*10*time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		html := body(t, s.page, "/x/")
		assert.Regexp(t, `x healthy 100 % [\d.k]+ /min 4\d\d ms p90 8\d\d ms 9\d\d ms`, rowOf(t, html, "x"))
		panel := body(t, s.page, "/x/panel?tool=x")
		assert.Regexp(t, `How long calls took, last 5 s 9.3 ms p50 4\d\d ms · p90 8\d\d ms · p99 9\d\d ms 1 s `, words(panel))
		assert.Regexp(t, `p50 4\d\d ms 4\d\d ms since the start p90 8\d\d ms`, words(panel))
		for range 100 {
			time.Sleep(5 * time.Second)
			s.watcher.Sample()
		}
		panel = body(t, s.page, "/x/panel?tool=x")
		assert.Regexp(t, `How long calls took, since the start`, words(panel))
		fail(s.registry, "x", 3)
		time.Sleep(5 * time.Second)
		panel = body(t, s.page, "/x/panel?tool=x")
		assert.Regexp(t, `How long calls took, since the start 9.3 ms p50 4\d\d ms · p90 8\d\d ms · p99 9\d\d ms; red: failures 1\d s`, words(panel))
	})
}
