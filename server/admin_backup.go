// RAFT BACKUP: streams the whole state to a client as one reply, without holding that reply in
// memory.

package server

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/coordd/coordd/commands"
)

// backupStall is how long a client may read nothing of a backup before it is disconnected: a
// backup in progress keeps a second copy of everything that changes.
const backupStall = time.Minute

const errNoReply commands.Error = "ERR RAFT BACKUP needs a connection without CLIENT REPLY OFF"

// errBackupRuns limits a node to one backup: each keeps a copy of the state alive while its client
// reads.
const errBackupRuns commands.Error = "TRYAGAIN the command did not run: this node is already " +
	"sending a backup"

// backup sends the state in place of a reply.
func backup(s *session, _ *commands.Spec, _ [][]byte) {
	if s.silent() {
		s.fail(errNoReply)
		return
	}
	ctx, cancel := context.WithTimeout(s.srv.ctx, backupStall)
	err := s.srv.backend.Barrier(ctx) // a client may go meanwhile: it keeps no backup from others
	cancel()
	if err != nil {
		s.fail(err)
		return
	}
	if !s.srv.backingUp.CompareAndSwap(false, true) {
		s.fail(errBackupRuns)
		return
	}
	defer s.srv.backingUp.Store(false)
	state := s.srv.backend.Backup()
	size := state.Size()
	// Earlier replies and messages come first, and must be read as soon.
	if s.allowStall() != nil || s.send() != nil {
		s.quit = true
		return
	}
	began := time.Now()
	err = s.out.direct(func(w io.Writer) error {
		to := &steadyWriter{s, w}
		if _, err := to.Write([]byte("$" + formatInt(size) + "\r\n")); err != nil {
			return err
		}
		if n, err := state.WriteTo(to); err != nil || n != size {
			return errors.Join(err, io.ErrShortWrite)
		}
		_, err := to.Write([]byte("\r\n"))
		return errors.Join(err, s.conn.SetWriteDeadline(time.Time{}))
	})
	if err != nil {
		s.srv.warnings.Warn("backup failed", "client", s.addr, "error", err)
		s.quit = true // nothing may follow an incomplete reply
		return
	}
	s.srv.stats.backupAt.Store(time.Now().Unix())
	s.srv.stats.backupBytes.Store(size)
	s.srv.log.Info("backup sent", "client", s.addr, "bytes", size, "took", time.Since(began))
}

// steadyWriter writes to a client that must read something within every backupStall.
type steadyWriter struct {
	s *session
	w io.Writer
}

func (t *steadyWriter) Write(p []byte) (written int, err error) {
	for written < len(p) && err == nil {
		var n int
		n, err = t.step(p[written:min(len(p), written+steadyBytes)])
		written += n
	}
	return written, err
}

// allowStall ends the connection if the client reads nothing for backupStall.
func (s *session) allowStall() error {
	err := s.conn.SetWriteDeadline(time.Now().Add(backupStall))
	if s.killed.Load() { // checked after setting the deadline, which kill sets too
		err = errKilled
	}
	return err
}

func (t *steadyWriter) step(p []byte) (int, error) {
	if err := t.s.allowStall(); err != nil {
		return 0, err
	}
	n, err := t.w.Write(p)
	t.s.srv.stats.bytesOut.Add(uint64(n))
	return n, err
}
