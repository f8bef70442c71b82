package otelhealth

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/otelhealth/internal/shown"
)

// MetricsOptions are the options of [Metrics]. The zero MetricsOptions are the defaults.
type MetricsOptions struct {
	// MeterProvider makes the instruments; nil: the global one.
	MeterProvider metric.MeterProvider
	// MaxTools bounds the tools, and the groups, that have series of their own; 0:
	// DefaultMaxTools, toolhealth.Off: no bound. The sick come first, then the busiest.
	// The counters of the rest are added up as the tool "_other".
	MaxTools int
	// Labels are the names of those labels in ToolHealth that become attributes
	// "toolhealth.label.NAME" of a tool's series.
	Labels []string
}

// Metrics registers instruments that read r when they are collected, until stop is called.
// A nil r has no tools. The error names the option that is wrong, or is the
// MeterProvider's.
//
// What a counter grows by between two collections is credited once: to the tool, if it has
// series of its own at that moment, else to "_other". So no series falls, but for
// those of a tool that was removed and came back, and rates add up; the series of a tool
// beyond the bound leave, and go on where they were when it is back. Transitions are
// counted from now on; those of a tool that was removed before they were collected are
// credited to "_other".
//
// With several readers, each collection of one is a moment for all.
func Metrics(r *toolhealth.Registry, o MetricsOptions) (stop func() error, err error) {
	limit, err := shown.Limit("otelhealth: MetricsOptions.MaxTools", o.MaxTools)
	if err != nil {
		return nil, err
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	m := &maker{meter: o.MeterProvider.Meter(Scope)}
	c := &collector{
		registry: r,
		own:      registryCounters(m),
		present:  m.level("toolhealth.tools", "{tool}", "Tools in the registry."),
		tools:    toolView(m, o.Labels, limit),
		groups:   groupView(m, limit),
	}
	if err := errors.Join(m.errs...); err != nil {
		return nil, fmt.Errorf("otelhealth: %w", err)
	}
	unhook := r.OnTransition(c.note)
	registration, err := m.meter.RegisterCallback(c.collect, m.all...)
	if err != nil {
		unhook()
		return nil, fmt.Errorf("otelhealth: %w", err)
	}
	return func() error {
		unhook()
		return registration.Unregister()
	}, nil
}

// collector reads a registry for the instruments.
type collector struct {
	registry *toolhealth.Registry
	mu       sync.Mutex // held while a reader collects
	own      []counter[toolhealth.Summary]
	present  metric.Int64Observable
	tools    *view[toolhealth.ToolHealth]
	groups   *view[toolhealth.GroupHealth]
}

// note counts a transition. It may wait for nothing that collects.
func (c *collector) note(t toolhealth.Transition) {
	m := move{t.From.String(), t.To.String(), t.Cause.String()}
	if t.Group != "" {
		c.groups.ledger.note(t.Group, m)
	} else {
		c.tools.ledger.note(t.Tool, m)
	}
}

func (c *collector) collect(_ context.Context, o metric.Observer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.registry.HealthSummary()
	o.ObserveInt64(c.present, int64(len(s.Tools)))
	for _, one := range c.own {
		o.ObserveInt64(one.instrument, int64(one.read(&s)))
	}
	c.tools.collect(o, s.Tools)
	c.groups.collect(o, s.Groups)
	return nil
}

// view is how tools, or groups, are told.
type view[T any] struct {
	key        attribute.Key
	name       func(*T) string
	attributes func(*T) []attribute.KeyValue // beside the name
	choose     func(all []T, limit int) []shown.Item[T]
	limit      int

	counters []counter[T]
	levels   []level[T]
	gauges   []gauge[T]
	moves    metric.Int64Observable
	ledger   *ledger
	series   []attribute.KeyValue // of with
}

// counter is one figure that only grows.
type counter[T any] struct {
	instrument metric.Int64Observable
	read       func(*T) uint64
	attributes []attribute.KeyValue
	always     bool // told while it is 0, too
}

// level is one figure of the moment that can be added up.
type level[T any] struct {
	instrument metric.Int64Observable
	read       func(*T) int64
	attributes []attribute.KeyValue
}

// gauge is one figure of the moment that cannot.
type gauge[T any] struct {
	instrument metric.Float64Observable
	read       func(*T) float64
}

func (v *view[T]) collect(o metric.Observer, all []T) {
	moves := v.ledger.begin()
	items := v.choose(all, v.limit)
	accounts := make(map[*T]*account, len(items))
	for _, item := range items {
		accounts[item.Health] = nil
	}
	figures := make([]uint64, len(v.counters))
	for i := range all {
		h := &all[i]
		for f, c := range v.counters {
			figures[f] = c.read(h)
		}
		_, isShown := accounts[h]
		account := v.ledger.credit(v.name(h), figures, moves[v.name(h)], isShown)
		if isShown {
			accounts[h] = account
		}
	}
	v.ledger.end(moves)

	v.tellCounters(o, &v.ledger.other, []attribute.KeyValue{v.key.String(shown.Other)}, false)
	for _, item := range items { // in their order, since the SDK drops what is beyond its own limit
		set := append([]attribute.KeyValue{v.key.String(item.Name)}, v.attributes(item.Health)...)
		v.tellCounters(o, accounts[item.Health], set, true)
		for _, l := range v.levels {
			o.ObserveInt64(l.instrument, l.read(item.Health), v.with(set, l.attributes))
		}
		for _, g := range v.gauges {
			o.ObserveFloat64(g.instrument, g.read(item.Health), v.with(set, nil))
		}
	}
}

// tellCounters tells what an account was credited with; zeros only if they are wanted.
func (v *view[T]) tellCounters(o metric.Observer, a *account, set []attribute.KeyValue, zeros bool) {
	for i, c := range v.counters {
		if n := a.own(i); n > 0 || zeros && c.always {
			o.ObserveInt64(c.instrument, int64(n), v.with(set, c.attributes))
		}
	}
	for m, n := range a.moves {
		o.ObserveInt64(v.moves, int64(n), v.with(set, []attribute.KeyValue{fromKey.String(m.from), toKey.String(m.to), causeKey.String(m.cause)}))
	}
}

// with returns the attributes of one series.
func (v *view[T]) with(set, more []attribute.KeyValue) metric.ObserveOption {
	v.series = append(append(v.series[:0], set...), more...)
	return metric.WithAttributeSet(attribute.NewSet(v.series...)) // which sorts and copies them
}
