// Package race tells tests whether they run under the race detector, which
// allocates memory of its own and makes every access to memory slower.
package race
