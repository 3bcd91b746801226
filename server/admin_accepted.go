// Parameters of CONFIG about the insides of Redis, which this server does not have or decides by
// itself. CONFIG SET checks them as Redis does, and CONFIG GET shows what was set. They have no
// effect, and are as before when the node starts again. docs/compatibility.md lists them.

package server

import (
	"math"
	"slices"
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/ascii"
	"github.com/coordd/coordd/internal/lockorder"
)

// acceptedValue is the value of a parameter without effect, under all of its names. own, if set,
// returns the initial one.
type acceptedValue struct {
	initial string
	own     func(*Server) string
}

// acceptedValues holds those that CONFIG SET has changed.
type acceptedValues struct {
	mu  lockorder.Mutex
	set map[*acceptedValue]string
}

func (s *Server) acceptedText(v *acceptedValue) string {
	a := &s.config.accepted
	a.mu.Lock()
	text, ok := a.set[v]
	a.mu.Unlock()
	switch {
	case ok:
		return text
	case v.own != nil:
		return v.own(s)
	}
	return v.initial
}

func (a *acceptedValues) put(v *acceptedValue, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.set == nil {
		a.set = map[*acceptedValue]string{}
	}
	a.set[v] = text
}

// accepted declares parameters with the same initial value. A slash separates the names of one.
// parse returns a value as CONFIG GET shows it.
func accepted(initial string, parse func(text string) (string, error), names ...string) []param {
	return acceptedFrom(acceptedValue{initial: initial}, parse, names...)
}

func acceptedFrom(initial acceptedValue, parse func(text string) (string, error),
	names ...string) []param {
	var all []param
	for _, aliases := range names {
		v := new(acceptedValue)
		*v = initial
		for name := range strings.SplitSeq(aliases, "/") {
			all = append(all, param{name: name, accepted: true,
				get: func(s *Server) string { return s.acceptedText(v) },
				choose: func(text string) (func(*Server), error) {
					shown, err := parse(text)
					return func(s *Server) { s.config.accepted.put(v, shown) }, err
				},
			})
		}
	}
	return all
}

// WithoutEffect reports whether CONFIG SET accepts a parameter of that name without an effect.
func WithoutEffect(name string) bool {
	p := findParam([]byte(name))
	return p != nil && p.accepted
}

func parseSwitch(text string) (string, error) {
	switch text = ascii.Lower(text); text {
	case "yes", "no":
		return text, nil
	}
	return "", errSwitch
}

// parseNumber returns the parser of an integer.
func parseNumber(low, most int64) func(string) (string, error) {
	return func(text string) (string, error) {
		n, ok := commands.ParseInt([]byte(text))
		switch {
		case !ok:
			return "", errNotInteger
		case n < low || n > most:
			return "", errRange(low, most)
		}
		return formatInt(n), nil
	}
}

// parseBytes returns the parser of a size such as 64mb, at least low bytes.
func parseBytes(low int64) func(string) (string, error) {
	return func(text string) (string, error) {
		n, ok := parseMemory(text)
		switch {
		case !ok && text != "": // which is 0
			return "", errNotMemory
		case n < low:
			return "", errRange(low, maxInt64)
		}
		return formatInt(n), nil
	}
}

// parseWord returns the parser of one word.
func parseWord(words ...string) func(string) (string, error) {
	return func(text string) (string, error) {
		if text = ascii.Lower(text); !slices.Contains(words, text) {
			return "", commands.Error("argument(s) must be one of the following: " +
				strings.Join(words, ", "))
		}
		return text, nil
	}
}

// parseShutdown parses what a signal does: words, the first of which stands for none.
func parseShutdown(text string) (string, error) {
	var chosen []string
	for _, word := range shutdownWords {
		for given := range strings.SplitSeq(text, " ") {
			if !slices.Contains(shutdownWords, ascii.Lower(given)) {
				return parseWord(shutdownWords...)(given)
			}
			if ascii.Equal(given, word) && word != shutdownWords[0] {
				chosen = append(chosen, word)
				break
			}
		}
	}
	if len(chosen) == 0 {
		return shutdownWords[0], nil
	}
	return strings.Join(chosen, " "), nil
}

var shutdownWords = []string{"default", "save", "nosave", "now", "force"}

// parseSave parses when Redis would write its file: seconds and changes, any number of times.
func parseSave(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	words := strings.Split(text, " ")
	for i, word := range words {
		n, ok := commands.ParseInt([]byte(word))
		if !ok || n < 0 || n < 1 && i%2 == 0 {
			return "", errSaveParams
		}
	}
	if len(words)%2 != 0 {
		return "", errSaveParams
	}
	return text, nil
}

func parseOOMScores(text string) (string, error) {
	words := strings.Split(text, " ")
	if len(words) != 3 {
		return "", commands.Error("wrong number of arguments")
	}
	for _, word := range words {
		if n, ok := commands.ParseInt([]byte(word)); !ok || n < -2000 || n > 2000 {
			return "", commands.Error(
				"Invalid oom-score-adj-values, elements must be between -2000 and 2000.")
		}
	}
	return text, nil
}

// within has parse return the nearest number between two.
func within(low, most int64, parse func(string) (string, error)) func(string) (string, error) {
	return func(text string) (string, error) {
		shown, err := parse(text)
		if err != nil {
			return "", err
		}
		n, _ := commands.ParseInt([]byte(shown))
		return formatInt(min(max(n, low), most)), nil
	}
}

func parseOOM(text string) (string, error) {
	shown, err := parseWord("no", "yes", "relative", "absolute")(text)
	if shown == "relative" {
		shown = "yes"
	}
	return shown, err
}

func parseAny(text string) (string, error) { return text, nil }

const (
	errSwitch     commands.Error = "argument must be 'yes' or 'no'"
	errNotInteger commands.Error = "argument couldn't be parsed into an integer"
	errNotMemory  commands.Error = "argument must be a memory value"
	errSaveParams commands.Error = "Invalid save parameters"
)

func errRange(low, most int64) error {
	return commands.Errorf("argument must be between %d and %d inclusive", low, most)
}

// hidden keeps parameters out of the replies to patterns.
func hidden(all []param) []param {
	for i := range all {
		all[i].hidden = true
	}
	return all
}

var acceptedParams = slices.Concat(
	// Every write is on disk before it is acknowledged; nothing else is saved.
	accepted("yes", parseSwitch, "appendonly"),
	accepted("always", parseWord("everysec", "always", "no"), "appendfsync"),
	accepted("", parseSave, "save"),
	accepted("no", parseSwitch, "stop-writes-on-bgsave-error", "no-appendfsync-on-rewrite",
		"aof-timestamp-enabled", "aof-disable-auto-gc", "rdb-del-sync-files"),
	accepted("yes", parseSwitch, "aof-load-truncated", "aof-rewrite-incremental-fsync",
		"aof-use-rdb-preamble", "rdb-save-incremental-fsync", "rdbcompression"),
	accepted("67108864", parseBytes(0), "auto-aof-rewrite-min-size"),
	accepted("100", parseNumber(0, math.MaxInt32), "auto-aof-rewrite-percentage"),

	// A count of instructions stops scripts, long before anybody could be told BUSY.
	accepted("0", parseNumber(0, maxInt64), "busy-reply-threshold/lua-time-limit"),

	// Nothing is evicted: a lock that is evicted is lost. Past maxmemory writes are refused.
	accepted("noeviction", parseWord("volatile-lru", "volatile-lfu", "volatile-random",
		"volatile-ttl", "allkeys-lru", "allkeys-lfu", "allkeys-random", "noeviction"),
		"maxmemory-policy"),
	accepted("5", parseNumber(1, math.MaxInt32), "maxmemory-samples"),
	accepted("10", parseNumber(0, 100), "maxmemory-eviction-tenacity"),
	accepted("10", parseNumber(0, math.MaxInt32), "lfu-log-factor"),
	accepted("1", parseNumber(0, math.MaxInt32), "lfu-decay-time"),

	// Raft replicates.
	accepted("no", parseSwitch, "replica-read-only/slave-read-only", "repl-disable-tcp-nodelay",
		"replica-lazy-flush/slave-lazy-flush", "replica-ignore-disk-write-errors"),
	accepted("yes", parseSwitch, "repl-diskless-sync", "replica-announced",
		"replica-serve-stale-data/slave-serve-stale-data",
		"replica-ignore-maxmemory/slave-ignore-maxmemory"),
	accepted("disabled", parseWord("disabled", "on-empty-db", "swapdb"), "repl-diskless-load"),
	accepted("0", parseNumber(0, math.MaxInt32), "repl-diskless-sync-max-replicas"),
	accepted("5", parseNumber(0, math.MaxInt32), "repl-diskless-sync-delay"),
	accepted("10", parseNumber(1, math.MaxInt32),
		"repl-ping-replica-period/repl-ping-slave-period"),
	accepted("60", parseNumber(1, math.MaxInt32), "repl-timeout"),
	accepted("1048576", within(16<<10, maxInt64, parseBytes(1)), "repl-backlog-size"),
	accepted("3600", parseNumber(0, maxInt64), "repl-backlog-ttl"),
	accepted("100", parseNumber(0, math.MaxInt32), "replica-priority/slave-priority"),
	accepted("10", parseNumber(0, math.MaxInt32), "min-replicas-max-lag/min-slaves-max-lag"),
	accepted("ignore", parseWord("ignore", "panic", "panic-on-replicas"),
		"propagation-error-behavior"),

	// One shard, whose leader Raft elects.
	accepted("no", parseSwitch, "cluster-allow-reads-when-down",
		"cluster-replica-no-failover/cluster-slave-no-failover"),
	accepted("yes", parseSwitch, "cluster-allow-pubsubshard-when-down",
		"cluster-allow-replica-migration", "cluster-require-full-coverage"),
	accepted("15000", parseNumber(0, maxInt64), "cluster-node-timeout"),
	accepted("1", parseNumber(0, math.MaxInt32), "cluster-migration-barrier"),
	accepted("10", parseNumber(0, math.MaxInt32),
		"cluster-replica-validity-factor/cluster-slave-validity-factor"),
	accepted("0", parseBytes(0), "cluster-link-sendbuf-limit"),
	accepted("ip", parseWord("ip", "hostname", "unknown-endpoint"),
		"cluster-preferred-endpoint-type"),

	// The forms of values are the same on every node.
	accepted("512", parseNumber(0, maxInt64), "hash-max-listpack-entries/hash-max-ziplist-entries",
		"set-max-intset-entries"),
	accepted("64", parseBytes(0), "hash-max-listpack-value/hash-max-ziplist-value",
		"zset-max-listpack-value/zset-max-ziplist-value"),
	accepted("128", parseNumber(0, maxInt64),
		"zset-max-listpack-entries/zset-max-ziplist-entries"),
	accepted("-2", parseNumber(math.MinInt32, math.MaxInt32),
		"list-max-listpack-size/list-max-ziplist-size"),
	accepted("0", parseNumber(0, math.MaxInt32), "list-compress-depth"),
	accepted("100", parseNumber(0, maxInt64), "stream-node-max-entries"),
	accepted("4096", parseBytes(0), "stream-node-max-bytes"),
	accepted("3000", parseBytes(0), "hll-sparse-max-bytes"),
	accepted("no", parseWord("no", "yes", "clients"), "sanitize-dump-payload"),

	// Requests have a limit of their own, --max-request-bytes.
	acceptedFrom(acceptedValue{own: func(s *Server) string {
		return formatInt(int64(s.cfg.MaxRequestBytes))
	}}, parseBytes(1<<20), "client-query-buffer-limit", "proto-max-bulk-len"),

	// The work of the server in the background, its log and its process.
	accepted("no", parseSwitch, "lazyfree-lazy-eviction", "lazyfree-lazy-expire",
		"lazyfree-lazy-server-del", "lazyfree-lazy-user-del", "lazyfree-lazy-user-flush"),
	accepted("yes", parseSwitch, "activerehashing", "crash-log-enabled", "crash-memcheck-enabled",
		"dynamic-hz", "jemalloc-bg-thread"),
	accepted("1", parseNumber(1, 99), "active-defrag-cycle-min"),
	accepted("25", parseNumber(1, 99), "active-defrag-cycle-max"),
	accepted("104857600", parseBytes(1), "active-defrag-ignore-bytes"),
	accepted("1000", parseNumber(1, maxInt64), "active-defrag-max-scan-fields"),
	accepted("10", parseNumber(0, 1000), "active-defrag-threshold-lower"),
	accepted("100", parseNumber(0, 1000), "active-defrag-threshold-upper"),
	accepted("1", parseNumber(1, 10), "active-expire-effort"),
	accepted("10", within(1, 500, parseNumber(0, math.MaxInt32)), "hz"),
	accepted("10", parseNumber(0, math.MaxInt32), "shutdown-timeout"),
	accepted("default", parseShutdown, "shutdown-on-sigint", "shutdown-on-sigterm"),
	accepted("notice", parseWord("debug", "verbose", "notice", "warning"), "loglevel"),
	accepted("no", parseOOM, "oom-score-adj"),
	accepted("0 200 800", parseOOMScores, "oom-score-adj-values"),
	accepted("{title} {listen-addr} {server-mode}", parseAny, "proc-title-template"),
	accepted("", parseAny, "ignore-warnings"),
	hidden(slices.Concat(
		accepted("0", parseNumber(math.MinInt32, math.MaxInt32), "key-load-delay",
			"rdb-key-save-delay"),
		accepted("2097152", parseNumber(1024, math.MaxInt32),
			"loading-process-events-interval-bytes"),
		accepted("no", parseSwitch, "use-exit-on-panic"))),
)
