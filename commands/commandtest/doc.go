// Package commandtest runs scenario files against a target and compares every reply with a real
// redis-server.
//
// A scenario file is a list of calls, one per line; testdata/commands/README.md describes the
// format. A target is anything that replies to a call with the bytes of a RESP reply: a machine in
// the process, or a connection to a server. The package imports nothing of coordd but
// internal/resp, whose tests compare it with literal bytes, so the tests of every package can use
// it.
package commandtest
