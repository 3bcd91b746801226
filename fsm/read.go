package fsm

import "github.com/coordd/coordd/commands"

// Read runs requests on the state as it is and appends their replies to dst. It stops before the first request that would change anything or tell
// anybody of anything, before one whose reply does not fit with those before it into commands.MaxReplyBytes, and when batchWork is done. So it may
// give fewer replies than there are requests: where none of them can write, one at least. clockMs and wallUs are the cluster clock and the time
// of day at the moment of reading. It leaves no trace in the machine.
func (m *Machine) Read(dst, run []byte, clockMs, wallUs int64) []byte {
	return m.ReadAt(dst, run, clockMs, wallUs, nil)
}

// ReadAt is Read, with the instants that requests name from next. It stops, without a reply if it has to, before a request that there is none for.
func (m *Machine) ReadAt(dst, run []byte, clockMs, wallUs int64, next Instants) []byte {
	replies, _ := m.ReadWork(dst, run, clockMs, wallUs, next)
	return replies
}

// ReadWork is ReadAt, and returns what the requests did in units of commands.Env.Work besides.
func (m *Machine) ReadWork(dst, run []byte, clockMs, wallUs int64, next Instants) (replies []byte, work uint64) {
	env := &commands.Env{Keyspace: m.ks, Level: m.level, Seed: uint64(wallUs), Scripts: m.engine.DryRun()}
	late := m.readTime(env, clockMs, wallUs, next)
	r := runner{table: m.table, env: env, readOnly: true, tells: m.events.notify != 0}
	r.begin(dst, batchWork)
	var requests commands.RequestReader
	requests.Reset(run)
	for requests.More() && !r.tired() {
		q, err := requests.Next()
		if err != nil {
			r.resp.Error("ERR " + err.Error())
			break
		}
		if q.Setting {
			r.resp.Error("ERR a setting is not read by a request")
			continue
		}
		start := len(r.resp.Buf)
		env.Keyspace, env.Trial, env.Emit, env.Notify = m.ks, false, func(commands.Event) {}, nil
		r.run(q, true)
		if *late || env.Trapped || r.full && (start > len(dst) || env.Trial) {
			return r.resp.Buf[:start], env.Work
		}
	}
	return r.resp.Buf, env.Work
}
