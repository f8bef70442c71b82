package browsertest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/dashboard"
	"github.com/toolhealth/toolhealth/integrations/dashboard/internal/scene"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// browser starts Chromium, which has to be installed: Debian's package is chromium.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); name != "" && err == nil {
			path = found
			break
		}
	}
	require.NotEmpty(t, path, "there is no Chromium: install it, or name it in CHROMIUM")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Flag("disable-gpu", true))
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	root, cancelRoot := chromedp.NewContext(allocator)
	t.Cleanup(cancelRoot)
	require.NoError(t, chromedp.Do(root))
	return root
}

// tab is a tab of the browser, with what its console said.
type tab struct {
	t        *testing.T
	ctx      context.Context
	mu       sync.Mutex
	problems []string
}

func newTab(t *testing.T, root context.Context) *tab {
	t.Helper()
	b := &tab{t: t}
	note := func(text string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.problems = append(b.problems, text)
	}
	ctx, cancel := chromedp.NewContext(root, chromedp.WithListener(func(ev any) {
		switch e := ev.(type) {
		case *log.EventEntryAdded:
			note(e.Entry.Text + " " + e.Entry.URL)
		case *runtime.EventExceptionThrown:
			note(e.ExceptionDetails.Text)
		}
	}))
	t.Cleanup(cancel)
	b.ctx = ctx
	require.NoError(t, chromedp.Do(ctx)) // the tab lives as long as the ctx that opens it
	_, err := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	require.NoError(t, err)
	_, err = chromedp.Call(ctx, runtime.Enable, cdp.Empty{})
	require.NoError(t, err)
	return b
}

// do takes steps in the tab.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, steps...))
}

// media emulates what a person prefers: "prefers-color-scheme", "dark".
func (b *tab) media(name, value string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: name, Value: value}},
	})
	require.NoError(b.t, err)
}

// js returns the value of an expression as a text.
func (b *tab) js(expression string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("(() => { try { return String("+expression+") } catch (e) { return String(e) } })()"))
	require.NoError(b.t, err, expression)
	return text
}

// click clicks on the first element of a selector. It does so in one step, because a poll
// may replace the element at any moment.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.eventually(10*time.Second, "(e => e ? (e.click(), true) : false)(document.querySelector(`"+selector+"`))", "true")
}

// eventually waits until the value of an expression has a text in it.
func (b *tab) eventually(within time.Duration, expression, want string) {
	b.t.Helper()
	got := ""
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got = b.js(expression); strings.Contains(got, want) {
			return
		}
	}
	require.Fail(b.t, "it did not come", "%s is %q, want %q in it", expression, got, want)
}

// silent expects that the console said nothing: no error, and nothing of the policy.
func (b *tab) silent() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.Empty(b.t, b.problems)
	b.problems = nil
}

const hostile = `<img src=x onerror="document.title='pwned'">`

// site is a registry with three tools and its page, under a path of a server.
type site struct {
	registry *toolhealth.Registry
	url      string
	down     atomic.Bool
	may      atomic.Bool
}

func newSite(t *testing.T) *site {
	config := toolhealth.DefaultConfig()
	config.Group = func(tool string) string { return map[bool]string{true: "maps"}[strings.HasPrefix(tool, "maps/")] }
	r, err := toolhealth.NewRegistryWithConfig(config)
	require.NoError(t, err)
	s := &site{registry: r}
	for i := range 40 {
		s.registry.RecordSuccess("github/search", time.Duration(100+i)*time.Millisecond)
		s.registry.RecordSuccess("mail/send", time.Duration(300+i)*time.Millisecond)
		s.registry.RecordSuccess(hostile, time.Millisecond)
	}
	w := watch.New(s.registry, watch.Options{})
	page := dashboard.New(s.registry, dashboard.Options{
		Name: "test", Watcher: w, Operator: func(*http.Request) (string, bool) { return "alice", s.may.Load() },
	})
	mux := http.NewServeMux()
	mux.Handle("/debug/tools/", page)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.down.Load() {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	s.url = server.URL + "/debug/tools/"
	t.Cleanup(func() { server.CloseClientConnections(); server.Close(); w.Close() })
	return s
}

func (s *site) fail(tool string) {
	for range 3 {
		s.registry.Record(tool, scene.Timeout, time.Second)
	}
}

// Expressions.
const (
	headline = `document.querySelector("#banner h2").textContent`
	search   = `[...document.querySelectorAll("tbody tr")].find(r => r.textContent.includes("github/search"))`
	firstRow = `document.querySelector("tbody tr td.tool").textContent`
	numRows  = `document.querySelectorAll(".wrap tbody tr").length`
	panel    = `document.querySelector("#panel").textContent`
	live     = `document.querySelector("#live").textContent`
)

func TestPage_FollowsAnOutage(t *testing.T) {
	s := newSite(t)
	b := newTab(t, browser(t))
	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(s.url))
	b.eventually(5*time.Second, headline, "All 3 tools are healthy.")
	b.eventually(5*time.Second, live, "live")
	assert.Equal(t, "test · tool health", b.js("document.title"))
	b.js("window.loaded = 'once'")

	s.fail("github/search")
	b.eventually(3*time.Second, search+".textContent", "open") // a poll every two seconds
	b.eventually(time.Second, "document.title", "(1) test")
	assert.Equal(t, "1 of 3 tools cannot be called.", b.js(headline))
	assert.Contains(t, b.js(`document.querySelector("#events").textContent`), "opened after 3 failures in a row, last timeout")
	assert.Equal(t, "github/search", b.js(firstRow), "the worst comes first")
	assert.Contains(t, b.js(`document.querySelector("link[rel=icon]").href`), "s=bad")
	before := b.js(search + `.querySelector(".left").textContent`)
	time.Sleep(1500 * time.Millisecond)
	assert.NotEqual(t, before, b.js(search+`.querySelector(".left").textContent`), "it counts down")
	assert.Equal(t, "1 of 3 tools cannot be called.", b.js(`document.querySelector("#said").textContent`), "a screen reader hears it")

	s.registry.Reset("github/search", "bob")
	b.eventually(3*time.Second, headline, "1 of 3 tools is not well; calls still go to it.")
	assert.Contains(t, b.js(`document.querySelector("#events").textContent`), "closed: reset by bob")
	assert.Equal(t, "once", b.js("window.loaded"), "the page was not loaded again")
	b.silent()
}

func TestPage_HostileNameStaysText(t *testing.T) {
	s := newSite(t)
	s.may.Store(true)
	b := newTab(t, browser(t))
	b.do(chromedp.Navigate(s.url))
	b.eventually(5*time.Second, `document.querySelector("tbody").textContent`, hostile)
	s.fail(hostile)
	b.eventually(5*time.Second, firstRow, hostile)
	b.click(`tbody tr:first-child td.tool a`)
	b.eventually(5*time.Second, panel, hostile)
	assert.Equal(t, "0", b.js(`document.querySelectorAll("img").length`))
	assert.NotContains(t, b.js("document.title"), "pwned")
	b.silent()
}

func TestPage_IsWorkedWithTheKeyboard(t *testing.T) {
	s := newSite(t)
	s.fail("github/search")
	b := newTab(t, browser(t))
	b.do(chromedp.Navigate(s.url))
	b.eventually(5*time.Second, live, "live")
	b.js(`document.dispatchEvent(new KeyboardEvent("keydown", {key: "/"}))`) // KeyEvent would type it, too
	assert.Equal(t, "q", b.js("document.activeElement.id"))
	b.do(chromedp.KeyEvent("mail"))
	b.eventually(5*time.Second, numRows, "1")
	assert.Contains(t, b.js("location.search"), "q=mail")
	b.do(chromedp.KeyEvent("\u001b"))
	b.eventually(5*time.Second, numRows, "3")
	b.do(chromedp.KeyEvent("j"))
	assert.Equal(t, "github/search", b.js("document.activeElement.textContent"))
	time.Sleep(2500 * time.Millisecond)
	assert.Equal(t, "github/search", b.js("document.activeElement.textContent"), "the focus survives a poll")
	b.do(chromedp.KeyEvent("\r"))
	b.eventually(5*time.Second, panel, "Re-route its calls")
	assert.Equal(t, "H2", b.js("document.activeElement.tagName"))
	assert.Contains(t, strings.ToLower(b.js("location.search")), "tool=github%2fsearch")
	b.do(chromedp.KeyEvent("j"))
	b.eventually(5*time.Second, panel, "Nobody has called it in the last minutes.")
	b.do(chromedp.KeyEvent("k"))
	b.eventually(5*time.Second, panel, "Re-route its calls")
	b.do(chromedp.KeyEvent("\u001b"))
	assert.Equal(t, "true", b.js(`document.querySelector("#panel").hidden`))
	assert.Equal(t, "", b.js("location.search"))
	assert.Equal(t, "github/search", b.js("document.activeElement.textContent"), "back where it was")
	b.do(chromedp.KeyEvent("p"))
	b.eventually(time.Second, live, "paused")
	s.registry.Reset("github/search", "")
	time.Sleep(2500 * time.Millisecond)
	assert.Contains(t, b.js(headline), "cannot be called")
	b.do(chromedp.KeyEvent("p"))
	b.eventually(5*time.Second, headline, "not well")
	b.silent()
}

func TestPage_OperatorActsInTwoSteps(t *testing.T) {
	s := newSite(t)
	b := newTab(t, browser(t))
	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(s.url+"?tool=mail/send"))
	b.eventually(5*time.Second, live, "live")
	assert.Equal(t, "0", b.js(`document.querySelectorAll("#panel form").length`), "read-only")
	s.may.Store(true)
	b.do(chromedp.Navigate(s.url + "?tool=mail/send"))
	b.click("#panel form[data-act=isolate] button")
	b.eventually(time.Second, `document.querySelector("#panel .armed").textContent`, "Really refuse every call of it?")
	h, _ := s.registry.Health("mail/send")
	assert.True(t, h.Available, "one click is not enough")
	b.eventually(6*time.Second, `document.querySelectorAll("#panel .armed").length`, "0") // it forgets after four seconds
	b.click("#panel form[data-act=isolate] button")
	b.click("#panel .armed")
	b.eventually(5*time.Second, panel, "isolated by alice")
	h, _ = s.registry.Health("mail/send")
	assert.Equal(t, "alice", h.IsolatedBy)
	b.eventually(5*time.Second, `document.querySelector("#events").textContent`, "isolated by alice")
	assert.Equal(t, "held", b.js(`document.querySelector("#banner").className`))
	b.click("#panel form[data-act=reset] button")
	b.click("#panel .armed")
	b.eventually(5*time.Second, panel, "closed: reset by alice")
	b.silent()

	s.may.Store(false) // the right is gone while the page is open
	b.click("#panel form[data-act=isolate] button")
	b.click("#panel .armed")
	b.eventually(5*time.Second, `document.querySelector("#said").textContent`, "That did not work.")
	h, _ = s.registry.Health("mail/send")
	assert.True(t, h.Available)
}

// A group is reached with the keyboard, and worked like a tool.
func TestPage_GroupIsWorkedLikeTool(t *testing.T) {
	s := newSite(t)
	s.may.Store(true)
	for _, tool := range []string{"maps/geocode", "maps/route"} {
		s.registry.RecordSuccess(tool, time.Second)
	}
	b := newTab(t, browser(t))
	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(s.url))
	const chips = `document.querySelector("#groups").textContent`
	b.eventually(5*time.Second, chips, "maps reachable, 2 tools")
	b.eventually(5*time.Second, live, "live")
	b.js(`document.querySelector("#groups a").focus()`)
	for i := range 3 {
		s.registry.Record([]string{"maps/geocode", "maps/route"}[i%2], scene.Connection, time.Second)
	}
	b.eventually(3*time.Second, chips, "open")
	b.eventually(time.Second, "document.title", "(2) test")
	assert.Contains(t, b.js(`document.querySelector("#banner").textContent`), "group maps (2 tools) is open (connection)")
	before := b.js(`document.querySelector("#groups .left").textContent`)
	time.Sleep(1500 * time.Millisecond)
	assert.NotEqual(t, before, b.js(`document.querySelector("#groups .left").textContent`), "it counts down")
	assert.Equal(t, "maps", b.js(`document.activeElement.querySelector("b").textContent`), "the focus survives a poll")
	b.do(chromedp.KeyEvent("\r"))
	b.eventually(5*time.Second, panel, "so every call of its 2 tools is refused")
	assert.Equal(t, "H2", b.js("document.activeElement.tagName"))
	assert.Equal(t, "?group=maps", b.js("location.search"))

	b.click("#panel form[data-act=isolate] button")
	b.eventually(time.Second, `document.querySelector("#panel .armed").textContent`, "Really refuse every call of all its tools?")
	assert.Empty(t, s.registry.HealthSummary().Groups[0].IsolatedBy, "one click is not enough")
	b.click("#panel .armed")
	b.eventually(5*time.Second, panel, "isolated by alice")
	b.eventually(5*time.Second, `document.querySelector("#events").textContent`, "isolated by alice")
	b.eventually(5*time.Second, chips, "by alice")
	assert.Equal(t, "held", b.js(`document.querySelector("#banner").className`))

	b.click(`#panel .tools a`)
	b.eventually(5*time.Second, panel, "An operator took its whole group maps out of service")
	b.click(`#panel .of a`)
	b.eventually(5*time.Second, panel, "group of 2 tools")
	b.click("#panel form[data-act=reset] button")
	b.click("#panel .armed")
	b.eventually(5*time.Second, panel, "closed: reset by alice")
	b.do(chromedp.KeyEvent("\u001b"))
	assert.Equal(t, "", b.js("location.search"))
	assert.Equal(t, "maps", b.js(`document.activeElement.querySelector("b").textContent`), "back where it was")
	b.do(chromedp.Navigate(s.url + "?group=maps"))
	b.eventually(5*time.Second, panel, "group of 2 tools")
	b.silent()
}

// Two pages of one registry, one of which a person has put aside.
func TestPage_TwoViewersSeeTheSame(t *testing.T) {
	s := newSite(t)
	root := browser(t)
	one, two := newTab(t, root), newTab(t, root)
	one.do(chromedp.Navigate(s.url))
	two.do(chromedp.Navigate(s.url + "?show=sick"))
	one.eventually(5*time.Second, live, "live")
	two.eventually(5*time.Second, live, "live")
	assert.Equal(t, "0", two.js(numRows))
	s.fail("github/search")
	one.eventually(5*time.Second, search+".textContent", "open")
	two.eventually(5*time.Second, search+".textContent", "open")
	assert.Equal(t, "3", one.js(numRows))
	assert.Equal(t, "1", two.js(numRows))
	config := s.registry.Config()
	config.Breaker.RecoveryDuration = 7 * time.Second
	require.NoError(t, s.registry.SetConfig(config))
	s.registry.Remove("mail/send")
	s.registry.Reset("github/search", "bob")
	one.eventually(10*time.Second, numRows, "2")
	two.eventually(10*time.Second, `document.querySelector("#events").textContent`, "closed: reset by bob")
	one.silent()
	two.silent()
}

func TestPage_SaysWhenItsFiguresAreOld(t *testing.T) {
	s := newSite(t)
	b := newTab(t, browser(t))
	b.do(chromedp.Navigate(s.url))
	b.eventually(5*time.Second, live, "live")
	s.down.Store(true)
	b.eventually(20*time.Second, `document.querySelector("#stale:not([hidden])")?.textContent`, "these figures are old")
	assert.Equal(t, "true", b.js(`document.body.classList.contains("stale")`))
	assert.Equal(t, "no answer", b.js(live))
	s.fail("mail/send")
	s.down.Store(false)
	b.eventually(5*time.Second, live, "live")
	assert.Contains(t, b.js(headline), "1 of 3")
	assert.Equal(t, "true", b.js(`document.querySelector("#stale").hidden`))
}

func TestPage_WorksWithoutScripts(t *testing.T) {
	s := newSite(t)
	s.may.Store(true)
	b := newTab(t, browser(t))
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	require.NoError(t, err)
	s.fail("github/search")
	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(s.url))
	assert.Equal(t, "3", b.js(numRows))
	assert.Contains(t, b.js(live), "as of")
	assert.Equal(t, "none", b.js(`getComputedStyle(document.querySelector("#pause")).display`), "what needs a script is not there")
	b.click(`a[href*="show=sick"]`)
	b.eventually(5*time.Second, numRows, "1")
	b.click("td.tool a")
	b.eventually(5*time.Second, panel, "Re-route its calls")
	b.click("#panel form[data-act=isolate] button")
	b.eventually(5*time.Second, panel, "Yes, refuse every call of it")
	h, _ := s.registry.Health("github/search")
	assert.NotEqual(t, toolhealth.StopIsolated, h.Reason)
	b.click("#panel form[method=post] button")
	b.eventually(5*time.Second, panel, "isolated by alice")
	b.click("#panel .close")
	b.eventually(5*time.Second, `document.querySelector("#panel").hidden`, "true")
	s.registry.Remove("mail/send")
	b.eventually(20*time.Second, numRows, "2") // it reloads itself

	s.registry.RecordSuccess("maps/geocode", time.Second)
	b.eventually(20*time.Second, `document.querySelector("#groups").textContent`, "maps")
	b.click("#groups a")
	b.eventually(5*time.Second, panel, "group of 1 tool")
	b.click("#panel form[data-act=isolate] button")
	b.eventually(5*time.Second, panel, "Yes, refuse every call of all its tools")
	b.click("#panel form[method=post] button")
	b.eventually(5*time.Second, panel, "isolated by alice")
	assert.Equal(t, "alice", s.registry.HealthSummary().Groups[0].IsolatedBy)
	b.silent()
}

// A changed row flashes, unless the person wants no motion.
func TestPage_MovesNothingIfNoMotionIsWanted(t *testing.T) {
	for value, want := range map[string]string{"no-preference": "1", "reduce": "0"} {
		t.Run(value, func(t *testing.T) {
			s := newSite(t)
			b := newTab(t, browser(t))
			b.media("prefers-reduced-motion", value)
			b.do(chromedp.Navigate(s.url))
			b.eventually(5*time.Second, live, "live")
			s.fail("github/search")
			b.eventually(5*time.Second, search+`.className`, "flash")
			assert.Equal(t, want, b.js(`Math.min(1, document.getAnimations().length)`))
		})
	}
}
