package dashboard

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/dashboard/internal/scene"
)

// grouped runs a test in virtual time with tools that are grouped by server.
func grouped(t *testing.T, o Options, change func(*toolhealth.Config), test func(t *testing.T, s site)) {
	t.Helper()
	config := toolhealth.DefaultConfig()
	config.Group = scene.Group
	if change != nil {
		change(&config)
	}
	bubbleOf(t, config, o, test)
}

// unplug makes three calls of tools of a group that do not reach it.
func unplug(r *toolhealth.Registry, tools ...string) {
	for i := range 3 {
		r.Record(tools[i%len(tools)], scene.Connection, 0)
	}
}

// section returns the text of an element of the page by its id.
func section(html, id string) string {
	_, html, _ = strings.Cut(html, `id="`+id+`"`)
	for _, end := range []string{"</nav>", "</section>", "</ol>"} {
		if at := strings.Index(html, end); at >= 0 {
			html = html[:at]
		}
	}
	return words("<" + html)
}

// rowOf returns the text of the row of a tool.
func rowOf(t *testing.T, html, tool string) string {
	t.Helper()
	for line := range strings.SplitSeq(html, "<tr id=") {
		if text := words("<" + strings.SplitN(line, "</tr>", 2)[0]); strings.HasPrefix(strings.ReplaceAll(text, "/ ", "/"), tool+" ") {
			return strings.ReplaceAll(text, "/ ", "/")
		}
	}
	require.Fail(t, "no row", tool)
	return ""
}

func TestGroup_OneThatIsDownIsNamedOnce(t *testing.T) {
	grouped(t, Options{Operator: anyone}, nil, func(t *testing.T, s site) {
		scene.Play(s.registry, s.watcher, scene.Server(), func(minute int) {
			if minute == 50 {
				s.registry.IsolateGroup("slack", "bob")
			}
		})
		html := body(t, s.page, "/x/")
		assert.Regexp(t, `^bad 6 of 12 tools cannot be called. group github \(4 tools\) is open \(connection\) for 6 min group slack isolated by an operator$`,
			"bad "+section(html, "banner"))
		assert.Regexp(t, `^Groups github open 6 min probe in \d+ s 4 tools slack isolated 10 min by bob 2 tools jira reachable, 2 tools`, section(html, "groups"))
		assert.Regexp(t, `^github/search group open 6 min probe in \d+ s 0 %`, rowOf(t, html, "github/search"))
		assert.Regexp(t, `^slack/post_message group isolated 10 min by bob`, rowOf(t, html, "slack/post_message"))
		assert.Contains(t, section(html, "events"), "group slack isolated by bob")
		assert.Regexp(t, `group github open again: the probe failed, connection; next probe after 30 s`, section(html, "events"))

		tool := words(body(t, s.page, "/x/panel?tool=github/search"))
		assert.Regexp(t, `Its group github has been out of reach since 00:53:\d\d \(connection\), so the calls of all its 4 tools are refused, whatever their own breakers say\. `+
			`Look at that server, not at this tool, and re-route its calls\.`, tool)
		assert.Contains(t, tool, "Group github open")
		assert.Contains(t, tool, "its group: open again: the probe failed")
		group := body(t, s.page, "/x/?group=github")
		assert.Contains(t, words(group), "github group of 4 tools open")
		assert.Regexp(t, `It has been out of reach since 00:53:\d\d, so every call of its 4 tools is refused until a probe gets through: \d+ failures in a row, the last one connection\.`, words(group))
		assert.Contains(t, words(group), "Tools 4 4 cannot be called")
		assert.Contains(t, words(group), "github/get_file group open")
		assert.Contains(t, words(group), "opened once in the last hour")
		assert.Contains(t, words(group), "opened after 3 failures in a row, last connection; next probe after 30 s")
		assert.Contains(t, words(body(t, s.page, "/x/panel?tool=github/create_issue")), "its group opened once in the last hour")
		assert.Equal(t, 404, get(t, s.page, "/x/?group=nobody").Code)
		assert.Equal(t, 404, get(t, s.page, "/x/panel?group=nobody").Code)
		assert.Equal(t, 404, get(t, s.page, "/x/panel?group=nobody&tool=github/search").Code)
		assert.Len(t, poll(t, s.page, "q=SLACK").Rows, 2, "a group finds its tools")
	})
}

// Each condition of a group has a word, a meaning and a thing to do: for the group, and
// for a tool of it.
func TestGroup_SaysWhatItMeansAndWhatToDo(t *testing.T) {
	down := func(r *toolhealth.Registry) { unplug(r, "a/1", "a/2") }
	for _, c := range []struct {
		name             string
		config           func(*toolhealth.Config)
		play             func(r *toolhealth.Registry)
		chip, row        string
		group, tool      string
		canReset, isHeld bool
	}{
		{"reachable", nil, func(r *toolhealth.Registry) { r.RecordSuccess("a/1", 0); r.RecordSuccess("a/2", 0) },
			"a reachable, 2 tools", "a/1 healthy 100 %", "It can be reached: calls of its tools go through.", "Group a reachable", false, false},
		{"failing", nil, func(r *toolhealth.Registry) {
			r.Record("a/1", scene.Connection, 0)
			r.Record("a/2", scene.Connection, 0)
		},
			"a reachable, 2 tools", "a/1 unhealthy 0 %", "the last ones did not reach it: 2 failures in a row, the last one connection.", "Its only call so far failed (connection)", true, false},
		{"open", nil, down, "a open 5 s probe in 25 s 2 tools", "a/1 group open 5 s probe in 25 s", "so every call of its 2 tools is refused until a probe gets through: 3 failures in a row",
			"Its group a has been out of reach", true, false},
		{"due", nil, func(r *toolhealth.Registry) { down(r); time.Sleep(time.Minute) }, "a open 65 s the next call is the probe 2 tools",
			"a/1 group open 65 s the next call is the probe", "Its cooldown is over, and no tool of it has been called since.", "its cooldown is over: the next call of any of its 2 tools", true, false},
		{"half-open", nil, func(r *toolhealth.Registry) { down(r); time.Sleep(30 * time.Second); r.AllowRequest("a/2") },
			"a half-open 35 s a probe is out, at most", "a/1 group half-open 35 s a probe is out, at most", "One call of one of its tools finds out whether it can be reached again",
			"One call finds out whether it is back; the calls of all its 2 tools are refused meanwhile.", true, false},
		{"isolated", nil, func(r *toolhealth.Registry) { r.RecordSuccess("a/1", 0); r.IsolateGroup("a", "bob") },
			"a isolated 5 s by bob 1 tool", "a/1 group isolated 5 s by bob", "every call of its 1 tool is refused, and no probe goes out, until an operator ends it.",
			"is refused until an operator ends that: at the group, not here.", true, true},
		{"observed", func(c *toolhealth.Config) { c.GroupBreaker.ObserveOnly = true }, down,
			"a open, observed 5 s calls are let in 2 tools", "a/2 group open, observed", "observe_only lets every call in", "The breaker of its group a is open, but observe_only", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			grouped(t, Options{Operator: anyone}, c.config, func(t *testing.T, s site) {
				c.play(s.registry)
				time.Sleep(5 * time.Second)
				html := body(t, s.page, "/x/")
				assert.Contains(t, section(html, "groups"), c.chip)
				assert.Contains(t, html, c.row[:1])
				assert.Contains(t, rowOf(t, html, c.row[:3]), c.row)
				group := body(t, s.page, "/x/panel?group=a")
				assert.Contains(t, words(group), c.group)
				assert.Equal(t, c.canReset, strings.Contains(group, `data-act="reset"`))
				assert.Equal(t, c.isHeld, !strings.Contains(group, `data-act="isolate"`))
				assert.Contains(t, words(body(t, s.page, "/x/panel?tool="+c.row[:3])), c.tool)
			})
		})
	}
}

// A tool tells of its own breaker where the end of the group's outage would not help.
func TestRow_OwnIsolationAndWaitComeBeforeGroup(t *testing.T) {
	grouped(t, Options{}, nil, func(t *testing.T, s site) {
		r := s.registry
		r.Isolate("a/held", "alice")
		r.Record("a/waits", toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, RetryAfter: time.Hour}, 0)
		r.RecordSuccess("a/well", 0)
		for range 3 {
			r.Record("a/sick", scene.ServerError, 0)
		}
		time.Sleep(40 * time.Second)
		html := body(t, s.page, "/x/")
		assert.Contains(t, rowOf(t, html, "a/well"), "a/well healthy")
		assert.Contains(t, rowOf(t, html, "a/sick"), "a/sick open 40 s the next call is the probe")

		r.IsolateGroup("a", "bob")
		time.Sleep(5 * time.Second)
		html = body(t, s.page, "/x/")
		assert.Contains(t, rowOf(t, html, "a/held"), "a/held isolated 45 s by alice")
		assert.Contains(t, rowOf(t, html, "a/waits"), "a/waits rate limited")
		assert.Contains(t, rowOf(t, html, "a/well"), "a/well group isolated 5 s by bob")
		assert.Contains(t, rowOf(t, html, "a/sick"), "a/sick group isolated 5 s by bob")
		assert.Contains(t, section(html, "banner"), "1 and group a isolated by an operator")
		assert.Contains(t, words(body(t, s.page, "/x/panel?tool=a/sick")), "Its own breaker is open, too.")
		assert.NotContains(t, body(t, s.page, "/x/panel?tool=a/well"), "Its own breaker")
		r.RecordSuccess("b/1", 0)
		r.IsolateGroup("b", "bob")
		time.Sleep(5 * time.Second)
		assert.Contains(t, section(body(t, s.page, "/x/"), "banner"), "1 and 2 groups isolated by an operator")
		r.Reset("a/held", "")
		assert.Contains(t, section(body(t, s.page, "/x/"), "banner"), "2 groups isolated by an operator")
	})
}

func TestRow_IsHeldByGroup(t *testing.T) {
	const closed, open = toolhealth.StateClosed, toolhealth.StateOpen
	group := &toolhealth.GroupHealth{State: open, Reason: toolhealth.StopCircuitOpen}
	due := &toolhealth.GroupHealth{State: open, Available: true, ProbeDue: true}
	observed := &toolhealth.GroupHealth{State: open, Available: true}
	held := &toolhealth.GroupHealth{State: open, Reason: toolhealth.StopIsolated}
	for _, c := range []struct {
		group *toolhealth.GroupHealth
		tool  toolhealth.ToolHealth
		want  bool
	}{
		{nil, toolhealth.ToolHealth{}, false},
		{&toolhealth.GroupHealth{Available: true}, toolhealth.ToolHealth{State: open, Reason: toolhealth.StopCircuitOpen}, false},
		{group, toolhealth.ToolHealth{State: closed, Reason: toolhealth.StopCircuitOpen}, true},
		{group, toolhealth.ToolHealth{State: open, Reason: toolhealth.StopCircuitOpen}, true},
		{group, toolhealth.ToolHealth{State: closed, Reason: toolhealth.StopRateLimited}, false},
		{group, toolhealth.ToolHealth{State: closed, Reason: toolhealth.StopBusy}, false},
		{group, toolhealth.ToolHealth{State: open, Reason: toolhealth.StopIsolated}, false},
		{due, toolhealth.ToolHealth{State: closed, Available: true}, true},
		{due, toolhealth.ToolHealth{State: open, Available: true}, true},
		{observed, toolhealth.ToolHealth{State: closed, Available: true}, true},
		{observed, toolhealth.ToolHealth{State: open, Reason: toolhealth.StopCircuitOpen}, false},
		{held, toolhealth.ToolHealth{State: closed, Reason: toolhealth.StopIsolated}, true},
		{held, toolhealth.ToolHealth{State: open, Reason: toolhealth.StopIsolated}, true},
		{held, toolhealth.ToolHealth{State: open, Reason: toolhealth.StopIsolated, IsolatedBy: "ada"}, false},
	} {
		assert.Equal(t, c.want, heldByGroup(&c.tool, c.group), "%+v", c.tool)
	}
}

// What several tools of a group have in common is said if its breaker does not say it.
func TestBanner_HintsAtServers(t *testing.T) {
	grouped(t, Options{}, nil, func(t *testing.T, s site) {
		r := s.registry
		for i := range 4 {
			for range 3 {
				r.Record(fmt.Sprint("maps/", i), scene.ServerError, 0)
			}
		}
		r.RecordSuccess("maps/4", 0)
		r.RecordSuccess("web/1", 0)
		assert.Contains(t, section(body(t, s.page, "/x/"), "banner"), "4 of 5 tools of maps fail the same way (server error): look at that server.")
		r.Record("maps/4", scene.Timeout, 0)
		for range 3 {
			r.Record("maps/4", scene.Timeout, 0)
		}
		assert.NotContains(t, section(body(t, s.page, "/x/"), "banner"), "the same way")
	})
	grouped(t, Options{}, nil, func(t *testing.T, s site) {
		unplug(s.registry, "a/1", "a/2")
		s.registry.RecordSuccess("a/3", 0) // it is the server of all that is away
		unplug(s.registry, "a/1", "a/2", "a/3")
		assert.NotContains(t, section(body(t, s.page, "/x/"), "banner"), "Every tool fails to connect")
		unplug(s.registry, "b/1")
		time.Sleep(5 * time.Second)
		assert.Contains(t, section(body(t, s.page, "/x/"), "banner"), "Every tool fails to connect: look at this host")
	})
}

// What cannot be called comes before what asked to wait, that before what fails, and what
// an operator holds comes last of what is not well.
func TestRow_WorstComesFirst(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s site) {
		r := s.registry
		for i, tool := range []string{"z-half", "z-due", "z-open"} {
			if i == 2 {
				time.Sleep(40 * time.Second)
			}
			fail(r, tool, 3)
		}
		r.AllowRequest("z-half")
		r.Record("y-wait", toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, RetryAfter: time.Hour}, 0)
		require.NoError(t, r.Register("y-busy", toolhealth.ToolOptions{Breaker: &toolhealth.BreakerConfig{MaxInFlight: 1}}))
		gate := &toolhealth.Gate{Registry: r}
		_, err := gate.Allow(t.Context(), "y-busy")
		require.NoError(t, err)
		fail(r, "x-fails", 2)
		r.RecordSuccess("w-degraded", 0)
		fail(r, "w-degraded", 1)
		r.Isolate("v-held", "")
		r.RecordSuccess("a-well", 0)
		require.NoError(t, r.Register("0-idle", toolhealth.ToolOptions{}))
		time.Sleep(5 * time.Second)
		html := body(t, s.page, "/x/")
		at := -1
		for _, tool := range []string{"z-due", "z-half", "z-open", "y-busy", "y-wait", "x-fails", "w-degraded", "v-held", "a-well", "0-idle"} {
			next := strings.Index(html, ">"+tool+"</a></td>")
			assert.Greater(t, next, at, tool)
			at = next
		}
	})
}

func TestBanner_NamesFourOfTheSick(t *testing.T) {
	grouped(t, Options{}, nil, func(t *testing.T, s site) {
		banner := func() string { return section(body(t, s.page, "/x/"), "banner") }
		for i := range 4 {
			fail(s.registry, fmt.Sprintf("s%d/x", i), 1)
		}
		s.registry.RecordSuccess("well/x", 0)
		time.Sleep(5 * time.Second)
		assert.Contains(t, banner(), "4 of 5 tools are not well; calls still go to them.")
		assert.Contains(t, banner(), "s3/x fails (timeout)")
		assert.NotContains(t, banner(), "isolated")
		assert.NotContains(t, banner(), "more")
		unplug(s.registry, "b/1", "b/2")
		fail(s.registry, "s4/x", 1)
		time.Sleep(5 * time.Second)
		assert.Contains(t, banner(), "2 of 8 tools cannot be called, 5 more are not well. group b (2 tools) is open (connection)")
		assert.Contains(t, banner(), "s2/x fails (timeout) and 2 more")
		assert.NotContains(t, banner(), "s3/x")
	})
	assert.Empty(t, isolated(0, nil))
	assert.Equal(t, "group a isolated by an operator", isolated(0, []string{"a"}))
	assert.Equal(t, "2 and 2 groups isolated by an operator", isolated(2, []string{"a", "b"}))
}

func TestGroup_ChipsAreLimited(t *testing.T) {
	for _, n := range []int{12, 13} {
		grouped(t, Options{}, nil, func(t *testing.T, s site) {
			for i := range n {
				s.registry.RecordSuccess(fmt.Sprintf("s%03d/x", i), 0)
			}
			time.Sleep(5 * time.Second)
			want := 12
			if n > 12 {
				want = 0
			}
			assert.Equal(t, want, strings.Count(body(t, s.page, "/x/"), `class="chip `))
		})
	}
	grouped(t, Options{}, nil, func(t *testing.T, s site) {
		for i := range 120 {
			s.registry.RecordSuccess(fmt.Sprintf("s%03d/x", i), 0)
		}
		time.Sleep(5 * time.Second)
		assert.Equal(t, "Groups 120, all reachable", section(body(t, s.page, "/x/"), "groups"))
		for i := range 14 {
			s.registry.IsolateGroup(fmt.Sprintf("s%03d", i+50), "")
		}
		chips := func() int { return strings.Count(body(t, s.page, "/x/"), `class="chip `) }
		assert.Equal(t, 14, chips(), "all that need attention")
		assert.Contains(t, section(body(t, s.page, "/x/"), "groups"), "and 106 more, all reachable")
		for i := range 4 {
			s.registry.ResetGroup(fmt.Sprintf("s%03d", i+50), "")
		}
		assert.Equal(t, 10, chips())
		for i := range 110 {
			if i == 100 {
				assert.Equal(t, 100, chips())
				assert.Contains(t, section(body(t, s.page, "/x/"), "groups"), "and 20 more, all reachable")
			}
			s.registry.IsolateGroup(fmt.Sprintf("s%03d", i), "")
		}
		assert.Equal(t, 100, chips())
		assert.Contains(t, section(body(t, s.page, "/x/"), "groups"), "and 20 more")
		assert.NotContains(t, section(body(t, s.page, "/x/"), "groups"), "all reachable")
		for i := range 120 {
			s.registry.RecordSuccess(fmt.Sprintf("s000/%03d", i), 0)
		}
		time.Sleep(5 * time.Second)
		assert.Contains(t, words(body(t, s.page, "/x/panel?group=s000")), "and 21 more")
	})
}

func TestOperate_IsolatesAndResetsGroups(t *testing.T) {
	grouped(t, Options{Operator: anyone}, nil, func(t *testing.T, s site) {
		s.registry.RecordSuccess("a b/1", 0)
		post := func(act string, form url.Values) *httptest.ResponseRecorder {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/x/"+act, strings.NewReader(form.Encode()))
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			rec := httptest.NewRecorder()
			s.page.ServeHTTP(rec, req)
			return rec
		}
		group := func() toolhealth.GroupHealth { return s.registry.HealthSummary().Groups[0] }
		time.Sleep(5 * time.Second)
		assert.Contains(t, words(body(t, s.page, "/x/?group=a+b&ask=isolate")), "Yes, refuse every call of all its tools")
		assert.Contains(t, body(t, s.page, "/x/?group=a+b&ask=isolate"), `<input type="hidden" name="group" value="a b">`)
		assert.NotContains(t, body(t, s.page, "/x/?group=a+b&ask=reset"), "Yes, ", "there is nothing to reset")
		assert.Equal(t, 404, post("isolate", url.Values{"group": {"a"}}).Code, "a misspelled name makes no group")
		assert.Equal(t, 404, post("reset", url.Values{"group": {"a"}}).Code)
		assert.Len(t, s.registry.HealthSummary().Groups, 1)

		rec := post("isolate", url.Values{"group": {"a b"}})
		assert.Equal(t, 303, rec.Code)
		assert.Equal(t, "./?group=a+b", rec.Header().Get("Location"))
		assert.Equal(t, "alice", group().IsolatedBy)
		assert.Contains(t, words(body(t, s.page, "/x/panel?group=a+b")), "isolated by alice")
		assert.Contains(t, words(body(t, s.page, "/x/?group=a+b&ask=reset")), "Yes, let calls of its tools through")
		h, _ := s.registry.Health("a b/1")
		assert.False(t, h.Available)
		assert.NotContains(t, body(t, s.page, "/x/panel?tool=a+b/1"), `data-act="reset"`, "a reset of the tool would not help")
		assert.Contains(t, body(t, s.page, "/x/panel?tool=a+b/1"), `data-act="isolate"`)

		assert.Equal(t, 303, post("reset", url.Values{"group": {"a b"}}).Code)
		assert.True(t, group().Available)
		assert.Contains(t, words(body(t, s.page, "/x/panel?group=a+b")), "closed: reset by alice")
		assert.Equal(t, 303, post("isolate", url.Values{"tool": {"a b/1"}, "group": {""}}).Code)
		assert.True(t, group().Available)
	})
}
