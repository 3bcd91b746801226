// Backups of real processes under load, and clusters restored from them.

package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/tests/binaries"
	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tests/s3"
	"github.com/coordd/coordd/internal/tests/sample"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
	"github.com/coordd/coordd/server"
)

// command runs coordd to its end and returns its exit code and its output.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	path, err := binaries.Coordd()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// succeed is command, but must succeed.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := command(t, args...)
	if code != 0 {
		t.Fatalf("coordd %v: exit %d, %s%s", args, code, out, errs)
	}
	return out
}

// startPairs increments the two counters of each pair together, continuously, through every node.
func startPairs(ps []*process) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i, p := range ps {
		c := p.client()
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				pipe := c.TxPipeline()
				pipe.Incr(ctx, fmt.Sprintf("left:%d:%d", i, n%50))
				pipe.RPush(ctx, fmt.Sprintf("list:%d", i), n)
				pipe.Incr(ctx, fmt.Sprintf("right:%d:%d", i, n%50))
				_, _ = pipe.Exec(ctx)
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// readMachine reads a backup as a machine whose keys can be read.
func readMachine(t *testing.T, file string) *fsm.Machine {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := fsm.ReadSnapshot(f, commands.NewTable(commands.Specs(), server.Specs()))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// askMachine runs a read command on a machine.
func askMachine(m *fsm.Machine, words ...string) string {
	var args [][]byte
	for _, w := range words {
		args = append(args, []byte(w))
	}
	q := commands.Request{Proto: 2, Cmds: [][][]byte{args}}
	return string(m.Read(nil, commands.AppendRequest(nil, &q), 0, 0))
}

func TestBackupUnderLoad(t *testing.T) {
	ps := startProcesses(t, 3)
	ctx := context.Background()
	stop := startPairs(ps)
	defer stop()
	dir := t.TempDir()
	for i := range 6 {
		// What one node acknowledged before must be in the backup from another one.
		if err := ps[i%3].client().Set(ctx, "mark", i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, fmt.Sprint("backup", i))
		said := succeed(t, "backup", "--from", ps[(i+1)%3].addr, file)
		m := readMachine(t, file)
		if got, want := askMachine(m, "GET", "mark"), fmt.Sprintf("$1\r\n%d\r\n", i); got != want {
			t.Fatalf("the backup through %s is older than a write that was acknowledged: %q, "+
				"want %q", ps[(i+1)%3].id, got, want)
		}
		pairs := 0
		for node := range 3 {
			for n := range 50 {
				left, right := askMachine(m, "GET", fmt.Sprintf("left:%d:%d", node, n)),
					askMachine(m, "GET", fmt.Sprintf("right:%d:%d", node, n))
				if left != right {
					t.Fatalf("two counters that are always raised together: %q and %q", left, right)
				}
				if left != "$-1\r\n" {
					pairs++
				}
			}
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 ||
			!strings.Contains(said, fmt.Sprintf(" %d keys,", m.Stats().Databases[0].Keys)) {
			t.Fatal(said, info, err)
		}
		t.Logf("%d pairs, %s", pairs, strings.TrimSpace(said))
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.tmp")); err != nil || len(left) > 0 {
		t.Error("left over:", left, err)
	}
}

// TestRestoreCluster backs a cluster up, lets it go on, loses it, and restores two of its nodes.
// The third starts with its old data first, as if it had been overlooked, and is restored after the
// others.
func TestRestoreCluster(t *testing.T) {
	tier.Check(t)
	ps := startProcesses(t, 3)
	ctx := context.Background()
	c := ps[0].client()
	sample.Fill(t, c, "one")
	sha, err := c.ScriptLoad(ctx, "return redis.call('get', KEYS[1])").Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Do(ctx, "FUNCTION", "LOAD",
		"#!lua name=lib\nredis.register_function('f', function() return 7 end)").Err(); err != nil {
		t.Fatal(err)
	}
	tokens := []int64{fence(t, c, "one:lock"), newFence(t, c, "before")}
	read := time.Now()
	ttl := c.PTTL(ctx, "one:lock").Val()
	count := c.Get(ctx, "one:count").Val()
	file := filepath.Join(t.TempDir(), "backup")
	succeed(t, "backup", "--from", ps[1].addr, file)
	for i := range 20 {
		tokens = append(tokens, newFence(t, c, fmt.Sprint("after:", i)))
	}
	c.Incr(ctx, "one:count")
	for _, p := range ps {
		p.kill()
	}
	code, _, errs := command(t, append([]string{"restore", file, "--data-dir",
		filepath.Join(t.TempDir(), "x")}, ps[0].args...)...)
	_, above, proposed := strings.Cut(strings.TrimSpace(errs), ": --tokens-above ")
	if code != 1 || !proposed || !strings.Contains(errs, "n1, n2, n3 must be restored with equal") {
		t.Fatal(code, errs)
	}
	restore := func(p *process) {
		if err := os.RemoveAll(p.dataDir()); err != nil {
			t.Fatal(err)
		}
		said := succeed(t, append([]string{"restore", file, "--tokens-above", above},
			p.args...)...)
		wantWords(t, "restore", said, "fencing tokens above "+above, p.id, "n1, n2, n3")
	}
	restore(ps[0])
	restore(ps[1])
	for _, i := range []int{2, 0, 1} {
		ps[i].start()
	}
	ps[0].waitReady()
	wait.For(t, 20*time.Second, "n3 logs that its cluster was restored", func() bool {
		return strings.Contains(ps[2].log.String(), "one was restored, recovered or founded again")
	})
	if err := ps[2].client().Get(ctx, "after:0").Err(); errorWord(err) != "CLUSTERDOWN" {
		t.Errorf("n3 of the old cluster: %v", err)
	}
	ps[2].kill()
	restore(ps[2])
	ps[2].start()
	for _, p := range ps {
		p.waitReady()
		c := p.client()
		wait.For(t, 20*time.Second, p.id+" serving", func() bool {
			return c.Ping(ctx).Err() == nil && c.Exists(ctx, "one:lock").Err() == nil
		})
		checkRestored(t, p.id, c, count, ttl, read)
		if v, err := c.EvalSha(ctx, sha, []string{"one:count"}).Result(); err != nil || v != count {
			t.Errorf("%s: the script: %v %v", p.id, v, err)
		}
		if v, err := c.Do(ctx, "FCALL", "f", 0).Int(); err != nil || v != 7 {
			t.Errorf("%s: the function: %v %v", p.id, v, err)
		}
		if got := newFence(t, c, "new:"+p.id); got <= slices.Max(tokens) {
			t.Errorf("%s: a lock taken after the restore has the token %d, and one before had %d",
				p.id, got, slices.Max(tokens))
		}
		local := p.client()
		wait.For(t, 20*time.Second, p.id+"'s own state", func() bool {
			conn := local.Conn()
			defer conn.Close()
			return conn.Do(ctx, "READONLY").Err() == nil &&
				conn.Exists(ctx, "new:"+p.id).Val() == 1 && conn.Exists(ctx, "after:0").Val() == 0
		})
	}
	if ok, err := ps[2].client().SetNX(ctx, "one:lock", "thief",
		time.Second).Result(); err != nil || ok {
		t.Errorf("the lock was granted twice: %v %v", ok, err)
	}
	again := filepath.Join(t.TempDir(), "again")
	succeed(t, "backup", "--from", ps[2].addr, again)
}

// checkRestored checks that a node has the data of the backup and nothing later.
func checkRestored(t *testing.T, id string, c *redis.Client, count string, ttl time.Duration,
	read time.Time) {
	t.Helper()
	ctx := context.Background()
	if n := c.Exists(ctx, "before", "one:lock", "one:hash", "one:zset").Val(); n != 4 {
		t.Errorf("%s: %d of 4 keys", id, n)
	}
	if n := c.Exists(ctx, "after:0", "after:19").Val(); n != 0 {
		t.Errorf("%s has a change from after the backup", id)
	}
	if got := c.Get(ctx, "one:count").Val(); got != count {
		t.Errorf("%s: the count is %s, in the backup %s", id, got, count)
	}
	if got := c.PTTL(ctx, "one:lock").Val(); got < ttl-time.Since(read) || got > ttl {
		t.Errorf("%s: the lock's TTL is %v, in the backup %v", id, got, ttl)
	}
}

func fence(t *testing.T, c *redis.Client, key string) int64 {
	t.Helper()
	n, err := c.Do(context.Background(), "FENCE", key).Int64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// newFence takes a lock and returns its token.
func newFence(t *testing.T, c *redis.Client, key string) int64 {
	t.Helper()
	if ok, err := c.SetNX(context.Background(), key, "me", time.Minute).Result(); err != nil ||
		!ok {
		t.Fatal(ok, err)
	}
	return fence(t, c, key)
}

// TestRestoreAlone restores a single node, with either log store, twice in a row.
func TestRestoreAlone(t *testing.T) {
	for _, store := range []string{"wal", "bolt"} {
		t.Run(store, func(t *testing.T) {
			dir := t.TempDir()
			n, c := startSingle(t, filepath.Join(dir, "0"))
			token := newFence(t, c, "lock")
			file := filepath.Join(dir, "backup0")
			succeed(t, "backup", "--from", n.addr, file)
			for i := 1; i <= 2; i++ {
				data := filepath.Join(dir, fmt.Sprint(i))
				succeed(t, "restore", "--data-dir", data, "--log-store", store, file)
				p := &process{t: t, id: "n1", addr: loopback(freePorts(t, 1)[0]),
					http: loopback(freePorts(t, 1)[0])}
				p.args = []string{"--data-dir", data, "--log-store", store, "--listen", p.addr,
					"--http-listen", p.http, "--snapshot-entries", "64"}
				t.Cleanup(p.kill)
				p.start()
				p.waitReady()
				c := p.client()
				got := newFence(t, c, fmt.Sprint("lock", i))
				if got <= token {
					t.Errorf("token %d after %d", got, token)
				}
				token = got
				if err := c.Save(t.Context()).Err(); err != nil {
					t.Error(err)
				}
				// the restored data, and what came after it, must survive a crash, too
				p.kill()
				p.start()
				p.waitReady()
				if n := p.client().Exists(t.Context(), "lock",
					fmt.Sprint("lock", i)).Val(); n != 2 {
					t.Errorf("%d of 2 keys after a crash", n)
				}
				file = filepath.Join(dir, fmt.Sprint("backup", i))
				succeed(t, "backup", "--from", p.addr, file)
			}
		})
	}
}

// smallBackup makes a backup with a few keys.
func smallBackup(t *testing.T) string {
	t.Helper()
	n, c := startSingle(t, filepath.Join(t.TempDir(), "source"))
	sample.Fill(t, c, "one")
	file := filepath.Join(t.TempDir(), "backup")
	succeed(t, "backup", "--from", n.addr, file)
	return file
}

// TestBackupInABucket takes a backup to a bucket, verifies it there, and restores it from there.
func TestBackupInABucket(t *testing.T) {
	for name, value := range s3.Start(t).Env() {
		t.Setenv(name, value)
	}
	n, c := startSingle(t, filepath.Join(t.TempDir(), "source"))
	sample.Fill(t, c, "one")
	out := succeed(t, "backup", "--from", n.addr, "--to", "s3://"+s3.Bucket+"/prod/a")
	at, _, _ := strings.Cut(out, ": backup of")
	wantWords(t, "verify", succeed(t, "backup", "verify", at), at+" is complete",
		" can be restored")
	dir := filepath.Join(t.TempDir(), "restored")
	succeed(t, "restore", at, "--id", "n1", "--data-dir", dir)
	want := c.DBSize(t.Context()).Val()
	_, c = startSingle(t, dir)
	if got := c.DBSize(t.Context()).Val(); got != want || got == 0 {
		t.Errorf("%d keys are restored of %d", got, want)
	}
	code, _, errs := command(t, "restore", at+"x", "--id", "n1", "--data-dir", dir+"x")
	if code != 1 || !strings.Contains(errs, at+"x: NoSuchKey; nothing was written") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// TestBackupToStdout writes a backup to a pipe, which holds nothing else, also when it fails.
func TestBackupToStdout(t *testing.T) {
	n, c := startSingle(t, filepath.Join(t.TempDir(), "source"))
	sample.Fill(t, c, "one")
	wait.For(t, 20*time.Second, "the feature level", func() bool {
		return c.InfoMap(t.Context(), "coordd").Val()["Coordd"]["feature_level"] ==
			fmt.Sprint(commands.FeatureLevel)
	})
	before := time.Now().Unix()
	code, out, errs := command(t, "backup", "--from", n.addr, "--to", "-")
	file := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil || code != 0 || errs != "" {
		t.Fatal(code, errs, err)
	}
	keys := c.DBSize(t.Context()).Val()
	wantWords(t, "verify", succeed(t, "backup", "verify", file), " can be restored",
		fmt.Sprintf(" %d, ", keys), " 1 hash,", "epoch 0", "s ago")
	var held struct {
		Keys         int64
		Types        map[string]int
		FeatureLevel uint64
		LastWrite    time.Time
	}
	if err := json.Unmarshal([]byte(succeed(t, "backup", "verify", "--json", file)),
		&held); err != nil || held.Keys != keys || held.Types["hash"] != 1 ||
		held.FeatureLevel != commands.FeatureLevel || held.LastWrite.Unix() < before-60 {
		t.Error(held, err)
	}
	info := c.InfoMap(t.Context(), "persistence").Val()["Persistence"]
	if at, _ := strconv.ParseInt(info["coordd_last_backup_time"], 10, 64); at < before ||
		info["coordd_last_backup_bytes"] != fmt.Sprint(len(out)) {
		t.Error(info)
	}
	damaged := []byte(out)
	damaged[len(damaged)-1]++
	bad, half, goOn := pausedNode(t, damaged)
	done := make(chan struct{})
	go func() {
		defer close(done)
		code, out, errs = command(t, "backup", "--from", bad, "--to", "-")
	}()
	<-half
	goOn <- struct{}{}
	if <-done; code != 1 || !strings.Contains(errs, "its output is incomplete") ||
		strings.Count(errs, "\n") != 1 {
		t.Error("a damaged reply:", code, errs)
	}
}

func TestDamagedBackupsAreRefused(t *testing.T) {
	tier.Check(t)
	file := smallBackup(t)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Clone(good)
	newer[16]++ // after the magic
	binary.LittleEndian.PutUint32(newer[len(newer)-4:],
		crc32.Checksum(newer[:len(newer)-4], crc32.MakeTable(crc32.Castagnoli)))
	cases := map[string][]byte{
		"empty": {}, "foreign": []byte("REDIS0010\xfa\tredis-ver\x057.0.15"), "newer": newer,
		"trailing": append(bytes.Clone(good), 0),
		"text":     []byte(strings.Repeat("no backup\n", 100)),
	}
	for at := 0; at < len(good); at += 1 + len(good)/40 {
		flipped := bytes.Clone(good)
		flipped[at] ^= 0x10
		cases[fmt.Sprint("flipped at ", at)] = flipped
		cases[fmt.Sprint("cut at ", at)] = good[:at]
	}
	for name, data := range cases {
		dir := t.TempDir()
		bad := filepath.Join(dir, "bad")
		if err := os.WriteFile(bad, data, 0o600); err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(dir, "data")
		code, _, errs := command(t, "restore", bad, "--data-dir", target)
		// a flipped bit may be one of the feature level
		_, reason, _ := strings.Cut(strings.TrimSuffix(errs, "; nothing was written\n"), bad+": ")
		if code != 1 || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(reason, "snapshot ") &&
			!strings.Contains(reason, "the snapshot has feature level") {
			t.Errorf("%s: exit %d, %s", name, code, errs)
		}
		code, out, errs := command(t, "backup", "verify", bad)
		if want := "coordd: " + bad + " cannot be restored: " + reason + "\n"; code != 1 ||
			out != "" || errs != want {
			t.Errorf("%s: verify: exit %d, %s%s, want %s", name, code, out, errs, want)
		}
		if _, err := os.Stat(target); !os.IsNotExist(err) {
			t.Errorf("%s: the data directory was touched: %v", name, err)
		}
	}
	_, _, errs := command(t, "restore", filepath.Join(t.TempDir(), "none"), "--data-dir",
		filepath.Join(t.TempDir(), "x"))
	if !strings.Contains(errs, "no such file") {
		t.Error(errs)
	}
}

func TestRestoreRefusals(t *testing.T) {
	file := smallBackup(t)
	taken := t.TempDir()
	if err := os.WriteFile(filepath.Join(taken, "mine"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--data-dir", taken}, 1, "is not empty: it holds mine"},
		{[]string{"--data-dir", filepath.Join(taken, "mine")}, 1, "not a directory"},
		{[]string{"--data-dir", filepath.Join(taken, "x"), "--tokens-above", "7"}, 1,
			"--tokens-above 7: must be from "},
		{[]string{"--data-dir", filepath.Join(taken, "x"), "--tokens-above", "-1"}, 2,
			"tokens-above"},
		{[]string{"--data-dir", filepath.Join(taken, "x"), "--cluster", "n1=h:1,n2=h:2"}, 1,
			"n1, n2 must be restored with equal --tokens-above; by this machine's clock, "},
		{[]string{"--data-dir", filepath.Join(taken, "x"), "--id", "n9", "--cluster",
			"n1=h:1,n2=h:2"}, 1, "--id n9 is not in --cluster"},
		{[]string{"--data-dir", filepath.Join(taken, "x"), "stray"}, 2,
			`unexpected argument "stray"`},
	} {
		code, _, errs := command(t, append([]string{"restore", file}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit %d, %s", c.args, code, errs)
		}
	}
	if files, err := os.ReadDir(taken); err != nil || len(files) != 1 {
		t.Error("a refused directory was changed:", files, err)
	}
	if code, _, errs := command(t, "restore"); code != 2 ||
		!strings.Contains(errs, "requires FILE") {
		t.Error(code, errs)
	}
	// an existing empty one is accepted
	succeed(t, "restore", file, "--data-dir", empty, "--tokens-above", "45035996273704960")
	if code, _, errs := command(t, "restore", file, "--data-dir", empty); code != 1 ||
		!strings.Contains(errs, "is not empty") {
		t.Error(code, errs)
	}
}

func TestBackupRefusals(t *testing.T) {
	file := smallBackup(t)
	before, _ := os.ReadFile(file)
	n, _ := startSingle(t, filepath.Join(t.TempDir(), "other"))
	fresh, password := filepath.Join(t.TempDir(), "fresh"), filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("pass\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{file}, 2, "requires --from"},
		{[]string{"--from", n.addr}, 2, "requires FILE"},
		{[]string{"--from", n.addr, "--to", "-", fresh}, 2, "not both"},
		{[]string{"--from", n.addr, "--to", "-", "--force"}, 2, "--force is for FILE"},
		{[]string{"verify"}, 2, "requires FILE"},
		{[]string{"verify", fresh}, 1, "no such file"},
		{[]string{"verify", filepath.Dir(fresh)}, 1, "is a directory"},
		{[]string{"--from", "here", fresh}, 1, "must be host:port"},
		{[]string{"--from", n.addr, file}, 1, "exists; --force overwrites it"},
		{[]string{"--from", loopback(freePorts(t, 1)[0]), fresh}, 1, "connection refused"},
		{[]string{"--from", n.addr, filepath.Join(fresh, "x")}, 1, "no such file or directory"},
		{[]string{"--from", "redis://user:pass@" + n.addr, fresh}, 1, "is visible to others"},
		{[]string{"--from", n.addr, "--user", "user", "--password-file", password, fresh}, 1,
			"WRONGPASS"},
	} {
		code, _, errs := command(t, append([]string{"backup"}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit %d, %s", c.args, code, errs)
		}
	}
	if after, _ := os.ReadFile(file); !bytes.Equal(before, after) {
		t.Error("a refused backup changed the file")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(fresh), "*")); len(left) > 0 {
		t.Error("left over:", left)
	}
	succeed(t, "backup", "--from", n.addr, "--force", file)
	if m := readMachine(t, file); m.Stats().Databases[0].Keys != 0 {
		t.Error("the file was not overwritten")
	}
}

// TestBackupOfAnEmptyNode backs up a node whose log holds nothing that the machine saw.
func TestBackupOfAnEmptyNode(t *testing.T) {
	var b bytes.Buffer
	if _, err := fsm.NewMachine(commands.NewTable(commands.Specs(),
		server.Specs())).Snapshot().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "backup")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	succeed(t, "restore", file, "--data-dir", filepath.Join(dir, "data"))
	_, c := startSingle(t, filepath.Join(dir, "data"))
	if token := newFence(t, c, "lock"); token>>31 < 1_790_000_000 {
		t.Error(token)
	}
}

// pausedNode replies to RAFT BACKUP with state. The second half waits for a token in goOn.
func pausedNode(t *testing.T, state []byte) (
	addr string, half <-chan struct{}, goOn chan<- struct{}) {
	t.Helper()
	ln := ports.Listen(t)
	t.Cleanup(func() { _ = ln.Close() })
	sent, more := make(chan struct{}), make(chan struct{}, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 1024))
		fmt.Fprintf(conn, "$%d\r\n%s", len(state), state[:len(state)/2])
		close(sent)
		<-more
		_, _ = conn.Write(state[len(state)/2:])
	}()
	return ln.Addr().String(), sent, more
}

// TestOverlappingBackups makes two backups to one file at the same time. The file is one of them,
// complete. The other is refused or, with --force, replaces it.
func TestOverlappingBackups(t *testing.T) {
	small, err := os.ReadFile(smallBackup(t))
	if err != nil {
		t.Fatal(err)
	}
	var empty bytes.Buffer
	if _, err := fsm.NewMachine(commands.NewTable(commands.Specs(),
		server.Specs())).Snapshot().WriteTo(&empty); err != nil {
		t.Fatal(err)
	}
	for _, force := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "backup")
		begin := func(state []byte) (finish func() string) {
			addr, half, goOn := pausedNode(t, state)
			done := make(chan string, 1)
			go func() {
				_, _, errs := command(t, "backup", "--from", addr, file,
					fmt.Sprint("--force=", force))
				done <- errs
			}()
			<-half
			return func() string { goOn <- struct{}{}; return <-done }
		}
		first, second := begin(empty.Bytes()), begin(small)
		if errs := second(); errs != "" {
			t.Fatal(errs)
		}
		want := small
		switch errs := first(); {
		case force && errs != "", !force && !strings.Contains(errs, "file exists"):
			t.Errorf("force %v: the backup that ended last: %s", force, errs)
		case force:
			want = empty.Bytes()
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("force %v: the file holds %d bytes, want %d: %v", force, len(got), len(want),
				err)
		}
		if left, _ := filepath.Glob(file + "*"); len(left) != 1 {
			t.Errorf("force %v: left over: %v", force, left)
		}
	}
}
