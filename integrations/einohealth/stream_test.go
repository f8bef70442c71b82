package einohealth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/einohealth"
)

// opens reads the stream of one call of "t" as far as n messages, and does not close it.
func opens(t *testing.T, ctx context.Context, guard *toolhealth.Guard, tl tool.BaseTool, n int, opts ...einohealth.Option) (*schema.StreamReader[[]*schema.Message], string) {
	t.Helper()
	chunks, err := newNode(t, guard, tl, opts...).Stream(ctx, schema.AssistantMessage("", turn("t")))
	require.NoError(t, err)
	text := ""
	for range n {
		out, err := chunks.Recv()
		require.NoError(t, err)
		text += textOf(out[0])
	}
	return chunks, text
}

// enhanced returns a streamable tool as an enhanced one.
func enhanced(run func(context.Context, string) (*schema.StreamReader[string], error)) map[string]tool.BaseTool {
	return map[string]tool.BaseTool{"plain": streamable{"t", run}, "enhanced": enhancedStreamable{"t", run}}
}

func TestStream_CutIsFailureWithSafeText(t *testing.T) {
	for _, how := range []string{"Generate", "Stream"} {
		for kind, tl := range enhanced(says(0, errCut, "one ", "two ", "three ")) {
			t.Run(kind+" by "+how, func(t *testing.T) {
				guard := newGuard(t)
				said := "one two three \n"
				for _, want := range []string{said + unreachable, said + unreachable, said + refusal, refusal} { // the third cut opens it
					answer, err := run(t.Context(), newAgent(t, guard, calls("t", 1), tl), how)
					require.NoError(t, err)
					assert.Equal(t, "I read: "+want, answer.Content)
				}
				h := health(t, guard, "t")
				assert.Equal(t, toolhealth.StateOpen, h.State)
				assert.EqualValues(t, 3, h.ByKind[toolhealth.KindConnection])
				assert.EqualValues(t, 1, h.Refused)
				assert.Zero(t, h.Successes)
				assert.Zero(t, h.InFlight)
			})
		}
	}
}

// A tool that acts may have acted before its stream was cut, or went silent.
func TestStream_CutOfToolThatActsIsOutcomeUnknown(t *testing.T) {
	silent := func(ctx context.Context, _ string) (*schema.StreamReader[string], error) {
		r, w := schema.Pipe[string](1)
		w.Send("one ", nil)
		go func() { <-ctx.Done(); w.Close() }()
		return r, nil
	}
	for name, run := range map[string]func(context.Context, string) (*schema.StreamReader[string], error){"cut": says(0, errCut, "one "), "silent": silent} {
		for kind, tl := range enhanced(run) {
			for _, how := range []string{"Invoke", "Stream"} {
				t.Run(name+" "+kind+" by "+how, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						guard := newGuard(t, func(s *toolhealth.Settings) { s.Policy.SideEffects = true })
						text, err := ask(t.Context(), newNode(t, guard, tl), how)
						assert.Equal(t, settled(how), err)
						assert.Equal(t, "one \ntool outcome unknown: the action may have been carried out, check before repeating it", text)
						assert.EqualValues(t, 1, health(t, guard, "t").Failures)
					})
				})
			}
		}
	}
}

// The attempts that opened no stream are in the text, and what Text is asked has all that
// the error of a call has.
func TestStream_CutReadsWhatCallReads(t *testing.T) {
	var asked *toolhealth.ToolError
	guard := newGuard(t, func(s *toolhealth.Settings) {
		s.Policy = toolhealth.Policy{MaxAttempts: 3, BackoffBase: toolhealth.Off}
	})
	opened := 0
	tl := streamable{"t", func(ctx context.Context, _ string) (*schema.StreamReader[string], error) {
		if opened++; opened == 1 {
			return nil, errCut
		}
		return says(0, errCut, "one ")(ctx, "")
	}}
	text, err := ask(t.Context(), newNode(t, guard, tl, einohealth.Text(func(err error) string {
		asked = err.(*toolhealth.ToolError)
		return err.Error()
	})), "Stream")
	assert.Equal(t, io.EOF, err)
	assert.Equal(t, "one \ntool failed after 2 attempts: the tool cannot be reached", text)
	assert.Equal(t, 2, opened, "a stream that was open is not opened again")
	require.NotNil(t, asked)
	assert.Equal(t, toolhealth.StopRetryExhausted, asked.Reason)
	assert.ErrorIs(t, asked, io.ErrUnexpectedEOF)
}

func TestStream_LongProbeClosesBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t)
		for range 3 {
			guard.Registry().RecordFailure("t", 0)
		}
		time.Sleep(30 * time.Second)
		texts := strings.SplitAfter(strings.Repeat("chunk ", 20), " ")[:20]
		tl := streamable{"t", says(20*time.Second, nil, texts...)} // ten leases
		answer, err := run(t.Context(), newAgent(t, guard, calls("t", 1), tl), "Generate")
		require.NoError(t, err)
		assert.Equal(t, 20, strings.Count(answer.Content, "chunk"))
		h := health(t, guard, "t")
		assert.Equal(t, toolhealth.StateClosed, h.State)
		assert.EqualValues(t, 1, h.Successes)
		assert.Zero(t, h.InFlight)
	})
}

func TestStream_ReaderThatLeavesEarlyIsNoFailure(t *testing.T) {
	for kind, tl := range enhanced(says(time.Second, nil, "one", "two", "three", "four", "five", "six")) {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				guard := newGuard(t)
				for range 3 {
					guard.Registry().RecordFailure("t", 0)
				}
				time.Sleep(30 * time.Second)
				chunks, text := opens(t, t.Context(), guard, tl, 2)
				assert.Equal(t, "onetwo", text)
				h := health(t, guard, "t")
				assert.EqualValues(t, 1, h.InFlight)
				assert.Equal(t, toolhealth.StateHalfOpen, h.State)
				chunks.Close()
				time.Sleep(2 * time.Second) // until the tool's next chunks
				synctest.Wait()
				h = health(t, guard, "t")
				assert.Equal(t, toolhealth.StateClosed, h.State)
				assert.EqualValues(t, 1, h.Successes)
				assert.Zero(t, h.InFlight)
			})
		})
	}
}

func TestStream_CountsAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t)
		chunks, _ := opens(t, t.Context(), guard, streamable{"t", says(time.Second, nil, "one", "two")}, 1)
		h := health(t, guard, "t")
		assert.Zero(t, h.Successes)
		assert.EqualValues(t, 1, h.InFlight)
		_, err := chunks.Recv()
		require.NoError(t, err)
		_, err = chunks.Recv()
		assert.Equal(t, io.EOF, err)
		h = health(t, guard, "t")
		assert.EqualValues(t, 1, h.Successes)
		assert.Zero(t, h.InFlight)
		chunks.Close()
	})
}

func withTimeout(d time.Duration) func(*toolhealth.Settings) {
	return func(s *toolhealth.Settings) { s.Policy.Timeout = d }
}

// Both streams go silent; one of them heeds its ctx.
func TestStream_SilenceIsTimeout(t *testing.T) {
	deaf := func(context.Context, string) (*schema.StreamReader[string], error) {
		r, w := schema.Pipe[string](1)
		w.Send("one ", nil)
		go func() { time.Sleep(time.Hour); w.Close() }()
		return r, nil
	}
	heeding := func(ctx context.Context, _ string) (*schema.StreamReader[string], error) {
		r, w := schema.Pipe[string](1)
		w.Send("one ", nil)
		go func() {
			inner, cancel := context.WithCancel(ctx) // which says canceled
			defer cancel()
			<-inner.Done()
			w.Send("", inner.Err())
			w.Close()
		}()
		return r, nil
	}
	for name, silent := range map[string]func(context.Context, string) (*schema.StreamReader[string], error){"deaf": deaf, "heeding": heeding} {
		for _, how := range []string{"Generate", "Stream"} {
			t.Run(name+" by "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					guard := newGuard(t, withTimeout(5*time.Second))
					start := time.Now()
					answer, err := run(t.Context(), newAgent(t, guard, calls("t", 1), streamable{"t", silent}), how)
					require.NoError(t, err)
					assert.Equal(t, "I read: one \ntool failed: no answer in time", answer.Content)
					assert.Equal(t, 5*time.Second, time.Since(start))
					assert.EqualValues(t, 1, health(t, guard, "t").ByKind[toolhealth.KindTimeout])
					time.Sleep(time.Hour) // until the deaf one has ended
				})
			})
		}
	}
}

func TestStream_SlowChunksAreNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, withTimeout(5*time.Second))
		tl := streamable{"t", says(4*time.Second, nil, "one ", "two ", "three ")}
		answer, err := run(t.Context(), newAgent(t, guard, calls("t", 1), tl), "Generate")
		require.NoError(t, err)
		assert.Equal(t, "I read: one two three ", answer.Content)
		assert.EqualValues(t, 1, health(t, guard, "t").Successes)
	})
}

func TestStream_SlowReaderIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, withTimeout(5*time.Second))
		chunks, _ := opens(t, t.Context(), guard, streamable{"t", says(0, nil, "1", "2", "3", "4", "5", "6", "7")}, 0)
		text := ""
		for {
			time.Sleep(4 * time.Second)
			out, err := chunks.Recv()
			if err != nil {
				require.Equal(t, io.EOF, err)
				break
			}
			text += textOf(out[0])
		}
		assert.Equal(t, "1234567", text)
		assert.EqualValues(t, 1, health(t, guard, "t").Successes)
	})
}

// The tool and its reader take turns at being slow: neither is silent for longer than Timeout, but
// both are together.
func TestStream_SlowToolAndSlowReaderAreNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, withTimeout(5*time.Second))
		tl := streamable{"t", func(context.Context, string) (*schema.StreamReader[string], error) {
			r, w := schema.Pipe[string](0)
			go func() {
				defer w.Close()
				w.Send("1", nil)
				time.Sleep(4 * time.Second)
				w.Send("2", nil) // the reader takes it at 8s
				time.Sleep(7 * time.Second)
				w.Send("3", nil)
			}()
			return r, nil
		}}
		chunks, _ := opens(t, t.Context(), guard, tl, 0)
		time.Sleep(8 * time.Second)
		text := ""
		for {
			out, err := chunks.Recv()
			if err != nil {
				require.Equal(t, io.EOF, err)
				break
			}
			text += textOf(out[0])
		}
		assert.Equal(t, "123", text)
		assert.EqualValues(t, 1, health(t, guard, "t").Successes)
	})
}

// A reader that stays away for longer than Timeout: the Flight has settled without a verdict on
// the tool, and the reader learns that time was up.
func TestStream_ReaderThatStaysAwayReadsOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, withTimeout(5*time.Second))
		tl := streamable{"t", func(context.Context, string) (*schema.StreamReader[string], error) {
			r, w := schema.Pipe[string](0)
			go func() {
				for !w.Send("x", nil) {
				}
				w.Close()
			}()
			return r, nil
		}}
		asked := ""
		chunks, _ := opens(t, t.Context(), guard, tl, 0, einohealth.Text(func(err error) string {
			asked = err.(*toolhealth.ToolError).Details()
			return err.Error()
		}))
		time.Sleep(6 * time.Second)
		h := health(t, guard, "t")
		assert.EqualValues(t, 1, h.NeutralByKind[toolhealth.KindCanceled])
		assert.Zero(t, h.InFlight)
		text := ""
		for {
			out, err := chunks.Recv()
			if err != nil {
				assert.Equal(t, io.EOF, err)
				break
			}
			text += textOf(out[0])
		}
		assert.Equal(t, "\ntool call out of time", strings.TrimLeft(text, "x"))
		assert.Equal(t, `"t": tool_canceled, kind canceled, 1 attempts; "t": tool_canceled: "context deadline exceeded"`, asked)
		h = health(t, guard, "t")
		assert.Zero(t, h.Failures+h.Successes)
	})
}

func TestStream_CanceledCallerEndsRun(t *testing.T) {
	for kind, tl := range enhanced(says(time.Hour, nil, "never")) {
		for _, how := range []string{"Invoke", "Stream"} {
			t.Run(kind+" by "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					guard := newGuard(t)
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(time.Second, cancel)
					_, err := ask(ctx, newNode(t, guard, tl), how)
					assert.ErrorIs(t, err, context.Canceled)
					synctest.Wait()
					h := health(t, guard, "t")
					assert.EqualValues(t, 1, h.Neutral)
					assert.Zero(t, h.Failures+h.Successes)
					assert.Zero(t, h.InFlight)
				})
			})
		}
	}
}

// A reader that leaves because it was canceled is no success, either.
func TestStream_CanceledReaderIsNeutral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t)
		ctx, cancel := context.WithCancel(t.Context())
		chunks, _ := opens(t, ctx, guard, streamable{"t", says(time.Second, nil, "1", "2", "3", "4", "5")}, 1)
		cancel()
		chunks.Close()
		synctest.Wait()
		h := health(t, guard, "t")
		assert.EqualValues(t, 1, h.Neutral)
		assert.Zero(t, h.InFlight)
	})
}

// The reader leaves at the same moment, while the next chunk waits for it.
func TestStream_CanceledReaderIsNeutralAlsoAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t)
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			chunks, _ := opens(t, ctx, guard, streamable{"t", says(0, nil, "1", "2", "3", "4", "5")}, 1)
			synctest.Wait()
			cancel()
			chunks.Close()
			synctest.Wait()
		}
		h := health(t, guard, "t")
		assert.EqualValues(t, 100, h.Neutral)
		assert.Zero(t, h.Successes)
		assert.Zero(t, h.InFlight)
	})
}

// The functions that convert chunks run on a goroutine of the middleware's.
func TestStream_PanicIsFailure(t *testing.T) {
	converting := func(convert func(string) (string, error)) tool.BaseTool {
		return streamable{"t", func(context.Context, string) (*schema.StreamReader[string], error) {
			return schema.StreamReaderWithConvert(schema.StreamReaderFromArray([]string{"one", "two"}), convert), nil
		}}
	}
	for name, c := range map[string]struct {
		tl    tool.BaseTool
		value string
	}{
		"panic": {converting(func(string) (string, error) { panic("ouch") }), "ouch"},
		"goexit": {converting(func(string) (string, error) { runtime.Goexit(); return "", nil }),
			"the tool's stream has ended its goroutine"},
		"no stream": {streamable{"t", func(context.Context, string) (*schema.StreamReader[string], error) { return nil, nil }},
			"runtime error: invalid memory address or nil pointer dereference"},
	} {
		t.Run(name, func(t *testing.T) {
			guard := newGuard(t)
			var asked error
			node := newNode(t, guard, c.tl, einohealth.Text(func(err error) string { asked = err; return err.Error() }))
			text, err := ask(t.Context(), node, "Stream")
			assert.Equal(t, io.EOF, err)
			assert.Equal(t, "tool failed: the tool crashed", text)
			assert.EqualValues(t, 1, health(t, guard, "t").ByKind[toolhealth.KindPanic])
			cause, ok := errors.AsType[*toolhealth.PanicError](asked)
			require.True(t, ok, asked)
			assert.Equal(t, c.value, fmt.Sprint(cause.Value))
		})
	}
}

func TestStream_ClassifierOfGuardIsHeard(t *testing.T) {
	own := errors.New("own")
	for name, c := range map[string]struct {
		classify toolhealth.Classifier
		text     string
		err      error
	}{
		"rejected": {func(context.Context, error) toolhealth.Verdict {
			return toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindNotFound}
		}, "one\nown", io.EOF},
		"success": {func(context.Context, error) toolhealth.Verdict { return toolhealth.Verdict{} }, "one", own},
		"denied": {func(context.Context, error) toolhealth.Verdict {
			return toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindDenied}
		}, "one", own},
		"panic": {func(context.Context, error) toolhealth.Verdict { panic("ouch") }, "one\ntool failed: unknown error", io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			guard := newGuard(t, func(s *toolhealth.Settings) { s.Classify = c.classify })
			text, err := ask(t.Context(), newNode(t, guard, streamable{"t", says(0, own, "one")}), "Stream")
			assert.ErrorIs(t, err, c.err)
			assert.Equal(t, c.text, text)
		})
	}
}

// What a layer below has seen of a cut stream is in the text, too.
func TestStream_NotesAreHeard(t *testing.T) {
	guard := newGuard(t)
	tl := streamable{"t", func(ctx context.Context, _ string) (*schema.StreamReader[string], error) {
		toolhealth.Note(ctx, toolhealth.ClassifyHTTP(503, map[string][]string{"Retry-After": {"7"}}))
		return says(0, errors.New("no luck"), "one")(ctx, "")
	}}
	text, err := ask(t.Context(), newNode(t, guard, tl), "Stream")
	assert.Equal(t, io.EOF, err)
	assert.Equal(t, "one\ntool failed: internal error of the tool; retry after 7s", text)
	assert.EqualValues(t, 1, health(t, guard, "t").ByKind[toolhealth.KindServerError])
}

// Several streams that are read as one: each has an end of its own, which is no error.
func TestStream_NamedEndsAreNoEnd(t *testing.T) {
	guard := newGuard(t)
	tl := streamable{"t", func(context.Context, string) (*schema.StreamReader[string], error) {
		return schema.MergeNamedStreamReaders(map[string]*schema.StreamReader[string]{
			"a": schema.StreamReaderFromArray([]string{"x"}), "b": schema.StreamReaderFromArray([]string{"x"}),
		}), nil
	}}
	text, err := ask(t.Context(), newNode(t, guard, tl), "Invoke")
	require.NoError(t, err)
	assert.Equal(t, "xx", text)
	assert.EqualValues(t, 1, health(t, guard, "t").Successes)
}

// With Detach the guard goes on without a tool that is late: what it opens is closed.
func TestStream_OpenedTooLateIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, withTimeout(time.Second), func(s *toolhealth.Settings) { s.Policy.Detach = true })
		closed := false
		tl := streamable{"t", func(context.Context, string) (*schema.StreamReader[string], error) {
			time.Sleep(time.Minute)
			r, w := schema.Pipe[string](0)
			go func() { closed = w.Send("late", nil); w.Close() }()
			return r, nil
		}}
		text, err := ask(t.Context(), newNode(t, guard, tl, einohealth.Text(nil)), "Stream")
		assert.Equal(t, io.EOF, err)
		assert.Equal(t, "tool failed: no answer in time", text)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.True(t, closed)
	})
}

// Without the middleware, a stream of no chunks ends the run.
func TestStream_EmptyIsEmptyText(t *testing.T) {
	for kind, tl := range enhanced(says(0, nil)) {
		for _, how := range []string{"Generate", "Stream"} {
			t.Run(kind+" by "+how, func(t *testing.T) {
				guard := newGuard(t)
				answer, err := run(t.Context(), newAgent(t, guard, calls("t", 1), tl), how)
				require.NoError(t, err)
				assert.Equal(t, "I read: ", answer.Content)
				assert.EqualValues(t, 1, health(t, guard, "t").Successes)
			})
		}
	}
}

// The caller's deadline is no word of the caller's: the model may read that time is up,
// and eino ends a run whose ctx is done by itself.
func TestStream_DeadlineOfCallerIsTimeout(t *testing.T) {
	for _, how := range []string{"Invoke", "Stream"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				guard := newGuard(t)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				text, err := ask(ctx, newNode(t, guard, streamable{"t", says(3*time.Second, nil, "one ", "two ")}), how)
				assert.Equal(t, settled(how), err)
				assert.Equal(t, "one \ntool failed: no answer in time", text)
				assert.EqualValues(t, 1, health(t, guard, "t").ByKind[toolhealth.KindTimeout])
			})
		})
	}
}
