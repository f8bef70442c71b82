package otelhealth_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/otelhealth"
)

// meter registers the metrics of a registry with a reader of its own.
func meter(t *testing.T, r *toolhealth.Registry, o otelhealth.MetricsOptions, options ...sdkmetric.Option) *sdkmetric.ManualReader {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	o.MeterProvider = sdkmetric.NewMeterProvider(append(options, sdkmetric.WithReader(reader))...)
	stop, err := otelhealth.Metrics(r, o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, stop()) })
	return reader
}

// of returns the series of one metric by what their attributes have beside the tool.
func of(t *testing.T, data metricdata.Aggregation, tool string) map[string]int64 {
	t.Helper()
	found := make(map[string]int64)
	for key, n := range series(t, data) {
		if rest, ok := strings.CutPrefix(key, "gen_ai.tool.name="+tool); ok && (rest == "" || rest[0] == ',') {
			found[strings.TrimPrefix(rest, ",")] = n
		} else if rest, ok := strings.CutSuffix(key, ",gen_ai.tool.name="+tool); ok {
			found[rest] = n
		} else if before, after, ok := strings.Cut(key, ",gen_ai.tool.name="+tool+","); ok {
			found[before+","+after] = n
		}
	}
	return found
}

func failed(kind toolhealth.Kind) toolhealth.Verdict {
	return toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: kind, Retryable: true}
}

// A gauge that is pushed would stay half-open or closed; a tool that was never sick would
// have no series.
func TestMetrics_StateIsReadWhenCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		reader := meter(t, r, otelhealth.MetricsOptions{})
		state := func() map[string]int64 { return of(t, collect(t, reader)["toolhealth.breaker.status"], "search") }
		refusing := func() map[string]int64 {
			return of(t, collect(t, reader)["toolhealth.breaker.refusing"], "search")
		}

		r.RecordSuccess("search", 0)
		const closed, open, halfOpen = "toolhealth.breaker.state=closed", "toolhealth.breaker.state=open", "toolhealth.breaker.state=half-open"
		assert.Equal(t, map[string]int64{closed: 1, open: 0, halfOpen: 0}, state())
		assert.Equal(t, map[string]int64{
			"toolhealth.refusal.reason=circuit_open": 0, "toolhealth.refusal.reason=probe_in_flight": 0, "toolhealth.refusal.reason=rate_limited": 0,
			"toolhealth.refusal.reason=isolated": 0, "toolhealth.refusal.reason=busy": 0,
		}, refusing())

		for range 3 {
			r.Record("search", failed(toolhealth.KindTimeout), 0)
		}
		assert.Equal(t, map[string]int64{closed: 0, open: 1, halfOpen: 0}, state())
		assert.Equal(t, int64(1), refusing()["toolhealth.refusal.reason=circuit_open"])
		time.Sleep(31 * time.Second)
		assert.Zero(t, refusing()["toolhealth.refusal.reason=circuit_open"], "nobody has called since, and a call would be admitted")
		r.AllowRequest("search")
		assert.Equal(t, map[string]int64{closed: 0, open: 0, halfOpen: 1}, state())
		assert.Equal(t, int64(1), refusing()["toolhealth.refusal.reason=probe_in_flight"])
		assert.Equal(t, int64(31), of(t, collect(t, reader)["toolhealth.breaker.down"], "search")[""])
		time.Sleep(time.Hour) // the probe never reports, and nobody calls
		assert.Equal(t, map[string]int64{closed: 0, open: 1, halfOpen: 0}, state())
		assert.Equal(t, int64(3631), of(t, collect(t, reader)["toolhealth.breaker.down"], "search")[""])
		r.Reset("search", "alice")
		assert.Equal(t, map[string]int64{closed: 1, open: 0, halfOpen: 0}, state())
		assert.Equal(t, int64(0), of(t, collect(t, reader)["toolhealth.breaker.down"], "search")[""])
	})
}

func TestMetrics_CountersAreRegistrys(t *testing.T) {
	r := toolhealth.NewRegistry()
	reader := meter(t, r, otelhealth.MetricsOptions{})
	r.RecordSuccess("search", 0)
	r.Record("search", toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest}, 0)
	r.Record("search", toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindCanceled}, 0)
	for range 3 {
		r.Record("search", failed(toolhealth.KindTimeout), 0)
	}
	r.Record("search", failed(toolhealth.KindUnknown), 0)
	r.AllowRequest("search")
	r.AllowRequest("search")
	r.Isolate("search", "alice")
	r.AllowRequest("search")

	all := collect(t, reader)
	assert.Equal(t, map[string]int64{
		"toolhealth.outcome=success":                             1,
		"toolhealth.outcome=throttled":                           0,
		"error.type=invalid_request,toolhealth.outcome=rejected": 1,
		"error.type=canceled,toolhealth.outcome=neutral":         1,
		"error.type=timeout,toolhealth.outcome=failure":          3,
		"error.type=unknown,toolhealth.outcome=failure":          1,
	}, of(t, all["toolhealth.calls"], "search"))
	assert.Equal(t, map[string]int64{"toolhealth.refusal.reason=circuit_open": 2, "toolhealth.refusal.reason=isolated": 1}, of(t, all["toolhealth.refusals"], "search"))
	assert.Equal(t, map[string]int64{"": 1}, of(t, all["toolhealth.breaker.trips"], "search"))
	assert.Equal(t, map[string]int64{
		"toolhealth.transition.cause=failure_threshold,toolhealth.transition.from=closed,toolhealth.transition.to=open": 1,
		"toolhealth.transition.cause=isolated,toolhealth.transition.from=open,toolhealth.transition.to=open":            1,
	}, of(t, all["toolhealth.breaker.transitions"], "search"))
	assert.Equal(t, map[string]int64{"": 1}, series(t, all["toolhealth.tools"]))
	assert.True(t, all["toolhealth.calls"].(metricdata.Sum[int64]).IsMonotonic)
	assert.False(t, all["toolhealth.breaker.status"].(metricdata.Sum[int64]).IsMonotonic)
}

func TestMetrics_GuardedCallsAreCounted(t *testing.T) {
	r := newRig(t, toolhealth.Settings{})
	reader := meter(t, r.guard.Registry(), otelhealth.MetricsOptions{})
	fail := true
	search := r.search(func(context.Context, int) (int, error) {
		if fail = !fail; !fail {
			return 0, errTimeout
		}
		return 1, nil
	})
	_, err := search(t.Context(), 1)
	require.NoError(t, err)
	_, err = r.search(func(context.Context, int) (int, error) { return 0, errBroken })(t.Context(), 1)
	require.Error(t, err)
	all := collect(t, reader)
	assert.Equal(t, map[string]int64{"": 2}, of(t, all["toolhealth.guard.calls"], "search"))
	assert.Equal(t, map[string]int64{"": 3}, of(t, all["toolhealth.guard.attempts"], "search"))
	assert.Equal(t, map[string]int64{"": 1}, of(t, all["toolhealth.guard.retries"], "search"))
	assert.Equal(t, map[string]int64{"toolhealth.result=failed": 1, "toolhealth.result=rejected": 0, "toolhealth.result=canceled": 0}, of(t, all["toolhealth.guard.unanswered_calls"], "search"))
}

// total adds up the series of a counter.
func total(t *testing.T, data metricdata.Aggregation) (sum int64) {
	return added(series(t, data))
}

func added(all map[string]int64) (sum int64) {
	for _, n := range all {
		sum += n
	}
	return sum
}

// Tools come and go between their own series and "_other": no series falls, and what all
// of them have ever said adds up to what the registry counted.
func TestMetrics_CapLosesAndRepeatsNothing(t *testing.T) {
	r := toolhealth.NewRegistry()
	reader := meter(t, r, otelhealth.MetricsOptions{MaxTools: 5})
	moved := 0
	defer r.OnTransition(func(toolhealth.Transition) { moved++ })()
	random := rand.New(rand.NewPCG(1, 2))
	names := []string{"toolhealth.calls", "toolhealth.refusals", "toolhealth.breaker.trips", "toolhealth.breaker.transitions"}
	said := make(map[string]map[string]int64) // by metric and series
	for _, name := range names {
		said[name] = make(map[string]int64)
	}
	for range 300 {
		tool := fmt.Sprint("tool", random.IntN(20))
		for range random.IntN(30) {
			if random.IntN(3) == 0 {
				r.Record(tool, failed(toolhealth.KindTimeout), 0)
			} else {
				r.RecordSuccess(tool, 0)
			}
			r.AllowRequest(tool)
		}
		if random.IntN(5) == 0 {
			r.Reset(tool, "alice")
		}
		all := collect(t, reader)
		for _, name := range names {
			for key, n := range series(t, all[name]) {
				require.GreaterOrEqual(t, n, said[name][key], "%s %s", name, key)
				said[name][key] = n
			}
		}
		var calls, refused, trips uint64
		for _, h := range r.HealthSummary().Tools {
			calls, refused, trips = calls+h.TotalCalls(), refused+h.Refused, trips+h.Trips
		}
		for i, want := range []uint64{calls, refused, trips, uint64(moved)} {
			require.Equal(t, int64(want), added(said[names[i]]), names[i])
		}
		require.LessOrEqual(t, len(series(t, all["toolhealth.tool.score"])), 5)
		require.Empty(t, of(t, all["toolhealth.tool.score"], "_other"), "counters only")
		require.Empty(t, of(t, all["toolhealth.breaker.status"], "_other"))
	}
	for _, name := range names {
		assert.Contains(t, fmt.Sprint(said[name]), "_other", name)
	}
}

func TestMetrics_SickComeFirstThenBusiest(t *testing.T) {
	r := toolhealth.NewRegistry()
	reader := meter(t, r, otelhealth.MetricsOptions{MaxTools: 2})
	for tool, calls := range map[string]int{"idle": 1, "busy": 100, "busier": 200, "sick": 1} {
		for range calls {
			r.RecordSuccess(tool, 0)
		}
	}
	names := func() string {
		var all []string
		for key := range series(t, collect(t, reader)["toolhealth.tool.score"]) {
			all = append(all, strings.TrimPrefix(key, "gen_ai.tool.name="))
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	assert.Equal(t, "busier busy", names())
	r.Isolate("sick", "alice")
	assert.Equal(t, "busier sick", names())
}

// The SDK keeps 2,000 series of an instrument. What is beyond has no name, so that the
// sick have to be told first.
func TestMetrics_SickAreWithinLimitOfSDK(t *testing.T) {
	r := toolhealth.NewRegistry()
	for i := range 1000 {
		r.RecordSuccess(fmt.Sprintf("tool%03d", i), 0)
	}
	r.Isolate("tool999", "alice")
	reader := meter(t, r, otelhealth.MetricsOptions{})
	all := collect(t, reader)
	overflow := series(t, all["toolhealth.breaker.refusing"])["otel.metric.overflow=true"]
	assert.Zero(t, overflow)
	assert.Contains(t, series(t, all["toolhealth.breaker.refusing"]), "otel.metric.overflow=true", "5,000 series are too many")
	assert.Equal(t, int64(1), of(t, all["toolhealth.breaker.refusing"], "tool999")["toolhealth.refusal.reason=isolated"])

	wide := meter(t, r, otelhealth.MetricsOptions{}, sdkmetric.WithCardinalityLimit(10_000))
	assert.Len(t, series(t, collect(t, wide)["toolhealth.breaker.refusing"]), 5000)
}

func TestMetrics_RemovedToolLeaves(t *testing.T) {
	r := toolhealth.NewRegistry()
	reader := meter(t, r, otelhealth.MetricsOptions{})
	for range 3 {
		r.RecordFailure("search", 0)
	}
	assert.NotEmpty(t, of(t, collect(t, reader)["toolhealth.breaker.transitions"], "search"))
	for range 3 {
		r.RecordFailure("gone", 0)
	}
	r.Remove("gone") // before it was collected
	r.Remove("search")
	all := collect(t, reader)
	assert.Empty(t, of(t, all["toolhealth.calls"], "search"))
	assert.Empty(t, of(t, all["toolhealth.breaker.transitions"], "search"))
	assert.Equal(t, int64(1), total(t, all["toolhealth.breaker.transitions"]), "that of gone")
	assert.Len(t, of(t, all["toolhealth.breaker.transitions"], "_other"), 1)

	r.RecordSuccess("search", 0) // it begins anew
	assert.Equal(t, int64(1), total(t, collect(t, reader)["toolhealth.calls"]))
}

// Nobody collects, and names are made up without end.
func TestMetrics_TransitionsAreBounded(t *testing.T) {
	r := toolhealth.NewRegistry()
	reader := meter(t, r, otelhealth.MetricsOptions{})
	const tools = 12_000
	for i := range tools {
		tool := fmt.Sprint(i)
		r.RecordSuccess(tool, 0)
		r.Isolate(tool, "alice")
		r.Remove(tool)
	}
	data := collect(t, reader)["toolhealth.breaker.transitions"]
	assert.Equal(t, int64(tools), total(t, data))
	assert.Len(t, series(t, data), 1)
}

func TestMetrics_GroupsHaveSeries(t *testing.T) {
	r, err := toolhealth.NewRegistryWithConfig(toolhealth.Config{Group: func(tool string) string {
		group, _, _ := strings.Cut(tool, "/")
		return group
	}})
	require.NoError(t, err)
	reader := meter(t, r, otelhealth.MetricsOptions{MaxTools: 2})
	for i := range 3 {
		r.Record(fmt.Sprint("dead/", i), failed(toolhealth.KindConnection), 0)
	}
	for _, tool := range []string{"large/1", "large/2", "small/1"} {
		r.RecordSuccess(tool, 0)
	}
	all := collect(t, reader)
	assert.Equal(t, map[string]int64{"toolhealth.group=dead": 1, "toolhealth.group=large": 0}, series(t, all["toolhealth.group.breaker.trips"]))
	assert.Equal(t, map[string]int64{"toolhealth.group=dead": 3, "toolhealth.group=large": 2}, series(t, all["toolhealth.group.tools"]))
	assert.Equal(t, int64(1), series(t, all["toolhealth.group.breaker.status"])["toolhealth.breaker.state=open,toolhealth.group=dead"])
	assert.Equal(t, int64(1), series(t, all["toolhealth.group.breaker.refusing"])["toolhealth.group=dead,toolhealth.refusal.reason=circuit_open"])
	assert.Equal(t, int64(1), series(t, all["toolhealth.group.breaker.transitions"])["toolhealth.group=dead,toolhealth.transition.cause=failure_threshold,toolhealth.transition.from=closed,toolhealth.transition.to=open"])
	assert.Empty(t, series(t, all["toolhealth.breaker.transitions"]), "no tool's")
	assert.Contains(t, series(t, all["toolhealth.tool.score"]), "gen_ai.tool.name=dead/0,toolhealth.group=dead")
	r.IsolateGroup("small", "alice")
	assert.Equal(t, map[string]int64{"toolhealth.group=dead": 3, "toolhealth.group=small": 1}, series(t, collect(t, reader)["toolhealth.group.tools"]))
}

func TestMetrics_LabelsAreChosen(t *testing.T) {
	r := toolhealth.NewRegistry()
	require.NoError(t, r.Register("search", toolhealth.ToolOptions{Labels: map[string]string{"team": "web", "note": "long"}}))
	reader := meter(t, r, otelhealth.MetricsOptions{Labels: []string{"team", "server"}})
	assert.Equal(t, map[string]int64{"gen_ai.tool.name=search,toolhealth.label.team=web": 1}, series(t, collect(t, reader)["toolhealth.tool.score"]))
}

func TestMetrics_WouldRefuseIsCounted(t *testing.T) {
	c := toolhealth.DefaultBreakerConfig()
	c.ObserveOnly = true
	r, err := toolhealth.NewRegistryWithConfig(toolhealth.Config{Breaker: c})
	require.NoError(t, err)
	reader := meter(t, r, otelhealth.MetricsOptions{})
	for range 3 {
		r.RecordFailure("search", 0)
	}
	r.AllowRequest("search")
	assert.Equal(t, map[string]int64{"": 1}, of(t, collect(t, reader)["toolhealth.would_refuse"], "search"))
}

// OTLP carries no text that is not UTF-8, and two names may become one.
func TestMetrics_NamesAreValidText(t *testing.T) {
	r := toolhealth.NewRegistry()
	reader := meter(t, r, otelhealth.MetricsOptions{})
	for _, tool := range []string{"a\xfe", "a\xff", "_other"} {
		r.RecordSuccess(tool, 0)
	}
	all := collect(t, reader)
	assert.Equal(t, map[string]int64{"gen_ai.tool.name=a\uFFFD": 1}, series(t, all["toolhealth.tool.score"]))
	assert.Equal(t, int64(2), of(t, all["toolhealth.calls"], "_other")["toolhealth.outcome=success"])
}

func TestMetrics_StopEndsThem(t *testing.T) {
	r := toolhealth.NewRegistry()
	reader := sdkmetric.NewManualReader()
	stop, err := otelhealth.Metrics(r, otelhealth.MetricsOptions{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	require.NoError(t, err)
	r.RecordSuccess("search", 0)
	require.NotEmpty(t, collect(t, reader))
	require.NoError(t, stop())
	for range 3 {
		r.RecordFailure("search", 0)
	}
	assert.Empty(t, collect(t, reader))
}

func TestMetrics_NilRegistryHasNoTools(t *testing.T) {
	assert.Equal(t, map[string]int64{"": 0}, series(t, collect(t, meter(t, nil, otelhealth.MetricsOptions{}))["toolhealth.tools"]))
}

func TestMetrics_NamesBadOption(t *testing.T) {
	_, err := otelhealth.Metrics(nil, otelhealth.MetricsOptions{MaxTools: -5})
	assert.EqualError(t, err, "otelhealth: MetricsOptions.MaxTools: -5 is negative; toolhealth.Off means no bound")
	stop, err := otelhealth.Metrics(nil, otelhealth.MetricsOptions{MaxTools: toolhealth.Off}) // the global provider
	require.NoError(t, err)
	assert.NoError(t, stop())
}

func TestMetrics_ReadersCollectWhileToolsAreCalled(t *testing.T) {
	for maxTools, assertTotal := range map[int]func(assert.TestingT, any, any, ...any) bool{
		7: assert.Equal,       // every tool has its series
		3: assert.LessOrEqual, // what a tool had when it was shown is not there while it is not
	} {
		r := toolhealth.NewRegistry()
		one, two := sdkmetric.NewManualReader(), sdkmetric.NewManualReader()
		stop, err := otelhealth.Metrics(r, otelhealth.MetricsOptions{
			MaxTools: maxTools, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(one), sdkmetric.WithReader(two)),
		})
		require.NoError(t, err)
		var callers sync.WaitGroup
		const each = 2000
		for c := range 2 {
			callers.Go(func() {
				for i := range each {
					if tool := fmt.Sprint(i % 7); c == 0 {
						r.RecordFailure(tool, 0)
					} else {
						r.RecordSuccess(tool, 0)
					}
				}
			})
		}
		for _, reader := range []sdkmetric.Reader{one, two} {
			callers.Go(func() {
				for range 50 {
					var all metricdata.ResourceMetrics
					assert.NoError(t, reader.Collect(t.Context(), &all))
				}
			})
		}
		callers.Wait()
		for _, reader := range []sdkmetric.Reader{one, two} {
			assertTotal(t, total(t, collect(t, reader)["toolhealth.calls"]), int64(2*each))
		}
		var trips uint64
		for _, h := range r.HealthSummary().Tools {
			trips += h.Trips
		}
		assertTotal(t, total(t, collect(t, one)["toolhealth.breaker.trips"]), int64(trips))
		assert.NoError(t, stop())
	}
}
