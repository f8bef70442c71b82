package bench

import (
	"strings"
	"testing"
)

// TestEveryCaseDoesWhatItsNameSays sets every case up and runs it a few times:
// each loop panics if a call goes another way than the one that is measured.
func TestEveryCaseDoesWhatItsNameSays(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range Cases() {
		if seen[c.Name] {
			t.Errorf("two cases are called %s", c.Name)
		}
		seen[c.Name] = true
		t.Run(c.Name, func(t *testing.T) {
			calls := 2*tools + 1 // every name more than once
			if strings.HasPrefix(c.Name, "toolhealth/summary/") {
				calls = 2
			}
			var down Teardown
			defer down.Run()
			run := c.New(&down)
			run(1)
			run(calls)
		})
	}
}

// Benchmark runs every case under go test -bench, for profiles of one of them.
func Benchmark(b *testing.B) {
	for _, c := range Cases() {
		b.Run(c.Name, func(b *testing.B) {
			var down Teardown
			defer down.Run()
			run := c.New(&down)
			b.ReportAllocs()
			b.ResetTimer()
			run(b.N)
		})
	}
}
