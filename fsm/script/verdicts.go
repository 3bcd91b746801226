// What scripts take that is not charged to them: a net below the budgets. A read that takes too
// long is ended by its node's clock. What did so in an entry, which all nodes must run alike, is
// refused from then on, until an operator allows it (docs/adr/0055).

package script

import (
	"crypto/sha1"
	"encoding/binary"
	"slices"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm/script/lua"
	"github.com/coordd/coordd/internal/wire"
)

// maxVerdicts is how many scripts the engine remembers as refused or allowed. The oldest go first.
const maxVerdicts = 128

// shownSource is how many bytes of a script that took long are shown.
const shownSource = 1024

// oversee has the node measure what will run with a budget, until overseen, if it wants to.
func (in *interpreter) oversee(x *commands.Call, b *lua.Budget) {
	if in.overseer = x.Overseer; in.overseer != nil {
		b.Watch = in.looking
	}
}

// look is Budget.Watch. Nobody looks at a clock for a script that works little.
func (in *interpreter) look() (late bool) {
	if in.watch == nil {
		in.watch = in.overseer.Watch()
	}
	return in.watch.Look()
}

// overseen ends what oversee has begun.
func (in *interpreter) overseen(c *chosen) {
	if in.watch != nil {
		if ms := in.watch.Stop(); ms > 0 {
			in.overseer.Slow(commands.SlowScript{ID: c.id(), Source: c.beginning(), TookMs: ms})
		}
	}
	in.overseer, in.watch = nil, nil
}

// MaxID bounds the ids of scripts, bytes.
const (
	MaxID       = 2*sha1.Size + 1 + maxNameInID
	maxNameInID = 64
)

// id names what runs for a verdict: the SHA1 of a script, or of a library and the name of its
// function. Of a longer name than most it has the SHA1.
func (c *chosen) id() string {
	switch {
	case c.library == nil && c.name != "":
		return c.name
	case c.library == nil:
		return shaOf(c.source)
	case c.name == "":
		return c.library.sha // its code, while it loads
	}
	name := c.name
	if len(name) > maxNameInID {
		name = shaOf(name)
	}
	return c.library.sha + ":" + name
}

// beginning returns the first shownSource bytes of the source.
func (c *chosen) beginning() string {
	source := c.source
	if c.library != nil {
		source = c.library.Source
	}
	return source[:min(len(source), shownSource)]
}

// refused fails if a script or a library must not run. Nobody computes an id while there is no
// verdict.
func (e *Engine) refused(c *chosen) error {
	if len(e.verdicts) == 0 {
		return nil
	}
	id := c.id()
	if v := e.verdict(id); v != nil && !v.Allowed {
		return commands.Errorf("ERR this script is refused: it ran for %d ms, far longer than its "+
			"instructions should take. RAFT ALLOW-SCRIPT %s lets it run", v.TookMs, id)
	}
	return nil
}

func (e *Engine) verdict(id string) *commands.ScriptVerdict {
	i := slices.IndexFunc(e.verdicts, func(v commands.ScriptVerdict) bool { return v.ID == id })
	if i < 0 {
		return nil
	}
	return &e.verdicts[i]
}

// Refuse refuses a script from now on, unless an operator has allowed it.
func (e *Engine) Refuse(id string, tookMs int64) {
	if e.verdict(id) == nil {
		e.judge(commands.ScriptVerdict{ID: id, TookMs: tookMs})
	}
}

// Allow lets a script run that was refused. It reports whether the engine knows it.
func (e *Engine) Allow(id string) bool {
	v := e.verdict(id)
	if v != nil {
		v.Allowed = true
	}
	return v != nil
}

func (e *Engine) judge(v commands.ScriptVerdict) {
	if len(e.verdicts) == maxVerdicts {
		e.verdicts = slices.Delete(e.verdicts, 0, 1)
	}
	e.verdicts = append(e.verdicts, v)
}

// Refused returns how many scripts are refused.
func (e *Engine) Refused() (n int) {
	for i := range e.verdicts {
		if !e.verdicts[i].Allowed {
			n++
		}
	}
	return n
}

// Verdicts returns the scripts that are refused, or were and are allowed, oldest first.
func (e *Engine) Verdicts() []commands.ScriptVerdict { return slices.Clone(e.verdicts) }

// AppendVerdicts appends the record of the verdicts to dst.
func (e *Engine) AppendVerdicts(dst []byte) []byte {
	for _, v := range e.verdicts {
		dst = wire.AppendBytes(dst, v.ID)
		dst = binary.AppendUvarint(dst, uint64(v.TookMs))
		allowed := uint64(0)
		if v.Allowed {
			allowed = 1
		}
		dst = binary.AppendUvarint(dst, allowed)
	}
	return dst
}

// RestoreVerdicts reads what AppendVerdicts wrote.
func (e *Engine) RestoreVerdicts(b []byte) error {
	for c := wire.NewCursor(b); c.Len() > 0; {
		v := commands.ScriptVerdict{ID: c.Text(), TookMs: int64(c.Uvarint())}
		allowed := c.Uvarint()
		if c.Failed() || v.TookMs <= 0 || allowed > 1 || e.verdict(v.ID) != nil ||
			len(e.verdicts) == maxVerdicts {
			return errScriptRecord
		}
		v.Allowed = allowed == 1
		e.judge(v)
	}
	return nil
}
