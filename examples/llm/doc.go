// Package llm shows toolhealth around the SDKs of three providers: openai-go,
// anthropic-sdk-go and genai. It is not for import: each function is one to copy.
//
// A provider is a tool like any other. Its client sends each request once, because the
// [toolhealth.Guard] repeats it; its calls go through [toolhealth.Wrap]; and its streams are
// judged where they end, by [toolhealth.Begin]. In an agent loop that an SDK runs, a tool
// that fails or is refused gives the model a short text, and the loop goes on.
//
// openai.go, anthropic.go and genai.go say the same for one SDK each.
package llm

import (
	"errors"

	"github.com/toolhealth/toolhealth"
)

// errLeft is what a Flight is told when the reader of its stream leaves early, which says
// nothing about the provider.
var errLeft = toolhealth.WithVerdict(errors.New("the reader has left"),
	toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindCanceled})
