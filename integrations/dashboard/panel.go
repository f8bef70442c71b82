package dashboard

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

// details is what the page says of one tool.
type details struct {
	Row     *row
	Says    []string  // what it means and what to do
	Group   *groupRow // nil without one
	Ops     ops
	Figures []figure
	Guard   []figure
	Kinds   []kindBar
	Labels  []figure
	Hour    hourStrip
	Spark   spark
	Took    chart
	TookIn  string // the time that Took is of
	Events  []line
	Back    string
	Window  string
}

// ops is what may be done with a tool or a group. Key is "tool" or "group".
type ops struct {
	Key, Name      string
	May            bool // whether who looks may act
	Who            string
	Held, CanReset bool
	Ask            string // "isolate" or "reset": whether it shall be done
	Isolate, Reset string // what that means
}

func newOps(key, name string, held, canReset bool, c choice, who string, may bool) ops {
	o := ops{Key: key, Name: name, May: may, Who: who, Held: held, CanReset: canReset, Isolate: "refuse every call of it", Reset: "let its calls through"}
	if key == "group" {
		o.Isolate, o.Reset = "refuse every call of all its tools", "let calls of its tools through"
	}
	if may && (c.ask == "isolate" && !held || c.ask == "reset" && canReset) {
		o.Ask = c.ask
	}
	return o
}

type figure struct{ Name, Value, Note string }

type kindBar struct {
	Name  string
	Width float64
	N     uint64
}

// panel answers with the details of one tool or group, for a page that is open already.
func (h *handler) panel(w http.ResponseWriter, r *http.Request) {
	who, may := h.operator(r)
	text, ok := h.renderPanel(choiceOf(r), who, may)
	if !ok {
		http.Error(w, "no such tool", http.StatusNotFound)
		return
	}
	send(w, r, "text/html; charset=utf-8", []byte(text))
}

func (h *handler) renderPanel(c choice, who string, may bool) (html string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.one(h.state(), c, who, may)
}

// one returns the details of the tool or group of c, and whether there is one. The caller
// holds mu.
func (h *handler) one(s *state, c choice, who string, may bool) (html string, ok bool) {
	if g := s.byGroup[c.group]; c.group != "" && g != nil {
		return render("group", h.groupDetails(s, g, c, who, may)), true
	}
	if r := s.byName[c.tool]; c.group == "" && r != nil {
		return render("panel", h.details(s, r, c, who, may)), true
	}
	return "", false
}

// details collects what is known of a tool. The caller holds mu.
func (h *handler) details(s *state, r *row, c choice, who string, may bool) details {
	t := r.health
	series, group := h.watcher.Series(r.Name), h.groupSeries(r)
	events := series.Events
	if group != nil {
		events = slices.Concat(events, group.Events)
		slices.SortStableFunc(events, func(a, b watch.Event) int { return b.When.Compare(a.When) })
	}
	own := !r.byGroup && !t.Available
	held := own && t.Reason == toolhealth.StopIsolated
	d := details{
		Row: r, Says: advice(r), Group: s.byGroup[t.Group],
		Ops: newOps("tool", r.Name, held, t.State != toolhealth.StateClosed || own && t.Reason == toolhealth.StopRateLimited ||
			t.ConsecutiveFailures > 0, c, who, may),
		Figures: figures(r, &series), Guard: guardFigures(t.Guard), Hour: newHour(&series, group, r.at, s.view.Began), Spark: newSpark(series.Slots),
		Events: lines(events[:min(len(events), maxOfPanel)], r.at), Back: c.link(func(*choice) {}), Window: s.covered(h.options.Window),
	}
	for i := range d.Events {
		if events[i].Group != "" {
			d.Events[i].Text = "its group: " + d.Events[i].Text
		}
	}
	d.TookIn = "last " + d.Window
	took := h.watcher.Latency(r.Name, h.options.Window)
	if took.Successes.Count == 0 { // what is normal is worth more than what failed lately
		took, _ = h.registry.Latency(r.Name)
		d.TookIn = "since the start"
	}
	d.Took = newChart(took)
	if d.Hour.Opened > 3 {
		d.Says = append(d.Says, fmt.Sprintf("It flaps: it opened %d times in the last hour. Isolate it if half a tool is worse than none.", d.Hour.Opened))
	}
	for _, k := range slices.SortedFunc(maps.Keys(t.ByKind), func(a, b toolhealth.Kind) int {
		return cmp.Or(cmp.Compare(t.ByKind[b], t.ByKind[a]), cmp.Compare(a, b))
	}) {
		d.Kinds = append(d.Kinds, kindBar{plain(k.String()), round(100 * float64(t.ByKind[k]) / float64(max(t.Failures, 1))), t.ByKind[k]})
	}
	for _, key := range slices.Sorted(maps.Keys(t.Labels)) {
		d.Labels = append(d.Labels, figure{Name: key, Value: t.Labels[key]})
	}
	return d
}

func figures(r *row, s *watch.Series) []figure {
	t, w := r.health, r.window
	out := []figure{
		{"Success", share(w), percent(t.SuccessRate()) + " since the start"},
		{"Calls", number(w.PerMinute(w.Calls)) + "/min", count(t.TotalCalls()) + " since the start"},
		{"p50", dash(span(w.P50)), dash(span(t.P50)) + " since the start"},
		{"p90", dash(span(w.P90)), dash(span(t.P90)) + " since the start"},
		{"p99", dash(span(w.P99)), dash(span(t.P99)) + " since the start"},
		{"Longest", dash(span(t.Max)), "since the start"},
		{"Failures in a row", strconv.Itoa(t.ConsecutiveFailures), count(t.Failures) + " since the start"},
		{"Opened", strconv.FormatUint(t.Trips, 10) + "×", "since the start"},
		{"Refused", count(w.Refused), count(t.RefusedInRow) + " since the last call"},
		{"Rejected", count(w.Rejected), count(t.Rejected) + " since the start"},
		{"Throttled", count(w.Throttled), count(t.Throttled) + " since the start"},
		{"In flight", count(t.InFlight), ""},
		{"Score", strconv.FormatFloat(t.Score, 'f', 2, 64), "of 1"},
	}
	when := func(name string, t time.Time, note string) {
		if !t.IsZero() {
			out = append(out, figure{name, clock(t), note})
		}
	}
	when("Last success", s.LastSuccess, "")
	when("Last failure", t.LastFailureAt, plain(t.LastFailure.String()))
	when("Last rejection", t.LastRejectedAt, "")
	if t.WouldRefuse > 0 {
		out = append(out, figure{"Let in all the same", count(t.WouldRefuse), "observe only"})
	}
	return out
}

// share writes the success rate, which there is none of without calls.
func share(w *watch.Window) string {
	if w.Calls == 0 {
		return "–"
	}
	return percent(w.SuccessRate())
}

func guardFigures(g toolhealth.GuardCounts) []figure {
	if g == (toolhealth.GuardCounts{}) {
		return nil
	}
	return []figure{
		{"Calls", count(g.Calls), ""}, {"Failed", count(g.Failed), ""}, {"Attempts", count(g.Attempts), ""},
		{"Retries", count(g.Retries), ""}, {"Served by a substitute", count(g.Fallbacks), ""},
		{"Budget exhausted", count(g.BudgetExhausted), ""}, {"Abandoned", strconv.FormatInt(g.Abandoned, 10), "still running"},
		{"Running", strconv.Itoa(g.InFlight), ""}, {"Oldest", dash(span(g.Oldest)), ""},
	}
}

// advice says what the figures mean and what to do.
func advice(r *row) (out []string) {
	t, w := r.health, r.window
	if says := meaning(r); says != "" {
		out = append(out, says)
	}
	if r.hang > 0 {
		out = append(out, r.whatToDoOfHang())
	}
	if r.byGroup && t.State != toolhealth.StateClosed && t.IsolatedBy == "" {
		out = append(out, "Its own breaker is open, too.")
	}
	if t.RefusedInRow > 20 {
		out = append(out, fmt.Sprintf("The model keeps asking for it, %d times since it was last let through. Leave it out of the prompt: Gate.Offer.", t.RefusedInRow))
	}
	switch {
	case t.RejectedInRow >= 10 && t.NeutralByKind[toolhealth.KindContract] > t.RejectedByKind[toolhealth.KindUnauthorized]:
		out = append(out, "Its answers are not in the agreed format: look for a new version of the tool.")
	case t.RejectedInRow >= 10:
		out = append(out, fmt.Sprintf("It rejected the last %d calls: renew its credentials, or look for a new version of the tool.", t.RejectedInRow))
	case w.Rejected > 10 && w.Rejected > w.Calls/2:
		out = append(out, "It rejects many requests. The tool works; look at what the model sends.")
	}
	if t.RefusedByReason[toolhealth.StopBusy] > 0 && t.Reason == toolhealth.StopBusy {
		out = append(out, "More calls come at once than max_in_flight allows: raise it, or call less.")
	}
	if g := &t.Guard; g.Abandoned > 0 {
		out = append(out, fmt.Sprintf("%d abandoned attempts are still running: the function ignores its ctx. Isolate the tool, then fix the function.", g.Abandoned))
	}
	return out
}

// whatToDoOfHang says what to do about a call that hangs.
func (r *row) whatToDoOfHang() string {
	t := r.health
	says := "A call of it has been running for " + seconds(r.hang) + ". "
	if n := t.Guard.InFlight; n > 1 {
		says = fmt.Sprintf("%d calls of it are running, the oldest for %s. ", n, seconds(r.hang))
	}
	switch {
	case t.InFlight == 0: // the call is out, but not in this tool
		return says + "The tool itself is not at work: the call waits for its next attempt, or a substitute is at it. Look at its substitutes."
	case t.Available:
		says += "Isolate keeps new calls away; what runs already goes on. "
	default:
		says += "New calls are refused; what runs already goes on. "
	}
	return says + "If it runs for longer than timeout and retries of the tool allow, the function ignores its ctx: set detach, or restart the program."
}

// lastFailure says when a tool failed last, and how.
func (r *row) lastFailure() string {
	return "the last failure was at " + clock(r.health.LastFailureAt) + " (" + plain(r.health.LastFailure.String()) + ")."
}

// meaning says what the condition of the tool means; "" if only that a call hangs.
func meaning(r *row) string {
	t, w := r.health, r.window
	switch {
	case r.byGroup:
		return r.refusedByGroup()
	case t.Reason == toolhealth.StopIsolated:
		return "An operator took it out of service at " + clock(t.Since) + ". Every call is refused, and no probe goes out, until an operator ends it."
	case t.Reason == toolhealth.StopRateLimited:
		return "It asked us to wait, so calls are refused until then. Wait, or re-route. Reset only if you know that the quota is new."
	case t.Reason == toolhealth.StopBusy:
		return "As many calls are out as it may have at once."
	case t.State == toolhealth.StateHalfOpen && !t.Available:
		return "One call finds out whether it is well again; all others are refused meanwhile. If it never reports, its lease ends it."
	case t.State != toolhealth.StateClosed && t.ProbeDue:
		return "Its cooldown is over, and nobody has called it since. If calls are expected, check that the host still offers it to the model."
	case t.State != toolhealth.StateClosed && t.Available:
		return "Its breaker is open, but observe_only lets every call in."
	case t.State == toolhealth.StateOpen:
		return fmt.Sprintf("It is down since %s, and the breaker does its work: %d failures in a row, the last one %s. Re-route its calls, and tell whoever runs the tool.",
			clock(t.DownSince), t.ConsecutiveFailures, plain(t.LastFailure.String()))
	case r.succeededLast:
		return "Its last call succeeded; " + r.lastFailure() + " Its score rises with each success. If it fails now and then, set failure_rate."
	case r.hasFailed:
		return "Calls go to it again; " + r.lastFailure() + " Its score rises with each success."
	case t.Score < 0.8 && t.ConsecutiveFailures > 0 && t.LastFailure == toolhealth.KindTimeout:
		return fmt.Sprintf("It does not answer in time: %s in a row, the last one at %s. Calls still go to it; more failures in a row open its breaker. "+
			"If it is only slow, raise its timeout; if it is stuck, isolate it, and tell whoever runs it.",
			counted(t.ConsecutiveFailures, "failure"), clock(t.LastFailureAt))
	case t.Failures == 1 && t.TotalCalls() == 1:
		return fmt.Sprintf("Its only call so far failed (%s). Calls still go to it; more failures in a row open its breaker.", plain(t.LastFailure.String()))
	case t.Status == toolhealth.Unhealthy:
		return "Most of its calls fail, but not enough in a row to open the breaker. Set failure_rate if it shall open."
	case t.Status == toolhealth.Degraded && t.Score < 0.8:
		return "It fails now and then, and calls still go to it. If that lasts, set failure_rate."
	case t.Status == toolhealth.Degraded:
		return "Calls go to it, but they come to nothing."
	case r.hang > 0:
		return ""
	case noneEnded(w) && running(t) > 0:
		return "It is being called: " + counted(running(t), "call") + " in flight. None has ended in the last minutes."
	case noneEnded(w) && w.Refused == 0:
		return "Nobody has called it in the last minutes."
	}
	return "It is well: calls go through."
}
