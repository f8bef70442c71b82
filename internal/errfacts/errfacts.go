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
	"strings"
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
	TLSAlert            // TLS failed at an unknown time
	BadRequestURL       // no request can be made of this
	Timeout             // a deadline that is not the caller's
	Coded               // the provider's own code, or a text, says more than a status; Code is the Meaning
	HTTP                // Code is the status
	GRPC                // Code is the code, of connect too
	JSONRPC             // Code is the code
	SQLState            // Name is the SQLSTATE
	MySQL               // Code is the error number
	NoRows              // the query had no answer
	Redis               // Name is the first word of the answer
	RefusedStream       // HTTP/2 took the stream back unprocessed
	Stream              // another HTTP/2 stream or connection error
	BadConn             // a connection or session that was found dead before use
	Broken              // the connection was reset, closed or cut short
	NotExecutable       // the command could not be started
	Exit                // Code is the exit code, -1 for a signal
	Permission          // a file must not be touched
	NotExist            // a file is not there
	Exist               // a file is there already
	JSON                // JSON of one side or the other could not be read
	Canceled            // a context that is not the caller's was canceled
	OpenBreaker         // a circuit breaker of another library refused
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
	// NotSent: each leaf of the tree says that the request was surely not sent.
	NotSent bool
	// Retry is what the error itself says of a repetition: 1 yes, -1 no, 0 nothing.
	Retry int
}

// OfStatus returns what an HTTP answer says. An answer of success says nothing.
func OfStatus(status int, header Header) Facts {
	f := Facts{Fact: Fact{Class: HTTP, Code: status}, Wait: header.retryAfter()}
	if f.Wait == 0 && f.aboutRate() {
		f.Wait = header.reset(f.Meaning() != Limited)
	}
	f.NotSent = f.unsent()
	return f
}

// aboutRate reports whether what is reset in the header may be what the answer is
// about: a rate, or a refusal that may be one in disguise.
func (f *Facts) aboutRate() bool {
	return f.Meaning() == Limited || f.Class == HTTP && (f.Code == 400 || f.Code == 403)
}

// maxNodes bounds the walk. A tree with more nodes is cyclic or hostile, and its
// methods may recurse without end.
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
	var f finder
	for _, node := range nodes {
		f.look(node)
	}
	if text && (f.Class == None || f.Class == JSON && len(nodes) > 1 || f.mayRemark()) {
		f.lookAtTexts(nodes)
	}
	if f.shape != nil && f.shape.answer {
		f.lookAtBodies()
	}
	if f.Wait == 0 && !f.header.empty() && f.aboutRate() {
		f.Wait = f.header.reset(f.Meaning() != Limited)
	}
	if f.says { // on the one way there is, or perhaps not on all
		f.NotSent = !f.joins || unsentBelow(nodes[0], func(node error) bool { return saysUnsent(node, text) })
	}
	return f.Facts
}

// finder is Facts in the making.
type finder struct {
	Facts
	source error  // the node that Fact is from
	shape  *shape // of that node
	header Header // of the first answer
	says   bool   // a node says that the request was not sent
	joins  bool   // a node has many children
}

// rejectedByTransport is a code of the MCP SDK that hides what happened: only another
// node or the text has it.
var rejectedByTransport = Fact{Class: JSONRPC, Code: -32005}

// maxTexts bounds how many texts are made and searched.
const maxTexts = 16

// look asks a node all that its type can be asked. Most nodes do not panic, so they
// are asked at once, and one by one only if that fails.
func (f *finder) look(node error) {
	s := shapeOf(node)
	f.joins = f.joins || s.joins
	if !f.ask(s, node) {
		f.askCarefully(s, node)
	}
}

func (f *finder) ask(s *shape, node error) (done bool) {
	defer swallow() // then done is false
	for _, ask := range s.facts {
		if fact := ask(node); fact.Class != None {
			f.note(fact, node, s)
			break
		}
	}
	if !s.asides {
		return true
	}
	for _, ask := range s.safe {
		f.says = f.says || ask(node)
	}
	for _, ask := range s.retry {
		if f.Retry == 0 {
			f.Retry = ask(node)
		}
	}
	for _, ask := range s.waits {
		if f.Wait <= 0 {
			f.Wait = max(ask(node), 0)
		}
	}
	for _, ask := range s.headers {
		f.noteHeader(ask(node))
	}
	return true
}

func (f *finder) askCarefully(s *shape, node error) {
	if fact := s.fact(node); fact.Class != None {
		f.note(fact, node, s)
	}
	f.says = f.says || s.unsent(node)
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
	for _, ask := range s.headers {
		f.noteHeader(try(ask, node))
	}
}

func (f *finder) noteHeader(h Header) {
	if h.empty() {
		return
	}
	if f.Wait <= 0 {
		f.Wait = h.retryAfter()
	}
	if f.header.empty() {
		f.header = h
	}
}

// fact returns the first thing that a node knows.
func (s *shape) fact(node error) Fact {
	for _, ask := range s.facts {
		if fact := try(ask, node); fact.Class != None {
			return fact
		}
	}
	return Fact{}
}

// unsent reports whether a node says so beside its fact.
func (s *shape) unsent(node error) bool {
	for _, ask := range s.safe {
		if try(ask, node) {
			return true
		}
	}
	return false
}

func (f *finder) note(fact Fact, node error, s *shape) {
	f.says = f.says || fact.unsent()
	switch {
	case f.Class == None:
	case f.Fact == rejectedByTransport: // whatever else is known is more
	case fact.Class >= f.Class || fact == rejectedByTransport:
		return
	}
	f.Fact, f.source, f.shape = fact, node, s
}

// lookAtTexts takes what the texts say where nothing else tells, or where a code
// means more than one thing.
func (f *finder) lookAtTexts(nodes []error) {
	switch {
	case f.Class == None || f.Fact == rejectedByTransport:
		outer := ""
		for _, node := range nodes[:min(len(nodes), maxTexts)] {
			outer = f.lookAtText(node, outer)
		}
		if f.Wait == 0 && (f.Class == HTTP || f.Class == Coded) {
			f.Wait = try(waitInText, f.source)
		}
	case f.Class == JSON && len(nodes) > 1:
		if fact := try(ofAnswer, nodes[0]); fact.Class != None {
			f.Fact = fact
		}
	}
	if f.mayRemark() {
		source := f.source
		if reflect.TypeOf(source) == plainError { // a sentinel: what is said beside it is said around it
			source = nodes[0]
		}
		f.Fact = ofRemark(source, f.Fact)
		f.says = f.says || f.unsent()
	}
}

// lookAtText looks at the text of a node, unless the one around it ended in the same
// text. It returns the text.
func (f *finder) lookAtText(node error, outer string) (text string) {
	defer swallow()
	text = node.Error()
	fact := exactText(node, text)
	if fact.Class == None && !strings.HasSuffix(outer, text) {
		fact = inText(text[:min(len(text), maxText)])
	}
	if fact.Class != None {
		f.note(fact, node, shapeOf(node))
	}
	return text
}

// lookAtBodies looks for a code or a wait in what the error keeps of the answer, where
// one is likely: it takes longer than a look at fields.
func (f *finder) lookAtBodies() {
	switch f.Class {
	case HTTP:
		if !codeSaysMore(f.Code) && f.Code != 503 {
			return
		}
	case GRPC, JSONRPC:
		if !f.mayRemark() && f.Code != 429 {
			return
		}
	case Coded:
	default:
		return
	}
	for _, ask := range f.shape.bodies {
		body := try(ask, f.source)
		if body == "" {
			continue
		}
		if f.Class == HTTP {
			if m := codeInJSON(body); m != Unknown {
				f.Fact = Fact{Class: Coded, Code: int(m)}
			}
		}
		if f.Wait == 0 {
			f.Wait = ofJSON(body)
		}
	}
	for _, ask := range f.shape.details {
		if f.Wait == 0 {
			f.Wait = max(try(ask, f.source), 0)
		}
	}
}

// EachLeaf reports whether each way from the root of a whole tree to a leaf has a
// node that says so.
func EachLeaf(nodes []error, says func(node error) bool) bool { return unsentBelow(nodes[0], says) }

// Unsent reports whether a node says that the request was surely not sent.
func Unsent(node error) bool { return saysUnsent(node, true) }

func saysUnsent(node error, text bool) bool {
	s := shapeOf(node)
	fact := s.fact(node)
	text = text && !s.joins // then its text is that of all that it has
	switch {
	case text && fact.Class == None:
		fact = try(ofText, node)
	case text && fact.mayRemark():
		fact = ofRemark(node, fact)
	}
	return fact.unsent() || s.unsent(node)
}

func unsentBelow(node error, says func(error) bool) bool {
	if says(node) {
		return true
	}
	switch u := node.(type) {
	case interface{ Unwrap() error }:
		child := unwrap(u)
		return child != nil && unsentBelow(child, says)
	case interface{ Unwrap() []error }:
		some := false
		for _, child := range unwrapAll(u) {
			if child == nil || shapeOf(child).fact(child) == rejectedByTransport { // a label of the SDK
				continue
			}
			if some = unsentBelow(child, says); !some {
				return false
			}
		}
		return some
	}
	return false
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
// What an embedded struct lends counts.
func findPath(t reflect.Type, names ...string) (path, reflect.Type) {
	var p path
	for _, name := range names {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return nil, nil
		}
		f, ok := t.FieldByName(name)
		if !ok || !f.IsExported() {
			return nil, nil
		}
		p, t = append(p, f.Index...), f.Type
	}
	return p, t
}

// in returns the field's value. It reports false at a nil pointer on the way.
func (p path) in(v reflect.Value) (reflect.Value, bool) {
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
		if v, ok := p.in(reflect.ValueOf(node)); ok {
			answer = ask(v, node)
		}
		return answer
	}
}
