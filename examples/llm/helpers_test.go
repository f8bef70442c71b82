package llm_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"
	"google.golang.org/genai"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/examples/llm"
)

// provider is one SDK, and how the server of its provider writes.
type provider struct {
	tool   string
	chat   func(ctx context.Context, guard *toolhealth.Guard, url string) (string, error)
	stream func(ctx context.Context, guard *toolhealth.Guard, url string) iter.Seq2[string, error]

	good   string                   // an answer that says hello
	error  func(status int) string  // the body of an error
	quota  string                   // that of an empty quota, with the status 429; "" if there is none
	begin  string                   // events before the first piece of a stream
	pieces func(text string) string // an event that says text
	end    string                   // events after the last piece
	broken string                   // an event that says an error
}

func sse(data string) string { return "data: " + data + "\n\n" }

// providers are those whose SDKs are shown.
var providers = []provider{openAI, claude, gemini}

var openAI = provider{
	tool: "openai",
	chat: func(ctx context.Context, guard *toolhealth.Guard, url string) (string, error) {
		answer, err := llm.OpenAIChat(guard, openAIClient(url)).Call(ctx, openAIQuestion)
		if err != nil {
			return "", err
		}
		return answer.Choices[0].Message.Content, nil
	},
	stream: func(ctx context.Context, guard *toolhealth.Guard, url string) iter.Seq2[string, error] {
		return llm.OpenAIStream(ctx, guard, openAIClient(url), openAIQuestion)
	},
	good: `{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hello"}}]}`,
	error: func(status int) string {
		return fmt.Sprintf(`{"error":{"message":"status %d","type":"t","param":null,"code":null}}`, status)
	},
	quota: `{"error":{"message":"You exceeded your current quota.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`,
	pieces: func(text string) string {
		return sse(fmt.Sprintf(`{"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":%q}}]}`, text))
	},
	end:    sse(`{"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`) + sse("[DONE]"),
	broken: sse(`{"error":{"message":"The server had an error.","type":"server_error","param":null,"code":null}}`),
}

var openAIQuestion = openai.ChatCompletionNewParams{Model: "m",
	Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}}

func openAIClient(url string) openai.Client {
	return llm.OpenAIClient(option.WithBaseURL(url), option.WithAPIKey("k"))
}

var claude = provider{
	tool: "anthropic",
	chat: func(ctx context.Context, guard *toolhealth.Guard, url string) (string, error) {
		answer, err := llm.AnthropicChat(guard, anthropicClient(url)).Call(ctx, anthropicQuestion)
		if err != nil {
			return "", err
		}
		return answer.Content[0].Text, nil
	},
	stream: func(ctx context.Context, guard *toolhealth.Guard, url string) iter.Seq2[string, error] {
		return llm.AnthropicStream(ctx, guard, anthropicClient(url), anthropicQuestion)
	},
	good: anthropicMessage("end_turn", `{"type":"text","text":"hello"}`),
	error: func(status int) string {
		kind := map[int]string{401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}[status]
		return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":"status %d"}}`, kind, status)
	},
	quota: `{"type":"error","error":{"type":"rate_limit_error","message":"The spend limit is reached.","details":{"error_code":"enforced_spend_limit_reached"}}}`,
	begin: "event: message_start\n" + sse(`{"type":"message_start","message":{"id":"1","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`) +
		"event: content_block_start\n" + sse(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`),
	pieces: func(text string) string {
		return "event: content_block_delta\n" + sse(fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}`, text))
	},
	end: "event: content_block_stop\n" + sse(`{"type":"content_block_stop","index":0}`) +
		"event: message_delta\n" + sse(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`) +
		"event: message_stop\n" + sse(`{"type":"message_stop"}`),
	broken: "event: error\n" + sse(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`),
}

var anthropicQuestion = anthropic.MessageNewParams{Model: "m", MaxTokens: 10,
	Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))}}

func anthropicClient(url string) anthropic.Client {
	return llm.AnthropicClient(anthropicoption.WithBaseURL(url), anthropicoption.WithAPIKey("k"))
}

func anthropicMessage(stopReason, content string) string {
	return fmt.Sprintf(`{"id":"1","type":"message","role":"assistant","model":"m","stop_reason":%q,"content":[%s],"usage":{"input_tokens":1,"output_tokens":1}}`, stopReason, content)
}

var gemini = provider{
	tool: "genai",
	chat: func(ctx context.Context, guard *toolhealth.Guard, url string) (string, error) {
		client, err := genAIClient(url)
		if err != nil {
			return "", err
		}
		answer, err := llm.GenAIChat(guard, client).Call(ctx, genAIQuestion)
		if err != nil {
			return "", err
		}
		return answer.Text(), nil
	},
	stream: func(ctx context.Context, guard *toolhealth.Guard, url string) iter.Seq2[string, error] {
		client, err := genAIClient(url)
		if err != nil {
			return func(yield func(string, error) bool) { yield("", err) }
		}
		return llm.GenAIStream(ctx, guard, client, genAIQuestion)
	},
	good: genAIContent(`{"text":"hello"}`, "STOP"),
	error: func(status int) string {
		code := map[int]string{401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED", 529: "UNAVAILABLE"}[status]
		return fmt.Sprintf(`{"error":{"code":%d,"message":"status %d","status":%q}}`, status, status, code)
	},
	pieces: func(text string) string { return sse(genAIContent(fmt.Sprintf(`{"text":%q}`, text), "")) },
	end:    sse(genAIContent(`{"text":""}`, "STOP")),
	broken: sse(`{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}`),
}

var genAIQuestion = llm.GenAIRequest{Model: "m", Contents: genai.Text("hi")}

func genAIClient(url string) (*genai.Client, error) {
	return llm.GenAIClient(context.Background(), &genai.ClientConfig{APIKey: "k", Backend: genai.BackendGeminiAPI,
		HTTPOptions: genai.HTTPOptions{BaseURL: url}})
}

func genAIContent(part, finishReason string) string {
	return fmt.Sprintf(`{"candidates":[{"content":{"role":"model","parts":[%s]},"finishReason":%q}]}`, part, finishReason)
}

// forEach runs test for each provider.
func forEach(t *testing.T, test func(t *testing.T, p provider)) {
	for _, p := range providers {
		t.Run(p.tool, func(t *testing.T) { test(t, p) })
	}
}

// server is a provider's on loopback.
type server struct {
	*httptest.Server
	hits atomic.Int32
}

func serve(t *testing.T, answer http.HandlerFunc) *server {
	s := new(server)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.hits.Add(1)
		body, _ := io.ReadAll(r.Body) // so that the end of r.Context tells when the client has left
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// serveJSON answers every request alike; header has names and values in turn.
func serveJSON(t *testing.T, status int, body string, header ...string) *server {
	return serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

// serveStream answers with the events, and then does what then says.
func serveStream(t *testing.T, events string, then func(w http.ResponseWriter, r *http.Request)) *server {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		write(w, events)
		then(w, r)
	})
}

func write(w http.ResponseWriter, events string) {
	_, _ = io.WriteString(w, events)
	w.(http.Flusher).Flush()
}

// hang answers nothing more, until the client leaves.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// cut breaks the connection.
func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// finish ends the answer as it should.
func finish(http.ResponseWriter, *http.Request) {}

// once is a policy of one attempt.
func once() toolhealth.Settings {
	return toolhealth.Settings{Policy: toolhealth.Policy{MaxAttempts: 1}}
}

func newGuard(t *testing.T, s toolhealth.Settings) *toolhealth.Guard {
	guard, err := toolhealth.New(s)
	require.NoError(t, err)
	return guard
}

func health(t *testing.T, guard *toolhealth.Guard, tool string) toolhealth.ToolHealth {
	h, ok := guard.Registry().Health(tool)
	require.True(t, ok, "no health of %s", tool)
	return h
}

// read reads a stream to its end, and returns the text and the error.
func read(stream iter.Seq2[string, error]) (string, error) {
	var text strings.Builder
	var failed error
	for piece, err := range stream {
		text.WriteString(piece)
		failed = err
	}
	return text.String(), failed
}

// wait is how long a test waits for what has to come.
const wait = 20 * time.Second
