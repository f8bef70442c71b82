package bench

// The names of the cases of the third level.
const (
	GuardCall = "toolhealth/guard/call"
	GuardWrap = "toolhealth/guard/wrap"
)

// guards are the cases of the third level.
func guards() []Case { return nil }
