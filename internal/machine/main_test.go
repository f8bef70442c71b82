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
	}
	kindTexts = []string{"none", "timeout", "server_error", "connection", "not_found", "rate_limited", "canceled"}
)

// Kinds that the machine does not know.
const (
	serverError Kind = iota + 2
	connection
	notFound
	rateLimited
	canceled
)

func (s State) String() string   { return stateTexts[s] }
func (o Outcome) String() string { return outcomeTexts[o] }
func (r Reason) String() string  { return reasonTexts[r] }
func (c Cause) String() string   { return causeTexts[c] }
func (k Kind) String() string    { return kindTexts[k] }
