package verdicts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/httphealth"
)

// Form is one way to call an SDK.
type Form struct {
	SDK      string // its module, by its usual name
	Name     string // "chat, stream"
	Failures []Failure
	// CutsChain means that its errors are texts: the error below is not in them.
	CutsChain bool
	// Local means that there is no HTTP, and no witness.
	Local bool
	// Meanings are of failures that mean something else in this form.
	Meanings map[string]meaning

	dialect dialect
	sound   sound // nil: there are no sessions
	dial    dial
}

// dial connects an SDK. call makes one call and takes its whole answer; done
// ends the connection.
type dial func(ctx context.Context, t *target) (call func(context.Context) error, done func(), err error)

// Row is one form and one failure.
type Row struct {
	Form    *Form
	Failure *Failure
}

// ID is the name of the row.
func (r Row) ID() string { return r.Form.SDK + " | " + r.Form.Name + " | " + r.Failure.Name }

// Rows returns all rows.
func Rows() []Row {
	var rows []Row
	for _, f := range forms() {
		for i := range f.Failures {
			rows = append(rows, Row{f, &f.Failures[i]})
		}
	}
	return rows
}

func forms() []*Form {
	var all []*Form
	for _, sdk := range [][]*Form{openaiForms(), anthropicForms(), genaiForms(), goOpenAIForms(), goSDKForms(), mcpGoForms(), langchainForms()} {
		all = append(all, sdk...)
	}
	return all
}

// Played is how one row came out, once.
type Played struct {
	Err     error
	Verdict toolhealth.Verdict
	Hits    int // requests that the failing server got
}

// play plays the row, with or without a witness. An error is a mistake of the
// driver or of its server.
func (r Row) play(witness bool) (p Played, err error) {
	above, ready := func(base http.RoundTripper) http.RoundTripper { return base }, func(ctx context.Context) context.Context { return ctx }
	if witness {
		above, ready = httphealth.Witness, toolhealth.WithNotes
	}
	t := newTarget(r.Form.dialect, r.Failure, r.Form.sound, above)
	defer t.close()
	call, done, err := r.Form.dial(ready(context.Background()), t)
	if err != nil {
		return p, fmt.Errorf("%s: connecting: %w", r.ID(), err)
	}
	defer done()
	t.arm()
	if r.Failure.Again {
		if err := call(ready(context.Background())); err == nil {
			return p, fmt.Errorf("%s: the first call succeeded", r.ID())
		}
	}
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if r.Failure.Caller != nil {
		ctx, cancel = r.Failure.Caller()
	}
	defer cancel()
	ctx = ready(ctx)
	p.Err = call(ctx)
	p.Verdict = toolhealth.Classify(ctx, p.Err)
	p.Hits = int(t.hits.Load())
	return p, nil
}

// Result is a row with both its ends.
type Result struct {
	Row
	Meaning   meaning
	Bare, Wit Played
}

// Silent reports whether the SDK hides the failure: it returns no error.
func (r *Result) Silent() bool { return r.Bare.Err == nil }

// Right reports whether the verdict of the bare SDK is the intended one.
func (r *Result) Right() bool { return fits(r.Bare.Verdict, r.Meaning.want) }

// Witnessed reports whether there is a verdict with a witness.
func (r *Result) Witnessed() bool { return !r.Form.Local }

// RightWitnessed reports whether the verdict with a witness is the intended one.
func (r *Result) RightWitnessed() bool { return fits(r.Wit.Verdict, r.Meaning.want) }

// Play plays rows, a few at a time, and returns their results in their order.
func Play(rows []Row) ([]Result, error) {
	results, errs := make([]Result, len(rows)), make([]error, len(rows))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 6)
	for i, row := range rows {
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; wg.Done() }()
			results[i], errs[i] = row.both()
		}()
	}
	wg.Wait()
	return results, errors.Join(errs...)
}

func (r Row) both() (res Result, err error) {
	res.Row = r
	m, ok := meaningOf(r.Form, r.Failure.Name)
	if !ok {
		return res, fmt.Errorf("%s: its meaning is not known", r.ID())
	}
	res.Meaning = m
	if res.Bare, err = r.play(false); err != nil || !res.Witnessed() {
		return res, err
	}
	res.Wit, err = r.play(true)
	return res, err
}

// chain is the types of an error, the outermost first, without the wrappers of
// package fmt.
func chain(err error) string {
	var names []string
	var walk func(error)
	walk = func(err error) {
		if err == nil {
			return
		}
		if name := reflect.TypeOf(err).String(); !strings.HasPrefix(name, "*fmt.") {
			names = append(names, name)
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				walk(inner)
			}
		}
	}
	walk(err)
	if len(names) == 0 {
		return reflect.TypeOf(err).String()
	}
	return strings.Join(names, " > ")
}

var (
	port      = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	sessionID = regexp.MustCompile(`session ID: \w+`)
)

// said is the text of an error, on one line, without what differs on each run.
func said(err error) string {
	s := port.ReplaceAllString(err.Error(), "127.0.0.1:port")
	s = sessionID.ReplaceAllString(s, "session ID: id")
	return strings.Join(strings.Fields(s), " ")
}
