package watch

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolhealth/toolhealth"
)

// Event is a transition, or a row of probes of one outage that all came to nothing.
//
// What came of a probe takes the place of the event that let it through; and probes that
// led back to open, one after the other, are one event. So a night of outage is two.
type Event struct {
	// Transition is the last one of the row.
	toolhealth.Transition
	// First is when the first one of the row was. It is When if there is one only.
	First time.Time
	// Count is the number of transitions in the row, 1 or more.
	Count int
}

// diary is what was heard. Hooks wait for its lock, so it is held for moments only.
type diary struct {
	mu    sync.Mutex
	all   []*Event // the newest last; at most perWatcher
	tools map[owner]*chapter
	kept  int // events in tools
	heard uint64
}

// owner is a tool or a group, whichever has the breaker.
type owner struct{ tool, group string }

// chapter is the events of one tool, or of one group.
type chapter struct {
	events []*Event  // the newest last
	from   time.Time // when they begin, if some were dropped for want of room
}

// hear is the transition hook.
func (d *diary) hear(t toolhealth.Transition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heard++
	e := &Event{Transition: t, First: t.When, Count: 1}
	of := owner{t.Tool, t.Group}
	if c := d.tools[of]; c != nil {
		d.fold(c, e)
		d.add(c, e)
	} else if len(d.tools) < maxTools {
		c = new(chapter)
		d.add(c, e)
		d.tools[of] = c
	}
	if len(d.all) >= perWatcher {
		d.all = slices.Delete(d.all, 0, len(d.all)-perWatcher+1)
	}
	d.all = append(d.all, e)
}

// fold removes from c, and from all, what the next event says as well.
func (d *diary) fold(c *chapter, e *Event) {
	if last := c.last(); last != nil && last.To == toolhealth.StateHalfOpen {
		d.drop(c)
	}
	if last := c.last(); last != nil && inVain(last) && inVain(e) {
		e.First, e.Count = last.First, last.Count+1
		d.drop(c)
	}
}

// inVain reports whether e is a probe that led back to open.
func inVain(e *Event) bool {
	return e.From == toolhealth.StateHalfOpen && e.To == toolhealth.StateOpen && e.Cause != toolhealth.CauseIsolated
}

// drop removes the last event of c.
func (d *diary) drop(c *chapter) {
	last := c.last()
	c.events = c.events[:len(c.events)-1]
	d.kept--
	for i := len(d.all) - 1; i >= 0; i-- {
		if d.all[i] == last {
			d.all = slices.Delete(d.all, i, i+1)
			return
		}
	}
}

func (c *chapter) last() *Event {
	if len(c.events) == 0 {
		return nil
	}
	return c.events[len(c.events)-1]
}

// add writes an event into c, and drops the oldest if there is no room.
func (d *diary) add(c *chapter, e *Event) {
	room := perTool
	if d.kept >= manyEvents {
		room = fewPerTool
	}
	if old := len(c.events) - room + 1; old > 0 {
		d.cut(c, old)
		c.from = c.events[0].First
	}
	c.events = append(c.events, e)
	d.kept++
}

// cut drops the n oldest events of c.
func (d *diary) cut(c *chapter, n int) {
	c.events = slices.Delete(c.events, 0, n)
	d.kept -= n
}

// forget drops the outages that ended more than an hour ago, and tools and groups that
// are gone. Groups are sorted by name.
func (d *diary) forget(now time.Time, tools map[string]*series, groups []toolhealth.GroupHealth) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for of, c := range d.tools {
		for i := len(c.events) - 1; i >= 0; i-- {
			if e := c.events[i]; e.To == toolhealth.StateClosed && now.Sub(e.When) > hour {
				d.cut(c, i+1)
				break
			}
		}
		known := tools[of.tool] != nil
		if of.group != "" {
			_, known = slices.BinarySearchFunc(groups, of.group, func(g toolhealth.GroupHealth, name string) int {
				return strings.Compare(g.Group, name)
			})
		}
		if !known || len(c.events) == 0 {
			d.cut(c, len(c.events))
			delete(d.tools, of)
		}
	}
}

// read returns all events, the newest first, and how many transitions were heard of.
func (d *diary) read() ([]Event, uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	events := make([]Event, 0, len(d.all))
	for _, e := range slices.Backward(d.all) {
		events = append(events, *e)
	}
	return events, d.heard
}

// number returns how many transitions were heard of.
func (d *diary) number() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.heard
}

// of returns the events of one breaker, the oldest first, and when they begin; zero if
// none were dropped.
func (d *diary) of(of owner) ([]Event, time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.tools[of]
	if c == nil {
		return nil, time.Time{}
	}
	events := make([]Event, 0, len(c.events))
	for _, e := range c.events {
		events = append(events, *e)
	}
	return events, c.from
}
