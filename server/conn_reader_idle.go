// Waiting for input without a buffer: most connections are idle, and would hold one each.

package server

import (
	"io"
	"net"
	"sync"
	"syscall"
)

type readBuffer [minReadBuffer]byte

var readBuffers = sync.Pool{New: func() any { return new(readBuffer) }}

// idleReader reads from a socket into a buffer that it takes when there is input.
type idleReader struct {
	raw     syscall.RawConn // nil: not a socket itself
	receive func(fd uintptr) bool

	// what the current read got
	buf *readBuffer
	n   int
	err error
}

func (r *idleReader) init(src io.Reader) {
	switch c := src.(type) { // no interface: what wraps a socket may read in its own way
	case *net.TCPConn:
		r.raw, _ = c.SyscallConn() // fails if the socket is closed
	case *net.UnixConn:
		r.raw, _ = c.SyscallConn()
	}
	r.receive = func(fd uintptr) bool {
		r.buf = readBuffers.Get().(*readBuffer)
		for {
			r.n, r.err = syscall.Read(int(fd), r.buf[:])
			if r.err != syscall.EINTR {
				break
			}
		}
		if r.err == syscall.EAGAIN {
			readBuffers.Put(r.buf)
			return false
		}
		return true
	}
}

// recycle takes a buffer that is not used any more, if any, and reports whether read will get one.
func (r *idleReader) recycle(buf []byte) bool {
	if r.raw != nil && len(buf) == minReadBuffer {
		readBuffers.Put((*readBuffer)(buf))
	}
	return r.raw != nil
}

// read waits for input and returns the buffer that it is in. After an error there may be none.
func (r *idleReader) read() (buf []byte, n int, err error) {
	if err := r.raw.Read(r.receive); err != nil {
		return nil, 0, err
	}
	buf, n, err = r.buf[:], max(r.n, 0), r.err
	r.buf = nil
	if n == 0 && err == nil {
		err = io.EOF
	}
	return buf, n, err
}
