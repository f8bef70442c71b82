package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

// groupRow is one group, and its tools.
type groupRow struct {
	condition
	health *toolhealth.GroupHealth
	at     time.Time
	Name   string
	Size   string // "3 tools"
	Tools  []*row // the worst first
}

func newGroupRow(h *toolhealth.GroupHealth, at time.Time) *groupRow {
	g := &groupRow{health: h, at: at, Name: h.Group, Size: counted(h.Tools, "tool")}
	if !g.holds(groupBreaker(h, at)) {
		g.is(rankHealthy, "ok", "ok", "reachable", "is reachable")
	}
	return g
}

// group makes the groups of s, the worst first. Its rows are in order already.
func (s *state) group() {
	s.byGroup = make(map[string]*groupRow, len(s.view.Summary.Groups))
	for i := range s.view.Summary.Groups {
		g := newGroupRow(&s.view.Summary.Groups[i], s.view.Summary.At)
		s.byGroup[g.Name] = g
		s.groups = append(s.groups, g)
	}
	slices.SortStableFunc(s.groups, func(a, b *groupRow) int { return a.rank - b.rank }) // by name in a summary
	for _, r := range s.rows {
		if g := s.byGroup[r.health.Group]; g != nil {
			g.Tools = append(g.Tools, r)
		}
	}
}

// chips returns the groups that stand above the table: those that need attention, and the
// others if all are few.
func (s *state) chips() map[string]any {
	n := len(s.groups)
	if n > maxGroups {
		n, _ = slices.BinarySearchFunc(s.groups, rankHealthy, func(g *groupRow, rank int) int { return g.rank - rank })
	}
	shown, rest := s.groups[:min(n, maxRows)], ""
	switch left := len(s.groups) - len(shown); {
	case n > maxRows:
		rest = fmt.Sprintf("and %d more", left)
	case left > 0 && n > 0:
		rest = fmt.Sprintf("and %d more, all reachable", left)
	case left > 0:
		rest = fmt.Sprintf("%d, all reachable", left)
	}
	return map[string]any{"Groups": shown, "Rest": rest}
}

// groupDetails is what the page says of one group.
type groupDetails struct {
	Group   *groupRow
	Says    []string // what it means and what to do
	Ops     ops
	Figures []figure
	Hour    hourStrip
	Tools   []*row
	More    int // tools that are not in Tools
	Events  []line
	Back    string
	Window  string
}

// groupDetails collects what is known of a group. The caller holds mu.
func (h *handler) groupDetails(s *state, g *groupRow, c choice, who string, may bool) groupDetails {
	t := g.health
	series := h.watcher.GroupSeries(g.Name)
	held := t.Reason == toolhealth.StopIsolated
	d := groupDetails{
		Group: g, Says: []string{g.meaning()},
		Ops:     newOps("group", g.Name, held, held || t.State != toolhealth.StateClosed || t.ConsecutiveFailures > 0, c, who, may),
		Figures: g.figures(), Hour: newHour(&series, nil, g.at, s.view.Began), Tools: g.Tools[:min(len(g.Tools), maxRows)],
		Events: lines(series.Events[:min(len(series.Events), maxOfPanel)], g.at), Back: c.link(func(*choice) {}),
		Window: s.covered(h.options.Window),
	}
	d.More = len(g.Tools) - len(d.Tools)
	if d.Hour.Opened > 3 {
		d.Says = append(d.Says, fmt.Sprintf("It flaps: it opened %d times in the last hour. Isolate it if half a server is worse than none.", d.Hour.Opened))
	}
	return d
}

func (g *groupRow) figures() []figure {
	var all watch.Window
	refused := 0
	for _, r := range g.Tools {
		w := r.window
		all.Span = w.Span
		all.Calls, all.Failures, all.Refused = all.Calls+w.Calls, all.Failures+w.Failures, all.Refused+w.Refused
		if !r.health.Available {
			refused++
		}
	}
	t := g.health
	last := ""
	if t.LastFailure != toolhealth.KindNone {
		last = "last one " + plain(t.LastFailure.String())
	}
	return []figure{
		{"Tools", strconv.Itoa(t.Tools), fmt.Sprintf("%d cannot be called", refused)},
		{"Success", share(&all), "of all its tools"},
		{"Calls", number(all.PerMinute(all.Calls)) + "/min", "of all its tools"},
		{"Refused", count(all.Refused), "of all its tools"},
		{"Failures in a row", strconv.Itoa(t.ConsecutiveFailures), cmp.Or(last, "to reach it")},
		{"Opened", strconv.FormatUint(t.Trips, 10) + "×", "since the start"},
	}
}

// meaning says what the condition of the group means, and what to do.
func (g *groupRow) meaning() string {
	t := g.health
	all := "every call of its " + counted(t.Tools, "tool")
	if t.Tools == 0 {
		all = "every call of a tool in it"
	}
	switch {
	case t.Reason == toolhealth.StopIsolated:
		return "An operator took it out of service at " + clock(t.Since) + ": " + all +
			" is refused, and no probe goes out, until an operator ends it."
	case t.State == toolhealth.StateHalfOpen && !t.Available:
		return "One call of one of its tools finds out whether it can be reached again; the others are refused meanwhile."
	case t.State != toolhealth.StateClosed && t.ProbeDue:
		return "Its cooldown is over, and no tool of it has been called since. The next call finds out whether it can be reached again."
	case t.State != toolhealth.StateClosed && t.Available:
		return "Its breaker is open, but observe_only lets every call in."
	case t.State == toolhealth.StateOpen:
		return fmt.Sprintf("It has been out of reach since %s, so %s is refused until a probe gets through: %s in a row, the last one %s. "+
			"Look at that server and the way to it, and re-route its calls. To reset its tools does not help.",
			clock(t.DownSince), all, counted(t.ConsecutiveFailures, "failure"), plain(t.LastFailure.String()))
	case t.ConsecutiveFailures > 0:
		return fmt.Sprintf("Calls go to it, but the last ones did not reach it: %s in a row, the last one %s.",
			counted(t.ConsecutiveFailures, "failure"), plain(t.LastFailure.String()))
	}
	return "It can be reached: calls of its tools go through."
}

// refusedByGroup says what it means for a tool that its group is not closed.
func (r *row) refusedByGroup() string {
	g := r.group
	name := g.Group
	switch {
	case g.Reason == toolhealth.StopIsolated:
		return "An operator took its whole group " + name + " out of service at " + clock(g.Since) + ". Every call of its " +
			counted(g.Tools, "tool") + " is refused until an operator ends that: at the group, not here."
	case g.State == toolhealth.StateHalfOpen && !g.Available:
		return "Its group " + name + " was out of reach. One call finds out whether it is back; the calls of all its " +
			counted(g.Tools, "tool") + " are refused meanwhile."
	case g.ProbeDue:
		return "Its group " + name + " was out of reach and its cooldown is over: the next call of any of its " + counted(g.Tools, "tool") +
			" finds out whether it is back."
	case g.Available:
		return "The breaker of its group " + name + " is open, but observe_only lets every call in."
	}
	return fmt.Sprintf("Its group %s has been out of reach since %s (%s), so the calls of all its %s are refused, whatever their own breakers say. "+
		"Look at that server, not at this tool, and re-route its calls. To reset the tool does not help.",
		name, clock(g.DownSince), plain(g.LastFailure.String()), counted(g.Tools, "tool"))
}
