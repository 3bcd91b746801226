// Procedures with the binary of an archive and commands that a person types.

package operations

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// open lets the nodes of a procedure serve other machines: "…" in the documents.
const open = "--insecure-peers --protected-mode no"

func fromAnArchive(o *operation) {
	files, err := filepath.Glob(o.dist + "/*")
	if err != nil || len(files) == 0 {
		o.Fatalf("the release: %v %q", err, files)
	}
	for _, m := range o.machines {
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err == nil {
				err = os.WriteFile(filepath.Join(m.root, "root", filepath.Base(f)), text, 0o600)
			}
			if err != nil {
				o.Fatal(err)
			}
		}
	}
	script := o.script()
	for _, m := range o.machines {
		m.must(o.T, script)
		if said := m.must(o.T, "coordd version"); !strings.Contains(said, "coordd 0.2.0") {
			o.Errorf("%s: %s", m.name, said)
		}
	}
}

func completion(o *operation) {
	o.run(o.node(1))
	o.node(1).must(o.T, `bash -n /usr/share/bash-completion/completions/coordd
		grep -q 'coordd' /usr/local/share/man/man1/coordd.1`)
}

func oneToThree(o *operation) {
	first, further := o.script("…", open), o.script("…", open)
	o.start(o.node(1), "node", first)
	o.node(1).until(o.T, "ok", "redis-cli -h 10.0.0.1 SET k v | grep -q OK && echo ok")
	o.start(o.node(2), "node", further)
	o.start(o.node(3), "node", strings.NewReplacer("n2", "n3", "10.0.0.2", "10.0.0.3").
		Replace(further))
	for _, m := range o.machines[1:3] {
		m.until(o.T, "joined the cluster", logOf("node"))
	}
	o.node(1).until(o.T, "2\n", "coordd members --node 10.0.0.1:6379 | grep -c ' follower '")
	o.load = startLoad(o.T, "10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379")
	// and what a node reads whose id was used before
	o.node(4).must(o.T, "redis-cli -h 10.0.0.1 RAFT ADD gone 10.0.0.9:7000")
	o.node(4).must(o.T, "redis-cli -h 10.0.0.1 RAFT REMOVE gone")
	o.node(4).must(o.T, "mkdir /var/lib/gone")
	said, code, err := o.node(4).try("timeout 60 coordd --id gone --listen 10.0.0.4:6379 " +
		"--peer-listen 10.0.0.4:7000 --data-dir /var/lib/gone --join 10.0.0.1:6379 " + open)
	if err != nil || code != 1 {
		o.Fatalf("exit %d, %v: %s", code, err, said)
	}
	left := o.left[0]
	left.lines[0] = o.edit(left.lines[0], []string{"n2", "gone"})
	o.says(said)
}

func remove(o *operation) {
	// the third voter away, so that without n2 there is no majority
	command := o.left[0]
	o.node(3).must(o.T, "pkill -STOP -x coordd")
	refused := o.node(1).until(o.T, "(error) ERR without",
		"redis-cli --no-raw -h 10.0.0.1 RAFT REMOVE n2 2>&1")
	o.node(3).must(o.T, "pkill -CONT -x coordd")
	o.node(1).until(o.T, "ok", "coordd restart-wait --node 10.0.0.1:6379 --timeout 1m && echo ok")
	o.left = o.left[1:]
	o.says(refused)
	o.skip("it needs a full disk")
	o.left = append(o.left, command)
	o.run(o.node(1), "-p 6379", "-h 10.0.0.1")
	o.node(2).until(o.T, "was removed from the cluster", "redis-cli -h 10.0.0.2 GET k 2>&1")
	o.node(2).must(o.T, "systemctl stop node")
}

func replace(o *operation) {
	// n1 and n3 are left; n3 loses its disk, and n4 takes its place
	o.load.stop(o.T, "10.0.0.1:6379")
	steps := o.left[0].steps()
	o.left[0].lines = []string{"$ " + steps[0].command, "OK"}
	join := strings.TrimPrefix(steps[0].output[1], "    ")
	o.node(4).must(o.T, "mkdir -p /var/lib/coordd && rm -rf /var/lib/gone")
	o.start(o.node(4), "spare", "coordd --id n5 --listen 10.0.0.4:6380 "+
		"--peer-listen 10.0.0.4:7001 --data-dir /var/lib/spare --join 10.0.0.1:6379 "+open)
	o.node(4).until(o.T, "joined the cluster", logOf("spare"))
	o.node(1).until(o.T, "ok", "coordd restart-wait --node 10.0.0.1:6379 --timeout 1m && echo ok")
	o.node(3).must(o.T, "systemctl stop node && rm -r /var/lib/coordd")
	o.run(o.node(1), "-p 6379", "-h 10.0.0.1")
	o.start(o.node(4), "node", o.edit(join, []string{"…",
		"--listen 10.0.0.4:6379 --peer-listen 10.0.0.4:7000 " + open, ",10.0.0.2:6379", ""}))
	o.node(4).until(o.T, "joined the cluster", logOf("node"))
	o.node(1).until(o.T, "v\n", "redis-cli -h 10.0.0.4 GET k")
	o.skip("TestNodeThatLostItsDisk: a founder that lost its disk")
	o.everywhere(`for unit in node spare; do systemctl stop $unit 2>/dev/null || :; done
		rm -rf /var/lib/coordd /var/lib/spare`, o.machines...)
}

func discovery(o *operation) {
	pods := o.machines[:3]
	node := o.script(" …", " --listen 0.0.0.0:6379 --insecure-peers --default-password-file "+
		"/etc/coordd/password --data-dir /var/lib/coordd")
	o.everywhere("mkdir /etc/coordd; echo secret-of-the-default-user >/etc/coordd/password",
		pods...)
	for _, m := range pods {
		o.start(m, "node", "POD_NAME="+m.name+"\n"+node)
	}
	o.run(o.node(1))
	o.node(3).until(o.T, "OK\n",
		"redis-cli -a $(cat /etc/coordd/password) --no-auth-warning -h 10.0.0.2 SET k v")
	o.everywhere("systemctl stop node; rm -rf /var/lib/coordd /etc/coordd", pods...)
}

func ownUnit(o *operation) {
	m := o.node(4)
	m.write(o.T, "/etc/systemd/system/own.service", o.script("…", "--data-dir /var/lib/own"))
	m.must(o.T, "systemctl daemon-reload; systemctl start own")
	for range 3 { // more often than systemd allows by default in ten seconds
		m.until(o.T, "PONG\n", "redis-cli PING")
		m.must(o.T, "pkill -KILL -x coordd")
	}
	m.until(o.T, "PONG\n", "redis-cli PING")
	m.must(o.T, "systemctl stop own; rm -r /etc/systemd/system/own.service /var/lib/own")
}

func certificates(o *operation) {
	script := o.script()
	certs, rest, _ := strings.Cut(script, "\ncoordd --id")
	node, client, _ := strings.Cut("coordd --id"+rest, "\nredis-cli")
	o.node(1).must(o.T, certs)
	o.everywhere("[ -d certs ] || ssh n1 tar c certs | tar x", o.machines[1:3]...)
	for n := 1; n <= 3; n++ {
		here := strings.NewReplacer("--id n1", fmt.Sprint("--id n", n), "10.0.0.1:6379",
			fmt.Sprintf("10.0.0.%d:6379", n), "certs/n1", fmt.Sprint("certs/n", n)).Replace(node)
		o.start(o.node(n), "node", here+" --http-listen 127.0.0.1:8001")
	}
	o.node(1).until(o.T, "PONG\n", "redis-cli"+client+" PING")
	o.node(1).must(o.T, "redis-cli"+client+" SET k v | grep OK")
}

func expiry(o *operation) {
	shown := o.left[0].lines
	said := o.node(1).must(o.T, "redis-cli --tls --cacert certs/ca.crt --cert certs/app.crt "+
		"--key certs/app.key -h 10.0.0.1 INFO coordd | tr -d '\\r' | grep ^certificate")
	for _, l := range shown {
		kind := strings.Split(strings.SplitN(l, "name=", 2)[1], ",")[0]
		if !strings.Contains(said, "name="+kind+",expires=") {
			o.Errorf("%s: there is no %s:\n%s", o.place(), kind, said)
		}
	}
	o.next()
	o.everywhere("systemctl stop node; rm -rf /var/lib/coordd coordd-data certs", o.machines[:3]...)
	o.everywhere("rm /usr/local/bin/coordd", o.machines[:3]...)
}
