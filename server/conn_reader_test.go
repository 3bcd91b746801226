// Tests of reading commands: against a real server's replies, split anywhere, and by fuzzing.

package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// inputs are streams that a server must answer as Redis does.
var inputs = []string{
	"PING\r\n",
	"PING\n",
	"\r\n\n\r\nPING\r\n",
	"  PING  \r\n",
	"PING \"a b\" \r\n",
	"ECHO 'a b'\r\nECHO \"x\\x41\\n\\t\\\"\"\r\n",
	"ECHO 'a\\'b'\r\n",
	"ECHO foo\"bar\"\r\n",
	"ECHO \"foo\"bar\r\nPING\r\n",
	"ECHO \"foo\r\nPING\r\n",
	"ECHO 'foo\r\n",
	"ECHO \"\"\r\nECHO ''\r\n",
	"ECHO \"\\q\\x4\\xzz\"\r\n",
	"PING\r\nECHO a\tb\r\nECHO a\vb\r\n",
	"*1\r\n$4\r\nPING\r\n",
	"*0\r\n*-1\r\n*-5\r\n*1\r\n$4\r\nPING\r\n",
	"*1\r\n$4\r\nPING\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$0\r\n\r\n",
	"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n",
	"*1\rx$4\rxPING\r\n",
	"*03\r\n",
	"*+1\r\n$4\r\nPING\r\n",
	"*\r\n",
	"* 1\r\n",
	"*x\r\n",
	"*99999999999999999999\r\n",
	"*3000000000\r\n",
	"*1\r\n$-1\r\n",
	"*1\r\n$04\r\nPING\r\n",
	"*1\r\n$x\r\n",
	"*1\r\n$\r\n",
	"*1\r\n$536870913\r\n",
	"*1\r\n$99999999999999999999\r\n",
	"*1\r\nPING\r\n",
	"*2\r\n$4\r\nPING\r\n:1\r\n",
	"PING\r\n*1\r\n+PING\r\n",
	"*1\r\n*1\r\n",
	"$4\r\nPING\r\n",
	"+OK\r\nPING\r\n",
	"PING\r\n*x\r\nPING\r\n",
	"ECHO \x01\xff\r\n",
	"*1\r\n$0\r\n\r\n",
	"GET\r\nget a b\r\n",
	strings.Repeat("A", 300000),
	"*" + strings.Repeat("1", 300000),
	"*1\r\n$" + strings.Repeat("1", 300000),
	"PING " + strings.Repeat("b", 60000) + "\r\n",
	"QUIT\r\nPING\r\n",
	"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
}

// converse sends input in pieces, then a marker, and reads until the marker is answered or the
// connection ends.
func converse(t *testing.T, network, addr, input string, rnd *rand.Rand) string {
	t.Helper()
	conn, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	const marker = "the-end-of-it"
	input += "\r\n*2\r\n$4\r\nECHO\r\n$13\r\n" + marker + "\r\n"
	go func() {
		for len(input) > 0 {
			n := min(len(input), 1+rnd.IntN(8000))
			if len(input) < 500 {
				n = min(len(input), 1+rnd.IntN(30))
			}
			if _, err := conn.Write([]byte(input[:n])); err != nil {
				return // the server has closed: its output says why
			}
			input = input[n:]
		}
	}()
	var got bytes.Buffer
	b := make([]byte, 4096)
	for !strings.HasSuffix(got.String(), marker+"\r\n") {
		n, err := conn.Read(b)
		got.Write(b[:n])
		if err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				t.Fatalf("no answer after %q", got.String())
			}
			return got.String() + "<end>"
		}
	}
	return got.String()
}

func TestStreamAsRedis(t *testing.T) {
	socket := commandtest.NeedRedis(t)
	n := start(t, nil)
	seed := seeds.Of(t)
	for i, input := range inputs {
		want := converse(t, "unix", socket, input, rand.New(rand.NewPCG(seed, uint64(i))))
		got := converse(t, "tcp", n.addr, input, rand.New(rand.NewPCG(seed, uint64(i))))
		// Closing with unread input may truncate the server's last output: the system sends a
		// reset.
		if got != want && strings.TrimSuffix(got, "<end>") != strings.TrimSuffix(want, "<end>") {
			t.Errorf("%.60q:\n got  %.300q\n want %.300q", input, got, want)
		}
	}
}

// one returns a stream's commands and its end, read in pieces of the given sizes.
func one(input []byte, limit int, sizes func() int) (out []string, end error) {
	s := newStream(&pieces{input, sizes}, limit)
	for {
		cmds, err := s.nextCommands()
		for _, c := range cmds {
			out = append(out, fmt.Sprintf("%q", c))
		}
		if err != nil {
			return out, err
		}
		_ = s.makeRoom()
		if _, err := s.fill(); err != nil {
			return out, err
		}
	}
}

type pieces struct {
	rest  []byte
	sizes func() int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.sizes())], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// FuzzStream checks that commands do not depend on how bytes arrive, that announcements cost no
// memory, and that nothing panics.
func FuzzStream(f *testing.F) {
	for i, input := range inputs {
		if len(input) < 5000 { // long lines are compared with Redis; here they are only slow
			f.Add([]byte(input), uint64(i))
		}
	}
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$2000\r\nx"), uint64(1))
	f.Fuzz(func(t *testing.T, input []byte, seed uint64) {
		const limit = 2000
		whole, wholeEnd := one(input, limit, func() int { return 1 << 20 })
		rnd := rand.New(rand.NewPCG(seed, 1))
		cut, cutEnd := one(input, limit, func() int { return 1 + rnd.IntN(7) })
		if fmt.Sprint(cut) != fmt.Sprint(whole) {
			t.Fatalf("in pieces: %v\nwhole: %v", cut, whole)
		}
		// A line that is too long may be noticed before its end or not, as in Redis; otherwise
		// both end alike.
		if wholeEnd != cutEnd && len(input) < maxInline {
			t.Fatalf("in pieces: %v\nwhole: %v", cutEnd, wholeEnd)
		}
		if fmt.Sprint(whole) == "" && wholeEnd == nil {
			t.Fatal("no end")
		}
	})
}

// Nothing refers to commands that were taken, in however many steps, once there is room for others:
// the buffers that they were in can be freed.
func TestStreamKeepsNoCommands(t *testing.T) {
	input := strings.Repeat("PING\r\n", 7) +
		pipeline(strings.Fields("DEL"+strings.Repeat(" k", 600)))
	in := newStream(strings.NewReader(input), 1<<20)
	in.most.requests = 3
	taken := 0
	for range 2 {
		if err := in.makeRoom(); err != nil {
			t.Fatal(err)
		}
		if _, err := in.fill(); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		for more := true; more; more = in.partial {
			cmds, err := in.nextCommands()
			if err != nil {
				t.Fatal(err)
			}
			taken += len(cmds)
		}
	}
	if err := in.makeRoom(); err != nil || taken != 8 {
		t.Fatal(taken, err)
	}
	for i, args := range in.cmds[:cap(in.cmds)] {
		if args != nil {
			t.Errorf("command %d of %d arguments is kept", i, len(args))
		}
	}
	for i, arg := range in.arena[:cap(in.arena)] {
		if arg != nil {
			t.Errorf("argument %d is kept: %q", i, arg)
		}
	}
}

func TestStreamAnnouncementsCostNothing(t *testing.T) {
	for _, head := range []string{"*1048576\r\n", "*2\r\n$3\r\nGET\r\n$33000000\r\n",
		"*1048576\r\n$1\r\na\r\n"} {
		sent := false
		s := newStream(readerFunc(func(b []byte) (int, error) {
			if sent {
				return 0, io.EOF
			}
			sent = true
			return copy(b, head), nil
		}), 32<<20)
		_ = s.makeRoom()
		if _, err := s.fill(); err != nil {
			t.Fatal(err)
		}
		if cmds, err := s.nextCommands(); len(cmds) != 0 || err != nil {
			t.Fatal(cmds, err)
		}
		if len(s.buf) > minReadBuffer || cap(s.arena) > arenaSize {
			t.Errorf("%q took %d bytes and %d arguments", head, len(s.buf), cap(s.arena))
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// At the limit a command runs; one byte more and it is skipped and reported, and the connection
// goes on.
func TestRequestLimit(t *testing.T) {
	const limit = 10000
	n := start(t, func(c *Config) { c.MaxRequestBytes = limit })
	c := n.dial(t)
	frame := func(value int) string {
		return pipeline([]string{"SET", "k", strings.Repeat("v", value)})
	}
	value := limit - len(frame(0)) - 3 // the length takes four digits, not one
	if len(frame(value)) != limit {
		t.Fatal(len(frame(value)))
	}
	c.raw(frame(value) + pipeline([]string{"STRLEN", "k"}))
	c.want("+OK\r\n", fmt.Sprintf(":%d\r\n", value))
	c.raw(frame(value+1) + pipeline([]string{"STRLEN", "k"}) + frame(50*limit) + frame(3) +
		pipeline([]string{"STRLEN", "k"}))
	tooLarge := fmt.Sprintf("-ERR request exceeds %d bytes; it did not run\r\n", limit)
	c.want(tooLarge, fmt.Sprintf(":%d\r\n", value), tooLarge, "+OK\r\n", ":3\r\n")

	many := []string{"DEL"}
	for range limit {
		many = append(many, "k")
	}
	c.raw(pipeline(many, []string{"STRLEN", "k"}))
	c.want(tooLarge, ":3\r\n")

	c.raw("*1048576\r\n" + pipeline()) // the maximum number of arguments
	d := n.dial(t)
	d.raw("*1048577\r\n")
	d.want("-ERR Protocol error: invalid multibulk length\r\n")
	d.ended()
}

// What MULTI queues has the same limit.
func TestTransactionLimit(t *testing.T) {
	n := start(t, func(c *Config) { c.MaxRequestBytes = 10000 })
	c := n.dial(t)
	if got := c.call("MULTI"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	value := strings.Repeat("v", 4000)
	for i, want := range []string{"+QUEUED\r\n", "+QUEUED\r\n",
		"-ERR transaction exceeds 10000 bytes\r\n",
		"-EXECABORT Transaction discarded because of previous errors.\r\n"} {
		call := []string{"SET", "k", value}
		if i == 3 {
			call = []string{"EXEC"}
		}
		if got := c.call(call...); got != want {
			t.Fatalf("%d: %q", i, got)
		}
	}
	for i, want := range []string{"+OK\r\n", "+OK\r\n",
		"-ERR transaction exceeds 10000 bytes\r\n"} {
		if got := c.call("WATCH", formatInt(int64(i))+value); got != want {
			t.Fatalf("%d: %q", i, got)
		}
	}
	if got := c.call("UNWATCH") + c.call("WATCH", value); got != "+OK\r\n+OK\r\n" {
		t.Fatalf("%q", got)
	}
}
