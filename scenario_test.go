package toolhealth_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// scenarioFolder holds the scenarios that come with the library.
const scenarioFolder = "testdata/scenarios"

// TestScenarios plays every scenario of testdata/scenarios, and those of the
// folder that TOOLHEALTH_SCENARIOS names.
func TestScenarios(t *testing.T) {
	folders := []string{scenarioFolder}
	if own := os.Getenv("TOOLHEALTH_SCENARIOS"); own != "" {
		folders = append(folders, own)
	}
	for _, folder := range folders {
		files, err := scenarioFiles(folder)
		require.NoError(t, err)
		require.NotEmpty(t, files, "no scenario in %s", folder)
		for _, file := range files {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".scenario"), func(t *testing.T) {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				s, err := parseScenario(file, text)
				require.NoError(t, err)
				require.NoError(t, playInBubble(t, s, false))
				require.NoError(t, playInBubble(t, s, true), "observed")
			})
		}
	}
}

func scenarioFiles(folder string) (files []string, err error) {
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".scenario" {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// playInBubble plays a scenario in virtual time, perhaps with an observer: without
// one, a guarded call that is let in at once takes a shorter way.
func playInBubble(t *testing.T, s *scenario, observed bool) (err error) {
	synctest.Test(t, func(*testing.T) {
		err = s.play(observed)
		time.Sleep(100 * 365 * 24 * time.Hour) // until every detached call has ended
	})
	return err
}

// stage is where one scenario is played.
type stage struct {
	start    time.Time
	observed bool
	registry *toolhealth.Registry
	gate     *toolhealth.Gate // without the router
	guard    *toolhealth.Guard
	router   *toolhealth.HealthRouter
	permits  map[string]*toolhealth.Permit

	mu     sync.Mutex
	events map[string][]string // by tool, since the last look
}

// play runs the scenario and returns the first wrong answer. It must be called
// inside a bubble.
func (s *scenario) play(observed bool) error {
	st := &stage{
		observed: observed,
		start:    time.Now(),
		permits:  make(map[string]*toolhealth.Permit),
		events:   make(map[string][]string),
	}
	setup := 0
	for setup < len(s.steps) && isSetup(s.steps[setup].verb) {
		setup++
	}
	if line, err := st.setUp(s.steps[:setup]); err != nil {
		return fmt.Errorf("%s:%d: setting up: %w", s.file, line, err)
	}
	for i := range s.steps[setup:] {
		step := &s.steps[setup+i]
		if err := st.do(step); err != nil {
			return fmt.Errorf("%s:%d: at %v: %s: %w", s.file, step.line, st.now(), step.text, err)
		}
	}
	return nil
}

func isSetup(verb string) bool {
	for _, v := range setupVerbs {
		if v == verb {
			return true
		}
	}
	return false
}

func (st *stage) now() time.Duration { return time.Since(st.start) }

// setUp makes the registry and what stands around it. The order of the lines
// does not matter. It returns the line that is to blame.
func (st *stage) setUp(steps []scenarioStep) (line int, err error) {
	line = 1
	config, guarded := toolhealth.DefaultConfig(), toolhealth.DefaultGuardConfig()
	substitutes := make(map[string][]string)
	for _, step := range steps {
		switch line = step.line; step.verb {
		case "config":
			applyConfig(&config, step.set)
		case "fallback":
			substitutes[step.tool] = append(substitutes[step.tool], step.names...)
		case "guard":
			applyGuard(&guarded, step.set)
		}
	}
	if st.registry, err = toolhealth.NewRegistryWithConfig(config); err != nil {
		return line, err
	}
	st.registry.OnTransition(func(t toolhealth.Transition) {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.events[t.Tool] = append(st.events[t.Tool], t.From.String()+">"+t.To.String())
	})
	if st.router, err = toolhealth.NewHealthRouter(substitutes); err != nil {
		return line, err
	}
	st.gate = &toolhealth.Gate{Registry: st.registry}
	guarded.Tools = make(map[string]toolhealth.Policy)
	for _, step := range steps {
		if step.verb != "tool" {
			continue
		}
		if err = st.register(step, config.Breaker, guarded); err != nil {
			return step.line, err
		}
	}
	if st.observed {
		guarded.Observe = func(context.Context, toolhealth.Event) {}
	}
	st.guard, err = toolhealth.NewGuard(&toolhealth.Gate{Registry: st.registry, Router: st.router}, guarded)
	return line, err
}

// register makes a tool known, with the values of its own that the step gives.
func (st *stage) register(step scenarioStep, breaker toolhealth.BreakerConfig, guarded toolhealth.GuardConfig) error {
	policy, own := guarded.Default, false
	for _, pair := range step.set {
		if applyBreaker(&breaker, pair) {
			own = true
		} else {
			applyPolicy(&policy, pair)
		}
	}
	guarded.Tools[step.tool] = policy
	if own {
		return st.registry.Register(step.tool, breaker)
	}
	return st.registry.Register(step.tool)
}

func applyGuard(c *toolhealth.GuardConfig, pairs []keyValue) {
	for _, pair := range pairs {
		if pair.key == "deadline_floor" {
			c.DeadlineFloor = pair.value.(time.Duration)
		} else {
			applyPolicy(&c.Default, pair)
		}
	}
}

func applyPolicy(c *toolhealth.Policy, pair keyValue) {
	switch pair.key {
	case "max_attempts":
		c.MaxAttempts = pair.value.(int)
	case "timeout":
		c.Timeout = pair.value.(time.Duration)
	case "backoff_base":
		c.BackoffBase = pair.value.(time.Duration)
	case "backoff_max":
		c.BackoffMax = pair.value.(time.Duration)
	case "jitter":
		c.Jitter = pair.value.(float64)
	case "max_wait":
		c.MaxWait = pair.value.(time.Duration)
	case "budget":
		c.RetryBudget = pair.value.(int)
	case "side_effects":
		c.SideEffects = pair.value.(bool)
	case "detach":
		c.Detach = pair.value.(bool)
	}
}

// applyBreaker puts one value into c and reports whether c has such a field.
func applyBreaker(c *toolhealth.BreakerConfig, pair keyValue) bool {
	switch pair.key {
	case "failure_threshold":
		c.FailureThreshold = pair.value.(int)
	case "recovery_duration":
		c.RecoveryDuration = pair.value.(time.Duration)
	case "probe_timeout":
		c.ProbeTimeout = pair.value.(time.Duration)
	case "max_open_duration":
		c.MaxOpenDuration = pair.value.(time.Duration)
	case "recovery_growth":
		c.RecoveryGrowth = pair.value.(float64)
	case "recovery_jitter":
		c.RecoveryJitter = pair.value.(float64)
	case "probe_successes":
		c.ProbeSuccesses = pair.value.(int)
	case "slow_call_duration":
		c.SlowCallDuration = pair.value.(time.Duration)
	case "trip_score":
		c.TripScore = pair.value.(float64)
	case "trip_min_calls":
		c.TripMinCalls = pair.value.(int)
	default:
		return false
	}
	return true
}

func applyConfig(c *toolhealth.Config, pairs []keyValue) {
	for _, pair := range pairs {
		switch pair.key {
		case "max_tools":
			c.MaxTools = pair.value.(int)
		case "registered_only":
			c.RegisteredOnly = pair.value.(bool)
		default:
			applyBreaker(&c.Breaker, pair)
		}
	}
}

// do plays one step.
func (st *stage) do(step *scenarioStep) error {
	switch step.verb {
	case "at":
		wait := step.moment - st.now()
		if wait < 0 {
			return fmt.Errorf("time goes back: it is %v already", st.now())
		}
		time.Sleep(wait)
	case "advance":
		time.Sleep(step.moment)
	case "allow":
		if step.repeat > 0 {
			return st.allowMany(step)
		}
		return st.allow(step)
	case "done", "release", "keepalive":
		return st.settle(step)
	case "ask":
		return st.compare(step, fmt.Sprint(st.registry.AllowRequest(step.tool)), nil)
	case "available":
		return st.compare(step, fmt.Sprint(st.registry.Available(step.tool)), nil)
	case "record":
		for range max(step.repeat, 1) {
			if step.outcome == toolhealth.OutcomeSuccess {
				st.registry.RecordSuccess(step.tool, step.moment)
			} else {
				st.registry.RecordFailure(step.tool, step.moment)
			}
		}
	case "resolve":
		name, available := st.router.Resolve(step.tool, st.registry)
		word := "unavailable"
		if available {
			word = "available"
		}
		return st.compare(step, name+" "+word, nil)
	case "health":
		return st.health(step)
	case "summary":
		return st.summary(step)
	case "isolate":
		st.registry.Isolate(step.tool)
	case "reset":
		st.registry.Reset(step.tool)
	case "remove":
		st.registry.Remove(step.tool)
	case "reconfigure":
		return st.reconfigure(step)
	case "transitions":
		return st.transitions(step)
	case "call":
		return st.call(step)
	default:
		return fmt.Errorf("the verb %s is read and not played", step.verb)
	}
	return nil
}

// compare holds what came against what the step expects: the words, and then
// each key that it names. A step without an arrow expects nothing.
func (st *stage) compare(step *scenarioStep, answer string, came map[string]any) error {
	if !step.expects {
		return nil
	}
	if want := strings.TrimSpace(step.answer + " " + step.detail); want != answer {
		return fmt.Errorf("expected %s, came %s%s", want, answer, describe(came))
	}
	for _, want := range step.want {
		if got := came[want.key]; !sameValue(want.value, got) {
			return fmt.Errorf("expected %s=%v, came %s=%v", want.key, want.value, want.key, got)
		}
	}
	return nil
}

// describe says more of an answer of another kind than expected.
func describe(came map[string]any) string {
	var b strings.Builder
	for _, key := range []string{"retry_after", "kind", "ran"} {
		if v, ok := came[key]; ok {
			fmt.Fprintf(&b, " %s=%v", key, v)
		}
	}
	return b.String()
}

// sameValue compares fractions within 1e-6 and all else exactly.
func sameValue(want, got any) bool {
	if f, ok := want.(float64); ok {
		g, ok := got.(float64)
		return ok && math.Abs(f-g) <= 1e-6
	}
	return want == got
}

func (st *stage) allow(step *scenarioStep) error {
	permit, err := st.gate.Allow(context.Background(), step.tool)
	if step.id != "" {
		delete(st.permits, step.id)
	}
	if err != nil {
		refusal, ok := errors.AsType[*toolhealth.Refusal](err)
		if !ok {
			return fmt.Errorf("an error that is no refusal: %w", err)
		}
		return st.compare(step, "refused "+refusal.Reason.Detail(), map[string]any{"retry_after": refusal.RetryAfter})
	}
	if step.id != "" {
		st.permits[step.id] = &permit
	}
	answer := "admitted"
	switch {
	case !permit.Tracked():
		answer = "untracked"
	case permit.Probe():
		answer = "probe"
	}
	return st.compare(step, answer, nil)
}

// allowMany asks from many goroutines at once. Their permits stay out.
func (st *stage) allowMany(step *scenarioStep) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	counts := map[string]uint64{}
	begin := make(chan struct{})
	for range step.repeat {
		wg.Go(func() {
			<-begin
			permit, err := st.gate.Allow(context.Background(), step.tool)
			answer := "admitted"
			switch {
			case err != nil:
				answer = "refused"
			case permit.Probe():
				answer = "probe"
			}
			mu.Lock()
			defer mu.Unlock()
			counts[answer]++
		})
	}
	close(begin)
	wg.Wait()
	if !step.expects {
		return nil
	}
	for key := range countKeys { // an absent key means 0
		want, _ := valueOf[uint64](step.want, key)
		if counts[key] != want {
			return fmt.Errorf("expected %s=%d, came %s=%d of %v", key, want, key, counts[key], counts)
		}
	}
	return nil
}

// usualKinds are what an outcome has for a kind where the scenario names none.
var usualKinds = map[toolhealth.Outcome]toolhealth.Kind{
	toolhealth.OutcomeFailure:   toolhealth.KindUnknown,
	toolhealth.OutcomeRejected:  toolhealth.KindInvalidRequest,
	toolhealth.OutcomeThrottled: toolhealth.KindRateLimited,
	toolhealth.OutcomeNeutral:   toolhealth.KindCanceled,
}

func (st *stage) settle(step *scenarioStep) error {
	permit := st.permits[step.id]
	if permit == nil {
		return fmt.Errorf("%s was not admitted", step.id)
	}
	switch step.verb {
	case "release":
		permit.Release()
		return nil
	case "keepalive":
		permit.KeepAlive()
		return nil
	}
	verdict := toolhealth.Verdict{Outcome: step.outcome, Kind: usualKinds[step.outcome]}
	verdict.RetryAfter, _ = valueOf[time.Duration](step.set, "retry_after")
	if kind, ok := valueOf[string](step.set, "kind"); ok {
		if err := verdict.Kind.UnmarshalText([]byte(kind)); err != nil {
			return err
		}
	}
	permit.Settle(verdict)
	return nil
}

func (st *stage) health(step *scenarioStep) error {
	h, known := st.registry.Health(step.tool)
	if !known {
		return st.compare(step, "unknown", nil)
	}
	return st.compare(step, "", map[string]any{
		"state": h.State.String(), "status": h.Status.String(), "available": h.Available,
		"probe_due": h.ProbeDue, "retry_after": h.RetryAfter, "reason": h.Reason.Detail(),
		"score": h.Score, "ewma": h.EWMA, "success_rate": h.SuccessRate(),
		"calls": h.TotalCalls(), "successes": h.Successes, "failures": h.Failures,
		"rejected": h.Rejected, "throttled": h.Throttled, "neutral": h.Neutral, "refused": h.Refused,
		"consecutive_failures": uint64(h.ConsecutiveFailures), "trips": h.Trips,
		"average": h.Average, "average_success": h.AverageSuccess, "max": h.Max,
	})
}

func (st *stage) summary(step *scenarioStep) error {
	s := st.registry.HealthSummary()
	return st.compare(step, "", map[string]any{
		"overall": s.Overall.String(), "tools": uint64(len(s.Tools)),
		"unavailable": uint64(s.Unavailable), "untracked": s.Untracked,
	})
}

func (st *stage) reconfigure(step *scenarioStep) error {
	config := st.registry.Config()
	applyConfig(&config, step.set)
	err := st.registry.SetConfig(config)
	switch wanted := step.expects; {
	case wanted && err == nil:
		return errors.New("expected error, came none")
	case !wanted && err != nil:
		return fmt.Errorf("expected no error, came %w", err)
	}
	return nil
}

func (st *stage) transitions(step *scenarioStep) error {
	st.mu.Lock()
	events := st.events[step.tool]
	delete(st.events, step.tool)
	st.mu.Unlock()
	if len(events) == 0 {
		events = []string{"none"}
	}
	return st.compare(step, strings.Join(events, " "), nil)
}

// performance is one guarded call with its scripted tools.
type performance struct {
	script map[string][]scriptedReply
	cancel context.CancelFunc // the caller's

	mu  sync.Mutex // a detached run may outlive the call
	ran []string
}

func (st *stage) call(step *scenarioStep) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if deadline, ok := valueOf[time.Duration](step.set, "deadline"); ok {
		ctx, cancel = context.WithTimeout(ctx, deadline)
		defer cancel()
	}
	if step.noFallback {
		ctx = toolhealth.WithoutFallback(ctx)
	}
	ctx, info := toolhealth.WithCallInfo(ctx)
	p := &performance{script: step.script, cancel: cancel}
	began := st.now()
	_, err := toolhealth.Call(ctx, st.guard, step.tool, p.run, toolhealth.CheckResult(checkReply))
	came := map[string]any{
		"elapsed": st.now() - began, "served": info.Served, "partial": info.Partial,
		"kind": "none", "retry_after": time.Duration(0),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	came["attempts"], came["ran"] = uint64(len(p.ran)), strings.Join(p.ran, ",")
	for _, tool := range p.ran {
		if p.script[tool] == nil {
			return fmt.Errorf("%s ran and has no script", tool)
		}
	}
	if err == nil {
		return st.compare(step, "ok", came)
	}
	failure, ok := errors.AsType[*toolhealth.ToolError](err)
	if !ok {
		return fmt.Errorf("an error that is no *ToolError: %w", err)
	}
	came["kind"], came["retry_after"] = failure.Kind.String(), failure.RetryAfter
	return st.compare(step, failure.Reason.String(), came)
}

const (
	goodReply = "an answer"
	softReply = "sorry, something went wrong"
)

func checkReply(reply string) error {
	if reply == softReply {
		return errors.New("the result says that it is an error")
	}
	return nil
}

// statusError is an error as HTTP clients have it.
type statusError struct {
	StatusCode int
	Header     http.Header
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d", e.StatusCode) }

// run plays a tool: the next reply of its script, the last one for ever. A reply that
// takes a while ends early if its ctx does; only stuck ignores that.
func (p *performance) run(ctx context.Context, tool string) (string, error) {
	p.mu.Lock()
	turn := 0
	for _, name := range p.ran {
		if name == tool {
			turn++
		}
	}
	p.ran = append(p.ran, tool)
	p.mu.Unlock()
	replies := p.script[tool]
	if len(replies) == 0 {
		return "", errors.New("no script")
	}
	reply := replies[min(turn, len(replies)-1)]
	if reply.word == "stuck" {
		time.Sleep(reply.takes)
	} else if reply.takes > 0 {
		select {
		case <-time.After(reply.takes):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	switch reply.word {
	case "ok":
		return goodReply, nil
	case "soft":
		return softReply, nil
	case "http":
		e := &statusError{StatusCode: reply.status, Header: http.Header{}}
		if reply.stated {
			e.Header.Set("Retry-After", strconv.FormatFloat(reply.after.Seconds(), 'f', -1, 64))
		}
		return "", e
	case "refused":
		return "", &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	case "reset":
		return "", &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	case "rejected":
		return "", toolhealth.WithVerdict(errors.New("invalid arguments"),
			toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest})
	case "timeout":
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(24 * time.Hour):
			return "", errors.New("nothing would ever end this call")
		}
	case "stuck":
		time.Sleep(time.Hour)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
	case "panic":
		panic("a scripted panic")
	case "cancel":
		p.cancel()
		return "", ctx.Err()
	}
	return "", errors.New("a plain error")
}

// playText plays a scenario that is written in a test.
func playText(t *testing.T, lines ...string) error {
	t.Helper()
	s, err := parseScenario("told", []byte(strings.Join(lines, "\n")))
	require.NoError(t, err)
	return playInBubble(t, s, false)
}

func TestTheFirstWrongAnswerOfAScenarioIsReportedWithItsPlace(t *testing.T) {
	trip := "record t failure 10ms x3"
	for _, test := range []struct{ line, says string }{
		{"allow t -> admitted", "expected admitted, came refused circuit_open retry_after=30s"},
		{"allow t -> refused isolated", "expected refused isolated, came refused circuit_open"},
		{"allow t -> refused circuit_open retry_after=29s", "expected retry_after=29s, came retry_after=30s"},
		{"allow u -> probe", "expected probe, came admitted"},
		{"allow u -> untracked", "expected untracked, came admitted"},
		{"allow u -> refused circuit_open", "expected refused circuit_open, came admitted"},
		{"allow t x5 -> refused=4", "expected refused=4, came refused=5"},
		{"allow u x5 -> probe=1 admitted=4", "came"},
		{"allow u x5 -> refused=0", "expected admitted=0, came admitted=5"},
		{"ask t -> true", "expected true, came false"},
		{"available u -> false", "expected false, came true"},
		{"resolve t -> t available", "expected t available, came t unavailable"},
		{"resolve u -> t available", "expected t available, came u available"},
		{"health t -> unknown", "expected unknown, came "},
		{"health u -> calls=0", "came unknown"},
		{"health t -> state=open calls=4", "expected calls=4, came calls=3"},
		{"health t -> state=closed", "expected state=closed, came state=open"},
		{"health t -> ewma=0.343002", "expected ewma=0.343002, came ewma=0.343"},
		{"health t -> ewma=NaN", "expected ewma=NaN"},
		{"health t -> available=true", "expected available=true, came available=false"},
		{"health t -> average=11ms", "expected average=11ms, came average=10ms"},
		{"summary -> tools=2", "expected tools=2, came tools=1"},
		{"summary -> overall=healthy", "expected overall=healthy, came overall=unhealthy"},
		{"transitions t -> none", "expected none, came closed>open"},
		{"transitions t -> closed>open open>half-open", "came closed>open"},
		{"transitions u -> closed>open", "expected closed>open, came none"},
		{"reconfigure failure_threshold=5 -> error", "expected error, came none"},
		{"reconfigure failure_threshold=-1", "expected no error, came"},
		{"call t : t=ok -> ok", "expected ok, came tool_unavailable:circuit_open retry_after=30s"},
		{"call u : u=ok -> tool_failure:non_retryable", "expected tool_failure:non_retryable, came ok"},
		{"call u : u=ok -> ok attempts=2", "expected attempts=2, came attempts=1"},
		{"call u : u=http404 -> tool_failure:non_retryable kind=conflict", "expected kind=conflict, came kind=not_found"},
		{"call u : u=ok/3s -> ok elapsed=2s", "expected elapsed=2s, came elapsed=3s"},
		{"call u : t=ok -> ok", "u ran and has no script"},
	} {
		err := playText(t, trip, "health t -> state=open", test.line, "ask t")
		if assert.Error(t, err, test.line) {
			assert.Regexp(t, "^told:3: at [03]s: "+regexp.QuoteMeta(test.line)+": ", err.Error())
			assert.Contains(t, err.Error(), test.says)
		}
	}
}

func TestTheExampleOfTheNotationIsRight(t *testing.T) {
	assert.NoError(t, playText(t, `
		config failure_threshold=1
		record search failure 10ms
		available search -> false
		at 30s
		available search -> true
		allow search as p1 -> probe
		allow search -> refused probe_in_flight retry_after=1m0s
		at 60s
		health search -> state=open available=false retry_after=30s
		done p1 success
		health search -> state=open
		at 90s
		allow search as p2 -> probe
		done p2 success
		transitions search -> closed>open open>half-open half-open>open open>half-open half-open>closed`))
}

func TestAScenarioCannotSettleWhatWasRefused(t *testing.T) {
	err := playText(t, "record t failure 1ms x3", "allow t as p", "done p success")
	assert.ErrorContains(t, err, "told:3: at 0s: done p success: p was not admitted")
}

func TestAScenarioThatCannotBeSetUpSaysWhere(t *testing.T) {
	for place, lines := range map[string][]string{
		"told:1: setting up: ": {"config failure_threshold=-1"},
		"told:2: setting up: ": {"config failure_threshold=1", "fallback t t"},
		"told:3: setting up: ": {"config max_tools=1", "tool t", "tool u"},
	} {
		assert.ErrorContains(t, playText(t, append(lines, "ask t -> true")...), place)
	}
}

func TestAScenarioMovesVirtualTimeOnly(t *testing.T) {
	began := time.Now()
	assert.NoError(t, playText(t, "record t failure 0s x3", "at 29s", "available t -> false",
		"advance 1s", "available t -> true", "at 1000h", "allow t -> probe"))
	assert.Less(t, time.Since(began), 10*time.Second)
}

func TestEveryScenarioOfOursTellsItsPointAndChecksSomething(t *testing.T) {
	files, err := scenarioFiles(scenarioFolder)
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(string(text), "# "), "%s must begin with a comment", file)
		s, err := parseScenario(file, text)
		require.NoError(t, err)
		checks := 0
		for _, step := range s.steps {
			if step.expects {
				checks++
			}
		}
		assert.Positive(t, checks, "%s expects nothing", file)
	}
}
