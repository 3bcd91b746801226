// Procedures on a cluster of the deb, under systemd.

package operations

import (
	"fmt"
	"strings"

	"github.com/coordd/coordd/internal/tests/s3"
)

const addresses = "10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379"

func debianPackage(o *operation) {
	script := o.script("coordd_0.2.0_amd64.deb         #", "coordd_0.2.0_amd64.deb #")
	for n, m := range o.machines[:3] {
		m.write(o.T, "/root/typed", fmt.Sprintf(`id n%d
cluster n1=10.0.0.1:7000,n2=10.0.0.2:7000,n3=10.0.0.3:7000
listen 0.0.0.0:6379
advertise 10.0.0.%[1]d:6379
http-listen 127.0.0.1:8001
data-dir /var/lib/coordd
insecure-peers yes
protected-mode no
zone eu-1a
log-format text
`, n+1))
		m.write(o.T, "/usr/local/bin/editor", "#!/bin/sh\ncat /root/typed >\"$1\"\n")
		m.must(o.T, "chmod 755 /usr/local/bin/editor")
	}
	o.everywhere(script, o.machines[:3]...)
	o.settled()
	// as the watchdog ends a node: as a program that panics does, it exits with 2
	o.node(3).must(o.T, "systemctl kill --signal=ABRT --kill-whom=main coordd")
	o.node(3).until(o.T, "status=2", logOf("coordd")+" | grep 'Main process'")
	o.settled()
	o.load = startLoad(o.T, strings.Split(addresses, ",")...)
}

// settled waits until all three nodes serve and have caught up.
func (o *operation) settled() {
	o.Helper()
	for _, m := range o.machines[:3] {
		m.until(o.T, "serves", "coordd restart-wait --timeout 2m")
	}
}

// leads makes a node the leader.
func (o *operation) leads(n int) {
	o.Helper()
	o.settled()
	o.node(n).until(o.T, "role:master", fmt.Sprintf("redis-cli INFO replication | grep role:master"+
		" || { redis-cli RAFT TRANSFER n%d; false; }", n))
	o.settled()
}

func transfer(o *operation) {
	o.leads(1)
	o.run(o.node(1), "-p 6380", "-p 6379")
	o.node(2).until(o.T, "role:master", "redis-cli INFO replication | tr -d '\\r'")
}

func whatClientsSee(o *operation) {
	o.leads(2)
	o.run(o.node(2), "-p 6380", "-p 6379", "127.0.0.1:6380", "10.0.0.2:6379")
}

func quorum(o *operation) {
	o.leads(3)
	b := o.left[0]
	steps := b.steps()
	info := b
	info.lines = append([]string{"$ " + steps[0].command}, steps[0].output...)
	role := b
	role.lines = append([]string{"$ " + steps[1].command}, steps[1].output...)
	o.left = append([]block{info, role}, o.left[1:]...)
	o.run(o.node(3), "-p 6381", "-p 6379")
	o.run(o.node(1))
	o.node(1).must(o.T, "systemctl stop coordd")
	o.run(o.node(2), "-p 6380", "-p 6379")
	o.node(1).must(o.T, "systemctl start coordd")
}

func unlogged(o *operation) {
	o.leads(3)
	o.run(o.node(3), "-p 6381", "-p 6379")
}

func members(o *operation) {
	o.leads(1)
	o.run(o.node(2), "-p 6380", "-p 6379")
	o.node(3).must(o.T, "systemctl stop coordd")
	o.node(1).until(o.T, "refused", "coordd members --node 10.0.0.1:6379 2>&1")
	o.run(o.node(1))
	o.node(3).must(o.T, "systemctl start coordd")
}

func doctor(o *operation) {
	o.leads(2)
	o.everywhere("systemctl stop coordd", o.machines[1:3]...)
	o.node(1).until(o.T, "start 1 of", "coordd doctor --config /etc/coordd/coordd.conf 2>&1 || :")
	o.run(o.node(1))
	o.everywhere("systemctl start coordd", o.machines[1:3]...)
}

func restart(o *operation) {
	o.settled()
	o.run(o.node(1))
	o.run(o.node(1))
	o.settled()
}

func configuration(o *operation) {
	m := o.node(1)
	file := o.script()
	m.must(o.T, "cp -p /etc/coordd/coordd.conf kept.conf")
	m.write(o.T, "/etc/coordd/coordd.conf", strings.Replace(file, "20000", "many", 1))
	o.run(m)
	m.must(o.T, "cp -p kept.conf /etc/coordd/coordd.conf")
	// the running node's file
	m.must(o.T, "echo max-clients 12000 >>/etc/coordd/coordd.conf; systemctl reload coordd")
	m.until(o.T, "12000", "redis-cli CONFIG GET maxclients")
	m.must(o.T, `sed -i 's/^max-clients 12000/max-clients 13000/; s/^listen 0.0.0.0:6379/listen 0.0.0.0:6380/' \
		/etc/coordd/coordd.conf; systemctl reload coordd`)
	o.says(m.until(o.T, "option=listen", logOf("coordd")+" | sed 's/^time=[^ ]* //'"))
	m.must(o.T, "sed -i 's/^listen 0.0.0.0:6380/listen 0.0.0.0:6379/' /etc/coordd/coordd.conf")
	m.must(o.T, "systemctl reload coordd")
}

func lookers(o *operation) {
	o.typed(o.node(1), o.script("PASSWORD", "secret"))
	as := "redis-cli --user looker --pass secret --no-auth-warning "
	o.node(2).until(o.T, "n1", as+"RAFT MEMBERS")
	o.node(2).until(o.T, "NOPERM", as+"GET k 2>&1")
}

func terminal(o *operation) {
	o.leads(1)
	o.node(1).must(o.T, "redis-cli SET lock:order:1 worker-1:7f3a NX PX 100000 | grep OK")
	token := strings.TrimSpace(o.node(1).must(o.T, "redis-cli FENCE lock:order:1"))
	o.run(o.node(1), "24576", token)
}

func clocks(o *operation) { o.run(o.node(1)) }

func backup(o *operation) {
	o.node(1).must(o.T, "for i in 1 2 3; do redis-cli HSET profile:$i f v; done")
	o.run(o.node(1), ":6380", ":6379")
	o.run(o.node(1), ":6380", ":6379")
	o.node(1).must(o.T, "ssh vault 'coordd backup verify monday.coordd'")
	o.run(o.node(1))
	o.node(3).must(o.T, "systemctl stop coordd")
	o.run(o.node(3))
	o.node(3).must(o.T, "systemctl start coordd")
}

func scheduled(o *operation) {
	m := o.node(4)
	m.must(o.T, "mkdir /backups")
	o.start(m, "backups", strings.TrimPrefix(o.script(), "$ "))
	m.until(o.T, "backup-", "ls /backups | grep -v tmp")
	m.must(o.T, "systemctl stop backups; coordd backup verify /backups/backup-*")
	// the timer is in the packages
	o.run(o.node(1), "s3://vault/coordd", "/var/lib/coordd-backups", "'COORDD_PASSWORD=…'",
		"'COORDD_PASSWORD='")
	o.node(1).must(o.T, `systemctl list-timers --all | grep coordd-backup
		systemctl start coordd-backup.service
		coordd backup verify /var/lib/coordd-backups/backup-*`)
}

func bucket(o *operation) {
	store := s3.StartAt(o.T, here+":0")
	env := ""
	for name, value := range store.Env() {
		env += "export " + name + "='" + value + "'\n"
	}
	command := o.script("AWS_ENDPOINT_URL=https://s3.example.com AWS_REGION=eu-1 ", "", "$ ", "")
	o.start(o.node(4), "bucket", env+command)
	o.node(4).until(o.T, "backup taken", logOf("bucket"))
	o.node(4).must(o.T, "systemctl stop bucket")
}

func migrate(o *operation) {
	m := o.node(4)
	o.start(m, "redis", "redis-server --port 6379 --requirepass secret --save '' --bind 0.0.0.0")
	m.until(o.T, "PONG\n", "redis-cli -a secret --no-auth-warning PING")
	m.must(o.T, `redis-cli -a secret --no-auth-warning EVAL "
		for i = 1, 3008 do redis.call('set', 'moved:s:' .. i, i) end
		for i = 1, 3 do
			redis.call('hset', 'moved:h:' .. i, 'f', 'v')
			redis.call('rpush', 'moved:l:' .. i, 'v')
			redis.call('sadd', 'moved:set:' .. i, 'v')
		end
		for i = 1, 4 do
			redis.call('xadd', 'moved:x:' .. i, '*', 'f', 'v')
			redis.call('zadd', 'moved:z:' .. i, 1, 'v')
		end" 0`)
	o.run(o.node(1), "10.0.0.9", "10.0.0.4")
	o.skip("an import with a module's type; TestImportNamesWhatItCannotCopy")
	m.must(o.T, "systemctl stop redis")
}

func refetch(o *operation) {
	m := o.node(3)
	o.settled()
	m.must(o.T, "redis-cli SAVE | grep OK; systemctl stop coordd")
	m.must(o.T, `f=$(find /var/lib/coordd/snapshots -name state.bin | sort | tail -n 1)
		printf x | dd of=$f bs=1 seek=40 conv=notrunc status=none`)
	o.refetched(m)
}

// refetched does the block about coordd refetch on a node that does not start.
func (o *operation) refetched(m *machine) {
	o.Helper()
	m.must(o.T, "systemctl start --no-block coordd")
	said := m.until(o.T, "oordd: ", logOf("coordd")+" | tail -n 5")
	o.Log(said)
	m.must(o.T, "systemctl stop coordd; systemctl reset-failed coordd || :")
	m.must(o.T, strings.Join(o.next().lines, "\n"))
	m.must(o.T, "systemctl start coordd")
	o.settled()
	m.must(o.T, "rm -r /var/lib/coordd/before-refetch-*")
}

func damaged(o *operation) {
	m := o.node(2)
	o.settled()
	m.must(o.T, "systemctl stop coordd")
	m.must(o.T, `f=$(ls /var/lib/coordd/wal/*.wal | head -n 1)
		at=$(($(stat -c %s $f) / 4096))
		printf '\377\377\377\377' | dd of=$f bs=1 seek=$at conv=notrunc status=none`)
	m.must(o.T, "systemctl start --no-block coordd")
	o.says(m.until(o.T, "damaged", logOf("coordd")+" | tail -n 20"))
	m.must(o.T, `systemctl stop coordd
		coordd refetch --data-dir /var/lib/coordd
		systemctl start coordd`)
	o.settled()
}

func users(o *operation) {
	o.load.stop(o.T, "10.0.0.1:6379")
	o.typed(o.node(1), o.script())
	as := "redis-cli --user ops --pass another-password --no-auth-warning "
	o.node(2).until(o.T, "OK\n", as+"SET k v")
	o.node(2).until(o.T, "NOAUTH", "redis-cli GET k 2>&1")
	o.node(2).until(o.T, "OK\n", "redis-cli --user app --pass a-long-password --no-auth-warning "+
		"SET lock:1 me NX PX 1000")
}

func lockedOut(o *operation) {
	m := o.node(1)
	m.must(o.T, "printf next-password >new-password")
	m.must(o.T, o.script())
	m.until(o.T, "v\n", "redis-cli --pass next-password --no-auth-warning GET k")
	// and open again, for what follows
	m.must(o.T, "redis-cli --pass next-password --no-auth-warning ACL SETUSER default nopass |"+
		" grep OK")
	o.settled()
}

func lostMajority(o *operation) {
	m := o.node(1)
	m.must(o.T, "redis-cli SAVE | grep OK; redis-cli SET k v | grep OK")
	o.everywhere("systemctl stop coordd", o.machines[:3]...)
	m.must(o.T, "cp -a /var/lib/coordd /var/lib/copy")
	o.run(m)
	o.skip("TestRefetchedSurvivor has a directory with it")
	o.skip("the same")
	o.run(m)
	m.must(o.T, "systemctl start coordd")
	m.until(o.T, "v\n", "redis-cli GET k")
	for n, next := range map[int]string{2: "n4", 3: "n5"} {
		o.node(n).must(o.T, fmt.Sprintf(`rm -rf /var/lib/coordd/*
			sed -i 's/^id .*/id %s/; s/^cluster .*/join 10.0.0.1:6379\npeer-listen 10.0.0.%d:7000/' /etc/coordd/coordd.conf
			systemctl start coordd`, next, n))
	}
	o.settled()
}

func beforeEntry(o *operation) {
	o.skip("lines of a log, of a fault of coordd")
	m := o.node(1)
	said := m.must(o.T, "coordd recover --data-dir /var/lib/copy")
	_, index, _ := strings.Cut(said, ", index ")
	index, _, _ = strings.Cut(index, "\n")
	m.must(o.T, o.script("$ ", "", "/var/lib/coordd", "/var/lib/copy", "73112", index))
}

func restore(o *operation) {
	o.everywhere(`systemctl stop coordd; rm -rf /var/lib/coordd/*`, o.machines[:3]...)
	o.everywhere("scp -q n1:monday.coordd . 2>/dev/null || :", o.machines[1:3]...)
	b := o.left[0]
	for n, m := range o.machines[:3] {
		o.left = []block{b}
		token := "3856634100685209600"
		o.run(m, "7379", "7000", "--id n1", fmt.Sprint("--id n", n+1), token, token)
		m.must(o.T, fmt.Sprintf(`sed -i 's/^id .*/id n%d/; /^peer-listen/d
			s/^join .*/cluster n1=10.0.0.1:7000,n2=10.0.0.2:7000,n3=10.0.0.3:7000/' /etc/coordd/coordd.conf`,
			n+1))
	}
	o.everywhere("systemctl start coordd", o.machines[:3]...)
	o.settled()
	o.node(3).until(o.T, "v\n", "redis-cli HGET profile:1 f")
	if left := o.node(3).must(o.T, "redis-cli EXISTS moved:s:1"); left != "0\n" {
		o.Errorf("what came after the backup is there: %s", left)
	}
}
