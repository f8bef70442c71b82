// Package classify proves what toolhealth.Classify says about errors, from outside
// the library: the table of errors and verdicts, the eight rules and their order,
// the waits that errors state, and hostile errors. The look-alikes have the shapes of
// errors in other packages, so that the tests need not import those.
package classify
