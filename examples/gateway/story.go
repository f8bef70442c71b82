package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/toolhealth/toolhealth"
)

// mood is the state of the search tool, and of the mail tool when that hangs.
type mood int32

const (
	well mood = iota
	busy
	hanging
)

// upstream is the server of all tools.
type upstream struct {
	*httptest.Server
	mood     atomic.Int32
	requests atomic.Int64 // number of requests
	wasted   atomic.Int64 // requests to a tool that was down
	mails    atomic.Int64 // mails that went out
}

func startUpstream() *upstream {
	u := new(upstream)
	u.Server = httptest.NewServer(u)
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.requests.Add(1)
	body, _ := io.ReadAll(r.Body)
	name := strings.TrimPrefix(r.URL.Path, "/")
	current := mood(u.mood.Load())
	switch {
	case name == "mail" && current == hanging:
		u.mails.Add(1) // the mail goes out, and only the answer is lost
		u.wasted.Add(1)
		<-r.Context().Done()
	case name == "search" && current != well:
		u.wasted.Add(1)
		if current == hanging {
			<-r.Context().Done()
			return
		}
		http.Error(w, "out of capacity", http.StatusServiceUnavailable)
	case string(body) == "":
		http.Error(w, "what for?", http.StatusBadRequest)
	case name == "search" || name == "search_backup":
		fmt.Fprintf(w, "3 pages on %s", body)
	default:
		http.NotFound(w, r)
	}
}

// step is one call of the agent, and the mood of the tools during the call.
type step struct {
	tool, arguments string
	mood            mood
}

// script returns the steps of both runs.
func script() (steps []step) {
	for i := range 50 {
		s := step{"search", fmt.Sprintf("topic %d", i), well}
		switch {
		case i >= 8 && i < 18:
			s.mood = busy
		case i >= 18 && i < 28:
			s.mood = hanging
		}
		switch i {
		case 3:
			s.arguments = "" // the tool does not accept this
		case 5:
			s.tool = "serach" // the model made this name up
		case 20:
			s.tool = "mail"
		}
		steps = append(steps, s)
	}
	return steps
}

// tally is the result of one run.
type tally struct {
	calls, answered         int
	requests, wasted, mails int64
	waited                  time.Duration  // time spent waiting for answers
	reasons                 map[string]int // stop reasons of unanswered calls
	rescued                 int            // calls that a substitute answered
	lastServed              string
}

// caller makes one call. It returns the tool that answered, or the reason why there is
// no answer.
type caller func(ctx context.Context, tool, arguments string) (served, reason string, err error)

// play works through the script with one way to call tools.
func play(ctx context.Context, u *upstream, pace time.Duration, call caller) (tally, error) {
	u.requests.Store(0)
	u.wasted.Store(0)
	u.mails.Store(0)
	t := tally{reasons: make(map[string]int)}
	for _, s := range script() {
		u.mood.Store(int32(s.mood))
		start := time.Now()
		served, reason, err := call(ctx, s.tool, s.arguments)
		if err != nil {
			return t, err
		}
		t.waited += time.Since(start)
		t.calls++
		t.lastServed = served
		switch {
		case reason != "":
			t.reasons[reason]++
		case served != s.tool:
			t.rescued++
			fallthrough
		default:
			t.answered++
		}
		time.Sleep(pace)
	}
	t.requests, t.wasted, t.mails = u.requests.Load(), u.wasted.Load(), u.mails.Load()
	return t, nil
}

// direct calls the tools as an agent without a guard does: three attempts.
func direct(base string, timeout time.Duration) caller {
	client := &http.Client{Timeout: timeout}
	return func(ctx context.Context, tool, arguments string) (served, reason string, err error) {
		for range 3 {
			if _, err = post(ctx, client, base+"/"+tool, arguments); err == nil {
				return tool, "", nil
			}
			if s, ok := errors.AsType[*toolhealth.StatusError](err); ok && s.StatusCode < 500 {
				break
			}
		}
		return "", "an error of the SDK", nil
	}
}

// through calls the tools through the gateway. The agent makes one attempt: all
// retries are the guard's.
func through(base string) caller {
	return func(ctx context.Context, tool, arguments string) (served, reason string, err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/tools/"+tool, strings.NewReader(arguments))
		if err != nil {
			return "", "", err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", "", err
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			_, err = io.Copy(io.Discard, resp.Body)
			return resp.Header.Get("X-Served-By"), "", err
		}
		var failed struct{ Reason, Text string }
		if err := json.NewDecoder(resp.Body).Decode(&failed); err != nil {
			return "", "", fmt.Errorf("status %d without a tool result: %w", resp.StatusCode, err)
		}
		return "", failed.Reason, nil
	}
}

// tell tells the whole story and returns an error if the results are not as expected.
func tell(ctx context.Context, pace time.Duration, price float64, out io.Writer, log *slog.Logger) error {
	u := startUpstream()
	defer u.Close()
	timeout, cooldown := 4*pace, 5*pace
	settings := rules(timeout)
	settings.Breaker = toolhealth.DefaultBreakerConfig()
	settings.Breaker.RecoveryDuration = cooldown
	g, err := newGateway(new(http.Client), addresses(u.URL, "search", "search_backup", "mail"), settings, log)
	if err != nil {
		return err
	}
	if err := g.reroute(substitutes()); err != nil {
		return err
	}
	agents, operators := httptest.NewServer(g.handler()), httptest.NewServer(g.admin())
	defer agents.Close()
	defer operators.Close()

	fmt.Fprintf(out, "An agent makes %d calls. During 10 of them search answers 503, during 10 it hangs, then it works again.\n"+
		"Without the guard the SDK tries each call three times; with it, search_backup can stand in for search.\n\n", len(script()))
	without, err := play(ctx, u, pace, direct(u.URL, timeout))
	if err != nil {
		return err
	}
	with, err := play(ctx, u, pace, through(agents.URL))
	if err != nil {
		return err
	}
	printTallies(out, without, with, price)
	explain(out, without.mails, with)
	if err := judge(without, with); err != nil {
		return err
	}
	return operatorStory(ctx, out, agents.URL, operators.URL)
}

func printTallies(out io.Writer, without, with tally, price float64) {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(name string, of func(tally) any) {
		fmt.Fprintf(table, "%-44s\t%v\t%v\t\n", name, of(without), of(with))
	}
	fmt.Fprintf(table, "%-44s\twithout guard\twith guard\t\n", "")
	row("calls that were answered", func(t tally) any { return fmt.Sprintf("%d of %d", t.answered, t.calls) })
	row("time that the agent waited", func(t tally) any { return t.waited.Round(time.Millisecond) })
	row("requests to tools", func(t tally) any { return t.requests })
	row("requests to a tool that was down", func(t tally) any { return t.wasted })
	row("mails that went out, for one that was asked", func(t tally) any { return t.mails })
	row(fmt.Sprintf("cost at $%.3f a request", price), func(t tally) any { return fmt.Sprintf("$%.2f", price*float64(t.requests)) })
	_ = table.Flush()
}

// explain says what made the difference and why some calls had no answer. mails is the
// number of mails that went out without a guard.
func explain(out io.Writer, mails int64, with tally) {
	fmt.Fprintf(out, "\nsearch_backup answered %d calls, until a probe of search succeeded. These had no answer:\n", with.rescued)
	for _, reason := range slices.Sorted(maps.Keys(with.reasons)) {
		fmt.Fprintf(out, "%5d  %s\n", with.reasons[reason], reason)
	}
	fmt.Fprintf(out, "The first lacked its argument, the last named a tool that does not exist. Between them is the mail:\n"+
		"it was sent and the confirmation was lost. Without a guard it went out %d times. The guard did not repeat\n"+
		"it, because it has side effects, and told the model that it may have gone out.\n", mails)
}

// substitutes returns the substitutes of the tools at the start.
func substitutes() map[string][]string { return map[string][]string{"search": {"search_backup"}} }

// judge returns an error for each expected result that the two runs did not show.
func judge(without, with tally) error {
	var wrong []error
	expect := func(ok bool, text string, a ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(text, a...))
		}
	}
	expect(with.answered == with.calls-3, "%d of %d calls were answered with the guard, want all but 3", with.answered, with.calls)
	expect(with.answered > without.answered, "%d calls were answered with the guard and %d without", with.answered, without.answered)
	expect(with.rescued > 0, "no substitute answered")
	expect(with.wasted*3 <= without.wasted, "the guard let %d requests through to a tool that was down, of %d without it", with.wasted, without.wasted)
	expect(with.waited < without.waited, "the agent waited %v with the guard and %v without", with.waited, without.waited)
	expect(with.mails == 1, "%d mails went out, want 1", with.mails)
	expect(without.mails == 3, "%d mails went out without a guard, want 3", without.mails)
	expect(with.lastServed == "search", "search did not come back")
	for _, reason := range []toolhealth.StopReason{
		toolhealth.StopNonRetryable, toolhealth.StopUnknownTool, toolhealth.StopOutcomeUnknown,
	} {
		expect(with.reasons[reason.String()] > 0, "no call ended with %s", reason)
	}
	return errors.Join(wrong...)
}

// operatorStory shows what an operator can do with a failing tool, and the effect on
// the agent's calls.
func operatorStory(ctx context.Context, out io.Writer, agents, operators string) error {
	operator := operator(operators)
	if err := operator.showFigures(ctx, out); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nAn operator takes over:")
	for _, s := range steps {
		status, text, err := operator.ask(ctx, s.method, s.path, s.body)
		if err != nil {
			return err
		}
		served, reason, err := through(agents)(ctx, "search", "news")
		if err != nil {
			return err
		}
		answer := "served by " + served
		if reason != "" {
			answer = reason
		}
		fmt.Fprintf(out, "%5s %-22s %-65s %d; a call of search: %s\n", s.method, s.path, s.body, status, answer)
		if text != "" {
			fmt.Fprintf(out, "      %s\n", text)
		}
		if status != s.status || served != s.served || reason != s.reason {
			return fmt.Errorf("after %s %s: status %d, served by %q, reason %q; want %d, %q, %q",
				s.method, s.path, status, served, reason, s.status, s.served, s.reason)
		}
	}
	fmt.Fprintln(out, "\nAs expected: every call that can have an answer got one, few requests met the tool that was down, one mail went out,\nsearch came back, and the operator was obeyed.")
	return nil
}

// steps are what the operator does in the story, in order.
var steps = []struct {
	method, path, body string
	status             int
	served, reason     string // result of a call of search after that
}{
	{
		method: "POST", path: "/tools/search/isolate",
		status: 204, served: "search_backup",
	},
	{
		method: "PUT", path: "/routes", body: `{}`,
		status: 204, reason: "tool_unavailable:isolated",
	},
	{
		method: "PUT", path: "/routes", body: `{"search": ["search_backup"]}`,
		status: 204, served: "search_backup",
	},
	{
		method: "PUT", path: "/config", body: `{"breaker": {"failure_threshold": 5, "recovery_duration": "1m"}}`,
		status: 204, served: "search_backup",
	},
	{
		method: "PUT", path: "/config", body: `{"breaker": {"failure_threshold": -1}}`,
		status: 400, served: "search_backup",
	},
	{
		method: "POST", path: "/tools/search/reset",
		status: 204, served: "search",
	},
}

// operator is a client of the operators' address.
type operator string

// ask makes one request and returns the status and the text of the answer.
func (o operator) ask(ctx context.Context, method, path, body string) (status int, text string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, string(o)+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, strings.TrimSpace(string(answer)), err
}

// showFigures prints the figures of each tool that was called.
func (o operator) showFigures(ctx context.Context, out io.Writer) error {
	status, text, err := o.ask(ctx, "GET", "/health", "")
	if err != nil {
		return err
	}
	var summary toolhealth.Summary
	if err := json.Unmarshal([]byte(text), &summary); err != nil {
		return fmt.Errorf("status %d: %w", status, err)
	}
	fmt.Fprintln(out, "\nThe figures to watch, from GET /health:")
	for _, h := range summary.Tools {
		if calls := float64(h.Guard.Calls); calls > 0 {
			fmt.Fprintf(out, "%8s  tool_error_rate %.2f  retry_attempts_per_call %.2f  fallbacks %d  trips %d\n",
				h.Tool, float64(h.Guard.Failed)/calls, float64(h.Guard.Retries)/calls, h.Guard.Fallbacks, h.Trips)
		}
	}
	return nil
}
