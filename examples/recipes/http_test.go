package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/httphealth"
)

// get makes one request. http.Client takes every answer for a success; CheckStatus does
// not. The body of a bad answer is for the model, which reads it if the fault is its own.
func get(ctx context.Context, client *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if bad := toolhealth.CheckStatus(resp.StatusCode, resp.Header); bad != nil {
		return "", fmt.Errorf("%w: %s", bad, body)
	}
	return string(body), err
}

// sdk is a client of a vendor that keeps nothing of an answer but whether it was good.
type sdk struct {
	client *http.Client
	url    string
}

func (s *sdk) Search(ctx context.Context, query string) (string, error) {
	answer, err := get(ctx, s.client, s.url+"/?q="+query)
	if err != nil {
		return "", errors.New("search did not work")
	}
	return answer, nil
}

// One client for functions of your own and for SDKs. The Witness notes what an answer
// says in the ctx of its request, so the stated wait is known although the SDK drops it.
func Example_http() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/issues/7" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, "a number has six digits")
			return
		}
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()

	client := &http.Client{Transport: httphealth.Witness(server.Client().Transport)}
	vendor := &sdk{client, server.URL}
	guard := newGuard(toolhealth.Settings{})
	search := toolhealth.Wrap(guard, "search", vendor.Search)
	issue := toolhealth.Wrap(guard, "issue", func(ctx context.Context, number int) (string, error) {
		return get(ctx, client, fmt.Sprint(server.URL, "/issues/", number))
	})
	fmt.Println(forModel(issue.Call(context.Background(), 7)))
	for range 2 {
		fmt.Println(forModel(search.Call(context.Background(), "go")))
	}
	// Output:
	// HTTP status 422: a number has six digits
	// tool failed: rate limited; retry after 120s
	// tool temporarily unavailable: it asked to wait; retry after 120s
}
