// Rates of requests and bytes: coordd-client-rate of each connection, coordd-user-rate of all
// connections of a user to this node. Nothing is refused. What a client sends above its rates waits
// before it runs; meanwhile next to nothing is read from the connection, so TCP stops the client.
//
// A request is paid for when it is taken from the input, and runs when its rates cover it. One so
// large that others wait for its room (see intake) does not wait while it holds the room: it waits
// before it gets it, until the client owes nothing, and what it costs delays the next ones.

package server

import (
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/golang-lru/simplelru"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/ascii"
	"github.com/coordd/coordd/internal/lockorder"
)

const (
	// A client may send at once what its rate yields in a second. After that it gets its rate in
	// rateSteps a second, so that pipelines do not fall apart into single requests.
	rateSteps = 100
	// meteredUsers are remembered. The user who has sent nothing for longest is forgotten first.
	meteredUsers = 10_000
	minByteRate  = 1 << 10
	maxRate      = 1 << 30
)

// Rate is how much may be sent in a second. 0 means no limit.
type Rate struct{ Requests, Bytes int }

const errRate commands.Error = "argument must be requests, bytes (1kb or more) or both, such as " +
	"1000/s,1mb/s; or 0"

// ParseRate parses 0, or requests and bytes as in 1000/s,1mb/s. Bytes have a unit.
func ParseRate(text string) (r Rate, err error) {
	if text == "0" {
		return r, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		number, found := strings.CutSuffix(ascii.Lower(strings.TrimSpace(part)), "/s")
		of, least := &r.Requests, int64(1)
		n, ok := commands.ParseInt([]byte(number))
		if !ok {
			of, least = &r.Bytes, minByteRate
			n, ok = parseMemory(number)
		}
		if !found || !ok || *of != 0 || n < least || n > maxRate {
			return Rate{}, errRate
		}
		*of = int(n)
	}
	return r, nil
}

// String returns the value as CONFIG GET shows it.
func (r Rate) String() string {
	var parts []string
	if r.Requests > 0 {
		parts = append(parts, strconv.Itoa(r.Requests)+"/s")
	}
	if r.Bytes > 0 {
		parts = append(parts, strconv.Itoa(r.Bytes)+"b/s")
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, ",")
}

type rateLimits struct{ client, user Rate }

// rates are the limits in force. A change of one replaces them, and everybody starts afresh.
type rates struct {
	rateLimits

	mu    lockorder.Mutex
	users *simplelru.LRU // name → *meter
}

// newRates returns nil if there are no limits.
func newRates(l rateLimits) *rates {
	if l == (rateLimits{}) {
		return nil
	}
	r := &rates{rateLimits: l}
	r.users, _ = simplelru.NewLRU(meteredUsers, nil) // fails only without room
	return r
}

// limits returns the limits; r may be nil.
func (r *rates) limits() rateLimits {
	if r == nil {
		return rateLimits{}
	}
	return r.rateLimits
}

// rateParam is the parameter for one of the limits.
func rateParam(name string, of func(*rateLimits) *Rate) param {
	return param{
		name: name,
		get: func(s *Server) string {
			l := s.config.rates.Load().limits()
			return of(&l).String()
		},
		choose: func(text string) (func(*Server), error) {
			chosen, err := ParseRate(text)
			return func(s *Server) {
				s.changeRates(func(l *rateLimits) { *of(l) = chosen })
			}, err
		},
	}
}

// changeRates also lets those go on who wait for the former rates.
func (s *Server) changeRates(change func(*rateLimits)) {
	for changed := false; !changed; {
		old := s.config.rates.Load()
		l := old.limits()
		change(&l)
		changed = s.config.rates.CompareAndSwap(old, newRates(l))
	}
	for _, c := range s.all() {
		c.interrupt()
	}
}

// bucket holds tokens for up to a second, and may be overdrawn. Unlike package rate's limiter it
// takes any number at once, and back: the clients of a user that give up must not hold up others.
type bucket struct {
	perSecond int       // 0: no limit
	covered   time.Time // when the tokens that were taken are, with the second to spare before
}

// take takes n tokens, and returns the time until they are covered.
func (b *bucket) take(now time.Time, n int) time.Duration {
	if b.perSecond == 0 {
		return 0
	}
	if full := now.Add(-time.Second); b.covered.Before(full) {
		b.covered = full
	}
	seconds := float64(n) / float64(b.perSecond)
	b.covered = b.covered.Add(time.Duration(seconds * float64(time.Second)))
	return max(b.covered.Sub(now), 0)
}

// together returns how many tokens may be taken as one.
func (b *bucket) together(now time.Time) int {
	if b.perSecond == 0 {
		return maxInt
	}
	spare := min(now.Sub(b.covered), time.Second)
	return max(1, b.perSecond/rateSteps, int(spare.Seconds()*float64(b.perSecond)))
}

// meter counts what a connection or a user sends.
type meter struct{ requests, bytes bucket }

func newMeter(r Rate) meter {
	return meter{bucket{perSecond: r.Requests}, bucket{perSecond: r.Bytes}}
}

// allowance returns how much may be taken together, at most most.
func (m *meter) allowance(now time.Time, most allowance) allowance {
	return allowance{min(m.requests.together(now), most.requests),
		min(m.bytes.together(now), most.bytes)}
}

// charge counts what was sent, and returns the time until the rates cover it.
func (m *meter) charge(now time.Time, requests, bytes int) time.Duration {
	return max(m.requests.take(now, requests), m.bytes.take(now, bytes))
}

// ofUser returns the meter of a user. The caller holds mu.
func (r *rates) ofUser(name []byte) *meter {
	m, ok := r.users.Get(string(name))
	if !ok {
		fresh := newMeter(r.user)
		m = &fresh
		r.users.Add(string(name), m)
	}
	return m.(*meter)
}

// meteredUser returns the user whose meter counts what the session's client sends, beside its own;
// nil: there is none. Who must authenticate and has not does not use up what the default user may
// send.
func (s *session) meteredUser(r *rates) []byte {
	id := s.user.Load()
	switch {
	case r.user == Rate{}, id == nil && (s.in.small || s.certifiedAs != ""):
		return nil
	case id == nil:
		return []byte(userDefault)
	}
	return id.name
}

// allowance returns how much input may be taken together.
func (s *session) allowance() allowance {
	r := s.srv.config.rates.Load()
	if r != s.meterOf {
		s.meter, s.meterOf = newMeter(r.limits().client), r
	}
	if r == nil {
		return unlimited
	}
	now := s.srv.cfg.clock()
	most := s.meter.allowance(now, unlimited)
	if user := s.meteredUser(r); user != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		most = r.ofUser(user).allowance(now, most)
	}
	return most
}

// spend counts what was sent, and returns the time until the rates cover that and all before. user
// may be nil.
func (s *session) spend(user []byte, requests, bytes int) time.Duration {
	now, r := s.srv.cfg.clock(), s.meterOf
	wait := s.meter.charge(now, requests, bytes)
	if user != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		wait = max(wait, r.ofUser(user).charge(now, requests, bytes))
	}
	return wait
}

// pay charges for input that was taken, and waits until the rates cover it. It returns false if the
// connection ends.
func (s *session) pay(requests, bytes int) bool {
	r := s.meterOf
	if r == nil || bytes == 0 {
		return true
	}
	user := s.meteredUser(r)
	wait := s.spend(user, requests, bytes)
	if wait == 0 || s.in.lent || s.holdBack(wait, requests) {
		return true
	}
	s.spend(user, -requests, -bytes) // it did not run
	return false
}

// payDebt waits until the rates cover what was taken before, at the start of a large request. It
// fails as a read does.
func (s *session) payDebt() error {
	r := s.meterOf
	if r == nil {
		return nil
	}
	wait := s.spend(s.meteredUser(r), 0, 0)
	if wait == 0 {
		return nil
	}
	s.state.Store(works)
	defer s.state.Store(waitsForInput)
	switch {
	case s.holdBack(wait, 1):
		return nil
	case s.gone:
		return io.EOF
	}
	return errInterrupted
}

// holdBack waits, unless other rates come into force, or the server closes: then it answers what it
// has received. It returns false if the connection ends.
func (s *session) holdBack(wait time.Duration, requests int) bool {
	t := &s.srv.stats
	t.rateDelayed.Add(uint64(requests))
	t.rateDelayedClients.Add(1)
	defer func() {
		t.rateDelayedClients.Add(-1)
		_ = s.conn.SetReadDeadline(time.Time{})
		if s.srv.closing.Load() || s.killed.Load() {
			_ = s.conn.SetReadDeadline(past) // that of who ends it may be gone
		}
	}()
	for until := s.srv.cfg.clock().Add(wait); ; {
		left := until.Sub(s.srv.cfg.clock())
		_ = s.conn.SetReadDeadline(time.Now().Add(left))
		switch { // after the deadline is set: whoever interrupts sets an earlier one later
		case left <= 0 || s.srv.closing.Load() || s.srv.config.rates.Load() != s.meterOf:
			return true
		case s.killed.Load() || !s.watchClient(left):
			return false
		}
	}
}
