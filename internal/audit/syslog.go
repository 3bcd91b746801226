// The trail to syslog. Who hangs or is not there holds up nobody but the goroutine that writes this
// trail: events wait in its queue meanwhile, and what finds no room there is dropped.

package audit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/coordd/coordd/internal/logging"
)

// SyslogLocal is the Config.Syslog that stands for this machine's syslog.
const SyslogLocal = "local"

// localSyslogs are where it may be.
var localSyslogs = []string{"/dev/log", "/var/run/syslog", "/var/run/log"}

// syslogPriority is that of every line: the facility authpriv (10), the severity notice (5).
const syslogPriority = 10<<3 | 5

// The tests lower these.
var (
	syslogWait  = 2 * time.Second // for a connection, or for a line to be taken
	syslogAgain = time.Second     // after a failure
)

var errSyslogClosed = errors.New("the audit log is closed")

// syslog is an io.Writer that sends each line to a syslog, again and again until it is taken.
type syslog struct {
	network, addr string // unix: a path, empty: one of localSyslogs
	host          string
	warnings      *logging.Limited
	conn          net.Conn // the writer's own; nil: none
	dialed        string   // the network of conn
	once          sync.Once
	closed        chan struct{} // by once: nothing is tried again
}

// CheckSyslog reports why the text is no Config.Syslog.
func CheckSyslog(text string) error {
	_, err := newSyslog(text, nil)
	return err
}

func newSyslog(text string, warnings *logging.Limited) (*syslog, error) {
	s := &syslog{network: "unix", warnings: warnings, closed: make(chan struct{})}
	s.host, _ = os.Hostname()
	s.host = cmp.Or(s.host, "-")
	if text == SyslogLocal {
		return s, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		u = &url.URL{}
	}
	switch {
	case u.Scheme == "unix" && u.Host == "" && u.Path != "":
		s.addr = u.Path
		return s, nil
	case (u.Scheme == "udp" || u.Scheme == "tcp") && u.Hostname() != "" && u.Port() != "" &&
		u.Path == "":
		s.network, s.addr = u.Scheme, u.Host
		return s, nil
	}
	return nil, errors.New("must be local, unix:///PATH, udp://HOST:PORT or tcp://HOST:PORT")
}

// Write implements io.Writer: it sends a line, and waits until it can.
func (s *syslog) Write(line []byte) (int, error) {
	text := bytes.TrimSuffix(line, []byte("\n"))
	for {
		err := s.send(text)
		switch {
		case err == nil:
			return len(line), nil
		case errors.Is(err, syscall.EMSGSIZE): // it would be too long again
			return 0, err
		}
		s.hangUp()
		s.warnings.Warn("cannot write the audit trail to syslog; it waits", "error", err)
		select {
		case <-s.closed:
			return 0, errSyslogClosed
		case <-time.After(syslogAgain):
		}
	}
}

// stop ends the attempts to send a line.
func (s *syslog) stop() {
	if s != nil {
		s.once.Do(func() { close(s.closed) })
	}
}

func (s *syslog) send(text []byte) error {
	select {
	case <-s.closed:
		return errSyslogClosed
	default:
	}
	if s.conn == nil {
		if err := s.dial(); err != nil {
			return err
		}
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(syslogWait))
	_, err := s.conn.Write(s.message(text, time.Now()))
	return err
}

// message returns a line as the syslog of the connection wants it: that of this machine in the form
// of the C library, others by RFC 5424, over TCP with the number of its bytes before it (RFC 6587).
func (s *syslog) message(text []byte, now time.Time) []byte {
	switch s.dialed {
	case "unixgram":
		return fmt.Appendf(nil, "<%d>%s coordd[%d]: %s", syslogPriority, now.Format(time.Stamp),
			os.Getpid(), text)
	case "unix":
		return fmt.Appendf(nil, "<%d>%s coordd[%d]: %s\n", syslogPriority, now.Format(time.Stamp),
			os.Getpid(), text)
	}
	b := fmt.Appendf(nil, "<%d>1 %s %s coordd %d audit - %s", syslogPriority,
		now.UTC().Format("2006-01-02T15:04:05.000000Z"), s.host, os.Getpid(), text)
	if s.dialed == "tcp" {
		b = append(fmt.Appendf(nil, "%d ", len(b)), b...)
	}
	return b
}

func (s *syslog) dial() (err error) {
	networks, addrs := []string{s.network}, []string{s.addr}
	if s.network == "unix" {
		networks = []string{"unixgram", "unix"}
		if s.addr == "" {
			addrs = localSyslogs
		}
	}
	for _, addr := range addrs {
		for _, network := range networks {
			conn, dialErr := net.DialTimeout(network, addr, syslogWait)
			if dialErr == nil {
				s.conn, s.dialed = conn, network
				if network == "tcp" || network == "unix" {
					go hearOut(conn)
				}
				return nil
			}
			err = cmp.Or(err, dialErr)
		}
	}
	return err
}

// hearOut closes a connection that its other end closes: what is written to it would be lost.
func hearOut(conn net.Conn) {
	_, _ = io.Copy(io.Discard, conn)
	_ = conn.Close()
}

func (s *syslog) hangUp() {
	if s != nil && s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}
