// Holders of locks that are lost, on the nodes of a cluster whose leader is killed.

package e2e

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/wait"
)

// A holder hears of the loss on a node that does not lead, also behind a change of leader, which
// itself loses no lock. What was released it does not hear of.
func TestHoldersHearOfLostLocks(t *testing.T) {
	ctx := context.Background()
	ps := startProcesses(t, 3)
	led, rest := leader(t, ps)
	conn, err := net.Dial("tcp", rest[0].addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	holder := commandtest.NewConn(conn)
	next := func() string {
		t.Helper()
		if ready, _ := holder.Ready(20 * time.Second); !ready {
			t.Fatal("nothing comes")
		}
		raw, err := holder.Receive()
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	call := func(words ...string) string {
		t.Helper()
		if err := holder.Send(commandtest.Args(words...)); err != nil {
			t.Fatal(err)
		}
		return next()
	}
	acquire := func(key, ms string) (token string) {
		t.Helper()
		reply := call("LOCK.ACQUIRE", key, "me", "PX", ms)
		if token = strings.Split(reply, "\r\n")[1]; token == ":0" || reply[0] != '*' {
			t.Fatalf("%q", reply)
		}
		return token
	}
	lost := func(key, token string) {
		t.Helper()
		want := ">3\r\n$9\r\nlock-lost\r\n$1\r\n" + key + "\r\n" + token + "\r\n"
		if got := next(); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	call("HELLO", "3")
	call("CLIENT", "TRACKING", "ON")
	lost("a", acquire("a", "500")) // it expires

	b := acquire("b", "600000")
	acquire("c", "600000")
	led.kill()
	wait.For(t, 20*time.Second, "a theft", func() bool {
		return rest[1].client().Do(ctx, "LOCK.STEAL", "b", "thief", "PX", 60_000).Err() == nil
	})
	lost("b", b)
	if err := rest[1].client().Do(ctx, "LOCK.RELEASE", "c", "me").Err(); err != nil {
		t.Fatal(err)
	}
	c := acquire("c", "600000") // nothing came before its reply
	if err := rest[1].client().Del(ctx, "c").Err(); err != nil {
		t.Fatal(err)
	}
	lost("c", c)
}
