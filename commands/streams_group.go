// XGROUP and XACK.

package commands

import "github.com/coordd/coordd/commands/keyspace"

// Errors of XGROUP.
const (
	errGroupReads Error = "ERR value for ENTRIESREAD must be positive or -1"
	errGroupNoKey Error = "ERR The XGROUP subcommand requires the key to exist. Note that for " +
		"CREATE you may want to use the MKSTREAM " +
		"option to create an empty stream automatically."
	errGroupExists Error = "BUSYGROUP Consumer Group name already exists"
)

// groupArgs are the options of XGROUP CREATE and SETID.
type groupArgs struct {
	makeStream bool
	reads      int64
}

// parse parses the options; SETID lacks some of them.
func (a *groupArgs) parse(args [][]byte, create bool) error {
	a.reads = keyspace.UnknownReads
	for i := 5; i < len(args); i++ {
		switch {
		case create && isWord(args[i], "MKSTREAM"):
			a.makeStream = true
		case isWord(args[i], "ENTRIESREAD") && i+1 < len(args):
			i++
			n, ok := ParseInt(args[i])
			if !ok {
				return ErrNotInteger
			}
			if n < 0 && n != keyspace.UnknownReads {
				return errGroupReads
			}
			a.reads = n
		default:
			return SubcommandSyntax(args)
		}
	}
	return nil
}

// xgroup returns the stream and the group of a subcommand. A missing stream is an error, a missing
// group is nil.
func xgroup(x *Call) (*keyspace.Stream, *keyspace.Group, error) {
	s, g, err := findGroup(x, x.Args[2], x.Args[3])
	if err == nil && s == nil {
		err = errGroupNoKey
	}
	return s, g, err
}

// xgroupOf is xgroup for subcommands that need the group.
func xgroupOf(x *Call) (*keyspace.Stream, *keyspace.Group, error) {
	s, g, err := xgroup(x)
	if err == nil && g == nil {
		err = errNoGroupOf(x.Args[2], x.Args[3])
	}
	return s, g, err
}

func xgroupCreate(x *Call) error {
	var a groupArgs
	if err := a.parse(x.Args, true); err != nil {
		return err
	}
	s, g, err := xgroup(x)
	if err != nil && (err != errGroupNoKey || !a.makeStream) {
		return err
	}
	if len(x.Args) > 8 {
		return SubcommandSyntax(x.Args)
	}
	last, err := parseLastID(x.Args[4], s, false)
	if err != nil {
		return err
	}
	if g != nil {
		return errGroupExists
	}
	made := s == nil
	e, s := editStream(x, x.Args[2])
	s.CreateGroup(x.Args[3], last, a.reads)
	if made {
		x.DB().Changed(e)
	} else {
		x.DB().Noted(e, false)
	}
	x.notify(NotifyStream, "xgroup-create", x.Args[2])
	x.Out.Status("OK")
	return nil
}

func xgroupSetID(x *Call) error {
	var a groupArgs
	if err := a.parse(x.Args, false); err != nil {
		return err
	}
	s, _, err := xgroupOf(x)
	if err != nil {
		return err
	}
	if len(x.Args) > 7 {
		return SubcommandSyntax(x.Args)
	}
	last, err := parseLastID(x.Args[4], s, true)
	if err != nil {
		return err
	}
	e, s := editStream(x, x.Args[2])
	s.EditGroup(x.Args[3]).SetPosition(last, a.reads)
	x.DB().Noted(e, false)
	x.notify(NotifyStream, "xgroup-setid", x.Args[2])
	x.Out.Status("OK")
	return nil
}

func xgroupDestroy(x *Call) error {
	_, g, err := xgroup(x)
	if err != nil {
		return err
	}
	if g == nil {
		x.Out.Int(0)
		return nil
	}
	e, s := editStream(x, x.Args[2])
	s.DestroyGroup(x.Args[3])
	x.DB().Noted(e, true) // wakes the waiters of the group
	x.notify(NotifyStream, "xgroup-destroy", x.Args[2])
	x.Out.Int(1)
	return nil
}

func xgroupCreateConsumer(x *Call) error {
	_, g, err := xgroupOf(x)
	if err != nil {
		return err
	}
	if _, exists := g.Consumer(x.Args[4]); exists {
		x.Out.Int(0)
		return nil
	}
	e, s := editStream(x, x.Args[2])
	see(x, x.Args[2], s.EditGroup(x.Args[3]), x.Args[4], false)
	x.DB().Noted(e, false)
	x.Out.Int(1)
	return nil
}

func xgroupDelConsumer(x *Call) error {
	_, g, err := xgroupOf(x)
	if err != nil {
		return err
	}
	c, exists := g.Consumer(x.Args[4])
	if exists {
		if x.Level >= LevelSecond && keyspace.RebuildCheaper(c.Pending, g.Pending()) {
			x.Spend(keptPending*g.Pending() + x.nameWork(g.Pending(), len(c.Name)))
		} else {
			x.Spend(pendingWork*c.Pending + x.nameWork(c.Pending, len(c.Name)))
		}
		e, s := editStream(x, x.Args[2])
		s.EditGroup(x.Args[3]).RemoveConsumer(x.Args[4])
		x.DB().Noted(e, false)
		x.notify(NotifyStream, "xgroup-delconsumer", x.Args[2])
	}
	x.Out.Int(int64(c.Pending))
	return nil
}

func xgroupHelp(x *Call) error {
	replyHelp(x.Out,
		"XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"CREATE <key> <groupname> <id|$> [option]",
		"    Create a new consumer group. Options are:",
		"    * MKSTREAM",
		"      Create the empty stream if it does not exist.",
		"    * ENTRIESREAD entries_read",
		"      Set the group's entries_read counter (internal use).",
		"CREATECONSUMER <key> <groupname> <consumer>",
		"    Create a new consumer in the specified group.",
		"DELCONSUMER <key> <groupname> <consumer>",
		"    Remove the specified consumer.",
		"DESTROY <key> <groupname>",
		"    Remove the specified group.",
		"SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
		"    Set the current group ID and entries_read counter.",
		"HELP",
		"    Prints this help.",
	)
	return nil
}

// ackWork returns the work of acknowledging n entries of a group at random.
func ackWork(g *keyspace.Group, n int) int {
	return (pendingWork + 6*deep(g.Pending())) * min(n, g.Pending())
}

// spendOwners adds the work of hashing the names of the consumers that own entries, as is done for
// each that changes.
func (x *Call) spendOwners(g *keyspace.Group, ids []keyspace.StreamID) {
	if x.Level < LevelSecond {
		return
	}
	for _, id := range ids {
		p, _ := g.FindPending(id)
		x.Spend(x.nameWork(1, len(p.Consumer)))
	}
}

func xack(x *Call) error {
	_, g, err := findGroup(x, x.Args[1], x.Args[2])
	if err != nil {
		return err
	}
	if g == nil {
		x.Out.Int(0)
		return nil
	}
	ids, err := parseStreamIDs(x.Args[3:])
	if err != nil {
		return err
	}
	if x.Level >= LevelSecond {
		x.Spend(ackWork(g, len(ids)))
	}
	x.spendOwners(g, ids)
	var e *keyspace.Entry
	var acknowledged int64
	for _, id := range ids {
		if _, ok := g.FindPending(id); !ok {
			continue
		}
		if e == nil {
			var s *keyspace.Stream
			e, s = editStream(x, x.Args[1])
			g = s.EditGroup(x.Args[2])
		}
		if x.Level < LevelSecond {
			x.Spend(pendingWork)
		}
		g.Acknowledge(id)
		acknowledged++
	}
	if e != nil {
		x.DB().Noted(e, false)
	}
	x.Out.Int(acknowledged)
	return nil
}
