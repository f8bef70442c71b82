package classify_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/toolhealth/toolhealth"
)

// classRow is an error and its verdict, as verdictText writes it.
type classRow struct {
	name string
	err  error
	want string
}

// verdictText writes v as outcome, kind, "retry" if it is retryable, "unsent" if the
// request was surely not sent, and the stated wait.
func verdictText(v toolhealth.Verdict) string {
	text := v.Outcome.String() + " " + v.Kind.String()
	if v.Retryable {
		text += " retry"
	}
	if v.NotSent {
		text += " unsent"
	}
	if v.RetryAfter != 0 {
		text += " " + v.RetryAfter.String()
	}
	return text
}

// TestClassify_Table documents the default classes. Each error is classified as it
// is, wrapped, and joined with an error that says nothing.
func TestClassify_Table(t *testing.T) {
	t.Parallel()
	groups := []struct {
		heading string
		rows    []classRow
	}{
		{"the context and the guard; the caller's own context is not done", []classRow{
			{"a deadline inside the tool", context.DeadlineExceeded, "failure timeout retry"},
			{"a cancellation inside the tool", context.Canceled, "failure canceled"},
			{"a refusal of a breaker", &toolhealth.Refusal{Reason: toolhealth.StopCircuitOpen, RetryAfter: 5 * time.Second}, "neutral refused 5s"},
			{"the ancestor of all refusals", toolhealth.ErrRefused, "neutral refused"},
			{"one of its sentinels", toolhealth.ErrRateLimited, "neutral refused"},
			{"an open breaker of another library", errors.New("circuit breaker is open"), "neutral refused unsent"},
			{"a panic", &toolhealth.PanicError{Value: "boom"}, "failure panic"},
			{"a panic with an error that would be retried", &toolhealth.PanicError{Value: &openaiLike{StatusCode: 503}}, "failure panic"},
			{"a question to the user (mcp-go)", URLElicitationRequiredError{}, "neutral denied"},
		}},
		{"the network", []classRow{
			{"a refused connection", refusedDial(t), "failure connection retry unsent"},
			{"a refused connection, bare", syscall.ECONNREFUSED, "failure connection retry unsent"},
			{"any other failed dial", dialError(errors.New("no route")), "failure connection retry unsent"},
			{"a dial that took too long", dialError(os.ErrDeadlineExceeded), "failure timeout retry unsent"},
			{"a reset", opError("read", syscall.ECONNRESET), "failure connection retry"},
			{"a broken pipe", opError("write", syscall.EPIPE), "failure connection retry"},
			{"no route once connected", opError("read", syscall.EHOSTUNREACH), "failure connection retry"},
			{"EOF instead of an answer", &url.Error{Op: "Post", URL: "http://tool", Err: io.EOF}, "failure connection retry"},
			{"an answer cut short", io.ErrUnexpectedEOF, "failure connection retry"},
			{"a pipe that was closed", io.ErrClosedPipe, "failure connection retry"},
			{"a closed connection", opError("read", net.ErrClosed), "failure connection retry"},
			{"a read that took too long", opError("read", os.ErrDeadlineExceeded), "failure timeout retry"},
			{"no such host", dialError(&net.DNSError{Err: "no such host", IsNotFound: true}), "failure connection unsent"},
			{"DNS out of order", dialError(&net.DNSError{Err: "server misbehaving", IsTemporary: true}), "failure connection retry unsent"},
			{"DNS too slow", &net.DNSError{Err: "i/o timeout", IsTimeout: true}, "failure timeout retry unsent"},
			{"this host has no descriptors left", dialError(os.NewSyscallError("socket", syscall.EMFILE)), "neutral not_dispatched retry"},
			{"this host's table of files is full", syscall.ENFILE, "neutral not_dispatched retry"},
			{"this host's memory is full", syscall.ENOMEM, "neutral not_dispatched retry"},
			{"this host's disk is full", &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, "neutral not_dispatched retry"},
		}},
		{"TLS", []classRow{
			{"an unknown authority", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "failure connection unsent"},
			{"another host's certificate", x509.HostnameError{Host: "tool", Certificate: &x509.Certificate{}}, "failure connection unsent"},
			{"an expired certificate", x509.CertificateInvalidError{Reason: x509.Expired}, "failure connection unsent"},
			{"an answer that is not TLS", tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, "failure connection unsent"},
			{"plain HTTP to HTTPS", http.ErrSchemeMismatch, "failure connection unsent"},
			// An alert may come after the request was sent.
			{"an alert", opError("remote error", tls.AlertError(42)), "failure connection"},
		}},
		{"the HTTP client", []classRow{
			{"a client's own timeout", httpTimeout(t), "failure timeout retry"},
			{"an unsupported scheme", httpError("gopher://tool.invalid"), "failure connection unsent"},
			// The request was sent ten times.
			{"redirects without end", redirectLoop(t), "failure contract"},
			{"a malformed answer", malformedAnswer(t), "failure contract"},
			{"an invalid header", invalidHeader(t), "failure unknown"},
			{"an answer that is too large", &http.MaxBytesError{Limit: 1}, "failure contract"},
			{"HTTP/2: the stream was refused", h2StreamLike{Code: 7}, "failure connection retry unsent"},
			{"HTTP/2: another stream error", h2StreamLike{Code: 2}, "failure connection retry"},
			{"HTTP/2: the connection is going away", errors.New("http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR"), "failure connection retry"},
			{"an idle connection that was closed", errors.New("http: server closed idle connection"), "failure connection retry"},
		}},
		{"HTTP statuses", statusRows()},
		{"where SDKs keep the status", []classRow{
			{"openai", &openaiLike{StatusCode: 503}, "failure server_error retry"},
			{"openai, an exhausted quota", &openaiLike{StatusCode: 429, Code: "insufficient_quota", Response: httpAnswer(0, "Retry-After", "9")}, "failure quota_exhausted"},
			{"openai, a rate limit", &openaiLike{StatusCode: 429, Code: "rate_limit_exceeded", Response: httpAnswer(0, "Retry-After", "9")}, "throttled rate_limited retry 9s"},
			{"openai, milliseconds", &openaiLike{StatusCode: 429, Response: httpAnswer(0, "Retry-After-Ms", "1500", "Retry-After", "2")}, "throttled rate_limited retry 1.5s"},
			{"anthropic", &anthropicLike{StatusCode: 529, Response: httpAnswer(0, "Retry-After", "3")}, "failure server_error retry 3s"},
			{"anthropic, a spending limit", &anthropicLike{StatusCode: 429, code: "workspace_spend_limit_reached"}, "failure quota_exhausted"},
			{"go-openai", &goOpenaiLike{HTTPStatusCode: 500}, "failure server_error retry"},
			{"go-openai, an exhausted quota", &goOpenaiLike{HTTPStatusCode: 429, Code: any("insufficient_quota")}, "failure quota_exhausted"},
			{"go-openai, a code that is no text", &goOpenaiLike{HTTPStatusCode: 429, Code: 7}, "failure rate_limited retry"},
			{"go-openai, no status but a cause", &goOpenaiRequestLike{Err: io.EOF}, "failure connection retry"},
			{"azure", &azureLike{StatusCode: 404, ErrorCode: "BlobNotFound"}, "rejected not_found"},
			{"azure, a stated wait", &azureLike{StatusCode: 503, RawResponse: httpAnswer(0, "Retry-After", "1.5")}, "failure server_error retry 1.5s"},
			{"googleapi", &googleLike{Code: 429, Header: http.Header{"Retry-After": {"7"}}}, "throttled rate_limited retry 7s"},
			{"googleapi, an RPC code is no status", &googleLike{Code: 5}, "failure unknown"},
			{"genai, by value", genaiLike{Code: 403}, "rejected unauthorized"},
			{"genai, by pointer", &genaiLike{Code: 503}, "failure server_error retry"},
			{"kubernetes", &kubeLike{ErrStatus: kubeStatus{Code: 409}}, "rejected conflict"},
			{"kubernetes, a stated wait", &kubeLike{ErrStatus: kubeStatus{Code: 429, Details: &kubeDetails{RetryAfterSeconds: 4}}}, "throttled rate_limited retry 4s"},
			{"smithy", &smithyLike{status: 503, Err: &smithyAPILike{code: "ServiceUnavailable"}}, "failure server_error retry"},
			{"smithy, a throttle with a status of 400", &smithyLike{status: 400, Err: &smithyAPILike{code: "ThrottlingException"}}, "failure rate_limited retry"},
			{"smithy, a rejection", &smithyLike{status: 400, Err: &smithyAPILike{code: "ValidationException"}}, "rejected invalid_request"},
			{"smithy, a code alone", &smithyAPILike{code: "SomethingElse"}, "failure unknown"},
			{"smithy, it could not send", &smithySendLike{}, "failure connection retry"},
			{"smithy, it gave up", &smithyCanceledLike{}, "failure canceled"},
			{"slack, by value", slackLike{Code: 500}, "failure server_error retry"},
			{"slack, a rate limit", &slackLimitLike{RetryAfter: 30 * time.Second}, "throttled rate_limited retry 30s"},
			{"go-github", &githubLike{Response: httpAnswer(502)}, "failure server_error retry"},
			{"go-github, without a response", &githubLike{}, "failure unknown"},
			{"go-github, a second limit", &githubAbuseLike{Response: httpAnswer(403), RetryAfter: new(time.Minute)}, "throttled rate_limited retry 1m0s"},
			{"fantasy", &fantasyLike{StatusCode: 429, ResponseHeaders: map[string]string{"retry-after": "2"}}, "throttled rate_limited retry 2s"},
			{"fantasy, marked as not retryable", &fantasyLike{StatusCode: 503, never: true}, "failure server_error"},
			{"a method of the user's own type", statusMethodLike(418), "rejected invalid_request"},
			{"gax over HTTP", &gaxLike{http: 503}, "failure server_error retry"},
			{"gax over gRPC", &gaxLike{http: -1, grpc: &grpcStatusLike{14}}, "failure server_error retry"},
			{"a status of success says nothing", &openaiLike{StatusCode: 200}, "failure unknown"},
		}},
		{"gRPC and connect", grpcRows()},
		{"MCP and JSON-RPC", []classRow{
			{"parse error", &jsonrpcLike{Code: -32700}, "rejected invalid_request"},
			{"invalid request", &jsonrpcLike{Code: -32600}, "rejected invalid_request"},
			{"session lost, as Python says it", &jsonrpcLike{Code: 32600, Message: "Session terminated"}, "failure connection retry"},
			{"no such method", &jsonrpcLike{Code: -32601}, "rejected gone"},
			{"bad arguments or unknown tool", &jsonrpcLike{Code: -32602}, "rejected invalid_request"},
			{"internal error", &jsonrpcLike{Code: -32603}, "failure server_error retry"},
			{"connection closed", &jsonrpcLike{Code: -32000}, "failure connection retry"},
			{"request timeout", &jsonrpcLike{Code: -32001}, "failure timeout retry"},
			{"no such resource", &jsonrpcLike{Code: -32002}, "rejected not_found"},
			{"client closing", &jsonrpcLike{Code: -32003}, "failure connection retry"},
			{"server closing", &jsonrpcLike{Code: -32004}, "failure connection retry"},
			{"rejected by transport", &jsonrpcLike{Code: -32005, Message: "rejected by transport: Bad Gateway"}, "failure server_error retry"},
			{"rejected by transport: 429", &jsonrpcLike{Code: -32005, Message: "rejected by transport: Too Many Requests"}, "failure rate_limited retry"},
			{"header", &jsonrpcLike{Code: -32020}, "failure contract"},
			{"capability", &jsonrpcLike{Code: -32021}, "failure contract"},
			{"protocol version", &jsonrpcLike{Code: -32022}, "failure contract"},
			{"rate limit", &jsonrpcLike{Code: -32029}, "failure rate_limited retry"},
			{"the user is asked", &jsonrpcLike{Code: -32042}, "neutral denied"},
			{"request canceled", &jsonrpcLike{Code: -32800}, "failure canceled"},
			{"a code of the server's own", &jsonrpcLike{Code: -32050}, "failure server_error"},
			{"mcp-go: a status", errors.New("request failed with status 404: gone"), "rejected not_found"},
			{"mcp-go: no status", errors.New("request failed with status abc"), "failure unknown"},
			{"mcp-go: no such method", errors.New("method not found"), "rejected gone"},
			{"mcp-go: bad arguments", errors.New("invalid params"), "rejected invalid_request"},
			{"mcp-go: session lost", errors.New("session terminated (404). need to re-initialize"), "failure connection retry"},
			{"go-sdk: connection closed", errors.New("connection closed"), "failure connection retry"},
			{"go-sdk: session missing", errors.New("session not found"), "failure connection retry"},
		}},
		{"SQL", []classRow{
			{"serialization failure", &pgLike{"40001"}, "rejected conflict retry"},
			{"deadlock", pqLike("40P01"), "rejected conflict retry"},
			{"lock not available", &pgLike{"55P03"}, "rejected conflict retry"},
			{"connection failure", &pgLike{"08006"}, "failure connection retry"},
			{"connection failure, not sent", pgxErrorLike{true, &pgLike{"08006"}}, "failure connection retry unsent"},
			{"connection failure, not sent, beside another", errors.Join(&pgLike{"08006"}, pgxSafeLike(true)), "failure connection retry"},
			{"connection failure, perhaps sent", errors.Join(&pgLike{"08006"}, pgxSafeLike(false)), "failure connection retry"},
			{"shutting down", &pgLike{"57P01"}, "failure connection retry"},
			{"crashed", &pgLike{"57P02"}, "failure connection retry"},
			{"starting", &pgLike{"57P03"}, "failure connection retry"},
			{"too many connections", &pgLike{"53300"}, "failure server_error retry"},
			{"query canceled: the statement's timeout", &pgLike{"57014"}, "failure timeout"},
			{"bad value", &pgLike{"22012"}, "rejected invalid_request"},
			{"constraint", &pgLike{"23505"}, "rejected invalid_request"},
			{"syntax", &pgLike{"42601"}, "rejected invalid_request"},
			{"bad password", &pgLike{"28P01"}, "rejected unauthorized"},
			{"read-only", &pgLike{"25006"}, "failure server_error"},
			{"internal", &pgLike{"XX000"}, "failure server_error"},
			{"system", &pgLike{"58030"}, "failure server_error"},
			{"unlisted", &pgLike{"0A000"}, "failure unknown"},
			{"no SQLSTATE", &pgLike{""}, "failure unknown"},
			{"dead before use", driver.ErrBadConn, "failure connection retry unsent"},
			{"closed", sql.ErrConnDone, "failure connection retry"},
			{"no rows", sql.ErrNoRows, "rejected not_found"},
			{"no rows (pgx)", pgxNoRowsLike{}, "rejected not_found"},
			{"mysql: lock wait", &mysqlLike{Number: 1205}, "rejected conflict retry"},
			{"mysql: deadlock", &mysqlLike{Number: 1213}, "rejected conflict retry"},
			{"mysql: too many connections", &mysqlLike{Number: 1040}, "failure server_error retry"},
			{"mysql: the user's connections", &mysqlLike{Number: 1203}, "failure server_error retry"},
			{"mysql: access denied", &mysqlLike{Number: 1045}, "rejected unauthorized"},
			{"mysql: access denied to the database", &mysqlLike{Number: 1044}, "rejected unauthorized"},
			// Not the fault of the caller: the database has become read-only.
			{"mysql: read-only", &mysqlLike{Number: 1290}, "failure server_error"},
			{"mysql: syntax", &mysqlLike{Number: 1064}, "rejected invalid_request"},
			{"mysql: duplicate", &mysqlLike{Number: 1062}, "rejected conflict"},
			{"mysql: unlisted", &mysqlLike{Number: 9999}, "failure unknown"},
			{"another Number", errors.Join(&mysqlLike{Number: 7}, io.EOF), "failure connection retry"},
			{"mysql: the connection broke", errors.New("invalid connection"), "failure connection retry"},
		}},
		{"Redis", []classRow{
			{"loading", redisLike("LOADING Redis is loading the dataset in memory"), "failure server_error retry"},
			{"cluster down", redisLike("CLUSTERDOWN The cluster is down"), "failure server_error retry"},
			{"master down", redisLike("MASTERDOWN Link with MASTER is down"), "failure server_error retry"},
			{"try again", redisLike("TRYAGAIN Multiple keys request during rehashing"), "failure server_error retry"},
			{"read-only", redisLike("READONLY You can't write against a read only replica."), "failure server_error retry"},
			{"too many clients", redisLike("ERR max number of clients reached"), "failure server_error retry"},
			{"out of memory", redisLike("OOM command not allowed when used memory > 'maxmemory'."), "failure server_error"},
			{"wrong type", redisLike("WRONGTYPE Operation against a key"), "rejected invalid_request"},
			{"no script", redisLike("NOSCRIPT No matching script."), "rejected invalid_request"},
			{"no password", redisLike("NOAUTH Authentication required."), "rejected unauthorized"},
			{"no permission", redisLike("NOPERM this user has no permissions"), "rejected unauthorized"},
			{"no value", redisLike("redis: nil"), "rejected not_found"},
		}},
		{"processes", []classRow{
			{"no such command", noCommand(), "failure not_found unsent"},
			{"a file that is no program", notExecutable(t), "failure not_found unsent"},
			{"the shell found no command", shell(t, "exit 127"), "failure not_found"},
			{"the shell could not run it", shell(t, "exit 126"), "failure not_found"},
			{"the command failed", shell(t, "exit 1"), "rejected invalid_request"},
			{"the command failed with the highest code", shell(t, "exit 125"), "rejected invalid_request"},
			{"killed", shell(t, "kill -9 $$"), "failure unknown"},
			{"a child was killed", shell(t, "exit 137"), "failure unknown"},
			{"no more processes", &fs.PathError{Op: "fork/exec", Path: "/bin/x", Err: syscall.EAGAIN}, "neutral not_dispatched retry"},
		}},
		{"files", []classRow{
			{"not there", openError(t, "absent"), "rejected not_found"},
			{"not allowed", &fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, "rejected unauthorized"},
			{"not allowed, a sentinel", fs.ErrPermission, "rejected unauthorized"},
			{"there already", mkdirError(t), "rejected conflict"},
			{"there already, a sentinel", fs.ErrExist, "rejected conflict"},
			{"not there, a sentinel", fs.ErrNotExist, "rejected not_found"},
			{"not there, of a file system that has its own errors", isLike{fs.ErrNotExist}, "rejected not_found"},
			{"closed", fs.ErrClosed, "failure connection retry"},
		}},
		{"JSON: only the place knows whose fault it is, see WithVerdict", []classRow{
			{"syntax", json.Unmarshal([]byte("{"), new(int)), "neutral contract"},
			{"type", json.Unmarshal([]byte(`"x"`), new(int)), "neutral contract"},
		}},
		{"anything else", []classRow{
			{"a plain error", errors.New("something went wrong"), "failure unknown"},
			{"it may be repeated", retryableLike(true), "failure unknown retry"},
			{"it must not be repeated", retryableLike(false), "failure unknown"},
		}},
	}
	for _, g := range groups {
		for _, row := range g.rows {
			if row.err == nil { // this machine cannot make such an error
				continue
			}
			name := g.heading + ": " + row.name
			assert.Equal(t, row.want, verdictText(toolhealth.Classify(t.Context(), row.err)), "%s: %v", name, row.err)
			assert.Equal(t, row.want, verdictText(toolhealth.Classify(t.Context(), fmt.Errorf("call: %w", row.err))), "wrapped: %s", name)
			joined := strings.ReplaceAll(row.want, " unsent", "") // the other leaf does not say so
			assert.Equal(t, joined, verdictText(toolhealth.Classify(t.Context(), errors.Join(errors.New("noted"), row.err))), "joined: %s", name)
		}
	}
}

// statusRows are the statuses as the error of an SDK carries them. Of the unusual ones,
// 409, 421 and 499 are rejections as other 4xx, and 511 is a failure as other 5xx.
func statusRows() []classRow {
	var rows []classRow
	for want, statuses := range map[string][]int{
		"rejected invalid_request":            {400, 405, 406, 411, 413, 414, 415, 418, 421, 422, 423, 424, 426, 428, 431, 451, 499, 501, 505},
		"rejected unauthorized":               {401, 403, 407},
		"rejected not_found":                  {404},
		"rejected gone":                       {410},
		"failure quota_exhausted":             {402},
		"success none":                        {304},
		"rejected conflict":                   {409},
		"failure timeout retry":               {408},
		"failure rate_limited retry":          {429},
		"failure server_error retry":          {500, 502, 503, 504, 506, 507, 511, 520, 522, 524, 529, 599},
		"failure contract":                    {300, 301, 302, 307, 308},
		"failure unknown":                     {0, 99, 100, 200, 204, 600, -1},
		"failure not_dispatched retry unsent": {425},
	} {
		for _, status := range statuses {
			rows = append(rows, classRow{fmt.Sprint(status), &openaiLike{StatusCode: status}, want})
		}
	}
	return rows
}

func TestClassify_StatusInErrorMeansSameAsAlone(t *testing.T) {
	t.Parallel()
	for status := 300; status < 600; status++ {
		err := &openaiLike{StatusCode: status}
		assert.Equal(t, toolhealth.Classify(t.Context(), err), toolhealth.ClassifyHTTP(status, nil), status)
		err.Response = httpAnswer(0, "Retry-After", "5")
		assert.Equal(t, toolhealth.Classify(t.Context(), err), toolhealth.ClassifyHTTP(status, map[string][]string{"Retry-After": {"5"}}), status)
	}
	for _, status := range []int{100, 200, 299} {
		assert.Zero(t, toolhealth.ClassifyHTTP(status, map[string][]string{"Retry-After": {"5"}}), status)
	}
	for _, status := range []int{-1, 0, 99, 600, 1000} {
		assert.Equal(t, "failure unknown", verdictText(toolhealth.ClassifyHTTP(status, map[string][]string{"Retry-After": {"5"}})), status)
	}
}

func grpcRows() []classRow {
	var rows []classRow
	for code, want := range map[uint32]string{
		0: "failure unknown", 1: "failure canceled", 2: "failure server_error", 3: "rejected invalid_request",
		4: "failure timeout retry", 5: "rejected not_found", 6: "rejected conflict", 7: "rejected unauthorized",
		8: "failure rate_limited retry", 9: "rejected conflict", 10: "rejected conflict retry",
		11: "rejected invalid_request", 12: "rejected gone", 13: "failure server_error",
		14: "failure server_error retry", 15: "failure server_error", 16: "rejected unauthorized", 17: "failure unknown",
	} {
		rows = append(rows,
			classRow{fmt.Sprint("grpc ", code), &grpcLike{&grpcStatusLike{Code(code)}}, want},
			classRow{fmt.Sprint("connect ", code), &connectLike{code: Code(code)}, want})
	}
	return append(rows,
		classRow{"connect, and the dial below it", &connectLike{14, dialError(io.EOF)}, "failure connection retry unsent"},
		classRow{"a code that is no gRPC code", otherCodeLike{}, "failure unknown"},
		classRow{"no status", &grpcLike{}, "failure unknown"})
}
