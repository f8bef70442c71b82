package cases_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/toolhealth/toolhealth"
)

func TestC180_DurationNeedsUnit(t *testing.T) {
	for text, says := range map[string]string{
		`{"breaker":{"recovery_duration":30}}`:              `breaker.recovery_duration is 30, must be a duration such as "30s"`,
		`{"breaker":{"recovery_duration":"30"}}`:            `breaker.recovery_duration is "30", must be a duration such as "30s"`,
		`{"breaker":{"recovery_duration":30000000000}}`:     `breaker.recovery_duration is 30000000000, must be a duration such as "30s"`,
		`{"policy":{"timeout":10}}`:                         `policy.timeout is 10, must be a duration such as "30s"`,
		`{"tools":{"search":{"policy":{"max_wait":20.5}}}}`: `tools["search"].policy.max_wait is 20.5, must be a duration such as "30s"`,
		`{"deadline_floor":0}`:                              `deadline_floor is 0, must be a duration such as "30s"`,
	} {
		s, err := toolhealth.Load(strings.NewReader(text))
		assert.EqualError(t, err, "toolhealth: config: "+says)
		assert.Equal(t, toolhealth.Settings{}, s)
	}
}
