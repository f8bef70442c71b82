// Package toolhealth is an in-process circuit breaker and health registry for the
// tools that an AI agent calls.
//
// An agent runtime asks it before each tool call, tells it after each call, and
// shows its summary on a dashboard. A tool that keeps failing is not called; the
// model gets a short text instead of a timeout; one call at a time finds out
// whether the tool is well again; a substitute can take the calls meanwhile.
//
// # Which level to take
//
// Most programs want a [Guard]. [Wrap] a tool's function once and call the [Tool] that
// it returns; or use [Call]. A Guard retries with back-off and a budget, limits the time
// of an attempt, checks results, turns panics into errors and goes on to substitutes.
// The error is a [ToolError]: [ModelText] makes of it what the model may read, Details is
// for logs, Reason says why the call ended. Set SideEffects for tools that act, and a
// Timeout that fits your tools: it is 2m by default.
//
//	guard, err := toolhealth.New(toolhealth.Settings{})
//	...
//	search := toolhealth.Wrap(guard, "search", client.Search)
//	out, err := search.Call(ctx, query)
//
// A call whose result is read later, a body or a stream, is made with [Begin], and ends
// with its [Flight]. Inside a tool function, [KeepAlive] says that a long call is alive,
// [Pause] stops its clocks while a person is asked, and [IsProbe] says that it decides
// whether the tool is well again.
//
// A [Gate] is for a loop of your own, before and after one call. [Gate.Allow] returns
// a [Permit], or a [Refusal] that can be shown to the model; [Permit.Done] takes the
// call's error. The permit ties the two together, so that a late or repeated report
// cannot change the breaker. After a failed attempt call Allow again: only a Guard
// goes on to a substitute by itself.
//
//	permit, err := gate.Allow(ctx, "search")
//	if err != nil {
//		return err.Error() // for the model
//	}
//	defer permit.Release() // on every way out; after Done it does nothing
//	out, err := client.Search(ctx, query)
//	permit.Done(ctx, err)
//
// By name is for engines that can carry no value from before a call to after it:
// [Registry.AllowRequest], then [Registry.Record]. A late report is taken for a
// current one.
//
// All levels can share one [Registry]. A [HealthRouter] names the substitutes of every
// level; a [Tool] may name its own.
//
// # The breaker
//
// Each tool has a breaker of three states ([State]). Closed, it counts consecutive
// failures, and opens at [BreakerConfig] FailureThreshold. Open, it refuses until the
// cooldown is over; then one caller gets the probe. Half-open, it refuses everyone else
// until the probe reports, or its lease runs out, which makes it open again with a
// cooldown that began when the lease ended. [Registry.Available] and everything else
// that reads answer as the gate would, at every instant. [Permit] says what the end of
// a call does in each state.
//
// [New] makes a guard with everything below it, from [Settings] that [Load] reads from a
// file. [Guard.SetSettings] changes them while they are in use. In every configuration a
// field that is zero has its default, and [Off] switches its rule off.
//
// Tools behind one server, such as those of an MCP server, may be in a group, by
// Settings.GroupSeparator or [Config].Group. A group is one more breaker, which counts
// what says that the server cannot be reached: lost connections, and time-outs, of which
// those of one tool in a row count once. Any answer, a bad one too, shows that the server is
// there. So a dead server costs three failing calls and not three of each tool, and one
// probe of one tool brings all of them back.
//
// An operator can hold a tool open with [Registry.Isolate], close it with
// [Registry.Reset], do the same to a group, and change every rule with
// [Registry.SetConfig] while it is in use. [Registry.OnTransition] reports every change,
// in order.
//
// # Health
//
// Every outcome goes into the tool's statistics: counts, durations, and a moving average
// of success in which each call weighs 30 %. The score, 0.3 x success rate + 0.7 x
// moving average, makes a [HealthStatus], which is at best degraded while calls are
// refused, or rejected ten times in a row for a dead key. It informs and blocks nothing.
// [Registry.Health] and [Registry.HealthSummary] return it all, as JSON too. Health,
// transitions, events and errors are [log/slog.LogValuer]s.
//
// # What an error means
//
// [Classify] turns an error into a [Verdict]: whether it counts against the tool
// ([Outcome]), what happened ([Kind]), whether to try again. A canceled caller and a
// rejected request do not count against the tool. Use [ErrorRules] to add your own
// rules, and [WithVerdict] to mark an error where it arises.
//
// # Time, goroutines, state
//
// Time is the monotonic clock since the registry was made. A registry that is made
// inside a testing/synctest bubble lives in the bubble's time.
//
// Breakers use no timers and no goroutines. A Guard uses a timer for a Timeout, for a
// MaxDuration and for a back-off. It uses a goroutine where a [Policy] says Detach, and
// for a moment when a [Flight] that is not ended settles. The only package-level state is
// a cache of what error types can be asked. There is nothing to close.
package toolhealth
