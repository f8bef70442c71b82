package otelhealth

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/otelhealth/internal/shown"
)

// maker makes instruments and remembers them for the callback.
type maker struct {
	meter metric.Meter
	all   []metric.Observable
	errs  []error
}

func (m *maker) counter(name, unit, text string) metric.Int64Observable {
	i, err := m.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
	m.all, m.errs = append(m.all, i), append(m.errs, err)
	return i
}

func (m *maker) level(name, unit, text string) metric.Int64Observable {
	i, err := m.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
	m.all, m.errs = append(m.all, i), append(m.errs, err)
	return i
}

func (m *maker) gauge(name, unit, text string) metric.Float64Observable {
	i, err := m.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text))
	m.all, m.errs = append(m.all, i), append(m.errs, err)
	return i
}

func registryCounters(m *maker) []counter[toolhealth.Summary] {
	type s = toolhealth.Summary
	return []counter[s]{
		{instrument: m.counter("toolhealth.untracked_calls", "{call}", "Calls that were let in without an entry, because the registry was full."), read: func(s *s) uint64 { return s.Untracked }},
		{instrument: m.counter("toolhealth.evicted_tools", "{tool}", "Idle entries that made room for new names."), read: func(s *s) uint64 { return s.Evicted }},
		{instrument: m.counter("toolhealth.hook_panics", "{panic}", "Hooks of the registry that panicked."), read: func(s *s) uint64 { return s.HookPanics }},
		{instrument: m.counter("toolhealth.hook_dropped_transitions", "{transition}", "Transitions that no hook heard of, because one hung."), read: func(s *s) uint64 { return s.HookDropped }},
	}
}

func toolView(m *maker, labels []string, limit int) *view[toolhealth.ToolHealth] {
	type h = toolhealth.ToolHealth
	counters := append(callCounters(m), guardCounters(m)...)
	levels := append(
		breakerLevels(m, "toolhealth.breaker", func(h *h) (toolhealth.State, toolhealth.StopReason) { return h.State, h.Reason }),
		level[h]{m.level("toolhealth.active_calls", "{call}", "Permits that are out."), func(h *h) int64 { return int64(h.InFlight) }, nil},
		level[h]{m.level("toolhealth.guard.active_calls", "{call}", "Guarded calls that are running, waiting ones included."), func(h *h) int64 { return int64(h.Guard.InFlight) }, nil},
		level[h]{m.level("toolhealth.guard.abandoned_attempts", "{attempt}", "Detached attempts that are still running."), func(h *h) int64 { return h.Guard.Abandoned }, nil},
	)
	return &view[h]{
		key: toolKey, name: func(h *h) string { return h.Tool }, choose: shown.Tools, limit: limit,
		attributes: func(h *h) []attribute.KeyValue { return shown.Attributes(h, labels) },
		counters:   counters, levels: levels,
		gauges: []gauge[h]{
			{m.gauge("toolhealth.tool.score", "1", "0.3 x success rate + 0.7 x moving average of success."), func(h *h) float64 { return h.Score }},
			{m.gauge("toolhealth.breaker.down", "s", "How long ago the breaker left closed, however many probes have failed since; 0 while it is closed."), func(h *h) float64 { return ago(h.DownSince) }},
			{m.gauge("toolhealth.breaker.retry_after", "s", "How long calls will be refused; 0 if one would be admitted."), func(h *h) float64 { return h.RetryAfter.Seconds() }},
			{m.gauge("toolhealth.guard.oldest_call", "s", "Age of the oldest guarded call that is running."), func(h *h) float64 { return h.Guard.Oldest.Seconds() }},
		},
		moves:  m.counter("toolhealth.breaker.transitions", "{transition}", "Changes of the breaker's state."),
		ledger: newLedger(len(counters)),
	}
}

func groupView(m *maker, limit int) *view[toolhealth.GroupHealth] {
	type h = toolhealth.GroupHealth
	return &view[h]{
		key: groupKey, name: func(h *h) string { return h.Group }, choose: shown.Groups, limit: limit,
		attributes: func(*h) []attribute.KeyValue { return nil },
		counters: []counter[h]{
			{instrument: m.counter("toolhealth.group.breaker.trips", "{trip}", "Times that the group's breaker went from closed to open."), read: func(h *h) uint64 { return h.Trips }, always: true},
		},
		levels: append(
			breakerLevels(m, "toolhealth.group.breaker", func(h *h) (toolhealth.State, toolhealth.StopReason) { return h.State, h.Reason }),
			level[h]{m.level("toolhealth.group.tools", "{tool}", "Tools of the group in the registry."), func(h *h) int64 { return int64(h.Tools) }, nil},
		),
		gauges: []gauge[h]{
			{m.gauge("toolhealth.group.breaker.down", "s", "How long ago the group's breaker left closed; 0 while it is closed."), func(h *h) float64 { return ago(h.DownSince) }},
		},
		moves:  m.counter("toolhealth.group.breaker.transitions", "{transition}", "Changes of the group's breaker's state."),
		ledger: newLedger(1),
	}
}

// callCounters are the figures of attempts and refusals.
func callCounters(m *maker) []counter[toolhealth.ToolHealth] {
	type h = toolhealth.ToolHealth
	calls := m.counter("toolhealth.calls", "{call}", "Attempts that ended, by outcome and kind.")
	refusals := m.counter("toolhealth.refusals", "{call}", "Calls that were not made, by reason.")
	outcome := func(o toolhealth.Outcome, more ...attribute.KeyValue) []attribute.KeyValue {
		return append([]attribute.KeyValue{outcomeKey.String(o.String())}, more...)
	}
	all := []counter[h]{
		{calls, func(h *h) uint64 { return h.Successes }, outcome(toolhealth.OutcomeSuccess), true},
		{calls, func(h *h) uint64 { return h.Throttled }, outcome(toolhealth.OutcomeThrottled), true},
		{m.counter("toolhealth.would_refuse", "{call}", "Calls that were let in because of ObserveOnly."), func(h *h) uint64 { return h.WouldRefuse }, nil, true},
		{m.counter("toolhealth.breaker.trips", "{trip}", "Times that the breaker went from closed to open, an operator's Isolate included."), func(h *h) uint64 { return h.Trips }, nil, true},
	}
	for kind := range kinds {
		k, text := kind, errorKey.String(kind.String())
		all = append(all,
			counter[h]{instrument: calls, read: func(h *h) uint64 { return h.ByKind[k] }, attributes: outcome(toolhealth.OutcomeFailure, text)},
			counter[h]{instrument: calls, read: func(h *h) uint64 { return h.RejectedByKind[k] }, attributes: outcome(toolhealth.OutcomeRejected, text)},
			counter[h]{instrument: calls, read: func(h *h) uint64 { return h.NeutralByKind[k] }, attributes: outcome(toolhealth.OutcomeNeutral, text)},
		)
	}
	for r := toolhealth.StopCircuitOpen; r <= toolhealth.StopUnknownTool; r++ {
		all = append(all, counter[h]{
			refusals, func(h *h) uint64 { return h.RefusedByReason[r] }, []attribute.KeyValue{reasonKey.String(r.Detail())}, r == toolhealth.StopCircuitOpen,
		})
	}
	return all
}

// guardCounters are the figures of guarded calls.
func guardCounters(m *maker) []counter[toolhealth.ToolHealth] {
	type h = toolhealth.ToolHealth
	ended := m.counter("toolhealth.guard.unanswered_calls", "{call}", "Guarded calls of the tool that no tool answered.")
	result := func(text string) []attribute.KeyValue { return []attribute.KeyValue{resultKey.String(text)} }
	return []counter[h]{
		{m.counter("toolhealth.guard.calls", "{call}", "Guarded calls that asked for the tool, running ones included."), func(h *h) uint64 { return h.Guard.Calls }, nil, true},
		{ended, func(h *h) uint64 { return h.Guard.Failed }, result("failed"), true},
		{ended, func(h *h) uint64 { return h.Guard.Rejected }, result("rejected"), true},
		{ended, func(h *h) uint64 { return h.Guard.Canceled }, result("canceled"), true},
		{m.counter("toolhealth.guard.attempts", "{attempt}", "Runs of the tool, whichever tool the call asked for."), func(h *h) uint64 { return h.Guard.Attempts }, nil, true},
		{m.counter("toolhealth.guard.retries", "{attempt}", "Attempts that were not the first of their call."), func(h *h) uint64 { return h.Guard.Retries }, nil, true},
		{m.counter("toolhealth.guard.fallbacks", "{call}", "Calls of the tool that a substitute served."), func(h *h) uint64 { return h.Guard.Fallbacks }, nil, true},
		{m.counter("toolhealth.guard.exhausted_budgets", "{attempt}", "Retries that the budget forbade."), func(h *h) uint64 { return h.Guard.BudgetExhausted }, nil, true},
	}
}

// breakerLevels are sets of 0 and 1: one for the state, one for why a call would be
// refused now.
func breakerLevels[T any](m *maker, prefix string, read func(*T) (toolhealth.State, toolhealth.StopReason)) (all []level[T]) {
	status := m.level(prefix+".status", "1", "1 for the state that the breaker is in, 0 for the others.")
	refusing := m.level(prefix+".refusing", "1", "1 for the reason why a call would be refused now, 0 for the others.")
	for _, want := range []toolhealth.State{toolhealth.StateClosed, toolhealth.StateOpen, toolhealth.StateHalfOpen} {
		all = append(all, level[T]{status, func(h *T) int64 {
			state, _ := read(h)
			return one(state == want)
		}, []attribute.KeyValue{stateKey.String(want.String())}})
	}
	for want := toolhealth.StopCircuitOpen; want < toolhealth.StopUnknownTool; want++ {
		all = append(all, level[T]{refusing, func(h *T) int64 {
			_, reason := read(h)
			return one(reason == want)
		}, []attribute.KeyValue{reasonKey.String(want.Detail())}})
	}
	return all
}

// kinds yields every kind that has a text.
func kinds(yield func(toolhealth.Kind) bool) {
	for k := toolhealth.KindNone; ; k++ {
		if _, err := k.MarshalText(); err != nil || !yield(k) {
			return
		}
	}
}

func one(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// ago returns the seconds since t; 0 if t is zero.
func ago(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return max(time.Since(t).Seconds(), 0)
}
