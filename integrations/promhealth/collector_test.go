package promhealth_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/promhealth"
)

func TestCollector_ExportsWhatIsKnownOfTools(t *testing.T) {
	r := toolhealth.NewRegistry()
	p := register(t, r, promhealth.Options{})
	r.RecordSuccess("search", time.Second)
	r.Record("search", toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindUnauthorized}, 0)
	fail(r, "mail", toolhealth.KindTimeout, 3)
	r.AllowRequest("mail")
	r.AllowRequest("mail")
	r.Isolate("bank", "alice")
	r.AllowRequest("bank")

	series := gather(t, p)
	assert.Equal(t, map[string]float64{
		`tool_state{state="closed",tool="bank"}`: 0, `tool_state{state="half-open",tool="bank"}`: 0, `tool_state{state="open",tool="bank"}`: 1,
		`tool_state{state="closed",tool="mail"}`: 0, `tool_state{state="half-open",tool="mail"}`: 0, `tool_state{state="open",tool="mail"}`: 1,
		`tool_state{state="closed",tool="search"}`: 1, `tool_state{state="half-open",tool="search"}`: 0, `tool_state{state="open",tool="search"}`: 0,
	}, values(series, "tool_state{"))
	assert.Equal(t, map[string]float64{
		`refusals_total{reason="busy",tool="mail"}`: 0, `refusals_total{reason="circuit_open",tool="mail"}`: 2,
		`refusals_total{reason="isolated",tool="mail"}`: 0, `refusals_total{reason="probe_in_flight",tool="mail"}`: 0,
		`refusals_total{reason="rate_limited",tool="mail"}`: 0,
	}, only(values(series, "refusals_total"), "mail"))
	assert.Equal(t, map[string]float64{
		`tool_unavailable{reason="busy",tool="bank"}`: 0, `tool_unavailable{reason="circuit_open",tool="bank"}`: 0,
		`tool_unavailable{reason="isolated",tool="bank"}`: 1, `tool_unavailable{reason="probe_in_flight",tool="bank"}`: 0,
		`tool_unavailable{reason="rate_limited",tool="bank"}`: 0, `refusals_total{reason="isolated",tool="bank"}`: 1,
	}, only(values(series, "tool_unavailable", `refusals_total{reason="isolated"`), "bank"))
	assert.Equal(t, map[string]float64{
		`calls_total{outcome="success",tool="search"}`: 1, `calls_total{outcome="failure",tool="search"}`: 0,
		`calls_total{outcome="rejected",tool="search"}`: 1, `calls_total{outcome="throttled",tool="search"}`: 0,
		`calls_total{outcome="neutral",tool="search"}`: 0, `rejections_total{kind="unauthorized",tool="search"}`: 1,
		`call_duration_seconds{outcome="success",tool="search"}`: 1, `tool_rejected_in_row{tool="search"}`: 1,
	}, only(values(series, "calls_total", "rejections_total", "failures_total", "call_duration", "tool_rejected"), "search"))
	assert.Equal(t, map[string]float64{
		`transitions_total{cause="failure_threshold",from="closed",to="open",tool="mail"}`: 1,
		`transitions_total{cause="isolated",from="closed",to="open",tool="bank"}`:          1,
	}, values(series, "transitions_total"))
	assert.Equal(t, map[string]float64{
		`failures_total{kind="timeout",tool="mail"}`: 3, `trips_total{tool="mail"}`: 1, `tool_consecutive_failures{tool="mail"}`: 3,
		`call_duration_seconds{outcome="success",tool="mail"}`: 0, `call_duration_seconds{outcome="failure",tool="mail"}`: 3,
	}, only(values(series, "failures_total", "trips_total", "tool_consecutive", "call_duration"), "mail"))
	assert.InDelta(t, 30, value(series[`toolhealth_tool_retry_after_seconds{tool="mail"}`]), 1)
	assert.InDelta(t, time.Now().Unix(), value(series[`toolhealth_tool_down_since_timestamp_seconds{tool="mail"}`]), 5)
	assert.NotContains(t, series, `toolhealth_tool_down_since_timestamp_seconds{tool="search"}`)
	assert.Equal(t, 3.0, value(series["toolhealth_tools"]))
	assert.Empty(t, values(series, "guard"), "nothing was guarded")
}

// only keeps the series of a tool.
func only(values map[string]float64, tool string) map[string]float64 {
	for name := range values {
		if !strings.Contains(name, `tool="`+tool+`"`) {
			delete(values, name)
		}
	}
	return values
}

func TestCollector_PassesLint(t *testing.T) {
	problems, err := testutil.GatherAndLint(everything(t))
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// everything returns a registry that has a series of every family.
func everything(t *testing.T) *prometheus.Registry {
	g, err := toolhealth.New(toolhealth.Settings{GroupSeparator: "/", Tools: map[string]toolhealth.ToolSettings{"maps/route": {Labels: map[string]string{"team": "geo"}}}})
	require.NoError(t, err)
	r := g.Gate().Registry
	p := register(t, r, promhealth.Options{ToolLabels: []string{"team"}, ConstLabels: prometheus.Labels{"registry": "a"}})
	_, err = toolhealth.Call(t.Context(), g, "maps/route", func(context.Context, string) (int, error) { return 0, nil })
	require.NoError(t, err)
	for _, tool := range []string{"maps/a", "maps/b", "maps/c"} {
		fail(r, tool, toolhealth.KindConnection, 1)
	}
	r.Hint("maps/a", toolhealth.HintSuspect, time.Minute)
	r.Isolate("maps/route", "")
	r.Record("maps/route", toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindGone}, 0)
	r.Record("maps/route", toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindCanceled}, 0)
	return p
}

func TestCollector_EveryDescriptionHasSeries(t *testing.T) {
	p := everything(t)
	families, err := p.Gather()
	require.NoError(t, err)
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	c, err := promhealth.New(nil, promhealth.Options{})
	require.NoError(t, err)
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	n := 0
	for d := range descs {
		n++
		_, rest, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ := strings.Cut(rest, `"`)
		assert.Contains(t, names, name)
	}
	assert.Len(t, names, n)
}

// Every bucket, of both kinds, has what the registry counted in it.
func TestCollector_HistogramIsThatOfTheRegistry(t *testing.T) {
	r := toolhealth.NewRegistry()
	p := register(t, r, promhealth.Options{})
	took := []time.Duration{0, time.Microsecond, 7629, 7630, time.Millisecond, 90 * time.Millisecond, 125 * time.Millisecond, 125*time.Millisecond + 1,
		time.Second, time.Second + 1, 20 * time.Second, 128 * time.Second, 129 * time.Second, 20 * time.Minute}
	for _, d := range took {
		r.RecordSuccess("search", d)
	}
	h := gather(t, p)[`toolhealth_call_duration_seconds{outcome="success",tool="search"}`].GetHistogram()
	want, _ := r.Latency("search")

	assert.Len(t, h.GetBucket(), 28)
	for _, b := range h.GetBucket() {
		n := uint64(0)
		for _, d := range took {
			if d.Seconds() <= b.GetUpperBound() {
				n++
			}
		}
		assert.Equal(t, n, b.GetCumulativeCount(), "up to %v s", b.GetUpperBound())
	}
	assert.Equal(t, uint64(len(took)), h.GetSampleCount())
	assert.Equal(t, want.Successes.Sum.Seconds(), h.GetSampleSum())

	assert.Equal(t, int32(want.Successes.Scale), h.GetSchema())
	assert.Equal(t, want.Successes.ZeroThreshold, h.GetZeroThreshold())
	assert.Equal(t, want.Successes.ZeroCount, h.GetZeroCount())
	counts := make([]uint64, len(want.Successes.Counts))
	bucket, delta, n := 0, 0, int64(0)
	for _, span := range h.GetPositiveSpan() {
		bucket += int(span.GetOffset())
		for range span.GetLength() {
			n += h.GetPositiveDelta()[delta]
			counts[bucket-1-want.Successes.Offset] = uint64(n)
			delta++
			bucket++
		}
	}
	assert.Equal(t, want.Successes.Counts, counts)
	assert.Greater(t, len(h.GetPositiveSpan()), 3, "empty buckets are left out")
}

func TestCollector_NamesAreUTF8(t *testing.T) {
	r := toolhealth.NewRegistry()
	p := register(t, r, promhealth.Options{})
	r.RecordSuccess("bad\x80", 0) // comes before the next one
	for range 5 {
		r.RecordSuccess("bad\uFFFD", 0) // has the name by right
	}
	r.RecordSuccess("worse\xff", 0)
	r.RecordSuccess("worse\xfe", 0) // comes before that
	r.RecordSuccess("_other", 0)
	r.RecordSuccess("two\nlines \"<b>\"", 0)
	assert.Equal(t, map[string]float64{
		`calls_total{outcome="success",tool="bad` + "\uFFFD" + `"}`:   5,
		`calls_total{outcome="success",tool="worse` + "\uFFFD" + `"}`: 1,
		`calls_total{outcome="success",tool="_other"}`:                3,
		`calls_total{outcome="success",tool="two\nlines \"<b>\""}`:    1,
	}, values(gather(t, p), `calls_total{outcome="success"`))
	assert.NotContains(t, gather(t, p), `toolhealth_tool_state{state="closed",tool="_other"}`)
	scrape(t, p, true)
	scrape(t, p, false)
}

func TestCollector_Groups(t *testing.T) {
	r, err := toolhealth.NewRegistryWithConfig(toolhealth.Config{Group: func(tool string) string {
		server, _, _ := strings.Cut(tool, "/")
		return server
	}})
	require.NoError(t, err)
	p := register(t, r, promhealth.Options{MaxGroups: 1})
	r.RecordSuccess("crm/get", 0)
	r.RecordSuccess("crm/put", 0)
	for _, tool := range []string{"maps/a", "maps/b", "maps/c"} {
		fail(r, tool, toolhealth.KindConnection, 1)
	}
	r.AllowRequest("maps/d")

	series := gather(t, p)
	assert.Equal(t, map[string]float64{
		`group_state{group="maps",state="closed"}`: 0, `group_state{group="maps",state="open"}`: 1, `group_state{group="maps",state="half-open"}`: 0,
		`group_unavailable{group="maps",reason="circuit_open"}`: 1, `group_unavailable{group="maps",reason="probe_in_flight"}`: 0,
		`group_unavailable{group="maps",reason="rate_limited"}`: 0, `group_unavailable{group="maps",reason="isolated"}`: 0,
		`group_consecutive_failures{group="maps"}`: 3, `group_tools{group="maps"}`: 4,
		`group_trips_total{group="maps"}`: 1, `group_trips_total{group="_other"}`: 0,
		`group_transitions_total{cause="failure_threshold",from="closed",group="maps",to="open"}`: 1,
		`groups`: 2,
	}, values(series, "group_state{", "group_unavailable", "group_con", "group_tools", "group_tr", "groups"), "the one that is down has a name")
	assert.Equal(t, 1.0, value(series[`toolhealth_tool_info{group="crm",tool="crm/get"}`]))
	assert.Equal(t, 1.0, value(series[`toolhealth_tool_unavailable{reason="circuit_open",tool="maps/d"}`]), "it is refused because of its group")
	assert.Equal(t, 1.0, value(series[`toolhealth_tool_state{state="closed",tool="maps/d"}`]))

	r.IsolateGroup("crm", "alice")
	r.ResetGroup("maps", "alice")
	r.IsolateGroup("maps", "alice")
	series = gather(t, p)
	assert.Equal(t, map[string]float64{`group_trips_total{group="maps"}`: 2, `group_trips_total{group="_other"}`: 1}, values(series, "group_trips"))
	assert.Equal(t, 1.0, value(series[`toolhealth_group_transitions_total{cause="isolated",from="closed",group="_other",to="open"}`]))
}

func TestCollector_HintsAndObservations(t *testing.T) {
	r, err := toolhealth.NewRegistryWithConfig(toolhealth.Config{Breaker: toolhealth.BreakerConfig{FailureThreshold: 3, ObserveOnly: true}})
	require.NoError(t, err)
	p := register(t, r, promhealth.Options{})
	fail(r, "search", toolhealth.KindTimeout, 3)
	_, err = (&toolhealth.Gate{Registry: r}).Allow(t.Context(), "search")
	require.NoError(t, err)
	assert.Equal(t, 1.0, value(gather(t, p)[`toolhealth_would_refuse_total{tool="search"}`]))

	r = toolhealth.NewRegistry()
	p = register(t, r, promhealth.Options{})
	r.RecordSuccess("a", 0)
	r.RecordSuccess("b", 0)
	r.Hint("a", toolhealth.HintSuspect, time.Minute)
	r.Hint("b", toolhealth.HintDown, time.Minute)
	assert.Equal(t, map[string]float64{
		`tool_hint{hint="suspected",tool="a"}`: 1,
		`tool_hint{hint="reported",tool="b"}`:  1,
	}, values(gather(t, p), "tool_hint"))
}

func TestCollector_InfoHasTheLabelsThatAreAskedFor(t *testing.T) {
	r := toolhealth.NewRegistry()
	require.NoError(t, r.Register("search", toolhealth.ToolOptions{Group: "web", Labels: map[string]string{"team": "geo\xff", "title": "Search"}}))
	labels := []string{"team", "owner"}
	p := register(t, r, promhealth.Options{ToolLabels: labels, ConstLabels: prometheus.Labels{"registry": "a"}})
	labels[0] = "title"
	assert.Equal(t, map[string]float64{
		`tool_info{group="web",owner="",registry="a",team="geo` + "\uFFFD" + `",tool="search"}`: 1,
	}, values(gather(t, p), "tool_info"))
}

// Increases are seen from zero: of what comes after a scrape, it was zero at that scrape.
func TestCollector_CreatedTimestamps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		made := time.Now()
		r.RecordSuccess("old", 0)
		time.Sleep(time.Hour)
		p := register(t, r, promhealth.Options{})
		collected := time.Now()
		time.Sleep(time.Minute)
		r.RecordSuccess("new", 0)
		created := func(series string) time.Time {
			m := gather(t, p)["toolhealth_"+series]
			require.NotNil(t, m, series)
			if m.GetHistogram() != nil {
				return m.GetHistogram().GetCreatedTimestamp().AsTime().Local()
			}
			return m.GetCounter().GetCreatedTimestamp().AsTime().Local()
		}
		assert.Equal(t, made, created(`calls_total{outcome="success",tool="old"}`))
		assert.Equal(t, made, created(`untracked_calls_total`))
		assert.Equal(t, made, created(`calls_total{outcome="success",tool="new"}`), "no scrape has said that it was zero later")
		scraped := time.Now()
		time.Sleep(time.Minute)
		fail(r, "late", toolhealth.KindTimeout, 3)
		for range 2 {
			assert.Equal(t, scraped, created(`trips_total{tool="late"}`))
			assert.Equal(t, scraped, created(`call_duration_seconds{outcome="success",tool="late"}`))
			assert.Equal(t, scraped, created(`transitions_total{cause="failure_threshold",from="closed",to="open",tool="late"}`))
			assert.Equal(t, made, created(`trips_total{tool="old"}`))
			time.Sleep(time.Minute)
		}
		scraped = time.Now()
		gather(t, p)
		time.Sleep(time.Minute)
		r.Remove("late")
		r.RecordSuccess("late", 0)
		assert.Equal(t, scraped, created(`trips_total{tool="late"}`), "it is another tool")
		assert.True(t, scraped.After(collected))
	})
}

func TestCollector_TwoRegistriesHaveLabels(t *testing.T) {
	a, b := toolhealth.NewRegistry(), toolhealth.NewRegistry()
	a.RecordSuccess("search", 0)
	b.RecordSuccess("search", 0)
	collector := func(r *toolhealth.Registry, o promhealth.Options) *promhealth.Collector {
		c, err := promhealth.New(r, o)
		require.NoError(t, err)
		return c
	}
	p := prometheus.NewPedanticRegistry()
	require.NoError(t, p.Register(collector(a, promhealth.Options{})))
	assert.ErrorAs(t, p.Register(collector(b, promhealth.Options{})), &prometheus.AlreadyRegisteredError{})
	assert.Contains(t, gather(t, p), `toolhealth_trips_total{tool="search"}`, "the first one is not harmed")

	p = prometheus.NewPedanticRegistry()
	require.NoError(t, p.Register(collector(a, promhealth.Options{ConstLabels: prometheus.Labels{"registry": "a"}})))
	require.NoError(t, p.Register(collector(b, promhealth.Options{ConstLabels: prometheus.Labels{"registry": "b"}})))
	require.NoError(t, prometheus.WrapRegistererWith(prometheus.Labels{"registry": "c"}, p).Register(collector(b, promhealth.Options{})))
	for range 2 { // what is wrapped may change what it is given
		assert.Len(t, values(gather(t, p), `trips_total{registry="`), 3)
		assert.Len(t, values(gather(t, p), `call_duration_seconds{outcome="success",registry="`), 3)
	}
}

func TestNew_RefusesOptions(t *testing.T) {
	for _, c := range []struct {
		o    promhealth.Options
		want string
	}{
		{promhealth.Options{MaxTools: -2}, "promhealth: Options.MaxTools: -2 is negative"},
		{promhealth.Options{MaxGroups: -7}, "promhealth: Options.MaxGroups: -7 is negative"},
		{promhealth.Options{ConstLabels: prometheus.Labels{"a-b": "c"}}, `promhealth: Options.ConstLabels: "a-b" is no name for a label`},
		{promhealth.Options{ConstLabels: prometheus.Labels{"tool": "c"}}, `promhealth: Options.ConstLabels: "tool" is a label already`},
		{promhealth.Options{ConstLabels: prometheus.Labels{"a": "c\xff"}}, `promhealth: Options.ConstLabels: the value "c\xff" of "a" is no UTF-8`},
		{promhealth.Options{ToolLabels: []string{""}}, `promhealth: Options.ToolLabels: "" is no name for a label`},
		{promhealth.Options{ToolLabels: []string{"__name__"}}, `promhealth: Options.ToolLabels: "__name__" is no name for a label`},
		{promhealth.Options{ToolLabels: []string{"team", "team"}}, `promhealth: Options.ToolLabels: "team" is a label already`},
		{promhealth.Options{ToolLabels: []string{"team"}, ConstLabels: prometheus.Labels{"team": "a"}}, `promhealth: Options.ToolLabels: "team" is a label already`},
	} {
		_, err := promhealth.New(toolhealth.NewRegistry(), c.o)
		assert.EqualError(t, err, c.want)
	}
}

func TestCollector_NoRegistry(t *testing.T) {
	for _, r := range []*toolhealth.Registry{nil, new(toolhealth.Registry)} {
		p := register(t, r, promhealth.Options{})
		assert.Equal(t, map[string]float64{"tools": 0, "groups": 0, "untracked_calls_total": 0, "evicted_tools_total": 0, "hook_panics_total": 0, "hook_dropped_total": 0},
			values(gather(t, p), ""))
	}
}

func TestCollector_CloseEndsTheCountingOfTransitions(t *testing.T) {
	r := toolhealth.NewRegistry()
	c, err := promhealth.New(r, promhealth.Options{})
	require.NoError(t, err)
	r.Isolate("a", "")
	c.Close()
	r.Isolate("b", "")
	p := prometheus.NewPedanticRegistry()
	require.NoError(t, p.Register(c))
	assert.Len(t, values(gather(t, p), "transitions_total"), 1)
	assert.Len(t, values(gather(t, p), "trips_total"), 2)
}

func TestCollector_GuardFigures(t *testing.T) {
	g, err := toolhealth.New(toolhealth.Settings{Policy: toolhealth.Policy{MaxAttempts: 2, BackoffBase: toolhealth.Off}})
	require.NoError(t, err)
	p := register(t, g.Gate().Registry, promhealth.Options{})
	require.NoError(t, g.Gate().Registry.Register("idle", toolhealth.ToolOptions{}))
	answers := []error{nil, nil, toolhealth.BadRequest(errors.New("no")), toolhealth.WithVerdict(errors.New("down"), toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError, Retryable: true})}
	for _, answer := range answers {
		_, _ = toolhealth.Call(t.Context(), g, "search", func(context.Context, string) (int, error) { return 0, answer })
	}
	started, done := make(chan bool), make(chan bool)
	var calls sync.WaitGroup
	calls.Go(func() {
		_, _ = toolhealth.Call(t.Context(), g, "search", func(context.Context, string) (int, error) {
			started <- true
			<-done
			return 0, nil
		})
	})
	<-started
	series := gather(t, p)
	assert.Equal(t, map[string]float64{
		`guard_calls_total{result="answered",tool="search"}`: 2, `guard_calls_total{result="failed",tool="search"}`: 1,
		`guard_calls_total{result="rejected",tool="search"}`: 1, `guard_calls_total{result="canceled",tool="search"}`: 0,
		`guard_attempts_total{tool="search"}`: 6, `guard_retries_total{tool="search"}`: 1, `guard_fallbacks_total{tool="search"}`: 0,
		`guard_budget_exhausted_total{tool="search"}`: 0, `guard_calls_in_flight{tool="search"}`: 1, `guard_abandoned_attempts{tool="search"}`: 0,
	}, only(values(series, "guard_c", "guard_a", "guard_r", "guard_f", "guard_b"), "search"))
	assert.Greater(t, value(series[`toolhealth_guard_oldest_call_seconds{tool="search"}`]), 0.0)
	assert.Equal(t, 0.0, value(series[`toolhealth_guard_calls_total{result="failed",tool="idle"}`]), "its first failure will be an increase")
	close(done)
	calls.Wait()
}

// No counter goes back while calls end, fail and are refused beside the scrapes.
func TestCollector_CountersNeverGoBack(t *testing.T) {
	g, err := toolhealth.New(toolhealth.Settings{Breaker: toolhealth.BreakerConfig{FailureThreshold: 3, RecoveryDuration: time.Millisecond, ProbeTimeout: time.Second}})
	require.NoError(t, err)
	p := register(t, g.Gate().Registry, promhealth.Options{})
	end := make(chan bool)
	var calls sync.WaitGroup
	for i := range 2 {
		calls.Go(func() {
			for j := i; ; j++ {
				select {
				case <-end:
					return
				default:
				}
				_, _ = toolhealth.Call(context.Background(), g, "search", func(context.Context, string) (int, error) {
					if j%5 < 4 {
						return 0, errors.New("down")
					}
					return 0, nil
				})
			}
		})
	}
	last := map[string]float64{}
	for range 100 {
		now := counters(gather(t, p))
		for name, v := range last {
			if !assert.GreaterOrEqual(t, now[name], v, name) {
				break
			}
		}
		last = now
	}
	close(end)
	calls.Wait()
	assert.Greater(t, last[`guard_attempts_total{tool="search"}`], 0.0)
	series := counters(gather(t, p))
	ended := 0.0
	for name, v := range series {
		if strings.HasPrefix(name, "guard_calls_total") {
			ended += v
		}
	}
	h, _ := g.Gate().Registry.Health("search")
	assert.InDelta(t, h.Guard.Calls, ended, 8, "at most as many too many as ran at once")
}

func TestCollector_ScrapesAtOnce(t *testing.T) {
	r := toolhealth.NewRegistry()
	p, few := register(t, r, promhealth.Options{}), register(t, r, promhealth.Options{MaxTools: 2})
	var scrapes sync.WaitGroup
	for i := range 4 {
		scrapes.Go(func() {
			for j := range 25 {
				fail(r, strings.Repeat("t", 1+(i+j)%5), toolhealth.KindTimeout, 1)
				_, err := p.Gather()
				assert.NoError(t, err)
				_, err = few.Gather()
				assert.NoError(t, err)
			}
		})
	}
	scrapes.Wait()
	total := 0.0
	for _, v := range values(gather(t, p), `calls_total{outcome="failure"`) {
		total += v
	}
	assert.Equal(t, 100.0, total)
}
