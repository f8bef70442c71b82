// Package registry proves what a toolhealth.Registry promises, from outside the library,
// about things that take more than one call: the time of hooks, limits, rates, and what
// is remembered of a tool and for how long.
package registry
