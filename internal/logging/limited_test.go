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
	out.Reset()
	l.limiter = rate.NewLimiter(rate.Every(time.Hour), 1) // the time has passed
	l.Warn("knock", "from", "b")
	if got := out.String(); !strings.HasSuffix(got, "msg=knock from=b left-out=990\n") {
		t.Error(got)
	}
}
