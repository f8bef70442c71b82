package toolhealth

import (
	"sync/atomic"

	"github.com/toolhealth/toolhealth/internal/frame"
	"github.com/toolhealth/toolhealth/internal/machine"
	"github.com/toolhealth/toolhealth/internal/queue"
	"github.com/toolhealth/toolhealth/internal/stamp"
)

// A group is what is known of one server that several tools are behind: a breaker of its
// own, which counts only what says that the server cannot be reached. Of two breakers
// the tool's is looked at first, without taking anything. Then the group lets the call in,
// or refuses it; then the tool does. A call that loses at the tool gives the group's
// probe back. So a tool that refuses uses up no probe of its group, and one call may
// carry both probes and settle both.
//
// Its breaker's probes are told apart by the tool that took them: see [machine.Event].
type group struct {
	carrier
	name     string
	isolator isolator

	members atomic.Int64 // entries of its tools; written under Registry.mu

	// Under Registry.mu:
	vacant queue.Links[group] // its place in Registry.vacant, in which it is while it has no members
	since  int64              // when it became vacant
}

// named returns the name of g, "" for a nil one.
func (g *group) named() string {
	if g == nil {
		return ""
	}
	return g.name
}

// admitsAll reports whether g admits every call. A tool without a group has a nil one.
func (g *group) admitsAll() bool { return g == nil || g.snap.Load().AdmitsAll() }

// unmoved reports whether a sign of life of the server changes nothing.
func (g *group) unmoved() bool { return g == nil || g.snap.Load().UnmovedBy(0) }

// refusal says why g would refuse a caller at now and for how long; StopNone and 0 if it
// would not.
func (g *group) refusal(now int64) (StopReason, int64) {
	if g == nil {
		return StopNone, 0
	}
	return g.refusalUnder(g.snap.Load(), now)
}

// refusalUnder is refusal by this snapshot.
func (g *group) refusalUnder(s *machine.Snapshot, now int64) (StopReason, int64) {
	if s.Params.ObserveOnly {
		return StopNone, 0
	}
	reason, wait, _ := s.Refusal(now)
	return StopReason(reason), wait
}

// request is what a caller wants beside an admission.
type request struct {
	leaseFloor int64  // the shortest lease, if the call is the probe
	permit     bool   // count a permit as given out
	noProbe    bool   // the call must not be the probe
	source     uint64 // of the tool, for its group
	// around is the attempt that the call is made inside of; nil if it is in none. While
	// that holds the probe of a group, calls of other tools of the group share it: they
	// cannot wait for an attempt that waits for them. The first that ends with a verdict
	// decides; one without leaves the probe to the attempt around it.
	around *frame.Attempt
}

// shares reports whether an attempt around the call holds the probe of this epoch of g.
func (want *request) shares(g *group, epoch uint64) bool {
	for lease := range want.around.Leases() {
		if l, ok := lease.(groupLease); ok && l.holds(g, epoch) {
			return true
		}
	}
	return false
}

// groupLease is what an attempt has that is a probe, maybe of its group.
type groupLease interface {
	holds(g *group, epoch uint64) bool
}

// answer is what the gate answers: the breaker of the tool, and that of its group.
type answer struct {
	machine.Answer                // of the tool; Reason and Wait are those of the call
	group          machine.Answer // of the group; zero if it was not asked
	// lost is the answer to a probe of the group that was given back, because the tool
	// refused.
	lost     machine.Answer
	refusing *group // the group that refuses; nil if none does
	shared   bool   // the probe of the group is that of the attempt around the call
	observed bool   // a breaker that only observes would refuse
}

// tickets returns what the admitted call has from the tool and from its group.
func (a *answer) tickets() (tool, group stamp.Ticket) {
	return stamp.Ticket{Epoch: a.Epoch, Probe: a.Probe}, stamp.Ticket{Epoch: a.group.Epoch, Probe: a.group.Probe, Shared: a.shared}
}

// changed reports whether there are transitions to deliver.
func (a *answer) changed() bool {
	return len(a.Changes) > 0 || len(a.group.Changes) > 0
}

// admit asks g on behalf of a call that the tool itself would let in. It may take the
// probe, or share that of an attempt around the call. A group that has left the registry
// admits.
func (g *group) admit(want *request, now int64, hooked bool) (a machine.Answer, shared bool) {
	s := g.snap.Load()
	if s.AdmitsAll() {
		return machine.Answer{Epoch: s.Epoch}, false
	}
	if s.ProbeIsOut(now) && !want.noProbe && want.shares(g, s.Epoch) {
		return machine.Answer{Epoch: s.Epoch, Probe: true}, true
	}
	if reason, wait, quiet := s.Refusal(now); quiet {
		return machine.Answer{Reason: reason, Wait: wait, Epoch: s.Epoch}, false
	}
	g.apply(&machine.Event{
		Op: machine.OpAdmit, Source: want.source, LeaseFloor: want.leaseFloor, NoProbe: want.noProbe, Hooked: hooked,
	}, now, nil, &a)
	return a, false
}

// observes reports whether g lets everyone in, whatever it says.
func (g *group) observes() bool { return g.snap.Load().Params.ObserveOnly }

// evidence is what the end of a tool's call says of the server: that it cannot be
// reached, that it has answered, or nothing. An unknown host name and a certificate say
// nothing, because an argument of the tool may be at fault: such failures are not
// retryable. serverErrors says that an answer with a server error is a failure, too.
func evidence(v Verdict, serverErrors bool) machine.Outcome {
	switch v.Outcome {
	case OutcomeSuccess, OutcomeThrottled:
		return machine.Success
	case OutcomeRejected:
		if v.NotSent { // refused by the client
			return machine.Neutral
		}
		return machine.Success
	case OutcomeFailure:
		switch {
		case v.Kind == KindConnection && v.Retryable, v.Kind == KindTimeout, v.Kind == KindServerError && serverErrors:
			return machine.Failure
		case v.Kind == KindServerError, v.Kind == KindContract, v.Kind == KindRateLimited, v.Kind == KindQuotaExhausted:
			return machine.Success
		}
	}
	return machine.Neutral
}

// settlement is the event of a group for the end of a call of source. Time-outs of one
// tool in a row count once, unless no connection was made in time: one slow tool is no
// dead server.
func (g *group) settlement(source uint64, v Verdict, took int64, serverErrors bool) machine.Event {
	return machine.Event{
		Op: machine.OpSettle, Source: source, Once: v.Kind == KindTimeout && !v.NotSent,
		Outcome: evidence(v, serverErrors), Kind: machine.Kind(kindOfError(v.Kind)), Took: took,
	}
}

// indifferent reports whether the event, which is no probe's, changes nothing in g.
func (g *group) indifferent(ev *machine.Event) bool {
	s := g.snap.Load()
	return s.State == machine.Closed && ev.Outcome == machine.Neutral || ev.Outcome == machine.Success && s.UnmovedBy(0)
}

// evict marks g, which is vacant, as evicted if it holds nothing that would be missed.
func (g *group) evict(now int64) bool {
	s := g.snap.Load()
	return (s.Forgettable(now) || now >= s.FadesAt(g.since)) && !g.delivering() && g.snap.CompareAndSwap(s, evictedUnder(s.Params))
}
