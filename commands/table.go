package commands

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/internal/ascii"
)

// Specs returns every command on data. Package server adds its own.
func Specs() []Spec {
	return slices.Concat(stringSpecs, bitSpecs, hllSpecs, keySpecs, dumpSpecs, hashSpecs,
		hashTTLSpecs, setSpecs, setTTLSpecs, zsetSpecs, geoSpecs, listSpecs, sortSpecs, streamSpecs,
		lockSpecs, limitSpecs, windowSpecs, fenceSpecs, onceSpecs, scriptSpecs, functionSpecs,
		nextSpecs)
}

// Table is the set of all commands.
type Table struct {
	byName map[string]*Spec
	subs   map[*Spec]map[string]*Spec
	names  []string // sorted
	// catalog has all commands and subcommands in the order of their numbers in catalogs.
	catalog  []*Spec
	catalogs []*acl.Catalog // what Catalog returns, by level
}

// NewTable returns a table of the given specs. It panics if a name is declared twice, which is a
// bug.
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
			if s.Keys.Carried {
				s.carryFrom(t)
			}
		}
	}
	slices.Sort(t.names)
	t.number()
	for level := range uint64(FeatureLevel) + 1 {
		t.catalogs = append(t.catalogs, t.newCatalog(level))
	}
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
		if sub.Audit == nil && sub.Kind != Read && !sub.Has(Shows) {
			sub.Audit = s.Audit
		}
		m[sub.Name] = sub
	}
	t.subs[s] = m
}

// All returns every top-level command, ordered by name.
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
	return t.byName[string(ascii.AppendLower(buf[:0], name))]
}

// Subcommand returns a container's subcommand by its word in any case, or nil.
func (t *Table) Subcommand(s *Spec, word []byte) *Spec {
	var buf [32]byte
	if len(word) > len(buf) {
		return nil
	}
	return t.subs[s][string(ascii.AppendLower(buf[:0], word))]
}

// Resolve returns the command or subcommand that args call, and checks its arity. The errors are
// Redis's. With an arity error it also returns the Spec; for an unknown command the Spec is nil.
func (t *Table) Resolve(args [][]byte) (*Spec, error) { return t.ResolveAt(FeatureLevel, args) }

// ResolveAt is Resolve as a release does it whose newest feature level is level.
func (t *Table) ResolveAt(level uint64, args [][]byte) (*Spec, error) {
	return t.ResolveNamed(t.Get(args[0]), level, args)
}

// ResolveNamed is ResolveAt for a caller that remembers which command, s, the name in args means.
func (t *Table) ResolveNamed(s *Spec, level uint64, args [][]byte) (*Spec, error) {
	if s == nil || s.Level > level {
		return nil, unknownCommand(args)
	}
	if s.Subcommands != nil && len(args) > 1 {
		sub := t.Subcommand(s, args[1])
		if sub == nil || sub.Level > level {
			return nil, Errorf("ERR unknown subcommand '%.128s'. Try %s HELP.", args[1],
				ascii.Upper(s.Name))
		}
		s = sub
	}
	arity := s.Arity
	if s.ArityBefore != 0 && level < LevelSecond {
		arity = s.ArityBefore
	}
	if (arity >= 0 && len(args) != arity) || (arity < 0 && len(args) < -arity) {
		return s, s.ArityError()
	}
	return s, nil
}

// unknownCommand returns Redis's error for an unknown command, with the start of its arguments.
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
