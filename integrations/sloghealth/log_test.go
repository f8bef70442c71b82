package sloghealth_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/sloghealth"
)

// night plays a story in virtual time and returns the lines that it leaves, without the
// times.
func night(t *testing.T, o sloghealth.Options, level slog.Level, play func(r *toolhealth.Registry)) (lines []string) {
	synctest.Test(t, func(*testing.T) {
		r := toolhealth.NewRegistry()
		var b bytes.Buffer
		stop := sloghealth.Log(r, slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: level})), o)
		play(r)
		stop()
		open(r) // no hook listens any more
		for line := range strings.Lines(b.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
			lines = append(lines, line)
		}
	})
	return lines
}

// open makes the breaker of "search" open, or its probe fail.
func open(r *toolhealth.Registry) {
	for range 3 {
		r.Record("search", toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout}, 0)
	}
}

// probe waits for the cooldown and ends the probe.
func probe(r *toolhealth.Registry, ok bool) {
	time.Sleep(30 * time.Second)
	r.AllowRequest("search")
	if ok {
		r.RecordSuccess("search", 0)
	} else {
		r.Record("search", toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout}, 0)
	}
}

func count(lines []string, part string) (n int) {
	for _, line := range lines {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

func TestLog_NightOfFailedProbesIsFewLines(t *testing.T) {
	lines := night(t, sloghealth.Options{}, slog.LevelInfo, func(r *toolhealth.Registry) {
		open(r)
		for range 959 { // eight hours
			probe(r, false)
		}
		probe(r, true)
	})
	require.Less(t, len(lines), 30, strings.Join(lines, "\n"))
	assert.Equal(t, `level=WARN msg="breaker opened" tool=search from=closed to=open cause=failure_threshold epoch=2 streak=3 kind=timeout wait=30s`, lines[0])
	assert.Equal(t, 10, count(lines, `msg="probe failed"`), "the first, second, fourth and so on")
	assert.Equal(t, `level=INFO msg="breaker closed" tool=search from=half-open to=closed cause=probe_succeeded epoch=1922 suppressed=447`, lines[len(lines)-1])
}

// A tool that opens and closes all night: what was left out is counted, and the log
// never ends with the wrong state.
func TestLog_NightOfFlappingIsFewLines(t *testing.T) {
	lines := night(t, sloghealth.Options{}, slog.LevelInfo, func(r *toolhealth.Registry) {
		for range 900 {
			open(r)
			probe(r, true)
		}
	})
	require.Less(t, len(lines), 30, strings.Join(lines, "\n"))
	assert.Equal(t, count(lines, `msg="breaker opened"`), count(lines, `msg="breaker closed"`))
	assert.Contains(t, lines[len(lines)-1], "closed")
	told := len(lines)
	for _, m := range regexp.MustCompile(`suppressed=(\d+)`).FindAllStringSubmatch(strings.Join(lines, "\n"), -1) {
		var n int
		_, _ = fmt.Sscan(m[1], &n)
		told += n
	}
	assert.Equal(t, 2*512, told, "all up to the last line that was written")
}

// An opening that was left out because the tool flaps becomes an outage.
func TestLog_OutageThatBeginsAsFlappingIsToldOf(t *testing.T) {
	lines := night(t, sloghealth.Options{}, slog.LevelInfo, func(r *toolhealth.Registry) {
		for range 6 {
			open(r)
			probe(r, true)
		}
		open(r) // the seventh
		probe(r, false)
		probe(r, true)
	})
	require.Len(t, lines, 8, strings.Join(lines, "\n"))
	assert.Contains(t, lines[6], `msg="probe failed"`)
	assert.Contains(t, lines[6], "suppressed=5")
	assert.Contains(t, lines[7], `msg="breaker closed"`)
}

func TestLog_OpeningAfterQuietTimeIsNews(t *testing.T) {
	play := func(pause time.Duration) func(*toolhealth.Registry) {
		return func(r *toolhealth.Registry) {
			for range 20 {
				open(r)
				probe(r, true)
				time.Sleep(pause)
			}
		}
	}
	assert.Len(t, night(t, sloghealth.Options{}, slog.LevelInfo, play(11*time.Minute)), 40)
	assert.Len(t, night(t, sloghealth.Options{}, slog.LevelInfo, play(time.Minute)), 10)
	assert.Len(t, night(t, sloghealth.Options{Settled: -1}, slog.LevelInfo, play(0)), 40, "every one has a line")
	assert.Len(t, night(t, sloghealth.Options{Settled: time.Second}, slog.LevelInfo, play(time.Minute)), 40)
}

func TestLog_OperatorsAreAlwaysNamed(t *testing.T) {
	lines := night(t, sloghealth.Options{}, slog.LevelInfo, func(r *toolhealth.Registry) {
		for range 20 {
			r.Isolate("search", "alice")
			r.Reset("search", "bob")
		}
	})
	require.Len(t, lines, 40)
	assert.Equal(t, `level=WARN msg="tool was isolated" tool=search from=closed to=open cause=isolated epoch=2 by=alice wait=30s`, lines[0])
	assert.Equal(t, `level=INFO msg="breaker closed" tool=search from=open to=closed cause=reset epoch=3 by=bob`, lines[1])
}

func TestLog_LevelsCanBeChanged(t *testing.T) {
	play := func(r *toolhealth.Registry) {
		open(r)
		probe(r, false)
		probe(r, true)
	}
	usual := night(t, sloghealth.Options{}, slog.LevelDebug, play)
	assert.Equal(t, 2, count(usual, `level=DEBUG msg="probe was let through"`))
	assert.Len(t, usual, 5)
	mine := func(t toolhealth.Transition) slog.Level {
		if t.Cause == toolhealth.CauseProbeFailed {
			return slog.LevelError
		}
		return sloghealth.Level(t)
	}
	changed := night(t, sloghealth.Options{Level: mine}, slog.LevelWarn, play)
	require.Len(t, changed, 2)
	assert.Contains(t, changed[1], `level=ERROR msg="probe failed"`)
}

// More tools than are remembered, and many at once.
func TestLog_ManyToolsAtOnce(t *testing.T) {
	const tools = 12_000
	r, err := toolhealth.NewRegistryWithConfig(toolhealth.Config{MaxTools: tools}) // so that none makes room for another
	require.NoError(t, err)
	var b bytes.Buffer
	defer sloghealth.Log(r, slog.New(slog.NewTextHandler(&b, nil)), sloghealth.Options{})()
	var callers sync.WaitGroup
	for part := range 4 {
		callers.Go(func() {
			for i := part; i < tools; i += 4 {
				for range 3 {
					r.RecordFailure(fmt.Sprint(i), 0)
				}
			}
		})
	}
	callers.Wait()
	assert.Equal(t, tools, r.Len())
	assert.Equal(t, tools, strings.Count(b.String(), `msg="breaker opened"`))
}
