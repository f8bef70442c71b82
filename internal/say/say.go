// Package say makes text of foreign origin fit to be shown: the words of a tool, which
// a model or a terminal is about to read.
package say

import (
	"strings"
	"unicode"
)

// maxRead bounds the work for a text: what comes after so many bytes is dropped.
const maxRead = 16 << 10

// Line returns text as one line of at most limit characters, the last of them "…" if
// something was cut off. Control characters become spaces, invisible ones go, runs of
// spaces become one, bytes that are no UTF-8 become U+FFFD, and each URL becomes [URL]:
// it may hold a host name or a key.
func Line(text string, limit int) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxRead)], "\uFFFD")
	text = withoutURLs(strings.Map(visible, text))
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:max(limit-1, 0)]) + "…"
	}
	return text
}

// visible returns what stands for r in a line; -1 means nothing.
func visible(r rune) rune {
	switch {
	case unicode.IsControl(r):
		return ' '
	case unicode.Is(unicode.Cf, r): // of no width, or a change of direction
		return -1
	}
	return r
}

// withoutURLs replaces each URL. One in a JSON text may have its slashes escaped.
func withoutURLs(text string) string {
	var b strings.Builder
	for {
		colon := strings.Index(text, "://")
		if escaped := strings.Index(text, `:\/\/`); colon < 0 || escaped >= 0 && escaped < colon {
			colon = escaped
		}
		if colon < 0 {
			b.WriteString(text)
			return b.String()
		}
		start := len(strings.TrimRightFunc(text[:colon], inScheme))
		end := len(text)
		if length := strings.IndexFunc(text[colon:], endsURL); length >= 0 {
			end = colon + length
		}
		// A sentence may go on behind the URL: what closes it is no part of the URL.
		end = len(strings.TrimRight(text[:end], `.,;:!?)]}'\`)) // keeps the slashes, at least
		b.WriteString(text[:start])
		b.WriteString("[URL]")
		text = text[end:]
	}
}

func inScheme(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("+-.", r)
}

func endsURL(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("\"<>`", r) }
