// LOCK.ACQUIRE and its kin: locks that may be waited for in order, shared, counted, entered again,
// and taken several at once. A lock is a key as plain clients know it (docs/adr/0064); what the
// keys hold is in lock_forms.go.

package commands

import (
	"slices"
	"strconv"

	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/ascii"
)

const (
	lockEnd     = "<PX milliseconds:integer | LEASE id:integer>"
	lockRequest = " [ID request]"
	lockKeys    = " [KEYS numkeys:integer key [key ...]]"
)

var lockSpecs = []Spec{
	{Name: "lock.acquire", Kind: Write, Waits: WaitsOnWait, Arity: -5,
		Flags: DenyOOM | Blocking | MovableKeys,
		Keys:  lockKeySpec(KeyRW | KeyAccess | KeyUpdate), Group: "generic", Since: "0.2.0",
		Level: LevelSecond,
		Syntax: "key owner " + lockEnd + " [WAIT milliseconds:integer] " +
			"[SHARED | PERMITS n:integer OF m:integer] [REENTRANT] [PRIORITY priority:integer]" +
			lockRequest + lockKeys,
		Summary: "Takes a lock, or several at once, and waits for its turn with WAIT.",
		Complexity: "O(N) with N being the number of keys; with PERMITS also of the owners of " +
			"each",
		RequestID: lockRequestID(acquireOptions),
		Handler:   lockAcquire},
	{Name: "lock.extend", Kind: Write, Arity: -5, Flags: MovableKeys,
		Keys: lockKeySpec(KeyRW | KeyAccess | KeyUpdate), Group: "generic", Since: "0.2.0",
		Level:      LevelSecond,
		Syntax:     "key owner " + lockEnd + " [TOKEN token:integer]" + lockRequest + lockKeys,
		Summary:    "Sets until when an owner holds a lock, if it holds it.",
		Complexity: "O(N) with N being the number of keys", RequestID: lockRequestID(extendOptions),
		Handler: lockExtend},
	{Name: "lock.release", Kind: Write, Arity: -3, Flags: MovableKeys,
		Keys: lockKeySpec(KeyRW | KeyAccess | KeyDelete), Group: "generic", Since: "0.2.0",
		Level:      LevelSecond,
		Syntax:     "key owner [TOKEN token:integer] [PERMITS n:integer]" + lockRequest + lockKeys,
		Summary:    "Releases what an owner holds of a lock, and serves the next in the queue.",
		Complexity: "O(N) with N being the number of keys",
		RequestID:  lockRequestID(releaseOptions),
		Handler:    lockRelease},
	{Name: "lock.steal", Kind: Write, Arity: -5, Flags: DenyOOM,
		Keys: collectionKey.does(KeyOW | KeyUpdate), Group: "generic", Since: "0.2.0",
		Level: LevelSecond, Syntax: "key owner " + lockEnd + lockRequest,
		Summary:    "Takes a lock from whoever holds it, with a larger token.",
		Complexity: "O(1)", RequestID: lockRequestID(stealOptions),
		Handler: lockSteal},
	{Name: "lock.info", Kind: Read, Arity: 2, Keys: collectionKey.does(KeyRO | KeyAccess),
		Group: "generic", Since: "0.2.0", Level: LevelSecond, Syntax: "key",
		Summary:    "Returns who holds a lock and how many wait for it.",
		Complexity: "O(N) with N being the number of owners, 64 at most", Handler: lockInfo},
	{Name: "lock.waiters", Kind: Read, Arity: 2, Flags: Linearizable,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: "generic", Since: "0.2.0",
		Level: LevelSecond, Syntax: "key",
		Summary:    "Returns who waits for a lock, the next first, 64 at most.",
		Complexity: "O(N) with N being the number of waiters, 64 at most", Handler: lockWaiters},
	{Name: "lock.list", Kind: Read, Arity: -1, Flags: NoScript | NoMulti | Linearizable | Unlogged,
		Group: "generic", Since: "0.2.0", Level: LevelSecond, OwnCategories: "keyspace",
		Syntax:     "[MATCH pattern] [COUNT count:integer] [CURSOR cursor]",
		Summary:    "Iterates over the locks of the database that the user may read.",
		Complexity: "O(1) for every call. O(N) for a complete iteration, N being the keys.",
		Handler:    lockList},
}

// LockQueues are those who wait for locks, in the order in which they are served.
type LockQueues interface {
	// Waiting returns how many wait for a key.
	Waiting(db int, key []byte) int
	// Ahead reports whether somebody is before a command of that priority and order, 0 for a new
	// one.
	Ahead(db int, key []byte, priority int64, order uint64) bool
	// Each calls f with the calls of those who wait for a key, and since when they do, ms of the
	// cluster clock, until it returns false.
	Each(db int, key []byte, f func(q *Request, sinceMs int64) bool)
}

// queued reports whether somebody waits for a lock: then nobody else takes it.
func (x *Call) queued(key []byte) bool {
	return x.waiting(key) > 0
}

// Bounds of what LOCK commands take.
const (
	maxLockKeys     = 128
	maxLockOwner    = 1024 // bytes
	maxPermits      = 1_000_000
	maxLockPriority = 1_000_000_000
)

// Errors of LOCK commands.
const (
	errLockOwner   Error = "ERR the owner of a lock must have 1 to 1024 bytes"
	errLockEnd     Error = "ERR PX or LEASE must say until when the lock is held"
	errLockKeys    Error = "ERR KEYS must be followed by a number from 1 to 127 and as many keys"
	errLockTwice   Error = "ERR a key is named twice"
	errLockPermits Error = "ERR permits must be a number from 1 to those that there are, 1000000 " +
		"at most"
	errLockPriority Error = "ERR the priority must be an integer from -1000000000 to 1000000000"
	errLockToken    Error = "ERR the token must be a positive integer"
)

// lockArgs are the arguments of a LOCK command.
type lockArgs struct {
	name      []byte // the command's
	keys      [][]byte
	owner     []byte
	ms        int64  // how long it is held; 0: as its lease says
	lease     []byte // id of the lease; nil: none
	waits     bool
	waitMs    int64 // 0: without limit
	form      LeaseForm
	permits   int64 // that are taken or released; 0: none are named
	most      int64 // permits that there are
	priority  int64
	token     keyspace.Revision // 0: any
	reentrant bool
	request   []byte // nil: it has no id
}

// lockOption is an option of a LOCK command: a set.
type lockOption uint8

const (
	optionEnd    lockOption = 1 << iota // PX and LEASE
	optionTake                          // what LOCK.ACQUIRE alone has
	optionToken                         // TOKEN
	optionAmount                        // PERMITS n
	optionKeys                          // KEYS
)

// parse parses the arguments behind the name, with the options that the command has.
func (a *lockArgs) parse(args [][]byte, has lockOption) error {
	a.name, a.keys, a.owner = args[0], args[1:2:2], args[2]
	if len(a.owner) == 0 || len(a.owner) > maxLockOwner {
		return errLockOwner
	}
	options := args[3:]
	if at := keysWord(args); at > 0 {
		if has&optionKeys == 0 {
			return ErrSyntax
		}
		options = args[3:at]
		if err := a.parseKeys(args[at+1:]); err != nil {
			return err
		}
	}
	seen := map[string]bool{}
	for i := 0; i < len(options); {
		word := ascii.Upper(string(options[i][:min(len(options[i]), 16)]))
		n, err := a.option(word, options[i+1:], has)
		switch {
		case err != nil:
			return err
		case seen[word]:
			return ErrSyntax
		}
		seen[word] = true
		i += 1 + n
	}
	switch {
	case has&optionEnd != 0 && (a.ms == 0) == (a.lease == nil):
		return errLockEnd
	case a.form == FormPermits && a.reentrant:
		return ErrSyntax
	case a.form == FormString && a.reentrant:
		a.form = FormReentrant
	}
	return nil
}

// keysWord returns the index of the word KEYS, which ends the options, 0 if there is none.
func keysWord(args [][]byte) int {
	for i := 3; i < len(args); i++ {
		if isWord(args[i], "KEYS") {
			return i
		}
	}
	return 0
}

// option parses the values of one option, and returns how many there are.
func (a *lockArgs) option(word string, values [][]byte, has lockOption) (n int, err error) {
	value := func(of lockOption) bool {
		n = 1
		return has&of != 0 && len(values) > 0
	}
	ok := true
	switch word {
	case "PX":
		if ok = value(optionEnd); ok {
			a.ms, err = lockMs(a.name, values[0])
		}
	case "LEASE":
		if ok = value(optionEnd); ok {
			a.lease = values[0]
		}
	case "WAIT":
		if ok = value(optionTake); ok {
			a.waits = true
			a.waitMs, err = waitMs(values[0])
		}
	case "SHARED":
		ok, a.form = has&optionTake != 0 && a.form == FormString, FormShared
	case "REENTRANT":
		ok, a.reentrant = has&optionTake != 0, true
	case "PERMITS":
		return a.parsePermits(values, has)
	case "PRIORITY":
		if ok = value(optionTake); ok {
			var is bool
			if a.priority, is = ParseInt(values[0]); !is || a.priority > maxLockPriority ||
				a.priority < -maxLockPriority {
				err = errLockPriority
			}
		}
	case "TOKEN":
		if ok = value(optionToken); ok {
			token, is := ParseInt(values[0])
			if !is || token <= 0 {
				err = errLockToken
			}
			a.token = keyspace.Revision(token)
		}
	case "ID":
		if n, ok = 1, len(values) > 0; ok {
			a.request = givenID(values[0])
		}
	default:
		ok = false
	}
	if !ok {
		err = ErrSyntax
	}
	return n, err
}

// lockMs parses how long a command is to have a lock held.
func lockMs(name, arg []byte) (int64, error) {
	ms, ok := ParseInt(arg)
	switch {
	case !ok:
		return 0, ErrNotInteger
	case ms <= 0 || ms > maxLockMs:
		return 0, InvalidExpire(ascii.Lower(string(name)))
	}
	return ms, nil
}

// maxLockMs is the longest time for which a lock is held, a hundred years.
const maxLockMs = 100 * 365 * 24 * 3600 * 1000

func waitMs(arg []byte) (int64, error) {
	ms, ok := ParseInt(arg)
	if !ok {
		return 0, errTimeoutInteger
	}
	return notNegative(ms)
}

// parsePermits parses n OF m, or n alone for a release.
func (a *lockArgs) parsePermits(values [][]byte, has lockOption) (n int, err error) {
	takes := has&optionTake != 0
	switch {
	case !takes && has&optionAmount == 0, len(values) < 1, takes && len(values) < 3,
		takes && !isWord(values[1], "OF"), takes && a.form != FormString:
		return 0, ErrSyntax
	}
	var ok bool
	if a.permits, ok = ParseInt(values[0]); !ok || a.permits < 1 || a.permits > maxPermits {
		return 0, errLockPermits
	}
	if !takes {
		return 1, nil
	}
	a.form = FormPermits
	if a.most, ok = ParseInt(values[2]); !ok || a.most < a.permits || a.most > maxPermits {
		return 0, errLockPermits
	}
	return 3, nil
}

// parseKeys parses the number of further keys, and the keys. No key may be named twice.
func (a *lockArgs) parseKeys(values [][]byte) error {
	if len(values) == 0 {
		return errLockKeys
	}
	n, ok := ParseInt(values[0])
	if !ok || n < 1 || n >= maxLockKeys || n != int64(len(values)-1) {
		return errLockKeys
	}
	a.keys = slices.Concat(a.keys, values[1:])
	known := make(map[string]bool, len(a.keys))
	for _, k := range a.keys {
		if known[string(k)] {
			return errLockTwice
		}
		known[string(k)] = true
	}
	return nil
}

// lockKeySpec says where the keys of a LOCK command are: the first argument, and those behind KEYS.
func lockKeySpec(flags KeyFlag) KeySpec {
	more := KeyPart{First: 3, Step: 1, Keyword: "KEYS", Numkeys: true, Flags: flags}
	return KeySpec{First: 1, Last: 1, Step: 1, Flags: flags,
		Parts: []KeyPart{{First: 1, Step: 1, Flags: flags}, more},
		Find:  func(args [][]byte) []int { return append([]int{1}, more.positions(args)...) }}
}

// The options of the commands.
const (
	acquireOptions = optionEnd | optionTake | optionKeys
	extendOptions  = optionEnd | optionToken | optionKeys
	releaseOptions = optionToken | optionAmount | optionKeys
	stealOptions   = optionEnd
)

// lockRequestID returns the Spec.RequestID of a command with options.
func lockRequestID(has lockOption) func(args [][]byte) []byte {
	return func(args [][]byte) []byte {
		var a lockArgs
		if a.parse(args, has) != nil {
			return nil // the handler says why
		}
		return a.request
	}
}

// TakesLocks returns the owner and the keys of a call that may have an owner hold locks, or hold
// them longer, and replies the token first. There are none for any other call.
func (s *Spec) TakesLocks(args [][]byte) (owner []byte, keys [][]byte) {
	if s.Kind != Write {
		return nil, nil
	}
	s, args = s.Carried(args)
	var has lockOption
	switch s.Name {
	case "lock.acquire":
		has = acquireOptions
	case "lock.extend":
		has = extendOptions
	case "lock.steal":
		has = stealOptions
	default:
		return nil, nil
	}
	var a lockArgs
	if len(args) < 5 || a.parse(args, has) != nil {
		return nil, nil
	}
	return a.owner, a.keys
}

// lockMayWait reports whether a call has WAIT among its options.
func lockMayWait(args [][]byte) bool {
	_, waits := LockWait(args)
	return waits
}

// LockWait returns for how long a LOCK.ACQUIRE waits, ms; 0: without end. ok is false if it does
// not.
func LockWait(args [][]byte) (ms int64, ok bool) {
	var a lockArgs
	if len(args) < 5 || a.parse(args, acquireOptions) != nil || !a.waits {
		return 0, false
	}
	return a.waitMs, true
}

// LockClass begins the class of those who wait for locks. Behind it come "alone", "beside" for
// those whom a lock that is held may let in, or "again" for those who may hold it themselves and
// then need not queue for it, and the priority.
const LockClass = "lock"

// lockClass is the WaitClass of LOCK.ACQUIRE.
func lockClass(args [][]byte) string {
	var a lockArgs
	if a.parse(args, acquireOptions) != nil {
		return LockClass
	}
	how := " beside "
	switch {
	case a.reentrant:
		how = " again "
	case a.form == FormString:
		how = " alone "
	}
	return LockClass + how + strconv.FormatInt(a.priority, 10)
}

// ReplyLate replies to a LOCK.ACQUIRE whose WAIT is over.
func ReplyLate(out Reply) { replyGrant(out, grant{untilMs: -1}) }

// grant is what LOCK.ACQUIRE replies.
type grant struct {
	token   keyspace.Revision // 0: it is none
	untilMs int64             // Unix time; -1: it is not known
	count   int64
	place   int
}

func replyGrant(out Reply, g grant) {
	out.Array(4)
	out.Int(int64(g.token))
	out.Int(g.untilMs)
	out.Int(g.count)
	out.Int(int64(g.place))
}

// lockKeyWork is what a key of a LOCK command costs besides its argument, in units of Env.Work; of
// its name so many bytes are one more, since it is hashed, compared and copied again and again.
const (
	lockKeyWork   = 24
	lockNameBytes = 16
)

// spendLocks adds the work of the keys of a LOCK command. To attach one, or to look whether it is,
// takes its name as often again.
func (x *Call) spendLocks(a *lockArgs) {
	names := 0
	for _, key := range a.keys {
		names += len(key)
	}
	if a.lease != nil {
		names *= 2
	}
	x.Spend(lockKeyWork*len(a.keys) + names/lockNameBytes)
}

func lockAcquire(x *Call) error {
	var a lockArgs
	if err := a.parse(x.Args, acquireOptions); err != nil {
		return err
	}
	until, err := x.lockEnd(&a)
	if err != nil {
		return err
	}
	x.spendLocks(&a)
	refused := grant{untilMs: -1}
	mayTake, waits := true, a.waits && x.mayBlock()
	for _, key := range a.keys {
		may, deadlineMs := x.mayHold(&a, key)
		if may {
			continue
		}
		mayTake = false
		if deadlineMs != 0 {
			refused.untilMs = max(refused.untilMs, x.expiryMs(deadlineMs))
		}
		if x.Queues != nil {
			refused.place = max(refused.place, x.Queues.Waiting(x.Tx.DB, key)+1)
		}
		if !waits {
			x.lockFact(LockRefused, a.form, key, a.owner, 0, deadlineMs)
		}
	}
	switch {
	case !mayTake && waits:
		x.Block(a.waitMs, nil)
		return nil
	case !mayTake:
		refused.place = max(refused.place, 1)
		replyGrant(x.Out, refused)
		return nil
	}
	if err := x.lockRoom(&a, until, func([]byte) LeaseForm { return a.form }); err != nil {
		return err
	}
	g := x.granted(&a, until)
	replyGrant(x.Out, g)
	for _, key := range a.keys {
		x.hold(&a, key, until)
	}
	if x.Tx.Claims {
		x.Tx.Undo = x.undoLocks(&a)
	}
	return nil
}

// undoLocks returns the calls that release what was granted, those of one token together: a key
// that the owner has held before has an older one than the others.
func (x *Call) undoLocks(a *lockArgs) (calls [][][]byte) {
	at := map[keyspace.Revision]int{}
	var same [][][]byte // keys
	var tokens []keyspace.Revision
	for _, key := range a.keys {
		own, _ := x.heldBy(key, a.owner, 0)
		i, known := at[own.token]
		if !known {
			i = len(same)
			at[own.token] = i
			same, tokens = append(same, nil), append(tokens, own.token)
		}
		same[i] = append(same[i], key)
	}
	for i, keys := range same {
		call := [][]byte{[]byte("LOCK.RELEASE"), keys[0], a.owner, []byte("TOKEN"),
			strconv.AppendInt(nil, int64(tokens[i]), 10)}
		if a.form == FormPermits {
			call = append(call, []byte("PERMITS"), strconv.AppendInt(nil, a.permits, 10))
		}
		if more := keys[1:]; len(more) > 0 {
			call = append(call, []byte("KEYS"), strconv.AppendInt(nil, int64(len(more)), 10))
			call = append(call, more...)
		}
		calls = append(calls, call)
	}
	return calls
}

// GrantedToken returns the token that a client got whose locks calls release, which undoLocks
// returned: the largest of theirs.
func GrantedToken(calls [][][]byte) (token int64) {
	for _, call := range calls {
		if len(call) >= 5 { // always: the machine wrote it
			n, _ := ParseInt(call[4])
			token = max(token, n)
		}
	}
	return token
}

// StillHeld reports whether a call that undoLocks returned would release all its locks: nobody has
// taken one meanwhile. looked is how many it looked at.
func StillHeld(db *keyspace.DB, release [][]byte) (held bool, looked int) {
	var a lockArgs
	if len(release) < 3 || a.parse(release, releaseOptions) != nil {
		return false, 0
	}
	for _, key := range a.keys {
		e := db.Find(key)
		if looked++; e != nil && e.Kind() == keyspace.KindHash {
			looked += min(ownersOf(e).Len(), smallForm) / (8 * searchedFields)
		}
		if _, is := holdingWith(db, e, a.owner, a.token); !is {
			return false, looked
		}
	}
	return true, looked
}

func lockExtend(x *Call) error {
	var a lockArgs
	if err := a.parse(x.Args, extendOptions); err != nil {
		return err
	}
	until, err := x.lockEnd(&a)
	if err != nil {
		return err
	}
	x.spendLocks(&a)
	g := grant{untilMs: -1}
	for _, key := range a.keys {
		h, held := x.heldBy(key, a.owner, a.token)
		if !held {
			replyGrant(x.Out, grant{untilMs: -1})
			return nil
		}
		if g.count == 0 {
			g.untilMs, g.count = x.expiryMs(until.endMs), h.count
		}
		g.token = max(g.token, h.token)
	}
	if err := x.lockRoom(&a, until, func(key []byte) LeaseForm {
		h, _ := x.heldBy(key, a.owner, a.token)
		return h.form
	}); err != nil {
		return err
	}
	replyGrant(x.Out, g)
	for _, key := range a.keys {
		h, _ := x.heldBy(key, a.owner, a.token)
		x.holdUntil(h, key, a.owner, until)
		x.tellLock(LockTaken, key, a.owner, h.token)
		x.lockFact(LockRenewed, h.form, key, a.owner, h.token, until.deadlineMs)
	}
	return nil
}

func lockRelease(x *Call) error {
	var a lockArgs
	if err := a.parse(x.Args, releaseOptions); err != nil {
		return err
	}
	x.spendLocks(&a)
	var held [][]byte
	messages := 0
	for _, key := range a.keys {
		h, is := x.heldBy(key, a.owner, a.token)
		if !is {
			x.DB().Lacks(key)
			x.lockFact(LockMissed, FormString, key, a.owner, a.token, 0)
			continue
		}
		held = append(held, key)
		if h.form == FormReentrant {
			messages += len(x.lockChannels(string(key), h.form)) * len(key)
		}
	}
	x.ExpectMessages(messages)
	x.Out.Int(int64(len(held))) // first: a message without room for its reply is not sent
	for _, key := range held {
		h, _ := x.heldBy(key, a.owner, a.token)
		x.letGo(h, key, a.owner, a.permits)
	}
	return nil
}

func lockSteal(x *Call) error {
	var a lockArgs
	if err := a.parse(x.Args, stealOptions); err != nil {
		return err
	}
	until, err := x.lockEnd(&a)
	if err != nil {
		return err
	}
	x.spendLocks(&a)
	if err := x.lockRoom(&a, until, func([]byte) LeaseForm { return a.form }); err != nil {
		return err
	}
	key := a.keys[0]
	replyGrant(x.Out, grant{token: x.Keyspace.CurrentRevision(),
		untilMs: x.expiryMs(until.endMs), count: 1})
	if e := x.find(key); e != nil {
		acquired := e.Acquired()
		x.deleteKey(key)
		x.lost(x.Tx.DB, key, acquired)
	}
	x.hold(&a, key, until)
	return nil
}
