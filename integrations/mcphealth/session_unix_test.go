//go:build unix

package mcphealth_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/mcphealth"
)

// names are those of the 40 tools of a child.
func names(s *mcphealth.Session) []string {
	all := make([]string, 40)
	for i := range all {
		all[i] = s.Name(fmt.Sprintf("t%d", i))
	}
	return all
}

func TestSession_DeadChildBehindManyTools(t *testing.T) {
	const cooldown = 300 * time.Millisecond
	w := newWorld(t, func(s *toolhealth.Settings) { s.GroupBreaker.RecoveryDuration = cooldown })
	c := newChildren(t)
	s := w.open(w.client(), c.transport)
	list(t, s)
	ask(t, s, "t0")

	c.setMode("exit")
	require.NoError(t, c.last().Kill())
	soon(t, func() bool { return syscall.Kill(c.last().Pid, 0) != nil }) // gone, and nothing is left of it
	for i := range 40 {
		text, isError := ask(t, s, fmt.Sprintf("t%d", i))
		require.True(t, isError)
		if i < 2 {
			assert.Equal(t, "tool failed: the tool cannot be reached", text)
		} else { // the third failure has opened the breaker
			assert.Contains(t, text, "tool temporarily unavailable: circuit breaker open")
		}
	}
	var failures, refusals uint64
	for _, h := range w.registry.All() {
		failures, refusals = failures+h.Failures, refusals+h.Refused
	}
	assert.EqualValues(t, 3, failures)
	assert.EqualValues(t, 37, refusals)
	assert.Equal(t, 3, w.group().ConsecutiveFailures)
	assert.Equal(t, 4, c.started(), "one child, and three that left at once")
	assert.Equal(t, toolhealth.StateOpen, w.group().State)
	for i := 3; i < 40; i++ {
		assert.Zero(t, w.health(fmt.Sprintf("t%d", i)).ConsecutiveFailures)
	}
	_, out := w.guard.Offer(names(s))
	assert.Len(t, out, 40)

	c.setMode("serve")
	soon(t, func() bool { _, out := w.guard.Offer(names(s)); return len(out) == 0 })
	for i := range 40 {
		text, isError := ask(t, s, fmt.Sprintf("t%d", i))
		assert.False(t, isError, text)
	}
	assert.Equal(t, toolhealth.StateClosed, w.group().State)
	for i := range 40 {
		assert.Zero(t, w.health(fmt.Sprintf("t%d", i)).ConsecutiveFailures)
	}
	assert.Equal(t, 5, c.started())
}

func TestSession_DropsChildThatDoesNotRead(t *testing.T) {
	for _, detach := range []bool{false, true} {
		t.Run(fmt.Sprintf("Detach %v", detach), func(t *testing.T) {
			limit := slow(200 * time.Millisecond)
			w := newWorld(t, func(s *toolhealth.Settings) { s.Policy.Timeout, s.Policy.Detach = limit, detach })
			c := newChildren(t)
			s := w.open(w.client(), c.transport)
			list(t, s)
			require.NoError(t, c.last().Signal(syscall.SIGSTOP))

			begun := time.Now()
			res, err := s.CallTool(context.Background(), &mcp.CallToolParams{
				Name: "t0", Arguments: map[string]any{"x": strings.Repeat("y", 1<<20)}, // more than a pipe holds
			})
			took := time.Since(begun)
			require.NoError(t, err)
			assert.Contains(t, textOf(t, res), "no answer in time")
			if detach {
				assert.Less(t, took, limit+100*time.Millisecond+noise)
				assert.EqualValues(t, 1, w.health("t0").Guard.Abandoned)
			}
			assert.Less(t, took, 5*time.Second)
			assert.EqualValues(t, 1, w.health("t0").ByKind[toolhealth.KindTimeout])
			soon(t, func() bool { return w.health("t0").Guard.Abandoned == 0 })

			list(t, s) // a process may take longer to start than a call may
			text, isError := ask(t, s, "t0")
			assert.False(t, isError, text)
			assert.Equal(t, 2, c.started())
		})
	}
}

// noise is how late a busy machine may be.
const noise = 400 * time.Millisecond

func TestSession_ConnectsAnewBeforeProbe(t *testing.T) {
	w := newWorld(t, func(s *toolhealth.Settings) {
		s.Policy.Timeout = slow(200 * time.Millisecond)
		s.Breaker.RecoveryDuration = 200 * time.Millisecond
	})
	c := newChildren(t)
	s := w.open(w.client(), c.transport)
	list(t, s)
	require.NoError(t, c.last().Signal(syscall.SIGSTOP)) // it takes small calls, and answers none
	for range 3 {
		ask(t, s, "t0")
	}
	assert.EqualValues(t, 3, w.health("t0").ByKind[toolhealth.KindTimeout])
	assert.Equal(t, 1, c.started())
	assert.Equal(t, toolhealth.StateOpen, w.health("t0").State)
	soon(t, func() bool { return w.registry.Available("srv/t0") })
	soon(t, func() bool { // a process may take longer to start than a probe: then it is there for the next one
		_, isError := ask(t, s, "t0")
		return !isError
	})
	assert.Equal(t, toolhealth.StateClosed, w.health("t0").State)
	assert.Equal(t, 2, c.started())
}
