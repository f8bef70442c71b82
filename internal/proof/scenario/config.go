package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolhealth/toolhealth"
)

// The keys of config, reconfigure, guard and tool are those of the JSON form of
// Settings. Such a line is turned into JSON, so that the library itself says which keys
// and values there are.

var (
	// registryKeys are the keys of config and reconfigure that are not BreakerConfig's.
	registryKeys = []string{"max_tools", "registered_only", "group_separator", "group_server_errors"}
	// policyKeys are the keys of tool that are of its policy; all others are of its
	// breaker.
	policyKeys = []string{"max_attempts", "timeout", "max_duration", "side_effects", "detach"}
	// guardKeys are the keys of guard.
	guardKeys = []string{
		"max_attempts", "timeout", "max_duration", "backoff_base", "backoff_max", "jitter", "max_wait", "budget", "retry_refill",
		"deadline_floor",
	}
)

// object is a JSON object.
type object map[string]any

// readInto changes the settings as the object says.
func (o object) readInto(s *toolhealth.Settings) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, s)
}

// usualSettings are those of a scenario that says nothing: the default, but attempts
// have no time limit.
func usualSettings() toolhealth.Settings {
	return toolhealth.Settings{Policy: toolhealth.Policy{Timeout: toolhealth.Off}}
}

// split returns the settings as two objects: those with one of the keys, and the others.
func split(set []keyValue, keys []string) (with, without object) {
	with, without = object{}, object{}
	for _, s := range set {
		o := without
		if slices.Contains(keys, s.key) {
			o = with
		}
		o[s.key] = jsonValue(s.value.(string))
	}
	return with, without
}

// jsonValue writes a setting as JSON: a number, true or false as it stands, anything
// else as a text.
func jsonValue(text string) any {
	switch {
	case text == "true", text == "false":
		return text == "true"
	case text != "" && (text[0] == '-' || '0' <= text[0] && text[0] <= '9') && json.Valid([]byte(text)):
		return json.RawMessage(text)
	}
	return text
}

// configureRegistry changes s by the settings of config or reconfigure.
func configureRegistry(s *toolhealth.Settings, set []keyValue) error {
	whole, breaker := split(set, registryKeys)
	whole["breaker"] = breaker
	return whole.readInto(s)
}

// configureGroups changes s by the settings of group.
func configureGroups(s *toolhealth.Settings, set []keyValue) error {
	_, breaker := split(set, nil)
	return object{"group_breaker": breaker}.readInto(s)
}

// configureGuard changes s by the settings of guard.
func configureGuard(s *toolhealth.Settings, set []keyValue) error {
	whole, policy := split(set, []string{"deadline_floor"})
	if budget, ok := policy["budget"]; ok {
		policy["retry_budget"] = budget
		delete(policy, "budget")
	}
	whole["policy"] = policy
	return whole.readInto(s)
}

// configureTool changes s by the settings of tool.
func configureTool(s *toolhealth.Settings, tool string, set []keyValue) error {
	policy, breaker := split(set, policyKeys)
	own := object{}
	if len(policy) > 0 {
		own["policy"] = policy
	}
	if len(breaker) > 0 {
		own["breaker"] = breaker
	}
	others := s.Tools
	if err := (object{"tools": object{tool: own}}).readInto(s); err != nil {
		return err
	}
	for name, other := range others {
		if name != tool {
			s.Tools[name] = other
		}
	}
	return nil
}

// configure reads a config or reconfigure line.
func (l *lineReader) configure() error {
	settings := usualSettings()
	err := l.settings(nil, func(set []keyValue) error { return configureRegistry(&settings, set) })
	if err != nil || !l.step.expects || l.step.verb == "config" {
		return err
	}
	if l.step.answer, err = l.takeExpected("error"); err == nil && l.step.answer != "error" {
		err = fmt.Errorf("%q is not error", l.step.answer)
	}
	return err
}

// guard reads a guard line.
func (l *lineReader) guard() error {
	settings := usualSettings()
	return l.settings(guardKeys, func(set []keyValue) error { return configureGuard(&settings, set) })
}

// register reads a tool line, which needs no settings.
func (l *lineReader) register() error {
	return l.toolThen(func() error {
		if len(l.args) == 0 {
			return nil
		}
		settings := usualSettings()
		return l.settings(nil, func(set []keyValue) error {
			return configureTool(&settings, l.step.tool, set)
		})
	})
}

// settings reads all remaining arguments as KEY=VALUE and keeps the values as texts.
// Only the known keys are allowed; nil means that every key is. try must accept the
// settings. JSON has no NaN, so try sees a fraction in its place: Parse accepts NaN
// for a fraction, and Play sees that the library refuses it.
func (l *lineReader) settings(known []string, try func([]keyValue) error) error {
	if len(l.args) == 0 {
		return errors.New("KEY=VALUE is missing")
	}
	err := l.keys(func(key, text string) (any, error) {
		if known != nil && !slices.Contains(known, key) {
			return nil, fmt.Errorf("unknown key, known are %v", known)
		}
		return text, nil
	})
	if err != nil {
		return err
	}
	trial := slices.Clone(l.step.set)
	for i := range trial {
		if text := trial[i].value.(string); text == "NaN" {
			trial[i].value = "0.5"
		} else {
			trial[i].value = strings.TrimPrefix(text, "-")
		}
	}
	return try(trial)
}
