package memnet

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Connections end and time out as those of TCP do.
func TestConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Listen()
		l.Clients = net.IPv4(192, 0, 2, 7)
		accepted := make(chan net.Conn, 1)
		go func() {
			c, _ := l.Accept()
			accepted <- c
		}()
		client, err := l.Dial()
		if err != nil {
			t.Fatal(err)
		}
		server := <-accepted
		if got := server.RemoteAddr().String(); got != "192.0.2.7:2" ||
			got != client.LocalAddr().String() {
			t.Errorf("a client at %s", got)
		}
		b := make([]byte, 2)
		if _, err := client.Write([]byte("abc")); err != nil {
			t.Fatal(err)
		}
		if n, err := server.Read(b); n != 2 || err != nil {
			t.Errorf("%q, %v", b[:n], err)
		}
		if _, err := io.ReadFull(server, b[:1]); err != nil || b[0] != 'c' {
			t.Errorf("%q, %v", b[:1], err)
		}
		began := time.Now()
		_ = server.SetReadDeadline(began.Add(time.Hour))
		if _, err := server.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) ||
			time.Since(began) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		_ = server.SetDeadline(time.Time{})
		go func() {
			time.Sleep(time.Minute)
			_ = client.Close()
		}()
		if _, err := server.Read(b); err != io.EOF {
			t.Error(err)
		}
		if _, err := server.Write(b); err != syscall.EPIPE {
			t.Error(err)
		}
		_ = l.Close()
		if _, err := l.Accept(); err != net.ErrClosed {
			t.Error(err)
		}
		if _, err := l.Dial(); err != net.ErrClosed {
			t.Error(err)
		}
	})
}
