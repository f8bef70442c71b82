package toolhealth

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"reflect"
	"runtime"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth/internal/machine"
	"github.com/toolhealth/toolhealth/internal/race"
	"github.com/toolhealth/toolhealth/internal/stamp"
)

// The allocations of each call, as README.md promises them.
func TestCost_CallPathDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	ctx := context.Background()
	r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold = math.MaxInt32 })
	g := &Gate{Registry: r, Router: routerWith(t, map[string][]string{"other": {"well"}})}
	for i := range 100 {
		r.RecordSuccess(fmt.Sprint("filler", i), 0)
	}
	r.RecordSuccess("well", 0)
	r.RecordFailure("sick", 0)
	r.RecordFailure("open", 0)
	r.Isolate("open", "")
	full := registryWith(t, func(c *Config) { c.MaxTools = 1 })
	failTimes(full, "open", 3)
	fullGate := &Gate{Registry: full}
	names := []string{"well", "filler1", "filler99"}
	for name, c := range map[string]struct {
		most float64
		do   func()
	}{
		"AllowRequest":               {0, func() { r.AllowRequest("well") }},
		"AllowRequest, refused":      {0, func() { r.AllowRequest("open") }},
		"AllowRequest, untracked":    {0, func() { full.AllowRequest("new") }},
		"AllowRequest, empty name":   {0, func() { r.AllowRequest("") }},
		"Available":                  {0, func() { r.Available("well") }},
		"Available, open":            {0, func() { r.Available("open") }},
		"Available, unknown":         {0, func() { r.Available("unknown") }},
		"RecordSuccess":              {0, func() { r.RecordSuccess("well", time.Millisecond) }},
		"RecordFailure":              {2, func() { r.RecordFailure("sick", time.Millisecond) }},
		"RecordFailure while open":   {2, func() { r.RecordFailure("open", time.Millisecond) }},
		"HealthStatus without fails": {0, func() { r.HealthStatus("well") }},
		"Gate.Allow and Done": {0, func() {
			permit, _ := g.Allow(ctx, "well")
			permit.Done(ctx, nil)
		}},
		"Gate.Allow and Release, deferred": {0, func() {
			permit, _ := g.Allow(ctx, "well")
			defer permit.Release()
			permit.Done(ctx, nil)
		}},
		"Gate.Allow and a rejection": {0, func() {
			permit, _ := g.Allow(ctx, "picky") // not "well", whose HealthStatus has no kinds to list
			permit.Settle(Verdict{Outcome: OutcomeRejected, Kind: KindNotFound})
		}},
		"Gate.Allow, untracked": {1, func() {
			permit, _ := fullGate.Allow(ctx, "new")
			permit.Done(ctx, nil)
		}},
		"Gate.Allow, refused": {2, func() {
			if _, err := g.Allow(ctx, "open"); err == nil {
				t.Error("admitted")
			}
		}},
		"Resolve": {0, func() {
			for _, name := range names {
				g.Router.Resolve(name, r)
			}
		}},
	} {
		assert.LessOrEqual(t, testing.AllocsPerRun(100, c.do), c.most, name)
	}
	limited := registryWith(t, func(c *Config) { c.Breaker.MaxInFlight = 1 })
	limitedGate := &Gate{Registry: limited}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		permit, _ := limitedGate.Allow(ctx, "well")
		limited.AllowRequest("well") // busy
		permit.Done(ctx, nil)
	}), "with MaxInFlight")
	b := newBreaker(t, nil)
	assert.Zero(t, testing.AllocsPerRun(100, func() { b.AllowRequest(); b.RecordSuccess(0); b.Available() }))
	s := new(toolStats)
	s.failure(KindTimeout, 0, 0)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		s.success(1)
		s.failure(KindTimeout, 1, 0)
		s.neutral(KindCanceled, 0)
		s.rejection(KindUnauthorized, 0)
		s.refused(StopCircuitOpen)
	}))
}

// Entries are adjacent in memory. Fields that the calls of one tool write must not
// share a cache line with fields that the calls of another tool read.
func TestCost_EntryFitsCacheLines(t *testing.T) {
	if strconv.IntSize != 64 {
		t.Skip("laid out for 64 bits")
	}
	var n node
	const line = 64
	stats := unsafe.Offsetof(n.Value) + unsafe.Offsetof(n.Value.stats)
	assert.Zero(t, stats%line, "the counters begin at %d", stats)
	size := unsafe.Sizeof(n)
	assert.LessOrEqual(t, size, uintptr(192))
	// The allocator's size class for it keeps the alignment.
	r := NewRegistry()
	for i := range 100 {
		r.AllowRequest(fmt.Sprint(i))
	}
	for n := range r.table.All() {
		assert.Zero(t, uintptr(unsafe.Pointer(&n.Value.stats))%line)
	}
	t.Logf("an entry is %d bytes, its counters begin at %d", size, stats)
	// The fields that each success writes are in the first line of the counters.
	var s toolStats
	assert.Less(t, unsafe.Offsetof(s.ok), uintptr(line), "each success reads it")
	assert.Less(t, unsafe.Offsetof(s.sumOK), uintptr(line))
	assert.Less(t, unsafe.Offsetof(s.admitted), uintptr(line))
	assert.Less(t, unsafe.Offsetof(s.settled), uintptr(line))
	assert.Less(t, unsafe.Offsetof(s.rejectedInRow), uintptr(line), "each success reads it")
}

// The compiler keeps a struct in registers if it has at most four words, and if neither
// the struct nor a struct in it has more than four fields.
func TestCost_PermitIsReturnedInRegisters(t *testing.T) {
	if strconv.IntSize != 64 {
		t.Skip("laid out for 64 bits")
	}
	const most = 4
	assert.LessOrEqual(t, unsafe.Sizeof(Permit{}), most*unsafe.Sizeof(uintptr(0)))
	assert.LessOrEqual(t, reflect.TypeFor[Permit]().NumField(), most)
	assert.LessOrEqual(t, reflect.TypeFor[stamp.Stamp]().NumField(), most)
}

// Every attempt allocates a frame, every change of a breaker a snapshot.
func TestCost_SizesOfWhatIsAllocated(t *testing.T) {
	if strconv.IntSize != 64 {
		t.Skip("laid out for 64 bits")
	}
	assert.EqualValues(t, 32, unsafe.Sizeof(callFrame{}))
	assert.EqualValues(t, 64, unsafe.Sizeof(machine.Snapshot{}))
	counters := unsafe.Sizeof(failureCounts{}) + unsafe.Sizeof(datedCounts{}) + unsafe.Sizeof(kindCounts{}) + unsafe.Sizeof(refusalCounts{})
	assert.LessOrEqual(t, counters, uintptr(530), "of a tool that has seen every outcome and a refusal")
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// What a tool takes depends on what has happened to it: a made-up name that was only
// asked for takes least.
func TestCost_BytesOfEachTool(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates memory")
	}
	success := func(r *Registry, name string) {
		r.RecordSuccess(name, time.Millisecond)
		permit, _ := (&Gate{Registry: r}).Allow(context.Background(), name)
		permit.Done(context.Background(), nil)
	}
	failure := func(r *Registry, name string) { r.RecordFailure(name, 30*time.Second) }
	counters := func(r *Registry, name string) {
		r.Record(name, Verdict{Outcome: OutcomeRejected}, 0)
		r.Record(name, Verdict{Outcome: OutcomeNeutral}, 0)
		r.table.Get(name).Value.refuse(StopBusy)
	}
	type act = func(*Registry, string)
	for _, c := range []struct {
		what string
		most float64
		do   []act
	}{
		{"asked for", 400, nil},
		{"failed once", 400, []act{failure}},
		{"refused once", 400, []act{func(r *Registry, name string) { r.table.Get(name).Value.refuse(StopBusy) }}},
		{"succeeded by name and through a permit", 800, []act{success}},
		{"succeeded and timed out", 1300, []act{success, failure, failure}},
		{"every outcome and a refusal", 1300, []act{success, failure, failure, counters}},
	} {
		const tools = 10_000
		names := make([]string, tools)
		for i := range names {
			names[i] = fmt.Sprintf("made_up_tool_name_%05d", i)
		}
		before := heapInUse()
		r := NewRegistry()
		for _, name := range names {
			require.True(t, r.AllowRequest(name))
			for _, do := range c.do {
				do(r, name)
			}
		}
		each := float64(int64(heapInUse()-before)) / tools
		each -= float64(len(names[0])) // that is the host's
		assert.LessOrEqual(t, each, c.most, c.what)
		assert.GreaterOrEqual(t, each, 150.0, "too small to be a measurement")
		t.Logf("%s: %.0f bytes per tool beyond its name", c.what, each)
		assert.Equal(t, tools, r.Len())
		runtime.KeepAlive(names)
	}
}

func TestRegistry_CheckpointOfTenThousandOpenTools(t *testing.T) {
	const tools = 10_000
	r := NewRegistry()
	for i := range tools {
		failTimes(r, fmt.Sprint("some_tool_with_a_name_", i), 3)
	}
	checkpoint := func() []byte {
		var b bytes.Buffer
		require.NoError(t, r.Checkpoint(&b))
		return b.Bytes()
	}
	text := checkpoint()
	assert.LessOrEqual(t, len(text), 2_000_000)
	c, err := readCheckpoint(bytes.NewReader(text))
	require.NoError(t, err)
	took := func(do func()) time.Duration {
		began := time.Now()
		do()
		return time.Since(began)
	}
	enough := false
	for range 10 { // the machine may be busy, so the measure is what JSON alone takes
		encoded := took(func() { require.NoError(t, json.NewEncoder(io.Discard).Encode(c)) })
		wrote := took(func() { checkpoint() })
		read := took(func() {
			res, err := NewRegistry().Restore(bytes.NewReader(text))
			require.NoError(t, err)
			assert.Equal(t, tools, res.Tools)
		})
		t.Logf("%d bytes, written in %v, read in %v; JSON alone takes %v", len(text), wrote, read, encoded)
		if enough = max(wrote, read) <= max(10*encoded, 50*time.Millisecond); enough {
			break
		}
	}
	assert.True(t, enough || race.Enabled)
}

// No method of a registry or gate starts a goroutine.
func TestRegistry_StartsNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	r := NewRegistry()
	g := &Gate{Registry: r}
	stop := r.OnTransition(func(Transition) {})
	for i := range 100 {
		tool := fmt.Sprint("t", i)
		failTimes(r, tool, 3)
		r.AllowRequest(tool)
		if permit, err := g.Allow(t.Context(), fmt.Sprint("u", i)); err == nil {
			permit.KeepAlive() // and never settled
		}
		r.Isolate(tool, "")
	}
	require.NoError(t, r.SetConfig(Config{Breaker: BreakerConfig{FailureThreshold: Off}}))
	r.HealthSummary()
	stop()
	assert.LessOrEqual(t, runtime.NumGoroutine(), before)
}

func TestGuard_HealthyCallAllocatesItsContext(t *testing.T) {
	g := guardOn(t, NewRegistry(), nil)
	ctx := context.Background()
	fn := func(context.Context, string) (string, error) { return "x", nil }
	wrapped := Wrap(g, "a", func(_ context.Context, in int) (int, error) { return in, nil })
	checked := CheckResult(func(string) error { return nil })
	full := registryWith(t, func(c *Config) { c.MaxTools = 1 })
	failTimes(full, "open", 3)
	untracked := guardOn(t, full, nil)
	observed := guardOn(t, NewRegistry(), func(c *GuardConfig) { c.Observe = unheard })
	for name, c := range map[string]struct {
		most float64
		call func()
	}{
		"Call":            {3, func() { _, _ = Call(ctx, g, "a", fn) }},
		"Call, untracked": {4, func() { _, _ = Call(ctx, untracked, "a", fn) }},
		"Call, observed":  {3, func() { _, _ = Call(ctx, observed, "a", fn) }},
		"Wrap":            {4, func() { _, _ = wrapped.Call(ctx, 7) }},
		"Call with check": {5, func() { _, _ = Call(ctx, g, "a", fn, checked) }},
	} {
		if got := testing.AllocsPerRun(1000, c.call); got > c.most {
			t.Errorf("%s allocates %v times, want %v at most", name, got, c.most)
		}
	}
}
