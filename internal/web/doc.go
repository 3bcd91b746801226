// Package web is the page that a node serves to operators on its HTTP port: the cluster, its load,
// its locks and its clients, and the actions on them.
//
// The page is a client like any other. Who logs in gets a session, the session has connections to
// the node's own server, in the process ([Listener]), under that user and with the browser's
// address. So rights, limits, the audit trail, errors and forwarding to the leader are those of
// every client, and nothing can be done here that a client could not do. The handlers translate a
// fixed set of requests into commands.
//
// docs/adr/0026 says why; docs/security.md says what the port shows to whom.
package web
