package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// chart is a line chart.
type chart struct {
	title, xLabel, yLabel string
	xLog, yLog            bool
	xTicks                []tick // none: chosen by the axis
	lines                 []line
}

type line struct {
	name string
	x, y []float64
}

type tick struct {
	at   float64
	text string
}

const (
	width, height            = 760, 420
	left, right, top, bottom = 70, 220, 40, 50
)

// Colors that color-blind readers can tell apart, too.
var colors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#666666", "#e69f00"}

func (c *chart) svg() string {
	xs, ys := newAxis(c.xLog, left, width-right), newAxis(c.yLog, height-bottom, top)
	for _, l := range c.lines {
		xs.cover(l.x...)
		ys.cover(l.y...)
	}
	if !c.yLog {
		ys.cover(0)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	text := func(x, y float64, anchor, more, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, more, html.EscapeString(s))
	}
	rule := func(x1, y1, x2, y2 float64, color string) {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, color)
	}
	text(left, top-16, "start", ` font-weight="bold"`, c.title)
	for _, t := range ys.ticks() {
		y := ys.place(t.at)
		rule(left, y, width-right, y, "#ddd")
		text(left-6, y+4, "end", "", t.text)
	}
	xTicks := c.xTicks
	if xTicks == nil {
		xTicks = xs.ticks()
	}
	for _, t := range xTicks {
		x := xs.place(t.at)
		rule(x, top, x, height-bottom, "#ddd")
		text(x, height-bottom+16, "middle", "", t.text)
	}
	rule(left, height-bottom, width-right, height-bottom, "#000")
	rule(left, top, left, height-bottom, "#000")
	text((left+width-right)/2, height-12, "middle", "", c.xLabel)
	text(16, (top+height-bottom)/2, "middle", fmt.Sprintf(` transform="rotate(-90 16 %d)"`, (top+height-bottom)/2), c.yLabel)
	for i, l := range c.lines {
		color := colors[i%len(colors)]
		var points []string
		for j := range l.x {
			points = append(points, fmt.Sprintf("%.1f,%.1f", xs.place(l.x[j]), ys.place(l.y[j])))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), color)
		for j := range l.x {
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%.4g: %.4g</title></circle>`+"\n",
				xs.place(l.x[j]), ys.place(l.y[j]), color, l.x[j], l.y[j])
		}
		y := float64(top + 12 + 20*i)
		rule(width-right+12, y-4, width-right+32, y-4, color)
		text(width-right+38, y, "start", "", l.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// axis maps values to places in the picture.
type axis struct {
	log      bool
	from, to float64 // in the picture
	min, max float64
}

func newAxis(log bool, from, to float64) *axis {
	return &axis{log: log, from: from, to: to, min: math.Inf(1), max: math.Inf(-1)}
}

func (a *axis) cover(values ...float64) {
	for _, v := range values {
		a.min, a.max = math.Min(a.min, v), math.Max(a.max, v)
	}
}

func (a *axis) place(v float64) float64 {
	low, high := a.min, a.max
	if a.log {
		low, high, v = math.Log10(low), math.Log10(high), math.Log10(v)
	}
	if high == low {
		return a.from
	}
	return a.from + (v-low)/(high-low)*(a.to-a.from)
}

// ticks widens the axis to round values and returns them.
func (a *axis) ticks() (ticks []tick) {
	if a.log {
		low, high := math.Floor(math.Log10(a.min)), math.Ceil(math.Log10(a.max))
		a.min, a.max = math.Pow(10, low), math.Pow(10, high)
		for e := low; e <= high; e++ {
			ticks = append(ticks, tick{math.Pow(10, e), number(math.Pow(10, e))})
		}
		return ticks
	}
	step := math.Pow(10, math.Floor(math.Log10((a.max-a.min)/2)))
	for (a.max-a.min)/step > 10 {
		step *= 2
	}
	a.min, a.max = math.Floor(a.min/step)*step, math.Ceil(a.max/step)*step
	for v := a.min; v <= a.max+step/2; v += step {
		ticks = append(ticks, tick{v, number(v)})
	}
	return ticks
}

// number writes 100000 as 100k.
func number(v float64) string {
	switch {
	case math.Abs(v) >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case math.Abs(v) >= 1e4:
		return fmt.Sprintf("%gk", v/1e3)
	}
	return fmt.Sprintf("%.4g", v)
}
