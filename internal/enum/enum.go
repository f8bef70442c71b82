// Package enum gives the small enumerations of this module stable texts.
package enum

import (
	"fmt"
	"strconv"
)

// Int is the underlying type of an enumeration.
type Int interface{ ~uint8 }

// Text returns the name of v, or "TYPE(n)" for a value without one.
func Text[T Int](typ string, names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return typ + "(" + strconv.Itoa(int(v)) + ")"
}

// Marshal returns the name of v as bytes, or an error for a value without one.
func Marshal[T Int](typ string, names []string, v T) ([]byte, error) {
	if int(v) < len(names) {
		return []byte(names[v]), nil
	}
	return nil, fmt.Errorf("toolhealth: %s: no text for value %d", typ, v)
}

// Unmarshal sets *v to the value whose name is text. An unknown text is an error
// and leaves *v unchanged.
func Unmarshal[T Int](typ string, names []string, text []byte, v *T) error {
	for i, name := range names {
		if name == string(text) {
			*v = T(i)
			return nil
		}
	}
	return fmt.Errorf("toolhealth: %s: unknown text %.40q", typ, text)
}
