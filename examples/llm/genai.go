package llm

import (
	"context"
	"io"
	"iter"
	"net/http"

	"google.golang.org/genai"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/httphealth"
)

// GenAIClient returns a client that sends each request once, and notes what the answers
// say. It sets both in config, which it changes.
func GenAIClient(ctx context.Context, config *genai.ClientConfig) (*genai.Client, error) {
	config.HTTPClient = &http.Client{Transport: httphealth.Witness(nil)}
	config.HTTPOptions.RetryOptions = nil // one in the options of a request has to be nil, too
	return genai.NewClient(ctx, config)
}

// GenAIRequest is what [genai.Models.GenerateContent] takes.
type GenAIRequest struct {
	Model    string
	Contents []*genai.Content
	Config   *genai.GenerateContentConfig
}

// GenAIChat returns the content generation of the client as a guarded tool.
func GenAIChat(guard *toolhealth.Guard, client *genai.Client) *toolhealth.Tool[GenAIRequest, *genai.GenerateContentResponse] {
	return toolhealth.Wrap(guard, "genai", func(ctx context.Context, in GenAIRequest) (*genai.GenerateContentResponse, error) {
		return client.Models.GenerateContent(ctx, in.Model, in.Contents, in.Config)
	})
}

// GenAIStream yields the text of generated content piece by piece, and at most one error,
// at the end. A stream that breaks off, or ends without a reason to, is a failure; one that
// the reader leaves is neutral.
func GenAIStream(ctx context.Context, guard *toolhealth.Guard, client *genai.Client, in GenAIRequest) iter.Seq2[string, error] {
	open := toolhealth.Wrap(guard, "genai", func(ctx context.Context, in GenAIRequest) (*genaiStream, error) {
		return openGenAI(client.Models.GenerateContentStream(ctx, in.Model, in.Contents, in.Config))
	})
	return func(yield func(string, error) bool) {
		stream, flight, err := open.Begin(ctx, in)
		if err != nil {
			yield("", err)
			return
		}
		defer stream.stop()
		defer flight.Done(errLeft) // after another Done it does nothing
		complete := false
		for piece, ok := stream.first, true; ok && err == nil; piece, err, ok = stream.next() {
			flight.KeepAlive()
			complete = complete || hasEnded(piece)
			if text := piece.Text(); text != "" && !yield(text, nil) {
				return
			}
		}
		if err == nil && !complete {
			err = io.ErrUnexpectedEOF // the SDK takes any end for a good one
		}
		if err := flight.Done(err); err != nil {
			yield("", err)
		}
	}
}

// genaiStream is a stream that has begun.
type genaiStream struct {
	first *genai.GenerateContentResponse
	next  func() (*genai.GenerateContentResponse, error, bool)
	stop  func()
}

// openGenAI waits for the first piece: the SDK sends the request no sooner than it is
// asked for that.
func openGenAI(pieces iter.Seq2[*genai.GenerateContentResponse, error]) (*genaiStream, error) {
	next, stop := iter.Pull2(pieces)
	first, err, ok := next()
	if err == nil && !ok {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		stop()
		return nil, err
	}
	return &genaiStream{first, next, stop}, nil
}

// hasEnded reports whether the piece says why there are no more.
func hasEnded(piece *genai.GenerateContentResponse) bool {
	for _, candidate := range piece.Candidates {
		if candidate.FinishReason != "" {
			return true
		}
	}
	return piece.PromptFeedback != nil
}

// GenAIAnswer returns what the model reads of a guarded call that it has asked for, from
// the call's result and error. Its error is err where there is nothing to tell; then the
// run has to end.
func GenAIAnswer(call *genai.FunctionCall, out any, err error) (*genai.Part, error) {
	text, ok := toolhealth.ModelText(err)
	if !ok {
		return nil, err
	}
	response := map[string]any{"output": out}
	if err != nil {
		response = map[string]any{"error": text}
	}
	part := genai.NewPartFromFunctionResponse(call.Name, response)
	part.FunctionResponse.ID = call.ID
	return part, nil
}
