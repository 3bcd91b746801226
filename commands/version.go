package commands

// The version of Redis whose behavior coordd has: the newest of which every command and option is
// there. Scripts see it, on every node alike. INFO and HELLO report it too, unless the node's
// configuration gives them another.
const (
	RedisVersion       = "7.0.15"
	RedisVersionNumber = 0x0007000f // major, minor, patch: a byte each
)
