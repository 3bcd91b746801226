package server

import (
	"syscall"
	"testing"
	"time"
)

func TestKeepAlive(t *testing.T) {
	n := start(t, func(c *Config) { c.KeepAlive = 90 * time.Second })
	admin := n.dial(t)
	for _, want := range []struct {
		set                         string
		on, idle, interval, answers int
	}{
		{"90", 1, 90, 30, 3}, {"300", 1, 300, 100, 3}, {"1", 1, 1, 1, 3}, {"0", 0, 0, 0, 0},
	} {
		if got := admin.call("CONFIG", "SET", "tcp-keepalive", want.set); got != "+OK\r\n" {
			t.Fatal(got)
		}
		c := n.dial(t)
		c.call("PING")
		raw, err := socket(n.all()[1].conn).(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		option := func(level, name int) (value int) {
			if err := raw.Control(func(fd uintptr) {
				value, err = syscall.GetsockoptInt(int(fd), level, name)
			}); err != nil {
				t.Fatal(err)
			}
			return value
		}
		got := want
		got.on = option(syscall.SOL_SOCKET, syscall.SO_KEEPALIVE)
		if got.on != 0 {
			got.idle = option(syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE)
			got.interval = option(syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL)
			got.answers = option(syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT)
		}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		_ = c.Close()
		eventually(t, "the session ends", func() bool { return len(n.all()) == 1 })
	}
}
