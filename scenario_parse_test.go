package toolhealth_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// A scenario tells one registry's life in plain lines, VERB ARGUMENTS
// [-> EXPECTED], with the right answers beside the questions. This file turns
// the text into steps and knows every rule of the notation; scenario_test.go
// plays the steps.

// scenario is a text that was read without a complaint.
type scenario struct {
	file  string
	steps []scenarioStep
}

// scenarioStep is one line. What a verb does not use is zero.
type scenarioStep struct {
	line    int
	text    string
	verb    string
	tool    string
	id      string   // of a permit
	names   []string // fallback: the substitutes
	repeat  int      // xN; 0 if absent
	moment  time.Duration
	outcome toolhealth.Outcome
	set     []keyValue // KEY=VALUE before the arrow

	noFallback bool                       // call
	script     map[string][]scriptedReply // call

	expects bool   // there is an arrow
	answer  string // the word after it: "true", "refused", "closed>open open>half-open" ...
	detail  string // the word after that: a reason, or "available"
	want    []keyValue
}

// keyValue holds a value of the type that its key has: bool, uint64, int,
// float64, time.Duration or string.
type keyValue struct {
	key   string
	value any
}

func valueOf[T any](pairs []keyValue, key string) (v T, ok bool) {
	for _, p := range pairs {
		if p.key == key {
			return p.value.(T), true
		}
	}
	return v, false
}

// scriptedReply is one RESULT of a call's script.
type scriptedReply struct {
	word   string        // "ok", "http", "stuck" ...
	status int           // http
	after  time.Duration // http: the Retry-After
	stated bool          // http: there is one, if only 0s
	takes  time.Duration
}

// maxRepeat keeps a slip of the pen from becoming a million goroutines.
const maxRepeat = 100_000

type valueReader func(string) (any, error)

func readInt(s string) (any, error)      { return checked(strconv.Atoi(s)) }
func readCount(s string) (any, error)    { return checked(strconv.ParseUint(s, 10, 64)) }
func readFloat(s string) (any, error)    { return checked(strconv.ParseFloat(s, 64)) }
func readDuration(s string) (any, error) { return checked(time.ParseDuration(s)) }
func readName(s string) (any, error)     { return s, nil }
func readList(s string) (any, error)     { return s, nil }

func readBool(s string) (any, error) {
	switch s {
	case "true", "false":
		return s == "true", nil
	}
	return nil, errors.New("must be true or false")
}

func checked[T any](v T, err error) (any, error) { return v, err }

// readText reads one of the library's own texts and keeps it as a text.
func readText[T any, P interface {
	*T
	UnmarshalText([]byte) error
}](s string) (any, error) {
	var v T
	return s, P(&v).UnmarshalText([]byte(s))
}

// refusalReasons are the parts of the stop reasons after the colon.
var refusalReasons = func() (words []string) {
	for r := toolhealth.StopCircuitOpen; r <= toolhealth.StopUnknownTool; r++ {
		words = append(words, r.Detail())
	}
	return words
}()

func readReason(s string) (any, error) {
	if s != "none" && !slices.Contains(refusalReasons, s) {
		return nil, fmt.Errorf("must be none or one of %v", refusalReasons)
	}
	return s, nil
}

var (
	breakerKeys = map[string]valueReader{
		"failure_threshold": readInt, "recovery_duration": readDuration, "probe_timeout": readDuration,
		"max_open_duration": readDuration, "recovery_growth": readFloat, "recovery_jitter": readFloat,
		"probe_successes": readInt, "slow_call_duration": readDuration, "trip_score": readFloat,
		"trip_min_calls": readInt,
	}
	registryKeys = joinKeys(breakerKeys, map[string]valueReader{
		"max_tools": readInt, "registered_only": readBool,
	})
	toolKeys = joinKeys(breakerKeys, map[string]valueReader{
		"max_attempts": readInt, "timeout": readDuration, "side_effects": readBool, "detach": readBool,
	})
	guardKeys = map[string]valueReader{
		"max_attempts": readInt, "timeout": readDuration, "backoff_base": readDuration,
		"backoff_max": readDuration, "jitter": readFloat, "max_wait": readDuration,
		"budget": readInt, "deadline_floor": readDuration,
	}
	doneKeys = map[string]valueReader{
		"kind": readText[toolhealth.Kind], "retry_after": readDuration,
	}
	waitKeys   = map[string]valueReader{"retry_after": readDuration}
	countKeys  = map[string]valueReader{"admitted": readCount, "probe": readCount, "refused": readCount}
	healthKeys = map[string]valueReader{
		"state": readText[toolhealth.State], "status": readText[toolhealth.HealthStatus],
		"available": readBool, "probe_due": readBool, "retry_after": readDuration, "reason": readReason,
		"score": readFloat, "ewma": readFloat, "success_rate": readFloat,
		"calls": readCount, "successes": readCount, "failures": readCount, "rejected": readCount,
		"throttled": readCount, "neutral": readCount, "refused": readCount,
		"consecutive_failures": readCount, "trips": readCount,
		"average": readDuration, "average_success": readDuration, "max": readDuration,
	}
	summaryKeys = map[string]valueReader{
		"overall": readText[toolhealth.HealthStatus], "tools": readCount, "unavailable": readCount,
		"untracked": readCount,
	}
	callKeys   = map[string]valueReader{"deadline": readDuration}
	resultKeys = map[string]valueReader{
		"attempts": readCount, "ran": readList, "served": readName, "kind": readText[toolhealth.Kind],
		"elapsed": readDuration, "retry_after": readDuration, "partial": readBool,
	}
)

func joinKeys(a, b map[string]valueReader) map[string]valueReader {
	joined := maps.Clone(a)
	maps.Copy(joined, b)
	return joined
}

// setupVerbs have to stand before all others.
var setupVerbs = []string{"config", "tool", "fallback", "guard"}

var errUnknownVerb = errors.New("unknown verb")

// readVerb reads the arguments of the step's verb and what is expected.
func (l *lineReader) readVerb() error {
	switch l.step.verb {
	case "config":
		return l.someKeys(registryKeys)
	case "guard":
		return l.someKeys(guardKeys)
	case "tool":
		return l.toolThen(func() error { return l.keys(toolKeys) })
	case "fallback":
		return l.fallback()
	case "at", "advance":
		return l.clock()
	case "allow":
		return l.allow()
	case "done":
		return l.done()
	case "release", "keepalive":
		return l.permit()
	case "ask", "available":
		return l.question()
	case "record":
		return l.record()
	case "resolve":
		return l.resolve()
	case "health":
		return l.health()
	case "summary":
		return l.expectKeys(summaryKeys)
	case "isolate", "reset", "remove":
		return l.toolThen(nil)
	case "reconfigure":
		return l.reconfigure()
	case "transitions":
		return l.transitions()
	case "call":
		return l.call()
	}
	return errUnknownVerb
}

// parseScenario reads a whole scenario, or says what is wrong with the first
// line that is not understood, as file:line. It never panics.
func parseScenario(file string, text []byte) (*scenario, error) {
	s := &scenario{file: file}
	l := &lineReader{permits: map[string]bool{}}
	for i, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		l.start(i+1, words)
		if err := l.read(); err != nil {
			return nil, fmt.Errorf("%s:%d: %q: %w", file, i+1, l.step.text, err)
		}
		s.steps = append(s.steps, l.step)
	}
	if len(s.steps) == 0 {
		return nil, fmt.Errorf("%s:1: no command in the whole scenario", file)
	}
	return s, nil
}

// lineReader reads one line at a time and remembers what earlier ones said.
type lineReader struct {
	step     scenarioStep
	args     []string // before the arrow, not yet used
	expected []string // after the arrow, not yet used

	begun   bool          // a line that is no set-up was seen
	now     time.Duration // no less has passed
	permits map[string]bool
}

func (l *lineReader) start(line int, words []string) {
	l.step = scenarioStep{line: line, text: strings.Join(words, " "), verb: words[0]}
	l.args, l.expected = words[1:], nil
	if i := slices.Index(words, "->"); i > 0 {
		l.args, l.expected = words[1:i], words[i+1:]
		l.step.expects = true
	}
}

func (l *lineReader) read() error {
	verb := l.step.verb
	if !slices.Contains(setupVerbs, verb) {
		l.begun = true
	} else if l.begun {
		return fmt.Errorf("%s must stand before the story begins", verb)
	}
	if l.step.expects && len(l.expected) == 0 {
		return errors.New("nothing after the arrow")
	}
	if err := l.readVerb(); err != nil {
		return err
	}
	if len(l.args) > 0 {
		return fmt.Errorf("unexpected %q (is an arrow missing?)", l.args[0])
	}
	if len(l.expected) > 0 {
		return fmt.Errorf("unexpected %q after the arrow", l.expected[0])
	}
	return nil
}

// take returns the next argument.
func (l *lineReader) take(what string) (string, error) {
	if len(l.args) == 0 {
		return "", fmt.Errorf("%s is missing", what)
	}
	word := l.args[0]
	l.args = l.args[1:]
	return word, nil
}

// takeExpected returns the next word after the arrow.
func (l *lineReader) takeExpected(what string) (string, error) {
	if len(l.expected) == 0 {
		return "", fmt.Errorf("%s is missing after the arrow", what)
	}
	word := l.expected[0]
	l.expected = l.expected[1:]
	return word, nil
}

func (l *lineReader) takeDuration() (time.Duration, error) {
	word, err := l.take("a duration")
	if err != nil {
		return 0, err
	}
	return time.ParseDuration(word)
}

func (l *lineReader) toolThen(rest func() error) (err error) {
	if l.step.tool, err = l.take("the name of a tool"); err != nil || rest == nil {
		return err
	}
	return rest()
}

// keys reads all remaining arguments as KEY=VALUE.
func (l *lineReader) keys(known map[string]valueReader) (err error) {
	l.step.set, err = readPairs(l.args, known)
	l.args = nil
	return err
}

func (l *lineReader) someKeys(known map[string]valueReader) error {
	if len(l.args) == 0 {
		return errors.New("KEY=VALUE is missing")
	}
	return l.keys(known)
}

// expectKeys reads all that is left after the arrow, if there is one.
func (l *lineReader) expectKeys(known map[string]valueReader) (err error) {
	l.step.want, err = readPairs(l.expected, known)
	l.expected = nil
	return err
}

func readPairs(words []string, known map[string]valueReader) (pairs []keyValue, err error) {
	for _, word := range words {
		key, text, found := strings.Cut(word, "=")
		if !found {
			return nil, fmt.Errorf("%q is not KEY=VALUE", word)
		}
		reader := known[key]
		if reader == nil {
			return nil, fmt.Errorf("unknown key %q, known are %v", key, slices.Sorted(maps.Keys(known)))
		}
		if slices.ContainsFunc(pairs, func(p keyValue) bool { return p.key == key }) {
			return nil, fmt.Errorf("key %q twice", key)
		}
		value, err := reader(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", word, err)
		}
		pairs = append(pairs, keyValue{key, value})
	}
	return pairs, nil
}

func (l *lineReader) fallback() error {
	return l.toolThen(func() error {
		if len(l.args) == 0 {
			return errors.New("the name of a substitute is missing")
		}
		l.step.names, l.args = l.args, nil
		return nil
	})
}

func (l *lineReader) clock() error {
	d, err := l.takeDuration()
	switch {
	case err != nil:
		return err
	case d < 0 || l.step.verb == "at" && d < l.now:
		return fmt.Errorf("time goes back: at least %v have passed", l.now)
	case l.step.verb == "at":
		l.now = d
	case d > math.MaxInt64-l.now:
		return errors.New("too far in the future")
	default:
		l.now += d
	}
	l.step.moment = d
	return nil
}

// times reads xN, if that is what comes next.
func (l *lineReader) times() error {
	if len(l.args) == 0 || !strings.HasPrefix(l.args[0], "x") {
		return nil
	}
	n, err := strconv.Atoi(l.args[0][1:])
	if err != nil || n < 1 || n > maxRepeat {
		return fmt.Errorf("%q is not xN with N from 1 to %d", l.args[0], maxRepeat)
	}
	l.step.repeat, l.args = n, l.args[1:]
	return nil
}

func (l *lineReader) allow() error {
	if err := l.toolThen(l.times); err != nil {
		return err
	}
	if l.step.repeat > 0 {
		return l.expectKeys(countKeys)
	}
	if len(l.args) > 0 && l.args[0] == "as" {
		l.args = l.args[1:]
		id, err := l.take("an ID")
		if err != nil {
			return err
		}
		l.step.id, l.permits[id] = id, true
	}
	if !l.step.expects {
		return nil
	}
	word, err := l.takeExpected("an answer")
	if err != nil {
		return err
	}
	l.step.answer = word
	switch word {
	case "admitted", "probe", "untracked":
		return nil
	case "refused":
		reason, err := l.takeExpected("the reason")
		if err != nil {
			return err
		}
		if !slices.Contains(refusalReasons, reason) {
			return fmt.Errorf("unknown reason %q, known are %v", reason, refusalReasons)
		}
		l.step.detail = reason
		return l.expectKeys(waitKeys)
	}
	return fmt.Errorf("unknown answer %q", word)
}

func (l *lineReader) permit() error {
	id, err := l.take("an ID")
	if err != nil {
		return err
	}
	if !l.permits[id] {
		return fmt.Errorf("no permit was called %q", id)
	}
	l.step.id = id
	return nil
}

func (l *lineReader) done() error {
	if err := l.permit(); err != nil {
		return err
	}
	word, err := l.take("an outcome")
	if err != nil {
		return err
	}
	if err := l.step.outcome.UnmarshalText([]byte(word)); err != nil {
		return err
	}
	if err := l.keys(doneKeys); err != nil {
		return err
	}
	if _, stated := valueOf[time.Duration](l.step.set, "retry_after"); !stated && l.step.outcome == toolhealth.OutcomeThrottled {
		return errors.New("throttled needs retry_after=")
	}
	return nil
}

func (l *lineReader) question() error {
	if err := l.toolThen(nil); err != nil || !l.step.expects {
		return err
	}
	word, err := l.takeExpected("true or false")
	if err != nil {
		return err
	}
	l.step.answer = word
	_, err = readBool(word)
	return err
}

func (l *lineReader) record() error {
	return l.toolThen(func() error {
		word, err := l.take("success or failure")
		if err != nil {
			return err
		}
		switch word {
		case "success":
			l.step.outcome = toolhealth.OutcomeSuccess
		case "failure":
			l.step.outcome = toolhealth.OutcomeFailure
		default:
			return fmt.Errorf("%q is neither success nor failure", word)
		}
		if l.step.moment, err = l.takeDuration(); err != nil {
			return err
		}
		return l.times()
	})
}

func (l *lineReader) resolve() error {
	if err := l.toolThen(nil); err != nil || !l.step.expects {
		return err
	}
	var err error
	if l.step.answer, err = l.takeExpected("a name"); err != nil {
		return err
	}
	if l.step.detail, err = l.takeExpected("available or unavailable"); err != nil {
		return err
	}
	if l.step.detail != "available" && l.step.detail != "unavailable" {
		return fmt.Errorf("%q is neither available nor unavailable", l.step.detail)
	}
	return nil
}

func (l *lineReader) health() error {
	if err := l.toolThen(nil); err != nil {
		return err
	}
	if slices.Equal(l.expected, []string{"unknown"}) {
		l.step.answer, l.expected = "unknown", nil
		return nil
	}
	return l.expectKeys(healthKeys)
}

func (l *lineReader) reconfigure() error {
	if err := l.someKeys(registryKeys); err != nil || !l.step.expects {
		return err
	}
	word, err := l.takeExpected("error")
	if err != nil {
		return err
	}
	l.step.answer = word
	if word != "error" {
		return fmt.Errorf("%q is not error", word)
	}
	return nil
}

func (l *lineReader) transitions() error {
	if err := l.toolThen(nil); err != nil {
		return err
	}
	l.step.answer = strings.Join(l.expected, " ")
	words := l.expected
	l.expected = nil
	if slices.Equal(words, []string{"none"}) {
		return nil
	}
	for _, word := range words {
		from, to, found := strings.Cut(word, ">")
		if !found {
			return fmt.Errorf("%q is not STATE>STATE", word)
		}
		for _, state := range []string{from, to} {
			if _, err := readText[toolhealth.State](state); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *lineReader) call() error {
	if err := l.toolThen(nil); err != nil {
		return err
	}
	colon := slices.Index(l.args, ":")
	if colon < 0 {
		return errors.New("a colon and a script are missing")
	}
	options, script := l.args[:colon], l.args[colon+1:]
	if i := slices.Index(options, "no_fallback"); i >= 0 {
		l.step.noFallback = true
		options = slices.Concat(options[:i], options[i+1:])
	}
	l.args = options
	if err := l.keys(callKeys); err != nil {
		return err
	}
	if err := l.readScript(script); err != nil {
		return err
	}
	if !l.step.expects {
		return nil
	}
	var err error
	if l.step.answer, err = l.takeExpected("a result"); err != nil {
		return err
	}
	if l.step.answer != "ok" {
		if _, err := readText[toolhealth.StopReason](l.step.answer); err != nil {
			return err
		}
	}
	return l.expectKeys(resultKeys)
}

func (l *lineReader) readScript(words []string) error {
	if len(words) == 0 {
		return errors.New("the script is missing")
	}
	l.step.script = make(map[string][]scriptedReply)
	for _, word := range words {
		i := strings.LastIndexByte(word, '=')
		if i <= 0 {
			return fmt.Errorf("%q is not TOOL=RESULT,RESULT...", word)
		}
		tool := word[:i]
		if l.step.script[tool] != nil {
			return fmt.Errorf("two scripts for %q", tool)
		}
		for part := range strings.SplitSeq(word[i+1:], ",") {
			reply, err := readReply(part)
			if err != nil {
				return err
			}
			l.step.script[tool] = append(l.step.script[tool], reply)
		}
	}
	return nil
}

// plainReplies are the results without a number in their name.
var plainReplies = []string{
	"ok", "error", "refused", "reset", "rejected", "timeout", "stuck", "panic", "cancel", "soft",
}

func readReply(text string) (r scriptedReply, err error) {
	word, takes, timed := strings.Cut(text, "/")
	if timed {
		if r.takes, err = time.ParseDuration(takes); err != nil {
			return r, err
		}
		if r.takes < 0 {
			return r, fmt.Errorf("%q takes less than no time", text)
		}
	}
	status, isHTTP := strings.CutPrefix(word, "http")
	if !isHTTP {
		if r.word = word; !slices.Contains(plainReplies, word) {
			return r, fmt.Errorf("unknown result %q", text)
		}
		return r, nil
	}
	r.word = "http"
	status, after, stated := strings.Cut(status, "+")
	if r.stated = stated; stated {
		if r.after, err = time.ParseDuration(after); err != nil {
			return r, err
		}
	}
	r.status, err = strconv.Atoi(status)
	if err != nil || r.status < 100 || r.status > 599 {
		return r, fmt.Errorf("%q is no HTTP status", status)
	}
	return r, nil
}

func TestAScenarioIsReadLineByLine(t *testing.T) {
	s, err := parseScenario("s", []byte(`
		# a comment, and an empty line

		config failure_threshold=1 recovery_growth=1.5 registered_only=true
		tool search recovery_duration=1m30s side_effects=true   # at the end of a line
		fallback search web archive
		guard jitter=0 budget=2
		at 30s
		allow search as p1 -> refused circuit_open retry_after=1m0s
		allow search x200 -> probe=1 refused=199
		done p1 throttled retry_after=5s kind=rate_limited
		record search failure -10ms x3
		health search -> state=half-open score=0.5 calls=7 available=false
		transitions search -> closed>open open>half-open
		call search deadline=3s no_fallback : search=ok/3s,http503+10s,http429 web=stuck -> tool_failure:retry_exhausted attempts=2 ran=search,web
	`))
	require.NoError(t, err)
	require.Len(t, s.steps, 12)

	assert.Equal(t, []keyValue{{"failure_threshold", 1}, {"recovery_growth", 1.5}, {"registered_only", true}}, s.steps[0].set)
	assert.Equal(t, 4, s.steps[0].line)
	assert.Equal(t, "search", s.steps[1].tool)
	assert.Equal(t, []keyValue{{"recovery_duration", 90 * time.Second}, {"side_effects", true}}, s.steps[1].set)
	assert.Equal(t, []string{"web", "archive"}, s.steps[2].names)
	assert.Equal(t, []keyValue{{"jitter", 0.0}, {"budget", 2}}, s.steps[3].set)
	assert.Equal(t, 30*time.Second, s.steps[4].moment)
	assert.Equal(t, "p1", s.steps[5].id)
	assert.Equal(t, "refused", s.steps[5].answer)
	assert.Equal(t, "circuit_open", s.steps[5].detail)
	assert.Equal(t, []keyValue{{"retry_after", time.Minute}}, s.steps[5].want)
	assert.Equal(t, 200, s.steps[6].repeat)
	assert.Equal(t, []keyValue{{"probe", uint64(1)}, {"refused", uint64(199)}}, s.steps[6].want)
	assert.Equal(t, toolhealth.OutcomeThrottled, s.steps[7].outcome)
	assert.Equal(t, toolhealth.OutcomeFailure, s.steps[8].outcome)
	assert.Equal(t, -10*time.Millisecond, s.steps[8].moment)
	assert.Equal(t, 3, s.steps[8].repeat)
	assert.Equal(t, []keyValue{{"state", "half-open"}, {"score", 0.5}, {"calls", uint64(7)}, {"available", false}}, s.steps[9].want)
	assert.Equal(t, "closed>open open>half-open", s.steps[10].answer)

	call := s.steps[11]
	assert.True(t, call.noFallback)
	assert.Equal(t, []keyValue{{"deadline", 3 * time.Second}}, call.set)
	assert.Equal(t, map[string][]scriptedReply{
		"search": {
			{word: "ok", takes: 3 * time.Second},
			{word: "http", status: 503, after: 10 * time.Second, stated: true},
			{word: "http", status: 429},
		},
		"web": {{word: "stuck"}},
	}, call.script)
	assert.Equal(t, "tool_failure:retry_exhausted", call.answer)
	assert.Equal(t, []keyValue{{"attempts", uint64(2)}, {"ran", "search,web"}}, call.want)
}

func TestEachKindOfBadScenarioLineIsAnErrorWithItsPlace(t *testing.T) {
	for name, bad := range map[string]string{
		"unknown verb":                                   "alow t -> admitted",
		"a verb in capitals":                             "Allow t",
		"unknown key of config":                          "config failure_treshold=1",
		"a guard's key in config":                        "config max_attempts=1",
		"unknown key of tool":                            "tool t max_tools=5",
		"unknown key of guard":                           "guard max_tools=5",
		"unknown key of health":                          "health t -> colour=red",
		"unknown key of summary":                         "summary -> state=open",
		"unknown key of done":                            "done p success because=x",
		"unknown key of call":                            "call t speed=1 : t=ok",
		"unknown key of a call's result":                 "call t : t=ok -> ok state=open",
		"unknown key of allow xN":                        "allow t x2 -> untracked=2",
		"unknown key of a refusal":                       "allow t -> refused isolated streak=3",
		"a key twice":                                    "health t -> calls=1 calls=1",
		"a key without a value":                          "health t -> calls",
		"config without a key":                           "config",
		"reconfigure without a key":                      "reconfigure",
		"an arrow missing before true":                   "available t true",
		"an arrow missing before admitted":               "allow t admitted",
		"an arrow missing before a key":                  "health t calls=1",
		"an arrow missing before transitions":            "transitions t closed>open",
		"an arrow glued to its neighbour":                "available t ->true",
		"nothing after the arrow":                        "available t ->",
		"two arrows":                                     "available t -> true -> true",
		"an arrow after a verb that does not answer":     "at 30s -> true",
		"an arrow after reset":                           "reset t -> true",
		"an arrow after config":                          "config failure_threshold=1 -> error",
		"words after an answer":                          "available t -> true true",
		"a bad duration":                                 "at 30",
		"a duration in words":                            "advance soon",
		"a duration missing":                             "at",
		"a bad duration of a record":                     "record t failure fast",
		"a bad duration of a key":                        "config recovery_duration=30",
		"a bad number":                                   "config failure_threshold=three",
		"a fraction for a whole number":                  "config failure_threshold=1.5",
		"a negative count":                               "health t -> calls=-1",
		"a bad fraction":                                 "health t -> score=full",
		"a bad truth":                                    "health t -> available=yes",
		"an unknown state":                               "health t -> state=ajar",
		"an unknown status":                              "health t -> status=fine",
		"an unknown reason in health":                    "health t -> reason=tired",
		"an unknown reason of a refusal":                 "allow t -> refused tired",
		"a whole stop reason for a refusal":              "allow t -> refused tool_unavailable:circuit_open",
		"a refusal without a reason":                     "allow t -> refused",
		"an unknown answer":                              "allow t -> perhaps",
		"an unknown kind":                                "done p failure kind=sunspots",
		"an unknown outcome":                             "done p luck",
		"an outcome missing":                             "done p",
		"throttled without a wait":                       "done p throttled",
		"an ID nobody has":                               "done q success",
		"an ID nobody has, released":                     "release q",
		"an ID nobody has, kept alive":                   "keepalive q",
		"an ID missing":                                  "allow t as",
		"a tool missing":                                 "ask",
		"a record by another outcome":                    "record t rejected 1s",
		"a record without an outcome":                    "record t",
		"no times":                                       "record t failure 1s x0",
		"too many times":                                 "allow t x100001",
		"times without a number":                         "allow t xN",
		"an ID for many":                                 "allow t x2 as p",
		"neither true nor false":                         "ask t -> maybe",
		"resolve without its second word":                "resolve t -> t",
		"resolve with another second word":               "resolve t -> t free",
		"unknown and a key":                              "health t -> unknown calls=1",
		"reconfigure with another answer":                "reconfigure failure_threshold=1 -> ok",
		"a transition without a mark":                    "transitions t -> closed",
		"a transition to nowhere":                        "transitions t -> closed>ajar",
		"none and a transition":                          "transitions t -> none closed>open",
		"time going back":                                "at 9s",
		"a negative step of time":                        "advance -1s",
		"time beyond its end":                            "advance 2562047h47m16s",
		"set-up after the story has begun":               "config failure_threshold=1",
		"a tool after the story has begun":               "tool u",
		"a fallback after the story has begun":           "fallback t u",
		"a guard after the story has begun":              "guard jitter=0",
		"fallback without a substitute":                  "fallback t",
		"call without a colon":                           "call t t=ok -> ok",
		"call with a colon glued to its neighbour":       "call t: t=ok",
		"call without a script":                          "call t : -> ok",
		"call with an empty script":                      "call t : t= -> ok",
		"call with a script of no tool":                  "call t : =ok",
		"call with two scripts for one tool":             "call t : t=ok t=error",
		"call with an unknown result":                    "call t : t=fine",
		"call with a result that takes no duration":      "call t : t=ok/fast",
		"call with a result that takes a negative time":  "call t : t=ok/-1s",
		"call with http and no status":                   "call t : t=http",
		"call with http and no such status":              "call t : t=http600",
		"call with http and a bad wait":                  "call t : t=http429+soon",
		"call with http, a wait and no status":           "call t : t=http+5s",
		"call with another word before the colon":        "call t quickly : t=ok",
		"call with an answer that is no stop reason":     "call t : t=ok -> circuit_open",
		"call with a bad count":                          "call t : t=ok -> ok attempts=all",
		"a scenario's answer given as a second argument": "resolve t u -> t available",
	} {
		t.Run(name, func(t *testing.T) {
			// Set-up lines are tried where they may stand, unless that is the point.
			before := "allow t as p\nat 10s\n"
			verb, _, _ := strings.Cut(bad, " ")
			if slices.Contains(setupVerbs, verb) && !strings.Contains(name, "has begun") {
				before = "\n# two lines\n"
			}
			_, err := parseScenario("dir/bad.scenario", []byte(before+bad+"\nadvance 1s"))
			require.Error(t, err)
			assert.Contains(t, err.Error(), "dir/bad.scenario:3: ")

			_, err = parseScenario("good", []byte(before+"\nadvance 1s"))
			assert.NoError(t, err, "what stands around the bad line must be good")
		})
	}
}

func TestAScenarioWithoutACommandIsAnError(t *testing.T) {
	for _, text := range []string{"", "\n\n", "# only a comment"} {
		_, err := parseScenario("empty", []byte(text))
		assert.ErrorContains(t, err, "empty:1: ", "%q", text)
	}
}

func TestTheNotationOfScenariosIsWrittenDown(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(scenarioFolder, "README.md"))
	require.NoError(t, err)
	manual := string(text)
	for _, keys := range []map[string]valueReader{healthKeys, summaryKeys, countKeys, resultKeys, callKeys, doneKeys} {
		for key := range keys {
			assert.Contains(t, manual, key+"=")
		}
	}
	for _, keys := range []map[string]valueReader{registryKeys, toolKeys, guardKeys} {
		for key := range keys {
			if breakerKeys[key] == nil { // those are BreakerConfig's
				assert.Contains(t, manual, "`"+key+"`")
			}
		}
	}
	for _, word := range plainReplies {
		assert.Contains(t, manual, "`"+word+"`")
	}
	for verb := range strings.FieldsSeq(`config tool fallback guard at advance allow done release keepalive ask
		available record resolve health summary isolate reset remove reconfigure transitions call`) {
		_, err := parseScenario("manual", []byte(verb))
		assert.NotErrorIs(t, err, errUnknownVerb, verb)
		assert.Regexp(t, "`"+verb+"[ `]", manual)
	}
	// And its example is right.
	_, example, _ := strings.Cut(manual, "\n\n    ")
	example, _, _ = strings.Cut(example, "\n\n")
	assert.NoError(t, playText(t, example))
}
