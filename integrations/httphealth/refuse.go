package httphealth

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth"
)

// Unavailable is for Transport.Refuse, where the client is an SDK that takes answers
// better than errors. It returns an answer with status 503, the refusal's JSON under
// "error", and a Retry-After in whole seconds if waiting helps. X-Should-Retry is false,
// which keeps SDKs that know it from asking again.
//
// An error that is no refusal is returned as it is.
//
// A breaker around such a client, a Guard's too, takes the answer for a failure of the
// server, while it takes the refusal itself for none.
func Unavailable(req *http.Request, err error) (*http.Response, error) {
	var refusal *toolhealth.Refusal
	if !errors.As(err, &refusal) {
		return nil, err
	}
	text, bad := json.Marshal(map[string]*toolhealth.Refusal{"error": refusal})
	if bad != nil { // a refusal that the caller has made up
		return nil, err
	}
	header := http.Header{
		"Content-Type":   {"application/json"},
		"Content-Length": {strconv.Itoa(len(text))},
		"X-Should-Retry": {"false"},
	}
	if wait := waitOf(refusal); wait > 0 {
		header.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(wait.Seconds())), 10))
	}
	const code = http.StatusServiceUnavailable
	return &http.Response{
		Status: strconv.Itoa(code) + " " + http.StatusText(code), StatusCode: code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, ContentLength: int64(len(text)),
		Body: io.NopCloser(strings.NewReader(string(text))), Request: req,
	}, nil
}

// waitOf is how long asking again is pointless, and zero if waiting does not help.
func waitOf(r *toolhealth.Refusal) time.Duration {
	if r.Reason == toolhealth.StopIsolated || r.Reason == toolhealth.StopUnknownTool {
		return 0
	}
	return r.RetryAfter
}
