// The options of a node: flags and their environment variables.

package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/server"
)

// options are all options of a node.
var options = func() []option {
	all := slices.Clone(startOptions)
	for _, l := range liveOptions {
		all = append(all, l.option)
	}
	return all
}()

// option is one flag with its environment variable. set parses and checks a value.
type option struct {
	name, value, usage string
	set                func(c *config, value string) error
}

// isSwitch reports whether the flag is yes or no, and alone means yes.
func (o option) isSwitch() bool { return o.value == "no" || o.value == "yes" }

// env returns the option's environment variable: COORDD_DATA_DIR for --data-dir.
func (o option) env() string { return envOf(o.name) }

func envOf(name string) string {
	return "COORDD_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// inEnv returns the option's value in the environment and the variable that has it; empty: none.
func (o option) inEnv(getenv func(string) string) (value, variable string) {
	if v := getenv(o.env()); v != "" {
		return v, o.env()
	}
	for former, name := range formerNames {
		if v := getenv(envOf(former)); name == o.name && v != "" {
			return v, envOf(former)
		}
	}
	return "", ""
}

// formerNames are the names that options had in earlier releases. They work everywhere, and no text
// mentions them.
var formerNames = map[string]string{"redirect": "present-as"}

// currentName returns the name of an option that is called by this one, or a former one.
func currentName(name string) string { return cmp.Or(formerNames[name], name) }

// configOption is the first option: others are in the file that it names.
const configOption = "config"

// startOptions hold until the node restarts.
var startOptions = []option{
	{
		configOption, "",
		"file of options, one a line as NAME VALUE; flags and the environment override it",
		setConfigFile,
	},
	{
		"id", "n1",
		"name of this node; unique in the cluster, fixed for its data directory; auto: made from " +
			"the host name and random characters with the data directory, and kept in it",
		setID,
	},
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
		"discover", "",
		"host:peerport,… or names of SRV records, such as _peer._tcp.coordd.example, of all " +
			"nodes, looked up again and again: an empty node joins the cluster that it finds " +
			"there; empty: off",
		setDiscover,
	},
	{
		"discover-dns", "",
		"host:port of the DNS server for --discover; default: the system's",
		setAddress(func(c *config) *string { return &c.DiscoverDNS }),
	},
	{
		"founders", "0",
		"with --discover: how many empty nodes must be found before coordd found founds a " +
			"cluster with them; the same on every node; 0: this node only joins",
		setNumber(func(c *config, n int) { c.Founders = n }, 0),
	},
	{
		"learner", "no",
		"never vote: serve stale reads and backups only; requires --join or --discover",
		setYesNo(func(c *config) *bool { return &c.Learner }),
	},
	{
		"leader-priority", strconv.Itoa(cluster.DefaultPriority),
		"1 to 1000: leadership goes to the voter with the highest that has caught up",
		setPriority,
	},
	{
		"zone", "",
		"availability zone of this node, which clients see in HELLO, INFO and CLUSTER",
		setZone,
	},
	{
		"autoremove-after", "0s",
		"how long the leader must not have reached a member before it removes it for good, if " +
			"that helps; the same on every node; 0: never",
		setDuration(func(c *config) *time.Duration { return &c.AutoremoveAfter }, 0),
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
		"host:port for the page, /healthz and /readyz; empty: off",
		setAddress(func(c *config) *string { return &c.HTTPListen }),
	},
	{
		"http-tls", "no",
		"serve --http-listen over TLS, with --tls-cert and --tls-key",
		setYesNo(func(c *config) *bool { return &c.HTTPTLS }),
	},
	{
		"http-page", "yes",
		"no: --http-listen has no page for operators",
		setYesNo(func(c *config) *bool { return &c.httpPage }),
	},
	{
		"insecure-http", "no",
		"accept passwords on the page from other machines without TLS",
		setYesNo(func(c *config) *bool { return &c.HTTPInsecure }),
	},
	{
		"metrics-token-file", "",
		"file of tokens, one a line, of which /metrics demands one as Authorization: Bearer; " +
			"read again on SIGHUP; empty: everyone reads it",
		setAny(func(c *config) *string { return &c.MetricsTokenFile }),
	},
	{
		"log-store", "wal",
		"log storage: wal, or bolt (slower); fixed for a data directory",
		setChoice(func(c *config) *string { return &c.LogStore }, "wal", "bolt"),
	},
	{
		"log-format", "auto",
		"text, json, or auto: text on a terminal, json elsewhere",
		setChoice(func(c *config) *string { return &c.logFormat }, "auto", "text", "json"),
	},
	{
		"otlp", "",
		"URL of an OpenTelemetry collector, such as http://127.0.0.1:4318, that gets spans of " +
			"requests by OTLP over HTTP; empty: none",
		setTraces,
	},
	{
		"otlp-sample", "0.01",
		"share of requests that have spans, above 0 to 1",
		setSample,
	},
	{
		"audit-log", "",
		"file for the audit trail, or stderr; empty: none",
		setAny(func(c *config) *string { return &c.Audit.File }),
	},
	{
		"audit-syslog", "",
		"syslog for the audit trail, with or without --audit-log: local, unix:///PATH, " +
			"udp://HOST:PORT or tcp://HOST:PORT; empty: none",
		setSyslog,
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
		"present-as", "replicated",
		"what clients see in this node. replicated: a master with replicas, or one of these, " +
			"as it is; CLUSTER and SENTINEL name the others. standalone: a server of its own, " +
			"for clients that are given one address. cluster: a node of a Redis Cluster; as a " +
			"follower it answers commands with keys with MOVED, for cluster clients only",
		setPresentAs,
	},
	{
		"redis-version", commands.WholeVersion,
		"version of Redis that INFO and HELLO report, for clients that refuse a lower one; it " +
			"changes no command, and scripts see " + commands.RedisVersion,
		setRedisVersion,
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
		"maxmemory", "0",
		"bytes that the data of a new cluster may count, such as 2gb, before commands that need " +
			"more are refused; CONFIG SET maxmemory changes it on all nodes; 0: no limit",
		setMaxMemory,
	},
	{
		"max-subscriber-bytes", "33554432",
		"bytes of messages queued for a slow subscriber before it is closed",
		setNumber(func(c *config, n int) { c.MaxSubscriberBytes = n }, 1024),
	},
	{
		"max-reply-bytes", "134217728",
		"bytes of large replies in memory on this node, at least 64 MiB",
		setNumber(func(c *config, n int) { c.MaxReplyBytes = int64(n) }, server.MinReplyBytes),
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
