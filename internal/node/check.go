package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/audit"
)

// Check looks for what would keep a node from starting. It starts nothing and leaves no file; a
// running node does not disturb it, nor is disturbed. What warn is told keeps no node from
// starting: it logs the state of the certificates, names that do not resolve, and what the limit of
// open files, which the node may have otherwise, leaves of its clients.
func Check(cfg Config, warn *slog.Logger) (problems []error) {
	add := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	if cfg.AutoID {
		host, err := os.Hostname()
		add(err)
		cfg.ID, err = cluster.AutoID(cfg.DataDir, host)
		add(err)
	}
	var certs certificates
	add(certs.open(&cfg, warn))
	add((&metricsTokens{file: cfg.MetricsTokenFile}).load())
	for _, addr := range append([]string{cfg.Listen, cfg.TLSListen, cfg.PeerListen, cfg.HTTPListen},
		cfg.ListenAlso...) {
		if addr != "" {
			add(checkListen(addr))
		}
	}
	if cfg.UnixSocket != "" {
		dir := filepath.Dir(cfg.UnixSocket)
		if err := checkWritable(dir); !errors.Is(err, fs.ErrNotExist) || !isVolatile(dir) {
			add(err)
		} else {
			warn.Warn("the directory of --unix-socket is missing at present: what starts the node "+
				"has to make it, as the packages' unit makes /run/coordd", "directory", dir)
		}
	}
	for _, m := range cfg.Members {
		if _, err := net.ResolveTCPAddr("tcp", m.PeerAddr); err != nil {
			warn.Warn("the address of a member does not resolve at present", "id", m.ID, "error",
				err)
		}
	}
	warnOfGuess(&cfg, warn)
	if most, err := clientFiles(len(cfg.Members)); err != nil {
		warn.Warn("the node would not start with the limit of open files that this shell has",
			"error", err)
	} else {
		warnOfFiles(warn, cfg.MaxClients, most)
	}
	add(cluster.CheckDir(cfg.DataDir, cfg.ID, cfg.LogStore, fsm.CheckLevel))
	add(checkTree(cfg.DataDir))
	if file := cfg.Audit.File; file != "" && file != audit.Stderr {
		add(checkWritable(filepath.Dir(file)))
	}
	return problems
}

// warnOfGuess warns that others look for this node where it does not listen, unless addresses are
// translated on the way: it may have moved.
func warnOfGuess(cfg *Config, log *slog.Logger) {
	there, err := net.ResolveTCPAddr("tcp", cfg.PeerAdvertise)
	here, err2 := net.ResolveTCPAddr("tcp", cfg.PeerListen)
	if err != nil || err2 != nil || !cfg.PeerGuessed {
		return
	}
	wildcard := len(here.IP) == 0 || here.IP.IsUnspecified()
	if wildcard || here.IP.Equal(there.IP) && here.Port == there.Port {
		return
	}
	log.Warn("--cluster has another address of this node than --peer-listen: members connect to "+
		"it unless --peer-advertise is set", "address", cfg.PeerAdvertise, "listens",
		cfg.PeerListen)
}

// errBound ends a try to listen once the address is bound.
var errBound = errors.New("bound")

// checkListen reports whether the address can be listened on, by this node if it runs already. It
// only binds the address, as does a node that starts in this moment, which can then listen there.
func checkListen(addr string) error {
	c := net.ListenConfig{Control: bindOnly}
	_, err := c.Listen(context.Background(), "tcp", addr)
	if errors.Is(err, errBound) || errors.Is(err, syscall.EADDRINUSE) {
		return nil
	}
	return fmt.Errorf("cannot listen on %s: %w", addr, errors.Unwrap(err))
}

// bindOnly binds a socket in place of the listener, which it lets fail.
func bindOnly(network, addr string, c syscall.RawConn) error {
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return err
	}
	v4, v6 := &unix.SockaddrInet4{Port: a.Port}, &unix.SockaddrInet6{Port: a.Port}
	at := unix.Sockaddr(v6)
	if network == "tcp4" {
		copy(v4.Addr[:], a.IP.To4())
		at = v4
	} else {
		if !a.IP.IsUnspecified() { // both kinds of addresses, then
			copy(v6.Addr[:], a.IP.To16())
		}
		if zone, err := net.InterfaceByName(a.Zone); err == nil {
			v6.ZoneId = uint32(zone.Index)
		}
	}
	if control := c.Control(func(fd uintptr) { err = unix.Bind(int(fd), at) }); control != nil {
		return control
	}
	if err != nil {
		return os.NewSyscallError("bind", err)
	}
	return errBound
}

// checkTree reports whether a directory can be used, or created.
func checkTree(dir string) error {
	for {
		info, err := os.Stat(dir)
		parent := filepath.Dir(filepath.Clean(dir))
		switch {
		case errors.Is(err, fs.ErrNotExist) && parent != dir:
			dir = parent
			continue
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is not a directory", dir)
		}
		return checkWritable(dir)
	}
}

// isVolatile reports whether a directory is where each start of the machine, and systemd when a
// service stops, removes what is there.
func isVolatile(dir string) bool {
	return strings.HasPrefix(dir, "/run/") || strings.HasPrefix(dir, "/var/run/")
}

// checkWritable reports whether this process may create files in a directory.
func checkWritable(dir string) error {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("cannot write to directory %s: %w", dir, err)
	}
	return nil
}
