package toolhealth

import "github.com/toolhealth/toolhealth/internal/errfacts"

// Names for verdicts that many tests use.
var (
	vTimeout     = verdicts[errfacts.TimedOut]
	vFailed      = verdicts[errfacts.Failed]
	vRetry       = verdicts[errfacts.Unavailable]
	vUnreachable = Verdict{Outcome: OutcomeFailure, Kind: KindConnection, Retryable: true, NotSent: true}
	vInvalid     = verdicts[errfacts.Invalid]
	vNotFound    = verdicts[errfacts.NotFound]
	vCollided    = verdicts[errfacts.Collided]
	vUndecided   = verdicts[errfacts.Ambiguous]
	vHost        = verdicts[errfacts.OutOfResources]
	vPending     = verdicts[errfacts.Pending]
)
