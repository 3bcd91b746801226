package otlp

import (
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/coordd/coordd/internal/tests/ports"
)

// Span is a span with its attributes, and those of its resource, as text.
type Span struct {
	*trace.Span
	Has map[string]string
}

// Collector keeps the spans that it gets.
type Collector struct {
	URL string

	mu     sync.Mutex
	spans  []Span
	header http.Header // headers of the newest message
	answer func() (code int, body []byte)
	goOn   chan struct{} // closed: no request hangs any more
}

// Start starts a collector that ends with the test.
func Start(t testing.TB) *Collector {
	t.Helper()
	return StartAt(t, ports.Listen(t))
}

// StartAt is Start for a listener.
func StartAt(t testing.TB, ln net.Listener) *Collector {
	c := &Collector{goOn: make(chan struct{})}
	s := &httptest.Server{Listener: ln, Config: &http.Server{Handler: c}}
	s.Start()
	t.Cleanup(func() { c.Answer(nil); s.Close() })
	c.URL = s.URL
	return c
}

// Answer has the collector answer with a code and a message, nil for as usual. A code of 0 hangs
// until the next call.
func (c *Collector) Answer(answer func() (code int, m *collector.ExportTraceServiceResponse)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.goOn)
	c.goOn = make(chan struct{})
	if c.answer = nil; answer != nil {
		c.answer = func() (int, []byte) {
			code, m := answer()
			body, _ := proto.Marshal(m)
			return code, body
		}
	}
}

// ServeHTTP implements http.Handler.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fail := func(why string) { http.Error(w, why, http.StatusBadRequest) }
	if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" ||
		r.Header.Get("Content-Type") != "application/x-protobuf" ||
		r.Header.Get("Content-Encoding") != "gzip" {
		fail("not OTLP")
		return
	}
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		fail(err.Error())
		return
	}
	text, err := io.ReadAll(z)
	var m collector.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(text, &m) != nil {
		fail("not a message")
		return
	}
	c.mu.Lock()
	answer, goOn := c.answer, c.goOn
	c.header = r.Header.Clone()
	c.mu.Unlock()
	code, body := http.StatusOK, []byte(nil)
	if answer != nil {
		if code, body = answer(); code == 0 {
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
			http.Error(w, "hung", http.StatusServiceUnavailable)
			return
		}
	}
	if code == http.StatusOK {
		c.keep(&m)
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

func (c *Collector) keep(m *collector.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range m.ResourceSpans {
		for _, scope := range from.ScopeSpans {
			for _, s := range scope.Spans {
				has := map[string]string{}
				note(has, from.Resource.Attributes)
				note(has, s.Attributes)
				c.spans = append(c.spans, Span{s, has})
			}
		}
	}
}

func note(has map[string]string, attributes []*common.KeyValue) {
	for _, a := range attributes {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			has[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			has[a.Key] = strconv.FormatInt(v.IntValue, 10)
		}
	}
}

// Spans returns the spans so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans[:len(c.spans):len(c.spans)]
}

// Header returns the header of the newest message.
func (c *Collector) Header() http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.header
}
