package fsm

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/tests/random"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// What looks ahead passes the requests that run, one by one.
func TestNextKeyPassesRequests(t *testing.T) {
	g := random.NewCalls(testTable(), seeds.Of(t))
	for range 200 {
		for _, batch := range randomEntry(g).Batches {
			var ahead, behind commands.RequestReader
			ahead.Reset(batch)
			behind.Reset(batch)
			for behind.More() {
				db, key := ahead.NextKey()
				q, err := behind.Next()
				if err != nil {
					break
				}
				if len(ahead.Rest()) != len(behind.Rest()) {
					t.Fatalf("%q: %d bytes are left, not %d", q.Cmds, len(ahead.Rest()),
						len(behind.Rest()))
				}
				if key != nil && db != q.DB {
					t.Errorf("%q: database %d, not %d", q.Cmds, db, q.DB)
				}
			}
		}
	}
}

func TestNextKeyOf(t *testing.T) {
	var r commands.RequestReader
	r.Reset(append(requestsOf([]string{"SET", "a", "1"}, []string{"PING"},
		[]string{"evalsha", "sha", "1", "b", "x"}, []string{"FCALL", "f", "1", "c"},
		[]string{"EVAL", "return 1", "0"}),
		transactionOf([]string{"GET", "d"}, []string{"GET", "e"})...))
	for _, want := range []string{"a", "", "b", "c", "", "d"} {
		if _, key := r.NextKey(); string(key) != want {
			t.Errorf("the key is %q, not %q", key, want)
		}
	}
	if r.More() {
		t.Error("there are more requests")
	}
}

// Looking ahead changes no reply, whatever follows: batches that end early, garbage, transactions.
func TestLookingAheadChangesNothing(t *testing.T) {
	m := filledMachine(t, 20_000, []string{"MSET", "key:# value:#"})
	if !m.ks.OutgrewCaches() {
		t.Fatal("nothing is loaded ahead")
	}
	rng := rand.New(rand.NewPCG(1, seeds.Of(t)))
	for entry := range 300 {
		e := &Entry{ClockMs: 1000}
		var want []string
		for range 1 + rng.IntN(10) {
			var batch []byte
			replies := ""
			for range rng.IntN(20) {
				n := strconv.Itoa(rng.IntN(20_000))
				if get := []string{"GET", "key:" + n}; rng.IntN(5) == 0 {
					batch = append(batch, transactionOf(get)...)
					replies += "*1\r\n"
				} else {
					batch = append(batch, requestsOf(get)...)
				}
				replies += "$" + strconv.Itoa(len("value:"+n)) + "\r\nvalue:" + n + "\r\n"
			}
			if rng.IntN(5) == 0 {
				batch = append(batch, 0xff, 0xff, 0xff)
				replies += "-ERR " + commands.ErrCorruptRequest.Error() + "\r\n"
			}
			e.Batches, want = append(e.Batches, batch), append(want, replies)
		}
		result, err := m.Apply(m.Index()+1, e, true)
		if err != nil {
			t.Fatal(err)
		}
		for i, replies := range result.Replies {
			if string(replies) != want[i] {
				t.Fatalf("entry %d, batch %d: %q, not %q", entry, i, replies, want[i])
			}
		}
	}
}
