package toolhealth

import (
	"time"

	"github.com/toolhealth/toolhealth/internal/enum"
	"github.com/toolhealth/toolhealth/internal/machine"
)

// HintKind is what another replica, or a monitor, says of a tool.
// Its zero value is HintSuspect.
type HintKind uint8

// The hints. Their texts are the words of the names in lower case: "suspect".
const (
	// HintSuspect: the tool fails for another. While the wait lasts, one failure of kind
	// connection, timeout or server_error opens a closed breaker, whatever its threshold.
	// A success, a rejection and HintRecovered end the suspicion.
	HintSuspect HintKind = HintKind(machine.HintSuspect)
	// HintDown: the tool fails for enough others. A closed breaker opens for the wait,
	// unless a probe of its own has closed it within MaxHintDuration; an open one stays
	// open for it.
	HintDown HintKind = HintKind(machine.HintDown)
	// HintDefer: another is probing the tool. An open breaker gives out no probe before
	// the wait is over. A closed one stays closed.
	HintDefer HintKind = HintKind(machine.HintDefer)
	// HintThrottled: the tool told another to wait. Every caller waits for as long, as if
	// the tool had said it here; MaxStatedWait bounds it, too.
	HintThrottled HintKind = HintKind(machine.HintThrottled)
	// HintRecovered: the tool works for another. The next probe of an open breaker is due
	// after the wait, if that is sooner and the present wait is not one that the tool
	// stated. It works once until the breaker closes. No breaker closes by it.
	HintRecovered HintKind = HintKind(machine.HintRecovered)
)

var hintTexts = []string{"suspect", "down", "defer", "throttled", "recovered"}

// String returns the text of k, or "HintKind(n)" for a value that is no hint.
func (k HintKind) String() string { return enum.Text("HintKind", hintTexts, k) }

// MarshalText returns the text of k, and an error for a value that is no hint.
func (k HintKind) MarshalText() ([]byte, error) { return enum.Marshal("HintKind", hintTexts, k) }

// UnmarshalText is the inverse of MarshalText.
func (k *HintKind) UnmarshalText(text []byte) error {
	return enum.Unmarshal("HintKind", hintTexts, text, k)
}

// Hint tells the registry what another replica knows of a tool. What is known here weighs
// more: no hint changes a breaker that is half-open or isolated, none closes one, and
// streaks, growth, leases and figures stay. No wait that a hint asks for is longer than
// BreakerConfig.MaxHintDuration, counted from when the breaker opened if it is open. A
// negative wait counts as 0, and a wait of 0 holds no call back. A breaker that no rule
// opens takes HintThrottled only.
//
// A tool without an entry gets one from HintDown and HintThrottled. Such an entry may be
// evicted like an idle one until something is known here, so invented names cannot fill
// the registry; and a hint is no use of the tool that would keep an entry.
//
// Hint reports whether there is an entry of the tool now. It is false for a tool that is
// unknown (see Config.RegisteredOnly), if the registry is full, and for a kind that is no
// hint. Transitions that it causes have CauseReported; what hooks hear of them is hearsay
// and should not be passed on.
func (r *Registry) Hint(tool string, kind HintKind, wait time.Duration) bool {
	hint := machine.Hint(kind)
	if r.inert() || !hint.Valid() {
		return false
	}
	for now := r.now(); ; {
		n := r.table.Get(tool)
		if n == nil && hint.MakesEntry() {
			n, _ = r.entry(tool, now)
		}
		if n == nil {
			return false
		}
		if r.apply(n, &machine.Event{Op: machine.OpHint, Hint: hint, RetryAfter: int64(wait)}, now) {
			return true
		}
	}
}

// OnStatedWait calls fn after a call has ended with a wait that the tool stated, if every
// caller is held to that wait from now on: a throttle, or a failure with a Retry-After.
// It is not called for a wait that is shorter than what callers wait for already, for
// one that binds only the call that heard it, or for a hint.
//
// fn is called after the transition hooks of the same call, on the same goroutine, and
// no lock is held: fn may call anything. The waits of one tool may come at once and in
// any order; the one that ends last, at When plus Wait, is the one that counts. A panic
// in fn is counted in Summary.HookPanics and harms neither the call nor other hooks.
//
// When stop has returned, no call of fn is running and none will begin. It waits for
// calls of fn that are running, except when it is called from inside a hook.
func (r *Registry) OnStatedWait(fn func(StatedWait)) (stop func()) {
	if r == nil {
		return func() {}
	}
	return r.waits.Add(fn)
}
