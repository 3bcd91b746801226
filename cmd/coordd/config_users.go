// Options of the first users of a cluster.

package main

import (
	"errors"
	"fmt"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/server"
)

// completeUsers reads the first users of a cluster.
func (c *config) completeUsers() error {
	var err error
	switch {
	case c.UsersFile != "" && c.defaultPasswordFile != "":
		return errors.New("--users-file and --default-password-file exclude each other: a file " +
			"of users has the default user's password too")
	case c.UsersFile != "":
		table := commands.NewTable(commands.Specs(), server.Specs())
		c.FirstUsers, err = server.ReadUsers(c.UsersFile,
			acl.New(table.Catalog(commands.FeatureLevel)))
		if err != nil {
			return fmt.Errorf("--users-file: %w", err)
		}
	case c.defaultPasswordFile != "":
		password, err := passwordIn(c.defaultPasswordFile)
		if err != nil {
			return fmt.Errorf("--default-password-file: %w", err)
		}
		c.FirstUsers = []byte("user default on #" + acl.Hash([]byte(password)) + " ~* &* +@all\n")
	}
	return nil
}
