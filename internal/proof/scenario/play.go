package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolhealth/toolhealth"
)

// stage is the state of a scenario that is being played.
type stage struct {
	start    time.Time
	observed bool
	host     *toolhealth.Guard // its settings are those of config and reconfigure
	registry *toolhealth.Registry
	gate     *toolhealth.Gate  // gate without the router
	guard    *toolhealth.Guard // on the same registry, with a router, which may have a circle
	router   *toolhealth.HealthRouter
	permits  map[string]*toolhealth.Permit
	tools    []Step // that register tools
	own      map[string]toolhealth.ToolSettings

	mu     sync.Mutex
	events map[string][]string // events by tool, since its last transitions line
}

// Play runs the scenario against a new registry and a new guard, with an observer of
// guarded calls or without one, and returns the first wrong answer, as an error that
// begins with "file:line: ". It must be called inside a testing/synctest bubble, and
// advances the bubble's time only. An abandoned call may outlive Play by an hour.
func (s *Scenario) Play(observed bool) error {
	st := &stage{
		observed: observed,
		start:    time.Now(),
		permits:  make(map[string]*toolhealth.Permit),
		events:   make(map[string][]string),
	}
	setup := 0
	for setup < len(s.Steps) && slices.Contains(setupVerbs, s.Steps[setup].verb) {
		setup++
	}
	if line, err := st.setUp(s.Steps[:setup]); err != nil {
		return fmt.Errorf("%s:%d: setting up: %w", s.File, line, err)
	}
	for i := range s.Steps[setup:] {
		step := &s.Steps[setup+i]
		if err := st.do(step); err != nil {
			return fmt.Errorf("%s:%d: at %v: %s: %w", s.File, step.Line, st.now(), step.Text, err)
		}
	}
	return nil
}

func (st *stage) now() time.Duration { return time.Since(st.start) }

// setUp makes the registry, the router and the guard. The order of the lines does not
// matter. An error comes with the line that caused it, or with the last one.
func (st *stage) setUp(steps []Step) (line int, err error) {
	line = 1
	settings := usualSettings()
	substitutes := make(map[string][]string)
	for _, step := range steps {
		switch line = step.Line; step.verb {
		case "config":
			err = configureRegistry(&settings, step.set)
		case "fallback":
			substitutes[step.tool] = append(substitutes[step.tool], step.names...)
		case "guard":
			err = configureGuard(&settings, step.set)
		case "group":
			err = configureGroups(&settings, step.set)
		}
		if err != nil {
			return line, err
		}
	}
	if st.router, err = toolhealth.NewHealthRouter(substitutes); err != nil {
		return line, err
	}
	for _, step := range steps {
		if step.verb != "tool" {
			continue
		}
		st.tools = append(st.tools, step)
		if err = configureTool(&settings, step.tool, step.set); err != nil {
			return step.Line, err
		}
	}
	return st.open(settings)
}

// open makes the registry and what is on top of it, as a process does that starts. An
// error comes with the line of the tool that caused it, or with 1.
func (st *stage) open(settings toolhealth.Settings) (line int, err error) {
	own := settings.Tools
	settings.Tools = nil // tools are known when they have been registered
	if st.host, err = toolhealth.New(settings); err != nil {
		return 1, err
	}
	settings.Tools = own
	st.registry = st.host.Registry()
	st.registry.OnTransition(func(t toolhealth.Transition) {
		st.mu.Lock()
		defer st.mu.Unlock()
		name := t.Tool + t.Group // one of them is empty
		st.events[name] = append(st.events[name], t.From.String()+">"+t.To.String())
	})
	st.gate = &toolhealth.Gate{Registry: st.registry}
	for _, step := range st.tools {
		if err = st.registry.Register(step.tool, toolhealth.ToolOptions{Breaker: own[step.tool].Breaker}); err != nil {
			return step.Line, err
		}
	}
	st.own = own
	st.guard, err = st.newGuard(settings)
	return 1, err
}

// restart ends the process and starts it again, with what a checkpoint has kept.
func (st *stage) restart(step *Step) error {
	var kept bytes.Buffer
	if err := st.registry.Checkpoint(&kept); err != nil {
		return err
	}
	settings := st.host.Settings()
	settings.Tools = st.own
	time.Sleep(step.moment)
	if _, err := st.open(settings); err != nil {
		return err
	}
	_, err := st.registry.Restore(&kept)
	return err
}

// newGuard returns a guard with the policies of the settings and the router of the
// stage.
func (st *stage) newGuard(settings toolhealth.Settings) (*toolhealth.Guard, error) {
	config := toolhealth.GuardConfig{Default: settings.Policy, Tools: make(map[string]toolhealth.Policy)}
	for tool, own := range settings.Tools {
		if own.Policy != nil {
			config.Tools[tool] = *own.Policy
		}
	}
	if st.observed {
		config.Observe = func(context.Context, toolhealth.Event) {}
	}
	gate := &toolhealth.Gate{Registry: st.registry, Router: st.router, DeadlineFloor: settings.DeadlineFloor}
	return toolhealth.NewGuard(gate, config)
}

// do plays one step.
func (st *stage) do(step *Step) error {
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
			st.record(step)
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
	case "group":
		return st.group(step)
	case "hint":
		return st.compare(step, fmt.Sprint(st.registry.Hint(step.tool, step.hint, step.moment)), nil)
	case "restart":
		return st.restart(step)
	case "isolate", "reset", "isolate_group", "reset_group":
		return st.operate(step)
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

// record reports one outcome by name.
func (st *stage) record(step *Step) {
	wait, stated := valueOf[time.Duration](step.set, "retry_after")
	switch {
	case step.outcome == toolhealth.OutcomeSuccess:
		st.registry.RecordSuccess(step.tool, step.moment)
	case stated:
		v := toolhealth.Verdict{Outcome: step.outcome, Kind: usualKinds[step.outcome], RetryAfter: wait}
		st.registry.Record(step.tool, v, step.moment)
	default:
		st.registry.RecordFailure(step.tool, step.moment)
	}
}

// compare checks the answer's words and then each key that the step names. A step
// without an arrow expects nothing.
func (st *stage) compare(step *Step, answer string, came map[string]any) error {
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

// describe returns the details of an answer whose words were wrong.
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

func (st *stage) allow(step *Step) error {
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

// allowMany asks from many goroutines at once. The permits are never settled.
func (st *stage) allowMany(step *Step) error {
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
	for key := range countKeys { // an absent key means zero
		want, _ := valueOf[uint64](step.want, key)
		if counts[key] != want {
			return fmt.Errorf("expected %s=%d, came %s=%d of %v", key, want, key, counts[key], counts)
		}
	}
	return nil
}

// usualKinds are the kinds of outcomes for which the scenario names none.
var usualKinds = map[toolhealth.Outcome]toolhealth.Kind{
	toolhealth.OutcomeFailure:   toolhealth.KindUnknown,
	toolhealth.OutcomeRejected:  toolhealth.KindInvalidRequest,
	toolhealth.OutcomeThrottled: toolhealth.KindRateLimited,
	toolhealth.OutcomeNeutral:   toolhealth.KindCanceled,
}

func (st *stage) settle(step *Step) error {
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
	verdict.NotSent, _ = valueOf[bool](step.set, "not_sent")
	if kind, ok := valueOf[string](step.set, "kind"); ok {
		if err := verdict.Kind.UnmarshalText([]byte(kind)); err != nil {
			return err
		}
	}
	permit.Settle(verdict)
	return nil
}

func (st *stage) health(step *Step) error {
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
		"would_refuse": h.WouldRefuse, "refused_in_row": h.RefusedInRow, "rejected_in_row": h.RejectedInRow,
		"average": h.Average, "average_success": h.AverageSuccess, "max": h.Max,
		"group": h.Group, "isolated_by": h.IsolatedBy, "down_for": sinceOrZero(h.DownSince), "last_failure": h.LastFailure.String(),
		"refused_rate_limited": h.RefusedByReason[toolhealth.StopRateLimited],
		"refused_circuit_open": h.RefusedByReason[toolhealth.StopCircuitOpen],
	})
}

func sinceOrZero(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Since(t)
}

// group compares the health of one group; without any, a group is as if it were new.
func (st *stage) group(step *Step) error {
	h := toolhealth.GroupHealth{Available: true}
	for _, g := range st.registry.HealthSummary().Groups {
		if g.Group == step.tool {
			h = g
		}
	}
	return st.compare(step, "", map[string]any{
		"state": h.State.String(), "available": h.Available, "reason": h.Reason.Detail(), "retry_after": h.RetryAfter,
		"consecutive_failures": uint64(h.ConsecutiveFailures), "tools": uint64(h.Tools),
	})
}

// operate does what an operator asks for.
func (st *stage) operate(step *Step) error {
	by, _ := valueOf[string](step.set, "by")
	act := map[string]func(name, by string) bool{
		"isolate": st.registry.Isolate, "reset": st.registry.Reset,
		"isolate_group": st.registry.IsolateGroup, "reset_group": st.registry.ResetGroup,
	}[step.verb]
	act(step.tool, by)
	return nil
}

func (st *stage) summary(step *Step) error {
	s := st.registry.HealthSummary()
	return st.compare(step, "", map[string]any{
		"overall": s.Overall.String(), "tools": uint64(len(s.Tools)),
		"unavailable": uint64(s.Unavailable), "untracked": s.Untracked,
	})
}

func (st *stage) reconfigure(step *Step) error {
	settings := st.host.Settings()
	err := configureRegistry(&settings, step.set)
	if err == nil {
		err = st.host.SetSettings(settings)
	}
	switch wanted := step.expects; {
	case wanted && err == nil:
		return errors.New("expected error, came none")
	case !wanted && err != nil:
		return fmt.Errorf("expected no error, came %w", err)
	}
	return nil
}

func (st *stage) transitions(step *Step) error {
	st.mu.Lock()
	events := st.events[step.tool]
	delete(st.events, step.tool)
	st.mu.Unlock()
	if len(events) == 0 {
		events = []string{"none"}
	}
	return st.compare(step, strings.Join(events, " "), nil)
}
