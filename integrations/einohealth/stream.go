package einohealth

import (
	"context"
	"io"
	"runtime/debug"

	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"

	"github.com/toolhealth/toolhealth"
)

// opened is a stream that a tool has opened, and the ctx of its attempt.
type opened[Chunk any] struct {
	ctx    context.Context
	chunks *schema.StreamReader[Chunk]
}

// stream returns the guarded endpoint of tools that answer in chunks; say makes a chunk of
// a text.
func stream[Chunk any](m *middleware, next endpoint[*schema.StreamReader[Chunk]], say func(text string) Chunk) endpoint[*schema.StreamReader[Chunk]] {
	run := attempt(next)
	open := func(ctx context.Context, in *compose.ToolInput) (o opened[Chunk], err error) {
		o.ctx = ctx
		if o.chunks, err = run(ctx, in); err == nil && ctx.Err() != nil { // too late: the guard has gone on
			o.chunks.Close()
			err = ctx.Err()
		}
		return o, err
	}
	return func(ctx context.Context, in *compose.ToolInput) (*schema.StreamReader[Chunk], error) {
		o, flight, err := toolhealth.Wrap(m.guard, m.name(in), open).Begin(ctx, in)
		if err == nil {
			reader, writer := schema.Pipe[Chunk](1)
			r := &relay[Chunk]{m: m, say: say, flight: flight, caller: ctx, opened: o, to: writer}
			go r.run()
			return reader, nil
		}
		text, err := m.end(ctx, err)
		if err != nil {
			return nil, err
		}
		return schema.StreamReaderFromArray([]Chunk{say(text)}), nil
	}
}

// relay hands the chunks of a tool's stream on, and ends its Flight.
type relay[Chunk any] struct {
	m      *middleware
	say    func(text string) Chunk
	flight *toolhealth.Flight
	caller context.Context
	opened[Chunk]
	to   *schema.StreamWriter[Chunk]
	said bool // a chunk was sent
}

// item is what one Recv has returned.
type item[Chunk any] struct {
	chunk Chunk
	err   error
}

// run hands on what the tool says until it has ended, its time is up or the reader has
// left. The Flight ends before the reader's stream does, so that a reader that has read the
// end sees the outcome.
func (r *relay[Chunk]) run() {
	defer r.to.Close()
	items, left := make(chan item[Chunk]), make(chan struct{})
	defer close(left)
	go r.read(items, left)
	for {
		select {
		case i, ok := <-items:
			if !ok {
				i.err = &toolhealth.PanicError{Value: "the tool's stream has ended its goroutine"}
			}
			if r.pass(i) {
				return
			}
		case <-r.ctx.Done():
			r.fail(r.ctx.Err())
			return
		}
	}
}

// read reads the tool's stream, and closes it, on a goroutine of its own: eino has no
// way to end a Recv that hangs.
func (r *relay[Chunk]) read(items chan<- item[Chunk], left <-chan struct{}) {
	defer func() { _ = recover() }() // of a Close
	defer r.chunks.Close()
	defer close(items)
	for {
		i := r.recv()
		select {
		case items <- i:
		case <-left:
			return
		}
		if i.err != nil && !isNamedEnd(i.err) {
			return
		}
	}
}

// recv is Recv, with a panic of the tool's as an error.
func (r *relay[Chunk]) recv() (i item[Chunk]) {
	returned := false
	defer func() {
		if !returned {
			i.err = &toolhealth.PanicError{Value: recover(), Stack: debug.Stack()}
		}
	}()
	i.chunk, i.err = r.chunks.Recv()
	returned = true
	return i
}

// isNamedEnd reports whether the error is the end of one of several streams that are read
// as one: the others go on.
func isNamedEnd(err error) bool {
	_, named := schema.GetSourceName(err)
	return named
}

// pass hands on one item, and reports whether it was the last.
func (r *relay[Chunk]) pass(i item[Chunk]) (last bool) {
	switch {
	case i.err == io.EOF:
		r.flight.Done(nil)
		if !r.said { // of no chunk at all eino makes an error
			r.to.Send(r.say(""), nil)
		}
		return true
	case i.err != nil && !isNamedEnd(i.err):
		r.fail(i.err)
		return true
	}
	r.flight.KeepAlive()
	if r.to.Send(i.chunk, i.err) { // the reader has left
		var gone error
		if r.caller.Err() == context.Canceled {
			gone = context.Canceled
		}
		r.flight.Done(gone)
		return true
	}
	r.said = true
	r.flight.KeepAlive() // what the reader took to read is not the tool's silence
	return false
}

// fail ends the Flight, and the reader's stream with the safe text or with the error that
// ends the run.
func (r *relay[Chunk]) fail(err error) {
	text, hard := r.m.end(r.caller, r.outcome(mark(err)))
	if hard != nil {
		var none Chunk
		r.to.Send(none, hard)
		return
	}
	if r.said {
		text = "\n" + text
	}
	r.to.Send(r.say(text), nil)
}

// outcome ends the Flight, and returns what a call would return.
func (r *relay[Chunk]) outcome(err error) error {
	switch failed := r.flight.Done(err).(type) {
	case nil:
		return err // to the guard it is none
	case *toolhealth.ToolError:
		return failed
	}
	v := toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindCanceled}
	return &toolhealth.ToolError{ // the Flight has settled by itself
		Tool: r.flight.Tool(), Reason: toolhealth.StopCanceled, Verdict: v, Attempts: 1, Canceled: r.ctx.Err(),
		Candidates: []toolhealth.Candidate{{Tool: r.flight.Tool(), Reason: toolhealth.StopCanceled, Verdict: v, Err: err}},
	}
}
