package dashboard_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/dashboard"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

// The page on the port of the operators.
func ExampleNew() {
	guard, err := toolhealth.New(toolhealth.Settings{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	watcher := watch.New(guard.Registry(), watch.Options{})
	defer watcher.Close()
	go watcher.Run(ctx) // so that the last minutes are known when an operator comes

	mux := http.NewServeMux()
	mux.Handle("/tools/", dashboard.New(guard.Registry(), dashboard.Options{
		Name:     "agent-runtime eu-1",
		Watcher:  watcher,
		Operator: operator,
	}))

	server := httptest.NewServer(mux)
	defer server.Close()
	for range 3 {
		guard.Registry().RecordFailure("search", time.Second)
	}
	resp, err := server.Client().Get(server.URL + "/tools/")
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	html, _ := io.ReadAll(resp.Body)
	fmt.Println(strings.Contains(string(html), "The tool cannot be called."))
	// Output: true
}

// operator says who may act: here, the operator whom the proxy in front of this port has let
// through with a name.
func operator(r *http.Request) (who string, ok bool) {
	who = r.Header.Get("X-Forwarded-User")
	return who, who != ""
}
