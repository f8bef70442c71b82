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
	var wrong []error
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }

	opened, recovered := -1, -1 // indexes into the transitions
	probes := 0
	for i, t := range h.transitions {
		switch {
		case t.Tool != primary:
			fail("the breaker of %s changed to %s, only %s was down", t.Tool, t.To, primary)
		case t.From == toolhealth.StateClosed && t.To == toolhealth.StateOpen && opened < 0:
			opened = i
		case t.To == toolhealth.StateHalfOpen:
			probes++
			if i == 0 || t.When.Sub(h.transitions[i-1].When) < cooldown {
				fail("probe %d went out before a cooldown of %v was over", probes, cooldown)
			}
		case t.Cause == toolhealth.CauseProbeSucceeded && t.To == toolhealth.StateClosed:
			recovered = i
		}
	}
	if opened < 0 {
		fail("the breaker of %s did not open", primary)
	}
	if recovered < 0 || recovered != len(h.transitions)-1 {
		fail("the breaker of %s did not recover for good", primary)
	}

	kinds := make(map[toolhealth.Kind]bool)
	rerouted, servedAgain, unknown, probed := false, false, false, 0
	for _, t := range h.turns {
		ok := t.verdict.Outcome == toolhealth.OutcomeSuccess && t.servedBy != ""
		switch {
		case t.tool == primary && t.servedBy == backup && ok:
			rerouted = true
		case t.servedBy == primary && t.probe:
			probed++
		case t.servedBy == primary && opened >= 0 && t.after > opened+1 && t.after <= recovered:
			fail("%s was called while its breaker was open, and not as a probe", primary)
		case t.servedBy == primary && recovered >= 0 && t.after > recovered && ok:
			servedAgain = true
		case t.servedBy == "" && t.verdict.Kind == toolhealth.KindRefused && t.tool != primary:
			unknown = true
		}
		if t.servedBy == primary {
			kinds[t.verdict.Kind] = true
		}
	}
	if !rerouted {
		fail("no call was re-routed to %s", backup)
	}
	if probed != probes || probes == 0 {
		fail("%d calls were probes, the breaker counted %d", probed, probes)
	}
	if !servedAgain {
		fail("%s did not serve again after it recovered", primary)
	}
	if !unknown {
		fail("no made-up tool was refused")
	}
	for _, kind := range []toolhealth.Kind{toolhealth.KindServerError, toolhealth.KindTimeout, toolhealth.KindConnection} {
		if !kinds[kind] {
			fail("%s never failed with %s", primary, kind)
		}
	}
	if len(summary.Tools) != 3 {
		fail("the summary has %d tools, 3 are registered", len(summary.Tools))
	}
	return errors.Join(wrong...)
}
