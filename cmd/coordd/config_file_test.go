package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/wait"
	"github.com/coordd/coordd/server"
)

// writeConfig writes a configuration file and returns its path.
func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "coordd.conf")
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigFile(t *testing.T) {
	path := writeConfig(t, "# a node\n\n  id\tn7 \r\nlisten \"127.0.0.1:7001\"\n"+
		"client-output-buffer-limit normal 1mb 1kb 5 pubsub 32mb 8mb 60\nmax-clients 7\n"+
		"data-dir '/var/lib/it''s'\n")
	if _, err := parseConfig([]string{"--config", path}, noEnv); err == nil ||
		!strings.HasSuffix(err.Error(), "coordd.conf:7: unbalanced quotes, or a zero byte") {
		t.Error(err)
	}
	path = writeConfig(t, "# a node\n\n  id\tn7 \r\nlisten \"127.0.0.1:7001\"\n"+
		"client-output-buffer-limit normal 1mb 1kb 5 pubsub 32mb 8mb 60\nmax-clients 7\n"+
		"data-dir \"/var/lib/a \\\"b\\\" # c\"\nunix-socket \"\"\ntimeout 5m")
	env := map[string]string{"COORDD_CONFIG": path, "COORDD_MAX_CLIENTS": "8", "COORDD_ID": "n8"}
	c, err := parseConfig([]string{"--id", "n9"}, func(k string) string { return env[k] })
	if err != nil {
		t.Fatal(err)
	}
	if c.ID != "n9" || c.MaxClients != 8 || c.Listen != "127.0.0.1:7001" ||
		c.DataDir != `/var/lib/a "b" # c` || c.IdleTimeout != 5*time.Minute ||
		!strings.HasPrefix(c.OutputLimits.Text(0), "normal 1048576 1024 5") ||
		c.ConfigFile != path || c.LogStore != "wal" {
		t.Errorf("%+v", c)
	}
}

func TestConfigFileErrors(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{"id n1\nmax-clients many\n",
			`coordd.conf:2: max-clients "many": must be an integer, 1 or more`},
		{"id n1\n\nid n2\n", "coordd.conf:3: id is on line 1 already"},
		{"max-client 7", "coordd.conf:1: unknown option max-client; coordd --help lists them"},
		{"#\nmaxclients 7", "coordd.conf:2: unknown option maxclients; the one of CONFIG SET " +
			"maxclients is max-clients"},
		{"hz 10", "coordd.conf:1: unknown option hz; it would have no effect here"},
		{"requirepass secret", "coordd.conf:1: unknown option requirepass"},
		{"redis://:secret@h 1", "coordd.conf:1: unknown option redis://…;"},
		{"--id n1", "coordd.conf:1: unknown option --id;"},
		{"id", `coordd.conf:1: id has no value; "" is the empty one`},
		{"id \"n1", "coordd.conf:1: unbalanced quotes, or a zero byte"},
		{"id n1\x00", "coordd.conf:1: unbalanced quotes, or a zero byte"},
		{"id n1 # the first", "coordd.conf:1: a comment must be on a line of its own"},
		{"config other.conf", "coordd.conf:1: config is for the command line and the environment"},
		{"users-file redis://:secret@h:1\nlisten x:secret@h:1",
			`coordd.conf:2: listen "…@h:1": must be host:port`},
		{strings.Repeat("#", maxConfigFile) + "\n", "larger than 1048576 bytes"},
		{"join 127.0.0.1:1\n", "--join requires --peer-listen"},
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), []string{"--config", writeConfig(t, c.text)}, noEnv, &out,
			&errs)
		if got := errs.String(); code != 1 || !strings.Contains(got, c.says) ||
			strings.Count(got, "\n") != 1 || strings.Contains(got, "secret") {
			t.Errorf("%q: exit %d, %q; want one line with %q", c.text, code, got, c.says)
		}
	}
	if _, err := parseConfig([]string{"--config", "no.conf"}, noEnv); err == nil ||
		!strings.HasPrefix(err.Error(), "--config: open ") {
		t.Error(err)
	}
}

// liveNode runs a node with a configuration file until the test ends.
type liveNode struct {
	*redis.Client
	t    *testing.T
	file string
	log  wait.Buffer
}

func startLive(t *testing.T, text string, args ...string) *liveNode {
	dir := t.TempDir()
	n := &liveNode{t: t, file: writeConfig(t, text)}
	socket := filepath.Join(dir, "socket")
	ctx, cancel := context.WithCancel(context.Background())
	args = append([]string{"--config", n.file, "--listen", "", "--unix-socket", socket,
		"--data-dir", filepath.Join(dir, "data")}, args...)
	done := make(chan int, 1)
	go func() { done <- run(ctx, args, noEnv, &n.log, &n.log) }()
	n.Client = redis.NewClient(&redis.Options{Network: "unix", Addr: socket, MaxRetries: -1})
	t.Cleanup(func() {

		_ = n.Client.Close()
		cancel()
		if code := exitCode(t, done); code != 0 {
			t.Errorf("exit %d: %s", code, n.log.String())
		}
	})
	wait.For(t, 20*time.Second, "the node", func() bool {
		return n.ConfigGet(ctx, "timeout").Err() == nil // not LOADING
	})
	return n
}

func (n *liveNode) get(parameter string) string {
	n.t.Helper()
	v, err := n.ConfigGet(n.t.Context(), parameter).Result()
	if err != nil {
		n.t.Error(err)
	}
	return v[parameter]
}

func (n *liveNode) set(parameter, value string) {
	n.t.Helper()
	if err := n.ConfigSet(n.t.Context(), parameter, value).Err(); err != nil {
		n.t.Error(err)
	}
}

// hangUp writes the file, sends SIGHUP and waits for words in the log that follows.
func (n *liveNode) hangUp(text, says string) {
	n.t.Helper()
	if err := os.WriteFile(n.file, []byte(text), 0o640); err != nil {
		n.t.Fatal(err)
	}
	from := len(n.log.String())
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		n.t.Fatal(err)
	}
	wait.For(n.t, 20*time.Second, says, func() bool {
		return strings.Contains(n.log.String()[from:], says)
	})
}

func TestHangupRereadsTheFile(t *testing.T) {
	n := startLive(t, "max-clients 100\ntimeout 60s\nslowlog-max-len 7\n"+
		"client-output-buffer-limit pubsub 9mb 0 0\n", "--user-rate", "5000/s")
	for name, want := range map[string]string{"maxclients": "100", "timeout": "60",
		"slowlog-max-len": "7", "coordd-user-rate": "5000/s"} {
		if got := n.get(name); got != want {
			t.Errorf("%s is %s, not %s", name, got, want)
		}
	}
	n.set("tcp-keepalive", "30") // not in the file: SIGHUP leaves it
	n.set("slowlog-max-len", "9")
	n.hangUp("max-clients 200\ntimeout 90s\nslowlog-max-len 7\nlog-level debug\nuser-rate 9000/s\n"+
		"snapshot-entries 100\nclient-output-buffer-limit normal 1kb 0 0\n",
		`"option changed","option":"client-output-buffer-limit"`)
	for name, want := range map[string]string{"maxclients": "200", "timeout": "90",
		"tcp-keepalive": "30", "slowlog-max-len": "9", "coordd-user-rate": "5000/s",
		"client-output-buffer-limit": "normal 1024 0 0 slave 268435456 67108864 60 pubsub " +
			"33554432 8388608 60"} {
		if got := n.get(name); got != want {
			t.Errorf("%s is %s, not %s", name, got, want)
		}
	}
	for _, says := range []string{
		`"msg":"option changed","option":"max-clients","from":"100","to":"200"`,
		`"msg":"option changed","option":"log-level","from":"info","to":"debug"`,
		`"msg":"option changed; it takes effect at the next start","option":"snapshot-entries"`,
	} {
		if !strings.Contains(n.log.String(), says) {
			t.Errorf("the log lacks %s", says)
		}
	}
	n.hangUp("max-clients 300\ntimeout soon\n",
		`coordd.conf:2: timeout \"soon\": must be a duration`)
	if a, b := n.get("maxclients"), n.get("timeout"); a != "200" || b != "90" {
		t.Errorf("an invalid file changed %s, %s", a, b)
	}
	n.hangUp("max-clients 300000000\ntimeout 90s\n", // lowered, as at the start
		`"maxclients reduced to fit the limit of open files`)
	wait.For(t, 20*time.Second, "the maximum", func() bool {
		got, err := strconv.Atoi(n.get("maxclients"))
		return err == nil && got > 200 && got < 300_000_000
	})
	n.hangUp("max-clients 200\ntimeout 90s\n", `"option":"max-clients","from":"300000000"`)
	n.hangUp("", `"option":"timeout","from":"90s","to":"0s"`)
}

func TestConfigRewrite(t *testing.T) {
	const text = "# limits\n\nmax-clients 100\n  timeout\t60s\nuser-rate 5000/s # odd\n"
	n := startLive(t, strings.Replace(text, " # odd", "", 1), "--client-rate", "5000/s")
	if got := n.Info(t.Context(), "server").Val(); !strings.Contains(got, "config_file:"+n.file) {
		t.Error(got)
	}
	// somebody edits the file meanwhile
	if err := os.WriteFile(n.file, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	rewrite := func(want string) {
		t.Helper()
		if err := n.ConfigRewrite(t.Context()).Err(); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(n.file); string(got) != want {
			t.Errorf("%v; the file is\n%s\nnot\n%s", err, got, want)
		}
	}
	rewrite(text)
	n.set("timeout", "3600")
	n.set("coordd-client-rate", "7000/s")
	n.set("latency-tracking-info-percentiles", "")
	wait.For(t, 10*time.Second, "the feature level of maxmemory", func() bool {
		return n.ConfigSet(t.Context(), "maxmemory", "1gb").Err() == nil // in the cluster's log
	})
	const mark = "\n# Generated by CONFIG REWRITE\n"
	want := strings.Replace(text, "  timeout\t60s", "timeout 3600s", 1)
	want = want[:len(want)-1] + mark +
		"client-rate 7000/s\nlatency-tracking-info-percentiles \"\"\n"
	rewrite(want)
	n.set("tracking-table-max-keys", "5")
	want += "tracking-table-max-keys 5\n"
	rewrite(want)
	rewrite(want)
	if info, err := os.Stat(n.file); err != nil || info.Mode() != 0o640 {
		t.Error(info.Mode(), err)
	}
	if !strings.Contains(n.log.String(), `"option":"client-rate","set_by":"--client-rate"`) {
		t.Error("the log does not say that the flag wins")
	}
	// what it wrote is what is in force: SIGHUP changes nothing
	n.set("timeout", "30")
	n.hangUp(strings.Replace(want, " # odd", "", 1)+"log-level debug\n", `"option":"log-level"`)
	if got := n.get("timeout"); got != "30" {
		t.Errorf("timeout is %s", got)
	}
	if err := os.Remove(n.file); err != nil {
		t.Fatal(err)
	}
	if err := n.ConfigRewrite(t.Context()).Err(); err == nil ||
		err.Error() != "ERR Rewriting config file: No such file or directory" {
		t.Error(err)
	}
}

// What CONFIG REWRITE writes is read again as it was, whatever the value.
func TestConfigRewriteQuotes(t *testing.T) {
	n := startLive(t, "")
	for _, value := range []string{"lock:", "#a b", "it's: \"q\":=x", `back\slash: ü:`, "a\x00b \x01",
		"a b=#c", ""} {
		n.set("coordd-lock-labels", value)
		if err := n.ConfigRewrite(t.Context()).Err(); err != nil {
			t.Error(err)
		}
		said, err := readConfigFile(n.file)
		if got := said["lock-labels"].value; err != nil || got != value && value != "" {
			t.Errorf("%q is read as %q, %v", value, got, err)
		}
	}
}

// CONFIG REWRITE and SIGHUP at the same time do not wait for each other.
func TestConfigRewriteDuringHangups(t *testing.T) {
	n := startLive(t, "max-clients 100\n")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 200 {
			n.set("timeout", fmt.Sprint(i))
			if err := n.ConfigRewrite(t.Context()).Err(); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Millisecond):
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Every parameter that CONFIG SET changes on a node alone has an option, and so a line in the file.
func TestParametersHaveOptions(t *testing.T) {
	n := startLive(t, "")
	all, err := n.ConfigGet(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	// the cluster has them
	shared := []string{"coordd-request-work", "maxmemory", "notify-keyspace-events",
		"requirepass"}
	// other names of slowlog-…
	second := []string{"commandlog-execution-slower-than", "commandlog-slow-execution-max-len"}
	var live []string
	for name := range all {
		if server.WithoutEffect(name) {
			continue
		}
		err := n.ConfigSet(t.Context(), name, "~\xff~").Err()
		if name == "requirepass" {
			err = n.ConfigSet(t.Context(), name, "").Err()
		} else if err == nil {
			t.Errorf("%s takes anything", name)
		}
		if !strings.Contains(fmt.Sprint(err), "can't set immutable config") &&
			!strings.Contains(fmt.Sprint(err), "can't set protected config") {
			live = append(live, name)
		}
	}
	for _, name := range live {
		if liveFor(name) == nil && !slices.Contains(shared, name) &&
			!slices.Contains(second, name) {
			t.Errorf("CONFIG SET %s changes what no option sets", name)
		}
	}
	for _, l := range liveOptions {
		if l.param != "" && !slices.Contains(live, l.param) {
			t.Errorf("--%s is for the parameter %s, which CONFIG SET does not change", l.name,
				l.param)
		}
	}
}
