// Tests of what is given back for clients that are gone: it undoes nothing that was acknowledged
// since.

package fsm

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/random"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// giveBack gives back what a wait was given, by a command.
func (w *waitMachine) giveBack(number int, line string) string {
	w.t.Helper()
	return w.putBack(number, 0, 1, line)
}

// putBack gives back a part of it.
func (w *waitMachine) putBack(number, part, parts int, line string) string {
	w.t.Helper()
	q := lineRequest(fmt.Sprintf("%s %d %d %d %s", commands.SystemGiveBack, number, part, parts,
		line))
	q.System = true
	return w.text(w.apply(q))
}

// A loan that is given back in parts ends with the last, or by what ends any loan; each part has
// the deadline.
func TestGiveBackInParts(t *testing.T) {
	for _, x := range []struct{ between, last, want string }{
		{"PING", "+OK", "*3 $1 a $1 b $1 c"},
		{"LPOP k", "+OK", "*2 $1 a $1 b"}, // the key is gone in between
		{"RPUSH k d", "+OK", "*4 $1 a $1 b $1 c $1 d"},
		{"DEL k", notLent, "*0"},
		{"LREM k 0 a", notLent, "*1 $1 c"},
	} {
		w := newWaitMachine(t)
		w.wait("n2", 7, "BLMPOP 0 1 k LEFT COUNT 3")
		w.run("EVAL redis.call('RPUSH','k','a','b','c')redis.call('PEXPIRE','k',1000) 0")
		if got := w.putBack(7, 1, 2, "LPUSH k b a"); got != notLent {
			t.Errorf("the second part before the first: %s", got)
		}
		for range 2 {
			if got := w.putBack(7, 0, 2, "LPUSH k c"); got != "+OK" {
				t.Fatal(got)
			}
			w = w.reloaded()
		}
		w.run(x.between)
		if got := w.putBack(7, 1, 2, "LPUSH k b a"); got != x.last {
			t.Errorf("%s: %s, want %s", x.between, got, x.last)
		}
		if got := w.run("LRANGE k 0 -1"); got != x.want {
			t.Errorf("%s: %s, want %s", x.between, got, x.want)
		}
		if got := w.run("PTTL k"); x.last == "+OK" && got != ":1000" {
			t.Errorf("%s: the deadline is in %s", x.between, got)
		}
		if again := w.putBack(7, 1, 2, "LPUSH k b a"); again != notLent {
			t.Errorf("%s: given back again: %s", x.between, again)
		}
	}
}

// A loan ends two seconds after its last part, and holds up the end of no other.
func TestPartsProlongTheirLoan(t *testing.T) {
	w := newWaitMachine(t)
	w.wait("n2", 7, "BLMPOP 0 1 k LEFT COUNT 3")
	w.wait("n2", 8, "BLPOP other 0")
	w.run("RPUSH k a b c")
	w.run("RPUSH other x")
	for i, part := range []string{"LPUSH k c", "LPUSH k b", "LPUSH k a"} {
		if got := w.putBack(7, i, 3, part); got != "+OK" {
			t.Fatalf("part %d: %s", i, got)
		}
		w.clock += lendingMs * 3 / 4
		w = w.reloaded()
	}
	if got := w.run("LRANGE k 0 -1"); got != "*3 $1 a $1 b $1 c" {
		t.Error(got)
	}
	if got := w.putBack(8, 0, 1, "LPUSH other x"); got != notLent {
		t.Errorf("a loan whose time is over: %s", got)
	}
}

const notLent = "-" + string(commands.ErrNotLent)

// What came between is not undone: the element stays away if a command has said since that it, or
// its key, is gone, or has written there.
func TestGiveBackUndoesNothing(t *testing.T) {
	for _, x := range []struct {
		wait, push, between, back, show, want string
	}{
		{"BZPOPMIN k 0", "ZADD k 5 job", "ZADD k 100 job", "ZADD k 5 job", "ZSCORE k job",
			"$3 100"},
		{"BZPOPMIN k 0", "ZADD k 5 job 6 other", "ZADD k 100 job", "ZADD k 5 job", "ZSCORE k job",
			"$3 100"},
		{"BZPOPMIN k 0", "ZADD k 5 job 6 other", "ZREM k job", "ZADD k 5 job", "ZSCORE k job",
			"$-1"},
		{"BLPOP k 0", "RPUSH k job", "DEL k", "LPUSH k job", "EXISTS k", ":0"},
		{"BLPOP k 0", "RPUSH k job", "UNLINK k", "LPUSH k job", "EXISTS k", ":0"},
		{"BLPOP k 0", "RPUSH k job", "FLUSHALL", "LPUSH k job", "EXISTS k", ":0"},
		{"BLPOP k 0", "RPUSH k job", "FLUSHDB", "LPUSH k job", "EXISTS k", ":0"},
		{"BLPOP k 0", "RPUSH k job", "SWAPDB 0 1", "LPUSH k job", "EXISTS k", ":0"},
		{"BLPOP k 0", "RPUSH k job", "SET k x", "LPUSH k job", "GET k", "$1 x"},
		{"BLPOP k 0", "RPUSH k job", "EVAL return{redis.call('DEL','k')} 0", "LPUSH k job",
			"EXISTS k", ":0"},
		{"BLPOP k 0", "RPUSH k job",
			"EVAL return{redis.call('SET','k','x'),redis.call('DEL','k')} 0", "LPUSH k job",
			"EXISTS k", ":0"},
		{"BLPOP k 0", "RPUSH k job", "LREM k 0 job", "LPUSH k job", "EXISTS k", ":0"},
		{"BLPOP k 0", "RPUSH k job", "SORT none STORE k", "LPUSH k job", "EXISTS k", ":0"},
		{"BZPOPMIN k 0", "ZADD k 5 job", "ZREM k job", "ZADD k 5 job", "EXISTS k", ":0"},
		{"BZPOPMIN k 0", "ZADD k 5 job", "ZREMRANGEBYSCORE k 1 9", "ZADD k 5 job", "EXISTS k",
			":0"},
		{"BZPOPMIN k 0", "ZADD k 5 job", "ZMOVEMEMBER k to MEMBERS 1 job", "ZADD k 5 job",
			"EXISTS k", ":0"},
		{"BZPOPMIN k 0", "ZADD k 5 job 6 b", "ZMOVEMEMBER k to MEMBERS 1 b", "ZADD k 5 job",
			"EXISTS k", ":0"},
		{"BZPOPMIN k 0", "ZADD k 5 job 6 b", "ZMOVE k to MIN", "ZADD k 5 job", "EXISTS k", ":0"},
		{"BZPOPMIN k 0", "ZADD k 5 job", "EVAL " +
			"return{redis.call('ZADD','b','9','job'),redis.call('ZMOVE','b','k','MIN')} 0",
			"ZADD k 5 job", "ZSCORE k job", "$1 9"},
		{"BZPOPMIN k 0", "ZADD k 5 job", "EVAL " +
			"return{redis.call('ZADD','b','9','job')," +
			"redis.call('ZMOVEMEMBER','b','k','XX','MEMBERS','1','job')} 0",
			"ZADD k 5 job", "EXISTS k", ":0"},
		{"BZMOVE k to MIN 0", "ZADD k 5 job", "SET elsewhere x", "ZADD k 5 job", "ZSCORE to job",
			"$1 5"},
		{"BZPOPMIN k 0", "ZADD k 5 job", "ZUNIONSTORE k 1 none", "ZADD k 5 job", "EXISTS k", ":0"},
		{"BLPOP k 0", "RPUSH k job b", "LTRIM k 1 0", "LPUSH k job", "EXISTS k", ":0"},
		{"BLPOP k 0", "RPUSH k job b", "EXPIRE k 100", "LPUSH k job", "LLEN k", ":1"},
		// what does not contradict
		{"BLPOP k 0", "RPUSH k job", "SET elsewhere x", "LPUSH k job", "LRANGE k 0 -1",
			"*1 $3 job"},
		{"BLPOP k 0", "RPUSH k job b", "RPUSH k c", "LPUSH k job", "LRANGE k 0 -1",
			"*3 $3 job $1 b $1 c"},
		{"BRPOP k 0", "RPUSH k a job", "LPOP k", "RPUSH k job", "LRANGE k 0 -1", "*1 $3 job"},
		{"BZPOPMIN k 0", "ZADD k 5 job", "ZADD other 1 a", "ZADD k 5 job", "ZSCORE k job", "$1 5"},
	} {
		w := newWaitMachine(t)
		w.wait("n2", 7, x.wait)
		w.run(x.push)
		// a dry run that finds nothing there is left to the log
		q := lineRequest(x.between)
		reply := w.Read(nil, commands.AppendRequest(nil, &q), w.clock, w.clock*1000)
		if len(reply) > 0 {
			t.Errorf("%s: a dry run answers %q", x.between, reply)
		}
		w.run(x.between)
		given := w.giveBack(7, x.back)
		if got := w.run(x.show); got != x.want {
			t.Errorf("%s, %s, %s, %s: %s is %s, want %s", x.push, x.wait, x.between, given, x.show,
				got, x.want)
		}
		if again := w.giveBack(7, x.back); again != notLent {
			t.Errorf("given back twice: %s", again)
		}
	}
}

// A loan ends if and only if the command says something of its key: it changed it, notifies that it
// did, if only for a moment, or says what is not there. No dry run answers such a command.
func TestGiveBackBehindAnyCommand(t *testing.T) {
	const callsPerSpec = 150
	w := newWaitMachine(t)
	w.events.notify, _ = commands.ParseNotifyFlags("KA")
	w.run("SET text v")
	dump, ok := resp.NewReader(bytes.NewReader(w.apply(lineRequest("DUMP text")))).Value()
	if ok != nil {
		t.Fatal(ok)
	}
	g := random.NewCalls(w.table, seeds.Of(t))
	g.Pools = append([]random.Pool{{Part: "key", Values: []string{"k", "k", "none", "other"}},
		{Part: "source", Values: []string{"k", "other"}},
		{Part: "destination", Values: []string{"k"}}, {Part: "dst", Values: []string{"k"}},
		{Part: "serialized-value", Values: []string{dump.Text}}}, g.Pools...)
	g.Strays = 1
	number, left, ended := 0, map[string]bool{}, map[string]bool{}
	for _, spec := range g.Specs {
		if spec.Kind != commands.Write {
			continue
		}
		for i := range callsPerSpec {
			class, wait, push, rest := "list", "BLPOP k 0", "LPUSH k job", "RPUSH k job rest"
			if i%2 > 0 {
				class, wait, push = "sorted-set", "BZPOPMIN k 0", "ZADD k 5 job"
				rest = push + " 6 rest"
			}
			number++
			w.run("FLUSHALL")
			w.run("SET other v")
			w.wait("n2", uint64(number), wait)
			there := i%4 > 1
			if there {
				w.run(rest)
			} else {
				w.run(push)
			}
			call := g.Call([]*commands.Spec{spec})
			q := commands.Request{Proto: 2, Cmds: [][][]byte{call}}
			dry := w.Read(nil, commands.AppendRequest(nil, &q), w.clock, w.clock*1000)
			before := w.ks.DB(0).LastChange([]byte("k"))
			reply := w.text(w.apply(q))
			changed := w.notified("k") || w.ks.DB(0).LastChange([]byte("k")) != before
			spec, call := spec, call
			if spec.Name == "idempotent" { // what it runs decides
				call = call[2:]
				if spec, _ = testTable().Resolve(call); spec == nil {
					continue
				}
			}
			name, want := spec.FullName(), "+OK"
			switch {
			case changed && name == "eval", flushes[name], name == "increx" && !there,
				strings.HasPrefix(name, "georadius") && len(call) > 8:
				continue // scripts do anything, the last of many STOREs counts; the rest is below
			case changed && !(spec.Has(commands.Ends) && spec.Group == class),
				denies(spec, call, reply):
				want = notLent
				ended[name] = true
			default:
				left[name] = true
			}
			if want == notLent && len(dry) > 0 {
				t.Errorf("%s, %s, %q: a dry run answers %q", wait, push, call, dry)
			}
			if got := w.giveBack(number, push); got != want {
				t.Errorf("%s, %s, %q (%v there): %s; given back: %s, want %s", wait, push, call,
					there, reply, got, want)
			}
		}
	}
	for _, name := range strings.Fields("expire set linsert lset restore rename move copy getdel " +
		"persist xadd hdel publish setrange eval zadd delex msetex hsetex getex hgetex") {
		if !left[name] {
			t.Errorf("no call of %s changed nothing", name)
		}
	}
	for _, name := range strings.Fields("del unlink expire expireat set restore rename " +
		"move copy ltrim lrem zrem sort zunionstore bitop delex msetex hsetex zmovemember") {
		if !ended[name] {
			t.Errorf("no call of %s changed the key or said what it lacks", name)
		}
	}
}

// flushes are commands whose changes of keys are not notified.
var flushes = map[string]bool{"flushall": true, "flushdb": true, "swapdb": true}

// notified reports whether the newest entry notified an event of a key of database 0.
func (w *waitMachine) notified(key string) bool {
	return slices.ContainsFunc(w.events.list, func(e commands.Event) bool {
		return e.Kind == commands.Message && string(e.Channel) == "__keyspace@0__:"+key
	})
}

// mayLeave are commands that remove a key or elements, and need not say what is not there.
var mayLeave = map[string]string{
	"rename":        "fails if there is no key",
	"renamenx":      "fails if there is no key",
	"locks|release": "fails if there is no lock",
	"getdel":        "replies with what is there, as a read does",
	"delex":         "with a condition it may be about another value; without, see denies",
	"delifeq":       "may be about another value",
	"zmove":         "takes what is there, as a pop does",
	"bzmove":        "takes what is there, as a pop does",
}

// denies reports whether a command says that k does not exist, or does not have something that a
// list or sorted set may have: it removes that or overwrites it with nothing.
func denies(spec *commands.Spec, call [][]byte, reply string) bool {
	if strings.HasPrefix(reply, "-") || spec.Has(commands.Ends) {
		return false
	}
	if spec.Name == "delex" && len(call) == 2 || spec.Name == "restore" {
		return string(call[1]) == "k"
	}
	uses, _ := spec.KeyUses(call)
	for _, use := range uses {
		switch {
		case string(call[use.Index]) != "k":
		case use.Flags&commands.KeyRO == 0 && reply == ":0" && storing.MatchString(spec.Name):
			return true
		case use.Flags&(commands.KeyRM|commands.KeyDelete) != 0:
			removes := slices.Contains(removing, spec.Group)
			return removes && mayLeave[spec.FullName()] == ""
		}
	}
	return false
}

// storing are the names of commands that store nothing if they reply 0.
var storing = regexp.MustCompile("store$|^(sort|bitop|georadius.*)$")

// removing are the groups of commands that remove what lists and sorted sets may have.
var removing = []string{"list", "sorted-set", "geo", "generic"}

// What sets a key with a time that is past says that the key is not there, as DEL does. Each
// command that takes an absolute time has a line.
func TestGiveBackBehindThePast(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET text v")
	dump, err := resp.NewReader(bytes.NewReader(w.apply(lineRequest("DUMP text")))).Value()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, c := range []struct {
		call        string // $ is a serialized value
		gone, there bool   // whether the loan ends, if nothing or something else is there
	}{
		{"SET k v PXAT 1", true, true},
		{"SET k v EXAT 1", true, true},
		{"SET k v NX PXAT 1", true, false},
		{"SET k v GET PXAT 1", true, false},
		{"SET k v XX PXAT 1", false, true},
		{"MSETEX 1 k v PXAT 1", true, true},
		{"MSETEX 2 other v k v EXAT 1", true, true},
		{"MSETEX 1 k v XX PXAT 1", false, true},
		{"HSETEX k PXAT 1 FIELDS 1 f v", true, false},
		{"HSETEX k FXX PXAT 1 FIELDS 1 f v", false, false},
		{"HGETEX k PXAT 1 FIELDS 1 f", false, false},
		{"GETEX k PXAT 1", false, false},
		{"INCREX k BYINT 1 PXAT 1", true, false},
		{"RESTORE k 1 $ ABSTTL", true, false},
		{"RESTORE k 1 $ ABSTTL REPLACE", true, true},
		{"EXPIREAT k 1", false, true},
		{"PEXPIREAT k 1", false, true},
		{"HEXPIREAT k 1 FIELDS 1 f", false, false},
		{"HPEXPIREAT k 1 FIELDS 1 f", false, false},
		{"SADDEX k PXAT 1 MEMBERS 1 f", false, false},
		{"SEXPIREAT k 1 MEMBERS 1 f", false, false},
		{"SPEXPIREAT k 1 MEMBERS 1 f", false, false},
		{"XCLAIM k g c 0 1-1 TIME 1", false, false},
	} {
		words := strings.Fields(c.call)
		known[strings.ToLower(words[0])] = true
		args := commandtest.Args(words...)
		for i, word := range words {
			if word == "$" {
				args[i] = []byte(dump.Text)
			}
		}
		for _, there := range []bool{false, true} {
			for _, reload := range []bool{false, true} {
				w := newWaitMachine(t)
				w.wait("n2", 7, "BLPOP k 0")
				push := "RPUSH k job"
				want, ends := "+OK", c.gone
				if there {
					push, ends = "RPUSH k job rest", c.there
				}
				if ends {
					want = notLent
				}
				w.run(push)
				reply := w.text(w.apply(commands.Request{Proto: 2, Cmds: [][][]byte{args}}))
				if reload {
					w = w.reloaded()
				}
				if got := w.giveBack(7, "LPUSH k job"); got != want {
					t.Errorf("%s, %s: %s; given back: %s, want %s", push, c.call, reply, got, want)
				}
			}
		}
	}
	for _, spec := range random.NewCalls(w.table, 0).Specs {
		timed := strings.Contains(spec.Syntax, "unix-time") ||
			strings.Contains(spec.Syntax, "ABSTTL")
		if spec.Kind == commands.Write && timed && !known[spec.Name] {
			t.Errorf("%s has no line", spec.Name)
		}
	}
}

// The key has the deadline that it had, and what is past it does not come back.
func TestGiveBackKeepsTheDeadline(t *testing.T) {
	for _, late := range []bool{false, true} {
		w := newWaitMachine(t)
		w.wait("n2", 7, "BLPOP k 0")
		w.apply(commands.Request{Proto: 2, Multi: true, Cmds: [][][]byte{
			commandtest.Args("RPUSH", "k", "job"), commandtest.Args("PEXPIRE", "k", "1000")}})
		want, ttl := "+OK", ":500"
		if w.clock += 500; late {
			w.clock += 501
			want, ttl = notLent, ":-2"
		}
		if got := w.giveBack(7, "LPUSH k job"); got != want {
			t.Errorf("late %v: %s", late, got)
		}
		if got := w.run("PTTL k"); got != ttl {
			t.Errorf("late %v: it has %s ms", late, got)
		}
	}
}

// What was taken from keys of one name that lived one after the other comes back to one key, in any
// order, also of a machine that was restored: nothing dies by the deadline of an earlier key.
func TestGiveBackOfSeveralLives(t *testing.T) {
	for _, order := range []string{"0", "1", "0 1", "1 0", "0 1 2", "1 2 0", "2 0 1"} {
		w := newWaitMachine(t)
		for i := range 3 {
			w.wait("n2", uint64(i), "BLPOP k 0")
			cmds := [][][]byte{commandtest.Args("RPUSH", "k", strconv.Itoa(i))}
			if i == 0 { // in a later life this ends the loans of the earlier ones
				cmds = append(cmds, commandtest.Args("PEXPIRE", "k", "1000"))
			}
			w.apply(commands.Request{Proto: 2, Multi: true, Cmds: cmds})
		}
		want := ":1000"
		for _, life := range strings.Fields(order) {
			number, _ := strconv.Atoi(life)
			if got := w.giveBack(number, "LPUSH k "+life); got != "+OK" {
				t.Fatalf("%s in order %s: %s", life, order, got)
			}
			if life != "0" {
				want = ":-1"
			}
			for _, v := range []*waitMachine{w, w.reloaded()} {
				if got := v.run("PTTL k"); got != want {
					t.Errorf("order %s, after %s: PTTL is %s, want %s", order, life, got, want)
				}
			}
		}
	}
}

// An element whose key has expired does not come back with a later key of that name.
func TestGiveBackAfterTheDeadline(t *testing.T) {
	w := newWaitMachine(t)
	w.wait("n2", 7, "BLPOP k 0")
	w.apply(commands.Request{Proto: 2, Multi: true, Cmds: [][][]byte{
		commandtest.Args("RPUSH", "k", "job"), commandtest.Args("PEXPIRE", "k", "500")}})
	w.clock += 600
	w.run("RPUSH k new")
	if got := w.giveBack(7, "LPUSH k job"); got != notLent {
		t.Error(got)
	}
	w.reply("LRANGE k 0 -1", "*1 $3 new")
}

// What several were given comes back, in whatever order: putting one back ends no loan of another.
func TestGiveBackOfMany(t *testing.T) {
	for _, c := range []struct{ command, push, back, elements, count string }{
		{"BLPOP k 0", "RPUSH k a b c", "LPUSH k %s", "a b c", "LLEN k"},
		{"BRPOP k 0", "RPUSH k a b c", "RPUSH k %s", "c b a", "LLEN k"},
		{"BLMPOP 0 1 k LEFT", "RPUSH k a b c", "LPUSH k %s", "a b c", "LLEN k"},
		{"BZPOPMIN k 0", "ZADD k 1 a 2 b 3 c", "ZADD k 1 %s", "a b c", "ZCARD k"},
		{"BZPOPMAX k 0", "ZADD k 1 a 2 b 3 c", "ZADD k 1 %s", "c b a", "ZCARD k"},
		{"BZMPOP 0 1 k MIN", "ZADD k 1 a 2 b 3 c", "ZADD k 1 %s", "a b c", "ZCARD k"},
	} {
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
			w := newWaitMachine(t)
			for i := range order {
				w.wait("n2", uint64(i+1), c.command)
			}
			w.run(c.push)
			w.reply(c.count, ":0")
			for _, i := range order {
				line := fmt.Sprintf(c.back, strings.Fields(c.elements)[i])
				if got := w.giveBack(i+1, line); got != "+OK" {
					t.Errorf("%s, %s in order %v: %s", c.command, line, order, got)
				}
			}
			w.reply(c.count, ":3")
		}
	}
}

// What is lent is part of the state and bounded in time, and does not hinder dry runs of other
// keys. However much it is, none of it ends for what else is lent.
func TestManyLoans(t *testing.T) {
	const many = 3000
	w := newWaitMachine(t)
	for i := range many {
		w.wait("n2", uint64(i+1), fmt.Sprintf("BLPOP k%d 0", i/2))
		w.run(fmt.Sprintf("RPUSH k%d x", i/2))
	}
	w.run("DEL k3")
	w.run("SET k4 x")
	for _, v := range []*waitMachine{w, w.reloaded()} {
		if n := v.waiting.lent.freeze().queue; len(n) != many-4 {
			t.Errorf("%d loans", len(n))
		}
		if v.waiting.lent.bytes != w.waiting.lent.bytes {
			t.Errorf("they count %d and %d bytes", v.waiting.lent.bytes, w.waiting.lent.bytes)
		}
	}
	for _, v := range []*waitMachine{w.reloaded(), w} {
		q := lineRequest("DEL nothing")
		reply := v.Read(nil, commands.AppendRequest(nil, &q), v.clock, v.clock*1000)
		if string(reply) != ":0\r\n" {
			t.Errorf("a dry run answers %q", reply)
		}
		for i := range many / 2 {
			want := "+OK"
			if i/2 == 3 || i/2 == 4 {
				want = notLent
			}
			if got := v.giveBack(i+1, fmt.Sprintf("LPUSH k%d x", i/2)); got != want {
				t.Fatalf("loan %d: %s", i, got)
			}
		}
		v.clock += lendingMs
		if got := v.giveBack(many, "LPUSH k x"); got != notLent {
			t.Errorf("much later: %s", got)
		}
		l := &v.waiting.lent
		if n := len(l.queue) + len(l.numbers) + len(l.lenders[0]) + l.bytes; n != 0 {
			t.Errorf("%d loans, numbers, lenders and bytes are left", n)
		}
	}
}

// Loans that have ended are in no snapshot: a restored machine does the same work, and gives back
// the same, as one that has them still.
func TestNothingDependsOnEndedLoans(t *testing.T) {
	w := newWaitMachine(t)
	for i := range 1000 {
		w.wait("n2", uint64(100+i), "BLPOP k 0")
		w.run("RPUSH k x")
	}
	w.run("DEL k")
	for _, key := range []string{"first", "second"} { // of one wait, which is sent again
		w.wait("n2", 8, "BLPOP "+key+" 0")
		w.run("RPUSH " + key + " x")
	}
	w.run("DEL second")
	w.wait("n2", 7, "BLMPOP 0 1 q LEFT COUNT 3")
	w.run("RPUSH q a b c")
	var requests []commands.Request
	for _, line := range []string{"7 0 2 LPUSH q c", "8 0 1 LPUSH first x", "7 1 2 LPUSH q b a",
		"100 0 1 LPUSH k x"} {
		q := lineRequest(commands.SystemGiveBack + " " + line)
		q.System = true
		requests = append(requests, q)
	}
	restored := w.reloaded()
	for _, m := range []*waitMachine{w, restored} {
		got, want := m.text(m.apply(requests...)), "+OK "+notLent+" +OK "+notLent
		if got != want {
			t.Errorf("given back: %s, want %s", got, want)
		}
	}
	if w.spent != restored.spent {
		t.Errorf("it took %d units of work, and %d on a restored machine", w.spent, restored.spent)
	}
}

// reloaded returns a machine with the state of w, by a snapshot.
func (w *waitMachine) reloaded() *waitMachine {
	return &waitMachine{t: w.t, Machine: restored(w.t, w.Machine), term: w.term, clock: w.clock,
		eras: w.eras}
}

// What a wait takes at once that is sent again is lent in the middle of an entry: what follows in
// it ends the loan on every node, whatever its clients want to know.
func TestLoansEndWhoeverIsConnected(t *testing.T) {
	for _, between := range []string{"DEL k", "SET k v", "EXPIRE k 100", "LREM k 0 rest",
		"FLUSHALL", "SWAPDB 0 1"} {
		for _, observed := range []bool{false, true} {
			w := newWaitMachine(t)
			if observed {
				w.Observe(func(int, string) bool { return true })
			}
			q := w.waitRequest("n2", 7, "BLPOP k 0")
			q.Wait.Order = w.wait("n2", 7, "BLPOP k 0").Order
			drop := lineRequest(commands.SystemDropWaits + " n2")
			drop.System = true
			w.apply(drop)
			w.run("RPUSH k job rest")
			q.Wait.Era = w.eraOf("n2")
			w.apply(q, lineRequest(between))
			if got := w.giveBack(7, "LPUSH k job"); got != notLent {
				t.Errorf("%s, observed %v: %s", between, observed, got)
			}
		}
	}
}

// Loans count with what waits: beyond the bound commands wait on their nodes, and no loan ends.
func TestLoansCountAsWaits(t *testing.T) {
	detector.Skip(t)
	w := newWaitMachine(t)
	name := strings.Repeat("x", maxWaiting/16)
	keeps := func(m *waitMachine, number int) bool {
		line := fmt.Sprint("BLPOP ", name, number, " 0")
		return m.place(m.apply(m.waitRequest("n2", uint64(number), line))).Order != 0
	}
	served := 0
	for keeps(w, served+1) && served < 100 {
		served++
		w.run(fmt.Sprint("RPUSH ", name, served, " x"))
	}
	if served < 10 || served > 15 {
		t.Fatalf("%d commands with names of %d bytes were kept and served", served, len(name))
	}
	for _, m := range []*waitMachine{w.reloaded(), w} {
		if keeps(m, 1000) {
			t.Error("one beyond the bound is kept")
		}
		for i := range served {
			if got := m.giveBack(i+1, fmt.Sprint("LPUSH ", name, i+1, " x")); got != "+OK" {
				t.Errorf("loan %d: %s", i, got)
			}
		}
		if !keeps(m, 1001) {
			t.Error("none is kept although there are no loans")
		}
	}
}

// A command that is denied has taken nothing, so nothing is lent; and nothing but an element, put
// to where it was, goes back.
func TestOnlyWhatWasTakenIsLent(t *testing.T) {
	for _, x := range []struct{ call, brings, back string }{
		{"BLPOP k 0", "RPUSH k job", "LPUSH k job"},
		{"BRPOP k 0", "RPUSH k job", "RPUSH k job"},
		{"BLMPOP 0 1 k LEFT", "RPUSH k job", "LPUSH k job"},
		{"BZPOPMIN k 0", "ZADD k 1 job", "ZADD k 1 job"},
		{"BZMPOP 0 1 k MAX", "ZADD k 1 job", "ZADD k 1 job"},
	} {
		for _, denied := range []bool{false, true} {
			w := newWaitMachine(t)
			w.run("ACL SETUSER bob on nopass +@all ~*")
			q := w.waitRequest("n2", 7, x.call)
			q.User = w.user("bob")
			w.place(w.apply(q))
			if denied {
				w.run("ACL SETUSER bob resetkeys ~mine")
			}
			w.run(x.brings)
			for _, wrong := range []string{strings.Replace(x.back, " k", " denied", 1), "DEL k",
				"LPOP k", "SET k v", "FLUSHALL", "NONE k", "LPUSH", "SADD k job"} {
				if got := w.giveBack(7, wrong); got != notLent {
					t.Errorf("%s, given back by %s: %s", x.call, wrong, got)
				}
			}
			want := "+OK"
			if denied {
				want = notLent
			}
			if got := w.giveBack(7, x.back); got != want {
				t.Errorf("%s, denied %v, given back: %s, want %s", x.call, denied, got, want)
			}
			if got := w.run("KEYS *"); got != "*1 $1 k" {
				t.Errorf("%s, denied %v: the keys are %s", x.call, denied, got)
			}
		}
	}
}
