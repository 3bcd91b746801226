package fsm

// This file holds how the requests of a batch run, in an entry or as a read, and what they may answer and do.

import (
	"fmt"
	"math"
	"slices"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
)

// runner runs requests one after the other and writes their replies.
type runner struct {
	table    *commands.Table
	env      *commands.Env
	readOnly bool               // commands that write are tried: see dry_run.go
	tells    bool               // of readOnly: keyspace notifications are wanted
	view     *keyspace.Keyspace // of readOnly: as dry runs see it while deadlines have passed; nil: not made yet
	resp     commands.RESP
	limit    int         // bytes that resp may have
	room     int         // bytes that the rest of the run may be answered, on a node that builds no replies too
	full     bool        // a reply to the newest request did not fit
	before   uint64      // the environment's work when the run of requests began
	share    uint64      // work after which the run does not begin another request
	tx       commands.Tx // of the request that runs
	call     commands.Call
}

// Work, in units of commands.Env.Work, after which a batch begins no further request, and an entry no further batch. Work is the same on every
// node, so all stop at the same place. The asker asks again for the rest, and what others want comes in between: an entry
// holds the machine for entryWork and one request at most (docs/adr/0015).
const (
	batchWork = commands.MaxRequestWork / 8
	entryWork = commands.MaxRequestWork / 4

	// maxFirstBatchWork bounded a batch, and nothing an entry, below commands.LevelBounded.
	maxFirstBatchWork = commands.MaxRequestWork
	// maxTransactionWork bounded a transaction there. From LevelBounded on it is a request like any other.
	maxTransactionWork = 4 * commands.MaxRequestWork
)

type workLimits struct{ batch, entry uint64 }

// limitsAt returns the limits on applying at a feature level.
func limitsAt(level uint64) workLimits {
	if level < commands.LevelBounded {
		return workLimits{maxFirstBatchWork, math.MaxUint64}
	}
	return workLimits{batchWork, entryWork}
}

// maxWork is what one request may do.
func (r *runner) maxWork() uint64 {
	if r.env.Level >= commands.LevelBounded {
		return commands.MaxRequestWork
	}
	return maxTransactionWork
}

const errTransactionWork commands.Error = "ERR the transaction has done too much work, the command was not run"

// begin makes the runner ready for a run of requests whose replies are appended to dst, with its share of work.
func (r *runner) begin(dst []byte, share uint64) {
	r.resp.Buf, r.limit, r.before, r.share = dst, len(dst)+commands.MaxReplyBytes, r.env.Work, share
	r.room = commands.MaxReplyBytes
}

// tired reports whether the run has done its share of work.
func (r *runner) tired() bool { return r.env.Work-r.before >= r.share }

// acknowledge answers a change of a setting.
func (r *runner) acknowledge(err error) {
	r.room -= headBytes
	if err != nil {
		r.resp.Error(err.Error())
		return
	}
	r.resp.Status("OK")
}

// run runs one request: a command, or a transaction if none of the keys it watches has changed.
func (r *runner) run(q *commands.Request, answer bool) {
	var out commands.Reply = commands.Discard{}
	if answer {
		r.resp.Proto = q.Proto
		out = &r.resp
	}
	r.full = false
	r.tx = commands.Tx{DB: q.DB, Proto: q.Proto, Multi: q.Multi, Woken: q.Woken, Behind: q.Behind}
	stop := r.env.Work + r.maxWork()
	r.call = commands.Call{Env: r.env, Tx: &r.tx, Out: out, Stop: stop}
	x := &r.call
	if !q.Multi {
		x.Args = q.Cmds[0]
		r.command(x)
		return
	}
	if r.readOnly && r.mayWrite(q.Cmds) {
		r.beginDryRun() // before its reads: all of a transaction sees one state
	}
	if r.env.Level >= commands.LevelBounded {
		r.env.Work += watchedWork * uint64(len(q.Watch))
	}
	changed := r.watchedChanged(q.Watch)
	if r.env.Trapped {
		return
	}
	if changed {
		out.NullArray()
		r.room -= headBytes
		return
	}
	out.Array(len(q.Cmds))
	r.room -= headBytes
	for _, cmd := range q.Cmds {
		if r.env.Work >= stop {
			out.Error(errTransactionWork.Error())
			r.room -= len(errTransactionWork) + headBytes
			continue
		}
		x.Args = cmd
		if r.command(x); r.env.Trapped {
			return
		}
	}
}

// watchedWork is what looking at one watched key costs, in units of commands.Env.Work.
const watchedWork = 16

// watchedChanged reports whether one of the keys has changed since it was watched. In a dry run a key that is past its deadline and not swept yet traps.
func (r *runner) watchedChanged(keys []commands.WatchedKey) bool {
	defer func() {
		switch p := recover(); {
		case p == nil:
		case r.env.Trial && p == keyspace.ErrClosed:
			r.env.Trapped = true
		default:
			panic(p)
		}
	}()
	return slices.ContainsFunc(keys, func(w commands.WatchedKey) bool {
		return r.env.Keyspace.DB(w.DB).LastChange(w.Key) != w.Changed
	})
}

// mayWrite reports whether one of the commands may change anything.
func (r *runner) mayWrite(cmds [][][]byte) bool {
	return slices.ContainsFunc(cmds, func(args [][]byte) bool {
		spec, err := r.table.ResolveAt(r.env.Level, args)
		return err == nil && spec.Kind == commands.Write
	})
}

// command runs one command. A panic in a handler is a mistake in coordd, and happens on every node at the same place with
// the same state: it is answered, so that one command cannot stop a cluster. A reply that does not fit is replaced by an error.
func (r *runner) command(x *commands.Call) {
	start := len(r.resp.Buf)
	r.env.BeginCommand()
	r.resp.Limit = r.limit
	x.Room = max(r.room, 1)
	spec, err := r.table.ResolveAt(x.Level, x.Args)
	writes := err == nil && spec.Kind == commands.Write
	defer func() {
		p, full := recover(), r.resp.Full
		r.resp.Limit, r.resp.Full = 0, false // errors always fit
		switch {
		case p != nil && r.env.Trial: // also a mistake is made in the log, where all nodes answer it alike
			r.env.Trapped = true
		case p != nil:
			r.resp.Buf = r.resp.Buf[:start]
			x.Out.Error(fmt.Sprintf("ERR internal error: %v", p))
			r.room -= headBytes
		case full:
			r.full = true
			r.resp.Buf = r.resp.Buf[:start]
			x.Out.Error(tooLarge(writes).Error())
		}
	}()
	if r.readOnly && writes {
		r.beginDryRun()
	}
	x.Run(spec, err)
	size, refused := x.ReplySize()
	r.room -= size
	r.full = r.full || refused
	r.env.Seed += 0xd1b54a32d192ed03 // scripts of one transaction, or run of reads, must not draw alike; not the step of luaRandom, which would only shift
}

// tooLarge is the error in the place of a reply that does not fit.
func tooLarge(writes bool) commands.Error {
	if writes {
		return errReplyLost
	}
	return commands.ErrReplySize
}

// errReplyLost stands in the place of the reply of a command that ran: a script, or any command below commands.LevelBounded.
const errReplyLost commands.Error = "ERR the command ran, but its reply, with those that go before it, is larger than 67108864 bytes"

// headBytes is what is counted for a reply of one line.
const headBytes = 16
