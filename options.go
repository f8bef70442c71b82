package toolhealth

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// CallOption changes one call; see [Call].
type CallOption[Out any] func(*callOptions[Out])

// callOptions is what happens to the result of a call. It does not change while a
// call is running.
type callOptions[Out any] struct {
	checks  []func(Out) error
	partial func(context.Context, *ToolError) (Out, error)
}

// CheckResult checks every result that came without an error. An error of check is
// classified, counted and retried as if the tool function had returned it. Mark it
// with [WithVerdict] to say what it means; else it is a failure that is not retried.
// Without a mark it never means that the tool was not reached. The result reaches the caller as it is, beside the *ToolError. A nil check checks
// nothing. An MCP tool that reports its failure inside a result is the usual case.
func CheckResult[Out any](check func(Out) error) CallOption[Out] {
	return func(o *callOptions[Out]) {
		if check != nil {
			o.checks = append(o.checks, check)
		}
	}
}

// CheckContract is CheckResult for the format of the answer: an error of validate is a
// failure of kind contract.
func CheckContract[Out any](validate func(Out) error) CallOption[Out] {
	if validate == nil {
		return CheckResult[Out](nil)
	}
	return CheckResult(func(out Out) error {
		return WithVerdict(validate(out), vContract)
	})
}

// Partial is the last resort when no tool has answered: a result that f returns
// without an error is the call's result. In GuardCounts the call still counts as
// failed. f is not asked if the request was rejected or denied, if the caller gave up,
// or if a tool with side effects may have acted.
func Partial[Out any](f func(context.Context, *ToolError) (Out, error)) CallOption[Out] {
	return func(o *callOptions[Out]) { o.partial = f }
}

func (o *callOptions[Out]) check(out Out) error {
	for _, check := range o.checks {
		if err := check(out); err != nil {
			return err
		}
	}
	return nil
}

// wiring is what is the same for Tools of all types: which tools may serve.
type wiring struct {
	tool  string
	order []string // the substitutes that can serve, in the order of the Substitute calls
	wrong []error  // Substitute calls that were mistakes
}

// add adds a substitute, and reports false if it cannot serve.
func (w *wiring) add(tool string, function bool) bool {
	wrong := ""
	switch {
	case tool == "":
		wrong = "must be the name of a tool"
	case tool == w.tool:
		wrong = "must be another tool than the wrapped one"
	case !function:
		wrong = "must have a function"
	case slices.Contains(w.order, tool):
		wrong = "must be given once; the first counts"
	default:
		w.order = append(slices.Clip(w.order), tool)
		return true
	}
	w.wrong = append(slices.Clip(w.wrong), w.problem("Substitute(%.80q) %s", tool, wrong))
	return false
}

// serves reports whether there is a function for a substitute. Without a wiring there
// is one for every name.
func (w *wiring) serves(tool string) bool { return w == nil || slices.Contains(w.order, tool) }

func (w *wiring) problem(format string, args ...any) error {
	return fmt.Errorf("toolhealth: Wrap(%.80q): "+format, append([]any{w.tool}, args...)...)
}

func (w *wiring) validate(function bool, router *HealthRouter, registry *Registry) error {
	var errs []error
	if w.tool == "" {
		errs = append(errs, w.problem("must be the name of a tool"))
	}
	if !function {
		errs = append(errs, w.problem("must have a function"))
	}
	errs = append(errs, w.wrong...)
	if names, listed := router.entry(w.tool); listed {
		for _, name := range names {
			if !w.serves(name) {
				errs = append(errs, w.problem("the Router names the substitute %.80q, must have a Substitute call", name))
			}
		}
		for _, name := range w.order {
			if !slices.Contains(names, name) {
				errs = append(errs, w.problem("Substitute(%.80q) must be in the Router's list, which is %.80q", name, names))
			}
		}
	}
	for _, name := range append([]string{w.tool}, w.order...) {
		if name != "" && !registry.expects(name) {
			errs = append(errs, w.problem("%.80q is unknown, must be registered or in Config.Tools under RegisteredOnly", name))
		}
	}
	return errors.Join(errs...)
}
