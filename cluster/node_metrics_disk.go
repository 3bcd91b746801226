//go:build linux || darwin

package cluster

import "golang.org/x/sys/unix"

// spaceOf returns the space of the file system with a directory.
func spaceOf(dir string) diskSpace {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return diskSpace{}
	}
	block := float64(st.Bsize)
	return diskSpace{free: float64(st.Bavail) * block, size: float64(st.Blocks) * block}
}
