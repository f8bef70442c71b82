package httphealth_test

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

// An SDK keeps nothing of an answer but a text. Its requests carry the ctx of the tool
// function, so the breaker learns of the wait that the server has stated.
func ExampleWitness() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()

	client := &http.Client{Transport: httphealth.Witness(server.Client().Transport)}
	sdk := func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return errors.New("the search did not work") // which is all that it says
	}

	gate := &toolhealth.Gate{Registry: toolhealth.NewRegistry()}
	search := func(ctx context.Context) error {
		permit, err := gate.Allow(ctx, "search")
		if err != nil {
			return err
		}
		defer permit.Release()
		ctx = toolhealth.WithNotes(ctx) // a Guard does this by itself
		err = sdk(ctx)
		permit.Done(ctx, err)
		return err
	}
	for range 2 {
		fmt.Println(search(context.Background()))
	}
	// Output:
	// the search did not work
	// tool temporarily unavailable: rate limited; retry after 120s
}

// A breaker for each host that a client reaches.
func ExampleTransport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()

	client := &http.Client{Transport: &httphealth.Transport{
		Gate: &toolhealth.Gate{Registry: toolhealth.NewRegistry()},
		Base: server.Client().Transport,
	}}
	for range 4 {
		resp, err := client.Get(server.URL)
		if refusal, ok := errors.AsType[*toolhealth.Refusal](err); ok {
			fmt.Println(refusal) // without the URL, which err has
			continue
		}
		if err != nil {
			fmt.Println("no answer")
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close() // the outcome counts from here on
		fmt.Println(resp.Status)
	}
	// Output:
	// 503 Service Unavailable
	// 503 Service Unavailable
	// 503 Service Unavailable
	// tool temporarily unavailable: circuit breaker open; retry after 30s
}
