// The recipes for cert-manager and Vault in docs/security.md, as far as they go without Kubernetes
// and Vault: what they ask for is issued here, in the forms that those give it, and clusters run
// with it.

package e2e

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/coordd/coordd/internal/tests/tier"
)

// recipe returns the indented block of docs/security.md that follows a text.
func recipe(t *testing.T, after string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), after+"\n\n    ")
	if !found {
		t.Fatalf("docs/security.md has no block after %q", after)
	}
	block, _, _ := strings.Cut(rest, "\n\n")
	return strings.ReplaceAll(block, "\n    ", "\n") + "\n"
}

// issuer is an authority below a root, as those of cert-manager and Vault often are.
type issuer struct {
	t         *testing.T
	cert      *x509.Certificate
	key       crypto.Signer
	pem, root []byte // its certificate, and the root's
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key := newKey(t, "ECDSA")
	top := &issuer{t: t, key: key, cert: authorityTemplate("root")}
	top.pem = top.sign(top.cert, key)
	i := &issuer{t: t, key: newKey(t, "ECDSA"), cert: authorityTemplate("issuer"), root: top.pem}
	i.pem = top.sign(i.cert, i.key)
	block, _ := pem.Decode(i.pem)
	var err error
	if i.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		t.Fatal(err)
	}
	return i
}

func authorityTemplate(name string) *x509.Certificate {
	return &x509.Certificate{IsCA: true, BasicConstraintsValid: true, NotBefore: time.Now().Add(
		-time.Hour), NotAfter: time.Now().Add(10000 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
		Subject: pkix.Name{CommonName: name}}
}

// sign returns a certificate in PEM.
func (i *issuer) sign(template *x509.Certificate, key crypto.Signer) []byte {
	i.t.Helper()
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		i.t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, i.cert, key.Public(), i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func newKey(t *testing.T, algorithm string) (key crypto.Signer) {
	t.Helper()
	var err error
	switch strings.ToUpper(algorithm) {
	case "ECDSA", "EC":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "RSA":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	default:
		err = errors.New(algorithm)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// keyPEM writes a key as PKCS#8, or in the older form of its algorithm.
func keyPEM(t *testing.T, key crypto.Signer, pkcs8 bool) []byte {
	t.Helper()
	kind, der, err := "PRIVATE KEY", []byte(nil), error(nil)
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		if !pkcs8 {
			kind = "EC PRIVATE KEY"
			der, err = x509.MarshalECPrivateKey(k)
		}
	case *rsa.PrivateKey:
		if !pkcs8 {
			kind, der = "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(k)
		}
	}
	if pkcs8 {
		der, err = x509.MarshalPKCS8PrivateKey(key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// certManagerCertificate is the part of cert-manager's resource that the recipe uses.
type certManagerCertificate struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		SecretName  string `yaml:"secretName"`
		Duration    time.Duration
		RenewBefore time.Duration `yaml:"renewBefore"`
		PrivateKey  struct {
			Algorithm      string
			Size           int
			RotationPolicy string `yaml:"rotationPolicy"`
		} `yaml:"privateKey"`
		Usages    []string
		URIs      []string
		IssuerRef struct{ Name, Kind string } `yaml:"issuerRef"`
	}
}

// certManagerUsages are the usages of cert-manager that the recipe may ask for.
var certManagerUsages = map[string]func(*x509.Certificate){
	"digital signature": func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageDigitalSignature },
	"server auth": func(c *x509.Certificate) {
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	},
	"client auth": func(c *x509.Certificate) {
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	},
}

// certManagerRecipe reads the resource in docs/security.md, with no field that cert-manager does
// not know.
func certManagerRecipe(t *testing.T) (r certManagerCertificate) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(recipe(t, "so that renewals arrive:")))
	d.KnownFields(true)
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	key, s := r.Spec.PrivateKey, r.Spec
	if r.APIVersion != "cert-manager.io/v1" || r.Kind != "Certificate" || r.Metadata.Name == "" ||
		s.SecretName == "" || s.Duration < time.Hour || s.RenewBefore < 5*time.Minute ||
		s.RenewBefore >= s.Duration || key.Algorithm != "ECDSA" || key.Size != 256 ||
		key.RotationPolicy != "Always" || s.IssuerRef.Name == "" || s.IssuerRef.Kind != "Issuer" {
		t.Errorf("cert-manager would not take %+v", r)
	}
	if want := []string{"coordd://prod/coordd-0", "coordd://prod/coordd-1",
		"coordd://prod/coordd-2"}; !slices.Equal(s.URIs, want) {
		t.Errorf("the certificate names %v, want %v", s.URIs, want)
	}
	return r
}

// issue returns the secret that cert-manager makes of the resource: without a subject, with the
// chain but not the root in tls.crt.
func (r *certManagerCertificate) issue(i *issuer, algorithm string, pkcs8 bool) map[string][]byte {
	i.t.Helper()
	key := newKey(i.t, algorithm)
	c := &x509.Certificate{NotBefore: time.Now(), NotAfter: time.Now().Add(r.Spec.Duration),
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}} // for clients
	for _, usage := range r.Spec.Usages {
		add, known := certManagerUsages[usage]
		if !known {
			i.t.Fatalf("usage %q", usage)
		}
		add(c)
	}
	for _, text := range r.Spec.URIs {
		u, err := url.Parse(text)
		if err != nil {
			i.t.Fatal(err)
		}
		c.URIs = append(c.URIs, u)
	}
	return map[string][]byte{"tls.crt": slices.Concat(i.sign(c, key), i.pem), "ca.crt": i.root,
		"tls.key": keyPEM(i.t, key, pkcs8)}
}

// mount writes a secret into a directory as the kubelet does: the files are links through ..data,
// which is replaced at once, and what it led to is removed.
func mount(t *testing.T, dir string, secret map[string][]byte) {
	t.Helper()
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	fresh, err := os.MkdirTemp(dir, "..2026_11_22_")
	if err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(dir, "..data_tmp")
	for name, text := range secret {
		err = errors.Join(err, os.WriteFile(filepath.Join(fresh, name), text, 0o400))
	}
	err = errors.Join(err, os.Symlink(filepath.Base(fresh), next), os.Rename(next,
		filepath.Join(dir, "..data")))
	if old != "" {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, old)))
	} else {
		for name := range secret {
			err = errors.Join(err, os.Symlink(filepath.Join("..data", name), filepath.Join(dir,
				name)))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestCertManagerRecipe runs a cluster on mounted secrets, with keys in each form, and renews them.
func TestCertManagerRecipe(t *testing.T) {
	tier.Check(t)
	r, i := certManagerRecipe(t), newIssuer(t)
	root := filepath.Join(t.TempDir(), "root.crt")
	replaceFile(t, root, i.root)
	dirs := map[*process]string{}
	forms := []struct {
		algorithm string
		pkcs8     bool
	}{{"ECDSA", false}, {"ECDSA", true}, {"RSA", false}}
	ps := startProcessesWith(t, 3, func(p *process) {
		pod := len(dirs)
		dirs[p] = t.TempDir()
		mount(t, dirs[p], r.issue(i, forms[pod].algorithm, forms[pod].pkcs8))
		p.id = fmt.Sprintf("coordd-%d", pod)
		p.setFlag("--id", p.id)
		p.setFlag("--cluster", strings.NewReplacer("n1=", "coordd-0=", "n2=", "coordd-1=", "n3=",
			"coordd-2=").Replace(p.flag("--cluster")))
		in := func(name string) string { return filepath.Join(dirs[p], name) }
		p.args = append(p.args, "--peer-tls-cert", in("tls.crt"), "--peer-tls-key", in("tls.key"),
			"--peer-tls-ca", in("ca.crt"), "--tls-listen", loopback(freePorts(t, 1)[0]),
			"--tls-cert", in("tls.crt"), "--tls-key", in("tls.key"))
	})
	serves := func() {
		t.Helper()
		for _, p := range ps {
			if v, err := p.steady("SET", p.id, "v"); v != "OK" {
				t.Errorf("%s: %v %v", p.id, v, err)
			}
			_, port, _ := net.SplitHostPort(p.flag("--tls-listen")) // OpenSSL wants the chain too
			out, err := exec.Command("redis-cli", "--tls", "--cacert", root, "-h", "127.0.0.1",
				"-p", port, "GET", p.id).CombinedOutput()
			if err != nil || string(out) != "v\n" {
				t.Errorf("%s: redis-cli: %q %v", p.id, out, err)
			}
		}
	}
	serves()
	for n, p := range ps {
		p.reloads(func() {
			form := forms[(n+1)%3]
			mount(t, dirs[p], r.issue(i, form.algorithm, form.pkcs8))
		})
	}
	serves()
	ps[0].restart(false) // connects with the new certificates
	serves()
	for _, p := range ps {
		if wrong := lines(p.log.String(), "not usable"); wrong != "" {
			t.Errorf("%s met half a renewal:\n%s", p.id, wrong)
		}
	}
}

// The parameters of Vault's PKI engine that the recipe may use.
var (
	vaultRole = []string{"allow_any_name", "allowed_uri_sans", "server_flag", "client_flag",
		"key_type", "key_bits", "max_ttl"}
	vaultRequest = []string{"common_name", "uri_sans", "ttl"}
)

// vaultCalls returns the parameters of the calls of vault write in a script, by path.
func vaultCalls(t *testing.T, script string) map[string]map[string]string {
	t.Helper()
	calls := map[string]map[string]string{}
	for line := range strings.SplitSeq(strings.ReplaceAll(script, "\\\n", ""), "\n") {
		line, _, _ = strings.Cut(line, " >")
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "vault" || words[1] != "write" {
			continue
		}
		words = slices.DeleteFunc(words[2:], func(w string) bool { return w == "-format=json" })
		known, params := vaultRole, map[string]string{}
		if strings.Contains(words[0], "/issue/") {
			known = vaultRequest
		}
		for _, w := range words[1:] {
			name, value, ok := strings.Cut(w, "=")
			if !ok || !slices.Contains(known, name) {
				t.Errorf("%s: parameter %q", words[0], w)
			}
			params[name] = strings.Trim(value, "'")
		}
		calls[words[0]] = params
	}
	return calls
}

// vaultAnswer issues what a script asks of Vault, as its role allows. chain is what Vault knows of
// the authorities.
func vaultAnswer(t *testing.T, script string, i *issuer, chain ...string) []byte {
	t.Helper()
	calls := vaultCalls(t, script)
	role, q := calls["pki_peers/roles/coordd"], calls["pki_peers/issue/coordd"]
	valid, err := time.ParseDuration(q["ttl"])
	most, mostErr := time.ParseDuration(role["max_ttl"])
	allowed, matchErr := path.Match(role["allowed_uri_sans"], q["uri_sans"])
	uri, uriErr := url.Parse(q["uri_sans"])
	if err := errors.Join(err, mostErr, matchErr, uriErr); err != nil || !allowed || valid > most ||
		role["allow_any_name"] != "true" || q["common_name"] == "" || role["key_bits"] != "256" {
		t.Fatalf("Vault would not take %v for the role %v: %v", q, role, err)
	}
	c := &x509.Certificate{Subject: pkix.Name{CommonName: q["common_name"]}, URIs: []*url.URL{uri},
		DNSNames: []string{q["common_name"]}, NotBefore: time.Now().Add(-30 * time.Second),
		NotAfter: time.Now().Add(valid), KeyUsage: x509.KeyUsageDigitalSignature |
			x509.KeyUsageKeyEncipherment | x509.KeyUsageKeyAgreement}
	if role["server_flag"] == "true" {
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if role["client_flag"] == "true" {
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	key := newKey(t, role["key_type"])
	bare := func(text []byte) string { return string(bytes.TrimSpace(text)) }
	data := map[string]any{"certificate": bare(i.sign(c, key)), "issuing_ca": bare(i.pem),
		"private_key": bare(keyPEM(t, key, false)), "private_key_type": role["key_type"]}
	if len(chain) > 0 {
		data["ca_chain"] = chain
	}
	answer, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// vaultStub stands for the program vault: it answers a request for a certificate.
const vaultStub = "#!/bin/sh\ncase \"$*\" in *'-format=json'*) cat answer.json ;; esac\n"

// TestVaultRecipe carries out the recipe with a stand-in for Vault, and runs a cluster with the
// files that it writes, and writes again.
func TestVaultRecipe(t *testing.T) {
	tier.Check(t)
	for _, need := range []string{"jq", "sh"} {
		if missing(need) {
			t.Skipf("SKIPPED: %s not found", need)
		}
	}
	script, i := recipe(t, "With Vault's PKI engine:"), newIssuer(t)
	dir, bin := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "vault"), []byte(vaultStub), 0o700); err != nil {
		t.Fatal(err)
	}
	ca, root := strings.TrimSpace(string(i.pem)), strings.TrimSpace(string(i.root))
	chains := map[string][]string{"n1": {ca, root}, "n2": {ca}, "n3": nil}
	run := func(id string) {
		t.Helper()
		// as for another node: common_name=n1, prod/n1, n1.json and n1-peer
		own := strings.NewReplacer("=n1", "="+id, "/n1", "/"+id, "n1.", id+".", "n1-",
			id+"-").Replace(script)
		replaceFile(t, filepath.Join(dir, "answer.json"), vaultAnswer(t, own, i, chains[id]...))
		cmd := exec.Command("sh", "-e", "-c", own)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for id := range chains {
		run(id)
	}
	ps := startProcessesWith(t, 3, func(p *process) {
		p.args = append(p.args, peerFlags(dir, p.id, "required")...)
	})
	for _, p := range ps {
		p.reloads(func() { run(p.id) })
	}
	ps[0].restart(false)
	for _, p := range ps {
		if v, err := p.steady("SET", p.id, "v"); v != "OK" {
			t.Errorf("%s: %v %v", p.id, v, err)
		}
	}
}
