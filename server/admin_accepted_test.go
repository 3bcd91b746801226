package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
)

// ownDefaults are initial values that are not Redis's, since they say what is so here.
var ownDefaults = map[string]string{
	"proto-max-bulk-len": "33554432", "client-query-buffer-limit": "33554432",
	"appendonly": "yes", "appendfsync": "always", "stop-writes-on-bgsave-error": "no",
	"appendfilename": "", "appenddirname": "", "dbfilename": "", "cluster-config-file": "",
	"syslog-facility": "", "syslog-ident": "", "set-proc-title": "no", "disable-thp": "no",
	"tcp-backlog": "0", "tls-auth-clients": "no",
	"busy-reply-threshold": "0", "lua-time-limit": "0",
	"replica-read-only": "no", "slave-read-only": "no",
	"tls-session-caching": "no", "tls-session-cache-size": "0", "tls-session-cache-timeout": "0",
	"cluster-enabled": "yes", "enable-debug-command": "yes", "tcp-keepalive": "0",
	"bind": "", "dir": "", "unixsocket": "", "save": "", "maxclients": "10000",
	"enable-protected-configs": "no", "daemonize": "no", "crash-log-enabled": "yes",
}

// hiddenParams are Redis's that only their names find.
var hiddenParams = []string{"key-load-delay", "rdb-key-save-delay", "watchdog-period",
	"loading-process-events-interval-bytes", "use-exit-on-panic", "lua-enable-deprecated-api"}

// TestParametersAreThoseOfRedis compares CONFIG GET * name by name with a real server's, and sets
// each parameter without effect to a number of values, right and wrong, on both.
func TestParametersAreThoseOfRedis(t *testing.T) {
	plainOnly(t)
	real := &client{Conn: commandtest.DialRedis(t), t: t}
	c := start(t, nil).dial(t)
	values := func(c *client, pattern string) map[string]string {
		got := map[string]string{}
		words := strings.Split(c.call("CONFIG", "GET", pattern), "\r\n")
		for i := 2; i+2 < len(words); i += 4 {
			got[words[i]] = words[i+2]
		}
		return got
	}
	theirs, ours := values(real, "*"), values(c, "*")
	for _, name := range hiddenParams {
		if _, shown := ours[name]; shown {
			t.Errorf("CONFIG GET * shows %s", name)
		}
		theirs[name], ours[name] = values(real, name)[name], values(c, name)[name]
	}
	delete(theirs, "port")
	for name, want := range theirs {
		if own, ok := ownDefaults[name]; ok {
			want = own
		}
		if got, there := ours[name]; !there || got != want {
			t.Errorf("%s: %q, %v, want %q", name, got, there, want)
		}
	}
	probes := []string{"", "x", "yes", "YES", "No", "-1", "0", "1", "99", "100", "1000", "1kb",
		"2MB", "5%", "1048575", "2147483647", "2147483648", "-2147483648", "-2147483649",
		"99999999999999999", "9223372036854775807", "always", "EVERYSEC",
		"allkeys-lfu", "swapdb", "clients", "nosave now", "now nosave", "default", "default now",
		"nosave x", "hostname", "panic", "900 1", "900 1 300 10", "0 1", "1 0", "1 2 3",
		"1 2 x", "1 2 3000", "relative", "warning", "nothing"}
	for i := range params {
		p := &params[i]
		if !p.accepted || strings.HasPrefix(p.name, "min-") || p.name == "proc-title-template" {
			continue
		}
		if _, there := theirs[p.name]; !there {
			t.Errorf("Redis has no %s", p.name)
		}
		for _, text := range slices.Concat([]string{theirs[p.name]}, probes) {
			set := []string{"CONFIG", "SET", p.name, text}
			if got, want := c.call(set...), real.call(set...); got != want {
				t.Errorf("%q: %q, want %q", set, got, want)
			}
			if got, want := values(c, p.name), values(real, p.name); fmt.Sprint(
				got) != fmt.Sprint(want) {
				t.Errorf("after %q: %q, want %q", set, got, want)
			}
		}
	}
	for _, call := range []string{
		"CONFIG SET lua-time-limit 7 busy-reply-threshold 8", "CONFIG GET busy-*",
		"CONFIG GET lua-time-limit",
		"CONFIG SET hz 7 hz 8", "CONFIG SET hz 11 repl-timeout x", "CONFIG GET hz",
		"CONFIG SET dir /tmp", "CONFIG SET dbfilename a.rdb", "CONFIG SET hz 11 databases 3",
		"CONFIG SET hz 11 dir /tmp", "CONFIG SET replicaof x", "CONFIG SET io-threads 1",
	} {
		words := strings.Fields(call)
		if got, want := c.call(words...), real.call(words...); got != want {
			t.Errorf("%s: %q, want %q", call, got, want)
		}
	}
}

// A demand that a majority does not meet is refused.
func TestMinReplicas(t *testing.T) {
	c := start(t, nil).dial(t)
	for _, test := range []struct{ call, want string }{
		{"CONFIG SET min-replicas-to-write 1", "+OK\r\n"},
		{"CONFIG GET min-slaves-to-write", "*2\r\n$19\r\nmin-slaves-to-write\r\n$1\r\n1\r\n"},
		{"CONFIG SET min-slaves-to-write 2",
			"-ERR CONFIG SET failed (possibly related to argument 'min-slaves-to-write') - a " +
				"majority holds every write, which is 1 besides the leader for certain\r\n"},
		{"CONFIG GET min-slaves-to-write", "*2\r\n$19\r\nmin-slaves-to-write\r\n$1\r\n1\r\n"},
	} {
		if got := c.call(strings.Fields(test.call)...); got != test.want {
			t.Errorf("%s: %q", test.call, got)
		}
	}
}
