package dashboard

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/dashboard/internal/scene"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

// get returns the answer to a GET, without compression.
func get(t testing.TB, h http.Handler, target string) *httptest.ResponseRecorder {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(context.Background(), http.MethodGet, target, nil))
	return rec
}

// body returns the body of a GET that has to succeed.
func body(t testing.TB, h http.Handler, target string) string {
	t.Helper()
	rec := get(t, h, target)
	require.Equal(t, http.StatusOK, rec.Code, rec.Body)
	return rec.Body.String()
}

// poll returns the news since a version.
func poll(t testing.TB, h http.Handler, query string) news {
	t.Helper()
	var n news
	require.NoError(t, json.Unmarshal([]byte(body(t, h, "/x/data.json?"+query)), &n))
	return n
}

// since is the query of a page that has n.
func since(n news) string { return url.Values{"v": {n.Version}, "o": {n.OrderIs}}.Encode() }

var tag = regexp.MustCompile(`<[^>]*>`)

// words returns the text of some HTML, one space between words.
func words(html string) string {
	return strings.Join(strings.Fields(tag.ReplaceAllString(html, " ")), " ")
}

func fail(r *toolhealth.Registry, tool string, times int) {
	for range times {
		r.Record(tool, scene.Timeout, 10*time.Second)
	}
}

// anyone is an Operator that lets everyone act.
func anyone(*http.Request) (string, bool) { return "alice", true }

// site is a registry with tools in virtual time, and its page.
type site struct {
	registry *toolhealth.Registry
	watcher  *watch.Watcher
	page     http.Handler
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, o Options, test func(t *testing.T, s site)) {
	t.Helper()
	bubbleOf(t, toolhealth.DefaultConfig(), o, test)
}

// bubbleOf is bubble with a registry of this configuration.
func bubbleOf(t *testing.T, c toolhealth.Config, o Options, test func(t *testing.T, s site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, err := toolhealth.NewRegistryWithConfig(c)
		require.NoError(t, err)
		s := site{registry: r}
		s.watcher = watch.New(s.registry, watch.Options{})
		defer s.watcher.Close()
		o.Watcher = s.watcher
		s.page = New(s.registry, o)
		test(t, s)
	})
}

func TestHandler_EveryAnswerIsGuarded(t *testing.T) {
	r := toolhealth.NewRegistry()
	r.RecordSuccess("search", time.Second)
	h := New(r, Options{Operator: anyone})
	for _, c := range []struct {
		method, target string
		code           int
		kind           string
	}{
		{"GET", "/a/b/", 200, "text/html"},
		{"HEAD", "/a/b/", 200, "text/html"},
		{"GET", "/", 200, "text/html"},
		{"GET", "/a/?tool=search", 200, "text/html"},
		{"GET", "/a/?tool=absent", 404, "text/plain"},
		{"GET", "/a/panel?tool=search", 200, "text/html"},
		{"GET", "/a/panel?tool=absent", 404, "text/plain"},
		{"GET", "/a/panel", 404, "text/plain"},
		{"GET", "/a/data.json", 200, "application/json"},
		{"GET", "/a/summary.json", 200, "application/json"},
		{"GET", "/a/style.css", 200, "text/css"},
		{"GET", "/a/app.js", 200, "text/javascript"},
		{"GET", "/a/icon.svg?s=bad", 200, "image/svg+xml"},
		{"GET", "/a/page.html", 404, "text/plain"},
		{"GET", "/a/assets/../page.html", 404, "text/plain"},
		{"GET", "/a/isolate", 405, "text/plain"},
		{"GET", "/a/reset", 405, "text/plain"},
		{"PUT", "/a/", 405, "text/plain"},
		{"POST", "/a/", 405, "text/plain"},
		{"DELETE", "/a/isolate", 405, "text/plain"},
		{"POST", "/a/isolate", 404, "text/plain"},
	} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), c.method, c.target, nil))
		name := c.method + " " + c.target
		assert.Equal(t, c.code, rec.Code, name)
		assert.Contains(t, rec.Header().Get("Content-Type"), c.kind, name)
		assert.True(t, strings.HasPrefix(rec.Header().Get("Content-Security-Policy"), "default-src 'none'; "), name)
		assert.Equal(t, "nosniff", rec.Header().Get("X-Content-Type-Options"), name)
		assert.Equal(t, "no-referrer", rec.Header().Get("Referrer-Policy"), name)
		if !strings.Contains(c.kind, "css") && !strings.Contains(c.kind, "script") && !strings.Contains(c.kind, "svg") {
			assert.Equal(t, "no-store", rec.Header().Get("Cache-Control"), name)
		}
		if c.code == http.StatusMethodNotAllowed {
			assert.NotEmpty(t, rec.Header().Get("Allow"), name)
		}
	}
}

// The page needs no other host, no path of its own, and nothing that its policy forbids.
func TestPage_RefersToItselfOnly(t *testing.T) {
	bubble(t, Options{Operator: anyone}, func(t *testing.T, s site) {
		scene.Play(s.registry, s.watcher, scene.Sick(), nil)
		link := regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)
		for _, target := range []string{"/x/", "/x/?tool=github/search", "/x/?tool=github/search&ask=isolate", "/x/panel?tool=web/fetch_page"} {
			html := body(t, s.page, target)
			assert.NotContains(t, html, " style=")
			assert.NotContains(t, html, "<style")
			assert.NotRegexp(t, ` on[a-z]+=`, html)
			assert.NotRegexp(t, `<script>`, html)
			for _, m := range link.FindAllStringSubmatch(html, -1) {
				assert.Regexp(t, `^(#|\./|style\.css\?v=|app\.js\?v=|icon\.svg\?s=|summary\.json$|isolate$|reset$)`, m[1])
			}
		}
		for _, name := range []string{"style.css", "app.js"} {
			assert.NotRegexp(t, `https?:|url\(|@import|eval\(|innerText`, body(t, s.page, "/x/"+name))
		}
	})
}

func TestPage_IsCompleteWithoutScripts(t *testing.T) {
	bubble(t, Options{Name: "eu-1", Operator: anyone}, func(t *testing.T, s site) {
		scene.Play(s.registry, s.watcher, scene.Sick(), func(minute int) {
			if minute == 56 {
				s.registry.Isolate("crm/find_contact", "alice")
			}
		})
		html := body(t, s.page, "/x/")
		text := words(html)
		assert.Contains(t, html, "<title>(4) eu-1 · tool health</title>")
		assert.Contains(t, html, `<noscript><meta http-equiv="refresh" content="5"></noscript>`)
		assert.Contains(t, html, `<html lang="en">`)
		assert.Equal(t, 12, strings.Count(html, "<tr id="))
		assert.Contains(t, text, "4 of 12 tools cannot be called. github/search is open (timeout) for 8 min")
		assert.Contains(t, text, "mail/send asked us to wait")
		assert.Contains(t, text, "1 isolated by an operator")
		assert.Regexp(t, `github/ search open 8 min probe in \d+ s 0 % [\d.]+ /min \d+ in a row timeout \d+`, text)
		assert.Regexp(t, `mail/ send rate limited calls again in \d (s|min)`, text)
		assert.Regexp(t, `crm/ find_contact isolated 4 min by alice`, text)
		assert.Regexp(t, `[\d.k]+ calls/min [\d.]+ % of them failed \d+ refused/min 0 rejected/min`, text)
		assert.Regexp(t, `\d\d:\d\d:\d\d \d+ s ago github/search open again: the probe failed, timeout; next probe after 30 s \(the last of \d+ since \d\d:\d\d:\d\d\)`, text)
		assert.Contains(t, text, "crm/find_contact isolated by alice")
		assert.Contains(t, text, "Figures cover the last 5 min unless they say otherwise.")
		assert.Contains(t, html, "<polyline points=")
		assert.NotContains(t, html, "ZgotmplZ")

		var order []string
		for _, m := range regexp.MustCompile(`<tr id="t\d+" class="(\w+)"`).FindAllStringSubmatch(html, -1) {
			order = append(order, m[1])
		}
		assert.Equal(t, "bad", order[0], "the worst first")
		assert.Equal(t, []string{"warn", "held", "ok"}, order[2:5])

		one := body(t, s.page, "/x/?tool=github/search")
		assert.Contains(t, words(one), "It is down since 00:52:0")
		assert.Contains(t, words(one), "Re-route its calls, and tell whoever runs the tool.")
		assert.Contains(t, words(one), "opened 2 times in the last hour")
		assert.Contains(t, one, `action="./"><input type="hidden" name="tool" value="github/search"><input type="hidden" name="ask" value="isolate">`)

		ask := body(t, s.page, "/x/?tool=github/search&ask=isolate")
		assert.Contains(t, words(ask), "Yes, refuse every call of it")
		assert.Contains(t, ask, `<form class="ops" method="post" action="isolate">`)
		assert.NotContains(t, ask, "http-equiv", "it does not reload while somebody thinks")
		assert.Contains(t, body(t, s.page, "/x/?tool=github/search&ask=reset"), `method="post" action="reset"`)
		assert.NotContains(t, body(t, s.page, "/x/?tool=crm/find_contact&ask=isolate"), `method="post"`, "it is isolated already")
	})
}

func TestPage_BannerIsOneSentence(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s site) {
		r := s.registry
		banner := func(class, sentence string) {
			t.Helper()
			html := body(t, s.page, "/x/")
			_, html, _ = strings.Cut(html, `<section id="banner"`)
			html, _, _ = strings.Cut(html, "</section>")
			assert.Contains(t, html, `class="`+class+`"`)
			assert.Contains(t, words("<"+html), sentence)
		}
		fresh := func() { time.Sleep(5 * time.Second) }
		banner("idle", "No tool has been called yet.")
		r.RecordSuccess("a", 0)
		fresh()
		banner("ok", "The tool is healthy.")
		fail(r, "a", 1)
		fresh()
		banner("warn", "The tool is not well; calls still go to it. a is degraded (timeout)")
		fail(r, "a", 2)
		banner("bad", "The tool cannot be called. a is open (timeout)")
		r.Isolate("a", "bob")
		banner("held", "The tool cannot be called. 1 isolated by an operator")
		r.Remove("a")
		r.RecordSuccess("a", 0)
		r.RecordSuccess("b", 0)
		fresh()
		banner("ok", "All 2 tools are healthy.")
		fail(r, "b", 1)
		fresh()
		banner("warn", "1 of 2 tools is not well; calls still go to it. b is degraded (timeout)")
		r.RecordSuccess("b", 0)
		fresh()
		banner("warn", "b failed until 00:00 (timeout), its last call succeeded")
		fail(r, "b", 3)
		banner("bad", "1 of 2 tools cannot be called. b is open (timeout) for 0 s")
		fail(r, "a", 1)
		r.RecordSuccess("a", 0)
		fail(r, "a", 1)
		fresh()
		banner("bad", "1 of 2 tools cannot be called, 1 more is not well. b is open (timeout) for 5 s")
		r.Isolate("b", "alice")
		r.RecordSuccess("a", 0)
		for range 9 {
			r.RecordSuccess("a", 0)
		}
		fresh()
		banner("held", "1 of 2 tools cannot be called. 1 isolated by an operator")
		r.Remove("a")
		r.Remove("b")
		for i := range 3 {
			for range 3 {
				r.Record(fmt.Sprint("maps/", i), scene.Connection, 0)
			}
		}
		banner("bad", "Every tool fails to connect: look at this host and its network first.")
		r.RecordSuccess("a", 0)
		fresh()
		assert.NotContains(t, body(t, s.page, "/x/"), "look at", "names are no groups")
	})
}

// Each condition of a tool has a word, a meaning and a thing to do.
func TestPage_SaysWhatItMeansAndWhatToDo(t *testing.T) {
	for _, c := range []struct {
		name   string
		config func(*toolhealth.Config)
		play   func(r *toolhealth.Registry)
		row    string
		panel  string
	}{
		{"well", nil, func(r *toolhealth.Registry) { r.RecordSuccess("x", time.Second) }, "x healthy 100 %", "It is well"},
		{"idle", nil, func(r *toolhealth.Registry) { _ = r.Register("x", toolhealth.ToolOptions{}) }, "x healthy, idle no calls", "Nobody has called it"},
		{"degraded", nil, func(r *toolhealth.Registry) { r.RecordSuccess("x", 0); r.Record("x", scene.ServerError, 0) }, "x degraded 50.0 %", "set failure_rate"},
		{"unhealthy", nil, func(r *toolhealth.Registry) { r.Record("x", scene.ServerError, 0); r.Record("x", scene.ServerError, 0) }, "x unhealthy 0 %", "not enough in a row"},
		{"failed once", nil, func(r *toolhealth.Registry) { r.Record("x", scene.ServerError, 0) }, "x unhealthy 0 %", "Its only call so far failed (server error)."},
		{"timed out once", nil, func(r *toolhealth.Registry) { fail(r, "x", 1) }, "x unhealthy 0 %",
			"It does not answer in time: 1 failure in a row, the last one at 00:00:00. Calls still go to it; more failures in a row open its breaker. If it is only slow, raise its timeout"},
		{"timed out after a success", nil, func(r *toolhealth.Registry) { r.RecordSuccess("x", 0); fail(r, "x", 1) }, "x degraded 50.0 %", "It does not answer in time"},
		{"last call succeeded", nil, func(r *toolhealth.Registry) { fail(r, "x", 2); r.RecordSuccess("x", 0) }, "x degraded 33.3 %",
			"Its last call succeeded; the last failure was at 00:00:00 (timeout)."},
		{"called by hand", nil, func(r *toolhealth.Registry) {
			r.AllowRequest("x")
			_, _ = (&toolhealth.Gate{Registry: r}).Allow(context.Background(), "x")
		},
			"x healthy 1 call in flight no calls", "It is being called: 1 call in flight. None has ended in the last minutes."},
		{"open", nil, func(r *toolhealth.Registry) { fail(r, "x", 3) }, "x open 5 s probe in 25 s 0 %", "3 failures in a row, the last one timeout"},
		{"due", nil, func(r *toolhealth.Registry) { fail(r, "x", 3); time.Sleep(time.Minute) }, "x open 65 s the next call is the probe", "nobody has called it since"},
		{"half-open", nil, func(r *toolhealth.Registry) { fail(r, "x", 3); time.Sleep(30 * time.Second); r.AllowRequest("x") },
			"x half-open 35 s a probe is out, at most", "its lease ends it"},
		{"isolated", nil, func(r *toolhealth.Registry) { r.Isolate("x", "bob") }, "x isolated 5 s by bob", "An operator took it out of service"},
		{"isolated by nobody", nil, func(r *toolhealth.Registry) { r.Isolate("x", "") }, "x isolated 5 s by an operator", "An operator took it out"},
		{"rate limited", nil, func(r *toolhealth.Registry) { r.Record("x", scene.Throttled, 0) }, "x rate limited calls again in 4 min", "It asked us to wait"},
		{"busy", func(c *toolhealth.Config) { c.Breaker.MaxInFlight = 1 },
			func(r *toolhealth.Registry) {
				gate := &toolhealth.Gate{Registry: r}
				_, _ = gate.Allow(context.Background(), "x")
				_, _ = gate.Allow(context.Background(), "x")
			}, "x busy calls again when one ends", "raise it, or call less"},
		{"observed", func(c *toolhealth.Config) { c.Breaker.ObserveOnly = true },
			func(r *toolhealth.Registry) { fail(r, "x", 3) }, "x open, observed 5 s calls are let in", "observe_only lets every call in"},
		{"dead key", nil, func(r *toolhealth.Registry) {
			for range 12 {
				r.Record("x", toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindUnauthorized}, 0)
			}
		}, "x degraded 12 rejected in a row", "It rejected the last 12 calls: renew its credentials"},
		{"nonsense", nil, func(r *toolhealth.Registry) {
			for range 12 {
				r.Record("x", toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindNotFound}, 0)
			}
		}, "x healthy no calls", "look at what the model sends"},
		{"asked for in vain", nil, func(r *toolhealth.Registry) {
			fail(r, "x", 3)
			for range 30 {
				r.AllowRequest("x")
			}
		}, "x open 5 s probe in 25 s 0 % 36 /min 3 in a row timeout 30", "30 times since it was last let through. Leave it out of the prompt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := toolhealth.DefaultConfig()
				if c.config != nil {
					c.config(&config)
				}
				r, err := toolhealth.NewRegistryWithConfig(config)
				require.NoError(t, err)
				h := New(r, Options{})
				c.play(r)
				time.Sleep(5 * time.Second)
				html := body(t, h, "/x/")
				_, table, _ := strings.Cut(html, "<tbody>")
				table, _, _ = strings.Cut(table, "</tbody>")
				assert.Contains(t, words(table), c.row)
				assert.Contains(t, words(body(t, h, "/x/panel?tool=x")), c.panel)
			})
		})
	}
}

func TestPage_GuardedCallsAndLabelsAreShown(t *testing.T) {
	guard, err := toolhealth.New(toolhealth.Settings{Tools: map[string]toolhealth.ToolSettings{"x": {Labels: map[string]string{"team": "research"}}}})
	require.NoError(t, err)
	h := New(guard.Registry(), Options{})
	_, err = toolhealth.Wrap(guard, "x", func(context.Context, int) (int, error) { return 1, nil }).Call(t.Context(), 1)
	require.NoError(t, err)
	assert.Regexp(t, `Guarded calls, since the start Calls 1 .* Labels team research`, words(body(t, h, "/x/panel?tool=x")))
}

func TestPage_ChoosesSortsAndLimitsRows(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s site) {
		for i := range 150 {
			s.registry.RecordSuccess(fmt.Sprintf("tool-%03d", i), time.Duration(i)*time.Millisecond)
		}
		fail(s.registry, "tool-077", 3)
		fail(s.registry, "tool-099", 1)
		s.registry.RecordSuccess("tool-140", 0)
		s.registry.AllowRequest("tool-077")
		time.Sleep(5 * time.Second)
		names := func(query string) (out []string) {
			for _, m := range regexp.MustCompile(`<tr [^>]*><td class="tool"><a [^>]*>([^<]*)</a>`).FindAllStringSubmatch(body(t, s.page, "/x/?"+query), -1) {
				out = append(out, m[1])
			}
			return out
		}
		assert.Len(t, names(""), 100)
		assert.Equal(t, []string{"tool-077", "tool-099", "tool-000"}, names("")[:3])
		assert.Len(t, names("all=1"), 150)
		assert.Contains(t, body(t, s.page, "/x/?q=TOOL"), `50 more. <a href="./?all=1&amp;q=TOOL" data-nav>Show all</a>`)
		assert.Equal(t, []string{"tool-077", "tool-099"}, names("show=sick"))
		assert.Equal(t, []string{"tool-077"}, names("show=refused"))
		assert.Len(t, names("q=OL-14"), 10)
		assert.Equal(t, "tool-000", names("sort=name")[0])
		for _, sort := range []string{"p50", "p90", "p99"} {
			assert.Equal(t, "tool-149", names("sort=" + sort)[0])
		}
		assert.Equal(t, "tool-077", names("sort=calls")[0])
		assert.Equal(t, []string{"tool-077", "tool-099"}, names("sort=failed")[:2])
		assert.Equal(t, "tool-077", names("sort=refused")[0])
		assert.Equal(t, []string{"tool-114"}, names("q=ool-114&sort=name"))
		assert.Contains(t, body(t, s.page, "/x/?q=%3Cnone"), "No tool fits.")
		assert.Contains(t, body(t, s.page, "/x/?q=%3Cnone"), `value="&lt;none"`)
		assert.Contains(t, body(t, s.page, "/x/?sort=name"), `aria-sort="ascending"`)
	})
}

func TestPage_HostileNamesStayText(t *testing.T) {
	names := []string{
		`<img src=x onerror="alert(1)">`, `"><script>alert(1)</script>`, "javascript:alert(1)", "a&b=c#d", "space and +",
		"bad \xff utf8", "line\nbreak", strings.Repeat("long", 200), "'/quote", "../../up", "ünïcode/名前", "{{.}}",
	}
	bubble(t, Options{Operator: anyone}, func(t *testing.T, s site) {
		for _, name := range names {
			fail(s.registry, name, 3)
			s.registry.Isolate(name, `<b>"op"</b>`)
		}
		time.Sleep(5 * time.Second)
		html := body(t, s.page, "/x/")
		for _, bad := range []string{"<img", "<script>", "<b>\"op", "ZgotmplZ"} {
			assert.NotContains(t, html, bad)
		}
		found := regexp.MustCompile(`<a id="a\d+"(?: class="long")? href="\./\?tool=([^"]*)"`).FindAllStringSubmatch(html, -1)
		require.Len(t, found, len(names))
		seen := make(map[string]bool)
		for _, m := range found {
			query := strings.ReplaceAll(m[1], "&amp;", "&")
			name, err := url.QueryUnescape(query)
			require.NoError(t, err)
			seen[name] = true
			panel := body(t, s.page, "/x/panel?tool="+query)
			assert.NotContains(t, panel, "<img")
			assert.NotContains(t, panel, "<b>\"op")
		}
		for _, name := range names {
			assert.True(t, seen[name], "%q has no link that leads to it", name)
		}
		n := poll(t, s.page, "")
		assert.Len(t, n.Order, len(names))
		assert.Len(t, n.Rows, len(names))
	})
}

func TestData_HasOnlyWhatChanged(t *testing.T) {
	bubble(t, Options{Name: "eu-1"}, func(t *testing.T, s site) {
		for _, tool := range []string{"a", "b", "c"} {
			require.NoError(t, s.registry.Register(tool, toolhealth.ToolOptions{}))
		}
		first := poll(t, s.page, "")
		assert.Len(t, first.Order, 3)
		assert.Len(t, first.Rows, 3)
		assert.Len(t, first.Parts, 7)
		assert.Equal(t, time.Now().UnixMilli(), first.At)

		none := poll(t, s.page, since(first))
		assert.Equal(t, first.Version, none.Version)
		assert.Nil(t, none.Order)
		assert.Empty(t, none.Rows)
		assert.Len(t, none.Parts, 2, "the links and what stands below the rows")

		fail(s.registry, "b", 3) // a transition is news at once
		news := poll(t, s.page, since(first))
		assert.NotEqual(t, first.Version, news.Version)
		assert.Equal(t, "(1) eu-1 · tool health", news.Title)
		assert.Equal(t, "bad", news.BannerIs)
		assert.Contains(t, news.Parts["events"], "opened after 3 failures in a row")
		require.Len(t, news.Rows, 1)
		require.Len(t, news.Order, 3)
		assert.Contains(t, news.Rows[news.Order[0]], ">b</a>")
		assert.NotContains(t, news.Parts, "facts", "no sample was taken")

		all := poll(t, s.page, "v=other.9&o="+news.OrderIs) // another run of the program
		assert.Len(t, all.Rows, 3)
		assert.Len(t, all.Order, 3)
		assert.Len(t, poll(t, s.page, "v=nonsense").Rows, 3)

		s.registry.Remove("c")
		time.Sleep(5 * time.Second)
		gone := poll(t, s.page, since(news))
		assert.Len(t, gone.Order, 2)
		assert.NotEmpty(t, gone.Parts["facts"])
	})
}

// What the page of 5,000 busy tools in 40 groups weighs, of which one is down.
func TestData_IsSmallForFiveThousandTools(t *testing.T) {
	config := toolhealth.DefaultConfig()
	config.Group = scene.Group
	bubbleOf(t, config, Options{}, func(t *testing.T, s site) {
		for sample := range 24 { // two minutes
			for i := range 5000 {
				name := fmt.Sprintf("server-%d/tool-%d", i%40, i)
				s.registry.RecordSuccess(name, time.Duration(1+(i+sample*37)%900)*time.Millisecond)
				if i%100 == 1 && sample > 20 {
					s.registry.Record(name, scene.Connection, time.Second)
				}
			}
			time.Sleep(5 * time.Second)
			s.watcher.Sample()
		}
		s.registry.IsolateGroup("server-7", "alice")
		checkSizes(t, s.page)
	})
}

func checkSizes(t *testing.T, h http.Handler) {
	size := func(target string) (whole, packed int) {
		rec := httptest.NewRecorder()
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		req.Header.Set("Accept-Encoding", "br, gzip")
		h.ServeHTTP(rec, req)
		packed = rec.Body.Len()
		if rec.Header().Get("Content-Encoding") != "gzip" {
			return packed, packed
		}
		z, err := gzip.NewReader(rec.Body)
		require.NoError(t, err)
		text, err := io.ReadAll(z)
		require.NoError(t, err)
		return len(text), packed
	}
	for _, target := range []string{"/x/", "/x/data.json"} {
		whole, packed := size(target)
		t.Logf("%s: %d bytes, %d compressed", target, whole, packed)
		assert.Greater(t, whole, 100_000, "it has 100 rows with sparklines")
		assert.Less(t, packed, 100_000)
	}
	whole, packed := size("/x/data.json?all=1")
	t.Logf("all rows: %d bytes, %d compressed", whole, packed)
	for _, query := range []string{"", "&all=1", "&show=sick", "&q=tool-77"} {
		n := poll(t, h, query)
		whole, packed := size("/x/data.json?" + since(n) + query)
		t.Logf("without news %q: %d bytes, %d compressed", query, whole, packed)
		assert.Less(t, whole, 2000)
	}
}

func TestSend_CompressesForWhoTakesIt(t *testing.T) {
	h := New(nil, Options{})
	for accepted, want := range map[string]bool{
		"gzip": true, "deflate, gzip;q=0.5": true, "br , gzip ; q=1": true, "": false, "br": false, "gzip;q=0": false,
		"x-gzip-like": false, "gzip; q=nonsense": false,
	} {
		rec := httptest.NewRecorder()
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/style.css", nil)
		req.Header.Set("Accept-Encoding", accepted)
		h.ServeHTTP(rec, req)
		assert.Equal(t, want, rec.Header().Get("Content-Encoding") == "gzip", accepted)
		assert.Equal(t, fmt.Sprint(rec.Body.Len()), rec.Header().Get("Content-Length"))
		assert.Contains(t, rec.Header().Get("Vary"), "Accept-Encoding")
	}
}

func TestOperate_OnlyOperatorsOfSameOriginAct(t *testing.T) {
	r := toolhealth.NewRegistry()
	r.RecordSuccess("mail/send", time.Second)
	may := false
	readOnly := New(r, Options{})
	h := New(r, Options{Operator: func(req *http.Request) (string, bool) { return req.Header.Get("User"), may }})
	post := func(h http.Handler, act, tool string, header ...string) *httptest.ResponseRecorder {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://host.test/x/"+act,
			strings.NewReader(url.Values{"tool": {tool}}.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("User", "alice")
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		return rec
	}
	health := func() toolhealth.ToolHealth { t, _ := r.Health("mail/send"); return t }
	assert.Equal(t, 403, post(readOnly, "isolate", "mail/send").Code, "read-only is the default")
	assert.Equal(t, 403, post(h, "isolate", "mail/send").Code)
	assert.NotContains(t, body(t, h, "/x/?tool=mail/send&ask=isolate"), `<form class`)
	assert.NotContains(t, body(t, h, "/x/panel?tool=mail/send"), "<form")
	may = true
	for _, header := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.test"}, {"Origin", "null"},
	} {
		assert.Equal(t, 403, post(h, "isolate", "mail/send", header...).Code, header)
	}
	assert.Equal(t, 404, post(h, "isolate", "mail/sned").Code, "a misspelled name makes no tool")
	assert.Equal(t, 404, post(h, "reset", "mail/sned").Code)
	assert.Equal(t, 404, post(h, "isolate", "").Code)
	assert.Equal(t, 1, r.Len())
	assert.True(t, health().Available, "nothing of that did anything")

	rec := post(h, "isolate", "mail/send", "Sec-Fetch-Site", "same-origin")
	assert.Equal(t, 303, rec.Code)
	assert.Equal(t, "./?tool=mail%2Fsend", rec.Header().Get("Location"))
	assert.Equal(t, "alice", health().IsolatedBy)
	assert.Contains(t, words(body(t, h, "/x/panel?tool=mail/send")), "isolated by alice")
	panel := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x/panel?tool=mail/send", nil)
	req.Header.Set("User", "alice")
	h.ServeHTTP(panel, req)
	assert.Contains(t, words(panel.Body.String()), "End the isolation as alice")
	assert.Equal(t, 303, post(h, "reset", "mail/send", "Origin", "http://host.test", "User", "bob").Code)
	assert.True(t, health().Available)
	assert.Contains(t, words(body(t, h, "/x/")), "closed: reset by bob")
	assert.Equal(t, 404, post(h, "isolate", strings.Repeat("x", 1<<17)).Code, "a long body is not read")
}

// Two registries on one mux, under different paths, and one behind StripPrefix.
func TestHandler_IsServedUnderAnyPath(t *testing.T) {
	one, two := toolhealth.NewRegistry(), toolhealth.NewRegistry()
	one.RecordSuccess("first", 0)
	two.RecordSuccess("second", 0)
	mux := http.NewServeMux()
	mux.Handle("/one/", New(one, Options{Name: "One"}))
	mux.Handle("/deep/two/", http.StripPrefix("/deep/two", New(two, Options{Name: "Two"})))
	server := httptest.NewServer(mux)
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	fetch := func(path string) string {
		resp, err := client.Get(server.URL + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode, path)
		return string(text)
	}
	for path, want := range map[string]string{"/one/": "first", "/deep/two/": "second", "/one": "first"} {
		assert.Contains(t, fetch(path), want)
		assert.Contains(t, fetch(strings.TrimSuffix(path, "/")+"/data.json"), want)
		assert.Contains(t, fetch(strings.TrimSuffix(path, "/")+"/summary.json"), want)
	}
	assert.NotContains(t, fetch("/one/"), "second")
}

// Viewers beside calls, an operator, new configurations and evictions.
func TestHandler_ManyViewersAtOnce(t *testing.T) {
	config := toolhealth.DefaultConfig()
	config.MaxTools, config.Group = 40, scene.Group
	r, err := toolhealth.NewRegistryWithConfig(config)
	require.NoError(t, err)
	w := watch.New(r, watch.Options{Interval: time.Millisecond})
	defer w.Close()
	h := New(r, Options{Watcher: w, Operator: anyone})
	stop := make(chan struct{})
	var background, viewers sync.WaitGroup
	goOn := func() bool {
		select {
		case <-stop:
			return false
		default:
			return true
		}
	}
	background.Go(func() {
		for i := 0; goOn(); i++ {
			r.RecordSuccess(fmt.Sprint("made-up-", i), 0)
			fail(r, fmt.Sprint("sick-", i%7), 1)
			r.Reset(fmt.Sprint("sick-", i%5), "bob")
			r.Remove(fmt.Sprint("sick-", i%3))
			unplug(r, "down/a", "down/b")
			r.IsolateGroup("held", "bob")
			r.ResetGroup([]string{"down", "held"}[i%2], "")
		}
	})
	background.Go(func() {
		for i := 0; goOn(); i++ {
			c := config
			c.MaxTools = 20 + i%20
			if err := r.SetConfig(c); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Millisecond)
		}
	})
	for viewer := range 2 {
		viewers.Go(func() {
			n := news{}
			for range 25 {
				rec := get(t, h, "/x/data.json?"+since(n)+"&all=1")
				n = news{}
				if err := json.Unmarshal(rec.Body.Bytes(), &n); err != nil {
					t.Error(err)
				}
				for _, target := range []string{"/x/?all=1", "/x/panel?tool=sick-1", "/x/panel?tool=down/a", "/x/panel?group=down", "/x/?group=held", "/x/summary.json"} {
					if code := get(t, h, target).Code; code != 200 && code != 404 {
						t.Error(viewer, target, code)
					}
				}
			}
		})
	}
	viewers.Wait()
	close(stop)
	background.Wait()
}

// A page that applies every poll shows what a page that is loaded anew shows.
func TestData_PollsAddUpToThePage(t *testing.T) {
	config := toolhealth.DefaultConfig()
	config.Group = scene.Group
	bubbleOf(t, config, Options{}, func(t *testing.T, s site) {
		rows, order, n := map[int]string{}, []int(nil), news{}
		groups := ""
		scene.Play(s.registry, s.watcher, append(scene.Sick(), scene.Server()[1:4]...), func(minute int) {
			if minute == 30 {
				s.registry.Remove("maps/geocode")
				s.registry.IsolateGroup("slack", "alice")
			}
			n = poll(t, s.page, since(n))
			for id, html := range n.Rows {
				rows[id] = html
			}
			if n.Order != nil {
				order = n.Order
			}
			var table strings.Builder
			for _, id := range order {
				table.WriteString(rows[id])
			}
			page := body(t, s.page, "/x/")
			_, want, _ := strings.Cut(page, "<tbody>")
			want, _, _ = strings.Cut(want, "</tbody>")
			require.Equal(t, want, table.String(), "minute %d", minute)
			if html, ok := n.Parts["groups"]; ok {
				groups = html
			}
			require.Contains(t, page, `aria-label="Groups">`+groups+"</nav>", "minute %d", minute)
		})
	})
}

// The same hour gives the same page, to the byte.
func TestPage_SameHourIsSamePage(t *testing.T) {
	config := toolhealth.DefaultConfig()
	for _, tools := range []func() []*scene.Tool{scene.Sick, scene.Server} {
		var pages [2]string
		for i := range pages {
			bubbleOf(t, config, Options{Operator: anyone}, func(t *testing.T, s site) {
				scene.Play(s.registry, s.watcher, tools(), nil)
				pages[i] = body(t, s.page, "/x/?tool=github/search")
				if config.Group != nil {
					pages[i] += body(t, s.page, "/x/?group=github")
				}
			})
		}
		assert.Equal(t, pages[0], pages[1])
		config.Group = scene.Group
	}
}

func TestHandler_ZeroRegistryHasPage(t *testing.T) {
	for _, r := range []*toolhealth.Registry{nil, new(toolhealth.Registry)} {
		h := New(r, Options{Window: time.Hour})
		assert.Contains(t, body(t, h, "/"), "No tool has been called yet.")
		assert.True(t, json.Valid([]byte(body(t, h, "/summary.json"))))
		assert.Empty(t, poll(t, h, "").Order)
	}
	var b bytes.Buffer
	require.NoError(t, pages.ExecuteTemplate(&b, "symbols", nil))
}
