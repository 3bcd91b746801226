// Package glob matches Redis's glob patterns, for KEYS, SCAN, PSUBSCRIBE, PUBSUB, CONFIG GET and
// the rules of users.
package glob
