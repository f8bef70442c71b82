package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/dashboard"
)

// maxBody bounds what is read of a request and of an answer.
const maxBody = 1 << 20

// gateway serves HTTP tools under POST /tools/{name}, through a guard.
type gateway struct {
	client   *http.Client
	tools    map[string]string // address of each tool
	guard    *toolhealth.Guard
	page     http.Handler // for operators
	settings sync.Mutex   // held to change the guard's settings
}

func newGateway(client *http.Client, tools map[string]string, settings toolhealth.Settings, log *slog.Logger) (*gateway, error) {
	settings.RegisteredOnly = true // a name that the model made up is refused and leaves no trace
	logCalls(&settings, log)
	guard, err := toolhealth.New(settings)
	if err != nil {
		return nil, err
	}
	for name := range tools {
		if err := guard.Registry().Register(name, toolhealth.ToolOptions{}); err != nil {
			return nil, err
		}
	}
	logBreakers(guard.Registry(), log)
	page := dashboard.New(guard.Registry(), dashboard.Options{Name: "gateway", Operator: operatorOf})
	return &gateway{client: client, tools: tools, guard: guard, page: page}, nil
}

// change puts changed settings in force from the next call on, or nothing if one of
// them is wrong. The health of the tools and their retry budgets stay.
func (g *gateway) change(edit func(*toolhealth.Settings) error) error {
	g.settings.Lock()
	defer g.settings.Unlock()
	settings := g.guard.Settings()
	if err := edit(&settings); err != nil {
		return err
	}
	return g.guard.SetSettings(settings)
}

// reroute replaces the substitutes of all tools.
func (g *gateway) reroute(substitutes map[string][]string) error {
	return g.change(func(s *toolhealth.Settings) error {
		tools := make(map[string]toolhealth.ToolSettings)
		for name := range g.tools {
			tool := s.Tools[name]
			tool.Substitutes = substitutes[name]
			tools[name] = tool
		}
		for name := range substitutes {
			if _, ok := tools[name]; !ok {
				return fmt.Errorf("there is no tool %q", name)
			}
		}
		s.Tools = tools
		return nil
	})
}

// handler returns the pages for agents.
func (g *gateway) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tools/{name}", g.callTool)
	return mux
}

// admin returns the pages for operators only: serve them on another port.
func (g *gateway) admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, g.guard.Registry().HealthSummary())
	})
	mux.Handle("/page/", g.page)
	mux.HandleFunc("POST /tools/{name}/isolate", g.operate((*toolhealth.Registry).Isolate))
	mux.HandleFunc("POST /tools/{name}/reset", g.operate((*toolhealth.Registry).Reset))
	mux.HandleFunc("PUT /config", func(w http.ResponseWriter, r *http.Request) {
		obey(w, r, func(body []byte) error { // a key that the body leaves out keeps its value
			return g.change(func(s *toolhealth.Settings) error { return json.Unmarshal(body, s) })
		})
	})
	mux.HandleFunc("PUT /routes", func(w http.ResponseWriter, r *http.Request) {
		obey(w, r, func(body []byte) error {
			var substitutes map[string][]string
			if err := json.Unmarshal(body, &substitutes); err != nil {
				return err
			}
			return g.reroute(substitutes)
		})
	})
	return mux
}

// operatorOf returns the name of who sent a request, which is that of its credentials: the
// server in front of this port checks them.
func operatorOf(r *http.Request) (who string, ok bool) {
	who, _, ok = r.BasicAuth()
	return who, ok
}

// operate returns the handler of an operator's action on one tool.
func (g *gateway) operate(do func(r *toolhealth.Registry, tool, by string) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		by, _ := operatorOf(r)
		if !do(g.guard.Registry(), r.PathValue("name"), by) {
			http.Error(w, "no such tool", http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// obey reads the body of an operator's request and applies it.
func obey(w http.ResponseWriter, r *http.Request, apply func(body []byte) error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = apply(body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest) // the text names every wrong field
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// callTool runs one tool call of an agent.
func (g *gateway) callTool(w http.ResponseWriter, r *http.Request) {
	arguments, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "the arguments are too long", http.StatusRequestEntityTooLarge)
		return
	}
	ctx, info := toolhealth.WithCallInfo(r.Context())
	answer, err := toolhealth.Call(ctx, g.guard, r.PathValue("name"),
		func(ctx context.Context, tool string) (string, error) {
			return post(ctx, g.client, g.tools[tool], string(arguments))
		})
	w.Header().Set("X-Attempts", strconv.Itoa(info.Attempts))
	if failed, ok := errors.AsType[*toolhealth.ToolError](err); ok {
		if failed.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(failed.RetryAfter.Seconds()))))
		}
		writeJSON(w, statusFor(failed.Reason), failed) // safe to show to the model as it is
		return
	}
	w.Header().Set("X-Served-By", info.Served)
	_, _ = io.WriteString(w, answer)
}

// statusFor returns the HTTP status for a stop reason.
func statusFor(reason toolhealth.StopReason) int {
	switch reason {
	case toolhealth.StopUnknownTool:
		return http.StatusNotFound
	case toolhealth.StopNonRetryable:
		return http.StatusUnprocessableEntity
	case toolhealth.StopCircuitOpen, toolhealth.StopProbeInFlight, toolhealth.StopIsolated, toolhealth.StopBusy:
		return http.StatusServiceUnavailable
	case toolhealth.StopRateLimited:
		return http.StatusTooManyRequests
	}
	return http.StatusBadGateway
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// post makes one request to a tool.
func post(ctx context.Context, client *http.Client, address, arguments string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(arguments))
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if bad := toolhealth.CheckStatus(resp.StatusCode, resp.Header); bad != nil {
		return "", bad
	}
	return string(body), err
}

// addresses returns the address of each tool on one host.
func addresses(base string, names ...string) map[string]string {
	tools := make(map[string]string)
	for _, name := range names {
		tools[name] = base + "/" + url.PathEscape(name)
	}
	return tools
}

// rules returns the settings of this program; timeout is the limit of one attempt.
func rules(timeout time.Duration) toolhealth.Settings {
	usual := toolhealth.Policy{Timeout: timeout, BackoffBase: timeout / 20}
	mail := usual
	mail.SideEffects = true // a mail is not repeated unless it surely did not go out
	return toolhealth.Settings{
		Policy: usual,
		Tools:  map[string]toolhealth.ToolSettings{"mail": {Policy: &mail}},
	}
}
