package httphealth

import (
	"mime"
	"net/http"
	"strings"
	"sync"

	"github.com/toolhealth/toolhealth"
)

// maxText is how much of a body is kept, in bytes: Classify looks at no more.
const maxText = 4096

// answer is what one HTTP answer has said so far: its status and header at once, and
// the JSON of an answer that is no success as its reader comes to it. All methods may
// be called from many goroutines.
type answer struct {
	status toolhealth.StatusError
	failed bool // neither a success nor a redirect
	json   bool // the body is JSON

	mu   sync.Mutex
	text []byte // the beginning of the body, if failed and json
}

func newAnswer(res *http.Response) *answer {
	return &answer{
		status: toolhealth.StatusError{StatusCode: res.StatusCode, Header: res.Header},
		failed: !isRedirect(res) && res.StatusCode != http.StatusSwitchingProtocols &&
			toolhealth.CheckStatus(res.StatusCode, res.Header) != nil,
		json: isJSON(res.Header.Get("Content-Type")),
	}
}

// isRedirect reports whether the answer names another place: the server is alive, and
// what the client makes of the answer is not its business.
func isRedirect(res *http.Response) bool {
	switch res.StatusCode {
	case 301, 302, 303, 307, 308:
		return res.Header.Get("Location") != ""
	}
	return false
}

func isJSON(contentType string) bool {
	media, _, _ := mime.ParseMediaType(contentType)
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// read takes the next bytes of the body.
func (a *answer) read(p []byte) {
	if !a.failed || !a.json {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.text = append(a.text, p[:min(len(p), maxText-len(a.text))]...)
}

// err returns what the answer means as an error, with what is known of the body. It is
// nil if the answer is a success or a redirect.
func (a *answer) err() error {
	if !a.failed {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.text) == 0 {
		return &a.status
	}
	return &bodyError{StatusError: &a.status, Body: string(a.text)}
}

// bodyError is a StatusError with the beginning of the body, which Classify searches
// for codes and waits. Its text is that of the StatusError.
type bodyError struct {
	*toolhealth.StatusError
	Body string
}

func (e *bodyError) Unwrap() error { return e.StatusError }
