// How fast passwords can be tried. A failed AUTH delays the next one from its address for its user,
// more with each. Over however many connections they come, they take turns. Nobody is locked out: a
// right password gets in when its turn comes, and does not delay others.

package server

import (
	"hash/maphash"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/simplelru"
	"golang.org/x/time/rate"

	"github.com/coordd/coordd/internal/halfopen"
	"github.com/coordd/coordd/internal/lockorder"
)

const (
	freeGuesses  = 5                      // failures that delay nothing
	guessDelay   = 500 * time.Millisecond // added by each failure after them
	longestDelay = 5 * time.Second
	guessForget  = 10 * time.Second // after which one failure is forgotten
	guessers     = 10_000           // remembered
	// guessesAtOnce run at a time while nothing delays them.
	guessesAtOnce = 16
	// userSlots bounds what one address occupies. Users in one slot share the delay.
	userSlots = 64
)

// guesser is who tries passwords: an address, and a hash of the user's name. Real users and others
// are treated alike, so that the delay does not tell them apart.
type guesser struct {
	host netip.Prefix
	slot uint8
}

// attempts are those of a guesser.
type attempts struct {
	failed  *rate.Limiter // its missing tokens are the failures that count
	last    time.Time     // the newest failure
	running int
	waiting []*session // the first one is next
}

// guessing remembers who failed to authenticate.
type guessing struct {
	seed    maphash.Seed
	delayed atomic.Uint64 // calls of AUTH

	mu   lockorder.Mutex
	busy map[guesser]*attempts // some run or wait
	idle *simplelru.LRU        // guesser → *attempts: the others that failed
}

func (g *guessing) init() {
	g.seed = maphash.MakeSeed()
	g.busy = map[guesser]*attempts{}
	g.idle, _ = simplelru.NewLRU(guessers, nil) // fails only without room
}

// guesser returns who tries a password for a user.
func (g *guessing) guesser(conn net.Conn, user []byte) guesser {
	return guesser{host: halfopen.Host(conn), slot: uint8(maphash.Bytes(g.seed, user) % userSlots)}
}

func newAttempts() *attempts {
	return &attempts{failed: rate.NewLimiter(rate.Every(guessForget), freeGuesses)}
}

// delay returns how long after the newest failure the next attempt may begin.
func (a *attempts) delay(now time.Time) time.Duration {
	owed := -a.failed.TokensAt(now)
	return min(max(time.Duration(owed*float64(guessDelay)), 0), longestDelay)
}

// fail notes a wrong password. It does not add to the longest delay, so that this ends soon after
// the attempts do.
func (a *attempts) fail(now time.Time) {
	if a.last = now; a.delay(now) < longestDelay {
		a.failed.ReserveN(now, 1)
	}
}

// wait returns how long a waiting session waits before it asks again; 0: it is its turn.
func (a *attempts) wait(s *session, now time.Time) time.Duration {
	most, delay := guessesAtOnce, a.delay(now)
	if delay > 0 {
		most = 1
	}
	if s != a.waiting[0] || a.running >= most {
		return longestDelay // or until it is woken
	}
	return max(a.last.Add(delay).Sub(now), 0)
}

// leave ends a session's wait. Who is next is decided by chance: a client that gives up early and
// comes again has its chance too, among however many connections of a guesser.
func (a *attempts) leave(s *session) {
	i := slices.Index(a.waiting, s)
	a.waiting = slices.Delete(a.waiting, i, i+1)
	if n := len(a.waiting); i == 0 && n > 0 {
		next := rand.IntN(n)
		a.waiting[0], a.waiting[next] = a.waiting[next], a.waiting[0]
	}
}

// begin starts an attempt if it is its turn, or if the session cannot wait; end follows. If not, it
// returns after which time to call it again, sets the read deadline to it, and may set that to the
// past.
func (g *guessing) begin(key guesser, s *session) (wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a, now := g.busy[key], time.Now()
	if a == nil {
		if known, ok := g.idle.Get(key); ok {
			a = known.(*attempts)
			g.idle.Remove(key)
		} else {
			a = newAttempts()
		}
		g.busy[key] = a
	}
	if !slices.Contains(a.waiting, s) {
		a.waiting = append(a.waiting, s)
	}
	if wait = a.wait(s, now); wait > 0 && !s.srv.closing.Load() {
		_ = s.conn.SetReadDeadline(now.Add(wait))
		return wait
	}
	a.running++
	a.leave(s)
	g.wakeNext(key)
	return 0
}

// finish ends an attempt.
func (g *guessing) finish(key guesser, failed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.busy[key]
	a.running--
	if failed {
		a.fail(time.Now())
	}
	g.wakeNext(key)
}

// wakeNext wakes the session that is next, or forgets a guesser without failures. The caller holds
// mu.
func (g *guessing) wakeNext(key guesser) {
	a := g.busy[key]
	switch {
	case len(a.waiting) > 0:
		_ = a.waiting[0].conn.SetReadDeadline(past)
	case a.running == 0:
		delete(g.busy, key)
		if !a.last.IsZero() {
			g.idle.Add(key, a)
		}
	}
}

// abandon ends a session's wait for its attempt.
func (g *guessing) abandon(key guesser, s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy[key].leave(s)
	g.wakeNext(key)
}

// waitToGuess begins an attempt to authenticate when it is its turn. It returns false if the
// connection ends.
func (s *session) waitToGuess(key guesser) bool {
	g := &s.srv.guessing
	wait := g.begin(key, s)
	if wait == 0 {
		return true
	}
	g.delayed.Add(1)
	defer func() {
		_ = s.conn.SetReadDeadline(time.Time{})
		s.lap() // waiting does not count as the command's time
	}()
	for ; wait > 0; wait = g.begin(key, s) {
		// whoever kills does so before it sets the deadline to the past
		if s.killed.Load() || !s.watchClient(wait) {
			g.abandon(key, s)
			return false
		}
	}
	return true
}
