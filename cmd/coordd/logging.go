// The process's log.

package main

import (
	"io"
	"log/slog"
	"net"
	"os"
	"time"
)

// newLogger returns the process's logger. The format auto is text on a terminal and JSON elsewhere.
func newLogger(w io.Writer, level slog.Leveler, format string) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if format == "text" || (format == "auto" && isTerminal(w)) {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// readable makes a JSON line say what a text line says: 1.5s for a duration, and not nanoseconds,
// and host:port for an address, and not its fields.
func readable(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case time.Duration:
		a.Value = slog.StringValue(v.String())
	case net.Addr:
		a.Value = slog.StringValue(v.String())
	}
	return a
}

// setLevel sets the level to that of --log-level.
func setLevel(level *slog.LevelVar, name string) {
	_ = level.UnmarshalText([]byte(name)) // the choices are slog's own names
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
