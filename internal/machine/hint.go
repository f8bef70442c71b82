package machine

// Hint is what another replica says of a tool.
type Hint uint8

// The hints.
const (
	HintSuspect   Hint = iota // another has seen it fail
	HintDown                  // enough others have
	HintDefer                 // another is probing it
	HintThrottled             // it told another to wait
	HintRecovered             // it works for another
	numHints
)

// Valid reports whether h is a hint.
func (h Hint) Valid() bool { return h < numHints }

// MakesEntry reports whether a tool of which nothing is known gets a breaker because of h.
func (h Hint) MakesEntry() bool { return h == HintDown || h == HintThrottled }

// confirms reports whether a failure of this kind opens a breaker whose tool others
// suspect.
func (k Kind) confirms() bool { return k == Timeout || k == ServerError || k == Connection }

// Suspected reports whether s is closed and a failure at now may open it, because others
// suspect the tool.
func (s *Snapshot) Suspected(now int64) bool { return s.State == Closed && s.doubt > now }

// Reported reports whether s is open, and only others have seen the tool fail.
func (s *Snapshot) Reported() bool { return s.State == Open && s.hearsay }

// heed applies a hint. What is known here weighs more: nothing moves a breaker that is
// half-open or isolated, and nothing closes one.
func (s *Snapshot) heed(ev *Event, now int64) Cause {
	wait := min(max(ev.RetryAfter, 0), s.Params.maxHint)
	if ev.Hint == HintThrottled {
		wait = s.Params.stated(wait)
	}
	switch {
	case s.Params.maxHint == 0, !s.Params.opens() && ev.Hint != HintThrottled:
	case s.State == Closed:
		return s.heedClosed(ev.Hint, wait, now)
	case s.State == Open && !s.isolated:
		s.heedOpen(ev.Hint, wait, now)
	}
	return CauseNone
}

func (s *Snapshot) heedClosed(hint Hint, wait, now int64) Cause {
	until := later(now, s.Params.Cap(wait))
	switch hint {
	case HintSuspect:
		if until := later(now, wait); wait > 0 && until > s.doubt {
			s.doubted = true
			s.amend(func(p *past) { p.doubt = until })
		}
	case HintRecovered:
		s.endDoubt()
	case HintThrottled:
		if until <= now || until <= s.Until {
			return CauseNone
		}
		if s.Until <= now && !s.hearsay { // no throttle of its own
			s.amend(func(p *past) { p.hearsay = true })
		}
		s.Until = until
	case HintDown:
		if until <= now || until <= s.Until { // a throttle that lasts as long says more
			return CauseNone
		}
		if s.proven && now-s.Since < s.Params.maxHint { // a probe of its own says otherwise
			return CauseNone
		}
		s.open(now, wait)
		s.amend(func(p *past) { p.hearsay = true })
		return CauseReported
	}
	return CauseNone
}

func (s *Snapshot) heedOpen(hint Hint, wait, now int64) {
	until := later(now, wait)
	switch hint {
	case HintDown, HintDefer, HintThrottled:
		until = min(until, later(s.Since, s.Params.maxHint))
		if until > now && s.postpone(now, until-now) && hint == HintThrottled {
			s.limited = true
		}
	case HintRecovered:
		if until < s.Until && !s.limited && !s.hurried {
			s.Until = until
			s.amend(func(p *past) { p.hurried = true })
		}
	}
}

// endDoubt ends a suspicion.
func (s *Snapshot) endDoubt() {
	if s.doubted {
		s.doubted = false
		s.amend(func(p *past) { p.doubt = 0 })
	}
}

// endHearsay notes that what holds s back is no longer known from hints only.
func (s *Snapshot) endHearsay() {
	if s.hearsay {
		s.amend(func(p *past) { p.hearsay = false })
	}
}
