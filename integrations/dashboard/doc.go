// Package dashboard serves a page that shows how the tools of a registry are: which
// cannot be called, why, until when, and what to do.
//
// It is one http.Handler with everything in it. It asks no other host for anything, works
// without JavaScript, and can be served under any path that ends with a slash, behind any
// middleware:
//
//	mux.Handle("/tools/", dashboard.New(registry, dashboard.Options{}))
//
// It is read-only unless [Options.Operator] says who may act.
package dashboard
