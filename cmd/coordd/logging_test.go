package main

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

// Lines of both formats say durations and addresses alike.
func TestLogIsReadable(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		newLogger(&out, slog.LevelInfo, format).Info("m", "after", 1500*time.Millisecond, "from",
			&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6379}, "n", 3)
		for _, want := range []string{"1.5s", "127.0.0.1:6379", "3"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: %s lacks %s", format, out.String(), want)
			}
		}
	}
}
