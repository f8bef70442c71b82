package toolhealth

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// HealthRouter knows which tools can stand in for which. Lists are one hop: the
// substitutes of a substitute are not followed. It never changes after it is
// made, so any goroutine may use it; a nil HealthRouter knows no substitutes.
type HealthRouter struct {
	substitutes map[string][]string
}

// NewHealthRouter returns a router for a map from a tool to its substitutes, in
// the order of preference; the map is copied. An empty name, a duplicate and a
// tool in its own list are errors, all of them reported at once. Two tools may
// stand in for each other: one hop makes no circle.
func NewHealthRouter(substitutes map[string][]string) (*HealthRouter, error) {
	r := &HealthRouter{substitutes: make(map[string][]string, len(substitutes))}
	var p problems
	for _, primary := range slices.Sorted(maps.Keys(substitutes)) {
		field := fmt.Sprintf("substitutes[%.80q]", primary)
		if primary == "" {
			p.add(field, "a key without a name", "the name of a tool")
		}
		seen := map[string]bool{primary: true}
		for i, name := range substitutes[primary] {
			at := fmt.Sprintf("%s[%d]", field, i)
			switch {
			case name == "":
				p.add(at, `""`, "the name of a tool")
			case name == primary:
				p.add(at, fmt.Sprintf("%.80q", name), "another tool than the primary")
			case seen[name]:
				p.add(at, fmt.Sprintf("%.80q", name), "listed once")
			}
			seen[name] = true
		}
		r.substitutes[primary] = slices.Clone(substitutes[primary])
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, err
	}
	return r, nil
}

// Substitutes returns a copy of the tool's substitutes in the order of
// preference.
func (r *HealthRouter) Substitutes(tool string) []string { return slices.Clone(r.of(tool)) }

func (r *HealthRouter) of(tool string) []string {
	if r == nil {
		return nil
	}
	return r.substitutes[tool]
}

// Resolve returns the tool to call for a tool: itself if it is available (so
// that a recovered primary gets its probe), else its first substitute that is
// available and not unhealthy, else the first available one, else itself and
// false. It is a pure read and takes no probe; between it and the call the
// answer may grow old, so to call a tool use [Gate.Allow], which admits while it
// chooses.
func (r *HealthRouter) Resolve(tool string, registry *Registry) (name string, available bool) {
	if registry.Available(tool) {
		return tool, true
	}
	fallback := ""
	for _, s := range r.of(tool) {
		if !registry.Available(s) {
			continue
		}
		if registry.HealthStatus(s) != Unhealthy {
			return s, true
		}
		if fallback == "" {
			fallback = s
		}
	}
	if fallback != "" {
		return fallback, true
	}
	return tool, false
}
