package toolhealth

import (
	"context"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/toolhealth/toolhealth/internal/detach"
)

// Call makes one guarded call. It runs fn with the name of the tool that serves,
// which is a substitute's if the Gate has a Router and the tool is out; fn's ctx is
// done when the attempt's time is up or fn has returned: what is read later belongs in
// [Begin]. The error is a *ToolError; the
// result that comes with it is the last one that fn returned. Only an error that the
// Gate's Classify calls a success is returned as it is, with its result.
//
// Call allocates the ctx of the attempt, which is three times, for a tool that is
// tracked, if fn succeeds at once, the policy has no Timeout and there are no options.
func Call[Out any](ctx context.Context, g *Guard, tool string, fn func(ctx context.Context, tool string) (Out, error), options ...CallOption[Out]) (Out, error) {
	return guarded(ctx, g, tool, fn, optionsOf(options), nil)
}

// optionsOf returns nil without options.
func optionsOf[Out any](options []CallOption[Out]) *callOptions[Out] {
	if len(options) == 0 {
		return nil
	}
	o := new(callOptions[Out])
	for _, option := range options {
		option(o)
	}
	return o
}

// guarded makes a call for Call, and for a Tool, which has a wiring.
func guarded[Out any](ctx context.Context, g *Guard, tool string, fn func(ctx context.Context, tool string) (Out, error), o *callOptions[Out], w *wiring) (Out, error) {
	var c call
	c.begin(ctx, g, tool)
	c.wiring = w
	var out Out
	failure := c.run(func() (err error) {
		out, err = attempt(&c, fn, o)
		return err
	})
	if failure == nil {
		return out, c.lastErr // nil, but for an error that the Classifier calls a success
	}
	if part, ok := lastResort(&c, o, failure); ok {
		return part, nil
	}
	return out, failure
}

// lastResort asks the Partial handler, if it may answer in the place of the tools.
func lastResort[Out any](c *call, o *callOptions[Out], failure *ToolError) (part Out, ok bool) {
	if o == nil || o.partial == nil || !c.replace {
		return part, false
	}
	part, ok = askPartial(c.partialContext(), o.partial, failure)
	if ok && c.options.Info != nil {
		c.options.Info.Partial = true
	}
	return part, ok
}

// attempt runs fn once, on a goroutine of its own if the policy says Detach.
func attempt[Out any](c *call, fn func(context.Context, string) (Out, error), o *callOptions[Out]) (Out, error) {
	if !c.policy.Detach {
		return runTool(c.frame, fn, o)
	}
	type result struct {
		out Out
		err error
	}
	var abandoned *atomic.Int64
	if c.counts != nil {
		abandoned = &c.counts.abandoned
	}
	f := c.frame
	r, err := detach.Run(f, func() (r result) {
		r.out, r.err = runTool(f, fn, o)
		return r
	}, result{err: errGoexit}, abandoned)
	if err != nil {
		r.err = err
	}
	return r.out, r.err
}

// runTool runs fn and checks its result. A panic comes back as a *PanicError. It
// does not come back if fn ends its goroutine, even if a panic on the way out is
// recovered here.
func runTool[Out any](f *callFrame, fn func(context.Context, string) (Out, error), o *callOptions[Out]) (out Out, err error) {
	returned := false
	defer func() {
		if !returned {
			err = &PanicError{Value: recover(), Stack: debug.Stack()}
		}
	}()
	if out, err = fn(f, *f.Attempt.Tool); err == nil && o != nil {
		if err = o.check(out); err != nil {
			err = &checkError{err}
		}
	}
	returned = true
	return out, err
}

func askPartial[Out any](ctx context.Context, partial func(context.Context, *ToolError) (Out, error), failure *ToolError) (out Out, ok bool) {
	defer func() { _ = recover() }() // then ok is false
	out, err := partial(ctx, failure)
	return out, err == nil
}

// CallOption changes one call; see [Call].
type CallOption[Out any] func(*callOptions[Out])

// callOptions is what happens to the result of a call. It does not change while a
// call is running.
type callOptions[Out any] struct {
	checks  []func(Out) error
	partial func(context.Context, *ToolError) (Out, error)
}

func (o *callOptions[Out]) check(out Out) error {
	for _, check := range o.checks {
		if err := check(out); err != nil {
			return err
		}
	}
	return nil
}

// CheckResult checks every result that came without an error. An error of check is
// classified, counted and retried as if the tool function had returned it. Mark it
// with [WithVerdict] to say what it means; else it is a failure that is not retried.
// Without a mark it never means that the tool was not reached. The result reaches the
// caller as it is, beside the *ToolError. A nil check checks nothing. An MCP tool that
// reports its failure inside a result is the usual case.
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

// Tool is a tool behind a [Guard], made by [Wrap]. Call it as the function was called
// that Wrap was given; the method value search.Call has that function's type.
//
// A Tool never changes: Substitute and the checks return changed copies, so the usual
// wiring is one chain, and Validate at its end says what is wrong with it. Any
// goroutine may use a Tool. The zero Tool, and a nil one, has no function, and each of
// its calls ends with an error.
type Tool[In, Out any] struct {
	guard       *Guard
	fn          func(context.Context, In) (Out, error)
	substitutes map[string]func(context.Context, In) (Out, error) // by tool; never written again
	wiring      wiring
	options     callOptions[Out]
}

// Wrap returns fn as a guarded tool. Its Call does what the function [Call] does, with
// fn and the functions of the substitutes.
func Wrap[In, Out any](g *Guard, tool string, fn func(context.Context, In) (Out, error)) *Tool[In, Out] {
	return &Tool[In, Out]{guard: g, fn: fn, wiring: wiring{tool: tool}}
}

// Substitute returns a copy of t for which fn serves when the tool is out and another
// tool stands in for it. fn takes what the tool takes, and may adapt it.
//
// The order in which the substitutes are tried is the Router's. If the Router has no
// entry for the tool, it is that of the Substitute calls; the guard then knows the
// substitutes of the copy that was made last, for [Guard.Offer]. A substitute that the
// Router names and that has no function is passed over; see Validate. Give substitutes
// no more rights than the tool has.
func (t *Tool[In, Out]) Substitute(tool string, fn func(context.Context, In) (Out, error)) *Tool[In, Out] {
	c := t.copy()
	if c.wiring.add(tool, fn != nil) {
		c.substitutes = maps.Clone(c.substitutes)
		if c.substitutes == nil {
			c.substitutes = make(map[string]func(context.Context, In) (Out, error))
		}
		c.substitutes[tool] = fn
		if c.guard != nil {
			c.guard.wrapped.Store(c.wiring.tool, c.wiring.order)
		}
	}
	return c
}

// CheckResult returns a copy of t that checks each result; see the function
// [CheckResult]. Checks run in the order in which they were given.
func (t *Tool[In, Out]) CheckResult(check func(Out) error) *Tool[In, Out] {
	return t.with(CheckResult(check))
}

// CheckContract returns a copy of t that checks the format of each result; see the
// function [CheckContract].
func (t *Tool[In, Out]) CheckContract(validate func(Out) error) *Tool[In, Out] {
	return t.with(CheckContract(validate))
}

// Partial returns a copy of t with a last resort; see the function [Partial].
func (t *Tool[In, Out]) Partial(f func(context.Context, *ToolError) (Out, error)) *Tool[In, Out] {
	return t.with(Partial(f))
}

func (t *Tool[In, Out]) with(option CallOption[Out]) *Tool[In, Out] {
	c := t.copy()
	c.options.checks = slices.Clip(c.options.checks) // so that two copies do not append to one array
	option(&c.options)
	return c
}

func (t *Tool[In, Out]) copy() *Tool[In, Out] {
	if t == nil {
		return Wrap[In, Out](nil, "", nil)
	}
	c := *t
	return &c
}

// Call makes one guarded call; see the function [Call], beside which it allocates once
// more.
func (t *Tool[In, Out]) Call(ctx context.Context, in In) (Out, error) {
	if t == nil {
		t = t.copy()
	}
	return guarded(ctx, t.guard, t.wiring.tool, func(ctx context.Context, serving string) (Out, error) {
		return t.run(ctx, serving, in) // this closure is allocated for each call, so it holds little
	}, &t.options, &t.wiring)
}

func (t *Tool[In, Out]) run(ctx context.Context, serving string, in In) (out Out, err error) {
	fn := t.fn
	if serving != t.wiring.tool {
		fn = t.substitutes[serving]
	}
	if fn == nil {
		return out, WithVerdict(errNoFunction, vNotRun)
	}
	return fn(ctx, in)
}

// Validate returns nil, or every mistake in the wiring at once, joined: a tool or a
// substitute without a name or a function, the tool as its own substitute, a substitute
// that was given twice or that the Router names and Substitute does not or the other
// way round, and a name that a registry with RegisteredOnly does not know. Call it when
// everything is wired; calls of a Tool with mistakes do what they can.
func (t *Tool[In, Out]) Validate() error {
	c := t.copy()
	return c.wiring.validate(c.fn != nil, c.guard.Gate().router(), c.guard.Registry())
}
