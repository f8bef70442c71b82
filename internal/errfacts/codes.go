package errfacts

import (
	"reflect"
	"strings"
)

// Meaning is what a fact says, in the words that all codes have in common. The
// zero value is Unknown.
type Meaning uint8

// The meanings.
const (
	Unknown           Meaning = iota // nothing is known of the error
	Failed                           // the service failed
	Unavailable                      // the service failed for now: it may serve the same request later
	Limited                          // the service is asked too often
	QuotaExhausted                   // the account is used up: no wait mends it
	TimedOut                         // no answer came in time
	StatementTimedOut                // the service itself stopped what took too long
	DialTimedOut                     // no connection was made in time
	Cut                              // a connection or a session broke
	CutHandshake                     // TLS failed at an unknown time
	Unreachable                      // no connection was made
	Misaddressed                     // no connection can be made: the name, the certificate or the URL is wrong
	Unagreed                         // the answer is not what was agreed
	NoProgram                        // the program could not be started
	NoCommand                        // the shell could not start the program
	CanceledInside                   // the tool itself gave up
	NotTakenUp                       // the service did not take the request up
	Invalid                          // the arguments were refused
	NotFound                         // what was asked for is not there
	Denied                           // the caller was refused
	Conflict                         // the state of the service does not allow it
	Collided                         // another request was in the way
	Ambiguous                        // JSON of one side or the other could not be read
	OutOfResources                   // this host has no resources left
	Pending                          // a person has yet to answer
	Refused                          // another circuit breaker refused
)

// Meaning returns what the fact says. Texts, waits and other remarks of the error
// do not change it.
func (f Fact) Meaning() Meaning {
	switch f.Class {
	case Dial, NameFailed:
		if f.Code != 0 {
			return DialTimedOut
		}
		return Unreachable
	case HTTP:
		return httpMeaning(f.Code, f.Name)
	case GRPC:
		return grpcMeanings[f.Code]
	case JSONRPC:
		return lookUp(rpcMeanings, f.Code, Failed)
	case SQLState:
		return lookUp(sqlMeanings, f.Name, lookUp(sqlMeanings, f.Name[:2], Unknown))
	case MySQL:
		return lookUp(mysqlMeanings, f.Code, Unknown)
	case Redis:
		return lookUp(redisMeanings, f.Name, Invalid)
	case Exit:
		return exitMeaning(f.Code)
	}
	return classMeanings[f.Class]
}

func lookUp[K comparable](table map[K]Meaning, key K, otherwise Meaning) Meaning {
	if m, ok := table[key]; ok {
		return m
	}
	return otherwise
}

// classMeanings are those of the classes that have no codes.
var classMeanings = [...]Meaning{
	HostExhausted: OutOfResources,
	NameNotFound:  Misaddressed,
	TLS:           Misaddressed,
	TLSAlert:      CutHandshake,
	BadRequestURL: Misaddressed,
	Timeout:       TimedOut,
	Throttled:     Limited,
	NoRows:        NotFound,
	RefusedStream: Unreachable,
	Stream:        Cut,
	Broken:        Cut,
	BadConn:       Unreachable,
	NotExecutable: NoProgram,
	Permission:    Denied,
	NotExist:      NotFound,
	Exist:         Conflict,
	JSON:          Ambiguous,
	Canceled:      CanceledInside,
	OpenBreaker:   Refused,
	Nonsense:      Unagreed,
}

// httpMeaning is the meaning of a status. name is the provider's own code.
func httpMeaning(status int, name string) Meaning {
	switch status {
	case 408:
		return TimedOut
	case 425: // too early
		return NotTakenUp
	case 429:
		if name == "insufficient_quota" || strings.Contains(name, "spend_limit") {
			return QuotaExhausted
		}
		return Limited
	case 401, 403, 407:
		return Denied
	case 404, 410:
		return NotFound
	case 409:
		return Conflict
	case 501, 505:
		return Invalid
	}
	switch status / 100 {
	case 5:
		return Unavailable
	case 4:
		return Invalid
	case 3:
		return Unagreed
	}
	return Unknown
}

// grpcMeanings are indexed by the gRPC code.
var grpcMeanings = [17]Meaning{
	1: CanceledInside, 2: Failed, 3: Invalid, 4: TimedOut, 5: NotFound, 6: Conflict, 7: Denied, 8: Limited,
	9: Conflict, 10: Collided, 11: Invalid, 12: Invalid, 13: Failed, 14: Unavailable, 15: Failed, 16: Denied,
}

// rpcMeanings are the codes of JSON-RPC and MCP; others in the range are Failed.
var rpcMeanings = map[int]Meaning{
	-32700: Invalid, -32600: Invalid, -32601: NotFound, -32602: Invalid, -32603: Unavailable,
	-32000: Cut, -32001: TimedOut, -32002: NotFound, -32003: Cut, -32004: Cut, -32005: Unavailable,
	-32020: Unagreed, -32021: Unagreed, -32022: Unagreed,
	-32029: Limited, -32042: Pending, -32800: CanceledInside,
	32600: Cut, // "Session terminated" of the Python servers, with this sign
}

// sqlMeanings are SQLSTATEs and their classes, the first two characters.
var sqlMeanings = map[string]Meaning{
	"40001": Collided, "40P01": Collided, "55P03": Collided,
	"08": Cut, "57P01": Cut, "57P02": Cut, "57P03": Cut, "53": Unavailable, "57014": StatementTimedOut,
	"22": Invalid, "23": Invalid, "42": Invalid, "28": Denied, "25006": Failed, "XX": Failed, "58": Failed,
}

var mysqlMeanings = map[int]Meaning{
	1205: Collided, 1213: Collided, 1040: Unavailable, 1203: Unavailable,
	1044: Denied, 1045: Denied, 1142: Denied, 1290: Failed,
	1048: Invalid, 1054: Invalid, 1062: Conflict, 1064: Invalid, 1146: NotFound,
	1364: Invalid, 1366: Invalid, 1406: Invalid, 1451: Conflict, 1452: Conflict,
}

// redisMeanings are the first words of Redis answers; others are Invalid.
var redisMeanings = map[string]Meaning{
	"LOADING": Unavailable, "CLUSTERDOWN": Unavailable, "MASTERDOWN": Unavailable, "TRYAGAIN": Unavailable,
	"READONLY": Unavailable, "MAXCLIENTS": Unavailable, "OOM": Failed, "NOAUTH": Denied, "NOPERM": Denied,
}

// exitMeaning is the meaning of an exit code: 126 and 127 are the shell's own, and
// what is above or below 1 to 125 tells of a signal.
func exitMeaning(code int) Meaning {
	switch {
	case code == 126 || code == 127:
		return NoCommand
	case code >= 1 && code <= 125:
		return Invalid
	}
	return Unknown
}

// statusMethods are the methods that tell a status or code.
func (s *shape) statusMethods(node error, t reflect.Type, name func(error) string) {
	can(&s.facts, t, func(e interface{ ErrorCode() string }) Fact {
		if throttles[e.ErrorCode()] {
			return Fact{Class: Throttled}
		}
		return Fact{}
	})
	can(&s.facts, t, func(e interface {
		error
		HTTPStatusCode() int
	}) Fact {
		return httpFact(e.HTTPStatusCode(), e, name)
	})
	can(&s.facts, t, func(e interface {
		error
		HTTPCode() int
	}) Fact {
		return httpFact(e.HTTPCode(), e, name)
	})
	can(&s.facts, t, func(e interface {
		error
		StatusCode() int
	}) Fact {
		return httpFact(e.StatusCode(), e, name)
	})
	can(&s.facts, t, func(e interface{ SQLState() string }) Fact {
		if state := e.SQLState(); len(state) == 5 {
			return Fact{Class: SQLState, Name: state}
		}
		return Fact{}
	})
	v := reflect.ValueOf(node)
	if m := v.MethodByName("GRPCStatus"); isGetter(m) && m.Type().Out(0).Kind() == reflect.Pointer &&
		returnsCode(reflect.Zero(m.Type().Out(0)).MethodByName("Code")) {
		s.facts = append(s.facts, func(node error) Fact {
			status := reflect.ValueOf(node).MethodByName("GRPCStatus").Call(nil)[0]
			return grpcFact(status.MethodByName("Code"))
		})
	}
	if returnsCode(v.MethodByName("Code")) {
		s.facts = append(s.facts, func(node error) Fact { return grpcFact(reflect.ValueOf(node).MethodByName("Code")) })
	}
}

func isGetter(m reflect.Value) bool {
	return m.IsValid() && m.Type().NumIn() == 0 && m.Type().NumOut() == 1
}

// returnsCode reports whether a method is func() Code, as gRPC and connect have
// it: their number types have this name in common.
func returnsCode(m reflect.Value) bool {
	return isGetter(m) && m.Type().Out(0).Kind() == reflect.Uint32 && m.Type().Out(0).Name() == "Code"
}

func grpcFact(code reflect.Value) Fact {
	if c := code.Call(nil)[0].Uint(); c > 0 && c <= 16 {
		return Fact{Class: GRPC, Code: int(c)}
	}
	return Fact{}
}

// throttles are the codes by which AWS services say: too fast. They come with
// statuses of all kinds, 400 among them.
var throttles = map[string]bool{
	"Throttling": true, "ThrottlingException": true, "ThrottledException": true,
	"RequestThrottled": true, "RequestThrottledException": true, "TooManyRequestsException": true,
	"ProvisionedThroughputExceededException": true, "TransactionInProgressException": true,
	"RequestLimitExceeded": true, "BandwidthLimitExceeded": true, "LimitExceededException": true,
	"SlowDown": true, "PriorRequestNotComplete": true, "EC2ThrottledException": true,
}

// httpFact is a status of 300 to 599.
func httpFact(status int, node error, name func(error) string) Fact {
	if status < 300 || status > 599 {
		return Fact{}
	}
	f := Fact{Class: HTTP, Code: status}
	if status == 429 && name != nil {
		f.Name = try(name, node)
	}
	return f
}

// ownCode returns how to ask for the provider's own code: with a status of 429
// it tells a full pipe from an empty purse. nil if the type has none.
func ownCode(node error, t reflect.Type) func(error) string {
	if m := reflect.ValueOf(node).MethodByName("ErrorCode"); isGetter(m) && m.Type().Out(0).Kind() == reflect.String {
		return func(node error) string { return reflect.ValueOf(node).MethodByName("ErrorCode").Call(nil)[0].String() }
	}
	p, typ := findPath(t, "Code")
	if p == nil || typ.Kind() != reflect.String && typ.Kind() != reflect.Interface {
		return nil
	}
	return at(p, func(v reflect.Value, _ error) string {
		if v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		if v.Kind() != reflect.String {
			return ""
		}
		return v.String()
	})
}
