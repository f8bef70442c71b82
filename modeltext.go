package toolhealth

import (
	"context"
	"slices"

	"github.com/toolhealth/toolhealth/internal/errfacts"
	"github.com/toolhealth/toolhealth/internal/say"
)

// ModelText returns what to tell the model about the error of a call, of a Guard or of
// a Gate. If ok is false there is nothing to tell: the caller is gone, or a person or a
// policy said no or has yet to say yes (neutral, KindDenied). Then hand the error to
// the runtime as it is, which has to end or to interrupt the run.
//
// A refusal and a failure have a safe text, that of [ToolError] and [Refusal]. A
// rejected request of kind invalid_request, not_found or conflict has the tool's own
// words, because the model can act on them: as one line, without URLs, cut at 500
// characters. A nil error has the text "". An error that is not of this library is
// judged by [Classify] first.
func ModelText(err error) (text string, ok bool) {
	if err == nil {
		return "", true
	}
	var buf [8]error
	nodes, _ := errfacts.Tree(buf[:0], err)
	for _, node := range nodes {
		switch e := node.(type) {
		case *ToolError:
			if e != nil {
				return e.modelText()
			}
		case *Refusal:
			if e != nil {
				return e.Error(), true
			}
		}
	}
	if slices.Contains(nodes, context.Canceled) {
		return "", false
	}
	v := Classify(context.Background(), err)
	return modelText(v, err, "tool failed: "+kindPhrase(v.Kind)+retryText(v.RetryAfter))
}

func (e *ToolError) modelText() (text string, ok bool) {
	pending := func(c Candidate) bool { return c.Verdict.Outcome == OutcomeNeutral && c.Verdict.Kind == KindDenied }
	if e.Reason == StopCanceled || e.Canceled == context.Canceled || slices.ContainsFunc(e.Candidates, pending) {
		return "", false
	}
	switch e.Reason {
	case StopNonRetryable, StopRetryExhausted, StopRetryBudgetExhausted:
		return modelText(e.Verdict, e.Cause(), e.Error())
	}
	return e.Error(), true
}

// modelText returns the tool's own words if the model can act on them, else the safe
// text.
func modelText(v Verdict, err error, safe string) (text string, ok bool) {
	switch {
	case v.Outcome == OutcomeNeutral && v.Kind == KindDenied:
		return "", false
	case v.Outcome == OutcomeRejected && (v.Kind == KindInvalidRequest || v.Kind == KindNotFound || v.Kind == KindConflict):
		if words := say.Line(errorText(err), maxModelText); words != "" {
			return words, true
		}
	}
	return safe, true
}

// maxModelText is how many characters of a tool's own words the model is shown.
const maxModelText = 500

// errorText is the text of an error of foreign code; "" if there is none.
func errorText(err error) (text string) {
	defer func() { _ = recover() }() // then text is ""
	return err.Error()
}
