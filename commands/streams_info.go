// XINFO.

package commands

import "github.com/coordd/coordd/commands/keyspace"

// fullArgs are the options of XINFO STREAM.
type fullArgs struct {
	full  bool
	count int64 // elements to reply of each list; 0: all
}

func (a *fullArgs) parse(args [][]byte) error {
	a.full = len(args) > 3
	a.count = 10
	switch {
	case !a.full:
		return nil
	case len(args) != 4 && len(args) != 6, !isWord(args[3], "FULL"), len(args) == 6 &&
		!isWord(args[4], "COUNT"):
		return SubcommandSyntax(args)
	case len(args) == 4:
		return nil
	}
	n, ok := ParseInt(args[5])
	if !ok {
		return ErrNotInteger
	}
	if n >= 0 {
		a.count = n
	}
	return nil
}

// length returns how many of n elements are replied.
func (a *fullArgs) length(n int) int {
	if a.count > 0 {
		return int(min(int64(n), a.count))
	}
	return n
}

// xinfoStream parses the arguments after the key after the lookup, as Redis does.
func xinfoStream(x *Call) error {
	s, err := existingStream(x, x.Args[2])
	if err != nil {
		return err
	}
	var a fullArgs
	if err := a.parse(x.Args); err != nil {
		return err
	}
	pairs := 10
	if a.full {
		pairs = 9
	}
	config, counts, once := s.Once()
	if once {
		pairs += 6
	}
	x.Out.Map(pairs)
	replyField := func(name string) { x.Out.BulkString(name) }
	replyInt := func(name string, n int64) {
		replyField(name)
		x.Out.Int(n)
	}
	replyID := func(name string, id keyspace.StreamID) {
		replyField(name)
		x.Out.BulkString(id.String())
	}
	x.Spend(s.Nodes())
	first, _ := s.First()
	replyInt("length", int64(s.Len()))
	replyInt("radix-tree-keys", int64(s.Nodes()))
	replyInt("radix-tree-nodes", int64(s.RadixNodes()))
	replyID("last-generated-id", s.Last())
	replyID("max-deleted-entry-id", s.Tombstone())
	replyInt("entries-added", int64(s.Added()))
	replyID("recorded-first-entry-id", first.ID)
	if once {
		replyInt("idmp-duration", config.DurationS)
		replyInt("idmp-maxsize", config.Most)
		replyInt("pids-tracked", int64(counts.Producers))
		replyInt("iids-tracked", int64(counts.IDs))
		replyInt("iids-added", int64(counts.Added))
		replyInt("iids-duplicates", int64(counts.Duplicates))
	}
	if a.full {
		replyField("entries")
		replyEntries(x.Out, streamRange(x, s, keyspace.StreamID{}, keyspace.MaxStreamID, a.count,
			false, nil))
		replyField("groups")
		x.Out.Array(s.Groups())
		s.EachGroup(func(g *keyspace.Group) { replyFullGroup(x, s, g, &a) })
		return nil
	}
	replyInt("groups", int64(s.Groups()))
	replyField("first-entry")
	replyEntryOrNull(x.Out, s.First)
	replyField("last-entry")
	replyEntryOrNull(x.Out, s.Top)
	return nil
}

func replyEntryOrNull(out Reply, get func() (keyspace.StreamEntry, bool)) {
	if e, ok := get(); ok {
		replyEntry(out, e)
		return
	}
	out.Null()
}

// replyKnown writes a count, or null if it is unknown.
func replyKnown(out Reply, n int64) {
	if n == keyspace.UnknownReads {
		out.Null()
		return
	}
	out.Int(n)
}

// replyFullGroup writes a group with its pending entries and its consumers.
func replyFullGroup(x *Call, s *keyspace.Stream, g *keyspace.Group, a *fullArgs) {
	x.Out.Map(7)
	x.Out.BulkString("name")
	x.Out.BulkString(g.Name())
	x.Out.BulkString("last-delivered-id")
	x.Out.BulkString(g.Last().String())
	x.Out.BulkString("entries-read")
	replyKnown(x.Out, g.Reads())
	x.Out.BulkString("lag")
	replyLag(x.Out, s, g)
	x.Out.BulkString("pel-count")
	x.Out.Int(int64(g.Pending()))
	x.Out.BulkString("pending")
	replyPending(x, g.NextPending, a.length(g.Pending()), true)
	x.Out.BulkString("consumers")
	x.Out.Array(g.Consumers())
	g.EachConsumer(func(c keyspace.Consumer) {
		activity := x.Level >= LevelSecond
		if activity {
			x.Out.Map(5)
		} else {
			x.Out.Map(4)
		}
		x.Out.BulkString("name")
		x.Out.BulkString(c.Name)
		x.Out.BulkString("seen-time")
		x.Out.Int(x.WallAt(c.SeenMs))
		if activity {
			x.Out.BulkString("active-time")
			if c.ActiveMs == keyspace.NeverActive {
				x.Out.Int(-1)
			} else {
				x.Out.Int(x.WallAt(c.ActiveMs))
			}
		}
		x.Out.BulkString("pel-count")
		x.Out.Int(int64(c.Pending))
		x.Out.BulkString("pending")
		name, n := []byte(c.Name), a.length(c.Pending)
		x.Spend(x.nameWork(n, len(name)))
		next := func(start keyspace.StreamID) (keyspace.Pending, bool) {
			return g.NextPendingOf(name, start)
		}
		replyPending(x, next, n, false)
	})
}

// replyPending writes the first n pending entries, with their consumers if named.
func replyPending(x *Call, next func(keyspace.StreamID) (keyspace.Pending, bool), n int,
	named bool) {
	x.Out.Array(n)
	var start keyspace.StreamID
	for range n {
		p, _ := next(start)
		start, _ = p.ID.Next()
		if named {
			x.Out.Array(4)
		} else {
			x.Out.Array(3)
		}
		x.Out.BulkString(p.ID.String())
		if named {
			x.Out.BulkString(p.Consumer)
		}
		if p.Released() {
			x.Out.Int(0)
		} else {
			x.Out.Int(x.WallAt(p.DeliveredMs))
		}
		x.Out.Int(p.Deliveries)
	}
}

func replyLag(out Reply, s *keyspace.Stream, g *keyspace.Group) {
	if lag, known := s.Lag(g); known {
		out.Int(lag)
		return
	}
	out.Null()
}

func xinfoGroups(x *Call) error {
	s, err := existingStream(x, x.Args[2])
	if err != nil {
		return err
	}
	x.Out.Array(s.Groups())
	s.EachGroup(func(g *keyspace.Group) {
		x.Out.Map(6)
		x.Out.BulkString("name")
		x.Out.BulkString(g.Name())
		x.Out.BulkString("consumers")
		x.Out.Int(int64(g.Consumers()))
		x.Out.BulkString("pending")
		x.Out.Int(int64(g.Pending()))
		x.Out.BulkString("last-delivered-id")
		x.Out.BulkString(g.Last().String())
		x.Out.BulkString("entries-read")
		replyKnown(x.Out, g.Reads())
		x.Out.BulkString("lag")
		replyLag(x.Out, s, g)
	})
	return nil
}

func xinfoConsumers(x *Call) error {
	s, err := existingStream(x, x.Args[2])
	if err != nil {
		return err
	}
	g := s.Group(x.Args[3])
	if g == nil {
		return errNoGroupOf(x.Args[2], x.Args[3])
	}
	x.Out.Array(g.Consumers())
	g.EachConsumer(func(c keyspace.Consumer) {
		activity := x.Level >= LevelSecond
		if activity {
			x.Out.Map(4)
		} else {
			x.Out.Map(3)
		}
		x.Out.BulkString("name")
		x.Out.BulkString(c.Name)
		x.Out.BulkString("pending")
		x.Out.Int(int64(c.Pending))
		x.Out.BulkString("idle")
		x.Out.Int(max(x.idleMs(c.SeenMs), 0))
		if activity {
			x.Out.BulkString("inactive")
			if c.ActiveMs == keyspace.NeverActive {
				x.Out.Int(-1)
			} else {
				x.Out.Int(max(x.idleMs(c.ActiveMs), 0))
			}
		}
	})
	return nil
}

func xinfoHelp(x *Call) error {
	replyHelp(x.Out,
		"XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"CONSUMERS <key> <groupname>",
		"    Show consumers of <groupname>.",
		"GROUPS <key>",
		"    Show the stream consumer groups.",
		"STREAM <key> [FULL [COUNT <count>]",
		"    Show information about the stream.",
		"HELP",
		"    Prints this help.",
	)
	return nil
}
