package toolhealth

import (
	"context"
	"maps"
	"slices"
)

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

// Call makes one guarded call; see the function [Call]. It allocates twice for a tool
// that is tracked, if the function succeeds at once and the policy has no Timeout.
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
