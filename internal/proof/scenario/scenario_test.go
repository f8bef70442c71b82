package scenario

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

const (
	root      = "../../.." // of the module
	ownFolder = root + "/testdata/scenarios"
)

// TestScenarios plays every scenario of testdata/scenarios and of the folder that
// TOOLHEALTH_SCENARIOS names. A relative name counts from the root of the module.
func TestScenarios(t *testing.T) {
	folders := []string{ownFolder}
	if more := os.Getenv("TOOLHEALTH_SCENARIOS"); filepath.IsAbs(more) {
		folders = append(folders, more)
	} else if more != "" {
		folders = append(folders, filepath.Join(root, more))
	}
	for _, folder := range folders {
		files, err := Files(folder)
		require.NoError(t, err)
		require.NotEmpty(t, files, "no scenario in %s", folder)
		for _, file := range files {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".scenario"), func(t *testing.T) {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				s, err := Parse(file, text)
				require.NoError(t, err)
				require.NoError(t, playInBubble(t, s, false))
				require.NoError(t, playInBubble(t, s, true), "observed")
			})
		}
	}
}

func playInBubble(t *testing.T, s *Scenario, observed bool) (err error) {
	synctest.Test(t, func(*testing.T) {
		err = s.Play(observed)
		time.Sleep(100 * 365 * 24 * time.Hour) // until every detached call has ended
	})
	return err
}

// playText plays a scenario that is written in a test.
func playText(t *testing.T, lines ...string) error {
	t.Helper()
	s, err := Parse("told", []byte(strings.Join(lines, "\n")))
	require.NoError(t, err)
	return playInBubble(t, s, false)
}

// wrongAnswers maps lines that expect a wrong answer, played after t has tripped and
// before u is known, to the text that the error must have.
var wrongAnswers = []struct{ line, says string }{
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
}

func TestPlay_FirstWrongAnswerIsReportedWithItsPlace(t *testing.T) {
	trip := "record t failure 10ms x3"
	for _, test := range wrongAnswers {
		err := playText(t, trip, "health t -> state=open", test.line, "ask t")
		if assert.Error(t, err, test.line) {
			assert.Regexp(t, "^told:3: at [03]s: "+regexp.QuoteMeta(test.line)+": ", err.Error())
			assert.Contains(t, err.Error(), test.says)
		}
	}
}

func TestPlay_LostProbeCostsLeaseAndCooldown(t *testing.T) {
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

func TestPlay_RefusedPermitCannotBeSettled(t *testing.T) {
	err := playText(t, "record t failure 1ms x3", "allow t as p", "done p success")
	assert.ErrorContains(t, err, "told:3: at 0s: done p success: p was not admitted")
}

func TestPlay_SetUpErrorNamesItsLine(t *testing.T) {
	for place, lines := range map[string][]string{
		"told:1: setting up: ": {"config failure_threshold=-1"},
		"told:2: setting up: ": {"config failure_threshold=1", "fallback t t"},
		"told:3: setting up: ": {"config max_tools=1", "tool t", "tool u"},
	} {
		assert.ErrorContains(t, playText(t, append(lines, "ask t -> true")...), place)
	}
}

func TestPlay_MovesVirtualTimeOnly(t *testing.T) {
	began := time.Now()
	assert.NoError(t, playText(t, "record t failure 0s x3", "at 29s", "available t -> false",
		"advance 1s", "available t -> true", "at 1000h", "allow t -> probe"))
	assert.Less(t, time.Since(began), 10*time.Second)
}

func TestFiles_OwnScenariosBeginWithCommentAndCheckSomething(t *testing.T) {
	files, err := Files(ownFolder)
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(string(text), "# "), "%s must begin with a comment", file)
		s, err := Parse(file, text)
		require.NoError(t, err)
		checks := 0
		for _, step := range s.Steps {
			if step.expects {
				checks++
			}
		}
		assert.Positive(t, checks, "%s expects nothing", file)
	}
}

func TestParse_ReadsLineByLine(t *testing.T) {
	s, err := Parse("s", []byte(`
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
	require.Len(t, s.Steps, 12)

	assert.Equal(t, []keyValue{{"failure_threshold", "1"}, {"recovery_growth", "1.5"}, {"registered_only", "true"}}, s.Steps[0].set)
	assert.Equal(t, 4, s.Steps[0].Line)
	assert.Equal(t, "search", s.Steps[1].tool)
	assert.Equal(t, []keyValue{{"recovery_duration", "1m30s"}, {"side_effects", "true"}}, s.Steps[1].set)
	assert.Equal(t, []string{"web", "archive"}, s.Steps[2].names)
	assert.Equal(t, []keyValue{{"jitter", "0"}, {"budget", "2"}}, s.Steps[3].set)
	requireSettings(t, s)
	assert.Equal(t, 30*time.Second, s.Steps[4].moment)
	assert.Equal(t, "p1", s.Steps[5].id)
	assert.Equal(t, "refused", s.Steps[5].answer)
	assert.Equal(t, "circuit_open", s.Steps[5].detail)
	assert.Equal(t, []keyValue{{"retry_after", time.Minute}}, s.Steps[5].want)
	assert.Equal(t, 200, s.Steps[6].repeat)
	assert.Equal(t, []keyValue{{"probe", uint64(1)}, {"refused", uint64(199)}}, s.Steps[6].want)
	assert.Equal(t, toolhealth.OutcomeThrottled, s.Steps[7].outcome)
	assert.Equal(t, toolhealth.OutcomeFailure, s.Steps[8].outcome)
	assert.Equal(t, -10*time.Millisecond, s.Steps[8].moment)
	assert.Equal(t, 3, s.Steps[8].repeat)
	assert.Equal(t, []keyValue{{"state", "half-open"}, {"score", 0.5}, {"calls", uint64(7)}, {"available", false}}, s.Steps[9].want)
	assert.Equal(t, "closed>open open>half-open", s.Steps[10].answer)

	call := s.Steps[11]
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

// requireSettings checks what the settings of TestParse_ReadsLineByLine change.
func requireSettings(t *testing.T, s *Scenario) {
	t.Helper()
	settings, want := usualSettings(), usualSettings()
	base := toolhealth.BreakerConfig{FailureThreshold: 1, ProbeTimeout: 30 * time.Second, RecoveryGrowth: 1.5}
	want.Breaker, want.RegisteredOnly = base, true
	require.NoError(t, configureRegistry(&settings, s.Steps[0].set))
	require.Equal(t, want, settings)

	want.Policy.Jitter, want.Policy.RetryBudget = toolhealth.Off, 2
	require.NoError(t, configureGuard(&settings, s.Steps[3].set))
	require.Equal(t, want, settings)

	breaker, policy := base, want.Policy
	breaker.RecoveryDuration, policy.SideEffects = 90*time.Second, true
	want.Tools = map[string]toolhealth.ToolSettings{"search": {Breaker: &breaker, Policy: &policy}}
	require.NoError(t, configureTool(&settings, "search", s.Steps[1].set))
	require.Equal(t, want, settings)
	want.Tools["plain"] = toolhealth.ToolSettings{}
	require.NoError(t, configureTool(&settings, "plain", nil))
	require.Equal(t, want, settings, "other tools keep theirs")
}

// badLines are lines that Parse must refuse, by their mistakes.
var badLines = map[string]string{
	"unknown verb":                                   "alow t -> admitted",
	"a verb in capitals":                             "Allow t",
	"unknown key of config":                          "config failure_treshold=1",
	"a guard's key in config":                        "config max_attempts=1",
	"unknown key of tool":                            "tool t max_tools=5",
	"unknown key of guard":                           "guard max_tools=5",
	"unknown key of health":                          "health t -> color=red",
	"unknown key of summary":                         "summary -> state=open",
	"unknown key of done":                            "done p success because=x",
	"unknown key of call":                            "call t speed=1 : t=ok",
	"unknown key of a call's result":                 "call t : t=ok -> ok state=open",
	"unknown key of allow xN":                        "allow t x2 -> untracked=2",
	"unknown key of a refusal":                       "allow t -> refused isolated streak=3",
	"a policy's key that tool does not have":         "tool t jitter=0",
	"a breaker's key in guard":                       "guard failure_threshold=1",
	"a policy's key that guard does not have":        "guard side_effects=true",
	"NaN for a whole number":                         "reconfigure failure_threshold=NaN -> error",
	"NaN for an unknown key":                         "reconfigure failure_treshold=NaN -> error",
	"a fraction in quotes":                           `config recovery_growth="1.5"`,
	"a JSON null":                                    "config failure_threshold=null",
	"a key twice":                                    "health t -> calls=1 calls=1",
	"a key without a value":                          "health t -> calls",
	"config without a key":                           "config",
	"reconfigure without a key":                      "reconfigure",
	"an arrow missing before true":                   "available t true",
	"an arrow missing before admitted":               "allow t admitted",
	"an arrow missing before a key":                  "health t calls=1",
	"an arrow missing before transitions":            "transitions t closed>open",
	"an arrow glued to its neighbor":                 "available t ->true",
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
	"an unknown ID":                                  "done q success",
	"an unknown ID, released":                        "release q",
	"an unknown ID, kept alive":                      "keepalive q",
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
	"call with a colon glued to its neighbor":        "call t: t=ok",
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
}

func TestParse_BadLineIsErrorWithItsPlace(t *testing.T) {
	for name, bad := range badLines {
		t.Run(name, func(t *testing.T) {
			// A set-up line stands at the beginning, unless its place is the mistake.
			before := "allow t as p\nat 10s\n"
			verb, _, _ := strings.Cut(bad, " ")
			if slices.Contains(setupVerbs, verb) && !strings.Contains(name, "has begun") {
				before = "\n# two lines\n"
			}
			_, err := Parse("dir/bad.scenario", []byte(before+bad+"\nadvance 1s"))
			require.Error(t, err)
			assert.Contains(t, err.Error(), "dir/bad.scenario:3: ")

			_, err = Parse("good", []byte(before+"\nadvance 1s"))
			assert.NoError(t, err, "the lines around the bad one must be good")
		})
	}
}

func TestParse_ScenarioWithoutCommandIsError(t *testing.T) {
	for _, text := range []string{"", "\n\n", "# only a comment"} {
		_, err := Parse("empty", []byte(text))
		assert.ErrorContains(t, err, "empty:1: ", "%q", text)
	}
}

func TestParse_NotationIsWrittenDown(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(ownFolder, "README.md"))
	require.NoError(t, err)
	manual := string(text)
	for _, keys := range []keyTable{healthKeys, summaryKeys, countKeys, resultKeys, callKeys, doneKeys} {
		for key := range keys {
			assert.Contains(t, manual, key+"=")
		}
	}
	for _, key := range slices.Concat(registryKeys, policyKeys, guardKeys) {
		assert.Contains(t, manual, "`"+key+"`")
	}
	for _, word := range plainReplies {
		assert.Contains(t, manual, "`"+word+"`")
	}
	for verb := range strings.FieldsSeq(`config tool fallback guard at advance allow done release keepalive ask
		available record resolve health summary isolate reset remove reconfigure transitions call`) {
		_, err := Parse("manual", []byte(verb))
		assert.NotErrorIs(t, err, errUnknownVerb, verb)
		assert.Regexp(t, "`"+verb+"[ `]", manual)
	}
	// The example of the notation gives the right answers.
	_, example, _ := strings.Cut(manual, "\n\n    ")
	example, _, _ = strings.Cut(example, "\n\n")
	assert.NoError(t, playText(t, example))
}
