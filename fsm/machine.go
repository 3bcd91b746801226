package fsm

import (
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/commands/leases"
	"github.com/coordd/coordd/commands/once"
	"github.com/coordd/coordd/commands/subscriptions"
	"github.com/coordd/coordd/fsm/script"
	"github.com/coordd/coordd/internal/invariant"
)

// Machine is the replicated state. Only entries change it; machines that applied the same entries
// are equal. It is not safe for concurrent use: one Apply, or any number of Reads, at a time.
type Machine struct {
	table  *commands.Table
	ks     *keyspace.Keyspace
	engine *script.Engine
	epoch  uint64
	level  uint64
	users  *Users
	limit  memoryLimit
	index  uint64 // index of the newest applied entry
	time   instants

	// recent are the running hashes after the newest entries, to compare with those in entries of
	// the levels that have them. They are not part of the state.
	recent [recentChecks]Check

	waiting     waiting
	subscribers *subscriptions.Counts
	leases      *leases.Registry
	once        *once.Calls // replies to requests that run once
	idBlocks    uint64      // blocks of ids that commands.SystemClientIDs has given
	positions   positions
	changes     uint64 // commands in entries that changed something; not part of the state
	requests    commands.RequestReader
	ahead       ahead
	events      *events
	witness     *commands.Witness
	facts       bool           // entries with replies report them
	known       commands.Known // for reads; nil: nothing
	times       uint64         // commands.Env.Times
	alarm       func(p any)    // gets the panic of a request; may be nil
	sweeps      int            // what an entry sweeps at most; 0: as its level says. Tests set it

	ofEntries, ofReads commands.Overseer // watch scripts; nil: nobody does
	lookups            *lookups          // counts for reads; nil: nobody counts
	// scripted receives what scripts of requests that this process answers called; it keeps nothing
	// of it. nil: nobody counts that
	scripted    func(*commands.ScriptCalls)
	scriptCalls commands.ScriptCalls // the entry's counts; the next entry reuses the memory
}

// positions are the places of an entry that its requests take.
type positions struct {
	next uint64 // place of the next request
	last uint64 // place that may be taken now
}

// recentChecks is how many entries back a leader's running hash can be compared.
const recentChecks = 4096

// NewMachine returns an empty machine that runs the commands of table.
func NewMachine(table *commands.Table) *Machine {
	ks := keyspace.New()
	m := &Machine{
		table: table, ks: ks, witness: commands.NewWitness(ks), level: firstLevel,
		users:  newUsers(acl.New(table.Catalog(firstLevel)), firstLevel, 0),
		engine: script.NewEngine(table), waiting: newWaiting(),
		subscribers: &subscriptions.Counts{}, leases: leases.New(), once: once.New(),
	}
	m.engine.SetLevel(m.level)
	m.events = newEvents()
	ks.Observe(m.changed)
	ks.ObserveLacks(m.waiting.lent.lacks)
	return m
}

// Index returns the log index of the newest applied entry.
func (m *Machine) Index() uint64 { return m.index }

// ClockMs returns the cluster clock of the newest applied entry.
func (m *Machine) ClockMs() int64 { return m.ks.Now() }

// Revision returns the revision of the newest applied entry.
func (m *Machine) Revision() keyspace.Revision {
	return keyspace.NewRevision(m.epoch, m.index, 0)
}

// NextDeadline returns the earliest deadline of any key, lease and grant that is not claimed, ms of
// the cluster clock. It has passed if the newest entry left commands to serve, or leases to drop.
func (m *Machine) NextDeadline() (clockMs int64, ok bool) {
	if len(m.waiting.ready) > 0 && !m.Held() || len(m.waiting.locks.ready) > 0 {
		return 0, true
	}
	clockMs, ok = m.ks.NextDeadline()
	for _, next := range [...]func() (int64, bool){
		m.leases.NextEnd, m.waiting.locks.claims.next,
	} {
		if atMs, some := next(); some && (!ok || atMs < clockMs) {
			clockMs, ok = atMs, true
		}
	}
	return clockMs, ok
}

// Sum returns the running hash over all changes, with the index that it is for.
func (m *Machine) Sum() Check { return Check{Index: m.index, Sum: m.ks.Sum()} }

// StateSum returns a hash by which machines compare their states, with the index that it is for:
// the running hash, the newest instant, how many scripts and libraries there are, which no change
// of a key shows, and what the machine counts and decides by. Releases that compare must compute
// the same: another hash needs another ability in package cluster.
func (m *Machine) StateSum() Check {
	b := make([]byte, 0, 128)
	for _, v := range [...]uint64{m.ks.Sum(), uint64(m.time.lastUs), uint64(m.engine.Len()),
		uint64(m.engine.LibraryCount())} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	if m.level >= commands.LevelSecond { // below, some depends on the processor, and means nothing
		for _, v := range m.engine.Counts() {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		for _, v := range [...]uint64{uint64(m.memory()), uint64(m.limit.bytes),
			uint64(m.waiting.bytes), uint64(m.waiting.lent.bytes),
			uint64(m.waiting.locks.claims.bytes),
			uint64(m.subscribers.Bytes()), m.idBlocks, uint64(m.leases.Bytes()),
			m.leases.Last()} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return Check{Index: m.index, Sum: xxhash.Sum64(b)}
}

// DivergedError reports that this machine's state is not the leader's.
type DivergedError struct {
	Index       uint64
	Own, Leader uint64
}

func (e *DivergedError) Error() string {
	return fmt.Sprintf(
		"state differs from the leader's after entry %d: running hash %016x, the leader's %016x",
		e.Index, e.Own, e.Leader)
}

// Result is what applying an entry returns.
type Result struct {
	// Replies has one element for each batch that ran, if replies were wanted. The batches after
	// them did not run: the entry had reached its work limit.
	Replies [][]byte
	// Work is what each of those batches did, in units of commands.Env.Work.
	Work   []uint64
	Ran    int              // batches that ran, whether or not replies were wanted
	Spent  uint64           // units of work of the whole entry
	Events []commands.Event // valid until the next Apply
	// Facts are what the requests did to locks and windows, if wanted, valid until the next Apply.
	Facts []commands.Fact
}

// Observe sets the filter of keys whose changes the next entries report as events; nil: none.
func (m *Machine) Observe(f Interest) { m.events.interest = f }

// Watch sets whether the next entries report the commands that scripts call as events. Only
// requests that name their client are reported.
func (m *Machine) Watch(on bool) { m.events.watched = on }

// Witness sets whether the next entries with replies report what they do to locks and windows. All
// entries mark what they use as such.
func (m *Machine) Witness(on bool) { m.facts = on }

// LockTokens returns the tokens by which owners hold locks, 0 for those that do not, and the
// largest token that there may be.
func (m *Machine) LockTokens(of []commands.HeldLock) (tokens []uint64, newest uint64) {
	tokens = make([]uint64, len(of))
	var lock commands.Lock
	var owner []byte
	for i := range of {
		l := &of[i]
		if i == 0 || l.DB != of[i-1].DB || l.Key != of[i-1].Key { // those of a key stand together
			lock = commands.FindLock(m.ks.DB(l.DB), []byte(l.Key))
		}
		owner = append(owner[:0], l.Owner...)
		tokens[i] = uint64(lock.Token(owner))
	}
	return tokens, uint64(keyspace.NewRevision(m.epoch, m.index, keyspace.MaxPosition))
}

// Notify returns the setting of keyspace notifications.
func (m *Machine) Notify() commands.NotifyFlags { return m.events.notify }

// clockNeverFalls holds of what leaders stamp, each after the one before it.
var clockNeverFalls = invariant.New("clock-never-falls",
	"the cluster clock of an entry is not behind that of the entry before it",
	"the clock stands still until entries are past it: leases last longer, none ends early")

// Apply applies the entry at index. With answer it builds the replies.
//
// A batch at its work limit stops before its next request: it has fewer replies than requests, and
// those without one did not run. From commands.LevelSecond on, an entry at its limit stops before
// its next batch. It stops likewise when it has used up its positions. An error means that the
// entry cannot be applied; the machine must not be used again.
func (m *Machine) Apply(index uint64, e *Entry, answer bool) (Result, error) {
	if err := m.verify(e.Check); err != nil {
		return Result{}, err
	}
	before := m.level
	if err := m.raise(index, e.Level); err != nil {
		return Result{}, err
	}
	if e.ClockMs < m.ks.Now() {
		clockNeverFalls.Broken("index", index, "stamp", e.ClockMs, "clock", m.ks.Now())
	}
	m.index, m.waiting.proposer = index, FirstWait(e.Origin)
	m.events.begin()
	if before < commands.LevelSecond && m.level >= commands.LevelSecond {
		m.events.list = append(m.events.list, commands.Event{Kind: commands.LevelRaised})
	}
	if m.level >= commands.LevelSecond && m.waiting.enter(e.Term, index) {
		m.tellDropped(m.waiting.node)
	}
	m.witness.Begin(answer && m.facts)
	env := &commands.Env{
		Keyspace: m.ks, Level: m.level, Scripts: m.engine, Table: m.table,
		Users: m.users.Users, ChangeUsers: m.changeUsers, Beside: m.beside(),
		Emit: m.events.emit, Notify: m.events.notifying(), Called: m.events.calling(),
		TellLock: m.events.lock,
		Witness:  m.witness, Overseer: m.ofEntries, Times: m.times,
		ScriptCalls: m.scriptCalls,
	}
	env.ScriptCalls.On = answer && m.scripted != nil
	limits := limitsAt(m.level)
	m.sweep(env, e.ClockMs, &limits)
	m.waiting.lent.expire(m.ks.Now())
	m.once.Sweep(m.ks.Now(), entrySweep)
	env.Runs = m.lends()
	m.beginTime(env, e)
	result := Result{}
	if answer {
		result.Replies = make([][]byte, 0, len(e.Batches))
		result.Work = make([]uint64, 0, len(e.Batches))
	}
	m.positions = positions{last: keyspace.MaxPosition}
	r := runner{m: m, env: env}
	env.Deny = r.deny
	later := m.serveEarlier(env, limits.entry)
	m.ahead.begin(m.ks, e.Batches)
	for _, batch := range e.Batches {
		if env.Work >= limits.entry || !m.morePositions() {
			break
		}
		r.begin(nil, min(limits.batch, limits.entry-env.Work))
		m.requests.Reset(batch)
		for m.requests.More() && !r.tired() && m.morePositions() {
			m.ahead.step()
			q, err := m.requests.Next()
			if err != nil { // the same on every node; the rest of the batch cannot be read
				r.resp.Error("ERR " + err.Error())
				break
			}
			m.events.client = q.Client
			if q.System {
				r.system(q)
				env.Notify, env.Users = m.events.notifying(), m.users.Users
			} else {
				r.run(q, answer)
				m.witness.Judge()
			}
			m.serveWaiting(env, limits.entry)
		}
		result.Ran++
		if answer {
			result.Replies = append(result.Replies, r.resp.Buf)
			result.Work = append(result.Work, env.Work-r.before)
		}
	}
	m.waiting.locks.readyAgain(later)
	m.tellScripted(env)
	m.scriptCalls = env.ScriptCalls
	m.ks.End()
	m.recent[index%recentChecks] = m.Sum()
	result.Events, result.Spent, result.Facts = m.events.list, env.Work, m.witness.Facts()
	return result, nil
}

// beside returns the state beside the keys.
func (m *Machine) beside() commands.Beside {
	return commands.Beside{Subscribers: m.subscribers, Queues: &m.waiting.locks,
		Leases: m.leases}
}

// tellScripted passes on what scripts have called, and forgets it.
func (m *Machine) tellScripted(env *commands.Env) {
	if calls := &env.ScriptCalls; len(calls.Counts) > 0 || len(calls.Errors) > 0 {
		m.scripted(calls)
		calls.Forget()
	}
}

// sweep opens the keyspace for an entry and removes what has expired. That takes no work from the
// requests.
func (m *Machine) sweep(env *commands.Env, clockMs int64, limits *workLimits) {
	second := m.level >= commands.LevelSecond
	if m.events.work = nil; second {
		m.events.work = &env.Work
	}
	m.ks.LimitSweep(cmp.Or(m.sweeps, limits.sweep), func() bool { return env.Work < sweepWork })
	m.ks.SweepQuietly(second)
	m.waiting.lent.by = nil // as on a node that begins here
	m.ks.Begin(clockMs, keyspace.NewRevision(m.epoch, m.index, 0))
	if second {
		m.ks.MendStreams()
	}
	ended, items := m.leases.Drop(m.ks.Now(), entryLeases, entryItems)
	env.Work += uint64(leaseDropped*ended + commands.ItemDropped*items)
	limits.entry += env.Work
}

// morePositions reports whether the entry has a position for another request. Requests of one
// position would have equal fencing tokens, and WATCH would not see what the second changes. So an
// entry ends with its positions: what is left is proposed again, and who waits is served by the
// next entry. Below commands.LevelSecond nobody waits, and an entry has no more requests than
// positions.
func (m *Machine) morePositions() bool {
	return m.positions.next <= m.positions.last || m.level < commands.LevelSecond
}

// revisionsRise holds of what becomes a lock's fencing token, and of what WATCH compares.
var revisionsRise = invariant.New("revisions-rise",
	"each request has a larger revision than all before it",
	"the request does not run, and gets an internal error on every node")

// nextPosition begins the next request of the entry.
func (m *Machine) nextPosition(env *commands.Env) {
	at := keyspace.NewRevision(m.epoch, m.index, min(m.positions.next, keyspace.MaxPosition))
	if m.positions.next > 0 && at <= m.ks.CurrentRevision() && m.level >= commands.LevelSecond {
		revisionsRise.Broken("index", m.index, "position", m.positions.next)
		panic(fmt.Sprintf("revision %d does not rise above %d", at, m.ks.CurrentRevision()))
	}
	m.ks.SetRevision(at)
	// Each request has its own seed: scripts of one entry must not draw the same numbers.
	env.Seed = m.index*(keyspace.MaxPosition+1) + m.positions.next
	m.positions.next++
}

// panicked reports a panic of a request.
func (m *Machine) panicked(p any) {
	if m.alarm != nil {
		m.alarm(p)
	}
}

// changed receives all changes of the keyspace. What is part of the state learns of each, whoever
// is connected to this node; what this node's clients want to know is apart, and learns last.
func (m *Machine) changed(db int, e *keyspace.Entry, c keyspace.Change) {
	m.waiting.observe(db, e, c)
	m.events.observe(db, e, c)
}

// verify compares the leader's running hash with this machine's own, if it is still remembered.
// From commands.LevelSecond on it does not: a wrong leader's hash in the log would end all others,
// at each start. Members compare their states beside the log (docs/adr/0054).
func (m *Machine) verify(c Check) error {
	own := m.recent[c.Index%recentChecks]
	if c.Index == 0 || own.Index != c.Index || own.Sum == c.Sum || m.level >= commands.LevelSecond {
		return nil
	}
	return &DivergedError{Index: c.Index, Own: own.Sum, Leader: c.Sum}
}

// ValueBytes estimates the memory of the values of keys.
func (m *Machine) ValueBytes(db int, keys [][]byte) (bytes int) {
	for _, key := range keys {
		if e := m.ks.DB(db).Find(key); e != nil {
			bytes += int(e.Size())
		}
	}
	return bytes
}

// ScriptFlags returns the flags that a script declares, if it does.
func (m *Machine) ScriptFlags(s commands.Script) (flags commands.FunctionFlags, declared bool) {
	flags, declared, _ = m.engine.Declared(m.level, s)
	return flags, declared
}

// ScriptVerdicts returns the scripts that are refused, or were and are allowed, oldest first.
func (m *Machine) ScriptVerdicts() []commands.ScriptVerdict { return m.engine.Verdicts() }

// Stats counts what the machine holds.
func (m *Machine) Stats() commands.Stats {
	usage := m.engine.Usage()
	s := commands.Stats{
		Index: m.index, Expired: m.ks.Expired(), Changes: m.changes, ClockMs: m.ks.Now(),
		Scripts: m.engine.Len(), ScriptRuns: usage.Runs, ScriptsStopped: usage.Stopped,
		ScriptSeconds: usage.Seconds(), Notify: m.events.notify,
		Memory: m.memory(), MaxMemory: m.limit.bytes, RequestWork: max(m.times, 1),
		Databases: make([]commands.DatabaseStats, keyspace.Databases),
	}
	s.ScriptBytes, s.LibraryBytes = m.engine.Sizes()
	s.LockWaiters, s.UnclaimedGrants = m.waiting.locks.waits, len(m.waiting.locks.claims.opened)
	s.Leases, s.OnceRequests = m.leases.Len(), m.once.Len()
	for _, l := range m.engine.Libraries() {
		s.Libraries++
		s.Functions += len(l.Functions)
	}
	for i := range keyspace.Databases {
		db := m.ks.DB(i)
		s.Databases[i] = commands.DatabaseStats{Keys: db.Len(), Volatile: db.Volatile(),
			MeanTTL: db.MeanTTL()}
	}
	return s
}
