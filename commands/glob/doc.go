// Package glob matches Redis's patterns, which KEYS, SCAN, PSUBSCRIBE, PUBSUB, CONFIG GET and the
// rules of users share.
package glob
