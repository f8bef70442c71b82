package mcpgohealth_test

import (
	"io"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	child()                                        // does not return in a child process of a test
	slog.SetDefault(slog.New(slog.DiscardHandler)) // to which the SDK writes what its errors say as well
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			_, _ = io.WriteString(os.Stderr, err.Error())
			code = 1
		}
	}
	os.Exit(code)
}
