package guard_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestGuard_WrapReportsOptionOfWrongType(t *testing.T) {
	ran := false
	tool := func(context.Context, string) (int, error) { ran = true; return 1, nil }
	for name, option := range map[string]toolhealth.WrapOption{
		"Substitute with another input":  toolhealth.Substitute("b", func(context.Context, int) (int, error) { return 0, nil }),
		"Substitute with another output": toolhealth.Substitute("b", func(context.Context, string) (string, error) { return "", nil }),
		"option for another output":      toolhealth.WithCallOptions(toolhealth.CheckResult(func(string) error { return nil })),
	} {
		r := patient(t)
		g := guardWithBackups(t, r, nil, "b")
		_, err := toolhealth.Wrap(g, "a", tool, option)(t.Context(), "x")
		e := toolError(t, err)
		assert.Equal(t, toolhealth.KindNotDispatched, e.Kind, name)
		assert.Equal(t, toolhealth.StopNonRetryable, e.Reason, name)
		require.Len(t, e.Candidates, 1)
		assert.ErrorContains(t, e.Candidates[0].Err, "must be a", name)
		assert.False(t, ran, name)
		assert.Zero(t, r.Len(), name)
	}
}

func TestGuard_WrapReportsWrongAdapterWithoutRouter(t *testing.T) {
	fn := func(context.Context, int) (string, error) { return "a", nil }
	g := guardOn(t, toolhealth.NewRegistry(), nil)
	wrong := toolhealth.Substitute("b", func(context.Context, string) (string, error) { return "b", nil })
	_, err := toolhealth.Wrap(g, "a", fn, wrong)(t.Context(), 1)
	assert.ErrorContains(t, toolError(t, err).Candidates[0].Err, `Substitute("b") is a func(context.Context, string)`)
}

func TestGuard_AdapterForPrimaryDoesNotReplaceIt(t *testing.T) {
	fn := func(context.Context, int) (string, error) { return "the tool", nil }
	other := func(context.Context, int) (string, error) { return "another", nil }
	out, err := toolhealth.Wrap(guardOn(t, toolhealth.NewRegistry(), nil), "a", fn, toolhealth.Substitute("a", other))(t.Context(), 1)
	require.NoError(t, err)
	assert.Equal(t, "the tool", out)
}
