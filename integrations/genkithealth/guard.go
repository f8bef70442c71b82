package genkithealth

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/firebase/genkit/go/ai"

	"github.com/toolhealth/toolhealth"
)

// Guard is an [ai.Middleware] whose hook runs every tool of a generation behind a guard,
// under the tool's name:
//
//	genkit.Generate(ctx, g, ai.WithUse(genkithealth.Guard{Guard: guard}), ...)
//
// In the place of an error, the output of the tool is the JSON object of a
// [toolhealth.ToolError], with what the model may read under "text", see
// [toolhealth.ModelText]. The error itself comes back, and ends or interrupts the
// generation, if it is an interrupt, if the caller's ctx is done, or if ModelText has no
// text. An interrupt counts as neutral, of kind denied.
//
// The zero Guard makes each call once and keeps nothing. Any goroutine may use a Guard.
type Guard struct {
	Guard *toolhealth.Guard `json:"-"`
}

// Name returns "toolhealth/guard".
func (Guard) Name() string { return "toolhealth/guard" }

// New returns the hook. It keeps nothing from one generation to the next, and never fails.
func (g Guard) New(context.Context) (*ai.Hooks, error) {
	return &ai.Hooks{WrapTool: g.wrapTool}, nil
}

func (g Guard) wrapTool(ctx context.Context, p *ai.ToolParams, next ai.ToolNext) (*ai.MultipartToolResponse, error) {
	res, err := toolhealth.Wrap(g.Guard, p.Tool.Name(), marking(next)).Call(ctx, p)
	if err == nil {
		return res, nil
	}
	text, ok := toolhealth.ModelText(err)
	if !ok || ctx.Err() != nil || interrupted(err) {
		return nil, err
	}
	return &ai.MultipartToolResponse{Output: output(err, text)}, nil
}

// marking is next with a mark on interrupts, for guards whose rules do not know them.
func marking(next ai.ToolNext) ai.ToolNext {
	return func(ctx context.Context, p *ai.ToolParams) (*ai.MultipartToolResponse, error) {
		res, err := next(ctx, p)
		if interrupted(err) {
			err = toolhealth.WithVerdict(err, toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindDenied})
		}
		return res, err
	}
}

// output is a map, because plugins of genkit put everything else into one.
func output(err error, text string) map[string]any {
	out := make(map[string]any)
	if failed, ok := errors.AsType[*toolhealth.ToolError](err); ok {
		if object, bad := json.Marshal(failed); bad == nil {
			_ = json.Unmarshal(object, &out)
		}
	}
	out["text"] = text
	return out
}

// Rules returns the rule that an interrupt of genkit says nothing about the tool. The
// middleware needs none; it is for [toolhealth.ErrorRules] of a guard or a gate around
// calls inside a tool function.
func Rules() []toolhealth.Rule {
	return []toolhealth.Rule{toolhealth.NeutralRule(toolhealth.KindDenied, interrupted)}
}

func interrupted(err error) bool {
	is, _ := ai.IsToolInterruptError(err)
	return is
}
