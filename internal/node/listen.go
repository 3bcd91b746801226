package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Listen binds a TCP address; the error says which one. Who serves a connection sets its keepalive,
// so that one that is refused costs less.
func Listen(addr string) (net.Listener, error) {
	c := net.ListenConfig{KeepAlive: -1}
	ln, err := c.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", addr, errors.Unwrap(err))
	}
	return ln, nil
}

// bound returns the hosts that the node listens on for clients, as Redis's bind has them.
func (c *Config) bound() string {
	var hosts []string
	for _, addr := range append([]string{c.Listen, c.TLSListen}, c.ListenAlso...) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			continue
		}
		if host == "" {
			host = "*"
		}
		if !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return strings.Join(hosts, " ")
}

// listenUnix binds a Unix socket, with permissions unless they are 0. It replaces a socket that a
// dead process left, but no socket in use and no other file. Closing the listener removes the file.
func listenUnix(path string, perm os.FileMode) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) {
		return nil, fmt.Errorf("cannot listen on the Unix socket %s: %w", path, err)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return fail(errors.New("the file exists and is not a socket"))
		}
		if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = conn.Close()
			return fail(syscall.EADDRINUSE)
		} else if !errors.Is(err, syscall.ECONNREFUSED) {
			return fail(err)
		}
		if err := os.Remove(path); err != nil {
			return fail(err)
		}
	}
	mask := -1
	if perm != 0 { // nobody may connect before the permissions are set
		mask = syscall.Umask(0o777)
	}
	ln, err := net.Listen("unix", path)
	if mask >= 0 {
		syscall.Umask(mask)
	}
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner
		}
		return fail(err)
	}
	if perm != 0 {
		if err := os.Chmod(path, perm); err != nil {
			_ = ln.Close()
			return fail(err)
		}
	}
	return ln, nil
}
