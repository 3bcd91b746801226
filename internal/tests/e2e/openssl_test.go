// The recipe for openssl in docs/security.md, carried out: a cluster runs with its certificates.

package e2e

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// opensslRecipe returns the commands of docs/security.md that make an authority, and those that
// make the certificate of a node by it.
func opensslRecipe(t *testing.T) (authority, node string) {
	t.Helper()
	block := recipe(t, "With openssl, a node's certificate for other nodes:")
	const second = "openssl ecparam -name prime256v1 -genkey -noout -out n1-peer.key\n"
	authority, node, found := strings.Cut(block, second)
	if !found {
		t.Fatalf("docs/security.md has another recipe:\n%s", block)
	}
	return authority, second + node
}

func TestOpenSSLRecipe(t *testing.T) {
	if missing("openssl") {
		t.Skip("SKIPPED: openssl not found")
	}
	dir := t.TempDir()
	authority, node := opensslRecipe(t)
	run := func(commands string, changes ...string) {
		t.Helper()
		cmd := exec.Command("sh", "-e", "-c", strings.NewReplacer(changes...).Replace(commands))
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	run(authority)
	run(authority, "peer-ca", "ca")
	for _, id := range []string{"n1", "n2", "n3"} {
		run(node, "n1", id)
		run(node, "n1-peer", id, "peer-ca", "ca", "CN=n1", "CN="+id, "URI:coordd://prod/n1",
			"DNS:localhost,IP:127.0.0.1")
	}
	run(node, "n1-peer", "app", "peer-ca", "ca", "CN=n1", "CN=app",
		"'subjectAltName=URI:coordd://prod/n1' ", "", "serverAuth,clientAuth", "clientAuth")
	for _, p := range startProcessesWith(t, 3, func(p *process) {
		p.args = append(p.args, clientFlags(dir, p.id, p.addr)...)
		p.args = append(p.args, peerFlags(dir, p.id, "required")...)
		p.setFlag("--listen", "")
	}) {
		c := redis.NewClient(&redis.Options{Addr: p.addr, TLSConfig: clientTLS(t, dir),
			MaxRetries: -1, ReadTimeout: 10 * time.Second})
		if ok, err := c.SetNX(context.Background(), "lock:"+p.id, 1, 0).Result(); !ok {
			t.Errorf("%s: %v %v", p.id, ok, err)
		}
		_ = c.Close()
	}
}
