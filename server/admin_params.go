// The parameters of CONFIG: those that can be changed, and those that clients, libraries and
// exporters read, with their actual values.

package server

import (
	"crypto/tls"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/ascii"
	"github.com/coordd/coordd/internal/halfopen"
	"github.com/coordd/coordd/internal/locks"
)

// param is one parameter. Without set, choose or share it has a fixed value, and accepts only
// that; a frozen one rejects even that, as in Redis.
type param struct {
	name     string
	get      func(*Server) string
	set      func(*Server, int64)
	low, max int64 // bounds of the number that set takes
	// in place of set, for values that are not numbers
	choose func(text string) (apply func(*Server), err error)
	// in place of set: the setting of all nodes that text stands for
	share  func(s *Server, text string) (setting, error)
	fits   func(*Server, int64) error // with set: checks beyond low and max
	frozen bool
	// protected ones reject every change, with another error
	protected bool
	accepted  bool // it has no effect
	hidden    bool // no pattern finds it
}

func fixed(name, value string) param {
	return param{name: name, get: func(*Server) string { return value }}
}

func frozen(name, value string) param {
	p := fixed(name, value)
	p.frozen = true
	return p
}

// atomicNumber stores the value of a numberParam.
type atomicNumber = interface {
	Load() int64
	Store(int64)
}

func numberParam(name string, low, max int64, in func(*Server) atomicNumber) param {
	return param{
		name: name, low: low, max: max,
		get: func(s *Server) string { return formatInt(in(s).Load()) },
		set: func(s *Server, n int64) { in(s).Store(n) },
	}
}

// logThreshold is from when on a command log has calls; -1: it has none.
func logThreshold(name string, kind logKind) param {
	return numberParam(name, -1, maxInt64, func(s *Server) atomicNumber {
		return &s.commandLogs[kind].threshold
	})
}

// logLength is how many calls a command log keeps.
func logLength(name string, kind logKind) param {
	return numberParam(name, 0, maxInt64, func(s *Server) atomicNumber {
		return &s.commandLogs[kind].maxLen
	})
}

// switchParam is yes or no.
func switchParam(name string, in func(*Server) *atomic.Bool) param {
	return param{
		name: name,
		get:  func(s *Server) string { return yesNo(in(s).Load()) },
		choose: func(text string) (func(*Server), error) {
			on := ascii.Equal(text, "yes")
			if !on && !ascii.Equal(text, "no") {
				return nil, errSwitch
			}
			return func(s *Server) { in(s).Store(on) }, nil
		},
	}
}

const (
	maxInt64         = 1<<63 - 1
	mostLeaderWaitMs = 1<<31 - 1
)

var params = slices.Concat([]param{
	{name: "maxclients", get: func(s *Server) string {
		return formatInt(s.config.maxClients.Load())
	}, set: (*Server).setMaxClients, low: 1, max: 1<<32 - 1, fits: (*Server).fitsFiles},
	{
		name: "timeout", low: 0, max: 1<<31 - 1, // seconds
		get: func(s *Server) string {
			idle := time.Duration(s.config.idleTimeout.Load())
			return formatInt(int64((idle + time.Second - 1) / time.Second)) // 0 means never
		},
		set: func(s *Server, n int64) {
			s.config.idleTimeout.Store(n * int64(time.Second))
			s.wakeCron()
		},
	},
	numberParam("tcp-keepalive", 0, 1<<31-1, func(s *Server) atomicNumber {
		return &s.config.keepAlive
	}),
	{name: "maxmemory-clients", get: func(s *Server) string {
		return s.clientMemory.chosen.Load().String()
	}, choose: chooseClientMemory},
	{name: "tracking-table-max-keys", low: 0, max: maxInt64, get: func(s *Server) string {
		return formatInt(s.tracking.maxKeys.Load())
	}, set: (*Server).setTrackedKeys},
	logThreshold("slowlog-log-slower-than", slowCalls), logLength("slowlog-max-len", slowCalls),
	logThreshold("commandlog-execution-slower-than", slowCalls),
	logLength("commandlog-slow-execution-max-len", slowCalls),
	logThreshold("commandlog-request-larger-than", largeRequests),
	logLength("commandlog-large-request-max-len", largeRequests),
	logThreshold("commandlog-reply-larger-than", largeReplies),
	logLength("commandlog-large-reply-max-len", largeReplies),
	numberParam("acllog-max-len", 0, maxInt64, func(s *Server) atomicNumber {
		return &s.denials.maxLen
	}),
	numberParam("latency-monitor-threshold", 0, maxInt64, func(s *Server) atomicNumber {
		return &s.latency.threshold
	}),
	switchParam("latency-tracking", func(s *Server) *atomic.Bool {
		return &s.config.trackLatency
	}),
	switchParam("protected-mode", func(s *Server) *atomic.Bool { return &s.config.protected }),
	{name: "latency-tracking-info-percentiles", get: func(s *Server) string {
		return percentileText(*s.config.percentiles.Load())
	}, choose: choosePercentiles},
	{name: commands.SettingNotify, get: notifyText, share: shareNotify},
	{name: "requirepass", get: passwordText, share: sharePassword},
	{name: commands.SettingMaxMemory, get: maxMemoryText, share: shareMaxMemory},
	{name: commands.SettingRequestWork, get: requestWorkText, share: shareRequestWork},
	{name: "port", get: func(s *Server) string {
		plain, _ := s.ports()
		return strconv.Itoa(plain)
	}},
	{name: "tls-port", get: func(s *Server) string {
		_, tls := s.ports()
		return strconv.Itoa(tls)
	}},
	{name: "tls-cert-file", get: func(s *Server) string { return s.cfg.TLS.Cert }},
	{name: "tls-key-file", get: func(s *Server) string { return s.cfg.TLS.Key }},
	{name: "tls-ca-cert-file", get: func(s *Server) string { return s.cfg.TLS.CA }},
	{name: "tls-auth-clients-user", get: func(s *Server) string {
		if s.cfg.TLSUsers {
			return "CN"
		}
		return "off"
	}},
	{name: "tls-auth-clients", get: func(s *Server) string {
		switch s.cfg.TLSClientAuth {
		case tls.NoClientCert:
			return "no"
		case tls.VerifyClientCertIfGiven:
			return "optional"
		}
		return "yes"
	}},
	frozen("databases", strconv.Itoa(databases)),
	{name: "cluster-enabled", frozen: true, get: func(s *Server) string {
		return yesNo(!s.alone())
	}},
	frozen("daemonize", "no"), frozen("supervised", "no"),
	frozen("io-threads-do-reads", "no"),
	frozen("enable-module-command", "no"), frozen("enable-debug-command", "yes"),
	{name: "aclfile", frozen: true, get: func(s *Server) string { return s.cfg.UsersFile }},
	{name: zoneField, get: func(s *Server) string { return s.cfg.Zone }},
	{name: "unixsocket", frozen: true, get: func(s *Server) string { return s.cfg.UnixSocket }},
	{name: "unixsocketperm", frozen: true, get: func(s *Server) string {
		return strconv.FormatUint(uint64(s.cfg.UnixSocketPerm), 8)
	}},
	{name: "client-output-buffer-limit", get: func(s *Server) string {
		return s.config.output.Load().String()
	}, choose: chooseOutputLimits},
	{name: "coordd-lock-labels", get: func(s *Server) string {
		return s.cfg.Locks.Rules().String()
	}, choose: chooseLockLabels},
	numberParam("coordd-leader-wait", -1, mostLeaderWaitMs, func(s *Server) atomicNumber {
		return &s.config.leaderWaitMs
	}),
	numberParam("coordd-max-user-clients", 0, 1<<32-1, func(s *Server) atomicNumber {
		return &s.userClients.most
	}),
	addressesParam("coordd-allow-from", func(s *Server) *halfopen.Gate { return s.gate }),
	addressesParam("coordd-http-allow-from", func(s *Server) *halfopen.Gate { return s.httpGate }),
	rateParam("coordd-client-rate", func(l *rateLimits) *Rate { return &l.client }),
	rateParam("coordd-user-rate", func(l *rateLimits) *Rate { return &l.user }),

	{name: "min-replicas-to-write", max: math.MaxInt32, accepted: true, fits: fitsQuorum,
		get: minReplicas, set: setMinReplicas},
	{name: "min-slaves-to-write", max: math.MaxInt32, accepted: true, fits: fitsQuorum,
		get: minReplicas, set: setMinReplicas},

	// Flags say these, or nothing does.
	{name: "bind", get: func(s *Server) string { return s.cfg.Bind }},
	{name: "dir", protected: true, get: func(s *Server) string { return s.cfg.DataDir }},
	{name: "dbfilename", protected: true, get: func(*Server) string { return "" }},
	{name: "tls-cluster", get: func(s *Server) string { return yesNo(s.cfg.PeerTLS) }},
	{name: "tls-replication", get: func(s *Server) string { return yesNo(s.cfg.PeerTLS) }},
	fixed("acl-pubsub-default", "resetchannels"), fixed("activedefrag", "no"),
	// Nodes do not log in to each other as clients.
	fixed("masterauth", ""), fixed("masteruser", ""),
	frozen("replicaof", ""), frozen("slaveof", ""),
	fixed("bind-source-addr", ""), fixed("replica-announce-ip", ""),
	fixed("slave-announce-ip", ""), fixed("replica-announce-port", "0"),
	fixed("slave-announce-port", "0"), fixed("cluster-announce-ip", ""),
	fixed("cluster-announce-hostname", ""), fixed("cluster-announce-port", "0"),
	fixed("cluster-announce-tls-port", "0"), fixed("cluster-announce-bus-port", "0"),
	fixed("tls-ca-cert-dir", ""), fixed("tls-ciphers", ""), fixed("tls-ciphersuites", ""),
	fixed("tls-client-cert-file", ""), fixed("tls-client-key-file", ""),
	fixed("tls-client-key-file-pass", ""), fixed("tls-dh-params-file", ""),
	fixed("tls-key-file-pass", ""), fixed("tls-protocols", ""),
	fixed("tls-prefer-server-ciphers", "no"), fixed("tls-session-caching", "no"),
	fixed("tls-session-cache-size", "0"), fixed("tls-session-cache-timeout", "0"),
	frozen("always-show-logo", "no"), frozen("aof_rewrite_cpulist", ""),
	frozen("appenddirname", ""), frozen("appendfilename", ""), frozen("bgsave_cpulist", ""),
	frozen("bio_cpulist", ""), frozen("cluster-config-file", ""), frozen("cluster-port", "0"),
	frozen("disable-thp", "no"), frozen("enable-protected-configs", "no"),
	frozen("io-threads", "1"), frozen("logfile", ""), frozen("pidfile", ""),
	frozen("rdbchecksum", "yes"), frozen("server_cpulist", ""), frozen("set-proc-title", "no"),
	frozen("socket-mark-id", "0"), frozen("syslog-enabled", "no"), frozen("syslog-facility", ""),
	frozen("syslog-ident", ""), frozen("tcp-backlog", "0"),
}, acceptedParams, hidden([]param{
	fixed("watchdog-period", "0"), frozen("lua-enable-deprecated-api", "no"),
}))

// minReplicas is what CONFIG SET demanded of how many other nodes hold a write.
func minReplicas(s *Server) string { return formatInt(s.config.minReplicas.Load()) }

func setMinReplicas(s *Server, n int64) { s.config.minReplicas.Store(n) }

// fitsQuorum accepts what a majority, which holds every write, provides anyway.
func fitsQuorum(s *Server, n int64) error {
	st := s.backend.Status()
	voters, _ := st.voters()
	if most := assured(voters); n > most {
		return commands.Errorf("a majority holds every write, which is %d besides the leader for "+
			"certain", most)
	}
	return nil
}

func findParam(name []byte) *param {
	for i := range params {
		if is(name, params[i].name) {
			return &params[i]
		}
	}
	return nil
}

func yesNo(on bool) string {
	if on {
		return "yes"
	}
	return "no"
}

func chooseLockLabels(text string) (func(*Server), error) {
	rules, err := locks.ParseRules(text)
	return func(s *Server) { s.cfg.Locks.SetRules(rules) }, err
}

// defaultPercentiles are the initial percentiles of INFO latencystats.
var defaultPercentiles = []float64{50, 99, 99.9}

func choosePercentiles(text string) (func(*Server), error) {
	words := strings.Fields(text)
	list := make([]float64, len(words))
	for i, word := range words {
		f, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return nil, commands.Error("Invalid latency-tracking-info-percentiles parameters")
		}
		if !(f >= 0 && f <= 100) {
			return nil, commands.Error(
				"latency-tracking-info-percentiles parameters should sit between [0.0,100.0]")
		}
		list[i] = f
	}
	return func(s *Server) { s.config.percentiles.Store(&list) }, nil
}

// memorySizes are Redis's units of sizes.
var memorySizes = []struct {
	unit  string
	bytes int64
}{{"kb", 1 << 10}, {"mb", 1 << 20}, {"gb", 1 << 30}, {"k", 1e3}, {"m", 1e6}, {"g", 1e9}, {"b", 1},
	{"", 1}}

// parseMemory parses a size such as 64mb.
func parseMemory(text string) (bytes int64, ok bool) {
	text = ascii.Lower(text)
	for _, size := range memorySizes {
		if number, found := strings.CutSuffix(text, size.unit); found {
			n, ok := commands.ParseInt([]byte(number))
			return n * size.bytes, ok && n >= 0 && n <= maxInt64/size.bytes
		}
	}
	return 0, false
}

// ClientMemory is a value of maxmemory-clients: bytes, or a percentage of the available memory.
type ClientMemory struct {
	Bytes   int64
	Percent int64 // 1 to 100; 0: Bytes applies
}

// ParseClientMemory parses 0, a size such as 64mb, or a percentage such as 10%. An empty text is 0,
// as in Redis.
func ParseClientMemory(text string) (ClientMemory, error) {
	if text == "" {
		return ClientMemory{}, nil
	}
	if part, found := strings.CutSuffix(text, "%"); found {
		n, ok := commands.ParseInt([]byte(part))
		switch {
		case !ok || n < 0:
			return ClientMemory{}, errMemorySize
		case n > 100:
			return ClientMemory{}, errMemoryPercent
		}
		return ClientMemory{Percent: n}, nil
	}
	bytes, ok := parseMemory(text)
	if !ok {
		return ClientMemory{}, errMemorySize
	}
	return ClientMemory{Bytes: bytes}, nil
}

func (m ClientMemory) limit() int64 {
	if m.Percent > 0 {
		return int64(float64(availableMemory()) * float64(m.Percent) / 100)
	}
	return m.Bytes
}

// String returns the value as CONFIG GET shows it.
func (m ClientMemory) String() string {
	if m.Percent > 0 {
		return formatInt(m.Percent) + "%"
	}
	return formatInt(m.Bytes)
}

const (
	errMemorySize    commands.Error = "argument must be a memory or percent value"
	errMemoryPercent commands.Error = "percentage argument must be less or equal to 100"
)

func (s *Server) setMaxClients(n int64) { s.config.maxClients.Store(n) }

// fitsFiles rejects more connections than the limit of open files allows, as Redis does.
func (s *Server) fitsFiles(n int64) error {
	if most := int64(s.cfg.MostClients); most > 0 && n > most {
		return commands.Errorf(
			"The operating system is not able to handle the specified number of clients, try "+
				"with %d", most)
	}
	return nil
}

func chooseClientMemory(text string) (func(*Server), error) {
	m, err := ParseClientMemory(text)
	return func(s *Server) { s.clientMemory.choose(m) }, err
}

func percentileText(list []float64) string {
	words := make([]string, len(list))
	for i, f := range list {
		words[i] = formatPercent(f)
	}
	return strings.Join(words, " ")
}

func formatPercent(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
