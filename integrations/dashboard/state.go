package dashboard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

// state is what the page shows of one version of the watcher, once for all who look.
type state struct {
	number  uint64 // from 1 on
	seen    uint64 // version of the watcher
	view    watch.View
	rows    []*row // the worst first
	byName  map[string]*row
	groups  []*groupRow // the worst first
	byGroup map[string]*groupRow
	sick    int
	title   string
	banner  banner
	parts   map[string]part // by the id of the element that they belong into
	stripIs string          // class of the strip
}

// part is the inside of an element, and the state that changed it last.
type part struct {
	html    string
	changed uint64
}

// drawing is the HTML of a row, the state that changed it last, and the one that last
// needed it.
type drawing struct {
	html                 string
	changed, drawn, used uint64
}

// keepDrawings is for how many states a drawing is kept that no page asks for.
const keepDrawings = 20

// state returns the state of now. The caller holds mu.
func (h *handler) state() *state {
	version := h.watcher.Version()
	old := h.current
	if old != nil && old.seen == version {
		return old
	}
	v := h.watcher.View(h.options.Window)
	s := &state{number: 1, seen: v.Version, view: v, byName: make(map[string]*row, len(v.Summary.Tools))}
	if old != nil {
		s.number = old.number + 1
	}
	ids, groups := make(map[string]int, len(v.Summary.Tools)), make(map[string]*toolhealth.GroupHealth, len(v.Summary.Groups))
	for i := range v.Summary.Groups {
		groups[v.Summary.Groups[i].Group] = &v.Summary.Groups[i]
	}
	lastSuccess := func(tool string) time.Time { return h.watcher.Series(tool).LastSuccess }
	for i := range v.Summary.Tools {
		t := &v.Summary.Tools[i]
		r := newRow(t, &v.Windows[i], groups[t.Group], v.Summary.At, lastSuccess)
		if r.ID = h.ids[r.Name]; r.ID == 0 {
			h.lastID++
			r.ID = h.lastID
		}
		ids[r.Name] = r.ID
		s.rows = append(s.rows, r)
		s.byName[r.Name] = r
		if r.Sick() {
			s.sick++
		}
	}
	h.ids = ids
	slices.SortFunc(s.rows, func(a, b *row) int { return cmp.Or(a.rank-b.rank, strings.Compare(a.Name, b.Name)) })
	s.group()
	maps.DeleteFunc(h.drawn, func(tool string, d *drawing) bool {
		return ids[tool] == 0 || s.number-d.used > keepDrawings
	})
	s.outline(h.options.Name, old)
	h.current = s
	return s
}

// outline renders what stands around the table.
func (s *state) outline(name string, old *state) {
	s.title = name + " · tool health"
	if s.sick > 0 {
		s.title = fmt.Sprintf("(%d) %s", s.sick, s.title)
	}
	s.banner = newBanner(s)
	marks := s.rows[:min(len(s.rows), maxMarks)]
	s.stripIs = ""
	if len(marks) > 80 {
		s.stripIs = "many"
	}
	s.parts = map[string]part{
		"banner": {html: render("banner", s.banner)},
		"facts":  {html: render("facts", s.facts())},
		"strip":  {html: render("strip", map[string]any{"Marks": marks, "More": len(s.rows) - len(marks)})},
		"groups": {html: render("groups", s.chips())},
		"events": {html: render("events", history(s.view.Events, s.view.Summary.At))},
	}
	for id, p := range s.parts {
		p.changed = s.number
		if old != nil && old.parts[id].html == p.html {
			p.changed = old.parts[id].changed
		}
		s.parts[id] = p
	}
}

// What the page shows at once, at most.
const (
	maxMarks   = 600 // in the strip
	maxEvents  = 30  // in the history of all tools
	maxOfTool  = 4   // there
	maxRows    = 100 // unless all are asked for
	maxNamed   = 4   // in the banner
	maxGroups  = 12  // above the table; if there are more, those that need attention
	maxOfPanel = 60  // events of one tool or group
)

// draw returns the drawing of a row. The caller holds mu.
func (h *handler) draw(s *state, r *row) *drawing {
	d := h.drawn[r.Name]
	if d == nil {
		d = new(drawing)
		h.drawn[r.Name] = d
	}
	d.used = s.number
	if d.drawn != s.number {
		series := h.watcher.Series(r.Name)
		html := render("row", r.cells(&series, h.groupSeries(r), s.view.Began))
		if html != d.html {
			d.html, d.changed = html, s.number
		}
		d.drawn = s.number
	}
	return d
}

// groupSeries returns what is kept of the group of a tool; nil without one.
func (h *handler) groupSeries(r *row) *watch.Series {
	if r.group == nil {
		return nil
	}
	series := h.watcher.GroupSeries(r.group.Group)
	return &series
}

// fact is one figure of all tools together.
type fact struct {
	Figure, Text string
	Alarm        bool
}

func (s *state) facts() (out []fact) {
	var all watch.Window
	var inFlight uint64
	for i := range s.view.Windows {
		w := &s.view.Windows[i]
		all.Calls += w.Calls
		all.Failures += w.Failures
		all.Refused += w.Refused
		all.Rejected += w.Rejected
		all.Span = w.Span
		inFlight += s.view.Summary.Tools[i].InFlight
	}
	add := func(figure, text string, alarm bool) { out = append(out, fact{figure, text, alarm}) }
	if all.Span > 0 {
		add(number(all.PerMinute(all.Calls)), "calls/min", false)
		add(percent(1-all.SuccessRate()), "of them failed", all.Calls > 20 && all.SuccessRate() < 0.9)
		add(number(all.PerMinute(all.Refused)), "refused/min", false)
		add(number(all.PerMinute(all.Rejected)), "rejected/min", false)
	} else {
		add("–", "calls/min, in a moment", false)
	}
	add(count(inFlight), "in flight", false)
	sum := &s.view.Summary
	for _, f := range []struct {
		n     uint64
		text  string
		alarm bool
	}{
		{sum.Untracked, "calls untracked: the registry is full", true},
		{sum.Evicted, "idle tools evicted", false},
		{sum.HookPanics, "panics in hooks", true},
		{sum.HookDropped, "events dropped: a hook hangs", true},
	} {
		if f.n > 0 {
			add(count(f.n), f.text, f.alarm)
		}
	}
	return out
}

// covered says what time the figures cover, for the foot of the page.
func (s *state) covered(window time.Duration) string {
	if w := s.view.Windows; len(w) > 0 && w[0].Span > 0 { // it is the same for all
		window = min(window, w[0].Span)
	}
	return span(window.Round(time.Second))
}
