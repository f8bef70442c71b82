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
	name  string
	read  func(p *Problems, at string, data []byte)
	write func(at string) ([]byte, error) // no bytes: the key is left out
	check func(p *Problems, at string)
	value func() string // nil if the field is an object
}

// Rule returns f with a condition that its bounds cannot express, such as one that
// depends on another field. The function right returns what the value should have
// been, or "" if it is right. The field must be a single value, not an object.
func (f Field) Rule(right func() string) Field {
	bounds := f.check
	f.check = func(p *Problems, at string) {
		bounds(p, at)
		if allowed := right(); allowed != "" {
			p.Add(at, f.value(), allowed)
		}
	}
	return f
}

// Duration is a duration from 0 to most. In JSON it is a text such as "1m30s".
func Duration(name string, d *time.Duration, most time.Duration) Field {
	return single(name, d, (*durationText)(d), `a duration such as "30s"`,
		"between 0s and "+most.String(), func(d time.Duration) bool { return d >= 0 && d <= most })
}

// DurationOrOff is a Duration that may also be -1ns, which switches its rule off.
func DurationOrOff(name string, d *time.Duration, most time.Duration) Field {
	return single(name, d, (*durationText)(d), `a duration such as "30s"`,
		"between 0s and "+most.String()+", or -1ns for off", func(d time.Duration) bool { return d >= -1 && d <= most })
}

// Count is a whole number that is not negative.
func Count(name string, n *int) Field {
	return single(name, n, n, mustCount, "0 or more", func(n int) bool { return n >= 0 })
}

// CountUpTo is a whole number from 0 to most.
func CountUpTo(name string, n *int, most int) Field {
	return single(name, n, n, mustCount, fmt.Sprintf("between 0 and %d", most),
		func(n int) bool { return n >= 0 && n <= most })
}

// Fraction is a number from 0 to 1.
func Fraction(name string, f *float64) Field {
	return single(name, f, f, mustNumber, "between 0 and 1",
		func(f float64) bool { return f >= 0 && f <= 1 }) // false for NaN
}

// Factor is 0, or a number from 1 to most.
func Factor(name string, f *float64, most float64) Field {
	return single(name, f, f, mustNumber, fmt.Sprintf("0, or between 1 and %v", most),
		func(f float64) bool { return f == 0 || f >= 1 && f <= most })
}

// Bool is true or false.
func Bool(name string, b *bool) Field {
	return single(name, b, b, "true or false", "", func(bool) bool { return true })
}

const (
	mustCount  = "a whole number"
	mustNumber = "a number"
)

// single returns a field of one value. JSON is read and written by way of text,
// which points to the same value as v and must be of the type that must names; ok
// reports whether the value is as allowed says.
func single[T any](name string, v *T, text any, must, allowed string, ok func(T) bool) Field {
	value := func() string { return fmt.Sprint(*v) }
	return Field{
		name: name,
		read: func(p *Problems, at string, data []byte) {
			if json.Unmarshal(data, text) != nil {
				p.Add(at, snippet(data), must)
			}
		},
		write: func(at string) ([]byte, error) {
			data, err := json.Marshal(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", at, err)
			}
			return data, nil
		},
		check: func(p *Problems, at string) {
			if !ok(*v) {
				p.Add(at, value(), allowed)
			}
		},
		value: value,
	}
}

// Object is a configuration inside another one.
func Object(name string, t Table) Field {
	return Field{name: name, read: t.read, write: t.write, check: t.check}
}

// Map is an object of configurations by name, such as those of single tools. Each
// entry that is read starts from what start returns at that time; together they
// replace the map. An empty map is left out of JSON.
func Map[T any](name string, m *map[string]T, start func() T, table func(*T) Table) Field {
	return Field{
		name: name,
		read: func(p *Problems, at string, data []byte) {
			entries := p.object(at, data, Key)
			if entries != nil {
				*m = make(map[string]T, len(entries))
			}
			for _, key := range slices.Sorted(maps.Keys(entries)) {
				entry := start()
				table(&entry).read(p, Key(at, key), entries[key])
				(*m)[key] = entry
			}
		},
		write: func(at string) ([]byte, error) {
			if len(*m) == 0 {
				return nil, nil
			}
			entries := make(map[string]json.RawMessage, len(*m))
			for _, key := range slices.Sorted(maps.Keys(*m)) {
				entry := (*m)[key]
				text, err := table(&entry).write(Key(at, key))
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
	}
}

// durationText is a duration that JSON writes as "1m30s".
type durationText time.Duration

// MarshalText returns the text of d.
func (d durationText) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText is the inverse of MarshalText; after an error d is as it was.
func (d *durationText) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err == nil {
		*d = durationText(v)
	}
	return err
}
