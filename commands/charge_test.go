// Charges for work that neither arguments nor reply show.

package commands

import (
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/commands/rdb"
)

// charged returns what a call is charged at a feature level.
func (r *testRun) charged(level uint64, words ...string) uint64 {
	r.index++
	r.ks.Begin(1, keyspace.NewRevision(0, r.index, 0))
	defer r.ks.End()
	env := &Env{Keyspace: r.ks, ClockMs: 1, Level: level}
	r.table.Run(&Call{Env: env, Tx: &Tx{Proto: 2}, Args: commandtest.Args(words...),
		Out: &RESP{Proto: 2}})
	return env.Work
}

// add runs a call with the words of element for each of n elements.
func (r *testRun) add(words string, n int, element func(i int) []string) {
	args := strings.Fields(words)
	for i := range n {
		args = append(args, element(i)...)
	}
	r.do(commandtest.Args(args...))
}

// Work that is out of proportion to arguments and reply is charged.
func TestChargesOfHiddenWork(t *testing.T) {
	r := newTestRun()
	const n = 20_000
	long := "0." + strings.Repeat("123456789", 500)
	r.add("SADD s", n, func(i int) []string { return []string{"m" + strconv.Itoa(i)} })
	r.add("RPUSH sparse", n, func(i int) []string { return []string{strconv.Itoa(i % 64)} })
	r.add("RPUSH nested", 300, func(i int) []string {
		return []string{strings.Repeat("abcdefgh", i+1) + "x"}
	})
	r.add("ZADD nested:z", 300, func(i int) []string {
		return []string{"1", strings.Repeat("abcdefgh", i+1) + "x"}
	})
	r.add("RPUSH numbers", 100, func(i int) []string { return []string{long + strconv.Itoa(i)} })
	r.add("ZADD z", n, func(i int) []string {
		return []string{strconv.Itoa(i), "m" + strconv.Itoa(i)}
	})
	r.add("HSET h", n, func(i int) []string { return []string{"m" + strconv.Itoa(i), "v"} })
	r.add("MSET", n, func(i int) []string { return []string{"k" + strconv.Itoa(i), "v"} })
	r.add("ZADD few", 1000, func(i int) []string {
		return []string{strconv.Itoa(i), "m" + strconv.Itoa(i)}
	})
	const size = 4 << 20
	r.do(commandtest.Args("HSET", "values", "f", strings.Repeat("v", size), "g", "v"))
	r.do(commandtest.Args("SET", "string", strings.Repeat("v", size)))
	r.do(commandtest.Args("ZADD", "names", "1", strings.Repeat("v", size)))
	r.add("ZADD names", 20, func(i int) []string { return []string{"2", strconv.Itoa(i)} })
	for _, c := range []struct {
		call  string
		least uint64
	}{
		{"HEXPIRE values 100 FIELDS 1 f", 2 * size / bytesSpent},
		{"HGETEX values PERSIST FIELDS 1 f", 2 * size / bytesSpent},
		{"HPERSIST values FIELDS 1 f", 2 * size / bytesSpent},
		{"COPY values copied", 0}, {"HDEL copied f", size / bytesSpent},
		{"COPY values copied REPLACE", 0}, {"HSET copied f v", size / bytesSpent},
		{"COPY values copied REPLACE", 0}, {"HSETEX copied EX 100 FIELDS 1 f v", size / bytesSpent},
		{"COPY string copied REPLACE", 3 * size / bytesSpent},
		{"RENAME copied moved", 3 * size / bytesSpent},
		{"ZREMRANGEBYRANK names 0 0", size / bytesSpent},
		{"SORT s BY nosort LIMIT 19999 1", n},
		{"LREM sparse 0 5", n / 64 * 100},
		{"SORT nested ALPHA LIMIT 0 1", 250 * 250 / 2},
		{"ZUNIONSTORE d 1 nested:z", 250 * 250 / 2},
		{"SORT numbers LIMIT 0 1", 100 * 600},
		{"ZADD z " + long + " m", 700}, {"ZINCRBY z " + long + " m", 700},
		{"ZCOUNT z " + long + " 1", 700}, {"ZRANGEBYSCORE z 5 " + long + " LIMIT 0 1", 700},
		{"ZUNION 1 none WEIGHTS " + long, 700},
	} {
		if got := r.charged(FeatureLevel, strings.Fields(c.call)...); got < c.least {
			t.Errorf("%.40s: %d units, want %d at least", c.call, got, c.least)
		}
	}
	// Values that are cheap to make.
	const runs, groups, copies = 16384, 1000, 4000
	packed := rdb.AppendLength([]byte{rdbString, 0xc3}, 2+3*copies) // LZF: x, copies of 264 bytes
	packed = append(rdb.AppendLength(packed, 1+264*copies), 0, 'x')
	packed = append(packed, strings.Repeat("\xe0\xff\x00", copies)...)
	r.do(commandtest.Args("SET", "runs", "HYLL\x01"+strings.Repeat("\x00", 10)+"\x80"+
		strings.Repeat("\x84\x88", runs/2)))
	for _, c := range []struct {
		call  []string
		least uint64
	}{
		{[]string{"LCS", "string", "none", "LEN"}, size / lcsCells},
		{[]string{"LCS", "none", "string", "LEN"}, size},
		{[]string{"PFMERGE", "runs"}, runs * runs / hllRunBytes},
		{[]string{"RESTORE", "groups", "0", groupsDump(groups)[0]}, groups * restoredGroup},
		{[]string{"RESTORE", "x", "0", string(rdb.Seal(packed, rdbNewest))},
			264 * copies / restoredBytes},
	} {
		if got := r.charged(FeatureLevel, c.call...); got < c.least {
			t.Errorf("%.40q: %d units, want %d at least", c.call, got, c.least)
		}
	}
	if got, _ := r.do(commandtest.Args("STRLEN", "x")); string(got) != fmt.Sprintf(":%d\r\n",
		1+264*copies) {
		t.Errorf("unpacked: %q", got)
	}
	// Random access to much data takes longer than access to the processor's caches.
	for _, c := range []struct{ much, few string }{
		{"ZREM z m1 m2 m3", "ZREM few m1 m2 m3"}, {"ZADD z 9 m1 9 m2", "ZADD few 9 m1 9 m2"},
		{"ZMSCORE z m5 m6", "ZMSCORE few m5 m6"},
	} {
		much, few := r.charged(FeatureLevel, strings.Fields(c.much)...),
			r.charged(FeatureLevel, strings.Fields(c.few)...)
		if much < few+20 {
			t.Errorf("%s: %d units, %s: %d", c.much, much, c.few, few)
		}
	}
	small := newTestRun()
	if much, few := r.charged(FeatureLevel, "EXISTS", "a", "b"),
		small.charged(FeatureLevel, "EXISTS", "a", "b"); much <= few {
		t.Errorf("EXISTS among many keys: %d units, among none %d", much, few)
	}
}

// Below LevelSecond calls are charged as in the first release.
func TestChargesOfTheFirstRelease(t *testing.T) {
	r := newTestRun()
	r.do(commandtest.Args("SET", "k", strings.Repeat("x", 4<<20)))
	r.add("SADD a", 100, func(i int) []string { return []string{strconv.Itoa(i + 1)} })
	// of a's members it has the first
	r.add("SADD b", 200, func(i int) []string { return []string{strconv.Itoa(1 + i*1000)} })
	for call, want := range map[string]uint64{
		// a copy of the string, and one for each RoomAhead that it has
		"SETRANGE k 6291455 x":         4<<20/64 + 5*(2<<20)/64,
		"SINTERCARD 2 a b LIMIT 1":     joinedMember + lookedUp,
		"SINTERCARD 2 a b LIMIT 2":     100 * (joinedMember + lookedUp),
		"SORT a BY nosort LIMIT 99 1":  1 / searched,
		"ZADD z 0.12345678901234567 m": 0,
	} {
		if got := r.charged(LevelFirst, strings.Fields(call)...); got != want {
			t.Errorf("%s: %d units, want %d", call, got, want)
		}
	}
}

// What is charged at a feature level stays as it is.
func TestChargesOfLevels(t *testing.T) {
	const n = 2000
	r := newTestRun()
	name := func(i int) string { return "member:" + strconv.Itoa(i) }
	set := func(i int) []string { return []string{name(i)} }
	zset := func(i int) []string { return []string{strconv.Itoa(i), name(i)} }
	r.add("SADD a", n, set)
	r.add("SADD b", n, set)
	r.add("ZADD z", n, zset)
	r.add("ZADD y", n, zset)
	for _, c := range []struct {
		call string
		want uint64
	}{
		{"SINTER a b", 35_929}, {"SINTERSTORE d a b", 36_055}, {"SINTERCARD 2 a b", 24_037},
		{"SDIFF a none", 27_929}, {"SDIFFSTORE d a b", 24_055}, {"ZINTER 2 z y", 56_589},
		{"ZINTERCARD 2 z y LIMIT 9", 269}, {"ZINTERSTORE d 2 z y", 44_721},
		{"ZDIFF 2 z y", 24_037}, {"SUNION a b", 79_929}, {"ZRANGESTORE d z 0 -1", 4070},
		{"ZRANGESTORE d z 1 -1", 21_057},
	} {
		if got := r.charged(LevelSecond, strings.Fields(c.call)...); got != c.want {
			t.Errorf("%s: %d units, want %d", c.call, got, c.want)
		}
	}
}

// A string that grows costs the same in a script, in a transaction and alone: a transaction of
// SETRANGE took 640 MB on every node for the work of one request.
func TestStringsThatGrowAreCharged(t *testing.T) {
	const size = 4 << 20
	for _, call := range []string{"SETRANGE new 4194303 x", "SETBIT new 33554431 1",
		"BITFIELD new SET u8 #4194303 1"} {
		charged := func(script bool) uint64 {
			r := newTestRun()
			r.ks.Begin(1, keyspace.NewRevision(0, 1, 0))
			defer r.ks.End()
			env := &Env{Keyspace: r.ks, ClockMs: 1, Level: FeatureLevel}
			r.table.Run(&Call{Env: env, Tx: &Tx{Proto: 2, Script: script},
				Args: commandtest.Args(strings.Fields(call)...), Out: Discard{}})
			return env.Work + env.Copied/FreshBytes // as package script charges
		}
		lone, script := charged(false), charged(true)
		least := uint64(size/bytesSpent + size/FreshBytes)
		if lone < least || lone+9 < script || script+9 < lone {
			t.Errorf("%s: %d units, in a script %d, want %d at least", call, lone, script, least)
		}
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// What is not replied is neither copied nor collected first.
func TestRepliesAreNotGatheredInVain(t *testing.T) {
	r := newTestRun()
	const size = 8 << 20
	r.do(commandtest.Args("HSET", "h", "f", strings.Repeat("v", size), "g",
		strings.Repeat("v", size)))
	for i := range 50_000 {
		r.do(commandtest.Args("XADD", "x", strconv.Itoa(i+1), "f", "v"))
	}
	for _, c := range []struct {
		call string
		stop uint64
		room int
	}{
		{"HSCAN h 0 NOVALUES", 0, 0}, {"HSCAN h 0", 0, 1000}, {"XRANGE x - +", 5000, 0},
		{"XREVRANGE x + -", 0, 1000}, {"XREAD STREAMS x 0", 5000, 0},
		{"XINFO STREAM x FULL COUNT 0", 5000, 0},
	} {
		x := &Call{
			Env: &Env{Keyspace: r.ks, ClockMs: 1, Level: FeatureLevel}, Tx: &Tx{Proto: 2},
			Args: commandtest.Args(strings.Fields(c.call)...),
			Out:  &RESP{Proto: 2}, Stop: c.stop, Room: c.room,
		}
		if got := allocated(func() { r.table.Run(x) }); got > 1<<20 {
			t.Errorf("%s: %d bytes were allocated for %.80q", c.call, got, x.Out.(*RESP).Buf)
		}
	}
}

// Who removes elements that expire pays for their deadlines, and who restores many elements for
// entering each into a tree.
func TestChargesOfElementsThatExpire(t *testing.T) {
	const n = 20_000
	r := newTestRun()
	r.level = FeatureLevel
	r.add("SADD s", n, func(i int) []string { return []string{"m" + strconv.Itoa(i)} })
	r.add("HSET h", n, func(i int) []string { return []string{"m" + strconv.Itoa(i), "v"} })
	r.do(commandtest.Args("COPY", "s", "sv"))
	r.do(commandtest.Args("COPY", "h", "hv"))
	r.do(commandtest.Args("SEXPIRE", "sv", "100", "MEMBERS", "1", "m9"))
	r.do(commandtest.Args("HEXPIRE", "hv", "100", "FIELDS", "1", "m9"))
	for _, c := range []struct{ plain, mortal string }{
		{"SREM s m1 m2 m3", "SREM sv m1 m2 m3"}, {"HDEL h m1 m2 m3", "HDEL hv m1 m2 m3"},
	} {
		plain := r.charged(FeatureLevel, strings.Fields(c.plain)...)
		mortal := r.charged(FeatureLevel, strings.Fields(c.mortal)...)
		if mortal < plain+3*deadlineWork {
			t.Errorf("%s: %d units, %s: %d", c.plain, plain, c.mortal, mortal)
		}
	}
	for i, dump := range []func(int) []string{dumpOf(rdbSet, 1), dumpOf(rdbHash, 2),
		mortalDump(rdbMembersSet, 1), mortalDump(rdbFieldsHash, 2)} {
		few := r.charged(FeatureLevel, "RESTORE", "few", "0", dump(1000)[0], "REPLACE")
		many := r.charged(FeatureLevel, "RESTORE", "many", "0", dump(n)[0], "REPLACE")
		if many < n/1000*few+5*n {
			t.Errorf("dump %d: %d units for 1,000 elements, %d for %d", i, few, many, n)
		}
	}
}

// Who names small sets or sorted sets many times pays for reading each from the block in which it
// may rest.
func TestChargesOfManyRestingSets(t *testing.T) {
	const n, elements = 1000, 25
	r := newTestRun()
	r.level = FeatureLevel
	for _, key := range []string{"a", "b"} {
		r.add("SADD "+key, elements, func(i int) []string {
			return []string{key + strconv.Itoa(i)}
		})
		r.add("ZADD z"+key, elements, func(i int) []string {
			return []string{"1", key + strconv.Itoa(i)}
		})
	}
	for _, c := range []struct{ call, keys string }{
		{"SINTER none", "a b"}, {"SDIFFSTORE d none", "a b"}, {"SINTERCARD 2000", "a b"},
		{"ZINTERCARD 2000", "za zb"}, {"ZINTERCARD 2000", "a zb"},
	} {
		args := strings.Fields(c.call)
		for range n {
			args = append(args, strings.Fields(c.keys)...)
		}
		r.ks.Freeze()
		if got, least := r.charged(FeatureLevel, args...), 2*n*elements*wokenElement; got <
			uint64(least) {
			t.Errorf("%s: %d units, want %d at least", c.call, got, least)
		}
	}
}

// Who counts or lists keys pays for looking into each collection of which elements have expired, as
// far as it looks.
func TestExpiredCollectionsArePaidFor(t *testing.T) {
	const keys = 1000
	r := newTestRun()
	r.level = FeatureLevel
	for i := range keys {
		key := strconv.Itoa(i)
		r.do(commandtest.Args("SADDEX", "s"+key, "PX", "1000", "MEMBERS", "1", "m"))
		r.do(commandtest.Args("HSETEX", "h"+key, "PX", "1000", "FIELDS", "1", "f", "v"))
		r.do(commandtest.Args("HSET", "h"+key, "stays", "v"))
	}
	r.ks.LimitSweep(keys, nil)
	r.ks.Begin(2000, keyspace.NewRevision(0, r.index+1, 0))
	r.ks.End()
	passed := r.ks.DB(0).PassedCollections(math.MaxInt)
	if passed < keys/2 {
		t.Fatalf("%d collections are left", passed)
	}
	work := func(call string) uint64 {
		x := &Call{Env: &Env{Keyspace: r.ks, ClockMs: 2000, Level: FeatureLevel,
			Known: nothingKnown{}}, Tx: &Tx{Proto: 2}, Args: commandtest.Args(strings.Fields(
			call)...), Out: &RESP{Proto: 2}}
		r.table.Run(x)
		return x.Work
	}
	for _, call := range []string{"DBSIZE", "KEYS none", "RANDOMKEY", "LOCKS LIST COUNT 100000",
		"SCAN 0 COUNT 100000"} {
		if got := work(call); got < uint64(lookedInto*passed) {
			t.Errorf("%s: %d units among %d collections", call, got, passed)
		}
	}
	if got := work("SCAN 0 COUNT 10"); got > 1000 {
		t.Errorf("a step of ten keys: %d units", got)
	}
}

// Who copies a small collection pays for giving the copy its large form, as the next change may.
// Who moves one, or copies a large one, does not.
func TestChargesOfCopies(t *testing.T) {
	r := newTestRun()
	r.level = FeatureLevel
	member := func(i int) []string { return []string{strconv.Itoa(i)} }
	pair := func(i int) []string { return []string{strconv.Itoa(i), "1"} }
	name := func(i int) []string { return []string{"m" + strconv.Itoa(i)} }
	scored := func(i int) []string { return []string{"1", strconv.Itoa(i)} }
	for _, c := range []struct {
		add            string
		small, large   int
		each           int
		element, names func(int) []string
	}{
		{"HSET", 512, 600, grownElement, pair, pair},
		{"ZADD", 128, 600, grownElement, scored, scored},
		{"SADD", 512, 600, grownMember, member, name},
		{"SADD", 100, 600, grownMember, name, name},
	} {
		r.do(commandtest.Args("DEL", "few", "many"))
		r.add(c.add+" few", c.small, c.element)
		r.add(c.add+" many", c.large, c.names)
		few := r.charged(FeatureLevel, "COPY", "few", "d", "REPLACE")
		many := r.charged(FeatureLevel, "COPY", "many", "d", "REPLACE")
		moved := r.charged(FeatureLevel, "RENAME", "few", "d")
		if least := uint64(c.small * c.each); few < least || many > 1000 || moved > 1000 {
			t.Errorf("%s: a copy of %d elements is charged %d units, want %d; of %d %d; a move %d",
				c.add, c.small, few, least, c.large, many, moved)
		}
	}
}

// Who walks over a hash or a set pays for its expired elements, which are skipped one by one.
func TestExpiredElementsArePaidFor(t *testing.T) {
	const elements = 20_000
	r := newTestRun()
	r.level = FeatureLevel
	r.do(commandtest.Args("HSET", "k", "mode", "read"))
	r.do(commandtest.Args("SADD", "s", "stays", "too"))
	r.do(commandtest.Args("SADD", "few", "stays"))
	for i := range elements {
		name := strconv.Itoa(i)
		r.do(commandtest.Args("HSETEX", "k", "PX", "1000", "FIELDS", "1", name, "1"))
		r.do(commandtest.Args("SADDEX", "s", "PX", "1000", "MEMBERS", "1", name))
	}
	r.do(commandtest.Args("PEXPIRE", "k", "100000"))
	r.ks.LimitSweep(elements/2, nil)
	r.ks.Begin(2000, keyspace.NewRevision(0, r.index+1, 0))
	r.ks.End()
	h, _ := r.ks.DB(0).Find([]byte("k")).Collection().(*keyspace.Hash)
	s, _ := r.ks.DB(0).Find([]byte("s")).Collection().(*keyspace.Set)
	dead := min(h.Dead(), s.Dead())
	if dead < elements/4 {
		t.Fatalf("%d fields and %d members are there to be skipped", h.Dead(), s.Dead())
	}
	for _, call := range []string{"LOCKS SHOW k", "LOCKS LIST", "HGETALL k", "HKEYS k", "HVALS k",
		"HRANDFIELD k", "HSCAN k 0 COUNT 100000", "SMEMBERS s", "SRANDMEMBER s", "SRANDMEMBER s 1",
		"SSCAN s 0 COUNT 100000", "SINTER s s", "SINTERCARD 1 s", "SUNION s few", "SDIFF s few",
		"SUNIONCARD 2 s few", "SDIFFCARD 2 s few", "SORT_RO s BY nosort",
		"ZUNION 2 s few", "ZINTERCARD 1 s"} {
		x := &Call{Env: &Env{Keyspace: r.ks, ClockMs: 2000, Level: FeatureLevel,
			Known: nothingKnown{}}, Tx: &Tx{Proto: 2}, Args: commandtest.Args(strings.Fields(
			call)...), Out: &RESP{Proto: 2}}
		r.table.Run(x)
		if x.Work < uint64(dead) {
			t.Errorf("%s: %d units", call, x.Work)
		}
	}
	// who looks up single members does not
	x := &Call{Env: &Env{Keyspace: r.ks, ClockMs: 2000, Level: FeatureLevel}, Tx: &Tx{Proto: 2},
		Args: commandtest.Args("SISMEMBER", "s", "stays"), Out: &RESP{Proto: 2}}
	if r.table.Run(x); x.Work > 1000 {
		t.Errorf("SISMEMBER: %d units", x.Work)
	}
}
