package commands

// The version of Redis that coordd speaks as: what INFO, HELLO and scripts tell clients that look
// for features.
const (
	RedisVersion       = "7.0.15"
	RedisVersionNumber = 0x0007000f // major, minor, patch: a byte each
)
