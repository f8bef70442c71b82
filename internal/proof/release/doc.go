// Package release has the test that the steps of releasing in CONTRIBUTING.md make modules
// that a user without a checkout can require. It is a module of its own, because it makes
// the archives of modules as the go command does.
package release
