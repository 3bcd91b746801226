// The settings that all nodes share: requests that are no commands.

package fsm

import (
	"strconv"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm/script"
)

const errNotReadable commands.Error = "ERR a setting is not read by a request"

// set changes a setting, from the next request on.
func (m *Machine) set(r *runner, q *commands.Request) error {
	words := q.Cmds[0]
	name, values := string(words[0]), words[1:]
	if name == commands.SettingNotify && len(values) == 1 {
		if err := m.mayConfigure(r, q); err != nil {
			return err
		}
		return m.setNotify(string(values[0]))
	}
	if m.level < commands.LevelSecond {
		return commands.ErrNoSetting
	}
	switch {
	case name == commands.SettingPassword && len(values) <= 1:
		if err := m.mayConfigure(r, q); err != nil {
			return err
		}
		if len(values) == 0 {
			return m.setDefaultUser(r.env, []byte("resetpass"), []byte("nopass"))
		}
		return m.setDefaultUser(r.env, []byte("resetpass"), append([]byte("#"), values[0]...))
	case name == commands.SettingMaxMemory && len(values) == 1:
		if err := m.mayConfigure(r, q); err != nil {
			return err
		}
		return m.setMaxMemory(values[0])
	case name == commands.SettingFirstMaxMemory && len(values) == 1:
		if m.limit.set {
			return nil
		}
		return m.setMaxMemory(values[0])
	case name == commands.SettingRequestWork && len(values) == 1:
		if err := m.mayConfigure(r, q); err != nil {
			return err
		}
		return m.setRequestWork(r.env, values[0])
	case name == commands.SettingUsers && len(values) == 1:
		if err := m.mayCall(r, q, "ACL", "LOAD"); err != nil {
			return err
		}
		return m.replaceUsers(r.env, values[0])
	case name == commands.SettingFirstUsers && len(values) == 1:
		if m.users.Changed != 0 {
			return nil
		}
		return m.replaceUsers(r.env, values[0])
	case name == commands.SettingLeaveWait && len(values) == 1:
		return m.leaveWait(r.env, values[0])
	case name == commands.SettingClaim && (len(values) == 1 || len(values) == 2):
		return m.claim(r.env, values[0], values[1:]...)
	case name == commands.SettingGiveBack && len(values) > 3:
		return m.putBack(r, values)
	case name == commands.SettingDropWaits && len(values) == 1:
		m.dropWaits(r.env, string(values[0]))
		return nil
	case name == commands.SettingForgetWaits && len(values) == 1:
		m.forgetWaits(r.env, string(values[0]))
		return nil
	case name == commands.SettingServeWaits && len(values) == 0:
		m.waiting.returning = returning{}
		return nil
	case name == commands.SettingRefuseScript && len(values) == 2:
		return m.refuseScript(string(values[0]), string(values[1]))
	case name == commands.SettingAllowScript && len(values) == 1:
		if err := m.mayCall(r, q, "RAFT", "ALLOW-SCRIPT", string(values[0])); err != nil {
			return err
		}
		if !m.engine.Allow(string(values[0])) {
			return commands.ErrNotRefused
		}
		return nil
	case name == commands.SettingTime && len(values) == 1:
		if err := m.mayCall(r, q, "RAFT", "SET-TIME", string(values[0])); err != nil {
			return err
		}
		return m.setTime(r.env, values[0])
	case name == commands.SettingDefaultUser && len(values) > 0:
		if string(values[0]) != strconv.FormatUint(uint64(m.users.Changed), 10) {
			return commands.ErrUsersChanged
		}
		return m.setDefaultUser(r.env, values[1:]...)
	}
	return commands.ErrNoSetting
}

// inTerm returns the setting that a leader has decided on in the running entry's term, or q if it
// is not of that kind.
func (m *Machine) inTerm(q *commands.Request) (*commands.Request, error) {
	words := q.Cmds[0]
	if m.level < commands.LevelSecond || string(words[0]) != commands.SettingInTerm {
		return q, nil
	}
	if len(words) < 3 {
		return nil, commands.ErrNoSetting
	}
	if term, ok := commands.ParseInt(words[1]); !ok || uint64(term) != m.waiting.term {
		return nil, commands.ErrOtherTerm
	}
	own := *q
	own.Cmds = [][][]byte{words[2:]}
	return &own, nil
}

// refuseScript refuses a script that took so many ms in an entry.
func (m *Machine) refuseScript(id, tookMs string) error {
	ms, err := strconv.ParseInt(tookMs, 10, 64)
	if err != nil || ms <= 0 || len(id) > script.MaxID {
		return commands.ErrNoSetting
	}
	m.engine.Refuse(id, ms)
	return nil
}

// setRequestWork sets how many times the usual work requests may do, from the next one on.
func (m *Machine) setRequestWork(env *commands.Env, text []byte) error {
	times, ok := commands.ParseInt(text)
	if !ok || times < 1 || times > commands.MostRequestWork {
		return commands.ErrNoSetting
	}
	m.times, env.Times = uint64(times), uint64(times)
	m.ks.Fold(append([]byte(commands.SettingRequestWork), text...))
	return nil
}

func (m *Machine) setNotify(text string) error {
	f, err := commands.ParseNotifyFlags(text)
	if err == nil && f.Second() && m.level < commands.LevelSecond {
		err = commands.ErrNotifyFlags
	}
	if err != nil {
		return commands.Errorf("ERR %v", err)
	}
	m.events.notify = f
	return nil
}

// mayConfigure fails unless the user of q may change its setting by CONFIG SET.
func (m *Machine) mayConfigure(r *runner, q *commands.Request) error {
	return m.mayCall(r, q, "CONFIG", "SET", string(q.Cmds[0][0]), "value")
}

// mayCall fails unless the user of q may call a command.
func (m *Machine) mayCall(r *runner, q *commands.Request, words ...string) error {
	x := &commands.Call{Env: r.env, Tx: &commands.Tx{}}
	for _, w := range words {
		x.Args = append(x.Args, []byte(w))
	}
	if err := r.enter(q.User, "toplevel", x.Args); err != nil || r.env.User == nil {
		return err
	}
	spec, err := m.table.ResolveAt(m.level, x.Args)
	if err != nil {
		return err
	}
	return r.permitted(x, spec)
}

// readSetting answers a read of a setting.
func (r *runner) readSetting(q *commands.Request) {
	defer r.recovered(&r.resp, len(r.resp.Buf))
	m := r.m
	name, values := string(q.Cmds[0][0]), q.Cmds[0][1:]
	created, err := uint64(0), error(errNotReadable)
	if m.level >= commands.LevelSecond {
		r.env.Work += authWork
	}
	switch {
	case m.level < commands.LevelSecond:
	case name == commands.SettingAuth && len(values) > 0 && len(values) <= 2:
		created, err = m.authenticate(r.env, values)
	case name == commands.SettingUser && len(values) == 1:
		err = commands.ErrWrongPass
		if u := m.users.Get(values[0]); u != nil && u.On() {
			created, err = u.Created(), nil
		}
	case name == commands.SettingUsers && len(values) == 0:
		if err = m.mayCall(r, q, "ACL", "SAVE"); err == nil {
			r.env.Work += uint64(m.users.Bytes() / fileBytes)
			r.resp.Bulk(m.users.File())
			return
		}
	}
	if err != nil {
		r.acknowledge(err)
		return
	}
	r.resp.Int(int64(created))
}
