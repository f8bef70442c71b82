package bench

import (
	"runtime"
	"time"

	"github.com/toolhealth/toolhealth"
)

// Footprint is what many tools cost a registry.
type Footprint struct {
	Tools        int
	Took         time.Duration // to make all of them known
	BytesPerTool float64       // of live heap, beyond the text of the name
}

// MeasureFootprint makes n tools known to a registry, each in the way of add, and
// weighs them.
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
	runtime.GC() // what finalizers and pools of the first one let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Register is the way of MeasureFootprint that [toolhealth.Registry.Register] is.
func Register(r *toolhealth.Registry, name string) {
	must(r.Register(name, toolhealth.ToolOptions{}) == nil)
}

// CallOnce makes a tool known by one call that succeeds: it is idle from then on.
func CallOnce(r *toolhealth.Registry, name string) {
	must(r.AllowRequest(name))
	r.RecordSuccess(name, time.Millisecond)
}

// Open makes a tool known by the failures that open it.
func Open(r *toolhealth.Registry, name string) {
	for r.AllowRequest(name) {
		r.RecordFailure(name, time.Millisecond)
	}
}
