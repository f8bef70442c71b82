package toolhealth

import "errors"

// compiledSettings is valid Settings in the parts that use them.
type compiledSettings struct {
	registry *compiled
	router   *HealthRouter
	config   GuardConfig
	settings *Settings // a copy
}

// compileSettings returns the parts, or every problem.
func compileSettings(s Settings, known func(tool string) bool) (*compiledSettings, error) {
	if err := configError(s.problems(known)); err != nil {
		return nil, err
	}
	s = s.clone()
	config := Config{
		Breaker: s.Breaker, Tools: make(map[string]BreakerConfig, len(s.Tools)),
		MaxTools: s.MaxTools, RegisteredOnly: s.RegisteredOnly,
	}
	guard := GuardConfig{Default: s.Policy, Tools: make(map[string]Policy), PolicyOf: s.PolicyOf, Start: s.Start, Observe: s.Observe}
	substitutes, labels := make(map[string][]string), make(map[string]map[string]string)
	for tool, t := range s.Tools {
		config.Tools[tool] = s.Breaker
		if t.Breaker != nil {
			config.Tools[tool] = *t.Breaker
		}
		if t.Policy != nil {
			guard.Tools[tool] = *t.Policy
		}
		if t.Substitutes != nil { // else those of a wrapped tool count
			substitutes[tool] = t.Substitutes
		}
		labels[tool] = t.Labels
	}
	registry, err := compile(config)
	if err != nil {
		return nil, err
	}
	registry.labels = labels
	router, err := NewHealthRouter(substitutes)
	if err != nil {
		return nil, err
	}
	return &compiledSettings{registry: registry, router: router, config: guard, settings: &s}, nil
}

// put puts the rules of c in force, on top of the registry.
func (g *Guard) put(c *compiledSettings, r *Registry) {
	gate := &Gate{
		Registry: r, Router: c.router, Classify: c.settings.Classify, DeadlineFloor: c.settings.DeadlineFloor, live: &g.live,
	}
	rules := newRuleSet(gate, c.config)
	rules.settings = c.settings
	g.rules.Store(rules)
	g.live.Store(gate)
}

// New returns a guard with a gate, a registry and substitutes of its own, or every
// problem of the settings at once, as joined [ConfigError]s. Beside values out of bounds
// these are a substitute that is no known tool where RegisteredOnly is set, and
// substitutes that make a circle. Two tools may stand in for each other.
func New(s Settings) (*Guard, error) {
	c, err := compileSettings(s, nil)
	if err != nil {
		return nil, err
	}
	g := new(Guard)
	g.put(c, newRegistry(c.registry))
	return g, nil
}

// SetSettings puts other settings in force, or returns every problem of theirs and
// changes nothing. It is for a guard that New has made.
//
// States of breakers, figures, retry budgets and wrapped tools stay. Breakers change as
// [Registry.SetConfig] says, which it replaces, too. A call that is under way keeps to
// the policy and the substitutes with which it began.
func (g *Guard) SetSettings(s Settings) error {
	rules := g.ruled()
	r := rules.gate.Registry
	if rules.settings == nil {
		return errors.New("toolhealth: SetSettings: the guard was not made by New")
	}
	c, err := compileSettings(s, r.registered)
	if err != nil {
		return err
	}
	r.notifyClosed(g.replace(c, r)) // not under the lock: a hook may set settings, too
	return nil
}

// replace puts c in force and returns the breakers that this closes. Under the lock,
// the registry and the rules end up with the settings of the same call.
func (g *Guard) replace(c *compiledSettings, r *Registry) []closing {
	g.mu.Lock()
	defer g.mu.Unlock()
	closed := r.reconfigure(c.registry)
	g.put(c, r)
	return closed
}

// Settings returns a copy of the settings that are in force; zero Settings if the guard
// was not made by New.
func (g *Guard) Settings() Settings {
	s := g.ruled().settings
	if s == nil {
		return Settings{}
	}
	return s.clone()
}

// Gate returns the guard's gate, for calls of a loop of your own. That of a guard that
// New has made follows SetSettings.
func (g *Guard) Gate() *Gate { return g.ruled().gate }

// Registry returns the guard's registry; nil if it has none.
func (g *Guard) Registry() *Registry { return g.ruled().gate.registry() }

// Offer sorts tools as [Gate.Offer] does, and also knows the substitutes that
// [Tool.Substitute] has given to tools for which the Router has no entry.
func (g *Guard) Offer(tools []string) (offer, leaveOut []string) {
	gate := g.ruled().gate
	return gate.offer(tools, func(tool string) []string {
		names, listed := gate.router().entry(tool)
		if !listed && g != nil {
			if order, ok := g.wrapped.Load(tool); ok {
				return order.([]string)
			}
		}
		return names
	})
}
