// The protocol: spans as OTLP's messages, posted in their binary form. The exporter of
// OpenTelemetry's SDK would add 20 MB to the binary, see docs/adr/0030.

package tracing

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// maxAnswer is what is read of a collector's answer, bytes.
const maxAnswer = 64 << 10

// export sends the spans of requests.
func (t *Tracer) export(requests []Request) {
	if len(requests) == 0 {
		return
	}
	rejected, err := t.post(t.message(requests))
	if err != nil {
		t.warnings.Warn("a collector did not take traces", "error", err)
		t.failed.Add(uint64(len(requests)))
		return
	}
	lost := min(uint64(rejected+1)/2, uint64(len(requests))) // mostly two spans a request
	t.failed.Add(lost)
	t.sent.Add(uint64(len(requests)) - lost)
}

// post sends a message and returns how many spans the collector rejected.
func (t *Tracer) post(m *collector.ExportTraceServiceRequest) (rejected int64, err error) {
	plain, err := proto.Marshal(m)
	if err != nil {
		return 0, err
	}
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	_, _ = z.Write(plain) // to memory
	_ = z.Close()
	req, err := http.NewRequestWithContext(t.ctx, http.MethodPost, t.url, &body)
	if err != nil {
		return 0, err
	}
	req.Header = t.header.Clone()
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "gzip")
	answer, err := t.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return 0, err
	}
	if answer.StatusCode/100 != 2 {
		return 0, fmt.Errorf("%s: %s", t.url, answer.Status)
	}
	var said collector.ExportTraceServiceResponse
	if proto.Unmarshal(text, &said) != nil {
		return 0, nil // it took them
	}
	partly := said.GetPartialSuccess()
	if rejected = max(partly.GetRejectedSpans(), 0); rejected > 0 {
		t.warnings.Warn("a collector rejected spans", "spans", rejected, "reason",
			partly.GetErrorMessage())
	}
	return rejected, nil
}

// message makes the spans of requests: for each, one from its receipt to its reply, and within that
// one for the time for which the machine was asked. Each request is a trace of its own: Redis's
// protocol has no place for the trace of a caller.
func (t *Tracer) message(requests []Request) *collector.ExportTraceServiceRequest {
	spans := make([]*trace.Span, 0, 2*len(requests))
	for i := range requests {
		spans = appendSpans(spans, &requests[i])
	}
	return &collector.ExportTraceServiceRequest{ResourceSpans: []*trace.ResourceSpans{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{
			text("service.name", "coordd"), text("service.version", t.cfg.Version),
			text("service.instance.id", t.cfg.Node)}},
		ScopeSpans: []*trace.ScopeSpans{{
			Scope: &common.InstrumentationScope{Name: "github.com/coordd/coordd",
				Version: t.cfg.Version},
			Spans: spans}},
	}}}
}

func appendSpans(spans []*trace.Span, r *Request) []*trace.Span {
	id := binary.BigEndian.AppendUint64(spanID(), rand.Uint64())
	at := func(when time.Time) uint64 { // also if the clock was set meanwhile
		return uint64(r.Received.UnixNano() + int64(when.Sub(r.Received)))
	}
	outer := &trace.Span{TraceId: id, SpanId: spanID(), Name: r.Command,
		Kind:              trace.Span_SPAN_KIND_SERVER,
		StartTimeUnixNano: at(r.Received),
		EndTimeUnixNano:   at(r.Sent),
		Attributes: []*common.KeyValue{
			text("db.system.name", "redis"), text("db.operation.name", r.Command),
			text("db.namespace", strconv.Itoa(r.DB)), text("coordd.outcome", r.Outcome)}}
	if host, port, err := net.SplitHostPort(r.Address); err == nil {
		n, _ := strconv.Atoi(port)
		outer.Attributes = append(outer.Attributes, text("client.address", host),
			number("client.port", n))
	}
	if r.Batch > 1 {
		outer.Attributes = append(outer.Attributes, number("db.operation.batch.size", r.Batch))
	}
	if r.Code != "" {
		outer.Attributes = append(outer.Attributes, text("db.response.status_code", r.Code),
			text("error.type", r.Code))
		outer.Status = &trace.Status{Code: trace.Status_STATUS_CODE_ERROR}
	}
	if spans = append(spans, outer); r.How == "" {
		return spans
	}
	return append(spans, &trace.Span{TraceId: id, SpanId: spanID(), ParentSpanId: outer.SpanId,
		Name: "raft " + r.How, Kind: trace.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: at(r.Asked),
		EndTimeUnixNano:   at(r.Answered),
		Attributes:        []*common.KeyValue{number("coordd.requests", r.Together)}})
}

func spanID() []byte { return binary.BigEndian.AppendUint64(nil, rand.Uint64()|1) } // never zero

func text(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{
		Value: &common.AnyValue_StringValue{StringValue: value}}}
}

func number(key string, value int) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{
		Value: &common.AnyValue_IntValue{IntValue: int64(value)}}}
}
