package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// Range of the ports. The system takes ports of connections from the ones above, so that none of
// these is taken between Free and the start of a process.
const (
	first = 10_000
	last  = 32_000
)

// errNone is what Free returns without n ports.
var errNone = errors.New("ports: none is free")

// lock records which ports were given away: each is a locked byte of one file, which all processes
// of a user share. The system releases them when the process ends.
var lock struct {
	sync.Mutex
	file  *os.File
	given map[int]bool
}

// Free returns n ports that nobody listens on. No other process that calls it gets them until this
// one ends.
func Free(n int) ([]int, error) { return among(first, last, n) }

// Addr returns an address of this machine with a free port.
func Addr(t testing.TB) string {
	t.Helper()
	free, err := Free(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", free[0])
}

// Listen listens at such an address. A port that the system chooses is another's as soon as the
// listener is closed; this one can be listened on again.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", Addr(t))
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func among(first, last, n int) ([]int, error) {
	lock.Lock()
	defer lock.Unlock()
	if lock.file == nil {
		name := filepath.Join(os.TempDir(), fmt.Sprintf("coordd-test-ports-%d", os.Getuid()))
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		lock.file, lock.given = f, map[int]bool{}
	}
	var free []int
	for _, i := range rand.Perm(last - first) {
		if port := first + i; len(free) < n && take(port) {
			free = append(free, port)
		}
	}
	if len(free) < n {
		return nil, errNone
	}
	return free, nil
}

// take gives away a port, if it can be had.
func take(port int) bool {
	if lock.given[port] {
		return false
	}
	of := syscall.Flock_t{Type: syscall.F_WRLCK, Start: int64(port), Len: 1}
	if syscall.FcntlFlock(lock.file.Fd(), syscall.F_SETLK, &of) != nil {
		return false // another process has it
	}
	lock.given[port] = true
	ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	_ = ln.Close()
	return true
}
