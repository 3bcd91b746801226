package ports

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Two processes that ask at the same time never get the same port, nor one that is listened on.
func TestFree(t *testing.T) {
	const child, from, half = "COORDD_TEST_PORTS_CHILD", last, 40
	if os.Getenv(child) != "" {
		free, err := among(from, from+100, half)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("ports", strings.Trim(fmt.Sprint(free), "[]"))
		_, _ = os.Stdin.Read(make([]byte, 1)) // keeps them until the parent has asked
		return
	}
	var busy net.Listener
	for port := from; port < from+10 && busy == nil; port++ {
		busy, _ = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	}
	if busy == nil {
		t.Fatal("ten ports are in use")
	}
	defer busy.Close()
	_, listened, _ := net.SplitHostPort(busy.Addr().String())
	cmd := exec.Command(os.Args[0], "-test.run", "^TestFree$")
	cmd.Env = append(os.Environ(), child+"=1")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	var theirs []string
	for b, line := make([]byte, 1<<16), ""; !strings.Contains(line, "\n"); {
		n, err := out.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		line += string(b[:n])
		theirs = strings.Fields(line)
	}
	if len(theirs) != half+1 {
		t.Fatalf("the other process got %d", len(theirs)-1)
	}
	taken := map[string]bool{listened: true}
	for _, p := range theirs[1:] {
		if taken[p] {
			t.Errorf("%s was given away, and somebody listens on it", p)
		}
		taken[p] = true
	}
	ours, err := among(from, from+100, half)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ours {
		if taken[strconv.Itoa(p)] {
			t.Fatalf("%d was given away twice", p)
		}
		taken[strconv.Itoa(p)] = true
	}
	if _, err := among(from, from+100, half); err != errNone {
		t.Error(err)
	}
	unlocked := syscall.Flock_t{Type: syscall.F_UNLCK, Start: from, Len: 100} // for -count
	if err := syscall.FcntlFlock(lock.file.Fd(), syscall.F_SETLK, &unlocked); err != nil {
		t.Error(err)
	}
	clear(lock.given)
}
