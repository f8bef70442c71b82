package promhealth

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/toolhealth/toolhealth"
)

// Other is the name under which the counters are added up of the tools beyond
// Options.MaxTools, and of the groups beyond Options.MaxGroups.
const Other = "_other"

// Options of New. The zero Options are the defaults.
type Options struct {
	// MaxTools bounds the tools that have series of their own: those that are not well come
	// first, then those that are called most. 0: 1000; [toolhealth.Off]: no bound but that
	// of the registry.
	MaxTools int
	// MaxGroups is the same for groups. 0: 200.
	MaxGroups int
	// ConstLabels are on every series. Two registries of one process need them: the same
	// labels with another value, such as {"registry": "billing"}.
	ConstLabels prometheus.Labels
	// ToolLabels are keys of ToolHealth.Labels that toolhealth_tool_info has as labels. A
	// tool without one has it empty. The default is none.
	ToolLabels []string
}

// Collector is a [prometheus.Collector] of one registry. Its methods may be called from
// any goroutine.
type Collector struct {
	registry *toolhealth.Registry
	options  Options
	descs    descs
	constant []*dto.LabelPair // of Options.ConstLabels
	moves    moves
	stop     func()

	mu   sync.Mutex // scrapes come one after the other
	last scrape
	rest rest
}

// New returns a Collector of the registry, which counts its transitions from now on, or an
// error for Options that cannot be. It is still to be registered.
func New(registry *toolhealth.Registry, o Options) (*Collector, error) {
	bounds := []struct {
		field string
		value *int
		zero  int
	}{{"MaxTools", &o.MaxTools, 1000}, {"MaxGroups", &o.MaxGroups, 200}}
	for _, b := range bounds {
		switch {
		case *b.value == 0:
			*b.value = b.zero
		case *b.value < 0 && *b.value != toolhealth.Off:
			return nil, fmt.Errorf("promhealth: Options.%s: %d is negative", b.field, *b.value)
		}
	}
	taken := []string{"tool", "group", "state", "reason", "outcome", "kind", "from", "to", "cause", "result", "hint"}
	for name, value := range o.ConstLabels {
		if err := checkLabel("ConstLabels", name, taken); err != nil {
			return nil, err
		}
		if clean(value) != value {
			return nil, fmt.Errorf("promhealth: Options.ConstLabels: the value %q of %q is no UTF-8", value, name)
		}
	}
	taken = slices.AppendSeq(taken, maps.Keys(o.ConstLabels))
	for _, name := range o.ToolLabels {
		if err := checkLabel("ToolLabels", name, taken); err != nil {
			return nil, err
		}
		taken = append(taken, name)
	}
	o.ToolLabels = slices.Clone(o.ToolLabels)
	c := &Collector{registry: registry, options: o, descs: newDescs(o.ConstLabels, o.ToolLabels)}
	for name, value := range o.ConstLabels {
		c.constant = append(c.constant, &dto.LabelPair{Name: &name, Value: &value})
	}
	summary := registry.HealthSummary()
	c.last.at = began(&summary, time.Now())
	c.moves = moves{counts: make(map[move]*moved), since: c.last.at}
	c.rest.began = c.last.at
	c.stop = registry.OnTransition(c.moves.count)
	return c, nil
}

// checkLabel returns what is wrong with a name for a label.
func checkLabel(field, name string, taken []string) error {
	switch {
	case !model.LegacyValidation.IsValidLabelName(name) || strings.HasPrefix(name, "__"):
		return fmt.Errorf("promhealth: Options.%s: %q is no name for a label", field, name)
	case slices.Contains(taken, name):
		return fmt.Errorf("promhealth: Options.%s: %q is a label already", field, name)
	}
	return nil
}

// began returns when the counters of a registry were zero, as far as can be seen: the
// oldest state is that of a tool that never left closed, and as old as the registry.
func began(s *toolhealth.Summary, now time.Time) time.Time {
	for i := range s.Tools {
		if since := s.Tools[i].Since; since.Before(now) {
			now = since
		}
	}
	return now
}

// Close ends the counting of transitions. A registry that is collected by the end of the
// program needs no Close.
func (c *Collector) Close() { c.stop() }

// Describe sends what series there can be, so that a second Collector without
// ConstLabels of its own is refused when it is registered.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs.all {
		ch <- d
	}
}

// Collect reads the registry.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, m := range c.read() {
		ch <- m
	}
}

// read returns every series as it is now.
func (c *Collector) read() []prometheus.Metric {
	c.mu.Lock()
	defer c.mu.Unlock()
	moved := c.moves.read() // before the summary, so that whose breaker moved is in it
	now := c.readRegistry()
	names := nameTools(now.summary.Tools, now.toolNames(&c.last), c.options.MaxTools)
	groups := nameGroups(now.summary.Groups, c.options.MaxGroups)
	for i := range now.tools {
		now.tools[i].name = names[i]
	}

	e := &emitter{
		descs: &c.descs, constant: c.constant, pairs: make(map[pair]*dto.LabelPair),
		metrics: make([]prometheus.Metric, 0, 64+48*len(now.tools)),
	}
	e.registry(&now.summary, timestamppb.New(c.rest.began))
	for i := range now.tools {
		t := &now.tools[i]
		if t.name == "" {
			c.rest.addTool(&c.descs, t, now.guarded)
			continue
		}
		e.gauges(t.name, t.health, now.guarded)
		e.info(t.name, t.health, c.options.ToolLabels)
		created := timestamppb.New(t.created)
		e.toolCounters(t.name, c.descs.counters(t, now.guarded), created)
		e.latency(t.name, &t.latency, created)
	}
	for i := range now.groups {
		g := &now.groups[i]
		if g.name = groups[i]; g.name == "" {
			c.rest.addGroup(g)
			continue
		}
		e.group(g)
	}
	e.rest(&c.rest)
	e.moves(c.moves.share(moved, now.names()))
	c.moves.scraped(now.at)
	now.forget()
	c.last = now
	return e.metrics
}
