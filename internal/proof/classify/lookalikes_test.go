package classify_test

import (
	"database/sql"
	"net/http"
	"reflect"
	"time"
)

// httpDead has a method and a field for the status; the method counts.
type httpDead struct{ StatusCode int }

func (httpDead) Error() string       { return "dead" }
func (httpDead) HTTPStatusCode() int { return 0 }

type waitMethodLike struct {
	StatusCode int
	wait       time.Duration
}

func (waitMethodLike) Error() string                  { return "wait" }
func (e waitMethodLike) GetRetryAfter() time.Duration { return e.wait }

type waitOtherMethodLike struct {
	StatusCode int
	wait       time.Duration
}

func (waitOtherMethodLike) Error() string               { return "wait" }
func (e waitOtherMethodLike) RetryAfter() time.Duration { return e.wait }

type waitIntLike struct {
	StatusCode int
	RetryAfter int
}

func (*waitIntLike) Error() string { return "wait" }

// Look-alikes have the shapes of errors in other packages.

// httpAnswer returns a response with headers, given as names and values in turn.
func httpAnswer(status int, header ...string) *http.Response {
	r := &http.Response{StatusCode: status, Header: http.Header{}}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

type openaiLike struct {
	Code       string
	StatusCode int
	Response   *http.Response
}

func (*openaiLike) Error() string { return "openai" }

type ownStringLike string

type anthropicLike struct {
	StatusCode int
	Response   *http.Response
	code       ownStringLike
}

func (*anthropicLike) Error() string              { return "anthropic" }
func (e *anthropicLike) ErrorCode() ownStringLike { return e.code }

type goOpenaiLike struct {
	Code           any
	HTTPStatusCode int
}

func (*goOpenaiLike) Error() string { return "go-openai" }

type goOpenaiRequestLike struct {
	HTTPStatusCode int
	Err            error
}

func (*goOpenaiRequestLike) Error() string   { return "go-openai request" }
func (e *goOpenaiRequestLike) Unwrap() error { return e.Err }

type azureLike struct {
	ErrorCode   string
	StatusCode  int
	RawResponse *http.Response
}

func (*azureLike) Error() string { return "azcore" }

type googleLike struct {
	Code   int
	Header http.Header
}

func (*googleLike) Error() string { return "googleapi" }

type genaiLike struct {
	Code   int
	Status string
}

func (genaiLike) Error() string { return "genai" }

type kubeDetails struct{ RetryAfterSeconds int32 }

type kubeStatus struct {
	Code    int32
	Details *kubeDetails
}

type kubeLike struct{ ErrStatus kubeStatus }

func (*kubeLike) Error() string { return "k8s" }

type smithyLike struct {
	status int
	Err    error
}

func (*smithyLike) Error() string         { return "smithy response" }
func (e *smithyLike) HTTPStatusCode() int { return e.status }
func (e *smithyLike) Unwrap() error       { return e.Err }

type smithyAPILike struct{ code string }

func (*smithyAPILike) Error() string       { return "smithy API" }
func (e *smithyAPILike) ErrorCode() string { return e.code }

type smithySendLike struct{}

func (*smithySendLike) Error() string         { return "smithy send" }
func (*smithySendLike) ConnectionError() bool { return true }

type smithyCanceledLike struct{}

func (*smithyCanceledLike) Error() string       { return "smithy canceled" }
func (*smithyCanceledLike) CanceledError() bool { return true }

type slackLike struct{ Code int }

func (slackLike) Error() string         { return "slack" }
func (e slackLike) HTTPStatusCode() int { return e.Code }
func (e slackLike) Retryable() bool     { return e.Code >= 500 }

type slackLimitLike struct{ RetryAfter time.Duration }

func (*slackLimitLike) Error() string   { return "slack limit" }
func (*slackLimitLike) Retryable() bool { return true }

type githubLike struct{ Response *http.Response }

func (*githubLike) Error() string { return "go-github" }

type githubAbuseLike struct {
	Response   *http.Response
	RetryAfter *time.Duration
}

func (*githubAbuseLike) Error() string { return "go-github abuse" }

type fantasyLike struct {
	StatusCode      int
	ResponseHeaders map[string]string
	never           bool
}

func (*fantasyLike) Error() string       { return "fantasy" }
func (e *fantasyLike) IsRetryable() bool { return !e.never }

type statusMethodLike int

func (statusMethodLike) Error() string     { return "status" }
func (e statusMethodLike) StatusCode() int { return int(e) }

type gaxLike struct {
	http int
	grpc *grpcStatusLike
}

func (*gaxLike) Error() string                 { return "gax" }
func (e *gaxLike) HTTPCode() int               { return e.http }
func (e *gaxLike) GRPCStatus() *grpcStatusLike { return e.grpc }

// Code has the name of the code types of gRPC and connect.
type Code uint32

type grpcStatusLike struct{ code Code }

func (s *grpcStatusLike) Code() Code {
	if s == nil {
		return 0
	}
	return s.code
}

type grpcLike struct{ status *grpcStatusLike }

func (*grpcLike) Error() string                 { return "grpc" }
func (e *grpcLike) GRPCStatus() *grpcStatusLike { return e.status }

type connectLike struct {
	code Code
	err  error
}

func (*connectLike) Error() string   { return "connect" }
func (e *connectLike) Code() Code    { return e.code }
func (e *connectLike) Unwrap() error { return e.err }

type otherCodeLike struct{}

func (otherCodeLike) Error() string { return "other code" }
func (otherCodeLike) Code() uint32  { return 14 }

type jsonrpcLike struct {
	Code    int64
	Message string
}

func (e *jsonrpcLike) Error() string { return e.Message }

// URLElicitationRequiredError is recognized by its name.
type URLElicitationRequiredError struct{}

func (URLElicitationRequiredError) Error() string { return "URL elicitation required" }

type pgLike struct{ state string }

func (*pgLike) Error() string      { return "pg" }
func (e *pgLike) SQLState() string { return e.state }

type pqLike string

func (pqLike) Error() string      { return "pq" }
func (e pqLike) SQLState() string { return string(e) }

type pgxSafeLike bool

func (pgxSafeLike) Error() string       { return "pgx" }
func (e pgxSafeLike) SafeToRetry() bool { return bool(e) }

// pgxNoRowsLike matches sql.ErrNoRows by Is and not by Unwrap.
type pgxNoRowsLike struct{}

func (pgxNoRowsLike) Error() string        { return "no rows in result set" }
func (pgxNoRowsLike) Is(target error) bool { return target == sql.ErrNoRows }

type mysqlLike struct {
	Number  uint16
	Message string
}

func (*mysqlLike) Error() string { return "mysql" }

type redisLike string

func (e redisLike) Error() string { return string(e) }
func (redisLike) RedisError()     {}

type retryableLike bool

func (retryableLike) Error() string          { return "retryable" }
func (e retryableLike) RetryableError() bool { return bool(e) }

type isLike struct{ target error }

func (isLike) Error() string          { return "is" }
func (e isLike) Is(target error) bool { return target == e.target }

// h2StreamLike has the shape of the stream error of net/http, by which it is
// recognized.
type h2StreamLike struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (h2StreamLike) Error() string { return "stream error" }

func (e h2StreamLike) As(target any) bool {
	to := reflect.ValueOf(target).Elem()
	if to.Type() == reflect.TypeFor[h2StreamLike]() || !to.Type().ConvertibleTo(reflect.TypeFor[h2StreamLike]()) {
		return false
	}
	to.Set(reflect.ValueOf(e).Convert(to.Type()))
	return true
}

type pgxErrorLike struct {
	pgxSafeLike
	err error
}

func (e pgxErrorLike) Unwrap() error { return e.err }
