package enum

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

type colour uint8

var colours = []string{"red", "green"}

func TestTexts_ValuesAndTextsMatch(t *testing.T) {
	for i, text := range colours {
		assert.Equal(t, text, Text("Colour", colours, colour(i)))
		got, err := Marshal("Colour", colours, colour(i))
		assert.NoError(t, err)
		assert.Equal(t, text, string(got))
		back := colour(99)
		assert.NoError(t, Unmarshal("Colour", colours, got, &back))
		assert.Equal(t, colour(i), back)
	}
}

func TestTexts_UnknownValueIsNumberAndError(t *testing.T) {
	assert.Equal(t, "Colour(2)", Text("Colour", colours, colour(2)))
	assert.Equal(t, "Colour(255)", Text("Colour", colours, colour(255)))
	text, err := Marshal("Colour", colours, colour(2))
	assert.EqualError(t, err, "toolhealth: Colour: no text for value 2")
	assert.Nil(t, text)
}

func TestTexts_UnknownTextChangesNothing(t *testing.T) {
	v := colour(1)
	for _, text := range []string{"", "Red", "red ", "blue\x00"} {
		assert.ErrorContains(t, Unmarshal("Colour", colours, []byte(text), &v), "toolhealth: Colour: unknown text \"")
		assert.Equal(t, colour(1), v)
	}
	err := Unmarshal("Colour", colours, []byte(strings.Repeat("x", 1000)), &v)
	assert.EqualError(t, err, `toolhealth: Colour: unknown text "`+strings.Repeat("x", 40)+`"`)
}
