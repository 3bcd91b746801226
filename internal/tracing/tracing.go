package tracing

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/internal/logging"
)

const (
	maxQueued   = 2048 // requests, half a megabyte
	maxSent     = 512  // at a time
	sendEvery   = time.Second
	sendTimeout = 10 * time.Second
	closeWait   = 2 * time.Second
)

// HeadersVariable is the environment variable with headers for the collector, such as a token:
// name=value,name=value, with %XX for special characters. OpenTelemetry defines it.
const HeadersVariable = "OTEL_EXPORTER_OTLP_HEADERS"

// Config says where spans go.
type Config struct {
	URL     string  // where the collector is; empty: there are no spans
	Sample  float64 // the share of requests that have spans, above 0 to 1
	Node    string
	Version string
	Logger  *slog.Logger

	transport http.RoundTripper // in tests
}

// CheckURL returns an error unless spans can be sent to a URL.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("must be a URL such as http://127.0.0.1:4318")
	}
	if u.User != nil {
		return errors.New("must not hold a password: set " + HeadersVariable)
	}
	return nil
}

// Request is what the spans of a request tell. They hold no keys, values or names of users.
type Request struct {
	Command  string // its full name
	DB       int
	Batch    int    // requests that the client had sent at once; 1: this one alone
	Outcome  string // ok, error, rejected, not_run or unknown, as in the metrics
	Code     string // the code word of the error; empty: none
	Address  string // address of the client, host:port
	Received time.Time
	// How the machine was asked: write, read, local or dry run; empty: it was not. Asked and
	// Answered are when, and Together is the number of requests that were asked together.
	How             string
	Asked, Answered time.Time
	Together        int
	Sent            time.Time // when the system had taken the reply
}

// Counts are those of traces since the start, one for each request that was sampled: sent, dropped
// for lack of room, and failed: the collector did not take them.
type Counts struct{ Sent, Dropped, Failed uint64 }

// Tracer sends spans. nil is one that sends none.
type Tracer struct {
	cfg      Config
	url      string
	header   http.Header
	client   *http.Client
	warnings *logging.Limited
	queue    chan Request

	sent, dropped, failed atomic.Uint64

	closing sync.Once
	stop    chan struct{} // closed: send what waits, and end
	done    chan struct{}
	ctx     context.Context // canceled: end now
	cancel  context.CancelFunc
}

// Open returns a Tracer that begins to send, or nil if there is nowhere to send to. That nobody
// answers there is no error.
func Open(c Config) (*Tracer, error) {
	if c.URL == "" {
		return nil, nil
	}
	to, err := url.JoinPath(c.URL, "v1/traces")
	if err != nil {
		return nil, err
	}
	header, err := parseHeaders(os.Getenv(HeadersVariable))
	if err != nil {
		return nil, err
	}
	t := &Tracer{cfg: c, url: to, header: header,
		client:   &http.Client{Timeout: sendTimeout, Transport: c.transport},
		warnings: logging.NewLimited(c.Logger), queue: make(chan Request, maxQueued),
		stop: make(chan struct{}), done: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	go t.send()
	return t, nil
}

// parseHeaders reads the value of HeadersVariable.
func parseHeaders(text string) (http.Header, error) {
	header := http.Header{}
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil {
			return nil, errors.New(HeadersVariable + " must be name=value,…")
		}
		header.Set(strings.TrimSpace(name), value)
	}
	return header, nil
}

// Sampled reports whether the next request is to have spans.
func (t *Tracer) Sampled() bool {
	return t != nil && (t.cfg.Sample >= 1 || rand.Float64() < t.cfg.Sample)
}

// Record has the spans of a request sent. It does not wait.
func (t *Tracer) Record(r *Request) {
	select {
	case t.queue <- *r:
	default:
		t.dropped.Add(1)
	}
}

// Drop counts a request that the caller had no room for.
func (t *Tracer) Drop() { t.dropped.Add(1) }

// Counts returns how many traces there were.
func (t *Tracer) Counts() Counts {
	return Counts{t.sent.Load(), t.dropped.Load(), t.failed.Load()}
}

// Close sends what waits, but not for long.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	t.closing.Do(func() { close(t.stop) })
	late := time.AfterFunc(closeWait, t.cancel)
	<-t.done
	late.Stop()
	t.cancel()
	t.client.CloseIdleConnections()
}

// send sends spans until Close: many at once, or those of a second.
func (t *Tracer) send() {
	defer close(t.done)
	ticker := time.NewTicker(sendEvery)
	defer ticker.Stop()
	waiting := make([]Request, 0, maxSent)
	for {
		select {
		case r := <-t.queue:
			if waiting = append(waiting, r); len(waiting) < maxSent {
				continue
			}
		case <-ticker.C:
		case <-t.stop:
			t.sendRest(waiting)
			return
		}
		t.export(waiting)
		waiting = waiting[:0]
	}
}

// sendRest sends what waits when the tracer is closed.
func (t *Tracer) sendRest(waiting []Request) {
	for ; ; waiting = waiting[:0] {
		for len(t.queue) > 0 && len(waiting) < maxSent {
			waiting = append(waiting, <-t.queue)
		}
		if len(waiting) == 0 || t.ctx.Err() != nil {
			break
		}
		t.export(waiting)
	}
	t.dropped.Add(uint64(len(waiting) + len(t.queue)))
}
