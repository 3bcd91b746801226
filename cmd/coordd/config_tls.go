// Options of TLS, and the refusal of nodes that anybody controls.

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/coordd/coordd/cluster"
)

// clientAuth are the values of --tls-client-auth.
var clientAuth = map[string]tls.ClientAuthType{"none": tls.NoClientCert,
	"optional": tls.VerifyClientCertIfGiven, "required": tls.RequireAndVerifyClientCert}

func setClientAuth(c *config, v string) error {
	if err := setChoice(func(c *config) *string { return &c.clientAuth }, "", "none", "optional",
		"required")(c, v); err != nil {
		return errors.New("must be none, optional or required")
	}
	return nil
}

func setTLSUsers(c *config, v string) error {
	c.TLSUsers = strings.EqualFold(v, "cn")
	if !c.TLSUsers && v != "off" {
		return errors.New("must be off or cn")
	}
	return nil
}

func setPeerTLS(c *config, v string) error {
	c.PeerTLS.Mode = cluster.PeerTLSMode(v)
	switch c.PeerTLS.Mode {
	case "", cluster.PeerTLSOff, cluster.PeerTLSAccept, cluster.PeerTLSDial,
		cluster.PeerTLSRequired:
		return nil
	}
	return errors.New("must be off, accept, dial or required")
}

func setPeerName(c *config, v string) error {
	c.PeerTLS.Name = v
	return cluster.CheckPeerName(v)
}

// completeTLS checks that the options of TLS fit together.
func (c *config) completeTLS() error {
	if c.TLSListen != "" && (c.TLS.Cert == "" || c.TLS.Key == "") {
		return errors.New("--tls-listen requires --tls-cert and --tls-key")
	}
	c.HTTPNoPage = !c.httpPage
	if c.HTTPTLS && (c.TLS.Cert == "" || c.TLS.Key == "") {
		return errors.New("--http-tls requires --tls-cert and --tls-key")
	}
	c.TLSClientAuth = clientAuth[c.clientAuth]
	switch {
	case c.clientAuth == "" && c.TLS.CA != "":
		c.TLSClientAuth = tls.RequireAndVerifyClientCert
	case c.TLSClientAuth != tls.NoClientCert && c.TLS.CA == "":
		return fmt.Errorf("--tls-client-auth %s requires --tls-ca", c.clientAuth)
	}
	if c.TLSUsers && c.TLSClientAuth == tls.NoClientCert {
		return errors.New("--tls-auth-clients-user cn requires --tls-ca")
	}
	p := &c.PeerTLS
	if p.Mode == "" && p.Files.Cert != "" {
		p.Mode = cluster.PeerTLSRequired
	}
	if p.Mode != "" && p.Mode != cluster.PeerTLSOff &&
		(p.Files.Cert == "" || p.Files.Key == "" || p.Files.CA == "") {
		return fmt.Errorf(
			"--peer-tls %s requires --peer-tls-cert, --peer-tls-key and --peer-tls-ca", p.Mode)
	}
	return nil
}

// checkOpenDoors refuses to run a node that nobody reaches, or that anybody controls.
func (c *config) checkOpenDoors() error {
	if c.Listen == "" && c.TLSListen == "" && c.UnixSocket == "" {
		return errors.New(
			"no address for clients: set --listen, --tls-listen or --unix-socket")
	}
	if host, _, _ := net.SplitHostPort(c.PeerListen); c.PeerTLS.Mode != cluster.PeerTLSRequired &&
		!c.insecurePeers && !isLoopback(host) {
		return fmt.Errorf("--peer-listen %s accepts nodes from other machines without TLS, and "+
			"whoever reaches it controls the cluster: set --peer-tls-cert, --peer-tls-key and "+
			"--peer-tls-ca, or --insecure-peers", c.PeerListen)
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
