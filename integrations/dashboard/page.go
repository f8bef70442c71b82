package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// choice is which rows a request wants, and in which order.
type choice struct {
	find, show, sort string
	all              bool
	tool, group, ask string // the tool or group that is looked at, and what is to be done with it
}

func choiceOf(r *http.Request) choice {
	v := r.URL.Query()
	return choice{
		find: v.Get("q"), show: v.Get("show"), sort: v.Get("sort"), all: v.Has("all"),
		tool: v.Get("tool"), group: v.Get("group"), ask: v.Get("ask"),
	}
}

// link returns a link to the rows of c after a change of it.
func (c choice) link(change func(*choice)) string {
	change(&c)
	v := url.Values{}
	for key, value := range map[string]string{"q": c.find, "show": c.show, "sort": c.sort} {
		if value != "" {
			v.Set(key, value)
		}
	}
	if c.all {
		v.Set("all", "1")
	}
	return "./?" + v.Encode()
}

// pick returns the rows of c, and how many more there are.
func (s *state) pick(c choice) (rows []*row, left int) {
	find := strings.ToLower(c.find)
	for _, r := range s.rows {
		switch {
		case find != "" && !strings.Contains(strings.ToLower(r.Name), find) && !strings.Contains(strings.ToLower(r.health.Group), find):
		case c.show == "sick" && !r.Sick():
		case c.show == "refused" && r.health.Available:
		default:
			rows = append(rows, r)
		}
	}
	byFigure := func(figure func(*row) float64) {
		slices.SortStableFunc(rows, func(a, b *row) int { return cmp.Compare(figure(b), figure(a)) })
	}
	switch c.sort {
	case "name":
		slices.SortStableFunc(rows, func(a, b *row) int { return strings.Compare(a.Name, b.Name) })
	case "calls":
		byFigure(func(r *row) float64 { return float64(r.window.Calls) })
	case "failed":
		byFigure(func(r *row) float64 { return 1 - r.window.SuccessRate() })
	case "p50":
		byFigure(func(r *row) float64 { return float64(r.window.P50) })
	case "p90":
		byFigure(func(r *row) float64 { return float64(r.window.P90) })
	case "p99":
		byFigure(func(r *row) float64 { return float64(r.window.P99) })
	case "refused":
		byFigure(func(r *row) float64 { return float64(r.window.Refused) })
	}
	if !c.all && len(rows) > maxRows {
		return rows[:maxRows], len(rows) - maxRows
	}
	return rows, 0
}

// navigation is one link to some of the rows.
type navigation struct {
	Href, Text string
	N          int
	Here       bool
}

func (s *state) navigation(c choice) string {
	item := func(show, text string, n int) navigation {
		return navigation{c.link(func(c *choice) { c.show, c.all = show, false }), text, n, c.show == show}
	}
	return render("nav", []navigation{
		item("", "All", len(s.rows)), item("sick", "Need attention", s.sick),
		item("refused", "Cannot be called", s.view.Summary.Unavailable),
	})
}

// rest is what stands below the rows.
func rest(left, shown int, c choice) string {
	return render("more", map[string]any{
		"Left": left, "None": shown == 0, "Href": c.link(func(c *choice) { c.all = true }),
	})
}

// heading is the head of one column.
type heading struct{ Text, Class, Href, Sorted string }

func headings(c choice) []heading {
	column := func(text, class, sort string) heading {
		out := heading{Text: text, Class: class}
		if sort == "" {
			return out
		}
		by := strings.TrimPrefix(sort, "worst")
		out.Href = c.link(func(c *choice) { c.sort = by })
		if by == c.sort {
			out.Sorted = "descending"
			if sort == "name" {
				out.Sorted = "ascending"
			}
		}
		return out
	}
	return []heading{
		column("Tool", "", "name"), column("State", "", "worst"), column("Success", "n", "failed"),
		column("Calls", "n c-calls", "calls"), column("p90, 10 min", "c-spark", ""),
		column("p50", "n c-p50", "p50"), column("p90", "n", "p90"), column("p99", "n c-p99", "p99"),
		column("Failures", "", ""), column("Refused", "n c-refused", "refused"), column("Last hour", "c-hour", ""),
	}
}

// page answers with the whole page, as a browser without scripts needs it.
func (h *handler) page(w http.ResponseWriter, r *http.Request) {
	c := choiceOf(r)
	who, may := h.operator(r)
	text, err := h.renderPage(c, who, may)
	switch {
	case err != nil:
		http.Error(w, "no page", http.StatusInternalServerError)
	case text == nil:
		http.Error(w, "no such tool or group", http.StatusNotFound)
	default:
		send(w, r, "text/html; charset=utf-8", text)
	}
}

// renderPage returns nil if there is no such tool or group.
func (h *handler) renderPage(c choice, who string, may bool) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.state()
	var one template.HTML
	if c.tool != "" || c.group != "" {
		html, ok := h.one(s, c, who, may)
		if !ok {
			return nil, nil
		}
		one = template.HTML(html)
	}
	rows, left := s.pick(c)
	var table strings.Builder
	for _, r := range rows {
		table.WriteString(h.draw(s, r).html)
	}
	inside := func(id string) template.HTML { return template.HTML(s.parts[id].html) }
	zone, _ := s.view.Summary.At.Zone()
	var b bytes.Buffer
	err := pages.ExecuteTemplate(&b, "page", map[string]any{
		"Title": s.title, "Name": h.options.Name, "BannerIs": s.banner.Class, "StripIs": s.stripIs, "Choice": choiceFields(c),
		"Version": h.version(s), "At": time.Now().UnixMilli(), "Clock": clock(s.view.Summary.At), "Zone": zone,
		"Every":  min(h.watcher.Interval(), 2*time.Second).Milliseconds(),
		"Banner": inside("banner"), "Facts": inside("facts"), "Strip": inside("strip"), "Groups": inside("groups"), "Events": inside("events"),
		"Nav": template.HTML(s.navigation(c)), "Find": c.find, "Headings": headings(c),
		"Rows": template.HTML(table.String()), "More": template.HTML(rest(left, len(rows), c)), "Panel": one, "Asking": c.ask != "",
		"Window": s.covered(h.options.Window), "Began": s.view.Began.Format("2006-01-02 15:04:05"),
	})
	return b.Bytes(), err
}

// choiceFields are the parts of c that a new search keeps.
func choiceFields(c choice) map[string]string {
	fields := make(map[string]string)
	for key, value := range map[string]string{"show": c.show, "sort": c.sort} {
		if value != "" {
			fields[key] = value
		}
	}
	return fields
}

// version names a state. That of another run of the program is another one.
func (h *handler) version(s *state) string { return h.run + "." + strconv.FormatUint(s.number, 10) }

// known returns the number of the state that a client has; 0 if it has none.
func (h *handler) known(version string) uint64 {
	run, number, _ := strings.Cut(version, ".")
	if run != h.run {
		return 0
	}
	n, _ := strconv.ParseUint(number, 10, 64)
	return n
}

// news is what has changed since the client asked last.
type news struct {
	Version  string            `json:"v"`
	At       int64             `json:"at"` // now, in milliseconds
	Title    string            `json:"title"`
	BannerIs string            `json:"banner"`
	StripIs  string            `json:"strip"`
	Parts    map[string]string `json:"parts"` // insides of elements, by id
	Order    []int             `json:"order"` // ids of all rows; null if it is as before
	OrderIs  string            `json:"o"`     // the name of that order
	Rows     map[int]string    `json:"rows"`  // rows that changed, by id
}

// data answers with what has changed. v is the version that the client has, o the order.
func (h *handler) data(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // it is JSON, and nothing sniffs it
	if err := e.Encode(h.newsSince(choiceOf(r), q.Get("v"), q.Get("o"))); err != nil {
		http.Error(w, "no data", http.StatusInternalServerError)
		return
	}
	send(w, r, "application/json", b.Bytes())
}

func (h *handler) newsSince(c choice, version, order string) news {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, has := h.state(), h.known(version)
	rows, left := s.pick(c)
	n := news{
		Version: h.version(s), At: time.Now().UnixMilli(), Title: s.title, BannerIs: s.banner.Class, StripIs: s.stripIs,
		Parts: map[string]string{"nav": s.navigation(c), "more": rest(left, len(rows), c)}, Rows: make(map[int]string),
	}
	for id, p := range s.parts {
		if p.changed > has {
			n.Parts[id] = p.html
		}
	}
	sum := fnv.New64a()
	n.Order = make([]int, 0, len(rows))
	for _, r := range rows {
		n.Order = append(n.Order, r.ID)
		fmt.Fprint(sum, r.ID, " ")
		if d := h.draw(s, r); d.changed > has {
			n.Rows[r.ID] = d.html
		}
	}
	if n.OrderIs = strconv.FormatUint(sum.Sum64(), 36); has > 0 && n.OrderIs == order {
		n.Order = nil
	}
	return n
}
