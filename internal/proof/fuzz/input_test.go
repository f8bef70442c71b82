package fuzz_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/internal/proof/scenario"
)

// FuzzSettingsJSON reads any text as Settings. Either the receiver stays as it was, or it
// becomes Settings that mean the same after they went through JSON and back. A guard is
// made of them, or each error names a field.
func FuzzSettingsJSON(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, `{"breaker":null}`, `{"breaker":{"recovery_duration":"-1s"}}`, `{"tools":{"":{}}}`,
		`{"breaker":{"failure_threshold":2,"recovery_duration":"1m","max_open_duration":"5s"},"max_tools":-1}`,
		`{"tools":{"a":{"breaker":{"failure_rate":1.5}},"b":{"breaker":{"recovery_growth":1e300}},"\ud800":{}},"registered_only":true}`,
		`{"breaker":{"recovery_duration":"9223372036s","probe_timeout":"2562047h47m16.854775807s"}}`,
		`{"breaker":{"failure_threshold":1e2}}`, `{"max_tools":16777217}`, `{"tools":{"a":null}}`, `{"tools":{}}`,
		`{"breaker":{"failure_threshold":0,"recovery_duration":"0s"},"policy":{"timeout":"0s","jitter":0},"deadline_floor":"0s"}`,
		`{"policy":{"side_effects":true},"tools":{"a":{"policy":{"side_effects":false},"breaker":{}}}}`,
		`{"tools":{"a":{"substitutes":["b"]},"b":{"substitutes":["c"]},"c":{"substitutes":["a"],"labels":{"x":"y"}}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := toolhealth.Settings{
			Breaker: toolhealth.DefaultBreakerConfig(), MaxTools: 5,
			Tools: map[string]toolhealth.ToolSettings{"kept": {Substitutes: []string{"other"}}},
		}
		s := before
		if err := json.Unmarshal(text, &s); err != nil {
			require.Equal(t, before, s, "changed in spite of %v", err)
			_, err := toolhealth.Load(bytes.NewReader(text))
			require.Error(t, err)
			return
		}
		g, err := toolhealth.New(s)
		require.Equal(t, err == nil, s.Validate() == nil)
		if err != nil {
			require.Nil(t, g)
			requireFields(t, err)
		} else {
			for name := range s.Tools {
				require.True(t, g.Registry().AllowRequest(name))
			}
			require.NoError(t, g.SetSettings(s))
		}
		written, err := json.Marshal(s)
		require.NoError(t, err)
		var back toolhealth.Settings
		require.NoError(t, json.Unmarshal(written, &back))
		again, err := json.Marshal(back)
		require.NoError(t, err)
		require.Equal(t, string(written), string(again))
		require.Equal(t, s.Validate() == nil, back.Validate() == nil)
	})
}

// requireFields checks that each error that was joined names a field.
func requireFields(t *testing.T, err error) {
	for _, one := range err.(interface{ Unwrap() []error }).Unwrap() {
		var field *toolhealth.ConfigError
		require.ErrorAs(t, one, &field)
		require.NotEmpty(t, field.Field)
		require.NotEmpty(t, field.Value)
		require.NotEmpty(t, field.Allowed)
	}
}

// FuzzSummaryJSON makes a registry with tools of any name: its summary goes through
// JSON and back. It also reads any text as a summary: either the text is refused and
// changes nothing, or the summary can be written again and means the same.
func FuzzSummaryJSON(f *testing.F) {
	r := toolhealth.NewRegistry()
	for range 3 {
		r.RecordFailure("search", time.Second)
	}
	r.RecordSuccess("weather", math.MaxInt64)
	text, err := json.Marshal(r.HealthSummary())
	require.NoError(f, err)
	f.Add("\"</script>\x00\xff\u2028", text)
	f.Add(strings.Repeat("x", 1000), []byte(`{"tools":[{"tool":"a","reason":"isolated","retry_after_seconds":1e300}]}`))
	f.Add("", []byte(`{"tools":null,"at":"9999-12-31T23:59:59Z"}`))
	f.Add("\u202eevil", []byte(`{"tools":[{"reason":"none","failures_by_kind":{"timeout":18446744073709551615}}],"overall":"degraded"}`))
	f.Add("a", []byte(`{"tools":[{"reason":""}]}`))
	f.Add("b", []byte(`{"tools":[{"reason":"none","refusals_by_reason":{"busy":1,"none":2},"rejections_by_kind":{"gone":3},"down_since":"2026-01-02T03:04:05Z"}]}`))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		summaryOfHostileNames(t, name)
		summaryOfHostileText(t, text)
	})
}

func summaryOfHostileNames(t *testing.T, name string) {
	r := toolhealth.NewRegistry()
	tools := []string{name, name + "2", "\xff" + name, name + "plain"}
	for i, tool := range tools {
		for range i {
			r.RecordFailure(tool, time.Duration(i)*time.Second)
		}
		require.Equal(t, tool != "" && i < 3, r.AllowRequest(tool), "three failures trip, and the empty name is not a tool")
	}
	summary := r.HealthSummary()
	require.True(t, slices.IsSortedFunc(summary.Tools, func(a, b toolhealth.ToolHealth) int { return strings.Compare(a.Tool, b.Tool) }))
	text, err := json.Marshal(summary)
	require.NoError(t, err)
	require.True(t, utf8.Valid(text))
	var back toolhealth.Summary
	require.NoError(t, json.Unmarshal(text, &back))
	require.Len(t, back.Tools, r.Len())
	for i, h := range summary.Tools {
		require.Equal(t, strings.ToValidUTF8(h.Tool, "\ufffd") == h.Tool, back.Tools[i].Tool == h.Tool)
		h.Tool = back.Tools[i].Tool
		for at, was := range map[*time.Time]time.Time{
			&h.Since: back.Tools[i].Since, &h.DownSince: back.Tools[i].DownSince, &h.LastFailureAt: back.Tools[i].LastFailureAt,
		} {
			require.True(t, at.Equal(was))
			*at = was // without its monotonic reading
		}
		require.Equal(t, h, back.Tools[i])
	}
}

func summaryOfHostileText(t *testing.T, text []byte) {
	before := toolhealth.Summary{Untracked: 7, Tools: []toolhealth.ToolHealth{{Tool: "kept"}}}
	s := before
	if err := json.Unmarshal(text, &s); err != nil {
		require.Equal(t, before, s, "changed in spite of %v", err)
		return
	}
	first, err := json.Marshal(s)
	require.NoError(t, err)
	var again toolhealth.Summary
	require.NoError(t, json.Unmarshal(first, &again))
	second, err := json.Marshal(again)
	require.NoError(t, err)
	require.JSONEq(t, string(first), string(second))
}

// FuzzScenarioParse reads any text as a scenario. Either the error names a line, or the
// steps, written line by line, are read as the same steps again.
func FuzzScenarioParse(f *testing.F) {
	files, err := filepath.Glob("../../../testdata/scenarios/*.scenario")
	require.NoError(f, err)
	require.NotEmpty(f, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := scenario.Parse("fuzz", text)
		if err != nil {
			require.Nil(t, s)
			require.Regexp(t, `^fuzz:[0-9]+: `, err.Error())
			return
		}
		var lines []string
		last := 0
		for _, step := range s.Steps {
			require.Greater(t, step.Line, last)
			last = step.Line
			lines = append(lines, step.Text)
		}
		require.LessOrEqual(t, last, strings.Count(string(text), "\n")+1)
		again, err := scenario.Parse("again", []byte(strings.Join(lines, "\n")))
		require.NoError(t, err)
		require.Len(t, again.Steps, len(s.Steps))
		for i, step := range again.Steps {
			step.Line = s.Steps[i].Line
			require.Equal(t, fmt.Sprintf("%#v", s.Steps[i]), fmt.Sprintf("%#v", step)) // as text: NaN is a number here
		}
	})
}
