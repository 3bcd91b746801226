package main

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tests/wait"
	"github.com/coordd/coordd/server"
)

func noEnv(string) string { return "" }

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct {
		args string
		env  map[string]string
		code int
		says string
	}{
		{args: "--no-such-flag", code: 2, says: "not defined"},
		{args: "stray", code: 2, says: `unexpected argument "stray"`},
		{args: "--listen here", code: 1, says: `--listen "here": must be host:port`},
		{args: "--listen 127.0.0.1:99999", code: 1, says: "the port must be"},
		{args: "", env: map[string]string{"COORDD_LISTEN": " "}, code: 1,
			says: "must be host:port"},
		{args: "--listen=", code: 1, says: "no address for clients: set --listen, --tls-listen"},
		{args: "--otlp 127.0.0.1:4318", code: 1, says: "must be a URL"},
		{args: "--otlp-sample 0", code: 1, says: "must be above 0"},
		{args: "--otlp-sample NaN", code: 1, says: "must be above 0"},
		{args: "--tls-listen 127.0.0.1:0 --tls-cert a.crt", code: 1,
			says: "--tls-listen requires --tls-cert and --tls-key"},
		{args: "--present-as slave", code: 1,
			says: "must be one of replicated, standalone, cluster"},
		{args: "--redis-version 7.2", code: 1, says: "must be three numbers, such as 7.2.0"},
		{args: "--redis-version 7.2.x", code: 1, says: "must be three numbers, such as 7.2.0"},
		{args: "--tls-client-auth perhaps", code: 1, says: "must be none, optional or required"},
		{args: "--tls-client-auth optional", code: 1, says: "optional requires --tls-ca"},
		{args: "--tls-auth-clients-user cn", code: 1, says: "cn requires --tls-ca"},
		{args: "--tls-auth-clients-user dn", code: 1, says: "must be off or cn"},
		{args: "--peer-tls yes", code: 1, says: "must be off, accept, dial or required"},
		{args: "--peer-tls accept", code: 1, says: "--peer-tls accept requires --peer-tls-cert"},
		{args: "--peer-tls-cert a.crt", code: 1, says: "--peer-tls required requires --peer-tls"},
		{args: "--peer-tls-name example.org", code: 1, says: "must contain {id} once"},
		{args: "--peer-listen 10.0.0.1:7000", code: 1, says: "or --insecure-peers"},
		{args: "--peer-listen db1:7000 --insecure-peers=no", code: 1, says: "or --insecure-peers"},
		{args: "--insecure-peers=perhaps", code: 1, says: "must be yes or no"},
		{args: "--insecure-peers perhaps", code: 1, says: "must be yes or no"},
		{args: "--insecure-peers no stray", code: 2, says: `unexpected argument "stray"`},
		{args: "--peer-listen db1:7000 --insecure-peers no", code: 1, says: "or --insecure-peers"},
		{args: "--peer-listen 10.0.0.1:7000 --peer-tls dial --peer-tls-cert a --peer-tls-key b " +
			"--peer-tls-ca c", code: 1, says: "or --insecure-peers"},
		{args: "--tls-listen 127.0.0.1:0 --tls-cert no.crt --tls-key no.key", code: 1,
			says: "client certificate: open no.crt"},
		{args: "--peer-tls-cert no.crt --peer-tls-key no.key --peer-tls-ca no.ca", code: 1,
			says: "peer certificate: open no.crt"},
		{args: "--audit-syslog there:514", code: 1, says: "must be local, unix:///PATH, udp://"},
		{args: "--metrics-token-file no.token", code: 1, says: "metrics token: open no.token"},
		{args: "backup --from 127.0.0.1:1 --tls-ca ca.crt file", code: 2,
			says: "require an address rediss://host:port"},
		{args: "backup --from rediss://127.0.0.1:1 --tls-ca no.crt file", code: 1,
			says: "open no.crt"},
		{args: "certs", code: 2, says: "requires DIR"},
		{args: "certs --cluster a/b dir", code: 1, says: "must be a name such as prod"},
		{args: "certs --nodes a/b dir", code: 1, says: "invalid node id"},
		{args: "certs --clients ../a dir", code: 1, says: "is no name of a file"},
		{args: "certs --days 0 dir", code: 1, says: "must be from 1 to"},
		{args: "--id a/b", code: 1, says: "must be 1 to 64 letters"},
		{args: "--cluster n1", code: 1, says: `"n1" is not id=host:peerport`},
		{args: "--cluster n1=127.0.0.1:1,n1=127.0.0.1:2", code: 1, says: "appears twice"},
		{args: "--id n4 --cluster n1=127.0.0.1:1,n2=127.0.0.1:2", code: 1,
			says: "--id n4 is not in --cluster"},
		{args: "--cluster=", code: 1, says: "--cluster is empty: name nodes"},
		{args: "--join=", code: 1, says: "--join is empty: name nodes"},
		{args: "--discover= --join=", code: 1, says: "is empty: name nodes"},
		{args: "--cluster= --join 0.0.0.0:7000x", code: 1, says: "port"},
		{args: "--id n1 --cluster n1=0.0.0.0:7000,n2=127.0.0.1:2", code: 1,
			says: "wildcard address"},
		{args: "--peer-listen 0.0.0.0:7000", code: 1,
			says: "--peer-listen 0.0.0.0:7000: other nodes cannot reach a wildcard address; set " +
				"--peer-advertise"},
		{args: "--peer-listen 127.0.0.1:0 --peer-advertise [::]:7000", code: 1,
			says: "--peer-advertise [::]:7000: other nodes cannot reach a wildcard address"},
		{args: "--join 127.0.0.1:1 --peer-listen :7000", code: 1, says: "wildcard address"},
		{args: "--listen 127.0.0.1:0,there", code: 1, says: "must be host:port"},
		{args: "--unix-socket-perm 999", code: 1, says: "octal"},
		{args: "--maxmemory-clients 120%", code: 1, says: "a size such as 512mb"},
		{args: "--listen redis://:secret@h:1", code: 1, says: `--listen "redis://…": must`},
		{args: "--join 127.0.0.1:1,user:secret@h", code: 1, says: `"…@h": the port must be`},
		{args: "import redis://:secret@h:1", code: 2, says: `unexpected argument "redis://…"`},
		{args: "import --from redis://:secret%zz@h:1 --to 127.0.0.1:1", code: 1,
			says: "--from redis://…: must be"},
		{args: "import --from 127.0.0.1:1 --to x:secret@h:1", code: 1, says: "--to …@h:1: must be"},
		{args: "backup --from redis://:secret@h:port file", code: 1,
			says: "--from redis://…: must be"},
		{args: "--heartbeat-timeout soon", code: 1, says: "must be a duration"},
		{args: "--timeout 1500ms", code: 1, says: "must be whole seconds"},
		{args: "--tcp-keepalive 1500ms", code: 1, says: "must be whole seconds"},
		{args: "--client-rate 1000", code: 1, says: "such as 1000/s,1mb/s"},
		{args: "--user-rate 100b/s", code: 1, says: `--user-rate "100b/s": must be requests`},
		{args: "--allow-from 10.0.0.0/33", code: 1,
			says: `--allow-from "10.0.0.0/33": "10.0.0.0/33" is no network such as`},
		{args: "check-config --http-allow-from 10.0.0.1/8", code: 1, says: "is 10.0.0.0/8"},
		{args: "--timeout 60", code: 1, says: "must be a duration such as"},
		{args: "--slowlog-max-len -1", code: 1,
			says: `--slowlog-max-len "-1": must be between 0 and`},
		{args: "--latency-tracking perhaps", code: 1, says: "must be 'yes' or 'no'"},
		{args: "--max-clients 0", code: 1, says: "must be an integer, 1 or more"},
		{args: "--client-output-buffer-limit pubsub", code: 1, says: "class hard soft seconds"},
		{args: "--protected-mode off", code: 1, says: "must be one of yes, no"},
		{args: "--log-store tape", code: 1, says: "must be one of wal, bolt"},
		{args: "--max-request-bytes 99999999999", code: 1, says: "--max-request-bytes"},
		{args: "", env: map[string]string{"COORDD_LISTEN": "nowhere"}, code: 1,
			says: `COORDD_LISTEN "nowhere"`},
		{args: "dev --port x", code: 1, says: "--port x"},
		{args: "dev --port 65535", code: 1, says: "from 0 to 65533"},
		{args: "dev stray", code: 2, says: "unexpected argument"},
		{args: "bakup --from 127.0.0.1:1", code: 2,
			says: "(did you mean backup?); see coordd --help"},
		{args: "help bakup", code: 2, says: "(did you mean backup?)"},
		{args: "man bakup", code: 2, says: "(did you mean backup?)"},
		{args: "--id", code: 2, says: "flag needs an argument: -id; see coordd --help"},
		{args: "version --json=maybe", code: 2,
			says: `invalid boolean value "maybe" for -json: parse error; see coordd version --help`},
		{args: "certs --days x dir", code: 2,
			says: `invalid value "x" for flag -days: parse error; see coordd certs --help`},
		{args: "certs --days 99999999999999999999 dir", code: 2,
			says: `for flag -days: value out of range`},
		{args: "backup verify", code: 2, says: "coordd backup verify requires FILE"},
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), strings.Fields(c.args), func(k string) string {
			return c.env[k]
		}, &out, &errs)
		if code != c.code || !strings.Contains(errs.String(), c.says) ||
			strings.Count(errs.String(), "\n") != 1 || strings.Contains(errs.String(), "secret") {
			t.Errorf("coordd %s %v: exit %d, %q; want %d and one line with %q", c.args, c.env, code,
				errs.String(), c.code, c.says)
		}
	}
}

func TestEnvironmentAndFlags(t *testing.T) {
	env := map[string]string{"COORDD_ID": "n2", "COORDD_LISTEN": "127.0.0.1:7000",
		"COORDD_CLUSTER": "n1=a:1,n2=b:2"}
	args := []string{"--listen", "127.0.0.1:7001", "--insecure-peers"}
	c, err := parseConfig(args, func(k string) string { return env[k] })
	if err != nil {
		t.Fatal(err)
	}
	if c.ID != "n2" || c.Listen != "127.0.0.1:7001" || c.Advertise != c.Listen ||
		c.PeerListen != "b:2" || len(c.Members) != 2 {
		t.Errorf("%+v", c)
	}
}

// --present-as had another name and other values in release 0.1.
func TestFormerNamesOfOptions(t *testing.T) {
	file := func(text string) map[string]string {
		return map[string]string{"COORDD_CONFIG": writeConfig(t, text)}
	}
	for _, test := range []struct {
		args string
		env  map[string]string
		want server.Presentation
	}{
		{"", nil, server.PresentReplicated},
		{"--redirect forward", nil, server.PresentReplicated},
		{"--redirect none", nil, server.PresentStandalone},
		{"--redirect=moved", nil, server.PresentCluster},
		{"", map[string]string{"COORDD_REDIRECT": "none"}, server.PresentStandalone},
		{"", map[string]string{"COORDD_REDIRECT": "none", "COORDD_PRESENT_AS": "cluster"},
			server.PresentCluster},
		{"", file("redirect none\n"), server.PresentStandalone},
		{"", file("present-as cluster\n"), server.PresentCluster},
		{"--present-as standalone", file("redirect moved\n"), server.PresentStandalone},
	} {
		c, err := parseConfig(strings.Fields(test.args), func(k string) string {
			return test.env[k]
		})
		if err != nil || c.PresentAs != test.want {
			t.Errorf("%s, %v: %q, %v, want %q", test.args, test.env, c.PresentAs, err, test.want)
		}
	}
	_, err := parseConfig(nil, func(k string) string {
		return file("redirect none\npresent-as cluster\n")[k]
	})
	if err == nil || !strings.HasSuffix(err.Error(), ":2: present-as is on line 1 already") {
		t.Error(err)
	}
}

func TestRedisVersion(t *testing.T) {
	for args, want := range map[string]string{
		"": commands.WholeVersion, "--redis-version 8.0.2": "8.0.2",
	} {
		c, err := parseConfig(strings.Fields(args), noEnv)
		if err != nil || c.RedisVersion != want {
			t.Errorf("%q: %q, %v, want %q", args, c.RedisVersion, err, want)
		}
	}
}

// The limits of clients have flags, environment variables and parameters of CONFIG, which agree.
func TestLimitsOfClients(t *testing.T) {
	limits := []struct {
		parameter, unset                    string
		flag, value, shows, set, shownAfter string
	}{
		{"maxclients", "10000", "max-clients", "321", "321", "123", "123"},
		{"timeout", "0", "timeout", "2m", "120", "300", "300"},
		{"tcp-keepalive", "60", "tcp-keepalive", "5m", "300", "0", "0"},
		{"maxmemory-clients", "10%", "maxmemory-clients", "64mb", "67108864", "20%", "20%"},
		{
			"client-output-buffer-limit",
			"normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
			"client-output-buffer-limit", "normal 1mb 1kb 5",
			"normal 1048576 1024 5 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
			"pubsub 0 0 0",
			"normal 1048576 1024 5 slave 268435456 67108864 60 pubsub 0 0 0",
		},
		{
			"client-output-buffer-limit",
			"normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
			"max-subscriber-bytes", "1048576",
			"normal 0 0 0 slave 268435456 67108864 60 pubsub 1048576 262144 60",
			"normal 9mb 0 0",
			"normal 9437184 0 0 slave 268435456 67108864 60 pubsub 1048576 262144 60",
		},
		{"coordd-client-rate", "0", "client-rate", "9000/s,9mb/s", "9000/s,9437184b/s", "7000/s",
			"7000/s"},
		{"coordd-user-rate", "0", "user-rate", "9000/s", "9000/s", "0", "0"},
		{"protected-mode", "yes", "protected-mode", "no", "no", "yes", "yes"},
		{"coordd-max-user-clients", "0", "max-user-clients", "50", "50", "7", "7"},
		{"coordd-allow-from", "", "allow-from", "10.0.0.0/8,fd00::7/128", "10.0.0.0/8,fd00::7",
			"10.1.0.0/16 192.0.2.7", "10.1.0.0/16,192.0.2.7"},
		{"coordd-http-allow-from", "", "http-allow-from", "10.0.0.0/8", "10.0.0.0/8", "", ""},
	}
	ask := func(args []string, env map[string]string, f func(*redis.Client)) {
		dir := t.TempDir()
		socket := filepath.Join(dir, "socket")
		ctx, cancel := context.WithCancel(context.Background())
		args = append(args, "--listen", "", "--unix-socket", socket, "--data-dir",
			filepath.Join(dir, "data"), "--log-level", "error")
		var out, errs wait.Buffer
		done := make(chan int, 1)
		go func() {
			done <- run(ctx, args, func(k string) string { return env[k] }, &out, &errs)
		}()
		c := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, MaxRetries: -1})
		wait.For(t, 20*time.Second, "the node", func() bool {
			return c.ConfigGet(ctx, "timeout").Err() == nil // not LOADING
		})
		f(c)
		_ = c.Close()
		cancel()
		if code := exitCode(t, done); code != 0 {
			t.Fatal(code, errs.String())
		}
	}
	get := func(c *redis.Client, parameter, want string) {
		t.Helper()
		if got := c.ConfigGet(t.Context(), parameter).Val()[parameter]; got != want {
			t.Errorf("%s is %q, not %q", parameter, got, want)
		}
	}
	ask(nil, nil, func(c *redis.Client) {
		for _, l := range limits {
			get(c, l.parameter, l.unset)
		}
	})
	for _, fromEnv := range []bool{false, true} {
		for first := 0; first < len(limits); {
			// those of one parameter need nodes of their own
			var args []string
			env := map[string]string{}
			end := first
			for seen := ""; end < len(limits) && limits[end].parameter != seen; end++ {
				l := limits[end]
				seen = l.parameter
				if fromEnv {
					env[option{name: l.flag}.env()] = l.value
				} else {
					args = append(args, "--"+l.flag, l.value)
				}
			}
			ask(args, env, func(c *redis.Client) {
				for _, l := range limits[first:end] {
					get(c, l.parameter, l.shows)
					if err := c.ConfigSet(t.Context(), l.parameter, l.set).Err(); err != nil {
						t.Error(err)
					}
					get(c, l.parameter, l.shownAfter)
				}
			})
			first = end
		}
	}
}

func TestAdvertisedAddresses(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--listen 127.0.0.1:7000", "127.0.0.1:7000"},
		{"--listen 0.0.0.0:7000", "127.0.0.1:7000"},
		{"--listen :7000 --advertise db1:7001", "db1:7001"},
		{"--listen 0.0.0.0:7000 --peer-listen 127.0.0.1:0 --peer-advertise db1:1", "db1:7000"},
		{"--listen 0.0.0.0:7000 --peer-listen 10.0.0.1:1", "10.0.0.1:7000"},
		{"--listen 10.0.0.1:7000,127.0.0.1:7001", "10.0.0.1:7000"},
		{"--listen [::]:7000 --cluster n1=db1:1,n2=db2:2", "db1:7000"},
	} {
		got, err := parseConfig(append(strings.Fields(c.args), "--insecure-peers"), noEnv)
		if err != nil || got.Advertise != c.want {
			t.Errorf("%s: %+v, %v; want %s", c.args, got, err, c.want)
		}
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(context.Background(), []string{"--help"}, noEnv, &out, &errs); code != 0 ||
		errs.Len() > 0 {
		t.Fatal(code, errs.String())
	}
	for _, o := range options {
		if !strings.Contains(out.String(), "--"+o.name) ||
			!strings.Contains(out.String(), o.env()) {
			t.Errorf("--help does not name --%s and %s", o.name, o.env())
		}
	}
	_, ofNode, _ := strings.Cut(out.String(), "\n"+nodeTitle+":\n")
	ofNode, live, _ := strings.Cut(ofNode, "\n"+liveTitle+":\n")
	for i, o := range options {
		group := ofNode
		if i >= len(startOptions) {
			group = live
		}
		if !strings.Contains(group, "\n      --"+o.name+" ") &&
			!strings.HasPrefix(group, "      --"+o.name+" ") {
			t.Errorf("--%s is in another group", o.name)
		}
	}
}

// Every subcommand describes the flags that its overview shows, each with a sentence.
func TestHelpOfSubcommands(t *testing.T) {
	for _, cmd := range commandsWithFlags(newRoot(console{})) {
		path := strings.Fields(cmd.CommandPath())[1:]
		help := printed(t, append(path, "--help")...)
		if !strings.Contains(help, cmp.Or(cmd.Long, cmd.Short)) || cmd.HasParent() &&
			cmd.Short == "" {
			t.Errorf("%s --help does not say what it does: %s", cmd.CommandPath(), help)
		}
		if help != printed(t, append([]string{"help"}, path...)...) {
			t.Errorf("coordd help says something else of %s", cmd.CommandPath())
		}
		if cmd.Name() == "help" {
			continue
		}
		for _, word := range strings.FieldsFunc(cmd.Use, func(r rune) bool {
			return strings.ContainsRune(" |[]", r)
		}) {
			if strings.HasPrefix(word, "--") && cmd.Flag(word[2:]) == nil {
				t.Errorf("%s has no flag %s", cmd.CommandPath(), word)
			}
		}
		_, flags, _ := strings.Cut(help, "\nFlags")
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			described := regexp.MustCompile("\n {2,}(?:-h, )?--" + f.Name +
				"(?: [a-z]+)?\\s+[^\\s-][^\n]*[a-z]")
			if !described.MatchString(flags) {
				t.Errorf("%s --help does not describe --%s", cmd.CommandPath(), f.Name)
			}
		})
	}
}

// A flag may begin with one dash or two, and a switch may stand alone or before yes or no.
func TestFormsOfFlags(t *testing.T) {
	for _, test := range []struct{ given, want string }{
		{"-id n1 -listen=:1", "--id n1 --listen=:1"},
		{"-id -listen", "--id -listen"}, // a value
		{"-h", "--help"}, {"--h", "--help"}, {"-help", "--help"},
		{"-http-tls -id n1", "--http-tls --id n1"},
		{"--http-tls no --id n1", "--http-tls=no --id n1"},
		{"-http-tls yes", "--http-tls=yes"},
		{"--http-tls perhaps", "--http-tls=perhaps"},
		{"restore --http-tls perhaps", "restore --http-tls perhaps"}, // a file
		{"restore --http-tls no file", "restore --http-tls=no file"},
		{"backup -force yes", "backup --force yes"}, // a file: it is no option of a node
		{"backup -to - -from a:1", "backup --to - --from a:1"},
		{"locks show -token 3 -key", "locks show --token 3 --key"},
		{"certs -- -dir -days", "certs -- -dir -days"},
		{"certs - -days 3", "certs - --days 3"},
		{"---x -=x -x", "---x --=x --x"},
		{"__complete -h", "__complete -h"},
		{"-redirect none", "--redirect none"},
		{"-id", "--id"}, {"-http-tls", "--http-tls"}, {"", ""},
	} {
		got := doubleDashes(newRoot(console{}), strings.Fields(test.given))
		if got == nil || strings.Join(got, " ") != test.want {
			t.Errorf("%q: %q, want %q", test.given, got, test.want)
		}
	}
}

// runOnce runs coordd with its context already over: it starts, and stops at once.
func runOnce(args ...string) (code int, stderr string) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	code = run(ctx, args, noEnv, &out, &errs)
	return code, errs.String()
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if code, errs := runOnce("--listen", "127.0.0.1:0", "--data-dir", data, "--log-level",
		"error"); code != 0 {
		t.Fatal(code, errs)
	}
	taken := ports.Listen(t)
	defer taken.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--listen", taken.Addr().String(), "--data-dir", filepath.Join(dir, "x")},
			"address already in use"},
		{[]string{"--listen", "127.0.0.1:0", "--http-listen", taken.Addr().String(), "--data-dir",
			filepath.Join(dir, "y")}, "address already in use"},
		{[]string{"--listen", "127.0.0.1:0", "--id", "other", "--data-dir", data}, "n1"},
		{[]string{"--listen", "127.0.0.1:0", "--data-dir", file}, "not a directory"},
	} {
		code, errs := runOnce(append(c.args, "--log-level", "error")...)
		if code != 1 || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit %d, %q; want 1 and one line with %q", c.args, code, errs, c.says)
		}
	}
}
