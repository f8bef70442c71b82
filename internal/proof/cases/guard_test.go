package cases_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/internal/proof/scenario"
	"github.com/toolhealth/toolhealth/internal/retry"
)

type toolFunc = func(context.Context, string) (string, error)

// always returns a tool function that returns err and counts its runs.
func always(err error, runs *int) toolFunc {
	return func(context.Context, string) (string, error) {
		*runs++
		return "", err
	}
}

func status(code int) error { return &scenario.StatusError{StatusCode: code} }

func TestC24_AnyRetryAfterKeepsAttemptsApart(t *testing.T) {
	for _, header := range []string{
		"", "0", "-5", "soon", "NaN", "1e999", " ", "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT",
		"Sun Nov  6 08:49:37 1994", "9999999999999999999",
	} {
		t.Run(header, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := caseRegistry(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold = 100 })
				guard := caseGuard(t, &toolhealth.Gate{Registry: r}, func(c *toolhealth.GuardConfig) {
					c.Default.MaxAttempts, c.Default.BackoffBase, c.Default.MaxWait = 5, time.Second, 10*time.Second
				})
				var attempts []time.Time
				_, err := toolhealth.Call(t.Context(), guard, "search", func(context.Context, string) (string, error) {
					attempts = append(attempts, time.Now())
					return "", &scenario.StatusError{StatusCode: 429, Header: http.Header{"Retry-After": {header}}}
				})
				require.Error(t, err)
				for i := range attempts[1:] {
					assert.GreaterOrEqual(t, attempts[i+1].Sub(attempts[i]), time.Second)
				}
				assert.LessOrEqual(t, len(attempts), 5)
				assert.LessOrEqual(t, time.Since(attempts[0]), 15*time.Second)
			})
		})
	}
}

func TestC39_ErrorOfToolReachesCaller(t *testing.T) {
	guard := caseGuard(t, &toolhealth.Gate{Registry: caseRegistry(t, nil)}, func(c *toolhealth.GuardConfig) {
		c.Default.MaxAttempts = 5
	})
	for _, code := range []int{400, 401, 403, 404, 405, 410, 413, 422} {
		runs := 0
		_, err := toolhealth.Call(t.Context(), guard, "search", always(fmt.Errorf("searching: %w", status(code)), &runs))
		assert.Equal(t, 1, runs)
		own, ok := errors.AsType[*scenario.StatusError](err)
		require.True(t, ok, "%d", code)
		assert.Equal(t, code, own.StatusCode)
		failure, ok := errors.AsType[*toolhealth.ToolError](err)
		require.True(t, ok)
		assert.Equal(t, toolhealth.StopNonRetryable, failure.Reason)
	}
}

func TestC42_CallsOfUnknownToolRunNothing(t *testing.T) {
	r := caseRegistry(t, func(c *toolhealth.Config) { c.RegisteredOnly = true })
	require.NoError(t, r.Register("search", toolhealth.ToolOptions{}))
	guard := caseGuard(t, &toolhealth.Gate{Registry: r}, func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 3 })
	runs := 0
	for range 1000 {
		_, err := toolhealth.Call(t.Context(), guard, "web-searchh", always(nil, &runs))
		require.ErrorIs(t, err, toolhealth.ErrUnknownTool)
		failure, _ := errors.AsType[*toolhealth.ToolError](err)
		require.Equal(t, toolhealth.StopUnknownTool, failure.Reason)
		require.Equal(t, "unknown tool", err.Error())
	}
	assert.Zero(t, runs)
	assert.Equal(t, 1, r.Len())
	assert.Zero(t, caseHealth(t, r, "search").Refused)
}

func TestC43_FlaggedResultReachesCallerUnchanged(t *testing.T) {
	guard := caseGuard(t, &toolhealth.Gate{Registry: caseRegistry(t, nil)}, nil)
	out, err := toolhealth.Call(t.Context(), guard, "search", func(context.Context, string) (string, error) {
		return "isError: quota", nil
	}, toolhealth.CheckResult(func(string) error { return errors.New("flagged") }))
	require.Error(t, err)
	assert.Equal(t, "isError: quota", out)
}

func TestC63_OnlyOutermostCallRetries(t *testing.T) {
	for levels := 1; levels <= 3; levels++ {
		synctest.Test(t, func(t *testing.T) {
			r := caseRegistry(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold = 100 })
			guard := caseGuard(t, &toolhealth.Gate{Registry: r}, func(c *toolhealth.GuardConfig) {
				c.Default.MaxAttempts, c.Default.RetryBudget = 3, toolhealth.Off
			})
			runs := 0
			fn := always(status(503), &runs)
			for level := range levels {
				inner, tool := fn, fmt.Sprint("level", level)
				fn = func(ctx context.Context, _ string) (string, error) {
					return toolhealth.Call(ctx, guard, tool, inner)
				}
			}
			_, err := fn(t.Context(), "")
			require.Error(t, err)
			assert.Equal(t, 3, runs, "%d levels", levels)
		})
	}
}

func TestC64_StatisticsShowCallsAndAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, nil)
		guard := caseGuard(t, &toolhealth.Gate{Registry: r}, func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 3 })
		runs := 0
		_, err := toolhealth.Call(t.Context(), guard, "search", always(status(503), &runs))
		failure, ok := errors.AsType[*toolhealth.ToolError](err)
		require.True(t, ok)
		assert.Equal(t, toolhealth.StopCircuitOpen, failure.Reason)
		assert.Equal(t, 3, failure.Attempts)
		h := caseHealth(t, r, "search")
		assert.EqualValues(t, 1, h.Guard.Calls)
		assert.EqualValues(t, 1, h.Guard.Failed)
		assert.EqualValues(t, 3, h.Guard.Attempts)
		assert.EqualValues(t, 2, h.Guard.Retries)
		assert.EqualValues(t, 3, h.TotalCalls())
	})
}

func TestC67_CancelingEndsWaitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, nil)
		guard := caseGuard(t, &toolhealth.Gate{Registry: r}, func(c *toolhealth.GuardConfig) {
			c.Default.MaxAttempts, c.Default.BackoffBase, c.Default.BackoffMax = 5, 30*time.Second, toolhealth.Off
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		began, runs := time.Now(), 0
		_, err := toolhealth.Call(ctx, guard, "search", always(status(503), &runs))
		assert.Equal(t, 50*time.Millisecond, time.Since(began))
		assert.Equal(t, 1, runs)
		assert.ErrorIs(t, err, context.Canceled)
		_, ok := errors.AsType[*scenario.StatusError](err)
		assert.True(t, ok, "the last attempt's error is reachable too")
		failure, _ := errors.AsType[*toolhealth.ToolError](err)
		assert.Equal(t, toolhealth.StopCanceled, failure.Reason)
		assert.Equal(t, 1, caseHealth(t, r, "search").ConsecutiveFailures)
	})
}

func TestC69_CanceledCallerRunsNothingAndTakesNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, nil)
		gate := &toolhealth.Gate{Registry: r}
		guard := caseGuard(t, gate, nil)
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		runs := 0
		for range 5 {
			_, err := toolhealth.Call(canceled, guard, "search", always(nil, &runs))
			assert.ErrorIs(t, err, context.Canceled)
		}
		assert.Zero(t, r.Len(), "nothing is counted")
		tripByName(r, "search")
		time.Sleep(30 * time.Second)
		_, err := toolhealth.Call(canceled, guard, "search", always(nil, &runs))
		assert.ErrorIs(t, err, context.Canceled)
		_, err = gate.Allow(canceled, "search")
		assert.ErrorIs(t, err, context.Canceled)
		assert.Zero(t, runs)
		permit, err := gate.Allow(t.Context(), "search")
		require.NoError(t, err)
		assert.True(t, permit.Probe())
	})
}

func TestC70_NoBackOffOverflows(t *testing.T) {
	for _, base := range []time.Duration{1, 100 * time.Millisecond, time.Second, time.Hour} {
		for _, factor := range []float64{0, 1, 2, 10, math.Inf(1), math.NaN()} {
			for _, limit := range []time.Duration{0, time.Second, time.Hour} {
				last := time.Duration(0)
				for attempt := range 10_001 {
					d := retry.Delay(base, limit, factor, attempt)
					if d < last || d <= 0 || (limit > 0 && d > limit) {
						t.Fatalf("Delay(%v, %v, %v, %d) is %v after %v", base, limit, factor, attempt, d, last)
					}
					last = d
				}
			}
		}
	}
}

func TestC73_JitterStaysInRange(t *testing.T) {
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, 2, 9, time.Second, math.MaxInt64} {
		for _, jitter := range []float64{math.NaN(), -1, 0, 0.1, 1, 2} {
			for i := range 1000 {
				draw := float64(i) / 1000
				got := retry.Jitter(d, jitter, draw)
				if got < 0 || got > max(d, 0) {
					t.Fatalf("Jitter(%d, %v, %v) is %d", d, jitter, draw, got)
				}
				if !(jitter > 0) && got != max(d, 0) {
					t.Fatalf("Jitter(%d, %v, %v) is %d without jitter", d, jitter, draw, got)
				}
			}
		}
	}
	lowest := retry.Jitter(time.Second, 0.25, math.Nextafter(1, 0))
	assert.InDelta(t, 750*time.Millisecond, lowest, float64(time.Microsecond))
}

func TestC82_NegativeNumbersAreErrorsAndZeroIsDefault(t *testing.T) {
	for field, change := range map[string]func(*toolhealth.Policy){
		"default.max_attempts": func(p *toolhealth.Policy) { p.MaxAttempts = -2 },
		"default.retry_budget": func(p *toolhealth.Policy) { p.RetryBudget = -2 },
		"default.max_wait":     func(p *toolhealth.Policy) { p.MaxWait = -2 },
		"default.timeout":      func(p *toolhealth.Policy) { p.Timeout = -2 },
		"default.backoff_base": func(p *toolhealth.Policy) { p.BackoffBase = -2 },
		"default.jitter":       func(p *toolhealth.Policy) { p.Jitter = math.NaN() },
	} {
		var c toolhealth.GuardConfig
		change(&c.Default)
		_, err := toolhealth.NewGuard(nil, c)
		problem, ok := errors.AsType[*toolhealth.ConfigError](err)
		if assert.True(t, ok, field) {
			assert.Equal(t, field, problem.Field)
		}
	}
	off, err := toolhealth.NewGuard(nil, toolhealth.GuardConfig{Default: toolhealth.Policy{MaxAttempts: toolhealth.Off}})
	require.NoError(t, err)
	zero, err := toolhealth.NewGuard(nil, toolhealth.GuardConfig{Default: toolhealth.Policy{BackoffBase: toolhealth.Off}})
	require.NoError(t, err)
	for guard, want := range map[*toolhealth.Guard]int{off: 1, {}: 1, nil: 1, zero: 2} {
		runs := 0
		_, err := toolhealth.Call(t.Context(), guard, "search", always(status(503), &runs))
		assert.Error(t, err)
		assert.Equal(t, want, runs)
	}
}

func TestC99_ToolThatCallsItselfSharesAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, nil)
		guard := caseGuard(t, &toolhealth.Gate{Registry: r}, nil)
		tripByName(r, "search")
		time.Sleep(30 * time.Second)
		var answered, refused atomic.Int64
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for range 20 {
			wg.Go(func() {
				<-begin
				_, err := toolhealth.Call(t.Context(), guard, "search", func(ctx context.Context, _ string) (string, error) {
					return toolhealth.Call(ctx, guard, "search", func(context.Context, string) (string, error) {
						time.Sleep(time.Second)
						return "answer", nil
					})
				})
				if err == nil {
					answered.Add(1)
				} else {
					refused.Add(1)
				}
			})
		}
		close(begin)
		wg.Wait()
		assert.EqualValues(t, 1, answered.Load(), "the probe, and its inner call with it")
		assert.EqualValues(t, 19, refused.Load())
		h := caseHealth(t, r, "search")
		assert.Equal(t, toolhealth.StateClosed, h.State)
		assert.EqualValues(t, 1, h.Successes, "the inner call is not counted again")
	})
}

func TestC100_InnerRefusalIsNoFailureOfOuterTool(t *testing.T) {
	r := caseRegistry(t, nil)
	guard := caseGuard(t, &toolhealth.Gate{Registry: r}, nil)
	tripByName(r, "inner")
	for range 5 {
		_, err := toolhealth.Call(t.Context(), guard, "outer", func(ctx context.Context, _ string) (string, error) {
			_, err := toolhealth.Call(ctx, guard, "inner", func(context.Context, string) (string, error) { return "", nil })
			return "", fmt.Errorf("asking the inner tool: %w", err)
		})
		assert.ErrorIs(t, err, toolhealth.ErrCircuitOpen, "recognizable through wrapping")
		assert.ErrorIs(t, err, toolhealth.ErrRefused)
	}
	h := caseHealth(t, r, "outer")
	assert.Equal(t, toolhealth.StateClosed, h.State)
	assert.Zero(t, h.ConsecutiveFailures)
	assert.EqualValues(t, 5, h.Neutral)
	assert.EqualValues(t, 5, caseHealth(t, r, "inner").Refused)
}

func TestC111_ToolThatReplacesItselfIsConfigError(t *testing.T) {
	_, err := toolhealth.NewHealthRouter(map[string][]string{"d": {"d"}, "a": {"b", "b"}, "": {"x"}, "e": {""}})
	require.Error(t, err)
	for _, field := range []string{`substitutes["d"][0]`, `substitutes["a"][1]`, `substitutes[""]`, `substitutes["e"][0]`} {
		assert.ErrorContains(t, err, field)
	}
}

func TestC111_CircleIsSettingsError(t *testing.T) {
	_, err := toolhealth.Load(strings.NewReader(`{"tools":{"a":{"substitutes":["b"]},"b":{"substitutes":["c"]},"c":{"substitutes":["a"]},"d":{"substitutes":["d"]}}}`))
	assert.ErrorContains(t, err, `tools["c"].substitutes is part of the circle "a > b > c > a"`)
	assert.ErrorContains(t, err, `tools["d"].substitutes[0] is "d", must be another tool than the primary`)
}

func TestC111_ErrorsOfAllCandidatesAreReachable(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	guard := caseGuard(t, &toolhealth.Gate{
		Registry: caseRegistry(t, nil),
		Router:   caseRouter(t, map[string][]string{"a": {"b"}, "b": {"a"}}),
	}, nil)
	_, err := toolhealth.Call(t.Context(), guard, "a", func(_ context.Context, tool string) (string, error) {
		return "", map[string]error{"a": first, "b": second}[tool]
	})
	assert.ErrorIs(t, err, first)
	assert.ErrorIs(t, err, second)
	failure, _ := errors.AsType[*toolhealth.ToolError](err)
	require.Len(t, failure.Candidates, 2)
	assert.Equal(t, "b", failure.Candidates[1].Tool)
}

func TestC113_EachCandidateSaysWhyItDidNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, nil)
		guard := caseGuard(t, &toolhealth.Gate{
			Registry: r, Router: caseRouter(t, map[string][]string{"a": {"b", "c"}}),
		}, nil)
		tripByName(r, "a")
		time.Sleep(10 * time.Second)
		tripByName(r, "b")
		r.Record("c", toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, RetryAfter: 5 * time.Second}, 0)
		_, err := toolhealth.Call(t.Context(), guard, "a", func(context.Context, string) (string, error) { return "", nil })
		failure, ok := errors.AsType[*toolhealth.ToolError](err)
		require.True(t, ok)
		assert.Equal(t, 5*time.Second, failure.RetryAfter)
		type why struct {
			tool   string
			reason toolhealth.StopReason
			wait   time.Duration
		}
		var got []why
		for _, c := range failure.Candidates {
			got = append(got, why{c.Tool, c.Reason, c.RetryAfter})
		}
		assert.Equal(t, []why{
			{"a", toolhealth.StopCircuitOpen, 20 * time.Second},
			{"b", toolhealth.StopCircuitOpen, 30 * time.Second},
			{"c", toolhealth.StopRateLimited, 5 * time.Second},
		}, got)
	})
}

func TestC116_SubstituteGetsItsOwnArgumentsOrDoesNotRun(t *testing.T) {
	type question struct{ q string }
	r := caseRegistry(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold = 100 })
	guard := caseGuard(t, &toolhealth.Gate{Registry: r, Router: caseRouter(t, map[string][]string{"a": {"b"}})},
		func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 })
	down := errors.New("a is down")
	a := func(context.Context, question) (string, error) { return "", down }

	_, err := toolhealth.Wrap(guard, "a", a).Call(t.Context(), question{"x"})
	failure, ok := errors.AsType[*toolhealth.ToolError](err)
	require.True(t, ok)
	require.Len(t, failure.Candidates, 2)
	assert.Equal(t, "b", failure.Candidates[1].Tool)
	assert.ErrorContains(t, failure.Candidates[1].Err, "no function was given")
	_, ran := r.Health("b")
	assert.False(t, ran)

	var got string
	adapted := func(answer error) *toolhealth.Tool[question, string] {
		return toolhealth.Wrap(guard, "a", a).Substitute("b", func(_ context.Context, in question) (string, error) {
			got = fmt.Sprintf("query=%s limit=10", in.q)
			return "answer", answer
		})
	}
	out, err := adapted(nil).Call(t.Context(), question{"x"})
	require.NoError(t, err)
	assert.Equal(t, "answer", out)
	assert.Equal(t, "query=x limit=10", got)

	_, err = adapted(status(422)).Call(t.Context(), question{"x"})
	assert.ErrorIs(t, err, down, "the primary's error stays reachable")
	h := caseHealth(t, r, "b")
	assert.EqualValues(t, 1, h.Rejected)
	assert.Zero(t, h.Failures, "a rejected request does not count against b")
}

func TestC118_CallInfoNamesServingTool(t *testing.T) {
	r := caseRegistry(t, nil)
	guard := caseGuard(t, &toolhealth.Gate{Registry: r, Router: caseRouter(t, map[string][]string{"a": {"b"}})},
		func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 })
	call := func(_ context.Context, tool string) (string, error) {
		if tool == "a" {
			return "", status(503)
		}
		return tool, nil
	}
	for i, attempts := range []int{2, 2, 2, 1} {
		ctx, info := toolhealth.WithCallInfo(t.Context())
		out, err := toolhealth.Call(ctx, guard, "a", call)
		require.NoError(t, err)
		assert.Equal(t, "b", out)
		require.Len(t, info.Skipped, 1, "call %d", i)
		assert.Equal(t, "a", info.Skipped[0].Tool)
		info.Skipped = nil
		assert.Equal(t, toolhealth.CallInfo{Requested: "a", Served: "b", Attempts: attempts}, *info, "call %d", i)
	}
	assert.EqualValues(t, 4, caseHealth(t, r, "a").Guard.Fallbacks)
	assert.Zero(t, caseHealth(t, r, "a").Successes)
	assert.EqualValues(t, 4, caseHealth(t, r, "b").Successes)
}

func TestC125_PanicAndStackAreReachable(t *testing.T) {
	guard := caseGuard(t, &toolhealth.Gate{Registry: caseRegistry(t, nil)}, nil)
	cause := errors.New("index out of reach")
	_, err := toolhealth.Call(t.Context(), guard, "search", func(context.Context, string) (string, error) { panic(cause) })
	failure, ok := errors.AsType[*toolhealth.PanicError](err)
	require.True(t, ok)
	assert.Equal(t, cause, failure.Value)
	assert.ErrorIs(t, err, cause)
	assert.Contains(t, string(failure.Stack), "TestC125_PanicAndStackAreReachable")
	whole, ok := errors.AsType[*toolhealth.ToolError](err)
	require.True(t, ok)
	assert.Equal(t, toolhealth.KindPanic, whole.Verdict.Kind)
	assert.NotContains(t, whole.Error(), "index out of reach")
}

func TestC127_AbandonedCallsAreCountedUntilTheyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold = 0 })
		guard := caseGuard(t, &toolhealth.Gate{Registry: r}, func(c *toolhealth.GuardConfig) {
			c.Default = toolhealth.Policy{MaxAttempts: 1, Timeout: 50 * time.Millisecond, Detach: true}
		})
		call := func(tool string, fn toolFunc) {
			began := time.Now()
			_, err := toolhealth.Call(t.Context(), guard, tool, fn)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, 50*time.Millisecond, time.Since(began))
		}
		for range 1000 {
			call("slow", func(context.Context, string) (string, error) {
				time.Sleep(480 * time.Millisecond) // not at the instant of a later deadline
				return "too late", nil
			})
		}
		assert.EqualValues(t, 9, caseHealth(t, r, "slow").Guard.Abandoned, "the calls that began in the last 480ms")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		h := caseHealth(t, r, "slow")
		assert.Zero(t, h.Guard.Abandoned, "all have ended; otherwise the bubble would report it")
		assert.EqualValues(t, 1000, h.Failures)
		assert.Zero(t, h.Successes, "late results are dropped")
		assert.Zero(t, h.InFlight)

		never := make(chan struct{})
		for range 10 {
			call("stuck", func(context.Context, string) (string, error) { <-never; return "", nil })
		}
		time.Sleep(time.Hour)
		h = caseHealth(t, r, "stuck")
		assert.EqualValues(t, 10, h.Guard.Abandoned, "visible for as long as the call runs")
		assert.EqualValues(t, 10, h.Failures)
		close(never)
		synctest.Wait()
		assert.Zero(t, caseHealth(t, r, "stuck").Guard.Abandoned)
	})
}

func TestC129_EndingRootContextEndsAllCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold = 100 })
		guard := caseGuard(t, &toolhealth.Gate{Registry: r}, func(c *toolhealth.GuardConfig) {
			c.Default.BackoffBase, c.Default.BackoffMax = 30*time.Second, toolhealth.Off
		})
		root, shutDown := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				_, err := toolhealth.Call(root, guard, "search", func(ctx context.Context, _ string) (string, error) {
					if i%2 == 0 {
						return "", status(503) // into the back-off
					}
					<-ctx.Done()
					return "", ctx.Err()
				})
				failure, ok := errors.AsType[*toolhealth.ToolError](err)
				if assert.True(t, ok) {
					assert.Equal(t, toolhealth.StopCanceled, failure.Reason)
				}
			})
		}
		time.Sleep(time.Second)
		began := time.Now()
		shutDown()
		wg.Wait()
		assert.Zero(t, time.Since(began))
		h := caseHealth(t, r, "search")
		assert.EqualValues(t, 5, h.Failures, "from before the end")
		assert.EqualValues(t, 5, h.Neutral)
		assert.Zero(t, h.InFlight)
		assert.Zero(t, h.Guard.InFlight)
	})
}

func TestC139_FailedCallTellsModelWhatToDo(t *testing.T) {
	r := caseRegistry(t, nil)
	guard := caseGuard(t, &toolhealth.Gate{Registry: r}, nil)
	tripByName(r, "search")
	_, err := toolhealth.Call(t.Context(), guard, "search", func(context.Context, string) (string, error) { return "", nil })
	assert.ErrorIs(t, err, toolhealth.ErrCircuitOpen)
	assert.Contains(t, err.Error(), "tool temporarily unavailable: circuit breaker open; retry after ")
	refusal, ok := errors.AsType[*toolhealth.Refusal](err)
	require.True(t, ok)
	assert.Equal(t, 3, refusal.Streak)
	data, err := json.Marshal(err)
	require.NoError(t, err)
	var told map[string]any
	require.NoError(t, json.Unmarshal(data, &told))
	assert.Equal(t, "tool_unavailable:circuit_open", told["reason"])
	assert.Equal(t, 30.0, told["retry_after_seconds"])
}

// Fifty calls are in flight when the tool asks each of them to wait for five seconds.
func TestC163_CallersWithOneStatedWaitDoNotReturnTogether(t *testing.T) {
	for _, budget := range []int{0, 10} {
		synctest.Test(t, func(t *testing.T) {
			guard := caseGuard(t, &toolhealth.Gate{Registry: caseRegistry(t, nil)}, func(c *toolhealth.GuardConfig) {
				c.Default.Jitter, c.Default.RetryBudget = 1, budget
			})
			began := time.Now()
			returned, ok := returnAfterThrottle(t, guard, 50)
			assert.Equal(t, 50, ok, "C194: a wait that the tool stated costs no token")
			at := map[time.Duration]int{}
			for _, when := range returned {
				after := when.Sub(began) - time.Second // since the answers
				at[after]++
				assert.GreaterOrEqual(t, after, 5*time.Second)
				assert.LessOrEqual(t, after, 5*time.Second+100*time.Millisecond)
			}
			assert.Greater(t, len(at), 40, "moments at which one of 50 callers comes back")
		})
	}
}

// returnAfterThrottle makes so many calls at once, each of which is throttled for five
// seconds in its first attempt. It returns when the second ones began, and how many
// calls had an answer.
func returnAfterThrottle(t *testing.T, guard *toolhealth.Guard, calls int) (returned []time.Time, ok int) {
	t.Helper()
	var mu sync.Mutex
	var callers sync.WaitGroup
	for range calls {
		callers.Go(func() {
			runs := 0
			_, err := toolhealth.Call(t.Context(), guard, "search", func(context.Context, string) (string, error) {
				if runs++; runs == 1 {
					time.Sleep(time.Second) // until all calls are in flight
					return "", &scenario.StatusError{StatusCode: 429, Header: http.Header{"Retry-After": {"5"}}}
				}
				mu.Lock()
				defer mu.Unlock()
				returned = append(returned, time.Now())
				return "", nil
			})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				ok++
			}
		})
	}
	callers.Wait()
	return returned, ok
}

// The host's own timer cancels each call, and its cause says that time was up: above the
// floor the tool hangs, below it the caller gave the tool no chance.
func TestC183_HostsTimerEndsCallAsTimeout(t *testing.T) {
	for _, c := range []struct {
		after  time.Duration
		ran    int
		reason toolhealth.StopReason
	}{{45 * time.Second, 3, toolhealth.StopTimeout}, {500 * time.Millisecond, 20, toolhealth.StopCanceled}} {
		synctest.Test(t, func(t *testing.T) {
			guard := caseGuard(t, &toolhealth.Gate{Registry: caseRegistry(t, nil)}, nil)
			ran := 0
			for range 20 {
				ctx, cancel := context.WithCancelCause(t.Context())
				timer := time.AfterFunc(c.after, func() { cancel(context.DeadlineExceeded) })
				_, err := toolhealth.Call(ctx, guard, "search", func(ctx context.Context, _ string) (string, error) {
					ran++
					<-ctx.Done()
					return "", ctx.Err()
				})
				timer.Stop()
				cancel(nil)
				failure, is := errors.AsType[*toolhealth.ToolError](err)
				require.True(t, is)
				if failure.Attempts > 0 {
					assert.Equal(t, c.reason, failure.Reason)
					assert.ErrorIs(t, err, context.Canceled)
				}
			}
			assert.Equal(t, c.ran, ran, "%v", c.after)
		})
	}
}

// The tool that moves money is probed by a look at the balance, not by a payment.
func TestC187_PaymentIsNotTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := caseRegistry(t, nil)
		guard := caseGuard(t, &toolhealth.Gate{Registry: r}, func(c *toolhealth.GuardConfig) { c.Default.SideEffects = true })
		for range 3 {
			r.RecordFailure("bank", time.Millisecond)
		}
		time.Sleep(30 * time.Second)
		paid, asked := 0, 0
		pay := func() error {
			_, err := toolhealth.Call(toolhealth.WithoutProbe(t.Context()), guard, "bank", always(nil, &paid))
			return err
		}
		require.ErrorIs(t, pay(), toolhealth.ErrCircuitOpen)
		assert.Zero(t, paid)
		_, err := toolhealth.Call(t.Context(), guard, "bank", always(nil, &asked))
		require.NoError(t, err)
		require.NoError(t, pay())
		assert.Equal(t, [2]int{1, 1}, [2]int{asked, paid})
	})
}
