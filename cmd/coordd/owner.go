// Whose rights a command has that changes a data directory.

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/coordd/coordd/cluster"
)

// addDataDir declares --data-dir for a command on the directory of a node that is stopped, and
// returns a function that reads it, or else the environment.
func addDataDir(flags *pflag.FlagSet, usage string) func(getenv func(string) string) string {
	dir := flags.String("data-dir", "", usage+" ["+envOf("data-dir")+"]")
	return func(getenv func(string) string) string {
		if flags.Changed("data-dir") {
			return *dir
		}
		return getenv(envOf("data-dir"))
	}
}

// actAsOwner precedes the first act of a command on a data directory. If root runs the command, the
// process becomes the directory's owner for good: of one that is missing, the owner of where it is
// to be made. So names there, which may be links of that owner, lead root nowhere, and what the
// command makes is of use to the node. What root alone can read is read before.
func actAsOwner(dir string, c console) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		dir = filepath.Dir(filepath.Clean(dir))
		if info, err = os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return nil // nothing can be made there
		}
	}
	if err != nil {
		return err
	}
	is, mode := info.Sys().(*syscall.Stat_t), info.Mode()
	others := mode&0o002 != 0 || mode&0o020 != 0 && is.Gid != 0
	if is.Uid == 0 && others && mode&fs.ModeSticky == 0 {
		return fmt.Errorf("%s belongs to root, and others may write to it: run this as the user "+
			"of the node", dir)
	}
	return becomeOwner(dir, c)
}

// refuseRoot precedes the start of a node. What root's node makes beside the files of another
// user's, that cannot read: its snapshots, its log and its promises. A node needs more than root's
// other commands of what only root may read, and for longer, so it does not become the owner. Where
// the files are root's, whoever has the directory, they go on.
func refuseRoot(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := cluster.Begun(dir)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Stat(dir)
	}
	if err != nil {
		return nil // there is none yet, or the node says what is wrong with it
	}
	is := info.Sys().(*syscall.Stat_t)
	if is.Uid == 0 {
		return nil
	}
	who, _, _ := ownerOf(is)
	as := who
	if _, err := strconv.Atoi(who); err == nil {
		as = "'#" + who + "'"
	}
	return fmt.Errorf("data directory %s belongs to user %s, who could not read what root's node "+
		"makes there: systemctl start coordd, or sudo -u %s coordd …", dir, who, as)
}

// becomeOwner has root become the owner of a directory.
func becomeOwner(dir string, c console) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	is := info.Sys().(*syscall.Stat_t)
	if os.Geteuid() != 0 || is.Uid == 0 {
		return nil
	}
	who, gid, groups := ownerOf(is)
	err = errors.Join(syscall.Setgroups(groups), syscall.Setgid(gid), syscall.Setuid(int(is.Uid)))
	if err == nil && os.Geteuid() == 0 {
		err = errors.New("root stayed root")
	}
	if err != nil {
		return fmt.Errorf("%s belongs to user %s, and root cannot act as that user: %w; run this "+
			"as that user", dir, who, err)
	}
	fmt.Fprintf(c.stderr, "coordd: works on %s as its owner, user %s\n", dir, who)
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("user %s, the owner of %s, cannot reach it: %w; move it to where that "+
			"user can", who, dir, err)
	}
	return nil
}

// ownerOf returns the name and the groups of a directory's owner. A user without an entry has the
// directory's group alone, but not root's.
func ownerOf(is *syscall.Stat_t) (who string, gid int, groups []int) {
	who, gid = strconv.Itoa(int(is.Uid)), int(is.Gid)
	u, err := user.LookupId(who)
	if err != nil {
		if gid == 0 {
			gid = int(is.Uid)
		}
		return who, gid, []int{gid}
	}
	ids, _ := u.GroupIds()
	for _, id := range append([]string{u.Gid}, ids...) {
		if n, err := strconv.Atoi(id); err == nil {
			groups = append(groups, n)
		}
	}
	return u.Username, groups[0], groups
}
