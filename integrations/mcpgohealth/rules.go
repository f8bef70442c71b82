package mcpgohealth

import (
	"errors"
	"strings"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"

	"github.com/toolhealth/toolhealth"
)

// Rules returns what the errors of the SDK mean that have neither a code nor a type, for
// [toolhealth.ErrorRules]:
//
//	Settings{Classify: toolhealth.ErrorRules{Own: mcpgohealth.Rules()}.Classify}
//
// [toolhealth.Classify] knows most of them by their texts. Beyond that, the rules know a
// panic that server.WithRecovery has turned into an error, and a server that says it is busy.
func Rules() []toolhealth.Rule {
	failure := func(kind toolhealth.Kind, retry bool) toolhealth.Verdict {
		return toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: kind, Retryable: retry}
	}
	unauthorized := toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindUnauthorized}
	return []toolhealth.Rule{
		recovered(failure(toolhealth.KindPanic, false)),
		is(failure(toolhealth.KindConnection, true), transport.ErrTransportClosed, transport.ErrSessionTerminated),
		is(unauthorized, transport.ErrAuthorizationRequired, transport.ErrOAuthAuthorizationRequired, transport.ErrUnauthorized),
		is(failure(toolhealth.KindRateLimited, true), client.ErrMaxInputRoundTripsExceeded),
	}
}

// is returns a rule for sentinels.
func is(v toolhealth.Verdict, targets ...error) toolhealth.Rule {
	return func(err error) (toolhealth.Verdict, bool) {
		for _, target := range targets {
			if errors.Is(err, target) {
				return v, true
			}
		}
		return toolhealth.Verdict{}, false
	}
}

// recovered returns a rule for the error that server.WithRecovery makes of a panic. It
// counts only in the process of the server: elsewhere the text is what a server says.
func recovered(v toolhealth.Verdict) toolhealth.Rule {
	return func(err error) (toolhealth.Verdict, bool) {
		return v, err != nil && strings.HasPrefix(err.Error(), "panic recovered in ")
	}
}
