package toolhealth

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func load(t *testing.T, text string) Settings {
	t.Helper()
	s, err := Load(strings.NewReader(text))
	require.NoError(t, err)
	return s
}

func newWith(t *testing.T, s Settings) *Guard {
	t.Helper()
	g, err := New(s)
	require.NoError(t, err)
	return g
}

func TestSettings_ZeroIsDefault(t *testing.T) {
	g := newWith(t, Settings{})
	assert.Equal(t, Settings{}, g.Settings())
	assert.Same(t, g.Registry(), g.Gate().Registry)
	assert.Equal(t, newParams(DefaultBreakerConfig()).Hint(), g.Registry().conf.Load().breaker.Hint())
	assert.Equal(t, *newPolicy(Policy{}), *g.ruled().usual)
	assert.Equal(t, DefaultMaxTools, g.Registry().conf.Load().bound)
	assert.Equal(t, time.Second, g.Gate().floor())
	failTimes(g.Registry(), "search", 3)
	assert.False(t, g.Registry().Available("search"))
}

func TestLoad_EmptyObjectIsZeroSettings(t *testing.T) {
	for _, text := range []string{`{}`, ` {} `, `null`, `{"breaker":{}}`, `{"breaker":null,"policy":{},"tools":null,"max_tools":null}`} {
		assert.Equal(t, Settings{}, load(t, text), text)
	}
}

func TestLoad_AbsentKeyIsDefaultAndZeroIsOff(t *testing.T) {
	s := load(t, `{"breaker":{"recovery_growth":2},"policy":{"retry_budget":0,"timeout":"0s"},"max_tools":0,"deadline_floor":"0s"}`)
	assert.Equal(t, Settings{
		Breaker:  BreakerConfig{FailureThreshold: 3, ProbeTimeout: 30 * time.Second, RecoveryGrowth: 2},
		Policy:   Policy{RetryBudget: Off, Timeout: Off},
		MaxTools: Off, DeadlineFloor: Off,
	}, s)
	want := DefaultBreakerConfig().resolved()
	want.RecoveryGrowth = 2
	assert.Equal(t, want, s.Breaker.resolved(), "the threshold and the lease have their defaults, too")
	off := load(t, `{"breaker":{"failure_threshold":0,"probe_timeout":"0s"}}`)
	want = DefaultBreakerConfig().resolved()
	want.FailureThreshold, want.ProbeTimeout = 0, 0
	assert.Equal(t, want, off.Breaker.resolved())
}

func TestLoad_ToolInheritsWhatItDoesNotName(t *testing.T) {
	s := load(t, `{
		"tools": {
			"mail":  {"policy": {"side_effects": true}, "labels": {"team": "office"}},
			"read":  {"policy": {"side_effects": false, "max_attempts": 0}},
			"crawl": {"breaker": {"failure_threshold": 9}, "substitutes": ["read", "mail"]},
			"plain": {},
			"same":  {"breaker": {}, "policy": {}}
		},
		"policy": {"timeout": "10s", "side_effects": true},
		"breaker": {"recovery_duration": "1m"}
	}`)
	breaker := BreakerConfig{FailureThreshold: 3, ProbeTimeout: 30 * time.Second, RecoveryDuration: time.Minute}
	policy := Policy{Timeout: 10 * time.Second, SideEffects: true}
	crawl, read := breaker, policy
	crawl.FailureThreshold = 9
	read.SideEffects, read.MaxAttempts = false, Off
	assert.Equal(t, Settings{Breaker: breaker, Policy: policy, Tools: map[string]ToolSettings{
		"mail":  {Policy: &policy, Labels: map[string]string{"team": "office"}},
		"read":  {Policy: &read},
		"crawl": {Breaker: &crawl, Substitutes: []string{"read", "mail"}},
		"plain": {},
		"same":  {Breaker: &breaker, Policy: &policy},
	}}, s)
}

// Without a breaker in the file, that of a tool still starts from the default.
func TestLoad_ToolInheritsDefaults(t *testing.T) {
	s := load(t, `{"tools":{"a":{"breaker":{"recovery_growth":2}}}}`)
	want := DefaultBreakerConfig().resolved()
	want.RecoveryGrowth = 2
	assert.Equal(t, want, s.Tools["a"].Breaker.resolved())
	assert.Equal(t, BreakerConfig{}, s.Breaker)
}

func TestLoad_ReportsEveryProblem(t *testing.T) {
	s, err := Load(strings.NewReader(`{
		"max_tools": 1.5, "registered_only": 1, "deadline_floor": "-1s", "zones": 1,
		"breaker": {"probe_timeout": 30, "failure_threshold": -1, "recovery_growth": 0.5, "recovery_growth": 0.25},
		"policy": {"timeout": "10", "jitter": 2},
		"tools": {
			"a": {"breaker": {"recovery_duration": "0s"}, "substitutes": ["b", "b", ""], "x": 1},
			"b": {"policy": [], "labels": {"n": 1}}, "": {}
		}}`))
	assert.Equal(t, Settings{}, s)
	assert.Equal(t, `toolhealth: config: breaker.recovery_growth is given twice, must be given once
toolhealth: config: breaker.failure_threshold is -1, must be 0 or more
toolhealth: config: breaker.probe_timeout is 30, must be a duration such as "30s"
toolhealth: config: policy.timeout is "10", must be a duration such as "30s"
toolhealth: config: tools["a"].x is unknown, must be one of breaker, policy, substitutes, labels, group
toolhealth: config: tools["b"].policy is [], must be an object
toolhealth: config: tools["b"].labels is {"n": 1}, must be an object of texts such as {"team": "search"}
toolhealth: config: max_tools is 1.5, must be a whole number
toolhealth: config: registered_only is 1, must be true or false
toolhealth: config: deadline_floor is "-1s", must be between 0s and 87600h0m0s
toolhealth: config: zones is unknown, must be one of breaker, policy, tools, max_tools, registered_only, group_breaker, group_server_errors, group_separator, deadline_floor
toolhealth: config: breaker.recovery_growth is 0.25, must be 0, or between 1 and 1000
toolhealth: config: policy.jitter is 2, must be between 0 and 1
toolhealth: config: tools is the key "", must be a name that is not empty
toolhealth: config: tools["a"].breaker.recovery_duration is off, must be more than 0s unless failure_threshold and failure_rate are off
toolhealth: config: tools["a"].substitutes[1] is "b", must be listed once
toolhealth: config: tools["a"].substitutes[2] is "", must be the name of a tool`, err.Error(), "an inherited mistake is reported once")
	var problem *ConfigError
	assert.ErrorAs(t, err, &problem)
}

func TestLoad_ReportsWhatIsNoObject(t *testing.T) {
	for text, says := range map[string]string{
		``: "the configuration is empty, must be an object", `[]`: "the configuration is [], must be an object",
		`{} {}`: "the configuration is {} {}, must be an object",
	} {
		_, err := Load(strings.NewReader(text))
		assert.EqualError(t, err, "toolhealth: config: "+says, text)
	}
	_, err := Load(iotest.ErrReader(io.ErrClosedPipe))
	assert.ErrorIs(t, err, io.ErrClosedPipe)
}

func TestSettings_UnmarshalKeepsWhatIsAbsent(t *testing.T) {
	s := Settings{
		Breaker: DefaultBreakerConfig(), Policy: Policy{Timeout: time.Second}, Tools: map[string]ToolSettings{"a": {}}, MaxTools: 7,
		Observe: unheard, Classify: Classify, PolicyOf: func(_ string, p Policy) Policy { return p },
	}
	require.NoError(t, json.Unmarshal([]byte(`{"breaker":{"failure_threshold":5},"policy":{"max_attempts":3}}`), &s))
	assert.Equal(t, 5, s.Breaker.FailureThreshold)
	assert.Equal(t, 30*time.Second, s.Breaker.RecoveryDuration)
	assert.Equal(t, Policy{Timeout: time.Second, MaxAttempts: 3}, s.Policy)
	assert.Equal(t, 7, s.MaxTools)
	assert.Contains(t, s.Tools, "a")
	assert.NotNil(t, s.Observe)
	assert.NotNil(t, s.Classify)
	assert.NotNil(t, s.PolicyOf)
	require.NoError(t, json.Unmarshal([]byte(`{"tools":{"b":{}}}`), &s))
	assert.Equal(t, map[string]ToolSettings{"b": {}}, s.Tools, "tools replaces them all")
}

func TestSettings_UnmarshalErrorChangesNothing(t *testing.T) {
	before := Settings{Breaker: BreakerConfig{FailureThreshold: 9}, Tools: map[string]ToolSettings{"keep": {}}, MaxTools: 5}
	for _, text := range []string{
		`{"max_tools":1,"breaker":{"failure_treshold":1}}`, `{"braker":{}}`, `{"max_tools":1,"tools":{"x":{"y":1}}}`,
		`{"max_tools":1,"tools":{"x":[]}}`, `{"max_tools":1,"max_tools":1}`, `[]`, `{"breaker":{"failure_threshold":1,"failure_rate":"x"}}`,
	} {
		s := before
		assert.Error(t, json.Unmarshal([]byte(text), &s), text)
		assert.Equal(t, before, s, text)
	}
}

func TestSettings_MarshalWritesWhatDiffers(t *testing.T) {
	breaker, mail := DefaultBreakerConfig(), Policy{SideEffects: true}
	s := Settings{
		Breaker: BreakerConfig{RecoveryDuration: time.Minute}, // never opens, no lease
		Policy:  Policy{Timeout: Off, MaxAttempts: 3},
		Tools: map[string]ToolSettings{
			"mail": {Policy: &mail, Breaker: &breaker, Labels: map[string]string{"team": "office"}},
			"zero": {Breaker: new(BreakerConfig), Policy: new(Policy), Substitutes: []string{"mail"}},
		},
		MaxTools: 9, RegisteredOnly: true, DeadlineFloor: Off, Observe: unheard,
	}
	zero := s.Tools["zero"].Breaker
	text, err := json.Marshal(s)
	require.NoError(t, err)
	assert.Same(t, zero, s.Tools["zero"].Breaker, "the caller's map is not touched")
	assert.Equal(t, `{"breaker":{"failure_threshold":0,"recovery_duration":"1m0s","probe_timeout":"0s"},`+
		`"policy":{"max_attempts":3,"timeout":"0s"},`+
		`"tools":{"mail":{"breaker":{"failure_threshold":3,"recovery_duration":"30s","probe_timeout":"30s","max_open_duration":"10m0s","recovery_growth":1,"probe_successes":1,"failure_rate_window":"1m0s","failure_rate_min_calls":20,"max_hint_duration":"10m0s"},`+
		`"policy":{"max_attempts":2,"timeout":"2m0s","side_effects":true},"labels":{"team":"office"}},`+
		`"zero":{"breaker":{"failure_threshold":3,"recovery_duration":"30s","probe_timeout":"30s"},"policy":{"max_attempts":2,"timeout":"2m0s"},"substitutes":["mail"]}},`+
		`"max_tools":9,"registered_only":true,"deadline_floor":"0s"}`, string(text))
	back := load(t, string(text))
	assert.Equal(t, s.Breaker.resolved(), back.Breaker.resolved())
	assert.Equal(t, breaker.resolved(), back.Tools["mail"].Breaker.resolved())
	assert.Equal(t, breaker.resolved(), back.Tools["zero"].Breaker.resolved())
	again, err := json.Marshal(back)
	require.NoError(t, err)
	assert.JSONEq(t, string(text), string(again))

	text, err = json.Marshal(Settings{})
	require.NoError(t, err)
	assert.Equal(t, `{}`, string(text))
	text, err = json.Marshal(Settings{Breaker: DefaultBreakerConfig(), Policy: Policy{MaxAttempts: 2}})
	require.NoError(t, err)
	assert.Equal(t, `{"breaker":{"recovery_duration":"30s","max_open_duration":"10m0s","recovery_growth":1,"probe_successes":1,"failure_rate_window":"1m0s","failure_rate_min_calls":20,"max_hint_duration":"10m0s"},"policy":{"max_attempts":2}}`,
		string(text), "what is written out stays written out")
	_, err = json.Marshal(Settings{Tools: map[string]ToolSettings{"a": {Breaker: &BreakerConfig{RecoveryGrowth: math.Inf(1)}}}})
	assert.ErrorContains(t, err, `toolhealth: config: tools["a"].breaker.recovery_growth: `)
}

func TestNew_ReportsEveryProblem(t *testing.T) {
	s := Settings{
		Breaker: BreakerConfig{FailureThreshold: -2, RecoveryJitter: math.NaN()},
		Policy:  Policy{Timeout: -time.Second},
		Tools: map[string]ToolSettings{
			"a": {Policy: &Policy{Jitter: 2}, Substitutes: []string{"a", "unheard of", "b"}},
			"b": {Breaker: &BreakerConfig{FailureThreshold: 1, RecoveryDuration: Off}},
		},
		MaxTools: -2, RegisteredOnly: true, DeadlineFloor: -2,
	}
	g, err := New(s)
	assert.Nil(t, g)
	assert.EqualError(t, err, `toolhealth: config: breaker.failure_threshold is -2, must be 0 or more, or Off
toolhealth: config: breaker.recovery_jitter is NaN, must be between 0 and 1
toolhealth: config: policy.timeout is -1s, must be between 0s and 87600h0m0s, or Off
toolhealth: config: tools["a"].policy.jitter is 2, must be between 0 and 1
toolhealth: config: tools["b"].breaker.recovery_duration is off, must be more than 0s unless failure_threshold and failure_rate are off
toolhealth: config: max_tools is -2, must be between 0 and 16777216, or Off
toolhealth: config: deadline_floor is -2ns, must be between 0s and 87600h0m0s, or Off
toolhealth: config: tools["a"].substitutes[0] is "a", must be another tool than the primary
toolhealth: config: tools["a"].substitutes[1] is "unheard of", must be in tools, because registered_only is true`)
	assert.Equal(t, err, s.Validate())
}

func TestNew_UnlistedSubstituteIsFineUnlessRegisteredOnly(t *testing.T) {
	s := Settings{Tools: map[string]ToolSettings{"a": {Substitutes: []string{"b"}}}}
	assert.NoError(t, s.Validate())
	s.RegisteredOnly = true
	assert.Error(t, s.Validate())
	s.Tools["b"] = ToolSettings{}
	assert.NoError(t, s.Validate())
}

func TestNew_ReportsCircles(t *testing.T) {
	tools := func(lists map[string][]string) map[string]ToolSettings {
		m := make(map[string]ToolSettings)
		for tool, list := range lists {
			m[tool] = ToolSettings{Substitutes: list}
		}
		return m
	}
	const right = ", must be without a way back to the tool: a substitute's own substitutes are not tried"
	for name, c := range map[string]struct {
		lists map[string][]string
		want  string
	}{
		"a chain":            {map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"d"}}, ""},
		"two for each other": {map[string][]string{"a": {"b"}, "b": {"a"}}, ""},
		"all for each other": {map[string][]string{"a": {"b", "c"}, "b": {"a", "c"}, "c": {"a", "b"}}, ""},
		"a diamond":          {map[string][]string{"a": {"b", "c"}, "b": {"d"}, "c": {"d"}}, ""},
		"three":              {map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"a"}}, `toolhealth: config: tools["c"].substitutes is part of the circle "a > b > c > a"` + right},
		"not from the first": {map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b"}}, `toolhealth: config: tools["d"].substitutes is part of the circle "b > c > d > b"` + right},
		"two circles": {map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"a"}, "x": {"y"}, "y": {"z"}, "z": {"x", "a"}},
			`toolhealth: config: tools["c"].substitutes is part of the circle "a > b > c > a"` + right + "\n" +
				`toolhealth: config: tools["z"].substitutes is part of the circle "x > y > z > x"` + right},
	} {
		_, err := New(Settings{Tools: tools(c.lists)})
		if c.want == "" {
			assert.NoError(t, err, name)
		} else {
			assert.EqualError(t, err, c.want, name)
		}
	}
}

func TestNew_WiresEachTool(t *testing.T) {
	strict := DefaultBreakerConfig()
	strict.FailureThreshold = 1
	heard := 0
	g := newWith(t, Settings{
		Policy: Policy{MaxAttempts: 1},
		Tools: map[string]ToolSettings{
			"a": {Breaker: &strict, Substitutes: []string{"b"}, Labels: map[string]string{"team": "search"}},
			"c": {Policy: &Policy{MaxAttempts: 3, BackoffBase: Off}},
			"b": {},
		},
		RegisteredOnly: true,
		Classify:       func(context.Context, error) Verdict { return Verdict{Outcome: OutcomeFailure, Retryable: true} },
		Observe:        func(_ context.Context, e Event) { heard++ },
	})
	out, err := Call(t.Context(), g, "a", plays(errBroken).Run)
	require.NoError(t, err)
	assert.Equal(t, "answer of b", out)
	assert.Equal(t, StateOpen, healthOf(t, g.Registry(), "a").State)
	assert.Equal(t, 3, heard)
	assert.Equal(t, map[string]string{"team": "search"}, healthOf(t, g.Registry(), "a").Labels)
	assert.Nil(t, healthOf(t, g.Registry(), "b").Labels)

	tool := failing(errBroken)
	_, err = Call(t.Context(), g, "c", tool.Run)
	assert.Equal(t, 3, toolError(t, err).Attempts, "the classifier says that it may be repeated")
	_, err = Call(t.Context(), g, "unlisted", tool.Run)
	assert.ErrorIs(t, err, ErrUnknownTool)
	offer, leaveOut := g.Offer([]string{"a", "c", "unlisted"})
	assert.Equal(t, []string{"a"}, offer)
	assert.Equal(t, []string{"c", "unlisted"}, leaveOut)

	permit, err := g.Gate().Allow(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, "b", permit.Tool())
	permit.Release()
}

func TestSettings_AreCopiedInAndOut(t *testing.T) {
	own := Policy{MaxAttempts: 1}
	list, labels := []string{"b"}, map[string]string{"x": "y"}
	s := Settings{Tools: map[string]ToolSettings{"a": {Policy: &own, Substitutes: list, Labels: labels}}}
	g := newWith(t, s)
	own.MaxAttempts, list[0], labels["x"] = 9, "z", "z"
	delete(s.Tools, "a")
	want := map[string]ToolSettings{"a": {Policy: &Policy{MaxAttempts: 1}, Substitutes: []string{"b"}, Labels: map[string]string{"x": "y"}}}
	got := g.Settings()
	assert.Equal(t, want, got.Tools)
	got.Tools["a"].Policy.MaxAttempts, got.Tools["a"].Substitutes[0], got.Tools["a"].Labels["x"] = 9, "z", "z"
	g.Registry().RecordSuccess("a", 0)
	healthOf(t, g.Registry(), "a").Labels["x"] = "z"
	assert.Equal(t, want, g.Settings().Tools)
	assert.Equal(t, "y", healthOf(t, g.Registry(), "a").Labels["x"])
}

func TestGuard_SetSettingsKeepsWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newWith(t, Settings{Policy: Policy{BackoffBase: Off, RetryBudget: 1, RetryRefill: Off}, Breaker: BreakerConfig{FailureThreshold: 100}, Tools: map[string]ToolSettings{"search": {Substitutes: []string{}}}})
		r, gate := g.Registry(), g.Gate()
		search := Wrap(g, "search", func(ctx context.Context, in string) (string, error) {
			return plays(errBusy, errBusy, errBusy).Run(ctx, in)
		}).Substitute("archive", func(_ context.Context, in string) (string, error) { return "old " + in, nil })
		_, err := search.Call(t.Context(), "go")
		assert.Equal(t, StopRetryExhausted, toolError(t, err).Reason, "one token")
		r.Isolate("held", "")
		before := healthOf(t, r, "search")

		s := g.Settings()
		s.Tools = map[string]ToolSettings{"search": {Substitutes: []string{"archive"}}, "held": {Substitutes: []string{"archive"}}}
		s.DeadlineFloor = Off
		require.NoError(t, g.SetSettings(s))
		assert.Same(t, r, g.Registry())
		assert.Equal(t, before, healthOf(t, r, "search"))
		out, err := search.Call(t.Context(), "go")
		require.NoError(t, err, "the wrapped tool has a substitute now")
		assert.Equal(t, "old go", out)
		assert.EqualValues(t, 1, healthOf(t, r, "search").Guard.BudgetExhausted, "the budget is still spent")

		permit, err := gate.Allow(t.Context(), "held")
		require.NoError(t, err, "a gate from before has the substitute, too")
		assert.Equal(t, "archive", permit.Tool())
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		<-ctx.Done()
		permit.Done(ctx, ctx.Err())
		assert.EqualValues(t, 1, healthOf(t, r, "archive").Failures, "and the floor")
		assert.True(t, r.Reset("held", ""))
	})
}

func TestGuard_SetSettingsIsWholeOrNothing(t *testing.T) {
	g := newWith(t, Settings{Tools: map[string]ToolSettings{"a": {Substitutes: []string{"b"}}}})
	failTimes(g.Registry(), "a", 2)
	before, config := g.Settings(), g.Registry().Config()
	for _, s := range []Settings{
		{Breaker: BreakerConfig{FailureThreshold: 1}, Policy: Policy{Timeout: -2}},
		{Breaker: BreakerConfig{FailureThreshold: -2}, MaxTools: 1},
		{MaxTools: 1, Tools: map[string]ToolSettings{"x": {Substitutes: []string{"x"}}}},
		{RegisteredOnly: true, Tools: map[string]ToolSettings{"x": {Substitutes: []string{"unheard of"}}}},
	} {
		var problem *ConfigError
		assert.ErrorAs(t, g.SetSettings(s), &problem)
		assert.Equal(t, before, g.Settings())
		assert.Equal(t, config, g.Registry().Config())
	}
	assert.Equal(t, 2, healthOf(t, g.Registry(), "a").ConsecutiveFailures)
}

func TestGuard_SetSettingsKnowsRegisteredTools(t *testing.T) {
	g := newWith(t, Settings{})
	s := Settings{RegisteredOnly: true, Tools: map[string]ToolSettings{"a": {Substitutes: []string{"b"}}}}
	g.Registry().RecordSuccess("b", 0)
	assert.ErrorContains(t, g.SetSettings(s), `tools["a"].substitutes[0] is "b", must be in tools`, "it was called, and is not registered")
	require.NoError(t, g.Registry().Register("b", ToolOptions{}))
	assert.NoError(t, g.SetSettings(s))
}

func TestGuard_SetSettingsClosesAndTellsHooks(t *testing.T) {
	g := newWith(t, Settings{})
	failTimes(g.Registry(), "a", 3)
	again := errors.New("not called")
	g.Registry().OnTransition(func(e Transition) {
		if e.Cause == CauseReconfigured {
			again = g.SetSettings(Settings{}) // a hook may set settings, too
		}
	})
	require.NoError(t, g.SetSettings(Settings{Breaker: BreakerConfig{FailureThreshold: Off}}))
	assert.NoError(t, again)
	assert.Equal(t, StateClosed, healthOf(t, g.Registry(), "a").State)
	assert.Equal(t, Settings{}, g.Settings())
}

func TestGuard_SetSettingsNeedsGuardOfNew(t *testing.T) {
	other, err := NewGuard(&Gate{Registry: NewRegistry()}, GuardConfig{})
	require.NoError(t, err)
	for _, g := range []*Guard{nil, {}, other} {
		assert.EqualError(t, g.SetSettings(Settings{}), "toolhealth: SetSettings: the guard was not made by New")
		assert.Equal(t, Settings{}, g.Settings())
		assert.NotNil(t, g.Gate())
	}
	assert.Nil(t, (*Guard)(nil).Registry())
	assert.NotNil(t, other.Registry())
}

// Calls that run while settings change see the one or the other, never a mixture of
// a policy and none.
func TestGuard_SetSettingsWhileInUse(t *testing.T) {
	one := Settings{Policy: Policy{MaxAttempts: 1, BackoffBase: Off}, Tools: map[string]ToolSettings{"a": {Substitutes: []string{"b"}}}}
	two := Settings{Policy: Policy{MaxAttempts: 2, BackoffBase: Off}, Breaker: BreakerConfig{FailureThreshold: 1, RecoveryDuration: 1}}
	g := newWith(t, one)
	gate := g.Gate()
	a := Wrap(g, "a", func(context.Context, int) (int, error) { return 0, errBusy }).
		Substitute("b", func(context.Context, int) (int, error) { return 1, nil })
	plain := Wrap(g, "a", func(context.Context, int) (int, error) { return 0, errBusy })
	done := make(chan struct{})
	var wg, begun sync.WaitGroup
	for range 4 {
		begun.Add(1)
		wg.Go(func() {
			for first := true; ; first = false {
				select {
				case <-done:
					return
				default:
				}
				if out, err := a.Call(t.Context(), 0); err == nil && out != 1 {
					t.Errorf("%d without an error", out)
				}
				_, _ = plain.Call(t.Context(), 0)
				if permit, err := gate.Allow(t.Context(), "a"); err == nil {
					permit.Done(t.Context(), errBusy)
				}
				g.Settings()
				if first {
					begun.Done()
				}
				runtime.Gosched()
			}
		})
	}
	begun.Wait()
	for i := range 200 {
		if err := g.SetSettings([]Settings{one, two}[i%2]); err != nil {
			t.Error(err)
		}
	}
	close(done)
	wg.Wait()
	assert.Equal(t, two, g.Settings())
	assert.Zero(t, healthOf(t, g.Registry(), "a").InFlight)
}

func TestLoad_Groups(t *testing.T) {
	s, err := Load(strings.NewReader(`{
		"group_breaker": {"failure_threshold": 5}, "group_server_errors": true, "group_separator": "/",
		"tools": {"plain": {"group": "mcp"}}
	}`))
	require.NoError(t, err)
	want := DefaultBreakerConfig()
	want.FailureThreshold = 5
	assert.Equal(t, 5, s.GroupBreaker.FailureThreshold)
	assert.Equal(t, want.resolved(), s.GroupBreaker.resolved())
	g, err := New(s)
	require.NoError(t, err)
	r := g.Registry()
	for _, tool := range []string{"mcp/a", "plain", "other"} {
		r.AllowRequest(tool)
	}
	assert.Equal(t, []string{"mcp", "mcp", ""}, []string{
		healthOf(t, r, "mcp/a").Group, healthOf(t, r, "plain").Group, healthOf(t, r, "other").Group,
	})
	for range 4 {
		r.Record("mcp/a", Verdict{Outcome: OutcomeFailure, Kind: KindServerError}, 0)
	}
	assert.True(t, r.Available("plain"))
	r.Record("mcp/a", Verdict{Outcome: OutcomeFailure, Kind: KindServerError}, 0)
	assert.False(t, r.Available("plain"), "five server errors of the host")

	again, err := json.Marshal(s)
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"group_breaker": {"failure_threshold": 5}, "group_server_errors": true, "group_separator": "/",
		"tools": {"plain": {"group": "mcp"}}
	}`, string(again))
}

func TestSettings_GroupsHaveNoRulesForTools(t *testing.T) {
	s := Settings{GroupBreaker: DefaultBreakerConfig(), GroupSeparator: "/", Group: func(string) string { return "" }}
	s.GroupBreaker.SlowCallDuration, s.GroupBreaker.FailureRate, s.GroupBreaker.MaxInFlight = time.Second, 0.5, 3
	assert.EqualError(t, s.Validate(), `toolhealth: config: group_breaker.slow_call_duration is 1s, must be off: it is a rule for the breakers of tools
toolhealth: config: group_breaker.failure_rate is 0.5, must be off: it is a rule for the breakers of tools
toolhealth: config: group_breaker.max_in_flight is 3, must be off: it is a rule for the breakers of tools
toolhealth: config: group_separator is "/", must be empty, because Group is set`)
	off := DefaultBreakerConfig()
	off.SlowCallDuration, off.FailureRate, off.MaxInFlight = Off, Off, Off
	assert.NoError(t, Settings{GroupBreaker: off}.Validate())
	assert.NoError(t, Config{GroupBreaker: off}.Validate())
	assert.Error(t, Config{GroupBreaker: s.GroupBreaker}.Validate())
}

func TestGuard_SetSettingsKeepsTheGrouping(t *testing.T) {
	g := newWith(t, Settings{GroupSeparator: "/", Tools: map[string]ToolSettings{"a": {Group: "x"}, "b": {}}})
	s := g.Settings()
	s.GroupSeparator = "|"
	s.Tools = map[string]ToolSettings{"a": {Group: "y"}, "b": {Group: "x"}, "new": {Group: "x"}}
	assert.EqualError(t, g.SetSettings(s), `toolhealth: config: group_separator is "|", must be "/" as before: tools stay in their groups
toolhealth: config: tools["a"].group is "y", must be "x" as before: tools stay in their groups
toolhealth: config: tools["b"].group is "x", must be "" as before: tools stay in their groups`)
	s.GroupSeparator, s.Tools = "/", map[string]ToolSettings{"a": {Group: "x"}, "new": {Group: "x"}}
	s.GroupBreaker = BreakerConfig{FailureThreshold: 1, RecoveryDuration: time.Minute}
	require.NoError(t, g.SetSettings(s))
	r := g.Registry()
	r.Record("new", Verdict{Outcome: OutcomeFailure, Kind: KindConnection, Retryable: true}, 0)
	assert.False(t, r.Available("a"), "both are in x, whose breaker has changed")
	r.AllowRequest("mcp/a")
	assert.Equal(t, "mcp", healthOf(t, r, "mcp/a").Group)
	s.Tools["mcp/a"] = ToolSettings{Group: "other"}
	assert.EqualError(t, g.SetSettings(s), `toolhealth: config: tools["mcp/a"].group is "other", must be "mcp" as before: tools stay in their groups`)
	s.Tools["mcp/a"] = ToolSettings{Group: "mcp"}
	assert.NoError(t, g.SetSettings(s))
	s.GroupSeparator, s.Group = "", func(string) string { return "all" }
	assert.ErrorContains(t, g.SetSettings(s), "toolhealth: config: group is set, must be nil as before: tools stay in their groups")
	asked := newWith(t, Settings{Group: func(string) string { return "all" }})
	assert.EqualError(t, asked.SetSettings(Settings{}), "toolhealth: config: group is nil, must be set as before: tools stay in their groups")
}
