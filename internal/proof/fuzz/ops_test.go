package fuzz_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/internal/proof/model"
)

// FuzzOps reads its input as a story: a configuration, then operations on two tools.
// The registry and the model play it side by side in a bubble with virtual time. After
// every operation both must give the same answers and the same figures, and must have
// made the same transitions.
func FuzzOps(f *testing.F) {
	for _, seed := range storySeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, story []byte) {
		if len(story) > 500 {
			t.Skip("longer stories find nothing that shorter ones miss")
		}
		synctest.Test(t, func(t *testing.T) { tellStory(t, story) })
	})
}

// storySeeds lead the fuzzer to cases that it would take a long time to find. Five bytes
// configure each of the two tools (see readConfig), then operations follow: a letter
// and its arguments (see next). With a first byte above 127 the tools are in one group.
var storySeeds = []string{
	// Two probes have to succeed; a late failure between them starts the count again.
	twoProbes + "pa" + "s\x01\x01" + cooldown + "pa" + "s\x01\x00" + "va\x01\x00" + cooldown + "pa" + "s\x01\x00" + "pa",
	// A lost probe starts the count again, too.
	twoProbes + "pa" + "s\x01\x01" + cooldown + "pa" + "s\x01\x00" + "pa" + lease + cooldown + "pa" + "s\x01\x00" + "pa",
	// A probe that is kept alive and lost succeeds late; the next lease is twice as long.
	"\x01\x01\x01\x03\x00" + "\x01\x01\x01\x00\x00" + "fa\x01" + cooldown + "pa" + "ta\x02\x01" + "k\x01" + lease + "s\x01\x00" + cooldown + "pa" + lease + "qa",
	// A throttle while closed, then a failure: the longer of both waits counts.
	"\x01\x01\x01\x01\x00" + "\x01\x02\x02\x00\x00" + "papa" + "s\x01\x17" + "s\x05\x01" + cooldown + "qa" + "ta\x00\x00\x00" + "qa",
	// Others report the tool down, bring its probe forward, and suspect it after it works.
	"\x02\x01\x01\x00\x00" + "\x01\x01\x01\x00\x00" + "ha\x01\x02" + "qa" + "ha\x04\x06" + "ta\x03\x00" + "pa" + "s\x01\x00" + "ha\x00\x03" + "va\x02\x00",
	// A probe of its own has closed it, so others are not believed.
	"\x02\x01\x01\x00\x00" + "\x01\x01\x01\x00\x00" + "fa\x01" + cooldown + "pa" + "s\x01\x00" + "ha\x01\x02" + "qa",
	// The server of both tools cannot be reached, then can: one probe serves both.
	"\x8e\x01\x01\x00\x00" + "\x04\x01\x01\x00\x00" + "ya\x00\x00" + "yb\x00\x00" + "qapb" + "ta\x03\x00" + "paqb" + "ta\x08\x00" + "paqb" + "s\x01\x00" + "paqb",
	// A tool and its group both refuse: the longer wait counts.
	"\x85\x01\x01\x00\x00" + "\x04\x01\x01\x00\x00" + "ya\x00\x00" + "yb\x00\x00" + "qapa",
	// Time-outs of one tool in a row count once.
	"\x8f\x01\x01\x00\x00" + "\x04\x01\x01\x00\x00" + "ya\x01\x01" + "qb" + "yb\x01\x00" + "qb",
	// An operator holds the group of tools that come and go.
	"\x8e\x01\x01\x00\x00" + "\x04\x01\x01\x00\x00" + "pa" + "g" + "maqb" + "s\x01\x00" + "jpb" + "yb\x00\x00" + "mbqa",
	// Operators, reconfiguration, removal and a substitute.
	"\x02\x01\x01\x00\x41" + "\x01\x01\x01\x00\x00" + "fa\x03" + "wa" + "ia" + "wa" + "xa" + "s\x01\x00" + "fb\x01" + "wb" + "ma" + "c\x00\x00\x00\x00\x00\x01\x01\x01\x01\x01" + "qb",
}

const (
	twoProbes = "\x01\x01\x01\x00\x08" + "\x01\x01\x01\x00\x08"
	cooldown  = "ta\x03\x00" // time passes: the cooldown of a
	lease     = "ta\x04\x00" // time passes: the lease of its probe
)

// teller plays one story on both sides.
type teller struct {
	t       *testing.T
	story   []byte
	start   time.Time
	r       *toolhealth.Registry
	gate    *toolhealth.Gate
	routed  *toolhealth.Gate
	current [2]model.Config
	tools   map[string]*toolPair
	grouped bool      // both tools are in theGroup
	group   *toolPair // the model's side of it; nil while there is none
	permits []*permitPair
	told    []func() string
}

const theGroup = "server"

// groupConfig is that of the group's breaker.
var groupConfig = toolhealth.BreakerConfig{
	FailureThreshold: 2, RecoveryDuration: 10 * time.Second, ProbeTimeout: 5 * time.Second, MaxOpenDuration: time.Minute, RecoveryGrowth: 2,
}

// toolPair is one tool in the model, with the transitions that the model expects and
// those that the hook saw.
type toolPair struct {
	b        model.Breaker
	s        *model.Stats
	expected []model.Event
	heard    []model.Event
}

// permitPair is a permit with the facts that the model keeps of it.
type permitPair struct {
	real  *toolhealth.Permit
	name  string
	pair  *toolPair // not in tools any more if the tool was removed
	epoch int
	probe bool
	group groupTicket
	start time.Duration
	spent bool
}

// groupTicket is what a permit has from the group.
type groupTicket struct {
	of    *toolPair // nil without a group
	epoch int
	probe bool
}

var names = [2]string{"a", "b"}

// TestRegistry_AgreesWithModel runs FuzzOps on random stories that consist of the
// operations' letters, so that most of them get far.
func TestRegistry_AgreesWithModel(t *testing.T) {
	stories := 2500
	if testing.Short() {
		stories = 300
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range stories {
		story := make([]byte, 10, 400)
		for i := range story {
			story[i] = byte(random.Uint32())
		}
		for range random.IntN(80) {
			story = append(story, opLetters[random.IntN(len(opLetters))])
			for range 3 {
				story = append(story, byte(random.Uint32()))
			}
		}
		synctest.Test(t, func(t *testing.T) { tellStory(t, story) })
		if t.Failed() {
			t.Fatalf("the story was %q", story)
		}
	}
}

func tellStory(t *testing.T, story []byte) {
	s := &teller{t: t, story: story, start: time.Now(), tools: map[string]*toolPair{}}
	s.grouped = len(story) > 0 && story[0] >= 128
	config := s.readConfig()
	if s.grouped {
		config.Group = func(string) string { return theGroup }
	}
	r, err := toolhealth.NewRegistryWithConfig(config)
	require.NoError(t, err)
	router, err := toolhealth.NewHealthRouter(map[string][]string{"a": {"b"}, "b": {"a"}})
	require.NoError(t, err)
	s.r = r
	s.gate = &toolhealth.Gate{Registry: r}
	s.routed = &toolhealth.Gate{Registry: r, Router: router}
	stop := r.OnTransition(s.hear)
	defer stop()
	for len(s.story) > 0 {
		s.next()
		s.compare()
	}
}

func (s *teller) hear(tr toolhealth.Transition) {
	p := s.tools[tr.Tool]
	if tr.Group != "" && tr.Tool == "" {
		p = s.group
	}
	p.heard = append(p.heard, model.Event{
		From: tr.From.String(), To: tr.To.String(), Cause: tr.Cause.String(), Epoch: int(tr.Epoch),
		When: tr.When.Sub(s.start), Streak: tr.Streak, Kind: tr.Kind.String(), Wait: tr.Wait,
	})
}

func (s *teller) now() time.Duration { return time.Since(s.start) }

// byte takes the next byte of the story; it ends with zeros.
func (s *teller) byte() byte {
	if len(s.story) == 0 {
		return 0
	}
	b := s.story[0]
	s.story = s.story[1:]
	return b
}

// pick returns the value that the next byte selects.
func pick[T any](s *teller, values ...T) T { return values[int(s.byte())%len(values)] }

func (s *teller) readConfig() toolhealth.Config {
	config := toolhealth.Config{Tools: map[string]toolhealth.BreakerConfig{}, GroupBreaker: groupConfig}
	for i := range names {
		c := toolhealth.BreakerConfig{
			FailureThreshold: pick(s, 0, 1, 1, 1, 2, 3),
			RecoveryDuration: pick(s, 7*time.Nanosecond, time.Second, 30*time.Second),
			ProbeTimeout:     pick(s, 0, time.Second, 30*time.Second, 5*time.Nanosecond),
		}
		bound := pick(s, 0, 45*time.Second, 30*time.Second, 10*time.Minute)
		if bound > 0 {
			c.MaxOpenDuration = max(bound, c.RecoveryDuration)
		}
		extra := s.byte()
		c.RecoveryGrowth = [4]float64{0, 1, 2, 1000}[extra%4]
		c.ProbeSuccesses = [4]int{0, 1, 2, 3}[extra/4%4]
		c.SlowCallDuration = [4]time.Duration{0, 0, time.Nanosecond, 10 * time.Second}[extra/16%4]
		if extra/64%2 == 1 {
			c.FailureRate, c.FailureRateWindow, c.FailureRateMinCalls = 0.6, 40*time.Second, 2
			c.FailureWindow = 20 * time.Second
		}
		if extra/128 == 1 {
			c.MaxStatedWait = [2]time.Duration{35 * time.Second, toolhealth.Off}[extra%2]
			c.MaxHintDuration = [2]time.Duration{50 * time.Second, toolhealth.Off}[extra/2%2]
		}
		if i == 0 {
			config.Breaker = offWhereZero(c)
		} else {
			config.Tools[names[i]] = offWhereZero(c)
		}
		stated := c.MaxStatedWait
		switch {
		case stated == toolhealth.Off:
			stated = 0
		case stated == 0:
			stated = cmp.Or(c.MaxOpenDuration, model.Never)
		}
		s.current[i] = model.Config{
			Threshold: c.FailureThreshold, Recovery: c.RecoveryDuration, Lease: c.ProbeTimeout,
			MaxOpen: c.MaxOpenDuration, MaxStated: stated, Growth: int(c.RecoveryGrowth), ProbeSuccesses: c.ProbeSuccesses,
			Slow: c.SlowCallDuration, Window: c.FailureWindow, Rate: int(c.FailureRate * 1e6),
			RateWindow: c.FailureRateWindow, RateMinCalls: c.FailureRateMinCalls,
			MaxHint: max(cmp.Or(c.MaxHintDuration, 10*time.Minute), 0),
		}
	}
	return config
}

// offWhereZero returns c for the library, where zero stands for the default. In the
// model it is off.
func offWhereZero(c toolhealth.BreakerConfig) toolhealth.BreakerConfig {
	if c.MaxOpenDuration == 0 {
		c.MaxOpenDuration = toolhealth.Off
	}
	if c.FailureRateMinCalls == 0 {
		c.FailureRateMinCalls = toolhealth.Off
	}
	return c
}

// pair returns the model's side of a tool, which the first call creates.
func (s *teller) pair(name string) *toolPair {
	if s.tools[name] == nil {
		s.tools[name] = &toolPair{b: model.New(s.current[slices.Index(names[:], name)]), s: model.NewStats()}
		s.join()
	}
	return s.tools[name]
}

// join makes the model's side of the group, if there is to be one and is none.
func (s *teller) join() {
	if s.grouped && s.group == nil {
		s.group = &toolPair{b: model.New(model.Config{
			Threshold: groupConfig.FailureThreshold, Recovery: groupConfig.RecoveryDuration, Lease: groupConfig.ProbeTimeout,
			MaxOpen: groupConfig.MaxOpenDuration, MaxStated: groupConfig.MaxOpenDuration, Growth: 2, MaxHint: 10 * time.Minute,
		})}
	}
}

// part drops the group with its last tool, unless something is held against it: then it
// stays, as there is room.
func (s *teller) part() {
	if s.group != nil && len(s.tools) == 0 && s.group.b.State == "closed" && s.group.b.Streak == 0 {
		s.group = nil
	}
}

// source is the number of a tool in its group.
func source(name string) int { return slices.Index(names[:], name) + 1 }

// lookAtGroup is what the group would answer; "none" without one.
func (s *teller) lookAtGroup() model.Answer {
	if s.group == nil {
		return model.Answer{Reason: "none"}
	}
	return s.group.b.Look(s.now())
}

// look is what a tool would answer, and whether its group refuses.
func (s *teller) look(p *toolPair) (a model.Answer, byGroup bool) {
	group := s.lookAtGroup()
	a = model.Answer{Reason: "none"}
	if p != nil {
		a = p.b.Look(s.now())
	}
	a.Wait = max(a.Wait, group.Wait)
	if a.Reason == "none" && group.Reason != "none" {
		return group, true
	}
	return a, false
}

func (p *toolPair) happened(events []model.Event) { p.expected = append(p.expected, events...) }

// tell records the next operation for the message of a failure. The text is formatted
// only for a message.
func (s *teller) tell(format string, args ...any) {
	now := s.now()
	s.told = append(s.told, func() string { return fmt.Sprintf("%v ", now) + fmt.Sprintf(format, args...) })
}

// String returns the story so far.
func (s *teller) String() string {
	var text strings.Builder
	for _, line := range s.told {
		text.WriteString("\n" + line())
	}
	return text.String()
}

// opLetters are the letters of the operations. Those that drive the story occur more
// than once: ask for a permit, settle one, let time pass.
const opLetters = "papwqsdsdsrkvvfftututunixzcmhhgjyy"

// next plays one operation.
func (s *teller) next() {
	name := func() string { return names[[4]int{0, 0, 1, 0}[s.byte()%4]] }
	switch op := s.byte(); op {
	default: // any other byte stands for one of the letters
		s.story = append([]byte{opLetters[int(op)%len(opLetters)]}, s.story...)
		s.next()
	case 'p', 'a':
		s.allow(s.gate, name())
	case 'w':
		s.allow(s.routed, name())
	case 'q':
		s.ask(name())
	case 's', 'd':
		s.settle()
	case 'r':
		s.release()
	case 'k':
		s.keepAlive()
	case 'v':
		s.record(name())
	case 'f':
		n := name()
		for range s.byte() % 4 {
			s.recordOutcome(n, toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindUnknown}, time.Millisecond)
		}
	case 'n':
		s.allowWithDeadContext(name())
	case 'i':
		n := name()
		s.tell("isolate %s", n)
		pair := s.pair(n)
		require.True(s.t, s.r.Isolate(n, ""), s)
		pair.happened(pair.b.Isolate(s.now()))
	case 'x', 'z':
		n := name()
		s.tell("reset %s", n)
		ok := s.r.Reset(n, "")
		require.Equal(s.t, s.tools[n] != nil, ok, s)
		if ok {
			s.tools[n].happened(s.tools[n].b.Reset(s.now()))
		}
	case 'c':
		config := s.readConfig()
		s.tell("configure %+v", s.current)
		require.NoError(s.t, s.r.SetConfig(config), s)
		for i, n := range names {
			if p := s.tools[n]; p != nil {
				p.happened(p.b.Configure(s.now(), s.current[i]))
			}
		}
		if s.group != nil {
			s.group.happened(s.group.b.Configure(s.now(), s.group.b.Config))
		}
	case 'h':
		s.hint(name())
	case 'g', 'j':
		s.operateGroup(op == 'g')
	case 'y': // the server cannot be reached, or does not answer
		n := name()
		v := toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Retryable: true}
		v.Kind = pick(s, toolhealth.KindConnection, toolhealth.KindTimeout)
		for range 1 + s.byte()%2 {
			s.recordOutcome(n, v, time.Millisecond)
		}
	case 't', 'u':
		s.advance()
	case 'm':
		n := name()
		s.tell("remove %s", n)
		known := s.tools[n] != nil
		require.Equal(s.t, known, s.r.Remove(n), s)
		if delete(s.tools, n); known {
			s.part()
		}
	}
}

// operateGroup isolates the group, which makes one, or resets it.
func (s *teller) operateGroup(isolate bool) {
	if !s.grouped {
		return
	}
	s.tell("operate the group, isolate: %v", isolate)
	if isolate {
		s.join()
		require.True(s.t, s.r.IsolateGroup(theGroup, ""), s)
		s.group.happened(s.group.b.Isolate(s.now()))
		return
	}
	require.Equal(s.t, s.group != nil, s.r.ResetGroup(theGroup, ""), s)
	if s.group != nil {
		s.group.happened(s.group.b.Reset(s.now()))
		require.Equal(s.t, s.group.expected, s.group.heard, s)
		s.part()
	}
}

// advance moves the time to a moment at which something may happen, or to 1ns before
// or after that moment.
func (s *teller) advance() {
	base := names[[4]int{0, 0, 1, 0}[s.byte()%4]]
	c := s.current[slices.Index(names[:], base)]
	d := pick(s, 0, 1, 3*time.Second, c.Recovery, c.Lease, c.MaxOpen, c.Slow, 0)
	if d == 0 {
		if p := s.tools[base]; p != nil {
			d = p.b.Look(s.now()).Wait
			if s.byte()%2 == 0 && p.b.State == "half-open" {
				d = p.b.LeaseEnd - s.now()
			}
		}
	}
	d += pick(s, 0, 1, -1*time.Nanosecond)
	if d > 0 && d < 100*365*24*time.Hour-s.now() {
		time.Sleep(d)
	}
	s.tell("time passes: %v", d)
}

func (s *teller) ask(name string) {
	s.tell("ask %s", name)
	before := s.r.Available(name)
	ok := s.r.AllowRequest(name)
	a, _, _ := s.expectAnswer(name)
	require.Equal(s.t, a.Reason == "none", ok, s)
	require.Equal(s.t, before, ok, s)
}

// expectAnswer makes the model's side of an admission and returns its answer, and what
// the call has from the group.
func (s *teller) expectAnswer(name string) (a model.Answer, ticket groupTicket, byGroup bool) {
	p := s.pair(name)
	a, byGroup = s.look(p)
	if s.group != nil && p.b.Look(s.now()).Reason == "none" {
		in, events := s.group.b.AskAs(s.now(), source(name))
		s.group.happened(events)
		ticket = groupTicket{s.group, s.group.b.Epoch, in.Probe}
	}
	if !byGroup {
		own, events := p.b.Ask(s.now())
		p.happened(events)
		a.Reason, a.Probe, a.Epoch = own.Reason, own.Probe, own.Epoch
	}
	if a.Reason == "none" {
		p.s.Admit()
	} else {
		p.s.Refuse(a.Reason)
	}
	return a, ticket, byGroup
}

func (s *teller) allow(gate *toolhealth.Gate, name string) {
	s.tell("allow %s, routed: %v", name, gate.Router != nil)
	s.pair(name)
	got := &permitPair{name: name, start: s.now()}
	permit, err := gate.Allow(context.Background(), name)
	a, ticket, byGroup := s.expectAnswer(name)
	first := a
	if a.Reason != "none" && gate.Router != nil {
		for _, other := range names {
			if other == name {
				continue
			}
			if free, _ := s.look(s.tools[other]); free.Reason == "none" {
				got.name = other
				a, ticket, _ = s.expectAnswer(other)
			}
		}
	}
	if a.Reason != "none" {
		var refusal *toolhealth.Refusal
		require.ErrorAs(s.t, err, &refusal, s)
		p, inRow, group := s.tools[name], s.tools[name].s.InRow, ""
		if byGroup {
			p, group = s.group, theGroup
		}
		require.Equal(s.t, toolhealth.Refusal{
			Tool: name, Reason: refusal.Reason, RetryAfter: first.Wait, Group: group, Streak: p.b.Streak, Kind: refusal.Kind, InRow: uint64(inRow),
		}, *refusal, s)
		require.Equal(s.t, [2]string{first.Reason, p.b.Kind}, [2]string{refusal.Reason.Detail(), refusal.Kind.String()}, s)
		require.ErrorIs(s.t, err, toolhealth.ErrRefused)
		return
	}
	require.NoError(s.t, err, s)
	require.Equal(s.t, got.name, permit.Tool(), s)
	require.Equal(s.t, a.Probe || ticket.probe, permit.Probe(), s)
	require.True(s.t, permit.Tracked())
	got.epoch, got.probe, got.pair, got.group = a.Epoch, a.Probe, s.tools[got.name], ticket
	got.real = &permit
	s.permits = append(s.permits, got)
}

// allowWithDeadContext must change nothing, and must not create an entry.
func (s *teller) allowWithDeadContext(name string) {
	s.tell("allow %s with a canceled context", name)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := s.gate.Allow(ctx, name)
	require.ErrorIs(s.t, err, context.Canceled, s)
}

// permit selects one of the permits of the story, settled ones included.
func (s *teller) permit() *permitPair {
	b := s.byte()
	if len(s.permits) == 0 {
		return nil
	}
	if b%4 != 0 { // mostly one of the last
		return s.permits[len(s.permits)-1-int(b)/4%min(len(s.permits), 3)]
	}
	return s.permits[int(b)/4%len(s.permits)]
}

func (s *teller) readVerdict() toolhealth.Verdict {
	b := s.byte()
	v := toolhealth.Verdict{Outcome: toolhealth.Outcome(b % 5)}
	switch v.Outcome {
	case toolhealth.OutcomeFailure:
		v.Kind = toolhealth.Kind(b/5%15 + 1)
		v.Retryable = b/5%2 == 0
		v.RetryAfter = [4]time.Duration{0, 0, 40 * time.Second, time.Hour}[b/5/15]
	case toolhealth.OutcomeRejected:
		v.NotSent = b/5%4 == 1
		v.Kind = [4]toolhealth.Kind{toolhealth.KindNone, toolhealth.KindUnauthorized, toolhealth.KindGone, toolhealth.KindNotFound}[b/20%4]
	case toolhealth.OutcomeNeutral:
		v.Kind = [3]toolhealth.Kind{toolhealth.KindNone, toolhealth.KindContract, toolhealth.KindCanceled}[b/5%3]
	case toolhealth.OutcomeThrottled:
		v.RetryAfter = [8]time.Duration{-1, 0, 1, time.Second, 40 * time.Second, time.Hour, math.MaxInt64, 7}[b/5%8]
	}
	return v
}

func (s *teller) settle() {
	p := s.permit()
	v := s.readVerdict()
	if p == nil {
		return
	}
	s.tell("settle %s of epoch %d (probe %v, spent %v): %+v", p.name, p.epoch, p.probe, p.spent, v)
	if v.Outcome == toolhealth.OutcomeSuccess {
		p.real.Done(context.Background(), nil)
	} else {
		p.real.Done(context.Background(), toolhealth.WithVerdict(errors.New("told"), v))
	}
	if p.spent {
		return
	}
	p.spent = true
	took := s.now() - p.start
	p.pair.s.End(s.now(), v.Outcome.String(), v.Kind.String(), took)
	s.tellGroup(p.name, v, took, p.group)
	if p.pair == s.tools[p.name] { // if the tool was removed, the report reaches no breaker
		p.pair.happened(p.pair.b.Report(s.now(), s.report(p.pair, v, took, model.Report{Probe: p.probe, Epoch: p.epoch})))
	}
}

// tellGroup tells the model's group of the end of a call, which has a ticket of it unless
// it was made by name.
func (s *teller) tellGroup(name string, v toolhealth.Verdict, took time.Duration, ticket groupTicket) {
	g := ticket.of
	if g == nil {
		return
	}
	r := model.Report{
		Probe: ticket.probe, Epoch: ticket.epoch, Outcome: "neutral", Kind: v.Kind.String(), Took: max(took, 0),
		Source: source(name), Once: v.Kind == toolhealth.KindTimeout && !v.NotSent, ByName: ticket.epoch == 0,
	}
	switch v.Outcome {
	case toolhealth.OutcomeSuccess, toolhealth.OutcomeThrottled:
		r.Outcome = "success"
	case toolhealth.OutcomeRejected:
		if !v.NotSent {
			r.Outcome = "success"
		}
	case toolhealth.OutcomeFailure:
		switch v.Kind {
		case toolhealth.KindTimeout:
			r.Outcome = "failure"
		case toolhealth.KindConnection:
			if v.Retryable {
				r.Outcome = "failure"
			}
		case toolhealth.KindServerError, toolhealth.KindContract, toolhealth.KindRateLimited, toolhealth.KindQuotaExhausted:
			r.Outcome = "success"
		}
	}
	g.happened(g.b.Report(s.now(), r))
}

func (s *teller) report(p *toolPair, v toolhealth.Verdict, took time.Duration, r model.Report) model.Report {
	r.Outcome, r.Kind, r.Took, r.RetryAfter = v.Outcome.String(), v.Kind.String(), max(took, 0), max(v.RetryAfter, 0)
	if v.Outcome == toolhealth.OutcomeRejected && v.NotSent {
		r.Outcome = "neutral"
	}
	r.Ended = p.s.Ended()
	return r
}

func (s *teller) release() {
	p := s.permit()
	if p == nil {
		return
	}
	s.tell("release %s of epoch %d (probe %v, spent %v)", p.name, p.epoch, p.probe, p.spent)
	p.real.Release()
	if !p.spent && p.group.probe {
		p.group.of.happened(p.group.of.b.Release(s.now(), p.group.epoch))
	}
	if !p.spent && p.probe && p.pair == s.tools[p.name] {
		p.pair.happened(p.pair.b.Release(s.now(), p.epoch))
	}
	p.spent = true
}

func (s *teller) keepAlive() {
	p := s.permit()
	if p == nil {
		return
	}
	s.tell("keepalive %s of epoch %d (probe %v, spent %v)", p.name, p.epoch, p.probe, p.spent)
	p.real.KeepAlive()
	if !p.spent && p.group.probe {
		p.group.of.happened(p.group.of.b.KeepAlive(s.now(), p.group.epoch))
	}
	if !p.spent && p.probe && p.pair == s.tools[p.name] {
		p.pair.happened(p.pair.b.KeepAlive(s.now(), p.epoch))
	}
}

// hint says what another replica knows. Of a tool without an entry, two hints make one.
func (s *teller) hint(name string) {
	kind := toolhealth.HintKind(s.byte() % 5)
	wait := pick(s, time.Second, 0, 40*time.Second, time.Hour, -1, math.MaxInt64, 7)
	s.tell("hint for %s: %v for %v", name, kind, wait)
	makes := kind == toolhealth.HintDown || kind == toolhealth.HintThrottled
	known := s.tools[name] != nil || makes
	if known { // the hook hears of the pair
		p := s.pair(name)
		p.happened(p.b.Hear(s.now(), kind.String(), wait))
	}
	require.Equal(s.t, known, s.r.Hint(name, kind, wait), s)
}

func (s *teller) record(name string) {
	v := s.readVerdict()
	took := pick(s, 0, -1, time.Second, 31*time.Second, math.MaxInt64, 2)
	s.recordOutcome(name, v, took)
}

func (s *teller) recordOutcome(name string, v toolhealth.Verdict, took time.Duration) {
	s.tell("record %s: %+v after %v", name, v, took)
	p := s.pair(name)
	switch {
	case v.Outcome == toolhealth.OutcomeSuccess:
		s.r.RecordSuccess(name, took)
	case v.Outcome == toolhealth.OutcomeFailure && v.Kind == toolhealth.KindUnknown && v.RetryAfter == 0:
		s.r.RecordFailure(name, took)
	default:
		s.r.Record(name, v, took)
	}
	p.s.End(s.now(), v.Outcome.String(), v.Kind.String(), took)
	s.tellGroup(name, v, took, groupTicket{of: s.group})
	p.happened(p.b.Report(s.now(), s.report(p, v, took, model.Report{ByName: true})))
}

// at is a time of the model, the zero time if there is none.
func (s *teller) at(t time.Duration, known bool) time.Time {
	if !known {
		return time.Time{}
	}
	return s.start.Add(t)
}

// byKind has the model's counters as a registry has them: nil without any.
func byKind(s *teller, counters map[string]int) map[toolhealth.Kind]uint64 {
	if len(counters) == 0 {
		return nil
	}
	kinds := make(map[toolhealth.Kind]uint64)
	for text, n := range counters {
		var k toolhealth.Kind
		require.NoError(s.t, k.UnmarshalText([]byte(text)))
		kinds[k] = uint64(n)
	}
	return kinds
}

func sum(counters map[string]int) (n uint64) {
	for _, of := range counters {
		n += uint64(of)
	}
	return n
}

// compare compares everything that a caller can read.
func (s *teller) compare() {
	require.Equal(s.t, len(s.tools), s.r.Len(), s)
	for _, name := range names {
		p := s.tools[name]
		h, ok := s.r.Health(name)
		require.Equal(s.t, p != nil, ok, s)
		a, byGroup := s.look(p)
		require.Equal(s.t, a.Reason == "none", s.r.Available(name), s)
		if p == nil {
			continue
		}
		seen := p.b
		seen.Tick(s.now())
		probeDue, group := p.b.Look(s.now()).Probe && !byGroup, ""
		if s.grouped {
			group = theGroup
		}
		out := uint64(0)
		for _, permit := range s.permits {
			if permit.pair == p && !permit.spent {
				out++
			}
		}
		require.Equal(s.t, fmt.Sprint(seen.State, " ", a.Reason, " ", seen.Kind, " ", p.s.Status(seen.State, a.Reason == "none")),
			fmt.Sprint(h.State, " ", h.Reason.Detail(), " ", h.LastFailure, " ", h.Status), s)
		require.InDelta(s.t, p.s.Score(), h.Score, 1e-9, s)
		require.InDelta(s.t, p.s.Rate(), h.SuccessRate(), 1e-9, s)
		requireQuantiles(s.t, p.s.Good, h.Counts)
		require.Equal(s.t, toolhealth.ToolHealth{
			Tool: name, Status: h.Status, State: h.State, Reason: h.Reason, LastFailure: h.LastFailure, Score: h.Score,
			Available: a.Reason == "none", ProbeDue: probeDue, RetryAfter: a.Wait, Group: group,
			Counts: toolhealth.Counts{
				Successes: uint64(len(p.s.Good)), Failures: uint64(len(p.s.Bad)), ByKind: byKind(s, p.s.ByKind),
				Rejected: sum(p.s.Rejections), Throttled: uint64(p.s.Throttled), Neutral: sum(p.s.Neutrals), Refused: sum(p.s.Refusals),
				RejectedByKind: byKind(s, p.s.Rejections), NeutralByKind: byKind(s, p.s.Neutrals), RefusedByReason: h.RefusedByReason,
				Average: p.s.Average(), AverageSuccess: p.s.AverageGood(), Max: p.s.Max(), EWMA: float64(p.s.EWMA) / 1e6,
				P50: h.P50, P90: h.P90, P99: h.P99, // see requireQuantiles
			},
			ConsecutiveFailures: seen.Streak, RefusedInRow: uint64(p.s.InRow), Trips: uint64(seen.Trips), Epoch: uint64(seen.Epoch),
			Since: s.start.Add(seen.Since), InFlight: out, RejectedInRow: uint64(p.s.UselessRow),
			Suspected: seen.State == "closed" && seen.Suspected > s.now(), Reported: seen.State == "open" && seen.Hearsay,
			DownSince:      s.at(seen.DownSince, seen.State != "closed"),
			LastFailureAt:  s.at(p.s.LastBad, len(p.s.Bad) > 0),
			LastRejectedAt: s.at(p.s.LastReject, len(p.s.Rejections) > 0),
		}, h, s)
		reasons := map[string]int{}
		for reason, n := range h.RefusedByReason {
			reasons[reason.Detail()] = int(n)
		}
		require.Equal(s.t, p.s.Refusals, reasons, s)
		require.Equal(s.t, p.expected, p.heard, s)
	}
	s.compareGroup()
}

func (s *teller) compareGroup() {
	groups := s.r.HealthSummary().Groups
	if s.group == nil {
		require.Empty(s.t, groups, s)
		return
	}
	require.Len(s.t, groups, 1, s)
	require.Equal(s.t, s.group.expected, s.group.heard, s)
	h, seen, a := groups[0], s.group.b, s.lookAtGroup()
	seen.Tick(s.now())
	require.Equal(s.t, fmt.Sprint(seen.State, " ", a.Reason, " ", seen.Kind), fmt.Sprint(h.State, " ", h.Reason.Detail(), " ", h.LastFailure), s)
	require.Equal(s.t, toolhealth.GroupHealth{
		Group: theGroup, State: h.State, Available: a.Reason == "none", ProbeDue: a.Probe, Reason: h.Reason, RetryAfter: a.Wait,
		ConsecutiveFailures: seen.Streak, LastFailure: h.LastFailure, Trips: uint64(seen.Trips), Epoch: uint64(seen.Epoch),
		Since: s.start.Add(seen.Since), DownSince: s.at(seen.DownSince, seen.State != "closed"), Tools: len(s.tools),
	}, h, s)
}
