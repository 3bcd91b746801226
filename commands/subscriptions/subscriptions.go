package subscriptions

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/coordd/coordd/commands/glob"
)

// Kind is a kind of subscription.
type Kind int

// The kinds.
const (
	Channel Kind = iota
	Pattern
	Shard
	Kinds // how many there are
)

// Letters has a letter for each kind.
const Letters = "cps"

// Counts is how many subscribers each channel and pattern has on each node. Nodes that agree on the
// changes agree on it. It is not safe for concurrent use. nil counts nobody.
type Counts struct {
	nodes []*node // by id
}

// node is what one node has told.
type node struct {
	id string
	// era is when its counts were last dropped. A change names the era in which its node believes
	// to be, so that none of before counts afterwards.
	era   uint64
	last  uint64 // sequence number of its newest change
	names [Kinds]*btree.BTreeG[name]
	bytes int
}

// name is a channel or a pattern with subscribers.
type name struct {
	prefix string // literal bytes with which a pattern begins
	text   string
	count  int64
}

func named(kind Kind, text string) name {
	n := name{text: text}
	if kind == Pattern {
		n.prefix = string(glob.Prefix([]byte(text)))
	}
	return n
}

func (n *name) cost() int { return len(n.prefix) + len(n.text) + NameCost }

// before orders names. Patterns of a prefix stand together.
func before(a, b name) bool {
	return cmp.Or(cmp.Compare(a.prefix, b.prefix), cmp.Compare(a.text, b.text)) < 0
}

// MaxBytes is what the names of one node may count, NameCost what each counts besides its bytes.
const (
	MaxBytes = 64 << 20
	NameCost = 96
)

// Units of work of 25 ns: of looking a name up, of each level of a tree in memory, and of visiting
// a name in order.
const (
	lookUpWork = 16
	levelWork  = 8
	visitWork  = 8
	// MatchWork bounds the work of finding the patterns that match a channel. Subscribers of those
	// that are not reached by then are not counted: the nodes that they are on close them, because
	// they hold up delivery.
	MatchWork = 1_000_000
)

// Change is the number of subscribers that a node now has of a name.
type Change struct {
	Kind  Kind
	Name  string
	Count int64
}

func (c *Counts) all() []*node {
	if c == nil {
		return nil
	}
	return c.nodes
}

func (c *Counts) find(id string) (at int, there bool) {
	return slices.BinarySearchFunc(c.nodes, id, func(n *node, id string) int {
		return strings.Compare(n.id, id)
	})
}

// Era returns the era of a node's counts.
func (c *Counts) Era(id string) uint64 {
	if at, there := c.find(id); there {
		return c.nodes[at].era
	}
	return 0
}

// Drop forgets what a node has told, and begins its next era.
func (c *Counts) Drop(id string, era uint64) {
	at, there := c.find(id)
	if !there {
		c.nodes = slices.Insert(c.nodes, at, nil)
	}
	c.nodes[at] = &node{id: id, era: era}
}

// Tell takes changes of a node. They are refused if they belong to another era, and do nothing if
// later ones of the node came first: it has sent both, as it did not learn what became of these.
func (c *Counts) Tell(id string, era, sequence uint64, changes []Change) (taken bool, work uint64) {
	at, there := c.find(id)
	if !there || c.nodes[at].era != era {
		return false, lookUpWork
	}
	n := c.nodes[at]
	if sequence <= n.last {
		return true, lookUpWork
	}
	n.last = sequence
	for _, ch := range changes {
		n.set(ch)
		work += 2*findWork(n.names[ch.Kind], len(ch.Name)) + uint64(len(ch.Name)/4)
	}
	return true, work
}

// findWork is the work of finding a name among others, each of which takes so long to compare.
func findWork(tree *btree.BTreeG[name], text int) uint64 {
	levels := uint64(bits.Len(uint(tree.Len())))
	return lookUpWork + levels*(levelWork+uint64(text/512))
}

func newTree() *btree.BTreeG[name] {
	return btree.NewBTreeGOptions(before, btree.Options{NoLocks: true})
}

func (n *node) set(c Change) {
	tree := n.names[c.Kind]
	if tree == nil {
		tree = newTree()
		n.names[c.Kind] = tree
	}
	item := named(c.Kind, c.Name)
	item.count = c.Count
	cost := item.cost()
	if c.Count <= 0 {
		if _, was := tree.Delete(item); was {
			n.bytes -= cost
		}
		return
	}
	if _, was := tree.Get(item); !was {
		if n.bytes+cost > MaxBytes {
			return // never: the node itself refuses more
		}
		n.bytes += cost
	}
	tree.Set(item)
}

// Bytes returns what all names count.
func (c *Counts) Bytes() (bytes int) {
	for _, n := range c.nodes {
		bytes += n.bytes
	}
	return bytes
}

// Empty reports whether no node has ever told anything.
func (c *Counts) Empty() bool { return len(c.nodes) == 0 }

// Nodes returns the ids of the nodes with subscribers.
func (c *Counts) Nodes() (ids []string) {
	for _, n := range c.nodes {
		if n.bytes > 0 {
			ids = append(ids, n.id)
		}
	}
	return ids
}

// Of returns the subscribers of one name.
func (c *Counts) Of(kind Kind, text []byte) (count int64, work uint64) {
	item := named(kind, string(text))
	for _, n := range c.all() {
		if tree := n.names[kind]; tree != nil {
			work += findWork(tree, len(text))
			there, _ := tree.Get(item)
			count += there.count
		}
	}
	return count, work
}

// Receivers returns how many subscriptions a message to channel reaches, those of patterns too.
// matched is the part of the work that comparing with patterns took.
func (c *Counts) Receivers(channel []byte) (count int64, work, matched uint64) {
	count, work = c.Of(Channel, channel)
	most := work + MatchWork
	for _, n := range c.all() {
		if tree := n.names[Pattern]; tree != nil && tree.Len() > 0 {
			of, took, units := matching(tree, channel, most-min(work, most))
			count, work, matched = count+of, work+took, matched+units
		}
	}
	return count, work, matched
}

// matching counts the subscribers of the patterns that match channel, until that has taken most
// units. matched is what comparing took.
func matching(tree *btree.BTreeG[name], channel []byte,
	most uint64) (count int64, work, matched uint64) {
	text := string(channel)
	for from := (name{}); work <= most; {
		work += findWork(tree, len(from.prefix))
		next, more := name{}, false
		tree.Ascend(from, func(p name) bool {
			work += visitWork
			shared := commonPrefix(p.prefix, text)
			work += uint64(shared / 64)
			if shared == len(p.prefix) {
				ok, units := glob.MatchWork([]byte(p.text), channel)
				matched += uint64(units)
				if work += uint64(units); ok {
					count += p.count
				}
				return work <= most
			}
			// Longer prefixes of the channel that sort behind this one begin with the byte that
			// differs; if this one has the greater, there are none.
			if more = shared < len(text) && p.prefix[shared] < text[shared]; more {
				next = name{prefix: text[:shared+1]}
			}
			return false
		})
		if !more {
			return count, work, matched
		}
		from = next
	}
	return count, work, matched
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// Names returns the names of a kind with subscribers, each once, in order, that pattern matches;
// nil: all. It calls spend with the work before it does it.
func (c *Counts) Names(kind Kind, pattern []byte, spend func(units uint64)) (names []string) {
	var m glob.Matcher
	for _, n := range c.all() {
		tree := n.names[kind]
		if tree == nil {
			continue
		}
		spend(visitWork * uint64(tree.Len()))
		tree.Scan(func(item name) bool {
			if pattern != nil {
				before := m.Work
				ok := m.Match(pattern, []byte(item.text))
				if spend(uint64(m.Work - before)); !ok {
					return true
				}
			}
			names = append(names, item.text)
			return true
		})
	}
	if len(c.all()) > 1 || kind == Pattern { // else they are in order, each once
		work := uint64(0)
		for _, name := range names {
			work += visitWork + uint64(len(name)/64)
		}
		spend(work)
		slices.Sort(names)
		names = slices.Compact(names)
	}
	return names
}

// Different returns how many different names of a kind have subscribers.
func (c *Counts) Different(kind Kind, spend func(units uint64)) int {
	return len(c.Names(kind, nil, spend))
}

// Freeze returns a copy that does not change. It takes as long as there are nodes.
func (c *Counts) Freeze() *Counts {
	frozen := &Counts{}
	for _, n := range c.nodes {
		copied := *n
		for kind, tree := range n.names {
			if tree != nil {
				copied.names[kind] = tree.Copy()
			}
		}
		frozen.nodes = append(frozen.nodes, &copied)
	}
	return frozen
}
