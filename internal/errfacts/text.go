package errfacts

import (
	"reflect"
	"strconv"
	"strings"
	"time"
)

// exactTexts are errors of packages that are too large to import for one variable,
// and of SDKs whose errors are texts. The whole text has to match.
var exactTexts = map[string]Fact{
	"sql: no rows in result set":                      {Class: NoRows},
	"no rows in result set":                           {Class: NoRows}, // pgx
	"redis: nil":                                      {Class: NoRows},
	"driver: bad connection":                          {Class: BadConn},
	"sql: connection is already closed":               {Class: Broken},
	"use of closed network connection":                {Class: Broken},
	"invalid connection":                              {Class: Broken}, // go-sql-driver/mysql
	"executable file not found in $PATH":              {Class: NotExecutable},
	"executable file not found in %PATH%":             {Class: NotExecutable},
	"http: server gave HTTP response to HTTPS client": {Class: TLS},
	"http: server closed idle connection":             {Class: Broken},
	"http2: client connection lost":                   {Class: Stream},
	"net/http: request canceled":                      {Class: Timeout}, // Client.Timeout, seen from a RoundTripper

	// mcp-go, and through it the texts of TypeScript servers.
	"method not found":        {Class: JSONRPC, Code: -32601},
	"invalid params":          {Class: JSONRPC, Code: -32602},
	"invalid request":         {Class: JSONRPC, Code: -32600},
	"resource not found":      {Class: JSONRPC, Code: -32002},
	"internal error":          {Class: JSONRPC, Code: -32603},
	"parse error":             {Class: JSONRPC, Code: -32700},
	"request interrupted":     {Class: JSONRPC, Code: -32800},
	"transport closed":        {Class: Broken},
	"unexpected nil response": {Class: Broken}, // the stream of events ended
	"authorization required":  {Class: HTTP, Code: 401},
	"no valid token available, authorization required": {Class: HTTP, Code: 401},
	"unauthorized (401)": {Class: HTTP, Code: 401},
	"Connection closed":  {Class: JSONRPC, Code: -32000},
	"Request timed out":  {Class: JSONRPC, Code: -32001},

	// go-sdk.
	"request terminated without response": {Class: Broken},
	"the server is busy, retry later":     limited,
	"server is closing":                   {Class: JSONRPC, Code: -32004},
	"Rate limit exceeded":                 limited, // of a gateway

	// langchaingo.
	"request timeout: API call exceeded deadline":         {Class: Timeout},
	"request timeout: network operation exceeded timeout": {Class: Timeout},
	"network error: failed to reach API server":           {Class: Broken},
	"an error was encountered while running the model":    failedNow, // of Ollama
	"stopped after 10 redirects":                          unagreedReply,

	"circuit breaker is open": {Class: OpenBreaker}, // gobreaker
	"circuit breaker open":    {Class: OpenBreaker}, // failsafe-go
	"circuit open":            {Class: OpenBreaker},
	"breaker open":            {Class: OpenBreaker},
	"hystrix: circuit open":   {Class: OpenBreaker},
}

// maxExact is longer than any of them.
const maxExact = 64

var (
	limited       = Fact{Class: Coded, Code: int(Limited)}
	quota         = Fact{Class: Coded, Code: int(QuotaExhausted)}
	failedNow     = Fact{Class: Coded, Code: int(Failed)}
	tooLarge      = Fact{Class: Coded, Code: int(Invalid)}
	noSession     = Fact{Class: JSONRPC, Code: sessionLost}
	closedClient  = Fact{Class: BadConn}
	broken        = Fact{Class: Broken}
	late          = Fact{Class: Timeout}
	unagreedReply = Fact{Class: Nonsense}
)

// told is a text that is looked for, because nothing else tells, and what an error
// that contains it is taken for.
type told struct {
	text string
	fact Fact
}

// The lists of texts. Of the texts of one list the first counts, and the lists count
// in this order. Most errors have none of them, so a list is looked through only if
// the text has a byte that all of the list have.
var (
	// anywhere are looked for in every text.
	anywhere = [...]told{
		{"client is closing", closedClient}, // go-sdk: said before anything is written
		{"connection closed", broken},
		{"ession not found", noSession}, // the first letter may be a capital
		{"ession terminated", noSession},
		{"ession has been terminated", noSession},
		{"o valid session", noSession},
		{"unsupported content type", unagreedReply},        // go-sdk
		{"unexpected content type", unagreedReply},         // mcp-go
		{"for responses with content-type", unagreedReply}, // openai-go, anthropic-sdk-go
	}
	// anchors are parts of those: a text that has none of these has none of those.
	anchors = [...]string{" clos", "ession", " content"}

	withT = [...]told{
		{"Client.Timeout or context cancellation", late}, // net/http
		{"malformed HTTP ", unagreedReply},
		{"Too Many Requests", Fact{Class: HTTP, Code: 429}}, // go-sdk: rejected by transport
	}
	withColon = [...]told{
		{"GOAWAY", Fact{Class: Stream}},
		{"stopped after 10 redirects", unagreedReply},
		{"load-shedding retries", limited}, // go-sdk
	}
	withQuote = [...]told{
		{"unsupported protocol scheme", Fact{Class: BadRequestURL}},
	}

	// beforeColon end where a colon follows.
	beforeColon = [...]told{
		{"failed to read body", broken},               // go-sdk
		{"failed to decode response", unagreedReply},  // go-sdk
		{"failed to decode event", unagreedReply},     // go-sdk
		{"invalid stream chunk", unagreedReply},       // genai
		{"received error while streaming", failedNow}, // openai-go
		{"received error event", failedNow},           // langchaingo
	}
	// beforeStatus precede a status, and a colon or the end follows that.
	beforeStatus = [...]string{
		"request failed with status ", // mcp-go
		"unexpected status code: ",    // langchaingo
	}
)

// maxText bounds how much of a text is searched.
const maxText = 1024

// ofText looks at the beginning of a node's text.
func ofText(node error) Fact {
	text := node.Error()
	if f := exactText(node, text); f.Class != None {
		return f
	}
	return inText(text[:min(len(text), maxText)])
}

func exactText(node error, text string) Fact {
	if len(text) <= maxExact && reflect.TypeOf(node) != plainError { // those have been looked up
		return exactTexts[text]
	}
	return Fact{}
}

func inText(text string) Fact {
	for _, anchor := range anchors {
		if strings.Contains(text, anchor) {
			if f := firstOf(anywhere[:], text); f.Class != None {
				return f
			}
			break
		}
	}
	if strings.IndexByte(text, 'T') >= 0 {
		if f := firstOf(withT[:], text); f.Class != None {
			return f
		}
	}
	if strings.IndexByte(text, '"') >= 0 {
		if f := firstOf(withQuote[:], text); f.Class != None {
			return f
		}
		if f := statusAtEnd(text); f.Class != None {
			return f
		}
		if strings.Contains(text, `"type":"error"`) { // an event in a stream of Anthropic's
			return codeInStream(text, failedNow)
		}
	}
	if strings.IndexByte(text, ':') >= 0 {
		if f := firstOf(withColon[:], text); f.Class != None {
			return f
		}
	}
	return atColons(text)
}

func firstOf(list []told, text string) Fact {
	for i := range list {
		if strings.Contains(text, list[i].text) {
			return list[i].fact
		}
	}
	return Fact{}
}

// atColons looks at what is before each colon, and before the end.
func atColons(text string) Fact {
	for start := 0; start < len(text); {
		end := strings.IndexByte(text[start:], ':')
		if end < 0 {
			return statusBefore(text, len(text))
		}
		start += end
		before := text[:start]
		for i := range beforeColon {
			switch t := &beforeColon[i]; {
			case !strings.HasSuffix(before, t.text):
			case t.fact == broken:
				return ofCutBody(text[start:])
			case t.fact == failedNow:
				return codeInStream(text[start:], failedNow)
			default:
				return t.fact
			}
		}
		if f := statusBefore(text, start); f.Class != None {
			return f
		}
		start++
	}
	return Fact{}
}

// ofCutBody is the fact of a body that broke off, for this reason.
func ofCutBody(reason string) Fact {
	if strings.HasSuffix(reason, "deadline exceeded") || strings.HasSuffix(reason, "i/o timeout") {
		return late
	}
	return broken
}

// statusBefore is the fact of a status that ends at this place.
func statusBefore(text string, end int) Fact {
	if end < 3 {
		return Fact{}
	}
	for _, prefix := range beforeStatus {
		if !strings.HasSuffix(text[:end-3], prefix) {
			continue
		}
		status, _ := strconv.Atoi(text[end-3 : end]) // 0 if it is no number
		if status < 300 || status > 599 {
			return Fact{}
		}
		body := text[end:]
		if codeSaysMore(status) {
			if m := codeInJSON(body); m != Unknown {
				return Fact{Class: Coded, Code: int(m)}
			}
			if strings.Contains(body, "exceeded your current quota") { // OpenAI's words for an empty purse
				return quota
			}
		}
		return Fact{Class: HTTP, Code: status}
	}
	return Fact{}
}

// statusAtEnd knows the errors of go-sdk that end in what net/http calls a status:
// sending "tools/call": Unauthorized.
func statusAtEnd(text string) Fact {
	_, after, ok := strings.Cut(text, `sending "`)
	if !ok {
		return Fact{}
	}
	_, name, ok := strings.Cut(after, `": `)
	if !ok {
		return Fact{}
	}
	if status := statusNames[strings.TrimPrefix(name, "rejected by transport: ")]; status != 0 {
		return Fact{Class: HTTP, Code: status}
	}
	return Fact{}
}

// statusNames are the names of the statuses from 400, as net/http has them. What has
// no name there, such as 529, is one of a server.
var statusNames = map[string]int{
	"": 500, "Bad Request": 400, "Unauthorized": 401, "Payment Required": 402, "Forbidden": 403, "Not Found": 404,
	"Method Not Allowed": 405, "Not Acceptable": 406, "Proxy Authentication Required": 407, "Request Timeout": 408,
	"Conflict": 409, "Gone": 410, "Length Required": 411, "Precondition Failed": 412, "Request Entity Too Large": 413,
	"Request URI Too Long": 414, "Unsupported Media Type": 415, "Requested Range Not Satisfiable": 416,
	"Expectation Failed": 417, "Misdirected Request": 421, "Unprocessable Entity": 422, "Locked": 423,
	"Failed Dependency": 424, "Too Early": 425, "Upgrade Required": 426, "Precondition Required": 428,
	"Too Many Requests": 429, "Request Header Fields Too Large": 431, "Unavailable For Legal Reasons": 451,
	"Internal Server Error": 500, "Not Implemented": 501, "Bad Gateway": 502, "Service Unavailable": 503,
	"Gateway Timeout": 504, "HTTP Version Not Supported": 505, "Insufficient Storage": 507, "Loop Detected": 508,
}

// remarks are texts that say more than the code beside them. The first one counts.
var remarks = [...]struct {
	fact Fact   // with this class, and this code unless it is 0
	text string // in the text of the node that has the code
	says Fact
}{
	{Fact{Class: GRPC, Code: 8}, "larger than max", tooLarge}, // the limit of a message, not of a rate
	{Fact{Class: GRPC, Code: 14}, "Too Many Requests", Fact{Class: HTTP, Code: 429}},
	{Fact{Class: GRPC, Code: 14}, "Error while dialing", Fact{Class: RefusedStream}}, // grpc-go
	{Fact{Class: JSONRPC}, "client is closing", closedClient},
	{Fact{Class: JSONRPC}, "ession not found", noSession}, // all that begins in either case
	{Fact{Class: JSONRPC}, "ession terminated", noSession},
	{Fact{Class: JSONRPC}, "ession has been terminated", noSession},
	{Fact{Class: JSONRPC}, "expired session", noSession},
	{Fact{Class: JSONRPC}, "ate limit", limited},
	{Fact{Class: JSONRPC}, "oo many requests", limited},
	{Fact{Class: JSONRPC}, "Too Many Requests", limited},
}

// mayRemark reports whether the text beside a code is worth a look. A text costs
// more to make than most errors cost to classify.
func (f Fact) mayRemark() bool {
	switch f.Class {
	case GRPC:
		return f.Code == 8 || f.Code == 14
	case JSONRPC:
		return f.Code == -32600 || f.Code <= -32000 && f.Code >= -32099
	}
	return false
}

// ofRemark is what the text of a node says beside its code, else the code.
func ofRemark(node error, f Fact) (says Fact) {
	defer swallow()
	says = f
	text := node.Error()
	text = text[:min(len(text), maxText)]
	for i := range remarks {
		r := &remarks[i]
		if r.fact.Class == f.Class && (r.fact.Code == 0 || r.fact.Code == f.Code) && strings.Contains(text, r.text) {
			return r.says
		}
	}
	return f
}

// waitInText is the wait in the JSON of an answer that is quoted in a text.
func waitInText(node error) time.Duration {
	text := node.Error()
	return ofJSON(text[:min(len(text), maxBody)])
}

// answerTexts are around a JSON error if the JSON was that of an answer: so it is
// not the caller's.
var answerTexts = [...]string{
	"error parsing response json: ", // openai-go, anthropic-sdk-go
	"deserializeUnaryResponse: ",    // genai
	"iterateResponseStream: ",       // genai
	"failed to decode response: ",   // mcp-go, as the next
	"failed to unmarshal response: ",
	"parse response: ", // langchaingo
	"failed to parse stream event: ",
}

// ofAnswer tells whether the JSON error in a tree is about an answer, by the text of
// its root.
func ofAnswer(root error) Fact {
	text := root.Error()
	text = text[:min(len(text), maxText)]
	for _, t := range answerTexts {
		if strings.Contains(text, t) {
			return unagreedReply
		}
	}
	return Fact{}
}
