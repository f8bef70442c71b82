package promhealth

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/toolhealth/toolhealth"
)

// descs are the descriptions of all series.
type descs struct {
	all []*prometheus.Desc

	// Gauges of a tool.
	info, state, unavailable, retryAfter, score, since, down    *desc
	streak, rejectedInRow, lastFailure, hint, inFlight          *desc
	guardInFlight, guardOldest, guardAbandoned                  *desc
	calls, failures, rejections, neutrals, refusals             *desc // counters of a tool
	wouldRefuse, trips, transitions                             *desc
	guardCalls, guardAttempts, guardRetries                     *desc
	guardFallbacks, guardExhausted                              *desc
	duration                                                    *desc // histogram of a tool
	groupState, groupUnavailable, groupRetryAfter, groupSince   *desc
	groupDown, groupStreak, groupTools                          *desc
	groupTrips, groupTransitions                                *desc
	tools, groups, untracked, evicted, hookPanics, hooksDropped *desc // of the registry
}

func newDescs(constant prometheus.Labels, toolLabels []string) (d descs) {
	add := func(name, help string, labels ...string) *desc {
		made := prometheus.NewDesc("toolhealth_"+name, help, labels, constant)
		d.all = append(d.all, made)
		return &desc{made, labels}
	}
	d.ofTools(add, toolLabels)
	d.ofGuards(add)
	d.groupState = add("group_state", "State of the group's breaker: 1 for the one that it is in, 0 for the others.", "group", "state")
	d.groupUnavailable = add("group_unavailable", "Why the group's tools would be refused now: 1 for the reason, 0 for the others.", "group", "reason")
	d.groupRetryAfter = add("group_retry_after_seconds", "How long asking for the group's tools is pointless; 0 if they would be admitted.", "group")
	d.groupSince = add("group_state_since_timestamp_seconds", "When the state of the group's breaker began.", "group")
	d.groupDown = add("group_down_since_timestamp_seconds", "When the group's breaker left closed; absent while it is closed.", "group")
	d.groupStreak = add("group_consecutive_failures", "Failures in a row that say that the server cannot be reached.", "group")
	d.groupTools = add("group_tools", "Tools of the group that have an entry.", "group")
	d.groupTrips = add("group_trips_total", "How often the group's breaker went from closed to open.", "group")
	d.groupTransitions = add("group_transitions_total", "Changes of the group's breaker, by cause.", "group", "from", "to", "cause")

	d.tools = add("tools", "Tools that have an entry.")
	d.groups = add("groups", "Groups that have a tool, or against which something is held.")
	d.untracked = add("untracked_calls_total", "Calls that were admitted without an entry, because the registry was full.")
	d.evicted = add("evicted_tools_total", "Idle entries that made room for new names.")
	d.hookPanics = add("hook_panics_total", "Hooks of the registry that panicked.")
	d.hooksDropped = add("hook_dropped_total", "Transitions that no hook heard of, because one hung.")
	return d
}

func (d *descs) ofTools(add func(name, help string, labels ...string) *desc, toolLabels []string) {
	d.info = add("tool_info", "The group and the labels of a tool; always 1.", append([]string{"tool", "group"}, toolLabels...)...)
	d.state = add("tool_state", "State of the tool's breaker: 1 for the one that it is in, 0 for the others.", "tool", "state")
	d.unavailable = add("tool_unavailable", "Why a call would be refused now: 1 for the reason, 0 for the others.", "tool", "reason")
	d.retryAfter = add("tool_retry_after_seconds", "How long asking is pointless; 0 if a call would be admitted.", "tool")
	d.score = add("tool_score_ratio", "Health score: 0.3 x success rate + 0.7 x moving average of success.", "tool")
	d.since = add("tool_state_since_timestamp_seconds", "When the state began. It begins anew with every probe.", "tool")
	d.down = add("tool_down_since_timestamp_seconds", "When the breaker left closed; absent while it is closed.", "tool")
	d.streak = add("tool_consecutive_failures", "Failures in a row.", "tool")
	d.rejectedInRow = add("tool_rejected_in_row", "Last attempts that show a dead key or a tool that has changed.", "tool")
	d.lastFailure = add("tool_last_failure_timestamp_seconds", "When the last failure ended; absent without any.", "tool")
	d.hint = add("tool_hint", "What other replicas say: 1 for suspected while they suspect the tool, for reported while the breaker is open only because of them; else absent.", "tool", "hint")
	d.inFlight = add("calls_in_flight", "Permits that are out.", "tool")
	d.calls = add("calls_total", "Attempts that ended, by outcome.", "tool", "outcome")
	d.failures = add("failures_total", "Attempts whose failure counts against the tool, by kind.", "tool", "kind")
	d.rejections = add("rejections_total", "Attempts whose request the tool rejected, by kind.", "tool", "kind")
	d.neutrals = add("neutrals_total", "Attempts that say nothing about the tool, by kind.", "tool", "kind")
	d.refusals = add("refusals_total", "Calls that were refused and not made, by reason.", "tool", "reason")
	d.wouldRefuse = add("would_refuse_total", "Calls that were let in only because the breaker observes.", "tool")
	d.trips = add("trips_total", "How often the breaker went from closed to open.", "tool")
	d.transitions = add("transitions_total", "Changes of the breaker, by cause.", "tool", "from", "to", "cause")
	d.duration = add("call_duration_seconds", "How long attempts took that were successes or failures.", "tool", "outcome")
}

func (d *descs) ofGuards(add func(name, help string, labels ...string) *desc) {
	d.guardCalls = add("guard_calls_total", "Guarded calls that ended, by result.", "tool", "result")
	d.guardAttempts = add("guard_attempts_total", "Runs of the tool in guarded calls.", "tool")
	d.guardRetries = add("guard_retries_total", "Runs that were not the first of their guarded call.", "tool")
	d.guardFallbacks = add("guard_fallbacks_total", "Guarded calls that a substitute served.", "tool")
	d.guardExhausted = add("guard_budget_exhausted_total", "Retries that the budget forbade.", "tool")
	d.guardInFlight = add("guard_calls_in_flight", "Guarded calls that are running, waiting ones included.", "tool")
	d.guardOldest = add("guard_oldest_call_seconds", "Age of the oldest guarded call that is running; 0 without one.", "tool")
	d.guardAbandoned = add("guard_abandoned_attempts", "Detached attempts that are still running.", "tool")
}

// reasons are those for which a registry refuses a call of a tool that it knows.
var reasons = []toolhealth.StopReason{
	toolhealth.StopCircuitOpen, toolhealth.StopProbeInFlight, toolhealth.StopRateLimited, toolhealth.StopIsolated, toolhealth.StopBusy,
}

// states are those of a breaker.
var states = []toolhealth.State{toolhealth.StateClosed, toolhealth.StateOpen, toolhealth.StateHalfOpen}

// counter is the value of one counter of a tool.
type counter struct {
	desc  *desc
	label string // of the label beside tool; "" if there is none
	n     uint64
}

// counters returns those of a tool. Most are there from the tool's first scrape, so that
// Prometheus sees their first increase; kinds are too many for that.
func (d *descs) counters(t *tool, guarded bool) []counter {
	h := t.health
	list := append(make([]counter, 0, 32),
		counter{d.calls, "success", h.Successes},
		counter{d.calls, "failure", h.Failures},
		counter{d.calls, "rejected", h.Rejected},
		counter{d.calls, "throttled", h.Throttled},
		counter{d.calls, "neutral", h.Neutral},
		counter{d.wouldRefuse, "", h.WouldRefuse},
		counter{d.trips, "", h.Trips},
	)
	for _, reason := range reasons {
		list = append(list, counter{d.refusals, reason.Detail(), h.RefusedByReason[reason]})
	}
	list = appendKinds(list, d.failures, h.ByKind)
	list = appendKinds(list, d.rejections, h.RejectedByKind)
	list = appendKinds(list, d.neutrals, h.NeutralByKind)
	if g := &h.Guard; guarded {
		list = append(list,
			counter{d.guardCalls, "answered", t.answered},
			counter{d.guardCalls, "failed", g.Failed},
			counter{d.guardCalls, "rejected", g.Rejected},
			counter{d.guardCalls, "canceled", g.Canceled},
			counter{d.guardAttempts, "", g.Attempts},
			counter{d.guardRetries, "", g.Retries},
			counter{d.guardFallbacks, "", g.Fallbacks},
			counter{d.guardExhausted, "", g.BudgetExhausted},
		)
	}
	return list
}

func appendKinds(list []counter, d *desc, counts map[toolhealth.Kind]uint64) []counter {
	for kind, n := range counts {
		list = append(list, counter{d, kind.String(), n})
	}
	return list
}

// since returns what a counter has counted more than in an earlier list.
func (c counter) since(earlier []counter) uint64 {
	i := slices.IndexFunc(earlier, func(e counter) bool { return e.desc == c.desc && e.label == c.label })
	if i < 0 {
		return c.n
	}
	return c.n - min(c.n, earlier[i].n)
}
