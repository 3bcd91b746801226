package commands

import (
	"strings"

	"github.com/coordd/coordd/internal/ascii"
)

// Kind says which part of the server runs a command.
type Kind uint8

const (
	// Session commands use only the connection's own state and are run by Spec.Local.
	Session Kind = iota
	// Read commands see data and change nothing. They run behind a read barrier, without a log
	// entry.
	Read
	// Write commands may change data or send messages. They go into the log.
	Write
	// Admin commands concern the node or the cluster and are run by Spec.Local.
	Admin
)

// Flag is a property of a command, with Redis's name if Redis has one.
type Flag uint64

// The flags that COMMAND shows. Those that Redis derives from the kind (write, readonly, admin)
// are not repeated.
const (
	DenyOOM         Flag = 1 << iota // may use more memory
	NoScript                         // refused in scripts
	Fast                             // O(1) or O(log n)
	Loading                          // allowed while a node is loading
	Stale                            // allowed without a leader
	NoMulti                          // refused in a transaction
	NoAuth                           // allowed before authentication
	SkipMonitor                      // not shown to MONITOR
	PubSub                           // concerns messages
	Blocking                         // may wait; Spec.Waits says when
	MayReplicate                     // writes nothing but sends messages
	MovableKeys                      // the positions of its keys depend on its arguments
	SubscribeMode                    // allowed in RESP2 while subscribed
	AnyDB                            // does not depend on the selected database
	NoMandatoryKeys                  // may be called without keys, though it can have some
	AllowBusy                        // allowed during a long script; no effect here
	NoAsyncLoading                   // refused during an async load; no effect here
	SkipSlowlog                      // not kept in the slow log

	// The flags below are for dispatch alone; COMMAND does not show them.

	WholeValues  // the reply is about as large as the values of the keys
	NotQueued    // runs at once inside a transaction
	RunsQueue    // runs the queued transaction: EXEC
	SelectsDB    // changes the selected database
	KeepsCaching // leaves CLIENT CACHING in force for the next command
	Ends         // does nothing to its keys but to add elements at their ends or take some there
	Unflagged    // neither write nor readonly for COMMAND, whatever its kind

	// Discovery marks Admin commands that only show members: a node answers them to clients on its
	// machine before it knows the users.
	Discovery

	// Founding marks the command that founds a cluster: a node that can found one runs it for the
	// cluster's first users.
	Founding

	// Linearizable commands read the leader's state, even on a connection that said READONLY.
	Linearizable

	// Unlogged commands see what their node alone knows: they must not be in a log entry.
	Unlogged

	// Administrative commands are those of administrators, like Admin commands, but run in the
	// machine. COMMAND shows both as admin.
	Administrative

	// Shows marks commands that change nothing and stop nobody, though they are dangerous or part
	// of an audited container: the audit trail does not have them. Those of kind Read need it not.
	Shows

	// NamesConnection marks commands whose requests name the connection: see Spec.Binds.
	NamesConnection
)

// Waits says which calls of a command may wait.
type Waits uint8

const (
	// NeverWaits is a command whose handler never blocks.
	NeverWaits Waits = iota
	// AlwaysWaits is a command that may wait in every call.
	AlwaysWaits
	// WaitsOnBlock is a command that may wait if BLOCK is among its arguments.
	WaitsOnBlock
	// WaitsOnWait is LOCK.ACQUIRE, which may wait if WAIT is among its options.
	WaitsOnWait
)

// Handler runs a data command. If it returns an error, it has changed nothing and written
// nothing to the reply.
type Handler func(x *Call) error

// Client is the connection that a Local runs for: package server's session.
type Client interface{ IsClient() }

// Local says how a node answers a command itself, without the log.
type Local struct {
	Run func(c Client, spec *Spec, args [][]byte)
	// Ahead, if set, runs before Run, and may wait: for other nodes. Its error is the reply.
	Ahead func(c Client, spec *Spec, args [][]byte) error
	// Early commands neither see nor change anything that requests before them could change, and do
	// not wait for these.
	Early bool
	// Works marks commands that may compute for long. They share the processor fairly: Run must
	// not wait.
	Works bool
	// Behind, if set, runs after Run, before the reply is sent, and may wait.
	Behind func(c Client, spec *Spec, args [][]byte)
	// Raw commands order their own replies.
	Raw bool
}

// Spec declares a command. Arity is Redis's: the number of arguments with the name, negative for
// a minimum.
type Spec struct {
	Name        string // lower case; a subcommand's own word
	Kind        Kind
	Arity       int
	ArityBefore int // … in releases whose newest level is below LevelSecond; 0: the same
	Flags       Flag
	Keys        KeySpec
	Group       string // Redis's group: string, hash, sorted-set, generic, connection …
	Since       string // the Redis version that introduced it, or coordd's
	Syntax      string // the arguments, in the notation of syntax.go
	Summary     string // a sentence in the third person, as Redis writes them
	Complexity  string
	Handler     Handler
	// Waits says when a call may wait, by Call.Block.
	Waits Waits
	// Level is the feature level that introduced the command. A machine of a lower level does not
	// know it. 0: the first release had it.
	Level uint64
	// HandlerLevel is the feature level from which the machine runs a command that also has a
	// Local: scripts may call it then. 0: any, or there is no Local.
	HandlerLevel uint64
	// ArgWork is the cost of an argument in units of Env.Work. 0: the default of the kind.
	ArgWork int
	// OwnCategories are the ACL categories that follow neither from kind nor from flags. They
	// replace the group's own.
	OwnCategories string
	// Channels says which arguments are channels.
	Channels Channels
	// Grows reports whether maxmemory refuses a call, with the right number of arguments, while the
	// data exceeds it. nil: Script or DenyOOM says so.
	Grows func(x *Call) bool
	// Script returns what a call, with the right number of arguments, runs. nil: no script.
	Script func(args [][]byte) Script
	// Secret calls hide with the index of each argument that MONITOR and the slow log hide. nil:
	// they hide nothing.
	Secret Secret
	// Carries is where a call of another command begins in the arguments, as in those of COMMAND
	// GETKEYS. 0: there is none.
	Carries int
	// RequestID returns the id of a request that runs once: a repeat gets the first reply, and the
	// handler does not run, which the machine sees to. nil: the call has none. It needs
	// LevelSecond.
	RequestID func(args [][]byte) []byte
	// Acts says what the command does to its first key, for a Witness. 0: nothing that it notes.
	Acts acts
	// Audit says what the audit trail shows of a call. nil: nothing, or for a subcommand what its
	// container's says.
	Audit Audit
	// Local answers Session and Admin commands.
	Local *Local
	// Rewrite returns the arguments as they may leave the connection: without passwords. It fails
	// for those that may not leave it. nil: as they are.
	Rewrite func(c Client, args [][]byte) ([][]byte, error)
	// Ran tells the connection that the machine has run the command without an error. nil: nothing
	// follows.
	Ran func(c Client, args [][]byte)
	// Subcommands makes the command a container. Arity is then the container's.
	Subcommands []Spec

	parent string
	place  int // in the catalogs of the table
}

// FullName returns the name that errors and COMMAND show: "get", "script|load".
func (s *Spec) FullName() string {
	if s.parent != "" {
		return s.parent + "|" + s.Name
	}
	return s.Name
}

// container is the name of the command that the table knows: that of the container.
func (s *Spec) container() string {
	if s.parent != "" {
		return s.parent
	}
	return s.Name
}

// Has reports whether the flag is set.
func (s *Spec) Has(f Flag) bool { return s.Flags&f != 0 }

// MayWait reports whether a call may wait.
func (s *Spec) MayWait(args [][]byte) bool {
	switch s.Waits {
	case AlwaysWaits:
		return true
	case WaitsOnBlock:
		for _, a := range args[1:] {
			if isWord(a, "BLOCK") {
				return true
			}
		}
	case WaitsOnWait:
		return lockMayWait(args)
	}
	return false
}

// Binds reports whether a call may bind a lease to its connection, which its request then names.
func (s *Spec) Binds(args [][]byte) bool {
	s, args = s.Carried(args)
	return s.Has(NamesConnection) && (s.Name != "grant" || bindsLease(args))
}

// Usage returns the call as the documentation writes it: name and arguments, without types.
func (s *Spec) Usage() string {
	call := ascii.Upper(strings.ReplaceAll(s.FullName(), "|", " "))
	if s.Syntax == "" {
		return call
	}
	return call + " " + untyped(s.Syntax)
}

// ArityError returns the error for a wrong number of arguments.
func (s *Spec) ArityError() error {
	return Errorf("ERR wrong number of arguments for '%s' command", s.FullName())
}
