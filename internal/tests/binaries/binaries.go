package binaries

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// FirstRelease is the commit of release 0.1.
const FirstRelease = "bcf0274"

const coordd = "github.com/coordd/coordd/cmd/coordd"

// Each builds its binary once in a process and returns the path. Call Remove at the end.
var (
	// Coordd is coordd as it is.
	Coordd = sync.OnceValues(func() (string, error) { return Build(coordd) })
	// Tests is coordd whose wall clock a test moves, see cluster/clock/wall_tests.go.
	Tests = forTests()
	// Next is the simulated next release, see commands/level_tests.go.
	Next = forTests(next)
	// Small has small log files, see cluster/log_segment_tests.go.
	Small = forTests(small)
	// SmallNext is both.
	SmallNext = forTests(small, next)
	// First is release 0.1, from the history of the repository.
	First = sync.OnceValues(first)
)

var made struct {
	sync.Mutex
	dirs []string
}

// What the linker sets in the build for tests, so that all of its kinds are compiled once.
const (
	next  = " -X github.com/coordd/coordd/commands.next=yes"
	small = " -X github.com/coordd/coordd/cluster.small=yes"
)

func forTests(sets ...string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		return Build(coordd, "-tags", "coordd_tests", "-ldflags", strings.Join(sets, ""))
	})
}

// Go returns the command go with arguments. It compiles on all processors, also where the tests
// have one.
func Go(args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "GOMAXPROCS=")
	})
	return cmd
}

// Build builds a package as the binary coordd, with flags of go build, and returns its path.
func Build(pkg string, flags ...string) (string, error) {
	dir, err := directory()
	if err != nil {
		return "", err
	}
	return buildIn(dir, ".", pkg, flags...)
}

// buildIn builds a package of the module at from in a directory. It begins with what an earlier
// process built, if that was kept: go build links nothing if it is up to date.
func buildIn(dir, from, pkg string, flags ...string) (string, error) {
	path := filepath.Join(dir, "coordd")
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", pkg, flags))
	kept, _ := os.UserCacheDir()
	kept = filepath.Join(kept, "coordd-tests", hex.EncodeToString(sum[:8]))
	_ = share(kept, path)
	cmd := Go(append(append([]string{"build"}, flags...), "-o", path, pkg)...)
	cmd.Dir = from
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	// go build replaces a file and never writes into one, so whoever runs kept is not disturbed. If
	// the binary cannot be kept, the next process links it again.
	_ = os.MkdirAll(filepath.Dir(kept), 0o700)
	next := fmt.Sprintf("%s.%d", kept, os.Getpid())
	if share(path, next) == nil {
		_ = os.Rename(next, kept)
	}
	return path, nil
}

// share makes a file that has what another has, which may be on another disk.
func share(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	binary, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, binary, 0o755)
}

// directory makes one that Remove removes.
func directory() (string, error) {
	dir, err := os.MkdirTemp("", "coordd-test-")
	if err != nil {
		return "", err
	}
	made.Lock()
	defer made.Unlock()
	made.dirs = append(made.dirs, dir)
	return dir, nil
}

// Remove removes all binaries.
func Remove() {
	made.Lock()
	defer made.Unlock()
	for _, dir := range made.dirs {
		_ = os.RemoveAll(dir)
	}
}

// MissingFirst returns why First cannot be built here; "" if it can.
func MissingFirst() string {
	if exec.Command("git", "-C", root, "cat-file", "-e", FirstRelease+"^{commit}").Run() != nil {
		return "SKIPPED: the commit " + FirstRelease + " of release 0.1 not found"
	}
	return ""
}

// root is the repository, seen from a package of tests.
const root = "../../.."

func first() (string, error) {
	dir, err := directory()
	if err != nil {
		return "", err
	}
	archive := filepath.Join(dir, "sources.tar")
	for _, cmd := range []*exec.Cmd{
		exec.Command("git", "-C", root, "archive", "-o", archive, FirstRelease),
		exec.Command("tar", "-x", "-f", archive, "-C", dir),
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w\n%s", cmd, err, out)
		}
	}
	return buildIn(dir, dir, "./cmd/coordd", "-trimpath") // so that the next run finds it compiled
}
