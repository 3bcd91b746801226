// How fast passwords can be tried. Each failed AUTH delays the next ones from its address for its
// user, more and more. Nobody is locked out: the right password gets in after the delay.

package server

import (
	"errors"
	"hash/maphash"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/simplelru"
	"golang.org/x/time/rate"
)

const (
	freeGuesses  = 5                      // failures that delay nothing
	guessDelay   = 500 * time.Millisecond // of each failure after them
	longestDelay = 5 * time.Second
	guessForget  = 10 * time.Second // after which one failure is forgotten
	guessers     = 10_000           // remembered
	// userSlots bounds what one address occupies. Users in one slot share the delay.
	userSlots = 64
)

// guesser is who tries passwords: an address, and a hash of the user's name. Real users and others
// are treated alike, so that the delay does not tell them apart.
type guesser struct {
	addr netip.Prefix
	slot uint8
}

// guessing remembers who failed to authenticate.
type guessing struct {
	seed    maphash.Seed
	delayed atomic.Uint64 // calls of AUTH

	mu sync.Mutex
	// guesser → *rate.Limiter, whose missing tokens are the failures that count
	failed *simplelru.LRU
}

func (g *guessing) init() {
	g.seed = maphash.MakeSeed()
	g.failed, _ = simplelru.NewLRU(guessers, nil) // fails only without room
}

// guesser returns who tries a password for a user. An IPv6 client has a whole /64 to itself.
func (g *guessing) guesser(conn net.Conn, user []byte) guesser {
	key := guesser{slot: uint8(maphash.Bytes(g.seed, user) % userSlots)}
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		addr := a.AddrPort().Addr().Unmap().WithZone("")
		bits := 32
		if addr.Is6() {
			bits = 64
		}
		key.addr, _ = addr.Prefix(bits) // of a valid length
	}
	return key
}

// delay returns how long an attempt has to wait.
func (g *guessing) delay(key guesser, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, ok := g.failed.Get(key)
	if !ok {
		return 0
	}
	return delayOf(l.(*rate.Limiter), now)
}

func delayOf(l *rate.Limiter, now time.Time) time.Duration {
	owed := -l.TokensAt(now)
	return min(max(time.Duration(owed*float64(guessDelay)), 0), longestDelay)
}

// fail notes a wrong password. Past the longest delay it changes nothing, so that the delay ends
// soon after the attempts do.
func (g *guessing) fail(key guesser, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, ok := g.failed.Get(key)
	if !ok {
		l = rate.NewLimiter(rate.Every(guessForget), freeGuesses)
		g.failed.Add(key, l)
	}
	if l := l.(*rate.Limiter); delayOf(l, now) < longestDelay {
		l.ReserveN(now, 1)
	}
}

// waitToGuess delays an attempt to authenticate. It returns false if the connection ends.
func (s *session) waitToGuess(key guesser) bool {
	d := s.srv.guessing.delay(key, time.Now())
	if d == 0 {
		return true
	}
	s.srv.guessing.delayed.Add(1)
	defer func() {
		_ = s.conn.SetReadDeadline(time.Time{})
		s.lap() // waiting does not count as the command's time
	}()
	for until := time.Now().Add(d); ; {
		_ = s.conn.SetReadDeadline(until)
		left := time.Until(until)
		switch { // after the deadline is set: whoever kills sets an earlier one later
		case left <= 0 || s.srv.closing.Load():
			return true
		case s.killed.Load():
			return false
		}
		if err := s.watchClient(left); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			s.gone = true
			return false
		}
	}
}
