package toolhealth

import (
	"log/slog"
	"time"
)

// What logs read. Each LogValue is a group of attributes with the names of the JSON
// keys; an attribute that would say nothing is left out. With an empty key slog puts
// them beside those of the record:
//
//	log.LogAttrs(ctx, slog.LevelWarn, "breaker", slog.Any("", transition))

var (
	_ slog.LogValuer = Transition{}
	_ slog.LogValuer = Event{}
	_ slog.LogValuer = (*ToolError)(nil)
	_ slog.LogValuer = (*Refusal)(nil)
	_ slog.LogValuer = ToolHealth{}
)

// attributes collects the attributes of a group.
type attributes []slog.Attr

func (a *attributes) text(key, value string) {
	if value != "" {
		*a = append(*a, slog.String(key, value))
	}
}

func (a *attributes) kind(key string, k Kind) {
	if k != KindNone {
		*a = append(*a, slog.String(key, k.String()))
	}
}

func (a *attributes) reason(r StopReason) {
	if r != StopNone {
		*a = append(*a, slog.String("reason", r.String()))
	}
}

func (a *attributes) number(key string, n uint64) {
	if n > 0 {
		*a = append(*a, slog.Uint64(key, n))
	}
}

func (a *attributes) wait(key string, d time.Duration) {
	if d > 0 {
		*a = append(*a, slog.Duration(key, d))
	}
}

// LogValue returns tool, from, to, cause, epoch and by; and, if the breaker does not
// close, streak, kind and, if it opens, wait.
func (t Transition) LogValue() slog.Value {
	var a attributes
	a.text("tool", t.Tool)
	a = append(a, slog.String("from", t.From.String()), slog.String("to", t.To.String()),
		slog.String("cause", t.Cause.String()), slog.Uint64("epoch", t.Epoch))
	a.text("by", t.By)
	if t.To != StateClosed {
		a.number("streak", uint64(max(t.Streak, 0)))
		a.kind("kind", t.Kind)
	}
	if t.To == StateOpen { // in half-open it is the lease and the cooldown after it
		a.wait("wait", t.Wait)
	}
	return slog.GroupValue(a...)
}

// LogValue returns tool, served if it is another one, attempt (attempts if the call has
// ended), outcome, kind, reason, took, wait and err. err is the tool's own text and may
// hold secrets; that of a finished call is the group of its [ToolError], without what
// the event has itself.
func (e Event) LogValue() slog.Value {
	var a attributes
	a.text("tool", e.Tool)
	if e.Served != e.Tool {
		a.text("served", e.Served)
	}
	key := "attempt"
	if e.Final {
		key = "attempts"
	}
	a.number(key, uint64(max(e.Attempt, 0)))
	a.text("outcome", e.Verdict.Outcome.String())
	a.kind("kind", e.Verdict.Kind)
	a.reason(e.Reason)
	a = append(a, slog.Duration("took", e.Took))
	a.wait("wait", e.Wait)
	if failed, ok := e.Err.(*ToolError); ok && failed != nil && e.Final {
		a = append(a, failed.candidates())
	} else if e.Err != nil {
		a.text("err", errText(e.Err))
	}
	return slog.GroupValue(a...)
}

// LogValue returns tool, reason, kind, attempts, retry_after and candidates: for each
// tool that was tried a group of its reason and the text of its error, which may hold
// secrets.
func (e *ToolError) LogValue() slog.Value {
	if e == nil {
		return slog.Value{}
	}
	var a attributes
	a.text("tool", e.Tool)
	a.reason(e.Reason)
	a.kind("kind", e.Kind)
	a.number("attempts", uint64(max(e.Attempts, 0)))
	a.wait("retry_after", hint(e.Reason, e.RetryAfter))
	return slog.GroupValue(append(a, e.candidates())...)
}

func (e *ToolError) candidates() slog.Attr {
	var all attributes
	for _, c := range e.Candidates {
		var a attributes
		a.reason(c.Reason)
		if c.Err != nil {
			a.text("err", errText(c.Err))
		}
		all = append(all, slog.Attr{Key: c.Tool, Value: slog.GroupValue(a...)})
	}
	return slog.Attr{Key: "candidates", Value: slog.GroupValue(all...)}
}

// LogValue returns tool, reason, retry_after, streak, kind and refused_in_row.
func (r *Refusal) LogValue() slog.Value {
	if r == nil {
		return slog.Value{}
	}
	var a attributes
	a.text("tool", r.Tool)
	a.reason(r.Reason)
	a.wait("retry_after", r.hint())
	a.number("streak", uint64(max(r.Streak, 0)))
	a.kind("kind", r.Kind)
	a.number("refused_in_row", r.InRow)
	return slog.GroupValue(a...)
}

// LogValue returns what an operator asks first: tool, status, state, reason and
// retry_after of a refusal, isolated_by, score, calls, failures, consecutive_failures,
// last_failure_kind, refused_in_row and since.
func (h ToolHealth) LogValue() slog.Value {
	var a attributes
	a.text("tool", h.Tool)
	a = append(a, slog.String("status", h.Status.String()), slog.String("state", h.State.String()))
	a.reason(h.Reason)
	a.wait("retry_after", hint(h.Reason, h.RetryAfter))
	a.text("isolated_by", h.IsolatedBy)
	a = append(a, slog.Float64("score", h.Score), slog.Uint64("calls", h.TotalCalls()))
	a.number("failures", h.Failures)
	a.number("consecutive_failures", uint64(max(h.ConsecutiveFailures, 0)))
	a.kind("last_failure_kind", h.LastFailure)
	a.number("refused_in_row", h.RefusedInRow)
	return slog.GroupValue(append(a, slog.Time("since", h.Since))...)
}
