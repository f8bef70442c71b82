// Package shown decides which tools and groups have series of their own.
package shown

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/toolhealth/toolhealth"
)

// DefaultMaxTools bounds the tools where no other bound is given.
const DefaultMaxTools = 1000

// Other is the name under which everything else is added up.
const Other = "_other"

// What is shown has these attributes.
const (
	ToolKey  = attribute.Key("gen_ai.tool.name")
	GroupKey = attribute.Key("toolhealth.group")
)

// Limit returns the bound that a field MaxTools stands for, or an error that begins with
// the name of the field.
func Limit(field string, maxTools int) (int, error) {
	switch {
	case maxTools == 0:
		return DefaultMaxTools, nil
	case maxTools == toolhealth.Off:
		return math.MaxInt, nil
	case maxTools < 0:
		return 0, fmt.Errorf("%s: %d is negative; toolhealth.Off means no bound", field, maxTools)
	}
	return maxTools, nil
}

// Clean returns a name that OTLP can carry.
func Clean(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// Item is a tool or group that has series of its own.
type Item[T any] struct {
	Name   string // as it is exported
	Health *T
	rank   int
	busy   uint64
}

// Tools returns at most limit of the tools: the sick first, then the busiest. all is in the
// order of the names.
func Tools(all []toolhealth.ToolHealth, limit int) []Item[toolhealth.ToolHealth] {
	return choose(all, limit, func(h *toolhealth.ToolHealth) (string, int, uint64) {
		return h.Tool, int(h.Status), h.TotalCalls() + h.Refused
	})
}

// Groups returns at most limit of the groups: those that refuse first, then the largest.
func Groups(all []toolhealth.GroupHealth, limit int) []Item[toolhealth.GroupHealth] {
	return choose(all, limit, func(h *toolhealth.GroupHealth) (string, int, uint64) {
		sick := 0
		if h.State != toolhealth.StateClosed || !h.Available {
			sick = 1
		}
		return h.Group, sick, uint64(max(h.Tools, 0))
	})
}

// choose leaves out a name that is Other, or that is another's once it is cleaned.
func choose[T any](all []T, limit int, look func(*T) (name string, rank int, busy uint64)) []Item[T] {
	items := make([]Item[T], 0, len(all))
	taken := map[string]bool{Other: true}
	for i := range all {
		name, rank, busy := look(&all[i])
		if name = Clean(name); !taken[name] {
			taken[name] = true
			items = append(items, Item[T]{name, &all[i], rank, busy})
		}
	}
	slices.SortFunc(items, func(a, b Item[T]) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(b.busy, a.busy), cmp.Compare(a.Name, b.Name))
	})
	return items[:min(limit, len(items))]
}

// Attributes returns what the series of a tool have beside its name: its group, and those
// of its labels that are wanted.
func Attributes(h *toolhealth.ToolHealth, labels []string) (all []attribute.KeyValue) {
	if h.Group != "" {
		all = append(all, GroupKey.String(Clean(h.Group)))
	}
	for _, label := range labels {
		if value, ok := h.Labels[label]; ok {
			all = append(all, attribute.String("toolhealth.label."+label, Clean(value)))
		}
	}
	return all
}
