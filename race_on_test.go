//go:build race

package toolhealth

// raceEnabled says that the race detector is on: long tests are cut short and
// allocations are not counted.
const raceEnabled = true
