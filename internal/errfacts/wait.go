package errfacts

import (
	"cmp"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// This file knows every way to state a wait: by headers, by fields, and in the
// JSON of an answer.

// Header is the header of an answer. Some SDKs keep one value a name.
type Header struct {
	many map[string][]string
	one  map[string]string
}

// HeaderOf returns the Header of a map such as http.Header.
func HeaderOf(h map[string][]string) Header { return Header{many: h} }

func (h Header) empty() bool { return len(h.many) == 0 && len(h.one) == 0 }

// get returns the first value of a name, in canonical form or as HTTP/2 writes it, and
// the others.
func (h Header) get(canonical, lower string) (string, []string) {
	if h.one != nil {
		return cmp.Or(h.one[lower], h.one[canonical]), nil
	}
	if v := h.many[canonical]; len(v) > 0 {
		return v[0], v[1:]
	}
	return "", nil
}

// limits calls f with each name that is about a limit, in lower case, and its first
// value.
func (h Header) limits(f func(name, value string)) {
	for name, values := range h.many {
		if strings.Contains(name, "imit") && len(values) > 0 { // the others need no copy in lower case
			f(strings.ToLower(name), values[0])
		}
	}
	for name, value := range h.one {
		if strings.Contains(name, "imit") {
			f(strings.ToLower(name), value)
		}
	}
}

// now is the time by the clock of the sender: times in a header are compared with
// that, because its clock and ours may differ.
func (h Header) now() time.Time {
	date, _ := h.get("Date", "date")
	if t := httpDate(date); !t.IsZero() {
		return t
	}
	return time.Now()
}

// retryAfter is the wait of a Retry-After header, or of its cousin in milliseconds,
// which is finer and comes first. Zero means that none states one.
func (h Header) retryAfter() time.Duration {
	if ms, _ := h.get("Retry-After-Ms", "retry-after-ms"); ms != "" {
		if d := ofNumber(ms, time.Millisecond, h.now); d > 0 {
			return d
		}
	}
	value, more := h.get("Retry-After", "retry-after")
	d := h.wait(value)
	for ; d == 0 && len(more) > 0; more = more[1:] {
		d = h.wait(more[0])
	}
	return d
}

// wait reads one value of a header: a number of seconds, a duration such as
// "6m0s", or a time as HTTP or RFC 3339 writes it.
func (h Header) wait(s string) time.Duration {
	switch s = strings.TrimSpace(s); {
	case s == "": // most headers have none
		return 0
	case isNumber(s):
		return ofNumber(s, time.Second, h.now)
	}
	if d, err := time.ParseDuration(s); err == nil && s[0] != '+' {
		return max(d, 0)
	}
	t := httpDate(s)
	if t.IsZero() {
		t, _ = time.Parse(time.RFC3339, s)
	}
	if t.IsZero() {
		return 0
	}
	return max(t.Sub(h.now()), 0)
}

// usedUp reports whether the header says that nothing remains, by the names that those
// services use that say so beside a 400 or 403: GitHub, Linear. Most answers with these
// statuses are about something else, so it is a quick look.
func (h Header) usedUp() bool {
	for _, name := range [...][2]string{
		{"X-Ratelimit-Remaining", "x-ratelimit-remaining"},
		{"X-Ratelimit-Requests-Remaining", "x-ratelimit-requests-remaining"},
	} {
		if left, _ := h.get(name[0], name[1]); left == "0" {
			return true
		}
	}
	return false
}

// reset is the wait until the largest of the limits in the header is reset. A limit
// of which something remains does not count, nor does one that says nothing of what
// remains if that must be known.
func (h Header) reset(mustKnow bool) (longest time.Duration) {
	if h.empty() || mustKnow && !h.usedUp() {
		return 0
	}
	if ms, _ := h.get("X-Ms-Retry-After-Ms", "x-ms-retry-after-ms"); ms != "" { // Azure, beside a 429
		return ofNumber(ms, time.Millisecond, h.now)
	}
	h.limits(func(name, value string) {
		switch {
		case !strings.Contains(name, "ratelimit") && !strings.Contains(name, "rate-limit"):
		case !strings.Contains(name, "reset"):
			longest = max(longest, h.ofPolicy(value, mustKnow))
		default:
			if left := h.remaining(name); left == "0" || left == "" && !mustKnow {
				longest = max(longest, h.wait(value))
			}
		}
	})
	return longest
}

// remaining returns what the header says of the limit whose reset has this name:
// the same name with "remaining" in the place of "reset" or "reset-after".
func (h Header) remaining(reset string) (left string) {
	name := strings.Replace(strings.TrimSuffix(reset, "-after"), "reset", "remaining", 1)
	h.limits(func(n, value string) {
		if n == name {
			left = strings.TrimSpace(value)
		}
	})
	return left
}

// ofPolicy reads the RateLimit header of the IETF drafts: "limit";r=0;t=30, or
// limit=100, remaining=0, reset=30 in an older one.
func (h Header) ofPolicy(value string, mustKnow bool) time.Duration {
	var left, wait string
	for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ';' || r == ',' }) {
		switch key, v, _ := strings.Cut(strings.TrimSpace(part), "="); key {
		case "r", "remaining":
			left = v
		case "t", "reset":
			wait = v
		}
	}
	if left == "0" || left == "" && !mustKnow {
		return h.wait(wait)
	}
	return 0
}

// httpDate reads the three forms of a date in HTTP; zero if s is none.
func httpDate(s string) time.Time {
	if len(s) < len("Sat Jan  1 01:00:00 2000") {
		return time.Time{}
	}
	for _, layout := range [...]string{"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 MST", time.ANSIC} {
		if t, err := time.Parse(layout, s); err == nil {
			return t
		}
	}
	return time.Time{}
}

// isNumber reports whether s has digits and points only: ParseFloat would take
// "inf" and "0x1p-2" too.
func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789.") == "" }

const year = 365 * 24 * time.Hour

// ofNumber is the wait of a number of units. A number above a year is no wait but
// a time since 1970, in seconds or milliseconds, or nonsense.
func ofNumber(s string, unit time.Duration, now func() time.Time) time.Duration {
	if s = strings.TrimSpace(s); !isNumber(s) {
		return 0
	}
	n, _ := strconv.ParseFloat(s, 64) // 0 for "1.2.3", infinity for what is too large
	return ofFloat(n, unit, now)
}

func ofFloat(n float64, unit time.Duration, now func() time.Time) time.Duration {
	if ns := n * float64(unit); ns <= float64(year) {
		return max(time.Duration(ns), 0)
	}
	if n > 1e11 { // milliseconds: in seconds it would be the year 5138
		n /= 1e3
	}
	whole, part := math.Modf(min(n, 1e11))
	d := time.Unix(int64(whole), int64(part*float64(time.Second))).Sub(now())
	if d < 0 || d > year {
		return 0
	}
	return d
}

// waitFields adds the questions to fields that state a wait.
func (s *shape) waitFields(t reflect.Type) {
	can(&s.waits, t, func(e interface{ GetRetryAfter() time.Duration }) time.Duration { return e.GetRetryAfter() })
	can(&s.waits, t, func(e interface{ RetryAfter() time.Duration }) time.Duration { return e.RetryAfter() })
	field := func(unit time.Duration, names ...string) {
		p, typ := findPath(t, names...)
		if p == nil {
			return
		}
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		ask := func(v reflect.Value, _ error) time.Duration { // if v is a nil pointer it panics: no answer
			return ofFloat(float64(reflect.Indirect(v).Int()), unit, time.Now)
		}
		switch {
		case typ == reflect.TypeFor[time.Duration]():
			ask = func(v reflect.Value, _ error) time.Duration { return time.Duration(reflect.Indirect(v).Int()) }
		case !isInt(typ):
			return
		}
		s.waits = append(s.waits, at(p, ask))
	}
	field(time.Second, "RetryAfter")
	field(time.Second, "RetryAfterSeconds")
	field(time.Millisecond, "RetryAfterMs")
	field(time.Second, "ErrStatus", "Details", "RetryAfterSeconds") // k8s
	if p, typ := findPath(t, "Details"); p != nil && typ.Kind() == reflect.Slice {
		s.waits = append(s.waits, at(p, func(v reflect.Value, _ error) time.Duration { return ofDetails(v) }))
	}
}

// headers adds the questions to the header of an answer.
func (s *shape) headerFields(t reflect.Type) {
	for _, names := range [...][]string{
		{"Header"}, {"Response", "Header"}, {"RawResponse", "Header"}, {"ResponseHeaders"},
	} {
		if p, typ := findPath(t, names...); p != nil && isHeader(typ) {
			s.headers = append(s.headers, at(p, func(v reflect.Value, _ error) Header { return headerIn(v) }))
		}
	}
	if m, ok := t.MethodByName("Meta"); ok && isGetter(m.Type) && isHeader(m.Type.Out(0)) { // connect
		s.headers = append(s.headers, func(node error) Header { return headerIn(call(m, reflect.ValueOf(node))) })
	}
}

var (
	headerType     = reflect.TypeFor[map[string][]string]()
	flatHeaderType = reflect.TypeFor[map[string]string]()
)

func isHeader(t reflect.Type) bool { return t.ConvertibleTo(headerType) || t == flatHeaderType }

// headerIn returns the header that is the value of a field.
func headerIn(v reflect.Value) Header {
	switch {
	case v.Len() == 0:
		return Header{}
	case v.Type() == flatHeaderType:
		return Header{one: v.Interface().(map[string]string)}
	case v.CanAddr():
		// Such a type has the same memory whatever its name. A Convert would say so,
		// too, after longer than all the rest of a classification takes.
		return Header{many: *(*map[string][]string)(v.Addr().UnsafePointer())}
	}
	return Header{many: v.Convert(headerType).Interface().(map[string][]string)}
}

// ofDetails looks for Google's RetryInfo in a list of details: messages of
// protobuf, or maps that were read from JSON.
func ofDetails(list reflect.Value) time.Duration {
	for i := range list.Len() {
		if d := ofDetail(concrete(list.Index(i))); d > 0 {
			return d
		}
	}
	return 0
}

func ofDetail(d reflect.Value) time.Duration {
	switch {
	case d.Kind() == reflect.Map && d.Type().Key().Kind() == reflect.String:
		text := concrete(d.MapIndex(reflect.ValueOf("retryDelay").Convert(d.Type().Key())))
		if text.Kind() == reflect.String {
			return Header{}.wait(text.String())
		}
	case d.Kind() == reflect.Struct:
		seconds, nanos := fieldOf(d, "RetryDelay", "Seconds"), fieldOf(d, "RetryDelay", "Nanos")
		if seconds.Kind() == reflect.Int64 && nanos.Kind() == reflect.Int32 {
			return ofFloat(float64(seconds.Int())+float64(nanos.Int())/1e9, time.Second, time.Now)
		}
	}
	return 0
}

// concrete is what is in an interface or behind a pointer.
func concrete(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return v
}

// fieldOf returns a field of a struct by a path of names; the zero Value if there
// is none.
func fieldOf(v reflect.Value, names ...string) reflect.Value {
	if p, _ := findPath(v.Type(), names...); p != nil {
		v, _ = p.in(v)
		return v
	}
	return reflect.Value{}
}

// jsonWaits are the keys by which the JSON of an answer states a wait, with the unit
// of a number.
var jsonWaits = [...]struct {
	key  string
	unit time.Duration
}{
	{`"retryDelay"`, time.Second}, {`"retryAfterMs"`, time.Millisecond}, {`"retry_after_ms"`, time.Millisecond},
	{`"retryAfterSeconds"`, time.Second}, {`"retry_after_seconds"`, time.Second},
	{`"retryAfter"`, time.Second}, {`"retry_after"`, time.Second},
}

// ofJSON is the wait that the JSON of an answer states, wherever in it.
func ofJSON(text string) time.Duration {
	for _, k := range jsonWaits {
		for value := range jsonValues(text, k.key) {
			d := ofNumber(value, k.unit, time.Now)
			if d == 0 && !isNumber(value) {
				d = Header{}.wait(value)
			}
			if d > 0 {
				return d
			}
		}
	}
	return 0
}
