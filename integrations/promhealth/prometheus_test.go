package promhealth_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/promhealth"
)

// promtool runs promtool, which has to be installed: Debian's package is prometheus.
func promtool(t *testing.T, input string, args ...string) {
	t.Helper()
	cmd := exec.Command("promtool", args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.NotContains(t, string(out), "FAILED")
}

func TestMetrics_PassPromtool(t *testing.T) {
	promtool(t, scrape(t, everything(t), false), "check", "metrics")
}

func TestAlerts_PassPromtool(t *testing.T) {
	promtool(t, "", "check", "rules", "alerts.yml")
	promtool(t, "", "test", "rules", "alerts_test.yml", "alerts_day_test.yml")
}

// rules is alerts.yml.
type rules struct {
	Groups []struct {
		Rules []struct {
			Record, Alert, Expr string
			Labels, Annotations map[string]string
		}
	}
}

func readRules(t *testing.T) (r rules) {
	t.Helper()
	data, err := os.ReadFile("alerts.yml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(data, &r))
	return r
}

func TestAlerts_HaveRunbookAndTest(t *testing.T) {
	var tests []byte
	for _, name := range []string{"alerts_test.yml", "alerts_day_test.yml"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		tests = append(tests, text...)
	}
	alerts := 0
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			alerts++
			assert.NotEmpty(t, r.Annotations["summary"], r.Alert)
			assert.NotEmpty(t, r.Annotations["runbook"], r.Alert)
			assert.Contains(t, []string{"info", "warning", "critical"}, r.Labels["severity"], r.Alert)
			assert.Regexp(t, "alertname: "+r.Alert+`\n +exp_alerts:\n`, string(tests), "a test in which it fires")
		}
	}
	assert.Equal(t, 15, alerts)
}

// queries returns every query of dashboard.json, by what it is for.
func queries(t *testing.T) map[string]string {
	t.Helper()
	var page struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ RefID, Expr string }
		}
		Annotations struct{ List []struct{ Name, Expr string } }
	}
	data, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &page))
	found := make(map[string]string)
	for _, p := range page.Panels {
		for _, q := range p.Targets {
			found[fmt.Sprintf("dashboard %d %s %s", p.ID, p.Title, q.RefID)] = q.Expr
		}
	}
	for _, a := range page.Annotations.List {
		found["annotation "+a.Name] = a.Expr
	}
	variables := strings.NewReplacer("$__rate_interval", "1m", "$__range", "5m", "$job", ".*", "$instance", ".*", "$tool", ".*")
	for name, expr := range found {
		found[name] = variables.Replace(expr)
		require.NotContains(t, found[name], "$", name)
	}
	require.Greater(t, len(found), 35)
	return found
}

// What a test of seconds cannot have is asked for in another way.
var shorter = map[string][2]string{
	"CallsHang":           {"> 60", "> 0"},                                                                                // a call that runs for a minute
	"ToolSlow":            {"> 3 * (toolhealth:latency_p90:rate10m offset 1d)", "> 0.5 * toolhealth:latency_p90:rate10m"}, // yesterday
	"ToolHealthHookHangs": {"> 0", ">= 0"},                                                                                // a hook that hangs for 1,024 transitions
}

// server is a Prometheus that scrapes target.
type server struct{ url string }

// start starts Prometheus, which has to be installed: Debian's package is prometheus. It
// ends with the test.
func start(t *testing.T, target string, native bool) server {
	t.Helper()
	dir := t.TempDir()
	alerts, err := filepath.Abs("alerts.yml")
	require.NoError(t, err)
	config := fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n"+
		"  - job_name: agents\n    static_configs: [{targets: [%q]}]\n", alerts, strings.TrimPrefix(target, "http://"))
	path := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	args := []string{"--config.file=" + path, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + address, "--log.level=error"}
	if native {
		args = append(args, "--enable-feature=native-histograms")
	}
	cmd := exec.Command("prometheus", args...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return server{"http://" + address}
}

// result is a series that Prometheus answers with.
type result struct {
	Metric    map[string]string
	Value     [2]any
	Histogram [2]any
}

// ask returns the answer to a query, or an error if there is none.
func (s server) ask(expr string) ([]result, error) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(s.url + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Status, Error string
		Data          struct{ Result []result }
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		return nil, fmt.Errorf("%s: %.300s", expr, body)
	}
	return answer.Data.Result, nil
}

// number returns the one number that is the answer to a query, and NaN if it is not one.
func (s server) number(expr string) float64 {
	results, err := s.ask(expr)
	n := math.NaN()
	if err == nil && len(results) == 1 {
		if text, ok := results[0].Value[1].(string); ok {
			_, _ = fmt.Sscan(text, &n)
		}
	}
	return n
}

// life is a registry that everything happens to that the page has a panel for.
type life struct {
	guard *toolhealth.Guard
	mu    sync.Mutex
	took  []time.Duration // by the successes of search
}

func newLife(t *testing.T) *life {
	t.Helper()
	g, err := toolhealth.New(toolhealth.Settings{
		Breaker: toolhealth.BreakerConfig{FailureThreshold: 3, RecoveryDuration: 500 * time.Millisecond, ProbeTimeout: time.Second}, GroupSeparator: "/", MaxTools: 12,
		Policy: toolhealth.Policy{BackoffBase: toolhealth.Off, RetryBudget: 1000},
	})
	require.NoError(t, err)
	r := g.Gate().Registry
	for _, tool := range []string{"search", "mail", "bank", "mixed", "key", "hang", "limited", "down", "flaps", "maps/a", "maps/b", "maps/c"} {
		require.NoError(t, r.Register(tool, toolhealth.ToolOptions{}))
	}
	r.OnTransition(func(t toolhealth.Transition) {
		if t.Tool == "flaps" {
			panic("a hook that is broken")
		}
	})
	r.Isolate("bank", "alice")
	return &life{guard: g}
}

// live makes a round of calls.
func (l *life) live(ctx context.Context, rnd *rand.Rand) {
	r := l.guard.Gate().Registry
	for range 5 {
		took := time.Duration(80e6 * math.Exp(0.6*rnd.NormFloat64()))
		l.mu.Lock()
		r.RecordSuccess("search", took)
		l.took = append(l.took, took)
		l.mu.Unlock()
	}
	passing := toolhealth.WithVerdict(errors.New("down"), toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError, Retryable: true})
	attempt := 0
	_, _ = toolhealth.Call(ctx, l.guard, "mail", func(context.Context, string) (int, error) {
		if attempt++; attempt == 1 {
			return 0, passing
		}
		return 0, nil
	})
	r.RecordSuccess("mixed", time.Second)
	fail(r, "mixed", toolhealth.KindServerError, 1)
	for range 3 {
		r.Record("key", toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindUnauthorized}, 0)
	}
	r.Record("key", toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindCanceled}, 0)
	r.Record("limited", toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, RetryAfter: time.Minute}, 0)
	if r.AllowRequest("down") {
		fail(r, "down", toolhealth.KindTimeout, 3)
	}
	r.AllowRequest("a name that the model made up")
	r.Reset("flaps", "")
	fail(r, "flaps", toolhealth.KindTimeout, 3)
	for _, tool := range []string{"maps/a", "maps/b", "maps/c"} {
		if r.AllowRequest(tool) {
			fail(r, tool, toolhealth.KindConnection, 1)
		}
	}
}

// Two real servers scrape, one that takes native histograms and one that does not; both
// have data for every query of the page and for every rule.
func TestPrometheus_HasDataForEveryQuery(t *testing.T) {
	l := newLife(t)
	g := register(t, l.guard.Gate().Registry, promhealth.Options{})
	target := httptest.NewServer(promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	t.Cleanup(target.Close)
	servers := map[string]server{"native": start(t, target.URL, true), "classic": start(t, target.URL, false)}

	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	stop := func() { cancel(); callers.Wait() }
	t.Cleanup(stop)
	callers.Go(func() { // a call that hangs
		_, _ = toolhealth.Call(ctx, l.guard, "hang", func(ctx context.Context, _ string) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
	})
	callers.Go(func() {
		rnd := rand.New(rand.NewPCG(1, 1))
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				l.live(ctx, rnd)
			}
		}
	})

	wanted := queries(t)
	for _, group := range readRules(t).Groups {
		for _, r := range group.Rules {
			expr := r.Expr
			if change, ok := shorter[r.Alert]; ok {
				require.Contains(t, expr, change[0])
				expr = strings.Replace(expr, change[0], change[1], 1)
			}
			wanted["rule "+r.Record+r.Alert] = expr
		}
	}
	for kind, s := range servers {
		s.eventually(t, kind, wanted)
	}
	stop()
	for kind, s := range servers {
		assertQuantile(t, kind, s, l.took)
	}
	native, err := servers["native"].ask("toolhealth_call_duration_seconds_bucket")
	require.NoError(t, err)
	assert.Empty(t, native, "it drops the classic buckets")
	classic, err := servers["classic"].ask("toolhealth_call_duration_seconds_bucket")
	require.NoError(t, err)
	assert.NotEmpty(t, classic)
}

// eventually waits until there is data for every query.
func (s server) eventually(t *testing.T, kind string, wanted map[string]string) {
	t.Helper()
	open := make(map[string]string)
	for name, expr := range wanted {
		open[name] = expr
	}
	last := ""
	for end := time.Now().Add(40 * time.Second); len(open) > 0 && time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		for name, expr := range open {
			results, err := s.ask(expr)
			if err != nil {
				last = err.Error()
			}
			if slices.ContainsFunc(results, hasData) {
				delete(open, name)
			}
		}
	}
	assert.Empty(t, open, "%s: no data; %s", kind, last)
}

// hasData reports whether a result is a number or a histogram.
func hasData(r result) bool {
	text, _ := r.Value[1].(string)
	return r.Histogram[1] != nil || text != "" && text != "NaN"
}

// assertQuantile compares the p90 of Prometheus with the exact one.
func assertQuantile(t *testing.T, kind string, s server, took []time.Duration) {
	t.Helper()
	n := float64(len(took))
	count := `toolhealth_calls_total{tool="search",outcome="success"}`
	require.Eventually(t, func() bool { return s.number(count) == n }, 20*time.Second, 100*time.Millisecond, "%s: the last scrape", kind)
	quantile := `histogram_quantile(0.9, toolhealth_call_duration_seconds{tool="search",outcome="success"})`
	if kind == "classic" {
		quantile = strings.Replace(quantile, "seconds{", "seconds_bucket{", 1)
	}
	slices.Sort(took)
	exact := took[len(took)*9/10].Seconds()
	got := s.number(quantile)
	t.Logf("%s: p90 of %d calls is %.4f s, exactly %.4f s", kind, len(took), got, exact)
	assert.InEpsilon(t, exact, got, 0.1, kind)
}
