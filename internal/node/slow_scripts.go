// Scripts that took far longer than their work should: named, and refused if they were in an entry
// (docs/adr/0055).

package node

import (
	"context"
	"strconv"

	"github.com/coordd/coordd/commands"
)

// maxSlowScripts is how many may wait to be named. More follow each other too fast to have been
// slow.
const maxSlowScripts = 16

// slowScript receives such a script, on the goroutine that ran it. The refusal goes before all that
// waits to be proposed, which may run it again.
func (n *Node) slowScript(s commands.SlowScript) {
	if c := n.loaded.Load(); c != nil && !s.Ended &&
		n.adapter.Users().Level >= commands.LevelSecond {
		c.WriteFirst(settingRequest(refusal(s)...))
	}
	select {
	case n.slowScripts <- s:
	default:
	}
}

// refusal returns the setting that refuses a script.
func refusal(s commands.SlowScript) [][]byte {
	return [][]byte{[]byte(commands.SystemRefuseScript), []byte(s.ID),
		strconv.AppendInt(nil, s.TookMs, 10)}
}

// refuseSlowScripts names such scripts, and has the cluster refuse those of entries. Every node
// does: the one that proposed the entry may be ended because it was slow.
func (n *Node) refuseSlowScripts(ctx context.Context) {
	for {
		var s commands.SlowScript
		select {
		case s = <-n.slowScripts:
		case <-ctx.Done():
			return
		}
		n.server.NoteSlowScript(s)
		if s.Ended {
			n.log.Warn("a script that reads ran far longer than it should and was ended; please "+
				"report it", "id", s.ID, "took_ms", s.TookMs, "source", s.Source)
			continue
		}
		n.log.Error("a script held up the cluster, far longer than it should; please report it",
			"id", s.ID, "took_ms", s.TookMs, "source", s.Source)
		if n.adapter.Level() < commands.LevelSecond {
			n.log.Warn("a slow script is not refused: some nodes run an older release", "id", s.ID)
			continue
		}
		err := n.ensureSetting(ctx, refusal(s)...)
		if ctx.Err() != nil {
			return
		}
		n.auditOwn(err, commands.SystemRefuseScript, s.ID)
		if err != nil {
			n.log.Error("the cluster did not refuse a slow script", "id", s.ID, "error", err)
			continue
		}
		n.log.Warn("a slow script is refused, unless RAFT ALLOW-SCRIPT allowed it", "id", s.ID)
	}
}
