package commands

import (
	"iter"

	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/commands/leases"
	"github.com/coordd/coordd/commands/subscriptions"
)

// Beside is the state beside the keys, from LevelSecond on.
type Beside struct {
	// Subscribers are those of all nodes.
	Subscribers *subscriptions.Counts
	// Queues are those who wait for locks; nil: nobody does.
	Queues LockQueues
	Leases *leases.Registry
}

// Env is what a command knows of the machine and of the entry or read that it is part of.
type Env struct {
	Keyspace *keyspace.Keyspace
	// ClockMs is the cluster clock for remaining TTLs, ms. In an entry it is the entry's stamp, in
	// a read the leader's reading, which may be later than Keyspace.Now. Whether a key exists is
	// the keyspace's own business.
	ClockMs int64
	// Level is the machine's feature level. Behavior of a later level than the first depends on it.
	Level uint64
	// WallUs is the time of day that belongs to ClockMs, µs since 1970, from the entry or, in a
	// read, from the leader. Absolute times are converted by the two together.
	WallUs int64
	// NextUs returns the next instant for Call.TimeUs, µs since 1970: not before WallUs, and after
	// every earlier one. If nil, the instant is WallUs.
	NextUs func() int64
	// Seed is the source of randomness: the same on every node, different for each command.
	Seed    uint64
	Scripts Scripts
	// Work counts what commands did, in units of at most 25 ns, about one instruction of a script.
	// It only grows, by Spend; a command's own share is the difference.
	Work uint64
	// Most is the value of Work past which a read is aborted, to be run again at its turn. 0: it is
	// not.
	Most uint64
	// Copied counts the bytes that commands of scripts may have copied to write into strings. It
	// only grows. A script pays for its share as for memory.
	Copied uint64
	// Emit receives an event; reads emit none. It copies the bytes, since a caller or a script may
	// reuse its arguments, and from LevelSecond on charges for them.
	Emit func(Event)
	// Called receives each command that a script calls, before it runs; nil if nobody watches. It
	// copies the arguments.
	Called func(db int, args [][]byte)
	// Reads gathers the keys that scripts of the request read; nil: its session does not ask.
	Reads *ScriptReads
	// Witness notes what the request does to locks and windows; nil: nobody observes that.
	Witness *Witness
	// Known is what the node knows of locks; nil in entries.
	Known Known
	// Overseer measures the scripts of the request; nil: nobody does.
	Overseer Overseer
	// Runs learns of each command that may write, before it runs; nil: nobody asks.
	Runs func(*Spec)
	// Notify receives a keyspace notification; nil if notifications are off. It copies the key, and
	// from LevelSecond on charges for its messages.
	Notify func(class NotifyClass, event string, db int, key []byte)
	// TellLock receives that an owner took a lock, or gave it back: a LockTaken or LockGivenBack.
	// nil in reads.
	TellLock func(kind EventKind, db int, key, owner []byte, token keyspace.Revision)
	// Table is the machine's commands.
	Table *Table
	Beside
	// Users are the machine's; Call.SetUsers changes them.
	Users *acl.Users
	// ChangeUsers takes other users, and the names of those that differ.
	ChangeUsers func(users *acl.Users, changed ...string)
	Asker
	// Deny takes what a script, or a handler, denies the user in a context of Denied, for the ACL
	// LOG of his node; nil: nobody keeps it.
	Deny func(context string, d acl.Denial)
	// DryRun reports whether a command that may write runs on a state that must not change: its
	// first change or event panics with keyspace.ErrClosed. Aborted reports whether that happened,
	// or that the work exceeded Most; the reply is then void.
	DryRun, Aborted bool

	// Times is how many times MaxRequestWork a request may do; 0: once.
	Times uint64
	LookUps
	// ScriptCalls are the commands that scripts called, for the node alone.
	ScriptCalls ScriptCalls

	instantUs int64 // instant of the running command; 0: not asked for yet
}

// Asker is who sent a request.
type Asker struct {
	// User is the user, nil if he may do everything.
	User *acl.User
	// Sender is the user as the request names him.
	Sender UserID
	// Holder is the connection, nil if the request names none.
	Holder *Holder
}

// LookUps counts the keys that commands which only read looked up, for the node alone.
type LookUps struct{ Found, Missed uint64 }

// BeginCommand starts a command, which gets its own instant. What a script calls is part of the
// script, whose time stands still.
func (e *Env) BeginCommand() { e.instantUs = 0 }

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events.
const (
	// for the subscribers of a channel; keyspace notifications are messages too
	Message    EventKind = iota
	KeyChanged           // a key was created, changed or removed
	// any key of a database may have changed: it was flushed, or swapped with another
	DBChanged
	// a snapshot replaced everything: any key may have changed
	StateReplaced
	ScriptCall // a script calls a command, for MONITOR
	// users were added, changed or removed
	UsersChanged
	Served       // a command of this node that waited in the machine has its reply
	LevelRaised  // to LevelSecond or past it: commands may wait in the machine
	WaitsDropped // the machine has lost all commands of this node that waited in it
	// the machine has dropped the counts of this node's subscribers
	SubscribersDropped
	WaitEnded // a wait was left: the machine does not have it any more, if it ever had
	// the machine has shortened all leases of this node's connections: they seem to be gone
	HoldersDropped
	// a LOCK command had an owner hold a lock, or hold it longer. Like LockGivenBack it is for the
	// keys that KeyChanged is for, and comes before or behind that.
	LockTaken
	LockGivenBack // LOCK.RELEASE let an owner hold a lock no more
)

// Event is what other connections and waiters on a node receive after an entry was applied.
type Event struct {
	Kind EventKind
	// those of a Message; for Served, Payload is for RepliesOf; for LockTaken and LockGivenBack
	// it is the owner
	Channel, Payload []byte
	Shard            bool // a Message that SPUBLISH sent
	Gone             bool // KeyChanged: the key does not exist after the entry
	// Served: with a lock that is claimed
	Claimed bool
	ClockMs int64    // the cluster clock of the entry, for Served
	DB      int      // database of KeyChanged, DBChanged and ScriptCall
	Args    [][]byte // command of ScriptCall
	Key     string   // the key that changed, for KeyChanged, or of the lock
	// Request.Client of the request that caused KeyChanged, ScriptCall, LockTaken or LockGivenBack,
	// or 0
	Client uint64
	// the Wait.Number of Served and WaitEnded, the new Place.Era of WaitsDropped, the new era of
	// SubscribersDropped, the token of LockTaken and LockGivenBack
	Wait uint64
	// a Message of PUBLISH: what the machine took to compare its channel with the patterns of all
	// nodes, units of 25 ns
	Matching uint64
}

// Scripts is the script engine as the script commands see it; package fsm/script implements it.
type Scripts interface {
	// Eval runs a script.
	Eval(x *Call, script Script) error
	// Flags returns the flags that a script or function declares. declared is false for a script
	// that has no line for them, and for what is unknown.
	Flags(x *Call, s Script) (flags FunctionFlags, declared bool)
	// Load compiles and caches a script and returns its SHA1 in hexadecimal.
	Load(x *Call, source []byte) (sha string, err error)
	Exists(sha []byte) bool
	// Source returns the source of a script that exists.
	Source(sha []byte) (source string, ok bool)
	Flush()

	// HasFunction reports whether FCALL finds a function at a feature level.
	HasFunction(level uint64, name []byte) bool
	// LoadLibrary runs the source of a library, which registers its functions, and stores it.
	// replace allows it to replace a library of the same name.
	LoadLibrary(x *Call, source []byte, replace bool) (name string, err error)
	// RestoreLibraries loads libraries from their sources, all or none. It returns the first error
	// in the sequence.
	RestoreLibraries(x *Call, sources iter.Seq2[[]byte, error], policy RestorePolicy) error
	DeleteLibrary(x *Call, name []byte) bool
	FlushLibraries()
	// Libraries returns all libraries, ordered by name.
	Libraries() []*Library
}

// Script is one call of EVAL, EVALSHA or FCALL: by source, by SHA1 in hexadecimal, or by the name
// of an existing function. The other two are nil.
type Script struct {
	Source, SHA, Function []byte
	Keys, Args            [][]byte
	ReadOnly              bool
	AllowOOM              bool // it may use more memory than maxmemory allows
}

// Tx is the state that the commands of one request share: those of a transaction, or a script and
// what it calls.
type Tx struct {
	DB     int  // selected database
	Proto  int  // the client's protocol, 2 or 3
	Multi  bool // inside EXEC
	Woken  bool // a blocking command that was woken and runs again
	Script bool // called by a script
	Behind bool // a blocking command with other waiters before it: it takes nothing
	// Blocked is set when a command found nothing and is to wait.
	Blocked bool
	// Order is the command's place among all that wait, if it waited before; 0: it is new.
	Order uint64
	// QueuedMs is when a command that the machine serves joined the queue for a lock, ms of the
	// cluster clock.
	QueuedMs int64
	// Claims means that the command waited, or may have: what it gets is claimed.
	Claims bool
	// Undo are the calls that give back what the command, which waited, has got: its node claims
	// that before the client learns of it. nil: there is nothing to claim.
	Undo [][][]byte
	// OOM means that the data exceeded maxmemory when the request began. It ends for a script at
	// its first write: what has begun to change is not left half done.
	OOM bool
}

// Call is one run of a command.
type Call struct {
	*Env
	Tx   *Tx
	Spec *Spec
	Args [][]byte // name first; valid until the handler returns
	Out  Reply
	// Stop is the value of Env.Work past which the command is refused, Room how many bytes it may
	// reply, both from LevelSecond on. 0: as much as a request may.
	Stop uint64
	Room int

	began uint64 // Env.Work when the handler was called
	meter meter
}

// SetUsers replaces the machine's users by others. changed are the names of those that differ.
func (x *Call) SetUsers(users *acl.Users, changed ...string) {
	x.Commit()
	x.Users = users
	x.ChangeUsers(users, changed...)
}

// find returns the entry of a key of the selected database, nil if there is none, for reading only.
func (x *Call) find(key []byte) *keyspace.Entry {
	e := x.DB().Find(key)
	switch {
	case x.Spec == nil || x.Spec.Kind != Read:
	case e != nil:
		x.Found++
	default:
		x.Missed++
	}
	return e
}

// Committed reports whether the command that ran has said that it changes something outside of the
// keyspace. A script always says so.
func (x *Call) Committed() bool { return x.meter.committed && x.Spec.Script == nil }

// DB returns the selected database.
func (x *Call) DB() *keyspace.DB { return x.Keyspace.DB(x.Tx.DB) }

// Run runs the command x.Args, for which ResolveAt returned spec and err, and writes its reply or
// error to x.Out.
func (x *Call) Run(spec *Spec, err error) {
	x.meter = meter{}
	if err == nil && spec.Keys.Carried {
		spec, err = x.unwrap(spec)
	}
	if err == nil && (spec.Handler == nil || x.Level < spec.HandlerLevel) {
		err = Errorf("ERR '%s' cannot be run here", spec.FullName())
	}
	if err == nil {
		err = x.Handle(spec)
	}
	if err != nil {
		text := err.Error()
		x.Out.Error(text)
		x.meter.bytes += lineBytes + len(trimmed(text))
	}
}

// instantWork is the cost of an instant. There are only as many as microseconds: taking them faster
// than time passes would put TIME ahead of the clock.
const instantWork = 40

// TimeUs returns the instant of the running command, µs since 1970, for TIME and generated ids. It
// is the same within a command or script, and rises strictly from one to the next.
func (x *Call) TimeUs() int64 {
	if x.NextUs == nil {
		return x.WallUs
	}
	if x.instantUs == 0 {
		x.instantUs = x.NextUs()
		x.Spend(instantWork)
	}
	return x.instantUs
}

// WallMs returns the time of day that belongs to ClockMs, ms since 1970.
func (x *Call) WallMs() int64 { return x.WallUs / 1000 }

// DeadlineAt converts an absolute wall time (ms since 1970) into a deadline on the cluster clock,
// by its distance from now. A past time gives a past deadline.
func (x *Call) DeadlineAt(wallMs int64) int64 { return x.ClockMs + (wallMs - x.WallMs()) }

// WallAt converts a deadline into the wall time (ms since 1970) at which the key will expire, as
// far as is known now.
func (x *Call) WallAt(deadlineMs int64) int64 { return x.WallMs() + (deadlineMs - x.ClockMs) }
