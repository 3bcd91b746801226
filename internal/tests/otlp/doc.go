// Package otlp is an OpenTelemetry collector for tests. It reads what a real one would read.
package otlp
