package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
)

// A subcommand takes its password from a file or from the environment, and from nowhere else.
func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, two := file("good", "s3cret\n"), file("two", "a\nb\n")
	for _, c := range []struct {
		name, from     string
		args           []string
		env            string
		user, password string
		err            string
	}{
		{name: "none", from: "h:1"},
		{name: "a file", from: "h:1", args: []string{"--from-password-file", good},
			password: "s3cret"},
		{name: "the environment", from: "redis://ops@h:1", env: "pw", user: "ops", password: "pw"},
		{name: "a file goes before the environment", from: "h:1", env: "pw",
			args: []string{"--from-user", "ops", "--from-password-file", good}, user: "ops",
			password: "s3cret"},
		{name: "in the URL", from: "redis://ops:pw@h:1", err: "--from-password-file or COORDD"},
		{name: "no password", from: "redis://ops@h:1", err: "a user needs a password"},
		{name: "no file", from: "h:1", args: []string{"--from-password-file", dir + "/none"},
			err: "no such file"},
		{name: "an empty file", from: "h:1", args: []string{"--from-password-file",
			file("empty", "\n")}, err: "is empty"},
		{name: "two lines", from: "h:1", args: []string{"--from-password-file", two},
			err: "more than one line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
			as := addCredentials(fs, "from-user", "from-password-file", "COORDD_FROM_PASSWORD")
			if err := fs.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			o, err := parseServer(c.from)
			if err != nil {
				t.Fatal(err)
			}
			err = as.complete(o, func(name string) string {
				if name == "COORDD_FROM_PASSWORD" {
					return c.env
				}
				return ""
			})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) ||
					strings.Contains(err.Error(), "s3cret") {
					t.Errorf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if want := (redis.Options{Username: c.user, Password: c.password}); err != nil ||
				o.Username != want.Username || o.Password != want.Password {
				t.Errorf("user %q, password %q, error %v", o.Username, o.Password, err)
			}
		})
	}
}

// A node that joins has its password from a file or the environment.
func TestJoinPassword(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pw")
	if err := os.WriteFile(file, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--join", "h:1", "--peer-listen", "127.0.0.1:2", "--join-user", "ops"}
	for _, c := range []struct {
		args     []string
		env      string
		password string
	}{{args, "", ""}, {args, "pw", "pw"},
		{append(args, "--join-password-file", file), "pw", "s3cret"}} {
		cfg, err := parseConfig(c.args, func(name string) string {
			if name == "COORDD_JOIN_PASSWORD" {
				return c.env
			}
			return ""
		})
		if err != nil || cfg.JoinUser != "ops" || cfg.JoinPassword != c.password {
			t.Errorf("%v: %+v, %v", c.args, cfg, err)
		}
	}
}

// A password that somebody wrote into the name of a bucket is not quoted.
func TestShownStore(t *testing.T) {
	for target, want := range map[string]string{
		"s3://key:secret@bucket/x": "s3://…", "s3://bucket/x": "s3://bucket/x",
		"/backups/me@home": "/backups/me@home",
	} {
		if got := shownStore(target); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	code, errs := runOnce("restore", "s3://key:secret@bucket/x", "--data-dir", t.TempDir())
	if code != 1 || strings.Contains(errs, "secret") {
		t.Error(code, errs)
	}
}
