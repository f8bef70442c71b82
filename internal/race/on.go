//go:build race

// Package race says whether the race detector is on. Tests are shorter then, and do not
// count allocations.
package race

// Enabled reports whether the race detector is on.
const Enabled = true
