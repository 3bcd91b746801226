package server

import (
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands/commandtest"
)

// Each filter of CLIENT LIST chooses the connections to which it applies; NOT- the others.
func TestClientFilters(t *testing.T) {
	n := start(t, nil)
	main, other := n.dial(t), n.dial(t)
	id := func(c *client) string { return strings.Trim(c.call("CLIENT", "ID"), ":\r\n") }
	for _, line := range []string{"CLIENT SETNAME main", "CLIENT SETINFO LIB-NAME lib"} {
		main.call(strings.Fields(line)...)
	}
	for _, line := range []string{"CLIENT SETNAME other", "CLIENT SETINFO LIB-VER 7", "SELECT 3",
		"CLIENT CAPA redirect", "MULTI"} {
		other.call(strings.Fields(line)...)
	}
	names := regexp.MustCompile(` name=(\w*)`)
	me, it := id(main), n.sessionOf(other)
	for _, c := range []struct{ filters, names string }{
		{"ID " + me, "main"},
		{"ID " + strings.Join([]string{n.idOf(it), me, n.idOf(it)}, " "), "other main other"},
		{"ID " + n.idOf(it) + " SKIPME yes ID " + me, "other"},
		{"NOT-ID " + n.idOf(it) + " 77", "main"}, {"NOT-ID 77", "main other"},
		{"TYPE normal", "main other"}, {"NOT-TYPE pubsub NAME other", "other"},
		{"ADDR " + it.addr, "other"}, {"NOT-ADDR " + it.addr, "main"},
		{"NOT-LADDR " + it.laddr, ""}, {"LADDR " + it.laddr, "main other"},
		{"IP 127.0.0.1", "main other"}, {"NOT-IP 127.0.0.1", ""}, {"USER default", "main other"},
		{"NAME main NAME other", "other"}, {"NOT-NAME main", "other"},
		{"FLAGS N", "main"}, {"FLAGS x", "other"}, {"NOT-FLAGS x", "main"},
		{"NOT-FLAGS xP", "main other"},
		{"LIB-NAME lib", "main"}, {"NOT-LIB-NAME lib", "other"}, {"LIB-VER 7", "other"},
		{"NOT-LIB-VER 7", "main"}, {"DB 3", "other"}, {"NOT-DB 3", "main"}, {"CAPA r", "other"},
		{"NOT-CAPA r", "main"}, {"SKIPME yes", "other"}, {"SKIPME yes SKIPME no", "main other"},
		{"DB 3 NOT-NAME other", ""},
	} {
		var got []string
		list := main.call(strings.Fields("CLIENT LIST " + c.filters)...)
		for _, m := range names.FindAllStringSubmatch(list, -1) {
			got = append(got, m[1])
		}
		if strings.Join(got, " ") != c.names {
			t.Errorf("%s: %q, want %q", c.filters, got, c.names)
		}
	}
	if got := main.call("CLIENT", "KILL", "ID", n.idOf(it), n.idOf(it), "NOT-DB", "3",
		"NAME", "other"); got != ":0\r\n" {
		t.Error(got)
	}
	if got := main.call("CLIENT", "KILL", "ID", me, n.idOf(it), n.idOf(it), "FLAGS",
		"x"); got != ":1\r\n" {
		t.Error(got)
	}
	other.ended()
}

// Ages count whole seconds.
func TestClientFiltersOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		main, other := n.dial(t), n.dial(t)
		other.call("CLIENT", "SETNAME", "other")
		time.Sleep(3 * time.Second)
		main.call("PING")
		for _, c := range []struct {
			filters string
			lines   int
		}{{"IDLE 3", 1}, {"IDLE 4", 0}, {"MAXAGE 3", 2}, {"MAXAGE 4", 0}, {"IDLE 4 IDLE 2", 1}} {
			list := main.call(strings.Fields("CLIENT LIST " + c.filters)...)
			if got := strings.Count(list, "id="); got != c.lines {
				t.Errorf("%s: %s", c.filters, list)
			}
		}
	})
}

// Letters that are repeated are looked for once in each connection.
func TestRepeatedLettersOfFilters(t *testing.T) {
	s := &session{}
	many := strings.Repeat("xN", 1<<20)
	for _, property := range []string{"FLAGS", "NOT-FLAGS", "CAPA", "NOT-CAPA"} {
		f, err := parseClientFilter(nil, s, commandtest.Args(property, many), true)
		if err != nil || len(f.conditions) != 1 || f.conditions[0].text != "Nx" {
			t.Errorf("%s: %v", property, err)
		}
	}
}
