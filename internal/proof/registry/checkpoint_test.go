package registry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// sickRegistry knows something of every sort against its tools.
func sickRegistry() *toolhealth.Registry {
	r := toolhealth.NewRegistry()
	for _, tool := range []string{"down", "streak", "\xff\xfe"} {
		failWith(r, tool, toolhealth.KindConnection)
		failWith(r, tool, toolhealth.KindConnection)
	}
	failWith(r, "down", toolhealth.KindConnection)
	failWith(r, "\xff\xfe", toolhealth.KindConnection)
	r.Isolate("held", "alice")
	r.Record("limited", toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, RetryAfter: 5 * time.Minute}, 0)
	r.Hint("reported", toolhealth.HintDown, time.Minute)
	r.Hint("shared", toolhealth.HintThrottled, time.Minute)
	r.RecordSuccess("well", 0)
	r.IsolateGroup("mcp", "bob")
	return r
}

func checkpointOf(t testing.TB, r *toolhealth.Registry) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, r.Checkpoint(&b))
	return b.Bytes()
}

func restored(t testing.TB, text []byte) (*toolhealth.Registry, toolhealth.Restored) {
	t.Helper()
	r := toolhealth.NewRegistry()
	res, err := r.Restore(bytes.NewReader(text))
	require.NoError(t, err)
	return r, res
}

func TestRegistry_RestoreGoesOnWhereItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := sickRegistry()
		time.Sleep(20*time.Second + 7)
		text := checkpointOf(t, a)
		time.Sleep(5*time.Second + 3)
		r := toolhealth.NewRegistry()
		events := recordEvents(r)
		res, err := r.Restore(bytes.NewReader(text))
		require.NoError(t, err)
		assert.Equal(t, toolhealth.Restored{Age: 5*time.Second + 3, Tools: 7, Groups: 1, Isolated: 2}, res)
		assert.NotContains(t, namesOf(r), "well")
		for name, h := range r.All() {
			was := healthOf(t, a, name)
			assert.Zero(t, h.TotalCalls(), name)
			assert.Equal(t, was.DownSince.Equal(h.DownSince), true, name)
			assert.Equal(t, []any{was.State, was.Reason, was.RetryAfter, was.ConsecutiveFailures, was.LastFailure, was.Reported, was.IsolatedBy},
				[]any{h.State, h.Reason, h.RetryAfter, h.ConsecutiveFailures, h.LastFailure, h.Reported, h.IsolatedBy}, "%q", name)
		}
		for _, tool := range []string{"down", "held", "reported", "\xff\xfe"} {
			assert.Equal(t, []string{"closed>open restored 2"}, events.Of(tool))
		}
		assert.Empty(t, events.Of("streak"))
		again, more := restored(t, checkpointOf(t, r))
		assert.Equal(t, 7, more.Tools, "saved again nothing is lost")
		for name, h := range r.All() {
			is := healthOf(t, again, name)
			assert.Equal(t, h.RetryAfter, is.RetryAfter, name)
			assert.Equal(t, h.Trips, is.Trips, name)
			assert.True(t, h.DownSince.Equal(is.DownSince), name)
		}
		time.Sleep(5 * time.Second)
		assert.True(t, healthOf(t, r, "down").ProbeDue)
		failWith(r, "streak", toolhealth.KindConnection)
		assert.Equal(t, toolhealth.StateOpen, healthOf(t, r, "streak").State, "two before the restart and one after it")
		r.Reset("held", "")
		assert.True(t, r.AllowRequest("held"))
	})
}

func TestRegistry_RestoredProbeIsDueAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := toolhealth.NewRegistry()
		failTimes(a, "half", 3)
		time.Sleep(30 * time.Second)
		require.True(t, a.AllowRequest("half"))
		r, _ := restored(t, checkpointOf(t, a))
		assert.True(t, healthOf(t, r, "half").ProbeDue, "the probe has ended with its process")
	})
}

func TestRegistry_StaleCheckpointSaysNothingButIsolations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := checkpointOf(t, sickRegistry())
		time.Sleep(time.Minute)
		r, res := restored(t, text)
		assert.True(t, healthOf(t, r, "down").ProbeDue, "the cooldown is over, so the next caller is the probe")
		assert.Equal(t, 1, res.Stale, "nothing is left of a throttle that is over")
		time.Sleep(9*time.Minute + 1)
		r, res = restored(t, text)
		assert.Equal(t, toolhealth.Restored{Age: 10*time.Minute + 1, Tools: 1, Groups: 1, Isolated: 2, Stale: 6}, res)
		assert.Equal(t, []string{"held"}, namesOf(r))
		assert.Equal(t, "alice", healthOf(t, r, "held").IsolatedBy)
	})
}

// A long wait that is still running is not stale.
func TestRegistry_RunningWaitIsNotStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := toolhealth.Config{Breaker: toolhealth.DefaultBreakerConfig()}
		c.Breaker.MaxOpenDuration = toolhealth.Off
		a, err := toolhealth.NewRegistryWithConfig(c)
		require.NoError(t, err)
		a.Record("a", toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, RetryAfter: time.Hour}, 0)
		text := checkpointOf(t, a)
		time.Sleep(20 * time.Minute)
		r, err := toolhealth.NewRegistryWithConfig(c)
		require.NoError(t, err)
		_, err = r.Restore(bytes.NewReader(text))
		require.NoError(t, err)
		assert.Equal(t, 40*time.Minute, healthOf(t, r, "a").RetryAfter)
	})
}

func TestRegistry_RestoreAfterWallClockWentBack(t *testing.T) {
	text := checkpointOf(t, sickRegistry())
	year := []byte(time.Now().UTC().Format(`"at":"2006-`))
	later := bytes.Replace(text, year, []byte(`"at":"2999-`), 1)
	later = append(later[:bytes.LastIndex(later, []byte(`,"sum":"`))], '}')
	r, res := restored(t, later)
	assert.Zero(t, res.Age)
	assert.Equal(t, 7, res.Tools)
	assert.LessOrEqual(t, healthOf(t, r, "down").RetryAfter, 30*time.Second)
}

func TestRegistry_RestoreLeavesWhatIsKnown(t *testing.T) {
	text := checkpointOf(t, sickRegistry())
	r := registryWith(t, func(c *toolhealth.Config) {
		c.RegisteredOnly = true
		c.Tools = map[string]toolhealth.BreakerConfig{"down": {}, "streak": {}, "limited": {}, "held": {FailureThreshold: toolhealth.Off}, "\xff\xfe": {FailureThreshold: toolhealth.Off}}
	})
	r.RecordSuccess("down", 0)
	failWith(r, "streak", toolhealth.KindConnection)
	res, err := r.Restore(bytes.NewReader(text))
	require.NoError(t, err)
	assert.Equal(t, 5, res.Skipped, "known here, without a rule that opens, or unknown")
	assert.Equal(t, 2, res.Tools)
	assert.True(t, r.Available("down"), "it works here")
	assert.Equal(t, 1, healthOf(t, r, "streak").ConsecutiveFailures)
	res, err = r.Restore(bytes.NewReader(text))
	require.NoError(t, err)
	assert.Zero(t, res.Tools, "twice is as once")
	for _, r := range []*toolhealth.Registry{nil, new(toolhealth.Registry)} {
		res, err = r.Restore(bytes.NewReader(text))
		require.NoError(t, err)
		assert.Equal(t, 8, res.Skipped)
		assert.Contains(t, string(checkpointOf(t, r)), `"tools":[]`)
	}
}

// Where there is room for two, it is for what an operator holds and for what is open.
func TestRegistry_RestoreKeepsIsolationsFirst(t *testing.T) {
	a := sickRegistry()
	a.Isolate("zoo", "alice")
	full := registryWith(t, func(c *toolhealth.Config) { c.MaxTools = 3 })
	res, err := full.Restore(bytes.NewReader(checkpointOf(t, a)))
	require.NoError(t, err)
	assert.Equal(t, 5, res.Skipped)
	assert.Equal(t, []string{"down", "held", "zoo"}, namesOf(full))
}

// A group is held, or open, after a restart as before, also before its tools are called.
func TestRegistry_RestoreBringsGroupsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := grouped(t, nil)
		kill(t, a, "dead")
		for i := range 2 {
			ask(t, a, fmt.Sprint("ill/", i), dead)
		}
		a.Registry.IsolateGroup("held", "ada")
		a.Registry.IsolateGroup("\xff", "ada")
		ask(t, a, "well/a", toolhealth.Verdict{})
		text := checkpointOf(t, a.Registry)
		time.Sleep(10 * time.Second)
		b := grouped(t, nil)
		events := recordEvents(b.Registry)
		res, err := b.Registry.Restore(bytes.NewReader(text))
		require.NoError(t, err)
		assert.Equal(t, []int{4, 2}, []int{res.Groups, res.Isolated})
		assert.Len(t, events.Of(""), 3, "of the groups that are open")
		health := make(map[string]toolhealth.GroupHealth)
		for _, h := range b.Registry.HealthSummary().Groups {
			health[h.Group] = h
		}
		for _, name := range []string{"held", "\xff"} {
			assert.Equal(t, []any{toolhealth.StopIsolated, "ada"}, []any{health[name].Reason, health[name].IsolatedBy}, "%q", name)
		}
		assert.NotContains(t, health, "well")
		assert.Equal(t, []any{toolhealth.StateOpen, 20 * time.Second}, []any{health["dead"].State, health["dead"].RetryAfter})
		assert.False(t, b.Registry.Available("held/new"))
		assert.False(t, ask(t, b, "dead/new", toolhealth.Verdict{}))
		assert.Equal(t, 2, health["ill"].ConsecutiveFailures)
		ask(t, b, "ill/new", dead)
		assert.False(t, b.Registry.Available("ill/other"), "two before the restart and one after it")
		time.Sleep(20 * time.Second)
		assert.True(t, ask(t, b, "dead/new", toolhealth.Verdict{}))
		assert.True(t, ask(t, b, "dead/other", toolhealth.Verdict{}), "the probe has brought all back")
		res, err = b.Registry.Restore(bytes.NewReader(text))
		require.NoError(t, err)
		assert.Equal(t, 0, res.Groups, "twice is as once")
	})
}

func TestRegistry_WrongCheckpointChangesNothing(t *testing.T) {
	const at = `"at":"2026-01-01T00:00:00Z"`
	for text, problem := range map[string]string{
		`{"schema":1,` + at + `,"groups":[{"group":"a","state":"open"},{"tool":"b","state":"open"}]}`: `groups[1]: "b" is no name of a group`,
		`{"schema":1,` + at + `,"groups":[{"group":"","state":"open"}]}`:                              "groups[0]: group has 0 bytes",
		`{"schema":1,` + at + `,"tools":[{"tool":"a","group":"b","state":"open"}]}`:                   `tools[0]: "b" is no name of a tool`,
		"": "", "{": "", "null": "schema is 0, must be 1", "[]": "", `{"schema":2,` + at + `}`: "schema is 2, must be 1",
		`{"schema":1,` + at + `,"tools":[{"tool":"a","state":"open"},{"tool":"x","state":"ajar"}]}`:                     "ajar",
		`{"schema":1,` + at + `,"tools":[{"tool":"a","state":"open"},{"tool":3}]}`:                                      "",
		`{"schema":1,` + at + `,"tools":[{"tool":"a","state":"open"},{"tool":"","state":"open"}]}`:                      "tools[1]: tool has 0 bytes",
		`{"schema":1,` + at + `,"tools":[{"tool":"a","state":"open"},{"tool":"b","state":"closed","wait_seconds":-4}]}`: "a duration is negative",
		`{"schema":1,` + at + `,"tools":[{"tool":"b","state":"open","streak":-1}]}`:                                     "streak is -1",
		`{"schema":1,` + at + `,"tools":[{"tool":"b","state":"closed","isolated":true}]}`:                               "isolated, and state is closed",
		`{"schema":1,` + at + `,"tools":[{"tool":"` + strings.Repeat("x", 1<<10+1) + `","state":"open"}]}`:              "tool has 1025 bytes",
		`{"schema":1,` + at + `,"tools":[{"tool":"b","state":"open"}],"sum":"00000000"}`:                                "the sum does not fit",
		`{"schema":1,` + at + `,"sum":"00000000","tools":[{"tool":"b","state":"open"}] }`:                               "the sum does not fit",
		`{"schema":1,` + at + `} x`:                    "",
		strings.Repeat(" ", 16<<20+1) + `{"schema":1}`: "more than 16777216 bytes",
	} {
		r := toolhealth.NewRegistry()
		_, err := r.Restore(strings.NewReader(text))
		assert.ErrorIs(t, err, toolhealth.ErrCheckpoint, "%.80q", text)
		assert.ErrorContains(t, err, problem)
		assert.Zero(t, r.Len(), "%.80q", text)
	}
	broken := errors.New("disk")
	_, err := toolhealth.NewRegistry().Restore(iotest.ErrReader(broken))
	assert.ErrorIs(t, err, broken)
	assert.NotErrorIs(t, err, toolhealth.ErrCheckpoint)
}

func TestRegistry_AbsurdCheckpointIsBounded(t *testing.T) {
	now := time.Now().Format(time.RFC3339)
	r, res := restored(t, []byte(`{"schema":1,"at":"`+now+`","tools":[
		{"tool":"a","state":"open","wait_seconds":1e300,"streak":2147483647,"failed_probes":4294967295,"learned_lease_seconds":1e300},
		{"tool":"b","state":"closed","wait_seconds":1e300,"streak":2147483647},
		{"tool":"c","state":"half-open","age_seconds":1e300,"down_seconds":1e300},
		{"tool":"a","state":"open"}]}`))
	assert.Equal(t, 3, res.Tools)
	assert.Equal(t, 1, res.Skipped, "named twice")
	for name, h := range r.All() {
		assert.LessOrEqual(t, h.RetryAfter, 10*time.Minute, name)
	}
	assert.Equal(t, 2, healthOf(t, r, "b").ConsecutiveFailures, "only a failure opens")
	assert.True(t, healthOf(t, r, "c").ProbeDue)
	for _, tool := range []string{"a", "b", "c"} {
		failWith(r, tool, toolhealth.KindConnection)
		assert.LessOrEqual(t, healthOf(t, r, tool).RetryAfter, 10*time.Minute, tool)
	}
}

// heldGroups returns the groups, and who holds them.
func heldGroups(r *toolhealth.Registry) (held []string) {
	for _, h := range r.HealthSummary().Groups {
		held = append(held, h.Group+" by "+h.IsolatedBy)
	}
	return held
}

// Cut or changed at any byte it is an error, or says what it said.
func TestRegistry_TornCheckpointInventsNothing(t *testing.T) {
	synctest.Test(t, tear)
}

func tear(t *testing.T) {
	whole := checkpointOf(t, sickRegistry())
	want, _ := restored(t, whole)
	harmless := 0
	check := func(text []byte) {
		r := toolhealth.NewRegistry()
		_, err := r.Restore(bytes.NewReader(text))
		if err != nil {
			require.ErrorIs(t, err, toolhealth.ErrCheckpoint)
			require.Zero(t, r.Len(), "%q", text)
			require.Empty(t, heldGroups(r), "%q", text)
			return
		}
		harmless++
		require.Equal(t, namesOf(want), namesOf(r), "%q", text)
		require.Equal(t, []string{"mcp by bob"}, heldGroups(r), "%q", text)
		for name, h := range r.All() {
			was := healthOf(t, want, name)
			require.Equal(t, was.State, h.State)
			require.Equal(t, was.ConsecutiveFailures, h.ConsecutiveFailures)
			require.LessOrEqual(t, h.RetryAfter, 10*time.Minute)
		}
	}
	for i := range len(whole) {
		check(whole[:i])
	}
	assert.Equal(t, 1, harmless, "without the end of the line")
	for i := range whole {
		for bit := range 8 {
			text := bytes.Clone(whole)
			text[i] ^= 1 << bit
			check(text)
		}
	}
	assert.Less(t, harmless, 4*8, "changes of the key of the sum, and of the end of the line")
}

func TestRegistry_CheckpointHasOnlyWhatIsAgainstTools(t *testing.T) {
	r := toolhealth.NewRegistry()
	for i := range 1000 {
		r.RecordSuccess(fmt.Sprint("t", i), 0)
	}
	failTimes(r, strings.Repeat("x", 1<<10+1), 3)
	text := checkpointOf(t, r)
	assert.Less(t, len(text), 100, "%s", text)
	assert.True(t, json.Valid(text))
	text = checkpointOf(t, sickRegistry())
	for _, word := range []string{"well", "calls", "ewma", "trips", "epoch"} {
		assert.NotContains(t, string(text), word)
	}
	assert.Equal(t, 1, bytes.Count(text, []byte("\n")))
	failing := errors.New("full")
	assert.ErrorIs(t, r.Checkpoint(writerFunc(func([]byte) (int, error) { return 0, failing })), failing)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Checkpoints may be written while everything moves.
func TestRegistry_CheckpointWhileInUse(t *testing.T) {
	r := toolhealth.NewRegistry()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			tool := fmt.Sprint("t", i%20)
			failTimes(r, tool, 3)
			r.Hint(tool, toolhealth.HintKind(i%5), time.Second)
			r.Remove(tool)
		}
	}()
	for range 50 {
		restored(t, checkpointOf(t, r))
	}
	close(stop)
	<-done
}
