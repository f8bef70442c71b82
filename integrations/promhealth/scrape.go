package promhealth

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth"
)

// scrape is what one scrape read. The next one needs it, to tell what came in between.
type scrape struct {
	at      time.Time
	summary toolhealth.Summary
	tools   []tool  // of summary.Tools, in their order
	groups  []group // of summary.Groups, in their order
	guarded bool    // a call of the registry has been guarded
}

// tool is what is known of one tool.
type tool struct {
	health   *toolhealth.ToolHealth
	latency  toolhealth.Latency
	answered uint64 // guarded calls
	name     string // the label; "" if it has no series of its own
	created  time.Time
	before   *tool // in the scrape before; nil if it was not there
}

// group is what is known of one group.
type group struct {
	health  *toolhealth.GroupHealth
	name    string
	created time.Time
	before  *group
}

// readRegistry returns what the registry says now, tied to the scrape before.
func (c *Collector) readRegistry() scrape {
	s := scrape{summary: c.registry.HealthSummary(), guarded: c.last.guarded}
	s.at = s.summary.At
	if s.at.IsZero() { // no registry
		s.at = time.Now()
	}
	s.tools = make([]tool, len(s.summary.Tools))
	for i := range s.tools {
		t := &s.tools[i]
		t.health, t.created = &s.summary.Tools[i], c.last.at
		t.latency, _ = c.registry.Latency(t.health.Tool)
		s.guarded = s.guarded || t.health.Guard != (toolhealth.GuardCounts{})
		j, found := slices.BinarySearchFunc(c.last.tools, t.health.Tool, func(t tool, name string) int {
			return cmp.Compare(t.health.Tool, name)
		})
		if found && !cameBack(t.health, c.last.tools[j].health) {
			t.before = &c.last.tools[j]
			t.created = t.before.created
		}
		t.settle()
	}
	s.groups = make([]group, len(s.summary.Groups))
	for i := range s.groups {
		g := &s.groups[i]
		g.health, g.created = &s.summary.Groups[i], c.last.at
		j, found := slices.BinarySearchFunc(c.last.groups, g.health.Group, func(g group, name string) int {
			return cmp.Compare(g.health.Group, name)
		})
		if found && c.last.groups[j].health.Epoch <= g.health.Epoch {
			g.before = &c.last.groups[j]
			g.created = g.before.created
		}
	}
	return s
}

// cameBack reports whether a tool lost its entry since it was as before, and got a new
// one.
func cameBack(h, before *toolhealth.ToolHealth) bool {
	return h.Epoch < before.Epoch || h.Successes < before.Successes || h.Failures < before.Failures ||
		h.Rejected < before.Rejected || h.Refused < before.Refused || h.Guard.Calls < before.Guard.Calls
}

// settle works out which guarded calls were answered. They and the attempts are what
// other counters leave, which are read one after the other: so they could go back by the
// calls that end meanwhile, and Prometheus would take that for a restart.
func (t *tool) settle() {
	g := &t.health.Guard
	t.answered = g.Calls - min(g.Calls, g.Failed+g.Rejected+g.Canceled+uint64(g.InFlight))
	if t.before != nil {
		t.answered = max(t.answered, t.before.answered)
		g.Attempts = max(g.Attempts, t.before.health.Guard.Attempts)
	}
}

// forget cuts the tie to the scrape before.
func (s *scrape) forget() {
	for i := range s.tools {
		s.tools[i].before = nil
	}
	for i := range s.groups {
		s.groups[i].before = nil
	}
}

// toolNames returns which tools had a label in the scrape before.
func (s *scrape) toolNames(last *scrape) map[string]bool {
	had := make(map[string]bool, len(last.tools))
	for i := range last.tools {
		if last.tools[i].name != "" {
			had[last.tools[i].health.Tool] = true
		}
	}
	return had
}

// names returns the labels of the tools and groups that have one.
func (s *scrape) names() map[owner]string {
	names := make(map[owner]string, len(s.tools)+len(s.groups))
	for i := range s.tools {
		if t := &s.tools[i]; t.name != "" {
			names[owner{tool: t.health.Tool}] = t.name
		}
	}
	for i := range s.groups {
		if g := &s.groups[i]; g.name != "" {
			names[owner{group: g.health.Group}] = g.name
		}
	}
	return names
}

// nameTools returns the label of each tool, and "" for those that have none. A tool that
// had one keeps it before others that are called about as much, so that few series come
// and go.
func nameTools(tools []toolhealth.ToolHealth, had map[string]bool, bound int) []string {
	sick := func(h *toolhealth.ToolHealth) bool { return !h.Available || h.Status != toolhealth.Healthy }
	calls := func(h *toolhealth.ToolHealth) int { // doublings of them
		return bits.Len64(h.Successes + h.Failures + h.Rejected + h.Throttled + h.Neutral)
	}
	name := func(i int) string { return tools[i].Tool }
	return label(len(tools), name, bound, func(i, j int) int {
		a, b := &tools[i], &tools[j]
		return cmp.Or(first(sick(a), sick(b)), calls(b)-calls(a), first(had[a.Tool], had[b.Tool]), i-j)
	})
}

// nameGroups is nameTools for groups: those that are not well, then those with the most
// tools.
func nameGroups(groups []toolhealth.GroupHealth, bound int) []string {
	sick := func(h *toolhealth.GroupHealth) bool { return !h.Available || h.State != toolhealth.StateClosed }
	name := func(i int) string { return groups[i].Group }
	return label(len(groups), name, bound, func(i, j int) int {
		a, b := &groups[i], &groups[j]
		return cmp.Or(first(sick(a), sick(b)), b.Tools-a.Tools, i-j)
	})
}

// first orders what is true before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// label returns the label of each of n names: the name as UTF-8, or "" for a name that is
// taken, by one that is UTF-8 or comes before it, and for those that compare says are the
// last of more than the bound.
func label(n int, name func(int) string, bound int, compare func(i, j int) int) []string {
	labels := make([]string, n)
	taken := map[string]bool{Other: true}
	var named []int
	claim := func(i int, text string) {
		if !taken[text] {
			taken[text], labels[i] = true, text
			named = append(named, i)
		}
	}
	var unclean []int
	for i := range n {
		if text := name(i); strings.ToValidUTF8(text, "") == text {
			claim(i, text)
		} else {
			unclean = append(unclean, i)
		}
	}
	for _, i := range unclean {
		claim(i, clean(name(i)))
	}
	if bound != toolhealth.Off && len(named) > bound {
		slices.SortFunc(named, compare)
		for _, i := range named[bound:] {
			labels[i] = ""
		}
	}
	return labels
}

// clean returns a text as UTF-8, which Prometheus insists on.
func clean(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
