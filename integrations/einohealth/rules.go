package einohealth

import (
	"context"
	"errors"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/compose"

	"github.com/toolhealth/toolhealth"
)

// rules are what Rules returns copies of.
var rules = []toolhealth.Rule{
	toolhealth.NeutralRule(toolhealth.KindDenied, interrupted),
	toolhealth.NeutralRule(toolhealth.KindCanceled, canceled),
}

// Rules returns what the errors of eino mean that are no failures of a tool: an interrupt
// is neutral of kind denied, and an adk agent that was canceled is neutral of kind
// canceled. [Middleware] knows them by itself. They are for ErrorRules.Own of a guard that
// is called in another way, such as around an agent as a whole.
func Rules() []toolhealth.Rule { return append([]toolhealth.Rule(nil), rules...) }

// interrupted reports whether the error interrupts a run of eino, to be resumed later.
func interrupted(err error) bool {
	if _, ok := compose.IsInterruptRerunError(err); ok {
		return true
	}
	_, ok := compose.ExtractInterruptInfo(err)
	return ok
}

// canceled reports whether a caller of adk has canceled the run.
func canceled(err error) bool {
	if _, ok := errors.AsType[*adk.StreamCanceledError](err); ok {
		return true
	}
	_, ok := errors.AsType[*adk.CancelError](err)
	return ok
}

// signal is an error that has to reach eino as the tool returned it.
type signal struct {
	error
	verdict toolhealth.Verdict
}

// ToolVerdict is what the error says about the tool.
func (s *signal) ToolVerdict() toolhealth.Verdict { return s.verdict }

func (s *signal) Unwrap() error { return s.error }

// mark returns the error as a signal if it is one, else as it is.
func mark(err error) error {
	if err == nil {
		return nil
	}
	for _, rule := range rules {
		if v, ok := rule(err); ok {
			return &signal{err, v}
		}
	}
	return err
}

// end says how a call that failed ends for eino: with a text for the model, or with the
// error that ends or interrupts the run.
func (m *middleware) end(ctx context.Context, err error) (text string, hard error) {
	if s, ok := errors.AsType[*signal](err); ok {
		return "", s.error
	}
	if gone := ctx.Err(); gone == context.Canceled {
		return "", gone
	}
	failed, ok := err.(*toolhealth.ToolError)
	if !ok { // to the guard it is none
		return "", err
	}
	if text, ok = toolhealth.ModelText(failed); !ok {
		return "", err
	}
	return m.say(failed, text), nil
}

// say returns what the user's function says of the failure, or safe if there is none.
func (m *middleware) say(failed *toolhealth.ToolError, safe string) (text string) {
	if m.text == nil {
		return safe
	}
	text = safe
	defer func() { _ = recover() }() // then text is safe
	return m.text(failed)
}
