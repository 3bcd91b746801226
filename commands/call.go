package commands

import (
	"iter"

	"github.com/coordd/coordd/commands/keyspace"
)

// Env is what the machine tells a command about the moment it runs in, and takes from it.
type Env struct {
	Keyspace *keyspace.Keyspace
	// ClockMs is the cluster clock to count remaining lives by, ms. In an entry it is the entry's
	// stamp, in a read the leader's reading, which may be later than Keyspace.Now. Whether a key
	// exists is the keyspace's own business.
	ClockMs int64
	// Level is the machine's feature level: what a later one than the first brought is done only
	// where this says so.
	Level uint64
	// WallUs is the time of day that belongs to ClockMs, µs since 1970, as the leader keeps it:
	// absolute times are converted by the two together. The entry's own, or the leader's in a read.
	WallUs int64
	// NextUs gives the next instant, µs since 1970, to Call.TimeUs: no earlier than WallUs, later
	// than any given before. nil: it is WallUs.
	NextUs func() int64
	// Seed is the same on every node and differs from one command to the next: the source of
	// anything random.
	Seed    uint64
	Scripts Scripts
	// Work counts what commands did, in units of at most 25 ns, about one instruction of a script.
	// It only grows, by Spend; the difference is a command's own share.
	Work uint64
	// Copied is how many bytes commands of scripts may have copied to write into strings. It only
	// grows; a script pays for its share as for memory.
	Copied uint64
	// Emit takes an event; in a read nothing emits. It copies the bytes, which may be arguments
	// that the caller or a script uses again.
	Emit func(Event)
	// Called takes each command that a script calls, before it runs; nil where nobody watches. It
	// copies the arguments.
	Called func(db int, args [][]byte)
	// Notify takes a keyspace notification; nil where notifications are off. It copies the key.
	Notify func(class NotifyClass, event string, db int, key []byte)
	// DryRun reports whether a command that may write runs on a state that must not change: its
	// first change or event panics with keyspace.ErrClosed. Aborted reports whether that happened;
	// the reply is then void.
	DryRun, Aborted bool

	instantUs int64 // of the command that runs; 0: it has not asked
}

// BeginCommand begins a command, which names an instant of its own. What a script calls is part of
// the script: its time stands still.
func (e *Env) BeginCommand() { e.instantUs = 0 }

// EventKind tells events apart.
type EventKind uint8

// The kinds of events.
const (
	// for the subscribers of a channel; keyspace notifications are messages too
	Message    EventKind = iota
	KeyChanged           // a key was made, changed or removed
	// any key of a database may have changed: it was flushed, or swapped with another
	DBChanged
	// a snapshot took the place of everything: any key may have changed
	StateReplaced
	ScriptCall // a script calls a command, for those who watch
)

// Event is something that other connections, or what waits on a node, are told after the entry was
// applied.
type Event struct {
	Kind             EventKind
	Channel, Payload []byte   // of a Message
	Shard            bool     // of a Message: sent by SPUBLISH
	Gone             bool     // of KeyChanged: the key does not exist after the entry
	DB               int      // of KeyChanged, DBChanged and ScriptCall
	Args             [][]byte // of ScriptCall
	Key              string   // of KeyChanged
	// of KeyChanged and ScriptCall: the Request.Client of the request that did it, 0 where it gave
	// none or no request did it
	Client uint64
}

// Scripts is the script engine as the script commands see it; package fsm/script implements it.
type Scripts interface {
	// Eval runs a script.
	Eval(x *Call, script Script) error
	// Load compiles and keeps a script and returns its SHA1 in hexadecimal.
	Load(x *Call, source []byte) (sha string, err error)
	Exists(sha []byte) bool
	Flush()

	// HasFunction reports whether a library has a function of that name, in any case of letters.
	HasFunction(name []byte) bool
	// LoadLibrary runs the source of a library, which registers its functions, and keeps it.
	// replace says that a library of the same name is to go for it.
	LoadLibrary(x *Call, source []byte, replace bool) (name string, err error)
	// RestoreLibraries loads libraries from their sources, all of them or none. An error in their
	// sequence is returned.
	RestoreLibraries(x *Call, sources iter.Seq2[[]byte, error], policy RestorePolicy) error
	DeleteLibrary(name []byte) bool
	FlushLibraries()
	// Libraries gives all libraries in order of name.
	Libraries() []*Library
}

// Script is one call of EVAL, EVALSHA or FCALL: by the source, the SHA1 in hexadecimal, or the name
// of a function that there is. The others are nil.
type Script struct {
	Source, SHA, Function []byte
	Keys, Args            [][]byte
	ReadOnly              bool
}

// Tx is the state that the commands of one request share: a transaction, or a script with what it
// calls.
type Tx struct {
	DB     int  // selected database
	Proto  int  // the asker's protocol, 2 or 3
	Multi  bool // inside EXEC
	Woken  bool // a blocking command that waited and is tried again
	Script bool // called by a script
	Behind bool // a blocking command that has come behind others that wait: it takes nothing
}

// Call is one command being run.
type Call struct {
	*Env
	Tx   *Tx
	Spec *Spec
	Args [][]byte // with the name first; valid until the handler returns
	Out  Reply
	// Stop is the value of Env.Work past which the command is refused, and Room how many bytes it
	// may reply, both from LevelBounded on. 0: as much as a request may.
	Stop uint64
	Room int

	began uint64 // Env.Work when the handler was called
	meter meter
}

// DB is the database that the command works on.
func (x *Call) DB() *keyspace.DB { return x.Keyspace.DB(x.Tx.DB) }

// Run runs the command of x.Args, for which ResolveAt gave spec and err, and writes its reply,
// errors included, to x.Out.
func (x *Call) Run(spec *Spec, err error) {
	x.meter = meter{}
	if err == nil && spec.Handler == nil {
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

// instantWork is what naming an instant costs: there are as many as microseconds, so who takes them
// faster than they pass puts TIME ahead of the clock.
const instantWork = 40

// TimeUs is the instant of the running command, µs since 1970: what TIME answers, and what is named
// after it. It is the same within a command or script, and rises strictly from one to the next.
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

// WallMs is the time of day that belongs to ClockMs, ms since 1970.
func (x *Call) WallMs() int64 { return x.WallUs / 1000 }

// DeadlineAt converts an absolute wall time (ms since 1970) into a deadline on the cluster clock,
// by the distance from now. A time that is past gives a deadline that is past.
func (x *Call) DeadlineAt(wallMs int64) int64 { return x.ClockMs + (wallMs - x.WallMs()) }

// WallAt converts a deadline into the wall time (ms since 1970) at which the key will expire as far
// as is known now.
func (x *Call) WallAt(deadlineMs int64) int64 { return x.WallMs() + (deadlineMs - x.ClockMs) }
