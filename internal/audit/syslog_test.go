package audit

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tests/wait"
)

const waitLimit = 20 * time.Second

func init() { syslogWait, syslogAgain = 50*time.Millisecond, 10*time.Millisecond }

// The forms of the lines: of this machine's syslog, and of RFC 5424.
var (
	localLine = regexp.MustCompile(`^<85>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d coordd\[\d+\]: \{.*\}$`)
	rfcLine   = regexp.MustCompile(
		`^<85>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z \S+ coordd \d+ audit - \{.*\}$`)
)

// want fails unless a line has the form, and the event.
func want(t *testing.T, line string, form *regexp.Regexp, event string) {
	t.Helper()
	if !form.MatchString(line) || !strings.Contains(line, fmt.Sprintf(`"event":%q`, event)) {
		t.Errorf("%q, want %s", line, event)
	}
}

// packet returns what a socket of datagrams receives.
func packet(t *testing.T, conn net.PacketConn) string {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(waitLimit))
	b := make([]byte, 64<<10)
	n, _, err := conn.ReadFrom(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func TestSyslogOfThisMachine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := open(t, Config{Syslog: "unix://" + path})
	l.Record(Event{Event: "early", Outcome: OK}) // nobody is there yet
	conn, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	want(t, packet(t, conn), localLine, "early")
	l.Record(Event{Event: "auth", Outcome: OK, User: "alice"})
	want(t, packet(t, conn), localLine, "auth")
	_ = conn.Close()
	_ = os.Remove(path)
	l.Record(Event{Event: "meanwhile", Outcome: OK, Change: true})
	conn, err = net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	want(t, packet(t, conn), localLine, "meanwhile")
}

func TestSyslogByUDP(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l := open(t, Config{Syslog: "udp://" + conn.LocalAddr().String()})
	l.Record(Event{Event: "auth", Outcome: OK})
	want(t, packet(t, conn), rfcLine, "auth")
}

// Over TCP each line has its length before it, and a syslog that restarts gets the next line.
func TestSyslogByTCP(t *testing.T) {
	ln := ports.Listen(t)
	defer ln.Close()
	l := open(t, Config{Syslog: "tcp://" + ln.Addr().String()})
	for _, event := range []string{"first", "second"} {
		l.Record(Event{Event: event, Outcome: OK, Change: true})
		conn, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(waitLimit))
		r := bufio.NewReader(conn)
		for _, event := range []string{event, event + " again"} {
			length, err := r.ReadString(' ')
			if err != nil {
				t.Fatal(err)
			}
			n, err := strconv.Atoi(strings.TrimSpace(length))
			if err != nil {
				t.Fatal(err)
			}
			line := make([]byte, n)
			if _, err := io.ReadFull(r, line); err != nil {
				t.Fatal(err)
			}
			want(t, string(line), rfcLine, event)
			if !strings.HasSuffix(event, "again") {
				l.Record(Event{Event: event + " again", Outcome: OK, Change: true})
			}
		}
		_ = conn.Close()
		wait.For(t, waitLimit, "the end is noticed", func() bool {
			_, err := l.syslog.conn.Write(nil)
			return err != nil
		})
	}
}

// A syslog that takes nothing holds up neither who records nor the file. What finds no room is
// counted.
func TestSyslogHangs(t *testing.T) {
	dir := t.TempDir()
	conn, err := net.ListenPacket("unixgram", filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	file := filepath.Join(dir, "audit")
	l := open(t, Config{File: file, Syslog: "unix://" + filepath.Join(dir, "log")})
	const many = 5 * maxQueued
	for i := range many {
		l.Record(Event{Event: "change", Outcome: OK, Change: true, User: strconv.Itoa(i / 100)})
		if i%100 == 99 {
			lines := i + 1
			wait.For(t, waitLimit, "the file has it", func() bool {
				return strings.Count(read(t, file), "\n") >= lines
			})
		}
	}
	if l.also.Dropped() == 0 || l.Dropped() != l.also.Dropped() {
		t.Errorf("%d are dropped, %d of syslog", l.Dropped(), l.also.Dropped())
	}
	for got := ""; !strings.Contains(got, `"event":"dropped"`); { // it goes on, and says so
		got = packet(t, conn)
	}
}

func TestCheckSyslog(t *testing.T) {
	for text, ok := range map[string]bool{"local": true, "unix:///dev/log": true,
		"udp://10.0.0.1:514": true, "tcp://[fd00::1]:601": true, "tcp://log.example:601": true,
		"": false, "remote": false, "unix://log": false, "udp://10.0.0.1": false,
		"tcp://10.0.0.1:601/x": false, "http://10.0.0.1:80": false, "tcp://a:b@h:1": false} {
		if err := CheckSyslog(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
