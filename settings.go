package toolhealth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth/internal/fields"
)

// Settings configures a registry, the substitutes, a gate and a guard at once, for
// [New] and [Guard.SetSettings]. The zero Settings is the default.
//
// It is the only configuration with a JSON form; [Load] reads it from a file. The keys
// are the field names in lower case with underscores, such as "registered_only", and
// so are those of BreakerConfig and Policy. Durations are texts such as "1m30s". An
// absent key is the default, and 0 or "0s" switches a rule off. In the "breaker" and
// the "policy" of a tool an absent key is what Breaker and Policy say, so that they name
// only what differs. An unknown key and a key that is given twice are errors. The
// functions are not in JSON.
type Settings struct {
	// Breaker is the breaker of every tool that has none of its own.
	Breaker BreakerConfig
	// Policy is the policy of every tool that has none of its own.
	Policy Policy
	// Tools says what is special about single tools, by name.
	Tools map[string]ToolSettings
	// MaxTools and RegisteredOnly are those of Config. A tool is known if it is in
	// Tools or was passed to Registry.Register.
	MaxTools       int
	RegisteredOnly bool
	// DeadlineFloor is the least time that an attempt must have run for the caller's
	// deadline to count as a timeout of the tool; one that ended sooner is neutral. It
	// is DefaultDeadlineFloor by default. Off means no floor.
	DeadlineFloor time.Duration

	// Classify says what errors mean. Nil means the function of that name.
	Classify Classifier
	// PolicyOf and Observe are those of GuardConfig: PolicyOf is given Policy.
	PolicyOf func(tool string, p Policy) Policy
	Observe  func(ctx context.Context, e Event)
}

// ToolSettings says what is special about one tool. The zero ToolSettings says only
// that there is such a tool.
type ToolSettings struct {
	// Breaker and Policy are the tool's own; nil means those of Settings. Each is a
	// whole configuration: a field that is zero has its default, whatever Settings say.
	// To keep what they say, copy theirs and change the copy.
	Breaker *BreakerConfig
	Policy  *Policy
	// Substitutes are the tools that may stand in for this one, in the order of
	// preference. The substitutes of a substitute are not followed.
	Substitutes []string
	// Labels are shown in ToolHealth and mean nothing to the library.
	Labels map[string]string
}

func (s *Settings) table() fields.Table {
	base := BreakerConfig{}.explicit()
	return fields.Table{
		fields.Object("breaker", s.Breaker.table(), base.table()),
		fields.Object("policy", s.Policy.table(), new(Policy).table()),
		fields.Map("tools", &s.Tools, func(t *ToolSettings) fields.Table {
			return fields.Table{
				fields.Optional("breaker", &t.Breaker, func() BreakerConfig { return s.Breaker.explicit() }, (*BreakerConfig).table),
				fields.Optional("policy", &t.Policy, func() Policy { return s.Policy }, (*Policy).table),
				fields.Names("substitutes", &t.Substitutes),
				fields.Texts("labels", &t.Labels),
			}
		}),
		maxToolsField(&s.MaxTools),
		fields.Bool("registered_only", &s.RegisteredOnly),
		fields.Duration("deadline_floor", &s.DeadlineFloor, DefaultDeadlineFloor, maxDuration),
	}
}

// MarshalJSON writes what differs from the default, and of a tool what differs from
// Breaker and Policy.
func (s Settings) MarshalJSON() ([]byte, error) {
	s.Breaker = s.Breaker.explicit()
	s.Tools = maps.Clone(s.Tools)
	for name, t := range s.Tools {
		if t.Breaker != nil {
			own := t.Breaker.explicit()
			t.Breaker = &own
			s.Tools[name] = t
		}
	}
	data, err := s.table().JSON(new(Settings).table())
	if err != nil {
		return nil, fmt.Errorf("toolhealth: config: %w", err)
	}
	return data, nil
}

// UnmarshalJSON reads what MarshalJSON writes. An absent key keeps the value that the
// receiver has; "tools" replaces them all. Every problem is reported at once, as joined
// [ConfigError]s; then the receiver is as it was. It does not look at bounds: Load and
// New do.
func (s *Settings) UnmarshalJSON(data []byte) error {
	next := *s
	if err := configError(next.read(data)); err != nil {
		return err
	}
	*s = next
	return nil
}

func (s *Settings) read(data []byte) fields.Problems {
	base := BreakerConfig{}.explicit()
	s.Breaker = s.Breaker.explicit()
	problems := s.table().Read(data)
	if s.Breaker == base {
		s.Breaker = BreakerConfig{}
	}
	return problems
}

// Load reads Settings from JSON, or returns every problem at once as joined
// [ConfigError]s: what is no JSON of Settings, and what New would refuse.
func Load(r io.Reader) (Settings, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return Settings{}, fmt.Errorf("toolhealth: config: %w", err)
	}
	var s Settings
	problems := s.read(data)
	problems = append(problems, s.problems(nil)...)
	if err := configError(problems); err != nil {
		return Settings{}, err
	}
	return s, nil
}

// Validate returns nil, or every problem at once as joined [ConfigError]s: what New
// would return.
func (s Settings) Validate() error { return configError(s.problems(nil)) }

// problems returns what is wrong with s. known reports whether there is a tool that is
// not in Tools; it may be nil.
func (s *Settings) problems(known func(tool string) bool) fields.Problems {
	p := s.table().Check()
	for _, tool := range slices.Sorted(maps.Keys(s.Tools)) {
		field, list := substitutesField(tool), s.Tools[tool].Substitutes
		checkSubstitutes(&p, field, tool, list)
		for i, name := range list {
			_, listed := s.Tools[name]
			if s.RegisteredOnly && name != "" && !listed && (known == nil || !known(name)) {
				p.Add(fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("%.80q", name), "in tools, because registered_only is true")
			}
		}
	}
	return append(p, s.circles()...)
}

func substitutesField(tool string) string { return fields.Key("tools", tool) + ".substitutes" }

// circles returns a problem for each circle of substitutes, such as a, b and c where b
// stands in for a, c for b and a for c. Such a circle takes it that lists are followed
// further, and they are not. Two tools that stand in for each other make no circle.
func (s *Settings) circles() (p fields.Problems) {
	done := make(map[string]bool, len(s.Tools))
	var path []string
	var follow func(tool string)
	follow = func(tool string) {
		if i := slices.Index(path, tool); i >= 0 {
			circle := strings.Join(append(slices.Clone(path[i:]), tool), " > ")
			p.Add(substitutesField(path[len(path)-1]), fmt.Sprintf("part of the circle %.200q", circle),
				"without a way back to the tool: a substitute's own substitutes are not tried")
			return
		}
		if done[tool] {
			return
		}
		path = append(path, tool)
		for _, next := range s.Tools[tool].Substitutes {
			if !slices.Contains(s.Tools[next].Substitutes, tool) {
				follow(next)
			}
		}
		path = path[:len(path)-1]
		done[tool] = true
	}
	for _, tool := range slices.Sorted(maps.Keys(s.Tools)) {
		follow(tool)
	}
	return p
}

// clone returns a copy that shares nothing with s that can be changed.
func (s Settings) clone() Settings {
	s.Tools = maps.Clone(s.Tools)
	for name, t := range s.Tools {
		t.Breaker, t.Policy = cloneOf(t.Breaker), cloneOf(t.Policy)
		t.Substitutes, t.Labels = slices.Clone(t.Substitutes), maps.Clone(t.Labels)
		s.Tools[name] = t
	}
	return s
}

func cloneOf[T any](v *T) *T {
	if v == nil {
		return nil
	}
	c := *v
	return &c
}

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
	guard := GuardConfig{Default: s.Policy, Tools: make(map[string]Policy), PolicyOf: s.PolicyOf, Observe: s.Observe}
	substitutes, labels := make(map[string][]string), make(map[string]map[string]string)
	for tool, t := range s.Tools {
		config.Tools[tool] = s.Breaker
		if t.Breaker != nil {
			config.Tools[tool] = *t.Breaker
		}
		if t.Policy != nil {
			guard.Tools[tool] = *t.Policy
		}
		substitutes[tool], labels[tool] = t.Substitutes, t.Labels
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
		Registry: r, Router: c.router, Classify: c.settings.Classify, DeadlineFloor: c.settings.DeadlineFloor, guard: g,
	}
	rules := newRuleSet(gate, c.config)
	rules.settings = c.settings
	g.rules.Store(rules)
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

// Offer is [Gate.Offer] of the guard's gate.
func (g *Guard) Offer(tools []string) (offer, leaveOut []string) { return g.ruled().gate.Offer(tools) }
