package main

import (
	"bytes"
	"encoding/json"
	"html"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolhealth/toolhealth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestQuickstart_TellsStoryAndExitsWithZero(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run(nil, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, &stdout, &stderr)
	}
	text := stdout.String()
	for _, want := range []string{
		"search: closed -> open (failure_threshold)",
		"search: open -> half-open (probe_admitted)",
		"search: half-open -> open (probe_failed)",
		"search: half-open -> closed (probe_succeeded)",
		"(from search_backup)",
		"unknown tool",
		"rejected, not_found",
		"server_error", "timeout", "connection",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the time line does not have %q", want)
		}
	}
	if strings.Contains(text, "127.0.0.1") {
		t.Error("an address of a tool got into a text for the model")
	}
	_, tail, _ := strings.Cut(text, "\n{")
	var summary toolhealth.Summary
	if err := json.NewDecoder(strings.NewReader("{" + tail)).Decode(&summary); err != nil {
		t.Fatalf("the summary is not JSON: %v", err)
	}
	if len(summary.Tools) != 3 || summary.Tools[0].Tool != "search" || summary.Tools[0].Trips < 1 {
		t.Errorf("the summary does not match the story: %+v", summary)
	}
}

// inPicture finds the lines of the picture, timeAndScore what differs between two runs.
var (
	inPicture    = regexp.MustCompile(`<text [^>]*>(.*)</text>`)
	timeAndScore = regexp.MustCompile(`\d+\.\d\ds? `)
)

// The picture shows a run until the breaker opens, as every run prints it, and some of
// the rest, where the calls that are probes depend on the machine.
func TestQuickstart_PictureShowsWhatItPrints(t *testing.T) {
	picture, err := os.ReadFile("outage.svg")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := run([]string{"-pace", "40ms"}, &out, io.Discard); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	same := func(line string) string { return strings.TrimSpace(timeAndScore.ReplaceAllString(line, "")) }
	var printed []string
	for line := range strings.Lines(out.String()) {
		printed = append(printed, same(line))
	}
	lines, opened := inPicture.FindAllSubmatch(picture, -1), false
	if len(lines) < 20 {
		t.Fatalf("the picture has %d lines", len(lines))
	}
	for _, m := range lines {
		line := html.UnescapeString(string(m[1]))
		always := !opened || strings.Contains(line, "**") || strings.HasPrefix(line, "--")
		if always && !slices.Contains(printed, same(line)) {
			t.Errorf("the picture has a line that is not printed: %s", line)
		}
		opened = opened || strings.Contains(line, "failure_threshold")
	}
	if !opened {
		t.Error("in the picture, no breaker opens")
	}
}

func TestQuickstart_ExitsWithOneIfStoryDoesNotHappen(t *testing.T) {
	list := filepath.Join(t.TempDir(), "calls.txt")
	if err := os.WriteFile(list, []byte("weather Lisbon\nsearch x # the only one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-file", list, "-pace", "1ms"}, &stdout, &stderr); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if !strings.Contains(stderr.String(), "did not open") {
		t.Errorf("the output does not say what is wrong: %s", &stderr)
	}
}

func TestQuickstart_ExplainsFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"-h"}, 0, "-pace"},
		{[]string{"-nonsense"}, 2, "-file"},
		{[]string{"stray"}, 2, "no arguments"},
		{[]string{"-pace", "0s"}, 2, "above 0"},
		{[]string{"-file", filepath.Join(t.TempDir(), "absent")}, 2, "absent"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(c.args, &stdout, &stderr); code != c.code || !strings.Contains(stderr.String(), c.text) {
			t.Errorf("%v: exit code %d, want %d with %q; it says %s", c.args, code, c.code, c.text, &stderr)
		}
	}
}

// goodHistory returns the shortest story that verify accepts.
func goodHistory() (*history, toolhealth.Summary) {
	const closed, open, half = toolhealth.StateClosed, toolhealth.StateOpen, toolhealth.StateHalfOpen
	transition := func(at time.Duration, from, to toolhealth.State, cause toolhealth.Cause) toolhealth.Transition {
		return toolhealth.Transition{Tool: primary, From: from, To: to, Cause: cause, When: time.Time{}.Add(at)}
	}
	ran := func(tool, by string, probe bool, outcome toolhealth.Outcome, kind toolhealth.Kind, after int) turn {
		return turn{request{tool: tool}, result{servedBy: by, probe: probe, verdict: toolhealth.Verdict{Outcome: outcome, Kind: kind}}, after}
	}
	const ok, bad = toolhealth.OutcomeSuccess, toolhealth.OutcomeFailure
	return &history{
		transitions: []toolhealth.Transition{
			transition(0, closed, open, toolhealth.CauseFailureThreshold),
			transition(time.Second, open, half, toolhealth.CauseProbeAdmitted),
			transition(time.Second, half, open, toolhealth.CauseProbeFailed),
			transition(2*time.Second, open, half, toolhealth.CauseProbeAdmitted),
			transition(2*time.Second, half, closed, toolhealth.CauseProbeSucceeded),
		},
		turns: []turn{
			ran(primary, primary, false, bad, toolhealth.KindServerError, 0),
			ran(primary, primary, false, bad, toolhealth.KindTimeout, 1),
			ran(primary, backup, false, ok, toolhealth.KindNone, 1),
			ran(primary, primary, true, bad, toolhealth.KindConnection, 3),
			ran("made_up", "", false, toolhealth.OutcomeNeutral, toolhealth.KindRefused, 3),
			ran(primary, primary, true, ok, toolhealth.KindNone, 5),
			ran(primary, primary, false, ok, toolhealth.KindNone, 5),
		},
	}, toolhealth.Summary{Tools: make([]toolhealth.ToolHealth, 3)}
}

func TestQuickstart_VerifiesEveryPartOfStory(t *testing.T) {
	if h, s := goodHistory(); h.verify(time.Second, s) != nil {
		t.Fatalf("the good story is not accepted: %v", h.verify(time.Second, s))
	}
	for _, c := range []struct {
		spoil func(*history, *toolhealth.Summary)
		says  string
	}{
		{func(h *history, _ *toolhealth.Summary) { h.transitions = nil }, "did not open"},
		{func(h *history, _ *toolhealth.Summary) { h.transitions = h.transitions[:3] }, "did not recover"},
		{func(h *history, _ *toolhealth.Summary) { h.transitions[0].Tool = weather }, "only search was down"},
		{func(h *history, _ *toolhealth.Summary) { h.transitions[3].When = h.transitions[2].When.Add(1) }, "before a cooldown"},
		{func(h *history, _ *toolhealth.Summary) { h.turns = slices.Delete(h.turns, 2, 3) }, "re-routed"},
		{func(h *history, _ *toolhealth.Summary) { h.turns = slices.Delete(h.turns, 5, 6) }, "were probes"},
		{func(h *history, _ *toolhealth.Summary) { h.turns[3].probe = false }, "not as a probe"},
		{func(h *history, _ *toolhealth.Summary) { h.turns = h.turns[:6] }, "did not serve again"},
		{func(h *history, _ *toolhealth.Summary) { h.turns = slices.Delete(h.turns, 4, 5) }, "made-up"},
		{func(h *history, _ *toolhealth.Summary) { h.turns[0].verdict.Kind = toolhealth.KindTimeout }, "server_error"},
		{func(_ *history, s *toolhealth.Summary) { s.Tools = s.Tools[:2] }, "3 are registered"},
	} {
		h, s := goodHistory()
		c.spoil(h, &s)
		if err := h.verify(time.Second, s); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("want an error with %q, got %v", c.says, err)
		}
	}
}
