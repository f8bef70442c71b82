package watch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

const (
	closed = toolhealth.StateClosed
	open   = toolhealth.StateOpen
	half   = toolhealth.StateHalfOpen
)

// pen writes a diary, a second between two events.
type pen struct {
	*testing.T
	diary
	now time.Time
}

func newPen(t *testing.T) *pen {
	return &pen{T: t, diary: diary{tools: make(map[owner]*chapter)}, now: time.Unix(1e9, 0)}
}

// write hears of a transition, and checks that the numbers still add up.
func (p *pen) write(of owner, from, to toolhealth.State, cause toolhealth.Cause) {
	p.Helper()
	p.now = p.now.Add(time.Second)
	p.hear(toolhealth.Transition{Tool: of.tool, Group: of.group, From: from, To: to, Cause: cause, When: p.now})
	p.check()
}

func (p *pen) check() {
	p.Helper()
	kept := 0
	for _, c := range p.tools {
		kept += len(c.events)
	}
	require.Equal(p, kept, p.kept)
}

// isolate writes n events of an operator.
func (p *pen) isolate(of owner, n int) {
	p.Helper()
	for range n {
		p.write(of, closed, open, toolhealth.CauseIsolated)
	}
}

func TestDiary_KeepsNewest(t *testing.T) {
	p := newPen(t)
	a := owner{tool: "a"}
	for n := 1; n <= 520; n++ {
		p.isolate(a, 1)
		c := p.tools[a]
		require.Len(t, p.all, min(n, perWatcher))
		require.Equal(t, p.now, p.all[len(p.all)-1].When)
		require.Equal(t, p.now.Add(-time.Duration(min(n, perWatcher)-1)*time.Second), p.all[0].When)
		require.Len(t, c.events, min(n, perTool))
		if n <= perTool {
			require.Zero(t, c.from, "all are known")
		} else {
			require.Equal(t, c.events[0].First, c.from)
		}
	}
	assert.EqualValues(t, 520, p.number())
	events, heard := p.read()
	assert.EqualValues(t, 520, heard)
	assert.Len(t, events, 500)
}

func TestDiary_ManyEventsLeaveLessRoom(t *testing.T) {
	p := newPen(t)
	a := owner{tool: "a"}
	p.isolate(a, 60)
	more := &chapter{events: make([]*Event, manyEvents-61)}
	p.tools[owner{tool: "more"}], p.kept = more, manyEvents-1
	p.isolate(a, 1)
	assert.Len(t, p.tools[a].events, 61)
	p.isolate(a, 1)
	assert.Len(t, p.tools[a].events, fewPerTool, "there are many by now")
}

func TestDiary_ToolsAreBounded(t *testing.T) {
	p := newPen(t)
	for i := range maxTools + 2 {
		p.hear(toolhealth.Transition{Tool: fmt.Sprint(i), When: p.now})
	}
	assert.Len(t, p.tools, maxTools)
	p.check()
	events, _ := p.of(owner{tool: fmt.Sprint(maxTools)})
	assert.Empty(t, events)
}

// What came of a probe takes the place of the event that let it through, wherever that
// stands.
func TestDiary_ProbesAreFolded(t *testing.T) {
	p := newPen(t)
	a, b := owner{tool: "a"}, owner{tool: "b"}
	p.write(a, open, half, toolhealth.CauseProbeAdmitted) // the first that is heard of
	p.isolate(b, 1)
	p.write(a, half, open, toolhealth.CauseProbeFailed)
	require.Len(t, p.all, 2)
	assert.Equal(t, "b", p.all[0].Tool)
	assert.Equal(t, 1, p.all[1].Count)
	first := p.all[1].First
	p.isolate(b, 1)
	p.write(a, open, half, toolhealth.CauseProbeAdmitted)
	p.write(a, half, open, toolhealth.CauseLeaseExpired)
	require.Len(t, p.all, 3)
	assert.Equal(t, []string{"b", "b", "a"}, []string{p.all[0].Tool, p.all[1].Tool, p.all[2].Tool})
	assert.Equal(t, 2, p.all[2].Count)
	assert.Equal(t, first, p.all[2].First)
	p.write(a, open, half, toolhealth.CauseProbeAdmitted)
	p.write(a, half, open, toolhealth.CauseIsolated) // that is no probe in vain
	assert.Equal(t, 1, p.all[3].Count)
	assert.Len(t, p.tools[a].events, 2)
}

// An event that the history has lost already is dropped from its tool all the same.
func TestDiary_FoldsWhatHistoryHasLost(t *testing.T) {
	p := newPen(t)
	a, b := owner{tool: "a"}, owner{tool: "b"}
	p.write(a, open, half, toolhealth.CauseProbeAdmitted)
	p.isolate(b, perWatcher)
	p.write(a, half, closed, toolhealth.CauseProbeSucceeded)
	assert.Len(t, p.tools[a].events, 1)
	assert.Len(t, p.all, perWatcher)
}

func TestDiary_ForgetsWhatEndedAnHourAgo(t *testing.T) {
	p := newPen(t)
	a, g := owner{tool: "a"}, owner{group: "g"}
	known := map[string]*series{"a": new(series), "b": new(series)}
	groups := []toolhealth.GroupHealth{{Group: "e"}, {Group: "g"}, {Group: "h"}}
	p.write(a, closed, open, toolhealth.CauseFailureThreshold)
	p.write(a, open, closed, toolhealth.CauseReset)
	ended := p.now
	p.write(a, closed, open, toolhealth.CauseFailureThreshold)
	p.write(g, open, closed, toolhealth.CauseReset)
	p.isolate(owner{tool: "b"}, 1)
	p.isolate(owner{tool: "gone"}, 3)
	p.isolate(owner{group: "gone"}, 3)

	p.forget(ended.Add(time.Hour), known, groups)
	p.check()
	assert.Len(t, p.tools, 3)
	assert.Len(t, p.tools[a].events, 3, "it ended an hour ago, not more")
	p.forget(ended.Add(time.Hour+1), known, groups)
	p.check()
	assert.Len(t, p.tools[a].events, 1)
	assert.Len(t, p.tools[g].events, 1)
	p.forget(p.now.Add(2*time.Hour), known, groups)
	p.check()
	assert.Len(t, p.tools, 2, "of the group nothing is left")
	assert.Len(t, p.tools[a].events, 1, "it is still open")
	p.forget(p.now, nil, nil)
	assert.Empty(t, p.tools)
	assert.Zero(t, p.kept)
	assert.True(t, slices.IsSortedFunc(p.all, func(x, y *Event) int { return x.When.Compare(y.When) }))
}
