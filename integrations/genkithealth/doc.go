// Package genkithealth puts the tools of a genkit application behind a
// [toolhealth.Guard], from genkit v1.7 on.
//
// [Guard] is a middleware for ai.WithUse. An error of a tool ends the call of
// genkit.Generate; an error of a guarded tool becomes an output that the model reads, and
// the loop goes on. Two things still end it: a caller who is gone, and an error that says
// that a person or a policy has the word. Interrupts of genkit are of the second kind, and
// interrupt as they do without a guard.
//
// Nothing in this package has to be closed, and it starts no goroutines or timers.
package genkithealth
