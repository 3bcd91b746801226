// Package certs issues certificates for trying out TLS, and for tests.
package certs
