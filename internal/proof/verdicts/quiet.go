package verdicts

import (
	"io"
	"log"
	"log/slog"
)

// Quiet silences the default loggers, to which SDKs write what their errors say
// as well.
func Quiet() {
	log.SetOutput(io.Discard)
	slog.SetDefault(slog.New(slog.DiscardHandler))
}
