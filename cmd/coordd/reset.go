// coordd reset-default-user: the way back for an administrator who is locked out. It needs the data
// directory of a node.

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/internal/node"
)

func newResetDefaultUser(c console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reset-default-user --data-dir DIR",
		Short: "Lets an administrator who is locked out in again",
		Long: `Lets an administrator who is locked out in again: at the next start of the node of DIR, the default
user gets all rights and the password.`,
	}
	dir := addDataDir(cmd.Flags(), "data directory of a node")
	as := credentials{fileFlag: "password-file", env: "COORDD_PASSWORD"}
	cmd.Flags().StringVar(&as.file, as.fileFlag, "",
		"file with the new password of the default user")
	cmd.RunE = func(*cobra.Command, []string) error {
		dir := dir(c.getenv)
		password, err := as.password(c.getenv)
		switch {
		case err != nil:
			return err
		case dir == "":
			return usageError{errors.New("coordd reset-default-user requires --data-dir")}
		case password == "":
			return usageError{errors.New(
				"coordd reset-default-user requires --password-file or COORDD_PASSWORD")}
		}
		if err := actAsOwner(dir, c); err != nil {
			return err
		}
		if err := node.WriteReset(dir, []byte(password)); err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "%s: at its next start, within an hour, the node gives the default "+
			"user all rights and this password. Other users stay as they are.\n", dir)
		return nil
	}
	return cmd
}
