package toolhealth

import "github.com/toolhealth/toolhealth/internal/errfacts"

// Names for verdicts that many tests use.
var (
	vFailed      = verdicts[errfacts.Failed]
	vRetry       = verdicts[errfacts.Unavailable]
	vUnreachable = verdicts[errfacts.Unreachable]
	vInvalid     = verdicts[errfacts.Invalid]
	vNotFound    = verdicts[errfacts.NotFound]
	vCollided    = verdicts[errfacts.Collided]
	vUndecided   = verdicts[errfacts.Ambiguous]
	vHost        = verdicts[errfacts.OutOfResources]
	vPending     = verdicts[errfacts.Pending]
)
