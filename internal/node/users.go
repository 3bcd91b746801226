// The users that a node gives its cluster by itself: the first ones, and the default user that an
// administrator who was locked out asks for.

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/server"
)

// resetName is the file in the data directory that asks for a default user with all rights. It
// holds the hash of the password.
const resetName = "reset-default-user"

// settlePause is the time between two looks at the state of the node.
const settlePause = 20 * time.Millisecond

// WriteReset asks the node of a data directory to give the default user all rights and a password,
// at its next start.
func WriteReset(dir string, password []byte) error {
	if _, err := os.Stat(filepath.Join(dir, "VERSION")); err != nil {
		return fmt.Errorf("%s is no data directory: %w", dir, err)
	}
	return os.WriteFile(filepath.Join(dir, resetName), []byte(acl.Hash(password)+"\n"), 0o600)
}

// settleUsers gives the cluster the users that this node was told to, as soon as it takes them.
func (n *Node) settleUsers(ctx context.Context) {
	file := filepath.Join(n.cfg.DataDir, resetName)
	hash, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.log.Error("the default user is not reset", "error", err)
	}
	hash = bytes.TrimSpace(hash)
	reset := len(hash) > 0
	for reset || n.cfg.FirstUsers != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(settlePause):
		}
		users := n.adapter.Users()
		if users.Level < commands.LevelUsers || !n.cluster.Status().Ready {
			continue
		}
		if users.Changed == 0 && n.cfg.FirstUsers != nil {
			n.propose(ctx, "first users", []byte(commands.SettingFirstUsers), n.cfg.FirstUsers)
			continue
		}
		if !reset {
			return
		}
		if n.propose(ctx, "default user", []byte(commands.SettingDefaultUser), []byte("reset"),
			[]byte("on"), append([]byte{'#'}, hash...), []byte("~*"), []byte("&*"),
			[]byte("+@all")) {
			if err := os.Remove(file); err != nil {
				n.log.Error("the default user will be reset at the next start again", "error", err)
			}
			n.log.Warn("the default user was reset: it has all rights and the given password")
			return
		}
	}
}

// awaitUsers notes that this node knows the users, once it has applied all that was committed when
// it first heard from a leader. It still knows them if it loses the leader later.
func (n *Node) awaitUsers(ctx context.Context) {
	for heard, target := false, uint64(0); ; {
		st := n.cluster.Status()
		if !heard && st.Ready && !st.Loading {
			heard, target = true, st.Applied+st.Behind
		}
		if heard && st.Applied >= target {
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

// propose puts a setting into the log and reports whether it took effect.
func (n *Node) propose(ctx context.Context, what string, words ...[]byte) bool {
	request := commands.Request{Proto: 2, Setting: true, Cmds: [][][]byte{words}}
	reply, err := backend{n}.Write(ctx, server.Workload{},
		commands.AppendRequest(nil, &request), 1)
	if err == nil && !bytes.HasPrefix(reply, []byte("-")) {
		return true
	}
	n.log.Warn("the cluster did not take the "+what+" yet", "error", err, "reply",
		string(bytes.TrimSpace(reply)))
	return false
}
