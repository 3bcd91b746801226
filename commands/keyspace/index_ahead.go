// How keys are looked up before they are needed: a lookup in a large index waits for memory, but
// the processor waits for many of them at a time if none depends on another.

package keyspace

import "slices"

// Upcoming are keys that will soon be looked up or inserted. Load brings their places in the
// index into the processor's caches, and changes nothing.
type Upcoming struct {
	n    int
	keys [upcomingKeys]upcoming
	read uint64 // keeps the compiler from leaving out reads whose results nobody needs
}

type upcoming struct {
	index *index
	hash  uint64
}

const (
	// upcomingKeys is how many keys are loaded at once. The processor overlaps fewer, but then each
	// load would wait for the last one's stragglers.
	upcomingKeys = 32
	// worthLoading is the size of an index from which on it is rarely in the caches.
	worthLoading = 1 << 14
)

// OutgrewCaches reports whether a database is large enough for Load to be worth its effort.
func (ks *Keyspace) OutgrewCaches() bool {
	return slices.ContainsFunc(ks.dbs[:], func(db *DB) bool { return db.keys.size >= worthLoading })
}

// Add adds a key. It does not keep it.
func (u *Upcoming) Add(db *DB, key []byte) {
	u.keys[u.n] = upcoming{db.keys, hashKey(key)}
	u.n++
}

// Full reports whether no more keys can be added before Load.
func (u *Upcoming) Full() bool { return u.n == len(u.keys) }

// Load reads the pages of all keys that were added, and forgets the keys.
func (u *Upcoming) Load() {
	var pages [upcomingKeys]*page
	sum := uint64(0)
	for i, k := range u.keys[:u.n] {
		p := k.index.page(k.index.position(k.hash))
		pages[i] = p
		sum += uint64(p.depth)
	}
	for i, k := range u.keys[:u.n] {
		sum += pages[i].load(k.hash)
		sum += uint64(k.index.due.at(k.index.first(k.index.position(k.hash), pages[i])))
	}
	u.n, u.read = 0, sum
}

// load reads the slots that seek compares, and those that an insertion moves.
func (p *page) load(hash uint64) (sum uint64) {
	const step = 3 // their slots are longer than a cache line
	i := max(p.guess(hash)-step, 0)
	for ; i < len(p.slots); i += step {
		sum += p.slots[i].hash
	}
	if n := len(p.slots); n > 0 {
		sum += p.slots[n-1].hash
	}
	return sum
}
