package commands

// Versions of Redis.
const (
	// RedisVersion is the one whose behavior coordd has. Scripts see it, on every node alike.
	RedisVersion       = "7.0.15"
	RedisVersionNumber = 0x0007000f // major, minor, patch: a byte each
	// WholeVersion is the newest one of which every command and option is there. INFO and HELLO
	// report it, unless the node's configuration gives them another.
	WholeVersion = "7.4.0"
)
