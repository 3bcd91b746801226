package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A careless load is a heavy one of other kinds of requests and clients, on coordd alone: some of
// them would end the measurement of redis-server for minutes.
type carelessLoad struct {
	heavyLoad
	careless  bool                   // a light request may fail
	clients   int                    // 0: heavyClients
	forwarded bool                   // through a follower
	silent    bool                   // no reply is read
	vary      func(i, n int) request // request n of connection i, where they differ
}

func (l *carelessLoad) next(i, n int) request {
	if l.vary != nil {
		return l.vary(i, n)
	}
	return l.request(i)
}

// spins is a script that uses up its budget.
const spins = "while true do end"

var carelessLoads = []carelessLoad{
	inScript("LINDEX amid 1,000,000", listOf(manyMembers), "'LINDEX','l',500000"),
	inScript("LSET amid 1,000,000", listOf(manyMembers), "'LSET','l',500000,'x'"),
	inScript("LINSERT amid 1,000,000", listOf(manyMembers), "'LINSERT','l','BEFORE','m500000','x'"),
	inScript("LPOS in 1,000,000", listOf(manyMembers), "'LPOS','l','m500000'"),
	inScript("LREM of nothing in 1,000,000", listOf(manyMembers), "'LREM','l',0,'nothing'"),
	inScript("ZCOUNT of 300,000", filled("ZADD", "z", 300_000, scored), "'ZCOUNT','z',10,290000"),
	inScript("ZLEXCOUNT of 300,000", filled("ZADD", "z", 300_000, unscored),
		"'ZLEXCOUNT','z','[m1','[m9'"),
	{heavyLoad: heavyLoad{"scripts that spin, follower", nil, runs(spins)}, forwarded: true,
		clients: 12},
	{heavyLoad: heavyLoad{"scripts that spin, pipelined", nil, func(int) request {
		r := command("EVAL", spins, "0")
		for range 19 {
			r = r.and(command("EVAL", spins, "0"))
		}
		return r
	}}, clients: 12},
	{heavyLoad: heavyLoad{"EVAL_RO that spins, READONLY", nil, func(int) request {
		return command("READONLY").and(command("EVAL_RO", spins, "0"))
	}}, forwarded: true, clients: 12},
	{heavyLoad: heavyLoad{name: "new scripts of 900 kB"}, vary: func(i, n int) request {
		return command("EVAL", fmt.Sprintf("-- %d %d\n", i, n)+
			strings.Repeat("do local a = 1 end\n", 900_000/19)+"return 1", "0")
	}},
	{heavyLoad: heavyLoad{"BLPOP of 50,000 keys", nil, func(int) request {
		return command(append(append([]string{"BLPOP"}, names("b", 50_000)...), "1")...)
	}}, clients: 100},
	{heavyLoad: heavyLoad{"2,000 XREAD of one stream", nil, func(i int) request {
		if i == 0 {
			return command("XADD", "x", "*", "f", "v")
		}
		return command("XREAD", "BLOCK", "0", "STREAMS", "x", "$")
	}}, clients: 2000, forwarded: true},
	{heavyLoad: heavyLoad{"KEYS * without replies", keys(manyKeys), func(int) request {
		return command("CLIENT", "REPLY", "OFF").and(command("KEYS", "*"))
	}}, silent: true},
	{heavyLoad: heavyLoad{"a million options of SET", nil, func(int) request {
		args := []string{"SET", "k", "v"}
		for range 1_000_000 {
			args = append(args, "KEEPTTL")
		}
		return command(args...)
	}}},
	{heavyLoad: heavyLoad{"RPUSH of 1,000,000, LPOP", nil, func(i int) request {
		key := "l" + strconv.Itoa(i)
		return command(append([]string{"RPUSH", key}, make([]string, 1_000_000)...)...).
			and(command("LPOP", key, "1000000"))
	}}},
	{heavyLoad: heavyLoad{"CLIENT LIST of 3,000", named(3000), always("CLIENT", "LIST")}},
	{heavyLoad: heavyLoad{"PUBSUB CHANNELS of 200,000", channels(200_000),
		always("PUBSUB", "CHANNELS", "*9*9*")}},
	{heavyLoad: heavyLoad{"COPY, SETRANGE of 100 MB", hundredMB, func(i int) request {
		if i%2 == 0 {
			return command("COPY", "b", "c", "REPLACE")
		}
		return command("SETRANGE", "b", "50000000", "x")
	}}},
	{heavyLoad: heavyLoad{"BITOP of 100 MB", hundredMB, always("BITOP", "NOT", "d", "b")}},
	{heavyLoad: heavyLoad{"replies that nobody reads", nil, func(i int) request {
		if i%2 == 0 {
			return command("COMMAND", "DOCS")
		}
		return command("INFO", "everything")
	}}, clients: 200, silent: true},
	{heavyLoad: heavyLoad{"Lua: returns a string often", nil,
		runs("local s = string.rep('x', 1000000) local t = {} for i = 1, 500 do t[i] = s end " +
			"return t")}},
	{heavyLoad: heavyLoad{"LREM of nothing in 1,000,000", listOf(manyMembers),
		always("LREM", "l", "0", "nothing")}},
}

func hundredMB(c *heavyConn) error {
	for end := 10 << 20; end <= 100<<20; end += 10 << 20 { // as far behind the end as may be
		if err := c.must("SETRANGE", "b", strconv.Itoa(end-1), "x"); err != nil {
			return err
		}
	}
	return nil
}

// inScript is a load of scripts that repeat a call until their budget is used up.
func inScript(what string, setup func(*heavyConn) error, call string) carelessLoad {
	return carelessLoad{heavyLoad: heavyLoad{"Lua: " + what, setup,
		runs("for i = 1, 1000000 do redis.call(" + call + ") end return 1")}}
}

func listOf(n int) func(*heavyConn) error { return filled("RPUSH", "l", n, one) }

func unscored(i int) []string { return []string{"0", "m" + strconv.Itoa(i)} }

// named opens n connections with long names.
func named(n int) func(*heavyConn) error {
	return func(c *heavyConn) error {
		_, port, _ := strings.Cut(c.RemoteAddr().String(), ":")
		for range n {
			other, err := dial(port)
			if err != nil {
				return err
			}
			c.with = append(c.with, other)
			if err := other.must("CLIENT", "SETNAME", strings.Repeat("n", 1000)); err != nil {
				return err
			}
		}
		return nil
	}
}

// channels has connections subscribe to n channels, as many as one may.
func channels(n int) func(*heavyConn) error {
	const each = 50_000
	return func(c *heavyConn) error {
		_, port, _ := strings.Cut(c.RemoteAddr().String(), ":")
		var other *heavyConn
		for i := 0; i < n; i += chunk {
			if i%each == 0 {
				var err error
				if other, err = dial(port); err != nil {
					return err
				}
				c.with = append(c.with, other)
			}
			r := command(append([]string{"SUBSCRIBE"}, names("channel"+strconv.Itoa(i)+":",
				chunk)...)...)
			r.commands = chunk // each has a reply
			if line, err := other.do(r); err != nil || line[0] == '-' {
				return fmt.Errorf("SUBSCRIBE: %s, %w", line, err)
			}
		}
		return nil
	}
}

// carelessTable measures the careless loads on coordd.
func carelessTable(s *servers, only string, work time.Duration) error {
	fmt.Printf("The wait of a light client's SET NX beside careless ones, %v a load: median, "+
		"longest [ms];\nlight requests that failed; changes of leader; most memory of a node "+
		"[MB]; a follower's restart,\nwith what it replays [s]\n", work)
	fmt.Printf("%-32s %9s %9s | %9s %9s | %7s %7s %7s %7s | %9s\n", "", "leader", "", "follower",
		"", "failed", "changes", "memory", "restart", "answered")
	for _, l := range carelessLoads {
		if !strings.Contains(l.name, only) {
			continue
		}
		l.careless = true
		if err := carelessRow(s, l, work); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}

// carelessRow measures one of them on a cluster of its own, which has seen no request yet.
func carelessRow(s *servers, l carelessLoad, work time.Duration) error {
	leader, err := three(s)
	if err != nil {
		return err
	}
	defer s.stop(leader.of)
	forwards, err := follower(s)
	if err != nil {
		return err
	}
	before, err := info(leader.port, "raft_term")
	if err != nil {
		return err
	}
	var most atomic.Int64
	stop := make(chan struct{})
	watched := make(chan error, 1)
	go func() {
		for {
			for _, n := range leader.of.nodes {
				b, err := n.resident()
				if err != nil {
					watched <- err
					return
				}
				most.Store(max(most.Load(), int64(b)))
			}
			select {
			case <-stop:
				watched <- nil
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	got, err := measureHeavy(l, leader.port, []string{forwards.port}, work)
	close(stop)
	if err := errors.Join(err, <-watched); err != nil {
		return err
	}
	after, err := info(forwards.port, "raft_term")
	if err != nil {
		return err
	}
	took, err := s.restart(leader.of, forwards.port)
	if err != nil {
		return err
	}
	fmt.Printf("%-32s %9.1f %9.1f | %9.1f %9.1f | %7d %7d %7d %7.1f | %9s\n", l.name,
		ms(got.light[0], 2), ms(got.light[0], 1), ms(got.light[1], 2), ms(got.light[1], 1),
		got.failed.Load(), after-before, most.Load()>>20, took.Seconds(), got.heavy())
	return nil
}
