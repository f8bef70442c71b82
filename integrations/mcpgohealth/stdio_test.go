//go:build linux

package mcpgohealth_test

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// TestSession_DeadChildCostsThreeCalls kills the server of 40 tools.
func TestSession_DeadChildCostsThreeCalls(t *testing.T) {
	p := newProgram(t)
	w := newWorld(t, func(s *toolhealth.Settings) {
		s.GroupBreaker = toolhealth.DefaultBreakerConfig()
		s.GroupBreaker.RecoveryDuration = 500 * time.Millisecond
	})
	s := w.dial(p.connect)
	tools, names := make([]string, 40), make([]string, 40)
	for i := range tools {
		tools[i] = "t" + strconv.Itoa(i)
		names[i] = "srv/" + tools[i]
		assert.Equal(t, "hello", call(t, s, tools[i]))
	}
	p.break_()
	require.NoError(t, process(t, s).Kill())

	refused := 0
	for _, tool := range tools {
		if strings.HasPrefix(call(t, s, tool), "tool temporarily unavailable") && w.health(tool).Refused == 1 {
			refused++
		}
	}
	assert.Equal(t, 37, refused)
	g := w.group()
	assert.Equal(t, 3, g.ConsecutiveFailures)
	assert.Equal(t, toolhealth.StateOpen, g.State)
	assert.Equal(t, toolhealth.KindConnection, g.LastFailure)
	_, out := w.guard.Offer(names)
	assert.Len(t, out, 40)

	p.mend()
	soon(t, func() bool { return w.group().Available })
	for _, tool := range tools {
		assert.Equal(t, "hello", call(t, s, tool))
		assert.Zero(t, w.health(tool).ConsecutiveFailures, "no tool has a streak")
	}
	assert.Equal(t, toolhealth.StateClosed, w.group().State)
	_, out = w.guard.Offer(names)
	assert.Empty(t, out)
}

// TestSession_ChildThatDiedIdleCostsNothing has tools that must not be repeated.
func TestSession_ChildThatDiedIdleCostsNothing(t *testing.T) {
	w := newWorld(t, func(s *toolhealth.Settings) { s.Policy.SideEffects = true })
	s := w.dial(newProgram(t).connect)
	old := process(t, s)
	require.NoError(t, old.Kill())
	soon(t, func() bool { return stateOf(old) == "Z" })
	time.Sleep(300 * time.Millisecond) // until the transport has read the end
	assert.Equal(t, "hello", call(t, s, "t1"))
	assert.EqualValues(t, 0, w.health("t1").Failures)
}

func TestSession_ExitingChildIsReplaced(t *testing.T) {
	w := newWorld(t, nil)
	s := w.dial(newProgram(t).connect)
	old := process(t, s).Pid
	assert.Equal(t, "tool failed: the tool cannot be reached", call(t, s, "exit"))
	assert.Equal(t, toolhealth.KindConnection, w.last().Kind)
	assert.Equal(t, 1, w.group().ConsecutiveFailures)
	assert.NotEqual(t, old, process(t, s).Pid)
	assert.Zero(t, w.group().ConsecutiveFailures)
}

// TestSession_StoppedChildIsDropped writes more than a pipe holds to a child that does not
// read.
func TestSession_StoppedChildIsDropped(t *testing.T) {
	w := newWorld(t, func(s *toolhealth.Settings) {
		s.Policy.Timeout, s.Policy.Detach = 200*time.Millisecond, true
		s.Breaker.RecoveryDuration = 50 * time.Millisecond
		s.GroupBreaker = s.Breaker
	})
	s := w.dial(newProgram(t).connect)
	child := process(t, s)
	stop(t, child)

	began := time.Now()
	r, err := s.CallTool(t.Context(), request("t1", map[string]any{"text": strings.Repeat("x", 1<<20)}))
	took := time.Since(began)
	require.NoError(t, err)
	assert.Equal(t, "tool failed: no answer in time", text(r))
	assert.Less(t, took, 200*time.Millisecond+grace, "it does not wait until the child is killed")
	h := w.health("t1")
	assert.EqualValues(t, 1, h.ByKind[toolhealth.KindTimeout])
	assert.EqualValues(t, 1, h.Guard.Abandoned)

	soon(t, func() bool { return w.health("t1").Guard.Abandoned == 0 })
	soon(t, func() bool { return call(t, s, "t1") == "hello" }) // which may be before the new child has started
	assert.NotEqual(t, child.Pid, process(t, s).Pid)
}

// TestSession_ProbeDialsAnew has a child that reads no more, and whose pipe has room. The
// new one takes longer to start than a call may take: it is there for a later probe.
func TestSession_ProbeDialsAnew(t *testing.T) {
	w := newWorld(t, func(s *toolhealth.Settings) {
		s.Policy.Timeout = 100 * time.Millisecond
		s.Breaker.RecoveryDuration = 50 * time.Millisecond
		s.GroupBreaker = s.Breaker
	})
	s := w.dial(newProgram(t).connect)
	stop(t, process(t, s))
	for range 3 {
		call(t, s, "t1")
	}
	assert.Equal(t, toolhealth.StateOpen, w.health("t1").State)
	soon(t, func() bool { return call(t, s, "t1") == "hello" })
	assert.Equal(t, toolhealth.StateClosed, w.health("t1").State)
}

func TestSession_TimeoutEndsCallInServer(t *testing.T) {
	w := newWorld(t, func(s *toolhealth.Settings) { s.Policy.Timeout = 100 * time.Millisecond })
	s := w.dial(newProgram(t).connect)
	assert.Equal(t, "tool failed: no answer in time", call(t, s, "wait"))
	soon(t, func() bool { return call(t, s, "ended") == "1" })
}

// TestSession_CloseEndsRunningCalls counts nothing against the tool.
func TestSession_CloseEndsRunningCalls(t *testing.T) {
	w := newWorld(t, nil)
	s := w.dial(newProgram(t).connect)
	done := make(chan string)
	go func() {
		r, _ := s.CallTool(t.Context(), request("wait", nil))
		done <- text(r)
	}()
	soon(t, func() bool { return w.health("wait").InFlight == 1 })
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, s.Close())
	<-done
	assert.EqualValues(t, 0, w.health("wait").Failures)
}

// grace is that of a session.
const grace = 500 * time.Millisecond

// stop stops a process and waits until it does not run.
func stop(t *testing.T, p *os.Process) {
	t.Helper()
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	soon(t, func() bool { return stateOf(p) == "T" })
}

// stateOf returns the state of a process, such as Z of one that has ended.
func stateOf(p *os.Process) string {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(p.Pid) + "/stat")
	_, after, _ := strings.Cut(string(stat), ") ")
	state, _, _ := strings.Cut(after, " ")
	return state
}
