package machine

import "math"

// Saved is what is worth keeping of a snapshot while its process is away: what is known
// against the tool. Durations are relative to the time of the event, and not negative.
type Saved struct {
	State    State // Open also for a breaker that was half-open: its probe has gone with its process
	Kind     Kind  // of the last failure that counted
	Isolated bool  // open
	Limited  bool  // open: Wait comes from a stated wait
	Hearsay  bool  // only a hint says so
	Streak   int32
	Failed   uint32 // failed probes in a row
	Learned  int64  // the shortest lease of the next probe, from late successes
	Age      int64  // since the state began; closed: since the last failure
	Down     int64  // open: since the breaker left closed
	Wait     int64  // closed: the rest of a throttle; open: until the next probe is due
}

// downBefore returns how long before the present state the breaker left closed.
func (d *Saved) downBefore() int64 {
	if d == nil {
		return 0
	}
	return min(max(d.Down-d.Age, 0), int64(MaxDuration))
}

// Worth reports whether there is anything in d that is worth keeping.
func (d Saved) Worth() bool { return d.State != Closed || d.Streak > 0 || d.Wait > 0 || d.Learned > 0 }

// Save returns what is worth keeping of s at now.
func (s *Snapshot) Save(now int64) Saved {
	seen := s.AsOf(now)
	d := Saved{State: seen.State, Kind: seen.Kind, Isolated: seen.isolated, Limited: seen.limited, Streak: seen.Streak, Learned: seen.learned}
	switch seen.State {
	case Closed:
		d.Wait = max(seen.Until-now, 0)
		if d.Streak > 0 {
			d.Age = max(now-seen.failedAt, 0)
		}
		d.Hearsay = seen.hearsay && d.Wait > 0
		return d
	case HalfOpen:
		d.State = Open
	case Open:
		d.Hearsay = seen.hearsay
		if !d.Isolated {
			d.Wait = max(seen.Until-now, 0)
		}
	}
	d.Failed, d.Age, d.Down = seen.failed, max(now-seen.Since, 0), max(now-seen.DownSince, 0)
	return d
}

// After returns what d is when away more has passed.
func (d Saved) After(away int64) Saved {
	d.Age, d.Down = later(d.Age, away), later(d.Down, away)
	d.Wait = max(d.Wait-away, 0)
	return d
}

// Fresh reports whether nothing was ever noted in s.
func (s *Snapshot) Fresh() bool {
	known := *s
	known.past = s.Params.Initial.past
	return known == *s.Params.Initial && *s.past == *known.past
}

// restore puts what was known before a restart in the place of a fresh snapshot. Where
// anything is known already it changes nothing.
func (s *Snapshot) restore(d *Saved, now int64) Cause {
	p := s.Params
	if !s.Fresh() || d.Hearsay && p.maxHint == 0 {
		return CauseNone
	}
	if d.State == Closed && !d.Isolated {
		s.restoreClosed(d, now)
		return CauseNone
	}
	if !d.Isolated && !p.opens() {
		return CauseNone
	}
	age := min(d.Age, int64(MaxDuration))
	wait := min(p.Cap(d.Wait), int64(MaxDuration))
	if p.maxOpen > 0 {
		wait = min(wait, max(p.maxOpen-age, 0))
	}
	if d.Hearsay {
		wait = min(wait, max(p.maxHint-age, 0))
	}
	if d.Isolated {
		wait = 0
	}
	s.begin(Open, now-age, later(now, wait))
	s.isolated, s.limited = d.Isolated, d.Limited && wait > 0
	s.Streak, s.Kind = d.Streak, d.Kind
	s.amend(func(past *past) {
		past.failed, past.learned = d.Failed, p.learnable(d.Learned)
		past.hearsay = d.Hearsay && !d.Isolated
	})
	return CauseRestored
}

func (s *Snapshot) restoreClosed(d *Saved, now int64) {
	p := s.Params
	if d.Streak > 0 {
		s.Streak, s.Kind, s.failedAt = d.Streak, d.Kind, now-min(d.Age, int64(MaxDuration))
		if p.threshold > 0 { // only a failure opens
			s.Streak = min(s.Streak, int32(min(p.threshold-1, math.MaxInt32)))
		}
	}
	wait := p.stated(min(d.Wait, int64(MaxDuration)))
	if d.Hearsay {
		wait = min(wait, p.maxHint)
	}
	if wait > 0 {
		s.Until = later(now, wait)
	}
	learned, hearsay := p.learnable(d.Learned), d.Hearsay && wait > 0
	if learned > 0 || hearsay {
		s.amend(func(past *past) { past.learned, past.hearsay = learned, hearsay })
	}
}
