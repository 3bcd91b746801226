// Calls on large data for every command on data, for tests and benchmarks of charged work.

package commands

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/commands/leases"
	"github.com/coordd/coordd/commands/rdb"
)

// bigCall is a call on data with n elements.
type bigCall struct {
	words string             // the call; $n is n
	tail  func(int) []string // the arguments after the words, given n; nil: none
}

func (c bigCall) args(n int) [][]byte {
	words := strings.Fields(strings.ReplaceAll(c.words, "$n", strconv.Itoa(n)))
	if c.tail != nil {
		words = append(words, c.tail(n)...)
	}
	return commandtest.Args(words...)
}

// listed returns n words by a format that takes the number, or none; several formats alternate.
func listed(formats ...string) func(int) []string {
	return func(n int) []string {
		words := make([]string, 0, n*len(formats))
		for i := range n {
			for _, f := range formats {
				words = append(words, strings.ReplaceAll(f, "#", strconv.Itoa(i)))
			}
		}
		return words
	}
}

// counted is listed after the number of elements, with more words at the end.
func counted(behind string, formats ...string) func(int) []string {
	return func(n int) []string {
		return slices.Concat([]string{strconv.Itoa(n)}, listed(formats...)(n),
			strings.Fields(behind))
	}
}

// shuffled is listed with the words in random order.
func shuffled(format string) func(int) []string {
	return func(n int) []string {
		words := listed(format)(n)
		rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) {
			words[i], words[j] = words[j], words[i]
		})
		return words
	}
}

// every is listed for one number in so many.
func every(step int, format string) func(int) []string {
	return func(n int) (words []string) {
		for i := 0; i < n; i += step {
			words = append(words, strings.ReplaceAll(format, "#", strconv.Itoa(i)))
		}
		return words
	}
}

// dumpOf is a value of DUMP with n elements, each of so many texts.
func dumpOf(kind byte, each int) func(int) []string {
	return func(n int) []string {
		b := rdb.AppendLength([]byte{kind}, uint64(n))
		for i := range n * each {
			b = rdb.AppendText(b, "element:"+strconv.Itoa(i))
		}
		return []string{string(rdb.Seal(b, rdbNewest))}
	}
}

// mortalDump is dumpOf for elements that expire, in any order.
func mortalDump(kind byte, each int) func(int) []string {
	return func(n int) []string {
		const firstMs = 1 << 40
		r := rand.New(rand.NewPCG(1, 2))
		b := binary.LittleEndian.AppendUint64([]byte{kind}, firstMs)
		b = rdb.AppendLength(b, uint64(n))
		for i := range n {
			b = rdb.AppendLength(b, 1+r.Uint64N(1<<20))
			for range each {
				b = rdb.AppendText(b, "element:"+strconv.Itoa(i))
			}
		}
		return []string{string(rdb.Seal(b, rdbNewest))}
	}
}

// packedDump is a value of DUMP with n elements in a compact form.
func packedDump(n int) []string {
	w := &rdb.ListpackWriter{}
	for i := range n {
		w.Text([]byte("element:" + strconv.Itoa(i)))
	}
	return []string{string(rdb.Seal(rdb.AppendText([]byte{rdbListpackSet}, w.Bytes()), rdbNewest))}
}

// groupsDump is a value of DUMP of a stream without entries that has n consumer groups.
func groupsDump(n int) []string {
	b := rdb.AppendLength([]byte{rdbStream}, 0) // nodes
	b = append(b, 0, 0, 0)                      // entries, and the last id
	b = rdb.AppendLength(b, uint64(n))
	for i := range n {
		b = rdb.AppendText(b, strconv.Itoa(i))
		b = append(b, 0, 0, 0, 0) // the last id, pending entries, consumers
	}
	return []string{string(rdb.Seal(b, rdbNewest))}
}

// scored puts a score before each word.
func scored(words func(int) []string) func(int) []string {
	return func(n int) (all []string) {
		for i, w := range words(n) {
			all = append(all, strconv.Itoa(i), w)
		}
		return all
	}
}

// ended is listed with a word at the end.
func ended(behind string, formats ...string) func(int) []string {
	return func(n int) []string { return append(listed(formats...)(n), behind) }
}

// bigKeys has the calls that fill each key, with elements by the formats.
var bigKeys = map[string][]bigCall{
	"str": {{"SETRANGE str 0", func(n int) []string {
		return []string{strings.Repeat("x", 32*n)}
	}}},
	"str2": {{"SETRANGE str2 0", func(n int) []string {
		return []string{strings.Repeat("\xff", 32*n)}
	}}},
	"hll":  {{"PFADD hll", listed("element:#")}},
	"hll2": {{"PFADD hll2", listed("other:#")}},
	"h":    {{"HSET h", listed("field:#", "value:#")}},
	"hv": {{"HSET hv", listed("field:#", "value:#")},
		{"HPEXPIRE hv 100000 FIELDS", counted("", "field:#")}},
	"l":     {{"RPUSH l", listed("element:#")}},
	"same":  {{"RPUSH same", listed("x")}},
	"s":     {{"SADD s", listed("member:#")}},
	"sv":    {{"SADDEX sv PX 100000 MEMBERS", counted("", "member:#")}},
	"s2":    {{"SADD s2", listed("member:1#")}},
	"s3":    {{"SADD s3", shuffled("member:#")}},
	"sfew":  {{"SADD sfew", every(100, "member:#")}},
	"long":  {{"SADD long", listed(strings.Repeat("x", 200) + "#")}},
	"long2": {{"SADD long2", shuffled(strings.Repeat("x", 200) + "#")}},
	"ints":  {{"SADD ints", listed("#")}},
	"z":     {{"ZADD z", listed("#.5", "member:#")}},
	"z2":    {{"ZADD z2", listed("#", "member:1#")}},
	"z3":    {{"ZADD z3", scored(shuffled("member:#"))}},
	"zfew":  {{"ZADD zfew", scored(every(100, "member:#"))}},
	"lex":   {{"ZADD lex", listed("0", "member:#")}},
	"zlong": {{"ZADD zlong", scored(shuffled(strings.Repeat("x", 200) + "#"))}},
	"geo":   {{"GEOADD geo", listed("10.#", "50.#", "member:#")}},
	"nums":  {{"RPUSH nums", listed("#7919")}},
	"k:0":   {{"MSET", listed("k:#", "#")}},
	"x": {{"BULKXADD x", listed("1-#1")}, {"XGROUP CREATE x fresh 0", nil},
		{"XGROUP CREATE x g 0", nil}, {"XREADGROUP GROUP g c STREAMS x >", nil}},
	"xread":    {{"BULKXADD xread", listed("1-#1")}, {"XGROUP CREATE xread g $", nil}},
	"xnew":     {{"BULKXADD xnew", listed("1-#1")}, {"XGROUP CREATE xnew fresh 0", nil}},
	"wexact":   {{"WINDOW.HIT wexact 10000 PX 100 COST $n", nil}},
	"wcounted": {{"WINDOW.HIT wcounted 20000 PX 100 COST $n", nil}},
	"wold":     {{"ZADD wold", listed("0", "0-1#")}},
	"readers":  {{"HSET readers", listed("owner:#", "shared 1 1")}},
	"permits":  {{"HSET permits", listed("owner:#", "permits 1 1")}},
	"one":      {{"SET one 1", nil}},
	"tall":     {{"SADD tall 1", nil}},
	"zone":     {{"ZADD zone 1 one", nil}},
	"lone":     {{"RPUSH lone one", nil}},
	"owned":    {{"XGROUP CREATE owned g 0 MKSTREAM", nil}, {"BULKGROUP owned g", listed("c#")}},
}

// bigCalls are the calls. Each key is fresh for each of them.
var bigCalls = []bigCall{
	{"APPEND str tail", nil}, {"BITCOUNT str", nil}, {"BITPOS str2 0", nil},
	{"BITOP AND dst str str2", nil}, {"BITOP NOT dst str", nil},
	{"BITOP DIFF1 dst str str2", nil}, {"BITOP ONE dst str str2", nil},
	{"BITFIELD str", listed("SET", "u8", "1#", "1")},
	{"BITFIELD str SET u8 $n0000 1", listed("SET", "u8", "1#", "1")},
	{"BITFIELD str", listed("GET", "u63", "#")}, {"BITFIELD_RO str", listed("GET", "u63", "#")},
	{"SETBIT str 100 1", nil}, {"GETBIT str 100", nil}, {"SETRANGE str 5 x", nil},
	{"SETRANGE dst $n000 x", nil}, {"SETBIT dst $n000 1", nil},
	{"BLMOVEM l dst LEFT LEFT 0 COUNT $n OBO", nil},
	{"BLMOVE l dst LEFT LEFT 0", nil}, {"BLMPOP 0 1 l LEFT COUNT $n", nil},
	{"BLPOP", ended("0", "none:#")}, {"BRPOP l 0", nil}, {"BRPOPLPUSH l dst 0", nil},
	{"BZMOVE z dst MAX 0 COUNT $n", nil}, {"ZMOVE z dst MIN COUNT $n", nil},
	{"ZMOVE z dst BYSCORE -inf inf", nil}, {"ZMOVEMEMBER z dst MEMBERS", counted("", "member:#")},
	{"BZMPOP 0 1 z MIN COUNT $n", nil}, {"BZPOPMAX z 0", nil}, {"BZPOPMIN", ended("0", "none:#")},
	{"CL.THROTTLE one2 5 5 5", nil}, {"GCRA one2 5 5 5", nil}, {"INCREX one BYINT 1", nil},
	{"FENCE.CHECK one 5", nil}, {"WINDOW.HIT dst 10000 PX 100 COST $n", nil},
	{"WINDOW.HIT wexact 10000 PX 100 COST $n", nil}, {"WINDOW.HIT wcounted 10000 PX 100", nil},
	{"WINDOW.HIT wexact 20000 PX 100", nil}, {"WINDOW.HIT wold 10000 PX 1", nil},
	{"DUMP str", nil}, {"DUMP h", nil}, {"DUMP hv", nil}, {"DUMP l", nil}, {"DUMP s", nil},
	{"DUMP ints", nil}, {"DUMP z", nil}, {"DUMP x", nil}, {"DUMP owned", nil},
	{"RESTORE dst 0", dumpOf(rdbList, 1)}, {"RESTORE dst 0", dumpOf(rdbSet, 1)},
	{"RESTORE dst 0", dumpOf(rdbHash, 2)}, {"RESTORE dst 0", packedDump},
	{"RESTORE dst 0", groupsDump}, {"RESTORE dst 0", mortalDump(rdbMembersSet, 1)},
	{"RESTORE dst 0", mortalDump(rdbFieldsHash, 2)},
	{"COPY str dst", nil}, {"COPY h dst", nil}, {"COPY l dst", nil}, {"COPY s dst", nil},
	{"COPY z dst", nil}, {"COPY x dst", nil}, {"COPY hv dst", nil},
	{"COPY owned dst", nil},
	{"PFADD hll", listed("element:1#")}, {"PFADD dst", listed("element:#")}, {"PFCOUNT hll", nil},
	{"PFCOUNT hll hll", nil}, {"PFMERGE dst hll", nil}, {"PFMERGE hll hll2", nil},
	{"LCS str one IDX", nil}, {"LCS str none LEN", nil}, {"LCS none str LEN", nil}, {"LOLWUT", nil},
	{"GEOADD geo", listed("11.#", "51.#", "member:#")}, {"GEOADD dst", listed("1.#", "5.#", "m#")},
	{"GEOPOS geo", listed("member:#")}, {"GEOHASH geo", listed("member:#")},
	{"GEODIST geo member:1 member:2", nil}, {"GEOADD geo NX", listed("1", "1", "member:#")},
	{"GEOSEARCH geo FROMLONLAT 10.5 50.5 BYRADIUS 1 M", nil},
	{"GEOSEARCH geo FROMLONLAT 10.5 50.5 BYRADIUS 500 KM DESC", nil},
	{"GEOSEARCH geo FROMLONLAT 10.5 50.5 BYBOX 500 500 KM", nil},
	{"GEOSEARCH geo FROMLONLAT 10.5 50.5 BYBOX 500 500 KM WITHDIST WITHCOORD WITHHASH", nil},
	{"GEOSEARCH geo FROMLONLAT 10.5 50.5 BYRADIUS 500 KM COUNT $n ANY", nil},
	{"GEOSEARCH z FROMLONLAT 10.5 50.5 BYRADIUS inf KM COUNT 3", nil},
	{"GEOSEARCHSTORE dst geo FROMLONLAT 10.5 50.5 BYRADIUS 500 KM", nil},
	{"GEORADIUS geo 10.5 50.5 500 KM STOREDIST dst", nil},
	{"GEORADIUS geo 10.5 50.5 500 KM STORE geo COUNT 1", nil},
	{"GEORADIUS_RO geo 10.5 50.5 500 KM", nil}, {"GEORADIUSBYMEMBER geo member:1 500 KM", nil},
	{"GEORADIUSBYMEMBER_RO geo member:1 500 KM", nil},
	{"DBSIZE", nil}, {"DECR one", nil}, {"DECRBY one 2", nil}, {"INCR one", nil},
	{"INCRBY one 2", nil}, {"INCRBYFLOAT one 2.5", nil},
	{"DEL k:0", listed("k:#")}, {"DEL", listed("none:#")}, {"UNLINK k:0", listed("k:#")},
	{"DEL x", nil}, {"DEL hv", nil}, {"EXISTS k:0", listed("k:#")}, {"TOUCH k:0", listed("k:#")},
	{"DELEX str", nil}, {"DELIFEQ str x", nil}, {"DIGEST str", nil},
	{"EXPIRE h 100", nil}, {"EXPIREAT h 100000", nil}, {"EXPIRETIME h", nil}, {"FENCE h", nil},
	{"PERSIST h", nil}, {"PEXPIRE h 1000", nil}, {"PEXPIREAT h 100000", nil},
	{"PEXPIRETIME h", nil}, {"TTL h", nil}, {"PTTL h", nil}, {"TYPE h", nil},
	{"FLUSHALL", nil}, {"FLUSHDB", nil}, {"GET str", nil}, {"GETDEL str", nil},
	{"GETEX str EX 100", nil}, {"GETRANGE str 0 -1", nil}, {"SUBSTR str 0 -1", nil},
	{"GETSET str x", nil}, {"SET str x GET", nil}, {"SET str", func(n int) []string {
		return []string{strings.Repeat("y", 32*n)}
	}}, {"STRLEN str", nil},
	{"MGET k:0", listed("k:#")}, {"MGET", listed("str")}, {"MSET", listed("new:#", "v")},
	{"MSET k:0 x", listed("k:#", "v")}, {"MSETNX", listed("new:#", "v")},
	{"IDEMPOTENT request MSET", listed("new:#", "v")},
	{"MSETEX", func(n int) []string {
		return append([]string{strconv.Itoa(n)}, listed("new:#", "v")(n)...)
	}},
	{"PSETEX str 100 x", nil}, {"SETEX str 100 x", nil}, {"SETNX dst x", nil},
	{"HDEL h", listed("field:#")}, {"HEXISTS h x", nil}, {"HGET h x", nil}, {"HGETALL h", nil},
	{"HGETALL hv", nil}, {"HKEYS h", nil}, {"HLEN h", nil}, {"HMGET h", listed("field:#")},
	{"HEXPIRE h 100 FIELDS", counted("", "field:#")},
	{"HEXPIRE hv 1000 FIELDS", counted("", "field:#")},
	{"HPEXPIRE h 100 FIELDS", counted("", "field:#")},
	{"HEXPIREAT h 100000 FIELDS", counted("", "field:#")},
	{"HPEXPIREAT h 100000 FIELDS", counted("", "field:#")},
	{"HEXPIRETIME hv FIELDS", counted("", "field:#")},
	{"HPEXPIRETIME hv FIELDS", counted("", "field:#")},
	{"HTTL hv FIELDS", counted("", "field:#")}, {"HPTTL hv FIELDS", counted("", "field:#")},
	{"HPERSIST hv FIELDS", counted("", "field:#")},
	{"HGETDEL h FIELDS", counted("", "field:#")},
	{"HGETEX h EX 100 FIELDS", counted("", "field:#")},
	{"HGETEX hv PERSIST FIELDS", counted("", "field:#")},
	{"HINCRBY h n 1", nil}, {"HINCRBYFLOAT h n 1", nil}, {"HMSET h", listed("f:#", "v")},
	{"HSET h", listed("f:#", "v")}, {"HSET h", listed("field:#", "w")}, {"HSETNX h x v", nil},
	{"HSTRLEN h x", nil},
	{"HSETEX h EX 100 FIELDS", counted("", "field:#", "v")}, {"HRANDFIELD h $n", nil},
	{"HRANDFIELD h -$n WITHVALUES", nil}, {"HRANDFIELD hv -$n", nil}, {"HVALS h", nil},
	{"HSCAN h 0 COUNT $n", nil}, {"HSCAN h 0 COUNT $n MATCH *a*a*a*a*b", nil},
	{"HSCAN hv 0 COUNT $n", nil}, {"KEYS *", nil}, {"KEYS *0*1*2*", nil},
	{"KEYS ?:[a-z]*[0-9]*[0-8]x", nil},
	{"SCAN 0 COUNT $n", nil}, {"SCAN 0 COUNT $n MATCH *1*2*", nil},
	{"LEASE KEEPALIVE 1", nil}, {"LEASE REVOKE 1", nil}, {"LEASE INFO 1", nil},
	{"LEASE KEEPALIVE", counted("", "#")}, {"LEASE LIST COUNT $n", nil},
	{"LOCKS LIST COUNT $n", nil}, {"LOCKS WINDOWS COUNT $n", nil}, {"LOCKS QUEUES COUNT $n", nil},
	{"SCAN 0 COUNT $n TYPE list", nil}, {"RANDOMKEY", nil},
	{"LINDEX l -2", nil}, {"LINDEX l 5000", nil}, {"LINSERT l BEFORE none x", nil},
	{"LINSERT l BEFORE element:900 x", nil}, {"LLEN l", nil}, {"LMOVE l dst LEFT RIGHT", nil},
	{"LMOVEM l dst LEFT LEFT COUNT $n OBO", nil}, {"LMOVEM l l RIGHT LEFT COUNT $n BULK", nil},
	{"LMPOP 1 l LEFT COUNT $n", nil},
	{"LPOP l $n", nil}, {"LPOP l", nil}, {"RPOP l $n", nil}, {"LPOS l none", nil},
	{"LPOS same x COUNT 0", nil}, {"LPUSH l", listed("x")}, {"LPUSHX l", listed("x")},
	{"RPUSH l", listed("x")}, {"RPUSHX l", listed("x")},
	{"LRANGE l 0 -1", nil}, {"LREM same 0 x", nil}, {"LREM l 0 none", nil},
	{"LREM same 100 x", nil}, {"LSET l 250 x", nil}, {"LTRIM l 500 -500", nil},
	{"LTRIM l 5 5", nil}, {"RPOPLPUSH l l", nil},
	{"MOVE h 1", nil}, {"MOVE x 1", nil}, {"OBJECT ENCODING h", nil}, {"OBJECT REFCOUNT h", nil},
	{"OBJECT IDLETIME h", nil}, {"OBJECT FREQ h", nil}, {"RENAME h dst", nil},
	{"RENAME str dst", nil}, {"RENAMENX l dst", nil},
	{"RENAME h x", nil}, {"SWAPDB 0 1", nil},
	{"SADD new", listed("member:#")}, {"SADD s", listed("member:#")}, {"SADD new", listed("#")},
	{"SADDEX new EX 100 MEMBERS", counted("", "member:#")},
	{"SADDEX s EX 100 MEMBERS", counted("", "member:#")},
	{"SADDEX sv EX 0 MEMBERS", counted("", "member:#")},
	{"SEXPIRE s 100 MEMBERS", counted("", "member:#")},
	{"SEXPIRE sv 1000 MEMBERS", counted("", "member:#")},
	{"SEXPIRE ints 1000 MEMBERS", counted("", "1")},
	{"SPEXPIRE s 100 MEMBERS", counted("", "member:#")},
	{"SEXPIREAT s 100000 MEMBERS", counted("", "member:#")},
	{"SPEXPIREAT s 100000 MEMBERS", counted("", "member:#")},
	{"SEXPIRETIME sv MEMBERS", counted("", "member:#")},
	{"SPEXPIRETIME sv MEMBERS", counted("", "member:#")},
	{"STTL sv MEMBERS", counted("", "member:#")}, {"SPTTL sv MEMBERS", counted("", "member:#")},
	{"SPERSIST sv MEMBERS", counted("", "member:#")},
	{"SMEMBERS sv", nil}, {"SUNIONSTORE dst sv s2", nil}, {"SINTERSTORE dst sv s", nil},
	{"SDIFFSTORE dst sv s2", nil}, {"SPOP sv $n", nil}, {"SPOP sv 100", nil},
	{"SREM sv", shuffled("member:#")}, {"HDEL hv", shuffled("field:#")},
	{"DUMP sv", nil}, {"COPY sv dst", nil}, {"DEL sv", nil},
	{"SCARD s", nil}, {"SDIFF s s2", nil}, {"SDIFF s tall", nil}, {"SDIFFSTORE dst s s2", nil},
	{"SINTER s s2", nil}, {"SINTER s s3", nil}, {"SINTER long long2", nil},
	{"SINTER sfew s", nil}, {"SINTER s s2 s3", nil}, {"SINTERSTORE dst s s3", nil},
	{"SINTERCARD 2 s s3", nil}, {"SINTERCARD 2 sfew s", nil}, {"SDIFF s s3", nil},
	{"SINTER s ints", nil},
	{"ZINTER 2 z z3", nil}, {"ZINTERSTORE dst 2 z z3", nil}, {"ZINTERCARD 2 z z3", nil},
	{"ZINTERCARD 2 zfew z", nil}, {"ZINTERCARD 2 z z3 LIMIT $n", nil}, {"ZDIFF 2 z z3", nil},
	{"SUNIONCARD 2 s s2", nil}, {"SUNIONCARD 2 long long2", nil}, {"SDIFFCARD 2 s s2", nil},
	{"SDIFFCARD 2 s s3", nil}, {"SDIFFCARD 4 s sfew sfew sfew", nil},
	{"SDIFFCARD 2 long long2", nil},
	{"SINTERCARD 2 s s2", nil}, {"SINTERSTORE dst s s2", nil}, {"SISMEMBER s x", nil},
	{"SMEMBERS s", nil}, {"SMISMEMBER s", listed("member:#")}, {"SMOVE s dst member:1", nil},
	{"SPOP s $n", nil}, {"SPOP s", nil}, {"SPOP s 100", nil}, {"SRANDMEMBER s $n", nil},
	{"SRANDMEMBER s -$n", nil}, {"SREM s", listed("member:#")}, {"SSCAN s 0 COUNT $n", nil},
	{"SSCAN s 0 COUNT $n MATCH *a*b*c", nil},
	{"SUNION s s2", nil}, {"SUNION ints", nil}, {"SUNIONSTORE dst s s2", nil},
	{"SUNION", listed("tall")}, {"SORT nums", nil}, {"SORT nums STORE dst", nil},
	{"SORT l ALPHA", nil}, {"SORT_RO nums BY nosort", nil}, {"SORT s BY none:* GET k:*", nil},
	{"XACK x g", listed("1-#1")}, {"XADD x * f v", nil}, {"XADD x MAXLEN 1 * f v", nil},
	{"XADD x IDMP p i * f v", nil}, {"XADD x IDMPAUTO p *", listed("f#", "v")},
	{"XCFGSET x IDMP-MAXSIZE 5", nil},
	{"XAUTOCLAIM x g d 0 0 COUNT $n", nil}, {"XAUTOCLAIM x g d 0 0", nil},
	{"XCLAIM x g d 0", listed("1-#1")}, {"XDEL x", listed("1-#1")},
	{"XGROUP CREATE x new 0", nil}, {"XGROUP CREATECONSUMER x g e", nil},
	{"XGROUP DELCONSUMER x g c", nil}, {"XGROUP DESTROY x g", nil}, {"XGROUP SETID x g 0", nil},
	{"XINFO STREAM x", nil}, {"XINFO STREAM x FULL", nil}, {"XINFO STREAM x FULL COUNT 0", nil},
	{"XINFO STREAM owned FULL COUNT 0", nil}, {"XINFO GROUPS x", nil},
	{"XINFO CONSUMERS owned g", nil}, {"XLEN x", nil},
	{"XPENDING x g", nil}, {"XPENDING owned g", nil}, {"XPENDING x g - + $n", nil},
	{"XPENDING x g IDLE 100000 - + $n", nil}, {"XRANGE x - +", nil}, {"XREVRANGE x + -", nil},
	{"XREAD STREAMS x 0", nil}, {"XSETID x 9-9", nil},
	{"XREADGROUP GROUP fresh c STREAMS x >", nil},
	{"XREAD MAXSIZE $n STREAMS x 0", nil}, {"XREADGROUP GROUP fresh c MAXSIZE $n STREAMS x >", nil},
	{"XREADGROUP GROUP fresh c NOACK STREAMS x >", nil}, {"XREADGROUP GROUP g c STREAMS x 0", nil},
	{"XREADGROUP GROUP g d CLAIM 0 STREAMS x >", nil},
	{"XREADGROUP GROUP g d CLAIM 0 COUNT 1 STREAMS x >", nil},
	{"XREADGROUP GROUP g d CLAIM 100000 STREAMS x >", nil},
	{"XREADGROUP GROUP fresh d CLAIM 0 STREAMS x >", nil},
	{"XTRIM x MAXLEN 1", nil}, {"XTRIM x MAXLEN 1000", nil}, {"XTRIM x MINID ~ 1-500", nil},
	{"ZADD new", listed("#", "member:#")}, {"ZADD z", listed("1", "member:#")},
	{"ZADD lex GT CH", listed("0#", "member:#")}, {"ZCARD z", nil}, {"ZCOUNT z 10 90", nil},
	{"ZCOUNT z (1 +inf", nil}, {"ZDIFF 2 z z2", nil}, {"ZDIFF 2 z zone", nil},
	{"ZDIFFSTORE dst 2 z z2", nil}, {"ZINCRBY z 1 member:1", nil}, {"ZINTER 2 z z2", nil},
	{"ZINTERCARD 2 z z2", nil}, {"ZINTERSTORE dst 2 z z2", nil}, {"ZLEXCOUNT lex - +", nil},
	{"ZMPOP 1 z MAX COUNT $n", nil},
	{"ZMSCORE z", listed("member:#")}, {"ZPOPMAX z $n", nil}, {"ZPOPMIN z $n", nil},
	{"ZRANDMEMBER z $n", nil}, {"ZRANDMEMBER z -$n WITHSCORES", nil},
	{"ZRANGE z 0 -1 WITHSCORES", nil}, {"ZRANGE z 0 -1", nil},
	{"ZRANGEBYLEX lex - +", nil}, {"ZRANGEBYSCORE z -inf +inf WITHSCORES", nil},
	{"ZRANGEBYSCORE z -inf +inf LIMIT 500 1", nil}, {"ZRANGESTORE dst z 0 -1", nil},
	{"ZRANGESTORE dst z 1 -1", nil}, {"ZRANGESTORE dst z 1 -1 REV", nil},
	{"ZRANGESTORE dst z $n 1 BYSCORE REV", nil}, {"ZRANGESTORE dst zlong 1 -1", nil},
	{"ZRANGESTORE dst z3 -inf +inf BYSCORE LIMIT 5 $n", nil},
	{"ZRANGESTORE dst lex - + BYLEX LIMIT 1 $n", nil}, {"ZRANGESTORE dst zlong 0 -1", nil},
	{"ZRANK z member:77", nil}, {"ZREVRANK z member:77 WITHSCORE", nil},
	{"ZREM z", listed("member:#")},
	{"ZREMRANGEBYLEX lex - +", nil}, {"ZREMRANGEBYRANK z 0 -1", nil},
	{"ZREMRANGEBYRANK z 5 -5", nil}, {"ZREMRANGEBYSCORE z 10 +inf", nil}, {"ZREVRANGE z 0 -1", nil},
	{"ZREVRANGEBYLEX lex + -", nil}, {"ZREVRANGEBYSCORE z +inf -inf", nil},
	{"HMGET h", shuffled("field:#")}, {"HDEL h", shuffled("field:#")},
	{"SREM s", shuffled("member:#")}, {"ZREM z", shuffled("member:#")},
	{"ZMSCORE z", shuffled("member:#")},
	{"XACK x g", shuffled("1-#1")}, {"XCLAIM x g d 0", shuffled("1-#1")},
	{"XDEL x", shuffled("1-#1")}, {"XDELEX x KEEPREF IDS", counted("", "1-#1")},
	{"XDELEX x DELREF IDS", counted("", "1-#1")}, {"XDELEX x ACKED IDS", counted("", "1-#1")},
	{"XDELEX x DELREF IDS $n", shuffled("1-#1")}, {"XDELEX x IDS $n", shuffled("1-#1")},
	{"XDELEX xnew ACKED IDS", counted("", "1-#1")},
	{"XDELEX xread ACKED IDS", counted("", "1-#1")},
	{"XACKDEL x g IDS", counted("", "1-#1")}, {"XACKDEL x g DELREF IDS $n", shuffled("1-#1")},
	{"XACKDEL x g ACKED IDS $n", shuffled("1-#1")},
	{"XNACK x g FAIL IDS", counted("", "1-#1")}, {"XNACK x g SILENT IDS $n", shuffled("1-#1")},
	{"XNACK x fresh FAIL IDS", counted("FORCE", "1-#1")},
	{"XTRIM x MAXLEN 1 ACKED", nil}, {"XTRIM x MAXLEN 1 DELREF", nil},
	{"XTRIM xread MINID 1-500 ACKED", nil}, {"XTRIM xread MAXLEN 1 ACKED", nil},
	{"XTRIM x MAXLEN ~ 1 DELREF LIMIT $n", nil}, {"XADD x DELREF MAXLEN 1 * f v", nil},
	{"XADD x ACKED MAXLEN 1 * f v", nil}, {"EXISTS k:0", shuffled("k:#")},
	{"MGET k:0", shuffled("k:#")},
	{"DEL k:0", shuffled("k:#")},
	{"SORT s BY nosort LIMIT $n 1", nil}, {"XRANGE x - + COUNT $n", nil},
	{"ZREVRANK z member:77", nil}, {"ZSCAN z 0 COUNT $n", nil}, {"ZSCORE z x", nil},
	{"ZUNION 2 z z2 WITHSCORES", nil}, {"ZUNIONSTORE dst 2 z z2", nil},
	{"ZUNIONSTORE dst 1 s", nil},
	{"LOCK.ACQUIRE permits me PX 100 PERMITS 1 OF 1000000", nil},
	{"LOCK.ACQUIRE readers me PX 100 SHARED", nil}, {"LOCK.RELEASE readers owner:1", nil},
	{"LOCK.EXTEND readers owner:1 PX 100", nil}, {"LOCK.INFO readers", nil},
	{"LOCK.WAITERS readers", nil}, {"LOCK.LIST COUNT $n", nil},
}

// bigRun is a keyspace for one of the calls.
type bigRun struct {
	table  *Table
	ks     *keyspace.Keyspace
	leases *leases.Registry
}

// newBigRun fills the keys that the call names.
func newBigRun(t testing.TB, table *Table, c bigCall, n int) *bigRun {
	r := &bigRun{table, keyspace.New(), leases.New()}
	r.ks.Begin(1, keyspace.NewRevision(0, 1, 0))
	words := strings.Fields(c.words)
	if c.tail != nil {
		words = append(words, c.tail(1)...)
	}
	if strings.Contains("KEYS SCAN DBSIZE RANDOMKEY FLUSHALL FLUSHDB", words[0]) {
		words = append(words, "k:0")
	}
	slices.Sort(words)
	for _, key := range slices.Compact(words) {
		for _, make := range bigKeys[key] {
			r.fill(t, make, n)
		}
	}
	if slices.Contains(words, "LEASE") {
		r.grant(n)
	}
	r.ks.SetRevision(keyspace.NewRevision(0, 2, 0))
	return r
}

// grant makes n leases, of which the first has n keys.
func (r *bigRun) grant(n int) {
	for range n {
		r.leases.Grant(0, leases.Lease{TTLMs: 1000, UntilMs: 1000, User: "default"})
	}
	for i := range n {
		key := fmt.Appendf(nil, "leased:%d", i)
		e := r.ks.DB(0).SetString(key, key)
		r.ks.DB(0).SetDeadline(e, 1000)
		r.leases.Attach(1, leases.Item{Key: string(key), Created: uint64(e.Created())})
	}
}

// fill runs a call that creates data.
func (r *bigRun) fill(t testing.TB, c bigCall, n int) {
	args := c.args(n)
	one := func(args [][]byte) {
		out := &RESP{Proto: 2}
		r.table.Run(&Call{Env: &Env{Keyspace: r.ks, ClockMs: 1, Level: FeatureLevel},
			Tx: &Tx{Proto: 2}, Args: args, Out: out})
		if out.Buf[0] == '-' {
			t.Fatalf("%.60q: %s", args, out.Buf)
		}
	}
	switch string(args[0]) {
	case "BULKXADD":
		for _, id := range args[2:] {
			one([][]byte{[]byte("XADD"), args[1], id, []byte("f"), []byte("v")})
		}
	case "BULKGROUP":
		for _, name := range args[3:] {
			one([][]byte{[]byte("XGROUP"), []byte("CREATECONSUMER"), args[1], args[2], name})
		}
	default:
		one(args)
	}
}

// bigResult is the outcome of a call.
type bigResult struct {
	reply   string
	work    uint64
	size    int
	changed bool
	refused bool
}

// bigMay bounds the work and the reply of a call; 0: as for any request.
type bigMay struct {
	work  uint64
	bytes int
}

// run runs a call on a node that builds the reply or on one that does not.
func (r *bigRun) run(args [][]byte, proto int, may bigMay, answer bool) bigResult {
	resp := &RESP{Proto: proto}
	x := &Call{Env: &Env{Keyspace: r.ks, ClockMs: 1, WallUs: 1000, Level: FeatureLevel,
		Known: nothingKnown{}, Beside: Beside{Leases: r.leases}},
		Tx: &Tx{Proto: proto}, Args: args, Out: Discard{}, Stop: may.work, Room: may.bytes}
	if answer {
		x.Out = resp
	}
	before := r.ks.Sum()
	spec, err := r.table.Resolve(args)
	x.Run(spec, err)
	size, _ := x.ReplySize()
	return bigResult{reply: string(resp.Buf), work: x.Work, size: size,
		changed: r.ks.Sum() != before, refused: x.meter.refused != ""}
}

// nothingKnown is a node that has observed no locks.
type nothingKnown struct{}

func (nothingKnown) Lock(int, []byte, keyspace.Revision, int64) KnownLock { return KnownLock{} }

func (nothingKnown) Semaphore(int, []byte) bool { return false }

func (nothingKnown) Counts() []LabelCounts { return nil }

// Every command on data whose work grows with the data has a call in bigCalls.
func TestBigCalls(t *testing.T) {
	seen := map[string]bool{}
	table := testTable()
	for _, c := range bigCalls {
		spec, err := table.Resolve(c.args(10))
		if err != nil {
			t.Fatalf("%s: %v", c.words, err)
		}
		seen[spec.FullName()] = true
	}
	var check func(s *Spec)
	check = func(s *Spec) {
		for i := range s.Subcommands {
			sub := &s.Subcommands[i]
			sub.parent = s.Name
			check(sub)
		}
		data := s.Subcommands == nil && (s.Kind == Read || s.Kind == Write) &&
			s.Group != "scripting" && s.Name != "help"
		if data && s.Complexity != "O(1)" && !seen[s.FullName()] {
			t.Errorf("%s is %s: add a call on large data to bigCalls", s.FullName(), s.Complexity)
		}
	}
	for _, s := range table.All() {
		check(s)
	}
}

// A call is charged the same whether its reply is built or not, and the reply has the size that was
// counted. With a lower bound on work or reply it is refused before it changes anything, soon after
// it reaches the bound.
func TestCharges(t *testing.T) {
	const n = 300
	table := testTable()
	for _, c := range bigCalls {
		for _, proto := range []int{2, 3} {
			args := c.args(n)
			name := fmt.Sprintf("%s %d, RESP%d", c.words, len(args), proto)
			asked, silent := newBigRun(t, table, c, n), newBigRun(t, table, c, n)
			a, b := asked.run(args, proto, bigMay{}, true), silent.run(args, proto, bigMay{}, false)
			if a.work != b.work || a.size != b.size || asked.ks.Sum() != silent.ks.Sum() {
				t.Errorf("%s: %d units and %d bytes where it was asked, %d and %d elsewhere", name,
					a.work, a.size, b.work, b.size)
			}
			if blocked := strings.HasPrefix(a.reply, string(blockMark)); len(a.reply) != a.size &&
				!blocked {
				t.Errorf("%s: %d bytes, counted %d: %.60q", name, len(a.reply), a.size, a.reply)
			}
			if elements := strings.Count(a.reply, "\n"); a.work < uint64(max(elements, len(args))) {
				t.Errorf("%s: %d units for %d arguments and %d lines of reply", name, a.work,
					len(args), elements)
			}
			if a.reply[0] == '-' && string(args[0]) == "OBJECT" {
				continue
			}
			if a.reply[0] == '-' {
				t.Errorf("%s: %.60q", name, a.reply)
				continue
			}
			if proto == 3 {
				continue
			}
			mays := []bigMay{{work: a.work * 9 / 10}, {work: a.work / 2}}
			if a.size > 1000 {
				mays = append(mays, bigMay{bytes: a.size - 1})
			}
			for _, may := range mays {
				less := newBigRun(t, table, c, n).run(args, proto, may, true)
				checkRefused(t, name, args, may, less)
			}
		}
	}
}

// checkRefused checks the result of a call with a bound that is too low for it.
func checkRefused(t *testing.T, name string, args [][]byte, may bigMay, got bigResult) {
	t.Helper()
	want := ErrRequestWork
	if may.bytes != 0 {
		want = ErrReplySize
	}
	switch {
	case string(args[0]) == "XREADGROUP" && (may.bytes == 0 || got.size <= may.bytes):
		// delivers what fits
	case !got.refused && got.work <= may.work*4/3+200 && may.bytes == 0:
		// a small reply may follow the change
	case !got.refused:
		t.Errorf("%s: may do %+v, did %d: %.60q", name, may, got.work, got.reply)
	case got.changed || got.reply != "-"+string(want)+"\r\n":
		t.Errorf("%s: refused, changed %v: %.60q", name, got.changed, got.reply)
	}
}
