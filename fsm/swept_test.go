package fsm

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/random"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
)

// showSweeping are the commands whose replies tell what is in memory, or in which order.
var showSweeping = []string{"memory", "randomkey", "scan", "hscan", "sscan", "zscan", "debug",
	"info", "object", "keys", "hrandfield", "srandmember", "zrandmember", "spop", "eval", "evalsha",
	"fcall", "locks", "dbsize"}

// soon are times to live, ms: a few entries.
var soon = []string{"1", "10", "20", "40", "60", "100", "200"}

// Whether what has expired is swept does not show: a machine that sweeps nothing answers a random
// log as one that sweeps everything, watched keys too, and so do dry runs.
func TestSweptOrNotIsInvisible(t *testing.T) {
	detector.Skip(t)
	seed := seeds.Of(t)
	rounds := uint64(60)
	if tier.Checking() {
		rounds = 600
	}
	table := testTable()
	calls := 0
	for round := range rounds {
		g := random.NewCalls(table, seed+round)
		g.Pools = slices.Concat([]random.Pool{{Part: "milliseconds", Values: soon}}, fewPools,
			g.Pools)
		g.Strays = 1
		g.Specs = slices.DeleteFunc(g.Specs, func(s *commands.Spec) bool {
			return slices.Contains(showSweeping, s.Name) || s.Group == "server" ||
				s.Group == "scripting"
		})
		group, oftenNamed := "hash", []string{"hpexpire", "hset"}
		if round/2%2 > 0 {
			group, oftenNamed = "set", []string{"spexpire", "sadd"}
		}
		mortal := slices.DeleteFunc(slices.Clone(g.Specs), func(s *commands.Spec) bool {
			return s.Group != group && s.Group != "generic"
		})
		g.Shuffle(len(mortal), func(i, j int) { mortal[i], mortal[j] = mortal[j], mortal[i] })
		mortal = slices.Concat(mortal[:6], slices.DeleteFunc(mortal[6:],
			func(s *commands.Spec) bool {
				return !slices.ContainsFunc(oftenNamed, func(name string) bool {
					return strings.HasPrefix(s.Name, name)
				})
			}))
		all := g.Specs
		ms := []*Machine{newestMachine(table), newestMachine(table)}
		ms[0].sweeps, ms[1].sweeps = -1, math.MaxInt32
		if round%2 > 0 { // notifications are charged, and the swept are notified elsewhere
			for _, m := range ms {
				m.events.notify = allNotifications(t)
			}
		}
		watched := map[string]uint64{}
		clock := int64(0)
		for index := uint64(1); index < 120; index++ {
			clock += int64(g.IntN(40))
			g.Specs = mortal
			if g.IntN(10) == 0 {
				g.Specs = all
			}
			q := g.Request()
			q.Wait = nil
			if len(watched) > 0 && g.IntN(3) == 0 {
				q.Multi, q.Watch = true, nil
				for key, changed := range watched {
					q.Watch = append(q.Watch, commands.WatchedKey{Key: []byte(key),
						Changed: keyspace.Revision(changed)})
				}
				clear(watched)
			}
			e := &Entry{Origin: 1, ClockMs: clock, WallUs: int64(index),
				Batches: [][]byte{commands.AppendRequest(nil, q)}}
			var replies [2][][]byte
			for i, m := range ms {
				var dry []byte
				if writes(table, q) { // a read is of the state before
					dry = m.Read(nil, e.Batches[0], clock, e.WallUs)
				}
				r, err := m.Apply(index, e, true)
				if err != nil {
					t.Fatal(err)
				}
				replies[i] = r.Replies
				if len(dry) > 0 && !bytes.Equal(dry, r.Replies[0]) {
					t.Fatalf("%s=%d: entry %d%s: dry\n%q, in the entry\n%q", seeds.Variable,
						seed+round, index, entryText(e), dry, r.Replies[0])
				}
			}
			calls++
			if g.IntN(8) == 0 {
				_ = ms[1].Snapshot() // its small values rest, which does not show either
			}
			for i := range replies[0] {
				if !bytes.Equal(replies[0][i], replies[1][i]) {
					t.Fatalf("%s=%d: entry %d%s: what is not swept answers\n%q, what is swept\n%q",
						seeds.Variable, seed+round, index, entryText(e), replies[0][i],
						replies[1][i])
				}
			}
			for _, key := range []string{"a", "b", "c"} {
				if g.IntN(6) == 0 {
					at := ms[1].ks.DB(0).LastChange([]byte(key))
					if other := ms[0].ks.DB(0).LastChange([]byte(key)); other != at {
						t.Fatalf("%s=%d: entry %d%s: %s was changed at %d, swept at %d",
							seeds.Variable, seed+round, index, entryText(e), key, other, at)
					}
					watched[key] = uint64(at)
				}
			}
		}
	}
	t.Logf("%d calls", calls)
}

// writes reports whether a request may write.
func writes(table *commands.Table, q *commands.Request) bool {
	return slices.ContainsFunc(q.Cmds, func(args [][]byte) bool {
		spec, err := table.Resolve(args)
		return err == nil && spec.Kind == commands.Write
	})
}

// An element that expires is a change of its key, from then on and once: swept or not.
func TestWatchSeesElementsExpire(t *testing.T) {
	testWatchSees(t, "HSET h holder me other 1", "HPEXPIRE h 100 FIELDS 1 holder",
		"HSET h holder you")
	testWatchSees(t, "SADD h holder other", "SPEXPIRE h 100 MEMBERS 1 holder", "SADD h holder")
}

func testWatchSees(t *testing.T, set, expire, again string) {
	for _, sweeps := range []int{-1, math.MaxInt32} {
		m := newestMachine(testTable())
		m.sweeps = sweeps
		at := func(index uint64, clock int64, calls ...string) {
			t.Helper()
			var batch []byte
			for _, call := range calls {
				q := &commands.Request{}
				var args [][]byte
				for _, word := range strings.Fields(call) {
					args = append(args, []byte(word))
				}
				q.Cmds = [][][]byte{args}
				batch = commands.AppendRequest(batch, q)
			}
			_, err := m.Apply(index, &Entry{Origin: 1, ClockMs: clock, WallUs: clock * 1000,
				Batches: [][]byte{batch}}, true)
			if err != nil {
				t.Fatal(err)
			}
		}
		at(1, 1000, set, expire)
		before := m.ks.DB(0).LastChange([]byte("h"))
		at(2, 1050, "PING")
		if m.ks.DB(0).LastChange([]byte("h")) != before {
			t.Error("it has changed before")
		}
		at(3, 1200, "PING")
		after := m.ks.DB(0).LastChange([]byte("h"))
		if after == before {
			t.Errorf("%s, sweeping %d: an element that has expired is no change", set, sweeps)
		}
		at(4, 1300, "PING")
		if m.ks.DB(0).LastChange([]byte("h")) != after {
			t.Errorf("sweeping %d: it has changed twice", sweeps)
		}
		at(5, 1400, again)
		if m.ks.DB(0).LastChange([]byte("h")) == before {
			t.Error("the same element again is no change")
		}
	}
}

// A watched hash or set that nobody changes is not changed, whatever form it has: at rest after a
// snapshot, as a read finds it, or awake in an entry.
func TestWatchedAtRest(t *testing.T) {
	testWatchedAtRest(t, "HSET h a 1 b 2", "HLEN h")
	testWatchedAtRest(t, "SADD h a b", "SCARD h")
}

func testWatchedAtRest(t *testing.T, set, count string) {
	m := newestMachine(testTable())
	run := func(index uint64, q *commands.Request) string {
		t.Helper()
		r := mustApply(t, m, index, &Entry{Origin: 1, ClockMs: int64(index), WallUs: int64(index),
			Batches: [][]byte{commands.AppendRequest(nil, q)}}, true)
		return string(r.Replies[0])
	}
	run(1, &commands.Request{Cmds: [][][]byte{commandtest.Args(strings.Fields(set)...)}})
	awake := m.ks.DB(0).LastChange([]byte("h"))
	snapshotBytes(t, m.Snapshot()) // makes it rest
	atRest := m.ks.DB(0).LastChange([]byte("h"))
	exec := run(2, &commands.Request{Multi: true,
		Cmds:  [][][]byte{commandtest.Args(strings.Fields(count)...)},
		Watch: []commands.WatchedKey{{Key: []byte("h"), Changed: atRest}}})
	if exec != "*1\r\n:2\r\n" || awake != atRest {
		t.Errorf("%q; awake it was changed at %d, at rest at %d", exec, awake, atRest)
	}
}

// Whether a value rests does not show: a set that rests is another at each look-up, also if one
// command names it twice.
func TestRestOfASetIsInvisible(t *testing.T) {
	for _, call := range []string{"SDIFFSTORE d b a b a a a a", "SDIFF b a b a a a a",
		"SINTERSTORE d b a b",
		"SUNIONSTORE d b a b", "SDIFFCARD 3 b a b", "SMOVE b b x1", "ZDIFFSTORE d 3 b a b"} {
		var want Result
		for _, rests := range []bool{false, true} {
			m := newestMachine(testTable())
			at := func(index uint64, call string) Result {
				q := &commands.Request{Proto: 2, Cmds: [][][]byte{
					commandtest.Args(strings.Fields(call)...)}}
				r, err := m.Apply(index, &Entry{Origin: 1, ClockMs: 1,
					Batches: [][]byte{commands.AppendRequest(nil, q)}}, true)
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			at(1, "SADD a x1 y")
			at(2, "SADD b x1 x2 x3 x4 x5 x6 x7 x8 x9")
			if rests {
				_ = m.Snapshot()
			}
			r := at(3, call)
			if !rests {
				want = r
				continue
			}
			if !bytes.Equal(r.Replies[0], want.Replies[0]) || r.Spent != want.Spent {
				t.Errorf("%s: %q for %d units, if the sets rest %q for %d", call, want.Replies[0],
					want.Spent, r.Replies[0], r.Spent)
			}
		}
	}
}
