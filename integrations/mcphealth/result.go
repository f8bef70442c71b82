package mcphealth

import (
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhealth/toolhealth"
)

// MetaKey is the key in the _meta of a result that is none of a tool: there is an object
// with reason, kind, retry_after_seconds, attempts and text, as [toolhealth.Refusal] and
// [toolhealth.ToolError] write them. So a host can tell a refusal from a tool's own error.
const MetaKey = "io.github.toolhealth/error"

var (
	errFlagged = toolhealth.WithVerdict(errors.New("the result is marked as an error"),
		toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest})
	errAsks = toolhealth.WithVerdict(errors.New("the result asks for a person"),
		toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindDenied})
	errBusy = toolhealth.WithVerdict(errors.New("the server sheds load"),
		toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindRateLimited, Retryable: true})
)

// judge says what a result means that came without an error.
func (t *Tools) judge(res *mcp.CallToolResult) error {
	switch {
	case res == nil:
		return nil
	case res.InputRequests != nil || res.NeedsInput():
		if len(res.InputRequests) == 0 {
			return errBusy
		}
		return errAsks
	case !res.IsError:
		return nil
	case t.Flagged != nil:
		return t.Flagged(res)
	}
	if err := res.GetError(); err != nil { // that of a handler in this process
		return err
	}
	return errFlagged
}

// answer is what the host gets of a guarded call.
func (t *Tools) answer(res *mcp.CallToolResult, err error) (*mcp.CallToolResult, error) {
	if err == nil || res != nil { // the tool's own answer, flagged or not
		return res, nil
	}
	text, ok := t.text(err)
	if !ok {
		return nil, hard(err)
	}
	return failed(text, err), nil
}

// text is what the model may read of the error; false if there is nothing to tell, and
// the run has to end.
func (t *Tools) text(err error) (string, bool) {
	text, ok := toolhealth.ModelText(err)
	switch {
	case !ok:
		return "", false
	case t.Text != nil:
		return t.Text(err), true
	}
	if words := ownWords(err); words != "" {
		return words, true
	}
	return text, true
}

// ownWords are those of the server about a request that it has rejected, if the model
// can act on them: without what the SDK puts before them. Else they are "".
func ownWords(err error) string {
	var call *toolhealth.ToolError
	if !errors.As(err, &call) || call.Reason != toolhealth.StopNonRetryable {
		return ""
	}
	said := saidBy(call.Cause())
	if v := call.Verdict; said == nil || v.Outcome != toolhealth.OutcomeRejected {
		return ""
	}
	text, _ := toolhealth.ModelText(toolhealth.WithVerdict(errors.New(said.Message), call.Verdict))
	return text
}

// codeOfTransport is the code under which the SDK hands up what its transport says.
const codeOfTransport = -32005

// saidBy returns the error that the server has answered with; nil if there is none.
func saidBy(err error) *jsonrpc.Error {
	if said, ok := errors.AsType[*jsonrpc.Error](err); ok && said.Code != codeOfTransport {
		return said
	}
	return nil
}

// hard is the error that ends the run.
func hard(err error) error {
	var call *toolhealth.ToolError
	switch {
	case !errors.As(err, &call):
		return err
	case call.Canceled != nil:
		return call.Canceled
	}
	return call.Cause()
}

// failed is the result in the place of an answer.
func failed(text string, err error) *mcp.CallToolResult {
	res := &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}
	if m, ok := err.(json.Marshaler); ok { // a *ToolError or a *Refusal
		res.Meta = mcp.Meta{MetaKey: m}
	}
	return res
}
