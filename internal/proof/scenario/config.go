package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/toolhealth/toolhealth"
)

// The keys of config, reconfigure, guard and tool are those of the JSON forms of
// Config, GuardConfig, BreakerConfig and Policy. Such a line is turned into JSON, so
// that these types themselves say which keys and values there are.

var (
	// registryKeys are the keys of config and reconfigure that are not BreakerConfig's.
	registryKeys = []string{"max_tools", "registered_only"}
	// policyKeys are the keys of tool that are Policy's; all others are BreakerConfig's.
	policyKeys = []string{"max_attempts", "timeout", "side_effects", "detach"}
	// guardKeys are the keys of guard.
	guardKeys = []string{
		"max_attempts", "timeout", "backoff_base", "backoff_max", "jitter", "max_wait", "budget", "deadline_floor",
	}
)

// object is a JSON object.
type object map[string]any

// readInto decodes the object into v, which its own UnmarshalJSON reads.
func (o object) readInto(v any) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
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

// configureRegistry changes c by the settings of config or reconfigure.
func configureRegistry(c *toolhealth.Config, set []keyValue) error {
	whole, breaker := split(set, registryKeys)
	whole["breaker"] = breaker
	return whole.readInto(c)
}

// configureGuard changes c by the settings of guard.
func configureGuard(c *toolhealth.GuardConfig, set []keyValue) error {
	whole, policy := split(set, []string{"deadline_floor"})
	if budget, ok := policy["budget"]; ok {
		policy["retry_budget"] = budget
		delete(policy, "budget")
	}
	whole["default"] = policy
	return whole.readInto(c)
}

// configureTool changes b and p by the settings of tool. It reports whether any of
// them was the breaker's.
func configureTool(b *toolhealth.BreakerConfig, p *toolhealth.Policy, set []keyValue) (own bool, err error) {
	policy, breaker := split(set, policyKeys)
	return len(breaker) > 0, errors.Join(breaker.readInto(b), policy.readInto(p))
}

// configure reads a config or reconfigure line.
func (l *lineReader) configure() error {
	config := toolhealth.DefaultConfig()
	err := l.settings(nil, func(set []keyValue) error { return configureRegistry(&config, set) })
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
	config := toolhealth.DefaultGuardConfig()
	return l.settings(guardKeys, func(set []keyValue) error { return configureGuard(&config, set) })
}

// register reads a tool line, which needs no settings.
func (l *lineReader) register() error {
	return l.toolThen(func() error {
		if len(l.args) == 0 {
			return nil
		}
		breaker, policy := toolhealth.DefaultBreakerConfig(), toolhealth.DefaultGuardConfig().Default
		return l.settings(nil, func(set []keyValue) error {
			_, err := configureTool(&breaker, &policy, set)
			return err
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
		if trial[i].value == "NaN" {
			trial[i].value = "0.5"
		}
	}
	return try(trial)
}
