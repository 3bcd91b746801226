// A proxy that sees the traffic, and may change it or act meanwhile.

package e2e

import (
	"io"
	"net"
	"testing"

	"github.com/coordd/coordd/internal/tests/ports"
)

// carry forwards what a proxy read at one end to the other end.
type carry func(to io.Writer, b []byte)

func asItIs(to io.Writer, b []byte) { _, _ = to.Write(b) }

// proxy forwards connections to an address: requests and replies.
func proxy(t *testing.T, network, addr string, asked, answered carry) string {
	t.Helper()
	ln := ports.Listen(t)
	t.Cleanup(func() { _ = ln.Close() })
	pass := func(from, to net.Conn, c carry) {
		defer to.Close()
		for buf := make([]byte, 1<<16); ; {
			n, err := from.Read(buf)
			if n > 0 {
				c(to, buf[:n])
			}
			if err != nil {
				return
			}
		}
	}
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial(network, addr)
			if err != nil {
				_ = in.Close()
				continue
			}
			go pass(in, out, asked)
			go pass(out, in, answered)
		}
	}()
	return ln.Addr().String()
}
