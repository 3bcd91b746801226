package server

import "testing"

func TestMissingReply(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	n.fake.set(func() { n.fake.mute = true })
	before := repliesComplete.Times()
	if got := c.call("SET", "k", "v"); got !=
		"-UNKNOWN the command may or may not have run: missing reply\r\n" {
		t.Error(got)
	}
	c.ended()
	if got := repliesComplete.Times() - before; got != 1 {
		t.Errorf("counted %d times", got)
	}
}
