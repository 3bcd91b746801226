// The filters of CLIENT LIST and CLIENT KILL: those of Redis, and of Valkey 8.1 and 9.0.

package server

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/ascii"
	"github.com/coordd/coordd/internal/resp"
)

var clientFilterSyntax = []string{
	"ID client-id:integer [client-id:integer ...]",
	"TYPE <NORMAL | MASTER | REPLICA | PUBSUB>", "USER username",
	"ADDR ip:port", "LADDR ip:port", "SKIPME <YES | NO>", "MAXAGE seconds:integer", "NAME name",
	"IDLE idle-seconds:integer", "FLAGS flags", "LIB-NAME libname", "LIB-VER libver",
	"DB db:integer", "CAPA capabilities", "IP ip", "NODE node-id",
	"NOT-ID not-client-id:integer [not-client-id:integer ...]",
	"NOT-TYPE <NORMAL | MASTER | REPLICA | PUBSUB>", "NOT-USER not-username",
	"NOT-ADDR not-ip:port", "NOT-LADDR not-ip:port", "NOT-NAME not-name", "NOT-FLAGS not-flags",
	"NOT-LIB-NAME not-libname", "NOT-LIB-VER not-libver", "NOT-DB not-db:integer",
	"NOT-CAPA not-capabilities", "NOT-IP not-ip", "NOT-NODE not-node-id",
}

// clientFilter says which connections CLIENT LIST and CLIENT KILL mean: those for which all
// conditions are met.
type clientFilter struct {
	conditions []clientCondition
	order      []uint64 // what ID names: in LIST's order, also repeatedly
	skip       *session
}

// clientCondition compares a property of a connection. A later one of the same property takes the
// place of an earlier one; ids add up.
type clientCondition struct {
	property string // "id", "type" …
	not      bool   // it must differ
	text     string
	number   int64
	ids      map[uint64]bool
}

// clientTraits are what conditions compare that a connection's own goroutine changes.
type clientTraits struct {
	id                                       uint64
	name, libName, libVer, flags, capa, node string
	db                                       int
	used                                     time.Time
}

func (s *session) traits() clientTraits {
	id, _ := s.srv.clientIDs.of(s.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &s.view
	return clientTraits{id: id, name: v.name, libName: v.libName, libVer: v.libVer,
		flags: v.flags, capa: v.capa, db: v.db, used: v.used}
}

// choose returns the connections of this node that are meant, oldest first.
func (f *clientFilter) choose(srv *Server) []*session {
	now, node := time.Now(), srv.backend.Status().ID
	return slices.DeleteFunc(srv.all(), func(c *session) bool { return !f.matches(c, node, now) })
}

// onlyHere reports whether no connection of another node can be meant.
func (f *clientFilter) onlyHere(srv *Server) bool {
	own := srv.backend.Status().ID
	return slices.ContainsFunc(f.conditions, func(x clientCondition) bool {
		return x.property == "node" && !x.not && x.text == own
	})
}

// found reports whether so many connections are all that can be meant.
func (f *clientFilter) found(count int64) bool {
	return slices.ContainsFunc(f.conditions, func(x clientCondition) bool {
		return x.property == "id" && !x.not && count == int64(len(x.ids))
	})
}

func (f *clientFilter) matches(c *session, node string, now time.Time) bool {
	if c == f.skip {
		return false
	}
	traits := c.traits()
	traits.node = node
	for i := range f.conditions {
		if condition := &f.conditions[i]; condition.applies(c, &traits, now) == condition.not {
			return false
		}
	}
	return true
}

// applies compares, without regard to not.
func (x *clientCondition) applies(c *session, t *clientTraits, now time.Time) bool {
	switch x.property {
	case "id":
		return x.ids[t.id]
	case "type":
		return c.kind() == x.text
	case "user":
		return c.userName() == x.text
	case "addr":
		return c.addr == x.text
	case "laddr":
		return c.laddr == x.text
	case "ip":
		host, _, _ := net.SplitHostPort(c.addr)
		return host == x.text
	case "maxage":
		return int64(now.Sub(c.created).Seconds()) >= x.number
	case "idle":
		return int64(now.Sub(t.used).Seconds()) >= x.number
	case "name":
		return t.name == x.text
	case "flags":
		return containsAll(t.flags, x.text)
	case "capa":
		return containsAll(t.capa, x.text)
	case "lib-name":
		return t.libName == x.text
	case "lib-ver":
		return t.libVer == x.text
	case "node":
		return t.node == x.text
	}
	return int64(t.db) == x.number
}

// containsAll reports whether text has each of the letters.
func containsAll(text, letters string) bool {
	for i := range len(letters) {
		if strings.IndexByte(text, letters[i]) < 0 {
			return false
		}
	}
	return true
}

// distinct returns each of the letters once: they are looked for in every connection.
func distinct(letters []byte) string {
	once := slices.Clone(letters)
	slices.Sort(once)
	return string(slices.Compact(once))
}

// errClientID is Redis's for CLIENT LIST.
const errClientID commands.Error = "ERR Invalid client ID"

// parseClientFilter parses the filters of CLIENT LIST or CLIENT KILL, called by the session s; nil:
// by one of another node.
func parseClientFilter(
	srv *Server, s *session, args [][]byte, list bool,
) (*clientFilter, error) {
	f := &clientFilter{}
	if !list {
		f.skip = s
	}
	for i := 0; i < len(args); {
		afterIDs := list && i > 0 && len(f.conditions) > 0 &&
			f.conditions[len(f.conditions)-1].property == "id"
		if i+1 == len(args) {
			if afterIDs {
				return nil, errClientID
			}
			return nil, commands.ErrSyntax // reported after errors in earlier pairs
		}
		taken, err := f.set(srv, s, args[i], args[i+1:], list)
		if err == commands.ErrSyntax && afterIDs {
			err = errClientID
		}
		if err != nil {
			return nil, err
		}
		i += 1 + taken
	}
	return f, nil
}

// set parses one filter, and returns how many of the values it takes.
func (f *clientFilter) set(
	srv *Server, s *session, word []byte, values [][]byte, list bool,
) (taken int, err error) {
	if is(word, "skipme") {
		switch {
		case is(values[0], "yes"):
			f.skip = s
		case is(values[0], "no"):
			f.skip = nil
		default:
			return 0, commands.ErrSyntax
		}
		return 1, nil
	}
	x := clientCondition{property: ascii.Lower(word), text: string(values[0])}
	x.property, x.not = strings.CutPrefix(x.property, "not-")
	if x.property == "id" {
		return f.setIDs(srv, s, x, values, list)
	}
	if err := x.parse(srv, s, values[0]); err != nil {
		return 0, err
	}
	f.conditions = append(slices.DeleteFunc(f.conditions, func(other clientCondition) bool {
		return other.property == x.property && other.not == x.not
	}), x)
	return 1, nil
}

// setIDs takes the integers at the beginning of values. A client of this node may know a connection
// by the id that it had before there was a block.
func (f *clientFilter) setIDs(
	srv *Server, s *session, x clientCondition, values [][]byte, list bool,
) (taken int, err error) {
	same := func(other clientCondition) bool {
		return other.property == "id" && other.not == x.not
	}
	x.ids = map[uint64]bool{}
	if i := slices.IndexFunc(f.conditions, same); i >= 0 {
		x.ids = f.conditions[i].ids
		f.conditions = slices.Delete(f.conditions, i, i+1)
	}
	for _, v := range values {
		id, ok := commands.ParseInt(v)
		switch {
		case !ok && taken > 0:
			f.conditions = append(f.conditions, x)
			return taken, nil
		case !ok && list && !x.not:
			return 0, errClientID
		case !ok || id < 1 && (!list || x.not):
			return 0, commands.Error("ERR client-id should be greater than 0")
		}
		taken++
		known := uint64(id)
		if known < commands.FirstClientID {
			if s == nil {
				continue
			}
			known, _ = srv.clientIDs.of(srv.clientIDs.number(known))
		}
		x.ids[known] = true
		if !x.not {
			f.order = append(f.order, known)
		}
	}
	f.conditions = append(f.conditions, x)
	return taken, nil
}

// clientFlagLetters are the letters that CLIENT LIST of Redis or Valkey can show.
const clientFlagLetters = "AbBcdeEGiIMNOPrRStTuUx"

// parse parses the value of any property but an id. Another node may know a user that this one does
// not know yet, or no more: none of its connections has that one.
func (x *clientCondition) parse(srv *Server, s *session, value []byte) error {
	switch x.property {
	case "type":
		return x.parseType(value)
	case "maxage", "idle":
		if x.not {
			return commands.ErrSyntax
		}
		n, ok := commands.ParseInt(value)
		switch {
		case !ok:
			return commands.Errorf("ERR %s is not an integer or out of range", x.property)
		case n <= 0:
			return commands.Errorf("ERR %s should be greater than 0", x.property)
		}
		x.number = n
	case "user":
		if users := srv.users(); s != nil && (users == nil || users.Get(value) == nil) {
			return commands.Errorf("ERR No such user '%s'", resp.Shown(value))
		}
	case "flags":
		if !containsAll(clientFlagLetters, x.text) {
			filter := "provided"
			if x.not {
				filter = "NOT-FLAGS"
			}
			return commands.Errorf("ERR Unknown flags found in the %s filter: %s", filter,
				resp.Shown(value))
		}
		x.text = distinct(value)
	case "capa":
		x.text = distinct(value)
	case "db":
		n, ok := commands.ParseInt(value)
		if !ok || n < 0 || n >= databases {
			return commands.Error("ERR DB number should be between 0 and " +
				strconv.Itoa(databases-1))
		}
		x.number = n
	case "addr", "laddr", "ip", "name", "lib-name", "lib-ver", "node":
	default:
		return commands.ErrSyntax
	}
	return nil
}

// parseType parses the value of TYPE. Only normal and pubsub clients exist here.
func (x *clientCondition) parseType(value []byte) error {
	switch x.text = ascii.Lower(value); x.text {
	case "slave":
		x.text = "replica"
	case "primary":
		x.text = "master"
	case "normal", "pubsub", "master", "replica":
	default:
		return commands.Errorf("ERR Unknown client type '%s'", resp.Shown(value))
	}
	return nil
}
