package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolhealth/toolhealth"
)

// logged is a guard that writes its log into a buffer.
func logged(t *testing.T, out *bytes.Buffer, level slog.Level) *toolhealth.Guard {
	t.Helper()
	log := slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}))
	var settings toolhealth.Settings
	logCalls(&settings, log)
	guard, err := toolhealth.New(settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(logBreakers(guard.Registry(), log))
	return guard
}

// For eight hours an agent asks every five seconds for a tool that is down.
func TestLog_NightOfOutageIsFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		guard := logged(t, &out, slog.LevelInfo)
		down, refused, asked := true, 0, 0
		search := toolhealth.Wrap(guard, "search", func(context.Context, string) (string, error) {
			if down {
				return "", &toolhealth.StatusError{StatusCode: 503}
			}
			return "3 pages", nil
		})
		for range 8 * 60 * 12 {
			_, err := search.Call(t.Context(), "go")
			if failed, ok := errors.AsType[*toolhealth.ToolError](err); ok && failed.Attempts == 0 {
				refused++
			}
			asked++
			time.Sleep(5 * time.Second)
		}
		down = false
		time.Sleep(time.Minute)
		if _, err := search.Call(t.Context(), "go"); err != nil {
			t.Fatal(err)
		}
		if asked < 5000 || refused < asked/2 {
			t.Fatalf("no such night: %d calls, %d refused", asked, refused)
		}
		type line struct{ Level, Msg, Tool, Cause string }
		text := out.String()
		all := lines[line](t, &out)
		if len(all) >= 30 || len(all) < 10 {
			t.Errorf("%d lines:\n%s", len(all), text)
		}
		if errors := strings.Count(text, `"level":"ERROR"`); errors == 0 || errors != strings.Count(text, `"attempts":`) {
			t.Errorf("a call without an attempt is an error:\n%s", text)
		}
		count := func(want line) (n int) {
			for _, l := range all {
				if l == want {
					n++
				}
			}
			return n
		}
		for _, once := range []line{
			{"WARN", "breaker is open", "search", "failure_threshold"},
			{"INFO", "breaker is closed", "search", "probe_succeeded"},
		} {
			if count(once) != 1 {
				t.Errorf("%+v: %d times, want 1:\n%s", once, count(once), text)
			}
		}
		t.Logf("%d calls, %d refused, %d lines", asked, refused, len(all))
	})
}

func TestLog_EndOfEachCallHasItsLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		guard := logged(t, &out, slog.LevelDebug)
		call := func(tool string, err error) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, _ = toolhealth.Call(ctx, guard, tool, func(context.Context, string) (string, error) {
				if err == context.Canceled {
					cancel()
				}
				return "", err
			})
		}
		down := &toolhealth.StatusError{StatusCode: 503}
		call("a", &toolhealth.StatusError{StatusCode: 404})
		call("a", context.Canceled)
		call("b", down) // with a retry
		call("b", nil)
		call("b", down)
		guard.Registry().Isolate("b", "alice")
		call("b", nil)
		guard.Registry().Reset("b", "alice")
		type line struct {
			Level, Msg, Tool, Reason, By string
			Nth                          int
		}
		want := []line{
			{"DEBUG", "attempt failed", "a", "tool_failure:non_retryable", "", 0},
			{"INFO", "request was rejected", "a", "tool_failure:non_retryable", "", 0},
			{"DEBUG", "attempt failed", "a", "tool_canceled", "", 0},
			{"DEBUG", "call was refused or canceled", "a", "tool_canceled", "", 0},
			{"DEBUG", "attempt failed", "b", "tool_retry:allowed", "", 0},
			{"DEBUG", "attempt failed", "b", "tool_failure:retry_exhausted", "", 0},
			{"ERROR", "call failed", "b", "tool_failure:retry_exhausted", "", 1},
			{"DEBUG", "attempt failed", "b", "tool_retry:allowed", "", 0},
			{"DEBUG", "attempt failed", "b", "tool_failure:retry_exhausted", "", 0},
			{"ERROR", "call failed", "b", "tool_failure:retry_exhausted", "", 1},
			{"WARN", "breaker is open", "b", "", "alice", 0},
			{"DEBUG", "call was refused or canceled", "b", "tool_unavailable:isolated", "", 0},
			{"INFO", "breaker is closed", "b", "", "alice", 0},
		}
		text := out.String()
		got := lines[line](t, &out)
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Fatalf("line %d of\n%swant %+v", i, text, want[min(i, len(want)-1)])
			}
		}
	})
}
