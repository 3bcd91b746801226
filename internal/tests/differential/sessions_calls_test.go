// The random calls of TestDifferentialSessions, and those that it leaves out.

package differential

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// sessionSettings give both servers the same parameters. No call is logged as slow, and no
// connection is closed as idle.
var sessionSettings = [][]string{
	{"CONFIG", "SET", "notify-keyspace-events", "", "maxclients", "1000", "timeout", "0",
		"slowlog-max-len", "128", "tracking-table-max-keys", "1000000"},
	{"CONFIG", "SET", "slowlog-log-slower-than", "-1", "latency-monitor-threshold", "0"},
	{"SLOWLOG", "RESET"},
	{"ACL", "LOG", "RESET"},
}

// idPrefix begins a placeholder for the id of a connection, which differs between the servers.
const idPrefix = "<id "

var (
	clientIDs = words("99999999 0 -1 x", "", idPrefix+"1>", idPrefix+"2>", idPrefix+"3>",
		idPrefix+"4>", idPrefix+"1>", idPrefix+"2>")
	channels = words("c1 c2 c1 news.1 __redis__:invalidate __keyspace@0__:l1 __keyevent@0__:set",
		"", "\xff\x00")
	blockTimes = words("0 0 0 0 10000000 -1 x")
	// sessionPools are the pools of TestDifferentialSessions.
	sessionPools = slices.Concat([]pool{
		{"client-id", clientIDs}, {"ip:port", words("1.2.3.4:5 x")},
		{"username", words("default default default nobody")}, {"password", words("secret x", "")},
		{"connection-name", words("app me", "", "a b", "a\nb")},
		{"clientname", words("app me", "a b")}, {"protover", words("2 3 3 2 3 1 4 x")},
		{"psubscribe pattern", words("c* *1 news.? c1 * __key*__:* __keyevent@*__:*", "")},
		{"punsubscribe pattern", words("c* *1 news.? c1 * __key*__:*")},
		{"pubsub|channels pattern", words("* c* c1 none", "")},
		{"pubsub|shardchannels pattern", words("* c* c1 none")},
		{"prefix", words("k h l x1 s z", "")}, {"channel", channels}, {"message", values},
		{"ping message", values},
		{"parameter",
			words("notify-keyspace-events notify-keyspace-events notify-keyspace-events notify* " +
				"slowlog-max-len slowlog-log-slower-than " +
				"latency-monitor-threshold tracking-table-max-keys databases maxclients timeout " +
				"none")},
		{"config|set value",
			words("KEA KEA KEA AKE KE$lshztxgdn K Ex A 0 -1 10000000 99999999999999999999 abc",
				"")},
		{"category", words("x")}, {"event", words("command x")}, {"numreplicas", words("0 0 -1 x")},
		{"wait timeout", words("0 1 -1 x")},
		{"client|pause timeout", words("0 -1 x 1.5", "")},
		{"command", words("get set mset none config")}, {"slowlog|get count", counts},
		{"timeout", words("0 0 0 0 0 1000 -1 x", "")}, {"xread milliseconds", blockTimes},
		{"xreadgroup milliseconds", blockTimes}, {"bits", words("1 5 256 0 4097 x")},
	}, differentialPools)
)

// sessionAvoided are commands of connections that TestDifferentialSessions does not call, by full
// name or by its first word. docs/compatibility.md and testdata/sessions cover them.
var sessionAvoided = words(
	"acl|cat acl|help acl|genpass acl|load acl|save acl|setuser acl|deluser asking bgrewriteaof " +
		"bgsave client|help cluster command command|count command|list command|info " +
		"command|docs command|help config|help config|rewrite debug failover info lastsave " +
		"latency|graph latency|doctor latency|histogram latency|help latency|latest " +
		"memory module monitor pubsub|help readonly readwrite role save shutdown slowlog|help")

// listSessionCommands finds the commands of connections that both servers have.
func (s *sessions) listSessionCommands() {
	v := s.theirCommands()
	add := func(spec *commands.Spec) {
		container, _, _ := strings.Cut(spec.FullName(), "|")
		if spec.Local != nil && v[spec.FullName()] &&
			!slices.Contains(sessionAvoided, spec.FullName()) &&
			!slices.Contains(sessionAvoided, container) {
			s.local = append(s.local, spec)
		}
	}
	for _, spec := range s.table.All() {
		if spec.Subcommands == nil {
			add(spec)
		}
		for i := range spec.Subcommands {
			add(&spec.Subcommands[i])
		}
	}
	if len(s.local) < 45 {
		s.Fatalf("only %d commands of connections to compare", len(s.local))
	}
}

// request makes a call of one of the connections.
func (s *sessions) request(focus []*commands.Spec) request {
	d := s.differential
	q := request{conn: d.g.IntN(sessionsPerRound)}
	var call [][]byte
	messages := func(spec *commands.Spec) bool { return spec.Group == "pubsub" }
	tracking := func(spec *commands.Spec) bool {
		return spec.Name == "tracking" || spec.Name == "caching"
	}
	blocking := func(spec *commands.Spec) bool { return spec.Has(commands.Blocking) }
	switch n := d.g.IntN(100); {
	case n < 4:
		call = commandtest.Args("MULTI")
	case n < 11:
		call = commandtest.Args("EXEC")
	case n < 14:
		call = append(commandtest.Args("WATCH"), commandtest.Args(d.g.Words(watched)...)...)
	case n < 30:
		call = d.filled(d.g.Call(s.local))
	case n < 32:
		call = d.filled(d.g.Call(selected(s.local, tracking)))
	case n < 36:
		call = d.filled(d.g.Call(selected(s.local, messages)))
	case n < 38:
		call = d.stocked(d.g.IntN(len(stock)))
	case n < 46:
		q.conn = max(q.conn, 1) // one connection never waits, so that the round goes on
		call = d.filled(d.g.Call(selected(d.specs, blocking)))
	default:
		call = d.call(focus)
	}
	if len(call) > 2 && isCommand(call, "command", "acl") && d.g.IntN(4) > 0 {
		at := 2
		if hasWord(call, "dryrun") {
			at = 3
		}
		if hasWord(call, "dryrun") || hasWord(call, "getkeys") || hasWord(call, "getkeysandflags") {
			call = append(call[:min(at, len(call)):min(at, len(call))], d.plain(focus)...)
		}
	}
	q.calls = [][][]byte{call}
	return q
}

// selected are the specs for which has returns true.
func selected(specs []*commands.Spec, has func(*commands.Spec) bool) []*commands.Spec {
	return slices.DeleteFunc(slices.Clone(specs), func(spec *commands.Spec) bool {
		return !has(spec)
	})
}

// named replaces placeholders by the server's ids of connections.
func (s *sessions) named(side int, call [][]byte) [][]byte {
	if !isCommand(call, "client") {
		return call // other commands take the placeholder as text
	}
	out := slices.Clone(call)
	for i, arg := range call {
		if n, ok := strings.CutPrefix(string(arg), idPrefix); ok {
			number, _ := strconv.Atoi(strings.TrimSuffix(n, ">"))
			out[i] = []byte(s.pairs[number-1].sides[side].id)
		}
	}
	return out
}

// mayWait reports whether a call can wait.
func (s *sessions) mayWait(p *pair, call [][]byte) bool {
	spec, err := s.table.Resolve(call)
	return err == nil && !p.multi && spec.Has(commands.Blocking)
}

// adapted is the call that a connection makes, or nil if it cannot be compared.
func (s *sessions) adapted(p *pair, call [][]byte) [][]byte {
	unlock := s.own.lock()
	defer unlock()
	asked := inner(call)
	if wait, ok := shortTTL(asked); wait > 0 || !ok {
		return nil
	}
	s.watch = nil
	for _, p := range s.pairs {
		s.watch = append(s.watch, p.watch...)
	}
	for db := range databasesUsed {
		for _, c := range [][][]byte{call, tried(call)} {
			if c != nil && !isCommand(call, "watch") &&
				s.uncomparable(request{db: db, calls: [][][]byte{c}}, c) {
				return nil
			}
		}
	}
	omitted := func(call [][]byte) bool {
		return slices.ContainsFunc(sessionOmissions, func(o sessionOmission) bool {
			return o.omits(s, p, call)
		})
	}
	if omitted(asked) || omitted(call) {
		return nil
	}
	s.watch = p.watch
	if isCommand(call, "exec") && s.watchAmbiguous() {
		return commandtest.Args("DISCARD")
	}
	return call
}

// tried is the call that ACL DRYRUN asks about, or nil.
func tried(call [][]byte) [][]byte {
	if len(call) > 3 && isCommand(call, "acl") && isCommand(call[1:], "dryrun") {
		return call[3:]
	}
	return nil
}

// destination is the key in which a call stores a list or a sorted set, or nil.
func (s *sessions) destination(call [][]byte) []byte {
	spec, err := s.table.Resolve(call)
	if err != nil || !isCommand(call, "sort", "zunionstore", "zinterstore", "zdiffstore",
		"zrangestore", "geosearchstore", "georadius", "georadiusbymember") {
		return nil
	}
	uses, err := spec.KeyUses(call)
	for _, use := range uses {
		if err == nil && use.Flags&commands.KeyOW != 0 {
			return call[use.Index]
		}
	}
	return nil
}

// sessionOmission is an omission of TestDifferentialSessions.
type sessionOmission struct {
	line  string
	omits func(s *sessions, p *pair, call [][]byte) bool
}

var sessionOmissions = []sessionOmission{
	// In a transaction the real server cannot be given what ours chose.
	{"", func(_ *sessions, p *pair, call [][]byte) bool {
		return p.multi && (isCommand(call, "spop") ||
			(isCommand(call, "xadd") && entryID(call) > 0))
	}},
	// Redis puts messages inside EXEC's reply, and inside those of commands that create a consumer
	// after they began to reply.
	{pushLine, func(_ *sessions, p *pair, call [][]byte) bool {
		return p.subscribed &&
			(isCommand(call, "multi", "xreadgroup", "xclaim", "xautoclaim") ||
				strings.Contains(strings.ToLower(string(call[0])), "pop"))
	}},
	{"| `HELLO`, `CLIENT TRACKING`, `CLIENT CACHING`, `CONFIG SET` inside `MULTI` |",
		func(_ *sessions, p *pair, call [][]byte) bool {
			return p.multi && (isCommand(call, "hello") ||
				(isCommand(call, "config") && hasWord(call, "set")) ||
				(isCommand(call, "client") &&
					(hasWord(call, "tracking") || hasWord(call, "caching"))))
		}},
	{"| `CLIENT TRACKING … NOLOOP`", func(_ *sessions, _ *pair, call [][]byte) bool {
		return isCommand(call, "client") && hasWord(call, "noloop")
	}},
	{"| `CLIENT TRACKING … PREFIX` of which the second",
		func(_ *sessions, _ *pair, call [][]byte) bool {
			return isCommand(call, "client") && laterOverlap(call)
		}},
	{"| Which keys a script has read (`CLIENT TRACKING`) |",
		func(_ *sessions, p *pair, call [][]byte) bool {
			return p.tracking && isCommand(call, "eval", "eval_ro", "evalsha", "evalsha_ro",
				"fcall",
				"fcall_ro")
		}},
	{stoppedLine, func(_ *sessions, p *pair, call [][]byte) bool {
		return p.stopped && isCommand(call, "client") && hasWord(call, "tracking") &&
			hasWord(call, "on")
	}},
	{severalLine, func(s *sessions, _ *pair, call [][]byte) bool {
		return isCommand(call, "swapdb") && s.severalWaited()
	}},
	{"| `SORT … STORE`, `ZINTERSTORE` and kin over a value of another type |",
		func(s *sessions, p *pair, call [][]byte) bool {
			key := s.destination(call)
			return key != nil && s.node.read(p.db, commandtest.Args("TYPE", string(key))).Text !=
				"none" && slices.ContainsFunc(s.pairs, func(p *pair) bool { return p.waits != nil })
		}},
	// an id that a connection may have in one of the servers only
	{"", func(_ *sessions, _ *pair, call [][]byte) bool {
		return isCommand(call, "client") && (hasWord(call, "id") || hasWord(call, "redirect")) &&
			slices.ContainsFunc(call, func(arg []byte) bool {
				id, ok := commands.ParseInt(arg)
				return ok && id > 0 && id < math.MaxInt64
			})
	}},
	{pushLine, func(s *sessions, _ *pair, call [][]byte) bool {
		return isCommand(call, "client") && slices.ContainsFunc(s.redirects(call),
			func(p *pair) bool {
				return p.multi
			})
	}},
	{"| `SWAPDB` for clients that track |", func(s *sessions, p *pair, call [][]byte) bool {
		return s.willTrack(p) && isCommand(call, "swapdb")
	}},
	{"| `XGROUP DESTROY` |", func(s *sessions, p *pair, call [][]byte) bool {
		return s.willTrack(p) && isCommand(call, "xgroup") && hasWord(call, "destroy")
	}},
	// What a transaction pushes may be taken before its CLIENT LIST is answered.
	{pushedLine, func(_ *sessions, p *pair, call [][]byte) bool {
		return p.multi && isCommand(call, "client") &&
			(hasWord(call, "list") || hasWord(call, "unblock"))
	}},
	// The real server runs SREM instead, which makes a different event.
	{"", func(s *sessions, _ *pair, call [][]byte) bool {
		return isCommand(call, "spop") && slices.ContainsFunc(s.pairs, func(p *pair) bool {
			return p.subscribed
		})
	}},
	{"| `CLIENT PAUSE` with a time that overflows the clock |",
		func(_ *sessions, _ *pair, call [][]byte) bool {
			return isCommand(call, "client") && hasWord(call, "pause") &&
				hasWord(call, "9223372036854775807")
		}},
	// It would delay the test's own connection.
	{"", func(_ *sessions, _ *pair, call [][]byte) bool {
		n, ok := commands.ParseInt(argument(call, 2))
		return isCommand(call, "client") && hasWord(call, "pause") && ok && n > 0
	}},
	// Redis answers with more elements than it announces.
	{"", func(_ *sessions, p *pair, call [][]byte) bool {
		return p.multi && isCommand(call, "subscribe", "psubscribe", "ssubscribe", "unsubscribe",
			"punsubscribe", "sunsubscribe")
	}},
	{"(Redis 8.4)", func(_ *sessions, _ *pair, call [][]byte) bool { return newer(call) }},
	{"| The message about a key whose change ends an `XREAD BLOCK` that tracks it |",
		func(_ *sessions, p *pair, call [][]byte) bool {
			return p.tracking && !p.multi && isCommand(call, "xread") && hasWord(call, "block")
		}},
	{"| `XREAD`, `XREADGROUP` that waits and names a stream twice |",
		func(s *sessions, p *pair, call [][]byte) bool {
			return s.mayWait(p, call) && isCommand(call, "xread", "xreadgroup") &&
				s.namesTwice(call)
		}},
	// A wait that times out during the test.
	{"", func(s *sessions, p *pair, call [][]byte) bool {
		if !s.mayWait(p, call) {
			return false
		}
		index, unit := len(call)-1, int64(1000)
		switch {
		case isCommand(call, "blmpop", "bzmpop"):
			index = 1
		case isCommand(call, "xread", "xreadgroup"):
			index, unit = 1+slices.IndexFunc(call, func(arg []byte) bool {
				return strings.EqualFold(string(arg), "block")
			}), 1
		}
		seconds, err := strconv.ParseFloat(string(argument(call, index)), 64)
		return err == nil && seconds > 0 && seconds*float64(unit) < 1_000_000
	}},
	// Without replies there is nothing to compare.
	{"", func(_ *sessions, _ *pair, call [][]byte) bool {
		return isCommand(call, "client") && hasWord(call, "reply") &&
			(hasWord(call, "off") || hasWord(call, "skip"))
	}},
	// It would also close the test's own connection.
	{"", func(_ *sessions, _ *pair, call [][]byte) bool {
		return isCommand(call, "client") && hasWord(call, "kill") && !hasWord(call, "id") &&
			!hasWord(call, "addr") && !hasWord(call, "laddr") && lastType(call) != "pubsub"
	}},
	{"| `CLIENT KILL` | ", func(_ *sessions, _ *pair, call [][]byte) bool {
		return isCommand(call, "client") && newFilters(call)
	}},
	// Limits that calls of the test would meet.
	{"", func(_ *sessions, _ *pair, call [][]byte) bool {
		return isCommand(call, "config") && hasWord(call, "set") &&
			slices.ContainsFunc(
				words("maxclients timeout slowlog-log-slower-than latency-monitor-threshold"),
				func(name string) bool { return hasWord(call, name) })
	}},
}

// newFilters reports whether a CLIENT LIST or CLIENT KILL has filters, or several, that Redis 7.0
// does not have.
func newFilters(call [][]byte) bool {
	if len(call) < 4 || !hasWord(call[:2], "list") && !hasWord(call[:2], "kill") {
		return false
	}
	ids, others := 0, 0
	for _, arg := range call[2:] {
		switch word := strings.ToLower(string(arg)); word {
		case "id":
			ids++
		case "type", "user", "addr", "laddr", "skipme":
			others++
		case "maxage", "idle", "name", "flags", "lib-name", "lib-ver", "db", "capa", "ip":
			return true
		default:
			if strings.HasPrefix(word, "not-") {
				return true
			}
		}
	}
	if hasWord(call[:2], "list") {
		return ids+others > 1 || others == 1 && !hasWord(call[1:3], "type")
	}
	return ids > 1 || ids == 1 && len(call)%2 == 1
}

// lastType is the type of clients that a CLIENT KILL closes: the last TYPE counts.
func lastType(call [][]byte) (name string) {
	for i, arg := range call[:len(call)-1] {
		if strings.EqualFold(string(arg), "type") {
			name = strings.ToLower(string(call[i+1]))
		}
	}
	return name
}

// laterOverlap reports whether one of a call's prefixes, but not the first, begins another or with
// another.
func laterOverlap(call [][]byte) bool {
	var prefixes []string
	for i, arg := range call {
		if strings.EqualFold(string(arg), "prefix") && i+1 < len(call) {
			prefixes = append(prefixes, string(call[i+1]))
		}
	}
	for i, p := range prefixes {
		if slices.ContainsFunc(prefixes[i+1:], func(other string) bool {
			return strings.HasPrefix(p, other) || strings.HasPrefix(other, p)
		}) {
			return i > 0
		}
	}
	return false
}

// redirects are the connections that CLIENT TRACKING names.
func (s *sessions) redirects(call [][]byte) (targets []*pair) {
	for _, p := range s.pairs {
		if hasWord(call, "tracking") && hasWord(call, fmt.Sprint(idPrefix, p.number, ">")) {
			targets = append(targets, p)
		}
	}
	return targets
}

// willTrack reports whether a connection may track keys when a call of p runs, which in a
// transaction is later.
func (s *sessions) willTrack(p *pair) bool {
	return p.multi || slices.ContainsFunc(s.pairs, func(p *pair) bool { return p.tracking })
}

// severalWaited reports whether a connection waits for several keys: SWAPDB could bring more than
// one of them, see severalLine.
func (s *sessions) severalWaited() bool {
	return slices.ContainsFunc(s.pairs, func(p *pair) bool {
		return p.waits != nil && s.hasSeveral(p.waits)
	})
}

// hasSeveral reports whether a call has several keys.
func (s *sessions) hasSeveral(call [][]byte) bool {
	spec, err := s.table.Resolve(call)
	if err != nil {
		return false
	}
	indexes, _ := spec.KeyIndexes(call)
	return len(indexes) > 1
}

// namesTwice reports whether a call has one key twice.
func (s *sessions) namesTwice(call [][]byte) bool {
	spec, err := s.table.Resolve(call)
	if err != nil {
		return false
	}
	seen := map[string]bool{}
	indexes, _ := spec.KeyIndexes(call)
	for _, at := range indexes {
		if seen[string(call[at])] {
			return true
		}
		seen[string(call[at])] = true
	}
	return false
}

// database is the argument of SELECT.
func database(call [][]byte) int {
	n, _ := strconv.Atoi(string(argument(call, 1)))
	return n
}

// reportSessions logs what was compared, and fails if that is too little.
func (s *sessions) reportSessions(calls int) {
	for line, n := range s.excused {
		s.Logf("%6d replies differ as docs/compatibility.md says: %s", n, line)
	}
	var never []string
	for _, spec := range s.local {
		if s.seen[spec.FullName()] == 0 {
			never = append(never, spec.FullName())
		}
	}
	s.Logf("%d calls, %d commands of connections; %d calls waited, %d messages, %d invalidated "+
		"keys, %d closed connections",
		s.calls, len(s.local), s.waited, s.messages, s.changed, s.closed)
	if calls >= 100_000 && (len(never) > 0 || s.waited < 50 || s.messages < 100 || s.changed < 50 ||
		s.closed < 50) {
		s.Errorf("too little was compared; these commands never succeeded: %v", never)
	}
}
