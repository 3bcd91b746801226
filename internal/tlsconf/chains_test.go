// Tests of the chains of certificates that the other end shows.

package tlsconf_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	mathrand "math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/certs"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// signer is a certificate with its key.
type signer struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
}

// makeCertificate makes one of a name; by is nil for one that signs itself.
func makeCertificate(t *testing.T, by *signer, curve elliptic.Curve, name string,
	ca bool) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial,
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: ca,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if ca {
		template.KeyUsage = x509.KeyUsageCertSign
	}
	parent := &signer{template, key}
	if by != nil {
		parent = by
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.Certificate, &key.PublicKey,
		parent.key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{c, key}
}

// TestChainsAsPackageX509 shows certificates in any number and order: what package x509 accepts is
// accepted, and nothing else.
func TestChainsAsPackageX509(t *testing.T) {
	p256 := elliptic.P256()
	root, other := makeCertificate(t, nil, p256, "root", true),
		makeCertificate(t, nil, p256, "root", true) // of the same name
	first := makeCertificate(t, root, p256, "first", true)
	second := makeCertificate(t, first, p256, "second", true)
	forged := makeCertificate(t, other, p256, "first", true)
	all := []*signer{root, other, first, second, forged}
	for _, by := range []*signer{root, other, first, second, forged} {
		all = append(all, makeCertificate(t, by, p256, "leaf", false))
	}
	all = append(all, makeCertificate(t, all[5], p256, "by a leaf", false))

	a, f := newAuthority(t), in(t.TempDir())
	writePair(t, f, a, issue(t, a, certs.Request{}))
	var text bytes.Buffer
	_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})
	if err := os.WriteFile(f.CA, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := open(t, f)
	r := mathrand.New(mathrand.NewPCG(seeds.Of(t), 0))
	accepted := 0
	for range 2000 {
		var chain []*x509.Certificate
		between := x509.NewCertPool()
		for i := range 1 + r.IntN(6) {
			c := all[r.IntN(len(all))].Certificate
			if chain = append(chain, c); i > 0 {
				between.AddCert(c)
			}
		}
		use := x509.ExtKeyUsageClientAuth
		_, want := chain[0].Verify(x509.VerifyOptions{Roots: s.Current().CAs,
			Intermediates: between, KeyUsages: []x509.ExtKeyUsage{use}})
		got := s.Current().Verify(chain, use)
		if (got == nil) != (want == nil) {
			t.Fatalf("%d certificates: %v, package x509 says %v", len(chain), got, want)
		}
		if got == nil {
			accepted++
		}
	}
	if accepted < 100 {
		t.Errorf("%d chains are accepted", accepted)
	}
	leaf := all[5].Certificate
	for n, want := range map[int]bool{10: true, 11: false} {
		chain := []*x509.Certificate{leaf}
		for len(chain) < n {
			chain = append(chain, first.Certificate)
		}
		if err := s.Current().Verify(chain, x509.ExtKeyUsageClientAuth); (err == nil) != want {
			t.Errorf("%d certificates: %v", n, err)
		}
	}
}

// TestChainsOfStrangersAreCheap shows what package x509 works on for a quarter of a second: no
// signature is checked by a stranger's key, but by those of the authorities.
func TestChainsOfStrangersAreCheap(t *testing.T) {
	detector.Skip(t) // it takes the time
	a, f := newAuthority(t), in(t.TempDir())
	writePair(t, f, a, issue(t, a, certs.Request{}))
	s, _ := open(t, f)
	name := s.Current().Pair.Leaf.Issuer.CommonName
	stranger := makeCertificate(t, nil, elliptic.P521(), name, true)
	chain := []*x509.Certificate{makeCertificate(t, stranger, elliptic.P256(), "leaf",
		false).Certificate}
	for len(chain) < 10 {
		chain = append(chain, makeCertificate(t, stranger, elliptic.P521(), name,
			true).Certificate)
	}
	least := func(f func()) time.Duration {
		took := time.Hour
		for range 5 {
			began := time.Now()
			f()
			took = min(took, time.Since(began))
		}
		return took
	}
	one := least(func() { _ = chain[1].CheckSignatureFrom(stranger.Certificate) })
	var err error
	all := least(func() { err = s.Current().Verify(chain, x509.ExtKeyUsageClientAuth) })
	if err == nil || all > 5*one {
		t.Errorf("%v in %v, one signature takes %v", err, all, one)
	}
}
