// Serving other clients in the middle of a delivery to many.

package server

import (
	"os"
	"runtime"
	"syscall"
)

// socketYield lets the goroutines run whose sockets have input. Go looks at sockets when no other
// goroutine can run, or every 10 ms, and runtime.Gosched does not change that: with one processor
// for Go code, a client that a message has woken would be heard only when the last one has the
// message. So yield waits for the sockets too, by waiting for a byte of its own.
type socketYield struct {
	r, w    *os.File
	raw     syscall.RawConn // for reading r
	waited  bool
	receive func(fd uintptr) bool
}

func newSocketYield() (*socketYield, error) {
	y := &socketYield{}
	var err error
	if y.r, y.w, err = os.Pipe(); err != nil {
		return nil, err
	}
	if y.raw, err = y.r.SyscallConn(); err != nil {
		y.close()
		return nil, err
	}
	var b [16]byte // one suffices, if no wait ever ends without its byte
	y.receive = func(fd uintptr) bool {
		if y.waited {
			_, _ = syscall.Read(int(fd), b[:])
			return true
		}
		y.waited = true // if it is sent: then false waits until it is there
		_, err := y.w.Write(b[:1])
		return err != nil
	}
	return y, nil
}

func (y *socketYield) yield() {
	if y != nil {
		y.waited = false
		_ = y.raw.Read(y.receive)
	}
	runtime.Gosched() // Go may resume this goroutine before those whose input came earlier
}

func (y *socketYield) close() {
	if y != nil {
		_ = y.r.Close()
		_ = y.w.Close()
	}
}
