// This file contains the limits of patterns and of the names of channels.

package commands

// maxPattern is the longest pattern that is taken, in bytes. Matching costs up to len(pattern)/64
// steps a byte.
const maxPattern = 1 << 10

// CheckPattern refuses a pattern that is too long to be matched in bounded time.
func CheckPattern(pattern []byte) error {
	if len(pattern) > maxPattern {
		return Errorf("ERR pattern is longer than %d bytes", maxPattern)
	}
	return nil
}

// maxChannel is the longest name of a channel that is taken, in bytes: every message is matched
// with the patterns of all subscribers.
const maxChannel = 4 << 10

// CheckChannel refuses a channel whose name is too long.
func CheckChannel(name []byte) error {
	if len(name) > maxChannel {
		return Errorf("ERR channel name is longer than %d bytes", maxChannel)
	}
	return nil
}
