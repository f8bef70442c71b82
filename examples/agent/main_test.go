package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/checkpoint"
)

// mainVariable makes the program of the tests the agent itself.
const mainVariable = "TOOLHEALTH_AGENT_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) != "" || os.Getenv(mainVariable) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// text is an io.Writer for many goroutines.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// patience is how long a test waits for something that has to come.
const patience = 30 * time.Second

// await returns what read returns as soon as it matches.
func await(t *testing.T, want string, read func() string) string {
	t.Helper()
	match := regexp.MustCompile(want).MatchString
	var got string
	require.Eventually(t, func() bool { got = read(); return match(got) }, patience, 20*time.Millisecond, want)
	return got
}

var (
	when = regexp.MustCompile(`(?m)^time=\S+ `)
	wait = regexp.MustCompile(`retry after \ds`)
)

// withoutTimes takes out of a story what differs between two runs.
func withoutTimes(story string) string {
	return wait.ReplaceAllString(when.ReplaceAllString(story, ""), "retry after 2s")
}

func TestRun_PrintsWhatReadmeSays(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, story, _ := strings.Cut(string(readme), "```text\n")
	story, _, _ = strings.Cut(story, "```")
	require.NotEmpty(t, story)

	var stdout, stderr text
	began := time.Now()
	code := run(t.Context(), nil, &stdout, &stderr)
	assert.Zero(t, code)
	assert.Empty(t, stderr.String())
	assert.Equal(t, story, withoutTimes(stdout.String()))
	assert.Less(t, time.Since(began), 20*time.Second)
}

// All tools of a dead server are called, twice.
func TestAgent_DeadServerCostsThreeCalls(t *testing.T) {
	a, err := newAgent(slog.New(slog.DiscardHandler), io.Discard)
	require.NoError(t, err)
	defer a.close()
	ctx := t.Context()
	a.list(ctx)
	require.Len(t, a.names, 44)

	_, err = a.call(ctx, call{tool: "crm__customers_count"})
	require.NoError(t, err)
	refused := 0
	for range 2 {
		for _, name := range a.names {
			if server, tool, _ := strings.Cut(name, "/"); server == "crm" && !strings.HasSuffix(tool, "_search") {
				res, err := a.call(ctx, call{tool: "crm__" + tool})
				require.NoError(t, err)
				assert.True(t, res.isError, name)
				if strings.Contains(res.text, "temporarily unavailable") {
					refused++
				}
			}
		}
	}
	var failures uint64
	for _, h := range a.guard.Registry().HealthSummary().Tools {
		failures += h.Failures
	}
	assert.EqualValues(t, 3, failures)
	assert.Equal(t, 2*32, refused+int(failures)-2, "the third failure says that the breaker is open")
	assert.Len(t, a.offer(), 6)

	await(t, "^1$", func() string { return map[int]string{44: "1"}[len(a.offer())] })
	res, err := a.call(ctx, call{tool: "crm__tickets_create"})
	require.NoError(t, err)
	assert.True(t, res.isError, "a tool that acts is no probe")
	res, err = a.call(ctx, call{tool: "crm__tickets_get"})
	require.NoError(t, err)
	assert.Equal(t, result{text: "paid on Friday"}, res)
	res, err = a.call(ctx, call{tool: "crm__tickets_create"})
	require.NoError(t, err)
	assert.Equal(t, result{text: "created"}, res)
}

func TestAgent_InventedNameIsResult(t *testing.T) {
	a, err := newAgent(slog.New(slog.DiscardHandler), io.Discard)
	require.NoError(t, err)
	defer a.close()
	for _, name := range []string{"crm__nothing", "crm/orders_get", "nothing", ""} {
		res, err := a.call(t.Context(), call{tool: name})
		require.NoError(t, err)
		assert.Equal(t, result{text: "there is no tool of this name", isError: true}, res)
	}
	assert.Zero(t, a.guard.Registry().Len())
}

func TestAgent_AnswersWithoutServer(t *testing.T) {
	var out text
	a, err := newAgent(slog.New(slog.NewTextHandler(&out, nil)), &out)
	require.NoError(t, err)
	defer a.close()
	require.NoError(t, a.servers[0].session.Close())
	answer, err := a.do(t.Context(), script{}, task)
	require.NoError(t, err)
	assert.Equal(t, "Order 4711 is not refunded: there is no tool of this name. The report lacks 0 figures.", answer)
	assert.Contains(t, out.String(), `msg="the server did not tell its tools" server=crm`)
	assert.Contains(t, out.String(), "4 of 4 tools offered")
}

// An operator has held the whole server, and a new process knows it from the file.
func TestRun_EndsWithAnswerIfServerIsHeld(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tools.json")
	before := toolhealth.NewRegistry()
	require.True(t, before.IsolateGroup("crm", "alice"))
	require.NoError(t, checkpoint.Save(before, file))

	var stdout, stderr text
	assert.Zero(t, run(t.Context(), []string{"-checkpoint", file}, &stdout, &stderr))
	assert.Empty(t, stderr.String())
	out := stdout.String()
	assert.Contains(t, out, "tools restored: 0, servers: 1\n6 of 44 tools offered")
	assert.Contains(t, out, "answer: Order 4711 is not refunded: tool temporarily unavailable: taken out of service. ")
	assert.Contains(t, out, "crm: 40 tools; calls: 0 answered, 0 failed, ")

	after := toolhealth.NewRegistry()
	restored, err := checkpoint.Load(after, file)
	require.NoError(t, err)
	assert.Equal(t, 1, restored.Isolated)
}

func TestRun_KeepsOutageForNextRun(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tools.json")
	ctx, stop := context.WithCancel(t.Context())
	var stdout, stderr text
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"-checkpoint", file}, &stdout, &stderr) }()
	await(t, "breaker opened", stdout.String)
	stop()
	assert.Equal(t, 1, <-code)
	assert.Equal(t, "agent: context canceled\n", stderr.String())

	restored, err := checkpoint.Load(toolhealth.NewRegistry(), file)
	require.NoError(t, err)
	assert.Equal(t, 1, restored.Groups)
}

func TestRun_GoesOnWithoutBrokenCheckpoint(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tools.json")
	require.NoError(t, os.WriteFile(file, []byte("nonsense"), 0o600))
	ctx, stop := context.WithCancel(t.Context())
	var stdout text
	done := make(chan int, 1)
	go func() { done <- run(ctx, []string{"-checkpoint", file}, &stdout, io.Discard) }()
	out := await(t, "44 of 44 tools offered", stdout.String)
	assert.Contains(t, out, `msg="no checkpoint was restored"`)
	stop()
	<-done
}

func TestRun_ServesPage(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	var stdout, stderr text
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"-serve", "-addr", "127.0.0.1:0"}, &stdout, &stderr) }()
	defer func() {
		stop()
		assert.Zero(t, <-code)
		assert.Empty(t, stderr.String())
	}()
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(await(t, "http://.*/tools/", stdout.String))
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	get := func() string {
		resp, err := client.Get("http://" + address)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return string(body)
	}
	await(t, `archive/today`, get)

	isolate := func(host string) int {
		req, err := http.NewRequest(http.MethodPost, "http://"+address+"/tools/isolate", strings.NewReader(url.Values{"tool": {"archive/today"}}.Encode()))
		require.NoError(t, err)
		req.Host = host
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := client.Transport.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	assert.Equal(t, http.StatusForbidden, isolate("evil.test"))
	assert.Equal(t, http.StatusSeeOther, isolate(address))
	await(t, `archive__today: tool temporarily unavailable: taken out of service`, stdout.String)
	await(t, `41 of 44 tools cannot be called`, get)
	if !testing.Short() {
		await(t, `(?s)answer: Order 4711 is refunded.*I look at the order.*answer: Order 4711 is refunded`, stdout.String)
	}
}

func TestRun_SaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-help"}, 0, "-checkpoint file"},
		{[]string{"-nonsense"}, 2, "not defined: -nonsense"},
		{[]string{"nonsense"}, 2, `want no arguments but flags, got "nonsense"`},
		{[]string{"-serve", "-addr", "256.0.0.1:1"}, 1, "256.0.0.1"},
	} {
		var stderr text
		assert.Equal(t, c.code, run(t.Context(), c.args, io.Discard, &stderr), c.args)
		assert.Contains(t, stderr.String(), c.want)
	}
}
