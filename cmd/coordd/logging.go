// The process's log.

package main

import (
	"io"
	"log/slog"
	"os"
)

// newLogger returns the process's logger. The format auto is text on a terminal and JSON elsewhere.
func newLogger(w io.Writer, level, format string) *slog.Logger {
	var l slog.Level
	_ = l.UnmarshalText([]byte(level)) // the choices of --log-level are slog's own names
	opts := &slog.HandlerOptions{Level: l}
	if format == "text" || (format == "auto" && isTerminal(w)) {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
