// Package toolhealth is an in-process circuit breaker and health registry for the
// tools that an AI agent calls.
//
// An agent runtime asks it before each tool call, tells it after each call, and
// shows its summary on a dashboard. A tool that keeps failing is not called; the
// model gets a short text instead of a timeout; one call at a time finds out
// whether the tool is well again; a substitute can take the calls meanwhile.
//
// It keeps no global state, it starts no timers and, unless a [Policy] says Detach,
// no goroutines, and there is nothing to close.
//
// # Three levels of use
//
// By name, for engines that cannot carry a value from before a call to after it:
// [Registry.AllowRequest], then [Registry.RecordSuccess],
// [Registry.RecordFailure] or [Registry.Record].
//
// With a [Gate], before and after one call: [Gate.Allow] returns a [Permit], or a
// [Refusal] that is fit to be shown to the model, and [Permit.Done] takes the
// call's error. The permit ties the two together, so that what comes late or twice
// decides nothing that it should not.
//
// With a [Guard], around the call: [Wrap] or [Call] retry with back-off and a
// budget, limit the time of an attempt, check results, turn panics into errors and
// fall back to substitutes. The error is a [ToolError] that says why it stopped: its
// text is for the model, Details is for logs. Set Timeout, which is none by default,
// and SideEffects for tools that act.
//
// All three may share one registry. This is the second:
//
//	gate := &toolhealth.Gate{Registry: toolhealth.NewRegistry()}
//
//	permit, err := gate.Allow(ctx, "search")
//	if err != nil {
//		return err.Error() // a soft error for the model
//	}
//	defer permit.Release() // on every way out; after Done it does nothing
//	out, err := search(ctx, query)
//	permit.Done(ctx, err)
//
// After a failed attempt, Allow again: only a Guard goes on to a substitute by itself.
//
// # Health
//
// Every outcome goes into the tool's [Stats]: counts, durations, and a moving
// average of success in which each call weighs 30 %. The score, 0.3 x success rate
// + 0.7 x moving average, makes a [HealthStatus]; it informs and blocks nothing.
// [Registry.Health], [Registry.All] and [Registry.HealthSummary] read it all, as
// JSON too.
//
// # The breaker
//
// Each tool has a breaker of three states ([State]). Closed, it counts consecutive
// failures, and opens at [BreakerConfig] FailureThreshold. Open, it refuses until
// the cooldown is over; then one caller gets the probe. Half-open, it refuses
// everyone else until the probe reports, or its lease runs out, which makes it open
// again with a cooldown that began when the lease ended. [Registry.Available] and
// all else that reads answer as the gate would, at every instant.
//
// An operator can hold a tool open with [Registry.Isolate], close it with
// [Registry.Reset], and change everything with [Registry.SetConfig] while it is in
// use. [Registry.OnTransition] tells of every change, in order.
//
// # What an error means
//
// [Classify] turns an error into a [Verdict]: whether it is the tool's fault
// ([Outcome]), what happened ([Kind]), whether to try again. A cancelled caller and
// a rejected request are no failures of the tool. [ErrorRules] puts rules of one's
// own first; [WithVerdict] marks an error where it arises.
//
// # Time
//
// Time is that of the monotonic clock since the registry was made. A registry that
// is made inside a testing/synctest bubble lives in the bubble's time.
//
// The README has the tables: outcomes and states, defaults, errors, JSON keys, and
// what this package does not do.
package toolhealth
