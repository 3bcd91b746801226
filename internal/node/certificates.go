package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/internal/tlsconf"
)

// certificates are the node's; nil: TLS is off.
type certificates struct {
	client *tlsconf.Store
	peer   *cluster.PeerTLS
}

// open loads the certificates.
func (c *certificates) open(cfg *Config, log *slog.Logger) (err error) {
	if cfg.TLSListen != "" || cfg.HTTPTLS {
		c.client, err = tlsconf.Open(tlsconf.Config{Files: cfg.TLS, Name: "client", Logger: log})
		if err != nil {
			return err
		}
	}
	c.peer, err = cluster.OpenPeerTLS(cfg.PeerTLS, cfg.ID, log)
	return err
}

func (c *certificates) stores() (all []*tlsconf.Store) {
	if c.client != nil {
		all = append(all, c.client)
	}
	if c.peer != nil {
		all = append(all, c.peer.Store)
	}
	return all
}

// status returns the state of each certificate.
func (c *certificates) status() (all []tlsconf.Status) {
	for _, s := range c.stores() {
		all = append(all, s.Status()...)
	}
	return all
}

// watchCertificates reloads certificates when their files change, until the node stops.
func (n *Node) watchCertificates() {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-n.stop; cancel() }()
	if c := n.certs.client; c != nil && n.cfg.TLSClientAuth != tls.NoClientCert {
		c.OnChange(func() {
			n.server.CloseUnverified(func(chain []*x509.Certificate) error {
				return c.Current().VerifyOpen(chain, x509.ExtKeyUsageClientAuth)
			})
		})
	}
	for _, s := range n.certs.stores() {
		go s.Watch(ctx)
	}
}

// Reload reads the certificates and the tokens for metrics again, and reopens the audit log. What
// cannot be used leaves the previous ones in use.
func (n *Node) Reload() error {
	err := n.audit.Reopen()
	if err != nil {
		n.log.Error("the audit log stays the one that was open", "error", err)
	}
	if tokenErr := n.tokens.load(); tokenErr != nil {
		n.log.Error("the tokens for metrics stay as they were", "error", tokenErr)
		err = errors.Join(err, tokenErr)
	}
	for _, s := range n.certs.stores() {
		err = errors.Join(err, s.Reload())
	}
	return err
}
