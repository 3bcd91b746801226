// RESTORE: values in Redis's RDB format, in all forms that versions 6 to 12 have for what coordd
// can hold. A value is read whole before anything changes.

package commands

import (
	"encoding/binary"
	"math"

	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/commands/rdb"
)

// Errors of RESTORE.
const (
	errBusyKey     Error = "BUSYKEY Target key name already exists."
	errRestoreTTL  Error = "ERR Invalid TTL value, must be >= 0"
	errRestoreIdle Error = "ERR Invalid IDLETIME value, must be >= 0"
	errRestoreFreq Error = "ERR Invalid FREQ value, must be >= 0 and <= 255"
	errBadDump     Error = "ERR Bad data format"
)

// maxUnpacked is how many bytes the compressed strings of a value may have in all, with the copies
// of field names that entries of a stream share: both can be far longer than what was sent.
const maxUnpacked = 64 << 20

// Work of RESTORE in units of Env.Work: of an element, and the bytes that a unit reads of a value,
// or decompresses.
const (
	restoredWork  = 12
	restoredGroup = 80 // work for a consumer group
	restoredBytes = 8
)

type restoreOptions struct{ replace, absolute bool }

// restoreOptions parses what follows the value. Idle times and frequencies are checked and not
// kept.
func (x *Call) restoreOptions() (o restoreOptions, err error) {
	idle, freq := false, false
	for args := x.Args[4:]; len(args) > 0; args = args[1:] {
		switch {
		case isWord(args[0], "REPLACE"):
			o.replace = true
		case isWord(args[0], "ABSTTL"):
			o.absolute = true
		case isWord(args[0], "IDLETIME") && len(args) > 1 && !freq:
			args, idle = args[1:], true
			if n, ok := ParseInt(args[0]); !ok {
				return o, ErrNotInteger
			} else if n < 0 {
				return o, errRestoreIdle
			}
		case isWord(args[0], "FREQ") && len(args) > 1 && !idle:
			args, freq = args[1:], true
			if n, ok := ParseInt(args[0]); !ok {
				return o, ErrNotInteger
			} else if n < 0 || n > 255 {
				return o, errRestoreFreq
			}
		default:
			return o, ErrSyntax
		}
	}
	return o, nil
}

func restoreCommand(x *Call) error {
	key, value := x.Args[1], x.Args[3]
	o, err := x.restoreOptions()
	if err != nil {
		return err
	}
	exists := x.find(key) != nil
	if exists && !o.replace {
		return errBusyKey
	}
	ttl, ok := ParseInt(x.Args[2])
	switch {
	case !ok:
		return ErrNotInteger
	case ttl < 0:
		return errRestoreTTL
	}
	x.Spend(len(value) / restoredBytes)
	body, ok := rdb.Open(value, rdbNewest)
	if !ok {
		return errDump
	}
	text, c, ok := x.readValue(body)
	if !ok {
		return errBadDump
	}
	deadlineMs := int64(0)
	if ttl != 0 {
		deadlineMs = x.deadline(ttl, o.absolute)
	}
	if deadlineMs != 0 && x.past(deadlineMs) {
		if x.DB().Delete(key) {
			x.notify(NotifyGeneric, "del", key)
		}
		x.Out.Status("OK")
		return nil
	}
	db := x.DB()
	before := x.kindAt(x.Tx.DB, key)
	if exists {
		db.Delete(key)
	}
	var e *keyspace.Entry
	if c == nil {
		e = db.SetString(key, text)
	} else {
		e = db.SetCollection(key, c)
		db.Changed(e)
	}
	db.SetDeadline(e, deadlineMs)
	x.overwritten(x.Tx.DB, key, before, e.Kind())
	x.notify(NotifyGeneric, "restore", key)
	x.Out.Status("OK")
	return nil
}

// valueReader reads the value of a dump.
type valueReader struct {
	*rdb.Reader
	x *Call
}

// readValue reads a string, or a collection that is not empty.
func (x *Call) readValue(body []byte) (text []byte, c keyspace.Collection, ok bool) {
	r := valueReader{rdb.NewReader(body, maxUnpacked), x}
	r.Unpacks = func(bytes int) { x.Spend(bytes/restoredBytes + bytes/FreshBytes) }
	switch kind := r.Byte(); kind {
	case rdbString:
		text = r.Text()
		return text, nil, !r.Failed()
	case rdbList:
		c = r.list(r.texts(1))
	case rdbZiplistList:
		c = r.list(r.compact(rdb.Ziplist))
	case rdbQuicklist, rdbQuicklist2:
		c = r.list(r.quicklist(kind == rdbQuicklist2))
	case rdbSet:
		c = r.set(r.texts(1))
	case rdbIntset:
		c = r.set(r.compact(rdb.Intset))
	case rdbListpackSet:
		c = r.set(r.compact(rdb.Listpack))
	case rdbHash:
		c = r.hash(r.texts(2))
	case rdbZipmapHash:
		c = r.hash(r.compact(rdb.Zipmap))
	case rdbZiplistHash:
		c = r.hash(r.compact(rdb.Ziplist))
	case rdbListpackHash:
		c = r.hash(r.compact(rdb.Listpack))
	case rdbFieldsHash, rdbFieldsListpack:
		h := keyspace.NewHash()
		r.mortal(kind == rdbFieldsListpack, 2, h, func(texts [][]byte) bool {
			return h.Set(texts[0], texts[1])
		})
		c = h
	case rdbMembersSet, rdbMembersListpack:
		s := keyspace.NewSet()
		r.mortal(kind == rdbMembersListpack, 1, s, func(texts [][]byte) bool {
			return s.Add(texts[0])
		})
		c = s
	case rdbOldZSet, rdbZSet:
		c = r.scores(kind == rdbZSet)
	case rdbZiplistZSet:
		c = r.zset(r.compact(rdb.Ziplist))
	case rdbListpackZSet:
		c = r.zset(r.compact(rdb.Listpack))
	case rdbStream, rdbStream2, rdbStream3:
		s := r.stream(kind)
		return nil, s, !r.Failed()
	default:
		return nil, nil, false
	}
	return nil, c, !r.Failed() && c.Len() > 0
}

// spend charges for elements.
func (r *valueReader) spend(elements int) { r.x.Spend(restoredWork * elements) }

// spendEntered charges for entering n elements into what they make, beside spend.
func (r *valueReader) spendEntered(n int) { r.x.Spend(3 * deep(n) * n) }

// texts reads as many strings as are announced, or twice as many.
func (r *valueReader) texts(each int) (all [][]byte) {
	n := r.Items(each)
	r.spend(n * each)
	for range n * each {
		all = append(all, r.Text())
	}
	return all
}

// compact reads the elements of a compact form.
func (r *valueReader) compact(read func([]byte) ([][]byte, bool)) [][]byte {
	packed := r.Text()
	r.x.Spend(len(packed)) // an element has a byte at least
	all, ok := read(packed)
	if !ok {
		r.Fail()
	}
	r.spend(len(all))
	return all
}

// quicklist reads the nodes of a list: ziplists, or listpacks and single elements.
func (r *valueReader) quicklist(second bool) (all [][]byte) {
	const plain, packed = 1, 2
	for range r.Items(1) {
		if r.Failed() {
			break
		}
		if !second {
			all = append(all, r.compact(rdb.Ziplist)...)
			continue
		}
		switch r.Length() {
		case plain:
			all = append(all, r.Text())
			r.spend(1)
		case packed:
			all = append(all, r.compact(rdb.Listpack)...)
		default:
			r.Fail()
		}
	}
	return all
}

func (r *valueReader) list(all [][]byte) *keyspace.List {
	l := keyspace.NewList()
	for _, value := range all {
		l.PushBack(value)
	}
	return l
}

// set makes a set, which has each member once.
func (r *valueReader) set(all [][]byte) *keyspace.Set {
	s := keyspace.NewSet()
	r.spendEntered(len(all))
	for _, member := range all {
		if !s.Add(member) {
			r.Fail()
		}
	}
	return s
}

// hash makes a hash of names and values in turn.
func (r *valueReader) hash(all [][]byte) *keyspace.Hash {
	h := keyspace.NewHash()
	if len(all)%2 != 0 {
		r.Fail()
		return h
	}
	r.spendEntered(len(all) / 2)
	for i := 0; i < len(all); i += 2 {
		if !h.Set(all[i], all[i+1]) {
			r.Fail()
		}
	}
	return h
}

// mortal reads elements of so many texts each that may expire into c. set sets one and reports
// whether it is new. Those that have expired are left out.
func (r *valueReader) mortal(packed bool, each int, c mortal, set func(texts [][]byte) bool) {
	firstMs := int64(r.Uint64())
	add := func(texts [][]byte, wallMs int64) {
		deadlineMs := int64(0)
		if wallMs > maxElementTTLMs {
			r.Fail()
			return
		}
		if wallMs != 0 {
			r.spend(2) // more indexes
			if deadlineMs = r.x.deadline(wallMs, true); r.x.past(deadlineMs) {
				return
			}
		}
		if !set(texts) {
			r.Fail()
		}
		c.SetDeadline(r.x.Keyspace, texts[0], deadlineMs)
	}
	if packed {
		all := r.compact(rdb.Listpack)
		r.spendEntered(len(all) / (each + 1))
		for ; len(all) > each; all = all[each+1:] {
			at, ok := ParseInt(all[each])
			if !ok || at < 0 {
				r.Fail()
			}
			add(all[:each], at)
		}
		if len(all) > 0 {
			r.Fail()
		}
		return
	}
	n := r.Items(each + 1)
	r.spend((each + 1) * n)
	r.spendEntered(n)
	texts := make([][]byte, each)
	for range n {
		wallMs := int64(0)
		if distance := r.Length(); distance != 0 {
			wallMs = addMs(firstMs, int64(distance-1))
		}
		for i := range texts {
			texts[i] = r.Text()
		}
		add(texts, wallMs)
	}
}

// scores reads a sorted set of members and scores in turn.
func (r *valueReader) scores(second bool) *keyspace.ZSet {
	n := r.Items(2)
	r.spend(2 * n)
	members := make([]keyspace.Member, 0, n)
	for range n {
		name, read := r.Text(), r.OldDouble
		if second {
			read = r.Double
		}
		members = append(members, r.member(name, read()))
	}
	return r.zsetOf(members)
}

// zset makes a sorted set of members and scores in turn.
func (r *valueReader) zset(all [][]byte) *keyspace.ZSet {
	if len(all)%2 != 0 {
		r.Fail()
		return keyspace.NewZSet()
	}
	members := make([]keyspace.Member, 0, len(all)/2)
	for i := 0; i < len(all); i += 2 {
		score, ok := ParseFloat(all[i+1])
		if !ok {
			r.Fail()
		}
		members = append(members, r.member(all[i], score))
	}
	return r.zsetOf(members)
}

func (r *valueReader) member(name []byte, score float64) keyspace.Member {
	r.spend(4) // two indexes
	if math.IsNaN(score) {
		r.Fail()
	}
	return keyspace.MemberOf(keyspace.Scored{Score: score, Member: string(name)}, r.x.spendBytesOf)
}

// zsetOf makes a sorted set that has its form from the beginning: one that grew would have lost the
// sign of -0.
func (r *valueReader) zsetOf(members []keyspace.Member) *keyspace.ZSet {
	keyspace.SortByHash(members, r.x.spendTexts)
	for i := 1; i < len(members); i++ {
		if members[i].Name == members[i-1].Name {
			r.Fail()
		}
	}
	if r.Failed() {
		return keyspace.NewZSet()
	}
	return keyspace.ZSetOfMembers(members, r.x.spendTexts)
}

// id reads the id of an entry as two numbers.
func (r *valueReader) id() keyspace.StreamID {
	return keyspace.StreamID{Ms: r.Length(), Seq: r.Length()}
}

// rawID reads the id of an entry as 16 bytes.
func (r *valueReader) rawID() keyspace.StreamID { return idOf(r.Take(16)) }

// idOf returns the id in 16 bytes, zero if they are less.
func idOf(b []byte) (id keyspace.StreamID) {
	if len(b) == 16 {
		id = keyspace.StreamID{Ms: binary.BigEndian.Uint64(b), Seq: binary.BigEndian.Uint64(b[8:])}
	}
	return id
}

// stream reads a stream, which may be empty.
func (r *valueReader) stream(kind byte) *keyspace.Stream {
	s := keyspace.NewStream()
	for range r.Items(2) {
		master := r.Text()
		if len(master) != 16 || !r.streamNode(s, idOf(master)) {
			r.Fail()
			return s
		}
	}
	count, last := r.Length(), r.id()
	added := count
	tombstone := keyspace.StreamID{}
	if kind >= rdbStream2 {
		r.id() // the first
		tombstone, added = r.id(), r.Length()
	}
	if uint64(s.Len()) != count || last.Less(s.Last()) || added < count {
		r.Fail()
		return s
	}
	s.SetLast(last)
	s.SetAdded(added)
	s.SetTombstone(tombstone)
	groups := r.Items(4)
	r.x.Spend(restoredGroup * groups)
	for range groups {
		if !r.group(s, kind) {
			r.Fail()
			return s
		}
	}
	return s
}

// streamNode reads the entries of a node whose first id is master.
func (r *valueReader) streamNode(s *keyspace.Stream, master keyspace.StreamID) bool {
	n := nodeReader{all: r.compact(rdb.Listpack)}
	n.number() // entries
	n.number() // those that were deleted
	names := n.nextElements(n.number())
	nameBytes := 0
	for _, name := range names {
		nameBytes += len(name)
	}
	n.number()
	for len(n.all) > 0 && !n.failed {
		flags := n.number()
		id := keyspace.StreamID{Ms: master.Ms + uint64(n.number()),
			Seq: master.Seq + uint64(n.number())}
		var texts [][]byte
		if flags&streamSameFields != 0 {
			for i, value := range n.nextElements(int64(len(names))) {
				texts = append(texts, names[i], value)
			}
			r.spend(len(names)) // a value may be an empty one
			r.x.spendBytes(nameBytes)
			if r.Room -= nameBytes; r.Room < 0 { // each entry gets its copy
				return false
			}
		} else {
			texts = n.nextElements(2 * min(n.number(), int64(len(n.all))))
		}
		n.number() // elements, to read backwards
		if flags&streamDeleted != 0 {
			continue
		}
		if n.failed || len(texts) == 0 || !s.Last().Less(id) {
			return false
		}
		s.Add(id, texts)
	}
	return !n.failed
}

// nodeReader reads the elements of a node of a stream.
type nodeReader struct {
	all    [][]byte
	failed bool
}

// nextElements returns the next n elements.
func (n *nodeReader) nextElements(count int64) (some [][]byte) {
	if count < 0 || count > int64(len(n.all)) {
		n.failed, n.all = true, nil
		return nil
	}
	some, n.all = n.all[:count], n.all[count:]
	return some
}

func (n *nodeReader) number() int64 {
	one := n.nextElements(1)
	if n.failed {
		return 0
	}
	v, ok := ParseInt(one[0])
	n.failed = !ok
	return v
}

// time reads when something happened. Times beyond all sense become early ones.
func (r *valueReader) time() (clockMs int64) {
	const beyond = 1 << 50
	return r.x.DeadlineAt(min(max(int64(r.Uint64()), -beyond), beyond))
}

// activeTime is time for when a consumer got an entry: -1 is never.
func (r *valueReader) activeTime() (clockMs int64) {
	again := *r
	if int64(again.Uint64()) == -1 {
		r.Uint64()
		return keyspace.NeverActive
	}
	return r.time()
}

// group reads a consumer group.
func (r *valueReader) group(s *keyspace.Stream, kind byte) bool {
	name, last := r.Text(), r.id()
	reads := s.ReadsTo(last)
	if kind >= rdbStream2 {
		reads = max(int64(r.Length()), keyspace.UnknownReads)
	}
	g := s.CreateGroup(name, last, reads)
	if g == nil || r.Failed() {
		return false
	}
	pending := map[keyspace.StreamID]keyspace.Pending{}
	n := r.Items(16)
	r.spend(2 * n)
	for range n {
		p := keyspace.Pending{ID: r.rawID(), DeliveredMs: r.time(), Deliveries: int64(r.Length())}
		if _, twice := pending[p.ID]; twice {
			return false
		}
		pending[p.ID] = p
	}
	for range r.Items(10) {
		if !r.consumer(g, kind, pending) {
			return false
		}
	}
	return len(pending) == 0 // each belongs to a consumer
}

// consumer reads a consumer, and removes what it owns from pending.
func (r *valueReader) consumer(g *keyspace.Group, kind byte,
	pending map[keyspace.StreamID]keyspace.Pending) bool {
	name, seenMs := r.Text(), r.time()
	activeMs := seenMs
	if kind >= rdbStream3 {
		activeMs = r.activeTime()
	}
	r.spend(1)
	if r.Failed() || !g.See(name, activeMs, activeMs != keyspace.NeverActive) {
		return false
	}
	g.See(name, seenMs, false)
	n, consumer := r.Items(16), string(name)
	r.x.Spend(r.x.nameWork(n, len(name)))
	for range n {
		p, known := pending[r.rawID()]
		if !known {
			return false
		}
		delete(pending, p.ID)
		p.Consumer = consumer
		g.SetPending(p)
	}
	return true
}
