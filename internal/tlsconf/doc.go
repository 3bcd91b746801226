// Package tlsconf keeps the certificates of a node: it loads them, reloads them when their files
// change, and completes the TLS handshakes of a listener under limits.
package tlsconf
