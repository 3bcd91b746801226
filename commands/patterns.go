// Limits of patterns and of channel names.

package commands

import "github.com/coordd/coordd/commands/glob"

// CheckPattern refuses a pattern that is too long to match in bounded time.
func CheckPattern(pattern []byte) error {
	if len(pattern) > glob.MaxPattern {
		return Errorf("ERR pattern is longer than %d bytes", glob.MaxPattern)
	}
	return nil
}

// maxChannel is the longest accepted channel name, in bytes: every message is matched against the
// patterns of all subscribers.
const maxChannel = 4 << 10

// Send sends a Message to its subscribers, unless the name of its channel is too long for anyone to
// subscribe to it.
func (x *Call) Send(e Event) {
	if x.Level < LevelSecond || len(e.Channel) <= maxChannel {
		x.Emit(e)
	}
}

// CheckChannel refuses a channel whose name is too long.
func CheckChannel(name []byte) error {
	if len(name) > maxChannel {
		return Errorf("ERR channel name is longer than %d bytes", maxChannel)
	}
	return nil
}
