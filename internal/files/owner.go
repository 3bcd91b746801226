package files

import (
	"io/fs"
	"os"
	"syscall"
)

// GiveToOwner gives what root has written in a directory to its owner, whose programs could not
// read it otherwise. It follows no link out of the directory, and leaves files that have another
// name too, which may be there.
func GiveToOwner(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	if owner.Uid == 0 {
		return nil
	}
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if is := info.Sys().(*syscall.Stat_t); is.Uid != 0 || !info.IsDir() && is.Nlink > 1 {
			return nil
		}
		return root.Lchown(name, int(owner.Uid), int(owner.Gid))
	})
}
