package cases_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// pieces is a stream of three pieces, one a second, that breaks off when ctx is done.
func pieces(ctx context.Context) func() error {
	left := 3
	return func() error {
		if left == 0 {
			return io.EOF
		}
		select {
		case <-time.After(time.Second):
			left--
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A stream that is read after the tool function has returned is not cut by the end of the
// attempt, nor by a Timeout that is shorter than all of it.
func TestC172_StreamIsReadAfterItsFunctionHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := toolhealth.New(toolhealth.Settings{Policy: toolhealth.Policy{Timeout: 2 * time.Second}})
		require.NoError(t, err)
		next, flight, err := toolhealth.Begin(t.Context(), g, "search", func(ctx context.Context, _ string) (func() error, error) {
			return pieces(ctx), nil
		})
		require.NoError(t, err)
		read := 0
		for err = next(); err == nil; err = next() {
			read++
			flight.KeepAlive()
		}
		assert.Equal(t, io.EOF, err)
		assert.Equal(t, 3, read)
		flight.Done(nil)
		h, _ := g.Registry().Health("search")
		assert.Equal(t, []uint64{1, 0, 0}, []uint64{h.Successes, h.Failures, h.InFlight})
	})
}

// The client of a tool is dead for good after one error. The tool function is told that
// it is the probe, and dials anew.
func TestC188_ProbeDialsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := toolhealth.New(toolhealth.Settings{Policy: toolhealth.Policy{MaxAttempts: 1}})
		require.NoError(t, err)
		alive, dialed := false, 0
		search := toolhealth.Wrap(g, "search", func(ctx context.Context, _ int) (string, error) {
			if toolhealth.IsProbe(ctx) {
				alive, dialed = true, dialed+1
			}
			if !alive {
				return "", errors.New("client is closed")
			}
			return "found", nil
		})
		for range 4 {
			_, err = search.Call(t.Context(), 0)
			require.Error(t, err)
		}
		time.Sleep(30 * time.Second)
		out, err := search.Call(t.Context(), 0)
		require.NoError(t, err)
		assert.Equal(t, "found", out)
		_, err = search.Call(t.Context(), 0)
		require.NoError(t, err)
		assert.Equal(t, 1, dialed)
	})
}
