package toolhealth

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The table below is the machine: one row for each group of (situation, event)
// pairs that end alike. All times are seconds; every event happens at 1000. The
// situation's own snapshot is epoch 7, so a permit of epoch 6 is a stale one.
//
// The configuration of the table: threshold 3, cooldown 30, lease 20, no wait
// over 100, 2 good probes close, a success of more than 5 is slow. Events: a call
// took 1 (a slow one 6), a failure is a server_error, a throttle asks for 60, and
// 50 calls had ended.
const stepNow = 1000

var stepSituations = []struct{ name, snapshot string }{
	{"closed clean", "state=closed since=900"},
	{"closed with streak", "state=closed since=900 streak=2 kind=connection"},
	{"closed throttled", "state=closed since=900 until=1010"},
	{"closed thawed", "state=closed since=900 until=990"},
	{"open cooling", "state=open since=990 until=1020 streak=3 kind=connection trips=1 failed=1 passed=1"},
	{"open due", "state=open since=955 until=985 streak=3 kind=connection trips=1 failed=1 passed=1"},
	{"open limited", "state=open since=990 until=1050 limited=1 streak=3 kind=connection trips=1 failed=1 passed=1"},
	{"isolated", "state=open since=990 until=990 isolated=1 streak=3 kind=connection trips=1 failed=1 passed=1"},
	{"half-open live", "state=half-open since=990 until=1010 lease=20 cooldown=30 streak=3 kind=connection trips=1 failed=1 passed=1"},
	{"half-open lost cooling", "state=half-open since=960 until=980 lease=20 cooldown=30 streak=3 kind=connection trips=1 failed=1 passed=1"},
	{"half-open lost due", "state=half-open since=935 until=955 lease=20 cooldown=30 streak=3 kind=connection trips=1 failed=1 passed=1"},
	{"half-open no lease", "state=half-open since=990 until=never lease=never cooldown=30 streak=3 kind=connection trips=1 failed=1"},
}

// stepOutcomes and stepPermits span the events of kind settle.
var (
	stepOutcomes = []string{"success", "slow", "failure", "rejected", "throttled", "neutral"}
	stepPermits  = []string{"current", "probe", "stale", "stale-probe", "name"}
	stepOthers   = []string{
		"admit", "keepalive own", "keepalive other", "reset", "isolate", "configure lower", "configure zero",
	}
)

// What many rows share. A lost probe's snapshot turns open before anything else.
const (
	freshlyClosed = "state=closed since=1000 until=0 limited=0 isolated=0 lease=0 cooldown=0 streak=0 failed=0 passed=0 ended=50 epoch=8"
	heldOpen      = "state=open since=1000 until=1000 limited=0 isolated=1 lease=0 cooldown=0 epoch=8"
	probeOut      = "state=half-open since=1000 until=1020 limited=0 lease=20 cooldown=30 epoch=8"
	lost980       = "state=open since=980 until=1010 lost=1 lease=0 cooldown=0 passed=0 epoch=8"
	lost955       = "state=open since=955 until=985 lost=1 lease=0 cooldown=0 passed=0 epoch=8"
	wasLost980    = "half-open>open lease_expired @980 wait=30"
	wasLost955    = "half-open>open lease_expired @955 wait=30"
)

// A row: situation | outcome or event | permits | fields that change | answer to
// an admission, or the transitions. "*" stands for every permit.
var stepTable = [][5]string{
	{"closed clean", "admit", "", "", "admitted"},
	{"closed clean", "success", "current probe stale name", "", ""},
	{"closed clean", "success", "stale-probe", "", ""},
	{"closed clean", "slow", "current probe name", "streak=1 kind=timeout", ""},
	{"closed clean", "failure", "current probe name", "streak=1 kind=server_error", ""},
	{"closed clean", "slow failure", "stale stale-probe", "", ""},
	{"closed clean", "rejected neutral", "*", "", ""},
	{"closed clean", "throttled", "*", "until=1060", ""},
	{"closed clean", "keepalive own", "", "", ""},
	{"closed clean", "keepalive other", "", "", ""},
	{"closed clean", "reset", "", freshlyClosed, "closed>closed reset @1000 wait=0"},
	{"closed clean", "isolate", "", heldOpen + " trips=1", "closed>open isolated @1000 wait=30"},
	{"closed clean", "configure lower", "", "cfg=lower", ""},
	{"closed clean", "configure zero", "", "cfg=zero", ""},

	{"closed with streak", "admit", "", "", "admitted"},
	{"closed with streak", "success", "current probe name", "streak=0", ""},
	{"closed with streak", "success", "stale", "", ""},
	{"closed with streak", "success", "stale-probe", "", ""},
	{"closed with streak", "slow", "current probe name", "state=open since=1000 until=1030 streak=3 kind=timeout trips=1 epoch=8", "closed>open failure_threshold @1000 wait=30"},
	{"closed with streak", "failure", "current probe name", "state=open since=1000 until=1030 streak=3 kind=server_error trips=1 epoch=8", "closed>open failure_threshold @1000 wait=30"},
	{"closed with streak", "slow failure", "stale stale-probe", "", ""},
	{"closed with streak", "rejected", "current probe name", "streak=0", ""},
	{"closed with streak", "rejected", "stale stale-probe", "", ""},
	{"closed with streak", "throttled", "*", "until=1060", ""},
	{"closed with streak", "neutral", "*", "", ""},
	{"closed with streak", "keepalive own", "", "", ""},
	{"closed with streak", "keepalive other", "", "", ""},
	{"closed with streak", "reset", "", freshlyClosed, "closed>closed reset @1000 wait=0"},
	{"closed with streak", "isolate", "", heldOpen + " trips=1", "closed>open isolated @1000 wait=30"},
	{"closed with streak", "configure lower", "", "cfg=lower", ""},
	{"closed with streak", "configure zero", "", "cfg=zero", ""},

	{"closed throttled", "admit", "", "", "refused rate_limited 10"},
	{"closed throttled", "success", "current probe stale name", "", ""},
	{"closed throttled", "success", "stale-probe", "", ""},
	{"closed throttled", "slow", "current probe name", "streak=1 kind=timeout", ""},
	{"closed throttled", "failure", "current probe name", "streak=1 kind=server_error", ""},
	{"closed throttled", "slow failure", "stale stale-probe", "", ""},
	{"closed throttled", "rejected neutral", "*", "", ""},
	{"closed throttled", "throttled", "*", "until=1060", ""},
	{"closed throttled", "keepalive own", "", "", ""},
	{"closed throttled", "keepalive other", "", "", ""},
	{"closed throttled", "reset", "", freshlyClosed, "closed>closed reset @1000 wait=0"},
	{"closed throttled", "isolate", "", heldOpen + " trips=1", "closed>open isolated @1000 wait=30"},
	{"closed throttled", "configure lower", "", "cfg=lower", ""},
	{"closed throttled", "configure zero", "", "cfg=zero", ""},

	{"closed thawed", "admit", "", "until=0", "admitted"},
	{"closed thawed", "success", "current probe stale name", "", ""},
	{"closed thawed", "success", "stale-probe", "", ""},
	{"closed thawed", "slow", "current probe name", "streak=1 kind=timeout", ""},
	{"closed thawed", "failure", "current probe name", "streak=1 kind=server_error", ""},
	{"closed thawed", "slow failure", "stale stale-probe", "", ""},
	{"closed thawed", "rejected neutral", "*", "", ""},
	{"closed thawed", "throttled", "*", "until=1060", ""},
	{"closed thawed", "keepalive own", "", "", ""},
	{"closed thawed", "keepalive other", "", "", ""},
	{"closed thawed", "reset", "", freshlyClosed, "closed>closed reset @1000 wait=0"},
	{"closed thawed", "isolate", "", heldOpen + " trips=1", "closed>open isolated @1000 wait=30"},
	{"closed thawed", "configure lower", "", "cfg=lower", ""},
	{"closed thawed", "configure zero", "", "cfg=zero", ""},

	{"open cooling", "admit", "", "", "refused circuit_open 20"},
	{"open cooling", "success", "current probe stale name", "", ""},
	{"open cooling", "success", "stale-probe", "", ""},
	{"open cooling", "slow", "*", "until=1030 kind=timeout passed=0", ""},
	{"open cooling", "failure", "*", "until=1030 kind=server_error passed=0", ""},
	{"open cooling", "rejected neutral", "*", "", ""},
	{"open cooling", "throttled", "*", "until=1060 limited=1", ""},
	{"open cooling", "keepalive own", "", "", ""},
	{"open cooling", "keepalive other", "", "", ""},
	{"open cooling", "reset", "", freshlyClosed, "open>closed reset @1000 wait=0"},
	{"open cooling", "isolate", "", heldOpen, "open>open isolated @1000 wait=30"},
	{"open cooling", "configure lower", "", "cfg=lower", ""},
	{"open cooling", "configure zero", "", "cfg=zero " + freshlyClosed, "open>closed reconfigured @1000 wait=0"},

	// Opened at 955: nothing may move the next probe past 1055.
	{"open due", "admit", "", probeOut, "probe; open>half-open probe_admitted @1000 wait=50"},
	{"open due", "success", "current probe stale name", "", ""},
	{"open due", "success", "stale-probe", "", ""},
	{"open due", "slow", "*", "until=1030 kind=timeout passed=0", ""},
	{"open due", "failure", "*", "until=1030 kind=server_error passed=0", ""},
	{"open due", "rejected neutral", "*", "", ""},
	{"open due", "throttled", "*", "until=1055 limited=1", ""},
	{"open due", "keepalive own", "", "", ""},
	{"open due", "keepalive other", "", "", ""},
	{"open due", "reset", "", freshlyClosed, "open>closed reset @1000 wait=0"},
	{"open due", "isolate", "", heldOpen, "open>open isolated @1000 wait=30"},
	{"open due", "configure lower", "", "cfg=lower", ""},
	{"open due", "configure zero", "", "cfg=zero " + freshlyClosed, "open>closed reconfigured @1000 wait=0"},

	// A cooldown would end before the stated wait, so a failure does not move it.
	{"open limited", "admit", "", "", "refused rate_limited 50"},
	{"open limited", "success", "current probe stale name", "", ""},
	{"open limited", "success", "stale-probe", "", ""},
	{"open limited", "slow", "*", "kind=timeout passed=0", ""},
	{"open limited", "failure", "*", "kind=server_error passed=0", ""},
	{"open limited", "rejected neutral", "*", "", ""},
	{"open limited", "throttled", "*", "until=1060", ""},
	{"open limited", "keepalive own", "", "", ""},
	{"open limited", "keepalive other", "", "", ""},
	{"open limited", "reset", "", freshlyClosed, "open>closed reset @1000 wait=0"},
	{"open limited", "isolate", "", heldOpen, "open>open isolated @1000 wait=30"},
	{"open limited", "configure lower", "", "cfg=lower", ""},
	{"open limited", "configure zero", "", "cfg=zero " + freshlyClosed, "open>closed reconfigured @1000 wait=0"},

	{"isolated", "admit", "", "", "refused isolated 30"},
	{"isolated", "success", "current probe stale name", "", ""},
	{"isolated", "success", "stale-probe", "", ""},
	{"isolated", "slow failure rejected throttled neutral", "*", "", ""},
	{"isolated", "keepalive own", "", "", ""},
	{"isolated", "keepalive other", "", "", ""},
	{"isolated", "reset", "", freshlyClosed, "open>closed reset @1000 wait=0"},
	{"isolated", "isolate", "", heldOpen, "open>open isolated @1000 wait=30"},
	{"isolated", "configure lower", "", "cfg=lower", ""},
	{"isolated", "configure zero", "", "cfg=zero", ""},

	// One good probe has been: the second closes. 40 is the rest of the lease and
	// the cooldown after it.
	{"half-open live", "admit", "", "", "refused probe_in_flight 40"},
	{"half-open live", "success rejected", "probe name", freshlyClosed, "half-open>closed probe_succeeded @1000 wait=0"},
	{"half-open live", "success rejected", "current stale", "", ""},
	{"half-open live", "success", "stale-probe", "", ""},
	{"half-open live", "rejected", "stale-probe", "", ""},
	{"half-open live", "slow", "probe name", "state=open since=1000 until=1030 lease=0 cooldown=0 streak=4 kind=timeout failed=2 passed=0 epoch=8", "half-open>open probe_failed @1000 wait=30"},
	{"half-open live", "failure", "probe name", "state=open since=1000 until=1030 lease=0 cooldown=0 streak=4 kind=server_error failed=2 passed=0 epoch=8", "half-open>open probe_failed @1000 wait=30"},
	{"half-open live", "throttled", "probe name", "state=open since=1000 until=1060 limited=1 lease=0 cooldown=0 epoch=8", "half-open>open probe_throttled @1000 wait=60"},
	{"half-open live", "neutral", "probe name", "state=open since=1000 until=1000 lease=0 cooldown=0 epoch=8", "half-open>open probe_returned @1000 wait=0"},
	{"half-open live", "slow failure throttled neutral", "current stale stale-probe", "", ""},
	{"half-open live", "keepalive own", "", "until=1020", ""},
	{"half-open live", "keepalive other", "", "", ""},
	{"half-open live", "reset", "", freshlyClosed, "half-open>closed reset @1000 wait=0"},
	{"half-open live", "isolate", "", heldOpen, "half-open>open isolated @1000 wait=30"},
	{"half-open live", "configure lower", "", "cfg=lower", ""},
	{"half-open live", "configure zero", "", "cfg=zero " + freshlyClosed, "half-open>closed reconfigured @1000 wait=0"},

	// The lease ended at 980: this IS open since 980, the next probe due at 1010.
	{"half-open lost cooling", "admit", "", lost980, "refused circuit_open 10; " + wasLost980},
	{"half-open lost cooling", "success", "current stale name", lost980, wasLost980},
	{"half-open lost cooling", "success", "probe stale-probe", lost980, wasLost980},
	{"half-open lost cooling", "slow", "*", lost980 + " until=1030 kind=timeout", wasLost980},
	{"half-open lost cooling", "failure", "*", lost980 + " until=1030 kind=server_error", wasLost980},
	{"half-open lost cooling", "rejected neutral", "*", lost980, wasLost980},
	{"half-open lost cooling", "throttled", "*", lost980 + " until=1060 limited=1", wasLost980},
	{"half-open lost cooling", "keepalive own", "", lost980, wasLost980},
	{"half-open lost cooling", "keepalive other", "", lost980, wasLost980},
	{"half-open lost cooling", "reset", "", freshlyClosed + " epoch=9", wasLost980 + "; open>closed reset @1000 wait=0"},
	{"half-open lost cooling", "isolate", "", heldOpen + " passed=0 epoch=9", wasLost980 + "; open>open isolated @1000 wait=30"},
	{"half-open lost cooling", "configure lower", "", "cfg=lower " + lost980, wasLost980},
	{"half-open lost cooling", "configure zero", "", "cfg=zero " + freshlyClosed + " epoch=9", wasLost980 + "; open>closed reconfigured @1000 wait=0"},

	// The lease ended at 955 and the cooldown after it at 985.
	{"half-open lost due", "admit", "", probeOut + " passed=0 epoch=9", "probe; " + wasLost955 + "; open>half-open probe_admitted @1000 wait=50"},
	{"half-open lost due", "success", "current stale name", lost955, wasLost955},
	{"half-open lost due", "success", "probe stale-probe", lost955, wasLost955},
	{"half-open lost due", "slow", "*", lost955 + " until=1030 kind=timeout", wasLost955},
	{"half-open lost due", "failure", "*", lost955 + " until=1030 kind=server_error", wasLost955},
	{"half-open lost due", "rejected neutral", "*", lost955, wasLost955},
	{"half-open lost due", "throttled", "*", lost955 + " until=1055 limited=1", wasLost955},
	{"half-open lost due", "keepalive own", "", lost955, wasLost955},
	{"half-open lost due", "keepalive other", "", lost955, wasLost955},
	{"half-open lost due", "reset", "", freshlyClosed + " epoch=9", wasLost955 + "; open>closed reset @1000 wait=0"},
	{"half-open lost due", "isolate", "", heldOpen + " passed=0 epoch=9", wasLost955 + "; open>open isolated @1000 wait=30"},
	{"half-open lost due", "configure lower", "", "cfg=lower " + lost955, wasLost955},
	{"half-open lost due", "configure zero", "", "cfg=zero " + freshlyClosed + " epoch=9", wasLost955 + "; open>closed reconfigured @1000 wait=0"},

	// No good probe has been: the first one leaves it open, the next due at once.
	{"half-open no lease", "admit", "", "", "refused probe_in_flight 30"},
	{"half-open no lease", "success rejected", "probe name", "state=open since=1000 until=1000 lease=0 cooldown=0 passed=1 epoch=8", "half-open>open probe_succeeded @1000 wait=0"},
	{"half-open no lease", "success rejected", "current stale", "", ""},
	{"half-open no lease", "success", "stale-probe", "", ""},
	{"half-open no lease", "rejected", "stale-probe", "", ""},
	{"half-open no lease", "slow", "probe name", "state=open since=1000 until=1030 lease=0 cooldown=0 streak=4 kind=timeout failed=2 epoch=8", "half-open>open probe_failed @1000 wait=30"},
	{"half-open no lease", "failure", "probe name", "state=open since=1000 until=1030 lease=0 cooldown=0 streak=4 kind=server_error failed=2 epoch=8", "half-open>open probe_failed @1000 wait=30"},
	{"half-open no lease", "throttled", "probe name", "state=open since=1000 until=1060 limited=1 lease=0 cooldown=0 epoch=8", "half-open>open probe_throttled @1000 wait=60"},
	{"half-open no lease", "neutral", "probe name", "state=open since=1000 until=1000 lease=0 cooldown=0 epoch=8", "half-open>open probe_returned @1000 wait=0"},
	{"half-open no lease", "slow failure throttled neutral", "current stale stale-probe", "", ""},
	{"half-open no lease", "keepalive own", "", "", ""},
	{"half-open no lease", "keepalive other", "", "", ""},
	{"half-open no lease", "reset", "", freshlyClosed, "half-open>closed reset @1000 wait=0"},
	{"half-open no lease", "isolate", "", heldOpen, "half-open>open isolated @1000 wait=30"},
	{"half-open no lease", "configure lower", "", "cfg=lower", ""},
	{"half-open no lease", "configure zero", "", "cfg=zero " + freshlyClosed, "half-open>closed reconfigured @1000 wait=0"},
}

const stepSecond = int64(time.Second)

func stepParams(change func(*BreakerConfig)) *params {
	c := BreakerConfig{
		FailureThreshold: 3, RecoveryDuration: 30 * time.Second, ProbeTimeout: 20 * time.Second,
		MaxOpenDuration: 100 * time.Second, ProbeSuccesses: 2, SlowCallDuration: 5 * time.Second,
	}
	if change != nil {
		change(&c)
	}
	return newParams(c)
}

var stepConfigs = map[string]*params{
	"table": stepParams(nil),
	"lower": stepParams(func(c *BreakerConfig) { c.FailureThreshold = 1 }),
	"zero":  stepParams(func(c *BreakerConfig) { c.FailureThreshold = 0 }),
}

// changeSnapshot sets the fields that text names.
func changeSnapshot(t *testing.T, s *snapshot, text string) {
	t.Helper()
	for _, field := range strings.Fields(text) {
		key, value, _ := strings.Cut(field, "=")
		n, err := strconv.Atoi(value)
		seconds := int64(n) * stepSecond
		if value == "never" {
			seconds, err = forever, nil
		}
		switch key {
		case "state":
			err = s.state.UnmarshalText([]byte(value))
		case "kind":
			err = s.kind.UnmarshalText([]byte(value))
		case "cfg":
			s.cfg, err = stepConfigs[value], nil
		case "since":
			s.since = seconds
		case "until":
			s.until = seconds
		case "lease":
			s.lease = seconds
		case "cooldown":
			s.cooldown = seconds
		case "learned":
			s.learned = seconds
		case "epoch":
			s.epoch = uint64(n)
		case "trips":
			s.trips = uint64(n)
		case "ended":
			s.ended = uint64(n)
		case "streak":
			s.streak = n
		case "failed":
			s.failed = n
		case "passed":
			s.passed = n
		case "limited":
			s.limited = n == 1
		case "isolated":
			s.isolated = n == 1
		case "lost":
			s.lost = n == 1
		default:
			t.Fatalf("unknown field %q", key)
		}
		require.NoError(t, err, field)
	}
}

func stepSituation(t *testing.T, text string) snapshot {
	s := snapshot{cfg: stepConfigs["table"], epoch: 7, ended: 20}
	changeSnapshot(t, &s, text)
	return s
}

// stepEvent builds the event of one pair.
func stepEvent(what, permit string) event {
	ev := event{ewma: ewmaOne, ended: 50}
	switch what {
	case "admit":
		ev.op = opAdmit
	case "keepalive own":
		ev.op, ev.probe, ev.epoch = opKeepAlive, true, 7
	case "keepalive other":
		ev.op, ev.probe, ev.epoch = opKeepAlive, true, 6
	case "reset":
		ev.op = opReset
	case "isolate":
		ev.op = opIsolate
	case "configure lower":
		ev.op, ev.cfg = opConfigure, stepConfigs["lower"]
	case "configure zero":
		ev.op, ev.cfg = opConfigure, stepConfigs["zero"]
	default:
		ev.op, ev.took = opSettle, stepSecond
		switch what {
		case "slow":
			ev.outcome, ev.took = OutcomeSuccess, 6*stepSecond
		case "failure":
			ev.outcome, ev.kind = OutcomeFailure, KindServerError
		case "rejected":
			ev.outcome, ev.kind = OutcomeRejected, KindNotFound
		case "throttled":
			ev.outcome, ev.kind, ev.retryAfter = OutcomeThrottled, KindRateLimited, 60*stepSecond
		case "neutral":
			ev.outcome, ev.kind = OutcomeNeutral, KindCanceled
		}
		switch permit {
		case "current":
			ev.epoch = 7
		case "probe":
			ev.epoch, ev.probe = 7, true
		case "stale":
			ev.epoch = 6
		case "stale-probe":
			ev.epoch, ev.probe = 6, true
		case "name":
			ev.byName = true
		}
	}
	return ev
}

// stepAnswerText writes an answer as the table does.
func stepAnswerText(ev event, a answer) string {
	var parts []string
	if ev.op == opAdmit {
		switch {
		case a.reason != StopNone:
			parts = append(parts, fmt.Sprintf("refused %s %d", a.reason.Detail(), a.wait/stepSecond))
		case a.probe:
			parts = append(parts, "probe")
		default:
			parts = append(parts, "admitted")
		}
	}
	for _, c := range a.changes[:a.n] {
		parts = append(parts, fmt.Sprintf("%s>%s %s @%d wait=%d", c.from, c.to, c.cause, c.when/stepSecond, c.wait/stepSecond))
	}
	return strings.Join(parts, "; ")
}

// stepRows spreads the table over single pairs.
func stepRows(t *testing.T) map[string][5]string {
	known := map[string]bool{}
	for _, s := range stepSituations {
		known[s.name] = true
	}
	rows := map[string][5]string{}
	add := func(row [5]string, what, permit string) {
		pair := row[0] + " | " + what + " | " + permit
		_, twice := rows[pair]
		require.False(t, twice, "two rows for %s", pair)
		rows[pair] = row
	}
	for _, row := range stepTable {
		require.True(t, known[row[0]], "no situation %q", row[0])
		if row[2] == "" {
			add(row, row[1], "")
			continue
		}
		permits := strings.Fields(row[2])
		if row[2] == "*" {
			permits = stepPermits
		}
		for _, what := range strings.Fields(row[1]) {
			for _, permit := range permits {
				add(row, what, permit)
			}
		}
	}
	return rows
}

func TestTheMachineDoesWhatItsTableSays(t *testing.T) {
	rows := stepRows(t)
	check := func(situation, snapshotText, what, permit string) {
		pair := situation + " | " + what + " | " + permit
		row, ok := rows[pair]
		if !assert.True(t, ok, "no row for %s", pair) {
			return
		}
		delete(rows, pair)
		before := stepSituation(t, snapshotText)
		want := before
		changeSnapshot(t, &want, row[3])
		if what == "reset" || what == "isolate" {
			want.operated = want.epoch // in every such row
		}
		ev := stepEvent(what, permit)
		got, a := step(before, ev, stepNow*stepSecond)
		assert.Equal(t, want, got, pair)
		assert.Equal(t, row[4], stepAnswerText(ev, a), pair)
		assert.Equal(t, got != before, a.changed, pair)
		assert.Equal(t, got.epoch, a.epoch, pair)
		require.Equal(t, before.epoch+uint64(a.n), got.epoch, pair)
		for i, c := range a.changes[:a.n] {
			assert.Equal(t, before.epoch+1+uint64(i), c.epoch, pair)
			as := got
			if c.cause == CauseLeaseExpired { // came before anything else happened
				as = before
			}
			assert.Equal(t, [2]any{as.streak, as.kind}, [2]any{c.streak, c.kind}, pair)
		}
	}
	for _, s := range stepSituations {
		for _, what := range stepOthers {
			check(s.name, s.snapshot, what, "")
		}
		for _, what := range stepOutcomes {
			for _, permit := range stepPermits {
				check(s.name, s.snapshot, what, permit)
			}
		}
	}
	assert.Empty(t, rows, "rows that no pair asked for")
}

// step never reads more than the snapshot: Available, asked just before, agrees.
func TestAdmissionIsAskedTheSameWayBeforeAndAfter(t *testing.T) {
	for _, s := range stepSituations {
		before := stepSituation(t, s.snapshot)
		for now := int64(900); now <= 1200; now++ {
			reason, wait := before.admission(now * stepSecond)
			_, a := step(before, event{op: opAdmit}, now*stepSecond)
			require.Equal(t, a.reason, reason, "%s at %d", s.name, now)
			require.Equal(t, a.wait, wait, "%s at %d", s.name, now)
			require.Equal(t, reason == StopNone, wait == 0, "%s at %d", s.name, now)
			require.GreaterOrEqual(t, wait, int64(0))
			at := before.at(now * stepSecond)
			reason, wait = at.admission(now * stepSecond)
			require.Equal(t, a.reason, reason, "read through the lease, %s at %d", s.name, now)
			require.Equal(t, a.wait, wait, "read through the lease, %s at %d", s.name, now)
		}
	}
}

func TestBoundariesOfTimeBelongToTheLaterSide(t *testing.T) {
	reasonAt := func(text string, now int64) string {
		s := stepSituation(t, text)
		reason, wait := s.admission(now)
		return fmt.Sprintf("%s %d", reason.Detail(), wait)
	}
	open := "state=open since=900 until=1000"
	assert.Equal(t, "circuit_open 1", reasonAt(open, 1000*stepSecond-1))
	assert.Equal(t, "none 0", reasonAt(open, 1000*stepSecond))
	throttled := "state=closed until=1000"
	assert.Equal(t, "rate_limited 1", reasonAt(throttled, 1000*stepSecond-1))
	assert.Equal(t, "none 0", reasonAt(throttled, 1000*stepSecond))
	half := "state=half-open since=900 until=1000 cooldown=30"
	assert.Equal(t, "probe_in_flight 30000000001", reasonAt(half, 1000*stepSecond-1))
	assert.Equal(t, "circuit_open 30000000000", reasonAt(half, 1000*stepSecond))
	assert.Equal(t, "circuit_open 1", reasonAt(half, 1030*stepSecond-1))
	assert.Equal(t, "none 0", reasonAt(half, 1030*stepSecond))

	// A success is slow if it took more than the limit, not at it.
	s := stepSituation(t, "state=closed")
	ev := event{op: opSettle, byName: true, took: 5 * stepSecond}
	next, a := step(s, ev, 0)
	assert.Equal(t, s, next)
	assert.False(t, a.changed)
	ev.took++
	next, _ = step(s, ev, 0)
	assert.Equal(t, 1, next.streak)
}

func TestAClockThatGoesBackStandsStill(t *testing.T) {
	s := stepSituation(t, "state=open since=1000 until=1030")
	reason, wait := s.admission(500 * stepSecond)
	assert.Equal(t, StopCircuitOpen, reason)
	assert.Equal(t, 30*stepSecond, wait)
	next, _ := step(s, event{op: opSettle, byName: true, outcome: OutcomeFailure, kind: KindTimeout}, 500*stepSecond)
	assert.Equal(t, 1030*stepSecond, next.until, "no time has passed, so the cooldown is as it was")
	s.cfg = stepParams(func(c *BreakerConfig) { c.FailureThreshold = 0 })
	next, a := step(s, event{op: opReset}, 500*stepSecond)
	assert.Equal(t, 1000*stepSecond, next.since)
	assert.Equal(t, 1000*stepSecond, a.changes[0].when)
}

func TestGrowthMultipliesTheCooldownForEachFailedProbe(t *testing.T) {
	for _, c := range []struct {
		growth, jitter, draw float64
		max                  time.Duration
		failed               int
		want                 time.Duration
	}{
		{0, 0, 0, 0, 0, 30 * time.Second},
		{1, 0, 0, 0, 5, 30 * time.Second},
		{2, 0, 0, 0, 0, 30 * time.Second},
		{2, 0, 0, 0, 1, 60 * time.Second},
		{2, 0, 0, 0, 3, 240 * time.Second},
		{1.5, 0, 0, 0, 2, 67500 * time.Millisecond},
		{2, 0, 0, 100 * time.Second, 1, 60 * time.Second},
		{2, 0, 0, 100 * time.Second, 2, 100 * time.Second},
		{2, 0, 0, 0, math.MaxInt, maxDuration},
		{1, 0.5, 0, 0, 0, 30 * time.Second},
		{1, 0.5, 0.5, 0, 0, 37500 * time.Millisecond},
		{2, 0.5, 0.5, 0, 1, 75 * time.Second},
		{1, 1, 0.999999, 40 * time.Second, 0, 40 * time.Second},
		{1, 0.5, 0.5, 35 * time.Second, 0, 35 * time.Second},
	} {
		p := stepParams(func(b *BreakerConfig) {
			b.RecoveryGrowth, b.RecoveryJitter, b.MaxOpenDuration = c.growth, c.jitter, c.max
		})
		assert.Equal(t, c.want, time.Duration(p.cooldownFor(c.failed, c.draw)), "%+v", c)
	}
}

func TestGrowthRunsUntilAClose(t *testing.T) {
	s := snapshot{cfg: stepParams(func(c *BreakerConfig) {
		c.RecoveryGrowth, c.MaxOpenDuration, c.ProbeSuccesses = 3, 0, 0
	}), epoch: 1}
	now := int64(0)
	do := func(ev event) answer {
		var a answer
		ev.ewma = ewmaOne
		s, a = step(s, ev, now)
		return a
	}
	fail := event{op: opSettle, byName: true, outcome: OutcomeFailure, kind: KindTimeout}
	for range 3 {
		do(fail)
	}
	for _, want := range []int64{30, 90, 270, 810} {
		require.Equal(t, want*stepSecond, s.until-now)
		now = s.until
		require.True(t, do(event{op: opAdmit}).probe)
		require.Equal(t, want*stepSecond, s.cooldown, "a lost probe costs the same cooldown, it has not failed")
		do(fail)
	}
	assert.Equal(t, 4, s.failed)
	assert.Equal(t, 7, s.streak)
	now = s.until
	do(event{op: opAdmit})
	do(event{op: opSettle, byName: true})
	require.Equal(t, StateClosed, s.state)
	for range 3 {
		do(fail)
	}
	assert.Equal(t, 30*stepSecond, s.until-now, "a close forgets the growth")
	assert.Equal(t, uint64(2), s.trips)
}

func TestJitterIsDrawnForOpeningRestartingAndProbing(t *testing.T) {
	cfg := stepParams(func(c *BreakerConfig) { c.RecoveryJitter, c.FailureThreshold, c.MaxOpenDuration = 1, 1, 0 })
	s := snapshot{cfg: cfg, epoch: 1}
	fail := event{op: opSettle, byName: true, outcome: OutcomeFailure, kind: KindTimeout, ewma: ewmaOne, draw: 0.5}
	s, _ = step(s, fail, 0)
	assert.Equal(t, 45*stepSecond, s.until)
	fail.draw = 0.9
	s, _ = step(s, fail, stepSecond)
	assert.Equal(t, 58*stepSecond, s.until)
	s, _ = step(s, event{op: opAdmit, draw: 0.1}, s.until)
	assert.Equal(t, 33*stepSecond, s.cooldown)
	fail.draw = 0.2
	s, a := step(s, fail, s.since)
	assert.Equal(t, 36*stepSecond, s.until-s.since)
	assert.Equal(t, 36*stepSecond, a.changes[0].wait)
}

func TestALeaseIsAtLeastItsFloorAndWhatWasLearned(t *testing.T) {
	due := stepSituation(t, "state=open since=900 until=990")
	for _, c := range []struct {
		lease          time.Duration
		learned, floor int64
		want           int64
	}{
		{20 * time.Second, 0, 0, 20},
		{20 * time.Second, 0, 5, 20},
		{20 * time.Second, 0, 45, 45},
		{20 * time.Second, 50, 45, 50},
		{20 * time.Second, 10, 0, 20},
	} {
		s := due
		s.cfg = stepParams(func(b *BreakerConfig) { b.ProbeTimeout = c.lease })
		s.learned = c.learned * stepSecond
		s, a := step(s, event{op: opAdmit, leaseFloor: c.floor * stepSecond}, 1000*stepSecond)
		require.True(t, a.probe)
		assert.Equal(t, c.want*stepSecond, s.lease, "%+v", c)
		assert.Equal(t, (1000+c.want)*stepSecond, s.until, "%+v", c)
		assert.Equal(t, (c.want+30)*stepSecond, a.changes[0].wait)
	}
	s := due
	s.cfg = stepParams(func(b *BreakerConfig) { b.ProbeTimeout = 0 })
	s.learned = 50 * stepSecond
	s, a := step(s, event{op: opAdmit, leaseFloor: 45 * stepSecond}, 1000*stepSecond)
	assert.Equal(t, int64(forever), s.until, "no lease is for ever, whatever was learned")
	assert.Equal(t, int64(0), a.changes[0].wait, "nobody knows")
}

func TestALateSuccessOfAProbeLengthensTheNextLease(t *testing.T) {
	learn := func(text string, max time.Duration, ev event) int64 {
		s := stepSituation(t, text)
		s.cfg = stepParams(func(b *BreakerConfig) { b.SlowCallDuration, b.MaxOpenDuration = 0, max })
		ev.op, ev.took = opSettle, ev.took*stepSecond
		next, _ := step(s, ev, 1000*stepSecond)
		return next.learned / stepSecond
	}
	lost := "state=half-open since=900 until=920 lease=20 cooldown=30 learned=7"
	assert.Equal(t, int64(80), learn(lost, 100*time.Second, event{epoch: 7, probe: true, took: 40}))
	assert.Equal(t, int64(100), learn(lost, 100*time.Second, event{epoch: 7, probe: true, took: 60}), "capped")
	assert.Equal(t, int64(120), learn(lost, 0, event{epoch: 7, probe: true, took: 60}), "no cap")
	assert.Equal(t, int64(7), learn(lost, 0, event{epoch: 7, probe: true, took: 3}), "never less than before")
	assert.Equal(t, int64(7), learn(lost, 0, event{epoch: 7, took: 40}), "not a probe")
	// By name: only what outlasted the lease of a probe that was lost.
	assert.Equal(t, int64(42), learn(lost, 0, event{byName: true, took: 21}))
	assert.Equal(t, int64(7), learn(lost, 0, event{byName: true, took: 20}))
	tripped := "state=open since=900 until=1010 learned=7"
	assert.Equal(t, int64(7), learn(tripped, 0, event{byName: true, took: 21}), "no lease was lost")
	assert.Equal(t, int64(maxDuration)/stepSecond,
		learn(lost, 0, event{epoch: 7, probe: true, took: math.MaxInt64 / stepSecond}), "a lease that ends")
	assert.Equal(t, int64(7), learn(lost, 0, event{epoch: 7, probe: true, took: 20}), "it was not longer than the lease")
	late := func(lease time.Duration) int64 {
		s := stepSituation(t, "state=open since=900 until=1010 learned=7")
		s.cfg = stepParams(func(b *BreakerConfig) { b.SlowCallDuration, b.ProbeTimeout = 0, lease })
		s, _ = step(s, event{op: opSettle, epoch: 6, probe: true, took: 40 * stepSecond}, 1000*stepSecond)
		return s.learned / stepSecond
	}
	assert.Equal(t, int64(80), late(1), "a lease of a nanosecond can be outlived")
	assert.Equal(t, int64(7), late(0), "one that there is not cannot")
}

func TestAResetForgetsWhatWasLearned(t *testing.T) {
	s := stepSituation(t, "state=open since=900 until=1010 learned=70")
	s, _ = step(s, event{op: opReset}, 1000*stepSecond)
	assert.Zero(t, s.learned)
	s = stepSituation(t, "state=half-open since=990 until=1010 learned=70 passed=1")
	s, _ = step(s, event{op: opSettle, byName: true}, 1000*stepSecond)
	assert.Equal(t, StateClosed, s.state)
	assert.Equal(t, 70*stepSecond, s.learned, "a close does not")
}

func TestAThrottleIsCappedAndNeverShortened(t *testing.T) {
	throttle := func(text string, wait time.Duration) snapshot {
		s := stepSituation(t, text)
		s, _ = step(s, event{op: opSettle, byName: true, outcome: OutcomeThrottled, retryAfter: int64(wait)}, 1000*stepSecond)
		return s
	}
	assert.Equal(t, 1100*stepSecond, throttle("state=closed", time.Hour).until)
	assert.Equal(t, 1050*stepSecond, throttle("state=closed until=1050", 10*time.Second).until)
	assert.Equal(t, 1000*stepSecond+1, throttle("state=closed", 1).until)
	for _, none := range []time.Duration{0, -1, math.MinInt64} {
		assert.Zero(t, throttle("state=closed", none).until, "a wait of %v is none", none)
	}
	probe := throttle("state=half-open since=990 until=1010 cooldown=30", 0)
	assert.Equal(t, StateOpen, probe.state)
	assert.Equal(t, 1000*stepSecond, probe.until)
	assert.False(t, probe.limited)
	assert.Equal(t, 1100*stepSecond, throttle("state=half-open since=990 until=1010", time.Hour).until)
}

func TestTrippingUnderAThrottleKeepsTheLongerWait(t *testing.T) {
	trip := func(text string) snapshot {
		s := stepSituation(t, text)
		s, a := step(s, event{op: opSettle, byName: true, outcome: OutcomeFailure, kind: KindTimeout, ewma: ewmaOne}, 1000*stepSecond)
		assert.Equal(t, CauseFailureThreshold, a.changes[0].cause)
		assert.Equal(t, s.until-s.since, a.changes[0].wait)
		return s
	}
	for _, c := range []struct {
		throttledUntil, want int64
		limited              bool
	}{
		{0, 1030, false}, {990, 1030, false}, {1000, 1030, false}, {1010, 1030, false},
		{1030, 1030, false}, {1031, 1031, true}, {1070, 1070, true}, {1500, 1100, true},
	} {
		s := trip(fmt.Sprintf("state=closed streak=2 until=%d", c.throttledUntil))
		assert.Equal(t, c.want*stepSecond, s.until, "%+v", c)
		assert.Equal(t, c.limited, s.limited, "%+v", c)
	}
}

func TestTripScoreOpensOnAFailureBelowItAfterEnoughCalls(t *testing.T) {
	cfg := stepParams(func(c *BreakerConfig) { c.TripScore, c.TripMinCalls = 0.5, 10 })
	settle := func(cfg *params, outcome Outcome, ewma int64, ended uint64) Cause {
		s := snapshot{cfg: cfg, epoch: 1, ended: 100}
		_, a := step(s, event{op: opSettle, byName: true, outcome: outcome, kind: KindTimeout, ewma: ewma, ended: ended}, 0)
		return a.changes[0].cause
	}
	assert.Equal(t, CauseTripScore, settle(cfg, OutcomeFailure, 499_999, 110))
	assert.Equal(t, CauseNone, settle(cfg, OutcomeFailure, 500_000, 110), "not below")
	assert.Equal(t, CauseNone, settle(cfg, OutcomeFailure, 499_999, 109), "too few calls since it closed")
	assert.Equal(t, CauseNone, settle(cfg, OutcomeSuccess, 0, 1000), "a success opens nothing")
	assert.Equal(t, CauseNone, settle(stepParams(nil), OutcomeFailure, 0, 1000), "off")
	off := stepParams(func(c *BreakerConfig) { c.TripScore, c.FailureThreshold = 1, 0 })
	assert.Equal(t, CauseNone, settle(off, OutcomeFailure, 0, 1000), "a threshold of 0 switches it off too")
	once := stepParams(func(c *BreakerConfig) { c.TripScore, c.FailureThreshold = 1, 1 })
	assert.Equal(t, CauseFailureThreshold, settle(once, OutcomeFailure, 0, 1000), "the threshold comes first")
	eager := stepParams(func(c *BreakerConfig) { c.TripScore = 1 })
	assert.Equal(t, CauseTripScore, settle(eager, OutcomeFailure, 999_999, 100), "TripMinCalls 0 needs no calls")
	full := snapshot{cfg: cfg, epoch: 1, ended: math.MaxUint64}
	_, a := step(full, event{op: opSettle, byName: true, outcome: OutcomeFailure, ended: math.MaxUint64}, 0)
	assert.Equal(t, CauseTripScore, a.changes[0].cause, "a full counter does not wrap around")
}

func TestAThresholdOfZeroCountsAndNeverOpens(t *testing.T) {
	s := snapshot{cfg: newParams(BreakerConfig{}), epoch: 1}
	for i := range 100 {
		s, _ = step(s, event{op: opSettle, byName: true, outcome: OutcomeFailure, kind: KindTimeout}, int64(i))
	}
	assert.Equal(t, StateClosed, s.state)
	assert.Equal(t, 100, s.streak)
	s.streak = math.MaxInt
	s, _ = step(s, event{op: opSettle, byName: true, outcome: OutcomeFailure}, 0)
	assert.Equal(t, math.MaxInt, s.streak, "the streak does not wrap around")
}

func TestAFailureUnderAnotherCooldownRestartsItOnlyForward(t *testing.T) {
	s := stepSituation(t, "state=open since=990 until=1095")
	next, _ := step(s, event{op: opSettle, byName: true, outcome: OutcomeFailure, kind: KindTimeout}, 1000*stepSecond)
	assert.Equal(t, 1095*stepSecond, next.until, "a later deadline stays")
	s = stepSituation(t, "state=open since=990 until=1020 limited=1")
	next, _ = step(s, event{op: opSettle, byName: true, outcome: OutcomeFailure, kind: KindTimeout}, 1000*stepSecond)
	assert.Equal(t, 1030*stepSecond, next.until)
	assert.False(t, next.limited, "the wait is now the cooldown's")
	s.cfg = stepParams(func(c *BreakerConfig) { c.MaxOpenDuration = 0 })
	next, _ = step(s, event{op: opSettle, byName: true, outcome: OutcomeFailure}, 5000*stepSecond)
	assert.Equal(t, 5030*stepSecond, next.until, "without a bound it restarts for ever")
}

func TestAWaitThatEndsAtTheSameMomentKeepsItsReason(t *testing.T) {
	limited := stepSituation(t, "state=open since=990 until=1030 limited=1")
	next, _ := step(limited, event{op: opSettle, byName: true, outcome: OutcomeFailure, kind: KindTimeout}, 1000*stepSecond)
	assert.True(t, next.limited)
	assert.Equal(t, limited.until, next.until)
	cooling := stepSituation(t, "state=open since=990 until=1030")
	next, a := step(cooling, event{op: opSettle, byName: true, outcome: OutcomeThrottled, retryAfter: 30 * stepSecond}, 1000*stepSecond)
	assert.False(t, next.limited)
	assert.False(t, a.changed)
}

func TestAStatedWaitIsForgottenWithTheProbeThatFollowsIt(t *testing.T) {
	s := stepSituation(t, "state=open since=900 until=990 limited=1 lost=1")
	s, a := step(s, event{op: opAdmit}, 1000*stepSecond)
	require.True(t, a.probe)
	assert.False(t, s.limited)
	assert.False(t, s.lost)
	s, _ = step(s, event{op: opSettle, byName: true, outcome: OutcomeFailure, kind: KindTimeout}, 1001*stepSecond)
	reason, _ := s.admission(1002 * stepSecond)
	assert.Equal(t, StopCircuitOpen, reason)
}

func TestKeepAliveNeverShortensALease(t *testing.T) {
	s := stepSituation(t, "state=half-open since=990 until=1050 lease=20 cooldown=30")
	next, a := step(s, event{op: opKeepAlive, probe: true, epoch: 7}, 1000*stepSecond)
	assert.Equal(t, s, next)
	assert.False(t, a.changed)
	next, _ = step(s, event{op: opKeepAlive, probe: true, epoch: 7}, 1049*stepSecond)
	assert.Equal(t, 1069*stepSecond, next.until)
	next, _ = step(s, event{op: opKeepAlive, epoch: 7}, 1049*stepSecond)
	assert.Equal(t, s, next, "only the probe's permit renews")
}

func TestWaitsThatNobodyKnowsAreOneCooldown(t *testing.T) {
	assert.Equal(t, int64(30*time.Second), newParams(BreakerConfig{}).hint())
	assert.Equal(t, int64(7*time.Second), newParams(BreakerConfig{RecoveryDuration: 7 * time.Second}).hint())
	assert.Equal(t, int64(1), newParams(BreakerConfig{RecoveryDuration: 1}).hint())
}

func TestParamsAreTheConfigInIntegers(t *testing.T) {
	p := newParams(BreakerConfig{
		FailureThreshold: 4, RecoveryDuration: 5, ProbeTimeout: 6, MaxOpenDuration: 7, RecoveryGrowth: 8,
		RecoveryJitter: 0.25, ProbeSuccesses: 9, SlowCallDuration: 10, TripScore: 0.7, TripMinCalls: 11,
	})
	assert.Equal(t, snapshot{cfg: p, epoch: 1}, *p.initial)
	p.initial, p.config = nil, BreakerConfig{}
	assert.Equal(t, params{
		threshold: 4, recovery: 5, lease: 6, maxOpen: 7, growth: 8, jitter: 0.25, successes: 9, slow: 10,
		tripBelow: 700_000, tripCalls: 11,
	}, *p)
	zero := newParams(BreakerConfig{})
	zero.initial = nil
	assert.Equal(t, params{growth: 1, successes: 1, slow: math.MaxInt64}, *zero)
}
