package web

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/observe"
)

const (
	maxSessions = 64               // one more ends one of the user with the most
	idleTime    = 30 * time.Minute // after which a session ends
	longestTime = 12 * time.Hour   // … in any case
)

// session is a user who has logged in with one browser.
type session struct {
	user   string // empty: the default user, without a password
	client *observe.Client

	began, used time.Time // guarded by sessions.mu
}

// sessions are in memory only: they end with the process.
type sessions struct {
	cookie string // its name
	secure bool   // the port speaks TLS

	mu  lockorder.Mutex
	all map[[sha256.Size]byte]*session // by the hash of the token
}

// init chooses the cookie's name. Browsers send the cookies of a host to all of its ports, so each
// node has its own.
func (s *sessions) init(secure bool) {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	s.cookie, s.secure = "coordd-"+hex.EncodeToString(b[:]), secure
	if secure {
		s.cookie = "__Host-" + s.cookie
	}
	s.all = map[[sha256.Size]byte]*session{}
}

// begin starts a session and gives the browser its token.
func (s *sessions) begin(w http.ResponseWriter, user string, client *observe.Client) {
	token := rand.Text()
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	if len(s.all) >= maxSessions {
		s.makeRoom()
	}
	s.all[sha256.Sum256([]byte(token))] = &session{user: user, client: client, began: now,
		used: now}
	s.setCookie(w, token, int(longestTime.Seconds()))
}

// makeRoom ends the session that was used longest ago, of the user with the most sessions: nobody
// who logs in again and again ends those of others. The caller holds mu.
func (s *sessions) makeRoom() {
	number, most := map[string]int{}, 0
	for _, known := range s.all {
		number[known.user]++
		most = max(most, number[known.user])
	}
	var oldest [sha256.Size]byte
	for key, known := range s.all {
		o := s.all[oldest]
		if number[known.user] == most && (o == nil || known.used.Before(o.used)) {
			oldest = key
		}
	}
	s.remove(oldest)
}

// of returns the session of a request; nil: it has none, or it is over.
func (s *sessions) of(r *http.Request) *session {
	cookie, err := r.Cookie(s.cookie)
	if err != nil {
		return nil
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	found := s.all[sha256.Sum256([]byte(cookie.Value))]
	if found != nil {
		found.used = now
	}
	return found
}

// drop ends the session of a request.
func (s *sessions) drop(r *http.Request) {
	if cookie, err := r.Cookie(s.cookie); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.remove(sha256.Sum256([]byte(cookie.Value)))
	}
}

// logOut is drop, and the browser forgets the token.
func (s *sessions) logOut(w http.ResponseWriter, r *http.Request) {
	s.drop(r)
	s.setCookie(w, "", -1)
}

// sweep ends the sessions that are over. The caller holds mu.
func (s *sessions) sweep(now time.Time) {
	for key, known := range s.all {
		if now.Sub(known.used) > idleTime || now.Sub(known.began) > longestTime {
			s.remove(key)
		}
	}
}

// remove ends a session. The caller holds mu.
func (s *sessions) remove(key [sha256.Size]byte) {
	if known := s.all[key]; known != nil {
		known.client.Close()
		delete(s.all, key)
	}
}

// closeAll ends all sessions.
func (s *sessions) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.all {
		s.remove(key)
	}
}

func (s *sessions) setCookie(w http.ResponseWriter, value string, age int) {
	http.SetCookie(w, &http.Cookie{Name: s.cookie, Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: s.secure, SameSite: http.SameSiteStrictMode})
}
