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
	"sync"
	"syscall"
	"time"
)

// shape is what errors of one type can be asked. It is found out once for a
// type, because looking for methods and fields by name takes much longer than
// asking them.
type shape struct {
	facts []func(error) Fact          // in this order, until one knows something
	safe  []func(error) bool          // whether it was surely not sent
	retry []func(error) int           // 1: may be repeated; -1: must not
	waits []func(error) time.Duration // in this order, until one is positive
}

// shapes has the shapes by reflect.Type: as many as a program has types of errors.
var shapes sync.Map

func shapeOf(node error) *shape {
	t := reflect.TypeOf(node)
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	s := newShape(node, t)
	shapes.Store(t, s)
	return s
}

func newShape(node error, t reflect.Type) *shape {
	s := &shape{}
	name := ownCode(node, t)
	s.knownType(node, t)
	s.statusMethods(node, t, name)
	s.otherMethods(t)
	s.fields(t, name)
	if t.Implements(reflect.TypeFor[interface{ Is(error) bool }]()) {
		s.facts = append(s.facts, ofIs)
	}
	s.asides(t)
	return s
}

// can appends a question to a list if the type has the methods of I.
func can[I, T any](list *[]func(error) T, t reflect.Type, ask func(I) T) {
	if t.Implements(reflect.TypeFor[I]()) {
		*list = append(*list, func(node error) T { return ask(node.(I)) })
	}
}

// fixed is the question to a type whose every value says the same.
func fixed(f Fact) func(error) Fact { return func(error) Fact { return f } }

func timedOut(t interface{ Timeout() bool }) bool { return t.Timeout() }

// lateCode is the Code of what failed: 1 for lack of time.
func lateCode(node error) int {
	if t, ok := node.(interface{ Timeout() bool }); ok && t.Timeout() {
		return 1
	}
	return 0
}

var plainError = reflect.TypeOf(errors.New(""))

// knownType knows types of the standard library, and a few others, by name:
// some packages are too large to import for one type.
func (s *shape) knownType(node error, t reflect.Type) {
	add := func(ask func(error) Fact) { s.facts = append(s.facts, ask) }
	if t == plainError {
		add(ofPlain)
		return
	}
	switch node.(type) {
	case syscall.Errno:
		add(ofErrno)
	case *json.SyntaxError, *json.UnmarshalTypeError:
		add(fixed(Fact{Class: JSON}))
	case *fs.PathError:
		add(ofPathError)
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := t.PkgPath() + "." + t.Name()
	switch name {
	case "net.OpError":
		if p, typ := findPath(t, "Op"); p != nil && typ.Kind() == reflect.String {
			add(at(p, func(op reflect.Value, node error) Fact {
				if op.String() != "dial" {
					return Fact{}
				}
				return Fact{Class: Dial, Code: lateCode(node)}
			}))
		}
	case "net.DNSError":
		if p, typ := findPath(t, "IsNotFound"); p != nil && typ.Kind() == reflect.Bool {
			add(at(p, func(notFound reflect.Value, node error) Fact {
				if notFound.Bool() {
					return Fact{Class: NameNotFound}
				}
				return Fact{Class: NameFailed, Code: lateCode(node)}
			}))
		}
	case "internal/poll.errNetClosing", "net.errClosed":
		add(fixed(Fact{Class: Broken}))
	case "os/exec.Error":
		add(fixed(Fact{Class: NotExecutable}))
	case "net/http.MaxBytesError", "net/http.ProtocolError", "net/textproto.ProtocolError":
		add(fixed(Fact{Class: Nonsense}))
	case "encoding/json/jsontext.SyntacticError", "encoding/json/v2.SemanticError":
		add(fixed(Fact{Class: JSON}))
	case "crypto/tls.alert", "crypto/tls.AlertError", "crypto/tls.permanentError":
		add(fixed(Fact{Class: TLSAlert}))
	default:
		switch {
		case strings.HasPrefix(name, "crypto/x509."), strings.HasPrefix(name, "crypto/tls."):
			add(fixed(Fact{Class: TLS}))
		case t.Name() == "URLElicitationRequiredError": // mcp-go
			add(fixed(Fact{Class: JSONRPC, Code: -32042}))
		}
	}
}

// ofErrno knows what the methods of an Errno do not tell.
func ofErrno(node error) Fact {
	switch node.(syscall.Errno) {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC:
		return Fact{Class: HostExhausted}
	case syscall.ECONNREFUSED, wsaRefused:
		return Fact{Class: Dial}
	case syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, wsaReset, wsaAborted,
		syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN, syscall.ENETRESET:
		return Fact{Class: Broken}
	case wsaTimedOut:
		return Fact{Class: Timeout}
	}
	return Fact{}
}

// What Windows has for sockets. On other systems no error has these numbers.
const (
	wsaAborted  syscall.Errno = 10053
	wsaReset    syscall.Errno = 10054
	wsaTimedOut syscall.Errno = 10060
	wsaRefused  syscall.Errno = 10061
)

func ofPathError(node error) Fact {
	e := node.(*fs.PathError)
	switch {
	case e.Op != "fork/exec":
		return Fact{}
	case e.Err == syscall.EAGAIN: // no more processes
		return Fact{Class: HostExhausted}
	}
	return Fact{Class: NotExecutable}
}

// exactTexts are errors of packages that are too large to import for one
// variable. The whole text has to match.
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
	"method not found":                                {Class: JSONRPC, Code: -32601}, // mcp-go, as the next
	"invalid params":                                  {Class: JSONRPC, Code: -32602},
	"invalid request":                                 {Class: JSONRPC, Code: -32600},
	"resource not found":                              {Class: JSONRPC, Code: -32002},
	"circuit breaker is open":                         {Class: OpenBreaker}, // gobreaker
	"circuit breaker open":                            {Class: OpenBreaker}, // failsafe-go
	"circuit open":                                    {Class: OpenBreaker},
	"breaker open":                                    {Class: OpenBreaker},
	"hystrix: circuit open":                           {Class: OpenBreaker},
}

// maxExact is longer than any of them.
const maxExact = 64

func ofPlain(node error) Fact {
	switch node {
	case context.Canceled:
		return Fact{Class: Canceled}
	case io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, fs.ErrClosed:
		return Fact{Class: Broken}
	case fs.ErrPermission:
		return Fact{Class: Permission}
	case fs.ErrNotExist:
		return Fact{Class: NotExist}
	case fs.ErrExist:
		return Fact{Class: Exist}
	}
	if text := node.Error(); len(text) <= maxExact {
		return exactTexts[text]
	}
	return Fact{}
}

// ofIs asks an error that knows better than == what it is.
func ofIs(node error) Fact {
	e := node.(interface{ Is(error) bool })
	for _, s := range [...]struct {
		err   error
		class Class
	}{
		{context.DeadlineExceeded, Timeout}, {os.ErrDeadlineExceeded, Timeout},
		{io.EOF, Broken}, {io.ErrUnexpectedEOF, Broken},
		{fs.ErrPermission, Permission}, {fs.ErrNotExist, NotExist}, {fs.ErrExist, Exist},
		{context.Canceled, Canceled},
	} {
		if e.Is(s.err) {
			return Fact{Class: s.class}
		}
	}
	return Fact{}
}

func (s *shape) otherMethods(t reflect.Type) {
	can(&s.facts, t, func(e interface {
		error
		RedisError()
	}) Fact {
		text := e.Error()
		if text == "redis: nil" {
			return Fact{Class: NoRows}
		}
		if strings.HasPrefix(text, "ERR max number of clients") {
			return Fact{Class: Redis, Name: "MAXCLIENTS"}
		}
		word, _, _ := strings.Cut(text, " ")
		return Fact{Class: Redis, Name: word}
	})
	can(&s.facts, t, func(e interface{ ExitCode() int }) Fact { return Fact{Class: Exit, Code: e.ExitCode()} })
	can(&s.facts, t, func(e interface{ As(any) bool }) Fact {
		var stream struct { // net/http lets a struct of this shape see its HTTP/2 stream error
			StreamID uint32
			Code     uint32
			Cause    error
		}
		switch {
		case !e.As(&stream):
			return Fact{}
		case stream.Code == 7:
			return Fact{Class: RefusedStream}
		}
		return Fact{Class: Stream}
	})
	when := func(class Class, yes bool) Fact {
		if yes {
			return Fact{Class: class}
		}
		return Fact{}
	}
	can(&s.facts, t, func(e interface{ Timeout() bool }) Fact { return when(Timeout, timedOut(e)) })
	can(&s.facts, t, func(e interface{ ConnectionError() bool }) Fact { return when(Broken, e.ConnectionError()) })
	can(&s.facts, t, func(e interface{ CanceledError() bool }) Fact { return when(Canceled, e.CanceledError()) })
}

// fields are the few names under which well-known SDKs keep a status or code.
func (s *shape) fields(t reflect.Type, name func(error) string) {
	status := func(names ...string) {
		if p, typ := findPath(t, names...); p != nil && isInt(typ) {
			s.facts = append(s.facts, at(p, func(v reflect.Value, node error) Fact {
				return httpFact(int(v.Int()), node, name)
			}))
		}
	}
	status("StatusCode")
	status("HTTPStatusCode")
	if p, typ := findPath(t, "Code"); p != nil && isInt(typ) {
		s.facts = append(s.facts, at(p, func(v reflect.Value, node error) Fact {
			switch code := v.Int(); {
			case code >= -32800 && code <= -32000, code == 32600: // the reserved codes, cancelled, and session lost as Python says it
				return Fact{Class: JSONRPC, Code: int(code)}
			case typ.Kind() == reflect.Int:
				return httpFact(int(code), node, name)
			}
			return Fact{}
		}))
	}
	status("ErrStatus", "Code") // k8s
	status("Response", "StatusCode")
	if p, typ := findPath(t, "Number"); p != nil && typ.Kind() == reflect.Uint16 {
		s.facts = append(s.facts, at(p, func(v reflect.Value, _ error) Fact {
			if number := int(v.Uint()); number >= 1000 { // as all errors of MySQL are
				return Fact{Class: MySQL, Code: number}
			}
			return Fact{}
		}))
	}
}

func isInt(t reflect.Type) bool { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64 }

// asides are what an error says beside its main fact.
func (s *shape) asides(t reflect.Type) {
	can(&s.safe, t, func(e interface{ SafeToRetry() bool }) bool { return e.SafeToRetry() })

	said := func(yes bool) int {
		if yes {
			return 1
		}
		return -1
	}
	can(&s.retry, t, func(e interface{ Retryable() bool }) int { return said(e.Retryable()) })
	can(&s.retry, t, func(e interface{ RetryableError() bool }) int { return said(e.RetryableError()) })
	can(&s.retry, t, func(e interface{ IsRetryable() bool }) int { return said(e.IsRetryable()) })

	can(&s.waits, t, func(e interface{ GetRetryAfter() time.Duration }) time.Duration { return e.GetRetryAfter() })
	can(&s.waits, t, func(e interface{ RetryAfter() time.Duration }) time.Duration { return e.RetryAfter() })
	duration := reflect.TypeFor[time.Duration]()
	if p, typ := findPath(t, "RetryAfter"); p != nil && (typ == duration || typ == reflect.PointerTo(duration)) {
		s.waits = append(s.waits, at(p, func(v reflect.Value, _ error) time.Duration {
			if v = reflect.Indirect(v); !v.IsValid() {
				return 0
			}
			return time.Duration(v.Int())
		}))
	}
	if p, typ := findPath(t, "ErrStatus", "Details", "RetryAfterSeconds"); p != nil && isInt(typ) { // k8s
		s.waits = append(s.waits, at(p, func(v reflect.Value, _ error) time.Duration { return seconds(float64(v.Int())) }))
	}
	for _, names := range [...][]string{
		{"Header"}, {"Response", "Header"}, {"RawResponse", "Header"}, {"ResponseHeaders"},
	} {
		p, typ := findPath(t, names...)
		switch {
		case p == nil:
		case typ.ConvertibleTo(headerType):
			s.waits = append(s.waits, at(p, func(v reflect.Value, _ error) time.Duration {
				header := v.Convert(headerType).Interface().(map[string][]string)
				return headerWait(first(header["Retry-After-Ms"]), first(header["Retry-After"]))
			}))
		case typ == flatHeaderType: // fantasy: with keys in lower case
			s.waits = append(s.waits, at(p, func(v reflect.Value, _ error) time.Duration {
				header := v.Interface().(map[string]string)
				return headerWait(header["retry-after-ms"], header["retry-after"])
			}))
		}
	}
}

var (
	headerType     = reflect.TypeFor[map[string][]string]()
	flatHeaderType = reflect.TypeFor[map[string]string]()
)

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
