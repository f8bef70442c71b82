package otelhealth

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/toolhealth/toolhealth/integrations/otelhealth/internal/shown"
)

// Scope is the name of the instrumentation scope of all that this package tells.
const Scope = "github.com/toolhealth/toolhealth/integrations/otelhealth"

// DefaultMaxTools is how many tools, and how many groups, have series of their own where
// no other number is configured.
const DefaultMaxTools = shown.DefaultMaxTools

const (
	operationKey = attribute.Key("gen_ai.operation.name")
	toolKey      = shown.ToolKey
	groupKey     = shown.GroupKey
	errorKey     = attribute.Key("error.type")

	attemptsKey = attribute.Key("toolhealth.attempts")
	attemptKey  = attribute.Key("toolhealth.attempt")
	servedKey   = attribute.Key("toolhealth.served_by")
	stopKey     = attribute.Key("toolhealth.stop_reason")
	waitKey     = attribute.Key("toolhealth.wait")
	outcomeKey  = attribute.Key("toolhealth.outcome")
	resultKey   = attribute.Key("toolhealth.result")
	reasonKey   = attribute.Key("toolhealth.refusal.reason")
	stateKey    = attribute.Key("toolhealth.breaker.state")
	fromKey     = attribute.Key("toolhealth.transition.from")
	toKey       = attribute.Key("toolhealth.transition.to")
	causeKey    = attribute.Key("toolhealth.transition.cause")

	executeTool = "execute_tool"
)
