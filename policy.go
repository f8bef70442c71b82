package toolhealth

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/toolhealth/toolhealth/internal/retry"
)

// ruleSet is the configuration of a Guard as calls use it. It never changes, except that
// it remembers answers.
type ruleSet struct {
	gate     *Gate
	config   GuardConfig
	usual    *policy // of tools that have none of their own
	tools    map[string]*policy
	settings *Settings // nil if the guard is not of New
	// asked has policies by what PolicyOf has said, because to check one takes longer
	// than a call. A map in it never changes; each call may put another in its place.
	asked atomic.Pointer[map[Policy]*policy]
	base  time.Time // of durations, where there is no registry
}

// newRuleSet returns a valid configuration as calls use it.
func newRuleSet(gate *Gate, config GuardConfig) *ruleSet {
	rs := &ruleSet{
		gate: gate, config: config, usual: newPolicy(config.Default), tools: make(map[string]*policy, len(config.Tools)),
		base: time.Now(),
	}
	for tool, p := range config.Tools {
		rs.tools[tool] = newPolicy(p)
	}
	return rs
}

// policy is a Policy with all defaults filled in: a number that is zero is off.
type policy struct {
	Policy
	// usualTimeout says that Timeout is the default. An attempt that it ends is not
	// repeated.
	usualTimeout bool
}

func newPolicy(p Policy) *policy {
	c := &policy{Policy: p, usualTimeout: p.Timeout == 0}
	c.table().Resolve()
	return c
}

// of returns the policy of a tool, or why it has none.
func (rs *ruleSet) of(tool string) (*policy, error) {
	if p := rs.tools[tool]; p != nil {
		return p, nil
	}
	if rs.config.PolicyOf == nil {
		return rs.usual, nil
	}
	return rs.ask(tool)
}

// ask returns what PolicyOf says of a tool.
func (rs *ruleSet) ask(tool string) (p *policy, err error) {
	defer func() {
		if v := recover(); v != nil {
			p, err = rs.usual, fmt.Errorf("toolhealth: PolicyOf panicked for %.80q: %v", tool, v)
		}
	}()
	own := rs.config.PolicyOf(tool, rs.config.Default)
	if own == rs.config.Default {
		return rs.usual, nil
	}
	known := rs.asked.Load()
	if known != nil && (*known)[own] != nil {
		return (*known)[own], nil
	}
	if err := configError(own.table().Check()); err != nil {
		return rs.usual, fmt.Errorf("toolhealth: PolicyOf of %.80q: %w", tool, err)
	}
	p = newPolicy(own)
	rs.remember(known, own, p)
	return p, nil
}

// maxAsked is how many answers of PolicyOf are kept. Few hosts have more kinds of tools.
const maxAsked = 64

// remember keeps a policy that is valid, unless there are many or another call keeps one
// at the same time.
func (rs *ruleSet) remember(known *map[Policy]*policy, own Policy, p *policy) {
	more := map[Policy]*policy{own: p}
	if known != nil {
		if len(*known) >= maxAsked {
			return
		}
		maps.Copy(more, *known)
	}
	rs.asked.CompareAndSwap(known, &more)
}

// nextWait says how long to wait before the next attempt, and whether that costs a
// token, or why there is none. room is the time that the caller has left. The wait that
// the tool stated, or the back-off without its jitter, has to fit; the jitter takes at
// most half of the room after it. A wait as the tool stated it costs no token.
func (c *policy) nextWait(v Verdict, attempt int, room time.Duration) (reason StopReason, wait time.Duration, costs bool) {
	stated := max(v.RetryAfter, 0)
	backoff := retry.Delay(c.BackoffBase, c.BackoffMax, c.BackoffFactor, attempt)
	wait, least := retry.Spread(stated, backoff, c.Jitter, rand.Float64())
	if least >= room || c.MaxWait > 0 && least > c.MaxWait {
		if stated > 0 && stated == least {
			return StopRateLimited, stated, false
		}
		return StopRetryExhausted, stated, false
	}
	if c.MaxWait > 0 {
		wait = min(wait, c.MaxWait)
	}
	wait = min(wait, least+(room-least)/2)
	return RetryAllowed, wait, c.RetryBudget > 0 && (stated == 0 || stated < least)
}

// takeToken takes a token for a retry, or counts that there is none.
func (c *policy) takeToken(stats *guardStats, now int64) bool {
	if stats.tokens.Take(c.RetryBudget, c.RetryRefill, now) {
		return true
	}
	stats.exhausted.Add(1)
	return false
}
