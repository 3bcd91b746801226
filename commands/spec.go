// Package commands is coordd's command table and the handlers of the commands that touch data.
//
// One Spec declares a command; arity errors, routing, what scripts may call, COMMAND's replies and the documentation derive from it.
// Handlers here are pure: what they see is in the Call, what they do is change the keyspace, write a reply, and
// emit events. The session's own commands are declared by package server with a Spec whose Local field is set.
package commands

import (
	"fmt"
	"slices"
	"strings"
)

// Kind says who runs a command.
type Kind uint8

const (
	// Session commands are answered from the connection's own state, by Spec.Local.
	Session Kind = iota
	// Read commands see data and change nothing: they run behind a read barrier, without a log entry.
	Read
	// Write commands may change data or send messages: they are put in the log.
	Write
	// Admin commands concern the node or the cluster, and are answered by Spec.Local.
	Admin
)

// Flag is a property of a command, by Redis's names.
type Flag uint32

// The flags of a Spec. Those that Redis derives from the kind (write, readonly, admin) are not repeated here.
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
	Blocking                         // may wait
	MayReplicate                     // writes nothing but sends messages
	MovableKeys                      // the places of its keys depend on its arguments
	SubscribeMode                    // allowed in RESP2 while subscribed
	AnyDB                            // does not depend on the selected database
	NoMandatoryKeys                  // may be called without keys, though it can have some
	AllowBusy                        // allowed while a script runs long, which Redis knows
	NoAsyncLoading                   // refused while Redis replaces its data in the background
	SkipSlowlog                      // not kept in the slow log
	WholeValues                      // the reply is about as large as the values of the keys
)

// KeySpec says where a command's keys are: at First, First+Step … Last (negative: counted from the end). Numkeys, when not 0, is the
// argument that counts them, the keys follow it. No keys: First is 0 and Numkeys is 0. Where all that cannot say it (a destination before
// counted keys, a word among the options) Find gives the places of the keys in args, whose number fits the arity, or nil where
// args are wrong; First, Last and Step then are what COMMAND INFO shows.
type KeySpec struct {
	First, Last, Step int
	Numkeys           int
	Find              func(args [][]byte) []int
	// Flags say what the command does to the keys. Where it does not do the same to all of them, Parts say it of each.
	Flags KeyFlag
	Parts []KeyPart
}

// Handler runs a data command. It parses everything, checks types, then changes, then replies: an error it returns means that
// nothing was changed and nothing was written to the reply.
type Handler func(x *Call) error

// Spec declares a command. Arity is Redis's: the number of arguments with the name, negative for a minimum.
type Spec struct {
	Name       string // lower case; a subcommand's own word
	Kind       Kind
	Arity      int
	Flags      Flag
	Keys       KeySpec
	Group      string // Redis's group: string, hash, sorted-set, generic, connection …
	Since      string // the Redis version that brought it, or coordd's
	Syntax     string // arguments as the documentation writes them
	Summary    string
	Complexity string
	Handler    Handler
	// Level is the feature level that brought the command: where the machine's is lower, data commands and scripts do not know it. 0: it was
	// there in the first release.
	Level uint64
	// ArgWork is what an argument costs in units of Env.Work; 0: what those of commands of the kind cost.
	ArgWork int
	// Categories are the ACL categories that neither kind nor flags tell, instead of the group's own.
	Categories string
	// Local answers Session and Admin commands; its type is package server's.
	Local any
	// Subcommands makes the command a container. Arity then is the container's.
	Subcommands []Spec

	parent string
}

// FullName is the name that errors and COMMAND show: "get", "script|load".
func (s *Spec) FullName() string {
	if s.parent != "" {
		return s.parent + "|" + s.Name
	}
	return s.Name
}

// Has says whether the flag is set.
func (s *Spec) Has(f Flag) bool { return s.Flags&f != 0 }

// Table is the set of all commands.
type Table struct {
	byName map[string]*Spec
	subs   map[*Spec]map[string]*Spec
	names  []string // sorted
}

// NewTable makes a table of all the given specs. It panics on a name declared twice: that is a mistake in the program.
func NewTable(groups ...[]Spec) *Table {
	t := &Table{byName: map[string]*Spec{}, subs: map[*Spec]map[string]*Spec{}}
	for _, group := range groups {
		for i := range group {
			s := group[i]
			if t.byName[s.Name] != nil {
				panic("command declared twice: " + s.Name)
			}
			t.byName[s.Name] = &s
			t.names = append(t.names, s.Name)
			t.addSubcommands(&s)
		}
	}
	slices.Sort(t.names)
	return t
}

func (t *Table) addSubcommands(s *Spec) {
	if s.Subcommands == nil {
		return
	}
	s.Subcommands = slices.Clone(s.Subcommands)
	m := make(map[string]*Spec, len(s.Subcommands))
	for i := range s.Subcommands {
		sub := &s.Subcommands[i]
		sub.parent = s.Name
		m[sub.Name] = sub
	}
	t.subs[s] = m
}

// All gives every top-level command in order of name.
func (t *Table) All() []*Spec {
	all := make([]*Spec, len(t.names))
	for i, n := range t.names {
		all[i] = t.byName[n]
	}
	return all
}

// Get returns the command of a name in any case, or nil. It does not descend into subcommands.
func (t *Table) Get(name []byte) *Spec {
	var buf [32]byte
	if len(name) > len(buf) {
		return nil
	}
	return t.byName[string(lower(buf[:0], name))]
}

// Subcommand returns a container's subcommand by its word in any case, or nil.
func (t *Table) Subcommand(s *Spec, word []byte) *Spec {
	var buf [32]byte
	if len(word) > len(buf) {
		return nil
	}
	return t.subs[s][string(lower(buf[:0], word))]
}

// Resolve finds the command or subcommand that args call and checks its arity. The errors are Redis's. There is a Spec with the error where the
// arity is what is wrong, and none where there is no such command.
func (t *Table) Resolve(args [][]byte) (*Spec, error) { return t.ResolveAt(FeatureLevel, args) }

// ResolveAt is Resolve for a machine of a feature level: it does as a release does whose newest level that is.
func (t *Table) ResolveAt(level uint64, args [][]byte) (*Spec, error) {
	s := t.Get(args[0])
	if s == nil || s.Level > level {
		return nil, unknownCommand(args)
	}
	if s.Subcommands != nil && len(args) > 1 {
		sub := t.Subcommand(s, args[1])
		if sub == nil || sub.Level > level {
			return nil, Errorf("ERR unknown subcommand '%.128s'. Try %s HELP.", args[1], strings.ToUpper(s.Name))
		}
		s = sub
	}
	if (s.Arity >= 0 && len(args) != s.Arity) || (s.Arity < 0 && len(args) < -s.Arity) {
		return s, s.ArityError()
	}
	return s, nil
}

// ArityError is the error for a wrong number of arguments.
func (s *Spec) ArityError() error {
	return Errorf("ERR wrong number of arguments for '%s' command", s.FullName())
}

// unknownCommand is Redis's error for a command that does not exist, with the beginning of its arguments.
func unknownCommand(args [][]byte) error {
	var b strings.Builder
	for _, a := range args[1:] {
		if b.Len() >= 128 {
			break
		}
		fmt.Fprintf(&b, "'%.*s' ", 128-b.Len(), a)
	}
	return Errorf("ERR unknown command '%.128s', with args beginning with: %s", args[0], b.String())
}

func lower(dst, src []byte) []byte {
	for _, c := range src {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}

// KeyIndexes returns the places of the keys in args, or an error where args do not count them rightly.
func (s *Spec) KeyIndexes(args [][]byte) ([]int, error) {
	k := s.Keys
	first, last, step := k.First, k.Last, max(k.Step, 1)
	if k.Find != nil {
		places := k.Find(args)
		if places == nil {
			return nil, Error("ERR Invalid arguments specified for command")
		}
		return places, nil
	}
	if k.Numkeys > 0 {
		if k.Numkeys >= len(args) {
			return nil, Error("ERR Invalid arguments specified for command")
		}
		n, ok := ParseInt(args[k.Numkeys])
		if !ok || n < 0 || n > int64(len(args)-k.Numkeys-1) {
			return nil, Error("ERR Invalid arguments specified for command")
		}
		first, last = k.Numkeys+1, k.Numkeys+int(n)
	} else if first == 0 {
		return nil, nil
	}
	if last < 0 {
		last += len(args)
	}
	var places []int
	for i := first; i <= last && i < len(args); i += step {
		places = append(places, i)
	}
	return places, nil
}
