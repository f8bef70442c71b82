package mcpgohealth

import (
	"encoding/json"
	"errors"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/toolhealth/toolhealth"
)

// MetaKey is the key in the _meta of a result that stands for an error. Its value is the
// JSON of the *toolhealth.ToolError: reason, kind, retry_after_seconds, attempts and text.
const MetaKey = "io.github.toolhealth/error"

// errFlagged is the error of a result that is marked as one.
var errFlagged = errors.New("the result is marked as an error")

// errPending is the error of a result that asks for input.
var errPending = toolhealth.WithVerdict(errors.New("the tool asks for input"),
	toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindDenied})

// errElsewhere is the error of a substitute that is no tool of the server.
var errElsewhere = toolhealth.WithVerdict(errors.New("mcpgohealth: the substitute is a tool of another server"),
	toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindNotDispatched, NotSent: true})

// verify is for CheckResult.
func (o *options) verify(r *mcp.CallToolResult) error {
	switch {
	case r == nil:
		return nil
	case r.NeedsInput():
		return errPending
	case r.IsError:
		return o.flagged
	}
	return nil
}

// own reports whether the result is the tool's own answer, although there is an error.
func own(r *mcp.CallToolResult, err error) bool {
	return r != nil && (errors.Is(err, errFlagged) || errors.Is(err, errPending))
}

// soften returns the error of a call as a result for the model. The error remains where
// there is nothing to tell it.
func (o *options) soften(err error) (*mcp.CallToolResult, error) {
	text, ok := toolhealth.ModelText(err)
	if !ok {
		return nil, err
	}
	if o.text != nil {
		text = o.text(err)
	}
	r := mcp.NewToolResultError(text)
	var failed *toolhealth.ToolError
	if errors.As(err, &failed) {
		if about, bad := json.Marshal(failed); bad == nil {
			r.Meta = &mcp.Meta{AdditionalFields: map[string]any{MetaKey: json.RawMessage(about)}}
		}
	}
	return r, nil
}
