package classify_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestClassify_RetryAfterHeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // the clock says 2000-01-01 00:00:00 UTC
		for header, want := range map[string]time.Duration{
			"":                                 0,
			"120":                              2 * time.Minute,
			" 5 ":                              5 * time.Second,
			"0.25":                             250 * time.Millisecond,
			"0":                                0,
			"-5":                               0,
			"+5":                               0,
			"soon":                             0,
			"1.2.3":                            0,
			".":                                0,
			"1e3":                              0,
			"0x10":                             0,
			"NaN":                              0,
			"inf":                              0,
			"-inf":                             0,
			"5s":                               5 * time.Second,
			"6m0s":                             6 * time.Minute,
			"17ms":                             17 * time.Millisecond,
			"-5s":                              0,
			"+5s":                              0,
			"31536000":                         365 * 24 * time.Hour,
			"31536001":                         0, // no wait is longer than a year: it is a time, long past
			"946684810":                        10 * time.Second,
			"946684810.5":                      10*time.Second + 500*time.Millisecond,
			"946684810250":                     10*time.Second + 250*time.Millisecond,
			"978307200":                        0, // more than a year ahead
			"9223372037":                       0,
			"99999999999999999999999":          0,
			strings.Repeat("9", 400):           0,
			"Sat, 01 Jan 2000 00:00:10 GMT":    10 * time.Second,
			"Saturday, 01-Jan-00 00:01:00 GMT": time.Minute,
			"Sat Jan  1 01:00:00 2000":         time.Hour,
			"Sat, 01 Jan 2000 00:00:00 GMT":    0,
			"Fri, 31 Dec 1999 23:59:59 GMT":    0,
			"Sun, 06 Nov 1994 08:49:37 GMT":    0,
			"Fri, 31 Dec 9999 23:59:59 GMT":    math.MaxInt64,
			"Sat, 01 Jan 2000 00:00:10 +0100":  0,
			"2000-01-01T00:00:10Z":             10 * time.Second,
			"1999-12-31T23:00:10-01:00":        10 * time.Second,
			"1999-12-31T00:00:10Z":             0,
		} {
			v := toolhealth.ClassifyHTTP(429, map[string][]string{"Retry-After": {header}})
			assert.Equal(t, want, v.RetryAfter, "%.40q", header)
			assert.Equal(t, want > 0, v.Outcome == toolhealth.OutcomeThrottled, "%.40q", header)
			assert.Equal(t, v, toolhealth.Classify(t.Context(), &openaiLike{StatusCode: 429, Response: httpAnswer(429, "Retry-After", header)}), "%.40q", header)
		}
	})
}

func TestClassify_RetryAfterInError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"milliseconds":          {&googleLike{Code: 503, Header: httpAnswer(0, "Retry-After-Ms", "1500").Header}, 1500 * time.Millisecond},
		"milliseconds win":      {&googleLike{Code: 503, Header: httpAnswer(0, "Retry-After-Ms", "250.5", "Retry-After", "1").Header}, 250500 * time.Microsecond},
		"unless not a number":   {&googleLike{Code: 503, Header: httpAnswer(0, "Retry-After-Ms", "soon", "Retry-After", "1").Header}, time.Second},
		"or negative":           {&googleLike{Code: 503, Header: httpAnswer(0, "Retry-After-Ms", "-5", "Retry-After", "1").Header}, time.Second},
		"or huge":               {&googleLike{Code: 503, Header: httpAnswer(0, "Retry-After-Ms", strings.Repeat("9", 30)).Header}, 0},
		"a header without it":   {&googleLike{Code: 503, Header: httpAnswer(0, "X", "1").Header}, 0},
		"no header":             {&googleLike{Code: 503}, 0},
		"Response":              {&openaiLike{StatusCode: 503, Response: httpAnswer(0, "Retry-After", "2")}, 2 * time.Second},
		"RawResponse":           {&azureLike{StatusCode: 503, RawResponse: httpAnswer(0, "Retry-After", "3")}, 3 * time.Second},
		"headers as a flat map": {&fantasyLike{StatusCode: 503, ResponseHeaders: map[string]string{"retry-after-ms": "10"}}, 10 * time.Millisecond},
		"kubernetes, huge":      {&kubeLike{ErrStatus: kubeStatus{Code: 503, Details: &kubeDetails{math.MaxInt32}}}, 0},
		"kubernetes, negative":  {&kubeLike{ErrStatus: kubeStatus{Code: 503, Details: &kubeDetails{-1}}}, 0},
		"GetRetryAfter":         {waitMethodLike{StatusCode: 503, wait: 4 * time.Second}, 4 * time.Second},
		"RetryAfter()":          {waitOtherMethodLike{StatusCode: 503, wait: 5 * time.Second}, 5 * time.Second},
		"a negative wait leaves the choice to other errors": {errors.Join(waitMethodLike{StatusCode: 503, wait: -1}, &slackLimitLike{time.Second}), time.Second},
		"the outer wait counts":                             {errors.Join(&openaiLike{StatusCode: 503, Response: httpAnswer(0, "Retry-After", "2")}, &slackLimitLike{time.Second}), 2 * time.Second},
		"whole seconds":                                     {&waitIntLike{StatusCode: 503, RetryAfter: 5}, 5 * time.Second},
	} {
		v := toolhealth.Classify(t.Context(), c.err)
		assert.Equal(t, c.want, v.RetryAfter, name)
		assert.Equal(t, toolhealth.OutcomeFailure, v.Outcome, name)
	}
}

func TestClassify_LargestRetryAfterDoesNotOverflow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		config := toolhealth.DefaultConfig()
		config.Breaker.MaxOpenDuration = toolhealth.Off
		registry, err := toolhealth.NewRegistryWithConfig(config)
		require.NoError(t, err)
		gate := &toolhealth.Gate{Registry: registry}
		permit, err := gate.Allow(t.Context(), "search")
		require.NoError(t, err)
		permit.Settle(toolhealth.ClassifyHTTP(429, map[string][]string{"Retry-After": {"Fri, 31 Dec 9999 23:59:59 GMT"}}))
		time.Sleep(24 * time.Hour)
		_, err = gate.Allow(t.Context(), "search")
		var refusal *toolhealth.Refusal
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, toolhealth.StopRateLimited, refusal.Reason)
		assert.Greater(t, refusal.RetryAfter, 200*365*24*time.Hour)
	})
}
