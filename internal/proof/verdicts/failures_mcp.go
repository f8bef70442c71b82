package verdicts

import "fmt"

// rpcs are errors of JSON-RPC and MCP, in a good HTTP answer.
var rpcs = []Failure{
	rpc("-32700 Parse error", -32700, "Parse error", ""),
	rpc("-32600 Invalid Request", -32600, "Invalid Request", ""),
	rpc("-32601 Method not found", -32601, "Method not found", ""),
	rpc("-32602 Invalid params", -32602, "Invalid params", ""),
	rpc("-32603 Internal error", -32603, "Internal error", ""),
	rpc("-32000 Connection closed", -32000, "Connection closed", ""),
	rpc("-32001 Request timed out", -32001, "Request timed out", ""),
	rpc("-32001 Session not found", -32001, "Session not found", ""),
	rpc("-32002 Resource not found", -32002, "Resource not found", ""),
	rpc("-32004 server is closing", -32004, "server is closing", ""),
	rpc("-32021 missing capability", -32021, "Missing required client capability", ""),
	rpc("-32022 unsupported protocol version", -32022, "Unsupported protocol version", `{"supported":["2025-06-18"],"requested":"2026-07-28"}`),
	rpc("-32029 Rate limit exceeded", -32029, "Rate limit exceeded", ""),
	rpc("-32029 Rate limit exceeded, retryAfterSeconds 12", -32029, "Rate limit exceeded", `{"retryAfterSeconds":12}`),
	rpc("429 Rate limit exceeded", 429, "Rate limit exceeded", ""),
	rpc("429 Rate limit exceeded, retryAfterSeconds 12", 429, "Rate limit exceeded", `{"retryAfterSeconds":12}`),
	rpc("-32042 URL elicitation", -32042, "URL elicitation required", `{"elicitations":[]}`),
	rpc("-32800 Request cancelled", -32800, "Request cancelled", ""),
	rpc("-32600 Session terminated", -32600, "Session terminated", ""),
	rpc("32600 Session terminated", 32600, "Session terminated", ""),
}

func rpc(name string, code int, message, data string) Failure {
	return Failure{Name: name, Answer: func(x *exchange) { x.rpc(200, x.id, code, message, data) }}
}

// rpc answers with a JSON-RPC error, as a stream if that was asked for.
func (x *exchange) rpc(status int, id string, code int, message, data string) {
	if data != "" {
		data = `,"data":` + data
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q%s}}`, id, code, message, data)
	if x.dialect.streams {
		x.open()
		x.event(body)
		return
	}
	x.say(status, "application/json", body)
}

// gateways are answers of what stands before an MCP server.
var gateways = []Failure{
	{Name: "403 with JSON of a gateway", Answer: func(x *exchange) {
		x.say(403, "application/json", `{"message":"Forbidden"}`)
	}},
	{Name: "429 with JSON of a gateway and Retry-After: 7", Answer: func(x *exchange) {
		x.header("Retry-After", "7")
		x.say(429, "application/json", `{"message":"Too Many Requests"}`)
	}},
}

// sessions are the ways in which servers say that they do not know the session.
var sessions = []Failure{
	{Name: "session lost: 404 with text", Answer: func(x *exchange) { x.say(404, "text/plain; charset=utf-8", "session not found\n") }},
	{Name: "session lost: 404 with -32001 and id null", Answer: func(x *exchange) { x.rpc(404, "null", -32001, "Session not found", "") }},
	{Name: "session lost: 404 with -32600 and id null", Answer: func(x *exchange) {
		x.rpc(404, "null", -32600, "Not Found: Invalid or expired session ID", "")
	}},
	{Name: "session lost: 404 with -32600 and id server-error", Answer: func(x *exchange) {
		x.rpc(404, `"server-error"`, -32600, "Not Found: Session has been terminated", "")
	}},
	{Name: "session lost: 400 with text", Answer: func(x *exchange) {
		x.say(400, "text/plain; charset=utf-8", "Bad Request: No valid session ID provided")
	}},
	{Name: "session lost: 400 with -32000 and id null", Answer: func(x *exchange) {
		x.rpc(400, "null", -32000, "Bad Request: No valid session ID provided", "")
	}},
}

// again are second calls on a session that the first one has ended.
var again = []Failure{
	{Name: "401, then another call", Again: true, Answer: func(x *exchange) { x.fail(401, "") }},
	{Name: "404, then another call", Again: true, Answer: func(x *exchange) { x.fail(404, "") }},
	{Name: "connection refused, then another call", Again: true, Way: pick(ways, "connection refused")[0].Way},
}

// handlers are what tools of an MCP server do, and children what its process
// does. The drivers know them by their names.
var (
	handlers = []Failure{
		{Name: "handler returns an error"},
		{Name: "handler returns -32603"},
		{Name: "handler panics"}, // where the SDK recovers
		{Name: "handler says it is busy"},
		{Name: "handler hangs, caller's deadline", Caller: deadline},
		{Name: "handler hangs, caller cancels", Caller: cancels},
		{Name: "unknown tool"},
		{Name: "session closed, then a call"},
	}
	children = []Failure{
		{Name: "child exits"},
		{Name: "child is killed"},
		{Name: "child closes its output"},
		{Name: "child exits, then another call", Again: true},
		{Name: "child hangs, caller's deadline", Caller: deadline},
		{Name: "child hangs, caller cancels", Caller: cancels},
	}
)
