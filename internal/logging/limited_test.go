package logging

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

func TestLimited(t *testing.T) {
	var out bytes.Buffer
	l := NewLimited(slog.New(slog.NewTextHandler(&out, nil)))
	for range 1000 {
		l.Warn("knock", "from", "a")
	}
	if got := strings.Count(out.String(), "\n"); got != burst {
		t.Errorf("%d lines, want %d", got, burst)
	}
	l.Warn("another") // has a limit of its own
	if !strings.Contains(out.String(), "msg=another") {
		t.Error("another message is left out too")
	}
	out.Reset()
	l.messages["knock"].limiter = rate.NewLimiter(rate.Every(time.Hour), 1) // the time has passed
	l.Warn("knock", "from", "b")
	if got := out.String(); !strings.HasSuffix(got, "msg=knock from=b left-out=990\n") {
		t.Error(got)
	}
}
