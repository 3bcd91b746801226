package server

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/tests/detector"
)

// startPair starts two nodes that ask each other, n1 and n2.
func startPair(t *testing.T) (one, two *node) {
	t.Helper()
	one, two = startSimulated(t, nil), startSimulated(t, nil)
	two.fake.set(func() { two.fake.st.ID = "n2" })
	// the machine of a cluster gives no two nodes the same ids
	if _, err := two.fake.giveIDs(commands.AppendRequest(nil, &commands.Request{Proto: 2,
		System: true, Cmds: [][][]byte{{[]byte(commands.SystemClientIDs)}}})); err != nil {
		t.Fatal(err)
	}
	one.asks("n2", two.Answer)
	two.asks("n1", one.Answer)
	return one, two
}

// asks makes the answers of another node those of answer; nil: it does not answer in time.
func (n *node) asks(id string, answer func(question []byte) []byte) {
	n.fake.set(func() {
		others := map[string]func([]byte) []byte{id: answer}
		for other, answer := range n.fake.others {
			if other != id {
				others[other] = answer
			}
		}
		n.fake.others = others
	})
}

func (n *node) named(t *testing.T, name string) (c *client, id string) {
	t.Helper()
	c = n.dial(t)
	c.call("CLIENT", "SETNAME", name)
	return c, c.id()
}

// listed returns the names and nodes in the reply to CLIENT LIST.
func listed(list string) string {
	var names []string
	for line := range strings.Lines(list) {
		if strings.HasPrefix(line, "id=") {
			names = append(names, field(line, "name")+"@"+field(line, "node"))
		}
	}
	return strings.Join(names, " ")
}

// CLIENT LIST, KILL and UNBLOCK mean the connections of all nodes.
func TestClientsOfAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := startPair(t)
		a, idA := one.named(t, "a")
		far, idFar := two.named(t, "far")
		b, _ := one.named(t, "b")
		list := func(c *client, want string, filters ...string) {
			t.Helper()
			got := listed(c.call(append([]string{"CLIENT", "LIST"}, filters...)...))
			if got != want {
				t.Errorf("CLIENT LIST %q: %s, want %s", filters, got, want)
			}
		}
		list(a, "a@n1 b@n1 far@n2")
		list(far, "a@n1 b@n1 far@n2")
		list(a, "far@n2 a@n1 far@n2", "ID", idFar, idA, "77", idFar)
		list(a, "far@n2", "NAME", "far")
		list(a, "a@n1 b@n1", "NODE", "n1")
		list(a, "far@n2", "NODE", "n2")
		list(a, "a@n1 b@n1", "NOT-NODE", "n2")
		list(a, "far@n2", "NOT-NODE", "n1")
		list(far, "a@n1 b@n1", "SKIPME", "yes")
		a.call("ACL", "SETUSER", "bob") // n2 does not know him yet
		list(a, "", "USER", "bob")
		list(a, "a@n1 b@n1 far@n2", "NOT-USER", "bob")

		a.compare(t, [][2]string{
			{"CLIENT KILL ID " + idFar + " NAME a", ":0"},
			{"CLIENT KILL ID 1 NAME far", ":0"},
			{"CLIENT KILL ID 2", ":0"}, // a number that was nobody's id
			{"CLIENT KILL 1.2.3.4:5", "-ERR No such client"},
			{"CLIENT UNBLOCK " + idFar, ":0"},
			{"CLIENT UNBLOCK " + idFar + " BADLY",
				"-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"},
			{"CLIENT UNBLOCK x", "-ERR value is not an integer or out of range"},
			{"CLIENT UNBLOCK 4294967297 ERROR x", "-ERR unknown subcommand or wrong number of " +
				"arguments for 'UNBLOCK'. Try CLIENT HELP."},
		})
		far.raw("BLPOP q 0\r\n")
		eventually(t, "it waits", func() bool {
			return strings.Contains(a.call("CLIENT", "LIST", "NAME", "far", "FLAGS", "b"), "id=")
		})
		a.compare(t, [][2]string{{"CLIENT UNBLOCK " + idFar + " ERROR", ":1"},
			{"CLIENT UNBLOCK " + idFar, ":0"}})
		far.want("-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n")

		a.compare(t, [][2]string{{"CLIENT KILL ID " + idFar, ":1"}})
		far.ended()
		list(a, "a@n1 b@n1")
		two.dial(t) // addresses are a listener's own: none of n1 has the next one's
		two.dial(t)
		far, _ = two.named(t, "far")
		addr := field(a.call("CLIENT", "LIST", "NAME", "far"), "addr")
		a.compare(t, [][2]string{{"CLIENT KILL " + addr, "+OK"}})
		far.ended()
		far, _ = two.named(t, "far")
		far.compare(t, [][2]string{{"CLIENT KILL TYPE normal", ":4"}})
		a.ended()
		b.ended()
		list(far, "far@n2")
	})
}

// Who cannot have an answer of a node is told so, unless it does not matter.
func TestClientsOfASilentNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, _ := startPair(t)
		one.asks("n2", func([]byte) []byte { return nil })
		a, idA := one.named(t, "a")
		b, idB := one.named(t, "b")
		other := "4296015872"
		a.compare(t, [][2]string{
			{"CLIENT KILL ID " + other, "-ERR no answer from n2, done on the other nodes: 0"},
			{"CLIENT KILL ID " + other + " NODE n1", ":0"},
			{"CLIENT KILL 1.2.3.4:5", "-ERR no answer from n2, done on the other nodes: 0"},
			{"CLIENT UNBLOCK " + other, "-ERR no answer from n2, done on the other nodes: 0"},
			{"CLIENT UNBLOCK " + idA, ":0"},
			{"CLIENT KILL ID " + idB, ":1"},
		})
		b.ended()
		if got := listed(a.call("CLIENT", "LIST")); got != "a@n1" {
			t.Error(got)
		}
		b, idB = one.named(t, "b")
		a.compare(t, [][2]string{{"CLIENT KILL ID " + idB + " ID " + other,
			"-ERR no answer from n2, done on the other nodes: 1"}})
		b.ended()

		b, idB = one.named(t, "b")
		many := slices.Repeat([]string{"77"}, maxQuestion/8)
		got := a.call(append([]string{"CLIENT", "KILL", "ID", idB}, many...)...)
		if b.id() != idB {
			t.Error("KILL was refused and done")
		}
		if !strings.HasPrefix(got, "-ERR the filters exceed the 1048576 bytes") {
			t.Error(got)
		}
		got = a.call(append([]string{"CLIENT", "LIST", "NODE", "n1", "ID"}, many...)...)
		if !strings.HasPrefix(got, "$0\r\n") {
			t.Errorf("%.100q", got)
		}
	})
}

// Followers answer cluster clients for themselves, and so does each node of an earlier release.
func TestClientsOfThisNodeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := startPair(t)
		a, _ := one.named(t, "a")
		two.named(t, "far")
		for _, c := range []struct{ role, readonly, want string }{
			{"follower", "READWRITE", "a@n1 far@n2"}, {"follower", "READONLY", "a@n1"},
			{"leader", "READONLY", "a@n1 far@n2"},
		} {
			one.fake.set(func() { one.fake.st.Role = c.role })
			a.call(c.readonly)
			if got := listed(a.call("CLIENT", "LIST")); got != c.want {
				t.Errorf("%v: %s", c, got)
			}
		}
		one.fake.restart(1)
		if got := listed(a.call("CLIENT", "LIST")); got != "a@n1" {
			t.Errorf("level 1: %s", got)
		}
		a.compare(t, [][2]string{{"CLIENT KILL NAME far", ":0"}})
	})
}

// Lists that are too long for an answer come in parts. What two nodes send is in order.
func TestLongListsOfClients(t *testing.T) {
	detector.Skip(t) // it works much
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		const first, lines = 5_000_000_000, 30
		questions := 0
		long := func(step int) func(question []byte) []byte {
			return func(question []byte) []byte {
				questions++
				v, err := resp.NewReader(bytes.NewReader(question)).Value()
				if err != nil {
					t.Error(err)
					return nil
				}
				after, _ := strconv.Atoi(v.Elems[1].Text)
				var all []clientLine
				for i := range lines {
					if id := first + 3*i + step; id > after {
						all = append(all, clientLine{uint64(id), fmt.Sprintf("id=%d %s\n", id,
							strings.Repeat("x", (step+1)*200_000))})
					}
				}
				answer := appendLines(all)
				if len(answer) > maxAnswer {
					t.Errorf("an answer of %d bytes", len(answer))
				}
				return answer
			}
		}
		n.asks("n2", long(0))
		n.asks("n3", long(1))
		c := n.dial(t)
		id := c.id()
		var got, want []string
		for line := range strings.Lines(c.call("CLIENT", "LIST")) {
			if strings.HasPrefix(line, "id=") {
				got = append(got, field(line, "id"))
			}
		}
		for i := range lines {
			want = append(want, strconv.Itoa(first+3*i), strconv.Itoa(first+3*i+1))
		}
		if want = append([]string{id}, want...); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if questions < 6 {
			t.Errorf("%d questions", questions)
		}
	})
}

// Ids follow numbers through blocks, and back.
func TestBlocksOfIDs(t *testing.T) {
	const block = commands.ClientIDBlock
	ids := &clientIDs{plain: 7, blocks: []uint64{1 << 32, 1<<32 + 5*block}}
	for number, want := range map[uint64]uint64{1: 1 << 32, block: 1<<32 + block - 1,
		block + 1: 1<<32 + 5*block, 2 * block: 1<<32 + 6*block - 1} {
		if id, unique := ids.of(number); id != want || !unique || ids.number(id) != number {
			t.Errorf("connection %d: id %d, %v, of connection %d", number, id, unique,
				ids.number(id))
		}
	}
	if id, unique := ids.of(2*block + 1); id != 2*block+1 || unique {
		t.Error(id, unique)
	}
	for id, want := range map[uint64]uint64{7: 7, 8: 0, 1<<32 + block: 0, 1<<32 + 6*block: 0,
		1<<32 + 5*block - 1: 0, 1<<63 + 1: 0} {
		if got := ids.number(id); got != want {
			t.Errorf("id %d is of connection %d, want %d", id, got, want)
		}
	}
	if got := new(clientIDs).number(1 << 32); got != 0 {
		t.Errorf("without a block: %d", got)
	}
}

// A node takes its next block when half of one is used, and again after an error.
func TestBlocksAreTakenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		c := n.dial(t)
		want := func(what, id string) {
			t.Helper()
			if got := c.id(); got != id {
				t.Errorf("%s: %s, want %s", what, got, id)
			}
		}
		want("the first connection", "4294967296")
		at := func(number uint64) {
			n.mu.Lock()
			n.nextID = number - 1
			n.mu.Unlock()
			c = n.dial(t)
			c.call("PING")
			synctest.Wait()
		}
		blocks := func(want int) {
			t.Helper()
			n.clientIDs.mu.Lock()
			defer n.clientIDs.mu.Unlock()
			if got := len(n.clientIDs.blocks); got != want {
				t.Errorf("%d blocks, want %d", got, want)
			}
		}
		at(commands.ClientIDBlock / 2)
		blocks(1)
		at(commands.ClientIDBlock/2 + 1)
		blocks(2)
		at(commands.ClientIDBlock + 1)
		want("the first of the second block", "4296015872")
		blocks(2)
	})
}

// Below LevelSecond ids are a node's own. Such an id means its connection on its node for ever.
func TestIDsBeforeTheLevelRises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.fake.restart(1)
		a, b := n.dial(t), n.dial(t)
		if a.id() != "1" || b.id() != "2" {
			t.Errorf("ids %s, %s", a.id(), b.id())
		}
		n.fake.restart(commands.FeatureLevel)
		time.Sleep(2 * longestPause)
		if got := a.id(); got != "4294967296" {
			t.Errorf("id %s", got)
		}
		if got := field(a.call("CLIENT", "LIST", "ID", "2"), "id"); got != "4294967297" {
			t.Errorf("2 is %s", got)
		}
		a.compare(t, [][2]string{{"CLIENT TRACKING ON REDIRECT 2", "+OK"},
			{"CLIENT GETREDIR", ":4294967297"}, {"CLIENT KILL ID 2", ":1"}})
		b.ended()
	})
}

// A node without ids for its connections answers no other node: there their numbers are those of
// other connections.
func TestClientsWithoutIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := startPair(t)
		two.fake.set(func() { two.fake.noIDs = true })
		a, _ := one.named(t, "a")
		b, _ := one.named(t, "b")
		_, id := two.named(t, "far")
		if id != "1" {
			t.Errorf("id %s", id)
		}
		if got := listed(a.call("CLIENT", "LIST")); got != "a@n1 b@n1" {
			t.Error(got)
		}
		a.compare(t, [][2]string{{"CLIENT KILL ID 2",
			"-ERR no answer from n2, done on the other nodes: 0"}})
		two.fake.set(func() { two.fake.noIDs = false })
		time.Sleep(2 * longestPause)
		if got := listed(a.call("CLIENT", "LIST")); got != "a@n1 b@n1 far@n2" {
			t.Error(got)
		}
		if got := field(two.dial(t).call("CLIENT", "LIST", "ID", id), "name"); got != "far" {
			t.Errorf("the connection that was told the id %s is %s", id, got)
		}
		b.call("PING")
	})
}

// A session keeps nothing of what a CLIENT command meant.
func TestClientsMeantAreForgotten(t *testing.T) {
	one := start(t, nil)
	many := strings.Repeat(" 77", maxQuestion/8)
	for _, call := range []string{"KILL ID 7", "KILL ID x", "KILL 1.2.3.4:5", "LIST ID 7",
		"UNBLOCK 7", "UNBLOCK 7 x", "KILL ID" + many, "LIST ID" + many, "LIST NODE n1 ID" + many} {
		s := unservedSession(one)
		s.dispatch(commandtest.Args(strings.Fields("CLIENT " + call)...))
		if s.meant != nil || s.killing != nil {
			t.Errorf("after %.20s: %+v", call, s.meant)
		}
	}
}
