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
	joins   bool                        // it has many children
	asides  bool                        // it says more than a fact
	answer  bool                        // it has bodies or details
	codes   []func(error) string        // the provider's own code
	facts   []func(error) Fact          // in this order, until one knows something
	safe    []func(error) bool          // whether it was surely not sent
	retry   []func(error) int           // 1: may be repeated; -1: must not
	waits   []func(error) time.Duration // in this order, until one is positive
	headers []func(error) Header        // the header of the answer
	bodies  []func(error) string        // its body, or the JSON of it
	details []func(error) time.Duration // the wait in the details of gRPC, which take long to read
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
	s := &shape{joins: t.Implements(reflect.TypeFor[interface{ Unwrap() []error }]())}
	s.codeFields(t)
	s.knownType(node, t)
	s.statusMethods(t)
	s.otherMethods(t)
	s.statusFields(t)
	if t.Implements(reflect.TypeFor[interface{ Is(error) bool }]()) {
		s.facts = append(s.facts, ofIs)
	}
	s.asideMethods(t)
	s.waitFields(t)
	s.headerFields(t)
	s.bodyFields(t)
	s.asides = len(s.safe)+len(s.retry)+len(s.waits)+len(s.headers) > 0
	s.answer = len(s.bodies)+len(s.details) > 0
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
	case *json.SyntaxError:
		add(ofSyntaxError)
	case *json.UnmarshalTypeError:
		add(fixed(Fact{Class: JSON}))
	case *fs.PathError:
		add(ofPathError)
	}
	s.knownName(t)
}

// knownName knows the types whose packages are not imported, by their names.
func (s *shape) knownName(t reflect.Type) {
	add := func(ask func(error) Fact) { s.facts = append(s.facts, ask) }
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
		case t.Name() == "URLElicitationRequiredError", // mcp-go
			t.Name() == "toolInterruptError", t.Name() == "ToolInterruptError": // genkit
			add(fixed(Fact{Class: JSONRPC, Code: -32042}))
		case t.Name() == "MissingRequiredClientCapabilityError", t.Name() == "UnsupportedProtocolVersionError": // mcp-go
			add(fixed(Fact{Class: JSONRPC, Code: -32022}))
		}
	}
}

// ofSyntaxError tells a page from other text that is no JSON: no model writes a
// page for arguments.
func ofSyntaxError(node error) Fact {
	if strings.HasPrefix(node.Error(), "invalid character '<'") {
		return Fact{Class: Nonsense}
	}
	return Fact{Class: JSON}
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

// asideMethods are what an error says beside its main fact.
func (s *shape) asideMethods(t reflect.Type) {
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

}
