// Tests that small input neither takes much memory nor causes much work.

package server

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/resp"
)

// unservedSession returns a session that nothing serves, as accept makes it.
func unservedSession(n *node) *session {
	n.mu.Lock()
	defer n.mu.Unlock()
	return newSession(n.Server, 99, nullConn{})
}

// Session replies queued behind a request are sent in pieces, not all at the end of the pipeline.
func TestAnswersBehindARequestAreBounded(t *testing.T) {
	n := start(t, nil)
	s := unservedSession(n)
	s.dispatch([][]byte{[]byte("GET"), []byte("x")})
	for i := range 500 {
		s.dispatch([][]byte{[]byte("COMMAND")})
		if held := len(s.batch.literals.Buf); held > 2*maxBatchBytes {
			t.Fatalf("%d answers wait with %d bytes", i+1, held)
		}
		s.reply.Buf = s.reply.Buf[:0]
	}
	for range 10 * maxBatchRequests {
		s.dispatch([][]byte{[]byte("PING")})
		if owed := len(s.batch.pending); owed > 2*maxBatchRequests {
			t.Fatalf("%d answers are owed", owed)
		}
		s.reply.Buf = s.reply.Buf[:0]
	}
}

// The session's part of a transaction has a limit of its own.
func TestAnswersInATransactionAreBounded(t *testing.T) {
	const most = 1 << 20
	s := unservedSession(start(t, func(c *Config) { c.answerBytes = most }))
	own := &commands.Spec{Name: "own",
		Local: &commands.Local{Run: serve(func(s *session, _ *commands.Spec, args [][]byte) {
			s.w.Bulk(args[1])
		})}}
	echo := queued{spec: own, args: [][]byte{[]byte("ECHO"), make([]byte, most/64)}}
	var block []queued
	for range 64 + 3 {
		block = append(block, echo)
	}
	s.spliceExec(&pending{block: block}, []byte("*0\r\n"), 0)
	const refused = "-ERR transaction reply exceeds 64 MiB; the command did not run\r\n"
	if got := s.reply.Buf; resp.Len(got) != len(got) ||
		!strings.HasSuffix(string(got[len(got)-200:]), refused) || len(got) > most+2*most/64 {
		t.Fatalf("%d bytes that end in %q", len(got), got[len(got)-200:])
	}
}

// WATCH takes many keys, and the same key repeatedly without growing.
func TestWatchOfManyKeys(t *testing.T) {
	c := start(t, func(c *Config) { c.MaxRequestBytes = 4 << 20 }).dial(t)
	watch := []string{"WATCH"}
	for i := range 12_000 {
		watch = append(watch, fmt.Sprint("key", i))
	}
	if got := c.call(watch...); got != "+OK\r\n" {
		t.Fatal(got)
	}
	for range 5 { // together more than a transaction allows
		if got := c.call(watch...); got != "+OK\r\n" {
			t.Fatal(got)
		}
	}
	c.raw(calls("SET key11999 x", "MULTI", "SET a 1", "EXEC", "WATCH a a", "MULTI", "SET a 2",
		"EXEC"))
	c.want("+OK\r\n", "+OK\r\n", "+QUEUED\r\n", "*-1\r\n", "+OK\r\n", "+OK\r\n", "+QUEUED\r\n",
		"*1\r\n+OK\r\n")
	c.raw(calls("WATCH a", "SELECT 1", "WATCH a", "SELECT 0", "UNWATCH", "WATCH a", "SET a 3",
		"MULTI", "EXEC"))
	c.want("+OK\r\n", "+OK\r\n", "+OK\r\n", "+OK\r\n", "+OK\r\n", "+OK\r\n", "+OK\r\n", "+OK\r\n",
		"*-1\r\n")
}

// Pattern length is bounded wherever patterns are given, so that matching is.
func TestLongPatterns(t *testing.T) {
	c := start(t, nil).dial(t)
	long := strings.Repeat("?", 1025)
	for _, call := range [][]string{
		{"KEYS", long}, {"SCAN", "0", "MATCH", long}, {"HSCAN", "h", "0", "MATCH", long},
		{"PSUBSCRIBE", "a", long}, {"PUBSUB", "CHANNELS", long},
		{"CONFIG", "GET", long}, {"COMMAND", "LIST", "FILTERBY", "PATTERN", long},
	} {
		if call[0] == "HSCAN" {
			c.call("HSET", "h", "f", "v")
		}
		if got := c.call(call...); got != "-ERR pattern is longer than 1024 bytes\r\n" {
			t.Errorf("%s: %q", call[0], got)
		}
	}
	if got := c.call("PUBSUB", "NUMPAT"); got != ":0\r\n" {
		t.Errorf("%q patterns", got)
	}
}

// Messages keep their order; a new subscriber gets only later ones, a leaving one all earlier
// ones. Applying never waits.
func TestDeliveryOrder(t *testing.T) {
	n := start(t, nil)
	early, late := n.dial(t), n.dial(t)
	message := func(i int) string {
		v := fmt.Sprint(i)
		return fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$%d\r\n%s\r\n", len(v), v)
	}
	deliver := func(i int) {
		n.Deliver([]commands.Event{{Channel: []byte("c"), Payload: fmt.Append(nil, i)}})
	}
	early.call("SUBSCRIBE", "c")
	part := n.pubsub.channels.part("c")
	part.mu.Lock() // blocks the delivery goroutine
	for i := range 1000 {
		deliver(i)
	}
	_ = late.Send([][]byte{[]byte("SUBSCRIBE"), []byte("c")})
	_ = early.Send([][]byte{[]byte("UNSUBSCRIBE")})
	part.mu.Unlock()
	for i := range 1000 {
		early.want(message(i))
	}
	early.want("*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n")
	late.want("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n")
	deliver(1000)
	late.want(message(1000))
}

// Replies too large for one batch are requested in several, in order, each request once; the
// client sees one pipeline.
func TestPipelinesAreAnsweredInPieces(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	const value = 1 << 20
	big := strings.Repeat("x", value)
	c.call("SET", "big", big)
	bulk := fmt.Sprintf("$%d\r\n%s\r\n", value, big)
	n.fake.takeCalls()

	var text []string
	const values = 65 // 63 fit into one
	for range values {
		text = append(text, "GET big", "STRLEN big")
	}
	wants := append(slices.Repeat([]string{bulk, ":1048576\r\n"}, values), "$3\r\nend\r\n")
	n.answers(t, calls(append(text, "ECHO end")...), wants)
	if got := n.fake.takeCalls(); strings.Count(got, "read") < 2 {
		t.Errorf("batches %s", got)
	}

	// A batch with writes stops after its share of work.
	eval := []string{"EVAL", "redis.call('INCR', 'n') for i = 1, 60 do redis.call('COPY', 'big', " +
		"'other', 'REPLACE') redis.call('APPEND', 'other', 'x') end return 'done'", "0"}
	incr, get := []string{"INCR", "n"}, []string{"GET", "n"}
	c.raw(pipeline(eval, incr, eval, get, eval, []string{"CLIENT", "REPLY", "SKIP"}, eval, incr,
		[]string{"PING"}))
	c.want("$4\r\ndone\r\n", ":2\r\n", "$4\r\ndone\r\n", "$1\r\n3\r\n", "$4\r\ndone\r\n", ":6\r\n",
		"+PONG\r\n")
	if got := n.fake.takeCalls(); got != "write 7, write 6, write 4, write 2, write 1" {
		t.Errorf("batches %s", got)
	}
}

// answers sends a pipeline on a new connection and compares the replies, which may be large:
// copying them is slow under the race detector.
func (n *node) answers(t *testing.T, pipeline string, wants []string) {
	t.Helper()
	conn, err := net.Dial("tcp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	go func() { _, _ = io.WriteString(conn, pipeline) }()
	var buf []byte
	for i, want := range wants {
		if len(buf) < len(want) {
			buf = make([]byte, len(want))
		}
		if _, err := io.ReadFull(conn, buf[:len(want)]); err != nil ||
			string(buf[:len(want)]) != want {
			t.Fatalf("reply %d: %.100q, %v", i, buf, err)
		}
	}
}

// Batches with writes start short and grow while their replies are small: a connection's first
// pipeline of pops of large elements loses none.
func TestBatchesWithWritesGrow(t *testing.T) {
	plainOnly(t)
	n := start(t, nil)
	c := n.dial(t)
	pings := func(count int) {
		t.Helper()
		c.raw(strings.Repeat(calls("INCR n"), count))
		for range count {
			c.next()
		}
	}
	pings(1000)
	if got := n.fake.takeCalls(); !strings.HasPrefix(got, "write 16, write 32, write 64") {
		t.Errorf("batches %s", got)
	}
	pings(5000)
	n.fake.takeCalls()
	const elements, size = 40, 3 << 20
	for range elements / 10 { // more than ten exceed what a script may build
		n.fake.change(t, commandOf("EVAL", "local x = string.rep('x', ARGV[1]) "+
			"for i = 1, 10 do redis.call('RPUSH', 'l', x) end", "0", fmt.Sprint(size)))
	}
	element := fmt.Sprintf("$%d\r\n%s\r\n", size, strings.Repeat("x", size))
	n.answers(t, strings.Repeat(calls("LPOP l"), elements),
		slices.Repeat([]string{element}, elements))
}

// A session's own replies are bounded as the machine's are.
func TestAnswersOfTheSessionAreBounded(t *testing.T) {
	c := start(t, func(c *Config) { c.answerBytes = 1 << 20 }).dial(t)
	docs := append([]string{"COMMAND", "DOCS"},
		strings.Split(strings.Repeat("set ", 1000)+"set", " ")...)
	const want = "-ERR reply exceeds 64 MiB; the command ran\r\n"
	if got := c.call(docs...); got != want {
		t.Fatalf("%.300q", got)
	}
	c.raw(calls("MULTI"))
	c.want("+OK\r\n")
	c.call(docs...)
	c.call("PING")
	if got := c.call("EXEC"); got != "*2\r\n"+want+"+PONG\r\n" {
		t.Fatalf("%.300q", got)
	}
}

// A WATCH that fails takes no room from the transactions that follow.
func TestFailedWatchIsNotCharged(t *testing.T) {
	n := start(t, func(c *Config) { c.MaxRequestBytes = 10000 })
	c := n.dial(t)
	key := strings.Repeat("k", 1000)
	for _, outcome := range []Outcome{NotRun, Unknown} {
		n.fake.set(func() { n.fake.fail = &Error{outcome, "TRYAGAIN not now"} })
		for range 20 {
			if got := c.call("WATCH", key); got != "-TRYAGAIN not now\r\n" {
				t.Fatalf("%q", got)
			}
		}
		n.fake.set(func() { n.fake.fail = nil })
	}
	if got := c.call("WATCH", key); got != "+OK\r\n" {
		t.Errorf("%q", got)
	}
}
