package langchainhealth_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/llms/anthropic"
	"github.com/tmc/langchaingo/llms/ollama"
	"github.com/tmc/langchaingo/tools"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/langchainhealth"
)

// models are those of langchaingo. Their errors are texts.
var models = map[string]func(t testing.TB, url string, client *http.Client) llms.Model{
	"openai": newOpenAI,
	"anthropic": func(t testing.TB, url string, client *http.Client) llms.Model {
		m, err := anthropic.New(anthropic.WithBaseURL(url), anthropic.WithToken("k"), anthropic.WithModel("m"), anthropic.WithHTTPClient(client))
		require.NoError(t, err)
		return m
	},
	"ollama": func(t testing.TB, url string, client *http.Client) llms.Model {
		m, err := ollama.New(ollama.WithServerURL(url), ollama.WithModel("m"), ollama.WithHTTPClient(client))
		require.NoError(t, err)
		return m
	},
}

// failing answers with a status, and with a Retry-After of 7 seconds if it is a 429.
func failing(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "7")
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"error":{"message":"no","type":"x"}}`)
	}
}

// summary is a tool that asks a model of langchaingo.
func summary(m llms.Model) *stub {
	return &stub{"summary", func(ctx context.Context, in string) (string, error) {
		return llms.GenerateFromSinglePrompt(ctx, m, in)
	}}
}

func TestHTTPClient_BreakerLearnsWhatServerSaid(t *testing.T) {
	for name, newModel := range models {
		for _, row := range []struct {
			status int
			says   string
			counts func(*testing.T, toolhealth.ToolHealth)
		}{
			{401, "tool failed: access was refused", func(t *testing.T, h toolhealth.ToolHealth) {
				assert.Equal(t, map[toolhealth.Kind]uint64{toolhealth.KindUnauthorized: 1}, h.RejectedByKind)
				assert.True(t, h.Available)
			}},
			{429, "tool failed: rate limited; retry after 7s", func(t *testing.T, h toolhealth.ToolHealth) {
				assert.Equal(t, uint64(1), h.Throttled)
				assert.Equal(t, toolhealth.StopRateLimited, h.Reason)
				assert.Greater(t, h.RetryAfter, 5*time.Second)
				assert.LessOrEqual(t, h.RetryAfter, 7*time.Second)
			}},
			{503, "tool failed: internal error of the tool", func(t *testing.T, h toolhealth.ToolHealth) {
				assert.Equal(t, map[toolhealth.Kind]uint64{toolhealth.KindServerError: 1}, h.ByKind)
			}},
		} {
			t.Run(fmt.Sprint(name, " ", row.status), func(t *testing.T) {
				url, client := serve(t, failing(row.status))
				guard := newGuard(t, nil)
				model := newModel(t, url, langchainhealth.HTTPClient(client))
				output, s, err := run(t.Context(), t, []tools.Tool{langchainhealth.Tool(guard, summary(model))}, act("summary"))
				require.NoError(t, err)
				assert.Equal(t, "done", output)
				assert.Equal(t, []string{row.says}, s.observations())
				row.counts(t, health(guard, "summary"))
			})
		}
	}
}

// The reason for HTTPClient: without it nobody learns how long the server wants to be left
// alone.
func TestHTTPClient_WithoutItStatedWaitIsLost(t *testing.T) {
	url, client := serve(t, failing(429))
	guard := newGuard(t, nil)
	out, err := langchainhealth.Tool(guard, summary(newOpenAI(t, url, client))).Call(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, "tool failed: rate limited", out)
	assert.True(t, health(guard, "summary").Available)
}

func TestHTTPClient_ChangesCopyOnly(t *testing.T) {
	base := &http.Client{Timeout: time.Minute}
	c := langchainhealth.HTTPClient(base)
	assert.Equal(t, time.Minute, c.Timeout)
	assert.NotNil(t, c.Transport)
	assert.Nil(t, base.Transport)
	assert.NotNil(t, langchainhealth.HTTPClient(nil).Transport)
}
