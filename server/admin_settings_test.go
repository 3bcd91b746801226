package server

import (
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
)

// While some nodes run an older release, what sets a setting says that it has to wait. CONFIG SET
// changes none of the others.
func TestSettingBeforeItsFeatureLevel(t *testing.T) {
	n := start(t, func(c *Config) { c.UsersFile = "users.acl" })
	n.fake.restart(commands.LevelFirst)
	c := n.dial(t)
	const notify = "notify-keyspace-events"
	for _, x := range []struct{ call, want string }{
		{"CONFIG SET " + notify + " KEA maxmemory 1mb",
			"-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - some nodes run "},
		{"CONFIG SET " + notify + " KEA requirepass secret",
			"-ERR CONFIG SET failed (possibly related to argument 'requirepass') - users need "},
		{"ACL LOAD", "-ERR users need feature level 3"},
		{"RAFT SET-TIME 1000", "-ERR this needs a newer feature level"},
		{"RAFT ALLOW-SCRIPT x", "-ERR this needs a newer feature level"},
		{"CONFIG GET maxmemory", "*2\r\n$9\r\nmaxmemory\r\n$1\r\n0\r\n"},
		{"CONFIG GET " + notify, "*2\r\n$22\r\n" + notify + "\r\n$0\r\n\r\n"},
		{"CONFIG SET " + notify + " KEA", "+OK\r\n"},
	} {
		if got := c.call(strings.Fields(x.call)...); !strings.HasPrefix(got, x.want) {
			t.Errorf("%s: %q", x.call, got)
		}
	}
}

// INFO memory shows how near the data is to its limit, and MEMORY USAGE what a key adds.
func TestDataAndItsLimitAreShown(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("CONFIG", "SET", "maxmemory", "2mb")
	shown := func() int64 {
		t.Helper()
		info := c.call("INFO", "memory")
		if !strings.Contains(info, "\r\nmaxmemory:2097152\r\nmaxmemory_human:2.00M\r\n") ||
			!strings.Contains(info, "\r\nmaxmemory_policy:noeviction\r\n") {
			t.Error(info)
		}
		_, rest, _ := strings.Cut(info, "\r\nused_memory_dataset:")
		text, _, _ := strings.Cut(rest, "\r\n")
		bytes, ok := commands.ParseInt([]byte(text))
		if !ok {
			t.Fatalf("used_memory_dataset:%s", text)
		}
		return bytes
	}
	before := shown()
	c.call("RPUSH", "list", strings.Repeat("x", 1000), "a", "b", "c", "d", "e", "f")
	usage, ok := commands.ParseInt([]byte(strings.Trim(c.call("MEMORY", "USAGE", "list"), ":\r\n")))
	if grown := shown() - before; !ok || grown != usage || grown < 1000 || grown > 2000 {
		t.Errorf("the list counts %d bytes, MEMORY USAGE says %d", grown, usage)
	}
}
