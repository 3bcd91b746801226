// The command line of a node: flags and environment variables, their checks and defaults.

package main

import (
	"crypto/tls"
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
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/internal/node"
	"github.com/coordd/coordd/server"
)

// config is what the command line and the environment say.
type config struct {
	node.Config
	logLevel, logFormat string
	joinPasswordFile    string
	defaultPasswordFile string
	insecurePeers       bool
	clientAuth          string
}

// option is one flag with its environment variable. set parses and checks a value.
type option struct {
	name, value, usage string
	set                func(c *config, value string) error
}

// isSwitch reports whether the flag alone means yes.
func (o option) isSwitch() bool { return o.value == "no" }

// env returns the option's environment variable: COORDD_DATA_DIR for --data-dir.
func (o option) env() string {
	return "COORDD_" + strings.ToUpper(strings.ReplaceAll(o.name, "-", "_"))
}

var options = []option{
	{"id", "n1", "name of this node; unique in the cluster, fixed for its data directory", setID},
	{
		"listen", "127.0.0.1:6379",
		"host:port,… for clients; --advertise defaults to the first; empty: none without TLS",
		setListen,
	},
	{"unix-socket", "", "path of a Unix socket for clients; empty: none", setUnixSocket},
	{
		"unix-socket-perm", "0",
		"permissions of the Unix socket, octal; 0: 700",
		setUnixPerm,
	},
	{
		"advertise", "",
		"host:port that clients use to reach this node; default: --listen, with the host of " +
			"--peer-advertise in place of a wildcard",
		setAddress(func(c *config) *string { return &c.Advertise }),
	},
	{
		"tls-listen", "",
		"host:port for clients over TLS; empty: none",
		setAddress(func(c *config) *string { return &c.TLSListen }),
	},
	{
		"tls-advertise", "",
		"host:port that clients use to reach this node over TLS; default: --tls-listen, with the " +
			"host of --peer-advertise in place of a wildcard",
		setAddress(func(c *config) *string { return &c.TLSAdvertise }),
	},
	{
		"tls-cert", "",
		"certificate for clients, with its chain; this and all files below: PEM, reloaded when " +
			"they change and on SIGHUP",
		setAny(func(c *config) *string { return &c.TLS.Cert }),
	},
	{
		"tls-key", "", "key of --tls-cert",
		setAny(func(c *config) *string { return &c.TLS.Key }),
	},
	{
		"tls-ca", "",
		"authorities of the certificates of clients, and of the members that --join asks",
		setAny(func(c *config) *string { return &c.TLS.CA }),
	},
	{
		"tls-client-auth", "",
		"whether clients show a certificate of --tls-ca: none, optional or required; default: " +
			"required with --tls-ca, else none",
		setClientAuth,
	},
	{
		"tls-auth-clients-user", "off",
		"cn: the common name of a client's certificate names its user, who needs no password; off",
		setTLSUsers,
	},
	{
		"peer-tls", "",
		"TLS between nodes: off; accept: accept both, dial plain text; dial: accept both, dial " +
			"TLS; required. Default: required with --peer-tls-cert, else off",
		setPeerTLS,
	},
	{
		"peer-tls-cert", "",
		"this node's certificate for other nodes, for serving and for dialing; it names the node " +
			"by the URI coordd://CLUSTER/ID",
		setAny(func(c *config) *string { return &c.PeerTLS.Files.Cert }),
	},
	{
		"peer-tls-key", "", "key of --peer-tls-cert",
		setAny(func(c *config) *string { return &c.PeerTLS.Files.Key }),
	},
	{
		"peer-tls-ca", "", "authorities of the nodes' certificates",
		setAny(func(c *config) *string { return &c.PeerTLS.Files.CA }),
	},
	{
		"peer-tls-name", "",
		"DNS name in the nodes' certificates, with {id} for a node's id; empty: they have the URI",
		setPeerName,
	},
	{
		"insecure-peers", "no",
		"accept nodes without TLS from other machines: whoever reaches the peer port controls " +
			"the cluster",
		setYesNo(func(c *config) *bool { return &c.insecurePeers }),
	},
	{
		"peer-listen", "",
		"host:port for other nodes; default: this node's address in --cluster",
		setAddress(func(c *config) *string { return &c.PeerListen }),
	},
	{
		"peer-advertise", "",
		"host:port that other nodes use to reach this node; default: its address in --cluster",
		setAddress(func(c *config) *string { return &c.PeerAdvertise }),
	},
	{
		"data-dir", "./coordd-data",
		"directory of the log and the snapshots; created if missing",
		setString(func(c *config) *string { return &c.DataDir }),
	},
	{
		"cluster", "",
		"all nodes as id=host:peerport,…, the same on every node; empty: a single node",
		setCluster,
	},
	{
		"join", "",
		"host:port,… of members, for clients, of a cluster to join; ignored once --data-dir " +
			"belongs to a cluster",
		setJoin,
	},
	{
		"join-user", "",
		"user with which to ask the members of --join; default: the default user",
		setAny(func(c *config) *string { return &c.JoinUser }),
	},
	{
		"join-password-file", "",
		"file with that user's password; COORDD_JOIN_PASSWORD may hold the password instead",
		setAny(func(c *config) *string { return &c.joinPasswordFile }),
	},
	{
		"users-file", "",
		"file of users, as ACL SAVE writes it: the users of a new cluster, and the file of ACL " +
			"SAVE and ACL LOAD",
		setAny(func(c *config) *string { return &c.UsersFile }),
	},
	{
		"default-password-file", "",
		"file with the password of the default user of a new cluster; not with --users-file",
		setAny(func(c *config) *string { return &c.defaultPasswordFile }),
	},
	{
		"http-listen", "",
		"host:port for /healthz and /readyz; empty: off",
		setAddress(func(c *config) *string { return &c.HTTPListen }),
	},
	{
		"log-store", "wal",
		"log storage: wal, or bolt (slower); fixed for a data directory",
		setChoice(func(c *config) *string { return &c.LogStore }, "wal", "bolt"),
	},
	{
		"log-level", "info",
		"debug, info, warn or error",
		setChoice(func(c *config) *string { return &c.logLevel }, "debug", "info", "warn", "error"),
	},
	{
		"log-format", "auto",
		"text, json, or auto: text on a terminal, json elsewhere",
		setChoice(func(c *config) *string { return &c.logFormat }, "auto", "text", "json"),
	},
	{
		"audit-log", "",
		"file for the audit trail, or stderr; empty: none",
		setAny(func(c *config) *string { return &c.Audit.File }),
	},
	{
		"audit-log-size", "100",
		"MiB after which the file is renamed and a new one begun; 0: never, so use SIGHUP " +
			"after renaming it",
		setNumber(func(c *config, n int) { c.Audit.MaxMegabytes = n }, 0),
	},
	{
		"audit-log-files", "10",
		"renamed files to keep; 0: all",
		setNumber(func(c *config, n int) { c.Audit.Keep = n }, 0),
	},
	{
		"heartbeat-timeout", "400ms",
		"silence after which a leader counts as dead, the same on every node: a follower " +
			"stands for election after 1.25 times this, a leader without a majority steps down " +
			"after 0.75 times",
		setDuration(func(c *config) *time.Duration {
			return &c.HeartbeatTimeout
		}, 50*time.Millisecond),
	},
	{
		"leader-wait", "2s",
		"how long a request waits for a leader before it fails with CLUSTERDOWN",
		setDuration(func(c *config) *time.Duration { return &c.LeaderWait }, 0),
	},
	{
		"redirect", "forward",
		"what a follower does with commands. forward: forwards them to the leader. moved: " +
			"answers commands with keys with MOVED, for cluster clients only. none: forwards " +
			"them, and CLUSTER reports no cluster",
		setRedirect,
	},
	{
		"sentinel-name", "mymaster",
		"master name for Sentinel clients, the same on every node",
		setSentinelName,
	},
	{
		"snapshot-entries", "65536",
		"log entries between snapshots; each snapshot truncates the log",
		setNumber(func(c *config, n int) { c.SnapshotThreshold = uint64(n) }, 64),
	},
	{
		"max-clients", "10000",
		"limit of client connections",
		setNumber(func(c *config, n int) { c.MaxClients = n }, 1),
	},
	{
		"maxmemory-clients", "10%",
		"memory limit of all client connections together, such as 512mb, or a percentage of " +
			"the process's memory; past it the largest are closed; 0: no limit",
		setClientMemory,
	},
	{
		"max-subscriber-bytes", "33554432",
		"bytes of messages queued for a slow subscriber before it is closed",
		setNumber(func(c *config, n int) { c.MaxSubscriberBytes = n }, 1024),
	},
	{
		"client-output-buffer-limit", "",
		"output that may wait for a client, as class hard soft seconds …, such as " +
			"\"pubsub 32mb 8mb 60\"; class: normal or pubsub; overrides --max-subscriber-bytes",
		setOutputLimits,
	},
	{
		"max-reply-bytes", "134217728",
		"bytes of large replies in memory on this node, at least 64 MiB",
		setNumber(func(c *config, n int) { c.MaxReplyBytes = n }, server.MinReplyBytes),
	},
	{
		"timeout", "0s",
		"idle time after which a client is closed; 0: never",
		setDuration(func(c *config) *time.Duration { return &c.IdleTimeout }, 0),
	},
	{
		"tcp-keepalive", "60s",
		"silence after which TCP asks three times whether a client is still there, in steps of a " +
			"third of this; 0: never",
		setKeepAlive,
	},
	{
		"protected-mode", "yes",
		"no: also serve other machines while the default user needs no password",
		setProtected,
	},
	{
		"auth-timeout", "10s",
		"time in which a client must authenticate, if it must; 0: no limit",
		setDuration(func(c *config) *time.Duration { return &c.AuthTimeout }, 0),
	},
	{
		"max-unauthenticated", "1000",
		"client connections that must authenticate and have not; past it, the oldest of the " +
			"address with the most is closed",
		setNumber(func(c *config, n int) { c.MaxUnauthenticated = n }, 1),
	},
	{
		"drain-timeout", "5s",
		"how long a stopping node waits for requests in flight",
		setDuration(func(c *config) *time.Duration { return &c.DrainTimeout }, time.Millisecond),
	},
	{
		"max-request-bytes", strconv.Itoa(cluster.MaxBatchBytes),
		"size limit of a command or transaction, at most 32 MiB",
		setNumber(func(c *config, n int) { c.MaxRequestBytes = n }, 1024),
	},
}

func setString(field func(*config) *string) func(*config, string) error {
	return func(c *config, v string) error {
		if v == "" {
			return errors.New("must not be empty")
		}
		*field(c) = v
		return nil
	}
}

func setAny(field func(*config) *string) func(*config, string) error {
	return func(c *config, v string) error {
		*field(c) = v
		return nil
	}
}

func setChoice(field func(*config) *string, choices ...string) func(*config, string) error {
	return func(c *config, v string) error {
		if !slices.Contains(choices, v) {
			return fmt.Errorf("must be one of %s", strings.Join(choices, ", "))
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

func setKeepAlive(c *config, v string) error {
	err := setDuration(func(c *config) *time.Duration { return &c.KeepAlive }, 0)(c, v)
	if err == nil && c.KeepAlive%time.Second != 0 {
		err = errors.New("must be whole seconds")
	}
	return err
}

func setOutputLimits(c *config, v string) (err error) {
	c.OutputLimits, err = server.ParseOutputLimits(v)
	if err != nil {
		return errors.New("must be class hard soft seconds …, such as \"pubsub 32mb 8mb 60\"")
	}
	return nil
}

func setProtected(c *config, v string) error {
	var mode string
	err := setChoice(func(*config) *string { return &mode }, "yes", "no")(c, v)
	c.Unprotected = mode == "no"
	return err
}

func setNumber(assign func(*config, int), least int) func(*config, string) error {
	return func(c *config, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < least {
			return fmt.Errorf("must be an integer, %d or more", least)
		}
		assign(c, n)
		return nil
	}
}

func setDuration(field func(*config) *time.Duration, least time.Duration) func(*config,
	string) error {
	return func(c *config, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < least {
			return fmt.Errorf("must be a duration such as 400ms or 2s, %v or more", least)
		}
		*field(c) = d
		return nil
	}
}

// setSentinelName accepts what Sentinel messages can carry: spaces separate their words.
func setSentinelName(c *config, v string) error {
	if v == "" || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return errors.New("must be one word")
	}
	c.SentinelName = v
	return nil
}

func setYesNo(field func(*config) *bool) func(*config, string) error {
	return func(c *config, v string) error {
		if v != "yes" && v != "no" {
			return errors.New("must be yes or no")
		}
		*field(c) = v == "yes"
		return nil
	}
}

// clientAuth are the values of --tls-client-auth.
var clientAuth = map[string]tls.ClientAuthType{"none": tls.NoClientCert,
	"optional": tls.VerifyClientCertIfGiven, "required": tls.RequireAndVerifyClientCert}

func setClientAuth(c *config, v string) error {
	if err := setChoice(func(c *config) *string { return &c.clientAuth }, "", "none", "optional",
		"required")(c, v); err != nil {
		return errors.New("must be none, optional or required")
	}
	return nil
}

func setTLSUsers(c *config, v string) error {
	c.TLSUsers = strings.EqualFold(v, "cn")
	if !c.TLSUsers && v != "off" {
		return errors.New("must be off or cn")
	}
	return nil
}

func setPeerTLS(c *config, v string) error {
	c.PeerTLS.Mode = cluster.PeerTLSMode(v)
	switch c.PeerTLS.Mode {
	case "", cluster.PeerTLSOff, cluster.PeerTLSAccept, cluster.PeerTLSDial,
		cluster.PeerTLSRequired:
		return nil
	}
	return errors.New("must be off, accept, dial or required")
}

func setPeerName(c *config, v string) error {
	c.PeerTLS.Name = v
	return cluster.CheckPeerName(v)
}

func setListen(c *config, v string) error {
	c.Listen, c.ListenAlso = "", nil
	if v == "" {
		return nil
	}
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
		return fmt.Errorf("must not be longer than %d bytes", maxUnixPath)
	}
	c.UnixSocket = v
	return nil
}

func setUnixPerm(c *config, v string) error {
	n, err := strconv.ParseUint(v, 8, 32)
	if err != nil || n > 0o777 {
		return errors.New("must be an octal number up to 777")
	}
	c.UnixSocketPerm = os.FileMode(n)
	return nil
}

func setClientMemory(c *config, v string) error {
	m, err := server.ParseClientMemory(v)
	if err != nil {
		return errors.New("must be a size such as 512mb or a percentage such as 10%")
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
		return errors.New("must be host:port")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return errors.New("the port must be from 0 to 65535")
	}
	return nil
}

func setID(c *config, v string) error {
	if cluster.CheckID(v) != nil {
		return errors.New("must be 1 to 64 letters, digits, dots, dashes or underscores")
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
			return fmt.Errorf("id %q: %w", id, err)
		}
		if err := checkAddress(addr); err != nil {
			return fmt.Errorf("address of %s, %q: %w", id, addr, err)
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
		if err := checkAddress(strings.TrimPrefix(addr, node.TLSScheme)); err != nil {
			return fmt.Errorf("%q: %w", shown(addr), err)
		}
		c.Join = append(c.Join, addr)
	}
	return nil
}

// shown returns an argument as an error may quote it, without what may be a password.
func shown(arg string) string {
	if scheme, _, url := strings.Cut(arg, "://"); url {
		return scheme + "://…"
	}
	if i := strings.LastIndexByte(arg, '@'); i >= 0 {
		return "…" + arg[i:]
	}
	return arg
}

// usageError is an invalid command line; the process exits with 2.
type usageError struct{ error }

// parseConfig reads flags and, for those not given, environment variables. It returns a helpRequest
// for --help.
func parseConfig(args []string, getenv func(string) string) (*config, error) {
	fs := newFlagSet("coordd")
	given := nodeFlags(fs)
	if _, err := parseArgs(fs, args); err != nil {
		return nil, err
	}
	c, err := readConfig(fs, given, getenv)
	if err != nil {
		return nil, err
	}
	return c, c.checkOpenDoors()
}

// newFlagSet returns a flag set that prints nothing: the caller reports errors.
func newFlagSet(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return fs
}

// nodeFlags declares the options as flags.
func nodeFlags(fs *flag.FlagSet) []*string {
	given := make([]*string, len(options))
	for i, o := range options {
		if o.isSwitch() {
			given[i] = &o.value
			fs.Var((*switchFlag)(given[i]), o.name, o.usage)
			continue
		}
		given[i] = fs.String(o.name, o.value, o.usage)
	}
	return given
}

// switchFlag is a flag that may stand alone, which means yes.
type switchFlag string

// IsBoolFlag lets package flag accept the flag without a value.
func (*switchFlag) IsBoolFlag() bool { return true }

// String implements flag.Value.
func (f *switchFlag) String() string { return string(*f) }

// Set implements flag.Value.
func (f *switchFlag) Set(v string) error {
	if v == "true" { // the flag alone
		v = "yes"
	}
	*f = switchFlag(v)
	return nil
}

// parseArgs parses flags and, between or after them, one other argument for each name, which it
// returns.
func parseArgs(fs *flag.FlagSet, args []string, names ...string) ([]string, error) {
	var others []string
	for {
		if err := fs.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, helpRequest{fs}
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
		return nil, usageError{fmt.Errorf("%s requires %s", fs.Name(), names[len(others)])}
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
	if len(c.Join) > 0 {
		var err error
		as := credentials{file: c.joinPasswordFile, fileFlag: "join-password-file",
			env: "COORDD_JOIN_PASSWORD"}
		if c.JoinPassword, err = as.password(getenv); err != nil {
			return nil, err
		}
	}
	return c, c.complete()
}

// complete derives options from others and checks that they fit together.
func (c *config) complete() error {
	c.Version = versionText()
	if err := c.completeUsers(); err != nil {
		return err
	}
	if err := c.completeTLS(); err != nil {
		return err
	}
	if c.LeaderWait == 0 {
		c.LeaderWait = -1 // no wait; 0 is the node's default
	}
	if c.MaxRequestBytes > cluster.MaxBatchBytes {
		return fmt.Errorf("--max-request-bytes %d: must be %d or less", c.MaxRequestBytes,
			cluster.MaxBatchBytes)
	}
	if len(c.Join) > 0 {
		return c.completeJoin()
	}
	if len(c.Members) == 0 {
		// A single node has no peers, but Raft needs an address: a free port on the loopback.
		if c.PeerListen == "" {
			c.PeerListen = "127.0.0.1:0"
		}
		return c.completeAddresses()
	}
	i := slices.IndexFunc(c.Members, func(m cluster.Member) bool { return m.ID == c.ID })
	if i < 0 {
		return fmt.Errorf("--id %s is not in --cluster", c.ID)
	}
	if c.PeerListen == "" {
		c.PeerListen = c.Members[i].PeerAddr
	}
	if c.PeerAdvertise == "" {
		c.PeerAdvertise = c.Members[i].PeerAddr
	}
	return c.completeAddresses()
}

// completeUsers reads the first users of a cluster.
func (c *config) completeUsers() error {
	var err error
	switch {
	case c.UsersFile != "" && c.defaultPasswordFile != "":
		return errors.New("--users-file and --default-password-file exclude each other: a file " +
			"of users has the default user's password too")
	case c.UsersFile != "":
		table := commands.NewTable(commands.Specs(), server.Specs())
		c.FirstUsers, err = server.ReadUsers(c.UsersFile,
			acl.New(table.Catalog(commands.FeatureLevel)))
		if err != nil {
			return fmt.Errorf("--users-file: %w", err)
		}
	case c.defaultPasswordFile != "":
		password, err := passwordIn(c.defaultPasswordFile)
		if err != nil {
			return fmt.Errorf("--default-password-file: %w", err)
		}
		c.FirstUsers = []byte("user default on #" + acl.Hash([]byte(password)) + " ~* &* +@all\n")
	}
	return nil
}

// completeAddresses checks the peer address and derives the address for clients.
func (c *config) completeAddresses() error {
	host, err := c.peerHost()
	if err != nil {
		return err
	}
	c.Advertise = advised(c.Advertise, c.Listen, host)
	c.TLSAdvertise = advised(c.TLSAdvertise, c.TLSListen, host)
	return nil
}

// completeTLS checks that the options of TLS fit together.
func (c *config) completeTLS() error {
	if c.TLSListen != "" && (c.TLS.Cert == "" || c.TLS.Key == "") {
		return errors.New("--tls-listen requires --tls-cert and --tls-key")
	}
	c.TLSClientAuth = clientAuth[c.clientAuth]
	switch {
	case c.clientAuth == "" && c.TLS.CA != "":
		c.TLSClientAuth = tls.RequireAndVerifyClientCert
	case c.TLSClientAuth != tls.NoClientCert && c.TLS.CA == "":
		return fmt.Errorf("--tls-client-auth %s requires --tls-ca", c.clientAuth)
	}
	if c.TLSUsers && c.TLSClientAuth == tls.NoClientCert {
		return errors.New("--tls-auth-clients-user cn requires --tls-ca")
	}
	p := &c.PeerTLS
	if p.Mode == "" && p.Files.Cert != "" {
		p.Mode = cluster.PeerTLSRequired
	}
	if p.Mode != "" && p.Mode != cluster.PeerTLSOff &&
		(p.Files.Cert == "" || p.Files.Key == "" || p.Files.CA == "") {
		return fmt.Errorf(
			"--peer-tls %s requires --peer-tls-cert, --peer-tls-key and --peer-tls-ca", p.Mode)
	}
	return nil
}

// checkOpenDoors refuses to run a node that nobody reaches, or that anybody controls.
func (c *config) checkOpenDoors() error {
	if c.Listen == "" && c.TLSListen == "" && c.UnixSocket == "" {
		return errors.New(
			"no address for clients: set --listen, --tls-listen or --unix-socket")
	}
	if host, _, _ := net.SplitHostPort(c.PeerListen); c.PeerTLS.Mode != cluster.PeerTLSRequired &&
		!c.insecurePeers && !isLoopback(host) {
		return fmt.Errorf("--peer-listen %s accepts nodes from other machines without TLS, and "+
			"whoever reaches it controls the cluster: set --peer-tls-cert, --peer-tls-key and "+
			"--peer-tls-ca, or --insecure-peers", c.PeerListen)
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// peerHost returns the host that other nodes use to reach this one.
func (c *config) peerHost() (string, error) {
	from, addr := "--peer-advertise", c.PeerAdvertise
	if addr == "" {
		from, addr = "--peer-listen", c.PeerListen
	}
	host, port, _ := net.SplitHostPort(addr)
	switch {
	case cluster.IsWildcard(host) && from == "--peer-listen":
		return "", fmt.Errorf(
			"--peer-listen %s: other nodes cannot reach a wildcard address; set --peer-advertise",
			addr)
	case cluster.IsWildcard(host):
		return "", fmt.Errorf("%s %s: other nodes cannot reach a wildcard address", from, addr)
	case port == "0" && from == "--peer-advertise":
		return "", fmt.Errorf("--peer-advertise %s: other nodes cannot reach port 0", addr)
	}
	return host, nil
}

// completeJoin is complete for a node that joins a cluster.
func (c *config) completeJoin() error {
	if len(c.Members) > 0 {
		return errors.New(
			"--cluster and --join exclude each other: one founds a cluster, the other joins one")
	}
	if c.PeerListen == "" {
		return errors.New("--join requires --peer-listen")
	}
	return c.completeAddresses()
}

// advised returns the address for clients: the one that was set, or else that of the listener with
// host in place of a wildcard.
func advised(set, listen, host string) string {
	if set != "" || listen == "" {
		return set
	}
	if h, port, _ := net.SplitHostPort(listen); cluster.IsWildcard(h) {
		return net.JoinHostPort(host, port)
	}
	return listen
}
