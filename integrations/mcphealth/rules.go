package mcphealth

import (
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhealth/toolhealth"
)

// Rules returns what there is to know of the SDK's errors beyond what
// [toolhealth.Classify] knows, for ErrorRules.Own: a server that does not know the session
// has not taken up the call, so that it is safe to repeat. [Tools.Settings] puts them in
// where Classify is not set.
func Rules() []toolhealth.Rule {
	return []toolhealth.Rule{func(err error) (toolhealth.Verdict, bool) {
		return unreached, errors.Is(err, mcp.ErrSessionMissing)
	}}
}

// unreached is the verdict on a call that found no session.
var unreached = toolhealth.Verdict{
	Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection, Retryable: true, NotSent: true,
}

// lost reports whether the session ends with this error: the SDK has closed it, or the
// server does not know it any more.
func lost(err error) bool {
	if errors.Is(err, mcp.ErrConnectionClosed) || errors.Is(err, mcp.ErrSessionMissing) {
		return true
	}
	said := saidBy(err)
	return said != nil && cannotBeReached(said)
}

// unsent reports whether the call surely did not reach a tool.
func unsent(err error) bool {
	return errors.Is(err, mcp.ErrSessionMissing) || toolhealth.Classify(context.Background(), err).NotSent
}
