// Package httphealth ties toolhealth to net/http. It has two RoundTrippers, which can
// be used alone or together.
//
// [Witness] is for a tool whose SDK speaks HTTP and loses on the way up what the server
// said. It refuses nothing: it notes what answers say in the ctx of the request, where
// [toolhealth.Classify] finds it.
//
// [Transport] is for programs without a tool function to guard. It has a breaker for
// each host, or for each name that the program gives, and refuses the requests
// themselves.
//
// Nothing in this package has to be closed, and it starts no goroutines or timers.
package httphealth
