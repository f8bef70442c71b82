package toolhealth

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/toolhealth/toolhealth/internal/machine"
)

// ErrCheckpoint is the error of Restore for bytes that no Checkpoint has written, or that
// have changed since.
var ErrCheckpoint = errors.New("toolhealth: checkpoint")

const (
	checkpointSchema = 1
	// maxCheckpoint is the bound on the size of a checkpoint, in bytes.
	maxCheckpoint = 16 << 20
	// maxSavedName is the length of the longest name that is kept, in bytes.
	maxSavedName = 1 << 10
)

// checkpointJSON is a checkpoint as JSON has it. The sum comes last.
type checkpointJSON struct {
	Schema int              `json:"schema"`
	At     time.Time        `json:"at"`
	Tools  []checkpointItem `json:"tools"`
	Groups []checkpointItem `json:"groups,omitempty"`
	Sum    *string          `json:"sum,omitempty"`
}

// checkpointItem is what is known against one tool or group, in durations before and
// after At.
type checkpointItem struct {
	Tool       string  `json:"tool,omitempty"`
	Group      string  `json:"group,omitempty"`
	Bytes      []byte  `json:"name_base64,omitempty"` // instead, if the name is not UTF-8
	State      State   `json:"state"`
	Isolated   bool    `json:"isolated,omitempty"`
	IsolatedBy string  `json:"isolated_by,omitempty"`
	Limited    bool    `json:"limited,omitempty"`
	Reported   bool    `json:"reported,omitempty"`
	Age        seconds `json:"age_seconds,omitempty"`
	Down       seconds `json:"down_seconds,omitempty"` // absent if it is the age
	Wait       seconds `json:"wait_seconds,omitempty"`
	Streak     int32   `json:"streak,omitempty"`
	Kind       Kind    `json:"kind,omitempty"`
	Failed     uint32  `json:"failed_probes,omitempty"`
	Learned    seconds `json:"learned_lease_seconds,omitempty"`
}

// Checkpoint writes what is known against tools and groups as one line of JSON, for
// [Registry.Restore] after a restart: isolations with their operators, open breakers and their rest,
// throttles, streaks, failed probes and learned leases. What is known in favor of tools is
// not in it: counters, scores and budgets begin anew with a process. A breaker that is
// half-open is written as an open one whose probe is due, as its probe ends with the
// process. A name of more than 1,024 bytes is left out.
//
// It is as long as there are tools with something against them: 62 bytes and a sum if all
// is well, about 150 bytes a tool. More than 16 MiB are an error. It takes no lock, delays
// no call, and calls w.Write once. A nil or zero registry writes a checkpoint without
// tools.
func (r *Registry) Checkpoint(w io.Writer) error {
	c := checkpointJSON{Schema: checkpointSchema, At: time.Now().UTC(), Tools: []checkpointItem{}}
	if !r.inert() {
		now := r.now()
		for _, n := range r.sorted() {
			e := &n.Value
			if t, ok := saved(e.snap.Load(), now, e.isolatedBy); ok && t.identify(&t.Tool, n.Name()) {
				c.Tools = append(c.Tools, t)
			}
		}
		for n := range r.groups.All() {
			g := &n.Value
			if t, ok := saved(g.snap.Load(), now, g.isolator.of); ok && t.identify(&t.Group, g.name) {
				c.Groups = append(c.Groups, t)
			}
		}
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	text = sealed(text)
	if len(text) > maxCheckpoint {
		return fmt.Errorf("%w: has %d bytes, %d are allowed", ErrCheckpoint, len(text), maxCheckpoint)
	}
	_, err = w.Write(text)
	return err
}

// identify names t in its field of that, and reports false if the name is too long.
func (t *checkpointItem) identify(field *string, name string) bool {
	if *field = name; !utf8.ValidString(name) {
		*field, t.Bytes = "", []byte(name)
	}
	return len(name) <= maxSavedName
}

// saved returns what is worth keeping of a breaker, without its name, and false if that
// is nothing. by says who isolated it.
func saved(s *machine.Snapshot, now int64, by func(epoch uint64) string) (t checkpointItem, ok bool) {
	d := s.Save(now)
	if s.Evicted || !d.Worth() {
		return t, false
	}
	t = checkpointItem{
		State: State(d.State), Isolated: d.Isolated, Limited: d.Limited, Reported: d.Hearsay,
		Age: seconds(d.Age), Down: seconds(d.Down), Wait: seconds(d.Wait), Streak: d.Streak, Kind: Kind(d.Kind),
		Failed: d.Failed, Learned: seconds(d.Learned),
	}
	if t.Down == t.Age {
		t.Down = 0
	}
	if d.Isolated {
		t.IsolatedBy = by(s.Epoch)
	}
	return t, true
}

// sealBefore comes before the sum of a checkpoint.
const sealBefore = `,"sum":"`

// checkpointSum returns the sum of a checkpoint's text.
func checkpointSum(text []byte) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE(text)) }

// sealed returns a JSON object with its sum as the last key.
func sealed(object []byte) []byte {
	body := object[:len(object)-1]
	return append(body, sealBefore+checkpointSum(body)+"\"}\n"...)
}

// Restored says what became of a checkpoint.
type Restored struct {
	Age      time.Duration // since it was written, by the wall clock; 0 if that went back
	Tools    int           // tools that are again what they were
	Groups   int           // groups that are
	Isolated int           // of Tools and Groups, those that an operator holds
	Stale    int           // left out, because they are too old to say anything
	Skipped  int           // left out, because the tool is unknown, anything is known of it already, there is no room, or no rule opens it
}

// Restore reads what Checkpoint wrote. Call it before there is traffic.
//
// A wait goes on as if the process had run meanwhile, by the wall clock; if that went
// back, no time has passed. A wait that is over leaves an open breaker whose next caller
// is the probe. Waits are bounded by the present configuration, as if they began here.
// What is older than MaxOpenDuration, or 10m if that is off, and than its own wait says
// nothing any more; an operator's Isolate stays. A tool of which anything is known here
// is left alone. Each breaker that opens is told to hooks, with CauseRestored.
//
// Bytes that are cut, changed, of another schema or more than 16 MiB are an
// [ErrCheckpoint], and nothing has changed then; any other error is rd's. A checkpoint
// may be written by hand, too: then leave out the sum. A nil or zero registry takes
// nothing.
func (r *Registry) Restore(rd io.Reader) (Restored, error) {
	c, err := readCheckpoint(rd)
	if err != nil {
		return Restored{}, err
	}
	res := Restored{Age: max(time.Since(c.At), 0)}
	if r.inert() {
		res.Skipped = len(c.Tools) + len(c.Groups)
		return res, nil
	}
	for _, t := range byWeight(c.Groups) {
		r.restoreGroup(&t, &res)
	}
	for _, t := range byWeight(c.Tools) {
		r.restoreTool(&t, &res)
	}
	return res, nil
}

// byWeight sorts items: what is isolated first, then what is open.
func byWeight(all []checkpointItem) []checkpointItem {
	weight := func(t *checkpointItem) int {
		switch {
		case t.Isolated:
			return 0
		case t.State != StateClosed:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(all, func(a, b checkpointItem) int { return weight(&a) - weight(&b) })
	return all
}

// readCheckpoint reads a whole checkpoint and checks every part of it.
func readCheckpoint(rd io.Reader) (c checkpointJSON, err error) {
	text, err := io.ReadAll(io.LimitReader(rd, int64(maxCheckpoint)+1))
	switch {
	case err != nil:
		return c, err
	case len(text) > maxCheckpoint:
		return c, fmt.Errorf("%w: more than %d bytes", ErrCheckpoint, maxCheckpoint)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	switch end := bytes.LastIndex(text, []byte(sealBefore)); {
	case c.Schema != checkpointSchema:
		return c, fmt.Errorf("%w: schema is %d, must be %d", ErrCheckpoint, c.Schema, checkpointSchema)
	case c.Sum != nil && (end < 0 || checkpointSum(text[:end]) != *c.Sum):
		return c, fmt.Errorf("%w: the sum does not fit, so something in it has changed", ErrCheckpoint)
	}
	for i := range c.Tools {
		if problem := c.Tools[i].check("tool", c.Tools[i].Group); problem != "" {
			return c, fmt.Errorf("%w: tools[%d]: %s", ErrCheckpoint, i, problem)
		}
	}
	for i := range c.Groups {
		if problem := c.Groups[i].check("group", c.Groups[i].Tool); problem != "" {
			return c, fmt.Errorf("%w: groups[%d]: %s", ErrCheckpoint, i, problem)
		}
	}
	return c, nil
}

// name returns the name of the tool or the group.
func (t *checkpointItem) name() string {
	if len(t.Bytes) > 0 {
		return string(t.Bytes)
	}
	return cmp.Or(t.Tool, t.Group)
}

// check returns what is wrong with t, which is a tool or a group, "" if nothing is. other
// is the name that it must not have.
func (t *checkpointItem) check(what, other string) string {
	switch name := t.name(); {
	case other != "":
		return fmt.Sprintf("%.80q is no name of a %s", other, what)
	case name == "" || len(name) > maxSavedName:
		return fmt.Sprintf("%s has %d bytes, must have 1 to %d", what, len(name), maxSavedName)
	case min(t.Age, t.Down, t.Wait, t.Learned) < 0:
		return "a duration is negative"
	case t.Streak < 0:
		return fmt.Sprintf("streak is %d, must be 0 or more", t.Streak)
	case t.Isolated && t.State == StateClosed:
		return "isolated, and state is closed"
	}
	return ""
}

// saved returns t as the machine knows it, after the time away.
func (t *checkpointItem) saved(away time.Duration) machine.Saved {
	d := machine.Saved{
		State: machine.State(t.State), Isolated: t.Isolated, Limited: t.Limited, Hearsay: t.Reported,
		Age: int64(t.Age), Down: int64(max(t.Down, t.Age)), Wait: int64(t.Wait), Streak: t.Streak, Kind: machine.Kind(t.Kind),
		Failed: t.Failed, Learned: int64(t.Learned),
	}
	return d.After(int64(away))
}

// event returns the event that makes a breaker under p again what it was; nil, and counts
// why, if there is none.
func (t *checkpointItem) event(p *machine.Params, now int64, res *Restored) *machine.Event {
	saved := t.saved(res.Age)
	tooOld := res.Age > time.Duration(max(p.Patience(), int64(t.Wait)))
	if !saved.Worth() || tooOld && !t.Isolated {
		res.Stale++
		return nil
	}
	ev := &machine.Event{Op: machine.OpRestore, Saved: &saved}
	if next, _ := machine.Step(p.Initial, ev, now); next == p.Initial {
		res.Skipped++
		return nil
	}
	return ev
}

// restoreTool gives one tool back what it was, and counts it.
func (r *Registry) restoreTool(t *checkpointItem, res *Restored) {
	name, now := t.name(), r.now()
	ev := t.event(r.params(name), now, res)
	for ev != nil {
		n, _ := r.entry(name, now)
		if n == nil || !n.Value.snap.Load().Fresh() || n.Value.stats.ended() > 0 {
			res.Skipped++
			return
		}
		a, ok := r.change(n, ev, now)
		if !ok {
			continue // it has just been evicted
		}
		if t.State != StateClosed && len(a.Changes) == 0 { // a call was quicker
			res.Skipped++
			return
		}
		n.Value.seen.Store(now)
		res.Tools++
		if t.Isolated {
			res.Isolated++
			n.Value.asides().isolator.note(isolation{a.Epoch, t.IsolatedBy})
		}
		n.Value.deliver(&a, owner{tool: n.Name()}, "", r.base, &r.hooks)
		return
	}
}

// restoreGroup is restoreTool for a group, which need not have tools yet.
func (r *Registry) restoreGroup(t *checkpointItem, res *Restored) {
	now := r.now()
	ev := t.event(r.conf.Load().groupBreaker, now, res)
	for ev != nil {
		g := r.vacantGroup(t.name())
		if g == nil || !g.snap.Load().Fresh() {
			res.Skipped++
			return
		}
		var a machine.Answer
		if !g.apply(ev, now, nil, &a) {
			continue // it has just left
		}
		if t.State != StateClosed && len(a.Changes) == 0 {
			res.Skipped++
			return
		}
		res.Groups++
		if t.Isolated {
			res.Isolated++
			g.isolator.note(isolation{a.Epoch, t.IsolatedBy})
		}
		g.deliver(&a, owner{group: g.name}, "", r.base, &r.hooks)
		return
	}
}

// params returns what applies to a tool.
func (r *Registry) params(tool string) *machine.Params {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.paramsOf(tool, r.conf.Load())
}
