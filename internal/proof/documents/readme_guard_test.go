package documents_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// mcpResult is what a call of an MCP tool returns.
type mcpResult struct {
	Content string
	IsError bool
}

// flaggedResult is for CheckResult: the call worked, the tool says that it did not.
func flaggedResult(r *mcpResult) error {
	if r == nil || !r.IsError {
		return nil
	}
	return toolhealth.WithVerdict(errors.New("the result is marked as an error"),
		toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest})
}

// A guard never changes: for other substitutes make another guard on the same registry.
func TestREADME_AnotherGuardKeepsWhatIsKnown(t *testing.T) {
	r := toolhealth.NewRegistry()
	newGuard := func(substitutes map[string][]string) (*toolhealth.Guard, error) {
		router, err := toolhealth.NewHealthRouter(substitutes)
		if err != nil {
			return nil, err
		}
		return toolhealth.NewGuard(&toolhealth.Gate{Registry: r, Router: router}, toolhealth.GuardConfig{})
	}
	guard, err := newGuard(nil)
	require.NoError(t, err)
	ctx := context.Background()
	tool := func(_ context.Context, tool string) (*mcpResult, error) { return &mcpResult{Content: tool}, nil }
	_, err = toolhealth.Call(ctx, guard, "search", tool)
	require.NoError(t, err)
	require.True(t, r.Isolate("search", ""))
	_, err = toolhealth.Call(ctx, guard, "search", tool)
	require.ErrorIs(t, err, toolhealth.ErrIsolated)
	guard, err = newGuard(map[string][]string{"search": {"archive"}})
	require.NoError(t, err)
	out, err := toolhealth.Call(ctx, guard, "search", tool, toolhealth.CheckResult(flaggedResult))
	require.NoError(t, err)
	assert.Equal(t, "archive", out.Content)
	_, err = toolhealth.Call(ctx, guard, "search", func(context.Context, string) (*mcpResult, error) {
		return &mcpResult{IsError: true}, nil
	}, toolhealth.CheckResult(flaggedResult))
	require.Error(t, err)
	h, ok := r.Health("archive")
	require.True(t, ok)
	assert.Equal(t, uint64(1), h.Rejected)
	_, err = newGuard(map[string][]string{"search": {"search"}})
	assert.Error(t, err)
}

func TestREADME_FlaggedResultIsRejectedAtEveryLevel(t *testing.T) {
	ctx := t.Context()
	registry := toolhealth.NewRegistry()
	gate := &toolhealth.Gate{Registry: registry}
	guard, err := toolhealth.NewGuard(gate, toolhealth.GuardConfig{})
	require.NoError(t, err)
	result, took := &mcpResult{Content: "no such page", IsError: true}, time.Second
	runMCP := func(context.Context, string) (*mcpResult, error) { return result, nil }
	rejected := func() uint64 {
		h, _ := registry.Health("search")
		return h.Rejected
	}

	call := toolhealth.Wrap(guard, "search", runMCP).CheckResult(flaggedResult).Call
	out, err := call(ctx, "go")
	require.Error(t, err)
	assert.Equal(t, result, out, "what to show to the model")
	assert.NotContains(t, err.Error(), "no such page")
	assert.Equal(t, uint64(1), rejected())

	permit, err := gate.Allow(ctx, "search")
	require.NoError(t, err)
	permit.Done(ctx, flaggedResult(result))
	assert.Equal(t, uint64(2), rejected())

	registry.Record("search", toolhealth.Classify(ctx, flaggedResult(result)), took)
	assert.Equal(t, uint64(3), rejected())
}
