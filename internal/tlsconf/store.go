package tlsconf

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/internal/files"
	"github.com/coordd/coordd/internal/lockorder"
)

// Files are the paths of a certificate with its chain, its key, and the authorities that the other
// end is verified by, all in PEM.
type Files struct{ Cert, Key, CA string }

// Config configures Open.
type Config struct {
	Files
	Name   string // what the log calls the certificate
	Logger *slog.Logger
	// Check returns why loaded files are not to be used; nil: they are always
	Check func(*Loaded) error
}

// Store holds what the files said when they could last be used. Its methods may be called from any
// goroutine.
type Store struct {
	cfg     Config
	now     atomic.Pointer[Loaded]
	trouble atomic.Pointer[error] // why the newest reload failed; nil: it did not

	mu       lockorder.Mutex // reloads come one at a time
	onChange []func()        // guarded by mu
	warned   time.Time       // when the log last warned that it expires
}

// Loaded is the content of the files at one time.
type Loaded struct {
	Pair        tls.Certificate // with its Leaf
	CAs         *x509.CertPool  // empty if no file was named: nil would be the system's authorities
	text        [3][]byte
	authorities []*x509.Certificate // those of CAs
	trusted     time.Time           // see trustedUntil
	shown       shown
}

// Open loads the files for the first time.
func Open(cfg Config) (*Store, error) {
	s := &Store{cfg: cfg}
	l, err := s.load()
	if err != nil {
		return nil, fmt.Errorf("%s certificate: %w", cfg.Name, err)
	}
	s.now.Store(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warn(time.Now())
	return s, nil
}

// Current returns what is in use.
func (s *Store) Current() *Loaded { return s.now.Load() }

// OnChange has f called after each change, from the goroutine that reloads.
func (s *Store) OnChange(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onChange = append(s.onChange, f)
}

// Reload loads the files again. If they cannot be used, what is in use stays.
func (s *Store) Reload() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := s.load()
	old := s.now.Load()
	if err == nil && !bytes.Equal(l.text[0], old.text[0]) && time.Now().After(l.Expires()) {
		err = fmt.Errorf("%s: expired at %s", s.cfg.Cert, stamp(l.Expires()))
	}
	if err != nil {
		// the same trouble is logged once: the files are read every minute
		if before := s.trouble.Swap(&err); before == nil || (*before).Error() != err.Error() {
			s.cfg.Logger.Error("certificate files not usable, the previous ones stay in use",
				"certificate", s.cfg.Name, "error", err)
		}
		return err
	}
	s.trouble.Store(nil)
	if l.same(old) {
		return nil
	}
	s.now.Store(l)
	s.cfg.Logger.Info("certificate reloaded", "certificate", s.cfg.Name, "expires",
		stamp(l.Expires()))
	s.warned = time.Time{}
	s.warn(time.Now())
	for _, f := range s.onChange {
		f()
	}
	return nil
}

// Status describes a certificate for operators.
type Status struct {
	Name    string
	Expires time.Time
	Trouble string // why the newest files are not in use; not for everybody: it names them
}

// LastReload returns the outcome of the newest reload in one word.
func (s Status) LastReload() string {
	if s.Trouble != "" {
		return "failed"
	}
	return "ok"
}

// Status returns the state of the certificate in use, and of the authorities, if there are any.
func (s *Store) Status() []Status {
	l := s.Current()
	all := []Status{{Name: s.cfg.Name, Expires: l.Expires()}}
	if len(l.authorities) > 0 {
		all = append(all, Status{Name: s.cfg.Name + "-authorities",
			Expires: l.shown.until(l.trusted, time.Now())})
	}
	if err := s.trouble.Load(); err != nil {
		for i := range all {
			all[i].Trouble = (*err).Error()
		}
	}
	return all
}

// maxFile bounds a file of certificates, in bytes. That of a system's authorities has some 200 KiB.
const maxFile = 4 << 20

// load reads and checks the files.
func (s *Store) load() (*Loaded, error) {
	l := &Loaded{}
	for i, path := range []string{s.cfg.Cert, s.cfg.Key, s.cfg.CA} {
		if path == "" {
			continue
		}
		var err error
		if l.text[i], err = files.Read(path, maxFile); err != nil {
			return nil, err
		}
	}
	var err error
	if l.Pair, err = pairOf(l.text[0], l.text[1]); err != nil {
		return nil, fmt.Errorf("%s and %s: %w", s.cfg.Cert, s.cfg.Key, err)
	}
	l.CAs = x509.NewCertPool()
	if s.cfg.CA != "" {
		if l.authorities, err = authoritiesOf(l.text[2]); err != nil {
			return nil, fmt.Errorf("%s: %w", s.cfg.CA, err)
		}
	}
	for _, c := range l.authorities {
		l.CAs.AddCert(c)
	}
	l.trusted = l.trustedUntil()
	if s.cfg.Check != nil {
		if err := s.cfg.Check(l); err != nil {
			return nil, fmt.Errorf("%s: %w", s.cfg.Cert, err)
		}
	}
	return l, nil
}

func (l *Loaded) same(o *Loaded) bool {
	for i := range l.text {
		if !bytes.Equal(l.text[i], o.text[i]) {
			return false
		}
	}
	return true
}

// Expires returns when the certificate, or one of its chain, expires.
func (l *Loaded) Expires() time.Time {
	end := l.Pair.Leaf.NotAfter
	for _, der := range l.Pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil && c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	return end
}

// trustedUntil returns when the last authority expires that the certificate in use has, since a
// newer one beside it helps only who has a new certificate; the last of all if it has none of them.
func (l *Loaded) trustedUntil() time.Time {
	var own, all time.Time
	between := x509.NewCertPool()
	for _, c := range l.Chain()[1:] {
		between.AddCert(c)
	}
	for _, c := range l.authorities {
		root, at := x509.NewCertPool(), c.NotAfter
		root.AddCert(c)
		if end := l.Expires(); end.Before(at) {
			at = end
		}
		if _, err := l.Pair.Leaf.Verify(x509.VerifyOptions{Roots: root, Intermediates: between,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, CurrentTime: at}); err == nil {
			own = later(own, c.NotAfter)
		}
		all = later(all, c.NotAfter)
	}
	if own.IsZero() {
		return all
	}
	return own
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Verify checks a chain, leaf first, for a use by the authorities.
func (l *Loaded) Verify(chain []*x509.Certificate, use x509.ExtKeyUsage) error {
	_, err := l.verifyAt(time.Now(), chain, use)
	return err
}

// VerifyOpen is Verify for a connection whose handshake is over. A certificate that has expired
// since ends no connection, as with Redis and etcd: only that its authority is gone does.
func (l *Loaded) VerifyOpen(chain []*x509.Certificate, use x509.ExtKeyUsage) error {
	at := time.Now()
	if len(chain) > 0 && chain[0].NotAfter.Before(at) {
		at = chain[0].NotAfter
	}
	_, err := l.verifyAt(at, chain, use)
	return err
}

// maxChain is how many certificates the other end may show.
const maxChain = 10

// verifyAt returns the chains from the certificate to authorities. Package x509 checks up to 100
// signatures by whatever keys a stranger shows, which takes a quarter of a second. So it sees only
// the certificates that the authorities have signed, directly or not, which is found out by their
// keys alone.
func (l *Loaded) verifyAt(at time.Time, chain []*x509.Certificate,
	use x509.ExtKeyUsage) ([][]*x509.Certificate, error) {
	switch {
	case len(chain) == 0:
		return nil, errors.New("no certificate")
	case len(chain) > maxChain:
		return nil, fmt.Errorf("a chain of %d certificates, at most %d are allowed", len(chain),
			maxChain)
	}
	signed := l.signed(chain)
	if !signed[0] {
		return nil, x509.UnknownAuthorityError{Cert: chain[0]}
	}
	between := x509.NewCertPool()
	for i, c := range chain[1:] {
		if signed[i+1] {
			between.AddCert(c)
		}
	}
	return chain[0].Verify(x509.VerifyOptions{Roots: l.CAs, Intermediates: between,
		KeyUsages: []x509.ExtKeyUsage{use}, CurrentTime: at})
}

// signed reports which certificates of a chain the authorities have signed, directly or not, or
// are themselves.
func (l *Loaded) signed(chain []*x509.Certificate) []bool {
	known, signed := slices.Clone(l.authorities), make([]bool, len(chain))
	for i, c := range chain {
		signed[i] = slices.ContainsFunc(known, c.Equal)
	}
	for more := true; more; {
		more = false
		for i, c := range chain {
			if !signed[i] && slices.ContainsFunc(known, func(a *x509.Certificate) bool {
				return bytes.Equal(c.RawIssuer, a.RawSubject) && c.CheckSignatureFrom(a) == nil
			}) {
				known, signed[i], more = append(known, c), true, true
			}
		}
	}
	return signed
}

// Chain returns the certificate with its chain, leaf first.
func (l *Loaded) Chain() []*x509.Certificate {
	chain := []*x509.Certificate{l.Pair.Leaf}
	for _, der := range l.Pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			chain = append(chain, c)
		}
	}
	return chain
}

// base is what every handshake has in common. There is no session resumption: a resumed session
// would outlive the authority that its certificate was verified by.
func (l *Loaded) base() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true,
		Certificates: []tls.Certificate{l.Pair}}
}

// Server returns a configuration that serves with the certificate in use at each handshake. auth is
// whether clients need a certificate of the authorities.
func (s *Store) Server(auth tls.ClientAuthType) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			l := s.Current()
			c := l.base()
			c.ClientCAs = l.CAs // which are told to clients
			switch auth {
			case tls.RequireAndVerifyClientCert: // VerifyConnection does it
				c.ClientAuth = tls.RequireAnyClientCert
			case tls.VerifyClientCertIfGiven:
				c.ClientAuth = tls.RequestClientCert
			}
			c.VerifyConnection = func(st tls.ConnectionState) error {
				if len(st.PeerCertificates) == 0 {
					return nil
				}
				now := time.Now()
				chains, err := l.verifyAt(now, st.PeerCertificates, x509.ExtKeyUsageClientAuth)
				if err == nil {
					l.shown.note(chains, now)
				}
				return err
			}
			return c, nil
		}}
}

// Client returns a configuration for one handshake as a client. Instead of a host name, verify
// checks the server's certificate, after the authorities have.
func (s *Store) Client(verify func(*x509.Certificate) error) *tls.Config {
	l := s.Current()
	c := l.base()
	c.InsecureSkipVerify = true // VerifyConnection does it
	c.VerifyConnection = func(st tls.ConnectionState) error {
		if err := l.Verify(st.PeerCertificates, x509.ExtKeyUsageServerAuth); err != nil {
			return err
		}
		return verify(st.PeerCertificates[0])
	}
	return c
}

// A certificate that expires within warnAhead is logged, every warnEvery.
const (
	warnAhead = 30 * 24 * time.Hour
	warnEvery = 24 * time.Hour
)

// warn logs that the certificate, or its authorities, expire soon. The caller holds
// mu.
func (s *Store) warn(now time.Time) {
	if !s.warned.IsZero() && now.Sub(s.warned) < warnEvery {
		return
	}
	for i, c := range s.Status() {
		left := c.Expires.Sub(now)
		if left > warnAhead {
			continue
		}
		s.warned = now
		file := []string{s.cfg.Cert, s.cfg.CA}[i]
		if left <= 0 {
			s.cfg.Logger.Error("certificate expired", "certificate", c.Name, "file", file,
				"expired", stamp(c.Expires))
			continue
		}
		s.cfg.Logger.Warn("certificate expires soon", "certificate", c.Name, "file", file,
			"expires", stamp(c.Expires), "days", int(left/(24*time.Hour)))
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Dial returns a configuration for dialing servers by their host names: verified by the authorities
// of the files, or by the system's if none are named, with the certificate of the files if there is
// one.
func (f Files) Dial() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		text, err := files.Read(f.CA, maxFile)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		authorities, err := authoritiesOf(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.CA, err)
		}
		for _, a := range authorities {
			c.RootCAs.AddCert(a)
		}
	}
	if f.Cert != "" || f.Key != "" {
		cert, err := files.Read(f.Cert, maxFile)
		if err != nil {
			return nil, err
		}
		key, err := files.Read(f.Key, maxFile)
		if err != nil {
			return nil, err
		}
		pair, err := pairOf(cert, key)
		if err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if !forClients(pair.Leaf) { // a server's refusal would not say why
				return nil, fmt.Errorf("%s: %w", f.Cert, ErrNotForClients)
			}
			return &pair, nil
		}
	}
	return c, nil
}

// ErrNotForClients means that a server asks for a certificate, and that the one to show is none for
// clients.
var ErrNotForClients = errors.New("the certificate lacks the usage clientAuth: a server that " +
	"asks clients for a certificate refuses it")

func forClients(c *x509.Certificate) bool {
	return len(c.ExtKeyUsage)+len(c.UnknownExtKeyUsage) == 0 || // for everything
		slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth) ||
		slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny)
}

// Alert reports whether an error is an alert of the other end: it answers, and refuses.
func Alert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}
