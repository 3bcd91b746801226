package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/internal/resp"
)

// A heavy load is what 20 connections request repeatedly while a light client takes locks.
type heavyLoad struct {
	name  string
	setup func(c *heavyConn) error // fills an empty database
	// request returns what connection i sends. It is sent again when it is answered.
	request func(i int) request
}

const heavyClients = 20

// Sizes of the data, by what the issue of fair shares names.
const (
	manyKeys    = 500_000
	manyMembers = 1_000_000
)

var heavyLoads = []heavyLoad{
	{"KEYS *", keys(manyKeys), always("KEYS", "*")},
	{"LRANGE of 1,000,000", filled("RPUSH", "l", manyMembers, one),
		always("LRANGE", "l", "0", "-1")},
	{"LPOS of 1,000,000", filled("RPUSH", "l", manyMembers, one), always("LPOS", "l", "nowhere")},
	{"LINSERT amid 200,000", filled("RPUSH", "l", 200_000, one),
		always("LINSERT", "l", "BEFORE", "m100000", "x")},
	{"SUNION of 1,000 sets", sets(1000, 200), func(int) request {
		return command(append([]string{"SUNION"}, names("s", 1000)...)...)
	}},
	{"SINTER of 500,000", twoSets(manyKeys), always("SINTER", "a", "b")},
	{"SDIFFSTORE of 200,000", twoSets(200_000), func(i int) request {
		return command("SDIFFSTORE", "d"+strconv.Itoa(i), "a", "c")
	}},
	{"SORT of 200,000 BY", filled("RPUSH", "l", 200_000, one),
		always("SORT", "l", "BY", "w_*", "ALPHA", "LIMIT", "0", "10")},
	{"ZUNIONSTORE of 200,000", filled("ZADD", "z", 200_000, scored), func(i int) request {
		return command("ZUNIONSTORE", "d"+strconv.Itoa(i), "2", "z", "z")
	}},
	{"HSCAN COUNT 1,000,000", filled("HSET", "h", manyKeys, pair),
		always("HSCAN", "h", "0", "COUNT", "1000000")},
	{"HGETALL of 500,000", filled("HSET", "h", manyKeys, pair), always("HGETALL", "h")},
	{"ZSCAN COUNT 1,000,000", filled("ZADD", "z", manyKeys, scored),
		always("ZSCAN", "z", "0", "COUNT", "1000000")},
	{"BITCOUNT of 30 MB", big("b", 30<<20), always("BITCOUNT", "b")},
	{"BITOP NOT of 30 MB", big("b", 30<<20), func(i int) request {
		return command("BITOP", "NOT", "d"+strconv.Itoa(i%4), "b")
	}},
	{"GET of 30 MB", big("b", 30<<20), always("GET", "b")},
	{"SET of 8 MB", nil, func(i int) request {
		return command("SET", "v"+strconv.Itoa(i), strings.Repeat("v", 8<<20))
	}},
	{"SET of 30 MB", nil, func(i int) request {
		return command("SET", "v"+strconv.Itoa(i%4), strings.Repeat("v", 30<<20))
	}},
	{"MSET of 500,000 keys", nil, func(i int) request { return command(mset(i%4, manyKeys)...) }},
	{"MSET of 100,000 keys", nil, func(i int) request { return command(mset(i%4, 100_000)...) }},
	{"SADD of 1,000,000 members", nil, func(i int) request {
		return command(append([]string{"SADD", "s" + strconv.Itoa(i%4)},
			names("m", manyMembers)...)...)
	}},
	{"XPENDING of 100,000", pending(100_000), always("XPENDING", "x", "g", "-", "+", "100000")},
	{"XCLAIM of 1,000", pending(20_000), func(i int) request {
		return command(append([]string{"XCLAIM", "x", "g", "c" + strconv.Itoa(i), "0"},
			ids(1000)...)...)
	}},
	{"XAUTOCLAIM COUNT 20,000", pending(20_000), func(i int) request {
		return command("XAUTOCLAIM", "x", "g", "c"+strconv.Itoa(i), "0", "0", "COUNT", "20000")
	}},
	{"COMMAND DOCS", nil, always("COMMAND", "DOCS")},
	{"COMMAND GETKEYS of 100,000", nil, func(i int) request {
		return command(append([]string{"COMMAND", "GETKEYS"}, mset(0, 100_000)...)...)
	}},
	{"CLUSTER COUNTKEYSINSLOT", keys(manyKeys), always("CLUSTER", "COUNTKEYSINSLOT", "0")},
	{"Lua: 3,000,000 steps", nil,
		runs("local x = 0 for i = 1, 3000000 do x = x + i end return x")},
	{"Lua: fills tables", nil,
		runs("local t = {} for i = 1, 200000 do t[i] = {i} end return #t")},
	{"Lua: formats", nil,
		runs("local t for i = 1, 100000 do t = string.format('%d %s', i, 'x') end return t")},
	{"Lua: sorts", nil,
		runs("local t = {} for i = 1, 30000 do t[i] = (i * 7919) % 30011 end table.sort(t) " +
			"return t[1]")},
	{"Lua: finds", nil,
		runs("local s = string.rep('a', 1000) for i = 1, 2000 do s:find('.-b') end return 1")},
	{"Lua: 20,000 SETs", nil,
		runs("for i = 1, 20000 do redis.call('SET', 'k' .. i, i) end return 1")},
	{"MULTI of 100 HGETALL of 5,000", filled("HSET", "h", 5000, pair), func(int) request {
		r := command("MULTI")
		for range 100 {
			r = r.and(command("HGETALL", "h"))
		}
		return r.and(command("EXEC"))
	}},
}

func heavyTable(s *servers, only string, work time.Duration) error {
	redis, err := syncing(s)
	if err != nil {
		return err
	}
	leader, err := three(s)
	if err != nil {
		return err
	}
	forwards, err := follower(s)
	if err != nil {
		return err
	}
	fmt.Printf("The wait of a light client's SET NX beside %d heavy ones, %v a load: median, "+
		"longest [ms]\n", heavyClients, work)
	fmt.Printf("%-32s %9s %9s | %9s %9s | %9s %9s | %9s %9s\n", "", "redis", "", "leader", "",
		"follower", "", "redis", "coordd")
	for _, l := range heavyLoads {
		if !strings.Contains(l.name, only) {
			continue
		}
		besides, err := measureHeavy(carelessLoad{heavyLoad: l}, redis.port, nil, work)
		if err != nil {
			return fmt.Errorf("%s, redis: %w", l.name, err)
		}
		coordd, err := measureHeavy(carelessLoad{heavyLoad: l}, leader.port,
			[]string{forwards.port}, work)
		if err != nil {
			return fmt.Errorf("%s, coordd: %w", l.name, err)
		}
		fmt.Printf("%-32s %9.1f %9.1f | %9.1f %9.1f | %9.1f %9.1f | %9s %9s\n", l.name,
			ms(besides.light[0], 2), ms(besides.light[0], 1), ms(coordd.light[0], 2),
			ms(coordd.light[0], 1),
			ms(coordd.light[1], 2), ms(coordd.light[1], 1), besides.heavy(), coordd.heavy())
	}
	return nil
}

// ms returns the longest wait (part 1) or the median (part 2) of sorted ones, in milliseconds.
func ms(waits []time.Duration, part int) float64 {
	return float64(waits[(len(waits)-1)/part].Microseconds()) / 1000
}

type heavyResult struct {
	light             [][]time.Duration // by port, sorted
	failed            atomic.Int64      // light requests
	answered, refused atomic.Int64      // heavy requests
	refusal           atomic.Value      // the first one's text
}

// heavy describes how many heavy requests were answered, and how many of them with an error.
func (r *heavyResult) heavy() string {
	if n := r.refused.Load(); n > 0 {
		return fmt.Sprintf("%d %v", r.answered.Load(), r.refusal.Load())
	}
	return strconv.FormatInt(r.answered.Load(), 10)
}

// measureHeavy loads the server at port, or that at the first of the other ports, and takes locks
// at all of them.
func measureHeavy(l carelessLoad, port string, others []string,
	work time.Duration) (*heavyResult, error) {
	c, err := dial(port)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, err := c.do(command("FLUSHALL")); err != nil {
		return nil, err
	}
	if l.setup != nil {
		if err := l.setup(c); err != nil {
			return nil, err
		}
	}
	ports := append([]string{port}, others...)
	r := &heavyResult{light: make([][]time.Duration, len(ports))}
	ctx, cancel := context.WithTimeout(context.Background(), work)
	defer cancel()
	var wg sync.WaitGroup
	clients, at := cmp.Or(l.clients, heavyClients), port
	if l.forwarded {
		at = others[0]
	}
	failed := make(chan error, clients+len(ports))
	for i := range clients {
		wg.Go(func() { failed <- r.loadHeavily(ctx, at, &l, i) })
	}
	for i, p := range ports {
		wg.Go(func() {
			var err error
			r.light[i], err = r.takeLocks(ctx, p, l.careless)
			failed <- err
		})
	}
	wg.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// loadHeavily sends the requests of connection i until ctx ends. A connection that is closed counts
// as a refusal.
func (h *heavyResult) loadHeavily(ctx context.Context, port string, l *carelessLoad, i int) error {
	for n := 0; ctx.Err() == nil; {
		c, err := dial(port)
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		for ctx.Err() == nil {
			r := l.next(i, n)
			n++
			var line string
			if l.silent {
				line = "+"
				_, err = c.Write(r.bytes)
			} else {
				line, err = c.do(r)
			}
			if ctx.Err() != nil {
				break
			}
			h.answered.Add(1)
			if err != nil {
				line = "-closed"
			}
			if line[0] == '-' {
				h.refused.Add(1)
				h.refusal.CompareAndSwap(nil, line)
			}
			if err != nil {
				break
			}
		}
		stop()
		c.Close()
	}
	return nil
}

// takeLocks takes one lock after another, and returns the sorted times. It waits for the one in
// flight at the end.
func (h *heavyResult) takeLocks(ctx context.Context, port string,
	mayFail bool) ([]time.Duration, error) {
	c, err := dial(port)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var waits []time.Duration
	for i := 0; ctx.Err() == nil; i++ {
		begin := time.Now()
		line, err := c.do(command("SET", "light:"+port+":"+strconv.Itoa(i), "owner", "NX", "PX",
			"10000"))
		if err != nil {
			return nil, fmt.Errorf("a light client: %w", err)
		}
		if line != "+OK" {
			if !mayFail {
				return nil, fmt.Errorf("a light client's SET was answered %s", line)
			}
			h.failed.Add(1)
		}
		waits = append(waits, time.Since(begin))
		time.Sleep(time.Millisecond) // a light client
	}
	slices.Sort(waits)
	return waits, nil
}

// heavyConn is a connection that reads replies without keeping them: the load should cost little
// here.
type heavyConn struct {
	net.Conn
	r    *resp.Reader
	with []*heavyConn // what its load needs besides
}

func (c *heavyConn) Close() error {
	for _, other := range c.with {
		_ = other.Close()
	}
	return c.Conn.Close()
}

func dial(port string) (*heavyConn, error) {
	c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return &heavyConn{Conn: c, r: resp.NewReader(bufio.NewReaderSize(c, 256<<10))}, nil
}

// request is one or more commands that are sent together.
type request struct {
	bytes    []byte
	commands int
}

func (r request) and(next request) request {
	return request{append(r.bytes, next.bytes...), r.commands + next.commands}
}

// do sends commands and returns the first line of the last one's reply.
func (c *heavyConn) do(r request) (string, error) {
	sent := make(chan error, 1)
	go func() { // a server may reply before it has read everything
		_, err := c.Write(r.bytes)
		sent <- err
	}()
	line := ""
	for range r.commands {
		h, err := c.r.Skip()
		if err != nil {
			return "", err
		}
		line = string(h.Kind) + string(h.Text)
	}
	return line, <-sent
}

func command(args ...string) request { return request{resp.AppendCommand(nil, args...), 1} }

func always(args ...string) func(int) request {
	r := command(args...)
	return func(int) request { return r }
}

func runs(source string) func(int) request { return always("EVAL", source, "0") }

func names(prefix string, n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = prefix + strconv.Itoa(i)
	}
	return s
}

func mset(of, n int) []string {
	s := make([]string, 1, 2*n+1)
	s[0] = "MSET"
	for _, k := range names("k"+strconv.Itoa(of)+":", n) {
		s = append(s, k, "v")
	}
	return s
}

func one(i int) []string    { return []string{"m" + strconv.Itoa(i)} }
func pair(i int) []string   { return []string{"f" + strconv.Itoa(i), "v"} }
func scored(i int) []string { return []string{strconv.Itoa(i), "m" + strconv.Itoa(i)} }

// chunk is how many elements one command adds while a database is filled.
const chunk = 5000

// filled adds n elements to key by name.
func filled(name, key string, n int, element func(i int) []string) func(*heavyConn) error {
	return func(c *heavyConn) error {
		for i := 0; i < n; i += chunk {
			args := []string{name, key}
			for k := i; k < min(i+chunk, n); k++ {
				args = append(args, element(k)...)
			}
			if err := c.must(args...); err != nil {
				return err
			}
		}
		return nil
	}
}

func keys(n int) func(*heavyConn) error {
	return func(c *heavyConn) error {
		for i := 0; i < n; i += chunk {
			args := []string{"MSET"}
			for k := i; k < i+chunk; k++ {
				args = append(args, pair(k)...)
			}
			if err := c.must(args...); err != nil {
				return err
			}
		}
		return nil
	}
}

func sets(n, members int) func(*heavyConn) error {
	return func(c *heavyConn) error {
		for i := range n {
			args := append([]string{"SADD", "s" + strconv.Itoa(i)},
				names("m"+strconv.Itoa(i%50)+":", members)...)
			if err := c.must(args...); err != nil {
				return err
			}
		}
		return nil
	}
}

// twoSets makes a and b, which are equal, and c, which is empty.
func twoSets(n int) func(*heavyConn) error {
	return func(c *heavyConn) error {
		if err := filled("SADD", "a", n, one)(c); err != nil {
			return err
		}
		return filled("SADD", "b", n, one)(c)
	}
}

func big(key string, n int) func(*heavyConn) error {
	return func(c *heavyConn) error { return c.must("SET", key, strings.Repeat("v", n)) }
}

func ids(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = "1-" + strconv.Itoa(i+1)
	}
	return s
}

// pending makes a stream whose n entries are pending for a group's consumer.
func pending(n int) func(*heavyConn) error {
	return func(c *heavyConn) error {
		for chunk := range slices.Chunk(ids(n), 500) {
			var r request
			for _, id := range chunk {
				r = r.and(command("XADD", "x", id, "f", "v"))
			}
			if line, err := c.do(r); err != nil || line[0] == '-' {
				return fmt.Errorf("XADD: %s, %w", line, err)
			}
		}
		if err := c.must("XGROUP", "CREATE", "x", "g", "0"); err != nil {
			return err
		}
		for range n / chunk {
			if err := c.must("XREADGROUP", "GROUP", "g", "c", "COUNT", strconv.Itoa(chunk),
				"STREAMS", "x", ">"); err != nil {
				return err
			}
		}
		return nil
	}
}

// must sends a command that must not fail.
func (c *heavyConn) must(args ...string) error {
	line, err := c.do(command(args...))
	if err == nil && line[0] == '-' {
		err = errors.New(line)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return nil
}
