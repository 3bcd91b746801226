// Tests of INFO commandstats.

package server

import (
	"regexp"
	"strings"
	"testing"
)

func TestCommandStats(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.raw(calls("SET a 1", "SET a 2", "INCR x", "GET a", "GET", "NOSUCH", "SET b x", "INCR b",
		"CLIENT SETNAME n", "CLIENT REPLY what", "PUBLISH c m",
		"MULTI", "SET a 3", "INCR b", "CLIENT ID", "EXEC", "EXEC", "PING"))
	for range 15 + 3 {
		c.next()
	}
	if text := c.call("INFO"); strings.Contains(text, "cmdstat") {
		t.Errorf("not asked for: %s", text)
	}
	text := regexp.MustCompile(`usec=\d+,usec_per_call=\d+\.\d\d`).ReplaceAllString(c.call("INFO",
		"commandstats"), "T")
	_, lines, _ := strings.Cut(text, "# Commandstats\r\n")
	want := []string{
		"client|id:calls=1,T,rejected_calls=0,failed_calls=0",
		"client|reply:calls=1,T,rejected_calls=0,failed_calls=1",
		"client|setname:calls=1,T,rejected_calls=0,failed_calls=0",
		"exec:calls=2,T,rejected_calls=0,failed_calls=1",
		"get:calls=1,T,rejected_calls=1,failed_calls=0",
		"incr:calls=3,T,rejected_calls=0,failed_calls=2",
		"info:calls=1,T,rejected_calls=0,failed_calls=0",
		"multi:calls=1,T,rejected_calls=0,failed_calls=0",
		"ping:calls=1,T,rejected_calls=0,failed_calls=0",
		"publish:calls=1,T,rejected_calls=0,failed_calls=0",
		"set:calls=4,T,rejected_calls=0,failed_calls=0",
	}
	if w := "cmdstat_" + strings.Join(want, "\r\ncmdstat_"); strings.TrimSpace(lines) != w {
		t.Errorf("%q, want %q", lines, w)
	}
	c.call("CONFIG", "RESETSTAT")
	if text := c.call("INFO", "everything"); !strings.Contains(text,
		"# Commandstats\r\ncmdstat_config|resetstat:") || strings.Contains(text, "cmdstat_set:") {
		t.Errorf("after CONFIG RESETSTAT: %s", text)
	}
}
