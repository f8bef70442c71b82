package main

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

func TestChart_IsXMLWithOneLinePerCurveInsideFrame(t *testing.T) {
	c := chart{title: "a < b & c", xLog: true, lines: []line{
		{"one", []float64{10, 1000}, []float64{3, 70}},
		{"two", []float64{10, 1000}, []float64{0, 123456}},
	}}
	seen := make(map[string]int)
	for d := xml.NewDecoder(strings.NewReader(c.svg())); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			seen[e.Name.Local]++
		}
	}
	if seen["polyline"] != 2 || seen["circle"] != 4 {
		t.Errorf("elements: %v", seen)
	}
	for _, v := range []float64{0, 3, 70, 123456} {
		a := newAxis(false, height-bottom, top)
		a.cover(0, 123456)
		a.ticks()
		if y := a.place(v); y < top || y > height-bottom {
			t.Errorf("%v is drawn at %v, outside the frame", v, y)
		}
	}
}
