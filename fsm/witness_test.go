// What a machine tells of locks and windows, by the scripts and command sequences of libraries.

package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
)

// Scripts that do what those of libraries do, for each a different way to the same end.
const (
	compareDelete = `if redis.call("get",KEYS[1]) == ARGV[1] then
		return redis.call("del",KEYS[1]) else return 0 end`
	compareExpire = `if redis.call("get",KEYS[1]) == ARGV[1] then
		return redis.call("pexpire",KEYS[1],ARGV[2]) else return 0 end`
	compareTTL = `if redis.call("get",KEYS[1]) == ARGV[1] then
		return redis.call("pttl",KEYS[1]) else return -3 end`
	// Redlock of npm: all keys or none.
	redlock = `for i, key in ipairs(KEYS) do
		if redis.call("exists", key) == 1 then return 0 end end
		for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "PX", ARGV[2]) end
		return #KEYS`
	// symfony/lock: the same call takes and renews.
	takeOrRenew = `if redis.call("GET", KEYS[1]) == ARGV[1] then
		return redis.call("PEXPIRE", KEYS[1], ARGV[2])
		elseif redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then return 1
		else return 0 end`

	// Redisson's RLock, with the latch of an unlock.
	reentrantTake = `if ((redis.call('exists', KEYS[1]) == 0) or
		(redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then
		redis.call('hincrby', KEYS[1], ARGV[2], 1);
		redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end;
		return redis.call('pttl', KEYS[1]);`
	reentrantRenew = `if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then
		redis.call('pexpire', KEYS[1], ARGV[1]); return 1; end; return 0;`
	reentrantFree = `local val = redis.call('get', KEYS[3]);
		if val ~= false then return tonumber(val); end;
		if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil; end;
		local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1);
		if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]);
		redis.call('set', KEYS[3], 0, 'px', ARGV[5]); return 0;
		else redis.call('del', KEYS[1]); redis.call(ARGV[4], KEYS[2], ARGV[1]);
		redis.call('set', KEYS[3], 1, 'px', ARGV[5]); return 1; end;`

	// Redisson's RReadWriteLock, the read side and the write side.
	readTake = `local mode = redis.call('hget', KEYS[1], 'mode');
		if (mode == false) then
			redis.call('hset', KEYS[1], 'mode', 'read');
			redis.call('hset', KEYS[1], ARGV[2], 1);
			redis.call('set', KEYS[2] .. ':1', 1);
			redis.call('pexpire', KEYS[2] .. ':1', ARGV[1]);
			redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end;
		if (mode == 'read') or (mode == 'write' and redis.call('hexists', KEYS[1], ARGV[3]) == 1) then
			local ind = redis.call('hincrby', KEYS[1], ARGV[2], 1);
			local key = KEYS[2] .. ':' .. ind;
			redis.call('set', key, 1); redis.call('pexpire', key, ARGV[1]);
			local remainTime = redis.call('pttl', KEYS[1]);
			redis.call('pexpire', KEYS[1], math.max(remainTime, ARGV[1])); return nil; end;
		return redis.call('pttl', KEYS[1]);`
	writeTake = `local mode = redis.call('hget', KEYS[1], 'mode');
		if (mode == false) then
			redis.call('hset', KEYS[1], 'mode', 'write');
			redis.call('hset', KEYS[1], ARGV[2], 1);
			redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end;
		if (mode == 'write') then if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then
			redis.call('hincrby', KEYS[1], ARGV[2], 1);
			local currentExpire = redis.call('pttl', KEYS[1]);
			redis.call('pexpire', KEYS[1], currentExpire + ARGV[1]); return nil; end; end;
		return redis.call('pttl', KEYS[1]);`
	readFree = `local mode = redis.call('hget', KEYS[1], 'mode');
		if (mode == false) then redis.call('publish', KEYS[2], ARGV[1]); return 1; end;
		local lockExists = redis.call('hexists', KEYS[1], ARGV[2]);
		if (lockExists == 0) then return nil; end;
		local counter = redis.call('hincrby', KEYS[1], ARGV[2], -1);
		if (counter == 0) then redis.call('hdel', KEYS[1], ARGV[2]); end;
		redis.call('del', KEYS[3] .. ':' .. (counter+1));
		if (redis.call('hlen', KEYS[1]) > 1) then
			redis.call('pexpire', KEYS[1], 30000); return 0; end;
		redis.call('del', KEYS[1]); redis.call('publish', KEYS[2], ARGV[1]); return 1;`

	writeFree = `local mode = redis.call('hget', KEYS[1], 'mode');
		if (mode == false) then redis.call('publish', KEYS[2], ARGV[1]); return 1; end;
		if (mode == 'write') then
			if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil; end;
			local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1);
			if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); return 0; end;
			redis.call('hdel', KEYS[1], ARGV[3]);
			if (redis.call('hlen', KEYS[1]) == 1) then
				redis.call('del', KEYS[1]); redis.call('publish', KEYS[2], ARGV[1]);
			else redis.call('hset', KEYS[1], 'mode', 'read'); end;
			return 1; end; return nil;`

	// A sorted set of holders by the time at which they took a slot, as redis-semaphore has it.
	semaphoreTake = `redis.call('zremrangebyscore', KEYS[1], '-inf', ARGV[4] - ARGV[3])
		if redis.call('zcard', KEYS[1]) < tonumber(ARGV[1]) then
			redis.call('zadd', KEYS[1], ARGV[4], ARGV[2])
			redis.call('pexpire', KEYS[1], ARGV[3]) return 1 end return 0`
	semaphoreRenew = `redis.call('zremrangebyscore', KEYS[1], '-inf', ARGV[3] - ARGV[2])
		if redis.call('zscore', KEYS[1], ARGV[1]) then
			redis.call('zadd', KEYS[1], ARGV[3], ARGV[1])
			redis.call('pexpire', KEYS[1], ARGV[2]) return 1 end return 0`
	// Redisson's RPermitExpirableSemaphore: a counter, and a sorted set by the end of each permit.
	permitTake = `local expired = redis.call('zrangebyscore', KEYS[2], 0, ARGV[3], 'limit', 0, 100)
		if #expired > 0 then redis.call('zrem', KEYS[2], unpack(expired))
			redis.call('incrby', KEYS[1], #expired) end
		local value = redis.call('get', KEYS[1])
		if value ~= false and tonumber(value) >= tonumber(ARGV[1]) then
			redis.call('decrby', KEYS[1], ARGV[1])
			redis.call('zadd', KEYS[2], ARGV[2], ARGV[4]) return ARGV[4] end
		local v = redis.call('zrange', KEYS[2], 0, 0, 'WITHSCORES')
		if v[1] ~= nil then return ':' .. tostring(v[2]) end return nil`
	permitFree = `if redis.call('zrem', KEYS[2], ARGV[1]) == 0 then return 0 end
		redis.call('incrby', KEYS[1], 1) return 1`

	// Redisson's RFairLock: a list of waiters and a sorted set of their timeouts.
	fairTake = `if ((redis.call('exists', KEYS[1]) == 0) and ((redis.call('exists', KEYS[2]) == 0)
		or (redis.call('lindex', KEYS[2], 0) == ARGV[2]))) then
			redis.call('lpop', KEYS[2]); redis.call('zrem', KEYS[3], ARGV[2]);
			redis.call('hset', KEYS[1], ARGV[2], 1);
			redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end;
		if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
			redis.call('hincrby', KEYS[1], ARGV[2],1);
			redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end;
		local ttl = redis.call('pttl', KEYS[1]);
		if redis.call('zadd', KEYS[3], ttl + tonumber(ARGV[3]), ARGV[2]) == 1 then
			redis.call('rpush', KEYS[2], ARGV[2]); end;
		return ttl;`

	slidingAsk = `redis.call('zremrangebyscore', KEYS[1], 0, ARGV[1] - 1000)
		if redis.call('zcard', KEYS[1]) < tonumber(ARGV[2]) then
		redis.call('zadd', KEYS[1], ARGV[1], ARGV[3]); redis.call('pexpire', KEYS[1], 1000)
		return 1 end return 0`
	fixedAsk = `local n = redis.call('get', KEYS[1])
		if n and tonumber(n) >= tonumber(ARGV[1]) then return 0 end
		if redis.call('incr', KEYS[1]) == 1 then redis.call('expire', KEYS[1], 10) end return 1`
	// rate-limiter-flexible
	flexible = `redis.call('set', KEYS[1], 0, 'EX', ARGV[2], 'NX')
		local consumed = redis.call('incrby', KEYS[1], ARGV[1])
		return {consumed, redis.call('pttl', KEYS[1])}`
	bucketAsk = `local b = redis.call('hmget', KEYS[1], 'tokens', 'at')
		local tokens = tonumber(b[1]) or 2
		if tokens < 1 then return 0 end
		redis.call('hset', KEYS[1], 'tokens', tokens - 1, 'at', 1)
		redis.call('pexpire', KEYS[1], 5000) return 1`
	stringBucket = `local last = tonumber(redis.call("get", KEYS[1])) or 5
		redis.call("setex", KEYS[1], 10, last - 1)
		redis.call("setex", KEYS[2], 10, 12345) return 1`
)

// do is one request: words that are separated by spaces, or a script with its keys and arguments.
func do(line string) [][]byte { return commandtest.Args(strings.Fields(line)...) }

func eval(script, rest string) [][]byte {
	return append(commandtest.Args("EVAL", script), commandtest.Args(strings.Fields(rest)...)...)
}

// factText formats facts for comparison.
func factText(facts []commands.Fact) string {
	words := []string{}
	kinds := [commands.FactKinds]string{"granted", "refused", "released", "expired", "renewed",
		"missed", "allowed", "denied", "counted"}
	for _, f := range facts {
		text := fmt.Sprintf("%s %s %s", kinds[f.Kind], f.Form, f.Key)
		if f.Owner != nil {
			text += fmt.Sprintf(" %s", f.Owner)
		}
		if f.Shared {
			text += " shared"
		}
		if f.Patient {
			text += " patient"
		}
		words = append(words, text)
	}
	return strings.Join(words, ", ")
}

// step is a request at a time, and the facts of it and of what expired before.
type step struct {
	atMs int64
	call [][]byte
	want string
}

func TestFactsOfLocks(t *testing.T) {
	for name, steps := range map[string][]step{
		"set nx": {
			{0, do("SET l a NX PX 100"), "granted string l a"},
			{0, do("SET l b NX PX 100"), "refused string l b"},
			{0, eval(compareDelete, "1 l b"), "missed string l"},
			{50, eval(compareExpire, "1 l a 100"), "renewed string l a"},
			{50, eval(compareTTL, "1 l a"), ""},
			{60, eval(compareDelete, "1 l a"), "released string l a"},
			{60, eval(compareDelete, "1 l a"), ""},
			{60, do("SET l a NX EX 1 GET"), "granted string l a"},
			{70, do("SET l a XX PX 500"), "renewed string l a"},
			{700, do("SET l b PX 100 NX"), "expired string l a, granted string l b"},
			{710, do("PEXPIRE l 100"), "renewed string l b"},
			{710, do("DEL other l"), "released string l b"},
			{710, do("SET cache v EX 1"), ""},
			{5000, do("PING"), ""},
		},
		"setnx": {
			{0, do("SETNX l a"), ""},
			{0, do("SETNX l b"), "refused string l b"},
			{1, do("EXPIRE l 1"), "granted string l a"},
			{2, do("EXPIRE l 2"), "renewed string l a"},
			{3, do("GETDEL l"), "released string l a"},
			{3, do("SETNX stock 5"), ""},
			{3, do("INCR stock"), ""},
		},
		"conditions": {
			{0, do("SET l a NX PX 100"), "granted string l a"},
			{10, do("SET l a IFEQ a PX 100"), "renewed string l a"},
			{20, do("SET l b IFEQ a PX 100"), "granted string l b"}, // taken over
			{20, do("DELEX l IFEQ a"), ""},
			{20, do("DELEX l IFEQ b"), "released string l b"},
			{20, do("SET m 1 NX PX 100"), "granted string m 1"},
			{20, do("DELIFEQ m 1"), "released string m 1"},
		},
		"asking for the end": {
			{0, eval(`redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 100)
				return redis.call('pttl', KEYS[1])`, "1 l a"), "granted string l a"},
			{0, eval(`redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 100)
				return redis.call('pttl', KEYS[1])`, "1 l b"), "refused string l b patient"},
		},
		"all or none": {
			{0, eval(redlock, "2 a b me 100"), "granted string a me, granted string b me"},
			{0, eval(redlock, "2 c b you 100"), "refused string b"},
			{0, eval(redlock, "1 d you 100"), "granted string d you"},
		},
		"take or renew": {
			{0, eval(takeOrRenew, "1 l me 100"), "granted string l me"},
			{50, eval(takeOrRenew, "1 l me 100"), "renewed string l me"},
			{50, eval(takeOrRenew, "1 l you 100"), "refused string l you"},
		},
		"reentrant": {
			{0, eval(reentrantTake, "1 l 100 id:1"), "granted reentrant l id:1"},
			{0, eval(reentrantTake, "1 l 100 id:1"), ""},
			{0, eval(reentrantTake, "1 l 100 id:2"), "refused reentrant l id:2 patient"},
			{50, eval(reentrantRenew, "1 l 100 id:1"), "renewed reentrant l id:1"},
			{50, eval(reentrantRenew, "1 l 100 id:2"), "missed reentrant l id:2"},
			{60, eval(reentrantFree, "3 l ch latch1 0 100 id:1 publish 1000"), ""},
			{60, eval(reentrantFree, "3 l ch latch2 0 100 id:1 publish 1000"),
				"released reentrant l id:1"},
			{60, eval(reentrantFree, "3 l ch latch2 0 100 id:1 publish 1000"), ""}, // repeated
			{70, eval(reentrantTake, "1 l 100 id:3"), "granted reentrant l id:3"},
			{200, eval(reentrantTake, "1 l 100 id:2"),
				"expired reentrant l id:3, granted reentrant l id:2"},
		},
		"read-write": {
			{0, eval(readTake, "2 l t 100 r1 w1"), "granted read-write l r1"},
			{0, eval(readTake, "2 l t 100 r2 w2"), "granted read-write l r2 shared"},
			{0, eval(writeTake, "1 l 100 w3"), "refused read-write l patient"},
			{10, eval(readFree, "3 l ch t 0 r1"), "released read-write l r1 shared"},
			{20, eval(readFree, "3 l ch t 0 r2"), "released read-write l r2"},
			{20, eval(writeTake, "1 l 100 w3"), "granted read-write l w3"},
			{20, eval(writeTake, "1 l 100 w3"), ""},
			{20, eval(readTake, "2 l t 100 r1 w1"), "refused read-write l w1 patient"},
			{20, eval(writeFree, "2 l ch 0 100 w3"), ""},
			{20, eval(writeFree, "2 l ch 0 100 w3"), "released read-write l w3"},
		},
		"semaphore": { // the first holder's release shows that it is none of windows
			{0, eval(semaphoreTake, "1 s 2 a 100 5000"), "allowed sliding s"},
			{0, eval(semaphoreTake, "1 s 2 b 100 5000"), "allowed sliding s"},
			{0, eval(semaphoreTake, "1 s 2 c 100 5000"), "denied sliding s"},
			{0, do("ZREM s a"), "released semaphore s a shared"},
			{0, do("ZREM s a"), ""},
			{0, eval(semaphoreTake, "1 s 2 c 100 5000"), "granted semaphore s c shared"},
			{0, eval(semaphoreTake, "1 s 2 d 100 5000"), "refused semaphore s shared"},
			{9, eval(semaphoreRenew, "1 s b 100 5009"), "renewed semaphore s b shared"},
			{9, do("ZREM s b"), "released semaphore s b shared"},
			{9, do("ZREM s c"), "released semaphore s c shared"},
			{9, eval(semaphoreTake, "1 s 1 d 100 5009"), "allowed sliding s"},
			{9, do("ZREM s d"), "released semaphore s d shared"},
		},
		"permits": {
			{0, do("SET s 2"), ""},
			{0, eval(permitTake, "2 s {s}:timeout 1 9000 4000 a"),
				"granted semaphore {s}:timeout a shared"},
			{0, eval(permitTake, "2 s {s}:timeout 1 9000 4000 b"),
				"granted semaphore {s}:timeout b shared"},
			{0, eval(permitTake, "2 s {s}:timeout 1 9000 4000 c"),
				"refused semaphore {s}:timeout shared"},
			{0, eval(permitFree, "2 s {s}:timeout a"), "released semaphore {s}:timeout a shared"},
			{0, eval(permitFree, "2 s {s}:timeout a"), ""},
		},
		"no semaphore": {
			{0, do("ZADD jobs 1 a 2 b"), ""},
			{0, do("ZREM jobs a"), ""},
			{0, do("ZREM jobs b"), ""},
		},
		"fair": {
			{0, eval(fairTake, "3 l q t 100 a 5"), "granted reentrant l a"},
			{0, eval(fairTake, "3 l q t 100 b 5"), "refused reentrant l b patient"},
			{150, eval(fairTake, "3 l q t 100 b 5"),
				"expired reentrant l a, granted reentrant l b"},
		},
		"not locks": {
			{0, do("HSET session user 1"), ""},
			{0, do("EXPIRE session 10"), ""},
			{0, do("SET cache v PX 100"), ""},
			{0, eval(`return redis.call('get', KEYS[1])`, "1 cache"), ""},
			{0, eval(`redis.call('rpush', KEYS[1], 1) return redis.call('expire', KEYS[1], 9)`,
				"1 list"), ""},
			{500, do("DEL session list"), ""},
		},
	} {
		t.Run(name, func(t *testing.T) { checkFacts(t, steps) })
	}
}

func TestFactsOfWindows(t *testing.T) {
	for name, steps := range map[string][]step{
		"sliding": {
			{0, eval(slidingAsk, "1 w 5000 1 a"), "allowed sliding w"},
			{1, eval(slidingAsk, "1 w 5001 1 b"), "denied sliding w"},
			{1500, eval(slidingAsk, "1 w 6500 1 c"), "allowed sliding w"},
		},
		"by single commands": {
			{0, do("ZREMRANGEBYSCORE w 0 1"), ""},
			{0, do("ZADD w 1 a"), ""},
			{0, do("PEXPIRE w 1000"), "counted sliding w"},
			{0, do("ZADD w 2 b"), "counted sliding w"},
		},
		"fixed": {
			{0, do("INCR n"), ""},
			{0, do("EXPIRE n 10"), "counted fixed n"},
			{1, do("INCR n"), "counted fixed n"},
			{2, eval(fixedAsk, "1 m 1"), "allowed fixed m"},
			{2, eval(fixedAsk, "1 m 1"), "denied fixed m"},
			{2, eval(flexible, "1 f 1 10"), "counted fixed f"},
			{2, eval(flexible, "1 f 1 10"), "counted fixed f"},
		},
		"bucket": {
			{0, eval(bucketAsk, "1 b"), "counted bucket b"},
			{1, eval(bucketAsk, "1 b"), "counted bucket b"},
			{2, eval(bucketAsk, "1 b"), "denied bucket b"},
			{3, eval(stringBucket, "2 s.tokens s.at"),
				"counted bucket s.tokens"},
			{4, do("CL.THROTTLE c 0 1 60"), "allowed bucket c"},
			{4, do("CL.THROTTLE c 0 1 60"), "denied bucket c"},
			{4, do("CL.THROTTLE c 0 1 60 0"), ""},
			{4, do("INCREX i BYINT 1 UBOUND 1 EX 10"), "allowed bucket i"},
			{4, do("INCREX i BYINT 1 UBOUND 1 EX 10"), "denied bucket i"},
		},
	} {
		t.Run(name, func(t *testing.T) { checkFacts(t, steps) })
	}
}

// checkFacts applies each request as an entry, after a dry run: if that finishes, it tells the same
// facts as the entry does.
func checkFacts(t *testing.T, steps []step) {
	m := newestMachine(testTable())
	m.Witness(true)
	for i, s := range steps {
		const start = 1000
		batch := commands.AppendRequest(nil,
			&commands.Request{Proto: 2, Cmds: [][][]byte{s.call}})
		var w commands.Witness
		replies, _ := m.readWitnessed(nil, batch, start+s.atMs, 5_000_000, 0, nil, false, &w)
		dry := factText(w.Facts())
		r := mustApply(t, m, uint64(10+i), &Entry{ClockMs: start + s.atMs, WallUs: 5_000_000,
			Batches: [][]byte{batch}}, true)
		if r.Replies[0][0] == '-' {
			t.Fatalf("step %d: %s", i, r.Replies[0])
		}
		if got := factText(r.Facts); got != s.want {
			t.Errorf("step %d: facts %q, want %q", i, got, s.want)
		}
		if len(replies) > 0 && dry != s.want && string(s.call[0]) == "EVAL" {
			t.Errorf("step %d: facts of the dry run %q, want %q", i, dry, s.want)
		}
	}
}

// What an entry does is marked on every node, also at a replay; only the node that made it gets
// facts.
func TestFactsOfOwnEntriesAlone(t *testing.T) {
	m := newestMachine(testTable())
	m.Witness(true)
	e := &Entry{ClockMs: 1000, Batches: [][]byte{calls("SET l a NX PX 100", "SET m a NX PX 100")}}
	if r := mustApply(t, m, 10, e, false); len(r.Facts) != 0 {
		t.Errorf("facts of another's entry: %s", factText(r.Facts))
	}
	if !m.ks.DB(0).Find([]byte("l")).Lease() {
		t.Error("the lock is not marked")
	}
	r := mustApply(t, m, 11, &Entry{ClockMs: 2000, Batches: [][]byte{calls("PING")}}, true)
	if got := factText(r.Facts); !strings.Contains(got, "expired string l a") ||
		!strings.Contains(got, "expired string m a") {
		t.Errorf("facts of the next leader: %s", got)
	}
}

// The facts of a request do not depend on those before it in the entry.
func TestFactsOfEachRequest(t *testing.T) {
	m := newestMachine(testTable())
	m.Witness(true)
	r := mustApply(t, m, 10, &Entry{ClockMs: 1000, WallUs: 1, Batches: [][]byte{
		calls("SET l a NX PX 100", "CL.THROTTLE c 0 1 60")}}, true)
	const want = "granted string l a, allowed bucket c"
	if got := factText(r.Facts); got != want {
		t.Errorf("facts %q, want %q", got, want)
	}
}

// What keys are used for does not depend on whether a machine tells of it. A LOCK command concerns
// a lock for its own request, and for nothing behind it.
func TestMarksOfSilentMachines(t *testing.T) {
	e := &Entry{ClockMs: 1000, WallUs: 1, Batches: [][]byte{calls("LOCK.ACQUIRE l a PX 100",
		"CL.THROTTLE alone 0 1 60", "INCREX n")}}
	script := lineRequest("")
	script.Cmds[0] = eval(`redis.call("lock.acquire", KEYS[1], "a", "PX", 100)
		return redis.call("cl.throttle", KEYS[2], 0, 1, 60)`, "2 m beside")
	e.Batches = append(e.Batches, commands.AppendRequest(nil, &script))
	tells, silent := newestMachine(testTable()), newestMachine(testTable())
	tells.Witness(true)
	mustApply(t, tells, 10, e, true)
	mustApply(t, silent, 10, e, false)
	if !bytes.Equal(snapshotBytes(t, tells.Snapshot()), snapshotBytes(t, silent.Snapshot())) {
		t.Error("a machine that tells what requests do to locks has another state")
	}
	for key, want := range map[string]bool{"alone": true, "n": true, "beside": false} {
		for _, m := range []*Machine{tells, silent} {
			if got := m.ks.DB(0).Find([]byte(key)).Window(); got != want {
				t.Errorf("%s is a window: %v, want %v", key, got, want)
			}
		}
	}
}

// A dry run whose request runs again as an entry tells nothing.
func TestFactsOfAbortedDryRuns(t *testing.T) {
	m := newestMachine(testTable())
	m.Witness(true)
	mustApply(t, m, 10, &Entry{ClockMs: 1000, Batches: [][]byte{calls("SET l a NX PX 100")}}, true)
	batch := commands.AppendRequest(nil, &commands.Request{Proto: 2, Multi: true,
		Cmds: [][][]byte{do("SETNX l b"), do("SET other x")}})
	var w commands.Witness
	m.readWitnessed(nil, batch, 1000, 1, 0, nil, false, &w)
	if got := factText(w.Facts()); got != "" {
		t.Errorf("facts of what was not done: %s", got)
	}
}

// What clients send may be long; facts are not.
func TestFactsAreBounded(t *testing.T) {
	m := newestMachine(testTable())
	m.Witness(true)
	long := strings.Repeat("x", 1<<20)
	for i, c := range [][][]byte{do("SET l " + long + " NX PX 100"),
		do("SET l " + long + "y NX PX 100"), eval(compareDelete, "1 l "+long)} {
		r := mustApply(t, m, uint64(10+i), &Entry{ClockMs: 1000, Batches: [][]byte{
			commands.AppendRequest(nil, &commands.Request{Proto: 2, Cmds: [][][]byte{c}})}}, true)
		if len(r.Facts) != 1 || len(r.Facts[0].Owner) > 256 {
			t.Errorf("call %d: %d facts", i, len(r.Facts))
		}
	}
}

// From level 3 on, a snapshot says what keys are used for: cached values are no locks after a
// restart either.
func TestMarksInSnapshots(t *testing.T) {
	m := newestMachine(testTable())
	mustApply(t, m, 10, &Entry{ClockMs: 1000, WallUs: 1, Batches: [][]byte{calls(
		"SET lock a NX PX 100", "SET number 7 NX PX 100", "SET cache v PX 100",
		"SET cached 5 PX 100", "HSET re id:1 1", "PEXPIRE re 100", "INCR window",
		"PEXPIRE window 100", "ZADD cachedset 1 a", "CL.THROTTLE bucket 5 1 60",
		"ZADD sliding 1 a", "PEXPIRE sliding 100")}}, false)
	text := snapshotBytes(t, m.Snapshot())
	restored, err := ReadSnapshot(bytes.NewReader(text), m.table)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"lock": "lock", "number": "lock", "cache": "",
		"cached": "", "re": "", "window": "window", "cachedset": "", "bucket": "window",
		"sliding": "window"} {
		for _, of := range []*Machine{m, restored} {
			e := of.ks.DB(0).Find([]byte(key))
			got := ""
			if e.Lease() {
				got += "lock"
			}
			if e.Window() {
				got += "window"
			}
			if got != want || e.Changed() != m.ks.DB(0).Find([]byte(key)).Changed() {
				t.Errorf("%s is a %q, want %q", key, got, want)
			}
		}
	}
	if !bytes.Equal(snapshotBytes(t, restored.Snapshot()), text) {
		t.Error("the snapshot of the restored machine differs")
	}
}

// A snapshot of an older level has no marks: what it holds is told by its shape.
func TestMarksAfterRestore(t *testing.T) {
	m := NewMachine(testTable())
	mustApply(t, m, 10, &Entry{ClockMs: 1000, Batches: [][]byte{calls("SET lock a NX PX 100",
		"SET counter 5 PX 100", "HSET re id:1 1", "PEXPIRE re 100", "SET forever a",
		"HSET session user 1 age 2", "PEXPIRE session 100")}}, true)
	restored, err := ReadSnapshot(bytes.NewReader(snapshotBytes(t, m.Snapshot())), m.table)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{"lock": true, "re": true, "counter": false,
		"forever": false, "session": false} {
		e := restored.ks.DB(0).Find([]byte(key))
		if e.Lease() != want {
			t.Errorf("%s is a lock: %v", key, e.Lease())
		}
		if created := m.ks.DB(0).Creation([]byte(key)); e.Created() != created {
			t.Errorf("%s was created at %d, want %d", key, e.Created(), created)
		}
	}
	if !bytes.Equal(snapshotBytes(t, restored.Snapshot()), snapshotBytes(t, m.Snapshot())) {
		t.Error("marks are in a snapshot that an older release has to read")
	}
}

// known is what a test's node knows of locks.
type known struct{}

func (known) Lock(_ int, key []byte, _ keyspace.Revision, _ int64) commands.KnownLock {
	k := commands.KnownLock{HeldMs: 7}
	if string(key) != "free" {
		k.Waiters = []commands.LockWaiter{{Owner: "w", WaitsMs: 1, SeenMs: 2, Attempts: 3}}
	}
	return k
}

func (known) Semaphore(_ int, key []byte) bool { return string(key) == "app:seen" }

func (known) Counts() []commands.LabelCounts {
	return []commands.LabelCounts{{Label: "other", Names: []string{"granted"}, Counts: []uint64{5}}}
}

// LOCKS WINDOWS and QUEUES show what keys are used for, to users who may read them.
func TestWindowsAndQueuesAreShown(t *testing.T) {
	m := newestMachine(testTable())
	m.known = known{}
	m.Witness(true)
	mustApply(t, m, 1, &Entry{ClockMs: 1000, Batches: [][]byte{
		calls("ACL SETUSER reader on nopass +locks ~app:*")}}, true)
	mustApply(t, m, 2, &Entry{ClockMs: 1000, WallUs: 1, Batches: [][]byte{calls("INCR app:n",
		"PEXPIRE app:n 900", "CL.THROTTLE app:t 5 1 60", "ZADD app:z 1 a 2 b", "PEXPIRE app:z 900",
		"SET app:cached 5 PX 900", "ZADD app:seen 1 a", "PEXPIRE app:seen 900",
		"ZADD app:plain 1 a",
		"INCR hidden", "PEXPIRE hidden 900", "RPUSH app:q a b c", "XADD app:x 1-1 a b",
		"RPUSH hiddenq a")}}, true)
	read := func(line string) map[string]string {
		q := &commands.Request{Proto: 2, Cmds: [][][]byte{do(line)}}
		q.User = commands.UserID{Name: []byte("reader"),
			Created: m.users.Get([]byte("reader")).Created()}
		reply, _ := m.ReadWork(nil, commands.AppendRequest(nil, q), 1000, 1, nil, false)
		found := map[string]string{}
		words := strings.Split(strings.ReplaceAll(string(reply), "\r\n", " "), "$3 key ")
		for _, one := range words[1:] {
			f := strings.Fields(one)
			found[f[1]] = strings.Join(f[4:], " ")
		}
		return found
	}
	for line, want := range map[string]map[string]string{
		"LOCKS WINDOWS COUNT 100": {
			"app:n": "$5 fixed $4 fill :1 $6 ttl-ms :900",
			"app:t": "$6 bucket $4 fill :-1 $6 ttl-ms :60000",
			"app:z": "$7 sliding $4 fill :2 $6 ttl-ms :900"},
		"LOCKS QUEUES COUNT 100": {"app:q": "$4 list $6 length :3 $6 ttl-ms :-1",
			"app:x": "$6 stream $6 length :1 $6 ttl-ms :-1"},
		"LOCKS WINDOWS MATCH app:n COUNT 100": {"app:n": "$5 fixed $4 fill :1 $6 ttl-ms :900"},
	} {
		got := read(line)
		for key, text := range want {
			if !strings.HasPrefix(got[key], text) {
				t.Errorf("%s: %s is %q, want %q", line, key, got[key], text)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %v", line, got)
		}
	}
	if got := read("LOCKS LIST COUNT 100"); len(got) != 1 ||
		!strings.HasPrefix(got["app:seen"], "$9 semaphore $6 owners *1 $1 a $7 holders :1") {
		t.Errorf("locks: %v", got)
	}
}

// LOCKS shows the locks that are marked, and of them what the node knows. A user sees the keys that
// he may read.
func TestLocksAreShown(t *testing.T) {
	m := newestMachine(testTable())
	m.Witness(true)
	m.known = known{}
	mustApply(t, m, 1, &Entry{ClockMs: 1000, Batches: [][]byte{
		calls("ACL SETUSER reader on nopass +@all ~app:*")}}, true)
	mustApply(t, m, 10, &Entry{ClockMs: 1000, Batches: [][]byte{calls("SET app:l a NX PX 100",
		"SET hidden b NX PX 100", "SET app:cache x EX 10", "SET app:n 1 EX 10")}}, true)
	read := func(user []byte, line string) string {
		q := &commands.Request{Proto: 2, Cmds: [][][]byte{do(line)}}
		if user != nil {
			q.User = commands.UserID{Name: user, Created: m.users.Get(user).Created()}
		}
		reply, _ := m.ReadWork(nil, commands.AppendRequest(nil, q), 1000, 1, nil, false)
		return strings.ReplaceAll(string(reply), "\r\n", " ")
	}
	all := read(nil, "LOCKS LIST COUNT 100")
	if !strings.Contains(all, "app:l") || !strings.Contains(all, "hidden") ||
		strings.Contains(all, "app:cache") || strings.Contains(all, "app:n") {
		t.Errorf("all locks: %s", all)
	}
	if got := read(nil, "LOCKS LIST MATCH hid* COUNT 100"); strings.Contains(got, "app:l") ||
		!strings.Contains(got, "hidden") {
		t.Errorf("some locks: %s", got)
	}
	if got := read([]byte("reader"), "LOCKS LIST COUNT 100"); strings.Contains(got, "hidden") ||
		!strings.Contains(got, "app:l") {
		t.Errorf("a reader's locks: %s", got)
	}
	if got := read([]byte("reader"), "LOCKS SHOW hidden"); !strings.Contains(got, "-NOPERM") {
		t.Errorf("a reader is shown: %s", got)
	}
	for line, want := range map[string]string{
		"LOCKS SHOW app:l": "*28 $3 key $5 app:l $4 kind $6 string $6 owners *1 $1 a " +
			"$7 holders :1 $5 token :40960 $6 ttl-ms :100 $7 held-ms :7 $7 waiters :1 " +
			"$6 queued :0 $5 lease :0 $5 holds *1 *10 $5 owner $1 a $5 count :1 " +
			"$5 token :40960 $6 ttl-ms :100 $5 lease :0 $5 queue *0 " +
			"$7 waiting *1 *8 $5 owner $1 w $8 waits-ms :1 " +
			"$11 seen-ms-ago :2 $8 attempts :3 $7 history *0 ",
		"LOCKS SHOW free":         "$-1 ",
		"LOCKS STATS":             "*1 *4 $5 label $5 other $7 granted :5 ",
		"LOCKS LIST COUNT 0":      "-ERR syntax error ",
		"LOCKS LIST CURSOR x":     "-ERR invalid cursor ",
		"LOCKS LIST MATCH none:*": "*2 $1 0 *0 ",
	} {
		if got := read(nil, line); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

// A script that asks for the same locks and windows again and again does not fill the memory of the
// node that tells of it.
func TestFactsHaveABound(t *testing.T) {
	for name, words := range map[string]string{
		"locks": `local a = {'LOCK.RELEASE', 'k', 'me', 'KEYS', 127}
			local n, calls, each = 127, 25, {}`,
		"windows": `local a = {'WINDOW.HIT'} local n, calls, each = 32, 100, {1, 'PX', 1000}`,
	} {
		m := newestMachine(testTable())
		m.Witness(true)
		script := request("EVAL", words+` for i = 1, n do a[#a + 1] = string.rep('k', 8000) .. i
			for _, w in ipairs(each) do a[#a + 1] = w end end
			for i = 1, calls do redis.call(unpack(a)) end return 'done'`, "0")
		r := mustApply(t, m, m.Index()+1, &Entry{ClockMs: 1, WallUs: 1, Batches: [][]byte{script}},
			true)
		if got := string(r.Replies[0]); got != "$4\r\ndone\r\n" {
			t.Fatalf("%s: %s", name, got)
		}
		kept := 0
		for i := range r.Facts {
			kept += len(r.Facts[i].Key) + len(r.Facts[i].Owner)
		}
		if kept < 10<<20 || kept > 16<<20 {
			t.Errorf("%s: %d facts have %d bytes", name, len(r.Facts), kept)
		}
	}
}
