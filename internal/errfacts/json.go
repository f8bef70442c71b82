package errfacts

import (
	"iter"
	"reflect"
	"strings"
)

// maxBody bounds how much of a body or a text is searched.
const maxBody = 4096

// jsonValues returns the texts and numbers that a key, given in quotes, has
// anywhere in a text that is JSON or has JSON in it. What is no JSON harms nothing.
func jsonValues(text, key string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for {
			_, after, found := strings.Cut(text, key)
			if !found {
				return
			}
			text = after
			value, isValue := strings.CutPrefix(strings.TrimLeft(after, " \t\r\n"), ":")
			if !isValue {
				continue
			}
			value = strings.TrimLeft(value, " \t\r\n")
			end := strings.IndexAny(value, ",}] \t\r\n")
			if strings.HasPrefix(value, `"`) {
				value = value[1:]
				end = strings.IndexByte(value, '"')
			}
			if end >= 0 && !yield(value[:end]) {
				return
			}
		}
	}
}

// codeInJSON is the first code in the JSON of an answer that says more than a
// status.
func codeInJSON(text string) Meaning {
	for _, key := range [...]string{`"reason"`, `"code"`, `"type"`, `"error"`} {
		for value := range jsonValues(text, key) {
			if m := ofCode(value); m != Unknown {
				return m
			}
		}
	}
	return Unknown
}

// codeInStream is the fact of the code in an event of a stream, which is JSON or a
// map as fmt prints it.
func codeInStream(text string, otherwise Fact) Fact {
	if m := codeInJSON(text); m != Unknown {
		return Fact{Class: Coded, Code: int(m)}
	}
	for _, key := range [...]string{`"code"`, `"type"`} {
		for value := range jsonValues(text, key) {
			if f := bareCodes[value]; f.Class != None {
				return f
			}
		}
	}
	if _, after, ok := strings.Cut(text, " type:"); ok {
		value := after[:max(strings.IndexAny(after, " ]"), 0)]
		if m := ofCode(value); m != Unknown {
			return Fact{Class: Coded, Code: int(m)}
		}
		if f := bareCodes[value]; f.Class != None {
			return f
		}
	}
	return otherwise
}

// bodyFields adds the questions to what an error keeps of the answer's body.
func (s *shape) bodyFields(t reflect.Type) {
	for _, name := range [...]string{"Body", "Data"} {
		p, typ := findPath(t, name)
		switch {
		case p == nil:
		case typ.Kind() == reflect.String:
			s.bodies = append(s.bodies, at(p, func(v reflect.Value, _ error) string { return v.String() }))
		case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Uint8:
			s.bodies = append(s.bodies, at(p, func(v reflect.Value, _ error) string {
				b := v.Bytes()
				return string(b[:min(len(b), maxBody)])
			}))
		}
	}
	if len(s.codes) == 0 { // they have the same that is in the JSON
		can(&s.bodies, t, func(e interface{ RawJSON() string }) string { return e.RawJSON() })
	}
}
