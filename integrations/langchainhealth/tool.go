package langchainhealth

import (
	"context"
	"net/http"

	"github.com/tmc/langchaingo/tools"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/httphealth"
)

// Tool returns t behind the guard, under the name that t has. Its Call returns what the
// model may read in the place of an error, see [toolhealth.ModelText]. It returns the
// error, which ends the run, if the caller's ctx is done or ModelText has no text.
//
// Some tools of langchaingo report a failure as if it were a result. Each of checks looks
// at a result, as [toolhealth.CheckResult] says: mark what the model did wrong with
// [toolhealth.BadRequest], else it counts against the tool.
//
// A nil guard makes each call once and keeps nothing. The tool may be used from any
// goroutine if t may.
func Tool(guard *toolhealth.Guard, t tools.Tool, checks ...func(result string) error) tools.Tool {
	guarded := toolhealth.Wrap(guard, t.Name(), t.Call)
	for _, check := range checks {
		guarded = guarded.CheckResult(check)
	}
	return tool{t, guarded}
}

// Tools returns each tool behind the guard, in the same order. A substitute that the
// guard's router names by now serves if it is one of them, with the input that was meant
// for the tool. Use [Tool] for a tool whose results have to be checked.
func Tools(guard *toolhealth.Guard, all ...tools.Tool) []tools.Tool {
	named := make(map[string]tools.Tool, len(all))
	for _, t := range all {
		named[t.Name()] = t
	}
	router, out := guard.Gate().Router, make([]tools.Tool, len(all))
	for i, t := range all {
		guarded := toolhealth.Wrap(guard, t.Name(), t.Call)
		for _, name := range router.Substitutes(t.Name()) {
			if s := named[name]; s != nil {
				guarded = guarded.Substitute(name, s.Call)
			}
		}
		out[i] = tool{t, guarded}
	}
	return out
}

type tool struct {
	tools.Tool
	guarded *toolhealth.Tool[string, string]
}

// Call does what Tool says.
func (t tool) Call(ctx context.Context, input string) (string, error) {
	out, err := t.guarded.Call(ctx, input)
	if err == nil {
		return out, nil
	}
	text, ok := toolhealth.ModelText(err)
	if !ok || ctx.Err() != nil {
		return "", err
	}
	return text, nil
}

// HTTPClient returns a copy of base that notes what servers answer, for the WithHTTPClient
// of a model: see [httphealth.Witness]. A nil base is the zero http.Client. The call of
// the model must have the ctx that the guard gives to the tool function.
func HTTPClient(base *http.Client) *http.Client {
	var c http.Client
	if base != nil {
		c = *base
	}
	c.Transport = httphealth.Witness(c.Transport)
	return &c
}
