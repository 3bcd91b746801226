package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/internal/node"
	"github.com/coordd/coordd/server"
)

// config is what the command line and the environment say.
type config struct {
	node.Config
	logLevel, logFormat string
}

// option is one flag with its environment variable. set parses and checks a value.
type option struct {
	name, value, usage string
	set                func(c *config, value string) error
}

// env is the option's environment variable: --data-dir is COORDD_DATA_DIR.
func (o option) env() string {
	return "COORDD_" + strings.ToUpper(strings.ReplaceAll(o.name, "-", "_"))
}

var options = []option{
	{"id", "n1", "name of this node, unique in the cluster and fixed for its data directory", setID},
	{"listen", "127.0.0.1:6379", "host:port,… for Redis clients; they are told the first one, unless --advertise says otherwise", setListen},
	{"unix-socket", "", "path of a Unix socket for Redis clients besides; empty: none", setUnixSocket},
	{"unix-socket-perm", "0", "permissions of the Unix socket, octal; 0: by the umask", setUnixPerm},
	{"advertise", "", "host:port at which clients reach this node; default: --listen, on the host of --peer-advertise where that is a wildcard", setAddress(func(c *config) *string { return &c.Advertise })},
	{"peer-listen", "", "host:port for the other nodes; default: this node's own in --cluster", setAddress(func(c *config) *string { return &c.PeerListen })},
	{"peer-advertise", "", "host:port at which the other nodes reach this one; default: this node's own in --cluster", setAddress(func(c *config) *string { return &c.PeerAdvertise })},
	{"data-dir", "./coordd-data", "directory of the log and the snapshots; made if it is not there", setString(func(c *config) *string { return &c.DataDir })},
	{"cluster", "", "all nodes as id=host:peerport,…, the same on every node; empty: one node alone", setCluster},
	{"join", "", "client addresses host:port,… of members of a cluster that is to take this node in; without effect where --data-dir has one already", setJoin},
	{"http-listen", "", "host:port for /healthz and /readyz; empty: off", setAddress(func(c *config) *string { return &c.HTTPListen })},
	{"log-store", "wal", "how the log is kept: wal or bolt (slower); fixed for a data directory", setChoice(func(c *config) *string { return &c.LogStore }, "wal", "bolt")},
	{"log-level", "info", "debug, info, warn or error", setChoice(func(c *config) *string { return &c.logLevel }, "debug", "info", "warn", "error")},
	{"log-format", "auto", "text, json, or auto: text on a terminal, else json", setChoice(func(c *config) *string { return &c.logFormat }, "auto", "text", "json")},
	{"heartbeat-timeout", "400ms", "how long a leader may be silent, the same on every node: after 1.25 times this the first follower stands for election, after 3/4 of it a leader without a majority steps down", setDuration(func(c *config) *time.Duration { return &c.HeartbeatTimeout }, 50*time.Millisecond)},
	{"leader-wait", "2s", "how long a request waits for a leader before it is answered CLUSTERDOWN", setDuration(func(c *config) *time.Duration { return &c.LeaderWait }, 0)},
	{"redirect", "forward", "what a node that does not lead does: forward passes commands on; moved answers MOVED to those with keys, for cluster clients alone; none forwards, and CLUSTER says that there is no cluster", setRedirect},
	{"sentinel-name", "mymaster", "name by which Sentinel clients ask for this cluster, the same on every node", setSentinelName},
	{"snapshot-entries", "65536", "log entries after which a snapshot is taken and the log cut", setNumber(func(c *config, n int) { c.SnapshotThreshold = uint64(n) }, 64)},
	{"max-clients", "10000", "connections of clients at a time", setNumber(func(c *config, n int) { c.MaxClients = n }, 1)},
	{"maxmemory-clients", "10%", "what all connections may take together before those that take most are closed: bytes, such as 512mb, or a part of the memory that the process may take; 0: any number", setClientMemory},
	{"max-subscriber-bytes", "33554432", "messages that wait for a slow subscriber before it is closed", setNumber(func(c *config, n int) { c.MaxSubscriberBytes = n }, 1024)},
	{"max-reply-bytes", "134217728", "large replies that are made, or wait for their clients, on this node at a time; 64 MiB or more", setNumber(func(c *config, n int) { c.MaxReplyBytes = n }, server.MinReplyBytes)},
	{"timeout", "0s", "how long a client may be idle before it is closed; 0: for ever", setDuration(func(c *config) *time.Duration { return &c.IdleTimeout }, 0)},
	{"drain-timeout", "5s", "how long a node that stops lets requests be answered", setDuration(func(c *config) *time.Duration { return &c.DrainTimeout }, time.Millisecond)},
	{"max-request-bytes", strconv.Itoa(cluster.MaxBatchBytes), "size of one command or transaction, up to 32 MiB", setNumber(func(c *config, n int) { c.MaxRequestBytes = n }, 1024)},
}

func setString(field func(*config) *string) func(*config, string) error {
	return func(c *config, v string) error {
		if v == "" {
			return errors.New("it is empty")
		}
		*field(c) = v
		return nil
	}
}

func setChoice(field func(*config) *string, choices ...string) func(*config, string) error {
	return func(c *config, v string) error {
		if !slices.Contains(choices, v) {
			return fmt.Errorf("it has to be one of %s", strings.Join(choices, ", "))
		}
		*field(c) = v
		return nil
	}
}

func setRedirect(c *config, v string) error {
	var name string
	err := setChoice(func(*config) *string { return &name }, "forward", "moved", "none")(c, v)
	c.Redirect = server.Redirect(name)
	return err
}

func setNumber(assign func(*config, int), least int) func(*config, string) error {
	return func(c *config, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < least {
			return fmt.Errorf("it has to be a whole number, %d or more", least)
		}
		assign(c, n)
		return nil
	}
}

func setDuration(field func(*config) *time.Duration, least time.Duration) func(*config, string) error {
	return func(c *config, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < least {
			return fmt.Errorf("it has to be a duration such as 400ms or 2s, %v or more", least)
		}
		*field(c) = d
		return nil
	}
}

// setSentinelName takes what a message of Sentinel can carry, where spaces part the words.
func setSentinelName(c *config, v string) error {
	if v == "" || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return errors.New("it has to be one word")
	}
	c.SentinelName = v
	return nil
}

func setListen(c *config, v string) error {
	c.ListenAlso = nil
	for i, addr := range strings.Split(v, ",") {
		addr = strings.TrimSpace(addr)
		if err := checkAddress(addr); err != nil {
			return err
		}
		if i == 0 {
			c.Listen = addr
		} else {
			c.ListenAlso = append(c.ListenAlso, addr)
		}
	}
	return nil
}

// maxUnixPath is what the system allows for the path of a Unix socket.
const maxUnixPath = 107

func setUnixSocket(c *config, v string) error {
	if len(v) > maxUnixPath {
		return fmt.Errorf("it is longer than %d bytes", maxUnixPath)
	}
	c.UnixSocket = v
	return nil
}

func setUnixPerm(c *config, v string) error {
	n, err := strconv.ParseUint(v, 8, 32)
	if err != nil || n > 0o777 {
		return errors.New("it has to be an octal number up to 777")
	}
	c.UnixSocketPerm = os.FileMode(n)
	return nil
}

func setClientMemory(c *config, v string) error {
	m, err := server.ParseClientMemory(v)
	if err != nil {
		return errors.New("it has to be a size such as 512mb, or a part such as 10%")
	}
	c.MaxClientMemory = m
	return nil
}

func setAddress(field func(*config) *string) func(*config, string) error {
	return func(c *config, v string) error {
		if v == "" {
			return nil
		}
		if err := checkAddress(v); err != nil {
			return err
		}
		*field(c) = v
		return nil
	}
}

func checkAddress(v string) error {
	_, port, err := net.SplitHostPort(v)
	if err != nil {
		return errors.New("it has to be host:port")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return errors.New("its port has to be a number from 0 to 65535")
	}
	return nil
}

func setID(c *config, v string) error {
	if cluster.CheckID(v) != nil {
		return errors.New("it has to be 1 to 64 letters, digits, dots, dashes or underscores")
	}
	c.ID = v
	return nil
}

func setCluster(c *config, v string) error {
	c.Members = nil
	if v == "" {
		return nil
	}
	for part := range strings.SplitSeq(v, ",") {
		id, addr, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return fmt.Errorf("%q is not id=host:peerport", part)
		}
		if err := setID(&config{}, id); err != nil {
			return fmt.Errorf("the id %q: %w", id, err)
		}
		if err := checkAddress(addr); err != nil {
			return fmt.Errorf("the address of %s, %q: %w", id, addr, err)
		}
		for _, m := range c.Members {
			if m.ID == id || m.PeerAddr == addr {
				return fmt.Errorf("%s appears twice", part)
			}
		}
		c.Members = append(c.Members, cluster.Member{ID: id, PeerAddr: addr})
	}
	return nil
}

func setJoin(c *config, v string) error {
	c.Join = nil
	if v == "" {
		return nil
	}
	for addr := range strings.SplitSeq(v, ",") {
		addr = strings.TrimSpace(addr)
		if err := checkAddress(addr); err != nil {
			return fmt.Errorf("%q: %w", shown(addr), err)
		}
		c.Join = append(c.Join, addr)
	}
	return nil
}

// shown is an argument as an error may repeat it: of what may be a URL, or has a password in it, nothing but the beginning and the end that have none.
func shown(arg string) string {
	if scheme, _, url := strings.Cut(arg, "://"); url {
		return scheme + "://…"
	}
	if i := strings.LastIndexByte(arg, '@'); i >= 0 {
		return "…" + arg[i:]
	}
	return arg
}

// usageError is a command line that cannot be read; the process exits with 2.
type usageError struct{ error }

// parseConfig reads flags and, for those not given, environment variables. It returns flag.ErrHelp for --help.
func parseConfig(args []string, getenv func(string) string) (*config, error) {
	fs := newFlagSet("coordd")
	given := nodeFlags(fs)
	if _, err := parseArgs(fs, args); err != nil {
		return nil, err
	}
	return readConfig(fs, given, getenv)
}

// newFlagSet returns a set of flags that leaves errors to the caller to print.
func newFlagSet(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return fs
}

// nodeFlags declares the options as flags.
func nodeFlags(fs *flag.FlagSet) []*string {
	given := make([]*string, len(options))
	for i, o := range options {
		given[i] = fs.String(o.name, o.value, o.usage)
	}
	return given
}

// parseArgs parses flags and, between or behind them, as many other arguments as names has, which it returns.
func parseArgs(fs *flag.FlagSet, args []string, names ...string) ([]string, error) {
	var others []string
	for {
		if err := fs.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
			return nil, usageError{err}
		}
		if fs.NArg() == 0 {
			break
		}
		if len(others) == len(names) {
			return nil, usageError{fmt.Errorf("unexpected argument %q", shown(fs.Arg(0)))}
		}
		others, args = append(others, fs.Arg(0)), fs.Args()[1:]
	}
	if len(others) < len(names) {
		return nil, usageError{fmt.Errorf("%s needs %s", fs.Name(), names[len(others)])}
	}
	return others, nil
}

// readConfig reads the node's flags and, for those not given, environment variables.
func readConfig(fs *flag.FlagSet, given []*string, getenv func(string) string) (*config, error) {
	onLine := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { onLine[f.Name] = true })
	c := &config{}
	for i, o := range options {
		value, from := *given[i], "--"+o.name
		if v := getenv(o.env()); v != "" && !onLine[o.name] {
			value, from = v, o.env()
		}
		if err := o.set(c, value); err != nil {
			return nil, fmt.Errorf("%s %q: %w", from, shown(value), err)
		}
	}
	return c, c.complete()
}

// complete fills in what follows from other options and checks what options say of each other.
func (c *config) complete() error {
	c.Version = versionText()
	if c.LeaderWait == 0 {
		c.LeaderWait = -1 // no wait; 0 is the node's default
	}
	if c.MaxRequestBytes > cluster.MaxBatchBytes {
		return fmt.Errorf("--max-request-bytes %d: it has to be %d or less", c.MaxRequestBytes, cluster.MaxBatchBytes)
	}
	if len(c.Join) > 0 {
		return c.completeJoin()
	}
	if len(c.Members) == 0 {
		// One node alone has nobody to listen for, but Raft wants an address: a free one of the loopback.
		if c.PeerListen == "" {
			c.PeerListen = "127.0.0.1:0"
		}
		return c.completeAddresses()
	}
	i := slices.IndexFunc(c.Members, func(m cluster.Member) bool { return m.ID == c.ID })
	if i < 0 {
		return fmt.Errorf("--id %s is not one of the nodes in --cluster", c.ID)
	}
	if c.PeerListen == "" {
		c.PeerListen = c.Members[i].PeerAddr
	}
	if c.PeerAdvertise == "" {
		c.PeerAdvertise = c.Members[i].PeerAddr
	}
	return c.completeAddresses()
}

// completeAddresses checks where others reach the node, and sets where clients do.
func (c *config) completeAddresses() error {
	host, err := c.peerHost()
	if err != nil {
		return err
	}
	c.adviseClients(host)
	return nil
}

// peerHost is the host at which the other nodes reach this one.
func (c *config) peerHost() (string, error) {
	from, addr := "--peer-advertise", c.PeerAdvertise
	if addr == "" {
		from, addr = "--peer-listen", c.PeerListen
	}
	host, port, _ := net.SplitHostPort(addr)
	switch {
	case cluster.IsWildcard(host) && from == "--peer-listen":
		return "", fmt.Errorf("--peer-listen %s: other nodes cannot reach a node at a wildcard address; give its own with --peer-advertise", addr)
	case cluster.IsWildcard(host):
		return "", fmt.Errorf("%s %s: other nodes cannot reach a node at a wildcard address; give its own address", from, addr)
	case port == "0" && from == "--peer-advertise":
		return "", fmt.Errorf("--peer-advertise %s: other nodes cannot reach a node there; give its own address", addr)
	}
	return host, nil
}

// completeJoin is complete for a node that joins a cluster.
func (c *config) completeJoin() error {
	if len(c.Members) > 0 {
		return errors.New("--cluster founds a cluster and --join enters one: only one of them can be given")
	}
	if c.PeerListen == "" {
		return errors.New("--join needs --peer-listen, where the other nodes reach this one")
	}
	return c.completeAddresses()
}

// adviseClients sets the address that clients are told: that of --advertise, else of --listen, there with host in the place of a wildcard.
func (c *config) adviseClients(host string) {
	if c.Advertise != "" {
		return
	}
	c.Advertise = c.Listen
	if h, port, _ := net.SplitHostPort(c.Listen); cluster.IsWildcard(h) {
		c.Advertise = net.JoinHostPort(host, port)
	}
}

// printHelp writes what --help shows.
func printHelp(w io.Writer) {
	fmt.Fprint(w, `coordd is a coordination server that speaks the Redis protocol.

  coordd [flags]                run a node
  coordd dev [--port 6379]      run a throwaway cluster of three nodes in one process
  coordd backup --from ADDR FILE [--force]
                                write the state of a running cluster into FILE; ADDR is any node's, for clients
  coordd restore FILE [--epoch N] [flags]
                                make the data directory of a node from FILE: once on every node, with the node's own flags
  coordd recover --data-dir DIR [--before-entry INDEX] [--trace-entries] [--accept-lost-writes]
                                after the loss of a majority, or when a log entry cannot be applied: show what DIR holds,
                                without the entries from INDEX on, and make its node a new cluster's only one
  coordd import --from redis://[user:password@]HOST:PORT[/DB] --to ADDR [--match PATTERN] [--replace]
                                copy the keys and functions of a running Redis or Valkey into a running cluster
  coordd --version              print the version

Flags (each can also be set by the environment variable beside it):

`)
	for _, o := range options {
		value := o.value
		if value == "" {
			value = "none"
		}
		fmt.Fprintf(w, "  --%-18s %s (default %s) [%s]\n", o.name, o.usage, value, o.env())
	}
}
