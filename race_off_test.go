//go:build !race

package toolhealth

const raceEnabled = false
