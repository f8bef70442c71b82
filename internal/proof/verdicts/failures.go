package verdicts

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"
)

// Failure is one way in which a call fails. Its name is its key in intended.go.
type Failure struct {
	Name string
	// Answer is what the server does with the request. Nil means that the
	// request never gets to it.
	Answer func(*exchange)
	// Way returns a broken way to the server, from a sound one. Nil means that
	// the way is sound.
	Way func(*target, *http.Transport) http.RoundTripper
	// Limit is the http.Client's Timeout. Zero means none.
	Limit time.Duration
	// Caller returns the caller's ctx. Nil means one that lives on.
	Caller func() (context.Context, context.CancelFunc)
	// Again means that the error of a second call counts, not of the first.
	Again bool
}

// short is the time limit of calls that are to exceed it.
const short = 150 * time.Millisecond

// statuses are bare status codes with the error body of the provider.
var statuses = each(
	[]string{"400", "401", "402", "403", "404", "405", "407", "408", "409", "410", "413", "422",
		"429", "500", "501", "502", "503", "504", "524", "529"},
	func(name string) Failure {
		return Failure{Answer: func(x *exchange) { x.fail(number(name), "") }}
	})

// stated are answers that state a wait in the most usual way.
var stated = []Failure{
	waiting("429 with Retry-After: 7", 429, "Retry-After", "7"),
	waiting("503 with Retry-After: 7", 503, "Retry-After", "7"),
}

// variants are further ways to state a wait. Only SDKs that hand headers on can
// tell them from answers without a wait.
var variants = []Failure{
	{Name: "429 with Retry-After: a date", Answer: func(x *exchange) {
		now := time.Now().UTC()
		x.header("Date", now.Format(http.TimeFormat))
		x.header("Retry-After", now.Add(40*time.Second).Format(http.TimeFormat))
		x.fail(429, "")
	}},
	{Name: "429 with Retry-After: a date, clock an hour ahead", Answer: func(x *exchange) {
		now := time.Now().UTC().Add(time.Hour)
		x.header("Date", now.Format(http.TimeFormat))
		x.header("Retry-After", now.Add(40*time.Second).Format(http.TimeFormat))
		x.fail(429, "")
	}},
	waiting("429 with retry-after-ms: 7000", 429, "Retry-After-Ms", "7000"),
	waiting("429 with resets 6m0s and 17ms", 429,
		"X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Requests", "6m0s", "X-RateLimit-Reset-Tokens", "17ms"),
	waiting("403 with Retry-After: 7", 403, "Retry-After", "7"),
	waiting("400 with Retry-After: 7", 400, "Retry-After", "7"),
	waiting("404 with Retry-After: 7", 404, "Retry-After", "7"),
	waiting("500 with Retry-After: 7", 500, "Retry-After", "7"),
	waiting("529 with Retry-After: 7", 529, "Retry-After", "7"),
}

func waiting(name string, status int, headers ...string) Failure {
	return Failure{Name: name, Answer: func(x *exchange) {
		for i := 0; i < len(headers); i += 2 {
			x.header(headers[i], headers[i+1])
		}
		x.fail(status, "")
	}}
}

const page = "<html><head><title>Sign in</title></head><body>Please sign in</body></html>"

// bodies are answers whose body is not what was agreed.
var bodies = []Failure{
	{Name: "200 with HTML", Answer: func(x *exchange) { x.say(200, "text/html", page) }},
	{Name: "302 to HTML", Answer: func(x *exchange) {
		if x.r.URL.Path == loginPath {
			x.say(200, "text/html", page)
			return
		}
		x.header("Location", loginPath)
		x.say(302, "text/html", "")
	}},
	{Name: "200 with HTML that says it is JSON", Answer: func(x *exchange) { x.say(200, "application/json", page) }},
	{Name: "401 with HTML", Answer: func(x *exchange) { x.say(401, "text/html", page) }},
	{Name: "429 with HTML", Answer: func(x *exchange) { x.say(429, "text/html", page) }},
	{Name: "502 with HTML", Answer: func(x *exchange) { x.say(502, "text/html", "<html>502 Bad Gateway</html>") }},
	{Name: "503 with JSON of a gateway", Answer: func(x *exchange) {
		x.say(503, "application/json", `{"message":"Service Unavailable"}`)
	}},
	{Name: "500 with an empty body", Answer: func(x *exchange) { x.say(500, "application/json", "") }},
	{Name: "200 with an empty body", Answer: func(x *exchange) { x.say(200, "application/json", "") }},
	{Name: "200 with nonsense", Answer: func(x *exchange) { x.say(200, "application/json", "oops") }},
	{Name: "200 with JSON of another shape", Answer: func(x *exchange) { x.say(200, "application/json", `["oops"]`) }},
	{Name: "200 with half a JSON", Answer: func(x *exchange) { x.say(200, "application/json", x.half()) }},
	{Name: "200, body cut", Answer: func(x *exchange) {
		x.header("Content-Length", "5000")
		x.begin(200, "application/json", x.half())
		x.cut()
	}},
	{Name: "200, body reset", Answer: func(x *exchange) {
		x.header("Content-Length", "5000")
		x.begin(200, "application/json", x.half())
		x.reset()
	}},
	{Name: "200, body stalls, Client.Timeout", Limit: short, Answer: func(x *exchange) {
		x.header("Content-Length", "5000")
		x.begin(200, "application/json", x.half())
		x.hang()
	}},
}

// ways are failures of the way to the server, and of the caller's patience.
var ways = []Failure{
	{Name: "connection refused", Way: func(_ *target, sound *http.Transport) http.RoundTripper {
		return dialing(sound, func(ctx context.Context, network string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, closedPort())
		})
	}},
	{Name: "unknown host name", Way: noName(net.DNSError{Err: "no such host", Name: "tool.invalid", IsNotFound: true})},
	{Name: "name server fails", Way: noName(net.DNSError{Err: "server misbehaving", Name: "tool.invalid", Server: "127.0.0.1:53", IsTemporary: true})},
	{Name: "dial times out", Way: func(_ *target, sound *http.Transport) http.RoundTripper {
		return dialing(sound, func(ctx context.Context, network string) (net.Conn, error) {
			return (&net.Dialer{Timeout: time.Nanosecond}).DialContext(ctx, network, closedPort())
		})
	}},
	{Name: "unknown certificate authority", Way: func(t *target, sound *http.Transport) http.RoundTripper {
		return redirected{sound, t.secure()}
	}},
	{Name: "TLS to a plain server", Way: func(t *target, sound *http.Transport) http.RoundTripper {
		return redirected{sound, t.plain()}
	}},
	{Name: "connection dropped", Answer: func(x *exchange) { x.cut() }},
	{Name: "connection reset", Answer: func(x *exchange) { x.reset() }},
	{Name: "answer is not HTTP", Answer: func(x *exchange) { x.raw("oops\r\n\r\n") }},
	{Name: "redirects without end", Answer: func(x *exchange) {
		x.header("Location", x.r.URL.Path)
		x.say(307, "text/plain", "")
	}},
	{Name: "hangs, Client.Timeout", Limit: short, Answer: func(x *exchange) { x.hang() }},
	{Name: "hangs, ResponseHeaderTimeout", Answer: func(x *exchange) { x.hang() }, Way: func(_ *target, sound *http.Transport) http.RoundTripper {
		sound.ResponseHeaderTimeout = short
		return sound
	}},
	{Name: "hangs, caller's deadline", Answer: func(x *exchange) { x.hang() }, Caller: deadline},
	{Name: "hangs, caller cancels", Answer: func(x *exchange) { x.hang() }, Caller: cancels},
	{Name: "hangs, caller cancels because of its deadline", Answer: func(x *exchange) { x.hang() }, Caller: func() (context.Context, context.CancelFunc) {
		return canceling(context.DeadlineExceeded)
	}},
	{Name: "hangs, caller cancels because of a sibling", Answer: func(x *exchange) { x.hang() }, Caller: func() (context.Context, context.CancelFunc) {
		return canceling(errors.New("a sibling failed"))
	}},
}

func deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), short)
}

func cancels() (context.Context, context.CancelFunc) { return canceling(context.Canceled) }

func canceling(cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := time.AfterFunc(short, func() { cancel(cause) }).Stop
	return ctx, func() { stop(); cancel(nil) }
}

func noName(e net.DNSError) func(*target, *http.Transport) http.RoundTripper {
	return func(_ *target, sound *http.Transport) http.RoundTripper {
		return dialing(sound, func(_ context.Context, network string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: network, Err: &e} // as net.Dialer says it
		})
	}
}

// openings are failures before a stream begins: a selection, because they are
// those of a call without a stream.
var openings = pick(join(statuses, stated, bodies, ways), "401", "429", "429 with Retry-After: 7", "500", "503",
	"200 with HTML", "connection refused", "connection dropped", "connection reset",
	"hangs, Client.Timeout", "hangs, caller's deadline", "hangs, caller cancels")

// streams are failures after the first event of a stream.
var streams = []Failure{
	{Name: "stream cut", Answer: func(x *exchange) { x.open(); x.cut() }},
	{Name: "stream reset", Answer: func(x *exchange) { x.open(); x.reset() }},
	{Name: "stream stalls, Client.Timeout", Limit: short, Answer: func(x *exchange) { x.open(); x.hang() }},
	{Name: "stream stalls, caller's deadline", Answer: func(x *exchange) { x.open(); x.hang() }, Caller: deadline},
	{Name: "stream stalls, caller cancels", Answer: func(x *exchange) { x.open(); x.hang() }, Caller: cancels},
	{Name: "event with nonsense", Answer: func(x *exchange) { x.open(); x.event("oops") }},
	{Name: "event with HTML", Answer: func(x *exchange) { x.open(); x.event(page) }},
	{Name: "event with half a JSON", Answer: func(x *exchange) { x.open(); x.event(x.half()) }},
	{Name: "event says: server error", Answer: func(x *exchange) { x.open(); x.fault("500") }},
	{Name: "event says: overloaded", Answer: func(x *exchange) { x.open(); x.fault("503") }},
	{Name: "event says: rate limited", Answer: func(x *exchange) { x.open(); x.fault("429") }},
	{Name: "event says: bad request", Answer: func(x *exchange) { x.open(); x.fault("400") }},
	{Name: "event says: key not valid", Answer: func(x *exchange) { x.open(); x.fault("401") }},
	{Name: "event says: quota used up", Answer: func(x *exchange) { x.open(); x.fault(quota) }},
}

// saying are the events in the words of a model's API.
var saying = []string{"event says: server error", "event says: overloaded", "event says: rate limited",
	"event says: bad request", "event says: key not valid", "event says: quota used up"}

// quota is the code of an empty quota, in the words of no provider.
const quota = "quota"

// Codes of the providers that say more than the status.
var (
	openaiCodes = []Failure{
		{Name: "429 insufficient_quota", Answer: func(x *exchange) { x.fail(429, quota) }},
		{Name: "429 insufficient_quota with Retry-After: 7", Answer: func(x *exchange) { x.header("Retry-After", "7"); x.fail(429, quota) }},
		{Name: "400 context_length_exceeded", Answer: func(x *exchange) { x.fail(400, "context_length_exceeded") }},
		{Name: "403 unsupported_country_region_territory", Answer: func(x *exchange) { x.fail(403, "unsupported_country_region_territory") }},
	}
	anthropicCodes = []Failure{
		{Name: "402 billing_error", Answer: func(x *exchange) { x.fail(402, "billing_error") }},
		{Name: "429 enforced_spend_limit_reached", Answer: func(x *exchange) {
			x.say(429, "application/json", anthropicBody("rate_limit_error", `,"details":{"error_code":"enforced_spend_limit_reached"}`))
		}},
		{Name: "529 overloaded_error", Answer: func(x *exchange) { x.fail(529, "overloaded_error") }},
		{Name: "504 timeout_error", Answer: func(x *exchange) { x.fail(504, "timeout_error") }},
		{Name: "413 request_too_large", Answer: func(x *exchange) { x.fail(413, "request_too_large") }},
	}
	googleCodes = []Failure{
		{Name: "429 RESOURCE_EXHAUSTED with RetryInfo 21s", Answer: func(x *exchange) {
			x.say(429, "application/json", googleError(429, "RESOURCE_EXHAUSTED", `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"21s"}`))
		}},
		{Name: "429 RESOURCE_EXHAUSTED with RetryInfo 13.837906927s", Answer: func(x *exchange) {
			x.say(429, "application/json", googleError(429, "RESOURCE_EXHAUSTED", `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"13.837906927s"}`))
		}},
		{Name: "503 UNAVAILABLE with RetryInfo 21s", Answer: func(x *exchange) {
			x.say(503, "application/json", googleError(503, "UNAVAILABLE", `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"21s"}`))
		}},
		{Name: "400 API_KEY_INVALID", Answer: func(x *exchange) {
			x.say(400, "application/json", googleError(400, "INVALID_ARGUMENT", `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}`))
		}},
		{Name: "504 DEADLINE_EXCEEDED", Answer: func(x *exchange) { x.fail(504, "DEADLINE_EXCEEDED") }},
	}
)

// each makes a failure of each name.
func each(names []string, what func(string) Failure) []Failure {
	all := make([]Failure, 0, len(names))
	for _, name := range names {
		f := what(name)
		f.Name = name
		all = append(all, f)
	}
	return all
}

// pick returns the failures of these names. A name that is unknown is a mistake
// of this package.
func pick(all []Failure, names ...string) []Failure {
	return each(names, func(name string) Failure {
		i := slices.IndexFunc(all, func(f Failure) bool { return f.Name == name })
		if i < 0 {
			panic("verdicts: no failure " + name)
		}
		return all[i]
	})
}

// without returns the failures but those of these names.
func without(all []Failure, names ...string) []Failure {
	var rest []Failure
	for _, f := range all {
		if !slices.Contains(names, f.Name) {
			rest = append(rest, f)
		}
	}
	return rest
}

func join(groups ...[]Failure) []Failure { return slices.Concat(groups...) }
