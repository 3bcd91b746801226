// What a node gives its cluster by itself: the first users, the first limit of the data, and the
// default user that an administrator who was locked out asks for.

package node

import (
	"bytes"
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
	"github.com/coordd/coordd/internal/files"
	"github.com/coordd/coordd/server"
)

// resetName is the file in the data directory that asks for a default user with all rights. It
// holds the hash of the password.
const resetName = "reset-default-user"

// maxReset bounds that file, in bytes.
const maxReset = 1 << 10

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
	return files.Replace(filepath.Join(dir, resetName), []byte(acl.Hash(password)+"\n"))
}

// settleUsers gives the cluster the users and the limit of the data that this node was told to, as
// soon as it takes them.
func (n *Node) settleUsers(ctx context.Context) {
	if n.cfg.FirstUsers != nil {
		err := n.settle(ctx, []byte(commands.SettingFirstUsers), n.cfg.FirstUsers)
		if err != nil { // nobody could log in
			n.failed <- fmt.Errorf("the cluster refused its first users: %w", err)
			return
		}
	}
	if n.cfg.FirstMaxMemory > 0 && ctx.Err() == nil {
		err := n.settle(ctx, []byte(commands.SettingFirstMaxMemory),
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

// resetDefaultUser does what WriteReset asked for.
func (n *Node) resetDefaultUser(ctx context.Context) {
	file := filepath.Join(n.cfg.DataDir, resetName)
	hash, err := files.Read(file, maxReset)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = n.settle(ctx, []byte(commands.SettingDefaultUser), []byte("reset"), []byte("on"),
			append([]byte{'#'}, bytes.TrimSpace(hash)...), []byte("~*"), []byte("&*"),
			[]byte("+@all"))
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
		if err := files.Remove(file); err != nil {
			n.log.Error("the default user will be reset at the next start again", "error", err)
		}
	}
}

// settingRequest encodes a change of a setting.
func settingRequest(words ...[]byte) []byte {
	return commands.AppendRequest(nil, &commands.Request{
		Proto: 2, Setting: true, Cmds: [][][]byte{words},
	})
}

// settle puts a setting into the log, as soon as the cluster has users. It tries until the setting
// took effect or ctx ends; the error is why the cluster refuses it.
func (n *Node) settle(ctx context.Context, words ...[]byte) error {
	request := settingRequest(words...)
	for pause := settlePause; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		if n.adapter.Users().Level < commands.LevelSecond || !n.cluster.Status().Ready {
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
