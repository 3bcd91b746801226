// Spans of requests, as a collector gets them from three nodes through a failover.

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"

	"github.com/coordd/coordd/internal/tests/otlp"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

func TestSpans(t *testing.T) {
	tier.Check(t)
	c := otlp.Start(t)
	ps := startProcesses(t, 3, "--otlp", c.URL, "--otlp-sample", "1")
	old, rest := leader(t, ps)
	ctx := context.Background()
	client := rest[0].client() // a follower: its spans hold the way to the leader
	began := time.Now()
	do := func(words ...any) { _ = client.Do(ctx, words...).Err() }
	do("SET", "lock:secret", "token-secret", "NX", "PX", 60000)
	do("GET", "lock:secret")
	do("EVAL", "return redis.error_reply('MINE says no')", 0)
	do("NOSUCH")
	do("PING")
	do("SET", "lock:secret")
	pipe := client.TxPipeline()
	pipe.Incr(ctx, "a")
	pipe.Incr(ctx, "b")
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	// one looks for the span of a request, by name and outcome, and the one within it
	one := func(node, name, outcome string) (outer otlp.Span, inner *otlp.Span) {
		t.Helper()
		wait.For(t, 10*time.Second, "a span of "+name, func() bool {
			for _, s := range c.Spans() {
				if s.Name == name && s.Has["coordd.outcome"] == outcome &&
					s.Has["service.instance.id"] == node {
					outer = s
					return true
				}
			}
			return false
		})
		for _, s := range c.Spans() {
			if bytes.Equal(s.ParentSpanId, outer.SpanId) {
				if inner != nil {
					t.Errorf("%s has more than one span within", name)
				}
				inner = &s
			}
		}
		if int64(outer.StartTimeUnixNano) < began.UnixNano() ||
			int64(outer.EndTimeUnixNano) > time.Now().UnixNano() ||
			outer.EndTimeUnixNano <= outer.StartTimeUnixNano {
			t.Errorf("%s: from %d to %d", name, outer.StartTimeUnixNano, outer.EndTimeUnixNano)
		}
		if inner != nil && (inner.StartTimeUnixNano < outer.StartTimeUnixNano ||
			inner.EndTimeUnixNano > outer.EndTimeUnixNano ||
			!bytes.Equal(inner.TraceId, outer.TraceId)) {
			t.Errorf("%s: %v holds not %v", name, outer, inner)
		}
		return outer, inner
	}
	for _, want := range []struct{ name, outcome, within, code string }{
		{"set", "ok", "raft write", ""},
		{"get", "ok", "raft read", ""},
		{"eval", "error", "raft write", "MINE"},
		{"unrecognized", "rejected", "", "ERR"},
		{"ping", "ok", "", ""},
		{"set", "rejected", "", "ERR"},
		{"exec", "ok", "raft write", ""},
	} {
		outer, inner := one(rest[0].id, want.name, want.outcome)
		within := ""
		if inner != nil {
			within = inner.Name
		}
		if within != want.within || outer.Has["error.type"] != want.code {
			t.Errorf("%s %s: within %q, error %q", want.name, want.outcome, within,
				outer.Has["error.type"])
		}
	}
	for _, s := range c.Spans() {
		if strings.Contains(fmt.Sprint(s.Span), "secret") {
			t.Fatalf("a span tells keys or values: %v", s)
		}
	}

	// a failover, and a collector that hangs: requests go on, and what fits is sent later
	c.Answer(func() (int, *collector.ExportTraceServiceResponse) { return 0, nil })
	old.kill()
	now, _ := leader(t, rest)
	w := startWriters(rest, 8)
	wait.For(t, 20*time.Second, "writes", func() bool { return w.count.Load() > 8000 })
	w.finish(t, now.client())
	wait.For(t, 20*time.Second, "spans to be dropped", func() bool {
		page := httpText(now.http, "/metrics")
		return strings.Contains(page, `coordd_traces_total{result="dropped"}`) &&
			!strings.Contains(page, `coordd_traces_total{result="dropped"} 0`+"\n")
	})
	c.Answer(nil)
	wait.For(t, 20*time.Second, "spans again", func() bool {
		do("HSET", "after", "field", "value")
		spans := c.Spans()
		return slices.ContainsFunc(spans, func(s otlp.Span) bool { return s.Name == "hset" })
	})
}
