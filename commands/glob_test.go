package commands

// Tests of the pattern matcher: chosen cases, and random ones against the real server.

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "anything", true}, {"h?llo", "hello", true}, {"h?llo", "hllo", false},
		{"h[ae]llo", "hallo", true}, {"h[ae]llo", "hillo", false}, {"h[^e]llo", "hallo", true}, {"h[^e]llo", "hello", false},
		{"h[a-c]llo", "hbllo", true}, {"h[c-a]llo", "hbllo", true}, {`h\?llo`, "h?llo", true}, {`h\?llo`, "hello", false},
		{"a*b*c", "aXbYc", true}, {"a*b*c", "aXcYb", false}, {"[", "a", false}, {"[ab", "b", true}, {`a\`, `a\`, true}, {"", "", true}, {"", "a", false},
		{"a*", "a", true}, {"a**", "a", true}, {"[^]", "x", true}, {`[\]]`, "]", true}, {"*[0-9]", "lock:7", true},
	} {
		if got := Glob([]byte(c.pattern), []byte(c.s)); got != c.want {
			t.Errorf("Glob(%q, %q) = %v", c.pattern, c.s, got)
		}
	}
}

func TestGlobBombIsBounded(t *testing.T) {
	pattern := []byte(strings.Repeat("a*", 200) + "b")
	s := []byte(strings.Repeat("a", 5000))
	start := time.Now()
	if Glob(pattern, s) {
		t.Fatal("a bomb matched")
	}
	if d := time.Since(start); d > 2*time.Second {
		t.Fatalf("took %v", d)
	}
}

// TestGlobAsRedis asks a real server for KEYS with random patterns over random keys made of the bytes that matter.
func TestGlobAsRedis(t *testing.T) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("SKIPPED: redis-server not found")
	}
	socket := filepath.Join(t.TempDir(), "r.sock")
	cmd := exec.Command(path, "--port", "0", "--unixsocket", socket, "--save", "", "--daemonize", "no")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var conn net.Conn
	for deadline := time.Now().Add(10 * time.Second); conn == nil; {
		if conn, err = net.Dial("unix", socket); err != nil && time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	defer conn.Close()
	rd := bufio.NewReader(conn)
	call := func(args ...string) {
		fmt.Fprintf(conn, "*%d\r\n", len(args))
		for _, a := range args {
			fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(a), a)
		}
	}
	line := func() string {
		s, err := rd.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimRight(s, "\r\n")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	text := func(alphabet string, n int) string {
		b := make([]byte, rnd.IntN(n))
		for i := range b {
			b[i] = alphabet[rnd.IntN(len(alphabet))]
		}
		return string(b)
	}
	keys := map[string]bool{}
	for range 400 {
		k := text(`abc]\-^[*`, 7)
		keys[k] = true
		call("SET", k, "1")
		line()
	}
	for range 3000 {
		pattern := text(`abc**?[[]]^-\`, 9)
		if pattern == "*" {
			continue // all keys, without a match
		}
		call("KEYS", pattern)
		n, _ := strconv.Atoi(line()[1:])
		want := map[string]bool{}
		for range n {
			line()
			want[line()] = true
		}
		for k := range keys {
			if Glob([]byte(pattern), []byte(k)) != want[k] {
				t.Fatalf("Glob(%q, %q) = %v, Redis differs", pattern, k, !want[k])
			}
		}
	}
}
