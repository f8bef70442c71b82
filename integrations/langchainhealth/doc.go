// Package langchainhealth puts the tools of a langchaingo agent behind a
// [toolhealth.Guard].
//
// [Tool] and [Tools] take tools and return tools, for agents.NewOneShotAgent and its like.
// An error of a tool ends the run of an executor; an error of a guarded tool becomes an
// observation that the model reads, and the run goes on. Two things still end it: a caller
// who is gone, and an error that says that a person or a policy has the word.
//
// [HTTPClient] is for the models of langchaingo, whose errors are texts: with it a breaker
// learns the status and the stated wait of what the server answered.
//
// Nothing in this package has to be closed, and it starts no goroutines or timers.
package langchainhealth
