// Package linear checks recorded histories of a registry under real concurrency:
// for each of them there has to be an order of its calls, one after the other,
// in which the model in internal/proof/model gives the same answers. It is a module of
// its own, so that the users of the library do not depend on the checker.
package linear
