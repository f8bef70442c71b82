package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// markEquivalent marks the mutants of the package in dir that its list calls
// equivalent to the original, and notes the lines that match no mutant. A line of
// the list is "KEY # reason", and the reason must not be empty. Without a list no
// mutant is equivalent.
func markEquivalent(dir string, p *pack) error {
	file := filepath.Join(dir, "testdata", "equivalent_mutants.txt")
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	listed := make(map[string]bool)
	for n, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, reason := line, ""
		if i := strings.LastIndex(line, " # "); i >= 0 { // the source in a key may hold one, too
			key, reason = line[:i], line[i+len(" # "):]
		}
		if strings.TrimSpace(reason) == "" {
			return fmt.Errorf("%s:%d: no reason is given after \" # \"", file, n+1)
		}
		if key = oneLine(key); listed[key] {
			return fmt.Errorf("%s:%d: listed twice: %s", file, n+1, key)
		}
		listed[key] = true
	}
	for _, m := range p.mutants {
		m.equivalent = listed[m.key()]
		delete(listed, m.key())
	}
	for key := range listed {
		p.stale = append(p.stale, key)
	}
	slices.Sort(p.stale)
	return nil
}

// report prints what contradicts the list of p and the totals of the mutants that
// were tried, and reports whether nothing contradicts it.
func report(p *pack, tried []*mutant) (ok bool) {
	ok = true
	complain := func(format string, args ...any) {
		ok = false
		fmt.Printf(format+"\n", args...)
	}
	for _, key := range p.stale {
		complain("listed as equivalent, but there is no such mutant: %s", key)
	}
	count := make(map[fate]int)
	excused := 0
	for _, m := range tried {
		count[m.fate]++
		switch {
		case m.alive() && m.equivalent:
			excused++
		case m.alive() || m.fate == untried:
			complain("%s", m.verdict())
		case m.equivalent:
			complain("listed as equivalent, but %s", m.verdict())
		}
	}
	if len(tried) > 0 {
		fmt.Printf("%d mutants: %d killed, %d timed out, %d survived, %d not reached; %d of the last two are listed as equivalent\n",
			len(tried), count[killed], count[timedOut], count[survived], count[unreached], excused)
	}
	return ok
}
