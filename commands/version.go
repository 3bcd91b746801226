package commands

// The version of Redis whose behavior coordd has. INFO, HELLO and scripts report it to clients that
// check for features.
const (
	RedisVersion       = "7.0.15"
	RedisVersionNumber = 0x0007000f // major, minor, patch: a byte each
)
