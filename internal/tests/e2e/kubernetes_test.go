// The manifests of Kubernetes: processes with the configuration and the variables of its pods, on
// addresses of the loopback.

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/coordd/coordd/internal/tests/names"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// manifest is what the test reads of a document in deploy/kubernetes/coordd.yaml, which is what the
// chart renders with its defaults (deploy/check-containers).
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Replicas                 int
		PodManagementPolicy      string `yaml:"podManagementPolicy"`
		ServiceName              string `yaml:"serviceName"`
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		Template                 struct {
			Spec struct {
				Containers []struct {
					Env  []struct{ Name, Value string }
					Args []string
				}
			}
		}
	}
}

func readManifests(t *testing.T) (all []manifest) {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/kubernetes/coordd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var m manifest
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
}

// named returns the manifest of that kind and name.
func named(t *testing.T, all []manifest, kind, name string) *manifest {
	t.Helper()
	i := slices.IndexFunc(all, func(m manifest) bool {
		return m.Kind == kind && m.Metadata.Name == name
	})
	if i < 0 {
		t.Fatalf("no %s %s", kind, name)
	}
	return &all[i]
}

// kubePods are the processes of the StatefulSet.
type kubePods struct {
	ps      []*process
	volumes []string
	found   []string // the arguments of the Job that founds the cluster
}

const kubeService = "coordd-peers.default.svc.cluster.local"

// replace is strings.Replacer with an error for what is not there.
func replace(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("%q is not in %s", pairs[i], text)
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// prepareKubePods writes the files of the pods. Only addresses, directories and the time after
// which dead members are removed differ from the manifests.
func prepareKubePods(t *testing.T) *kubePods {
	t.Helper()
	all := readManifests(t)
	set := named(t, all, "StatefulSet", "coordd").Spec
	// the first pod waits for the others, and must be found before it is ready
	if set.PodManagementPolicy != "Parallel" ||
		!named(t, all, "Service", set.ServiceName).Spec.PublishNotReadyAddresses {
		t.Error("the pods cannot found a cluster")
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	certs := t.TempDir()
	succeed(t, "certs", certs, "--cluster", "coordd", "--nodes", host)
	ports := freePorts(t, 2*set.Replicas+1)
	peer := ports[2*set.Replicas]
	dns, ips := names.Start(t), []string{}
	k, etc := &kubePods{}, ""
	for i := range set.Replicas {
		etc = t.TempDir()
		volume, ip := t.TempDir(), freeAddress(t, peer)
		p := &process{t: t, id: fmt.Sprintf("coordd-%d", i), addr: loopback(ports[2*i]),
			http: loopback(ports[2*i+1]), login: "secret"}
		conf := replace(t, named(t, all, "ConfigMap", "coordd").Data["coordd.conf"],
			"0.0.0.0:6379", p.addr, "0.0.0.0:8080", p.http, "0.0.0.0:7000",
			fmt.Sprintf("%s:%d", ip, peer), kubeService+":7000",
			fmt.Sprintf("%s:%d", kubeService, peer), "/etc/coordd", etc, "/var/lib/coordd",
			volume, "autoremove-after 10m", "autoremove-after 2s")
		for name, text := range map[string]string{"coordd.conf": conf, "auth/password": p.login,
			"peer/tls.crt": readText(t, filepath.Join(certs, host+"-peer.crt")),
			"peer/tls.key": readText(t, filepath.Join(certs, host+"-peer.key")),
			"peer/ca.crt":  readText(t, filepath.Join(certs, "peer-ca.crt"))} {
			file := filepath.Join(etc, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700),
				os.WriteFile(file, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		p.env = []string{"COORDD_DISCOVER_DNS=" + dns.Addr}
		for _, v := range set.Template.Spec.Containers[0].Env {
			value := strings.ReplaceAll(v.Value, "$(POD_NAME)", p.id)
			value = strings.ReplaceAll(value, fmt.Sprintf("%s.%s:7000", p.id, kubeService),
				fmt.Sprintf("%s:%d", ip, peer))
			p.env = append(p.env, v.Name+"="+strings.ReplaceAll(value, "/etc/coordd", etc))
		}
		k.ps, k.volumes, ips = append(k.ps, p), append(k.volumes, volume), append(ips, ip)
	}
	args := strings.Join(named(t, all, "Job", "coordd-found").Spec.Template.Spec.Containers[0].Args,
		" ")
	for _, p := range k.ps {
		args = replace(t, args, p.id+"."+kubeService+":6379", p.addr)
	}
	k.found = strings.Fields(replace(t, args, "/etc/coordd", etc))
	dns.Set(kubeService, ips...)
	t.Cleanup(func() {
		for _, p := range k.ps {
			p.kill()
			if t.Failed() {
				t.Logf("log of %s:\n%s", p.id, p.log)
			}
		}
	})
	return k
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// id returns the id of a pod's node.
func (k *kubePods) id(t *testing.T, i int) string {
	t.Helper()
	return nodeOf(t, filepath.Join(k.volumes[i], "data"))
}

// settle waits until the pods, and no others, are the voters, and returns their ids.
func (k *kubePods) settle(t *testing.T) (ids []string) {
	t.Helper()
	for i, p := range k.ps {
		p.waitReady()
		ids = append(ids, k.id(t, i))
	}
	k.ps[0].waitVoters(ids...)
	return ids
}

// waits waits until a pod logs why it is not ready: its probes must not kill it meanwhile.
func (p *process) waits(why string) {
	p.t.Helper()
	wait.For(p.t, 20*time.Second, p.id+" waits", func() bool {
		return strings.Contains(p.log.String(), why)
	})
	if live, ready := httpStatus(p.http, "/healthz"), httpStatus(p.http, "/readyz"); live != 200 ||
		ready == 200 {
		p.t.Errorf("%s waits, and is live with status %d, ready with %d", p.id, live, ready)
	}
}

// TestKubernetesPods founds a cluster of the pods of deploy/kubernetes with its Job, restarts all
// at once, and has one lose its volume.
func TestKubernetesPods(t *testing.T) {
	tier.Check(t)
	k := prepareKubePods(t)
	k.ps[0].start()
	k.ps[0].waits("these addresses do not answer")
	for _, p := range k.ps[1:] {
		p.start()
	}
	for _, p := range k.ps {
		p.waits("coordd found on one of them founds a cluster")
	}
	founded := succeed(t, k.found...)
	before := k.settle(t)
	if again := succeed(t, k.found...); again != founded || len(founded) != 21 {
		t.Errorf("the Job says %q, and when it runs again %q", founded, again)
	}
	if err := k.ps[0].client().Set(t.Context(), "kept", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, p := range k.ps {
		p.kill()
	}
	for _, p := range k.ps {
		p.start()
	}
	if got := k.settle(t); !slices.Equal(got, before) {
		t.Errorf("after a restart of all pods their ids are %v, they were %v", got, before)
	}

	lost := k.ps[1]
	lost.kill()
	if err := os.RemoveAll(filepath.Join(k.volumes[1], "data")); err != nil {
		t.Fatal(err)
	}
	lost.start()
	lost.waits("had the peer address")
	after := k.settle(t)
	if after[0] != before[0] || after[1] == before[1] || after[2] != before[2] {
		t.Errorf("the ids are %v, they were %v", after, before)
	}
	if got, err := lost.client().Get(t.Context(), "kept").Result(); got != "1" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
