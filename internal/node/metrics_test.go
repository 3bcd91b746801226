package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tests/wait"
)

// Who scrapes without end gets 429, and keeps nobody else away; many addresses stay within the
// limit for all.
func TestScrapeLimit(t *testing.T) {
	l, now := newScrapeLimit(), time.Now()
	for i := range burstOfAddress {
		if !l.allow("10.0.0.1:1000", now) {
			t.Fatalf("the scrape %d is refused", i)
		}
	}
	for range 1000 {
		if l.allow("10.0.0.1:1001", now) {
			t.Fatal("one address has no limit")
		}
	}
	if !l.allow("10.0.0.2:1000", now) || !l.allow("10.0.0.1:1000", now.Add(time.Second)) {
		t.Error("another address, or the same one later, is refused")
	}
	if l.allow("[2001:db8::1]:1", now) != true || len(l.of) != 3 {
		t.Error(l.of)
	}
	l.allow("[2001:db8::2]:1", now)
	if l.allow("[2001:db8:0:1::2]:1", now); len(l.of) != 4 {
		t.Error("a network of IPv6 is more than one address, or two are one")
	}
	allowed := 0
	for i := range 10 * maxScrapers {
		if l.allow(fmt.Sprintf("10.%d.%d.1:1", i/250, i%250), now.Add(2*time.Second)) {
			allowed++
		}
	}
	if allowed > scrapesAtOnce || allowed < scrapesPerSecond || len(l.of) > maxScrapers {
		t.Errorf("%d of many addresses, %d of them known", allowed, len(l.of))
	}
}

func TestTooManyScrapes(t *testing.T) {
	n, _ := startSingle(t, t.TempDir())
	h := n.metricsHandler()
	codes := map[int]int{}
	for range burstOfAddress + 5 {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/metrics", nil)
		h.ServeHTTP(w, r)
		if codes[w.Code]++; w.Code == http.StatusTooManyRequests &&
			w.Header().Get("Retry-After") == "" {
			t.Error("429 does not say when to come again")
		}
	}
	if codes[http.StatusOK] < burstOfAddress || codes[http.StatusTooManyRequests] == 0 {
		t.Error(codes)
	}
}

// With a file of tokens, metrics are for those who show one, and probes for everyone.
func TestMetricsToken(t *testing.T) {
	const old, young = "a token of sixteen", "another one of them"
	cfg := single(t.TempDir())
	cfg.HTTPListen = ports.Addr(t)
	cfg.MetricsTokenFile = filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(cfg.MetricsTokenFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]string{"": "is empty", "short\n": "16 characters or more",
		old + "\n\n" + young: "16 characters or more"} {
		write(text)
		if n, err := Start(cfg, Listeners{}, slog.New(slog.DiscardHandler)); err == nil {
			_ = n.Close()
			t.Errorf("%q is taken", text)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
		if got := fmt.Sprint(Check(cfg, slog.New(slog.DiscardHandler))); !strings.Contains(got,
			want) {
			t.Errorf("%q: the check says %s", text, got)
		}
	}
	write(old + "\n")
	n, err := Start(cfg, Listeners{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	get := func(path, authorization string) (int, string) {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, "http://"+cfg.HTTPListen+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	want := func(authorization string, want int) {
		t.Helper()
		code, text := get("/metrics", authorization)
		if code != want || strings.Contains(text, "coordd_") != (code == http.StatusOK) {
			t.Errorf("%s: %d %.100s", authorization, code, text)
		}
	}
	for range 2 * burstOfAddress { // what is refused is no scrape
		want("", http.StatusUnauthorized)
	}
	for _, wrong := range []string{"Bearer", "Bearer ", "Basic " + old, old, "Bearer " + old + "x",
		"Bearer " + young} {
		want(wrong, http.StatusUnauthorized)
	}
	want("Bearer "+old, http.StatusOK)
	if code, _ := get("/healthz", ""); code != http.StatusOK {
		t.Error(code)
	}
	write(old + "\r\n" + young)
	if err := n.Reload(); err != nil {
		t.Fatal(err)
	}
	want("Bearer "+old, http.StatusOK)
	want("bearer "+young, http.StatusOK)
	write("")
	if err := n.Reload(); err == nil {
		t.Error("an empty file is taken")
	}
	want("Bearer "+young, http.StatusOK)
	want("", http.StatusUnauthorized)
}

// Scripts count where they run, and those that are stopped count apart; a backup is remembered.
func TestMetricsOfScriptsAndBackups(t *testing.T) {
	n, c := startSingle(t, t.TempDir())
	page := func() string {
		w := httptest.NewRecorder()
		n.metricsHandler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Body.String()
	}
	if got := page(); !strings.Contains(got, "coordd_last_backup_timestamp_seconds 0\n") ||
		!strings.Contains(got, "coordd_script_seconds_total 0\n") {
		t.Errorf("at the start: %s", got)
	}
	ctx := context.Background()
	const set = "return redis.call('SET', KEYS[1], 'v')"
	if err := c.Eval(ctx, set, []string{"k"}).Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.Eval(ctx, "while true do end", nil).Err(); err == nil {
		t.Fatal("a script without end ended")
	}
	if err := c.Do(ctx, "RAFT", "BACKUP").Err(); err != nil {
		t.Fatal(err)
	}
	var got string
	wait.For(t, 10*time.Second, "the time of the backup, which follows its reply", func() bool {
		got = page()
		return !strings.Contains(got, "coordd_last_backup_timestamp_seconds 0\n")
	})
	for _, wrong := range []string{"coordd_script_runs_total{result=\"ended\"} 0\n",
		"coordd_script_runs_total{result=\"stopped\"} 0\n", "coordd_script_seconds_total 0\n"} {
		if strings.Contains(got, wrong) {
			t.Errorf("afterwards: %s", wrong)
		}
	}
}
