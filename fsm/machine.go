package fsm

import (
	"fmt"
	"math"
	"slices"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/fsm/script"
)

// Machine is the replicated state: the keyspace and the script cache, changed by entries alone. Machines that applied the
// same entries are equal. It is not safe for concurrent use: one Apply, or any number of Reads, at a time.
type Machine struct {
	table  *commands.Table
	ks     *keyspace.Keyspace
	engine *script.Engine
	epoch  uint64
	level  uint64
	index  uint64 // of the newest applied entry
	time   instants

	// recent are the running hashes after the newest entries, to hold against the leader's. They are no part of the state.
	recent [recentChecks]Check

	requests commands.RequestReader
	events   *events
}

// recentChecks is how many entries back a leader's running hash can still be compared.
const recentChecks = 4096

// NewMachine returns an empty machine that runs the commands of table.
func NewMachine(table *commands.Table) *Machine {
	return &Machine{table: table, ks: keyspace.New(), level: firstLevel, engine: script.NewEngine(table), events: newEvents()}
}

// Index is the log index of the newest applied entry.
func (m *Machine) Index() uint64 { return m.index }

// ClockMs is the cluster clock of the newest applied entry.
func (m *Machine) ClockMs() int64 { return m.ks.Now() }

// NextDeadline is the earliest deadline of any key, ms of the cluster clock.
func (m *Machine) NextDeadline() (clockMs int64, ok bool) { return m.ks.NextDeadline() }

// Sum is the running hash over all changes with the index it holds for.
func (m *Machine) Sum() Check { return Check{Index: m.index, Sum: m.ks.Sum()} }

// DivergedError says that this machine's state is not the leader's.
type DivergedError struct {
	Index       uint64
	Own, Leader uint64
}

func (e *DivergedError) Error() string {
	return fmt.Sprintf("state differs from the leader's after entry %d: running hash %016x, the leader's %016x", e.Index, e.Own, e.Leader)
}

// Result is what applying an entry brings besides the change of state.
type Result struct {
	// Replies has one reply for each group that ran, if answers were wanted. The groups behind them did not run: the entry's work was done.
	Replies [][]byte
	// Work is what each of those groups did, in units of commands.Env.Work.
	Work   []uint64
	Ran    int              // groups that ran, whether or not answers were wanted
	Spent  uint64           // units of work of the whole entry
	Events []commands.Event // valid until the next Apply
}

// Observe says of which keys' changes the next entries' events are to tell: of those that f answers true for, of none if it is nil.
func (m *Machine) Observe(f Interest) { m.events.interest = f }

// Watch says whether the next entries' events are to tell of the commands that scripts call, in requests that say who asks.
func (m *Machine) Watch(on bool) { m.events.watched = on }

// Notify is the setting of keyspace notifications.
func (m *Machine) Notify() commands.NotifyFlags { return m.events.notify }

// Apply applies the entry at index. With answer it builds the replies of every group. A group that has done its share of work stops before
// its next request: there are fewer replies than requests, and those without one did not run. An entry that has done its own stops before
// the next group, from commands.LevelBounded on (see limitsAt). An error means that the entry cannot be applied and the machine must not
// be used any more.
func (m *Machine) Apply(index uint64, e *Entry, answer bool) (Result, error) {
	if err := m.verify(e.Check); err != nil {
		return Result{}, err
	}
	if err := m.raise(index, e.Level); err != nil {
		return Result{}, err
	}
	m.index = index
	m.events.begin(m.ks)
	m.ks.Begin(e.ClockMs, keyspace.NewRevision(m.epoch, index, 0))
	env := &commands.Env{
		Keyspace: m.ks, Level: m.level, Scripts: m.engine,
		Emit: m.events.emit, Notify: m.events.notifying(), Called: m.events.calling(),
	}
	m.beginTime(env, e)
	result := Result{}
	if answer {
		result.Replies, result.Work = make([][]byte, 0, len(e.Groups)), make([]uint64, 0, len(e.Groups))
	}
	place := uint64(0)
	r := runner{table: m.table, env: env}
	limits := limitsAt(m.level)
	for _, group := range e.Groups {
		if env.Work >= limits.entry {
			break
		}
		r.begin(nil, min(limits.group, limits.entry-env.Work))
		m.requests.Reset(group)
		for m.requests.More() && !r.tired() {
			q, err := m.requests.Next()
			if err != nil { // the same on every node; what is left of the group cannot be told apart
				r.resp.Error("ERR " + err.Error())
				break
			}
			m.ks.SetRevision(keyspace.NewRevision(m.epoch, index, min(place, keyspace.MaxPlace)))
			env.Seed = index*(keyspace.MaxPlace+1) + place // each request's own: scripts of one entry must not draw the same numbers
			place++
			m.events.client = q.Client
			if q.Setting {
				r.acknowledge(m.set(q))
				env.Notify = m.events.notifying()
				continue
			}
			r.run(q, answer)
		}
		result.Ran++
		if answer {
			result.Replies, result.Work = append(result.Replies, r.resp.Buf), append(result.Work, env.Work-r.before)
		}
	}
	m.ks.End()
	m.recent[index%recentChecks] = m.Sum()
	result.Events, result.Spent = m.events.list, env.Work
	return result, nil
}

// verify holds the leader's running hash against this machine's own, as far back as that is remembered.
func (m *Machine) verify(c Check) error {
	own := m.recent[c.Index%recentChecks]
	if c.Index == 0 || own.Index != c.Index || own.Sum == c.Sum {
		return nil
	}
	return &DivergedError{Index: c.Index, Own: own.Sum, Leader: c.Sum}
}

// Read runs requests on the state as it is and appends their replies to dst. It stops before the first request that would change anything or tell
// anybody of anything, before one whose reply does not fit with those before it into commands.MaxReplyBytes, and when groupWork is done. So it may
// give fewer replies than there are requests: where none of them can write, one at least. clockMs and wallUs are the cluster clock and the time
// of day at the moment of reading. It leaves no trace in the machine.
func (m *Machine) Read(dst, run []byte, clockMs, wallUs int64) []byte {
	return m.ReadAt(dst, run, clockMs, wallUs, nil)
}

// ReadAt is Read, with the instants that requests name from next. It stops, without a reply if it has to, before a request that there is none for.
func (m *Machine) ReadAt(dst, run []byte, clockMs, wallUs int64, next Instants) []byte {
	replies, _ := m.ReadWork(dst, run, clockMs, wallUs, next)
	return replies
}

// ReadWork is ReadAt, and returns what the requests did in units of commands.Env.Work besides.
func (m *Machine) ReadWork(dst, run []byte, clockMs, wallUs int64, next Instants) (replies []byte, work uint64) {
	env := &commands.Env{Keyspace: m.ks, Level: m.level, Seed: uint64(wallUs), Scripts: m.engine.Trials()}
	late := m.readTime(env, clockMs, wallUs, next)
	r := runner{table: m.table, env: env, readOnly: true, tells: m.events.notify != 0}
	r.begin(dst, groupWork)
	var requests commands.RequestReader
	requests.Reset(run)
	for requests.More() && !r.tired() {
		q, err := requests.Next()
		if err != nil {
			r.resp.Error("ERR " + err.Error())
			break
		}
		if q.Setting {
			r.resp.Error("ERR a setting is not read by a request")
			continue
		}
		start := len(r.resp.Buf)
		env.Keyspace, env.Trial, env.Emit, env.Notify = m.ks, false, func(commands.Event) {}, nil
		r.run(q, true)
		if *late || env.Trapped || r.full && (start > len(dst) || env.Trial) {
			return r.resp.Buf[:start], env.Work
		}
	}
	return r.resp.Buf, env.Work
}

// valueSamples is how many elements of a value ValueBytes looks at.
const valueSamples = 5

// ValueBytes estimates what the values of keys take.
func (m *Machine) ValueBytes(db int, keys [][]byte) (bytes int) {
	for _, key := range keys {
		if e := m.ks.DB(db).Find(key); e != nil {
			bytes += e.Memory(valueSamples)
		}
	}
	return bytes
}

// Stats is what INFO shows of the machine.
type Stats struct {
	Index, Expired uint64
	ClockMs        int64
	Scripts        int
	Libraries      int // of functions
	Functions      int
	Notify         commands.NotifyFlags
	Keys, Volatile [keyspace.Databases]int
}

// Stats counts what the machine holds.
func (m *Machine) Stats() Stats {
	s := Stats{Index: m.index, Expired: m.ks.Expired(), ClockMs: m.ks.Now(), Scripts: m.engine.Len(), Notify: m.events.notify}
	for _, l := range m.engine.Libraries() {
		s.Libraries++
		s.Functions += len(l.Functions)
	}
	for i := range keyspace.Databases {
		s.Keys[i], s.Volatile[i] = m.ks.DB(i).Len(), m.ks.DB(i).Volatile()
	}
	return s
}

// runner runs requests one after the other and writes their replies.
type runner struct {
	table    *commands.Table
	env      *commands.Env
	readOnly bool               // commands that write are tried: see trial.go
	tells    bool               // of readOnly: keyspace notifications are wanted
	view     *keyspace.Keyspace // of readOnly: as trials see it while deadlines have passed; nil: not made yet
	resp     commands.RESP
	limit    int         // bytes that resp may have
	room     int         // bytes that the rest of the run may be answered, on a node that builds no replies too
	full     bool        // a reply to the newest request did not fit
	before   uint64      // the environment's work when the run of requests began
	share    uint64      // work after which the run does not begin another request
	tx       commands.Tx // of the request that runs
	call     commands.Call
}

// Work, in units of commands.Env.Work, after which a group begins no further request, and an entry no further group. Work is the same on every
// node, so all stop at the same place. The asker asks again for the rest, and what others want comes in between: an entry
// holds the machine for entryWork and one request at most (docs/adr/0015).
const (
	groupWork = commands.MaxRequestWork / 8
	entryWork = commands.MaxRequestWork / 4

	// maxRunWork bounded a group, and nothing an entry, below commands.LevelBounded.
	maxRunWork = commands.MaxRequestWork
	// maxTransactionWork bounded a transaction there. From LevelBounded on it is a request like any other.
	maxTransactionWork = 4 * commands.MaxRequestWork
)

type workLimits struct{ group, entry uint64 }

// limitsAt returns the limits on applying at a feature level.
func limitsAt(level uint64) workLimits {
	if level < commands.LevelBounded {
		return workLimits{maxRunWork, math.MaxUint64}
	}
	return workLimits{groupWork, entryWork}
}

// maxWork is what one request may do.
func (r *runner) maxWork() uint64 {
	if r.env.Level >= commands.LevelBounded {
		return commands.MaxRequestWork
	}
	return maxTransactionWork
}

const errTransactionWork commands.Error = "ERR the transaction has done too much work, the command was not run"

// begin makes the runner ready for a run of requests whose replies are appended to dst, with its share of work.
func (r *runner) begin(dst []byte, share uint64) {
	r.resp.Buf, r.limit, r.before, r.share = dst, len(dst)+commands.MaxReplyBytes, r.env.Work, share
	r.room = commands.MaxReplyBytes
}

// tired reports whether the run has done its share of work.
func (r *runner) tired() bool { return r.env.Work-r.before >= r.share }

// acknowledge answers a change of a setting.
func (r *runner) acknowledge(err error) {
	r.room -= headBytes
	if err != nil {
		r.resp.Error(err.Error())
		return
	}
	r.resp.Status("OK")
}

// run runs one request: a command, or a transaction if none of the keys it watches has changed.
func (r *runner) run(q *commands.Request, answer bool) {
	var out commands.Reply = commands.Discard{}
	if answer {
		r.resp.Proto = q.Proto
		out = &r.resp
	}
	r.full = false
	r.tx = commands.Tx{DB: q.DB, Proto: q.Proto, Multi: q.Multi, Woken: q.Woken, Behind: q.Behind}
	stop := r.env.Work + r.maxWork()
	r.call = commands.Call{Env: r.env, Tx: &r.tx, Out: out, Stop: stop}
	x := &r.call
	if !q.Multi {
		x.Args = q.Cmds[0]
		r.command(x)
		return
	}
	if r.readOnly && r.mayWrite(q.Cmds) {
		r.beginTrial() // before its reads: all of a transaction sees one state
	}
	if r.env.Level >= commands.LevelBounded {
		r.env.Work += watchedWork * uint64(len(q.Watch))
	}
	changed := r.watchedChanged(q.Watch)
	if r.env.Trapped {
		return
	}
	if changed {
		out.NullArray()
		r.room -= headBytes
		return
	}
	out.Array(len(q.Cmds))
	r.room -= headBytes
	for _, cmd := range q.Cmds {
		if r.env.Work >= stop {
			out.Error(errTransactionWork.Error())
			r.room -= len(errTransactionWork) + headBytes
			continue
		}
		x.Args = cmd
		if r.command(x); r.env.Trapped {
			return
		}
	}
}

// watchedWork is what looking at one watched key costs, in units of commands.Env.Work.
const watchedWork = 16

// watchedChanged reports whether one of the keys has changed since it was watched. In a trial a key that is past its deadline and not swept yet traps.
func (r *runner) watchedChanged(keys []commands.WatchedKey) bool {
	defer func() {
		switch p := recover(); {
		case p == nil:
		case r.env.Trial && p == keyspace.ErrClosed:
			r.env.Trapped = true
		default:
			panic(p)
		}
	}()
	return slices.ContainsFunc(keys, func(w commands.WatchedKey) bool {
		return r.env.Keyspace.DB(w.DB).LastChange(w.Key) != w.Changed
	})
}

// mayWrite reports whether one of the commands may change anything.
func (r *runner) mayWrite(cmds [][][]byte) bool {
	return slices.ContainsFunc(cmds, func(args [][]byte) bool {
		spec, err := r.table.ResolveAt(r.env.Level, args)
		return err == nil && spec.Kind == commands.Write
	})
}

// command runs one command. A panic in a handler is a mistake in coordd, and happens on every node at the same place with
// the same state: it is answered, so that one command cannot stop a cluster. A reply that does not fit is replaced by an error.
func (r *runner) command(x *commands.Call) {
	start := len(r.resp.Buf)
	r.env.BeginCommand()
	r.resp.Limit = r.limit
	x.Room = max(r.room, 1)
	spec, err := r.table.ResolveAt(x.Level, x.Args)
	writes := err == nil && spec.Kind == commands.Write
	defer func() {
		p, full := recover(), r.resp.Full
		r.resp.Limit, r.resp.Full = 0, false // errors always fit
		switch {
		case p != nil && r.env.Trial: // also a mistake is made in the log, where all nodes answer it alike
			r.env.Trapped = true
		case p != nil:
			r.resp.Buf = r.resp.Buf[:start]
			x.Out.Error(fmt.Sprintf("ERR internal error: %v", p))
			r.room -= headBytes
		case full:
			r.full = true
			r.resp.Buf = r.resp.Buf[:start]
			x.Out.Error(tooLarge(writes).Error())
		}
	}()
	if r.readOnly && writes {
		r.beginTrial()
	}
	x.Run(spec, err)
	size, refused := x.ReplySize()
	r.room -= size
	r.full = r.full || refused
	r.env.Seed += 0xd1b54a32d192ed03 // scripts of one transaction, or run of reads, must not draw alike; not the step of luaRandom, which would only shift
}

// tooLarge is the error in the place of a reply that does not fit.
func tooLarge(writes bool) commands.Error {
	if writes {
		return errReplyLost
	}
	return commands.ErrReplySize
}

// errReplyLost stands in the place of the reply of a command that ran: a script, or any command below commands.LevelBounded.
const errReplyLost commands.Error = "ERR the command ran, but its reply, with those that go before it, is larger than 67108864 bytes"

// headBytes is what is counted for a reply of one line.
const headBytes = 16
