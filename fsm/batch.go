// How the requests of a batch run, in an entry or as a read, and the limits of their replies and
// work.

package fsm

import (
	"fmt"
	"math"
	"slices"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
)

// runner runs the requests of a batch in order and writes their replies.
type runner struct {
	m        *Machine
	entered  *Users           // those that env.User is one of
	denials  commands.Denials // what the running request was denied
	env      *commands.Env
	readOnly bool               // commands that may write run dry, see dry_run.go
	notifies bool               // for dry runs: keyspace notifications are wanted
	view     *keyspace.Keyspace // for dry runs: what they see while keys are past their deadline
	resp     commands.RESP
	limit    int    // size limit of resp, bytes
	room     int    // bytes left for replies, counted also on a node that builds none
	full     bool   // the reply to the newest request did not fit
	before   uint64 // env.Work when the batch began
	share    uint64 // work after which the batch begins no further request
	// what the running request was granted, to be remembered once claimed; nil: nothing with an id
	unclaimed *grantedCall
	waits     uint64      // the number that the running request has if it waits
	woken     *woken      // what waited and runs now; nil: the batch's requests
	tx        commands.Tx // what the commands of the running request share
	call      commands.Call
}

// Work limits, in units of commands.Env.Work: past them a batch starts no further request and an
// entry no further batch. Work is the same on every node, so all stop at the same request. The
// proposer proposes the rest again, after other batches: an entry occupies the machine for at most
// entryWork and one request (docs/adr/0015).
const (
	batchWork = commands.MaxRequestWork / 8
	entryWork = commands.MaxRequestWork / 4

	// entrySweep is how many expired keys an entry removes at most: removing them takes about a
	// millisecond. After sweepWork for notifications it removes no more: that is 5 MB of them, and
	// one key.
	entrySweep = 1024
	sweepWork  = entryWork / 2

	// Below commands.LevelSecond, where an entry has no limit: the limit of a batch, that of a
	// transaction, which later counts like any other request, and that of expired keys.
	maxFirstBatchWork  = commands.MaxRequestWork
	maxTransactionWork = 4 * commands.MaxRequestWork
	maxFirstSweep      = 4096
)

type workLimits struct {
	batch, entry uint64
	sweep        int
}

// limitsAt returns the limits of an entry at a feature level.
func limitsAt(level uint64) workLimits {
	if level < commands.LevelSecond {
		return workLimits{maxFirstBatchWork, math.MaxUint64, maxFirstSweep}
	}
	return workLimits{batchWork, entryWork, entrySweep}
}

// stop returns the value of Env.Work past which a request that begins now is refused.
func (r *runner) stop() uint64 {
	most := uint64(maxTransactionWork)
	if r.env.Level >= commands.LevelSecond {
		most = r.env.RequestWork()
	}
	if stop := r.env.Work + most; r.env.Most == 0 || stop < r.env.Most {
		return stop
	}
	return r.env.Most
}

const errTransactionWork commands.Error = "ERR the transaction has done too much work, the " +
	"command was not run (CONFIG SET coordd-request-work allows more)"

// begin starts a batch whose replies are appended to dst, with its share of work.
func (r *runner) begin(dst []byte, share uint64) {
	r.resp.Buf, r.limit, r.before, r.share = dst, len(dst)+commands.MaxReplyBytes, r.env.Work, share
	r.room = commands.MaxReplyBytes
}

// tired reports whether the batch has used up its share of work.
func (r *runner) tired() bool { return r.env.Work-r.before >= r.share }

// run runs one request: a command, or a transaction if none of its watched keys has changed.
func (r *runner) run(q *commands.Request, answer bool) {
	var out commands.Reply = commands.Discard{}
	if answer {
		r.resp.Proto = q.Proto
		out = &r.resp
	}
	r.full = false
	if q.TellReads && answer {
		r.env.Reads = &commands.ScriptReads{}
	}
	start := len(r.resp.Buf)
	r.perform(q, out)
	r.tell(start)
}

// recovered is deferred around all that a request does. A panic is a bug in coordd, which every
// node hits in the same state: it becomes the request's reply, so that no request can stop a
// cluster. In a dry run it belongs in the log, where all nodes answer alike.
func (r *runner) recovered(out commands.Reply, start int) {
	p := recover()
	if p == nil {
		return
	}
	r.resp.Limit, r.resp.Full = 0, false // errors always fit
	if r.env.DryRun || r.env.Aborted {
		r.env.Aborted = true
		return
	}
	r.m.panicked(p)
	r.resp.Buf = r.resp.Buf[:start]
	out.Error(fmt.Sprintf("ERR internal error: %v", p))
	r.room -= headBytes
}

// perform is run with the place for the reply.
func (r *runner) perform(q *commands.Request, out commands.Reply) {
	defer r.recovered(out, len(r.resp.Buf))
	if !r.readOnly {
		r.m.nextPosition(r.env)
	}
	r.tx = commands.Tx{DB: q.DB, Proto: q.Proto, Multi: q.Multi, Woken: q.Woken,
		Behind: q.Behind || q.Wait != nil && r.m.Held(),
		OOM:    r.m.oom()}
	if r.unclaimed, r.waits = nil, 0; q.Wait != nil {
		r.tx.Order, r.waits = q.Wait.Order, q.Wait.Number
	} else if r.woken != nil {
		r.tx.Order = r.woken.order
	}
	// a command that is sent again can have lost its client meanwhile
	r.tx.Claims = r.woken != nil || q.Wait != nil && q.Woken
	if r.woken != nil {
		r.tx.QueuedMs = r.woken.queuedMs
	}
	stop := r.stop()
	r.call = commands.Call{Env: r.env, Tx: &r.tx, Out: out, Stop: stop}
	x := &r.call
	x.Holder, x.Sender = q.Holder, q.User
	r.sentAgain(q) // also if it is refused
	context, first := "toplevel", [][]byte{[]byte("exec")}
	if q.Multi {
		context = "multi"
	} else {
		first = q.Cmds[0]
	}
	if err := r.enter(q.User, context, first); err != nil {
		r.room -= headBytes
		out.Error(err.Error())
		r.waitsNoMore(q)
		return
	}
	if !q.Multi {
		x.Args = q.Cmds[0]
		start := len(r.resp.Buf)
		from, changes := r.source(q), r.m.changes
		r.command(x)
		r.wait(q, start)
		r.waitsNoMore(q)
		if r.tx.Undo != nil && q.Wait != nil && !r.readOnly {
			r.openClaim(q.Wait.Number, string(q.Wait.Node), q.DB)
		}
		if from != nil && r.m.changes != changes { // else it has taken nothing
			r.m.lend(r.env, *from)
		}
		return
	}
	if err := r.permittedWatch(x, q.Watch); err != nil {
		r.room -= headBytes
		out.Error(err.Error())
		return
	}
	cmds := q.Cmds
	if q.Conditional {
		cmds = cmds[1:]
	}
	if r.readOnly && r.mayWrite(cmds) {
		r.beginDryRun() // before its reads: all of a transaction sees the same state
		if r.env.Aborted {
			return
		}
	}
	if err := r.refuses(x, cmds); err != nil {
		r.room -= headBytes
		out.Error(err.Error())
		return
	}
	if r.env.Level >= commands.LevelSecond {
		r.env.Work += watchedWork * uint64(len(q.Watch))
	}
	if r.env.Witness != nil {
		for _, w := range q.Watch {
			r.env.Witness.Watched(w.DB, w.Key, w.Changed == 0)
		}
	}
	hold, err := !r.watchedChanged(q.Watch), error(nil)
	if hold && q.Conditional {
		hold, err = r.conditionsHold(x, q.Cmds[0])
	}
	switch {
	case q.Conditional && r.env.Most > 0 && r.env.Work > r.env.Most:
		r.env.Aborted = true
		return
	case err != nil:
		r.room -= headBytes
		out.Error(err.Error())
		return
	case !hold:
		out.NullArray()
		r.room -= headBytes
		return
	}
	out.Array(len(cmds))
	r.room -= headBytes
	for _, cmd := range cmds {
		if r.env.Most > 0 && r.env.Work > r.env.Most {
			r.env.Aborted = true
			return
		}
		if r.env.Work >= stop && stop != r.env.Most {
			out.Error(errTransactionWork.Error())
			r.room -= len(errTransactionWork) + headBytes
			continue
		}
		if err := r.enterAgain(q.User, cmd); err != nil {
			out.Error(err.Error())
			r.room -= headBytes
			continue
		}
		x.Args = cmd
		if r.command(x); r.env.Aborted {
			return
		}
	}
}

// watchedWork is the cost of checking one watched key, in units of commands.Env.Work.
const watchedWork = 16

// watchedChanged reports whether one of the keys has changed since it was watched. In a dry run a
// key that is past its deadline and not swept yet panics, which aborts it.
func (r *runner) watchedChanged(keys []commands.WatchedKey) bool {
	return slices.ContainsFunc(keys, func(w commands.WatchedKey) bool {
		return r.env.Keyspace.DB(w.DB).LastChange(w.Key) != w.Changed
	})
}

// conditionsHold reports whether the conditions of an EXEC hold, or returns the error for a user
// who may not read their keys.
func (r *runner) conditionsHold(x *commands.Call, exec [][]byte) (bool, error) {
	x.Args = exec
	if x.User != nil {
		spec, err := r.m.table.ResolveAt(x.Level, exec)
		if err != nil {
			return false, err
		}
		if err := r.permitted(x, spec); err != nil {
			return false, err
		}
	}
	return x.ExecConditions()
}

// mayWrite reports whether one of the commands may change anything.
func (r *runner) mayWrite(cmds [][][]byte) bool {
	return slices.ContainsFunc(cmds, func(args [][]byte) bool {
		spec, err := r.m.table.ResolveAt(r.env.Level, args)
		return err == nil && spec.Kind == commands.Write
	})
}

// command runs one command. After a panic the transaction goes on with the next. A reply that does
// not fit is replaced by an error.
func (r *runner) command(x *commands.Call) {
	start := len(r.resp.Buf)
	defer r.recovered(x.Out, start)
	r.env.BeginCommand()
	r.resp.Limit = r.limit
	x.Room = max(r.room, 1)
	spec, err := r.m.table.ResolveAt(x.Level, x.Args)
	writes := err == nil && spec.Kind == commands.Write
	if err == nil {
		err = r.permitted(x, spec)
	}
	if r.readOnly && writes {
		r.beginDryRun()
		if x.Aborted {
			r.resp.Limit = 0
			return
		}
	}
	var once *onceCall
	if err == nil {
		if once, err = r.onceCall(x, spec); once != nil && r.recall(x, spec, once) {
			r.resp.Limit = 0
			return
		} else if once != nil {
			err = r.underWay(once)
		}
	}
	before := r.m.ks.Sum()
	if once != nil && err == nil {
		r.runOnce(x, spec, once)
	} else {
		x.Run(spec, err)
	}
	if r.m.ks.Sum() != before {
		r.m.changes++
	}
	size, refused := x.ReplySize()
	full := r.resp.Full
	r.resp.Limit, r.resp.Full = 0, false // errors always fit
	r.room -= size
	r.full = r.full || refused || full
	if full {
		r.resp.Buf = r.resp.Buf[:start]
		x.Out.Error(tooLarge(writes).Error())
	}
	// Scripts of one transaction, or of one batch of reads, must not draw the same numbers. The
	// step differs from luaRandom's, which would only shift them.
	r.env.Seed += 0xd1b54a32d192ed03
}

// tooLarge is the error that replaces a reply that does not fit.
func tooLarge(writes bool) commands.Error {
	if writes {
		return errReplyLost
	}
	return commands.ErrReplySize
}

// errReplyLost replaces the reply of a command that ran: a script, or below commands.LevelSecond
// any command.
const errReplyLost commands.Error = "ERR accumulated replies exceed 64 MiB; the command ran"

// headBytes is the size that a one-line reply is charged.
const headBytes = 16
