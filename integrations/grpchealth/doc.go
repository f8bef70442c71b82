// Package grpchealth puts the breakers of toolhealth into gRPC clients and servers, as
// interceptors of google.golang.org/grpc.
//
// [Unary] and [Stream] are for clients: they ask a Gate before a call is sent and report
// to it when the call, or the stream, has ended. [Server] and [StreamServer] are for
// servers, whose handlers call something that can fail: they do the same around a
// handler. [Rules] tell a Classifier what the texts of grpc-go mean.
//
// # Refusals
//
// A refused call is not made. Its error is a gRPC status Unavailable, with the wait as
// google.rpc.RetryInfo, so a server's refusal reaches its clients as one; and errors.As
// finds the *toolhealth.Refusal in it on the side that has refused. A client takes the
// RetryInfo of a server for a stated wait. An isolated or unknown tool states none.
//
// # Names and groups
//
// A call of "/pkg.Service/Method" is one of the tool "pkg.Service/Method", cut at 256
// bytes, if the name function is nil. With "/" as Settings.GroupSeparator the service is
// then the group. That is right for one server of each service. Else put the server in
// front, and the server is the group, with all of its services:
//
//	func(method string) string { return "billing" + method } // "billing/pkg.Service/Method"
//
// Two connections that lead to different servers need different names, if they share a
// Registry. A call whose name is empty is made without a breaker: give an empty name to
// health checks and reflection. A server whose UnknownServiceHandler takes every method
// is told names by its clients; set Config.RegisteredOnly there, or an empty name.
//
// # Gates and Guards
//
// The Router of a Gate is not used, because a call cannot go to another method. A Gate
// without a Classify judges by [Rules]; put them into a Classify of your own:
//
//	gate.Classify = toolhealth.ErrorRules{Own: grpchealth.Rules()}.Classify
//
// An interceptor copies what it needs of its Gate when it is made: what
// Guard.SetSettings changes of a Guard's Gate later holds for the breakers only.
//
// A program that guards its tools with a Guard needs no second breaker: with a nil Gate
// the client's interceptors refuse nothing and note what they see in the ctx of the
// attempt (see [toolhealth.Note]), and a stream keeps the attempt alive. Open a stream
// with [toolhealth.Begin] there. A note tells what the status alone cannot: whether it is
// this server that could not be reached, or one that this server has called.
//
// Retries of a service config happen below the interceptors, which see one call. Leave
// them off for methods that must not act twice.
package grpchealth
