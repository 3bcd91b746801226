package main

import (
	"strconv"
	"time"
)

// row is a line of the table: a quantity of coordd, beside that of another server.
type row struct {
	name, unit   string
	ours, theirs measurement // theirs may be nil
	against      string      // the name of theirs
	wanted       float64     // for ours/theirs, or for ours
	most         bool        // wanted is an upper bound, not a lower one
	once         bool        // takes too long for several rounds
}

// measurement measures one side of a row. Loads last for work.
type measurement func(s *servers, work time.Duration) (outcome, error)

// rate measures the requests per second of a load.
func rate(of serverOf, ld load) measurement {
	return func(s *servers, work time.Duration) (outcome, error) {
		t, err := of(s)
		if err != nil {
			return outcome{}, err
		}
		return measure(ld, t, work)
	}
}

// rated is a row that compares how many requests per second servers serve.
func rated(name string, ours serverOf, against string, theirs serverOf, ld load,
	wanted float64) row {
	return row{name: name, unit: "/s", ours: rate(ours, ld), theirs: rate(theirs, ld),
		against: against, wanted: wanted}
}

var (
	three   = coordd(3)
	syncing = redis("always")
	memory  = redis("no")
)

const (
	inFiles  = "redis, always"
	inMemory = "redis, in memory"
)

// limits are the rows beside one server without a copy, and of coordd alone.
var limits = []row{
	rated("fresh locks, 1 client", three, inFiles, syncing, freshLocks(1, 1), 0.5),
	rated("fresh locks, 50 clients", three, inFiles, syncing, freshLocks(50, 1), 0.9),
	rated("fresh locks, 200 clients", three, inFiles, syncing, freshLocks(200, 1), 0.8),
	rated("fresh locks, 1,000 clients", three, inFiles, syncing, freshLocks(1000, 1), 0.8),
	rated("fresh locks, 50 clients, pipeline 16", three, inFiles, syncing, freshLocks(50, 16), 0.7),
	rated("fresh locks, 50 clients, follower", follower, "coordd, leader", three,
		freshLocks(50, 1), 0.9),
	rated("held lock, 50 clients", three, inMemory, memory, heldLock(50), 0.8),
	rated("GET, 50 clients", three, inMemory, memory, gets(50), 0.85),
	rated("GET, 1 client", three, inMemory, memory, gets(1), 0.5),
	rated("lock and EVALSHA release, 50 clients", three, inFiles, syncing, lockAndRelease(50), 0.8),
	rated("reentrant lock and unlock, 50 clients", three, inFiles, syncing, reentrant(50), 0.8),
	rated("sliding window, 100 keys, 50 clients", three, inFiles, syncing, windows(50, 1),
		0.8),
	{name: "sliding window by WINDOW.HIT, 100 keys, 50 clients", unit: "/s",
		ours: rate(three, windowHits(50, 1)), theirs: rate(syncing, windows(50, 1)),
		against: inFiles + ", script", wanted: 0.8},
	{name: "sliding window by WINDOW.HIT, 100 keys, 50 clients, pipeline 16", unit: "/s",
		ours: rate(three, windowHits(50, 16)), theirs: rate(three, windows(50, 16)),
		against: "coordd, script", wanted: 1.5},
	rated("hot lock, 200 clients, subscription", three, inFiles, syncing,
		hotLock{clients: 200}, 1),
	rated("hot lock, 200 clients, 1 ms polls", three, inFiles, syncing,
		hotLock{clients: 200, poll: time.Millisecond}, 0.8),
	{name: "hot lock, 200 clients, queue", unit: "/s", ours: rate(three, queuedLock{clients: 200}),
		theirs:  rate(three, hotLock{clients: 200}),
		against: "coordd, subscription", wanted: 5},
	{name: "hot lock, 200 clients, queue, beside redis", unit: "/s",
		ours:    rate(three, queuedLock{clients: 200}),
		theirs:  rate(syncing, hotLock{clients: 200}),
		against: inFiles + ", subscription", wanted: 1},
	rated("fresh locks, 50 clients, single node", coordd(1), inFiles, syncing, freshLocks(50, 1),
		1),
	{name: "70 % of peak, snapshots: p99.9/p50", ours: snapshotTail, wanted: 8, most: true,
		once: true},
	{name: "1,000,000 keys: resident", unit: "B/key", ours: memoryPerKey(three),
		theirs: memoryPerKey(memory), against: inMemory, wanted: 1.3, most: true, once: true},
	{name: "1,000,000 locks end in 1 s: longest wait", unit: "ms", ours: massExpiry(three),
		theirs: massExpiry(syncing), against: inFiles, wanted: 0.5, most: true, once: true},
	{name: "100,000 leases renewed every 10 s: of a processor", unit: "%",
		ours: alone(three, renewals), wanted: 10, most: true, once: true},
	{name: "three idle nodes: of a processor", unit: "%", ours: alone(three, idleNodes), wanted: 3,
		most: true, once: true},
	{name: "restart with 1,000,000 keys, log", unit: "s", ours: restart(false), wanted: 1,
		most: true, once: true},
	{name: "restart with 1,000,000 keys, snapshot", unit: "s", ours: restart(true), wanted: 1,
		most: true, once: true},
	{name: "idle connection: resident", unit: "B", ours: idleConnection(three),
		theirs: idleConnection(memory), against: inMemory, wanted: 1, most: true, once: true},
	{name: "message to 5,000 subscribers: last", unit: "ms", ours: fanOut(three),
		theirs: fanOut(syncing), against: inFiles, wanted: 1, most: true},
}

// p99 makes the 99th percentile of the waits a row's quantity.
func p99(m measurement) measurement {
	return func(s *servers, work time.Duration) (outcome, error) {
		o, err := m(s, work)
		o.value, o.cpu = milliseconds(o.wait(0.99)), 0
		return o, err
	}
}

// fresh returns a key that was never used.
func fresh(prefix string, client, n int) string {
	return prefix + strconv.Itoa(client) + ":" + strconv.Itoa(n)
}

func freshLocks(clients, pipeline int) closedLoop {
	return closedLoop{clients: clients, pipeline: pipeline, request: freshLock}
}

func freshLock(client, n int) []string {
	return []string{"SET", fresh("lock:", client, n), "owner", "NX", "PX", "10000"}
}

func heldLock(clients int) load {
	return closedLoop{clients: clients, pipeline: 1,
		setup: [][]string{{"SET", "held", "owner"}},
		request: func(client, _ int) []string {
			return []string{"SET", "held", strconv.Itoa(client), "NX", "PX", "10000"}
		}}
}

func gets(clients int) load {
	return closedLoop{clients: clients, pipeline: 1,
		setup:   [][]string{{"SET", "held", "owner"}},
		request: func(int, int) []string { return []string{"GET", "held"} }}
}

// alternate is a load whose clients take something with even requests, and give it back with odd
// ones.
func alternate(clients int, scripts []script,
	take, giveBack func(client, n int) []string) closedLoop {
	ld := closedLoop{clients: clients, pipeline: 1, request: func(client, n int) []string {
		if n%2 == 0 {
			return take(client, n/2)
		}
		return giveBack(client, n/2)
	}}
	for _, s := range scripts {
		ld.setup = append(ld.setup, []string{"SCRIPT", "LOAD", string(s)})
	}
	return ld
}

func lockAndRelease(clients int) closedLoop {
	return alternate(clients, []script{compareAndDelete}, freshLock,
		func(client, n int) []string {
			return []string{"EVALSHA", compareAndDelete.sha(), "1", fresh("lock:", client, n),
				"owner"}
		})
}

func lockAndDelete(clients int) load {
	return alternate(clients, nil, freshLock, func(client, n int) []string {
		return []string{"DEL", fresh("lock:", client, n)}
	})
}

func reentrant(clients int) closedLoop {
	return alternate(clients, []script{reentrantLock, reentrantUnlock},
		func(client, n int) []string {
			return []string{"EVALSHA", reentrantLock.sha(), "1", fresh("lock:", client, n),
				strconv.Itoa(client), "30000"}
		},
		func(client, n int) []string {
			key := fresh("lock:", client, n)
			return []string{"EVALSHA", reentrantUnlock.sha(), "2", key, key + ":free",
				strconv.Itoa(client), "30000"}
		})
}

func windows(clients, pipeline int) closedLoop {
	return closedLoop{clients: clients, pipeline: pipeline,
		setup: [][]string{{"SCRIPT", "LOAD", string(slidingWindow)}},
		request: func(client, n int) []string {
			return []string{"EVALSHA", slidingWindow.sha(), "1",
				"window:" + strconv.Itoa((client*7919+n)%100), "1000000", "10000",
				fresh("", client, n)}
		}}
}

// windowHits does by coordd's command what windows does by a script.
func windowHits(clients, pipeline int) load {
	return closedLoop{clients: clients, pipeline: pipeline,
		request: func(client, n int) []string {
			return []string{"WINDOW.HIT", "window:" + strconv.Itoa((client*7919+n)%100), "10000",
				"PX", "1000"}
		}}
}

// The scripts do what the usual libraries' do.
const (
	compareAndDelete script = `
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`

	releaseAndTell script = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], '1')
return 1`

	reentrantLock script = `
local key, owner, lease = KEYS[1], ARGV[1], ARGV[2]
if redis.call('EXISTS', key) == 1 and redis.call('HEXISTS', key, owner) == 0 then
  return redis.call('PTTL', key)
end
redis.call('HINCRBY', key, owner, 1)
redis.call('PEXPIRE', key, lease)
return nil`

	reentrantUnlock script = `
local key, owner, lease = KEYS[1], ARGV[1], ARGV[2]
if redis.call('HEXISTS', key, owner) == 0 then return nil end
if redis.call('HINCRBY', key, owner, -1) > 0 then
  redis.call('PEXPIRE', key, lease)
  return 0
end
redis.call('DEL', key)
redis.call('PUBLISH', KEYS[2], '1')
return 1`

	slidingWindow script = `
local key, width, limit = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
redis.call('ZREMRANGEBYSCORE', key, 0, now - width)
if redis.call('ZCARD', key) >= limit then return 0 end
redis.call('ZADD', key, now, ARGV[3])
redis.call('PEXPIRE', key, width / 1000)
return 1`
)
