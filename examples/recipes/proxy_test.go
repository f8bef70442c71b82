package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/toolhealth/toolhealth"
)

// nothingBehindProxy is a rule for a proxy that answers 404 with a page of its own when
// the service behind it is gone. The service answers everything in JSON, a 404 too.
func nothingBehindProxy(err error) (toolhealth.Verdict, bool) {
	status, ok := errors.AsType[*toolhealth.StatusError](err)
	if !ok || status.StatusCode != http.StatusNotFound || isJSON(status.Header) {
		return toolhealth.Verdict{}, false // the usual rules decide
	}
	return toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError, Retryable: true}, true
}

func isJSON(header http.Header) bool {
	return strings.HasPrefix(header.Get("Content-Type"), "application/json")
}

// A 404 of the service is an answer. A 404 of the proxy counts against the tool.
func Example_proxy() {
	alive := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if alive {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error": "no issue 7"}`)
			return
		}
		http.Error(w, "404 page not found", http.StatusNotFound)
	}))
	defer server.Close()

	rules := toolhealth.ErrorRules{Own: []toolhealth.Rule{nothingBehindProxy}}
	guard := newGuard(toolhealth.Settings{Classify: rules.Classify})
	issue := toolhealth.Wrap(guard, "issue", func(ctx context.Context, path string) (string, error) {
		return get(ctx, server.Client(), server.URL+path)
	})
	for range 3 {
		fmt.Println(forModel(issue.Call(context.Background(), "/issues/7")))
	}
	alive = false
	for range 3 {
		fmt.Println(forModel(issue.Call(context.Background(), "/issues/8")))
	}
	// Output:
	// HTTP status 404: {"error": "no issue 7"}
	// HTTP status 404: {"error": "no issue 7"}
	// HTTP status 404: {"error": "no issue 7"}
	// tool failed: internal error of the tool
	// tool failed: internal error of the tool
	// tool temporarily unavailable: circuit breaker open; retry after 30s
}
