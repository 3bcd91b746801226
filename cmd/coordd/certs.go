// coordd certs: authorities and certificates for trying out TLS. Production has a way to issue and
// renew certificates; docs/security.md shows some.

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/internal/certs"
	"github.com/coordd/coordd/internal/files"
)

const (
	// authorityYears is how long the authorities are valid.
	authorityYears = 10
	defaultCluster = "coordd"
	// peerAuthority and the cluster's name are the common name of the authority of its nodes.
	peerAuthority = "coordd nodes of "
)

func newCerts(c console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "certs DIR",
		Short: "Creates certificates for trying out TLS",
		Args:  arguments("DIR, where the certificates go"),
	}
	flags := cmd.Flags()
	name := flags.String("cluster", "", "name of the cluster, for the URI coordd://CLUSTER/ID "+
		"(default: that of the authorities in DIR, else "+defaultCluster+")")
	nodes := flags.String("nodes", "n1,n2,n3", "ids of the nodes")
	hosts := flags.String("hosts", "localhost,127.0.0.1,::1",
		"names and addresses at which clients reach the nodes")
	clients := flags.String("clients", "app", "names of clients")
	days := flags.Int("days", 365, "how long the certificates are valid, in days")
	cmd.RunE = func(_ *cobra.Command, dirs []string) error {
		if *name != "" && (&url.URL{Scheme: "coordd", Host: *name}).String() != "coordd://"+*name {
			return fmt.Errorf("--cluster %q: must be a name such as prod", *name)
		}
		if *days < 1 || *days > 365*authorityYears {
			return fmt.Errorf("--days %d: must be from 1 to %d", *days, 365*authorityYears)
		}
		w := certWriter{dir: dirs[0], cluster: *name, out: c.stdout,
			to: time.Now().Add(time.Duration(*days) * 24 * time.Hour)}
		return w.writeAll(words(*nodes), words(*hosts), words(*clients))
	}
	return cmd
}

// words splits a list at its commas.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// certWriter writes certificates into a directory. Authorities that are there already are used
// again; other certificates are replaced.
type certWriter struct {
	dir     string
	cluster string    // empty: that of the authorities that are there
	to      time.Time // until when they are valid
	out     io.Writer
}

func (w *certWriter) writeAll(nodes, hosts, clients []string) error {
	for _, id := range nodes {
		if err := cluster.CheckID(id); err != nil {
			return fmt.Errorf("--nodes: %w", err)
		}
	}
	for _, name := range clients {
		if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
			return fmt.Errorf("--clients: %q is no name of a file", name)
		}
	}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return err
	}
	if err := w.chooseCluster(); err != nil {
		return err
	}
	ca, err := w.authority("ca", "coordd clients of "+w.cluster)
	if err != nil {
		return err
	}
	peerCA, err := w.authority("peer-ca", peerAuthority+w.cluster)
	if err != nil {
		return err
	}
	for _, id := range nodes {
		uri := &url.URL{Scheme: "coordd", Host: w.cluster, Path: "/" + id}
		// as a client it joins other nodes, and coordd doctor asks them
		if err := w.issue(ca, id, certs.Request{CommonName: id, Hosts: hosts, Server: true,
			Client: true}); err != nil {
			return err
		}
		if err := w.issue(peerCA, id+"-peer", certs.Request{CommonName: id, Server: true,
			Client: true, URIs: []*url.URL{uri}}); err != nil {
			return err
		}
	}
	for _, name := range clients {
		if err := w.issue(ca, name, certs.Request{CommonName: name, Client: true}); err != nil {
			return err
		}
	}
	fmt.Fprintf(w.out, "%s: certificates of %s and its clients, valid until %s\n", w.dir, w.cluster,
		w.to.UTC().Format(time.DateOnly))
	if len(nodes) > 0 {
		id := filepath.Join(w.dir, nodes[0])
		fmt.Fprintf(w.out, "Run a node with\n  --tls-listen HOST:PORT --tls-cert %s.crt --tls-key "+
			"%[1]s.key --tls-ca %[2]s\n  --peer-tls-cert %[1]s-peer.crt --peer-tls-key "+
			"%[1]s-peer.key --peer-tls-ca %[3]s\n", id, filepath.Join(w.dir, "ca.crt"),
			filepath.Join(w.dir, "peer-ca.crt"))
	}
	if len(clients) > 0 {
		name := filepath.Join(w.dir, clients[0])
		fmt.Fprintf(w.out, "Connect with\n  redis-cli --tls --cacert %s --cert %s.crt --key "+
			"%[2]s.key -p PORT\n", filepath.Join(w.dir, "ca.crt"), name)
	}
	return nil
}

// chooseCluster sets the name of the cluster. Certificates of another name beside those in use
// would cut the nodes off from each other.
func (w *certWriter) chooseCluster() error {
	ca, err := w.load("peer-ca")
	if errors.Is(err, fs.ErrNotExist) {
		w.cluster = cmp.Or(w.cluster, defaultCluster)
		return nil
	}
	if err != nil {
		return err
	}
	has := strings.TrimPrefix(ca.Name(), peerAuthority)
	if w.cluster != "" && w.cluster != has {
		return fmt.Errorf("--cluster %s: %s has the authorities of %s; use another directory",
			w.cluster, w.dir, has)
	}
	w.cluster = has
	return nil
}

// authority loads an authority, or creates it if missing.
func (w *certWriter) authority(file, name string) (*certs.Authority, error) {
	a, err := w.load(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	if a, err = certs.NewAuthority(name, authorityYears*365*24*time.Hour); err != nil {
		return nil, err
	}
	return a, w.write(file, a.Pair)
}

func (w *certWriter) load(file string) (*certs.Authority, error) {
	path := filepath.Join(w.dir, file)
	cert, err := files.Read(path+".crt", maxSecret)
	if err != nil {
		return nil, err
	}
	key, err := files.Read(path+".key", maxSecret)
	if errors.Is(err, fs.ErrNotExist) { // the certificate is in use
		return nil, fmt.Errorf("%s.key is missing: without it no certificate can be issued", path)
	}
	if err != nil {
		return nil, err
	}
	a, err := certs.LoadAuthority(certs.Pair{Cert: cert, Key: key})
	if err != nil {
		return nil, fmt.Errorf("%s.crt and %[1]s.key: %w", path, err)
	}
	return a, nil
}

func (w *certWriter) issue(a *certs.Authority, file string, r certs.Request) error {
	r.To = w.to
	p, err := a.Issue(r)
	if err != nil {
		return err
	}
	return w.write(file, p)
}

// write replaces the files of a pair. The certificate comes last: authority takes it for the sign
// that both are there.
func (w *certWriter) write(file string, p certs.Pair) error {
	path := filepath.Join(w.dir, file)
	if err := files.Replace(path+".key", p.Key); err != nil {
		return err
	}
	return files.Replace(path+".crt", p.Cert)
}
