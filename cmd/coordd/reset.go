// coordd reset-default-user: the way back for an administrator who is locked out. It needs the data
// directory of a node.

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/coordd/coordd/internal/node"
)

func runResetDefaultUser(_ context.Context, args []string, c console) error {
	fs := newFlagSet("coordd reset-default-user")
	dir := fs.String("data-dir", c.getenv("COORDD_DATA_DIR"), "data directory of a node")
	as := credentials{fileFlag: "password-file", env: "COORDD_PASSWORD"}
	fs.StringVar(&as.file, as.fileFlag, "", "file with the new password of the default user")
	if _, err := parseArgs(fs, args); err != nil {
		return err
	}
	password, err := as.password(c.getenv)
	switch {
	case err != nil:
		return err
	case *dir == "":
		return usageError{errors.New("coordd reset-default-user requires --data-dir")}
	case password == "":
		return usageError{errors.New(
			"coordd reset-default-user requires --password-file or COORDD_PASSWORD")}
	}
	if err := actAsOwner(*dir, c); err != nil {
		return err
	}
	if err := node.WriteReset(*dir, []byte(password)); err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "%s: at its next start, within an hour, the node gives the default user "+
		"all rights and this password. Other users stay as they are.\n", *dir)
	return nil
}
