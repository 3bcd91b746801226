// The simulated clients: each runs its operations one after another, and writes them down.

package sim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/internal/tests/simnet"
)

// patience is how long a client waits for a reply.
const patience = 8 * time.Second

// operation is a command that may have run.
type operation struct {
	client  int
	kind    string
	args    []string
	begin   int64 // in the order of all events
	end     int64 // 0: never
	beginAt time.Duration
	endAt   time.Duration
	unknown bool // it may have run, once, at any time since, or not
	reply   string
}

// client is a client with one connection at a time.
type client struct {
	s       *simulation
	number  int
	machine *simnet.Machine
	to      int // which process it is connected to
	conn    net.Conn
	in      *bufio.Reader
	life    int               // how many connections it has prepared
	kept    map[string]string // what it caches of the connection's replies
	channel string            // which it listens to; "": to none
}

func (s *simulation) addClient(number, to int) *client {
	c := &client{s: s, number: number, to: to,
		machine: s.net.Boot(fmt.Sprintf("10.0.1.%d", number+1))}
	s.clients = append(s.clients, c)
	return c
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

var errNotSent = errors.New("the client has no connection")

// call sends commands as one pipeline, and returns their replies.
func (c *client) call(wait time.Duration, commands ...[]string) ([]string, error) {
	if c.conn == nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		conn, err := c.machine.Dial(ctx, c.s.processes[c.to%len(c.s.processes)].clientAddr())
		cancel()
		if err != nil {
			c.to++
			return nil, errNotSent
		}
		c.conn, c.in = conn, bufio.NewReader(conn)
	}
	var b []byte
	for _, args := range commands {
		b = fmt.Appendf(b, "*%d\r\n", len(args))
		for _, a := range args {
			b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
		}
	}
	var replies []string
	_ = c.conn.SetReadDeadline(time.Now().Add(wait))
	_, err := c.conn.Write(b)
	for range commands {
		var reply string
		if err == nil {
			reply, err = readReply(c.in)
		}
		if err != nil {
			c.close()
			c.to++
			return replies, err
		}
		replies = append(replies, reply)
	}
	return replies, nil
}

// newer are operations whose commands need the newest feature level. A cluster has it once every
// member has run.
var newer = map[string]bool{"once": true, "acquire": true, "release": true}

// readReply reads a reply: an error with its "-", a status, integer or string as it is, null as
// "(nil)", and an array, push or map with spaces between its
// elements.
func readReply(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	switch line[0] {
	case '-':
		return line, nil
	case '_':
		return "(nil)", nil
	case '$', '*', '>', '%':
	default:
		return line[1:], nil
	}
	n, err := strconv.Atoi(line[1:])
	switch {
	case err != nil:
		return "", err
	case n < 0:
		return "(nil)", nil
	case line[0] == '$':
		b := make([]byte, n+2)
		_, err = io.ReadFull(in, b)
		return string(b[:n]), err
	}
	if line[0] == '%' { // keys and values
		n *= 2
	}
	var all []string
	for range n {
		element, err := readReply(in)
		if err != nil {
			return "", err
		}
		all = append(all, element)
	}
	return strings.Join(all, " "), nil
}

const (
	casScript = `if redis.call("get", KEYS[1]) == ARGV[1] then
redis.call("set", KEYS[1], ARGV[2]) return 1 else return 0 end`
	freeScript = `if redis.call("get", KEYS[1]) == ARGV[1] then
return redis.call("del", KEYS[1]) else return 0 end`
	windowScript = `local n = redis.call("incr", KEYS[1])
if n == 1 then redis.call("pexpire", KEYS[1], ARGV[1]) end return n`
)

// commandsOf returns what a client sends for an operation. The reply to the last one counts.
func commandsOf(kind string, a []string) [][]string {
	switch kind {
	case "get", "count", "holder":
		return [][]string{{"GET", a[0]}}
	case "set":
		return [][]string{{"SET", a[0], a[1]}}
	case "cas":
		return [][]string{{"EVAL", casScript, "1", a[0], a[1], a[2]}}
	case "incr":
		return [][]string{{"INCR", a[0]}}
	case "lease":
		return [][]string{{"SET", a[0], a[1], "NX", "PX", a[2]}}
	case "free":
		return [][]string{{"EVAL", freeScript, "1", a[0], a[1]}}
	case "window":
		return [][]string{{"EVAL", windowScript, "1", a[0], a[1]}}
	case "push":
		return [][]string{{"RPUSH", a[0], a[1]}}
	case "pop":
		return [][]string{{"BLPOP", a[0], "1"}}
	case "multi":
		return [][]string{{"MULTI"}, {"SET", a[0] + ":a", a[1]}, {"SET", a[0] + ":b", a[1]},
			{"EXEC"}}
	case "both":
		return [][]string{{"MGET", a[0] + ":a", a[0] + ":b"}}
	case "acquire":
		return [][]string{{"LOCK.ACQUIRE", a[0], a[1], "PX", a[2], "WAIT", a[3]}}
	case "release":
		return [][]string{{"LOCK.RELEASE", a[0], a[1]}}
	case "once":
		return [][]string{{"IDEMPOTENT", a[1], "INCR", a[0]}}
	case "fence":
		return [][]string{{"MULTI"}, {"SET", a[0], a[1], "NX", "PX", a[2]}, {"FENCE", a[0]},
			{"GET", a[0]}, {"EXEC"}}
	}
	return [][]string{append([]string{kind}, a...)}
}

// readOnly are the operations that need not be in a history if their reply is lost.
var readOnly = map[string]bool{"get": true, "count": true, "holder": true, "both": true}

// retryable are the errors that say that a command did not run and will not.
var retryable = []string{"-CLUSTERDOWN", "-TRYAGAIN", "-LOADING", "-MOVED", "-OOM"}

// perform runs one operation, and reports whether it was answered.
func (c *client) perform(kind string, args []string) bool {
	o := operation{client: c.number, kind: kind, args: args}
	o.begin, o.beginAt = c.s.now()
	replies, err := c.call(patience, commandsOf(kind, args)...)
	end, endAt := c.s.now()
	answered := err == nil
	switch {
	case err == nil && strings.HasPrefix(replies[len(replies)-1], "-UNKNOWN"):
		o.unknown, answered = true, false
	case err == nil:
		o.end, o.endAt, o.reply = end, endAt, replies[len(replies)-1]
	case errors.Is(err, errNotSent):
		return false
	default:
		o.unknown = true
	}
	c.s.trace("%v %d %s %v: %q %v", endAt, c.number, kind, args, o.reply, err)
	for _, word := range retryable {
		if strings.HasPrefix(o.reply, word) {
			return false
		}
	}
	if newer[kind] && strings.HasPrefix(o.reply, "-ERR unknown command") && !c.s.risen.Load() {
		return false // a node crashed before the others knew that it is of this release
	}
	// MULTI is refused: nothing was queued, and EXEC has nothing to run
	if kind == "multi" || kind == "fence" {
		if strings.HasPrefix(o.reply, "-EXECABORT") || strings.HasPrefix(o.reply, "-ERR EXEC") {
			return false
		}
	}
	if o.unknown && readOnly[kind] {
		return false
	}
	if newer[kind] && !o.unknown {
		c.s.risen.Store(true)
	}
	if strings.HasPrefix(o.reply, "-") {
		c.s.violation("client %d: %s %v: %s", c.number, kind, args, o.reply)
	}
	c.s.record(o)
	return answered
}

// now returns the next number in the order of events, and the time.
func (s *simulation) now() (int64, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order++
	return s.order, time.Since(s.began)
}

func (s *simulation) record(o operation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = append(s.history, o)
}
