package toolhealth

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/toolhealth/toolhealth/internal/errfacts"
	"github.com/toolhealth/toolhealth/internal/say"
)

// Candidate is a tool that a call tried or wanted to try.
type Candidate struct {
	Tool       string
	Reason     StopReason
	Kind       Kind    // that of Verdict
	Verdict    Verdict // what its last attempt said; that of the refusal if it did not run
	RetryAfter time.Duration
	Err        error // the last error of the tool function, or why it did not run
}

// ToolError is the error of a guarded call. Its text is safe to show to the model. The
// errors of the tools are not in it, but errors.Is and errors.As reach them: the
// primary's first, then those of its substitutes.
//
// The tool's own answer, which the model may need after a rejected request, is the
// result that came beside the error if CheckResult found it, or else the text of the
// error of the SDK; see [ModelText].
type ToolError struct {
	Tool string // the tool that was asked for
	// Reason is why the call ended: the primary's reason, unless a substitute may have
	// acted, or the caller gave up or ran out of time.
	Reason     StopReason
	Kind       Kind          // that of Verdict; KindRefused if no tool ran
	Verdict    Verdict       // of the candidate whose reason Reason is
	Attempts   int           // runs of tool functions in all
	RetryAfter time.Duration // the smallest known wait of all candidates; zero means none
	Candidates []Candidate   // the primary and the substitutes that were tried, in order
	Canceled   error         // the caller's ctx.Err() if that ended the call, else nil
}

// Error returns the text for the model.
func (e *ToolError) Error() string {
	switch e.Reason {
	case StopCircuitOpen, StopProbeInFlight, StopRateLimited, StopIsolated, StopBusy:
		return refusals[e.Reason].Error() + retryText(hint(e.Reason, e.RetryAfter))
	case StopUnknownTool:
		return ErrUnknownTool.Error()
	case StopCanceled:
		return "tool call canceled"
	case StopOutcomeUnknown:
		return "tool outcome unknown: the action may have been carried out, check before repeating it"
	}
	text := "tool failed: "
	if e.Attempts > 1 {
		text = "tool failed after " + strconv.Itoa(e.Attempts) + " attempts: "
	}
	return text + kindPhrase(e.Kind) + retryText(e.RetryAfter)
}

// Details returns one line for logs: the tool, the reason, the kind, the attempts and
// the error text of every candidate, which Error omits. It may hold host names and
// secrets, and is not for the model.
func (e *ToolError) Details() string {
	text := fmt.Sprintf("%q: %v, kind %v, %d attempts", e.Tool, e.Reason, e.Kind, e.Attempts)
	for _, c := range e.Candidates {
		text += fmt.Sprintf("; %q: %v", c.Tool, c.Reason)
		if c.Err != nil {
			text += fmt.Sprintf(": %q", errText(c.Err))
		}
	}
	return text
}

// decisive returns the candidate whose reason is that of the call: the primary, unless a
// later one was canceled, ran out of time or may have acted. It is nil without candidates.
func (e *ToolError) decisive() (d *Candidate) {
	for i := range e.Candidates {
		f := &e.Candidates[i]
		if d == nil {
			d = f
		}
		switch f.Reason {
		case StopCanceled, StopTimeout, StopOutcomeUnknown:
			d = f
		}
	}
	return d
}

// Cause returns the error behind Reason: what the tool function returned last, the
// *Refusal, or the caller's ctx.Err() if the call was canceled before a tool had
// failed. It is the tool's own, so its text is for logs; see [ModelText].
func (e *ToolError) Cause() error {
	if d := e.decisive(); d != nil && d.Err != nil {
		return d.Err
	}
	return e.Canceled
}

// errText returns the text of an error whose method may panic, as that of a nil pointer
// does.
func errText(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T without a text", err)
		}
	}()
	return err.Error()
}

// Is reports whether the target is the sentinel of the error's reason.
func (e *ToolError) Is(target error) bool {
	return e.Reason >= StopCircuitOpen && e.Reason <= StopUnknownTool &&
		(target == refusals[e.Reason] || target == ErrRefused)
}

// Unwrap returns the errors of the candidates, and the caller's ctx.Err() if
// that ended the call.
func (e *ToolError) Unwrap() []error {
	errs := make([]error, 0, len(e.Candidates)+1)
	for _, c := range e.Candidates {
		if c.Err != nil {
			errs = append(errs, c.Err)
		}
	}
	if e.Canceled != nil {
		errs = append(errs, e.Canceled)
	}
	return errs
}

func (e *ToolError) ran() bool { return e != nil && e.Attempts > 0 }

// refused is the word of the refusals inside e.
func (e *ToolError) refused() (Verdict, bool) { return Verdict{}, false }

// MarshalJSON returns one small object for a tool result: reason, kind,
// retry_after_seconds (whole seconds, rounded up; left out if there is none),
// attempts and text.
func (e *ToolError) MarshalJSON() ([]byte, error) {
	return json.Marshal(modelJSON{e.Reason, e.Kind, wholeSeconds(hint(e.Reason, e.RetryAfter)), e.Attempts, e.Error()})
}

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
		if words := ownWords(err); words != "" {
			return words, true
		}
	}
	return safe, true
}

// maxModelText is how many characters of a tool's own words the model is shown.
const maxModelText = 500

// ownWords returns the text of a tool's error for the model; "" if there is none.
func ownWords(err error) (words string) {
	defer func() { _ = recover() }() // then words is ""
	return say.Line(err.Error(), maxModelText)
}
