package dashboard

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// number writes a figure as a person wants it.
func number(f float64) string {
	switch {
	case f == 0:
		return "0"
	case f < 0.05:
		return "<0.1"
	case f < 0.95:
		return strconv.FormatFloat(f, 'f', 1, 64)
	case f < 9999.5:
		return strconv.FormatFloat(math.Round(f), 'f', 0, 64)
	case f < 999_950:
		return strconv.FormatFloat(f/1e3, 'f', 1, 64) + "k"
	}
	return strconv.FormatFloat(f/1e6, 'f', 1, 64) + "M"
}

func count(n uint64) string { return number(float64(n)) }

// percent never says 0 % of what is something, or 100 % of what is not all.
func percent(share float64) string {
	p := share * 100
	switch {
	case p <= 0:
		return "0 %"
	case p >= 100:
		return "100 %"
	case p < 0.1:
		return "<0.1 %"
	case p > 99.9:
		return ">99.9 %"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + " %"
}

// span writes a duration to about two digits; "" if there is none.
func span(d time.Duration) string {
	format := func(f float64, digits int, unit string) string {
		return strconv.FormatFloat(f, 'f', digits, 64) + " " + unit
	}
	switch s := d.Seconds(); {
	case d <= 0:
		return ""
	case s < 0.000995:
		return format(s*1e6, 0, "µs")
	case s < 0.00995:
		return format(s*1e3, 1, "ms")
	case s < 0.995:
		return format(s*1e3, 0, "ms")
	case s < 9.95:
		return strings.Replace(format(s, 1, "s"), ".0 ", " ", 1)
	case s < 90:
		return format(s, 0, "s")
	case s/60 < 90:
		return format(s/60, 0, "min")
	case s/3600 < 48:
		return format(s/3600, 0, "h")
	}
	return format(d.Hours()/24, 0, "days")
}

// seconds writes how long something goes on, to the second: what a clock on the page
// goes on counting.
func seconds(d time.Duration) string {
	if d < 90*time.Second {
		return strconv.Itoa(int(math.Ceil(max(d, 0).Seconds()))) + " s"
	}
	return span(d)
}

// ago says how long ago something was.
func ago(d time.Duration) string {
	if d < 5*time.Second {
		return "just now"
	}
	return seconds(d.Truncate(time.Second)) + " ago"
}

func clock(t time.Time) string { return t.Format("15:04:05") }

// plain writes a word of the library as people do.
func plain(word string) string { return strings.ReplaceAll(word, "_", " ") }

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// round leaves one digit after the point.
func round(f float64) float64 { return math.Round(f*10) / 10 }
