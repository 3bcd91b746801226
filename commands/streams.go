// The Specs of the commands on streams, and what their handlers share: lookups, their errors, the
// form of entries in replies.

package commands

import (
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/resp"
)

var streamSpecs = []Spec{
	{Name: "xadd", Kind: Write, Arity: -5, Flags: DenyOOM | Fast,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "stream", Since: "5.0.0",
		Syntax: "key [NOMKSTREAM] [KEEPREF | DELREF | ACKED] [IDMPAUTO producer-id | " +
			"IDMP producer-id idempotent-id] [<MAXLEN | MINID> [= | ~] " +
			"threshold [LIMIT count:integer]] <* | id> field value [field value ...]",
		Summary: "Appends an entry to a stream and returns its id. Creates the stream if it " +
			"doesn't exist.",
		Complexity: "O(1), and O(n) in the entries that are trimmed", Handler: xadd},
	{Name: "xcfgset", Kind: Write, Arity: -2, Flags: Fast,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "stream", Since: "8.6.0",
		Syntax: "key [IDMP-DURATION seconds:integer] [IDMP-MAXSIZE count:integer]",
		Summary: "Sets how long a stream remembers the ids of producers, and how many of " +
			"each.",
		Complexity: "O(1)", Level: LevelSecond, Handler: xcfgset},
	{Name: "xlen", Kind: Read, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRO),
		Group: "stream", Since: "5.0.0",
		Syntax:     "key",
		Summary:    "Returns the number of entries of a stream.",
		Complexity: "O(1)", Handler: xlen},
	{Name: "xrange", Kind: Read, Arity: -4, Keys: collectionKey.does(KeyRO | KeyAccess),
		Group: "stream", Since: "5.0.0",
		Syntax:     "key start end [COUNT count:integer]",
		Summary:    "Returns the entries of a stream in a range of ids.",
		Complexity: "O(log n), and O(m) in the entries that are answered", Handler: xrange(false)},
	{Name: "xrevrange", Kind: Read, Arity: -4, Keys: collectionKey.does(KeyRO | KeyAccess),
		Group: "stream", Since: "5.0.0",
		Syntax:     "key end start [COUNT count:integer]",
		Summary:    "Returns the entries of a stream in a range of ids in reverse order.",
		Complexity: "O(log n), and O(m) in the entries that are answered", Handler: xrange(true)},
	{Name: "xdel", Kind: Write, Arity: -3, Flags: Fast, Keys: collectionKey.does(KeyRW | KeyDelete),
		Group: "stream", Since: "5.0.0",
		Syntax:     "key id [id ...]",
		Summary:    "Deletes entries of a stream and returns how many existed.",
		Complexity: "O(log n) an id", Handler: xdel},
	{Name: "xdelex", Kind: Write, Arity: -5, Flags: Fast,
		Keys: collectionKey.does(KeyRW | KeyDelete), Group: "stream", Since: "8.2.0",
		Syntax: "key [KEEPREF | DELREF | ACKED] IDS numids:integer id [id ...]",
		Summary: "Deletes entries of a stream by what its consumer groups still need, and " +
			"returns for each if it was deleted.",
		Complexity: "O(log n) an id and group", Level: LevelSecond, Handler: xdelex},
	{Name: "xtrim", Kind: Write, Arity: -4, Keys: collectionKey.does(KeyRW | KeyDelete),
		Group: "stream", Since: "5.0.0",
		Syntax: "key <MAXLEN | MINID> [= | ~] threshold [LIMIT count:integer] " +
			"[KEEPREF | DELREF | ACKED]",
		Summary:    "Deletes the oldest entries of a stream, down to a length or up to an id.",
		Complexity: "O(n) in the entries that are removed", Handler: xtrim},
	{Name: "xsetid", Kind: Write, Arity: -3, Flags: DenyOOM | Fast,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "stream", Since: "5.0.0",
		Syntax: "key last-id [ENTRIESADDED entries-added:integer] [MAXDELETEDID " +
			"max-deleted-id]",
		Summary:    "Sets the last id of a stream.",
		Complexity: "O(1)", Handler: xsetid},
	{Name: "xread", Kind: Read, Waits: WaitsOnBlock, Arity: -4, Flags: Blocking | MovableKeys,
		Keys: afterStreams(1), Group: "stream", Since: "5.0.0",
		Syntax: "[COUNT count:integer] [MAXCOUNT maxcount:integer] [MAXSIZE maxsize:integer] " +
			"[BLOCK milliseconds:integer] STREAMS key [key ...] id [id ...]",
		Summary: "Returns the entries of streams after given ids. Blocks until one is " +
			"available, if BLOCK is given.",
		Complexity: "O(log n) a stream, and O(m) in the entries that are answered", Handler: xread},
	{Name: "xreadgroup", Kind: Write, Waits: WaitsOnBlock, Arity: -7, Flags: Blocking | MovableKeys,
		Keys: afterStreams(4), Group: "stream", Since: "5.0.0",
		Syntax: "GROUP group consumer [COUNT count:integer] [MAXCOUNT maxcount:integer] " +
			"[MAXSIZE maxsize:integer] [BLOCK milliseconds:integer] " +
			"[CLAIM min-idle-time:integer] [NOACK] STREAMS key [key ...] id [id ...]",
		Summary: "Returns new or pending entries of streams for a consumer of a group. Blocks " +
			"until one is available, if BLOCK is given.",
		Complexity: "O(log n) a stream, and O(m log n) in the entries that are answered. With " +
			"CLAIM also O(p) in the entries that are pending",
		Handler: xreadgroup},
	{Name: "xack", Kind: Write, Arity: -4, Flags: Fast, Keys: collectionKey.does(KeyRW | KeyUpdate),
		Group: "stream", Since: "5.0.0",
		Syntax:     "key group id [id ...]",
		Summary:    "Acknowledges entries of a group and returns how many were pending.",
		Complexity: "O(log n) an id", Handler: xack},
	{Name: "xackdel", Kind: Write, Arity: -6, Flags: Fast,
		Keys: collectionKey.does(KeyRW | KeyUpdate | KeyDelete), Group: "stream", Since: "8.2.0",
		Syntax: "key group [KEEPREF | DELREF | ACKED] IDS numids:integer id [id ...]",
		Summary: "Acknowledges entries of a group, deletes them by what other groups still " +
			"need, and returns for each if it was deleted.",
		Complexity: "O(log n) an id and group", Level: LevelSecond, Handler: xackdel},
	{Name: "xnack", Kind: Write, Arity: -7, Flags: Fast,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "stream", Since: "8.8.0",
		Syntax: "key group <SILENT | FAIL | FATAL> IDS numids:integer id [id ...] " +
			"[RETRYCOUNT count:integer] [FORCE]",
		Summary: "Releases pending entries of a group from their consumers, so that others " +
			"can claim them at once, and returns how many.",
		Complexity: "O(log n) an id", Level: LevelSecond, Handler: xnack},
	{Name: "xpending", Kind: Read, Arity: -3, Keys: collectionKey.does(KeyRO | KeyAccess),
		Group: "stream", Since: "5.0.0",
		Syntax:     "key group [[IDLE min-idle-time:integer] start end count:integer [consumer]]",
		Summary:    "Returns the pending entries of a consumer group, or a summary of them.",
		Complexity: "O(log n), and O(m) in the entries that are looked at", Handler: xpending},
	{Name: "xclaim", Kind: Write, Arity: -6, Flags: Fast,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "stream", Since: "5.0.0",
		Syntax: "key group consumer min-idle-time id [id ...] [IDLE ms:integer] [TIME " +
			"unix-time-milliseconds:unix-time] [RETRYCOUNT count:integer] " +
			"[FORCE] [JUSTID] [LASTID lastid]",
		Summary:    "Transfers pending entries to a consumer.",
		Complexity: "O(log n) an id", Handler: xclaim},
	{Name: "xautoclaim", Kind: Write, Arity: -6, Flags: Fast,
		Keys: collectionKey.does(KeyRW | KeyDelete), Group: "stream", Since: "6.2.0",
		Syntax: "key group consumer min-idle-time start [COUNT count:integer] [JUSTID]",
		Summary: "Transfers entries that are pending for long to a consumer and returns the " +
			"id to continue from.",
		Complexity: "O(log n) an entry, ten times COUNT being looked at", Handler: xautoclaim},
	{Name: "xgroup", Kind: Read, Arity: -2, Group: "stream", Since: "5.0.0",
		Syntax: "subcommand", Summary: "Manages consumer groups.",
		Complexity:  "Depends on the subcommand",
		Subcommands: xgroupSubcommands},
	{Name: "xinfo", Kind: Read, Arity: -2, Group: "stream", Since: "5.0.0",
		Syntax: "subcommand", Summary: "Reports about streams.",
		Complexity:  "Depends on the subcommand",
		Subcommands: xinfoSubcommands},
}

// afterStreams is the KeySpec of a command whose keys follow the word STREAMS, which is argument
// first or later.
func afterStreams(first int) KeySpec {
	part := KeyPart{First: first, Keyword: "STREAMS", Last: -1, Step: 1, Limit: 2,
		Flags: KeyRO | KeyAccess}
	return KeySpec{Find: streamPositions, Paired: true, Parts: []KeyPart{part}}
}

// subcommandKey is the KeySpec of a subcommand with one key, its first argument.
var subcommandKey = KeySpec{First: 2, Last: 2, Step: 1}

var xgroupSubcommands = []Spec{
	{Name: "create", Kind: Write, Arity: -5, Flags: DenyOOM,
		Keys: subcommandKey.does(KeyRW | KeyInsert), Group: "stream", Since: "5.0.0",
		Syntax:     "key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read:integer]",
		Summary:    "Creates a consumer group.",
		Complexity: "O(1)", Handler: xgroupCreate},
	{Name: "setid", Kind: Write, Arity: -5, Keys: subcommandKey.does(KeyRW | KeyUpdate),
		Group: "stream", Since: "5.0.0",
		Syntax:     "key group <id | $> [ENTRIESREAD entries-read:integer]",
		Summary:    "Sets the last delivered id of a consumer group.",
		Complexity: "O(1)", Handler: xgroupSetID},
	{Name: "destroy", Kind: Write, Arity: 4, Keys: subcommandKey.does(KeyRW | KeyDelete),
		Group: "stream", Since: "5.0.0",
		Syntax:     "key group",
		Summary:    "Deletes a consumer group and its pending entries.",
		Complexity: "O(1)", Handler: xgroupDestroy},
	{Name: "createconsumer", Kind: Write, Arity: 5, Flags: DenyOOM,
		Keys: subcommandKey.does(KeyRW | KeyInsert), Group: "stream", Since: "6.2.0",
		Syntax:     "key group consumer",
		Summary:    "Creates a consumer in a group.",
		Complexity: "O(1)", Handler: xgroupCreateConsumer},
	{Name: "delconsumer", Kind: Write, Arity: 5, Keys: subcommandKey.does(KeyRW | KeyDelete),
		Group: "stream", Since: "5.0.0",
		Syntax: "key group consumer",
		Summary: "Deletes a consumer of a group and returns how many of its entries were " +
			"pending.",
		Complexity: "O(n) in the entries that were pending for it", Handler: xgroupDelConsumer},
	{Name: "help", Kind: Read, Arity: 2, Flags: Loading | Stale, Group: "stream", Since: "5.0.0",
		Summary:    "Lists the subcommands of XGROUP.",
		Complexity: "O(1)", Handler: xgroupHelp},
}

var xinfoSubcommands = []Spec{
	{Name: "stream", Kind: Read, Arity: -3, Keys: subcommandKey.does(KeyRO | KeyAccess),
		Group: "stream", Since: "5.0.0",
		Syntax:     "key [FULL [COUNT count:integer]]",
		Summary:    "Describes a stream; with FULL also its first entries and all of its groups.",
		Complexity: "O(n) in a hundredth of the entries, and in what is answered",
		Handler:    xinfoStream},
	{Name: "groups", Kind: Read, Arity: 3, Keys: subcommandKey.does(KeyRO | KeyAccess),
		Group: "stream", Since: "5.0.0",
		Syntax:     "key",
		Summary:    "Lists the consumer groups of a stream.",
		Complexity: "O(n) in the groups", Handler: xinfoGroups},
	{Name: "consumers", Kind: Read, Arity: 4, Keys: subcommandKey.does(KeyRO | KeyAccess),
		Group: "stream", Since: "5.0.0",
		Syntax:     "key group",
		Summary:    "Lists the consumers of a group.",
		Complexity: "O(n) in the consumers", Handler: xinfoConsumers},
	{Name: "help", Kind: Read, Arity: 2, Flags: Loading | Stale, Group: "stream", Since: "5.0.0",
		Summary:    "Lists the subcommands of XINFO.",
		Complexity: "O(1)", Handler: xinfoHelp},
}

// findStream returns the stream at key for reading, nil if the key does not exist, or ErrWrongType.
func findStream(x *Call, key []byte) (*keyspace.Stream, error) {
	e := x.find(key)
	if e == nil {
		return nil, nil
	}
	s, ok := e.Collection().(*keyspace.Stream)
	if !ok {
		return nil, ErrWrongType
	}
	return s, nil
}

// existingStream is findStream for a key that must exist.
func existingStream(x *Call, key []byte) (*keyspace.Stream, error) {
	s, err := findStream(x, key)
	if err == nil && s == nil {
		err = ErrNoSuchKey
	}
	return s, err
}

// editStream is editHash for streams.
func editStream(x *Call, key []byte) (*keyspace.Entry, *keyspace.Stream) {
	return editCollection(x, key, keyspace.NewStream)
}

// findGroup returns a group of the stream at key for reading, nil if there is no such key or group,
// or ErrWrongType.
func findGroup(x *Call, key, name []byte) (*keyspace.Stream, *keyspace.Group, error) {
	s, err := findStream(x, key)
	if s == nil {
		return nil, nil, err
	}
	return s, s.Group(name), nil
}

// mustFindGroup is findGroup for commands that need the group.
func mustFindGroup(x *Call, key, name []byte) (*keyspace.Stream, *keyspace.Group, error) {
	s, g, err := findGroup(x, key, name)
	if err == nil && g == nil {
		err = Errorf("NOGROUP No such key '%s' or consumer group '%s'", resp.CText(key),
			resp.CText(name))
	}
	return s, g, err
}

// errNoGroupOf is the error for a subcommand on a stream without that group.
func errNoGroupOf(key, name []byte) error {
	return Errorf("NOGROUP No such consumer group '%s' for key name '%s'", resp.CText(name),
		resp.CText(key))
}

// see records that a consumer was there. It creates the consumer if missing and notifies that.
// active says that entries become pending for it.
func see(x *Call, key []byte, g *keyspace.Group, consumer []byte, active bool) {
	if g.See(consumer, x.ClockMs, active || x.Level < LevelSecond) {
		x.notify(NotifyStream, "xgroup-createconsumer", key)
	}
}

// replyEntry writes an entry: its id, and its names and values, or null if it was deleted, then
// what else is known about it.
func replyEntry(out Reply, e keyspace.StreamEntry, told ...int64) {
	out.Array(2 + len(told))
	out.BulkString(e.ID.String())
	if n := e.Fields(); n == 0 {
		out.NullArray()
	} else {
		out.Array(n)
		e.Each(out.Bulk)
	}
	for _, n := range told {
		out.Int(n)
	}
}

func replyEntries(out Reply, entries []keyspace.StreamEntry) {
	out.Array(len(entries))
	for _, e := range entries {
		replyEntry(out, e)
	}
}

// streamRange returns the entries from first to last, at most count if that is above 0, up to the
// first for which takes is false, in descending order if back. If they cannot fit into the reply,
// the command is refused early.
func streamRange(x *Call, s *keyspace.Stream, first, last keyspace.StreamID, count int64,
	back bool, takes func(keyspace.StreamEntry) bool) (found []keyspace.StreamEntry) {
	units, bytes, most, room := 0, 0, x.Left(), x.RoomLeft()
	walk := s.Range
	if back {
		walk = s.RangeBack
	}
	walk(first, last, func(e keyspace.StreamEntry) bool {
		if takes != nil && !takes(e) {
			return false
		}
		units += replyWork*(entryElements+e.Fields()) + e.Size()/replyBytes
		bytes += e.Size()
		switch {
		case x.Level < LevelSecond:
		case bytes > room:
			x.refuse(ErrReplySize)
		case units > most:
			x.refuse(ErrCommandWork)
		}
		found = append(found, e)
		return int64(len(found)) != count
	})
	return found
}
