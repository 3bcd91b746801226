// Package server speaks the Redis protocol with the clients of one node. It reads commands, keeps
// the state of connections, sends whatever touches data to the Backend in batches, and delivers
// messages to subscribers. It is the only package that imports redcon.
//
// # Connections
//
// A session serves one connection on one goroutine. It takes all commands that have arrived,
// dispatches them, and writes all replies at once. Dispatch looks a command up in the command
// table and answers it from the session, queues it for EXEC, or adds it to the current batch. A
// batch makes one round trip to the Backend, so a pipeline costs one log entry or one confirmed
// read. From its first subscription on, a session has a second goroutine that does all its writing.
//
// # Certainty
//
// An error reply tells what became of the command. CLUSTERDOWN, TRYAGAIN and LOADING mean that it
// did not run and never will; UNKNOWN means that it may or may not have run. Nothing in this
// package sends such a command again.
//
// # Waiting and messages
//
// A command that finds nothing to take, such as BLPOP on an empty list, joins the wait queues of
// its keys before its first attempt. Server.Deliver receives the events of each applied entry. It
// wakes waiters and queues messages and invalidations for one goroutine, which finds the receivers
// and never blocks on a client: whoever does not keep up is disconnected.
//
// # Files
//
// File names begin with their subject:
//
//   - conn_: sessions, their input and output, and commands about the connection
//   - batch_: the command path, transactions, and dry runs of writes
//   - wait_: blocking commands, WAIT, and CLIENT PAUSE
//   - push_: subscriptions, client-side caching, MONITOR, and their delivery
//   - limits_: memory of requests, replies and clients, who is closed when it runs out, and rates
//   - stats_: INFO, MEMORY, LATENCY, SLOWLOG, and the health pages
//   - cluster_: RAFT, CLUSTER, SENTINEL, ROLE, and redirection to the leader
//   - admin_: CONFIG, DEBUG, SHUTDOWN, FAILOVER, backups and snapshots
//   - specs: the command specs of this package, COMMAND, and commands that coordd does not support
package server
