// Settings that all nodes share: set on one, they apply on all, are part of snapshots and survive
// restarts.

package server

import (
	"context"
	"strings"
	"time"

	"github.com/coordd/coordd/commands"
)

// settingNotify selects the keyspace notifications that are sent.
const settingNotify = "notify-keyspace-events"

// ownDelay is how long CONFIG SET of a shared setting waits for this node, which may be behind the
// leader.
const ownDelay = time.Second

// checkNotify validates the flags of keyspace notifications.
func checkNotify(text string) error {
	_, err := commands.ParseNotifyFlags(text)
	return err
}

// setNotify puts the flags of keyspace notifications in the log. The error becomes part of CONFIG
// SET's own.
func (s *Server) setNotify(text string) error {
	want, err := commands.ParseNotifyFlags(text)
	if err != nil {
		return err
	}
	request := commands.Request{Proto: 2, Setting: true,
		Cmds: [][][]byte{{[]byte(settingNotify), []byte(text)}}}
	reply, err := s.backend.Write(context.Background(), Workload{},
		commands.AppendRequest(nil, &request), 1)
	if err != nil {
		return err
	}
	if reply[0] == '-' {
		return commands.Error(strings.TrimSpace(string(reply[1:])))
	}
	for start := time.Now(); s.backend.Stats().Notify != want && time.Since(start) < ownDelay; {
		time.Sleep(time.Millisecond)
	}
	return nil
}

// notifyText returns the setting on this node.
func notifyText(s *Server) string { return s.backend.Stats().Notify.String() }
