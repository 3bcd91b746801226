// The fuzz targets of whole sessions: arbitrary client bytes, against a server with a machine.
// Findings are kept as seeds in testdata/fuzz. Those of strangers are in fuzz_strangers_test.go.

package server

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/resp"
)

// hostileStreams are seeds that no scenario has: half-sent, announced, inline, binary.
var hostileStreams = []string{
	"*1000000000\r\n", "*1\r\n$1000000000\r\n", "*-5\r\nPING\r\n", "*2\r\n$4\r\nECHO\r\n$-1\r\n",
	"*1\r\n$4\r\nPI", "*0\r\n*-1\r\nPING\r\n", "\r\n\r\nPING\r\n",
	"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\nab", "SET a \"x\r\n",
	"SET a 'b\\'c' \"\\x41\"\r\nGET a\r\n", "\x00\x01\xff\xfe\r\n",
	"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
	"*1\r\n$4\r\nPING\r\n*1\r\n:4\r\n", "*99999999999999999999\r\n",
	"PING\r\n" + strings.Repeat("x", 70<<10),
	"*1\r\n$5\r\nMULTI\r\n*1\r\n$4\r\nEXEC\r\n*1\r\n$7\r\nDISCARD\r\n",
	"MULTI\r\nSUBSCRIBE a\r\nBLPOP l 0\r\nSELECT 3\r\nEXEC\r\nPING\r\n",
	"CLIENT REPLY OFF\r\nGET a\r\nCLIENT REPLY ON\r\n", "BLPOP a 0\r\nPING\r\n",
	"HELLO 3\r\nSUBSCRIBE a\r\nPUBLISH a b\r\nCLIENT TRACKING ON\r\nGET a\r\nSET a b\r\nRESET\r\n",
	"MONITOR\r\nGET a\r\nCLIENT KILL TYPE normal SKIPME no\r\n",
	"CLIENT PAUSE 1000000 ALL\r\nSET a b\r\n", "DEBUG SLEEP 1000\r\nPING\r\n",
	"CONFIG SET maxclients 1\r\n", "EVAL \"while true do end\" 0\r\nPING\r\n",
}

// FuzzSession sends bytes to a server in two pieces and nothing more, either raw or built from
// lines in scenario notation, which a fuzzer mutates more productively than length-prefixed bytes.
// The server must not panic, its replies must be well-formed, it must end the session with the
// client, and it must still answer others.
func FuzzSession(f *testing.F) {
	files, err := commandtest.Load(scenarioFiles)
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		var calls [][][]byte
		for _, s := range file.Steps {
			if len(s.Args) > 0 {
				calls = append(calls, s.Args)
			}
		}
		for piece := range slices.Chunk(calls, 12) {
			var b []byte
			var lines strings.Builder
			for _, c := range piece {
				b = resp.AppendCall(b, c)
				for _, a := range c {
					lines.WriteString(resp.Quote(string(a)) + " ")
				}
				lines.WriteString("\n")
			}
			f.Add(b, uint16(len(b)/2), false)
			f.Add([]byte(lines.String()), uint16(len(b)/3), true)
		}
	}
	for _, s := range hostileStreams {
		f.Add([]byte(s), uint16(len(s)/3), false)
	}
	f.Fuzz(fuzzSession)
}

// hangs bounds a session of the fuzz target. It may run some scripts to the end of their budgets.
const hangs = 60 * time.Second

func fuzzSession(t *testing.T, sent []byte, cut uint16, lines bool) {
	if len(sent) > 1<<20 {
		t.Skip("longer than what a fuzzer can do much with")
	}
	if lines {
		sent = fromLines(string(sent))
	}
	watch := time.AfterFunc(hangs, func() { panic("a session hangs") }) // shows all goroutines
	defer watch.Stop()
	n := start(t, nil)
	nc, err := net.Dial("tcp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	go func() { // the replies may exceed the socket buffers
		at := min(int(cut), len(sent))
		_, _ = nc.Write(sent[:at])
		_, _ = nc.Write(sent[at:])
		_ = nc.(*net.TCPConn).CloseWrite()
	}()
	// behind so much input, a command that waits may not notice the disconnect
	if len(sent) >= maxAhead {
		_ = nc.SetReadDeadline(time.Now().Add(2 * time.Second))
	}
	got, err := io.ReadAll(nc)
	n.answersOthers(t)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		n.Close() // releases paused and sleeping clients
		_ = nc.SetReadDeadline(time.Time{})
		rest, _ := io.ReadAll(nc)
		got = append(got, rest...)
	}
	all, err := commandtest.ParseAll(got)
	if err != nil {
		t.Fatalf("replies: %v", err)
	}
	for _, v := range all {
		if v.Kind == '?' {
			t.Fatalf("the mark of a command that waits came out: %s", v)
		}
	}
}

// fromLines encodes the calls of a text, one per line, and skips invalid lines.
func fromLines(text string) []byte {
	var b []byte
	for line := range strings.Lines(text) {
		if args, err := commandtest.SplitArgs(line); err == nil && len(args) > 0 {
			b = resp.AppendCall(b, args)
		}
	}
	return b
}

// answersOthers fails unless a new client is answered, or rejected because there are too many. All
// clients may be paused, as in Redis.
func (n *node) answersOthers(t *testing.T) {
	t.Helper()
	n.pause.lift()
	c := n.dial(t)
	if err := c.SendRaw([]byte("PING\r\n")); err != nil {
		return // rejected and closed
	}
	switch got := c.next(); got {
	case "+PONG\r\n", "-ERR max number of clients reached\r\n":
	case "-" + string(commands.ErrNoAuth) + "\r\n": // the session has set a password
	default:
		t.Fatalf("%q", got)
	}
}
