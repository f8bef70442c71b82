package errfacts

import (
	"reflect"
	"strings"
	"time"
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
	Gone                             // the service does not offer this any more, or never did
	Unchanged                        // what the caller has is still right: no failure
)

// unsent reports whether the fact implies that the request was surely not sent.
func (f Fact) unsent() bool {
	switch f.Class {
	case NameNotFound, Dial, NameFailed, TLS, BadRequestURL, RefusedStream, BadConn, NotExecutable, OpenBreaker:
		return true
	case HTTP:
		return f.Code == 425 // too early
	}
	return false
}

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
		return httpMeaning(f.Code)
	case Coded:
		return Meaning(f.Code)
	case GRPC:
		return grpcMeanings[f.Code]
	case JSONRPC:
		if m, ok := rpcMeanings[f.Code]; ok {
			return m
		}
		return Failed
	case SQLState:
		if m, ok := sqlMeanings[f.Name]; ok {
			return m
		}
		return sqlMeanings[f.Name[:2]]
	case MySQL:
		return mysqlMeanings[f.Code]
	case Redis:
		if m, ok := redisMeanings[f.Name]; ok {
			return m
		}
		return Invalid
	case Exit:
		return exitMeaning(f.Code)
	}
	return classMeanings[f.Class]
}

// classMeanings are those of the classes that have no codes.
var classMeanings = [...]Meaning{
	HostExhausted: OutOfResources,
	NameNotFound:  Misaddressed,
	TLS:           Misaddressed,
	TLSAlert:      CutHandshake,
	BadRequestURL: Misaddressed,
	Timeout:       TimedOut,
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

// httpMeaning is the meaning of a status.
func httpMeaning(status int) Meaning {
	switch status {
	case 304:
		return Unchanged
	case 402: // payment required
		return QuotaExhausted
	case 408:
		return TimedOut
	case 425: // too early
		return NotTakenUp
	case 429:
		return Limited
	case 401, 403, 407:
		return Denied
	case 404:
		return NotFound
	case 410:
		return Gone
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
	9: Conflict, 10: Collided, 11: Invalid, 12: Gone, 13: Failed, 14: Unavailable, 15: Failed, 16: Denied,
}

// rpcMeanings are the codes of JSON-RPC and MCP; others in the range are Failed.
var rpcMeanings = map[int]Meaning{
	-32700: Invalid, -32600: Invalid, -32601: Gone, -32602: Invalid, -32603: Unavailable,
	-32000: Cut, -32001: TimedOut, -32002: NotFound, -32003: Cut, -32004: Cut, -32005: Unavailable,
	-32020: Unagreed, -32021: Unagreed, -32022: Unagreed,
	-32029: Limited, 429: Limited, -32042: Pending, -32800: CanceledInside,
	sessionLost: Cut,
}

// sessionLost is the code by which the Python servers say "Session terminated", with
// this sign. All other ways to say it are taken for this one.
const sessionLost = 32600

// sqlMeanings are SQLSTATEs and their classes, the first two characters; others are
// Unknown.
var sqlMeanings = map[string]Meaning{
	"40001": Collided, "40P01": Collided, "55P03": Collided,
	"08": Cut, "57P01": Cut, "57P02": Cut, "57P03": Cut, "53": Unavailable, "57014": StatementTimedOut,
	"22": Invalid, "23": Invalid, "42": Invalid, "28": Denied, "25006": Failed, "XX": Failed, "58": Failed,
}

// mysqlMeanings are error numbers; others are Unknown.
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

// exitMeaning is the meaning of an exit code: 124 is what timeout(1) ends with, 126
// and 127 are the shell's own, and what is above or below 1 to 125 tells of a signal.
func exitMeaning(code int) Meaning {
	switch {
	case code == 124:
		return TimedOut
	case code == 126 || code == 127:
		return NoCommand
	case code >= 1 && code <= 125:
		return Invalid
	}
	return Unknown
}

// codes are the providers' own codes that say more than the status beside them:
// those of AWS, Google, OpenAI, Anthropic, Azure and others, as they write them.
var codes = map[string]Meaning{
	// AWS: with statuses of all kinds, 400 among them.
	"Throttling": Limited, "ThrottlingException": Limited, "ThrottledException": Limited,
	"RequestThrottled": Limited, "RequestThrottledException": Limited, "TooManyRequestsException": Limited,
	"ProvisionedThroughputExceededException": Limited, "TransactionInProgressException": Limited,
	"RequestLimitExceeded": Limited, "BandwidthLimitExceeded": Limited, "LimitExceededException": Limited,
	"SlowDown": Limited, "PriorRequestNotComplete": Limited, "EC2ThrottledException": Limited,
	"RequestTimeout": TimedOut, "RequestTimeoutException": TimedOut,
	"ServiceQuotaExceededException": QuotaExhausted,
	"EntityTooLarge":                Invalid, "RequestEntityTooLarge": Invalid,
	// Google.
	"rateLimitExceeded": Limited, "userRateLimitExceeded": Limited, "RATE_LIMIT_EXCEEDED": Limited,
	"quotaExceeded": QuotaExhausted, "dailyLimitExceeded": QuotaExhausted, "billingNotEnabled": QuotaExhausted,
	"BILLING_DISABLED": QuotaExhausted, "API_KEY_INVALID": Denied,
	// OpenAI and what copies its form.
	"rate_limit_exceeded": Limited, "insufficient_quota": QuotaExhausted, "quota_exceeded": QuotaExhausted,
	"billing_hard_limit_reached": QuotaExhausted, "billing_not_active": QuotaExhausted,
	"insufficient_credits": QuotaExhausted, "payment_required": QuotaExhausted,
	"context_length_exceeded": Invalid, "string_above_max_length": Invalid,
	// Anthropic.
	"rate_limit_error": Limited, "billing_error": QuotaExhausted, "timeout_error": TimedOut, "request_too_large": Invalid,
	// Azure.
	"TooManyRequests": Limited, "OperationTimedOut": TimedOut, "RequestBodyTooLarge": Invalid,
	// Others: Linear, Slack, Discord.
	"RATELIMITED": Limited, "ratelimited": Limited, "rate_limited": Limited, "too_many_requests": Limited,
}

// ofCode returns the meaning of a provider's own code, Unknown if it says no more
// than the status beside it.
func ofCode(code string) Meaning {
	if code == "" {
		return Unknown
	}
	if m, ok := codes[code]; ok {
		return m
	}
	if strings.HasSuffix(code, "_spend_limit_reached") {
		return QuotaExhausted
	}
	return Unknown
}

// bareCodes are codes that count where no status is beside them: in streams of
// events, after the status was sent, and where an SDK has nothing else. A stream that
// fails half-way is not begun again by itself.
var bareCodes = map[string]Fact{
	"server_error": failedNow, "api_error": failedNow, "overloaded_error": failedNow,
	"invalid_request_error": {Class: HTTP, Code: 400}, "not_found_error": {Class: HTTP, Code: 404},
	"authentication_error": {Class: HTTP, Code: 401}, "permission_error": {Class: HTTP, Code: 403},
	"invalid_api_key": {Class: HTTP, Code: 401},
	// The names that Google gives the codes of gRPC.
	"CANCELLED": {Class: GRPC, Code: 1}, "UNKNOWN": {Class: GRPC, Code: 2}, "INVALID_ARGUMENT": {Class: GRPC, Code: 3},
	"DEADLINE_EXCEEDED": {Class: GRPC, Code: 4}, "NOT_FOUND": {Class: GRPC, Code: 5}, "ALREADY_EXISTS": {Class: GRPC, Code: 6},
	"PERMISSION_DENIED": {Class: GRPC, Code: 7}, "RESOURCE_EXHAUSTED": {Class: GRPC, Code: 8},
	"FAILED_PRECONDITION": {Class: GRPC, Code: 9}, "ABORTED": {Class: GRPC, Code: 10}, "OUT_OF_RANGE": {Class: GRPC, Code: 11},
	"UNIMPLEMENTED": {Class: GRPC, Code: 12}, "INTERNAL": {Class: GRPC, Code: 13}, "INTERNAL_SERVER_ERROR": {Class: GRPC, Code: 13},
	"UNAVAILABLE": {Class: GRPC, Code: 14}, "DATA_LOSS": {Class: GRPC, Code: 15}, "UNAUTHENTICATED": {Class: GRPC, Code: 16},
}

// codeFields finds the fields and methods that hold a provider's own code.
func (s *shape) codeFields(t reflect.Type) {
	for _, name := range [...]string{"Code", "Type", "Reason", "Status"} {
		p, typ := findPath(t, name)
		if p == nil || typ.Kind() != reflect.String && typ.Kind() != reflect.Interface {
			continue
		}
		s.codes = append(s.codes, at(p, func(v reflect.Value, _ error) string {
			if v.Kind() == reflect.Interface {
				v = v.Elem()
			}
			if v.Kind() != reflect.String {
				return ""
			}
			return v.String()
		}))
	}
	if p, typ := findPath(t, "Details"); p != nil && typ == reflect.TypeFor[[]map[string]any]() { // genai: ErrorInfo
		s.codes = append(s.codes, at(p, func(v reflect.Value, _ error) string {
			for _, d := range v.Interface().([]map[string]any) {
				if reason, ok := d["reason"].(string); ok {
					return reason
				}
			}
			return ""
		}))
	}
	switch m, ok := t.MethodByName("ErrorCode"); {
	case !ok || !isGetter(m.Type):
	case m.Type.Out(0) == reflect.TypeFor[string](): // smithy
		ask := func(node error) string { return node.(interface{ ErrorCode() string }).ErrorCode() }
		s.codes = append(s.codes, func(node error) string { return try(ask, node) }) // a panic must not hide the status
	case m.Type.Out(0).Kind() == reflect.String: // anthropic-sdk-go
		ask := func(node error) string { return call(m, reflect.ValueOf(node)).String() }
		s.codes = append(s.codes, func(node error) string { return try(ask, node) })
	}
}

// codeSaysMore reports whether a provider's own code may say more than this status.
func codeSaysMore(status int) bool {
	return status == 400 || status == 402 || status == 403 || status == 429
}

// status is the fact of a status of 300 to 599, or of the code beside it.
func (s *shape) status(status int, node error) Fact {
	switch {
	case status < 300 || status > 599:
		return Fact{}
	case codeSaysMore(status):
		for _, ask := range s.codes {
			if m := ofCode(ask(node)); m != Unknown {
				return Fact{Class: Coded, Code: int(m)}
			}
		}
	}
	return Fact{Class: HTTP, Code: status}
}

// bareCode is the fact of a code without a status.
func (s *shape) bareCode(node error) Fact {
	for _, ask := range s.codes {
		code := ask(node)
		if m := ofCode(code); m != Unknown {
			return Fact{Class: Coded, Code: int(m)}
		}
		if f := bareCodes[code]; f.Class != None {
			return f
		}
	}
	return Fact{}
}

// statusMethods are the methods that tell a status or code.
func (s *shape) statusMethods(t reflect.Type) {
	can(&s.facts, t, func(e interface {
		error
		HTTPStatusCode() int
	}) Fact {
		return s.status(e.HTTPStatusCode(), e)
	})
	can(&s.facts, t, func(e interface {
		error
		HTTPCode() int
	}) Fact {
		return s.status(e.HTTPCode(), e)
	})
	can(&s.facts, t, func(e interface {
		error
		StatusCode() int
	}) Fact {
		return s.status(e.StatusCode(), e)
	})
	can(&s.facts, t, func(e interface{ SQLState() string }) Fact {
		if state := e.SQLState(); len(state) == 5 {
			return Fact{Class: SQLState, Name: state}
		}
		return Fact{}
	})
	s.grpcMethods(t)
}

// grpcMethods are those of gRPC, GRPCStatus() *status.Status, and of connect,
// Code() connect.Code. Method names are constants and Value.Method is not used: so
// the linker can still leave out methods that a program does not use.
func (s *shape) grpcMethods(t reflect.Type) {
	if get, ok := t.MethodByName("GRPCStatus"); ok && isGetter(get.Type) && get.Type.Out(0).Kind() == reflect.Pointer {
		status := get.Type.Out(0)
		if code, ok := status.MethodByName("Code"); ok && returnsCode(code.Type) {
			s.facts = append(s.facts, func(node error) Fact { return grpcFact(call(code, call(get, reflect.ValueOf(node)))) })
		}
		if details, ok := status.MethodByName("Details"); ok && isGetter(details.Type) && details.Type.Out(0) == reflect.TypeFor[[]any]() {
			s.details = append(s.details, func(node error) time.Duration {
				return ofDetails(call(details, call(get, reflect.ValueOf(node))))
			})
		}
	}
	if code, ok := t.MethodByName("Code"); ok && returnsCode(code.Type) {
		s.facts = append(s.facts, func(node error) Fact { return grpcFact(call(code, reflect.ValueOf(node))) })
	}
}

func call(m reflect.Method, receiver reflect.Value) reflect.Value {
	return m.Func.Call([]reflect.Value{receiver})[0]
}

// isGetter reports whether a method, whose first argument is its receiver, takes
// nothing and returns one value.
func isGetter(m reflect.Type) bool { return m.NumIn() == 1 && m.NumOut() == 1 }

// returnsCode reports whether a method is func() Code, as gRPC and connect have it:
// their number types have this name in common.
func returnsCode(m reflect.Type) bool {
	return isGetter(m) && m.Out(0).Kind() == reflect.Uint32 && m.Out(0).Name() == "Code"
}

func grpcFact(code reflect.Value) Fact {
	if c := code.Uint(); c > 0 && c <= 16 {
		return Fact{Class: GRPC, Code: int(c)}
	}
	return Fact{}
}

// statusFields are the few names under which well-known SDKs keep a status or code.
func (s *shape) statusFields(t reflect.Type) {
	status := func(names ...string) {
		if p, typ := findPath(t, names...); p != nil && isInt(typ) {
			s.facts = append(s.facts, at(p, func(v reflect.Value, node error) Fact {
				return s.status(int(v.Int()), node)
			}))
		}
	}
	status("StatusCode")
	status("HTTPStatusCode")
	status("HTTPCode") // genkit
	if p, typ := findPath(t, "Code"); p != nil && isInt(typ) {
		s.facts = append(s.facts, at(p, func(v reflect.Value, node error) Fact {
			switch code := v.Int(); {
			case code >= -32800 && code <= -32000, code == sessionLost: // the reserved codes and "canceled"
				return Fact{Class: JSONRPC, Code: int(code)}
			case typ.Kind() == reflect.Int:
				return s.status(int(code), node)
			case typ.Kind() == reflect.Int64 && code == 429: // of a gateway
				return Fact{Class: JSONRPC, Code: 429}
			}
			return Fact{}
		}))
	}
	status("ErrStatus", "Code") // k8s
	status("Response", "StatusCode")
	if p, typ := findPath(t, "Number"); p != nil && typ.Kind() == reflect.Uint16 {
		s.facts = append(s.facts, at(p, func(v reflect.Value, _ error) Fact {
			if number := int(v.Uint()); number >= 1000 { // as all errors of MySQL are
				return Fact{Class: MySQL, Code: number}
			}
			return Fact{}
		}))
	}
	if len(s.codes) > 0 {
		s.facts = append(s.facts, s.bareCode)
	}
}

func isInt(t reflect.Type) bool { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64 }
