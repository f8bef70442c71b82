package errfacts

import (
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// texts is the whole list of texts that are looked for, because nothing else
// tells: what contains the text, and what it is taken for.
var texts = [...]struct {
	text string
	fact Fact
}{
	{"GOAWAY", Fact{Class: Stream}},
	{"stopped after 10 redirects", Fact{Class: Nonsense}},
	{"unsupported protocol scheme", Fact{Class: BadRequestURL}},
	{"malformed HTTP ", Fact{Class: Nonsense}},
	{"Too Many Requests", Fact{Class: HTTP, Code: 429}}, // go-sdk: rejected by transport
	{"session not found", Fact{Class: Broken}},
	{"session terminated", Fact{Class: Broken}}, // mcp-go
	{"connection closed", Fact{Class: Broken}},
}

// statusText precedes a status in the errors of mcp-go.
const statusText = "request failed with status "

// ofText looks at the beginning of a node's text.
func ofText(node error) Fact {
	text := node.Error()
	if len(text) <= maxExact && reflect.TypeOf(node) != plainError { // those have been looked up
		if f := exactTexts[text]; f.Class != None {
			return f
		}
	}
	text = text[:min(len(text), 1024)]
	if _, after, ok := strings.Cut(text, statusText); ok && len(after) >= 3 {
		status, _ := strconv.Atoi(after[:3]) // 0 if it is no number
		if f := httpFact(status, node, nil); f.Class != None {
			return f
		}
	}
	for i := range texts {
		if strings.Contains(text, texts[i].text) {
			return texts[i].fact
		}
	}
	return Fact{}
}

// httpDates are the three forms of a date in HTTP.
var httpDates = [...]string{"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 MST", time.ANSIC}

// RetryAfter returns the wait that a Retry-After header states: in seconds,
// with a fraction too, or up to an HTTP date in any of its three forms. It is 0
// for what is negative, past or unreadable.
func RetryAfter(s string) time.Duration {
	s = strings.TrimSpace(s)
	if isNumber(s) {
		return seconds(number(s))
	}
	for _, layout := range httpDates {
		if t, err := time.Parse(layout, s); err == nil {
			return max(time.Until(t), 0)
		}
	}
	return 0
}

// headerWait prefers the header with the finer unit.
func headerWait(ms, s string) time.Duration {
	if ms = strings.TrimSpace(ms); isNumber(ms) {
		if d := seconds(number(ms) / 1000); d > 0 {
			return d
		}
	}
	if s == "" {
		return 0
	}
	return RetryAfter(s)
}

// isNumber reports whether s has digits and points only: ParseFloat would take
// "inf" and "0x1p-2" too.
func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789.") == "" }

// number returns 0 for "1.2.3", and infinity for what is too large for a float64.
func number(s string) float64 {
	f, _ := strconv.ParseFloat(s, 64)
	return f
}

// seconds returns a duration between 0 and the longest there is.
func seconds(s float64) time.Duration {
	ns := s * float64(time.Second)
	switch {
	case !(ns > 0):
		return 0
	case ns >= math.MaxInt64:
		return math.MaxInt64
	}
	return time.Duration(ns)
}
