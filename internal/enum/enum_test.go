package enum

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

type color uint8

var colors = []string{"red", "green"}

func TestTexts_ValuesAndTextsMatch(t *testing.T) {
	for i, text := range colors {
		assert.Equal(t, text, Text("Color", colors, color(i)))
		got, err := Marshal("Color", colors, color(i))
		assert.NoError(t, err)
		assert.Equal(t, text, string(got))
		back := color(99)
		assert.NoError(t, Unmarshal("Color", colors, got, &back))
		assert.Equal(t, color(i), back)
	}
}

func TestTexts_UnknownValueIsNumberAndError(t *testing.T) {
	assert.Equal(t, "Color(2)", Text("Color", colors, color(2)))
	assert.Equal(t, "Color(255)", Text("Color", colors, color(255)))
	text, err := Marshal("Color", colors, color(2))
	assert.EqualError(t, err, "toolhealth: Color: no text for value 2")
	assert.Nil(t, text)
}

func TestTexts_UnknownTextChangesNothing(t *testing.T) {
	v := color(1)
	for _, text := range []string{"", "Red", "red ", "blue\x00"} {
		assert.ErrorContains(t, Unmarshal("Color", colors, []byte(text), &v), "toolhealth: Color: unknown text \"")
		assert.Equal(t, color(1), v)
	}
	err := Unmarshal("Color", colors, []byte(strings.Repeat("x", 1000)), &v)
	assert.EqualError(t, err, `toolhealth: Color: unknown text "`+strings.Repeat("x", 40)+`"`)
}
