package toolhealth

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHealth_StatusFollowsScoreAndState(t *testing.T) {
	for _, c := range []struct {
		score    float64
		state    State
		refused  bool
		rejected uint64
		want     HealthStatus
	}{
		{1, StateClosed, false, 0, Healthy},
		{0.8, StateClosed, false, 9, Healthy},
		{0.7999999, StateClosed, false, 0, Degraded},
		{0.5, StateClosed, false, 0, Degraded},
		{0.4999999, StateClosed, false, 0, Unhealthy},
		{0, StateClosed, false, 0, Unhealthy},
		{1, StateClosed, true, 0, Degraded},
		{0.7, StateClosed, true, 0, Degraded},
		{0.4, StateClosed, true, 0, Unhealthy},
		{1, StateClosed, false, 10, Degraded},
		{1, StateClosed, true, 11, Degraded},
		{0.4, StateClosed, false, 10, Unhealthy},
		{1, StateHalfOpen, false, 0, Healthy}, // with ObserveOnly
		{1, StateHalfOpen, true, 0, Degraded},
		{0.7, StateHalfOpen, true, 0, Degraded},
		{0.4, StateHalfOpen, true, 0, Unhealthy},
		{1, StateOpen, false, 0, Unhealthy},
		{1, StateOpen, true, 0, Unhealthy},
	} {
		h := ToolHealth{Score: c.score, State: c.state, Available: !c.refused, RejectedInRow: c.rejected}
		assert.Equal(t, c.want, statusOf(&h), "%+v", c)
	}
}

func TestSummary_Overall(t *testing.T) {
	well := ToolHealth{Available: true}
	tired := ToolHealth{Available: true, Status: Degraded}
	sick := ToolHealth{Available: true, Status: Unhealthy}
	away := ToolHealth{Status: Healthy}
	for _, c := range []struct {
		tools       []ToolHealth
		overall     HealthStatus
		unavailable int
	}{
		{nil, Healthy, 0},
		{[]ToolHealth{well}, Healthy, 0},
		{[]ToolHealth{well, tired}, Degraded, 0},
		{[]ToolHealth{tired, well}, Degraded, 0},
		{[]ToolHealth{tired}, Degraded, 0},
		{[]ToolHealth{well, sick}, Degraded, 0},
		{[]ToolHealth{well, away}, Degraded, 1},
		{[]ToolHealth{sick}, Unhealthy, 0},
		{[]ToolHealth{away}, Unhealthy, 1},
		{[]ToolHealth{away, sick, away}, Unhealthy, 2},
		{[]ToolHealth{away, sick, tired}, Degraded, 1},
	} {
		s := Summary{Tools: c.tools}
		s.finish()
		assert.Equal(t, c.overall, s.Overall, "%+v", c.tools)
		assert.Equal(t, c.unavailable, s.Unavailable, "%+v", c.tools)
	}
}

func fullHealth() ToolHealth {
	return ToolHealth{
		Tool: "search", Status: Degraded, State: StateHalfOpen, Available: true, ProbeDue: true,
		Reason: StopProbeInFlight, RetryAfter: 1500 * time.Millisecond, Score: 0.625,
		IsolatedBy: "alice", Labels: map[string]string{"server": "pages-01"},
		Counts: Counts{
			Successes: 1, Failures: 2, ByKind: map[Kind]uint64{KindTimeout: 2}, Rejected: 3, Throttled: 4, Neutral: 5,
			RejectedByKind: map[Kind]uint64{KindUnauthorized: 3}, NeutralByKind: map[Kind]uint64{KindContract: 4, KindDenied: 1},
			Refused: 6, RefusedByReason: map[StopReason]uint64{StopCircuitOpen: 5, StopBusy: 1}, Average: time.Second, AverageSuccess: 2 * time.Second, Max: 3 * time.Second, EWMA: 0.5,
			P50: 250 * time.Millisecond, P90: 500 * time.Millisecond, P99: 750 * time.Millisecond,
		},
		ConsecutiveFailures: 7, LastFailure: KindConnection, RefusedInRow: 8, WouldRefuse: 11, Trips: 9, Epoch: 10,
		Since: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), InFlight: 11, Guard: GuardCounts{Calls: 12},
		DownSince:     time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC),
		LastFailureAt: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC), LastRejectedAt: time.Date(2026, 1, 2, 3, 4, 7, 0, time.UTC), RejectedInRow: 13,
		Suspected: true, Reported: true,
	}
}

func TestHealth_JSONKeys(t *testing.T) {
	text, err := json.Marshal(fullHealth())
	require.NoError(t, err)
	var keys map[string]any
	require.NoError(t, json.Unmarshal(text, &keys))
	guard := keys["guard"]
	delete(keys, "guard")
	assert.Equal(t, map[string]any{
		"tool": "search", "status": "degraded", "state": "half-open", "available": true, "probe_due": true,
		"reason": "probe_in_flight", "retry_after_seconds": 1.5, "score": 0.625, "ewma": 0.5, "success_rate": 1.0 / 3,
		"calls": 3.0, "successes": 1.0, "failures": 2.0, "failures_by_kind": map[string]any{"timeout": 2.0},
		"rejected": 3.0, "throttled": 4.0, "neutral": 5.0, "refused": 6.0, "consecutive_failures": 7.0,
		"last_failure_kind": "connection", "refused_in_row": 8.0, "would_refuse": 11.0, "trips": 9.0, "epoch": 10.0,
		"since": "2026-01-02T03:04:05.000000006Z", "average_seconds": 1.0, "average_success_seconds": 2.0,
		"max_seconds": 3.0, "p50_seconds": 0.25, "p90_seconds": 0.5, "p99_seconds": 0.75, "in_flight": 11.0, "isolated_by": "alice", "labels": map[string]any{"server": "pages-01"},
		"rejections_by_kind": map[string]any{"unauthorized": 3.0}, "neutrals_by_kind": map[string]any{"contract": 4.0, "denied": 1.0},
		"refusals_by_reason": map[string]any{"circuit_open": 5.0, "busy": 1.0}, "rejected_in_row": 13.0,
		"suspected": true, "reported": true,
		"down_since": "2026-01-02T03:04:00Z", "last_failure_at": "2026-01-02T03:04:06Z", "last_rejected_at": "2026-01-02T03:04:07Z",
	}, keys)
	assert.Equal(t, 12.0, guard.(map[string]any)["calls"])
	var back ToolHealth
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, fullHealth(), back)

	text, err = json.Marshal(ToolHealth{})
	require.NoError(t, err)
	assert.NotContains(t, string(text), "guard")
	for _, key := range []string{"_by_kind", "_by_reason", "isolated_by", "labels", "down_since", "last_failure_at", "last_rejected_at", "suspected", "reported"} {
		assert.NotContains(t, string(text), key)
	}
	assert.Contains(t, string(text), `"reason":"none"`)
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, ToolHealth{}, back, "no field keeps its old value")
}

func TestGuardCounts_JSON(t *testing.T) {
	c := GuardCounts{
		Calls: 1, Failed: 2, Rejected: 3, Canceled: 4, Attempts: 5, Retries: 6, Refusals: 7, Fallbacks: 8,
		BudgetExhausted: 9, Abandoned: 10, InFlight: 11, Oldest: 1500 * time.Millisecond,
	}
	text, err := json.Marshal(c)
	require.NoError(t, err)
	assert.Equal(t, `{"calls":1,"failed":2,"rejected":3,"canceled":4,"attempts":5,"retries":6,"refusals":7,"fallbacks":8,`+
		`"budget_exhausted":9,"abandoned":10,"in_flight":11,"oldest_seconds":1.5}`, string(text))
	var back GuardCounts
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, c, back)
	require.NoError(t, json.Unmarshal([]byte(`{"calls":5}`), &back))
	assert.Equal(t, GuardCounts{Calls: 5}, back, "no field keeps its old value")
	for _, wrong := range []string{`{"calls":-1}`, `{"calls":6,"oldest_seconds":"1s"}`, `{"abandoned":0.5}`, `[]`} {
		assert.Error(t, json.Unmarshal([]byte(wrong), &back), wrong)
		assert.Equal(t, GuardCounts{Calls: 5}, back, wrong)
		h := fullHealth()
		assert.Error(t, json.Unmarshal([]byte(`{"reason":"none","guard":`+wrong+`}`), &h), wrong)
		assert.Equal(t, fullHealth(), h, wrong)
	}
}

func TestSummary_JSONRoundTrip(t *testing.T) {
	s := Summary{
		Overall: Unhealthy, Tools: []ToolHealth{fullHealth()}, Unavailable: 1, Untracked: 2, Evicted: 3, HookPanics: 4, HookDropped: 5,
		At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
	}
	text, err := json.Marshal(s)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(text), `{"schema":1,"at":"2026-01-02T03:04:05.000000006Z","overall":"unhealthy",`+
		`"unavailable":1,"untracked":2,"evicted":3,"hook_panics":4,"hook_dropped":5,"tools":[{"tool":"search",`), string(text))
	var back Summary
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, s, back)
	text, err = json.Marshal(Summary{})
	require.NoError(t, err)
	assert.Contains(t, string(text), `"tools":[]`, "a list, not null")
}

func TestHealth_JSONDurationsAreExact(t *testing.T) {
	durations := []time.Duration{0, 1, 999_999_999, time.Hour + 1, -5}
	for i := range time.Duration(2000) {
		durations = append(durations, 48*24*time.Hour-i)
	}
	for _, d := range durations {
		text, err := json.Marshal(seconds(d))
		require.NoError(t, err)
		var back seconds
		require.NoError(t, json.Unmarshal(text, &back))
		assert.Equal(t, d, time.Duration(back), string(text))
	}
	for text, want := range map[string]int64{
		"1e300": math.MaxInt64, "-1e300": math.MinInt64, "9223372036.854775808": math.MaxInt64, "0.0000000004": 0, "2.5": 2500000000,
	} {
		var s seconds
		require.NoError(t, json.Unmarshal([]byte(text), &s))
		assert.Equal(t, want, int64(s), text)
	}
}

func TestHealth_InvalidJSONChangesNothing(t *testing.T) {
	good, err := json.Marshal(fullHealth())
	require.NoError(t, err)
	for _, text := range []string{
		`{"tool":"x","reason":"tired"}`,
		`{"tool":"x","reason":""}`,
		`{"tool":"x"}`,
		`{"tool":"x","reason":"none","state":"ajar"}`,
		`{"tool":"x","reason":"none","status":"well"}`,
		`{"tool":"x","reason":"none","last_failure_kind":"bad luck"}`,
		`{"tool":"x","reason":"none","failures_by_kind":{"bad luck":1}}`,
		`{"tool":"x","reason":"none","rejections_by_kind":{"bad luck":1}}`,
		`{"tool":"x","reason":"none","refusals_by_reason":{"circuit_open":1,"tired":1}}`,
		`{"tool":"x","reason":"none","refusals_by_reason":{"circuit_open":-1}}`,
		`{"tool":"x","reason":"none","down_since":5}`,
		`{"tool":"x","reason":"none","retry_after_seconds":"3s"}`,
		`{"tool":"x","reason":"none","successes":-1}`,
		`[]`, ``, string(good[:len(good)-1]),
	} {
		h := fullHealth()
		assert.Error(t, h.UnmarshalJSON([]byte(text)), text)
		assert.Equal(t, fullHealth(), h)
		s := Summary{Untracked: 5}
		assert.Error(t, s.UnmarshalJSON([]byte(`{"untracked":6,"tools":[`+text+`,{"tool":1}]}`)))
		assert.Equal(t, Summary{Untracked: 5}, s)
	}
}

func TestHealth_HostileNames(t *testing.T) {
	names := map[string]string{
		"\xff\xfe":                  "\ufffd\ufffd",
		"\x1b[31mred\x1b[0m":        "\x1b[31mred\x1b[0m",
		"a\x00b\r\n\t\"\\</script>": "a\x00b\r\n\t\"\\</script>",
		"\u202eright":               "\u202eright",
		strings.Repeat("x", 1<<20):  strings.Repeat("x", 1<<20),
		" ":                         " ",
	}
	r := NewRegistry()
	for name := range names {
		assert.True(t, r.AllowRequest(name))
		failTimes(r, name, 3)
		assert.Equal(t, name, healthOf(t, r, name).Tool, "the name is unchanged")
	}
	text, err := json.Marshal(r.HealthSummary())
	require.NoError(t, err)
	assert.True(t, utf8.Valid(text))
	for i, b := range text {
		require.False(t, b < 0x20, "control character at %d", i)
	}
	assert.NotContains(t, string(text), "<")
	var back Summary
	require.NoError(t, json.Unmarshal(text, &back))
	want, got := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		want[name] = true
	}
	for _, h := range back.Tools {
		got[h.Tool] = true
	}
	assert.Equal(t, want, got)
}

func TestRegistry_LatencyOfSuccessesAndFailures(t *testing.T) {
	r := NewRegistry()
	_, ok := r.Latency("search")
	assert.False(t, ok)
	assert.Zero(t, r.Len(), "reading makes no entry")
	r.AllowRequest("search")
	l, ok := r.Latency("search")
	assert.True(t, ok)
	assert.Equal(t, Latency{}, l)
	r.RecordSuccess("search", time.Second)
	permit, err := (&Gate{Registry: r}).Allow(t.Context(), "search")
	require.NoError(t, err)
	permit.Done(t.Context(), nil)
	r.RecordFailure("search", 30*time.Second)
	r.Record("search", Verdict{Outcome: OutcomeRejected}, time.Second)
	r.Record("search", Verdict{Outcome: OutcomeNeutral}, time.Second)
	l, _ = r.Latency("search")
	assert.EqualValues(t, 2, l.Successes.Count, "by name and through a permit")
	assert.EqualValues(t, 1, l.Successes.Counts[len(l.Successes.Counts)-1])
	assert.Equal(t, -1, l.Successes.Offset+len(l.Successes.Counts)-1, "a second ends the bucket before 0")
	assert.Equal(t, Histogram{Scale: 2, ZeroThreshold: 1.0 / (1 << 17), Offset: 19, Counts: []uint64{1}, Count: 1, Sum: 30 * time.Second}, l.Failures)
	e := &r.table.Get("search").Value
	e.snap.Store(evictedUnder(e.snap.Load().Params))
	_, ok = r.Latency("search")
	assert.False(t, ok, "it is just leaving")
	for _, none := range []*Registry{nil, {}} {
		l, ok = none.Latency("search")
		assert.False(t, ok)
		assert.Equal(t, Latency{}, l)
	}
}

// The test checks all fields of a tool's health, at each stage of its life.
func TestHealth_EveryFieldThroughOneLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := NewRegistry()
		g := &Gate{Registry: r}
		_, ok := r.Health("search")
		assert.False(t, ok)
		assert.Equal(t, Healthy, r.HealthStatus("search"))

		permit, err := g.Allow(t.Context(), "search")
		require.NoError(t, err)
		assert.Equal(t, ToolHealth{
			Tool: "search", Available: true, Score: 1, Counts: Counts{EWMA: 1}, Epoch: 1, Since: start.Round(0), InFlight: 1,
		}, roundSince(healthOf(t, r, "search")))
		time.Sleep(2 * time.Second)
		permit.Done(t.Context(), nil)
		failTimes(r, "search", 3)
		opened := time.Now()
		time.Sleep(10 * time.Second)
		assert.False(t, r.AllowRequest("search"))
		h := roundSince(healthOf(t, r, "search"))
		assert.InDelta(t, 0.3*0.25+0.7*0.343, h.Score, 1e-9)
		h.Score = 0
		assert.Equal(t, ToolHealth{
			Tool: "search", Status: Unhealthy, State: StateOpen, Reason: StopCircuitOpen, RetryAfter: 20 * time.Second,
			Counts: Counts{
				Successes: 1, Failures: 3, ByKind: map[Kind]uint64{KindUnknown: 3}, Refused: 1,
				Average: 500*time.Millisecond + 750*time.Microsecond, AverageSuccess: 2 * time.Second, Max: 2 * time.Second, EWMA: 0.343,
				P50: h.P50, P90: h.P90, P99: h.P99, // see TestStats_QuantilesOfSuccesses
				RefusedByReason: map[StopReason]uint64{StopCircuitOpen: 1},
			},
			DownSince: opened.Round(0), LastFailureAt: opened.Round(0),
			ConsecutiveFailures: 3, LastFailure: KindUnknown, RefusedInRow: 1, Trips: 1, Epoch: 2, Since: opened.Round(0),
		}, h)

		time.Sleep(20 * time.Second)
		h = healthOf(t, r, "search")
		assert.True(t, h.Available)
		assert.True(t, h.ProbeDue)
		assert.Equal(t, StateOpen, h.State)
		assert.Equal(t, StopNone, h.Reason)
		assert.True(t, r.AllowRequest("search"))
		h = healthOf(t, r, "search")
		assert.Equal(t, StateHalfOpen, h.State)
		assert.False(t, h.ProbeDue)
		assert.Equal(t, StopProbeInFlight, h.Reason)
		assert.Equal(t, time.Minute, h.RetryAfter)
		assert.Equal(t, uint64(0), h.RefusedInRow)

		time.Sleep(30 * time.Second) // the lease
		h = healthOf(t, r, "search")
		assert.Equal(t, StateOpen, h.State, "an expired lease reads as open before any call finds it")
		assert.Equal(t, StopCircuitOpen, h.Reason)
		assert.Equal(t, 30*time.Second, h.RetryAfter)
		assert.Equal(t, uint64(4), h.Epoch)
		assert.True(t, time.Now().Equal(h.Since))
		assert.True(t, opened.Equal(h.DownSince), "not restarted by the probe")
		assert.True(t, opened.Equal(h.LastFailureAt))
		assert.Equal(t, map[StopReason]uint64{StopCircuitOpen: 1}, h.RefusedByReason)

		s := r.HealthSummary()
		assert.Equal(t, []ToolHealth{h}, s.Tools)
		assert.True(t, time.Now().Equal(s.At))
		assert.Equal(t, Unhealthy, s.Overall)
		assert.Equal(t, 1, s.Unavailable)
	})
}

// roundSince removes the monotonic reading, which assert.Equal would compare.
func roundSince(h ToolHealth) ToolHealth {
	for _, at := range []*time.Time{&h.Since, &h.DownSince, &h.LastFailureAt, &h.LastRejectedAt} {
		*at = at.Round(0)
	}
	return h
}

func TestHealth_DownSinceUntilClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		down := func() time.Time { return healthOf(t, r, "search").DownSince }
		r.RecordFailure("search", 0)
		assert.Zero(t, down())
		time.Sleep(time.Second)
		failTimes(r, "search", 2)
		opened := time.Now()
		for range 3 { // probes that fail
			time.Sleep(30 * time.Second)
			assert.True(t, r.AllowRequest("search"))
			assert.True(t, opened.Equal(down()), "half-open")
			r.RecordFailure("search", 0)
			assert.True(t, opened.Equal(down()), "open again")
		}
		r.Isolate("search", "")
		assert.True(t, opened.Equal(down()), "isolated while open")
		r.Reset("search", "")
		assert.Zero(t, down())
		time.Sleep(time.Second)
		r.Isolate("search", "")
		assert.True(t, time.Now().Equal(down()), "isolated while closed")
		r.Reset("search", "")

		failTimes(r, "search", 3)
		time.Sleep(30 * time.Second)
		assert.True(t, r.AllowRequest("search"))
		r.RecordSuccess("search", 0)
		assert.Zero(t, down())
	})
}

func TestHealth_TimesOfLastFailureAndRejection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := &Gate{Registry: r}
		rejection := Verdict{Outcome: OutcomeRejected, Kind: KindNotFound}
		failTimes(r, "first", 1)
		assert.True(t, time.Now().Equal(healthOf(t, r, "first").LastFailureAt), "at the registry's first moment")
		for _, v := range []Verdict{{}, {Outcome: OutcomeNeutral, Kind: KindDenied}, {Outcome: OutcomeThrottled, Kind: KindRateLimited}} {
			r.Record("search", v, 0)
		}
		h := healthOf(t, r, "search")
		assert.Zero(t, h.LastFailureAt)
		assert.Zero(t, h.LastRejectedAt)

		permit, err := g.Allow(t.Context(), "search")
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		permit.Settle(rejection)
		rejected := time.Now()
		time.Sleep(time.Second)
		r.RecordFailure("search", time.Minute)
		failed := time.Now()
		time.Sleep(time.Second)
		r.RecordSuccess("search", 0)
		h = healthOf(t, r, "search")
		assert.True(t, failed.Equal(h.LastFailureAt), "%v", h.LastFailureAt)
		assert.True(t, rejected.Equal(h.LastRejectedAt), "%v", h.LastRejectedAt)
		r.Record("search", rejection, 0)
		assert.True(t, time.Now().Equal(healthOf(t, r, "search").LastRejectedAt))
		assert.True(t, failed.Equal(healthOf(t, r, "search").LastFailureAt))
	})
}

func TestHealth_DegradedWhileRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		r.Record("search", Verdict{Outcome: OutcomeThrottled, Kind: KindRateLimited, RetryAfter: 10 * time.Second}, 0)
		h := healthOf(t, r, "search")
		assert.Equal(t, [2]any{StateClosed, Degraded}, [2]any{h.State, h.Status})
		assert.False(t, r.AllowRequest("search"))
		assert.Equal(t, map[StopReason]uint64{StopRateLimited: 1}, healthOf(t, r, "search").RefusedByReason)
		time.Sleep(10 * time.Second)
		assert.Equal(t, Healthy, r.HealthStatus("search"))

		observed := registryWith(t, func(c *Config) { c.Breaker.ObserveOnly = true })
		observed.Record("search", Verdict{Outcome: OutcomeThrottled, Kind: KindRateLimited, RetryAfter: 10 * time.Second}, 0)
		assert.Equal(t, Healthy, observed.HealthStatus("search"), "no call is refused")
	})
}

func TestSummary_SortedAndComplete(t *testing.T) {
	r := NewRegistry()
	var want []string
	for i := range 200 {
		name := strings.Repeat("n", i%5) + fmt.Sprint(i)
		want = append(want, name)
		r.AllowRequest(name)
	}
	slices.Sort(want)
	var got []string
	for _, h := range r.HealthSummary().Tools {
		got = append(got, h.Tool)
	}
	assert.Equal(t, want, got)
	assert.Equal(t, want, namesOf(r))
}

func TestHealth_LabelsStayUntilReplaced(t *testing.T) {
	r := NewRegistry()
	labels := func() map[string]string { return healthOf(t, r, "search").Labels }
	server := map[string]string{"server": "pages-01"}
	require.NoError(t, r.Register("search", ToolOptions{Labels: server}))
	server["server"] = "changed by the caller"
	assert.Equal(t, map[string]string{"server": "pages-01"}, labels())
	r.Isolate("search", "alice")
	require.NoError(t, r.Register("search", ToolOptions{Breaker: new(DefaultBreakerConfig())}))
	assert.Equal(t, map[string]string{"server": "pages-01"}, labels())
	assert.Error(t, r.Register("search", ToolOptions{Breaker: &BreakerConfig{FailureThreshold: -2}, Labels: map[string]string{"a": "b"}}))
	assert.Equal(t, map[string]string{"server": "pages-01"}, labels(), "after an error nothing has changed")
	require.NoError(t, r.Register("search", ToolOptions{Labels: map[string]string{"title": "Search"}}))
	assert.Equal(t, map[string]string{"title": "Search"}, labels())
	assert.Equal(t, "alice", healthOf(t, r, "search").IsolatedBy)
	require.NoError(t, r.Register("search", ToolOptions{Labels: map[string]string{}}))
	assert.Empty(t, labels())

	g := newWith(t, Settings{Tools: map[string]ToolSettings{"search": {Labels: map[string]string{"server": "set"}}}})
	g.Registry().RecordSuccess("search", 0)
	require.NoError(t, g.Registry().SetConfig(DefaultConfig()))
	assert.Equal(t, map[string]string{"server": "set"}, healthOf(t, g.Registry(), "search").Labels, "a Config has no labels")
	g.Registry().Isolate("search", "alice")
	assert.Equal(t, map[string]string{"server": "set"}, healthOf(t, g.Registry(), "search").Labels, "an operator names no labels")
	require.NoError(t, g.Registry().Register("search", ToolOptions{Labels: map[string]string{"server": "registered"}}))
	assert.Equal(t, map[string]string{"server": "registered"}, healthOf(t, g.Registry(), "search").Labels, "before those of the settings")

	r.RecordSuccess("late", 0)
	require.NoError(t, r.Register("late", ToolOptions{Labels: map[string]string{"a": "b"}}))
	assert.Equal(t, map[string]string{"a": "b"}, healthOf(t, r, "late").Labels, "of a tool that was called before")
	r.Remove("late")
	r.RecordSuccess("late", 0)
	assert.Nil(t, healthOf(t, r, "late").Labels)
}

func TestHealth_OperatorIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		var said []string
		var seen []string // by hooks, in the health of the tool
		defer r.OnTransition(func(e Transition) {
			said = append(said, e.Cause.String()+" by "+e.By)
			seen = append(seen, healthOf(t, r, e.Tool).IsolatedBy)
		})()
		failTimes(r, "search", 3)
		time.Sleep(30 * time.Second)
		r.AllowRequest("search")
		time.Sleep(30 * time.Second) // the lease is over, nothing has noticed it yet
		r.Isolate("search", "alice")
		r.Isolate("search", "bob")
		require.NoError(t, r.SetConfig(Config{}))
		assert.Equal(t, "bob", healthOf(t, r, "search").IsolatedBy)
		r.Reset("search", "carol")
		assert.Empty(t, healthOf(t, r, "search").IsolatedBy)
		r.Isolate("search", "")
		assert.Empty(t, healthOf(t, r, "search").IsolatedBy, "of the isolation before")
		assert.Equal(t, []string{
			"failure_threshold by ", "probe_admitted by ", "lease_expired by ", "isolated by alice", "isolated by bob", "reset by carol", "isolated by ",
		}, said)
		assert.Equal(t, []string{"", "", "alice", "alice", "bob", "", ""}, seen)
	})
}

func TestHealth_LaterOfTwoOperatorsIsNamed(t *testing.T) {
	r := NewRegistry()
	atOnce(8, func(i int) {
		for range 200 {
			r.Isolate("search", fmt.Sprint(i))
			assert.NoError(t, r.Register("search", ToolOptions{Labels: map[string]string{"by": fmt.Sprint(i)}}))
			r.Reset("search", "")
		}
	})
	var last string
	defer r.OnTransition(func(e Transition) { last = e.By })()
	for range 2000 {
		atOnce(8, func(i int) { r.Isolate("search", fmt.Sprint(i)) })
		h := healthOf(t, r, "search")
		require.Equal(t, last, h.IsolatedBy)
		require.Len(t, h.Labels, 1)
		r.Reset("search", "")
	}
}

// A summary remembers the order of names, but never shows a name less or more for it, and
// does not keep alive what has left.
func TestRegistry_SummaryFollowsNames(t *testing.T) {
	r := NewRegistry()
	names := func() (all []string) {
		for _, h := range r.HealthSummary().Tools {
			all = append(all, h.Tool)
		}
		return all
	}
	assert.Empty(t, names())
	for _, tool := range []string{"b", "c", "a"} {
		r.AllowRequest(tool)
	}
	assert.Equal(t, []string{"a", "b", "c"}, names())
	assert.Equal(t, []string{"a", "b", "c"}, names())
	r.Remove("b")
	assert.Nil(t, r.ranking.Load(), "the node of b may be collected")
	assert.Equal(t, []string{"a", "c"}, names())
	r.AllowRequest("b")
	assert.Equal(t, []string{"a", "b", "c"}, names())

	var others sync.WaitGroup
	defer others.Wait()
	var stop atomic.Bool
	defer stop.Store(true)
	others.Go(func() {
		for !stop.Load() {
			r.HealthSummary() // remembers an order that may be of a moment ago
		}
	})
	for i := range 2000 {
		tool := fmt.Sprint("t", i)
		require.NoError(t, r.Register(tool, ToolOptions{}))
		require.Contains(t, names(), tool)
		require.True(t, r.Remove(tool))
		require.NotContains(t, names(), tool)
	}
}
