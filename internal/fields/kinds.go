package fields

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Field is one field of a configuration. The functions that return a Field, such as
// [Duration], are the kinds of fields that there are. The parameter at is the path
// of the field, for a Problem.
type Field struct {
	name    string
	read    func(p *Problems, at string, data []byte)
	write   func(at string, base Field) ([]byte, error) // no bytes: the key is left out
	check   func(p *Problems, at string)
	resolve func()
	value   any           // pointer to the value
	text    func() string // the value; nil unless it is a single one
}

// Resolve is [Table.Resolve] for a single field.
func (f Field) Resolve() { f.resolve() }

// Rule returns f with a condition that its bounds cannot express, such as one that
// depends on another field. The function right returns what the value should have
// been, or "" if it is right. The field must be a single value, not an object.
func (f Field) Rule(right func() string) Field {
	bounds := f.check
	f.check = func(p *Problems, at string) {
		bounds(p, at)
		if allowed := right(); allowed != "" {
			p.Add(at, f.text(), allowed)
		}
	}
	return f
}

// Duration is a duration from 0 to most, usual if it is zero. In JSON it is a text
// such as "1m30s".
func Duration(name string, d *time.Duration, usual, most time.Duration) Field {
	return number[time.Duration]{
		v: d, usual: usual, json: func(d *time.Duration) any { return (*durationText)(d) }, must: `a duration such as "30s"`,
		allowed: "between 0s and " + most.String(), ok: func(d time.Duration) bool { return d <= most },
	}.field(name)
}

// Count is a whole number that is not negative, usual if it is zero.
func Count(name string, n *int, usual int) Field {
	return count(name, n, usual, "0 or more", func(int) bool { return true })
}

// CountUpTo is a whole number from 0 to most, usual if it is zero.
func CountUpTo(name string, n *int, usual, most int) Field {
	return count(name, n, usual, fmt.Sprintf("between 0 and %d", most), func(n int) bool { return n <= most })
}

func count(name string, n *int, usual int, allowed string, ok func(int) bool) Field {
	return number[int]{
		v: n, usual: usual, json: func(n *int) any { return n }, must: "a whole number", allowed: allowed, ok: ok,
	}.field(name)
}

// Fraction is a number from 0 to 1, usual if it is zero.
func Fraction(name string, f *float64, usual float64) Field {
	return float(name, f, usual, "between 0 and 1", func(f float64) bool { return f <= 1 })
}

// Factor is 0, or a number from 1 to most; usual if it is zero.
func Factor(name string, f *float64, usual, most float64) Field {
	return float(name, f, usual, fmt.Sprintf("0, or between 1 and %v", most),
		func(f float64) bool { return f == 0 || f >= 1 && f <= most })
}

func float(name string, f *float64, usual float64, allowed string, ok func(float64) bool) Field {
	return number[float64]{
		v: f, usual: usual, json: func(f *float64) any { return f }, must: "a number", allowed: allowed, ok: ok,
	}.field(name)
}

// number is a field whose value is a number. Zero stands for usual, Off for zero.
type number[T int | float64 | time.Duration] struct {
	v       *T
	usual   T
	json    func(*T) any // pointer to the same number, as JSON reads and writes it
	must    string       // the type that JSON must have
	allowed string       // the bounds
	ok      func(T) bool // whether a number that is not negative is within them
}

func (n number[T]) field(name string) Field {
	return Field{name: name, read: n.read, write: n.write, check: n.check, resolve: n.resolve, value: n.v, text: n.text}
}

func (n number[T]) text() string {
	switch {
	case *n.v == Off:
		return "off"
	case *n.v == 0 && n.usual != 0:
		return fmt.Sprint("the default ", n.usual)
	}
	return fmt.Sprint(*n.v)
}

func (n number[T]) read(p *Problems, at string, data []byte) {
	if string(data) == "null" {
		return
	}
	var v T
	switch {
	case json.Unmarshal(data, n.json(&v)) != nil:
		p.Add(at, snippet(data), n.must)
	case v < 0:
		p.Add(at, snippet(data), n.allowed)
	case v == 0:
		*n.v = Off
	default:
		*n.v = v
	}
}

func (n number[T]) write(at string, base Field) ([]byte, error) {
	v := *n.v
	if v == *base.value.(*T) {
		return nil, nil
	}
	resolve(&v, n.usual)
	data, err := json.Marshal(n.json(&v))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return data, nil
}

func (n number[T]) check(p *Problems, at string) {
	switch v := *n.v; {
	case v == Off:
	case v < 0:
		p.Add(at, n.text(), n.allowed+", or Off")
	case !n.ok(v): // false for NaN
		p.Add(at, n.text(), n.allowed)
	}
}

func (n number[T]) resolve() { resolve(n.v, n.usual) }

func resolve[T int | float64 | time.Duration](v *T, usual T) {
	switch *v {
	case 0:
		*v = usual
	case Off:
		*v = 0
	}
}

// Bool is true or false.
func Bool(name string, b *bool) Field {
	return Field{
		name: name,
		read: func(p *Problems, at string, data []byte) {
			if json.Unmarshal(data, b) != nil {
				p.Add(at, snippet(data), "true or false")
			}
		},
		write: func(_ string, base Field) ([]byte, error) {
			if *b == *base.value.(*bool) {
				return nil, nil
			}
			return json.Marshal(*b)
		},
		check:   func(*Problems, string) {},
		resolve: func() {},
		value:   b,
		text:    func() string { return fmt.Sprint(*b) },
	}
}

// Text is a text. It is left out of JSON if it is empty.
func Text(name string, text *string) Field {
	f := whole(name, text, `a text such as "a"`, func() bool { return *text == "" })
	f.text = func() string { return fmt.Sprintf("%.80q", *text) }
	return f
}

// Names is a list of names, in JSON an array of texts. It is left out if it is empty.
// An array replaces the whole list.
func Names(name string, list *[]string) Field {
	return whole(name, list, `a list of names such as ["a", "b"]`, func() bool { return len(*list) == 0 })
}

// Texts is texts by name, in JSON an object. It is left out if it is empty. An object
// replaces them all.
func Texts(name string, texts *map[string]string) Field {
	f := whole(name, texts, `an object of texts such as {"team": "search"}`, func() bool { return len(*texts) == 0 })
	read := f.read
	f.read = func(p *Problems, at string, data []byte) {
		before := len(*p)
		if p.object(at, data, Key); len(*p) == before {
			read(p, at, data)
		}
	}
	return f
}

// whole is a value that JSON replaces as a whole.
func whole[T any](name string, v *T, must string, empty func() bool) Field {
	return Field{
		name: name,
		read: func(p *Problems, at string, data []byte) {
			if string(data) == "null" {
				return
			}
			var next T
			if json.Unmarshal(data, &next) != nil {
				p.Add(at, snippet(data), must)
				return
			}
			*v = next
		},
		write: func(string, Field) ([]byte, error) {
			if empty() {
				return nil, nil
			}
			return json.Marshal(*v)
		},
		check:   func(*Problems, string) {},
		resolve: func() {},
		value:   v,
	}
}

// Object is a configuration inside another one. JSON leaves it out if it does not
// differ from base, which has the values that it is read from.
func Object(name string, t, base Table) Field {
	return Field{
		name: name, read: t.read, check: t.check, resolve: t.Resolve,
		write: func(at string, _ Field) ([]byte, error) {
			data, err := t.write(at, base)
			if string(data) == "{}" {
				return nil, err
			}
			return data, err
		},
	}
}

// Optional is a configuration inside another one that may be nil. What is read starts
// from what start returns at that time, and JSON writes what differs from that.
func Optional[T any](name string, c **T, start func() T, table func(*T) Table) Field {
	return Field{
		name: name,
		read: func(p *Problems, at string, data []byte) {
			if string(data) == "null" {
				return
			}
			next := start()
			table(&next).read(p, at, data)
			*c = &next
		},
		write: func(at string, _ Field) ([]byte, error) {
			if *c == nil {
				return nil, nil
			}
			base := start()
			return table(*c).write(at, table(&base))
		},
		check: func(p *Problems, at string) {
			if *c == nil {
				return
			}
			var own, inherited Problems
			base := start()
			table(*c).check(&own, at)
			table(&base).check(&inherited, at)
			for _, problem := range own {
				if !slices.Contains(inherited, problem) { // which is reported where it comes from
					*p = append(*p, problem)
				}
			}
		},
		resolve: func() {},
	}
}

// Map is an object of configurations by name, such as those of single tools. The
// entries that are read replace the map; each starts from the zero T. JSON leaves out
// an empty map.
func Map[T any](name string, m *map[string]T, table func(*T) Table) Field {
	return Field{
		name: name,
		read: func(p *Problems, at string, data []byte) {
			entries := p.object(at, data, Key)
			if entries != nil {
				*m = make(map[string]T, len(entries))
			}
			for _, key := range slices.Sorted(maps.Keys(entries)) {
				var entry T
				table(&entry).read(p, Key(at, key), entries[key])
				(*m)[key] = entry
			}
		},
		write: func(at string, _ Field) ([]byte, error) {
			if len(*m) == 0 {
				return nil, nil
			}
			entries := make(map[string]json.RawMessage, len(*m))
			for _, key := range slices.Sorted(maps.Keys(*m)) {
				entry, base := (*m)[key], *new(T)
				text, err := table(&entry).write(Key(at, key), table(&base))
				if err != nil {
					return nil, err
				}
				entries[key] = text
			}
			return json.Marshal(entries)
		},
		check: func(p *Problems, at string) {
			for _, key := range slices.Sorted(maps.Keys(*m)) {
				if key == "" {
					p.Add(at, `the key ""`, "a name that is not empty")
				}
				entry := (*m)[key]
				table(&entry).check(p, Key(at, key))
			}
		},
		resolve: func() {},
	}
}

// durationText is a duration that JSON writes as "1m30s".
type durationText time.Duration

// MarshalText returns the text of d.
func (d durationText) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (d *durationText) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = durationText(v)
	return err
}
