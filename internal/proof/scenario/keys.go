package scenario

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth"
)

// keyValue is one KEY=VALUE. The type of the value is the key's: bool, uint64,
// float64, time.Duration or string.
type keyValue struct {
	key   string
	value any
}

func valueOf[T any](pairs []keyValue, key string) (v T, ok bool) {
	for _, p := range pairs {
		if p.key == key {
			return p.value.(T), true
		}
	}
	return v, false
}

// pairReader returns the value of a key, or an error if there is no such key or value.
type pairReader func(key, text string) (any, error)

// readPairs reads words as KEY=VALUE, each key at most once.
func readPairs(words []string, read pairReader) (pairs []keyValue, err error) {
	for _, word := range words {
		key, text, found := strings.Cut(word, "=")
		if !found {
			return nil, fmt.Errorf("%q is not KEY=VALUE", word)
		}
		if slices.ContainsFunc(pairs, func(p keyValue) bool { return p.key == key }) {
			return nil, fmt.Errorf("key %q twice", key)
		}
		value, err := read(key, text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", word, err)
		}
		pairs = append(pairs, keyValue{key, value})
	}
	return pairs, nil
}

// keyTable has the keys of a verb or of its answer, and how their values are read.
type keyTable map[string]valueReader

// valueReader returns the value of a text.
type valueReader func(string) (any, error)

func (t keyTable) read(key, text string) (any, error) {
	reader := t[key]
	if reader == nil {
		return nil, fmt.Errorf("unknown key, known are %v", slices.Sorted(maps.Keys(t)))
	}
	return reader(text)
}

var (
	doneKeys = keyTable{
		"kind": readText[toolhealth.Kind], "retry_after": readDuration, "not_sent": readBool,
	}
	restartKeys  = keyTable{"after": readDuration}
	operatorKeys = keyTable{"by": readName}
	waitKeys     = keyTable{"retry_after": readDuration}
	countKeys    = keyTable{"admitted": readCount, "probe": readCount, "refused": readCount}
	healthKeys   = keyTable{
		"state": readText[toolhealth.State], "status": readText[toolhealth.HealthStatus],
		"available": readBool, "probe_due": readBool, "retry_after": readDuration, "reason": readReason,
		"score": readFloat, "ewma": readFloat, "success_rate": readFloat,
		"calls": readCount, "successes": readCount, "failures": readCount, "rejected": readCount,
		"throttled": readCount, "neutral": readCount, "refused": readCount,
		"consecutive_failures": readCount, "trips": readCount, "would_refuse": readCount, "rejected_in_row": readCount, "refused_in_row": readCount,
		"average": readDuration, "average_success": readDuration, "max": readDuration,
		"group": readName, "isolated_by": readName, "down_for": readDuration, "last_failure": readText[toolhealth.Kind],
		"refused_rate_limited": readCount, "refused_circuit_open": readCount,
	}
	groupKeys = keyTable{
		"state": readText[toolhealth.State], "available": readBool, "reason": readReason, "retry_after": readDuration,
		"consecutive_failures": readCount, "tools": readCount,
	}
	summaryKeys = keyTable{
		"overall": readText[toolhealth.HealthStatus], "tools": readCount, "unavailable": readCount,
		"untracked": readCount,
	}
	callKeys   = keyTable{"deadline": readDuration}
	resultKeys = keyTable{
		"attempts": readCount, "ran": readName, "served": readName, "kind": readText[toolhealth.Kind],
		"elapsed": readDuration, "retry_after": readDuration, "partial": readBool,
	}
)

func readCount(s string) (any, error)            { return checked(strconv.ParseUint(s, 10, 64)) }
func readFloat(s string) (any, error)            { return checked(strconv.ParseFloat(s, 64)) }
func readDuration(s string) (any, error)         { return checked(time.ParseDuration(s)) }
func readName(s string) (any, error)             { return s, nil }
func checked[T any](v T, err error) (any, error) { return v, err }

func readBool(s string) (any, error) {
	switch s {
	case "true", "false":
		return s == "true", nil
	}
	return nil, errors.New("must be true or false")
}

// readText reads one of the library's stable texts and keeps it as a text.
func readText[T any, P interface {
	*T
	UnmarshalText([]byte) error
}](s string) (any, error) {
	var v T
	return s, P(&v).UnmarshalText([]byte(s))
}

// refusalReasons are the reasons that a gate can give: the parts of their stop
// reasons after the colon.
var refusalReasons = func() (words []string) {
	for r := toolhealth.StopCircuitOpen; r <= toolhealth.StopUnknownTool; r++ {
		words = append(words, r.Detail())
	}
	return words
}()

func readReason(s string) (any, error) {
	if s != "none" && !slices.Contains(refusalReasons, s) {
		return nil, fmt.Errorf("must be none or one of %v", refusalReasons)
	}
	return s, nil
}
