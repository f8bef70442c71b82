package promhealth_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/promhealth"
)

func Example() {
	registry := toolhealth.NewRegistry() // that of a guard is guard.Registry()
	collector, err := promhealth.New(registry, promhealth.Options{})
	if err != nil {
		panic(err)
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collector)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))

	for range 3 {
		registry.RecordFailure("search", 0)
	}

	server := httptest.NewServer(mux)
	defer server.Close()
	resp, err := http.Get(server.URL + "/metrics")
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "toolhealth_tool_state{") || strings.HasPrefix(line, "toolhealth_trips") {
			fmt.Print(line)
		}
	}
	// Output:
	// toolhealth_tool_state{state="closed",tool="search"} 0
	// toolhealth_tool_state{state="half-open",tool="search"} 0
	// toolhealth_tool_state{state="open",tool="search"} 1
	// toolhealth_trips_total{tool="search"} 1
}

// Two registries of one process need a label.
func ExampleOptions() {
	metrics := prometheus.NewRegistry()
	for name, registry := range map[string]*toolhealth.Registry{"billing": toolhealth.NewRegistry(), "search": toolhealth.NewRegistry()} {
		collector, err := promhealth.New(registry, promhealth.Options{ConstLabels: prometheus.Labels{"registry": name}})
		if err != nil {
			panic(err)
		}
		fmt.Println(metrics.Register(collector))
	}
	// Output:
	// <nil>
	// <nil>
}
