// Package browsertest drives the page of package dashboard in a real browser. It has
// tests only.
package browsertest
