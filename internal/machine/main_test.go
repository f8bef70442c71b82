package machine

import (
	"go/build"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Without sync, atomic, rand and a clock that is read there is nothing that Step
// could depend on but its parameters.
func TestMachine_ImportsNothingThatIsShared(t *testing.T) {
	pkg, err := build.ImportDir(".", 0)
	require.NoError(t, err)
	assert.Equal(t, []string{"math", "time"}, pkg.Imports)
	assert.Empty(t, pkg.CgoFiles)
}

// The words that the tables of the tests use.
var (
	stateTexts   = []string{"closed", "open", "half-open"}
	outcomeTexts = []string{"success", "failure", "rejected", "throttled", "neutral"}
	reasonTexts  = []string{"none", "circuit_open", "probe_in_flight", "rate_limited", "isolated"}
	causeTexts   = []string{
		"none", "failure_threshold", "failure_rate", "probe_admitted", "probe_succeeded", "probe_failed",
		"probe_throttled", "probe_returned", "lease_expired", "reset", "isolated", "reconfigured",
		"suspected", "reported", "restored",
	}
	kindTexts = []string{"none", "timeout", "server_error", "not_found", "rate_limited", "connection", "canceled"}
	hintTexts = []string{"suspect", "down", "defer", "throttled", "recovered"}
)

// Kinds that the machine does not know.
const (
	notFound    Kind = 3
	rateLimited Kind = 4
	canceled    Kind = 6
)

func (s State) String() string   { return stateTexts[s] }
func (o Outcome) String() string { return outcomeTexts[o] }
func (r Reason) String() string  { return reasonTexts[r] }
func (c Cause) String() string   { return causeTexts[c] }
func (k Kind) String() string    { return kindTexts[k] }
func (h Hint) String() string    { return hintTexts[h] }
