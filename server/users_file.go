// The file of users: ACL SAVE, ACL LOAD, and the first users of a cluster. It has a line for each
// user, as ACL LIST shows it; passwords may be in clear.

package server

import (
	"bytes"
	"context"
	"errors"
	"os"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/internal/ascii"
	"github.com/coordd/coordd/internal/files"
)

const (
	errNoUsersFile commands.Error = "ERR This Redis instance is not configured to use an ACL " +
		"file. You may want to specify users via the ACL SETUSER " +
		"command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file " +
		"set) in order to store users in the Redis configuration."
	errUsersSave commands.Error = "ERR There was an error trying to save the ACLs. Please check " +
		"the server logs for more information"
)

// ReadUsers reads a file of users and returns its text with hashed passwords. now are the users
// that it replaces. The error is Redis's.
func ReadUsers(file string, now *acl.Users) (text []byte, err error) {
	if text, err = files.Read(file, acl.MaxFile); err != nil {
		return nil, loadError(file, err)
	}
	users, _, err := now.Replace(file, text, 1, commands.MaxRequestWork)
	if err != nil {
		return nil, err
	}
	return users.File(), nil
}

// loadError is the error for a file that cannot be read.
func loadError(file string, err error) error {
	return commands.Errorf("Error loading ACLs, opening file '%s': %s", file, reasonOf(err))
}

// reasonOf returns why a file cannot be used: the system's reason as C writes it.
func reasonOf(err error) string {
	var path *os.PathError
	var link *os.LinkError // the error of a rename
	switch {
	case errors.As(err, &path):
		err = path.Err
	case errors.As(err, &link):
		err = link.Err
	}
	why := err.Error()
	return ascii.Upper(why[:1]) + why[1:]
}

func aclLoad(s *session, spec *commands.Spec, args [][]byte) {
	file := s.srv.cfg.UsersFile
	if file == "" {
		s.fail(errNoUsersFile)
		return
	}
	users, err := s.knownUsers()
	if err == nil && users.Level < commands.LevelSecond {
		err = commands.Errorf("ERR %v", errUsersLevel)
	}
	if err != nil {
		s.fail(err)
		return
	}
	var text []byte
	var invalid error
	err = s.srv.backend.Schedule(s.localWorkload(spec, args), func() {
		text, invalid = ReadUsers(file, users.Users)
	})
	if invalid != nil {
		err = commands.Errorf("ERR %v", invalid)
	}
	if err != nil {
		s.fail(err)
		return
	}
	before := users.Changed
	err = s.share([]setting{{
		words: [][]byte{[]byte(commands.SettingUsers), text},
		applied: func(s *Server) bool {
			now := s.users()
			return now != nil && now.Changed != before
		},
	}})
	if err != nil {
		s.fail(err)
		return
	}
	s.w.Status("OK")
}

func aclSave(s *session, _ *commands.Spec, _ [][]byte) {
	file := s.srv.cfg.UsersFile
	if file == "" {
		s.fail(errNoUsersFile)
		return
	}
	text, err := s.usersFile()
	if err != nil {
		s.fail(err)
		return
	}
	if err := files.Replace(file, text); err != nil {
		s.srv.log.Error("ACL SAVE failed", "file", file, "error", err)
		s.fail(errUsersSave)
		return
	}
	s.w.Status("OK")
}

// usersFile returns the text of ACL SAVE. This node may lag, so the cluster gives it.
func (s *session) usersFile() ([]byte, error) {
	users, err := s.knownUsers()
	switch {
	case err != nil:
		return nil, err
	case users.Level < commands.LevelSecond:
		return users.File(), nil
	}
	batch := commands.AppendRequest(nil, &commands.Request{Proto: 2, System: true,
		User: s.userID(), Cmds: [][][]byte{{[]byte(commands.SettingUsers)}}})
	replies, err := s.srv.backend.Read(context.Background(), Workload{Conn: s.id}, batch)
	if err != nil {
		return nil, err
	}
	a, _ := replies.Next()
	s.noteDenied(a.Denied)
	if err := a.Err(); err != nil {
		return nil, err
	}
	_, text, _ := bytes.Cut(a.Reply, []byte("\r\n"))
	return bytes.TrimSuffix(text, []byte("\r\n")), nil
}
