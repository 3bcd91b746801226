package tracing

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"

	"github.com/coordd/coordd/internal/tests/memnet"
	"github.com/coordd/coordd/internal/tests/otlp"
	"github.com/coordd/coordd/internal/tests/wait"
)

func open(t *testing.T, url string) (*Tracer, *wait.Buffer) {
	t.Helper()
	return openOver(t, url, nil)
}

func openOver(t *testing.T, url string, transport http.RoundTripper) (*Tracer, *wait.Buffer) {
	t.Helper()
	log := &wait.Buffer{}
	tr, err := Open(Config{URL: url, Sample: 1, Node: "n1", Version: "0.2",
		Logger: slog.New(slog.NewTextHandler(log, nil)), transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return tr, log
}

// simulated returns a collector and a tracer in simulated time.
func simulated(t *testing.T) (*otlp.Collector, *Tracer, *wait.Buffer) {
	t.Helper()
	ln := memnet.Listen()
	c := otlp.StartAt(t, ln)
	tr, log := openOver(t, c.URL, &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return ln.Dial() },
	})
	return c, tr, log
}

func request() *Request {
	at := time.Now()
	return &Request{Command: "SET", DB: 3, Batch: 2, Outcome: "not_run", Code: "CLUSTERDOWN",
		Address: "[::1]:4711", Received: at, How: "write", Asked: at.Add(1000),
		Answered: at.Add(3000), Together: 7, Sent: at.Add(4000)}
}

func TestSpans(t *testing.T) {
	t.Setenv(HeadersVariable, "authorization=Bearer%20abc, x-tenant=a")
	c := otlp.Start(t)
	tr, _ := open(t, c.URL+"/")
	r := request()
	tr.Record(r)
	tr.Record(&Request{Command: "PING", Batch: 1, Outcome: "ok", Received: r.Received,
		Sent: r.Sent, Address: "/a/socket:0"})
	tr.Close()
	spans := c.Spans()
	if len(spans) != 3 || tr.Counts() != (Counts{Sent: 2}) {
		t.Fatalf("%d spans, %+v", len(spans), tr.Counts())
	}
	outer, inner, ping := spans[0], spans[1], spans[2]
	for key, want := range map[string]string{"db.system.name": "redis",
		"db.operation.name": "SET", "db.namespace": "3", "db.operation.batch.size": "2",
		"coordd.outcome": "not_run", "db.response.status_code": "CLUSTERDOWN",
		"error.type": "CLUSTERDOWN", "client.address": "::1", "client.port": "4711",
		"service.name": "coordd", "service.instance.id": "n1", "service.version": "0.2"} {
		if outer.Has[key] != want {
			t.Errorf("%s is %q, want %q", key, outer.Has[key], want)
		}
	}
	begin := uint64(r.Received.UnixNano())
	switch {
	case outer.Name != "SET" || outer.Kind.String() != "SPAN_KIND_SERVER" ||
		outer.Status.GetCode().String() != "STATUS_CODE_ERROR" || len(outer.ParentSpanId) != 0 ||
		len(outer.TraceId) != 16 || len(outer.SpanId) != 8 ||
		outer.StartTimeUnixNano != begin || outer.EndTimeUnixNano != begin+4000:
		t.Errorf("the request: %v", outer)
	case inner.Name != "raft write" || !bytes.Equal(inner.ParentSpanId, outer.SpanId) ||
		!bytes.Equal(inner.TraceId, outer.TraceId) || bytes.Equal(inner.SpanId, outer.SpanId) ||
		inner.StartTimeUnixNano != begin+1000 || inner.EndTimeUnixNano != begin+3000 ||
		inner.Has["coordd.requests"] != "7":
		t.Errorf("within it: %v", inner)
	case ping.Name != "PING" || ping.Status != nil || bytes.Equal(ping.TraceId, outer.TraceId):
		t.Errorf("another one: %v", ping)
	}
	if h := c.Header(); h.Get("Authorization") != "Bearer abc" || h.Get("X-Tenant") != "a" {
		t.Error(h)
	}
}

// Nobody waits for a collector that hangs: what does not fit is dropped and counted.
func TestCollectorHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, tr, log := simulated(t)
		c.Answer(func() (int, *collector.ExportTraceServiceResponse) { return 0, nil })
		const many = 3 * maxQueued
		for range many {
			tr.Record(request())
		}
		if n := tr.Counts().Dropped; n < maxQueued || n > 2*maxQueued {
			t.Errorf("%d were dropped", n)
		}
		began := time.Now()
		tr.Close()
		if took := time.Since(began); took > closeWait {
			t.Errorf("closing took %v", took)
		}
		if n := tr.Counts(); n.Sent != 0 || n.Failed+n.Dropped != many || n.Failed == 0 {
			t.Errorf("%+v of %d", n, many)
		}
		if !strings.Contains(log.String(), "did not take traces") {
			t.Error(log)
		}
	})
}

// What a collector refuses is counted, and what it says is logged.
func TestCollectorRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, tr, log := simulated(t)
		counts := func(want Counts) {
			t.Helper()
			wait.For(t, 10*time.Second, "the counts", func() bool { return tr.Counts() == want })
		}
		c.Answer(func() (int, *collector.ExportTraceServiceResponse) {
			return http.StatusServiceUnavailable, nil
		})
		tr.Record(request())
		counts(Counts{Failed: 1})
		c.Answer(func() (int, *collector.ExportTraceServiceResponse) {
			return http.StatusOK, &collector.ExportTraceServiceResponse{
				PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 2,
					ErrorMessage: "too old"}}
		})
		tr.Record(request())
		counts(Counts{Failed: 2})
		c.Answer(nil)
		tr.Record(request())
		counts(Counts{Sent: 1, Failed: 2})
		for _, want := range []string{"503", "too old"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q: %s", want, log)
			}
		}
	})
}

func TestCheckURL(t *testing.T) {
	for text, want := range map[string]bool{
		"http://127.0.0.1:4318": true, "https://otel.example/prefix": true,
		"127.0.0.1:4318": false, "grpc://a:4317": false, "http://": false, "http://u:p@a": false,
	} {
		if err := CheckURL(text); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	t.Setenv(HeadersVariable, "nonsense")
	if _, err := Open(Config{URL: "http://127.0.0.1:1"}); err == nil {
		t.Error("nonsense for headers")
	}
}

// Of requests, the share that is asked for has spans; without a tracer none has.
func TestSample(t *testing.T) {
	tr := &Tracer{cfg: Config{Sample: 0.25}}
	n := 0
	for range 10_000 {
		if tr.Sampled() {
			n++
		}
	}
	if n < 2000 || n > 3000 {
		t.Errorf("%d of 10,000 at a quarter", n)
	}
	if (*Tracer)(nil).Sampled() {
		t.Error("without a tracer")
	}
}
