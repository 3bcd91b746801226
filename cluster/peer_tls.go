// TLS between nodes. Both ends of a connection show a certificate of the peers' own authority, and
// the certificate names the node that shows it: nobody else can claim its id.

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/coordd/coordd/internal/tlsconf"
)

// PeerTLSMode says which connections between nodes use TLS. A cluster goes from plain text to TLS
// in three rolling restarts, one mode after the other, and back in the same way.
type PeerTLSMode string

// The modes of TLS between nodes.
const (
	PeerTLSOff      PeerTLSMode = "off"
	PeerTLSAccept   PeerTLSMode = "accept"   // accept both, dial plain text
	PeerTLSDial     PeerTLSMode = "dial"     // accept both, dial TLS
	PeerTLSRequired PeerTLSMode = "required" // accept and dial TLS
)

// PeerTLSConfig configures TLS between nodes.
type PeerTLSConfig struct {
	Mode  PeerTLSMode
	Files tlsconf.Files
	// the DNS name of a node's certificate, with idPlace where its id is; empty: the certificate
	// has the URI coordd://CLUSTER/ID
	Name string
}

// idPlace stands for a node's id in PeerTLSConfig.Name.
const idPlace = "{id}"

const peerScheme = "coordd"

// CheckPeerName returns an error if a PeerTLSConfig.Name names no node.
func CheckPeerName(name string) error {
	if name != "" && strings.Count(name, idPlace) != 1 {
		return fmt.Errorf("must contain %s once", idPlace)
	}
	return nil
}

// PeerTLS holds a node's certificate for other nodes.
type PeerTLS struct {
	*tlsconf.Store
	cfg  PeerTLSConfig
	self string
	// that the certificate's URI names, as its first version had it; empty: DNS names are used
	cluster string
}

// OpenPeerTLS loads the certificate of the node with that id. It fails if the certificate does not
// name the node, or the authority does not know it. It returns nil if the mode is off.
func OpenPeerTLS(cfg PeerTLSConfig, id string, logger *slog.Logger) (*PeerTLS, error) {
	if cfg.Mode == "" || cfg.Mode == PeerTLSOff {
		return nil, nil
	}
	t := &PeerTLS{cfg: cfg, self: id}
	var err error
	t.Store, err = tlsconf.Open(tlsconf.Config{Files: cfg.Files, Name: "peer", Logger: logger,
		Check: t.check})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// check returns why a certificate is not this node's. An authority that does not know it would cut
// the node off from the others.
func (t *PeerTLS) check(l *tlsconf.Loaded) error {
	cluster := t.cluster
	if t.cfg.Name == "" {
		i := slices.IndexFunc(l.Pair.Leaf.URIs, func(u *url.URL) bool {
			return u.Scheme == peerScheme && slices.Contains(namesOf(t.self), u.Path[min(
				len(u.Path), 1):]) && (t.cluster == "" || u.Host == t.cluster)
		})
		if i < 0 && t.cluster != "" {
			return fmt.Errorf("it does not name this node by the URI %s://%s/%s", peerScheme,
				t.cluster, t.self)
		}
		if i < 0 {
			return fmt.Errorf("it does not name this node by a URI %s://CLUSTER/%s", peerScheme,
				t.self)
		}
		cluster = l.Pair.Leaf.URIs[i].Host
	} else if !slices.ContainsFunc(l.Pair.Leaf.DNSNames, t.isName(t.self)) {
		return fmt.Errorf("it does not have the DNS name %s", t.dnsName(t.self))
	}
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
		x509.ExtKeyUsageClientAuth} {
		if err := l.Verify(l.Chain(), use); err != nil {
			return err
		}
	}
	if t.cluster == "" { // before Open returns: others read it without a lock
		t.cluster = cluster
	}
	return nil
}

func (t *PeerTLS) dnsName(id string) string { return strings.Replace(t.cfg.Name, idPlace, id, 1) }

func (t *PeerTLS) isName(id string) func(string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(namesOf(id), func(id string) bool {
			return strings.EqualFold(name, t.dnsName(id))
		})
	}
}

// namesOf returns the names that may stand for a node in a certificate: its id, and for an
// automatic id, which nobody knows before, also what it begins with.
func namesOf(id string) []string {
	if base := autoBase(id); base != "" {
		return []string{id, base}
	}
	return []string{id}
}

// identity is what a verified certificate says about the node that shows it: the names in it that
// can name nodes of this cluster, sorted. A certificate may name several nodes.
type identity []string

// identityOf returns the identity in a certificate. It fails if there is none.
func (t *PeerTLS) identityOf(cert *x509.Certificate) (identity, error) {
	var names identity
	if t.cfg.Name != "" {
		before, after, _ := strings.Cut(strings.ToLower(t.cfg.Name), idPlace)
		for _, name := range cert.DNSNames {
			name = strings.ToLower(name)
			if rest, ok := strings.CutPrefix(name, before); ok && strings.HasSuffix(rest, after) {
				names = append(names, name)
			}
		}
	} else {
		for _, u := range cert.URIs {
			if u.Scheme == peerScheme && u.Host == t.cluster {
				names = append(names, u.String())
			}
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("the certificate of %q names no node of this cluster",
			cert.Subject.CommonName)
	}
	slices.Sort(names)
	return names, nil
}

// names reports whether an identity is that of a node.
func (t *PeerTLS) names(who identity, id string) bool {
	if t.cfg.Name != "" {
		return slices.ContainsFunc(who, t.isName(id))
	}
	return slices.ContainsFunc(namesOf(id), func(id string) bool {
		return slices.Contains(who, (&url.URL{Scheme: peerScheme, Host: t.cluster,
			Path: "/" + id}).String())
	})
}

// Dials reports whether this node dials TLS.
func (t *PeerTLS) Dials() bool {
	return t != nil && (t.cfg.Mode == PeerTLSDial || t.cfg.Mode == PeerTLSRequired)
}

// requires reports whether this node refuses plain text.
func (t *PeerTLS) requires() bool { return t != nil && t.cfg.Mode == PeerTLSRequired }

var (
	errNoPeerTLS    = errors.New("a node dials TLS, and this one has no certificate for nodes")
	errPlainPeer    = errors.New("a node dials without TLS, and this one requires it")
	errNotTheirName = errors.New("the certificate does not name that node")
	errReplacedCA   = errors.New("the authority of its certificate was replaced")
)

// dial completes a handshake with the node id, or with any node if id is empty.
func (t *PeerTLS) dial(ctx context.Context, raw net.Conn, id string) (*tls.Conn, identity, error) {
	var who identity
	conn := tls.Client(raw, t.Client(func(cert *x509.Certificate) (err error) {
		if who, err = t.identityOf(cert); err == nil && id != "" && !t.names(who, id) {
			err = fmt.Errorf("it is not node %s: %w", id, errNotTheirName)
		}
		return err
	}))
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, nil, err
	}
	return conn, who, nil
}

// accept completes a handshake with a node that has dialed.
func (t *PeerTLS) accept(ctx context.Context, raw net.Conn) (*tls.Conn, identity, error) {
	conn := tls.Server(raw, t.Server(tls.RequireAndVerifyClientCert))
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, nil, err
	}
	who, err := t.identityOf(conn.ConnectionState().PeerCertificates[0])
	return conn, who, err
}

// stream is a connection to another node, tracked by the mux until it is closed.
type stream struct {
	net.Conn          // raw, or TLS over it
	raw      net.Conn // as the mux tracks it
	m        *mux
	who      identity // nil: without TLS
}

// Close closes the connection. TLS could wait for the other end to read an alert; the protocols
// between nodes know themselves where they end.
func (s *stream) Close() error {
	s.m.untrack(s.raw)
	return s.raw.Close()
}

// mayBe reports whether the other end may claim a node's id: without TLS, anybody may.
func (s *stream) mayBe(id string) bool { return s.who == nil || s.m.tls.names(s.who, id) }

// verified reports whether the authorities in use know the certificate of the other end.
func (s *stream) verified() bool {
	secure, ok := s.Conn.(*tls.Conn)
	return !ok || s.m.tls.Current().VerifyOpen(secure.ConnectionState().PeerCertificates,
		x509.ExtKeyUsageAny) == nil
}

// verifyPeers ends the connections whose certificate an authority that was replaced had signed.
// Those that carry requests are drained first: the other node may have a new certificate, and no
// request is lost while it connects again.
func (n *Node) verifyPeers() {
	drained := map[net.Conn]bool{}
	unverified := func(w *peerConn) bool {
		if w == nil {
			return false
		}
		conn, ok := w.conn.(*stream)
		if !ok || conn.verified() {
			return false
		}
		drained[conn.raw] = true
		return true
	}
	n.linksMu.Lock()
	for in := range n.inbounds {
		if unverified(in.w) {
			n.logger.Info("connection renewed: the certificate of the member is no longer valid",
				"member", in.peer)
			in.renew()
		}
	}
	for id, l := range n.links {
		l.mu.Lock()
		w := l.wire
		l.mu.Unlock()
		if unverified(w) {
			n.logger.Info("connection renewed: the certificate of the member is no longer valid",
				"member", id)
			l.renew()
		}
	}
	n.linksMu.Unlock()
	n.mux.closeUnverified(drained)
}

// replayed is a connection whose first byte was read before.
type replayed struct {
	net.Conn
	first []byte
}

func (r *replayed) Read(p []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(p, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.Conn.Read(p)
}
