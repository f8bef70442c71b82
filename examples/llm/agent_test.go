package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/toolrunner"
	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genai"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/examples/llm"
	"github.com/toolhealth/toolhealth/integrations/httphealth"
)

// What a model reads of a tool that cannot be reached, and of one whose breaker is open.
const (
	unreachable = "tool failed: the tool cannot be reached"
	refusal     = "tool temporarily unavailable: circuit breaker open; retry after 30s"
)

// errBackend is what a tool fails with, and what no model may read.
var errBackend = fmt.Errorf("dial tcp 10.0.0.7:9200: connect: %w", syscall.ECONNREFUSED)

// script is a model: it asks for tools, one turn after the other, and then has done. It
// keeps the bodies of the requests.
type script struct {
	mu    sync.Mutex
	turns []string
	asked []string
}

// answer reads a request and returns the next turn.
func (s *script) answer(r *http.Request) string {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, string(body))
	turn := s.turns[0]
	if len(s.turns) > 1 {
		s.turns = s.turns[1:]
	}
	return turn
}

// requests returns the bodies of all requests.
func (s *script) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

func serveScript(t *testing.T, s *script) string {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, s.answer(r))
	}).URL
}

type searchInput struct {
	Query string `json:"query"`
}

// runner returns a tool runner over a model that asks for the search n times with input.
func runner(t *testing.T, guard *toolhealth.Guard, n int, input string, search func(context.Context, searchInput) (anthropic.BetaToolResultBlockParamContentUnion, error)) (*anthropic.BetaToolRunner, *script) {
	model := new(script)
	for i := range n {
		model.turns = append(model.turns, anthropicMessage("tool_use", fmt.Sprintf(`{"type":"tool_use","id":"t%d","name":"search","input":%s}`, i, input)))
	}
	model.turns = append(model.turns, anthropicMessage("end_turn", `{"type":"text","text":"done"}`))
	tool, err := toolrunner.NewBetaToolFromJSONSchema("search", "Searches.", llm.AnthropicTool(guard, "search", search))
	require.NoError(t, err)
	client := anthropicClient(serveScript(t, model))
	return client.Beta.Messages.NewToolRunner([]anthropic.BetaTool{tool}, runnerParams), model
}

var runnerParams = anthropic.BetaToolRunnerParams{
	BetaMessageNewParams: anthropic.BetaMessageNewParams{Model: "m", MaxTokens: 10,
		Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock("hi"))}},
	DisableThread: true, // the server keeps no threads
}

// lastResult returns the only tool result in the last message of a request.
func lastResult(request string) (text string, isError bool, err error) {
	var body struct {
		Messages []struct {
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal([]byte(request), &body); err != nil {
		return "", false, err
	}
	var results []struct {
		Type    string `json:"type"`
		IsError bool   `json:"is_error"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if err := json.Unmarshal(body.Messages[len(body.Messages)-1].Content, &results); err != nil {
		return "", false, err
	}
	if len(results) != 1 || results[0].Type != "tool_result" || len(results[0].Content) != 1 {
		return "", false, fmt.Errorf("no single tool result: %s", request)
	}
	return results[0].Content[0].Text, results[0].IsError, nil
}

// The model reads the refusal, and the runner finishes.
func TestAnthropicTool_RefusalIsErrorContent(t *testing.T) {
	guard, ran := newGuard(t, once()), 0
	r, model := runner(t, guard, 4, `{"query":"x"}`, func(context.Context, searchInput) (out anthropic.BetaToolResultBlockParamContentUnion, err error) {
		ran++
		return out, errBackend
	})
	answer, err := r.RunToCompletion(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "done", answer.Content[0].Text)
	assert.Equal(t, 3, ran)

	requests := model.requests()
	require.Len(t, requests, 5)
	for i, want := range []string{unreachable, unreachable, refusal, refusal} {
		text, isError, err := lastResult(requests[i+1])
		require.NoError(t, err)
		assert.True(t, isError)
		assert.Equal(t, "Error: "+want, text)
	}
	assert.NotContains(t, strings.Join(requests, ""), "10.0.0.7")
	assert.EqualValues(t, 1, health(t, guard, "search").Refused)
}

// A tool's own words about the arguments reach the model, and do not count against it.
func TestAnthropicTool_RejectionHasToolsOwnWords(t *testing.T) {
	guard := newGuard(t, once())
	r, model := runner(t, guard, 4, `{"query":"x"}`, func(context.Context, searchInput) (out anthropic.BetaToolResultBlockParamContentUnion, err error) {
		return out, toolhealth.BadRequest(errors.New("the query has to have two letters"))
	})
	_, err := r.RunToCompletion(t.Context())
	require.NoError(t, err)
	text, isError, err := lastResult(model.requests()[4])
	require.NoError(t, err)
	assert.True(t, isError)
	assert.Equal(t, "Error: the query has to have two letters", text)
	assert.EqualValues(t, 4, health(t, guard, "search").Rejected)
}

// Arguments that the SDK cannot read never reach the guard.
func TestAnthropicTool_UnreadableArgumentsCountNothing(t *testing.T) {
	guard := newGuard(t, once())
	r, model := runner(t, guard, 4, `{"query":7}`, func(context.Context, searchInput) (out anthropic.BetaToolResultBlockParamContentUnion, err error) {
		t.Error("the tool was called")
		return out, nil
	})
	_, err := r.RunToCompletion(t.Context())
	require.NoError(t, err)
	text, isError, err := lastResult(model.requests()[4])
	require.NoError(t, err)
	assert.True(t, isError)
	assert.Contains(t, text, "failed to parse tool input")
	_, known := guard.Registry().Health("search")
	assert.False(t, known)
}

// A panic would end the program: the runner calls tools on goroutines of its own.
func TestAnthropicTool_PanicIsErrorContent(t *testing.T) {
	guard := newGuard(t, once())
	r, model := runner(t, guard, 1, `{"query":"x"}`, func(context.Context, searchInput) (out anthropic.BetaToolResultBlockParamContentUnion, err error) {
		panic("secret")
	})
	_, err := r.RunToCompletion(t.Context())
	require.NoError(t, err)
	text, isError, err := lastResult(model.requests()[1])
	require.NoError(t, err)
	assert.True(t, isError)
	assert.Equal(t, "Error: tool failed: the tool crashed", text)
	assert.EqualValues(t, 1, health(t, guard, "search").ByKind[toolhealth.KindPanic])
}

func TestAnthropicTool_CanceledCallerEndsRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	guard := newGuard(t, once())
	r, model := runner(t, guard, 4, `{"query":"x"}`, func(ctx context.Context, _ searchInput) (out anthropic.BetaToolResultBlockParamContentUnion, err error) {
		cancel()
		<-ctx.Done()
		return out, ctx.Err()
	})
	_, err := r.RunToCompletion(ctx)
	require.ErrorIs(t, err, context.Canceled)
	assert.Len(t, model.requests(), 1)
	assert.EqualValues(t, 1, health(t, guard, "search").Neutral)
}

// The requests of a runner are its own, so that no Guard is around them. A Transport has
// their breaker, and its refusal ends the run.
func TestAnthropicClient_RunnerBehindTransport(t *testing.T) {
	guard, s := newGuard(t, once()), serveJSON(t, 529, claude.error(529))
	client := llm.AnthropicClient(anthropicoption.WithBaseURL(s.URL), anthropicoption.WithAPIKey("k"),
		anthropicoption.WithHTTPClient(&http.Client{Transport: &httphealth.Transport{
			Gate: guard.Gate(), Name: func(*http.Request) string { return "anthropic" },
		}}))
	for range 3 {
		_, err := client.Beta.Messages.NewToolRunner(nil, runnerParams).RunToCompletion(t.Context())
		require.Error(t, err)
		assert.NotErrorIs(t, err, toolhealth.ErrRefused)
	}
	_, err := client.Beta.Messages.NewToolRunner(nil, runnerParams).RunToCompletion(t.Context())
	text, ok := toolhealth.ModelText(err)
	assert.True(t, ok)
	assert.Equal(t, refusal, text)
	assert.EqualValues(t, 3, s.hits.Load(), "requests")
	assert.EqualValues(t, 1, health(t, guard, "anthropic").Refused)
}

// session is an agent session of openai on loopback, in which the model asks for the
// search n times in one turn.
type session struct {
	script
	n int
}

func (s *session) serve(w http.ResponseWriter, r *http.Request) {
	events := strings.HasSuffix(r.URL.Path, "/events")
	switch {
	case r.Method == http.MethodPost:
		s.answer(r)
		w.WriteHeader(http.StatusNoContent)
	case !events:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"session","status":"idle"}`)
	default:
		w.Header().Set("Content-Type", "text/event-stream")
		write(w, event("turn.created", "e0", `"turn_id":"turn","turn":{"id":"turn","subagent_id":null}`))
		for i := range s.n {
			id := fmt.Sprintf("c%d", i)
			write(w, event("turn.item.added", id, fmt.Sprintf(`"turn_id":"turn","item":{"id":%q,"type":"function_call","turn_id":"turn","call_id":%q,"name":"search","arguments":"{\"query\":\"x\"}","status":"in_progress"}`, id, id)))
		}
		write(w, event("turn.completed", "e1", `"turn_id":"turn"`)+event("idle", "e2", `"session":{"status":"idle"}`))
		hang(w, r)
	}
}

func event(kind, id, fields string) string {
	return sse(fmt.Sprintf(`{"type":"agent.session.%s","event_id":%q,%s}`, kind, id, fields))
}

// converse runs one turn of the session, and returns its error.
func (s *session) converse(ctx context.Context, t *testing.T, handler openai.AgentToolHandler) error {
	s.turns = []string{""}
	client := openAIClient(serve(t, s.serve).URL)
	stream := client.Beta.Agents.Sessions.Stream(ctx, "session", openai.AgentSessionStreamParams{
		Input: "hi", ToolHandlers: map[string]openai.AgentToolHandler{"search": handler}})
	defer stream.Close()
	for stream.Next() {
	}
	return stream.Err()
}

// The model reads the refusal where the SDK alone would say "Tool handler failed.", and
// the turn completes.
func TestOpenAIHandler_RefusalIsResult(t *testing.T) {
	guard, ran := newGuard(t, once()), 0
	s := &session{n: 4}
	err := s.converse(t.Context(), t, llm.OpenAIHandler(guard, "search", func(context.Context, map[string]any) (any, error) {
		ran++
		return nil, errBackend
	}))
	require.NoError(t, err)
	assert.Equal(t, 3, ran)
	requests := s.requests()
	require.Len(t, requests, 5, "the input and four results")
	assert.Contains(t, requests[1], unreachable)
	assert.Contains(t, requests[4], refusal)
	assert.NotContains(t, strings.Join(requests, ""), "10.0.0.7")
	assert.EqualValues(t, 1, health(t, guard, "search").Refused)
}

func TestOpenAIHandler_CanceledCallerEndsRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	guard, s := newGuard(t, once()), &session{n: 4}
	err := s.converse(ctx, t, llm.OpenAIHandler(guard, "search", func(ctx context.Context, _ map[string]any) (any, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	require.ErrorIs(t, err, context.Canceled)
	assert.Len(t, s.requests(), 1, "the input")
	assert.EqualValues(t, 1, health(t, guard, "search").Neutral)
}

// converseGenAI is a loop by hand: it answers the calls of the model until there are none.
func converseGenAI(ctx context.Context, client *genai.Client, chat *toolhealth.Tool[llm.GenAIRequest, *genai.GenerateContentResponse], search *toolhealth.Tool[map[string]any, string]) (string, error) {
	in := genAIQuestion
	for {
		answer, err := chat.Call(ctx, in)
		if err != nil {
			return "", err
		}
		calls := answer.FunctionCalls()
		if len(calls) == 0 {
			return answer.Text(), nil
		}
		in.Contents = append(in.Contents, answer.Candidates[0].Content)
		var parts []*genai.Part
		for _, call := range calls {
			out, err := search.Call(ctx, call.Args)
			part, err := llm.GenAIAnswer(call, out, err)
			if err != nil {
				return "", err
			}
			parts = append(parts, part)
		}
		in.Contents = append(in.Contents, genai.NewContentFromParts(parts, genai.RoleUser))
	}
}

func TestGenAIAnswer_RefusalIsResponse(t *testing.T) {
	guard, ran := newGuard(t, once()), 0
	turn := genAIContent(`{"functionCall":{"id":"c","name":"search","args":{"query":"x"}}}`, "STOP")
	model := &script{turns: []string{turn, turn, turn, turn, gemini.good}}
	client, err := genAIClient(serveScript(t, model))
	require.NoError(t, err)
	search := toolhealth.Wrap(guard, "search", func(context.Context, map[string]any) (string, error) {
		ran++
		return "", errBackend
	})
	answer, err := converseGenAI(t.Context(), client, llm.GenAIChat(guard, client), search)
	require.NoError(t, err)
	assert.Equal(t, "hello", answer)
	assert.Equal(t, 3, ran)
	requests := model.requests()
	require.Len(t, requests, 5)
	assert.Contains(t, requests[1], `"response":{"error":"`+unreachable+`"}`)
	assert.Contains(t, requests[4], `"response":{"error":"`+refusal+`"}`)
	assert.NotContains(t, strings.Join(requests, ""), "10.0.0.7")
}

func TestGenAIAnswer_CanceledCallerEndsRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	guard := newGuard(t, once())
	out, err := toolhealth.Wrap(guard, "search", func(context.Context, string) (string, error) { return "", nil }).Call(ctx, "")
	part, err := llm.GenAIAnswer(&genai.FunctionCall{Name: "search"}, out, err)
	assert.Nil(t, part)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestGenAIAnswer_Output(t *testing.T) {
	part, err := llm.GenAIAnswer(&genai.FunctionCall{Name: "search", ID: "c"}, "found", nil)
	require.NoError(t, err)
	assert.Equal(t, &genai.FunctionResponse{Name: "search", ID: "c", Response: map[string]any{"output": "found"}}, part.FunctionResponse)
}
