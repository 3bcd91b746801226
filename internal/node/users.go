// What a node gives its cluster by itself: the first users, the first limit of the data, and the
// default user that an administrator who was locked out asks for.

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/files"
	"github.com/coordd/coordd/server"
)

// resetName is the file in the data directory that asks for a default user with all rights. It
// holds the hash of the password, when that was asked for, seconds since 1970, and, from the first
// attempt on, the revision of the newest change of users that the node knew.
const resetName = "reset-default-user"

// maxReset bounds that file, in bytes.
const maxReset = 1 << 10

// resetAge is how old the request may be: a node that comes back later brings no old password back.
const resetAge = time.Hour

// Pauses between two looks at the state of the node, and two attempts to change the users.
const (
	settlePause    = 20 * time.Millisecond
	maxSettlePause = 5 * time.Second
)

// WriteReset asks the node of a data directory to give the default user all rights and a password,
// at its next start.
func WriteReset(dir string, password []byte) error {
	if _, err := os.Stat(filepath.Join(dir, "VERSION")); err != nil {
		return fmt.Errorf("%s is no data directory: %w", dir, err)
	}
	return resetRequest{hash: acl.Hash(password), at: time.Now()}.write(dir)
}

// settleUsers gives the cluster the users and the limit of the data that this node was told to, as
// soon as it takes them.
func (n *Node) settleUsers(ctx context.Context) {
	if n.cfg.FirstUsers != nil {
		err := n.ensureSetting(ctx, []byte(commands.SettingFirstUsers), n.cfg.FirstUsers)
		if err != nil { // nobody could log in
			n.failed <- fmt.Errorf("the cluster refused its first users: %w", err)
			return
		}
	}
	if n.cfg.FirstMaxMemory > 0 && ctx.Err() == nil {
		err := n.ensureSetting(ctx, []byte(commands.SettingFirstMaxMemory),
			strconv.AppendInt(nil, n.cfg.FirstMaxMemory, 10))
		switch {
		case err != nil:
			n.log.Error("the cluster refused the limit of --maxmemory", "error", err)
		case n.cluster.Barrier(ctx) == nil:
			if limit := n.adapter.Stats().MaxMemory; limit != n.cfg.FirstMaxMemory {
				n.log.Warn("--maxmemory changes nothing: the cluster has a limit already",
					"maxmemory", n.cfg.FirstMaxMemory, "limit", limit)
			}
		}
	}
	if ctx.Err() == nil {
		n.resetDefaultUser(ctx)
	}
}

// resetRequest is what that file says.
type resetRequest struct {
	hash  string
	at    time.Time
	begun bool              // changed is set: it may have been done
	since keyspace.Revision // the newest change of users then
}

func (r resetRequest) write(dir string) error {
	text := fmt.Sprintf("%s\n%d\n", r.hash, r.at.Unix())
	if r.begun {
		text += fmt.Sprintln(uint64(r.since))
	}
	return files.Replace(filepath.Join(dir, resetName), []byte(text))
}

// readReset reads the request in a data directory.
func readReset(dir string) (r resetRequest, err error) {
	text, err := files.Read(filepath.Join(dir, resetName), maxReset)
	if err != nil {
		return r, err
	}
	var at int64
	var since uint64
	n, _ := fmt.Sscanf(string(text), "%64s\n%d\n%d\n", &r.hash, &at, &since)
	if n < 2 {
		return r, errors.New("the file " + resetName + " is damaged")
	}
	r.at, r.begun, r.since = time.Unix(at, 0), n == 3, keyspace.Revision(since)
	return r, nil
}

// resetDefaultUser does what WriteReset asked for, unless too much time has passed, or users were
// changed since the first attempt, which may have been this request itself.
func (n *Node) resetDefaultUser(ctx context.Context) {
	r, err := readReset(n.cfg.DataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	judged := false // as too late: no start is to try again
	if err == nil {
		judged, err = n.applyReset(ctx, r)
		if ctx.Err() != nil { // the next start does it
			return
		}
		n.auditOwn(err, resetName)
	}
	switch {
	case err != nil:
		n.log.Error("the default user is not reset", "error", err)
	default:
		n.log.Warn("the default user was reset: it has all rights and the given password")
	}
	if err == nil || judged {
		if err := files.Remove(filepath.Join(n.cfg.DataDir, resetName)); err != nil {
			n.log.Error("the request to reset the default user stays", "error", err)
		}
	}
}

// applyReset does what a request asks for, once the cluster has users. tooLate: it must not be
// done any more.
func (n *Node) applyReset(ctx context.Context, r resetRequest) (tooLate bool, err error) {
	for pause := settlePause; !n.takesSettings() || n.cluster.Barrier(ctx) != nil; {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, maxSettlePause)
	}
	if age := time.Since(r.at).Round(time.Second); age.Abs() > resetAge {
		return true, fmt.Errorf("the request is %v old, and may be at most %v: run coordd "+
			"reset-default-user again", age, resetAge)
	}
	if !r.begun {
		r.begun, r.since = true, n.adapter.Users().Changed
		if err := r.write(n.cfg.DataDir); err != nil {
			return false, err
		}
	}
	err = n.ensureSetting(ctx, []byte(commands.SettingDefaultUser),
		strconv.AppendUint(nil, uint64(r.since), 10), []byte("reset"), []byte("on"),
		[]byte("#"+r.hash), []byte("~*"), []byte("&*"), []byte("+@all"))
	if err != nil && err.Error() == commands.ErrUsersChanged.Error() {
		return true, errors.New("users were changed since the node began to, perhaps by that: if " +
			"the new password is refused, run coordd reset-default-user again")
	}
	return false, err
}

// takesSettings reports whether the cluster has users, and this node a leader.
func (n *Node) takesSettings() bool {
	return n.adapter.Users().Level >= commands.LevelSecond && n.cluster.Status().Ready
}

// settingRequest encodes a change of a setting.
func settingRequest(words ...[]byte) []byte {
	return commands.AppendRequest(nil, &commands.Request{
		Proto: 2, System: true, Cmds: [][][]byte{words},
	})
}

// ensureSetting puts a setting into the log, as soon as the cluster has users. It tries until the
// setting took effect or ctx ends; the error is why the cluster refuses it.
func (n *Node) ensureSetting(ctx context.Context, words ...[]byte) error {
	request := settingRequest(words...)
	for pause := settlePause; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		if !n.takesSettings() {
			continue
		}
		replies, err := backend{n}.Write(ctx, server.Workload{}, request, 1)
		var fault *server.Error
		switch {
		case err == nil:
			a, _ := replies.Next()
			return a.Err()
		case errors.As(err, &fault) && fault.Outcome == server.Refused:
			return err
		}
		n.log.Warn("the cluster did not take a setting of this node yet", "setting",
			string(words[0]), "error", err)
		pause = min(2*pause, maxSettlePause)
	}
}

// awaitUsers notes that this node knows the users and the feature level, once it has applied all
// that was acknowledged when it first heard from a leader that serves. It still knows them if it
// loses the leader later.
func (n *Node) awaitUsers(ctx context.Context) {
	for {
		st := n.cluster.Status()
		if st.Ready && !st.Loading && n.cluster.Barrier(ctx) == nil {
			n.usersKnown.Store(true)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(settlePause):
		}
	}
}
