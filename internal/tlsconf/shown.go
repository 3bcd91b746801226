package tlsconf

import (
	"crypto/x509"
	"time"

	"github.com/coordd/coordd/internal/lockorder"
)

// shownLately is for how long it counts that a client showed a certificate of an authority. One
// that nobody uses any more may stay in the file until it expires, without a warning.
const shownLately = 7 * 24 * time.Hour

// shown is when the authorities expire by which clients were let in, which need not be those of the
// node's own certificate. There are at most as many as authorities in the file.
type shown struct {
	mu lockorder.Mutex
	at map[time.Time]time.Time // by the time of their expiry, when one was last used
}

// note notes the verified chains of a client, which is let in as long as one of them is good.
func (s *shown) note(chains [][]*x509.Certificate, now time.Time) {
	var last time.Time
	for _, chain := range chains {
		last = later(last, chain[len(chain)-1].NotAfter)
	}
	if last.IsZero() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		s.at = map[time.Time]time.Time{}
	}
	s.at[last] = now
}

// until returns the first expiry of all that were used lately, or own if that is earlier.
func (s *shown) until(own, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	for end, used := range s.at {
		if now.Sub(used) < shownLately && end.Before(own) {
			own = end
		}
	}
	return own
}
