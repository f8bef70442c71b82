// Package guard proves what a toolhealth.Guard promises, from outside the library:
// retries and their budget, time limits, substitutes, checks of results, nested
// calls, events and figures, and that a call leaves nothing behind if a tool,
// a hook or an observer panics or ends its goroutine.
package guard
