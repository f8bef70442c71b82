package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/toolhealth/toolhealth"
)

// verify returns an error for each part of the history that is not as expected, or
// nil.
func (h *history) verify(cooldown time.Duration, summary toolhealth.Summary) error {
	v := verification{opened: -1, recovered: -1}
	v.transitions(h.transitions, cooldown)
	v.turns(h.turns)
	if len(summary.Tools) != 3 {
		v.fail("the summary has %d tools, 3 are registered", len(summary.Tools))
	}
	return errors.Join(v.wrong...)
}

// verification is what is wrong, and what the transitions say about the turns.
type verification struct {
	wrong             []error
	opened, recovered int // indexes into the transitions; -1 without
	probes            int
}

func (v *verification) fail(format string, args ...any) {
	v.wrong = append(v.wrong, fmt.Errorf(format, args...))
}

// transitions expects the primary tool to open, to be probed after each cooldown and to
// recover for good.
func (v *verification) transitions(all []toolhealth.Transition, cooldown time.Duration) {
	for i, t := range all {
		switch {
		case t.Tool != primary:
			v.fail("the breaker of %s changed to %s, only %s was down", t.Tool, t.To, primary)
		case t.From == toolhealth.StateClosed && t.To == toolhealth.StateOpen && v.opened < 0:
			v.opened = i
		case t.To == toolhealth.StateHalfOpen:
			v.probes++
			if i == 0 || t.When.Sub(all[i-1].When) < cooldown {
				v.fail("probe %d went out before a cooldown of %v was over", v.probes, cooldown)
			}
		case t.Cause == toolhealth.CauseProbeSucceeded && t.To == toolhealth.StateClosed:
			v.recovered = i
		}
	}
	if v.opened < 0 {
		v.fail("the breaker of %s did not open", primary)
	}
	if v.recovered < 0 || v.recovered != len(all)-1 {
		v.fail("the breaker of %s did not recover for good", primary)
	}
}

// turns expects the backup to serve while the primary tool is open, the primary to serve
// after that, all kinds of failures, and a refusal of the tool that does not exist.
func (v *verification) turns(all []turn) {
	kinds := make(map[toolhealth.Kind]bool)
	rerouted, servedAgain, unknown, probed := false, false, false, 0
	for _, t := range all {
		ok := t.verdict.Outcome == toolhealth.OutcomeSuccess && t.servedBy != ""
		switch {
		case t.tool == primary && t.servedBy == backup && ok:
			rerouted = true
		case t.servedBy == primary && t.probe:
			probed++
		case t.servedBy == primary && v.opened >= 0 && t.after > v.opened+1 && t.after <= v.recovered:
			v.fail("%s was called while its breaker was open, and not as a probe", primary)
		case t.servedBy == primary && v.recovered >= 0 && t.after > v.recovered && ok:
			servedAgain = true
		case t.servedBy == "" && t.verdict.Kind == toolhealth.KindRefused && t.tool != primary:
			unknown = true
		}
		if t.servedBy == primary {
			kinds[t.verdict.Kind] = true
		}
	}
	if !rerouted {
		v.fail("no call was re-routed to %s", backup)
	}
	if probed != v.probes || v.probes == 0 {
		v.fail("%d calls were probes, the breaker counted %d", probed, v.probes)
	}
	if !servedAgain {
		v.fail("%s did not serve again after it recovered", primary)
	}
	if !unknown {
		v.fail("no made-up tool was refused")
	}
	for _, kind := range []toolhealth.Kind{toolhealth.KindServerError, toolhealth.KindTimeout, toolhealth.KindConnection} {
		if !kinds[kind] {
			v.fail("%s never failed with %s", primary, kind)
		}
	}
}
