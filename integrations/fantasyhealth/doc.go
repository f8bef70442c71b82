// Package fantasyhealth puts the tools of a fantasy agent behind a [toolhealth.Guard].
//
// [Tool] and [Tools] take tools and return tools, for fantasy.WithTools. An error of a tool
// ends the run of an agent; an error of a guarded tool becomes an error response that the
// model reads, and the run goes on. Three things still end it: a caller who is gone, an
// error that says that a person or a policy has the word, and a response with StopTurn.
//
// Nothing in this package has to be closed, and it starts no goroutines or timers.
package fantasyhealth
