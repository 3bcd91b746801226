// Package observe asks a node what operators want to see. It is a client: it sends commands over a
// connection, as the user who asks, and so sees and does what that user may. The page on the HTTP
// port and the subcommands that draw in a terminal show what it returns.
package observe
