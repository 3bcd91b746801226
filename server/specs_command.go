// COMMAND, derived from the command table.

package server

import (
	"bytes"
	"slices"
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/internal/ascii"
)

var introspectSpecs = []commands.Spec{{
	Name: "command", Kind: commands.Session, Arity: -1, Group: "server", Since: "2.8.13",
	Flags: commands.Loading | commands.Stale, OwnCategories: "connection",
	Summary:    "Returns details about all commands.",
	Complexity: "O(N) where N is the number of commands",
	Local: &commands.Local{Early: true, Works: true,
		Run: serve(func(s *session, _ *commands.Spec, _ [][]byte) {
			s.constant("info", s.allInfos)
		})},
	Subcommands: []commands.Spec{
		commandSub("count", 2, "2.8.13", "", "Counts the commands.",
			func(s *session, _ *commands.Spec, _ [][]byte) {
				s.w.Int(int64(len(s.srv.table.All())))
			}),
		commandSub("list", -2, "7.0.0",
			"[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]",
			"Lists the names of commands.", commandList),
		commandSub("info", -2, "2.8.13", "[command-name [command-name ...]]",
			"Returns details about commands, or about all of them.", commandInfos),
		commandSub("docs", -2, "7.0.0", "[command-name [command-name ...]]",
			"Returns the documentation of commands, or of all of them.", commandDocs),
		carries(2, commandSub("getkeys", -4, "2.8.13", "command [arg [arg ...]]",
			"Extracts the keys of a call.", getKeys(false))),
		carries(2, commandSub("getkeysandflags", -4, "7.0.0", "command [arg [arg ...]]",
			"Extracts the keys of a call and how it accesses each.", getKeys(true))),
		categorized("connection", helpSpec("COMMAND", "5.0.0", "server",
			"(no subcommand)", "    Return details about all Redis commands.",
			"COUNT", "    Return the total number of commands in this Redis server.",
			"LIST", "    Return a list of all commands in this Redis server.",
			"INFO [<command-name> ...]", "    Return details about multiple Redis commands.",
			"    If no command names are given, documentation details for all",
			"    commands are returned.",
			"DOCS [<command-name> ...]",
			"    Return documentation details about multiple Redis commands.",
			"    If no command names are given, documentation details for all",
			"    commands are returned.",
			"GETKEYS <full-command>", "    Return the keys from a full Redis command.",
			"GETKEYSANDFLAGS <full-command>",
			"    Return the keys and the access flags from a full Redis command.")),
	},
}}

// categorized sets the ACL categories of a command.
func categorized(categories string, c commands.Spec) commands.Spec {
	c.OwnCategories = categories
	return c
}

func commandSub(name string, arity int, since, syntax, summary string,
	run func(*session, *commands.Spec, [][]byte)) commands.Spec {
	return commands.Spec{
		Name: name, Kind: commands.Session, Arity: arity, Group: "server", Since: since,
		Flags: commands.Loading | commands.Stale, OwnCategories: "connection",
		Syntax: syntax, Summary: summary, Complexity: "O(N) where N is the number of commands",
		Local: &commands.Local{Early: true, Works: true, Run: serve(run)},
	}
}

// flagWords names the flags of a Spec in Redis's order; flag 0 stands for admin.
var flagWords = []struct {
	flag commands.Flag
	word string
}{
	{commands.DenyOOM, "denyoom"}, {0, "admin"}, {commands.PubSub, "pubsub"},
	{commands.NoScript, "noscript"},
	{commands.Blocking, "blocking"}, {commands.Loading, "loading"}, {commands.Stale, "stale"},
	{commands.SkipMonitor, "skip_monitor"},
	{commands.SkipSlowlog, "skip_slowlog"}, {commands.Fast, "fast"}, {commands.NoAuth, "no_auth"},
	{commands.NoMandatoryKeys, "no_mandatory_keys"}, {commands.NoAsyncLoading, "no_async_loading"},
	{commands.NoMulti, "no_multi"},
	{commands.MovableKeys, "movablekeys"}, {commands.AllowBusy, "allow_busy"},
}

func commandFlags(c *commands.Spec) []string {
	var words []string
	if c.Writes() {
		words = append(words, "write")
	}
	if c.Reads() {
		words = append(words, "readonly")
	}
	for _, f := range flagWords {
		if f.flag == 0 && c.Administers() || f.flag != 0 && c.Has(f.flag) {
			words = append(words, f.word)
		}
	}
	return words
}

func (s *session) statusSet(words []string, prefix string) {
	s.w.Set(len(words))
	for _, w := range words {
		s.w.Status(prefix + w)
	}
}

// constant replies with what write writes, which never changes; it is cached per protocol.
func (s *session) constant(name string, write func()) {
	key := constantKey{name, s.w.Proto}
	if made, ok := s.srv.constants.Load(key); ok {
		s.w.Encoded(made.([]byte))
		return
	}
	start := len(s.w.Buf)
	if write(); !s.w.Full {
		s.srv.constants.Store(key, bytes.Clone(s.w.Buf[start:]))
	}
}

// constantKey names a cached reply.
type constantKey struct {
	name  string
	proto int
}

func (s *session) allInfos() {
	all := s.srv.table.All()
	s.w.Array(len(all))
	for _, c := range all {
		s.commandInfo(c)
	}
}

// commandInfo writes a command's element of COMMAND.
func (s *session) commandInfo(c *commands.Spec) {
	k := c.Keys
	step := k.Step
	if k.First > 0 {
		step = max(step, 1)
	}
	s.w.Array(10)
	s.w.BulkString(c.FullName())
	s.w.Int(int64(c.Arity))
	s.statusSet(commandFlags(c), "")
	s.w.Int(int64(k.First))
	s.w.Int(int64(k.Last))
	s.w.Int(int64(step))
	s.statusSet(c.Categories().Names(), "@")
	s.w.Set(0) // tips
	s.keySpecs(c)
	s.w.Set(len(c.Subcommands))
	for i := range c.Subcommands {
		s.commandInfo(&c.Subcommands[i])
	}
}

// keySpecs writes the key specifications of a command.
func (s *session) keySpecs(c *commands.Spec) {
	parts := c.KeyParts()
	s.w.Set(len(parts))
	for i := range parts {
		p := &parts[i]
		s.w.Map(3)
		s.w.BulkString("flags")
		s.statusSet(p.Flags.Words(), "")
		switch {
		case p.Unknown:
			s.search("begin_search", "unknown")
			s.search("find_keys", "unknown")
			continue
		case p.Keyword != "":
			s.search("begin_search", "keyword", keyNumber{"keyword", p.Keyword},
				keyNumber{"startfrom", p.First})
		default:
			s.search("begin_search", "index", keyNumber{"index", p.First})
		}
		if p.Numkeys {
			s.search("find_keys", "keynum", keyNumber{"keynumidx", 0}, keyNumber{"firstkey", 1},
				keyNumber{"keystep", p.Step})
		} else {
			s.search("find_keys", "range", keyNumber{"lastkey", p.Last},
				keyNumber{"keystep", p.Step}, keyNumber{"limit", p.Limit})
		}
	}
}

// keyNumber is a number, or the keyword, of a key search.
type keyNumber struct {
	name  string
	value any
}

// search writes one step of a key search.
func (s *session) search(step, kind string, numbers ...keyNumber) {
	s.w.BulkString(step)
	s.w.Map(2)
	s.w.BulkString("type")
	s.w.BulkString(kind)
	s.w.BulkString("spec")
	s.w.Map(len(numbers))
	for _, n := range numbers {
		s.w.BulkString(n.name)
		switch v := n.value.(type) {
		case int:
			s.w.Int(int64(v))
		case string:
			s.w.BulkString(v)
		}
	}
}

// byName finds a command by its full name: get, config|get.
func (s *session) byName(name []byte) *commands.Spec {
	container, sub, found := strings.Cut(string(name), "|")
	c := s.srv.table.Get([]byte(container))
	if c == nil || !found {
		return c
	}
	if c.Subcommands == nil {
		return nil
	}
	return s.srv.table.Subcommand(c, []byte(sub))
}

func commandInfos(s *session, _ *commands.Spec, args [][]byte) {
	if len(args) == 2 {
		s.constant("info", s.allInfos)
		return
	}
	s.w.Array(len(args) - 2)
	write := s.copies(s.commandInfo)
	for _, name := range args[2:] {
		if c := s.byName(name); c != nil {
			write(c)
		} else {
			s.w.Null()
		}
	}
}

// copies returns a function that writes what write does, and copies that if a command is repeated.
// The work is charged as often.
func (s *session) copies(write func(*commands.Spec)) func(*commands.Spec) {
	type text struct {
		made []byte
		work int
	}
	texts := map[*commands.Spec]text{}
	return func(c *commands.Spec) {
		if t, ok := texts[c]; ok {
			s.work.spend(t.work)
			s.w.Encoded(t.made)
			return
		}
		start, before := len(s.w.Buf), s.work.spent
		write(c)
		texts[c] = text{bytes.Clone(s.w.Buf[start:]), s.work.spent - before}
	}
}

func commandList(s *session, _ *commands.Spec, args [][]byte) {
	keep := func(*commands.Spec) bool { return true }
	switch {
	case len(args) == 2:
		s.constant("list", func() { s.bulks(s.namesOf(keep)) })
		return
	case len(args) != 5 || !is(args[2], "filterby"):
		s.fail(commands.ErrSyntax)
		return
	case is(args[3], "module"):
		keep = func(*commands.Spec) bool { return false }
	case is(args[3], "aclcat"):
		category := acl.ParseCategory(string(args[4]))
		keep = func(c *commands.Spec) bool { return c.Categories()&category != 0 }
	case is(args[3], "pattern"):
		if err := commands.CheckPattern(args[4]); err != nil {
			s.fail(err)
			return
		}
		matches := matcher([]byte(ascii.Lower(args[4])), s.work)
		keep = func(c *commands.Spec) bool { return matches(c.FullName()) }
	default:
		s.fail(commands.ErrSyntax)
		return
	}
	s.bulks(s.namesOf(keep))
}

// namesOf returns the names of the commands and subcommands that keep accepts.
func (s *session) namesOf(keep func(*commands.Spec) bool) []string {
	var names []string
	for _, c := range s.srv.table.All() {
		if keep(c) {
			names = append(names, c.FullName())
		}
		for i := range c.Subcommands {
			if sub := &c.Subcommands[i]; keep(sub) {
				names = append(names, sub.FullName())
			}
		}
	}
	return names
}

func (s *session) bulks(words []string) {
	s.w.Array(len(words))
	for _, w := range words {
		s.w.BulkString(w)
	}
}

func commandDocs(s *session, _ *commands.Spec, args [][]byte) {
	if len(args) == 2 {
		s.constant("docs", func() { s.docs(s.srv.table.All()) })
		return
	}
	var found []*commands.Spec
	for _, name := range args[2:] {
		if c := s.byName(name); c != nil {
			found = append(found, c)
		}
	}
	s.docs(found)
}

func (s *session) docs(found []*commands.Spec) {
	s.w.Map(len(found))
	write := s.copies(s.commandDoc)
	for _, c := range found {
		if write(c); s.w.Full {
			break // a name may be repeated a million times
		}
	}
}

// commandDoc writes a name and its documentation.
func (s *session) commandDoc(c *commands.Spec) {
	s.w.BulkString(c.FullName())
	fields := [][2]string{{"summary", c.Summary}, {"since", c.Since}, {"group", c.Group},
		{"complexity", c.Complexity}}
	fields = slices.DeleteFunc(fields, func(f [2]string) bool { return f[1] == "" })
	args, err := commands.ParseSyntax(c.Syntax)
	if err != nil || c.Subcommands != nil {
		args = nil // an error in the table, which a test catches
	}
	n := len(fields)
	for _, more := range []bool{len(args) > 0, len(c.Subcommands) > 0} {
		if more {
			n++
		}
	}
	s.w.Map(n)
	for _, f := range fields {
		s.w.BulkString(f[0])
		s.w.BulkString(f[1])
	}
	if len(args) > 0 {
		s.w.BulkString("arguments")
		keys := 0
		s.docArgs(c, args, &keys)
	}
	if len(c.Subcommands) > 0 {
		s.w.BulkString("subcommands")
		s.w.Map(len(c.Subcommands))
		for i := range c.Subcommands {
			s.commandDoc(&c.Subcommands[i])
		}
	}
}

// docArgs writes arguments. keys counts the keys among those before.
func (s *session) docArgs(c *commands.Spec, args []commands.Arg, keys *int) {
	s.w.Array(len(args))
	for i := range args {
		a := &args[i]
		var flags []string
		for _, f := range []struct {
			on   bool
			word string
		}{{a.Optional, "optional"}, {a.Multiple, "multiple"}, {a.MultipleToken, "multiple_token"}} {
			if f.on {
				flags = append(flags, f.word)
			}
		}
		isKey := a.Type == commands.ArgKey && len(c.KeyParts()) > 0
		n := 2
		for _, more := range []bool{isKey, a.Token != "", flags != nil, a.Args != nil} {
			if more {
				n++
			}
		}
		s.w.Map(n)
		s.w.BulkString("name")
		s.w.BulkString(a.Name)
		s.w.BulkString("type")
		s.w.BulkString(string(a.Type))
		if isKey {
			s.w.BulkString("key_spec_index")
			s.w.Int(int64(min(*keys, len(c.KeyParts())-1)))
			*keys++
		}
		if a.Token != "" {
			s.w.BulkString("token")
			s.w.BulkString(a.Token)
		}
		if flags != nil {
			s.w.BulkString("flags")
			s.statusSet(flags, "")
		}
		if a.Args != nil {
			s.w.BulkString("arguments")
			s.docArgs(c, a.Args, keys)
		}
	}
}

func getKeys(flags bool) func(*session, *commands.Spec, [][]byte) {
	return func(s *session, _ *commands.Spec, args [][]byte) {
		args = args[2:]
		c := s.srv.table.Get(args[0])
		if c != nil && c.Subcommands != nil && len(args) > 1 {
			c = s.srv.table.Subcommand(c, args[1])
		}
		if c == nil {
			s.fail(commands.Error("ERR Invalid command specified"))
			return
		}
		if parts := c.KeyParts(); len(parts) == 0 || parts[0].Flags&commands.KeyNone != 0 {
			s.fail(commands.Error("ERR The command has no key arguments"))
			return
		}
		if _, err := s.srv.table.Resolve(args); err != nil {
			s.fail(commands.Error("ERR Invalid number of arguments specified for command"))
			return
		}
		uses, err := c.KeyUses(args)
		if err != nil && !c.Has(commands.NoMandatoryKeys) {
			s.fail(err)
			return
		}
		s.w.Array(len(uses))
		for _, use := range uses {
			if flags {
				s.w.Array(2)
			}
			s.w.Bulk(args[use.Index])
			if flags {
				s.statusSet(use.Flags.Words(), "")
			}
		}
	}
}
