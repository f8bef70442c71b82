package dashboard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/dashboard/internal/scene"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

// guarded runs a test in virtual time with a guard. Calls of stuck ignore their ctx and
// end when the test lets them.
func guarded(t *testing.T, settings toolhealth.Settings, test func(t *testing.T, s site, g *toolhealth.Guard, stuck func(context.Context, int) (int, error), end func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g, err := toolhealth.New(settings)
		require.NoError(t, err)
		free := make(chan struct{})
		stuck := func(context.Context, int) (int, error) { <-free; return 1, nil }
		end := func() { close(free); synctest.Wait() }
		test(t, site{registry: g.Registry(), page: New(g.Registry(), Options{Operator: anyone})}, g, stuck, end)
	})
}

// begin starts a call that the test does not wait for.
func begin(g *toolhealth.Guard, tool string, f func(context.Context, int) (int, error)) {
	go func() { _, _ = toolhealth.Wrap(g, tool, f).Call(context.Background(), 1) }()
	synctest.Wait()
}

func TestPage_CallThatHangsIsShown(t *testing.T) {
	guarded(t, toolhealth.Settings{}, func(t *testing.T, s site, g *toolhealth.Guard, stuck func(context.Context, int) (int, error), end func()) {
		s.registry.RecordSuccess("a/well", time.Second)
		begin(g, "web/fetch", stuck)
		time.Sleep(20 * time.Second)
		html, panel := body(t, s.page, "/x/"), words(body(t, s.page, "/x/panel?tool=web/fetch"))
		assert.Contains(t, section(html, "banner"), "All 2 tools are healthy.", "that is not long")
		assert.Contains(t, rowOf(t, html, "web/fetch"), "web/fetch healthy 1 call in flight")
		assert.Contains(t, panel, "It is being called: 1 call in flight.")

		time.Sleep(280 * time.Second)
		html, panel = body(t, s.page, "/x/"), words(body(t, s.page, "/x/panel?tool=web/fetch"))
		assert.Contains(t, html, "<title>(1) ")
		assert.Contains(t, section(html, "banner"), "1 of 2 tools is not well; calls still go to it. web/fetch has a call running for 5 min")
		assert.Contains(t, rowOf(t, html, "web/fetch"), "web/fetch hangs 5 min 1 call in flight")
		assert.Contains(t, panel, "web/fetch hangs 5 min 1 call in flight A call of it has been running for 5 min. "+
			"Isolate keeps new calls away; what runs already goes on. If it runs for longer than timeout and retries of the tool allow, "+
			"the function ignores its ctx: set detach, or restart the program.")
		assert.NotContains(t, panel, "It is well")
		assert.NotContains(t, html+panel, "idle</span>")
		assert.NotContains(t, panel, "Nobody has called it")

		begin(g, "web/fetch", stuck)
		time.Sleep(5 * time.Second)
		assert.Contains(t, words(body(t, s.page, "/x/panel?tool=web/fetch")), "2 calls of it are running, the oldest for 5 min.")

		s.registry.Isolate("web/fetch", "alice")
		time.Sleep(5 * time.Second)
		assert.Contains(t, rowOf(t, body(t, s.page, "/x/"), "web/fetch"), "web/fetch isolated 5 s by alice")
		panel = words(body(t, s.page, "/x/panel?tool=web/fetch"))
		assert.Contains(t, panel, "the oldest for 5 min. New calls are refused; what runs already goes on.")
		assert.NotContains(t, panel, "Isolate keeps")

		end()
		time.Sleep(5 * time.Second)
		assert.NotContains(t, words(body(t, s.page, "/x/panel?tool=web/fetch")), "running for")
	})
}

func TestPage_HangComesAfterWhatCannotBeCalled(t *testing.T) {
	guarded(t, toolhealth.Settings{}, func(t *testing.T, s site, g *toolhealth.Guard, stuck func(context.Context, int) (int, error), end func()) {
		r := s.registry
		begin(g, "m/hangs", stuck)
		r.RecordSuccess("a/well", 0)
		time.Sleep(31 * time.Second)
		fail(r, "b/unhealthy", 2)
		r.Record("y/waits", scene.Throttled, 0)
		fail(r, "z/open", 3)
		fail(r, "m/hangs", 2)
		time.Sleep(5 * time.Second)
		assert.Contains(t, section(body(t, s.page, "/x/"), "banner"), "2 of 5 tools cannot be called, 2 more are not well. "+
			"z/open is open (timeout) for 5 s y/waits asked us to wait m/hangs has a call running for 36 s b/unhealthy fails (timeout)")
		assert.Regexp(t, `m/hangs hangs 36 s 1 call in flight It does not answer in time: 2 failures in a row.* A call of it has been running for 36 s\.`,
			words(body(t, s.page, "/x/panel?tool=m/hangs")), "both are said")
		end()
	})
}

// The call of a tool that failed hangs in its substitute.
func TestPage_HangOfSubstituteIsSaid(t *testing.T) {

	guarded(t, toolhealth.Settings{}, func(t *testing.T, s site, g *toolhealth.Guard, stuck func(context.Context, int) (int, error), end func()) {
		broken := func(context.Context, int) (int, error) { return 0, &toolhealth.StatusError{StatusCode: 500} }
		a := toolhealth.Wrap(g, "a", broken).Substitute("b", stuck)
		go func() { _, _ = a.Call(context.Background(), 1) }()
		time.Sleep(2 * time.Minute)
		assert.Contains(t, section(body(t, s.page, "/x/"), "banner"), "a has a call running for 2 min")
		assert.Contains(t, words(body(t, s.page, "/x/panel?tool=a")), "The tool itself is not at work: the call waits for its next attempt, or a substitute is at it.")
		assert.Contains(t, words(body(t, s.page, "/x/panel?tool=b")), "It is being called: 1 call in flight.")
		end()
	})
}

func TestPage_ToolThatWorksAgainDoesNotFail(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s site) {
		fail(s.registry, "x", 2)
		time.Sleep(time.Minute)
		s.registry.RecordSuccess("x", 0)
		time.Sleep(5 * time.Second)
		html := body(t, s.page, "/x/")
		assert.Contains(t, section(html, "banner"), "x failed until 00:00 (timeout), works again")
		assert.Contains(t, rowOf(t, html, "x"), "x degraded works again 33.3 %")
		fail(s.registry, "x", 1)
		time.Sleep(5 * time.Second)
		html = body(t, s.page, "/x/")
		assert.Contains(t, section(html, "banner"), "x fails (timeout)")
		assert.NotContains(t, html, "works again")
	})
}

// An operator's reset is no success.
func TestPage_ToolThatWasResetOnlyFailed(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s site) {
		for _, failures := range []int{1, 3} {
			fail(s.registry, "x", failures)
			time.Sleep(70 * time.Second)
			s.registry.Reset("x", "alice")
			time.Sleep(5 * time.Second)
			html := body(t, s.page, "/x/")
			assert.Regexp(t, `x failed until 00:0\d \(timeout\)$`, section(html, "banner"))
			assert.NotContains(t, html, "works again")
			assert.Regexp(t, `Calls go to it again; the last failure was at 00:0\d:\d\d \(timeout\)\.`, words(body(t, s.page, "/x/panel?tool=x")))
			s.registry.RecordSuccess("x", 0)
			time.Sleep(5 * time.Second)
			assert.Contains(t, section(body(t, s.page, "/x/"), "banner"), ", works again", "the watcher saw it succeed")
		}
	})
}

func TestRow_HangsLongAfterItsSlowCalls(t *testing.T) {
	for _, c := range []struct {
		name     string
		inFlight int
		oldest   time.Duration
		p99      time.Duration // since the start
		lately   time.Duration // in the window
		hangs    bool
	}{
		{"none", 0, time.Hour, 0, 0, false},
		{"30 s", 1, 30 * time.Second, time.Second, 0, false},
		{"more than 30 s", 1, 31 * time.Second, 10 * time.Second, 0, true},
		{"never ended", 1, 31 * time.Second, 0, 0, true},
		{"slow tool", 1, time.Minute, 20 * time.Second, 0, false},
		{"slower than a slow tool", 1, 61 * time.Second, 20 * time.Second, 0, true},
		{"slow lately", 1, 61 * time.Second, time.Second, 21 * time.Second, false},
	} {
		h := &toolhealth.ToolHealth{Guard: toolhealth.GuardCounts{InFlight: c.inFlight, Oldest: c.oldest}}
		h.P99 = c.p99
		assert.Equal(t, c.hangs, hanging(h, &watch.Window{P99: c.lately}) > 0, c.name)
	}
}
