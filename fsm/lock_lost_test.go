// Tests of what tells that a lock was lost: notifications, and events for the node of its holder.

package fsm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
)

// A lock that a LOCK command took is lost when it ends and its owner has not released it, as far as
// the machine knows. That is notified behind what has happened to the key.
func TestLostLocksAreNotified(t *testing.T) {
	m := newestMachine(testTable())
	var err error
	if m.events.notify, err = commands.ParseNotifyFlags("EAn"); err != nil {
		t.Fatal(err)
	}
	operate := func(key, act string) string {
		return fmt.Sprintf("return redis.call('LOCKS',%s,redis.call('FENCE','%s')%s)", act, key,
			map[bool]string{true: ",9999"}[strings.Contains(act, "EXTEND")])
	}
	index, clockMs := uint64(0), int64(1000)
	for _, c := range []struct {
		afterMs            int64
		call, script, want string
	}{
		{0, "SET plain me NX PX 100", "", "new plain,set plain,expire plain"},
		{0, "LOCK.ACQUIRE l me PX 100", "", "new l,set l,expire l"},
		{0, "LOCK.ACQUIRE s a PX 50 SHARED", "", "new s,hset s"},
		{0, "LOCK.ACQUIRE s b PX 100 SHARED", "", "hset s"},
		{0, "LOCK.ACQUIRE r me PX 100 REENTRANT", "", "new r,hset r,expire r"},
		{0, "PEXPIRE r 50", "", "expire r"},
		{51, "PING", "", "expired r,lock-lost r,hexpired s,lock-lost s"},
		{50, "PING", "", "expired plain,expired l,lock-lost l,hexpired s,del s,lock-lost s"},
		{0, "LOCK.ACQUIRE l me PX 100", "", "new l,set l,expire l"},
		{0, "LOCK.RELEASE l me", "", "del l"},
		{0, "LOCK.ACQUIRE l me PX 100", "", "new l,set l,expire l"},
		{0, "LOCK.STEAL l you PX 100", "", "del l,lock-lost l,new l,set l,expire l"},
		{0, "SET l you XX KEEPTTL", "", "set l"}, // the value stays
		{0, "", operate("l", "'EXTEND','l','you'"), "expire l"},
		{0, "", operate("l", "'RELEASE','l','you'"), "del l,lock-lost l"},
		{0, "LOCK.ACQUIRE p a PX 100 PERMITS 1 OF 3", "", "new p,hset p"},
		{0, "LOCK.ACQUIRE p b PX 100 PERMITS 2 OF 3", "", "hset p"},
		{0, "", operate("p", "'EXTEND','p','a'"), "hexpire p"},
		{0, "", operate("p", "'RELEASE','p','b'"), "hdel p,lock-lost p"},
		{101, "PTTL p", "", ""}, // the other is held on
		{0, "", operate("p", "'RELEASE','p','a'"), "del p,lock-lost p"},
		{0, "LOCK.ACQUIRE l me PX 100", "", "new l,set l,expire l"},
		{0, "SET l other PX 100", "", "set l,expire l"}, // somebody else's now
		{101, "PING", "", "expired l"},
		{0, "LEASE GRANT 100", "", ""},
		{0, "LOCK.ACQUIRE l me LEASE $lease", "", "new l,set l,expire l"},
		{0, "LOCK.ACQUIRE s me LEASE $lease SHARED", "", "new s,hset s"},
		{0, "SET k v LEASE $lease", "", "new k,set k,expire k"},
		{0, "LEASE REVOKE $lease", "", "del k,del l,lock-lost l,hdel s,del s,lock-lost s"},
		{0, "LEASE GRANT 100", "", ""},
		{0, "LOCK.ACQUIRE l me LEASE $lease", "", "new l,set l,expire l"},
		{101, "PING", "", "expired l,lock-lost l"},
		{0, "LOCK.ACQUIRE l me PX 100", "", "new l,set l,expire l"},
		{0, "DEL l", "", "del l"}, // nobody knows whose that was
	} {
		index, clockMs = index+1, clockMs+c.afterMs
		call := calls(strings.ReplaceAll(c.call, "$lease", fmt.Sprint(m.leases.Last())))
		if c.script != "" {
			call = commands.AppendRequest(nil, &commands.Request{Proto: 2,
				Cmds: [][][]byte{eval(c.script, "0")}})
		}
		if got := notified(t, m, index, clockMs, call); sortedExpiry(got) != sortedExpiry(c.want) {
			t.Errorf("%s%s: %q, want %q", c.call, c.script, got, c.want)
		}
	}
}

// sortedExpiry orders notifications by key, and those of a key as they come: which key is swept
// first means nothing.
func sortedExpiry(all string) string {
	list := strings.Split(all, ",")
	slices.SortStableFunc(list, func(a, b string) int {
		return strings.Compare(a[strings.Index(a, " ")+1:], b[strings.Index(b, " ")+1:])
	})
	return strings.Join(list, ",")
}

// That a LOCK command took a lock goes with the key into snapshots, and ends when another
// overwrites it.
func TestAcquiredLocksAreRestored(t *testing.T) {
	m := newestMachine(testTable())
	mustApply(t, m, 1, &Entry{ClockMs: 1000, Batches: [][]byte{calls("LOCK.ACQUIRE l me PX 100",
		"LOCK.ACQUIRE s me PX 100 SHARED", "SET plain me NX PX 100", "SET w 1 PX 100", "INCR w",
		"LOCK.ACQUIRE o me PX 100", "SET o other KEEPTTL")}}, true)
	restored := restored(t, m)
	for key, want := range map[string][3]bool{"l": {true, true}, "s": {true, true},
		"plain": {false, true}, "w": {false, false, true}, "o": {false, true}} {
		for _, of := range []*Machine{m, restored} {
			e := of.ks.DB(0).Find([]byte(key))
			if got := [3]bool{e.Acquired(), e.Lease(), e.Window()}; got != want {
				t.Errorf("%s is %v, want %v", key, got, want)
			}
		}
	}
	if m.StateSum() != restored.StateSum() {
		t.Error("the sums differ")
	}
}
