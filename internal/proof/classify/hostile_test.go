package classify_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/toolhealth/toolhealth"
)

// panicsLike panics in every method that a classifier might call.
type panicsLike struct{ StatusCode *int }

func (panicsLike) Error() string                   { panic("Error") }
func (panicsLike) Unwrap() error                   { panic("Unwrap") }
func (panicsLike) Is(error) bool                   { panic("Is") }
func (panicsLike) As(any) bool                     { panic("As") }
func (panicsLike) Timeout() bool                   { panic("Timeout") }
func (panicsLike) Code() Code                      { panic("Code") }
func (panicsLike) GRPCStatus() *grpcStatusLike     { panic("GRPCStatus") }
func (panicsLike) StatusCodeMethod() int           { panic("StatusCode") }
func (panicsLike) HTTPStatusCode() int             { panic("HTTPStatusCode") }
func (panicsLike) ErrorCode() string               { panic("ErrorCode") }
func (panicsLike) SQLState() string                { panic("SQLState") }
func (panicsLike) ExitCode() int                   { panic("ExitCode") }
func (panicsLike) RedisError()                     { panic("RedisError") }
func (panicsLike) SafeToRetry() bool               { panic("SafeToRetry") }
func (panicsLike) Retryable() bool                 { panic("Retryable") }
func (panicsLike) GetRetryAfter() time.Duration    { panic("GetRetryAfter") }
func (panicsLike) ToolVerdict() toolhealth.Verdict { panic("ToolVerdict") }

// panicsInJoin panics in Unwrap.
type panicsInJoin struct{}

func (panicsInJoin) Error() string   { return "join" }
func (panicsInJoin) Unwrap() []error { panic("Unwrap") }

// cyclic is its own cause, and its Timeout method asks the cause.
type cyclic struct{ cause error }

func (*cyclic) Error() string   { return "cyclic" }
func (e *cyclic) Unwrap() error { return e.cause }
func (e *cyclic) Timeout() bool { return e.cause.(interface{ Timeout() bool }).Timeout() }

// endless has a new cause each time.
type endless struct{ n int }

func (endless) Error() string   { return "endless" }
func (e endless) Unwrap() error { return endless{e.n + 1} }

// widening has two new causes each time.
type widening struct{}

func (widening) Error() string   { return "widening" }
func (widening) Unwrap() []error { return []error{widening{}, widening{}} }

// uncomparable has a comparable type, and comparing it panics.
type uncomparable struct {
	StatusCode int
	Body       any
}

func (uncomparable) Error() string { return "uncomparable" }

type uncomparableSlice []string

func (uncomparableSlice) Error() string { return "slice" }

// nilField has methods that follow a nil pointer.
type nilField struct{ inner *openaiLike }

func (e *nilField) Error() string       { return e.inner.Code }
func (e *nilField) HTTPStatusCode() int { return e.inner.StatusCode }

type funcLike func()

func (funcLike) Error() string { return "func" }

type anyStatus struct {
	StatusCode string
	Code       []int
	Response   map[string]int
	Header     chan int
	RetryAfter string
	ErrStatus  *int
	Number     int64
}

func (anyStatus) Error() string   { return "strange fields" }
func (anyStatus) Code2() struct{} { return struct{}{} }

// interfaceStatus has a GRPCStatus that returns a nil interface.
type interfaceStatus struct{}

func (interfaceStatus) Error() string                        { return "interface" }
func (interfaceStatus) GRPCStatus() interface{ Code() Code } { return nil }

func TestClassify_HostileErrors(t *testing.T) {
	t.Parallel()
	self := &cyclic{}
	self.cause = self
	loop := &url.Error{Op: "Get", URL: "x"}
	loop.Err = &cyclic{cause: loop}
	deep := errors.New("deep")
	for range 10_000 {
		deep = fmt.Errorf("%w", deep)
	}
	wide := make([]error, 100_000)
	for i := range wide {
		wide[i] = errors.New("one of many")
	}
	joins := errors.New("leaf")
	for range 10_000 {
		joins = errors.Join(joins)
	}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"a nil pointer to a status":                        {(*openaiLike)(nil), "failure unknown"},
		"a nil pointer to a wrapper":                       {(*goOpenaiRequestLike)(nil), "failure unknown"},
		"a nil *url.Error":                                 {(*url.Error)(nil), "failure unknown"},
		"a nil refusal":                                    {(*toolhealth.Refusal)(nil), "failure unknown"},
		"a nil *ToolError":                                 {(*toolhealth.ToolError)(nil), "failure unknown"},
		"a nil pointer further in":                         {fmt.Errorf("a: %w", (*kubeLike)(nil)), "failure unknown"},
		"a method that dereferences nil":                   {&nilField{}, "failure unknown"},
		"details that are nil":                             {&kubeLike{ErrStatus: kubeStatus{Code: 503}}, "failure server_error retry"},
		"methods that panic":                               {panicsLike{}, "failure unknown"},
		"a join that panics":                               {panicsInJoin{}, "failure unknown"},
		"an error that panics beside an honest one":        {errors.Join(panicsLike{}, panicsInJoin{}, &openaiLike{StatusCode: 404}), "rejected not_found"},
		"its own cause":                                    {self, "failure unknown"},
		"a cyclic url.Error":                               {loop, "failure unknown"},
		"a cycle inside a join":                            {errors.Join(errors.New("x"), self), "failure unknown"},
		"a chain without end":                              {endless{}, "failure unknown"},
		"a tree without end":                               {widening{}, "failure unknown"},
		"10,000 deep":                                      {deep, "failure unknown"},
		"10,000 joins deep":                                {joins, "failure unknown"},
		"100,000 wide":                                     {errors.Join(wide...), "failure unknown"},
		"a join of nothing but nil":                        {joinOf(make([]error, 100_000)), "failure unknown"},
		"an error that cannot be compared":                 {uncomparableSlice{"a"}, "failure unknown"},
		"a status beside an error that cannot be compared": {uncomparable{StatusCode: 404, Body: []byte("x")}, "rejected not_found"},
		"a function":                                       {funcLike(nil), "failure unknown"},
		"fields of strange types":                          {anyStatus{Code: []int{404}}, "failure unknown"},
		"a status that is a nil interface":                 {interfaceStatus{}, "failure unknown"},
		"2 MB of text":                                     {errors.New(strings.Repeat("request failed ", 140_000)), "failure unknown"},
		"2 MB of text in a Redis answer":                   {redisLike(strings.Repeat("x", 2<<20)), "rejected invalid_request"},
	} {
		done := make(chan string, 1)
		go func() { done <- verdictText(toolhealth.Classify(t.Context(), c.err)) }()
		select {
		case got := <-done:
			assert.Equal(t, c.want, got, name)
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: no verdict in 20 s", name)
		}
	}
}

type joinOf []error

func (joinOf) Error() string     { return "join" }
func (e joinOf) Unwrap() []error { return e }

func TestClassify_HostileErrorDoesNotReachRules(t *testing.T) {
	t.Parallel()
	self := &cyclic{}
	self.cause = self
	asked := false
	rules := toolhealth.ErrorRules{Own: []toolhealth.Rule{func(error) (toolhealth.Verdict, bool) { asked = true; return toolhealth.Verdict{}, false }}}
	assert.Equal(t, "failure unknown", verdictText(rules.Classify(t.Context(), self)))
	assert.False(t, asked, "errors.As in a rule would not return")
	assert.Equal(t, "neutral canceled", verdictText(toolhealth.Classify(canceledContext(t, nil), self)))
	assert.Equal(t, "neutral refused", verdictText(toolhealth.Classify(t.Context(), errors.Join(toolhealth.ErrRefused, self))))
	v, known := toolhealth.RuleFor(func(*cyclic) toolhealth.Verdict { return toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected} })(self)
	assert.True(t, known)
	assert.Equal(t, toolhealth.OutcomeRejected, v.Outcome)
	_, known = toolhealth.RuleFor(func(*openaiLike) toolhealth.Verdict { return toolhealth.Verdict{} })(self)
	assert.False(t, known)
}

func TestClassify_AttemptTimeoutAroundCyclicError(t *testing.T) {
	self := &cyclic{}
	self.cause = self
	assert.Equal(t, "failure timeout retry", verdictText(toolhealth.Classify(t.Context(), attemptTimeout(t, self))))
}
