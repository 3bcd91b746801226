// The users: who may run a request, and what changes them. All of it needs commands.LevelSecond;
// below there is only the default user, who may do everything.

package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/wire"
)

// Users are the users of a machine. Nothing changes them: a machine gets new ones.
type Users struct {
	*acl.Users
	Level   uint64
	Changed keyspace.Revision // the newest change; 0: nobody has changed them yet
	// Open: a connection that has not authenticated may do everything.
	Open bool
}

func newUsers(users *acl.Users, level uint64, changed keyspace.Revision) *Users {
	d := users.Default()
	return &Users{users, level, changed, d.On() && d.NoPass() && d.Full()}
}

// Size returns what the users count, bytes: an estimate.
func (u *Users) Size() int { return userBytes*u.Len() + rulesFactor*u.Bytes() }

const (
	userBytes   = 1024
	rulesFactor = 4 // rules are there as text and as what they allow
)

// Users returns the machine's users.
func (m *Machine) Users() *Users { return m.users }

// raiseUsers takes the machine's new level into account: rules may mean commands that it brings.
func (m *Machine) raiseUsers() {
	m.users = newUsers(m.users.In(m.table.Catalog(m.level)), m.level, m.users.Changed)
}

// changeUsers replaces the users, and folds those with the given names into the running hash.
func (m *Machine) changeUsers(users *acl.Users, changed ...string) {
	m.users = newUsers(users, m.level, m.ks.CurrentRevision())
	var text []byte
	for _, name := range changed {
		text = wire.AppendBytes(text[:0], name)
		if u := users.Get([]byte(name)); u != nil {
			text = u.AppendTo(text)
		}
		m.ks.Fold(text)
	}
	m.events.emit(commands.Event{Kind: commands.UsersChanged})
}

// appendUsers appends the record of a snapshot.
func (m *Machine) appendUsers(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(m.users.Changed))
	return m.users.AppendTo(dst)
}

// restoreUsers reads the record of a snapshot.
func (m *Machine) restoreUsers(record []byte) error {
	c := wire.NewCursor(record)
	changed := keyspace.Revision(c.Uvarint())
	if c.Failed() {
		return errUsersRecord
	}
	users, err := acl.Restore(m.table.Catalog(m.level), c.Rest())
	if err != nil {
		return err
	}
	m.users = newUsers(users, m.level, changed)
	return nil
}

// errUsersRecord reports that the users in a snapshot cannot be read.
var errUsersRecord = errors.New("its users are corrupt")

// enter makes the sender of a request the user of the next commands. It fails if there is none, who
// is denied the command then, in a context of commands.Denied.
func (r *runner) enter(id commands.UserID, context string, args [][]byte) error {
	if err := r.m.users.enter(r.env, id); err != nil {
		if err == commands.ErrUserGone {
			object := string(args[0])
			if spec, _ := r.m.table.ResolveAt(r.m.level, args); spec != nil {
				object = spec.FullName()
			}
			r.denials.Add(acl.DeniedCommand.String(), context, object)
		}
		return err
	}
	r.entered = r.m.users
	return nil
}

// enterAgain is enter for a transaction that has begun, if one of its commands has changed the
// users. Who was the default user then needs no password now.
func (r *runner) enterAgain(id commands.UserID, args [][]byte) error {
	if r.entered == r.m.users {
		return nil
	}
	if id.Name == nil {
		id.Name = []byte(acl.DefaultUser)
	}
	return r.enter(id, "multi", args)
}

// enter sets the user of a request in the environment. It fails if nobody may send it.
func (u *Users) enter(env *commands.Env, id commands.UserID) error {
	env.User = nil
	if id.Name == nil && u.Open || u.Level < commands.LevelSecond {
		return nil
	}
	user := u.Default()
	switch {
	case id.Name != nil:
		if user = u.Get(id.Name); user == nil || user.Created() != id.Created {
			return commands.ErrUserGone
		}
	case !user.On() || !user.NoPass():
		return commands.ErrNoAuth
	}
	if !user.Full() {
		env.User = user
	}
	return nil
}

// permitted returns the error for a command that its user may not run, and notes it.
func (r *runner) permitted(x *commands.Call, spec *commands.Spec) error {
	if x.User == nil {
		return nil
	}
	args := x.Args
	if r.woken != nil {
		x.Args = r.woken.admitted
	}
	d, denied := x.Denied(spec)
	x.Args = args
	switch {
	case !denied:
		return nil
	case x.Tx.Multi:
		r.denials.Add(d.Reason.String(), "multi", d.Object)
		return commands.DeniedInExec(d)
	}
	r.denials.Add(d.Reason.String(), "toplevel", d.Object)
	return commands.DeniedError(d)
}

// deny notes what the running request is denied by what it calls.
func (r *runner) deny(context string, d acl.Denial) {
	r.denials.Add(d.Reason.String(), context, d.Object)
}

// permittedWatch returns the error for a transaction that watches keys which its user may not read
// any more: whether they changed is not for him to know.
func (r *runner) permittedWatch(x *commands.Call, keys []commands.WatchedKey) error {
	if x.User == nil || len(keys) == 0 {
		return nil
	}
	x.Args = make([][]byte, 1, 1+len(keys))
	x.Args[0] = []byte("WATCH")
	for _, w := range keys {
		x.Args = append(x.Args, w.Key)
	}
	spec, err := r.m.table.ResolveAt(x.Level, x.Args)
	if err != nil {
		return err
	}
	return r.permitted(x, spec)
}

// tell puts what the request was denied, and what its scripts read if the session asks, before its
// reply, which begins at start.
func (r *runner) tell(start int) {
	var told []byte
	if len(r.denials) > 0 {
		told = r.denials.AppendTo(nil)
		r.denials = r.denials[:0]
	}
	if r.env.Reads != nil {
		told = r.env.Reads.AppendTo(told)
		r.env.Reads = nil
	}
	if len(told) > 0 {
		r.resp.Buf = slices.Insert(r.resp.Buf, start, told...)
		r.limit += len(told) // it takes no room from replies
	}
}

// What reading a setting costs, in units of commands.Env.Work.
const (
	authWork  = 16 // a lookup of a user
	authBytes = 64 // bytes of a user, with whose other passwords one is compared, that are one unit
	fileBytes = 8  // bytes of all users that are one unit to write
)

// authenticate replies the revision that created a user. The arguments are the hash of the default
// user's password, or a name and a hash.
func (c *systemCall) authenticate() error {
	name, hash := []byte(acl.DefaultUser), c.args[len(c.args)-1]
	switch {
	case len(c.args) == 2:
		name = c.args[0]
	case c.m.users.Default().NoPass():
		return commands.ErrNoPassword
	}
	u := c.m.users.Get(name)
	if u != nil {
		c.env.Work += uint64(u.Bytes() / authBytes)
	}
	if u == nil || !u.Accepts(hash) {
		return commands.ErrWrongPass
	}
	c.resp.Int(int64(u.Created()))
	return nil
}

// findUser replies the revision that created a user who is on.
func (c *systemCall) findUser() error {
	u := c.m.users.Get(c.args[0])
	if u == nil || !u.On() {
		return commands.ErrWrongPass
	}
	c.resp.Int(int64(u.Created()))
	return nil
}

// saveUsers replies the file of all users.
func (c *systemCall) saveUsers() error {
	if err := c.mayCall("ACL", "SAVE"); err != nil {
		return err
	}
	c.env.Work += uint64(c.m.users.Bytes() / fileBytes)
	c.resp.Bulk(c.m.users.File())
	return nil
}

func (c *systemCall) setPassword() error {
	if err := c.mayConfigure(); err != nil {
		return err
	}
	if len(c.args) == 0 {
		return c.m.changeDefaultUser(c.env, []byte("resetpass"), []byte("nopass"))
	}
	return c.m.changeDefaultUser(c.env, []byte("resetpass"), append([]byte("#"), c.args[0]...))
}

func (c *systemCall) setDefaultUser() error {
	if string(c.args[0]) != strconv.FormatUint(uint64(c.m.users.Changed), 10) {
		return commands.ErrUsersChanged
	}
	return c.m.changeDefaultUser(c.env, c.args[1:]...)
}

// changeDefaultUser changes the default user by rules.
func (m *Machine) changeDefaultUser(env *commands.Env, rules ...[]byte) error {
	users, units, err := m.users.Change([]byte(acl.DefaultUser), 0, rules)
	env.Work += uint64(units + m.users.Len())
	if err != nil {
		return commands.Errorf("ERR %v", err)
	}
	m.changeUsers(users, acl.DefaultUser)
	return nil
}

func (c *systemCall) loadUsers() error {
	if err := c.mayCall("ACL", "LOAD"); err != nil {
		return err
	}
	return c.replaceUsers()
}

func (c *systemCall) setFirstUsers() error {
	if c.m.users.Changed != 0 {
		return nil
	}
	return c.replaceUsers()
}

// replaceUsers replaces all users by those of a file. A user whose name stays is the same one as
// before.
func (c *systemCall) replaceUsers() error {
	m := c.m
	users, units, err := m.users.Replace("", c.args[0], uint64(m.ks.CurrentRevision()),
		commands.MaxRequestWork)
	c.env.Work += uint64(units)
	if err != nil {
		return commands.Errorf("ERR %v", err)
	}
	m.changeUsers(users, differences(m.users.Users, users)...)
	return nil
}

// differences returns the names of the users that are not in both sets alike.
func differences(a, b *acl.Users) (names []string) {
	for _, u := range a.All() {
		v := b.Get([]byte(u.Name()))
		if v == nil || !bytes.Equal(u.AppendTo(nil), v.AppendTo(nil)) {
			names = append(names, u.Name())
		}
	}
	for _, v := range b.All() {
		if a.Get([]byte(v.Name())) == nil {
			names = append(names, v.Name())
		}
	}
	return names
}
