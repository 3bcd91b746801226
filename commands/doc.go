// Package commands holds the command table and the handlers of the commands that touch data.
//
// A Spec declares a command. Everything that depends on which commands exist derives from the
// table: arity errors, routing, admission to transactions and scripts, the replies of COMMAND,
// ACL categories, docs/commands.md and the calls of random tests. A new command takes three
// things: a Spec, a handler and a scenario in testdata/commands; CONTRIBUTING.md walks through
// one.
//
// A handler is pure. It sees only its Call, and it may only change the keyspace, write a reply
// and emit events, so every node that runs the same call comes to the same state. A handler
// parses its arguments, checks types, spends the work that lies ahead (meter.go), then changes
// the keyspace, then replies: an error means that nothing has changed.
//
// Commands on a connection or a node, such as CLIENT, are declared by package server, with
// Spec.Local set.
//
// Files are named after the commands in them (keys_…, lists_…, strings_…, zsets_…) or after what
// handlers share (args.go, blocking.go, meter.go, multipop.go, reply.go, scan.go, ttl.go).
package commands
