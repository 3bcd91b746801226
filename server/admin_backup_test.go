// Tests of RAFT BACKUP: one reply with the state's own bytes, on connections that receive nothing
// else.

package server

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/fsm"
)

func TestBackup(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	value := strings.Repeat("v", 100)
	for i := range 5000 {
		c.call("SET", fmt.Sprint("key:", i), value)
	}
	var want bytes.Buffer
	if _, err := n.fake.machine.Snapshot().WriteTo(&want); err != nil {
		t.Fatal(err)
	}
	// In a pipeline, earlier and later commands are answered in order.
	c.raw("GET key:1\r\nRAFT BACKUP\r\nGET key:2\r\nPING\r\n")
	c.want("$100\r\n"+value+"\r\n", fmt.Sprintf("$%d\r\n%s\r\n", want.Len(), want.String()),
		"$100\r\n"+value+"\r\n", "+PONG\r\n")
	size := want.Len()
	if info, err := fsm.CheckSnapshot(&want, n.fake.table); err != nil || info.Keys != 5000 {
		t.Error(info, err)
	}
	told := c.call("INFO", "persistence")
	if strings.Contains(told, "coordd_last_backup_time:0\r\n") ||
		!strings.Contains(told, fmt.Sprintf("coordd_last_backup_bytes:%d\r\n", size)) {
		t.Errorf("after a backup of %d bytes: %s", size, told)
	}
}

func TestBackupIsRefused(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	n.fake.set(func() { n.fake.fail = &Error{NoLeader, "CLUSTERDOWN the command did not run"} })
	if got := c.call("RAFT", "BACKUP"); got != "-CLUSTERDOWN the command did not run\r\n" {
		t.Errorf("%q", got)
	}
	n.fake.set(func() { n.fake.fail = nil })
	c.call("MULTI")
	if got := c.call("RAFT", "BACKUP"); got[0] != '-' {
		t.Errorf("%q", got)
	}
}

// Messages to the client come before or after a backup, never within it.
func TestBackupAmongMessages(t *testing.T) {
	n := start(t, nil)
	c, other := n.dialPipe(t), n.dial(t)
	const size = 1 << 20
	other.call("SET", "big", strings.Repeat("x", size))
	c.call("HELLO", "3")
	c.call("SUBSCRIBE", "c")
	c.call("CLIENT", "TRACKING", "ON")
	c.call("GET", "k")
	other.call("PUBLISH", "c", "before")
	message := func(text string) string {
		return ">3\r\n" + bulkText("message") + bulkText("c") + bulkText(text)
	}
	n.pubsub.delivery.settle() // PUBLISH is answered before its receivers have the message
	c.raw("RAFT BACKUP\r\nPING\r\n")
	c.want(message("before"))
	if ready, _ := c.Ready(waitLimit); !ready {
		t.Fatal("no backup")
	}
	other.call("PUBLISH", "c", "after")
	other.call("SET", "k", "1")
	n.pubsub.delivery.settle()
	if got := c.next(); len(got) < size || got[0] != '$' {
		t.Errorf("the backup: %.200q", got)
	}
	c.want(message("after"), ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n", "+PONG\r\n")
}

// A client that does not read its messages does not keep a backup from others for ever.
func TestBackupBehindUnreadMessages(t *testing.T) {
	n := start(t, nil)
	slow, other := n.dial(t), n.dial(t)
	slow.call("HELLO", "3")
	id := strings.TrimSpace(slow.call("CLIENT", "ID")[1:])
	slow.call("SUBSCRIBE", "c")
	for range 20 {
		other.call("PUBLISH", "c", strings.Repeat("x", 1_000_000))
	}
	slow.raw("RAFT BACKUP\r\n")
	eventually(t, "the backup has begun", n.backingUp.Load)
	if got := other.call("CLIENT", "KILL", "ID", id); got != ":1\r\n" {
		t.Fatalf("%q", got)
	}
	eventually(t, "others can take one", func() bool {
		return other.call("RAFT", "BACKUP")[0] == '$'
	})
}

// TestBackupEndsWithItsClient ends a connection during its backup, from either end.
func TestBackupEndsWithItsClient(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("SET", "big", strings.Repeat("x", 1<<20))
	slow := n.dialPipe(t)
	id := slow.id()
	slow.raw("RAFT BACKUP\r\n")
	eventually(t, "the backup has begun", n.backingUp.Load)
	if got := c.call("RAFT", "BACKUP"); got != "-"+string(errBackupRuns)+"\r\n" {
		t.Fatalf("a second one: %.200q", got)
	}
	if got := c.call("CLIENT", "KILL", "ID", id); got != ":1\r\n" {
		t.Fatalf("%q", got)
	}
	gone := n.dialPipe(t)
	gone.raw("RAFT BACKUP\r\n")
	_ = gone.Close()
	eventually(t, "both are gone", func() bool {
		return strings.Count(c.call("CLIENT", "LIST"), "laddr=") == 1
	})
	if told := c.call("INFO", "persistence"); !strings.Contains(told,
		"coordd_last_backup_time:0\r\n") {
		t.Errorf("a backup that nobody received counts as one: %s", told)
	}
	if got := c.call("RAFT", "BACKUP"); got[0] != '$' {
		t.Fatalf("the next one: %.200q", got)
	}
}

// Clients whose backup waits for the node to catch up, or who have gone meanwhile, keep none from
// others.
func TestBackupsWaitTogether(t *testing.T) {
	n := start(t, nil)
	gate := make(chan struct{})
	n.fake.set(func() { n.fake.replicationGate = gate })
	gone, c := n.dial(t), n.dial(t)
	gone.raw("RAFT BACKUP\r\n")
	eventually(t, "it waits", func() bool { return n.fake.asking.Load() == 1 })
	_ = gone.Close()
	n.fake.set(func() { n.fake.replicationGate = nil })
	if got := c.call("RAFT", "BACKUP"); got[0] != '$' {
		t.Errorf("another one: %.200q", got)
	}
	close(gate)
	eventually(t, "the first ends", func() bool {
		return strings.Count(c.call("CLIENT", "LIST"), "laddr=") == 1
	})
}
