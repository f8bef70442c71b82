package sloghealth

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/toolhealth/toolhealth"
)

// Options of Log. The zero Options are the defaults.
type Options struct {
	// Level says how grave a transition is; nil: [Level].
	Level func(toolhealth.Transition) slog.Level
	// Settled is how long a breaker has to be closed until its next opening is news; 0:
	// 10m. One that opens sooner flaps, and its openings are repeats: one of them and the
	// closing after it are left out together, but not if a probe fails in between. If it
	// is negative, every opening and closing has a line.
	Settled time.Duration
}

// Level is the default of Options.Level: a warning for a breaker that opens and for an
// Isolate, Debug for a probe that was let through or came back without a verdict, Info
// for everything else.
func Level(t toolhealth.Transition) slog.Level {
	switch t.Cause {
	case toolhealth.CauseFailureThreshold, toolhealth.CauseFailureRate, toolhealth.CauseIsolated:
		return slog.LevelWarn
	case toolhealth.CauseProbeAdmitted, toolhealth.CauseProbeReturned:
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// Log writes a line to log for each transition of r that is news, until stop is called.
// A line has the attributes of Transition.LogValue, and "suppressed" if lines of the tool
// were left out since its last one. They hold no secrets. A handler that blocks holds up
// the call that moved the breaker.
func Log(r *toolhealth.Registry, log *slog.Logger, o Options) (stop func()) {
	if o.Level == nil {
		o.Level = Level
	}
	if o.Settled == 0 {
		o.Settled = 10 * time.Minute
	}
	m := memory{settled: o.Settled, tools: make(map[owner]*story)}
	return r.OnTransition(func(t toolhealth.Transition) {
		suppressed, news := m.judge(t)
		if !news {
			return
		}
		attrs := []slog.Attr{slog.Any("", t)}
		if suppressed > 0 {
			attrs = append(attrs, slog.Int("suppressed", suppressed))
		}
		log.LogAttrs(context.Background(), o.Level(t), message(t), attrs...)
	})
}

// message says what happened, in words that do not change.
func message(t toolhealth.Transition) string {
	switch t.Cause {
	case toolhealth.CauseProbeAdmitted:
		return "probe was let through"
	case toolhealth.CauseProbeFailed, toolhealth.CauseProbeThrottled, toolhealth.CauseLeaseExpired:
		return "probe failed"
	case toolhealth.CauseProbeReturned:
		return "probe came back"
	case toolhealth.CauseIsolated:
		return "tool was isolated"
	}
	switch {
	case t.To == toolhealth.StateClosed:
		return "breaker closed"
	case t.From == toolhealth.StateClosed:
		return "breaker opened"
	}
	return "probe succeeded" // and more are wanted
}

// maxStories bounds what is remembered. A tool beyond it has a line for everything.
const maxStories = 10_000

// memory knows what was said of which tool.
type memory struct {
	settled time.Duration
	mu      sync.Mutex
	tools   map[owner]*story
}

// story is what was said of one tool.
type story struct {
	closed     time.Time // when it last closed; zero while it is not closed
	openings   int       // without settling between them
	quiet      bool      // nothing was said of this opening
	probes     int       // that failed since it opened
	suppressed int       // lines since the last one
}

// judge reports whether a transition has a line, and how many were left out before it.
func (m *memory) judge(t toolhealth.Transition) (suppressed int, news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(t)
	switch t.Cause {
	case toolhealth.CauseProbeAdmitted, toolhealth.CauseProbeReturned:
		news = true // at a level of its own
	case toolhealth.CauseFailureThreshold, toolhealth.CauseFailureRate:
		if s.openings > 0 && t.When.Sub(s.closed) < m.settled {
			s.openings++
		} else {
			s.openings = 1
		}
		s.probes, s.closed, s.quiet = 0, time.Time{}, !isRare(s.openings)
		news = !s.quiet
	case toolhealth.CauseProbeFailed, toolhealth.CauseProbeThrottled, toolhealth.CauseLeaseExpired:
		s.probes++
		news = isRare(s.probes) // the first one says that it lasts, if the opening did not
		s.quiet = s.quiet && !news
	case toolhealth.CauseProbeSucceeded:
		news = !s.quiet
		if t.To == toolhealth.StateClosed {
			s.closed = t.When
		}
	default: // an operator, or a new configuration: a new story
		news = true
		delete(m.tools, owner{t.Tool, t.Group})
	}
	if !news {
		s.suppressed++
		return 0, false
	}
	if t.Cause != toolhealth.CauseProbeAdmitted && t.Cause != toolhealth.CauseProbeReturned { // which may not be shown
		suppressed, s.suppressed = s.suppressed, 0
	}
	return suppressed, true
}

// owner is a tool or a group, whichever has the breaker.
type owner struct{ tool, group string }

// of returns the story of a tool or group. It is a new one if there is none, and is kept if there
// is room. The caller holds mu.
func (m *memory) of(t toolhealth.Transition) *story {
	if s := m.tools[owner{t.Tool, t.Group}]; s != nil {
		return s
	}
	if len(m.tools) >= maxStories {
		for tool, s := range m.tools {
			if !s.closed.IsZero() && t.When.Sub(s.closed) >= m.settled {
				delete(m.tools, tool)
			}
		}
	}
	s := new(story)
	if len(m.tools) < maxStories {
		m.tools[owner{t.Tool, t.Group}] = s
	}
	return s
}

// isRare reports whether the nth repeat is worth a line: each that is twice the last one.
func isRare(nth int) bool { return nth&(nth-1) == 0 }
