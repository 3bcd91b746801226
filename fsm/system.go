// System requests: what administrators and nodes ask of the machine by other means than a command.

package fsm

import (
	"math"
	"strconv"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm/script"
)

// systemRequest is a kind of system request: how many arguments it has, and what it does.
type systemRequest struct {
	least, most int
	always      bool // below commands.LevelSecond too
	// run does it. If it replies nothing and returns no error, the reply is OK.
	run func(c *systemCall) error
}

// systemCall is a system request that runs.
type systemCall struct {
	*runner
	user commands.UserID
	name string
	args [][]byte
}

const anyNumber = math.MaxInt

// systemWrites are the system requests in entries, by name.
var systemWrites = map[string]systemRequest{
	commands.SettingNotify:         {1, 1, true, configured((*Machine).setNotify)},
	commands.SettingMaxMemory:      {1, 1, false, configured((*Machine).setMaxMemory)},
	commands.SettingRequestWork:    {1, 1, false, configured((*Machine).setRequestWork)},
	commands.SettingPassword:       {0, 1, false, (*systemCall).setPassword},
	commands.SettingFirstMaxMemory: {1, 1, false, (*systemCall).setFirstMaxMemory},
	commands.SettingUsers:          {1, 1, false, (*systemCall).loadUsers},
	commands.SettingFirstUsers:     {1, 1, false, (*systemCall).setFirstUsers},
	commands.SettingDefaultUser:    {1, anyNumber, false, (*systemCall).setDefaultUser},
	commands.SettingTime:           {1, 1, false, (*systemCall).setTime},
	commands.SystemRefuseScript:    {2, 2, false, (*systemCall).refuseScript},
	commands.SystemAllowScript:     {1, 1, false, (*systemCall).allowScript},
	commands.SystemLeaveWait:       {1, 1, false, (*systemCall).leaveWait},
	commands.SystemClaim:           {1, 2, false, (*systemCall).claim},
	commands.SystemGiveBack:        {4, anyNumber, false, (*systemCall).putBack},
	commands.SystemDropWaits:       {1, 1, false, (*systemCall).dropWaits},
	commands.SystemForgetWaits:     {1, 1, false, (*systemCall).forgetWaits},
	commands.SystemServeWaits:      {0, 0, false, (*systemCall).serveWaits},
	commands.SystemSubscribers:     {3, anyNumber, false, (*systemCall).countSubscribers},
	commands.SystemDropSubscribers: {1, 1, false, (*systemCall).dropSubscribers},
	commands.SystemClientIDs:       {0, 0, false, (*systemCall).giveClientIDs},
	commands.SystemEndHolder:       {2, 2, false, (*systemCall).endHolder},
	commands.SystemDropHolders:     {1, 2, false, (*systemCall).dropHolders},
	commands.SystemKeepHolder:      {2, 2, false, (*systemCall).keepHolder},
}

// systemReads are those that reads answer.
var systemReads = map[string]systemRequest{
	commands.SystemAuth:   {1, 2, false, (*systemCall).authenticate},
	commands.SystemUser:   {1, 1, false, (*systemCall).findUser},
	commands.SettingUsers: {0, 0, false, (*systemCall).saveUsers},
}

const errNotReadable commands.Error = "ERR a setting is not read by a request"

// system does a system request and replies. What it sets holds from the next request on.
func (r *runner) system(q *commands.Request) {
	start := len(r.resp.Buf)
	defer r.recovered(&r.resp, start)
	var err error
	if r.readOnly {
		if r.env.Level >= commands.LevelSecond {
			r.env.Work += authWork
		}
		err = r.runSystem(q, systemReads, errNotReadable)
	} else {
		r.m.nextPosition(r.env)
		if q, err = r.m.inTerm(q); err == nil {
			err = r.runSystem(q, systemWrites, commands.ErrNoSystemRequest)
		}
	}
	r.room -= headBytes
	switch {
	case err != nil:
		r.resp.Error(err.Error())
	case len(r.resp.Buf) == start:
		r.resp.Status("OK")
	}
	r.tell(start)
}

// runSystem runs a request of a table, or returns unknown.
func (r *runner) runSystem(
	q *commands.Request, table map[string]systemRequest, unknown commands.Error,
) error {
	c := systemCall{runner: r, user: q.User, name: string(q.Cmds[0][0]), args: q.Cmds[0][1:]}
	s, ok := table[c.name]
	if !ok || len(c.args) < s.least || len(c.args) > s.most ||
		!s.always && r.m.level < commands.LevelSecond {
		return unknown
	}
	return s.run(&c)
}

// inTerm returns the request that a leader has decided on in the running entry's term, or q if it
// is not of that kind.
func (m *Machine) inTerm(q *commands.Request) (*commands.Request, error) {
	words := q.Cmds[0]
	if m.level < commands.LevelSecond || string(words[0]) != commands.SystemInTerm {
		return q, nil
	}
	if len(words) < 3 {
		return nil, commands.ErrNoSystemRequest
	}
	if term, ok := commands.ParseInt(words[1]); !ok || uint64(term) != m.waiting.term {
		return nil, commands.ErrOtherTerm
	}
	own := *q
	own.Cmds = [][][]byte{words[2:]}
	return &own, nil
}

// configured returns what sets a value of CONFIG SET, if the user may.
func configured(
	set func(m *Machine, env *commands.Env, text []byte) error,
) func(*systemCall) error {
	return func(c *systemCall) error {
		if err := c.mayConfigure(); err != nil {
			return err
		}
		return set(c.m, c.env, c.args[0])
	}
}

// mayConfigure fails unless the user may change the setting by CONFIG SET.
func (c *systemCall) mayConfigure() error { return c.mayCall("CONFIG", "SET", c.name, "value") }

// mayCall fails unless the user may call a command.
func (c *systemCall) mayCall(words ...string) error {
	x := &commands.Call{Env: c.env, Tx: &commands.Tx{}}
	for _, w := range words {
		x.Args = append(x.Args, []byte(w))
	}
	if err := c.enter(c.user, "toplevel", x.Args); err != nil || c.env.User == nil {
		return err
	}
	spec, err := c.m.table.ResolveAt(c.m.level, x.Args)
	if err != nil {
		return err
	}
	return c.permitted(x, spec)
}

func (m *Machine) setNotify(_ *commands.Env, text []byte) error {
	f, err := commands.ParseNotifyFlags(string(text))
	if err == nil && f.Second() && m.level < commands.LevelSecond {
		err = commands.ErrNotifyFlags
	}
	if err != nil {
		return commands.Errorf("ERR %v", err)
	}
	m.events.notify = f
	return nil
}

func (m *Machine) setRequestWork(env *commands.Env, text []byte) error {
	times, ok := commands.ParseInt(text)
	if !ok || times < 1 || times > commands.MostRequestWork {
		return commands.ErrNoSystemRequest
	}
	m.times, env.Times = uint64(times), uint64(times)
	m.ks.Fold(append([]byte(commands.SettingRequestWork), text...))
	return nil
}

func (c *systemCall) setFirstMaxMemory() error {
	if c.m.limit.set {
		return nil
	}
	return c.m.setMaxMemory(c.env, c.args[0])
}

func (c *systemCall) setTime() error {
	if err := c.mayCall("RAFT", "SET-TIME", string(c.args[0])); err != nil {
		return err
	}
	return c.m.setTime(c.env, c.args[0])
}

func (c *systemCall) refuseScript() error {
	id, tookMs := string(c.args[0]), c.args[1]
	ms, err := strconv.ParseInt(string(tookMs), 10, 64)
	if err != nil || ms <= 0 || len(id) > script.MaxID {
		return commands.ErrNoSystemRequest
	}
	c.m.engine.Refuse(id, ms)
	return nil
}

func (c *systemCall) allowScript() error {
	id := string(c.args[0])
	if err := c.mayCall("RAFT", "ALLOW-SCRIPT", id); err != nil {
		return err
	}
	if !c.m.engine.Allow(id) {
		return commands.ErrNotRefused
	}
	return nil
}

func (c *systemCall) giveClientIDs() error {
	c.m.idBlocks++
	c.resp.Int(int64(commands.FirstClientID + (c.m.idBlocks-1)*commands.ClientIDBlock))
	return nil
}

func (c *systemCall) serveWaits() error {
	c.m.waiting.returning = returning{}
	return nil
}
