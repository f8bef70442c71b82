package verdicts

import (
	"fmt"
	"net/http"
)

// dialect is how a provider writes its answers.
type dialect struct {
	// error is the body of an error. An empty code is the usual one of the status.
	error     func(status int, code string) string
	errorType string // content type of an error
	// good is the body of a good answer to the request of this JSON-RPC id.
	good func(id string) string

	streams    bool   // the good answer is a stream
	streamType string // content type of a stream
	first      string // first event of a stream
	last       func(id string) string
	frame      func(data string) string             // an event with this data
	fault      func(status int, code string) string // an event that says an error
}

func sse(data string) string { return "data: " + data + "\n\n" }

func constant(text string) func(string) string { return func(string) string { return text } }

// streaming is the dialect for a call that asks for a stream.
func (d dialect) streaming() dialect {
	d.streams = true
	return d
}

// or returns the code, or the usual one of the status.
func or(code string, usual map[int]string, status int) string {
	switch {
	case code != "":
		return code
	case usual[status] != "":
		return usual[status]
	case status >= 500:
		return usual[500]
	}
	return usual[400]
}

func openaiError(status int, code string) string {
	kind := "invalid_request_error"
	switch {
	case code == quota:
		kind, code = "insufficient_quota", "insufficient_quota"
	case status == 429:
		kind = "requests"
	case status >= 500:
		kind = "server_error"
	}
	if code == "" {
		code = map[int]string{401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}[status]
	}
	text := "null"
	if code != "" {
		text = `"` + code + `"`
	}
	return fmt.Sprintf(`{"error":{"message":%q,"type":%q,"param":null,"code":%s}}`, openaiMessage(status, code), kind, text)
}

// openaiMessage is the text of an error: some SDKs keep nothing else.
func openaiMessage(status int, code string) string {
	switch {
	case code == "insufficient_quota":
		return "You exceeded your current quota, please check your plan and billing details."
	case status == 401:
		return "Incorrect API key provided: k."
	case status == 429:
		return "Rate limit reached for requests"
	case status >= 500:
		return "The server had an error while processing your request"
	}
	return "The request cannot be served"
}

var openaiChat = dialect{
	error: openaiError, errorType: "application/json",
	good:       constant(`{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hello"}}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`),
	streamType: "text/event-stream",
	first:      sse(`{"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"hel"}}]}`),
	last: constant(sse(`{"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}`) +
		sse("[DONE]")),
	frame: sse,
	fault: func(status int, code string) string { return sse(openaiError(status, code)) },
}

var openaiResponses = dialect{
	error: openaiError, errorType: "application/json",
	good:       constant(`{"id":"r","object":"response","created_at":1,"status":"completed","model":"m","output":[{"id":"o","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"hello","annotations":[]}]}]}`),
	streamType: "text/event-stream",
	first:      "event: response.output_text.delta\n" + sse(`{"type":"response.output_text.delta","item_id":"o","output_index":0,"content_index":0,"delta":"hel","sequence_number":1}`),
	last:       constant("event: response.completed\n" + sse(`{"type":"response.completed","sequence_number":2,"response":{"id":"r","object":"response","status":"completed","output":[]}}`)),
	frame:      func(data string) string { return "event: response.output_text.delta\n" + sse(data) },
	fault:      func(status int, code string) string { return "event: error\n" + sse(openaiError(status, code)) },
}

var anthropicTypes = map[int]string{
	400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
	404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 500: "api_error",
	503: "overloaded_error", 504: "timeout_error", 529: "overloaded_error",
}

func anthropicError(status int, code string) string {
	if code == quota {
		code = "billing_error"
	}
	return anthropicBody(or(code, anthropicTypes, status), "")
}

// anthropicBody is an error with further fields.
func anthropicBody(code, more string) string {
	message := map[string]string{"authentication_error": "invalid x-api-key", "overloaded_error": "Overloaded", "api_error": "Internal server error"}[code]
	if message == "" {
		message = "The request cannot be served"
	}
	return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q%s},"request_id":"req_1"}`, code, message, more)
}

var anthropicMessages = dialect{
	error: anthropicError, errorType: "application/json",
	good:       constant(`{"id":"1","type":"message","role":"assistant","model":"m","stop_reason":"end_turn","content":[{"type":"text","text":"hello"}],"usage":{"input_tokens":1,"output_tokens":1}}`),
	streamType: "text/event-stream",
	first: "event: message_start\n" + sse(`{"type":"message_start","message":{"id":"1","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`) +
		"event: content_block_start\n" + sse(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`) +
		"event: content_block_delta\n" + sse(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hel"}}`),
	last: constant("event: content_block_stop\n" + sse(`{"type":"content_block_stop","index":0}`) +
		"event: message_delta\n" + sse(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`) +
		"event: message_stop\n" + sse(`{"type":"message_stop"}`)),
	frame: func(data string) string { return "event: content_block_delta\n" + sse(data) },
	fault: func(status int, code string) string { return "event: error\n" + sse(anthropicError(status, code)) },
}

var googleStatuses = map[int]string{
	400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ABORTED",
	429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}

func googleError(status int, code string, details ...string) string {
	list := ""
	for _, d := range details {
		list += d
	}
	return fmt.Sprintf(`{"error":{"code":%d,"message":"The request cannot be served","status":%q,"details":[%s]}}`, status, or(code, googleStatuses, status), list)
}

var googleContent = dialect{
	error:      func(status int, code string) string { return googleError(status, code) },
	errorType:  "application/json",
	good:       constant(`{"candidates":[{"content":{"role":"model","parts":[{"text":"hello"}]},"finishReason":"STOP"}],"usageMetadata":{"totalTokenCount":2}}`),
	streamType: "text/event-stream",
	first:      sse(`{"candidates":[{"content":{"role":"model","parts":[{"text":"hel"}]}}]}`),
	last:       constant(sse(`{"candidates":[{"content":{"role":"model","parts":[{"text":"lo"}]},"finishReason":"STOP"}]}`)),
	frame:      sse,
	fault:      func(status int, code string) string { return sse(googleError(status, code)) },
}

var ollamaChat = dialect{
	error:      func(int, string) string { return `{"error":"the request cannot be served"}` },
	errorType:  "application/json",
	good:       constant(`{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"hello"},"done":true}` + "\n"),
	streamType: "application/x-ndjson",
	first:      `{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"hel"},"done":false}` + "\n",
	last:       constant(`{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"lo"},"done":true}` + "\n"),
	frame:      func(data string) string { return data + "\n" },
	fault:      func(int, string) string { return `{"error":"an error was encountered while running the model"}` + "\n" },
}

const mcpResult = `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[{"type":"text","text":"hello"}]}}`

func mcpEvent(data string) string { return "event: message\n" + sse(data) }

// mcpHTTP is streamable HTTP: an error of the way is plain text.
var mcpHTTP = dialect{
	error:      func(status int, _ string) string { return http.StatusText(status) + "\n" },
	errorType:  "text/plain; charset=utf-8",
	good:       func(id string) string { return fmt.Sprintf(mcpResult, id) },
	streamType: "text/event-stream",
	first:      mcpEvent(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`),
	last:       func(id string) string { return mcpEvent(fmt.Sprintf(mcpResult, id)) },
	frame:      mcpEvent,
}
