package classify_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/toolhealth/toolhealth"
)

// Errors of a failing tool come in great numbers, so classifying them must be cheap.
func TestClassify_CommonErrorsDoNotAllocate(t *testing.T) {
	for name, err := range commonErrors() {
		toolhealth.Classify(context.Background(), err)
		assert.Zero(t, testing.AllocsPerRun(100, func() { toolhealth.Classify(context.Background(), err) }), name)
	}
}

func commonErrors() map[string]error {
	return map[string]error{
		"plain":         errors.New("something went wrong"),
		"wrapped-plain": fmt.Errorf("search: %w", errors.New("something went wrong")),
		"refusal":       &toolhealth.Refusal{Tool: "search", Reason: toolhealth.StopCircuitOpen},
		"status-503":    fmt.Errorf("search: %w", &openaiLike{StatusCode: 503}),
		"dial-refused":  &url.Error{Op: "Get", URL: "http://tool.invalid/", Err: dialError(syscall.ECONNREFUSED)},
		"timeout":       &url.Error{Op: "Get", URL: "http://tool.invalid/", Err: context.DeadlineExceeded},
	}
}

func BenchmarkClassify(b *testing.B) {
	for name, err := range commonErrors() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				toolhealth.Classify(context.Background(), err)
			}
		})
	}
}
