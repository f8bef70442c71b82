package dashboard

import (
	"fmt"
	"strconv"
	"time"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

// line is one event in words.
type line struct {
	Class      string
	When       int64 // in milliseconds
	Clock, Ago string
	Stamp      string // with the date
	Tool       string // "" where it is clear, and for a group
	Group      string // "" where it is clear, and for a tool
	Text, More string
}

// history tells the newest events of all tools. A tool that flaps has a few lines, so that
// it does not hide what else happened.
func history(events []watch.Event, now time.Time) (out []line) {
	var chosen []watch.Event
	type owner struct{ tool, group string }
	told, last := make(map[owner]int), make(map[owner]int)
	for _, e := range events {
		of := owner{e.Tool, e.Group}
		if told[of]++; told[of] <= maxOfTool && len(chosen) < maxEvents {
			last[of] = len(chosen)
			chosen = append(chosen, e)
		}
	}
	out = lines(chosen, now)
	for of, i := range last {
		if more := told[of] - maxOfTool; more > 0 {
			out[i].More += fmt.Sprintf(" and %d earlier", more)
		}
	}
	for i := range out {
		out[i].Tool, out[i].Group = chosen[i].Tool, chosen[i].Group
	}
	return out
}

// lines tells events of one tool and its group, or of one group, the newest first.
func lines(events []watch.Event, now time.Time) []line {
	out := make([]line, 0, len(events))
	for _, e := range events {
		l := line{
			Class: "ok", When: e.When.UnixMilli(), Clock: clock(e.When), Ago: ago(now.Sub(e.When)),
			Stamp: e.When.Format(time.RFC3339), Text: say(e.Transition),
		}
		switch {
		case e.Cause == toolhealth.CauseIsolated:
			l.Class = "held"
		case e.To == toolhealth.StateOpen:
			l.Class = "bad"
		case e.To == toolhealth.StateHalfOpen:
			l.Class = "probe"
		}
		if e.Count > 1 {
			l.More = "(the last of " + strconv.Itoa(e.Count) + " since " + clock(e.First) + ")"
		}
		out = append(out, l)
	}
	return out
}

// say tells a transition in words.
func say(t toolhealth.Transition) string {
	kind, wait, by := plain(t.Kind.String()), "", ""
	if t.Wait > 0 {
		wait = "; next probe after " + span(t.Wait)
	}
	if t.By != "" {
		by = " by " + t.By
	}
	switch t.Cause {
	case toolhealth.CauseFailureThreshold:
		if t.Streak == 1 {
			return "opened after a failure, " + kind + wait
		}
		return fmt.Sprintf("opened after %d failures in a row, last %s%s", t.Streak, kind, wait)
	case toolhealth.CauseFailureRate:
		return "opened because too many calls fail, last " + kind + wait
	case toolhealth.CauseProbeAdmitted:
		return "half-open: a probe was let through"
	case toolhealth.CauseProbeSucceeded:
		if t.To == toolhealth.StateOpen {
			return "a probe succeeded, more are wanted"
		}
		return "closed: the probe succeeded"
	case toolhealth.CauseProbeFailed:
		return "open again: the probe failed, " + kind + wait
	case toolhealth.CauseProbeThrottled:
		return "open: the tool asked us to wait" + wait
	case toolhealth.CauseProbeReturned:
		return "open: the probe came back without a verdict" + wait
	case toolhealth.CauseLeaseExpired:
		return "open: the probe did not report in time" + wait
	case toolhealth.CauseReset:
		return "closed: reset" + by
	case toolhealth.CauseIsolated:
		return "isolated" + by
	case toolhealth.CauseReconfigured:
		return "closed: the new configuration has no rule that opens"
	}
	return t.From.String() + " to " + t.To.String()
}
