package machine

import (
	"fmt"
	"slices"
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
// over 100, no hint over 50, 2 good probes close, a success of more than 5 is slow. Events: a call
// took 1 (a slow one 6), a failure is a server_error, a throttle asks for 60, so does
// a failure in the row asked.
const stepNow = 1000

var stepSituations = []struct{ name, snapshot string }{
	{"closed clean", "state=closed since=900"},
	{"closed with streak", "state=closed since=900 streak=2 kind=connection"},
	{"closed throttled", "state=closed since=900 until=1010"},
	{"closed thawed", "state=closed since=900 until=990"},
	{"closed suspected", "state=closed since=900 doubt=1030"},
	{"closed proven", "state=closed since=960 proven=1"},
	{"closed hearsay", "state=closed since=900 until=1010 hearsay=1"},
	{"open hearsay", "state=open since=990 until=1020 hearsay=1 trips=1 down=990"},
	{"open cooling", "state=open since=990 until=1020 streak=3 kind=connection trips=1 failed=1 passed=1 down=800"},
	{"open due", "state=open since=955 until=985 streak=3 kind=connection trips=1 failed=1 passed=1 down=800"},
	{"open limited", "state=open since=990 until=1050 limited=1 streak=3 kind=connection trips=1 failed=1 passed=1 down=800"},
	{"isolated", "state=open since=990 until=990 isolated=1 streak=3 kind=connection trips=1 failed=1 passed=1 down=800"},
	{"half-open live", "state=half-open since=990 until=1010 lease=20 cooldown=30 streak=3 kind=connection trips=1 failed=1 passed=1 down=800"},
	{"half-open untold", "state=half-open untold=1 since=990 until=1090 lease=20 cooldown=30 streak=3 kind=connection trips=1 failed=1 passed=1 down=800"},
	{"half-open undecided", "state=half-open since=990 until=1010 lease=20 cooldown=30 streak=3 kind=connection trips=1 failed=1 passed=1 undecided=2 down=800"},
	{"half-open lost cooling", "state=half-open since=960 until=980 lease=20 cooldown=30 streak=3 kind=connection trips=1 failed=1 passed=1 down=800"},
	{"half-open lost due", "state=half-open since=935 until=955 lease=20 cooldown=30 streak=3 kind=connection trips=1 failed=1 passed=1 down=800"},
	{"half-open no lease", "state=half-open since=990 until=never lease=never cooldown=30 streak=3 kind=connection trips=1 failed=1 down=800"},
}

// stepOutcomes and stepPermits span the events of kind settle.
var (
	stepOutcomes = []string{"success", "slow", "failure", "asked", "rejected", "throttled", "neutral"}
	stepPermits  = []string{"current", "probe", "stale", "stale-probe", "name"}
	stepOthers   = []string{
		"admit", "release own", "release other", "begin", "keepalive own", "keepalive other",
		"pause own", "pause other", "resume own", "resume other", "reset", "isolate", "configure lower", "configure zero",
	}
)

// What many rows share. A lost probe's snapshot turns open before anything else.
const (
	freshlyClosed = "state=closed since=1000 until=0 limited=0 isolated=0 undecided=0 untold=0 lease=0 cooldown=0 streak=0 failed=0 passed=0 failedat=0 down=0 doubt=0 hearsay=0 proven=0 epoch=8"
	heldOpen      = "state=open since=1000 until=1000 limited=0 isolated=1 undecided=0 untold=0 lease=0 cooldown=0 doubt=0 hearsay=0 proven=0 epoch=8"
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
	{"closed clean", "slow", "current probe name", "failedat=1000 streak=1 kind=timeout", ""},
	{"closed clean", "failure", "current probe name", "failedat=1000 streak=1 kind=server_error", ""},
	{"closed clean", "asked", "current probe name", "failedat=1000 until=1060 streak=1 kind=server_error", ""},
	{"closed clean", "slow failure asked", "stale stale-probe", "", ""},
	{"closed clean", "rejected neutral", "*", "", ""},
	{"closed clean", "throttled", "*", "until=1060", ""},
	{"closed clean", "release own", "", "", ""},
	{"closed clean", "release other", "", "", ""},
	{"closed clean", "keepalive own", "", "", ""},
	{"closed clean", "pause own", "", "", ""},
	{"closed clean", "resume own", "", "", ""},
	{"closed clean", "begin", "", "", ""},
	{"closed clean", "keepalive other", "", "", ""},
	{"closed clean", "pause other", "", "", ""},
	{"closed clean", "resume other", "", "", ""},
	{"closed clean", "reset", "", freshlyClosed, "closed>closed reset @1000 wait=0"},
	{"closed clean", "isolate", "", heldOpen + " down=1000 trips=1", "closed>open isolated @1000 wait=30"},
	{"closed clean", "configure lower", "", "cfg=lower", ""},
	{"closed clean", "configure zero", "", "cfg=zero", ""},

	{"closed with streak", "admit", "", "", "admitted"},
	{"closed with streak", "success", "current probe name", "streak=0", ""},
	{"closed with streak", "success", "stale", "", ""},
	{"closed with streak", "success", "stale-probe", "", ""},
	{"closed with streak", "slow", "current probe name", "failedat=1000 state=open since=1000 until=1030 streak=3 kind=timeout down=1000 trips=1 epoch=8", "closed>open failure_threshold @1000 wait=30"},
	{"closed with streak", "failure", "current probe name", "failedat=1000 state=open since=1000 until=1030 streak=3 kind=server_error down=1000 trips=1 epoch=8", "closed>open failure_threshold @1000 wait=30"},
	{"closed with streak", "asked", "current probe name", "failedat=1000 state=open since=1000 until=1060 limited=1 streak=3 kind=server_error down=1000 trips=1 epoch=8", "closed>open failure_threshold @1000 wait=60"},
	{"closed with streak", "slow failure asked", "stale stale-probe", "", ""},
	{"closed with streak", "rejected", "current probe name", "streak=0", ""},
	{"closed with streak", "rejected", "stale stale-probe", "", ""},
	{"closed with streak", "throttled", "*", "until=1060", ""},
	{"closed with streak", "neutral", "*", "", ""},
	{"closed with streak", "release own", "", "", ""},
	{"closed with streak", "release other", "", "", ""},
	{"closed with streak", "keepalive own", "", "", ""},
	{"closed with streak", "pause own", "", "", ""},
	{"closed with streak", "resume own", "", "", ""},
	{"closed with streak", "begin", "", "", ""},
	{"closed with streak", "keepalive other", "", "", ""},
	{"closed with streak", "pause other", "", "", ""},
	{"closed with streak", "resume other", "", "", ""},
	{"closed with streak", "reset", "", freshlyClosed, "closed>closed reset @1000 wait=0"},
	{"closed with streak", "isolate", "", heldOpen + " down=1000 trips=1", "closed>open isolated @1000 wait=30"},
	{"closed with streak", "configure lower", "", "cfg=lower", ""},
	{"closed with streak", "configure zero", "", "cfg=zero", ""},

	{"closed throttled", "admit", "", "", "refused rate_limited 10"},
	{"closed throttled", "success", "current probe stale name", "", ""},
	{"closed throttled", "success", "stale-probe", "", ""},
	{"closed throttled", "slow", "current probe name", "failedat=1000 streak=1 kind=timeout", ""},
	{"closed throttled", "failure", "current probe name", "failedat=1000 streak=1 kind=server_error", ""},
	{"closed throttled", "asked", "current probe name", "failedat=1000 until=1060 streak=1 kind=server_error", ""},
	{"closed throttled", "slow failure asked", "stale stale-probe", "", ""},
	{"closed throttled", "rejected neutral", "*", "", ""},
	{"closed throttled", "throttled", "*", "until=1060", ""},
	{"closed throttled", "release own", "", "", ""},
	{"closed throttled", "release other", "", "", ""},
	{"closed throttled", "keepalive own", "", "", ""},
	{"closed throttled", "pause own", "", "", ""},
	{"closed throttled", "resume own", "", "", ""},
	{"closed throttled", "begin", "", "", ""},
	{"closed throttled", "keepalive other", "", "", ""},
	{"closed throttled", "pause other", "", "", ""},
	{"closed throttled", "resume other", "", "", ""},
	{"closed throttled", "reset", "", freshlyClosed, "closed>closed reset @1000 wait=0"},
	{"closed throttled", "isolate", "", heldOpen + " down=1000 trips=1", "closed>open isolated @1000 wait=30"},
	{"closed throttled", "configure lower", "", "cfg=lower", ""},
	{"closed throttled", "configure zero", "", "cfg=zero", ""},

	{"closed thawed", "admit", "", "until=0", "admitted"},
	{"closed thawed", "success", "current probe stale name", "", ""},
	{"closed thawed", "success", "stale-probe", "", ""},
	{"closed thawed", "slow", "current probe name", "failedat=1000 streak=1 kind=timeout", ""},
	{"closed thawed", "failure", "current probe name", "failedat=1000 streak=1 kind=server_error", ""},
	{"closed thawed", "asked", "current probe name", "failedat=1000 until=1060 streak=1 kind=server_error", ""},
	{"closed thawed", "slow failure asked", "stale stale-probe", "", ""},
	{"closed thawed", "rejected neutral", "*", "", ""},
	{"closed thawed", "throttled", "*", "until=1060", ""},
	{"closed thawed", "release own", "", "", ""},
	{"closed thawed", "release other", "", "", ""},
	{"closed thawed", "keepalive own", "", "", ""},
	{"closed thawed", "pause own", "", "", ""},
	{"closed thawed", "resume own", "", "", ""},
	{"closed thawed", "begin", "", "", ""},
	{"closed thawed", "keepalive other", "", "", ""},
	{"closed thawed", "pause other", "", "", ""},
	{"closed thawed", "resume other", "", "", ""},
	{"closed thawed", "reset", "", freshlyClosed, "closed>closed reset @1000 wait=0"},
	{"closed thawed", "isolate", "", heldOpen + " down=1000 trips=1", "closed>open isolated @1000 wait=30"},
	{"closed thawed", "configure lower", "", "cfg=lower", ""},
	{"closed thawed", "configure zero", "", "cfg=zero", ""},

	// Others suspect the tool: the first failure opens, and a success ends it.
	{"closed suspected", "admit", "", "", "admitted"},
	{"closed suspected", "success", "current probe name", "doubt=0", ""},
	{"closed suspected", "success", "stale stale-probe", "", ""},
	{"closed suspected", "slow", "current probe name", "failedat=1000 state=open since=1000 until=1030 streak=1 kind=timeout doubt=0 down=1000 trips=1 epoch=8", "closed>open suspected @1000 wait=30"},
	{"closed suspected", "failure", "current probe name", "failedat=1000 state=open since=1000 until=1030 streak=1 kind=server_error doubt=0 down=1000 trips=1 epoch=8", "closed>open suspected @1000 wait=30"},
	{"closed suspected", "asked", "current probe name", "failedat=1000 state=open since=1000 until=1060 limited=1 streak=1 kind=server_error doubt=0 down=1000 trips=1 epoch=8", "closed>open suspected @1000 wait=60"},
	{"closed suspected", "slow failure asked", "stale stale-probe", "", ""},
	{"closed suspected", "rejected", "current probe name", "doubt=0", ""},
	{"closed suspected", "rejected", "stale stale-probe", "", ""},
	{"closed suspected", "neutral", "*", "", ""},
	{"closed suspected", "throttled", "*", "until=1060", ""},
	{"closed suspected", "release own", "", "", ""},
	{"closed suspected", "release other", "", "", ""},
	{"closed suspected", "keepalive own", "", "", ""},
	{"closed suspected", "begin", "", "", ""},
	{"closed suspected", "keepalive other", "", "", ""},
	{"closed suspected", "pause own", "", "", ""},
	{"closed suspected", "resume own", "", "", ""},
	{"closed suspected", "pause other", "", "", ""},
	{"closed suspected", "resume other", "", "", ""},
	{"closed suspected", "reset", "", freshlyClosed, "closed>closed reset @1000 wait=0"},
	{"closed suspected", "isolate", "", heldOpen + " down=1000 trips=1", "closed>open isolated @1000 wait=30"},
	{"closed suspected", "configure lower", "", "cfg=lower", ""},
	{"closed suspected", "configure zero", "", "cfg=zero doubt=0", ""},

	{"closed proven", "admit", "", "", "admitted"},
	{"closed proven", "success", "current probe name", "", ""},
	{"closed proven", "success", "stale stale-probe", "", ""},
	{"closed proven", "slow", "current probe name", "failedat=1000 streak=1 kind=timeout", ""},
	{"closed proven", "failure", "current probe name", "failedat=1000 streak=1 kind=server_error", ""},
	{"closed proven", "asked", "current probe name", "failedat=1000 until=1060 streak=1 kind=server_error", ""},
	{"closed proven", "slow failure asked", "stale stale-probe", "", ""},
	{"closed proven", "rejected", "current probe name", "", ""},
	{"closed proven", "rejected", "stale stale-probe", "", ""},
	{"closed proven", "neutral", "*", "", ""},
	{"closed proven", "throttled", "*", "until=1060", ""},
	{"closed proven", "release own", "", "", ""},
	{"closed proven", "release other", "", "", ""},
	{"closed proven", "keepalive own", "", "", ""},
	{"closed proven", "begin", "", "", ""},
	{"closed proven", "keepalive other", "", "", ""},
	{"closed proven", "pause own", "", "", ""},
	{"closed proven", "resume own", "", "", ""},
	{"closed proven", "pause other", "", "", ""},
	{"closed proven", "resume other", "", "", ""},
	{"closed proven", "reset", "", freshlyClosed, "closed>closed reset @1000 wait=0"},
	{"closed proven", "isolate", "", heldOpen + " down=1000 trips=1", "closed>open isolated @1000 wait=30"},
	{"closed proven", "configure lower", "", "cfg=lower", ""},
	{"closed proven", "configure zero", "", "cfg=zero", ""},

	// Others were told to wait until 1010. A wait that the tool states here is its own.
	{"closed hearsay", "admit", "", "", "refused rate_limited 10"},
	{"closed hearsay", "success", "current probe name", "", ""},
	{"closed hearsay", "success", "stale stale-probe", "", ""},
	{"closed hearsay", "slow", "current probe name", "failedat=1000 streak=1 kind=timeout", ""},
	{"closed hearsay", "failure", "current probe name", "failedat=1000 streak=1 kind=server_error", ""},
	{"closed hearsay", "asked", "current probe name", "failedat=1000 until=1060 hearsay=0 streak=1 kind=server_error", ""},
	{"closed hearsay", "slow failure asked", "stale stale-probe", "", ""},
	{"closed hearsay", "rejected", "current probe name", "", ""},
	{"closed hearsay", "rejected", "stale stale-probe", "", ""},
	{"closed hearsay", "neutral", "*", "", ""},
	{"closed hearsay", "throttled", "*", "until=1060 hearsay=0", ""},
	{"closed hearsay", "release own", "", "", ""},
	{"closed hearsay", "release other", "", "", ""},
	{"closed hearsay", "keepalive own", "", "", ""},
	{"closed hearsay", "begin", "", "", ""},
	{"closed hearsay", "keepalive other", "", "", ""},
	{"closed hearsay", "pause own", "", "", ""},
	{"closed hearsay", "resume own", "", "", ""},
	{"closed hearsay", "pause other", "", "", ""},
	{"closed hearsay", "resume other", "", "", ""},
	{"closed hearsay", "reset", "", freshlyClosed, "closed>closed reset @1000 wait=0"},
	{"closed hearsay", "isolate", "", heldOpen + " down=1000 trips=1", "closed>open isolated @1000 wait=30"},
	{"closed hearsay", "configure lower", "", "cfg=lower", ""},
	{"closed hearsay", "configure zero", "", "cfg=zero", ""},

	// Opened at 990 by hearsay. What fails or throttles here is known here.
	{"open hearsay", "admit", "", "", "refused circuit_open 20"},
	{"open hearsay", "success rejected neutral", "*", "", ""},
	{"open hearsay", "slow", "*", "until=1030 kind=timeout hearsay=0", ""},
	{"open hearsay", "failure", "*", "until=1030 kind=server_error hearsay=0", ""},
	{"open hearsay", "asked", "*", "until=1060 limited=1 kind=server_error hearsay=0", ""},
	{"open hearsay", "throttled", "*", "until=1060 limited=1 hearsay=0", ""},
	{"open hearsay", "release own", "", "", ""},
	{"open hearsay", "release other", "", "", ""},
	{"open hearsay", "keepalive own", "", "", ""},
	{"open hearsay", "begin", "", "", ""},
	{"open hearsay", "keepalive other", "", "", ""},
	{"open hearsay", "pause own", "", "", ""},
	{"open hearsay", "resume own", "", "", ""},
	{"open hearsay", "pause other", "", "", ""},
	{"open hearsay", "resume other", "", "", ""},
	{"open hearsay", "reset", "", freshlyClosed, "open>closed reset @1000 wait=0"},
	{"open hearsay", "isolate", "", heldOpen, "open>open isolated @1000 wait=30"},
	{"open hearsay", "configure lower", "", "cfg=lower", ""},
	{"open hearsay", "configure zero", "", "cfg=zero " + freshlyClosed, "open>closed reconfigured @1000 wait=0"},

	{"open cooling", "admit", "", "", "refused circuit_open 20"},
	{"open cooling", "success", "current probe stale name", "", ""},
	{"open cooling", "success", "stale-probe", "", ""},
	{"open cooling", "slow", "*", "until=1030 kind=timeout passed=0", ""},
	{"open cooling", "failure", "*", "until=1030 kind=server_error passed=0", ""},
	{"open cooling", "asked", "*", "until=1060 limited=1 kind=server_error passed=0", ""},
	{"open cooling", "rejected neutral", "*", "", ""},
	{"open cooling", "throttled", "*", "until=1060 limited=1", ""},
	{"open cooling", "release own", "", "", ""},
	{"open cooling", "release other", "", "", ""},
	{"open cooling", "keepalive own", "", "", ""},
	{"open cooling", "pause own", "", "", ""},
	{"open cooling", "resume own", "", "", ""},
	{"open cooling", "begin", "", "", ""},
	{"open cooling", "keepalive other", "", "", ""},
	{"open cooling", "pause other", "", "", ""},
	{"open cooling", "resume other", "", "", ""},
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
	{"open due", "asked", "*", "until=1055 limited=1 kind=server_error passed=0", ""},
	{"open due", "rejected neutral", "*", "", ""},
	{"open due", "throttled", "*", "until=1055 limited=1", ""},
	{"open due", "release own", "", "", ""},
	{"open due", "release other", "", "", ""},
	{"open due", "keepalive own", "", "", ""},
	{"open due", "pause own", "", "", ""},
	{"open due", "resume own", "", "", ""},
	{"open due", "begin", "", "", ""},
	{"open due", "keepalive other", "", "", ""},
	{"open due", "pause other", "", "", ""},
	{"open due", "resume other", "", "", ""},
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
	{"open limited", "asked", "*", "until=1060 kind=server_error passed=0", ""},
	{"open limited", "rejected neutral", "*", "", ""},
	{"open limited", "throttled", "*", "until=1060", ""},
	{"open limited", "release own", "", "", ""},
	{"open limited", "release other", "", "", ""},
	{"open limited", "keepalive own", "", "", ""},
	{"open limited", "pause own", "", "", ""},
	{"open limited", "resume own", "", "", ""},
	{"open limited", "begin", "", "", ""},
	{"open limited", "keepalive other", "", "", ""},
	{"open limited", "pause other", "", "", ""},
	{"open limited", "resume other", "", "", ""},
	{"open limited", "reset", "", freshlyClosed, "open>closed reset @1000 wait=0"},
	{"open limited", "isolate", "", heldOpen, "open>open isolated @1000 wait=30"},
	{"open limited", "configure lower", "", "cfg=lower", ""},
	{"open limited", "configure zero", "", "cfg=zero " + freshlyClosed, "open>closed reconfigured @1000 wait=0"},

	{"isolated", "admit", "", "", "refused isolated 30"},
	{"isolated", "success", "current probe stale name", "", ""},
	{"isolated", "success", "stale-probe", "", ""},
	{"isolated", "slow failure asked rejected throttled neutral", "*", "", ""},
	{"isolated", "release own", "", "", ""},
	{"isolated", "release other", "", "", ""},
	{"isolated", "keepalive own", "", "", ""},
	{"isolated", "pause own", "", "", ""},
	{"isolated", "resume own", "", "", ""},
	{"isolated", "begin", "", "", ""},
	{"isolated", "keepalive other", "", "", ""},
	{"isolated", "pause other", "", "", ""},
	{"isolated", "resume other", "", "", ""},
	{"isolated", "reset", "", freshlyClosed, "open>closed reset @1000 wait=0"},
	{"isolated", "isolate", "", heldOpen, "open>open isolated @1000 wait=30"},
	{"isolated", "configure lower", "", "cfg=lower", ""},
	{"isolated", "configure zero", "", "cfg=zero", ""},

	// One good probe has been: the second closes. 40 is the rest of the lease and
	// the cooldown after it.
	{"half-open live", "admit", "", "", "refused probe_in_flight 40"},
	{"half-open live", "success rejected", "probe name", freshlyClosed + " proven=1", "half-open>closed probe_succeeded @1000 wait=0"},
	{"half-open live", "success rejected", "current stale", "", ""},
	{"half-open live", "success", "stale-probe", "", ""},
	{"half-open live", "rejected", "stale-probe", "", ""},
	{"half-open live", "slow", "probe name", "state=open since=1000 until=1030 lease=0 cooldown=0 streak=4 kind=timeout failed=2 passed=0 epoch=8", "half-open>open probe_failed @1000 wait=30"},
	{"half-open live", "failure", "probe name", "state=open since=1000 until=1030 lease=0 cooldown=0 streak=4 kind=server_error failed=2 passed=0 epoch=8", "half-open>open probe_failed @1000 wait=30"},
	{"half-open live", "asked", "probe name", "state=open since=1000 until=1060 limited=1 lease=0 cooldown=0 streak=4 kind=server_error failed=2 passed=0 epoch=8", "half-open>open probe_failed @1000 wait=60"},
	{"half-open live", "throttled", "probe name", "state=open since=1000 until=1060 limited=1 lease=0 cooldown=0 epoch=8", "half-open>open probe_throttled @1000 wait=60"},
	{"half-open live", "neutral", "probe name", "state=open since=1000 until=1000 lease=0 cooldown=0 undecided=1 epoch=8", "half-open>open probe_returned @1000 wait=0"},
	{"half-open live", "slow failure asked throttled neutral", "current stale stale-probe", "", ""},
	{"half-open live", "release own", "", "state=open since=1000 until=1000 lease=0 cooldown=0 epoch=8", "half-open>open probe_returned @1000 wait=0"},
	{"half-open live", "release other", "", "", ""},
	{"half-open live", "keepalive own", "", "until=1020", ""},
	{"half-open live", "pause own", "", "until=1100", ""},
	{"half-open live", "resume own", "", "until=1020", ""},
	{"half-open live", "begin", "", "", ""},
	{"half-open live", "keepalive other", "", "", ""},
	{"half-open live", "pause other", "", "", ""},
	{"half-open live", "resume other", "", "", ""},
	{"half-open live", "reset", "", freshlyClosed, "half-open>closed reset @1000 wait=0"},
	{"half-open live", "isolate", "", heldOpen, "half-open>open isolated @1000 wait=30"},
	{"half-open live", "configure lower", "", "cfg=lower", ""},
	{"half-open live", "configure zero", "", "cfg=zero " + freshlyClosed, "half-open>closed reconfigured @1000 wait=0"},

	// Two probes were no verdict: the third of them costs a cooldown, which does not grow.
	{"half-open undecided", "admit", "", "", "refused probe_in_flight 40"},
	{"half-open undecided", "success rejected", "probe name", freshlyClosed + " proven=1", "half-open>closed probe_succeeded @1000 wait=0"},
	{"half-open undecided", "success rejected", "current stale", "", ""},
	{"half-open undecided", "success", "stale-probe", "", ""},
	{"half-open undecided", "rejected", "stale-probe", "", ""},
	{"half-open undecided", "slow", "probe name", "state=open since=1000 until=1030 lease=0 cooldown=0 undecided=0 streak=4 kind=timeout failed=2 passed=0 epoch=8", "half-open>open probe_failed @1000 wait=30"},
	{"half-open undecided", "failure", "probe name", "state=open since=1000 until=1030 lease=0 cooldown=0 undecided=0 streak=4 kind=server_error failed=2 passed=0 epoch=8", "half-open>open probe_failed @1000 wait=30"},
	{"half-open undecided", "asked", "probe name", "state=open since=1000 until=1060 limited=1 lease=0 cooldown=0 undecided=0 streak=4 kind=server_error failed=2 passed=0 epoch=8", "half-open>open probe_failed @1000 wait=60"},
	{"half-open undecided", "throttled", "probe name", "state=open since=1000 until=1060 limited=1 lease=0 cooldown=0 undecided=0 epoch=8", "half-open>open probe_throttled @1000 wait=60"},
	{"half-open undecided", "neutral", "probe name", "state=open since=1000 until=1030 lease=0 cooldown=0 undecided=0 epoch=8", "half-open>open probe_returned @1000 wait=30"},
	{"half-open undecided", "slow failure asked throttled neutral", "current stale stale-probe", "", ""},
	{"half-open undecided", "release own", "", "state=open since=1000 until=1000 lease=0 cooldown=0 epoch=8", "half-open>open probe_returned @1000 wait=0"},
	{"half-open undecided", "release other", "", "", ""},
	{"half-open undecided", "keepalive own", "", "until=1020", ""},
	{"half-open undecided", "pause own", "", "until=1100", ""},
	{"half-open undecided", "resume own", "", "until=1020", ""},
	{"half-open undecided", "begin", "", "", ""},
	{"half-open undecided", "keepalive other", "", "", ""},
	{"half-open undecided", "pause other", "", "", ""},
	{"half-open undecided", "resume other", "", "", ""},
	{"half-open undecided", "reset", "", freshlyClosed, "half-open>closed reset @1000 wait=0"},
	{"half-open undecided", "isolate", "", heldOpen, "half-open>open isolated @1000 wait=30"},
	{"half-open undecided", "configure lower", "", "cfg=lower", ""},
	{"half-open undecided", "configure zero", "", "cfg=zero " + freshlyClosed, "half-open>closed reconfigured @1000 wait=0"},

	// Hooks are being told of the probe, for 100 at most. Its lease has not begun.
	{"half-open untold", "admit", "", "", "refused probe_in_flight 50"},
	{"half-open untold", "success rejected", "probe name", freshlyClosed + " proven=1", "half-open>closed probe_succeeded @1000 wait=0"},
	{"half-open untold", "success rejected", "current stale", "", ""},
	{"half-open untold", "success", "stale-probe", "", ""},
	{"half-open untold", "rejected", "stale-probe", "", ""},
	{"half-open untold", "slow", "probe name", "state=open since=1000 until=1030 untold=0 lease=0 cooldown=0 streak=4 kind=timeout failed=2 passed=0 epoch=8", "half-open>open probe_failed @1000 wait=30"},
	{"half-open untold", "failure", "probe name", "state=open since=1000 until=1030 untold=0 lease=0 cooldown=0 streak=4 kind=server_error failed=2 passed=0 epoch=8", "half-open>open probe_failed @1000 wait=30"},
	{"half-open untold", "asked", "probe name", "state=open since=1000 until=1060 limited=1 untold=0 lease=0 cooldown=0 streak=4 kind=server_error failed=2 passed=0 epoch=8", "half-open>open probe_failed @1000 wait=60"},
	{"half-open untold", "throttled", "probe name", "state=open since=1000 until=1060 limited=1 untold=0 lease=0 cooldown=0 epoch=8", "half-open>open probe_throttled @1000 wait=60"},
	{"half-open untold", "neutral", "probe name", "state=open since=1000 until=1000 untold=0 lease=0 cooldown=0 undecided=1 epoch=8", "half-open>open probe_returned @1000 wait=0"},
	{"half-open untold", "slow failure asked throttled neutral", "current stale stale-probe", "", ""},
	{"half-open untold", "release own", "", "state=open since=1000 until=1000 untold=0 lease=0 cooldown=0 epoch=8", "half-open>open probe_returned @1000 wait=0"},
	{"half-open untold", "release other", "", "", ""},
	{"half-open untold", "keepalive own", "", "", ""},
	{"half-open untold", "pause own", "", "until=1100", ""},
	{"half-open untold", "resume own", "", "", ""},
	{"half-open untold", "begin", "", "untold=0 until=1020", ""},
	{"half-open untold", "keepalive other", "", "", ""},
	{"half-open untold", "pause other", "", "", ""},
	{"half-open untold", "resume other", "", "", ""},
	{"half-open untold", "reset", "", freshlyClosed, "half-open>closed reset @1000 wait=0"},
	{"half-open untold", "isolate", "", heldOpen, "half-open>open isolated @1000 wait=30"},
	{"half-open untold", "configure lower", "", "cfg=lower", ""},
	{"half-open untold", "configure zero", "", "cfg=zero " + freshlyClosed, "half-open>closed reconfigured @1000 wait=0"},

	// The lease ended at 980: this IS open since 980, the next probe due at 1010.
	{"half-open lost cooling", "admit", "", lost980, "refused circuit_open 10; " + wasLost980},
	{"half-open lost cooling", "success", "current stale name", lost980, wasLost980},
	{"half-open lost cooling", "success", "probe stale-probe", lost980, wasLost980},
	{"half-open lost cooling", "slow", "*", lost980 + " until=1030 kind=timeout", wasLost980},
	{"half-open lost cooling", "failure", "*", lost980 + " until=1030 kind=server_error", wasLost980},
	{"half-open lost cooling", "asked", "*", lost980 + " until=1060 limited=1 kind=server_error", wasLost980},
	{"half-open lost cooling", "rejected neutral", "*", lost980, wasLost980},
	{"half-open lost cooling", "throttled", "*", lost980 + " until=1060 limited=1", wasLost980},
	{"half-open lost cooling", "release own", "", lost980, wasLost980},
	{"half-open lost cooling", "release other", "", lost980, wasLost980},
	{"half-open lost cooling", "keepalive own", "", lost980, wasLost980},
	{"half-open lost cooling", "pause own", "", lost980, wasLost980},
	{"half-open lost cooling", "resume own", "", lost980, wasLost980},
	{"half-open lost cooling", "begin", "", lost980, wasLost980},
	{"half-open lost cooling", "keepalive other", "", lost980, wasLost980},
	{"half-open lost cooling", "pause other", "", lost980, wasLost980},
	{"half-open lost cooling", "resume other", "", lost980, wasLost980},
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
	{"half-open lost due", "asked", "*", lost955 + " until=1055 limited=1 kind=server_error", wasLost955},
	{"half-open lost due", "rejected neutral", "*", lost955, wasLost955},
	{"half-open lost due", "throttled", "*", lost955 + " until=1055 limited=1", wasLost955},
	{"half-open lost due", "release own", "", lost955, wasLost955},
	{"half-open lost due", "release other", "", lost955, wasLost955},
	{"half-open lost due", "keepalive own", "", lost955, wasLost955},
	{"half-open lost due", "pause own", "", lost955, wasLost955},
	{"half-open lost due", "resume own", "", lost955, wasLost955},
	{"half-open lost due", "begin", "", lost955, wasLost955},
	{"half-open lost due", "keepalive other", "", lost955, wasLost955},
	{"half-open lost due", "pause other", "", lost955, wasLost955},
	{"half-open lost due", "resume other", "", lost955, wasLost955},
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
	{"half-open no lease", "asked", "probe name", "state=open since=1000 until=1060 limited=1 lease=0 cooldown=0 streak=4 kind=server_error failed=2 epoch=8", "half-open>open probe_failed @1000 wait=60"},
	{"half-open no lease", "throttled", "probe name", "state=open since=1000 until=1060 limited=1 lease=0 cooldown=0 epoch=8", "half-open>open probe_throttled @1000 wait=60"},
	{"half-open no lease", "neutral", "probe name", "state=open since=1000 until=1000 lease=0 cooldown=0 undecided=1 epoch=8", "half-open>open probe_returned @1000 wait=0"},
	{"half-open no lease", "slow failure asked throttled neutral", "current stale stale-probe", "", ""},
	{"half-open no lease", "release own", "", "state=open since=1000 until=1000 lease=0 cooldown=0 epoch=8", "half-open>open probe_returned @1000 wait=0"},
	{"half-open no lease", "release other", "", "", ""},
	{"half-open no lease", "keepalive own", "", "", ""},
	{"half-open no lease", "pause own", "", "", ""},
	{"half-open no lease", "resume own", "", "", ""},
	{"half-open no lease", "begin", "", "", ""},
	{"half-open no lease", "keepalive other", "", "", ""},
	{"half-open no lease", "pause other", "", "", ""},
	{"half-open no lease", "resume other", "", "", ""},
	{"half-open no lease", "reset", "", freshlyClosed, "half-open>closed reset @1000 wait=0"},
	{"half-open no lease", "isolate", "", heldOpen, "half-open>open isolated @1000 wait=30"},
	{"half-open no lease", "configure lower", "", "cfg=lower until=1020 lease=20", ""},
	{"half-open no lease", "configure zero", "", "cfg=zero " + freshlyClosed, "half-open>closed reconfigured @1000 wait=0"},
}

const stepSecond = int64(time.Second)

func stepParams(change func(*Config)) *Params {
	c := Config{
		FailureThreshold: 3, RecoveryDuration: 30 * time.Second, ProbeTimeout: 20 * time.Second,
		MaxOpenDuration: 100 * time.Second, MaxStatedWait: 200 * time.Second, ProbeSuccesses: 2, SlowCallDuration: 5 * time.Second,
		MaxHintDuration: 50 * time.Second,
	}
	if change != nil {
		change(&c)
	}
	return NewParams(c)
}

var stepConfigs = map[string]*Params{
	"table": stepParams(nil),
	"lower": stepParams(func(c *Config) { c.FailureThreshold = 1 }),
	"zero":  stepParams(func(c *Config) { c.FailureThreshold = 0 }),
}

func indexOf(t *testing.T, texts []string, text string) int {
	t.Helper()
	require.Contains(t, texts, text)
	return slices.Index(texts, text)
}

// changeSnapshot sets the fields that text names.
func changeSnapshot(t *testing.T, s *Snapshot, text string) {
	t.Helper()
	s.amend(func(*past) {}) // so that it may be written
	for _, field := range strings.Fields(text) {
		key, value, _ := strings.Cut(field, "=")
		n, err := strconv.Atoi(value)
		seconds := int64(n) * stepSecond
		if value == "never" {
			seconds, err = Forever, nil
		}
		switch key {
		case "state":
			s.State, err = State(indexOf(t, stateTexts, value)), nil
		case "kind":
			s.Kind, err = Kind(indexOf(t, kindTexts, value)), nil
		case "cfg":
			s.Params, err = stepConfigs[value], nil
		case "since":
			s.Since = seconds
		case "until":
			s.Until = seconds
		case "lease":
			s.lease = seconds
		case "cooldown":
			s.cooldown = seconds
		case "learned":
			s.learned = seconds
		case "epoch":
			s.Epoch = uint64(n)
		case "operated":
			s.operated = uint64(n)
		case "trips":
			s.Trips = uint64(n)
		case "down":
			s.DownSince = seconds
		case "failedat":
			s.failedAt = seconds
		case "streak":
			s.Streak = int32(n)
		case "failed":
			s.failed = uint32(n)
		case "passed":
			s.passed = uint32(n)
		case "undecided":
			s.undecided = uint8(n)
		case "untold":
			s.untold = n == 1
		case "limited":
			s.limited = n == 1
		case "isolated":
			s.isolated = n == 1
		case "doubt":
			s.doubt, s.doubted = seconds, n != 0
		case "hearsay":
			s.hearsay = n == 1
		case "hurried":
			s.hurried = n == 1
		case "proven":
			s.proven = n == 1
		case "lost":
			s.lost = n == 1
		default:
			t.Fatalf("unknown field %q", key)
		}
		require.NoError(t, err, field)
	}
}

func stepSituation(t *testing.T, text string) *Snapshot {
	s := &Snapshot{Params: stepConfigs["table"], past: new(past), Epoch: 7, failedAt: 900 * stepSecond}
	changeSnapshot(t, s, text)
	return s
}

// stepEvent builds the event of one pair.
func stepEvent(what, permit string) Event {
	ev := Event{Ended: 50}
	switch what {
	case "admit":
		ev.Op = OpAdmit
	case "release own":
		ev.Op, ev.Probe, ev.Epoch = OpRelease, true, 7
	case "release other":
		ev.Op, ev.Probe, ev.Epoch = OpRelease, true, 6
	case "begin":
		ev.Op, ev.Probe, ev.Epoch = OpBegin, true, 7
	case "keepalive own":
		ev.Op, ev.Probe, ev.Epoch = OpKeepAlive, true, 7
	case "keepalive other":
		ev.Op, ev.Probe, ev.Epoch = OpKeepAlive, true, 6
	case "pause own":
		ev.Op, ev.Probe, ev.Epoch = OpPause, true, 7
	case "pause other":
		ev.Op, ev.Probe, ev.Epoch = OpPause, true, 6
	case "resume own":
		ev.Op, ev.Probe, ev.Epoch = OpResume, true, 7
	case "resume other":
		ev.Op, ev.Probe, ev.Epoch = OpResume, true, 6
	case "reset":
		ev.Op = OpReset
	case "isolate":
		ev.Op = OpIsolate
	case "configure lower":
		ev.Op, ev.Params = OpConfigure, stepConfigs["lower"]
	case "configure zero":
		ev.Op, ev.Params = OpConfigure, stepConfigs["zero"]
	default:
		ev.Op, ev.Took = OpSettle, stepSecond
		switch what {
		case "slow":
			ev.Outcome, ev.Took = Success, 6*stepSecond
		case "failure":
			ev.Outcome, ev.Kind = Failure, ServerError
		case "asked":
			ev.Outcome, ev.Kind, ev.RetryAfter = Failure, ServerError, 60*stepSecond
		case "rejected":
			ev.Outcome, ev.Kind = Rejected, notFound
		case "throttled":
			ev.Outcome, ev.Kind, ev.RetryAfter = Throttled, rateLimited, 60*stepSecond
		case "neutral":
			ev.Outcome, ev.Kind = Neutral, canceled
		}
		switch permit {
		case "current":
			ev.Epoch = 7
		case "probe":
			ev.Epoch, ev.Probe = 7, true
		case "stale":
			ev.Epoch = 6
		case "stale-probe":
			ev.Epoch, ev.Probe = 6, true
		case "name":
			ev.ByName = true
		}
	}
	return ev
}

// stepAnswerText writes an answer as the table does.
func stepAnswerText(ev Event, a Answer) string {
	var parts []string
	if ev.Op == OpAdmit {
		switch {
		case a.Reason != Admitted:
			parts = append(parts, fmt.Sprintf("refused %s %d", a.Reason.String(), a.Wait/stepSecond))
		case a.Probe:
			parts = append(parts, "probe")
		default:
			parts = append(parts, "admitted")
		}
	}
	for _, c := range a.Changes {
		parts = append(parts, fmt.Sprintf("%s>%s %s @%d wait=%d", c.From, c.To, c.Cause, c.When/stepSecond, c.Wait/stepSecond))
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

func TestStep_Table(t *testing.T) {
	rows := stepRows(t)
	check := func(situation, snapshotText, what, permit string) {
		pair := situation + " | " + what + " | " + permit
		row, ok := rows[pair]
		if !assert.True(t, ok, "no row for %s", pair) {
			return
		}
		delete(rows, pair)
		before := stepSituation(t, snapshotText)
		was, wasPast, want := *before, *before.past, new(*before)
		changeSnapshot(t, want, row[3])
		if what == "reset" || what == "isolate" {
			want.amend(func(p *past) { p.operated = want.Epoch }) // in every such row
		}
		ev := stepEvent(what, permit)
		got, a := Step(before, &ev, stepNow*stepSecond)
		assert.Equal(t, want, got, pair)
		assert.Equal(t, row[4], stepAnswerText(ev, a), pair)
		assert.Equal(t, was, *before, "a snapshot never changes: %s", pair)
		assert.Equal(t, wasPast, *before.past, "nor what it shares: %s", pair)
		assert.Equal(t, !same(got, before), got != before, "nothing is allocated for what stays: %s", pair)
		assert.Equal(t, got.Epoch, a.Epoch, pair)
		require.Equal(t, before.Epoch+uint64(len(a.Changes)), got.Epoch, pair)
		for i, c := range a.Changes {
			assert.Equal(t, before.Epoch+1+uint64(i), c.Epoch, pair)
			as := got
			if c.Cause == CauseLeaseExpired { // came before anything else happened
				as = before
			}
			assert.Equal(t, [2]any{int(as.Streak), as.Kind}, [2]any{c.Streak, c.Kind}, pair)
		}
	}
	for _, s := range stepSituations { // a permit from before an operator's word changes nothing
		before := stepSituation(t, s.snapshot+" operated=5")
		noted, _ := Step(before, &Event{Op: OpKeepAlive}, stepNow*stepSecond) // the end of a lease
		for _, what := range stepOutcomes {
			for _, permit := range []string{"stale", "stale-probe"} {
				ev := stepEvent(what, permit)
				ev.Epoch = 4
				got, _ := Step(before, &ev, stepNow*stepSecond)
				assert.Equal(t, noted, got, "%s | %s | void %s", s.name, what, permit)
				ev.Epoch = 5 // the operator's own epoch is not before it
				got, _ = Step(before, &ev, stepNow*stepSecond)
				older := *before
				older.amend(func(p *past) { p.operated = 0 })
				next, _ := Step(&older, &ev, stepNow*stepSecond)
				want := *next
				want.amend(func(p *past) { p.operated = 5 })
				assert.Equal(t, want, *got, "%s | %s | %s", s.name, what, permit)
			}
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
