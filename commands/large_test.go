// Calls on large values, and tests that their results have not changed since the first release.

package commands

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// largeValues has, for each key, the format of element i of a large value, and the command that
// adds elements.
var largeValues = map[string]struct {
	add     string
	element func(r *rand.Rand, i int) []string
}{
	"z": {"ZADD z", func(r *rand.Rand, i int) []string {
		return []string{strconv.Itoa(r.IntN(1 << 30)), largeName(i)}
	}},
	"z2": {"ZADD z2", func(r *rand.Rand, i int) []string {
		return []string{strconv.Itoa(r.IntN(1 << 30)), largeName(i + i%2)}
	}},
	"s": {"SADD s", func(r *rand.Rand, i int) []string { return []string{largeName(i)} }},
	"h": {"HSET h", func(r *rand.Rand, i int) []string { return []string{largeName(i), "v"} }},
	"l": {"RPUSH l", func(r *rand.Rand, i int) []string {
		return []string{strconv.Itoa(r.IntN(1 << 30))}
	}},
}

func largeName(i int) string { return "member:" + strconv.Itoa(i) }

// fill gives the value at a key of largeValues n elements, or the stream x n entries that are
// pending for a consumer c of the group g.
func (r *testRun) fill(key string, n int) {
	if key == "x" {
		for i := range n {
			r.do(commandtest.Args("XADD", "x", strconv.Itoa(i+1), "f", "v"))
		}
		r.do(commandtest.Args("XGROUP", "CREATE", "x", "g", "0"))
		for range (n + 9999) / 10000 {
			r.do(commandtest.Args("XREADGROUP", "GROUP", "g", "c", "COUNT", "10000", "STREAMS", "x",
				">"))
		}
		return
	}
	value, random := largeValues[key], rand.New(rand.NewPCG(1, 2))
	if strings.HasPrefix(key, "z") && n > 10000 { // much faster than command by command
		all := make([]keyspace.Member, n)
		for i := range all {
			e := value.element(random, i)
			score, _ := ParseFloat([]byte(e[0]))
			all[i] = keyspace.MemberOf(keyspace.Scored{Score: score, Member: e[1]}, nil)
		}
		keyspace.SortByHash(all, nil)
		r.ks.Begin(1, keyspace.NewRevision(0, r.index, 0))
		defer r.ks.End()
		r.ks.DB(0).Changed(r.ks.DB(0).SetCollection([]byte(key),
			keyspace.ZSetOfMembers(slices.CompactFunc(all, func(a, b keyspace.Member) bool {
				return a.Name == b.Name
			}), nil)))
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

// largeCalls walk all of a large value; N is the number of elements, H half of it.
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

// firstRelease has the work that release 0.1 charged for largeCalls on values of 2,000 elements,
// and a hash of their replies and of the data after them.
var firstRelease = map[string]struct{ work, sum uint64 }{
	"ZUNIONSTORE d 1 z":                       {64000, 0x6eaebee1b9862a98},
	"ZUNIONSTORE d 2 z z2":                    {80032, 0x65686a8641c38e65},
	"ZINTERSTORE d 2 z z2":                    {40024, 0x72d56cc44f3aa902},
	"ZDIFFSTORE d 2 z z2":                     {64000, 0x1b6ab128a1a0caeb},
	"ZUNIONSTORE d 1 s":                       {64000, 0xbdac8cfdf04f2058},
	"ZUNION 2 z z2":                           {80032, 0x1fdc4cf7a06fc741},
	"ZRANGESTORE d z 0 -1":                    {32000, 0x6eaebee1b9862a98},
	"ZRANGESTORE d z -inf +inf BYSCORE":       {32022, 0x6eaebee1b9862a98},
	"ZRANGE z 0 -1 WITHSCORES":                {0, 0x4a520a79f910bf62},
	"ZPOPMIN z N":                             {16000, 0x32028c697615a251},
	"ZPOPMAX z H":                             {8000, 0x1d25a0f21f6ca0c9},
	"ZREMRANGEBYRANK z 0 -1":                  {16000, 0xd5203058ffd3f587},
	"ZREMRANGEBYRANK z 1 -2":                  {15984, 0x2a6faf095d96e948},
	"ZREMRANGEBYRANK z 0 H":                   {8008, 0xb27dbab464f9ab25},
	"ZREMRANGEBYSCORE z -inf 500000000":       {7198, 0xcf0f0cdec33e2e57},
	"ZRANDMEMBER z H":                         {11000, 0x2dabf5d8c124986d},
	"ZRANDMEMBER z -N WITHSCORES":             {22000, 0xbb4344eb59ef27f9},
	"SRANDMEMBER s H":                         {0, 0xc63b03d610df3d2d},
	"SRANDMEMBER s N":                         {0, 0x373c33c9aa2b9101},
	"SRANDMEMBER s -N":                        {0, 0x2c5209de62908d59},
	"SPOP s N":                                {16000, 0x65e1daa6fd5792fa},
	"SPOP s H":                                {8000, 0x3e97d3ff7af9e7a8},
	"SPOP s 10":                               {80, 0x92fb1234dae1c13e},
	"HRANDFIELD h H WITHVALUES":               {0, 0xb4e25df707400c13},
	"SUNIONSTORE d s":                         {32000, 0x38b1b1c688b3ea3f},
	"SUNION s":                                {32000, 0x373c33c9aa2b9101},
	"SINTERSTORE d s s":                       {48000, 0x38b1b1c688b3ea3f},
	"SDIFFSTORE d s nothing":                  {48000, 0x38b1b1c688b3ea3f},
	"SMEMBERS s":                              {0, 0x373c33c9aa2b9101},
	"SORT l":                                  {14205, 0xc82092717e9d0e14},
	"SORT l LIMIT 0 10":                       {14205, 0xa4165dcf4f74e1fa},
	"SORT l ALPHA":                            {14205, 0x9651df5fdc8c5f21},
	"SORT l BY w_*":                           {34978, 0x9651df5fdc8c5f21},
	"SORT l BY nosort GET #":                  {6125, 0xecd86a8b564fb8ab},
	"SORT l STORE d":                          {16205, 0xdf3d5bdc4429313f},
	"SORT l ALPHA STORE d":                    {16205, 0x412a8e32a39a493f},
	"SORT s ALPHA":                            {14711, 0x114ba382fcb5c63b},
	"XAUTOCLAIM x g other 0 - COUNT N":        {62000, 0xe780b39495c9e93b},
	"XAUTOCLAIM x g other 0 - COUNT N JUSTID": {62000, 0x4cf2f3eb50b34b0f},
	"XAUTOCLAIM x g c 0 - COUNT N JUSTID":     {62000, 0x11e03f4062b2163f},
	"XPENDING x g - + N":                      {12000, 0xd3dd92e839b656f4},
	"XPENDING x g - + N c":                    {12000, 0xd3dd92e839b656f4},
	"XPENDING x g IDLE 1000 - + N":            {12000, 0x6e8a5a75d8c14318},
	"XREADGROUP GROUP g c STREAMS x 0":        {50000, 0xe13e67947fb74136},
	"XGROUP DELCONSUMER x g c":                {50000, 0xf7c42e0b99a2340a},
	"XGROUP DESTROY x g":                      {0, 0x1a63d7c4b9da4400},
}

// Below LevelSecond a call on a large value replies, changes and is charged as in the first
// release, whose nodes apply the same entries.
func TestLargeCallsOfTheFirstRelease(t *testing.T) {
	const n = 2000
	for _, c := range largeCalls {
		r := newTestRun()
		for _, key := range strings.Fields(c.keys) {
			r.fill(key, n)
		}
		r.index++
		out := &RESP{Proto: 2}
		r.ks.Begin(1, keyspace.NewRevision(0, r.index, 0))
		env := &Env{Keyspace: r.ks, ClockMs: 1, Level: LevelFirst, Seed: 7}
		r.table.Run(&Call{Env: env, Tx: &Tx{Proto: 2}, Args: largeCall(c.call, n), Out: out})
		r.ks.End()
		want := firstRelease[c.call]
		if sum := xxhash.Sum64(out.Buf) ^ r.ks.Sum(); sum != want.sum || env.Work != want.work {
			t.Errorf("%s: %d units and %x, want %d and %x: %.60q", c.call, env.Work, sum, want.work,
				want.sum, out.Buf)
		}
	}
}

// Few or many, drawn numbers are the same by either algorithm.
func TestDistinctDraws(t *testing.T) {
	r := rand.New(rand.NewPCG(seeds.Of(t), 1))
	for range 200 {
		n, seed := 1+r.IntN(300), r.Uint64()
		count := 1 + r.IntN(n)
		few, many := (&draws{seed}).chosen(n, count), (&draws{seed}).shuffled(n, count)
		if !slices.Equal(few, many) {
			t.Fatalf("%d of %d: %v and %v", count, n, few, many)
		}
		slices.Sort(few)
		if len(slices.Compact(few)) != count || few[0] < 0 || few[count-1] >= n {
			t.Fatalf("%d of %d: %v", count, n, many)
		}
	}
}
