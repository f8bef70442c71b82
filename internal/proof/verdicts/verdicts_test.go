package verdicts

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// played plays all rows once for all tests.
var played = sync.OnceValues(func() ([]Result, error) { return Play(Rows()) })

func results(t *testing.T) []Result {
	t.Helper()
	all, err := played()
	require.NoError(t, err)
	return all
}

func total(all []Result) count {
	var c count
	for i := range all {
		c.add(&all[i])
	}
	return c
}

func TestVerdicts_BareWrongAtMostOneInEight(t *testing.T) {
	c := total(results(t))
	assert.GreaterOrEqual(t, c.rows, 559, "rows")
	assert.LessOrEqual(t, c.wrong*8, c.rows, "%d of %d rows are wrong", c.wrong, c.rows)
}

func TestVerdicts_WitnessedWrongAtMostOneInThirty(t *testing.T) {
	c := total(results(t))
	assert.LessOrEqual(t, c.witWrong*30, c.witRows, "%d of %d rows are wrong", c.witWrong, c.witRows)
}

func TestVerdicts_RightStaysRight(t *testing.T) {
	right := map[string]bool{}
	for _, r := range results(t) {
		right[r.ID()] = !r.Silent() && r.Right()
	}
	for _, id := range RightBefore() {
		assert.True(t, right[id], "was right: %s", id)
	}
}

func TestVerdicts_WitnessSpoilsNothing(t *testing.T) {
	for _, r := range results(t) {
		if r.Witnessed() && r.Right() {
			assert.True(t, r.RightWitnessed(), "%s: %s with a witness, want %s", r.ID(), text(r.Wit.Verdict), r.Meaning.want)
		}
	}
}

// TestVerdicts_ResultsAreCurrent compares RESULTS.md with this run, but for the
// texts of the errors, of which some differ from run to run.
func TestVerdicts_ResultsAreCurrent(t *testing.T) {
	var b bytes.Buffer
	Write(&b, results(t))
	file, err := os.ReadFile("RESULTS.md")
	require.NoError(t, err)
	assert.Equal(t, verdictLines(b.String()), verdictLines(string(file)), "go run ./cmd/table writes it anew")
}

// verdictLines are the lines of a table of results without the column of errors.
func verdictLines(markdown string) []string {
	var lines []string
	for line := range strings.Lines(markdown) {
		cells := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), `\|`, "¦"), "|")
		if len(cells) == 7 && strings.Contains(cells[2], "`") {
			cells[2] = ""
		}
		lines = append(lines, strings.Join(cells, "|"))
	}
	return lines
}

// TestVerdicts_NamesAreUnique guards the list of right rows.
func TestVerdicts_NamesAreUnique(t *testing.T) {
	var ids []string
	for _, r := range Rows() {
		ids = append(ids, r.ID())
	}
	slices.Sort(ids)
	for i := range len(ids) - 1 {
		assert.NotEqual(t, ids[i], ids[i+1])
	}
}

func TestVerdicts_EveryMeaningHasRow(t *testing.T) {
	used := map[string]bool{}
	for _, r := range Rows() {
		_, ok := meaningOf(r.Form, r.Failure.Name)
		assert.True(t, ok, "%s has no meaning", r.ID())
		used[r.Failure.Name], used[r.Form.SDK+r.Failure.Name] = true, true
	}
	for _, f := range forms() {
		for name := range f.Meanings {
			assert.True(t, used[f.SDK+name], "%s, %s: no row is named %q", f.SDK, f.Name, name)
		}
	}
	for name := range meanings {
		assert.True(t, used[name], "no row is named %q", name)
	}
}

// TestDrivers_UnderstandSoundServer shows that a failure is what makes a call fail.
func TestDrivers_UnderstandSoundServer(t *testing.T) {
	for _, f := range forms() {
		t.Run(f.SDK+", "+f.Name, func(t *testing.T) {
			p, err := Row{f, &Failure{Name: "none"}}.play(false)
			require.NoError(t, err)
			assert.NoError(t, p.Err)
		})
	}
}

// TestDrivers_SendOnce shows that the retries of the SDKs are off.
func TestDrivers_SendOnce(t *testing.T) {
	for _, r := range results(t) {
		most := 1
		switch {
		case r.Failure.Name == "redirects without end":
			most = 10
		case r.Failure.Name == "302 to HTML", r.Failure.Again:
			most = 2
		}
		assert.LessOrEqual(t, r.Bare.Hits, most, r.ID())
	}
}

func TestFits_ComparesAllThatIsSaid(t *testing.T) {
	v := toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, Retryable: true, RetryAfter: 6 * time.Second}
	for want, fit := range map[string]bool{
		"throttled/rate_limited/retry/wait=7s":                 true,
		"throttled/rate_limited/retry/wait=20s":                false,
		"throttled/rate_limited/retry":                         false,
		"throttled/rate_limited/wait=7s":                       false,
		"throttled/rate_limited/retry/notsent/wait=7s":         false,
		"throttled/timeout/retry/wait=7s":                      false,
		"failure/rate_limited/retry/wait=7s":                   false,
		"throttled/rate_limited*":                              true,
		"failure/rate_limited*":                                false,
		"failure/timeout|throttled/rate_limited/retry/wait=7s": true,
	} {
		assert.Equal(t, fit, fits(v, want), want)
	}
	assert.True(t, fits(toolhealth.Verdict{}, "success"))
}

func TestMistake_NamesTheWorstFirst(t *testing.T) {
	for _, c := range []struct{ got, want, mistake string }{
		{"neutral/contract", "failure/contract", "blind: a failure is not seen"},
		{"rejected/invalid_request", "failure/connection/retry", "blind: a failure is not seen"},
		{"failure/unknown", "rejected/unauthorized", "trips: counted against the tool, and is not its fault"},
		{"failure/rate_limited/retry", "throttled/rate_limited/retry/wait=7s", "a stated wait is lost"},
		{"failure/unknown", "failure/timeout/retry", "another kind"},
		{"failure/connection/retry/notsent", "failure/connection/retry", "claims that it was not sent"},
		{"failure/connection/retry", "failure/connection/retry/notsent", "does not know that it was not sent"},
		{"neutral/canceled", "rejected/conflict", "another outcome"},
		{"failure/timeout", "failure/timeout/retry", "retry or wait differs"},
	} {
		assert.Equal(t, c.mistake, mistake(c.got, c.want), "%s for %s", c.got, c.want)
	}
}
