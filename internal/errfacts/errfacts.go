// Package errfacts finds out what the errors of other people's packages say,
// without importing those packages: by method, by type name, by a few field
// names, and at the very end by a short list of texts. It reports facts; what
// they mean for a tool is decided elsewhere.
//
// It survives any error value: cyclic and endless chains, nil pointers inside
// interfaces, methods that panic.
package errfacts

import (
	"reflect"
	"time"
)

// Class says what a Fact is about. The order is the precedence: of the facts of
// one error, the lowest class counts.
type Class uint8

// The classes. Code and Name of a Fact mean what the comment says.
const (
	None          Class = iota
	HostExhausted       // this host has no descriptors, memory, disk or processes left
	NameNotFound        // DNS says that there is no such host
	Dial                // no connection was made; Code 1: for lack of time
	NameFailed          // DNS failed; Code 1: for lack of time
	TLS                 // a certificate or the handshake failed
	TLSAlert            // TLS failed at a time that nobody knows
	BadRequestURL       // no request can be made of this
	Timeout             // a deadline that is not the caller's
	Throttled           // a service says: too fast
	HTTP                // Code is the status, Name the provider's own code with a 429
	GRPC                // Code is the code, of connect too
	JSONRPC             // Code is the code
	SQLState            // Name is the SQLSTATE
	MySQL               // Code is the error number
	NoRows              // the query had no answer
	Redis               // Name is the first word of the answer
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
	OpenBreaker         // somebody's circuit breaker refused
	Nonsense            // the answer was none: malformed, too large, redirects without end
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
	// Wait is a stated wait, 0 if there is none.
	Wait time.Duration
	// NotSent: the error says that the request was surely not sent.
	NotSent bool
	// Retry is what the error itself says of a repetition: 1 yes, -1 no, 0 nothing.
	Retry int
}

// maxNodes bounds the walk. Nobody wraps an error a thousand times; what does is
// cyclic or hostile, and its methods may recurse without end.
const maxNodes = 1000

// Tree appends the nodes of err to buf, outermost first, those of errors.Join in
// order. It reports false, and the nodes so far, if the tree is cyclic or has too
// many nodes: then no method of theirs but Unwrap is safe to call.
func Tree(buf []error, err error) (nodes []error, whole bool) {
	for err != nil {
		if len(buf) >= maxNodes {
			return buf, false
		}
		buf = append(buf, err)
		switch u := err.(type) {
		case interface{ Unwrap() error }:
			err = unwrap(u)
		case interface{ Unwrap() []error }:
			for _, child := range unwrapAll(u) {
				if buf, whole = Tree(buf, child); !whole {
					return buf, false
				}
			}
			return buf, true
		default:
			return buf, true
		}
	}
	return buf, true
}

// Unwrap returns the one error that err wraps, or the many; nothing if err is a leaf.
func Unwrap(err error) (one error, many []error) {
	switch u := err.(type) {
	case interface{ Unwrap() error }:
		return unwrap(u), nil
	case interface{ Unwrap() []error }:
		return nil, unwrapAll(u)
	}
	return nil, nil
}

// swallow is deferred around every call of an error's own methods.
func swallow() { _ = recover() }

func unwrap(u interface{ Unwrap() error }) error {
	defer swallow()
	return u.Unwrap()
}

func unwrapAll(u interface{ Unwrap() []error }) []error {
	defer swallow()
	return u.Unwrap()
}

// Of returns what the nodes of a whole tree say. Texts are looked at only if
// text is set.
func Of(nodes []error, text bool) Facts {
	var f Facts
	for _, node := range nodes {
		f.look(node)
	}
	if text && (f.Class == None || f.Fact == rejectedByTransport) {
		for _, node := range nodes[:min(len(nodes), maxTexts)] {
			f.note(try(ofText, node))
		}
	}
	return f
}

// rejectedByTransport is a code of the MCP SDK that hides what the server said:
// only the text has it.
var rejectedByTransport = Fact{Class: JSONRPC, Code: -32005}

// maxTexts bounds how many texts are made and searched.
const maxTexts = 16

func (f *Facts) look(node error) {
	s := shapeOf(node)
	for _, ask := range s.facts {
		if fact := try(ask, node); fact.Class != None {
			f.note(fact)
			break
		}
	}
	for _, ask := range s.safe {
		f.NotSent = f.NotSent || try(ask, node)
	}
	for _, ask := range s.retry {
		if f.Retry == 0 {
			f.Retry = try(ask, node)
		}
	}
	for _, ask := range s.waits {
		if f.Wait <= 0 {
			f.Wait = max(try(ask, node), 0)
		}
	}
}

func (f *Facts) note(fact Fact) {
	if fact.Class != None && (f.Class == None || fact.Class < f.Class) {
		f.Fact = fact
	}
}

// try asks a node and takes a panic for no answer.
func try[T any](ask func(error) T, node error) (answer T) {
	defer swallow()
	return ask(node)
}

// path leads to an exported field, through pointers, by the indexes of fields.
type path []int

// findPath returns the path by these exported names through a struct type, or through
// what a pointer points to, and the type of the last field; nil if there is none.
// A field that an embedded struct lends does not count.
func findPath(t reflect.Type, names ...string) (path, reflect.Type) {
	var p path
	for _, name := range names {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return nil, nil
		}
		f, _ := t.FieldByName(name)
		if len(f.Index) != 1 { // 0: no such field
			return nil, nil
		}
		p, t = append(p, f.Index[0]), f.Type
	}
	return p, t
}

// of returns the field's value. It reports false at a nil pointer on the way.
func (p path) of(node error) (reflect.Value, bool) {
	v := reflect.ValueOf(node)
	for _, i := range p {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if !v.IsValid() {
			return v, false
		}
		v = v.Field(i)
	}
	return v, true
}

// at is the question to the field at the end of p.
func at[T any](p path, ask func(v reflect.Value, node error) T) func(error) T {
	return func(node error) (answer T) {
		if v, ok := p.of(node); ok {
			answer = ask(v, node)
		}
		return answer
	}
}
