package bench

import (
	"runtime"
	"time"

	"github.com/toolhealth/toolhealth"
)

// Footprint is the cost of many tools in a registry.
type Footprint struct {
	Tools        int
	Took         time.Duration // time to add all of them
	BytesPerTool float64       // live heap, beyond the text of the name
}

// MeasureFootprint adds n tools to a registry, each by a call of add, and measures
// their memory.
func MeasureFootprint(n int, add func(r *toolhealth.Registry, name string), change ...func(*toolhealth.BreakerConfig)) Footprint {
	names := NewNames(n)
	text := 0
	for _, name := range names.Registered {
		text += len(name)
	}
	c := toolhealth.DefaultConfig()
	c.MaxTools = n
	for _, fn := range change {
		fn(&c.Breaker)
	}
	r, err := toolhealth.NewRegistryWithConfig(c)
	must(err == nil)

	before := liveHeap()
	start := time.Now()
	for _, name := range names.Registered {
		add(r, name)
	}
	took := time.Since(start)
	after := liveHeap()
	must(r.Len() == n)
	runtime.KeepAlive(names)
	return Footprint{n, took, float64(int64(after)-int64(before)-int64(text)) / float64(n)}
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // frees what finalizers and pools released in the first one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Register adds a tool with [toolhealth.Registry.Register], for MeasureFootprint.
func Register(r *toolhealth.Registry, name string) {
	must(r.Register(name, toolhealth.ToolOptions{}) == nil)
}

// CallOnce adds a tool by one call that succeeds; the tool is idle after it.
func CallOnce(r *toolhealth.Registry, name string) {
	must(r.AllowRequest(name))
	r.RecordSuccess(name, time.Millisecond)
}

// Open adds a tool by the failures that open it.
func Open(r *toolhealth.Registry, name string) {
	for r.AllowRequest(name) {
		r.RecordFailure(name, time.Millisecond)
	}
}
