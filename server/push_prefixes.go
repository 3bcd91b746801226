// Clients with CLIENT TRACKING ON BCAST: who receives which changed keys. The keys of an entry
// are sorted and encoded once; what any client is told, for any prefix, is a part of that. So
// neither clients nor prefixes multiply the keys.

package server

import (
	"bytes"
	"slices"
	"sort"
	"strconv"
	"strings"

	radix "github.com/hashicorp/go-immutable-radix"

	"github.com/coordd/coordd/commands"
)

// eachPrefix calls f with the clients of every registered prefix of a key, the shortest first,
// while f returns true. It costs one step per byte of the longest one.
func eachPrefix(prefixes *radix.Tree, key string, f func(of *sessionSet) bool) {
	prefixes.Root().WalkPath([]byte(key[:min(len(key), maxPrefixBytes)]),
		func(_ []byte, v any) bool { return !f(v.(*sessionSet)) })
}

// changedKeys holds the keys that an entry has changed.
type changedKeys struct {
	changes []keyChange      // sorted, each key once. client 0: not of one client alone
	own     map[uint64][]int // by client, indexes of those that it alone has changed
	ends    []int            // where each key ends in the body of whole
	whole   *message         // all keys, encoded
	copied  int              // bytes of the parts that have copies of their own
}

// keyPart is a range of the changed keys; without of, none.
type keyPart struct {
	of       *changedKeys
	from, to int
}

func newChangedKeys(changes []keyChange) *changedKeys {
	k := &changedKeys{}
	for _, c := range changes {
		if !c.all {
			k.changes = append(k.changes, c)
		}
	}
	slices.SortFunc(k.changes, func(a, b keyChange) int { return strings.Compare(a.key, b.key) })
	distinct := k.changes[:0]
	for _, c := range k.changes {
		if last := len(distinct) - 1; last < 0 || distinct[last].key != c.key {
			distinct = append(distinct, c)
		} else if distinct[last].client != c.client {
			distinct[last].client = 0
		}
	}
	k.changes = distinct
	return k
}

// encode prepares what the parts are made of.
func (k *changedKeys) encode() {
	if k.whole != nil {
		return
	}
	k.own, k.ends = map[uint64][]int{}, make([]int, len(k.changes))
	size := 0
	for i := range k.changes {
		size += len(k.changes[i].key) + len("$1234567890\r\n\r\n")
	}
	f := commands.RESP{Buf: make([]byte, 0, size)}
	for i := range k.changes {
		c := &k.changes[i]
		f.BulkString(c.key)
		k.ends[i] = len(f.Buf)
		if c.client != 0 {
			k.own[c.client] = append(k.own[c.client], i)
		}
	}
	k.whole = &message{body: f.Buf}
}

// begin returns where a key is in the body of whole.
func (k *changedKeys) begin(i int) int {
	if i == 0 {
		return 0
	}
	return k.ends[i-1]
}

// each calls f with parts that make up a range, none larger than one write of a delivery unless it
// is one key: clients receive the first while the others are queued.
func (k *changedKeys) each(from, to int, f func(p keyPart)) {
	for from < to {
		most := k.begin(from) + yieldBytes
		n := max(sort.Search(to-from, func(i int) bool { return k.ends[from+i] > most }), 1)
		f(keyPart{k, from, from + n})
		from += n
	}
}

// eachOfOthers is each without the keys that a client alone has changed.
func (k *changedKeys) eachOfOthers(client uint64, from, to int, f func(p keyPart)) {
	own := k.own[client]
	for _, i := range own[sort.SearchInts(own, from):sort.SearchInts(own, to)] {
		k.each(from, i, f)
		from = i + 1
	}
	k.each(from, to, f)
}

// changedIn reports whether a client alone has changed a key of a range.
func (k *changedKeys) changedIn(client uint64, from, to int) bool {
	own := k.own[client]
	i := sort.SearchInts(own, from)
	return i < len(own) && own[i] < to
}

// copiedPart is the part of all keys up to which one is copied: a client that does not read it
// would keep all of them. Copies are no larger than the whole together, so that neither clients nor
// prefixes multiply the keys.
const copiedPart = 1.0 / 16

func (p keyPart) message(redirected bool) *message {
	k, head := p.of, "*"+strconv.Itoa(p.to-p.from)+"\r\n"
	m := &message{resp2: invalidateHead2 + head, resp3: invalidateHead3 + head,
		body:  k.whole.body[k.begin(p.from):k.ends[p.to-1]],
		whole: k.whole, resp3Only: !redirected, needsSubscription: true}
	size, all := len(m.body), len(k.whole.body)
	if float64(size) <= copiedPart*float64(all) && k.copied+size <= all {
		k.copied += size
		m.body, m.whole = bytes.Clone(m.body), nil
	}
	return m
}

// prefixesChanged is changed for the clients of prefixes. Keys with a prefix are neighbors when
// they are sorted, and so a prefix has one range of them.
func (tr *tracking) prefixesChanged(changes []keyChange, number uint64,
	notify func(*invalidation)) {
	tr.mu.RLock()
	prefixes := tr.prefixes // immutable; who joins later is not concerned
	tr.mu.RUnlock()
	if prefixes.Len() == 0 {
		return
	}
	k := newChangedKeys(changes)
	type begun struct {
		of   *sessionSet
		from int
	}
	var open []begun // prefixes of the key before, the shortest first
	end := func(from, to int) {
		for _, p := range slices.Backward(open[from:]) {
			tr.prefixChanged(k, p.of, p.from, to, number, notify)
		}
		open = open[:from]
	}
	for i := range k.changes {
		depth := 0
		eachPrefix(prefixes, k.changes[i].key, func(of *sessionSet) bool {
			if depth < len(open) && open[depth].of != of {
				end(depth, i)
			}
			if depth == len(open) {
				open = append(open, begun{of, i})
			}
			depth++
			return true
		})
		end(depth, i)
	}
	end(0, len(k.changes))
}

// prefixChanged tells the clients of a prefix of a range of keys: all of the same, except those
// with NOLOOP of which some are their own changes.
func (tr *tracking) prefixChanged(k *changedKeys, of *sessionSet, from, to int, number uint64,
	notify func(*invalidation)) {
	k.encode()
	var all, except []*session
	tr.mu.RLock()
	of.each(func(s *session) {
		switch t := s.track.Load(); {
		case t == nil || number <= t.after:
		case t.noloop && k.changedIn(s.clientNumber(), from, to):
			except = append(except, s)
		default:
			all = append(all, s)
		}
	})
	tr.mu.RUnlock()
	if len(all) > 0 {
		k.each(from, to, func(p keyPart) { notify(&invalidation{part: p, to: all}) })
	}
	for _, s := range except {
		k.eachOfOthers(s.clientNumber(), from, to,
			func(p keyPart) { notify(&invalidation{part: p, to: []*session{s}}) })
	}
}
