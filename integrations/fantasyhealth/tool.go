package fantasyhealth

import (
	"context"
	"errors"

	"charm.land/fantasy"

	"github.com/toolhealth/toolhealth"
)

// Tool returns t behind the guard, under the name in its Info. Its Run returns an error
// response with what the model may read in the place of an error, see
// [toolhealth.ModelText]. It returns the error, which ends the run, if the caller's ctx is
// done or ModelText has no text.
//
// A response that t marks as an error counts as a rejected request, and reaches the model as
// it is. There are three exceptions. With StopTurn, a person or a policy has said no: it says
// nothing about the tool, and ends the turn as it is. Once the ctx of the attempt is done, it
// is the error of that ctx. And if a note says that the tool's server has failed (see
// [toolhealth.Note]), it counts as the note says; then the model reads a safe text.
//
// A nil guard makes each call once and keeps nothing. The tool may be used from any
// goroutine if t may.
func Tool(guard *toolhealth.Guard, t fantasy.AgentTool) fantasy.AgentTool {
	return tool{t, toolhealth.Wrap(guard, t.Info().Name, runner(t))}
}

// Tools returns each tool behind the guard, in the same order. A substitute that the
// guard's router names by now serves if it is one of them, with the input that was meant
// for the tool.
func Tools(guard *toolhealth.Guard, all ...fantasy.AgentTool) []fantasy.AgentTool {
	named := make(map[string]fantasy.AgentTool, len(all))
	for _, t := range all {
		named[t.Info().Name] = t
	}
	router, out := guard.Gate().Router, make([]fantasy.AgentTool, len(all))
	for i, t := range all {
		name := t.Info().Name
		guarded := toolhealth.Wrap(guard, name, runner(t))
		for _, substitute := range router.Substitutes(name) {
			if s := named[substitute]; s != nil {
				guarded = guarded.Substitute(substitute, runner(s))
			}
		}
		out[i] = tool{t, guarded}
	}
	return out
}

type tool struct {
	fantasy.AgentTool
	guarded *toolhealth.Tool[fantasy.ToolCall, fantasy.ToolResponse]
}

// Run does what Tool says.
func (t tool) Run(ctx context.Context, call fantasy.ToolCall) (fantasy.ToolResponse, error) {
	res, err := t.guarded.Call(ctx, call)
	if err == nil {
		return res, nil
	}
	text, ok := toolhealth.ModelText(err)
	switch {
	case ctx.Err() != nil:
		return res, err
	case res.IsError && (res.StopTurn || rejected(err)):
		return res, nil
	case !ok:
		return res, err
	}
	return fantasy.NewTextErrorResponse(text), nil
}

func rejected(err error) bool {
	failed, ok := errors.AsType[*toolhealth.ToolError](err)
	return ok && failed.Verdict.Outcome == toolhealth.OutcomeRejected
}

// runner is the Run of t under the name of t, with an error for a response that is marked
// as one.
func runner(t fantasy.AgentTool) func(context.Context, fantasy.ToolCall) (fantasy.ToolResponse, error) {
	name := t.Info().Name
	return func(ctx context.Context, call fantasy.ToolCall) (fantasy.ToolResponse, error) {
		call.Name = name
		res, err := t.Run(ctx, call)
		if err == nil && res.IsError {
			err = meaning(ctx, res)
		}
		return res, err
	}
}

var errFlagged = errors.New("the response is marked as an error")

// meaning is the error that a response stands for that is marked as one.
func meaning(ctx context.Context, res fantasy.ToolResponse) error {
	v := toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest}
	if res.StopTurn {
		v = toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindDenied}
	} else if ctx.Err() != nil { // which is all that the tool can mean
		return ctx.Err()
	} else if note, ok := toolhealth.NoteOf(ctx); ok && note.Outcome != toolhealth.OutcomeSuccess {
		v = note
	}
	return toolhealth.WithVerdict(errFlagged, v)
}
