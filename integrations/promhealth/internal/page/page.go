package main

import "strings"

// source is the Prometheus that the person chose.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// builder lays out panels from the left to the right and from the top to the bottom.
type builder struct {
	panels []panel
	x, y   int
	height int // of the present row
}

// add adds a panel of this size.
func (b *builder) add(w, h int, p panel) {
	if b.x+w > 24 {
		b.x, b.y, b.height = 0, b.y+b.height, 0
	}
	p.ID, p.GridPos = len(b.panels)+1, place{b.x, b.y, w, h}
	if p.Type != "row" {
		p.Datasource = source
	}
	for i := range p.Targets {
		p.Targets[i].RefID = string(rune('A' + i))
	}
	b.panels = append(b.panels, p)
	b.x, b.height = b.x+w, max(b.height, h)
}

// row adds a heading.
func (b *builder) row(title string) { b.add(24, 1, panel{Title: title, Type: "row"}) }

// query returns a query. {} in it becomes the series that the person chose, "{" with more
// after it those of them, and {group} is for series that have a group and no tool.
func query(expr, legend string) target {
	const process = `job=~"$job",instance=~"$instance"`
	expr = strings.NewReplacer("{}", "{"+process+`,tool=~"$tool"}`, "{group}", "{"+process+"}", "{group,", "{"+process+",", "{", "{"+process+`,tool=~"$tool",`).Replace(expr)
	return target{Datasource: source, Expr: expr, Legend: legend, Range: true, EditorMode: "code"}
}

// cell returns a query for a column of a table.
func cell(expr string) target {
	t := query(expr, "")
	t.Format, t.Instant, t.Range = "table", true, false
	return t
}

// quantile returns a query for a quantile of how long successes took, as classic buckets
// or, where Prometheus takes those, as native ones. by is a label, or "".
func quantile(q, by string) string {
	classic, native := "le", ""
	if by != "" {
		classic, native = by+", le", " by ("+by+") "
	}
	return `histogram_quantile(` + q + `, sum by (` + classic + `) (rate(toolhealth_call_duration_seconds_bucket{outcome="success"}[$__rate_interval])))` +
		` or histogram_quantile(` + q + `, sum` + native + `(rate(toolhealth_call_duration_seconds{outcome="success"}[$__rate_interval])))`
}

// steps colors values: "green", "red", 1 is red from 1 up.
func steps(first string, more ...any) object {
	list := []object{{"color": first, "value": nil}}
	for i := 0; i < len(more); i += 2 {
		list = append(list, object{"color": more[i], "value": more[i+1]})
	}
	return object{"mode": "absolute", "steps": list}
}

func defaults(unit string, more object) object {
	d := object{"unit": unit}
	for key, value := range more {
		d[key] = value
	}
	return object{"defaults": d, "overrides": []object{}}
}

// stat returns a panel of one figure.
func stat(title, description, unit, expr string, colors object) panel {
	mode := "none"
	if colors != nil {
		mode = "background"
	}
	more := object{}
	if colors != nil {
		more["thresholds"] = colors
	}
	return panel{
		Title: title, Description: description, Type: "stat", Targets: []target{query(expr, "")}, FieldConfig: defaults(unit, more),
		Options: object{"colorMode": mode, "graphMode": "area", "reduceOptions": object{"calcs": []string{"lastNotNull"}}},
	}
}

// lines returns a panel of lines, which are areas on top of each other if they are stacked.
func lines(title, description, unit string, stacked bool, targets ...target) panel {
	custom := object{"fillOpacity": 10}
	if stacked {
		custom = object{"fillOpacity": 40, "stacking": object{"mode": "normal"}}
	}
	return panel{Title: title, Description: description, Type: "timeseries", Targets: targets, FieldConfig: defaults(unit, object{"custom": custom})}
}

// page returns the whole page.
func page() dashboard {
	var b builder
	summary(&b)
	b.row("The tools chosen above")
	calls(&b)
	b.row("Guarded calls")
	guarded(&b)
	b.row("The registry")
	registry(&b)
	variable := func(name, of string) object {
		return object{
			"name": name, "type": "query", "datasource": source, "query": object{"query": of, "refId": "v"}, "refresh": 2, "sort": 1,
			"includeAll": true, "allValue": ".*", "multi": true, "current": object{"text": "All", "value": "$__all"},
		}
	}
	return dashboard{
		Title: "Tool health", UID: "toolhealth", Description: "What the breakers of an agent's tools do, as promhealth exports it.",
		Tags: []string{"toolhealth"}, SchemaVersion: 39, Timezone: "browser", Refresh: "30s", Time: object{"from": "now-1h", "to": "now"},
		Templating: list{[]object{
			{"name": "datasource", "type": "datasource", "query": "prometheus"},
			variable("job", "label_values(toolhealth_tools, job)"),
			variable("instance", `label_values(toolhealth_tools{job=~"$job"}, instance)`),
			variable("tool", `label_values(toolhealth_trips_total{job=~"$job",instance=~"$instance"}, tool)`),
		}},
		Annotations: list{[]object{{
			"name": "Opened", "datasource": source, "enable": true, "iconColor": "red", "titleFormat": "{{tool}} opened",
			"expr": query("sum by (tool) (increase(toolhealth_trips_total{}[$__rate_interval])) > 0", "").Expr,
		}}},
		Panels: b.panels,
	}
}

// states are the values of the timeline.
var states = []object{{"type": "value", "options": object{
	"0": object{"text": "closed", "color": "green", "index": 0},
	"1": object{"text": "open", "color": "red", "index": 1},
	"2": object{"text": "half-open", "color": "blue", "index": 2},
	"3": object{"text": "isolated", "color": "purple", "index": 3},
	"4": object{"text": "rate limited", "color": "orange", "index": 4},
}}}

// timeline returns a panel of states: the worst one of all replicas.
func timeline(title, description, legend, expr string) panel {
	return panel{
		Title: title, Description: description, Type: "state-timeline", Targets: []target{query(expr, legend)},
		FieldConfig: defaults("short", object{"mappings": states, "custom": object{"fillOpacity": 80, "lineWidth": 0}}),
		Options:     object{"mergeValues": true, "showValue": "never", "rowHeight": 0.8, "legend": object{"showLegend": true, "displayMode": "list", "placement": "bottom"}},
	}
}

func summary(b *builder) {
	b.add(4, 4, stat("Cannot be called", "Tools that at least one replica refuses now.", "short",
		"count(max by (job, tool) (toolhealth_tool_unavailable{}) == 1) or vector(0)", steps("green", "red", 1)))
	b.add(4, 4, stat("Groups that are down", "Groups whose breaker is not closed, on at least one replica.", "short",
		`count(max by (job, group) (1 - toolhealth_group_state{group,state="closed"}) == 1) or vector(0)`, steps("green", "red", 1)))
	b.add(4, 4, stat("Attempts that fail", "Of those that end as a success or a failure.", "percentunit",
		`sum(rate(toolhealth_calls_total{outcome="failure"}[$__rate_interval])) / sum(rate(toolhealth_calls_total{outcome=~"success|failure"}[$__rate_interval]))`,
		steps("green", "orange", 0.05, "red", 0.2)))
	b.add(4, 4, stat("Attempts", "", "reqps", "sum(rate(toolhealth_calls_total{}[$__rate_interval]))", nil))
	b.add(4, 4, stat("Refused calls", "The model asks for tools that it cannot have.", "reqps", "sum(rate(toolhealth_refusals_total{}[$__rate_interval]))", steps("green", "orange", 0.2)))
	b.add(4, 4, stat("Opened in the last hour", "Counted, so that what is shorter than the time between two scrapes is in it.", "short",
		"sum(increase(toolhealth_trips_total{}[1h]))", steps("green", "orange", 1)))
	b.add(24, 8, timeline("Tools that were not well", "The worst state of all replicas. A tool that was closed all the time is not listed.", "{{tool}}",
		`(max by (tool) (toolhealth_tool_state{state="open"}) + 2 * max by (tool) (toolhealth_tool_state{state="half-open"})`+
			` + 2 * max by (tool) (toolhealth_tool_unavailable{reason="isolated"})`+
			` + 4 * max by (tool) (toolhealth_tool_unavailable{reason="rate_limited"} * ignoring (reason, state) toolhealth_tool_state{state="closed"}))`+
			` and on (tool) (sum by (tool) (increase(toolhealth_transitions_total{}[$__range])) > 0 or max by (tool) (max_over_time(toolhealth_tool_unavailable{}[$__range])) > 0)`))
	b.add(24, 5, timeline("Groups", "The worst state of all replicas.", "{{group}}",
		`max by (group) (toolhealth_group_state{group,state="open"}) + 2 * max by (group) (toolhealth_group_state{group,state="half-open"})`+
			` + 2 * max by (group) (toolhealth_group_unavailable{group,reason="isolated"})`))
	b.add(24, 9, table())
}

// table returns a panel with a row for each tool.
func table() panel {
	columns := []struct{ name, unit, expr string }{
		{"Refused now", "short", "max by (tool) (toolhealth_tool_unavailable{})"},
		{"Down for", "s", "time() - min by (tool) (toolhealth_tool_down_since_timestamp_seconds{})"},
		{"Score", "percentunit", "min by (tool) (toolhealth_tool_score_ratio{})"},
		{"Attempts/s", "reqps", "sum by (tool) (rate(toolhealth_calls_total{}[$__rate_interval]))"},
		{"Fail", "percentunit", `sum by (tool) (rate(toolhealth_calls_total{outcome="failure"}[$__rate_interval])) / sum by (tool) (rate(toolhealth_calls_total{outcome=~"success|failure"}[$__rate_interval]))`},
		{"p90", "s", quantile("0.9", "tool")},
		{"Refused", "short", "sum by (tool) (increase(toolhealth_refusals_total{}[$__range]))"},
		{"Would be refused", "short", "sum by (tool) (increase(toolhealth_would_refuse_total{}[$__range]))"},
	}
	p := panel{Title: "Tools", Type: "table"}
	hidden, names := object{"Time": true}, object{}
	var overrides []object
	for i, c := range columns {
		p.Targets = append(p.Targets, cell(c.expr))
		hidden["Time "+string(rune('1'+i))] = true
		names["Value #"+string(rune('A'+i))] = c.name
		overrides = append(overrides, object{"matcher": object{"id": "byName", "options": c.name}, "properties": []object{{"id": "unit", "value": c.unit}}})
	}
	p.FieldConfig = object{"defaults": object{}, "overrides": overrides}
	p.Transformations = []object{
		{"id": "joinByField", "options": object{"byField": "tool", "mode": "outer"}},
		{"id": "organize", "options": object{"excludeByName": hidden, "renameByName": names}},
		{"id": "sortBy", "options": object{"sort": []object{{"field": "Refused now", "desc": true}}}},
	}
	return p
}

func calls(b *builder) {
	b.add(12, 8, lines("Attempts by outcome", "", "reqps", true, query("sum by (outcome) (rate(toolhealth_calls_total{}[$__rate_interval]))", "{{outcome}}")))
	b.add(12, 8, lines("Refused calls by reason", "", "reqps", true, query("sum by (reason) (rate(toolhealth_refusals_total{}[$__rate_interval]))", "{{reason}}")))
	b.add(12, 8, lines("Failures by kind", "", "reqps", true, query("sum by (kind) (rate(toolhealth_failures_total{}[$__rate_interval]))", "{{kind}}")))
	b.add(12, 8, lines("Rejected and neutral attempts by kind", "", "reqps", true,
		query("sum by (kind) (rate(toolhealth_rejections_total{}[$__rate_interval]))", "rejected: {{kind}}"),
		query("sum by (kind) (rate(toolhealth_neutrals_total{}[$__rate_interval]))", "neutral: {{kind}}")))
	var quantiles []target
	for _, q := range []struct{ q, name string }{{"0.5", "p50"}, {"0.9", "p90"}, {"0.99", "p99"}} {
		quantiles = append(quantiles, query(quantile(q.q, ""), q.name))
	}
	b.add(12, 8, lines("How long successes take", "", "s", false, quantiles...))
	heat := query(`sum by (le) (increase(toolhealth_call_duration_seconds_bucket{outcome="success"}[$__rate_interval])) or sum(increase(toolhealth_call_duration_seconds{outcome="success"}[$__rate_interval]))`, "{{le}}")
	heat.Format = "heatmap"
	b.add(12, 8, panel{
		Title: "How long successes take", Type: "heatmap", Targets: []target{heat}, FieldConfig: defaults("s", nil),
		Options: object{"calculate": false, "cellGap": 1, "yAxis": object{"unit": "s"}, "color": object{"mode": "scheme", "scheme": "Oranges"}},
	})
	b.add(12, 8, lines("Transitions by cause", "Those of tools and of groups.", "short", true,
		query("sum by (cause) (increase(toolhealth_transitions_total{}[$__rate_interval]))", "{{cause}}"),
		query("sum by (cause) (increase(toolhealth_group_transitions_total{group}[$__rate_interval]))", "group: {{cause}}")))
	b.add(12, 8, lines("Attempts in flight", "", "short", true, query("sum by (tool) (toolhealth_calls_in_flight{})", "{{tool}}")))
}

func guarded(b *builder) {
	b.add(8, 7, lines("Calls by result", "", "reqps", true, query("sum by (result) (rate(toolhealth_guard_calls_total{}[$__rate_interval]))", "{{result}}")))
	b.add(8, 7, lines("Attempts and retries a call", "", "short", false,
		query("sum by (tool) (rate(toolhealth_guard_attempts_total{}[$__rate_interval])) / sum by (tool) (rate(toolhealth_guard_calls_total{}[$__rate_interval]))", "{{tool}}: attempts"),
		query("sum by (tool) (rate(toolhealth_guard_retries_total{}[$__rate_interval])) / sum by (tool) (rate(toolhealth_guard_calls_total{}[$__rate_interval]))", "{{tool}}: retries")))
	b.add(8, 7, lines("Substitutes and budgets", "", "reqps", false,
		query("sum(rate(toolhealth_guard_fallbacks_total{}[$__rate_interval]))", "served by a substitute"),
		query("sum(rate(toolhealth_guard_budget_exhausted_total{}[$__rate_interval]))", "retries without budget")))
	b.add(12, 7, lines("Calls that are running", "", "short", false,
		query("sum by (tool) (toolhealth_guard_calls_in_flight{})", "{{tool}}"),
		query("sum(toolhealth_guard_abandoned_attempts{})", "abandoned attempts")))
	b.add(12, 7, lines("Age of the oldest call", "", "s", false, query("max by (tool) (toolhealth_guard_oldest_call_seconds{})", "{{tool}}")))
}

func registry(b *builder) {
	b.add(8, 6, lines("Entries", "", "short", false,
		query("sum by (instance) (toolhealth_tools{group})", "{{instance}}: tools"),
		query("sum by (instance) (toolhealth_groups{group})", "{{instance}}: groups")))
	b.add(8, 6, lines("Room", "Calls without an entry and entries that made room: the registry is too small, or the model makes names up.", "reqps", false,
		query("sum by (instance) (rate(toolhealth_untracked_calls_total{group}[$__rate_interval]))", "{{instance}}: untracked calls"),
		query("sum by (instance) (rate(toolhealth_evicted_tools_total{group}[$__rate_interval]))", "{{instance}}: evicted tools")))
	b.add(8, 6, lines("Hooks", "", "short", false,
		query("sum by (instance) (increase(toolhealth_hook_panics_total{group}[$__rate_interval]))", "{{instance}}: panics"),
		query("sum by (instance) (increase(toolhealth_hook_dropped_total{group}[$__rate_interval]))", "{{instance}}: dropped transitions")))
}
