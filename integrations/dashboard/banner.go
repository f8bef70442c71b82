package dashboard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toolhealth/toolhealth"
)

// banner is the whole page in a sentence.
type banner struct {
	Class, Icon, Head string
	Sick              []named // the worst
	Rest              int     // tools and groups that are sick, too
	Held              string
	Hints             []string
}

// named is a tool or a group that the banner names. Key is "tool" or "group".
type named struct {
	Key, Name, Why, Down string
	DownSince            int64
}

func newBanner(s *state) banner {
	b := banner{Class: "ok", Icon: "ok"}
	held := b.name(s)
	n, out := len(s.rows), s.view.Summary.Unavailable
	switch {
	case n == 0:
		b.Head, b.Class, b.Icon = "No tool has been called yet.", "idle", "idle"
	case s.sick == 0 && n == 1:
		b.Head = "The tool is healthy."
	case s.sick == 0:
		b.Head = fmt.Sprintf("All %d tools are healthy.", n)
	case n == 1 && out == 1:
		b.Class, b.Icon, b.Head = "bad", "bad", "The tool cannot be called."
	case n == 1:
		b.Class, b.Icon, b.Head = "warn", "warn", "The tool is not well; calls still go to it."
	case out == 0:
		b.Class, b.Icon = "warn", "warn"
		b.Head = fmt.Sprintf("%d of %d tools %s not well; calls still go to %s.", s.sick, n, are(s.sick), them(s.sick))
	default:
		b.Class, b.Icon = "bad", "bad"
		b.Head = fmt.Sprintf("%d of %d tools cannot be called", out, n)
		if more := s.sick - out; more > 0 {
			b.Head += fmt.Sprintf(", %d more %s not well", more, are(more))
		}
		b.Head += "."
	}
	if held > 0 && held == s.sick {
		b.Class, b.Icon = "held", "held" // an operator knows
	}
	b.Hints = hints(s)
	return b
}

// name names the worst: groups, which are several tools each, before tools. It returns how
// many tools an operator holds.
func (b *banner) name(s *state) (held int) {
	told := make(map[string]bool)
	var groups, tools []named
	var heldGroups []string
	heldTools := 0
	for _, r := range s.rows[:s.sick] {
		if r.rank == rankHeld {
			held++
		}
		switch {
		case !r.byGroup && r.rank == rankHeld:
			heldTools++
		case !r.byGroup:
			tools = append(tools, named{"tool", r.Name, r.Why, r.Down, r.DownSince})
		case told[r.group.Group]:
		case r.rank == rankHeld:
			heldGroups = append(heldGroups, r.group.Group)
		default:
			g := s.byGroup[r.group.Group]
			groups = append(groups, named{"group", g.Name, "(" + g.Size + ") " + g.Why, g.Down, g.DownSince})
		}
		if r.byGroup {
			told[r.group.Group] = true
		}
	}
	b.Sick = append(groups, tools...)
	b.Rest = max(0, len(b.Sick)-maxNamed)
	b.Sick = b.Sick[:len(b.Sick)-b.Rest]
	b.Held = isolated(heldTools, heldGroups)
	return held
}

// isolated says what operators hold; "" if that is nothing.
func isolated(tools int, groups []string) string {
	var parts []string
	if tools > 0 {
		parts = append(parts, fmt.Sprint(tools))
	}
	switch len(groups) {
	case 0:
	case 1:
		parts = append(parts, "group "+groups[0])
	default:
		parts = append(parts, counted(len(groups), "group"))
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, " and ") + " isolated by an operator"
}

func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func them(n int) string {
	if n == 1 {
		return "it"
	}
	return "them"
}

// counted writes "1 tool", "2 tools".
func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprint(n, " ", noun)
}

// hints says what many sick tools have in common. The sick rows come first.
func hints(s *state) (out []string) {
	unreachable, oneGroup := 0, true
	down := make(map[string][]*row) // by group
	for _, r := range s.rows[:s.sick] {
		oneGroup = oneGroup && r.group != nil && r.group == s.rows[0].group
		if r.rank == rankHeld {
			continue
		}
		kind := r.health.LastFailure
		if r.byGroup {
			kind = r.group.LastFailure
		}
		if kind == toolhealth.KindConnection || kind == toolhealth.KindNotDispatched {
			unreachable++
		}
		if r.rank == rankOut && !r.byGroup && r.group != nil {
			down[r.group.Group] = append(down[r.group.Group], r)
		}
	}
	if unreachable == len(s.rows) && unreachable > 2 && !oneGroup {
		return []string{"Every tool fails to connect: look at this host and its network first. A reset does not help."}
	}
	for _, group := range slices.Sorted(maps.Keys(down)) {
		same := down[group]
		kind := same[0].health.LastFailure
		if len(same) > 2 && !slices.ContainsFunc(same, func(r *row) bool { return r.health.LastFailure != kind }) {
			out = append(out, fmt.Sprintf("%d of %d tools of %s fail the same way (%s): look at that server.",
				len(same), same[0].group.Tools, group, plain(kind.String())))
		}
	}
	return out[:min(len(out), 3)]
}
