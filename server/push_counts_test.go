package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/internal/resp"
)

// TestPubsubCountsAllNodes has three servers answer each other's questions.
func TestPubsubCountsAllNodes(t *testing.T) {
	plainOnly(t)
	n, others := start(t, nil), []*node{start(t, nil), start(t, nil)}
	for _, o := range others {
		n.fake.others = append(n.fake.others, o.Server)
	}
	c := n.dial(t)
	for i, on := range []*node{n, others[0], others[1]} {
		sub := on.dial(t)
		sub.call("SUBSCRIBE", "all")
		sub.call("SUBSCRIBE", fmt.Sprint("on", i))
		sub.call("PSUBSCRIBE", "p*")
		sub.call("PSUBSCRIBE", fmt.Sprint("p", i, "*"))
		sub.call("SSUBSCRIBE", "shard")
	}
	compare := func(tests [][2]string) {
		t.Helper()
		for _, test := range tests {
			got := strings.ReplaceAll(c.call(strings.Fields(test[0])...), "\r\n", " ")
			if got != test[1]+" " {
				t.Errorf("%s: %q, want %q", test[0], got, test[1])
			}
		}
	}
	all := [][2]string{
		{"PUBSUB NUMSUB all on1 none", "*6 $3 all :3 $3 on1 :1 $4 none :0"},
		{"PUBSUB NUMSUB", "*0"},
		{"PUBSUB SHARDNUMSUB shard all", "*4 $5 shard :3 $3 all :0"},
		{"PUBSUB CHANNELS", "*4 $3 all $3 on0 $3 on1 $3 on2"},
		{"PUBSUB CHANNELS on[12]", "*2 $3 on1 $3 on2"},
		{"PUBSUB SHARDCHANNELS", "*1 $5 shard"},
		{"PUBSUB NUMPAT", ":4"},
	}
	compare(all)
	// a cluster client that asks all nodes and adds up, or the master alone
	compare([][2]string{{"READONLY", "+OK"}})
	compare(all)
	n.follow(t)
	compare([][2]string{
		{"PUBSUB NUMSUB all on0", "*4 $3 all :0 $3 on0 :0"},
		{"PUBSUB SHARDNUMSUB shard", "*2 $5 shard :0"},
		{"PUBSUB CHANNELS", "*0"}, {"PUBSUB SHARDCHANNELS", "*0"}, {"PUBSUB NUMPAT", ":0"},
		{"READWRITE", "+OK"},
	})
	compare(all)
	compare([][2]string{{"MULTI", "+OK"}, {"PUBSUB NUMPAT", "+QUEUED"}, {"EXEC", "*1 :4"}})
}

func TestPubsubLimits(t *testing.T) {
	plainOnly(t)
	n, other := start(t, nil), start(t, nil)
	n.fake.others = []*Server{other.Server}
	c, sub := n.dial(t), other.dial(t)
	name := strings.Repeat("x", 1000)
	var names []string
	for i := range maxAnswer/len(name) + 1 {
		names = append(names, fmt.Sprint(i, name))
	}
	for _, name := range names {
		sub.call("SUBSCRIBE", name)
	}
	wants := func(want string, call ...string) {
		t.Helper()
		if got := c.call(call...); !strings.HasPrefix(got, want) {
			t.Errorf("%.40q: %.100q, want %q", call, got, want)
		}
	}
	// several questions
	got := c.call(append([]string{"PUBSUB", "NUMSUB"}, append(names, names...)...)...)
	if n := strings.Count(got, "\r\n:1\r\n"); n != 2*len(names) {
		t.Errorf("%d of %d subscribers", n, 2*len(names))
	}
	sub.call("SUBSCRIBE", "")
	wants("*2\r\n$0\r\n\r\n:1", "PUBSUB", "NUMSUB", "")
	got = c.call("PUBSUB", "NUMSUB", strings.Repeat("y", 2*maxQuestion))
	if !strings.HasSuffix(got, "y\r\n:0\r\n") {
		t.Errorf("a name that is too long: %.50q", got[max(len(got)-50, 0):])
	}
	wants("-"+errManyThere.Error(), "PUBSUB", "CHANNELS")
	wants("*1\r\n", "PUBSUB", "CHANNELS", "0x*")
	wants("*2\r\n$1001\r\n0x", "PUBSUB", "NUMSUB", names[0])
}

// Questions of later releases, and what is none, get no answer.
func TestUnknownQuestions(t *testing.T) {
	plainOnly(t)
	n := start(t, nil)
	for _, q := range []string{"", "x", "*0\r\n", "*1\r\n", ":1\r\n",
		string(resp.AppendCommand(nil, "later")), "*1\r\n*1\r\n$1\r\nx\r\n"} {
		if a := n.Answer([]byte(q)); a != nil {
			t.Errorf("%q: %q", q, a)
		}
	}
}
