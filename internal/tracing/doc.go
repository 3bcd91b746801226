// Package tracing sends spans of requests to an OpenTelemetry collector, by OTLP over HTTP. What a
// collector does or fails to do never delays a request: without room, spans are dropped and
// counted.
package tracing
