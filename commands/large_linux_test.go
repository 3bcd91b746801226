package commands

// This file measures commands on large values: what one element costs, how much work is charged for it, and what a unit of work takes.

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"golang.org/x/sys/unix"
)

// largeValue says how the element i of a large value is written, and the command that adds some.
var largeValues = map[string]struct {
	add     string
	element func(r *rand.Rand, i int) []string
}{
	"z":  {"ZADD z", func(r *rand.Rand, i int) []string { return []string{strconv.Itoa(r.IntN(1 << 30)), largeName(i)} }},
	"z2": {"ZADD z2", func(r *rand.Rand, i int) []string { return []string{strconv.Itoa(r.IntN(1 << 30)), largeName(i + i%2)} }},
	"s":  {"SADD s", func(r *rand.Rand, i int) []string { return []string{largeName(i)} }},
	"h":  {"HSET h", func(r *rand.Rand, i int) []string { return []string{largeName(i), "v"} }},
	"l":  {"RPUSH l", func(r *rand.Rand, i int) []string { return []string{strconv.Itoa(r.IntN(1 << 30))} }},
}

func largeName(i int) string { return "member:" + strconv.Itoa(i) }

// fill makes the value at a key of largeValues have n elements, or the stream x with n entries that are pending for a consumer c of the group g.
func (r *testRun) fill(key string, n int) {
	if key == "x" {
		for i := range n {
			r.do(commandtest.Args("XADD", "x", strconv.Itoa(i+1), "f", "v"))
		}
		r.do(commandtest.Args("XGROUP", "CREATE", "x", "g", "0"))
		for range (n + 9999) / 10000 {
			r.do(commandtest.Args("XREADGROUP", "GROUP", "g", "c", "COUNT", "10000", "STREAMS", "x", ">"))
		}
		return
	}
	value, random := largeValues[key], rand.New(rand.NewPCG(1, 2))
	if strings.HasPrefix(key, "z") && n > 1000 { // much faster than command by command
		all := make([]keyspace.Member, n)
		for i := range all {
			e := value.element(random, i)
			score, _ := ParseFloat([]byte(e[0]))
			all[i] = keyspace.MemberOf(keyspace.Scored{Score: score, Member: e[1]})
		}
		keyspace.SortByHash(all)
		r.ks.Begin(1, keyspace.NewRevision(0, r.index, 0))
		defer r.ks.End()
		r.ks.DB(0).Changed(r.ks.DB(0).SetCollection([]byte(key), keyspace.ZSetOfMembers(slices.CompactFunc(all, func(a, b keyspace.Member) bool { return a.Name == b.Name }))))
		return
	}
	for i := 0; i < n; {
		args := strings.Fields(value.add)
		for end := min(i+1000, n); i < end; i++ {
			args = append(args, value.element(random, i)...)
		}
		r.do(commandtest.Args(args...))
	}
}

// measured runs a call and returns its reply and the work that it was charged.
func (r *testRun) measured(args [][]byte, level uint64) (reply []byte, work uint64, err error) {
	r.index++
	out := &RESP{Proto: r.proto, Limit: MaxReplyBytes}
	r.ks.Begin(1, keyspace.NewRevision(0, r.index, 0))
	defer r.ks.End()
	env := &Env{Keyspace: r.ks, ClockMs: 1, Level: level, Seed: r.index}
	r.table.Run(&Call{Env: env, Tx: &Tx{Proto: r.proto}, Args: args, Out: out})
	if strings.HasPrefix(string(out.Buf), "-") {
		return out.Buf, env.Work, fmt.Errorf("%.80q", out.Buf)
	}
	return out.Buf, env.Work, nil
}

// largeCalls are the calls that go over all of a large value; N stands for the number of elements, H for half of them.
var largeCalls = []struct{ keys, call string }{
	{"z", "ZUNIONSTORE d 1 z"},
	{"z z2", "ZUNIONSTORE d 2 z z2"},
	{"z z2", "ZINTERSTORE d 2 z z2"},
	{"z z2", "ZDIFFSTORE d 2 z z2"},
	{"s", "ZUNIONSTORE d 1 s"},
	{"z z2", "ZUNION 2 z z2"},
	{"z", "ZRANGESTORE d z 0 -1"},
	{"z", "ZRANGESTORE d z -inf +inf BYSCORE"},
	{"z", "ZRANGE z 0 -1 WITHSCORES"},
	{"z", "ZPOPMIN z N"},
	{"z", "ZPOPMAX z H"},
	{"z", "ZREMRANGEBYRANK z 0 -1"},
	{"z", "ZREMRANGEBYRANK z 1 -2"},
	{"z", "ZREMRANGEBYRANK z 0 H"},
	{"z", "ZREMRANGEBYSCORE z -inf 500000000"},
	{"z", "ZRANDMEMBER z H"},
	{"z", "ZRANDMEMBER z -N WITHSCORES"},
	{"s", "SRANDMEMBER s H"},
	{"s", "SRANDMEMBER s N"},
	{"s", "SRANDMEMBER s -N"},
	{"s", "SPOP s N"},
	{"s", "SPOP s H"},
	{"s", "SPOP s 10"},
	{"h", "HRANDFIELD h H WITHVALUES"},
	{"s", "SUNIONSTORE d s"},
	{"s", "SUNION s"},
	{"s", "SINTERSTORE d s s"},
	{"s", "SDIFFSTORE d s nothing"},
	{"s", "SMEMBERS s"},
	{"l", "SORT l"},
	{"l", "SORT l LIMIT 0 10"},
	{"l", "SORT l ALPHA"},
	{"l", "SORT l BY w_*"},
	{"l", "SORT l BY nosort GET #"},
	{"l", "SORT l STORE d"},
	{"l", "SORT l ALPHA STORE d"},
	{"s", "SORT s ALPHA"},
	{"x", "XAUTOCLAIM x g other 0 - COUNT N"},
	{"x", "XAUTOCLAIM x g other 0 - COUNT N JUSTID"},
	{"x", "XAUTOCLAIM x g c 0 - COUNT N JUSTID"},
	{"x", "XPENDING x g - + N"},
	{"x", "XPENDING x g - + N c"},
	{"x", "XPENDING x g IDLE 1000 - + N"},
	{"x", "XREADGROUP GROUP g c STREAMS x 0"},
	{"x", "XGROUP DELCONSUMER x g c"},
	{"x", "XGROUP DESTROY x g"},
}

func largeCall(call string, n int) [][]byte {
	args := strings.Fields(call)
	for i, arg := range args {
		switch strings.TrimPrefix(arg, "-") {
		case "N":
			args[i] = strings.Replace(arg, "N", strconv.Itoa(n), 1)
		case "H":
			args[i] = strings.Replace(arg, "H", strconv.Itoa(n/2), 1)
		}
	}
	return commandtest.Args(args...)
}

// threadNs is the processor time of this thread, which the machine's other work does not count in.
func threadNs(tb testing.TB) int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
		tb.Fatal(err)
	}
	return at.Nano()
}

func BenchmarkLarge(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		filled := map[string]*testRun{}
		for _, c := range largeCalls {
			b.Run(fmt.Sprintf("%d/%s", n, strings.ReplaceAll(c.call, " ", "_")), func(b *testing.B) {
				work, spent := uint64(0), int64(0)
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				for range b.N {
					r := filled[c.keys]
					delete(filled, c.keys)
					if r == nil {
						r = newTestRun()
						for _, key := range strings.Fields(c.keys) {
							r.fill(key, n)
						}
					}
					before, args := r.ks.Sum(), largeCall(c.call, n)
					runtime.GC()
					spent -= threadNs(b)
					_, did, err := r.measured(args, LevelFirst)
					spent += threadNs(b)
					if err != nil {
						b.Fatal(err)
					}
					if work += did; r.ks.Sum() == before {
						filled[c.keys] = r
					}
				}
				b.ReportMetric(float64(spent)/float64(b.N)/float64(n), "ns/element")
				b.ReportMetric(float64(work)/float64(b.N)/float64(n), "units/element")
				b.ReportMetric(float64(spent)/float64(max(work, 1)), "ns/unit")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
