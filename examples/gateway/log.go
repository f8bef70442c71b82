package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/toolhealth/toolhealth"
)

// newLog returns a log that writes to w, or one that drops every line.
func newLog(on bool, w io.Writer) *slog.Logger {
	if on {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.DiscardHandler)
}

// logBreakers writes one line for each transition of a breaker, until stop is called.
func logBreakers(r *toolhealth.Registry, log *slog.Logger) (stop func()) {
	return r.OnTransition(func(t toolhealth.Transition) {
		log.Warn("breaker", "tool", t.Tool, "from", t.From, "to", t.To, "cause", t.Cause,
			"streak", t.Streak, "kind", t.Kind, "wait", t.Wait)
	})
}

// logCalls writes one line for each attempt that failed, and one for each call that
// failed. The lines have the error texts of the tools, which may hold secrets.
func logCalls(config *toolhealth.GuardConfig, log *slog.Logger) {
	config.Observe = func(ctx context.Context, e toolhealth.Event) {
		if failed, ok := e.Err.(*toolhealth.ToolError); e.Final && ok {
			log.ErrorContext(ctx, "call failed", "details", failed.Details())
		} else if e.Err != nil {
			log.WarnContext(ctx, "attempt failed", "tool", e.Served, "reason", e.Reason, "err", e.Err)
		}
	}
}
