package main

import (
	"context"
	"io"
	"log/slog"
	"sync"

	"github.com/toolhealth/toolhealth"
)

// newLog returns a log to w, or one that drops everything.
func newLog(on bool, w io.Writer) *slog.Logger {
	if on {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.DiscardHandler)
}

// logBreakers writes a line for each transition that begins or ends an outage, until
// stop is called. Of the probes that fail in between it writes the first, the second,
// the fourth, the eighth and so on, so that a night of outage is a few lines.
func logBreakers(r *toolhealth.Registry, log *slog.Logger) (stop func()) {
	var probes repetitions
	return r.OnTransition(func(t toolhealth.Transition) {
		level, nth := slog.LevelInfo, 0
		switch t.Cause {
		case toolhealth.CauseProbeAdmitted, toolhealth.CauseProbeReturned:
			level = slog.LevelDebug
		case toolhealth.CauseProbeFailed, toolhealth.CauseProbeThrottled, toolhealth.CauseLeaseExpired:
			nth = probes.add(t.Tool)
		default:
			probes.forget(t.Tool)
			if t.From == toolhealth.StateClosed && t.To == toolhealth.StateOpen || t.Cause == toolhealth.CauseIsolated {
				level = slog.LevelWarn
			}
		}
		if isRare(nth) {
			log.LogAttrs(context.Background(), level, "breaker is "+t.To.String(), slog.Any("", t), slog.Int("nth", nth))
		}
	})
}

// logCalls writes a line for each call that failed: the first, the second, the fourth
// and so on since the tool last answered. A refused call is no error, because the
// breaker has said it already, and neither is a canceled one: those are lines for
// debugging. The lines have the error texts of the tools, which may hold secrets.
func logCalls(settings *toolhealth.Settings, log *slog.Logger) {
	var failures repetitions
	settings.Observe = func(ctx context.Context, e toolhealth.Event) {
		level, text, nth := slog.LevelDebug, "attempt failed", 0
		switch {
		case e.Err == nil:
			failures.forget(e.Served)
			return
		case !e.Final:
		case e.Attempt == 0 || e.Reason == toolhealth.StopCanceled:
			text = "call was refused or canceled"
		case e.Verdict.Outcome == toolhealth.OutcomeRejected:
			level, text = slog.LevelInfo, "request was rejected"
		default:
			level, text, nth = slog.LevelError, "call failed", failures.add(e.Tool)
		}
		if isRare(nth) {
			log.LogAttrs(ctx, level, text, slog.Any("", e), slog.Int("nth", nth))
		}
	}
}

// isRare reports whether the nth repetition is worth a line: each that is twice the last
// one. What does not repeat has number 0.
func isRare(nth int) bool { return nth&(nth-1) == 0 }

// repetitions counts what happens again and again to a tool.
type repetitions struct {
	mu     sync.Mutex
	number map[string]int
}

// add returns the number of this repetition, from 1 on.
func (r *repetitions) add(tool string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.number == nil {
		r.number = make(map[string]int)
	}
	r.number[tool]++
	return r.number[tool]
}

// forget begins the count of a tool anew.
func (r *repetitions) forget(tool string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.number, tool)
}
