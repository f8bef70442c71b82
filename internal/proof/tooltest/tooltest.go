// Package tooltest has tools for the tests of this module. It does not import the
// library, so that the tests inside of it can use it, too.
package tooltest

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// StatusError is an error of an HTTP client: it has a status, and a text that is not
// for the model.
type StatusError int

func (e StatusError) Error() string {
	return "status " + strconv.Itoa(int(e)) + " from db-7.internal"
}

// StatusCode is all that the library needs to judge the error.
func (e StatusError) StatusCode() int { return int(e) }

// Actor is a tool function that returns a list of errors, one a run, and succeeds
// after them. It records when it ran and as which tool.
type Actor struct {
	mu    sync.Mutex
	Errs  []error
	Times []time.Time
	Names []string
}

// Plays returns an actor that returns these errors and then succeeds.
func Plays(errs ...error) *Actor { return &Actor{Errs: errs} }

// Failing returns an actor that returns err in every run.
func Failing(err error) *Actor {
	a := Plays()
	for range 100 {
		a.Errs = append(a.Errs, err)
	}
	return a
}

// Run is the tool function.
func (a *Actor) Run(_ context.Context, tool string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Times, a.Names = append(a.Times, time.Now()), append(a.Names, tool)
	if n := len(a.Times); n <= len(a.Errs) && a.Errs[n-1] != nil {
		return "", a.Errs[n-1]
	}
	return "answer of " + tool, nil
}

// Runs returns how often the tool ran.
func (a *Actor) Runs() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.Times)
}

// Gaps returns the times between the runs.
func (a *Actor) Gaps() (gaps []time.Duration) {
	for i := range a.Times[1:] {
		gaps = append(gaps, a.Times[i+1].Sub(a.Times[i]))
	}
	return gaps
}

// EndsGoroutine runs f on a goroutine of its own, which f may end.
func EndsGoroutine(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}
