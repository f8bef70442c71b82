package otelhealth

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/otelhealth/internal/shown"
)

// result is how a call ended.
type result struct {
	outcome   toolhealth.Outcome
	reason    toolhealth.StopReason
	attempts  int // -1 if it is not known
	served    string
	ran       bool   // a tool has run, and no later event has called it off
	errorType string // "" if it is no error
	text      string // of the status of an error
}

// resultOf reads the event of a call that has ended.
func resultOf(e toolhealth.Event) result {
	r := resultOfError(context.Background(), e.Err)
	r.outcome, r.reason, r.attempts = e.Verdict.Outcome, e.Reason, e.Attempt
	r.ran = r.ran && e.Attempt > 0
	if e.Err == nil {
		r.served = e.Served
	}
	return r
}

// resultOfError reads the error of a call of which no guard has told.
func resultOfError(ctx context.Context, err error) result {
	if err == nil {
		return result{attempts: -1, ran: true}
	}
	if e, ok := errors.AsType[*toolhealth.ToolError](err); ok && e != nil {
		r := result{outcome: e.Verdict.Outcome, reason: e.Reason, attempts: e.Attempts}
		if blameless(e.Verdict) || e.Reason == toolhealth.StopCanceled {
			return r
		}
		r.ran, r.errorType, r.text = e.Attempts > 0, e.Verdict.Kind.String(), e.Error()
		if !r.ran && e.Verdict.Kind == toolhealth.KindRefused {
			r.errorType = e.Reason.Detail()
		}
		return r
	}
	if e, ok := errors.AsType[*toolhealth.Refusal](err); ok && e != nil {
		return result{outcome: toolhealth.OutcomeNeutral, reason: e.Reason, errorType: e.Reason.Detail(), text: e.Error()}
	}
	v := toolhealth.Classify(ctx, err)
	r := result{outcome: v.Outcome, attempts: -1, ran: !blameless(v)}
	if r.ran && v.Outcome != toolhealth.OutcomeSuccess {
		r.errorType = v.Kind.String()
	}
	return r
}

// blameless reports whether a caller that is gone, or a person or a policy that said no,
// has ended a call.
func blameless(v toolhealth.Verdict) bool {
	return v.Outcome == toolhealth.OutcomeNeutral && (v.Kind == toolhealth.KindCanceled || v.Kind == toolhealth.KindDenied)
}

// annotate puts the result into the span of the call of a tool.
func (r result) annotate(span trace.Span, tool string) {
	set := []attribute.KeyValue{outcomeKey.String(r.outcome.String())}
	if r.attempts >= 0 {
		set = append(set, attemptsKey.Int(r.attempts))
	}
	if r.served != "" && r.served != tool {
		set = append(set, servedKey.String(shown.Clean(r.served)))
	}
	if r.reason != toolhealth.StopNone {
		set = append(set, stopKey.String(r.reason.String()))
	}
	if r.errorType != "" {
		set = append(set, errorKey.String(r.errorType))
	}
	span.SetAttributes(set...)
}

// end puts the result into a span of this package's, and ends it.
func (r result) end(span trace.Span, tool string) {
	r.annotate(span, tool)
	if r.errorType != "" {
		span.SetStatus(codes.Error, r.text)
	}
	span.End()
}
