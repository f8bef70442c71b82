// Package scene plays an hour in the life of some tools, for tests and pictures of the
// page. Played in virtual time, each hour is the same.
package scene

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

// Tool is how one tool behaves.
type Tool struct {
	Name   string
	Rate   float64       // calls a second
	Median time.Duration // of the time that a call takes
	// Bad says how a call ends at a time after the beginning, and how likely that is; nil:
	// never anything but well.
	Bad func(at time.Duration) (v toolhealth.Verdict, share float64)
}

// Verdicts of calls that end badly.
var (
	Timeout     = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout}
	ServerError = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError}
	Connection  = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection, Retryable: true}
	Throttled   = toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, RetryAfter: 4 * time.Minute}
)

var (
	servers = []string{"github", "jira", "slack", "pg", "web", "files", "maps", "mail", "billing", "crm", "vector", "calendar"}
	verbs   = []string{
		"search", "create_issue", "post_message", "query", "fetch_page", "read_file", "geocode", "send",
		"get_invoice", "find_contact", "lookup", "list_events",
	}
	rates   = []float64{2, .3, .8, 4, 1.5, 3, .2, .15, .1, .4, 6, .05}
	medians = []int{420, 900, 230, 18, 1400, 3, 160, 700, 350, 280, 45, 510}
)

// Well returns twelve tools that are well.
func Well() []*Tool {
	tools := make([]*Tool, len(servers))
	for i := range tools {
		tools[i] = &Tool{Name: servers[i] + "/" + verbs[i], Rate: rates[i], Median: time.Duration(medians[i]) * time.Millisecond}
	}
	return tools
}

// Between returns what a tool does that is bad in a part of the hour.
func Between(from, to int, v toolhealth.Verdict, share float64) func(time.Duration) (toolhealth.Verdict, float64) {
	return func(at time.Duration) (toolhealth.Verdict, float64) {
		if at < time.Duration(from)*time.Minute || at >= time.Duration(to)*time.Minute {
			return v, 0
		}
		return v, share
	}
}

// unplugged returns what a tool does whose server is out of reach from a time on.
func unplugged(from time.Duration) func(time.Duration) (toolhealth.Verdict, float64) {
	return func(at time.Duration) (toolhealth.Verdict, float64) { return Connection, float64(min(1, at/from)) }
}

// Sick returns the twelve tools on a bad night: one is down, one flaps, one asks to wait,
// and one had a bad minute.
func Sick() []*Tool {
	tools := Well()
	down := Between(52, 61, Timeout, 1)
	tools[0].Bad = func(at time.Duration) (toolhealth.Verdict, float64) {
		if at > 20*time.Minute && at < 24*time.Minute {
			return Timeout, 0.9
		}
		return down(at)
	}
	tools[4].Bad = Between(30, 61, ServerError, 0.34)
	tools[7].Bad = Between(58, 61, Throttled, 1)
	tools[3].Bad = Between(8, 9, ServerError, 1)
	return tools
}

// Server returns twelve tools of six servers. One server is down.
func Server() []*Tool {
	names := []string{
		"github/search", "github/create_issue", "github/get_file", "github/list_pulls", "jira/create_issue", "jira/search",
		"slack/post_message", "slack/list_channels", "pg/query", "maps/geocode", "maps/route", "mail/send",
	}
	tools := make([]*Tool, len(names))
	for i, name := range names {
		tools[i] = &Tool{Name: name, Rate: rates[i], Median: time.Duration(medians[i]) * time.Millisecond}
		if Group(name) == "github" {
			tools[i].Bad = unplugged(53*time.Minute + 40*time.Second)
		}
	}
	return tools
}

// Group returns the group of a tool of Server and Many: its server.
func Group(tool string) string {
	server, _, _ := strings.Cut(tool, "/")
	return server
}

// Many returns 500 tools of 108 servers. One server is down, and two tools fail often.
func Many() []*Tool {
	random := rand.New(rand.NewPCG(5, 6))
	var tools []*Tool
	for i := range 500 {
		t := &Tool{
			Name: fmt.Sprintf("%s-%02d/%s_%d", servers[i%12], i/12%9, verbs[(i*7)%12], i/108+1),
			Rate: .02 + .4*random.ExpFloat64(), Median: time.Duration(20+random.IntN(900)) * time.Millisecond,
		}
		switch {
		case i%12 == 6 && i/12%9 == 3:
			t.Rate, t.Bad = .5, unplugged(57*time.Minute+10*time.Second)
		case i == 77, i == 300:
			t.Rate, t.Bad = 1, Between(0, 61, ServerError, .35)
		}
		tools = append(tools, t)
	}
	return tools
}

// Play plays an hour, in which the watcher takes its samples, and calls every with each
// minute that begins.
func Play(r *toolhealth.Registry, w *watch.Watcher, tools []*Tool, every func(minute int)) {
	random := rand.New(rand.NewPCG(3, 4))
	for s := range 3600 {
		at := time.Duration(s) * time.Second
		if s%60 == 0 && every != nil {
			every(s / 60)
		}
		for _, t := range tools {
			n := int(t.Rate)
			if random.Float64() < t.Rate-float64(n) {
				n++
			}
			for range n {
				call(r, t, at, random)
			}
		}
		time.Sleep(time.Second)
		if s%5 == 4 {
			w.Sample()
		}
	}
}

// call makes one call. It takes no time: what it took is only said.
func call(r *toolhealth.Registry, t *Tool, at time.Duration, random *rand.Rand) {
	took := time.Duration(float64(t.Median) * math.Exp(0.4*random.NormFloat64()))
	chance := random.Float64()
	if !r.AllowRequest(t.Name) {
		return
	}
	verdict := toolhealth.Verdict{}
	if t.Bad != nil {
		if bad, share := t.Bad(at); chance < share {
			verdict = bad
			if bad.Kind == toolhealth.KindTimeout {
				took = 10 * time.Second
			}
		}
	}
	r.Record(t.Name, verdict, took)
}
