// Package errfacts finds out what the errors of other people's packages say,
// without importing those packages: by method, by type name, by a few field
// names, and at the very end by a short list of texts. It reports facts; what
// they mean for a tool is decided elsewhere.
//
// It survives any error value: cyclic and endless chains, nil pointers inside
// interfaces, methods that panic.
package errfacts

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"syscall"
	"time"
)

// Class says what a Fact is about. The order is the precedence: of the facts of
// one error, the lowest class counts.
type Class uint8

// The classes. Code and Name of a Fact mean what the comment says.
const (
	None          Class = iota
	HostExhausted       // this host has no descriptors, memory or disk left
	Dial                // no connection was made; Code 1: for lack of time
	NameNotFound        // DNS says that there is no such host
	NameFailed          // DNS failed or timed out
	TLS                 // the handshake failed, or a certificate was refused
	BadRequestURL       // no request can be made of this: scheme, redirects
	Timeout             // a deadline that is not the caller's
	HTTP                // Code is the status
	GRPC                // Code is the code, of connect too
	JSONRPC             // Code is the code
	SQLState            // Name is the SQLSTATE
	MySQL               // Code is the error number
	NoRows              // the query had no rows
	Redis               // Name is the first word of the answer
	AWS                 // Name is the error code
	RefusedStream       // HTTP/2 took the stream back unprocessed
	Stream              // another HTTP/2 stream or connection error
	Broken              // the connection was reset, closed or cut short
	BadConn             // a database connection that was found dead before use
	NotExecutable       // the command could not be started
	Exit                // Code is the exit code, -1 for a signal
	Permission          // a file must not be touched
	NotExist            // a file is not there
	Exist               // a file is there already
	JSON                // JSON of one side or the other could not be read
	Canceled            // a context that is not the caller's was cancelled
	Text                // Name is the entry of the text list that matched
)

// Fact is what one node of an error tree says.
type Fact struct {
	Class Class
	Code  int
	Name  string
}

// Facts is what a whole error tree says.
type Facts struct {
	Fact
	// RetryAfter is a stated wait as a Retry-After header has it, Wait the same
	// as a duration; empty and 0 if there is none.
	RetryAfter string
	Wait       time.Duration
	// NotSent: the error says that the request was surely not sent.
	NotSent bool
	// Retry is what the error itself says of a repetition: 1 yes, -1 no, 0 nothing.
	Retry int
}

// maxNodes bounds the walk. Nobody wraps an error a thousand times; what does is
// cyclic or hostile, and its methods may recurse without end.
const maxNodes = 1000

// Tree returns the nodes of err, outermost first, those of errors.Join in order.
// It reports false, and the nodes so far, if the tree is cyclic or has too many
// nodes: then no method of theirs but Unwrap is safe to call.
func Tree(err error) (nodes []error, whole bool) {
	stack := []error{err}
	for len(stack) > 0 {
		node := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if node == nil {
			continue
		}
		if len(nodes) == maxNodes {
			return nodes, false
		}
		nodes = append(nodes, node)
		switch u := node.(type) {
		case interface{ Unwrap() error }:
			var next error
			guard(func() { next = u.Unwrap() })
			stack = append(stack, next)
		case interface{ Unwrap() []error }:
			var next []error
			guard(func() { next = u.Unwrap() })
			if len(next) > maxNodes {
				return nodes, false
			}
			for i := len(next) - 1; i >= 0; i-- {
				stack = append(stack, next[i])
			}
		}
	}
	return nodes, true
}

// guard runs f and swallows a panic of the error that f asks.
func guard(f func()) {
	defer func() { _ = recover() }()
	f()
}

// Of returns what the nodes of a whole tree say. Texts are looked at only if
// text is set.
func Of(nodes []error, text bool) Facts {
	var best Facts
	for _, node := range nodes {
		guard(func() { best.note(ofNode(node)) })
		guard(func() { best.aside(node) })
	}
	if best.Class == None && text {
		for _, node := range nodes {
			guard(func() { best.note(ofText(node.Error())) })
		}
	}
	return best
}

func (f *Facts) note(fact Fact) {
	if fact.Class != None && (f.Class == None || fact.Class < f.Class) {
		f.Fact = fact
	}
}

// aside notes what a node says beside its main fact.
func (f *Facts) aside(node error) {
	if r, ok := node.(interface{ SafeToRetry() bool }); ok && r.SafeToRetry() {
		f.NotSent = true
	}
	if f.Retry == 0 {
		f.Retry = retry(node)
	}
	if f.RetryAfter == "" && f.Wait == 0 {
		f.RetryAfter, f.Wait = wait(node)
	}
}

func retry(node error) int {
	said := func(yes bool) int {
		if yes {
			return 1
		}
		return -1
	}
	switch r := node.(type) {
	case interface{ Retryable() bool }:
		return said(r.Retryable())
	case interface{ RetryableError() bool }:
		return said(r.RetryableError())
	case interface{ IsRetryable() bool }:
		return said(r.IsRetryable())
	}
	return 0
}

func ofNode(node error) Fact {
	for _, look := range [...]func(error) Fact{ofErrno, ofSentinel, ofTypeName, ofStatus, ofMethods, ofFields} {
		if fact := look(node); fact.Class != None {
			return fact
		}
	}
	return Fact{}
}

func ofErrno(node error) Fact {
	errno, ok := node.(syscall.Errno)
	if !ok {
		return Fact{}
	}
	switch errno {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC:
		return Fact{Class: HostExhausted}
	case syscall.ECONNREFUSED:
		return Fact{Class: Dial}
	case syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE:
		return Fact{Class: Broken}
	case syscall.ENOENT:
		return Fact{Class: NotExist}
	case syscall.EEXIST:
		return Fact{Class: Exist}
	case syscall.EACCES, syscall.EPERM:
		return Fact{Class: Permission}
	}
	if errno.Timeout() {
		return Fact{Class: Timeout}
	}
	return Fact{}
}

var sentinels = map[error]Class{
	context.DeadlineExceeded: Timeout,
	os.ErrDeadlineExceeded:   Timeout,
	context.Canceled:         Canceled,
	io.EOF:                   Broken,
	io.ErrUnexpectedEOF:      Broken,
	io.ErrClosedPipe:         Broken,
	fs.ErrPermission:         Permission,
	fs.ErrNotExist:           NotExist,
	fs.ErrExist:              Exist,
	fs.ErrClosed:             Broken,
}

// exactTexts are sentinels of packages that are too large to import for one
// variable. The whole text of a plain errors.New has to match.
var exactTexts = map[string]Class{
	"sql: no rows in result set":                      NoRows,
	"redis: nil":                                      NoRows,
	"driver: bad connection":                          BadConn,
	"sql: connection is already closed":               Broken,
	"use of closed network connection":                Broken,
	"invalid connection":                              Broken, // go-sql-driver/mysql
	"executable file not found in $PATH":              NotExecutable,
	"executable file not found in %PATH%":             NotExecutable,
	"http: server gave HTTP response to HTTPS client": TLS,
}

func ofSentinel(node error) Fact {
	t := reflect.TypeOf(node)
	if !t.Comparable() {
		return Fact{}
	}
	if class, ok := sentinels[node]; ok {
		return Fact{Class: class}
	}
	if t == plainError {
		return Fact{Class: exactTexts[node.Error()]}
	}
	switch typeName(t) {
	case "internal/poll.errNetClosing", "net.errClosed":
		return Fact{Class: Broken}
	}
	return Fact{}
}

var plainError = reflect.TypeOf(errors.New(""))

// typeName returns the import path and name of a type or of what it points to.
func typeName(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath() + "." + t.Name()
}

func ofTypeName(node error) Fact {
	switch e := node.(type) {
	case *json.SyntaxError, *json.UnmarshalTypeError:
		return Fact{Class: JSON}
	case *fs.PathError:
		if e.Op == "fork/exec" {
			return Fact{Class: NotExecutable}
		}
		return Fact{}
	}
	name := typeName(reflect.TypeOf(node))
	switch {
	case name == "net.OpError":
		if op, _ := field(node, "Op"); op.IsValid() && op.Kind() == reflect.String && op.String() == "dial" {
			return Fact{Class: Dial, Code: int(boolInt(timedOut(node)))}
		}
	case name == "net.DNSError":
		if found, _ := field(node, "IsNotFound"); found.IsValid() && found.Kind() == reflect.Bool && found.Bool() {
			return Fact{Class: NameNotFound}
		}
		return Fact{Class: NameFailed, Code: int(boolInt(timedOut(node)))}
	case strings.HasPrefix(name, "crypto/x509."), strings.HasPrefix(name, "crypto/tls."):
		return Fact{Class: TLS}
	case name == "os/exec.Error":
		return Fact{Class: NotExecutable}
	case name == "net/http.MaxBytesError", name == "net/http.ProtocolError":
		return Fact{Class: Text, Name: "malformed"}
	}
	return Fact{}
}

func boolInt(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

func timedOut(node error) bool {
	t, ok := node.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

// ofStatus looks for a status or code, methods before fields.
func ofStatus(node error) Fact {
	switch s := node.(type) {
	case interface{ HTTPStatusCode() int }:
		if f := httpFact(s.HTTPStatusCode(), node); f.Class != None {
			return f
		}
	case interface{ HTTPCode() int }:
		if f := httpFact(s.HTTPCode(), node); f.Class != None {
			return f
		}
	case interface{ StatusCode() int }:
		if f := httpFact(s.StatusCode(), node); f.Class != None {
			return f
		}
	}
	if s, ok := node.(interface{ SQLState() string }); ok {
		if state := s.SQLState(); len(state) == 5 {
			return Fact{Class: SQLState, Name: state}
		}
	}
	if code, ok := grpcCode(node); ok {
		return Fact{Class: GRPC, Code: code}
	}
	return Fact{}
}

// httpFact is a status of 300 to 599. Name is the provider's own code, if the
// error has one: a status of 429 may mean an empty purse.
func httpFact(status int, node error) Fact {
	if status < 300 || status > 599 {
		return Fact{}
	}
	f := Fact{Class: HTTP, Code: status}
	if code, _ := field(node, "Code"); code.IsValid() && code.Kind() == reflect.String {
		f.Name = code.String()
	}
	return f
}

// grpcCode finds a gRPC status, or a Code method that returns a type named Code.
func grpcCode(node error) (int, bool) {
	v := reflect.ValueOf(node)
	if m := v.MethodByName("GRPCStatus"); m.IsValid() && m.Type().NumIn() == 0 && m.Type().NumOut() == 1 {
		v = m.Call(nil)[0]
	}
	m := v.MethodByName("Code")
	if !m.IsValid() || m.Type().NumIn() != 0 || m.Type().NumOut() != 1 {
		return 0, false
	}
	out := m.Type().Out(0)
	if out.Kind() != reflect.Uint32 || out.Name() != "Code" {
		return 0, false
	}
	code := m.Call(nil)[0].Uint()
	return int(code), code > 0 && code <= 16
}

func ofMethods(node error) Fact {
	if _, ok := node.(interface{ RedisError() }); ok {
		word, _, _ := strings.Cut(node.Error(), " ")
		if strings.HasPrefix(node.Error(), "ERR max number of clients") {
			word = "MAXCLIENTS"
		}
		return Fact{Class: Redis, Name: word}
	}
	if a, ok := node.(interface{ ErrorCode() string }); ok {
		return Fact{Class: AWS, Name: a.ErrorCode()}
	}
	if e, ok := node.(interface{ ExitCode() int }); ok {
		return Fact{Class: Exit, Code: e.ExitCode()}
	}
	if a, ok := node.(interface{ As(any) bool }); ok {
		var stream struct { // net/http lets a struct of this shape see its stream error
			StreamID uint32
			Code     uint32
			Cause    error
		}
		if a.As(&stream) {
			if stream.Code == 7 {
				return Fact{Class: RefusedStream}
			}
			return Fact{Class: Stream}
		}
	}
	if timedOut(node) {
		return Fact{Class: Timeout}
	}
	return Fact{}
}

// ofFields looks at the few field names under which well-known SDKs keep a code.
func ofFields(node error) Fact {
	for _, name := range [...]string{"StatusCode", "HTTPStatusCode"} {
		if v, ok := field(node, name); ok && v.CanInt() {
			if f := httpFact(int(v.Int()), node); f.Class != None {
				return f
			}
		}
	}
	if v, ok := field(node, "Code"); ok && v.CanInt() {
		switch code := v.Int(); {
		case code >= -32768 && code <= -32000:
			return Fact{Class: JSONRPC, Code: int(code)}
		case v.Kind() == reflect.Int:
			if f := httpFact(int(code), node); f.Class != None {
				return f
			}
		}
	}
	if v, ok := field(node, "ErrStatus"); ok { // k8s
		if code := v.FieldByName("Code"); code.IsValid() && code.CanInt() {
			if f := httpFact(int(code.Int()), node); f.Class != None {
				return f
			}
		}
	}
	if v, ok := field(node, "Response"); ok {
		if f := httpFact(responseStatus(v), node); f.Class != None {
			return f
		}
	}
	if v, ok := field(node, "Number"); ok && v.Kind() == reflect.Uint16 {
		return Fact{Class: MySQL, Code: int(v.Uint())}
	}
	return Fact{}
}

// responseStatus returns the StatusCode of what may be a *http.Response.
func responseStatus(v reflect.Value) int {
	if code := structField(v, "StatusCode"); code.IsValid() && code.CanInt() {
		return int(code.Int())
	}
	return 0
}

// field returns an exported field of a struct or of what a pointer points to.
func field(node error, name string) (reflect.Value, bool) {
	v := structField(reflect.ValueOf(node), name)
	return v, v.IsValid()
}

func structField(v reflect.Value, name string) reflect.Value {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	f, ok := v.Type().FieldByName(name)
	if !ok || !f.IsExported() || len(f.Index) != 1 {
		return reflect.Value{}
	}
	return v.Field(f.Index[0])
}

// wait looks for a stated wait: a method, a field, or the header of a response.
func wait(node error) (string, time.Duration) {
	switch r := node.(type) {
	case interface{ GetRetryAfter() time.Duration }:
		return "", r.GetRetryAfter()
	case interface{ RetryAfter() time.Duration }:
		return "", r.RetryAfter()
	}
	if v, ok := field(node, "RetryAfter"); ok {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if v.IsValid() && v.Type() == reflect.TypeFor[time.Duration]() {
			return "", time.Duration(v.Int())
		}
	}
	if v, ok := field(node, "ErrStatus"); ok { // k8s
		if s := structField(structField(v, "Details"), "RetryAfterSeconds"); s.IsValid() && s.CanInt() {
			return "", time.Duration(s.Int()) * time.Second
		}
	}
	if v, ok := field(node, "Header"); ok {
		if s, d := headerWait(v); s != "" || d != 0 {
			return s, d
		}
	}
	for _, name := range [...]string{"Response", "RawResponse"} {
		if v, ok := field(node, name); ok {
			if s, d := headerWait(structField(v, "Header")); s != "" || d != 0 {
				return s, d
			}
		}
	}
	return "", 0
}

// headerWait reads a Retry-After-Ms or Retry-After out of what may be a
// http.Header.
func headerWait(v reflect.Value) (string, time.Duration) {
	if !v.IsValid() || v.Kind() != reflect.Map || !v.Type().ConvertibleTo(headerType) {
		return "", 0
	}
	header := v.Convert(headerType).Interface().(map[string][]string)
	if ms := header["Retry-After-Ms"]; len(ms) > 0 {
		if d, err := time.ParseDuration(ms[0] + "ms"); err == nil {
			return "", d
		}
	}
	if after := header["Retry-After"]; len(after) > 0 {
		return after[0], 0
	}
	return "", 0
}

var headerType = reflect.TypeFor[map[string][]string]()

// Texts is the whole list of texts that are looked for, because nothing else
// tells: what contains the text, and what it is taken for.
var Texts = []struct {
	Text string
	Fact Fact
}{
	{"server sent GOAWAY", Fact{Class: Stream}},
	{"stopped after 10 redirects", Fact{Class: BadRequestURL}},
	{"unsupported protocol scheme", Fact{Class: BadRequestURL}},
	{"malformed HTTP response", Fact{Class: Text, Name: "malformed"}},
	{"Too Many Requests", Fact{Class: HTTP, Code: 429}}, // go-sdk: rejected by transport
	{"session not found", Fact{Class: Broken}},
	{"connection closed", Fact{Class: Broken}},
}

// statusText precedes a status in the errors of mcp-go.
const statusText = "request failed with status "

// ofText looks at the beginning of a text.
func ofText(text string) Fact {
	text = text[:min(len(text), 1024)]
	if _, after, ok := strings.Cut(text, statusText); ok && len(after) >= 3 {
		status := 0
		for _, digit := range []byte(after[:3]) {
			if digit < '0' || digit > '9' {
				return Fact{}
			}
			status = 10*status + int(digit-'0')
		}
		if status >= 300 && status <= 599 {
			return Fact{Class: HTTP, Code: status}
		}
	}
	for _, entry := range Texts {
		if strings.Contains(text, entry.Text) {
			return entry.Fact
		}
	}
	return Fact{}
}
