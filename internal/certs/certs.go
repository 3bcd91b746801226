package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"time"
)

// Pair is a certificate and its private key, in PEM.
type Pair struct{ Cert, Key []byte }

// Authority is a certificate authority.
type Authority struct {
	Pair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Request is what a certificate is to say.
type Request struct {
	CommonName string
	Hosts      []string // DNS names and IP addresses
	URIs       []*url.URL
	Server     bool // it may serve
	Client     bool // it may authenticate a client
	From, To   time.Time
}

// clockSkew is how long before now a certificate becomes valid: the clocks of machines differ.
const clockSkew = 5 * time.Minute

// NewAuthority creates an authority that is valid for a time from now on.
func NewAuthority(name string, valid time.Duration) (*Authority, error) {
	now := time.Now()
	template, err := newTemplate(Request{CommonName: name, From: now.Add(-clockSkew),
		To: now.Add(valid)})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	a := &Authority{}
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	a.cert = template
	if a.Pair, err = a.sign(template, a.key); err != nil {
		return nil, err
	}
	return LoadAuthority(a.Pair)
}

// Name returns the name that the authority was created with.
func (a *Authority) Name() string { return a.cert.Subject.CommonName }

// LoadAuthority reads an authority that NewAuthority created.
func LoadAuthority(p Pair) (*Authority, error) {
	cert, err := decode(p.Cert, "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	key, err := decode(p.Key, "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	a := &Authority{Pair: p}
	if a.cert, err = x509.ParseCertificate(cert); err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var ok bool
	if a.key, ok = parsed.(*ecdsa.PrivateKey); !ok || !a.key.PublicKey.Equal(a.cert.PublicKey) {
		return nil, errors.New("the key is not the certificate's")
	}
	return a, nil
}

// Issue issues a certificate. Zero times mean: valid from now on, as long as the authority.
func (a *Authority) Issue(r Request) (Pair, error) {
	if r.From.IsZero() {
		r.From = time.Now().Add(-clockSkew)
	}
	if r.To.IsZero() {
		r.To = a.cert.NotAfter
	}
	template, err := newTemplate(r)
	if err != nil {
		return Pair{}, err
	}
	template.KeyUsage, template.BasicConstraintsValid = x509.KeyUsageDigitalSignature, true
	if r.Server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if r.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	return a.sign(template, key)
}

func newTemplate(r Request) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: r.CommonName},
		NotBefore: r.From, NotAfter: r.To, URIs: r.URIs}
	for _, host := range r.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, host)
		}
	}
	return c, nil
}

func (a *Authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) (Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return Pair{}, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	}, nil
}

func decode(text []byte, kind string) ([]byte, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("not a %s in PEM", kind)
	}
	return block.Bytes, nil
}
