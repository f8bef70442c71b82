package verdicts

import (
	"fmt"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth"
)

// meaning is what a failure says about the tool, and by which rule.
type meaning struct {
	// want is outcome/kind, then what holds of retry, notsent and wait=<duration>.
	// A vertical bar separates verdicts that are as good, and a star after the
	// kind leaves open all that follows.
	want string
	rule rule
}

// rule is a rule for what an error means. The numbers are those of the rules
// about evidence in the design of the library.
type rule string

const (
	ruleTable   rule = "table: statuses, networks, contexts"
	ruleWait    rule = "1: a wait makes a throttle"
	ruleCode    rule = "2: a code says more than the number"
	ruleAccount rule = "3: account, not arguments"
	ruleSession rule = "5: a lost session is a connection"
	ruleText    rule = "5: texts of SDKs that cut the chain"
	ruleBelow   rule = "6: evidence from below"
	ruleCause   rule = "7: the cause of a cancel"
)

// meanings has every failure by its name. It is decided by what the server did,
// not by what an SDK leaves of it: where the error has lost it, the row is wrong.
var meanings = map[string]meaning{
	"400": {"rejected/invalid_request", ruleTable},
	"401": {"rejected/unauthorized", ruleAccount},
	"402": {"failure/quota_exhausted", ruleAccount},
	"403": {"rejected/unauthorized", ruleAccount},
	"404": {"rejected/not_found", ruleTable},
	"405": {"rejected/invalid_request", ruleTable},
	"407": {"rejected/unauthorized", ruleAccount},
	"408": {"failure/timeout/retry", ruleTable},
	"409": {"rejected/conflict", ruleTable},
	"410": {"rejected/gone", ruleAccount},
	"413": {"rejected/invalid_request", ruleTable},
	"422": {"rejected/invalid_request", ruleTable},
	"429": {"failure/rate_limited/retry", ruleTable},
	"500": {"failure/server_error/retry", ruleTable},
	"501": {"rejected/invalid_request", ruleTable},
	"502": {"failure/server_error/retry", ruleTable},
	"503": {"failure/server_error/retry", ruleTable},
	"504": {"failure/server_error/retry", ruleTable},
	"524": {"failure/server_error/retry", ruleTable},
	"529": {"failure/server_error/retry", ruleTable},

	"429 with Retry-After: 7":                             {"throttled/rate_limited/retry/wait=7s", ruleWait},
	"503 with Retry-After: 7":                             {"failure/server_error/retry/wait=7s", ruleWait},
	"429 with Retry-After: a date":                        {"throttled/rate_limited/retry/wait=40s", ruleWait},
	"429 with Retry-After: a date, clock an hour ahead":   {"throttled/rate_limited/retry/wait=40s", ruleWait},
	"429 with retry-after-ms: 7000":                       {"throttled/rate_limited/retry/wait=7s", ruleWait},
	"429 with resets 6m0s and 17ms":                       {"throttled/rate_limited/retry/wait=6m0s", ruleWait},
	"403 with Retry-After: 7":                             {"throttled/rate_limited/retry/wait=7s", ruleWait},
	"400 with Retry-After: 7":                             {"throttled/rate_limited/retry/wait=7s", ruleWait},
	"404 with Retry-After: 7":                             {"rejected/not_found*", ruleWait}, // the wait is only a hint
	"500 with Retry-After: 7":                             {"failure/server_error/retry/wait=7s", ruleWait},
	"529 with Retry-After: 7":                             {"failure/server_error/retry/wait=7s", ruleWait},
	"429 with JSON of a gateway and Retry-After: 7":       {"throttled/rate_limited/retry/wait=7s", ruleWait},
	"429 RESOURCE_EXHAUSTED with RetryInfo 21s":           {"throttled/rate_limited/retry/wait=21s", ruleWait},
	"429 RESOURCE_EXHAUSTED with RetryInfo 13.837906927s": {"throttled/rate_limited/retry/wait=13.837906927s", ruleWait},
	"503 UNAVAILABLE with RetryInfo 21s":                  {"failure/server_error/retry/wait=21s", ruleWait},
	"-32029 Rate limit exceeded, retryAfterSeconds 12":    {"throttled/rate_limited/retry/wait=12s", ruleWait},
	"429 Rate limit exceeded, retryAfterSeconds 12":       {"throttled/rate_limited/retry/wait=12s", ruleWait},

	"429 insufficient_quota":                     {"failure/quota_exhausted", ruleAccount},
	"429 insufficient_quota with Retry-After: 7": {"failure/quota_exhausted", ruleAccount},
	"402 billing_error":                          {"failure/quota_exhausted", ruleAccount},
	"429 enforced_spend_limit_reached":           {"failure/quota_exhausted", ruleAccount},
	"400 context_length_exceeded":                {"rejected/invalid_request", ruleCode},
	"403 unsupported_country_region_territory":   {"rejected/unauthorized", ruleCode},
	"529 overloaded_error":                       {"failure/server_error/retry", ruleCode},
	"504 timeout_error":                          {"failure/timeout/retry|failure/server_error/retry", ruleCode},
	"413 request_too_large":                      {"rejected/invalid_request", ruleCode},
	"400 API_KEY_INVALID":                        {"rejected/unauthorized", ruleCode},
	"504 DEADLINE_EXCEEDED":                      {"failure/timeout/retry|failure/server_error/retry", ruleCode},

	// An answer that is not what was agreed. An empty one and a cut one look
	// alike to most SDKs; both readings trip and neither harms.
	"200 with HTML":                      {"failure/contract", ruleCode},
	"302 to HTML":                        {"failure/contract", ruleCode},
	"200 with HTML that says it is JSON": {"failure/contract", ruleCode},
	"401 with HTML":                      {"rejected/unauthorized", ruleTable},
	"429 with HTML":                      {"failure/rate_limited/retry", ruleTable},
	"502 with HTML":                      {"failure/server_error/retry", ruleTable},
	"503 with JSON of a gateway":         {"failure/server_error/retry", ruleTable},
	"500 with an object under error":     {"failure/server_error/retry", ruleBelow},
	"429 with an object under error":     {"failure/rate_limited/retry", ruleBelow},
	"403 with JSON of a gateway":         {"rejected/unauthorized", ruleTable},
	"500 with an empty body":             {"failure/server_error/retry", ruleTable},
	"200 with an empty body":             {"failure/contract|failure/connection/retry", ruleBelow},
	"200 with nonsense":                  {"failure/contract", ruleBelow},
	"200 with JSON of another shape":     {"failure/contract", ruleBelow},
	"200 with half a JSON":               {"failure/contract|failure/connection/retry", ruleBelow},
	"200, body cut":                      {"failure/connection/retry|failure/contract", ruleTable},
	"200, body reset":                    {"failure/connection/retry", ruleTable},
	"200, body stalls, Client.Timeout":   {"failure/timeout/retry", ruleTable},

	"connection refused":                            {"failure/connection/retry/notsent", ruleTable},
	"unknown host name":                             {"failure/connection/notsent", ruleTable},
	"name server fails":                             {"failure/connection/retry/notsent", ruleTable},
	"dial times out":                                {"failure/timeout/retry/notsent|failure/connection/retry/notsent", ruleTable},
	"unknown certificate authority":                 {"failure/connection/notsent", ruleTable},
	"TLS to a plain server":                         {"failure/connection/notsent", ruleTable},
	"connection dropped":                            {"failure/connection/retry", ruleTable},
	"connection reset":                              {"failure/connection/retry", ruleTable},
	"answer is not HTTP":                            {"failure/contract", ruleTable},
	"redirects without end":                         {"failure/contract|failure/connection|failure/connection/notsent", ruleTable},
	"hangs, Client.Timeout":                         {"failure/timeout/retry", ruleTable},
	"hangs, ResponseHeaderTimeout":                  {"failure/timeout/retry", ruleTable},
	"hangs, caller's deadline":                      {"failure/timeout", ruleTable},
	"hangs, caller cancels":                         {"neutral/canceled", ruleTable},
	"hangs, caller cancels because of its deadline": {"failure/timeout", ruleCause},
	"hangs, caller cancels because of a sibling":    {"neutral/canceled", ruleCause},

	// Half of an answer has been said: whether to repeat it is left open for
	// events that say an error.
	"stream cut":                       {"failure/connection/retry", ruleTable},
	"stream reset":                     {"failure/connection/retry", ruleTable},
	"stream stalls, Client.Timeout":    {"failure/timeout/retry", ruleTable},
	"stream stalls, caller's deadline": {"failure/timeout", ruleTable},
	"stream stalls, caller cancels":    {"neutral/canceled", ruleTable},
	"event with nonsense":              {"failure/contract", ruleBelow},
	"event with HTML":                  {"failure/contract", ruleCode},
	"event with half a JSON":           {"failure/contract|failure/connection/retry", ruleBelow},
	"event says: server error":         {"failure/server_error*", ruleCode},
	"event says: overloaded":           {"failure/server_error*", ruleCode},
	"event says: rate limited":         {"failure/rate_limited*", ruleCode},
	"event says: bad request":          {"rejected/invalid_request", ruleCode},
	"event says: key not valid":        {"rejected/unauthorized", ruleCode},
	"event says: quota used up":        {"failure/quota_exhausted", ruleAccount},

	"-32700 Parse error":                  {"rejected/invalid_request", ruleTable},
	"-32600 Invalid Request":              {"rejected/invalid_request", ruleTable},
	"-32601 Method not found":             {"rejected/gone", ruleAccount},
	"-32602 Invalid params":               {"rejected/invalid_request", ruleTable},
	"-32603 Internal error":               {"failure/server_error/retry", ruleTable},
	"-32000 Connection closed":            {"failure/connection/retry", ruleTable},
	"-32001 Request timed out":            {"failure/timeout/retry", ruleTable},
	"-32001 Session not found":            {"failure/connection/retry", ruleSession},
	"-32002 Resource not found":           {"rejected/not_found", ruleTable},
	"-32004 server is closing":            {"failure/connection/retry", ruleTable},
	"-32021 missing capability":           {"failure/contract", ruleTable},
	"-32022 unsupported protocol version": {"failure/contract", ruleTable},
	"-32029 Rate limit exceeded":          {"failure/rate_limited/retry", ruleTable},
	"429 Rate limit exceeded":             {"failure/rate_limited/retry", ruleCode},
	"-32042 URL elicitation":              {"neutral/denied", ruleAccount},
	"-32800 Request cancelled":            {"failure/canceled", ruleTable},
	"-32600 Session terminated":           {"failure/connection/retry", ruleSession},
	"32600 Session terminated":            {"failure/connection/retry", ruleSession},

	"session lost: 404 with text":                       {"failure/connection/retry", ruleSession},
	"session lost: 404 with -32001 and id null":         {"failure/connection/retry", ruleSession},
	"session lost: 404 with -32600 and id null":         {"failure/connection/retry", ruleSession},
	"session lost: 404 with -32600 and id server-error": {"failure/connection/retry", ruleSession},
	"session lost: 400 with text":                       {"failure/connection/retry", ruleSession},
	"session lost: 400 with -32000 and id null":         {"failure/connection/retry", ruleSession},

	// What a plain error of a handler means is for the host to say; unknown is
	// what it is by default.
	"handler returns an error":         {"failure/server_error/retry|failure/unknown", ruleText},
	"handler returns -32603":           {"failure/server_error/retry", ruleTable},
	"handler panics":                   {"failure/server_error/retry", ruleText},
	"handler says it is busy":          {"failure/rate_limited/retry", ruleText},
	"handler hangs, caller's deadline": {"failure/timeout", ruleTable},
	"handler hangs, caller cancels":    {"neutral/canceled", ruleTable},
	"unknown tool":                     {"rejected/invalid_request", ruleTable},
	"child exits":                      {"failure/connection/retry", ruleText},
	"child is killed":                  {"failure/connection/retry", ruleText},
	"child closes its output":          {"failure/connection/retry", ruleText},
	"child hangs, caller's deadline":   {"failure/timeout", ruleTable},
	"child hangs, caller cancels":      {"neutral/canceled", ruleTable},
}

// meaningOf is what the failure means in this form.
func meaningOf(f *Form, failure string) (meaning, bool) {
	if m, ok := f.Meanings[failure]; ok {
		return m, true
	}
	m, ok := meanings[failure]
	if ok && f.CutsChain && m.rule == ruleTable {
		m.rule = ruleText
	}
	if ok && f.CutsChain && m.rule == ruleWait {
		m.rule = ruleBelow
	}
	return m, ok
}

// text is a verdict in the words of want.
func text(v toolhealth.Verdict) string {
	s := v.Outcome.String()
	if v.Outcome != toolhealth.OutcomeSuccess {
		s += "/" + v.Kind.String()
	}
	if v.Retryable {
		s += "/retry"
	}
	if v.NotSent {
		s += "/notsent"
	}
	if v.RetryAfter > 0 {
		s += fmt.Sprintf("/wait=%v", v.RetryAfter)
	}
	return s
}

// slack is by how much a stated wait may differ: dates are whole seconds, and
// time passes between the answer and the verdict.
const slack = 3 * time.Second

// fits reports whether the verdict is one of those that are wanted.
func fits(v toolhealth.Verdict, want string) bool {
	got := v
	got.RetryAfter = 0
	for one := range strings.SplitSeq(want, "|") {
		if prefix, open := strings.CutSuffix(one, "*"); open {
			if strings.HasPrefix(text(got), prefix) {
				return true
			}
			continue
		}
		rest, wait, stated := strings.Cut(one, "/wait=")
		if text(got) != rest || stated != (v.RetryAfter > 0) {
			continue
		}
		if d, _ := time.ParseDuration(wait); (v.RetryAfter - d).Abs() <= slack {
			return true
		}
	}
	return false
}

// rounded is the verdict with a wait that is the same on each run: of a date, a
// little less is left than was stated.
func rounded(p Played) toolhealth.Verdict {
	v := p.Verdict
	if v.RetryAfter > 30*time.Second {
		v.RetryAfter = v.RetryAfter.Round(5 * time.Second)
	}
	return v
}
