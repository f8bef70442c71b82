// Package frame makes the contexts of guarded calls: those that carry what a caller
// asks of its next call, and those of attempts, by which a call inside a tool
// function finds the calls that it is inside of.
package frame

import "context"

// Frame is one such context. It never changes once it is made: a tool function may
// hand it to goroutines that outlive the attempt. Info is where a call reports how it
// went. A nil *Frame stands for a context that has none.
type Frame[Info any] struct {
	context.Context
	// Tool is the tool that runs in this attempt; nil if the frame is no attempt's. It
	// points at the entry's copy of the name, so a retained ctx retains the entry.
	Tool *string
	// Options has what the caller asked for; an attempt has those of its caller. Nil
	// means the zero Options.
	Options *Options[Info]
}

// Options are what a caller asks of a guarded call. They never change.
type Options[Info any] struct {
	Info       *Info // where to report; nil for no report
	NoFallback bool  // no substitute may serve
}

type key struct{}

// Value returns f itself for the key of this package, so one lookup finds the nearest
// frame.
func (f *Frame[Info]) Value(k any) any {
	if k == (key{}) {
		return f
	}
	return f.Context.Value(k)
}

// Of returns the nearest frame of ctx; nil if there is none.
func Of[Info any](ctx context.Context) *Frame[Info] {
	f, _ := ctx.Value(key{}).(*Frame[Info])
	return f
}

// Ask returns what f asks of a call inside of it. A call inside an attempt does not
// report to the caller of the attempt.
func (f *Frame[Info]) Ask() (o Options[Info]) {
	if f == nil || f.Options == nil {
		return o
	}
	if o = *f.Options; f.Tool != nil {
		o.Info = nil
	}
	return o
}

// Attempt returns the nearest frame from f outwards that is an attempt's; nil if there
// is none.
func (f *Frame[Info]) Attempt() *Frame[Info] {
	for f != nil && f.Tool == nil {
		f = Of[Info](f.Context)
	}
	return f
}

// Inside reports whether the tool runs in f or in an attempt further out.
func (f *Frame[Info]) Inside(tool string) bool {
	for f = f.Attempt(); f != nil; f = Of[Info](f.Context).Attempt() {
		if *f.Tool == tool {
			return true
		}
	}
	return false
}
