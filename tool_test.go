package toolhealth

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type query struct{ q string }

// down is a tool that always fails, and may be tried again.
func down(context.Context, query) (string, error) { return "", errBusy }

// answers returns a substitute that answers with its name and the query.
func answers(name string) func(context.Context, query) (string, error) {
	return func(_ context.Context, in query) (string, error) { return name + " has " + in.q, nil }
}

// once is a GuardConfig without retries.
func once(c *GuardConfig) { c.Default.MaxAttempts = 1 }

func TestTool_SubstitutesServeInRoutersOrder(t *testing.T) {
	r := patient(t)
	g := guardWithBackups(t, r, once, "none", "b", "c")
	search := Wrap(g, "a", down).
		Substitute("c", answers("c")).
		Substitute("b", answers("b")).
		Substitute("unlisted", func(context.Context, query) (string, error) { panic("never") })
	out, err := search.Call(t.Context(), query{"x"})
	require.NoError(t, err)
	assert.Equal(t, "b has x", out)
	_, ran := r.Health("none")
	assert.False(t, ran, "a substitute without a function does not run")

	r.Isolate("b", "")
	r.Isolate("c", "")
	_, err = search.Call(t.Context(), query{"x"})
	e := toolError(t, err)
	require.Len(t, e.Candidates, 4)
	assertNoFunction(t, "none", e.Candidates[1])
	assert.ErrorIs(t, err, errBusy)

	_, err = Wrap(g, "a", down).Call(t.Context(), query{}) // also if there is no substitute at all
	e = toolError(t, err)
	require.Len(t, e.Candidates, 4)
	assertNoFunction(t, "none", e.Candidates[1])
	assertNoFunction(t, "b", e.Candidates[2])
}

func assertNoFunction(t *testing.T, tool string, c Candidate) {
	t.Helper()
	assert.EqualError(t, c.Err, "no function was given for this tool")
	c.Err = nil
	assert.Equal(t, Candidate{Tool: tool, Reason: StopNonRetryable, Verdict: vNotRun}, c)
}

func TestTool_SubstitutesServeInOrderOfCallsWithoutRouter(t *testing.T) {
	r := patient(t)
	for name, g := range map[string]*Guard{
		"no router":            guardOn(t, r, once),
		"router without entry": guardOverGate(t, &Gate{Registry: r, Router: routerWith(t, map[string][]string{"other": {"z"}})}, once),
	} {
		search := Wrap(g, "a", down).Substitute("c", answers("c")).Substitute("b", answers("b"))
		require.NoError(t, search.Validate(), name)
		out, err := search.Call(t.Context(), query{"x"})
		require.NoError(t, err, name)
		assert.Equal(t, "c has x", out, name)
	}
	none := guardOverGate(t, &Gate{Registry: r, Router: routerWith(t, map[string][]string{"a": {}})}, once)
	_, err := Wrap(none, "a", down).Substitute("b", answers("b")).Call(t.Context(), query{"x"})
	assert.ErrorIs(t, err, errBusy, "an empty list is an entry: no substitutes")
}

func TestTool_CopyLeavesOriginal(t *testing.T) {
	g := guardOn(t, patient(t), once)
	flagged := errors.New("flagged")
	refuse := func(string) error { return flagged }
	pass := func(string) error { return nil }
	part := func(context.Context, *ToolError) (string, error) { return "part", nil }

	plain := Wrap(g, "a", answers("a"))
	base := plain.CheckResult(pass).CheckResult(pass).CheckResult(pass)
	first, second := base.CheckResult(refuse), base.CheckContract(pass)
	for name, c := range map[string]struct {
		tool *Tool[query, string]
		out  string
		err  error
	}{
		"without a check":        {plain, "a has x", nil},
		"with checks":            {base, "a has x", nil},
		"with one more":          {first, "a has x", flagged},
		"with another one":       {second, "a has x", nil},
		"with a last resort":     {first.Partial(part), "part", nil},
		"first copy afterwards":  {first, "a has x", flagged},
		"with a check of format": {base.CheckContract(refuse), "a has x", flagged},
		"with a nil check":       {plain.CheckResult(nil).CheckContract(nil).Partial(nil), "a has x", nil},
	} {
		out, err := c.tool.Call(t.Context(), query{"x"})
		assert.Equal(t, c.out, out, name)
		assert.ErrorIs(t, err, c.err, name)
		if name == "with a check of format" {
			assert.Equal(t, KindContract, toolError(t, err).Verdict.Kind)
		}
	}

	failing := Wrap(g, "a", down)
	one := failing.Substitute("b", answers("b"))
	two, three := one.Substitute("c", answers("c")), one.Substitute("d", answers("d"))
	four := one.Substitute("c", answers("another c"))
	g.Registry().Isolate("b", "")
	for tool, want := range map[*Tool[query, string]]string{two: "c has x", three: "d has x", four: "another c has x"} {
		out, err := tool.Call(t.Context(), query{"x"})
		assert.NoError(t, err)
		assert.Equal(t, want, out)
	}
	_, err := failing.Call(t.Context(), query{"x"})
	assert.Len(t, toolError(t, err).Candidates, 1)
}

// The method value is what a runtime takes for a tool.
func TestTool_CallIsFunctionOfWrappedType(t *testing.T) {
	var search func(context.Context, query) (string, error) = Wrap(guardOn(t, patient(t), nil), "a", answers("a")).Call
	out, err := search(t.Context(), query{"x"})
	require.NoError(t, err)
	assert.Equal(t, "a has x", out)
}

func TestTool_ValidateNamesEveryMistake(t *testing.T) {
	registered := registryWith(t, func(c *Config) {
		c.RegisteredOnly = true
		c.Tools = map[string]BreakerConfig{"b": c.Breaker}
	})
	require.NoError(t, registered.Register("a", ToolOptions{}))
	router := routerWith(t, map[string][]string{"a": {"b", "c"}})
	type tool = Tool[query, string]
	for name, c := range map[string]struct {
		gate  Gate
		wire  func(*Guard) *tool
		wrong []string // the endings of the lines
	}{
		"right, by the router": {Gate{Router: router}, func(g *Guard) *tool {
			return Wrap(g, "a", down).Substitute("c", down).Substitute("b", down)
		}, nil},
		"right, by the calls": {Gate{Registry: registered}, func(g *Guard) *tool {
			return Wrap(g, "a", down).Substitute("b", down)
		}, nil},
		"no guard": {Gate{}, func(*Guard) *tool { return Wrap(nil, "a", down).Substitute("b", down) }, nil},
		"names of the router without a function": {Gate{Router: router}, func(g *Guard) *tool {
			return Wrap(g, "a", down)
		}, []string{
			`Wrap("a"): the Router names the substitute "b", must have a Substitute call`,
			`Wrap("a"): the Router names the substitute "c", must have a Substitute call`,
		}},
		"functions that the router never names": {Gate{Router: router}, func(g *Guard) *tool {
			return Wrap(g, "a", down).Substitute("b", down).Substitute("c", down).Substitute("d", down)
		}, []string{`Wrap("a"): Substitute("d") must be in the Router's list, which is ["b" "c"]`}},
		"bad substitutes": {Gate{}, func(g *Guard) *tool {
			return Wrap(g, "a", down).Substitute("a", down).Substitute("", down).Substitute("b", nil).
				Substitute("c", down).Substitute("c", down)
		}, []string{
			`Wrap("a"): Substitute("a") must be another tool than the wrapped one`,
			`Wrap("a"): Substitute("") must be the name of a tool`,
			`Wrap("a"): Substitute("b") must have a function`,
			`Wrap("a"): Substitute("c") must be given once; the first counts`,
		}},
		"unknown to the registry": {Gate{Registry: registered}, func(g *Guard) *tool {
			return Wrap(g, "A", down).Substitute("a", down).Substitute("B", down)
		}, []string{
			`Wrap("A"): "A" is unknown, must be registered or in Settings.Tools under RegisteredOnly`,
			`Wrap("A"): "B" is unknown, must be registered or in Settings.Tools under RegisteredOnly`,
		}},
		"no name, no function": {Gate{Registry: registered}, func(g *Guard) *tool { return Wrap[query, string](g, "", nil) }, []string{
			`Wrap(""): must be the name of a tool`, `Wrap(""): must have a function`,
		}},
		"nothing": {Gate{}, func(*Guard) *tool { return nil }, []string{
			`Wrap(""): must be the name of a tool`, `Wrap(""): must have a function`,
		}},
		"zero": {Gate{}, func(*Guard) *tool { return new(tool) }, []string{
			`Wrap(""): must be the name of a tool`, `Wrap(""): must have a function`,
		}},
	} {
		err := c.wire(guardOverGate(t, &c.gate, nil)).Validate()
		if c.wrong == nil {
			assert.NoError(t, err, name)
			continue
		}
		assert.EqualError(t, err, "toolhealth: "+strings.Join(c.wrong, "\ntoolhealth: "), name)
	}
}

func TestTool_MistakesDoNoHarmInCalls(t *testing.T) {
	r := patient(t)
	g := guardOn(t, r, once)
	for name, tool := range map[string]*Tool[query, string]{
		"nil": nil, "zero": {}, "no function": Wrap[query, string](g, "a", nil),
	} {
		_, err := tool.Call(t.Context(), query{"x"})
		e := toolError(t, err)
		assert.Equal(t, KindNotDispatched, e.Verdict.Kind, name)
		assert.ErrorIs(t, err, errNoFunction, name)
	}
	h := healthOf(t, r, "a")
	assert.EqualValues(t, 1, h.Neutral, "a missing function is no failure of the tool")

	out, err := Wrap[query, string](g, "a", nil).Substitute("b", answers("b")).Call(t.Context(), query{"x"})
	require.NoError(t, err)
	assert.Equal(t, "b has x", out)

	itself := Wrap(g, "a", down).Substitute("a", answers("another")).Substitute("b", nil).Substitute("c", answers("c")).Substitute("c", answers("later"))
	out, err = itself.Call(t.Context(), query{"x"})
	require.NoError(t, err)
	assert.Equal(t, "c has x", out)

}

func TestGuard_OfferKnowsSubstitutesOfWrappedTools(t *testing.T) {
	r := patient(t)
	g := guardOverGate(t, &Gate{Registry: r, Router: routerWith(t, map[string][]string{"listed": {"x"}})}, nil)
	Wrap(g, "a", down).Substitute("b", down)
	Wrap(g, "listed", down).Substitute("b", down)
	r.Isolate("a", "")
	r.Isolate("listed", "")
	r.Isolate("x", "")
	r.Isolate("alone", "")
	offer, leaveOut := g.Offer([]string{"alone", "a", "free", "listed"})
	assert.Equal(t, []string{"a", "free"}, offer)
	assert.Equal(t, []string{"alone", "listed"}, leaveOut, "the Router's list counts where there is one")
	offer, _ = g.Gate().Offer([]string{"a"})
	assert.Empty(t, offer, "a gate knows no wrapped tools")

	settled := newWith(t, Settings{Tools: map[string]ToolSettings{"a": {Labels: map[string]string{"x": "y"}}}})
	Wrap(settled, "a", down).Substitute("b", down)
	settled.Registry().Isolate("a", "")
	offer, _ = settled.Offer([]string{"a"})
	assert.Equal(t, []string{"a"}, offer, "settings that name no substitutes are no entry")

	Wrap(g, "a", down).Substitute("c", down)
	r.Isolate("c", "")
	_, leaveOut = g.Offer([]string{"a"})
	assert.Equal(t, []string{"a"}, leaveOut, "the copy that was made last")
	for _, g := range []*Guard{nil, {}} {
		offer, leaveOut = g.Offer([]string{"a"})
		assert.Equal(t, []string{"a"}, offer)
		assert.Empty(t, leaveOut)
	}
}

func TestGuard_GateAndRegistryAreThoseItWasMadeWith(t *testing.T) {
	gate := &Gate{Registry: NewRegistry()}
	g := guardOverGate(t, gate, nil)
	assert.Same(t, gate, g.Gate())
	assert.Same(t, gate.Registry, g.Registry())
	assert.Nil(t, guardOverGate(t, nil, nil).Registry())
	for _, g := range []*Guard{nil, {}} {
		assert.Nil(t, g.Gate().Registry)
		assert.Nil(t, g.Registry())
		assert.True(t, g.Registry().AllowRequest("a"))
	}
}
