// Package sloghealth writes what breakers do to a log, so that a night of outage leaves
// lines that can be read and not gigabytes.
//
// [Log] writes a line for what begins an outage and what ends it, and for an operator's
// act. Repeats are thinned: of the probes that fail in one outage, and of the outages of
// a tool that flaps, the first, the second, the fourth, the eighth and so on have lines.
// What was left out is counted in "suppressed" of the tool's next line.
//
// For package expvar nothing is needed: see the example.
package sloghealth
