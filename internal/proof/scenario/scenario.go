// Package scenario reads and plays scenarios: plain texts that tell a piece of a
// registry's life, with the right answers beside the questions. The notation is
// described in testdata/scenarios/README.md. Parse turns a text into a Scenario
// and refuses what the notation does not know; Play runs a Scenario against a new
// registry and a new guard, inside a testing/synctest bubble, and returns the first
// wrong answer.
package scenario

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth"
)

// Scenario is a text that Parse has understood.
type Scenario struct {
	File  string // name given to Parse, for messages
	Steps []Step // at least one, in the order of their lines
}

// Step is one line of a scenario. A field that the line's verb does not use is zero.
type Step struct {
	Line int    // line number, from 1
	Text string // words of the line, without its comment

	verb    string
	tool    string
	id      string        // name of a permit
	names   []string      // fallback: the substitutes
	repeat  int           // the N of xN; zero means that there is none
	moment  time.Duration // at, advance and record: the time or duration
	outcome toolhealth.Outcome
	hint    toolhealth.HintKind
	set     []keyValue // KEY=VALUE before the arrow

	noFallback bool                       // call: the line has no_fallback
	script     map[string][]scriptedReply // call: replies by tool

	expects bool   // the line has an arrow
	answer  string // word after the arrow: "true", "refused", "closed>open open>half-open" ...
	detail  string // word after answer: a reason, or "available"
	want    []keyValue
}

// Expects reports whether the line has an answer that Play checks.
func (s *Step) Expects() bool { return s.expects }

// Files returns the paths of all scenarios in a folder and the folders below it.
func Files(folder string) (files []string, err error) {
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".scenario" {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// Parse reads a whole scenario. The error for the first line that Parse does not
// understand begins with "file:line: ". Parse never panics.
func Parse(file string, text []byte) (*Scenario, error) {
	s := &Scenario{File: file}
	l := &lineReader{permits: map[string]bool{}}
	for i, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		l.start(i+1, words)
		if err := l.read(); err != nil {
			return nil, fmt.Errorf("%s:%d: %q: %w", file, i+1, l.step.Text, err)
		}
		s.Steps = append(s.Steps, l.step)
	}
	if len(s.Steps) == 0 {
		return nil, fmt.Errorf("%s:1: no command in the whole scenario", file)
	}
	return s, nil
}

// maxRepeat keeps a typing error from becoming a million goroutines.
const maxRepeat = 100_000

// setupVerbs must stand before all others.
var setupVerbs = []string{"config", "tool", "fallback", "guard", "group"}

var errUnknownVerb = errors.New("unknown verb")

// lineReader reads one line at a time and remembers facts of earlier lines.
type lineReader struct {
	step     Step
	args     []string // unread words before the arrow
	expected []string // unread words after the arrow

	begun   bool          // a line after the set-up was read
	now     time.Duration // least time that has passed
	permits map[string]bool
}

func (l *lineReader) start(line int, words []string) {
	l.step = Step{Line: line, Text: strings.Join(words, " "), verb: words[0]}
	l.args, l.expected = words[1:], nil
	if i := slices.Index(words, "->"); i > 0 {
		l.args, l.expected = words[1:i], words[i+1:]
		l.step.expects = true
	}
}

func (l *lineReader) read() error {
	verb := l.step.verb
	if verb == "group" && l.step.expects {
		verb = "the line of a group" // in a summary, and no setting
	}
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

// readVerb reads the arguments of the step's verb, and the answer after the arrow.
func (l *lineReader) readVerb() error {
	switch l.step.verb {
	case "config", "reconfigure":
		return l.configure()
	case "guard":
		return l.guard()
	case "tool":
		return l.register()
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
	case "group":
		return l.group()
	case "hint":
		return l.hint()
	case "restart":
		return l.restart()
	case "remove", "isolate_group", "reset_group":
		return l.toolThen(nil)
	case "isolate", "reset":
		return l.toolThen(func() error { return l.keys(operatorKeys.read) })
	case "transitions":
		return l.transitions()
	case "call":
		return l.call()
	}
	return errUnknownVerb
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
func (l *lineReader) keys(read pairReader) (err error) {
	l.step.set, err = readPairs(l.args, read)
	l.args = nil
	return err
}

// expectKeys reads all remaining words after the arrow as KEY=VALUE.
func (l *lineReader) expectKeys(known keyTable) (err error) {
	l.step.want, err = readPairs(l.expected, known.read)
	l.expected = nil
	return err
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

// times reads xN, if the next word has that form.
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
	if err := l.keys(doneKeys.read); err != nil {
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
		if err = l.times(); err != nil || len(l.args) == 0 {
			return err
		}
		if err = l.keys(waitKeys.read); err == nil && l.step.outcome == toolhealth.OutcomeSuccess {
			err = errors.New("a success states no wait")
		}
		return err
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

// hint reads a hint and the wait that it asks for.
func (l *lineReader) hint() error {
	if err := l.toolThen(nil); err != nil {
		return err
	}
	word, err := l.take("a hint")
	if err != nil {
		return err
	}
	if err := l.step.hint.UnmarshalText([]byte(word)); err != nil {
		return err
	}
	if l.step.moment, err = l.takeDuration(); err != nil || !l.step.expects {
		return err
	}
	if l.step.answer, err = l.takeExpected("true or false"); err == nil {
		_, err = readBool(l.step.answer)
	}
	return err
}

// restart reads how long the process is away.
func (l *lineReader) restart() error {
	if err := l.keys(restartKeys.read); err != nil {
		return err
	}
	away, _ := valueOf[time.Duration](l.step.set, "after")
	if away < 0 || away > math.MaxInt64-l.now {
		return errors.New("time goes back, or too far")
	}
	l.now += away
	l.step.moment = away
	return nil
}

// group reads the settings of all groups, or the expected health of one.
func (l *lineReader) group() error {
	if l.step.expects {
		return l.toolThen(func() error { return l.expectKeys(groupKeys) })
	}
	settings := usualSettings()
	return l.settings(nil, func(set []keyValue) error { return configureGroups(&settings, set) })
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
