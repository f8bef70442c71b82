// Package fields reads, writes, checks and completes the configurations of this
// module.
//
// A configuration declares one [Table]: for each field its name in JSON, a pointer
// to its value, its default and its bounds. The same table serves [Table.Read],
// [Table.JSON], [Table.Check] and [Table.Resolve], so the four cannot disagree. None
// of them stops at the first [Problem].
//
// A number that is zero stands for its default, and -1 ([Off]) switches its rule off.
// In JSON an absent key stands for the default, and an explicit 0 switches off.
package fields

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Problem is one value that a configuration must not have.
type Problem struct {
	Field   string // path of JSON names, such as `tools["search"].probe_timeout`
	Value   string // the value, as it was given
	Allowed string // what would have been right
}

// Problems collects what is wrong with one configuration.
type Problems []Problem

// Add notes one problem.
func (p *Problems) Add(field, value, allowed string) {
	*p = append(*p, Problem{Field: field, Value: value, Allowed: allowed})
}

// Off is the value of a field whose rule is switched off.
const Off = -1

// Table is the fields of one configuration, in the order in which they are read,
// written and checked.
type Table []Field

// Read fills in the fields from a JSON object, in the order of the table: a field
// can start from one before it. An absent key, or null, leaves its field as it was.
// An unknown key, a key that is given twice, and a value of another type are
// problems; if there are any, some fields may have changed.
func (t Table) Read(data []byte) Problems {
	var p Problems
	if json.Valid(data) {
		t.read(&p, "", data)
	} else {
		p.notAnObject("", data)
	}
	return p
}

// JSON returns a JSON object of the fields that differ from those of base, in the
// order of the table. The two are tables of the same configuration: base has the
// values that Read starts from.
func (t Table) JSON(base Table) ([]byte, error) { return t.write("", base) }

// Rule adds a condition to the field of this name; see [Field.Rule].
func (t Table) Rule(name string, right func() string) Table {
	for i := range t {
		if t[i].name == name {
			t[i] = t[i].Rule(right)
		}
	}
	return t
}

// Resolve puts the default into each number that is zero, and zero into each that is
// Off. After it, zero means off.
func (t Table) Resolve() {
	for _, f := range t {
		f.resolve()
	}
}

// Check compares each field with its bounds.
func (t Table) Check() Problems {
	var p Problems
	t.check(&p, "")
	return p
}

func (t Table) read(p *Problems, at string, data []byte) {
	values := p.object(at, data, member)
	for _, f := range t {
		if value, ok := values[f.name]; ok {
			f.read(p, join(at, f.name), value)
			delete(values, f.name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		p.Add(member(at, key), "unknown", "one of "+t.names())
	}
}

func (t Table) write(at string, base Table) ([]byte, error) {
	var members []string
	for i, f := range t {
		value, err := f.write(join(at, f.name), base[i])
		if err != nil {
			return nil, err
		}
		if value != nil {
			members = append(members, fmt.Sprintf("%q:%s", f.name, value))
		}
	}
	return []byte("{" + strings.Join(members, ",") + "}"), nil
}

func (t Table) check(p *Problems, at string) {
	for _, f := range t {
		f.check(p, join(at, f.name))
	}
}

func (t Table) names() string {
	names := make([]string, len(t))
	for i, f := range t {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

// object splits a JSON object, and returns nil for null. Anything else, and a key
// that is given twice, are problems; path makes the path of a key.
func (p *Problems) object(at string, data []byte, path func(at, key string) string) map[string]json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(data)) // cannot fail: the JSON is valid, and no number is converted
	d.UseNumber()
	switch first, _ := d.Token(); first {
	case json.Delim('{'):
	case nil:
		return nil
	default:
		p.notAnObject(at, data)
		return nil
	}
	values := make(map[string]json.RawMessage)
	for d.More() {
		token, _ := d.Token()
		key := token.(string)
		if _, twice := values[key]; twice {
			p.Add(path(at, key), "given twice", "given once")
		}
		var value json.RawMessage
		_ = d.Decode(&value)
		values[key] = value
	}
	return values
}

func (p *Problems) notAnObject(at string, data []byte) {
	p.Add(cmp.Or(at, "the configuration"), snippet(data), "an object")
}

// Key returns the path of an entry of a map: `tools["search"]`. A long key is cut.
func Key(at, key string) string { return fmt.Sprintf("%s[%.80q]", at, key) }

// join returns the path of a field of an object: "breaker.probe_timeout".
func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// member is join for a name that may be any text: it is escaped, and cut if long.
func member(at, key string) string {
	quoted := fmt.Sprintf("%.80q", key)
	return join(at, cmp.Or(quoted[1:len(quoted)-1], quoted))
}

// snippet returns the beginning of some JSON, fit for one line of a log.
func snippet(data []byte) string {
	words := strings.Fields(fmt.Sprintf("%.80s", bytes.TrimSpace(data)))
	text := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, strings.Join(words, " "))
	return cmp.Or(text, "empty")
}
