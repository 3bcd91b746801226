// Package migrate copies keys and function libraries from a running Redis or Valkey to another
// server, with ordinary commands: SCAN, the read commands of each type, and PTTL. It knows nothing
// of coordd's internals.
//
// A key appears in the target complete or not at all. A key too large for one transaction is built
// under a temporary name, which has a TTL, and renamed. A key that changes while it is read is
// copied as it was read, piece by piece.
package migrate
