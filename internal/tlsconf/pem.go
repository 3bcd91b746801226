package tlsconf

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

var (
	errNoCertificate = errors.New("no certificate in PEM")
	errDamagedPEM    = errors.New("the file is damaged or cut off")
)

// blocks returns the PEM blocks of a text, of which it fails to understand nothing: package pem
// passes over what is damaged, and ends before what is cut off. Lines that begin with a hyphen are
// parts of blocks, others between blocks are comments.
func blocks(text []byte) (all []*pem.Block, err error) {
	for rest := text; ; {
		block, after := pem.Decode(rest)
		between := rest
		if block != nil {
			read := rest[:len(rest)-len(after)]
			between = read[:bytes.LastIndex(read, []byte("-----BEGIN "))]
		}
		if bytes.HasPrefix(between, []byte("-")) || bytes.Contains(between, []byte("\n-")) {
			line := 1 + bytes.Count(text[:len(text)-len(rest)], []byte("\n"))
			return nil, fmt.Errorf("%w behind line %d", errDamagedPEM, line)
		}
		if block == nil {
			return all, nil
		}
		all, rest = append(all, block), after
	}
}

// authoritiesOf returns the certificates of a text, all of them or an error.
func authoritiesOf(text []byte) (all []*x509.Certificate, err error) {
	found, err := blocks(text)
	if err != nil {
		return nil, err
	}
	for i, block := range found {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("block %d: %w", i+1, err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, errNoCertificate
	}
	return all, nil
}

// pairOf is tls.X509KeyPair, which would use the beginning of a damaged chain.
func pairOf(cert, key []byte) (tls.Certificate, error) {
	if _, err := blocks(cert); err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}
