// Ids that are made together with a data directory, for nodes whose disks come and go.

package cluster

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coordd/coordd/internal/files"
)

// An automatic id is the first label of a host name, a dot, and random characters, in which no word
// can occur: coordd-0.k7x2qd. A certificate that names coordd-0 names such nodes too.
const (
	autoChars  = "bcdfghjklmnpqrstvwxz2456789"
	autoRandom = 6
	autoHost   = 40 // characters of the host name at most
)

// AutoID returns the id of the node whose data directory dir is, or a new one for a directory
// without a node. host begins the new one.
func AutoID(dir, host string) (string, error) {
	v, err := readVersion(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return v.node, err
	}
	host, _, _ = strings.Cut(host, ".")
	host = host[:min(len(host), autoHost)]
	if CheckID(host) != nil {
		host = "node"
	}
	b := make([]byte, autoRandom)
	_, _ = rand.Read(b) // never fails
	for i := range b {
		b[i] = autoChars[int(b[i])%len(autoChars)]
	}
	return host + "." + string(b), nil
}

// autoBase returns what an automatic id begins with, empty for another id.
func autoBase(id string) string {
	i := len(id) - autoRandom - 1
	if i < 1 || id[i] != '.' || strings.Trim(id[i+1:], autoChars) != "" {
		return ""
	}
	return id[:i]
}

// setAsidePrefix begins the name of the subdirectory with the files of a removed node.
const setAsidePrefix = "removed-"

// SetAsideRemoved moves the files of a node that was removed from its cluster into a subdirectory,
// which it returns, and deletes an earlier one: the node's id never returns, and the directory can
// be that of another node. It returns the empty string if the node was not removed. An interrupted
// call is finished by the next one.
func SetAsideRemoved(dir string) (kept string, err error) {
	if _, err := readVersion(dir); missing(err) { // nothing is created there
		return "", nil
	} else if err != nil {
		return "", err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	v, err := readVersion(dir) // again: who had the lock may have set the node aside
	if missing(err) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	kept = filepath.Join(dir, setAsidePrefix+v.node)
	_, err = os.Stat(kept)
	if begun := err == nil; !begun {
		removed, err := wasRemoved(dir, v)
		if err != nil || !removed {
			return "", err
		}
	}
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("cannot set aside the files of the removed node %s in data "+
			"directory %s: %w", v.node, dir, err)
	}
	if err := removeLeft(dir); err != nil {
		return fail(err)
	}
	earlier, err := entriesOf(dir, setAsidePrefix, "")
	if err != nil {
		return fail(err)
	}
	for _, old := range earlier {
		if old != kept {
			if err := os.RemoveAll(old); err != nil {
				return fail(err)
			}
		}
	}
	if err := makeDir(kept); err != nil {
		return fail(err)
	}
	// The version file comes last: until then the next start finds the node, and goes on here.
	for _, name := range slices.Backward(append([]string{versionName}, storeNames...)) {
		err := os.Rename(filepath.Join(dir, name), filepath.Join(kept, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fail(err)
		}
		if err := errors.Join(files.SyncDir(kept), files.SyncDir(dir)); err != nil {
			return fail(err)
		}
	}
	return kept, nil
}

// wasRemoved reports whether the stable store notes that the node was removed from its cluster. The
// caller has the lock of the directory.
func wasRemoved(dir string, v dirVersion) (bool, error) {
	_, err1 := os.Stat(filepath.Join(dir, promisesName))
	_, err2 := os.Stat(filepath.Join(dir, stableName))
	if missing(err1) && missing(err2) {
		return false, nil
	}
	s, err := openPromisesOf(dir, v)
	if err != nil {
		return false, err
	}
	return s.wasRemoved(), s.close()
}
