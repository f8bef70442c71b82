// Package linear checks recorded histories of a registry under real concurrency:
// each history needs an order of its calls, one after the other, in which the model in
// internal/proof/model gives the same answers. It is a module of its own, so that no
// user of the library depends on the checker.
package linear
