package fsm

import (
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
)

// enoughReplies is how many bytes of replies a read returns before it stops: copying them takes a
// few milliseconds, while entries wait. Behind a dry run it goes on: what it leaves out would go
// into the log.
const enoughReplies = 4 << 20

// Read runs a batch on the applied state and appends its replies to dst. It changes nothing.
//
// It stops before the first request that would change anything or send a notification, before one
// whose reply does not fit into commands.MaxReplyBytes together with those before it, and once
// batchWork is done or there are enoughReplies. So there may be fewer replies than requests; a
// batch that cannot write gets at least one. clockMs and wallUs are the cluster clock and the time
// of day at the moment of reading.
func (m *Machine) Read(dst, batch []byte, clockMs, wallUs int64) []byte {
	return m.ReadAt(dst, batch, clockMs, wallUs, nil, false)
}

// ReadAt is Read with the instants that requests name taken from next. It stops before a request
// for which next has none, possibly without any reply. What that request did until it asked is done
// again when it is retried, with early set then: the first request takes its instant before it
// runs, so it runs in vain only once.
func (m *Machine) ReadAt(
	dst, batch []byte, clockMs, wallUs int64, next Instants, early bool,
) []byte {
	replies, _ := m.ReadWork(dst, batch, clockMs, wallUs, next, early)
	return replies
}

// ReadWork is ReadAt and also returns the work done, in units of commands.Env.Work.
func (m *Machine) ReadWork(
	dst, batch []byte, clockMs, wallUs int64, next Instants, early bool,
) (replies []byte, work uint64) {
	return m.readWitnessed(dst, batch, clockMs, wallUs, 0, next, early, nil)
}

// readWitnessed is ReadWork with a witness of the dry runs that finish, nil if nobody observes
// them. If most is not 0, a batch that takes more units is aborted: the work is above most, and the
// replies are worthless.
func (m *Machine) readWitnessed(
	dst, batch []byte, clockMs, wallUs int64, most uint64, next Instants, early bool,
	witness *commands.Witness,
) (replies []byte, work uint64) {
	if witness != nil {
		witness.BeginRead(m.ks)
	}
	env := &commands.Env{
		Witness: witness, Known: m.known, Overseer: m.ofReads,
		Keyspace: m.ks, Level: m.level, Seed: uint64(wallUs), Scripts: m.engine.DryRun(),
		Table: m.table, Users: m.users.Users, Beside: m.beside(),
		ChangeUsers: func(*acl.Users, ...string) { abort() },
		Most:        most, Times: m.times,
		ScriptCalls: commands.ScriptCalls{On: m.scripted != nil},
	}
	named := m.readTime(env, clockMs, wallUs, next)
	if early && env.NextUs != nil {
		if env.NextUs(); named.late {
			return dst, 0
		}
	}
	r := runner{m: m, env: env, readOnly: true, notifies: m.events.notify != 0}
	env.Deny = r.deny
	r.begin(dst, batchWork)
	var found, missed uint64 // keys
	var requests commands.RequestReader
	requests.Reset(batch)
	if m.lookups != nil {
		defer func() {
			m.lookups.found.Add(found)
			m.lookups.missed.Add(missed)
		}()
	}
	for requests.More() && !r.tired() && (most == 0 || env.Work <= most) &&
		(env.DryRun || len(r.resp.Buf)-len(dst) < enoughReplies) {
		q, err := requests.Next()
		if err != nil {
			r.resp.Error("ERR " + err.Error())
			break
		}
		if q.System {
			r.system(q)
			continue
		}
		start := len(r.resp.Buf)
		found, missed = env.Found, env.Missed // not those of a request that is not answered
		env.Keyspace, env.DryRun, env.Emit, env.Notify = m.ks, false, func(commands.Event) {}, nil
		r.run(q, true)
		if named.late || env.Aborted || r.full && (start > len(dst) || env.DryRun) {
			if witness != nil {
				witness.Drop()
			}
			if env.Aborted && most > 0 {
				env.Work = max(env.Work, most+1) // it asked for more before it did it
			}
			return r.resp.Buf[:start], env.Work
		}
		m.tellScripted(env)
		if witness != nil {
			if !env.DryRun {
				witness.Drop()
			}
			witness.Judge()
		}
		named.us = 0
	}
	found, missed = env.Found, env.Missed
	return r.resp.Buf, env.Work
}
