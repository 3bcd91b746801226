// The adapter that makes hashicorp's libraries log through slog, quietly.

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// expected lists the warnings and errors of hashicorp/raft that are normal in a cluster whose
// members come and go. What matters about them (leader, members, reachability) this package logs
// itself, once.
var expected = map[string]bool{
	"failed to heartbeat to":                                     true,
	"failed to appendEntries to":                                 true,
	"failed to pipeline appendEntries":                           true,
	"failed to start pipeline replication to":                    true,
	"failed to contact":                                          true,
	"failed to contact quorum of nodes, stepping down":           true,
	"failed to make requestVote RPC":                             true,
	"failed to decode incoming command":                          true,
	"failed to flush response":                                   true,
	"failed to accept connection":                                true,
	"heartbeat timeout reached, starting election":               true,
	"Election timeout reached, restarting election":              true,
	"no known peers, aborting election":                          true,
	"appendEntries rejected, sending older logs":                 true,
	"rejecting vote request since we have a leader":              true,
	"rejecting pre-vote request since we have a leader":          true,
	"rejecting vote request since our last index is greater":     true,
	"rejecting vote request since our last term is greater":      true,
	"rejecting pre-vote request since our last index is greater": true,
	"rejecting pre-vote request since our last term is greater":  true,
	"failed to append to logs":                                   true,
	"failed to commit logs":                                      true,
	"failed to get log":                                          true,
	"failed to get previous log":                                 true,
	"previous log term mis-match":                                true,
	"clearing log suffix":                                        true,
	"peer has newer term, stopping replication":                  true,
	"new leader elected, stepping down":                          true,
	"duplicate requestVote from":                                 true,
	"skipping application of old log":                            true,
	"unable to get address for server, using fallback address":   true,
}

// raftLogger implements hclog.Logger. Info and below, and expected messages, become debug lines.
type raftLogger struct {
	out     *slog.Logger
	implied []any
	name    string
}

func newRaftLogger(out *slog.Logger) hclog.Logger {
	return &raftLogger{out: out}
}

func (l *raftLogger) Log(level hclog.Level, msg string, args ...any) {
	at := slog.LevelDebug
	if !expected[msg] && !aboutStopping(args) {
		switch level {
		case hclog.Warn:
			at = slog.LevelWarn
		case hclog.Error:
			at = slog.LevelError
		}
	}
	if !l.out.Enabled(context.Background(), at) {
		return
	}
	attrs := make([]any, 0, len(args)+len(l.implied))
	for _, a := range append(l.implied[:len(l.implied):len(l.implied)], args...) {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			if layout, ok := f[0].(string); ok {
				a = fmt.Sprintf(layout, f[1:]...)
			}
		}
		attrs = append(attrs, a)
	}
	l.out.Log(context.Background(), at, "raft: "+msg, attrs...)
}

// aboutStopping reports whether a message is about an error because this node stops. Raft wraps the
// error as text.
func aboutStopping(args []any) bool {
	return slices.ContainsFunc(args, func(a any) bool {
		err, ok := a.(error)
		return ok && strings.HasSuffix(err.Error(), errStopping.Error())
	})
}

func (l *raftLogger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l *raftLogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l *raftLogger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l *raftLogger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *raftLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *raftLogger) IsTrace() bool { return false }
func (l *raftLogger) IsDebug() bool { return l.out.Enabled(context.Background(), slog.LevelDebug) }
func (l *raftLogger) IsInfo() bool  { return l.IsDebug() }
func (l *raftLogger) IsWarn() bool  { return true }
func (l *raftLogger) IsError() bool { return true }

func (l *raftLogger) ImpliedArgs() []any { return l.implied }
func (l *raftLogger) Name() string       { return l.name }

func (l *raftLogger) With(args ...any) hclog.Logger {
	c := *l
	c.implied = append(c.implied[:len(c.implied):len(c.implied)], args...)
	return &c
}

func (l *raftLogger) Named(name string) hclog.Logger {
	if l.name != "" {
		name = l.name + "." + name
	}
	return l.ResetNamed(name)
}

func (l *raftLogger) ResetNamed(name string) hclog.Logger {
	c := *l
	c.name = name
	return &c
}

func (l *raftLogger) SetLevel(hclog.Level) {} // slog's handler decides

func (l *raftLogger) GetLevel() hclog.Level {
	if l.IsDebug() {
		return hclog.Debug
	}
	return hclog.Warn
}

func (l *raftLogger) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(o), "", 0)
}

func (l *raftLogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return lineWriter{l} }

// lineWriter logs each write as a line at Info.
type lineWriter struct{ l *raftLogger }

func (w lineWriter) Write(p []byte) (int, error) {
	w.l.Info(string(bytes.TrimSpace(p)))
	return len(p), nil
}
