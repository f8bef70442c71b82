package verdicts

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
)

//go:embed go.mod
var goMod string

// modules are the SDKs by their usual names.
var modules = []struct{ sdk, module string }{
	{"openai-go", "github.com/openai/openai-go/v3"},
	{"anthropic-sdk-go", "github.com/anthropics/anthropic-sdk-go/v2"},
	{"genai", "google.golang.org/genai"},
	{"go-openai", "github.com/sashabaranov/go-openai"},
	{"MCP go-sdk", "github.com/modelcontextprotocol/go-sdk"},
	{"mcp-go", "github.com/mark3labs/mcp-go"},
	{"langchaingo", "github.com/tmc/langchaingo"},
}

// version is that of a module in go.mod.
func version(module string) string {
	_, after, _ := strings.Cut(goMod, "\t"+module+" ")
	v, _, _ := strings.Cut(after, "\n")
	return strings.TrimSuffix(v, " // indirect")
}

// count is how many rows there are, and how many of them are wrong.
type count struct{ rows, wrong, witRows, witWrong, silent int }

func (c *count) add(r *Result) {
	if r.Silent() {
		c.silent++
		return
	}
	c.rows++
	if !r.Right() {
		c.wrong++
	}
	if r.Witnessed() {
		c.witRows++
		if !r.RightWitnessed() {
			c.witWrong++
		}
	}
}

// tally counts by a key of the results, in the order of its first results.
func tally(results []Result, key func(*Result) string) (keys []string, counts map[string]*count) {
	counts = map[string]*count{}
	for i := range results {
		k := key(&results[i])
		if counts[k] == nil {
			counts[k] = &count{}
			keys = append(keys, k)
		}
		counts[k].add(&results[i])
	}
	return keys, counts
}

// mistake says in which way a verdict is wrong.
func mistake(got, want string) string {
	first, _, _ := strings.Cut(want, "|")
	parts := func(s string) (outcome, kind string) {
		p := append(strings.Split(strings.TrimSuffix(s, "*"), "/"), "")
		return p[0], p[1]
	}
	o, k := parts(got)
	wo, wk := parts(first)
	switch {
	case o != wo && (wo == "failure" || wo == "throttled") && (o == "neutral" || o == "rejected" || o == "success"):
		return "blind: a failure is not seen"
	case o == "failure" && wo != "failure" && wo != "throttled":
		return "trips: counted against the tool, and is not its fault"
	case o != wo && wo == "throttled", strings.Contains(want, "/wait=") != strings.Contains(got, "/wait="):
		return "a stated wait is lost"
	case o != wo:
		return "another outcome"
	case k != wk:
		return "another kind"
	case strings.Contains(got, "/notsent") && !strings.Contains(want, "/notsent"):
		return "claims that it was not sent"
	case !strings.Contains(got, "/notsent") && strings.Contains(want, "/notsent"):
		return "does not know that it was not sent"
	}
	return "retry or wait differs"
}

// Write writes the results as Markdown.
func Write(w io.Writer, results []Result) {
	p := func(format string, args ...any) { fmt.Fprintf(w, format, args...) }
	p("# What Classify says of the errors of real SDKs\n\n")
	p("Written by `go run ./cmd/table`. Each row is one failure of a server on loopback, or of the way to it, as one SDK reports it.\n")
	p("A verdict is outcome/kind, then `retry` if the call may be repeated, `notsent` if it surely never reached the tool, and the stated wait.\n")
	p("The intended verdict is decided by what the server did; where an SDK has lost that, no error alone can tell.\n")
	p("A row whose SDK reports no error at all is listed at the end and not counted.\n\n")
	p("| SDK | version |\n|---|---|\n")
	for _, m := range modules {
		p("| %s | `%s` %s |\n", m.sdk, m.module, version(m.module))
	}
	share := func(title string, key func(*Result) string) {
		keys, counts := tally(results, key)
		total := &count{}
		for i := range results {
			total.add(&results[i])
		}
		p("\n| %s | rows | wrong | with a witness: rows | wrong |\n|---|---|---|---|---|\n", title)
		row := func(k string, c *count) {
			p("| %s | %d | %d | %d | %d |\n", k, c.rows, c.wrong, c.witRows, c.witWrong)
		}
		for _, k := range keys {
			if counts[k].rows > 0 {
				row(k, counts[k])
			}
		}
		row("**all**", total)
	}
	share("SDK", func(r *Result) string { return r.Form.SDK })
	share("rule", func(r *Result) string { return string(r.Meaning.rule) })
	writeMistakes(w, results)
	group := ""
	for i := range results {
		r := &results[i]
		if r.Silent() {
			continue
		}
		if g := r.Form.SDK + ": " + r.Form.Name; g != group {
			group = g
			p("\n## %s\n\n| failure | error | verdict | with a witness | intended |\n|---|---|---|---|---|\n", g)
		}
		wit := ""
		if r.Witnessed() {
			wit = mark(text(rounded(r.Wit)), r.RightWitnessed())
		}
		p("| %s | `%s` %s | %s | %s | %s |\n", cell(r.Failure.Name), chain(r.Bare.Err), cell(cut(said(r.Bare.Err))),
			mark(text(rounded(r.Bare)), r.Right()), wit, cell(r.Meaning.want))
	}
	p("\n## No error at all\n\n")
	for i := range results {
		if r := &results[i]; r.Silent() {
			p("- %s\n", strings.ReplaceAll(r.ID(), " | ", ", "))
		}
	}
}

func writeMistakes(w io.Writer, results []Result) {
	bare, wit := map[string]int{}, map[string]int{}
	for i := range results {
		r := &results[i]
		switch {
		case r.Silent():
			continue
		case !r.Right():
			bare[mistake(text(r.Bare.Verdict), r.Meaning.want)]++
		}
		if r.Witnessed() && !r.RightWitnessed() {
			wit[mistake(text(r.Wit.Verdict), r.Meaning.want)]++
		}
	}
	fmt.Fprint(w, "\n| mistake | bare | with a witness |\n|---|---|---|\n")
	var kinds []string
	for k := range bare {
		kinds = append(kinds, k)
	}
	for k := range wit {
		if bare[k] == 0 {
			kinds = append(kinds, k)
		}
	}
	slices.Sort(kinds)
	for _, k := range kinds {
		fmt.Fprintf(w, "| %s | %d | %d |\n", k, bare[k], wit[k])
	}
}

// WriteWrong lists the rows that are wrong, by the rule that would mend them.
func WriteWrong(w io.Writer, results []Result) {
	keys, _ := tally(results, func(r *Result) string { return string(r.Meaning.rule) })
	slices.Sort(keys)
	for _, k := range keys {
		fmt.Fprintf(w, "\n## %s\n\n", k)
		for i := range results {
			r := &results[i]
			if string(r.Meaning.rule) != k || r.Silent() {
				continue
			}
			if !r.Right() {
				fmt.Fprintf(w, "- %s\n  - got %s, want %s\n  - `%s` %s\n", r.ID(), text(rounded(r.Bare)), r.Meaning.want, chain(r.Bare.Err), cut(said(r.Bare.Err)))
			}
			if r.Witnessed() && !r.RightWitnessed() {
				fmt.Fprintf(w, "- with a witness: %s\n  - got %s, want %s\n  - `%s` %s\n", r.ID(), text(rounded(r.Wit)), r.Meaning.want, chain(r.Wit.Err), cut(said(r.Wit.Err)))
			}
		}
	}
}

func mark(verdict string, right bool) string {
	if right {
		return verdict
	}
	return "**" + verdict + "**"
}

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

// cut bounds the text of an error.
func cut(s string) string {
	const most = 200
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
