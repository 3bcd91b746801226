// Package server speaks the Redis protocol with clients: it reads commands, keeps the state of connections, sends what
// touches data to the Backend in runs, and delivers messages to subscribers. It is the one package that imports redcon.
//
// A connection has one goroutine. It takes all commands that came (stream), answers those that concern the session,
// gathers the others into a run that makes one round trip (dispatch), and writes all replies at once. A connection that
// subscribes gets a second goroutine, which does all its writing from then on (output).
package server
