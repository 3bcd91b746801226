// The disk as a file system in user space.

package crashdisk

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Available returns why disks cannot be mounted here; nil: they can.
func Available() error {
	if os.Getuid() != 0 {
		return errors.New("mounting a file system needs root")
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// Mount is a disk that processes see.
type Mount struct {
	disk   *Disk
	dir    string
	server *fuse.Server
	ended  chan struct{}
}

// MountAt mounts the disk at an empty directory.
//
// The kernel may keep what it knows of names and attributes, since nobody else changes them. It
// writes nothing back later: each write(2) reaches the disk before it returns, and a mapped file
// shows it.
func (d *Disk) MountAt(dir string) (*Mount, error) {
	server, err := fuse.NewServer(&fileSystem{fuse.NewDefaultRawFileSystem(), d}, dir,
		&fuse.MountOptions{DirectMountStrict: true, FsName: "crashdisk", Name: "crashdisk",
			MaxWrite: 1 << 20, DisableXAttrs: true, DisableReadDirPlus: true, AllowOther: true})
	if err != nil {
		return nil, fmt.Errorf("cannot mount %s: %w", dir, err)
	}
	m := &Mount{d, dir, server, make(chan struct{})}
	go func() { defer close(m.ended); server.Serve() }()
	return m, server.WaitMount()
}

// Unmount releases the disk and unmounts it, also from processes that use it still.
func (m *Mount) Unmount() error {
	m.disk.Release()
	err := syscall.Unmount(m.dir, syscall.MNT_DETACH|syscall.MNT_FORCE)
	if err == nil {
		<-m.ended
	}
	return err
}

// cached is how long the kernel may keep what it was told.
const cached = time.Hour

// fileSystem implements fuse.RawFileSystem. A node's number is its id for the kernel.
type fileSystem struct {
	fuse.RawFileSystem
	d *Disk
}

// String names the file system.
func (*fileSystem) String() string { return "crashdisk" }

// lock locks the disk and returns the node with a number; nil: none.
func (f *fileSystem) lock(number uint64) *node {
	f.d.mu.Lock()
	return f.d.nodes[number]
}

func (n *node) attributes(a *fuse.Attr) {
	a.Ino, a.Mode, a.Nlink, a.Blksize = n.number, n.mode, uint32(n.links), 4096
	a.Size, a.Blocks = uint64(len(n.data.bytes)), uint64(n.data.reserved+Sector-1)/Sector
	a.Mtime, a.Mtimensec = uint64(n.changed/1e9), uint32(n.changed%1e9)
	a.Ctime, a.Ctimensec, a.Atime, a.Atimensec = a.Mtime, a.Mtimensec, a.Mtime, a.Mtimensec
}

func (n *node) entry(out *fuse.EntryOut) {
	out.NodeId, out.Generation = n.number, 1
	out.SetEntryTimeout(cached)
	out.SetAttrTimeout(cached)
	n.attributes(&out.Attr)
}

// StatFs implements fuse.RawFileSystem. The disk is large and empty.
func (*fileSystem) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	const blocks = 1 << 20
	out.Bsize, out.Frsize, out.NameLen = 4096, 4096, 255
	out.Blocks, out.Bfree, out.Bavail, out.Files, out.Ffree = blocks, blocks, blocks, blocks, blocks
	return fuse.OK
}

// Lookup implements fuse.RawFileSystem.
func (f *fileSystem) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string,
	out *fuse.EntryOut) fuse.Status {
	dir := f.lock(in.NodeId)
	defer f.d.mu.Unlock()
	n := dir.entries[name]
	if n == nil {
		return fuse.ENOENT
	}
	n.entry(out)
	return fuse.OK
}

// GetAttr implements fuse.RawFileSystem.
func (f *fileSystem) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn,
	out *fuse.AttrOut) fuse.Status {
	n := f.lock(in.NodeId)
	defer f.d.mu.Unlock()
	out.SetTimeout(cached)
	n.attributes(&out.Attr)
	return fuse.OK
}

// SetAttr implements fuse.RawFileSystem.
func (f *fileSystem) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn,
	out *fuse.AttrOut) fuse.Status {
	n := f.lock(in.NodeId)
	defer f.d.mu.Unlock()
	if size, ok := in.GetSize(); ok {
		if errno := f.resize(n, int64(size)); errno != 0 {
			return fuse.Status(errno)
		}
	}
	if mode, ok := in.GetMode(); ok {
		if errno := f.d.do("chmod", n.name(), func(attempted bool) {
			if !attempted {
				n.mode = n.mode&syscall.S_IFMT | mode&^syscall.S_IFMT
			}
		}); errno != 0 {
			return fuse.Status(errno)
		}
	}
	out.SetTimeout(cached)
	n.attributes(&out.Attr)
	return fuse.OK
}

func (f *fileSystem) resize(n *node, size int64) syscall.Errno {
	return f.d.do("truncate", n.name(), func(attempted bool) {
		n.change(change{size: size, attempted: attempted})
	})
}

// Mkdir implements fuse.RawFileSystem.
func (f *fileSystem) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string,
	out *fuse.EntryOut) fuse.Status {
	dir := f.lock(in.NodeId)
	defer f.d.mu.Unlock()
	_, errno := f.make("mkdir", dir, name, syscall.S_IFDIR|in.Mode, out)
	return fuse.Status(errno)
}

// Create implements fuse.RawFileSystem.
func (f *fileSystem) Create(_ <-chan struct{}, in *fuse.CreateIn, name string,
	out *fuse.CreateOut) fuse.Status {
	dir := f.lock(in.NodeId)
	defer f.d.mu.Unlock()
	_, errno := f.make("create", dir, name, syscall.S_IFREG|in.Mode&^syscall.S_IFMT,
		&out.EntryOut)
	return fuse.Status(errno)
}

func (f *fileSystem) make(kind string, dir *node, name string, mode uint32,
	out *fuse.EntryOut) (*node, syscall.Errno) {
	if dir.entries[name] != nil {
		return nil, syscall.EEXIST
	}
	n := f.d.add(mode)
	errno := f.d.do(kind, dir.path(name), func(attempted bool) {
		f.d.rename(attempted, edit{dir, name, n})
	})
	if errno == 0 {
		n.entry(out)
	}
	return n, errno
}

// Link implements fuse.RawFileSystem.
func (f *fileSystem) Link(_ <-chan struct{}, in *fuse.LinkIn, name string,
	out *fuse.EntryOut) fuse.Status {
	dir := f.lock(in.NodeId)
	defer f.d.mu.Unlock()
	n := f.d.nodes[in.Oldnodeid]
	if dir.entries[name] != nil {
		return fuse.Status(syscall.EEXIST)
	}
	errno := f.d.do("link", dir.path(name), func(attempted bool) {
		f.d.rename(attempted, edit{dir, name, n})
	})
	n.entry(out)
	return fuse.Status(errno)
}

// Unlink implements fuse.RawFileSystem.
func (f *fileSystem) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return f.remove("unlink", in.NodeId, name)
}

// Rmdir implements fuse.RawFileSystem.
func (f *fileSystem) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return f.remove("rmdir", in.NodeId, name)
}

func (f *fileSystem) remove(kind string, number uint64, name string) fuse.Status {
	dir := f.lock(number)
	defer f.d.mu.Unlock()
	n := dir.entries[name]
	switch {
	case n == nil:
		return fuse.ENOENT
	case len(n.entries) > 0:
		return fuse.Status(syscall.ENOTEMPTY)
	}
	return fuse.Status(f.d.do(kind, dir.path(name), func(attempted bool) {
		f.d.rename(attempted, edit{dir, name, nil})
	}))
}

// Rename implements fuse.RawFileSystem.
func (f *fileSystem) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	dir := f.lock(in.NodeId)
	defer f.d.mu.Unlock()
	toDir := f.d.nodes[in.Newdir]
	n, old := dir.entries[from], toDir.entries[to]
	switch {
	case n == nil:
		return fuse.ENOENT
	case in.Flags != 0:
		return fuse.EINVAL
	case old != nil && len(old.entries) > 0:
		return fuse.Status(syscall.ENOTEMPTY)
	case old == n:
		return fuse.OK
	}
	return fuse.Status(f.d.do("rename", toDir.path(to), func(attempted bool) {
		f.d.rename(attempted, edit{toDir, to, n}, edit{dir, from, nil})
	}))
}

// Open implements fuse.RawFileSystem.
func (f *fileSystem) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	n := f.lock(in.NodeId)
	defer f.d.mu.Unlock()
	if errno := f.d.open(n); errno != 0 {
		return fuse.Status(errno)
	}
	if in.Flags&syscall.O_TRUNC != 0 && len(n.data.bytes) > 0 {
		return fuse.Status(f.resize(n, 0))
	}
	return fuse.OK
}

// Read implements fuse.RawFileSystem.
func (f *fileSystem) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult,
	fuse.Status) {
	n := f.lock(in.NodeId)
	defer f.d.mu.Unlock()
	at := min(in.Offset, uint64(len(n.data.bytes)))
	return fuse.ReadResultData(buf[:copy(buf, n.data.bytes[at:])]), fuse.OK
}

// Write implements fuse.RawFileSystem.
func (f *fileSystem) Write(_ <-chan struct{}, in *fuse.WriteIn, p []byte) (uint32, fuse.Status) {
	n := f.lock(in.NodeId)
	defer f.d.mu.Unlock()
	errno := f.d.do("write", n.name(), func(attempted bool) {
		n.change(change{at: int64(in.Offset), bytes: slices.Clone(p), attempted: attempted})
	})
	if errno != 0 {
		return 0, fuse.Status(errno)
	}
	return uint32(len(p)), fuse.OK
}

// Fallocate implements fuse.RawFileSystem.
func (f *fileSystem) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	n := f.lock(in.NodeId)
	defer f.d.mu.Unlock()
	if in.Mode != 0 {
		return fuse.Status(syscall.EOPNOTSUPP)
	}
	return fuse.Status(f.d.do("fallocate", n.name(), func(attempted bool) {
		size := max(int64(in.Offset+in.Length), int64(len(n.data.bytes)))
		n.change(change{size: size, reserves: true, attempted: attempted})
	}))
}

// syncData is the flag of a sync without times.
const syncData = 1

// Fsync implements fuse.RawFileSystem.
func (f *fileSystem) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	n := f.lock(in.NodeId)
	defer f.d.mu.Unlock()
	kind := "sync"
	if in.FsyncFlags&syncData != 0 {
		kind = "datasync"
	}
	errno := f.d.do(kind, n.name(), func(attempted bool) {
		if !attempted {
			n.sync()
		}
	})
	if errno != 0 && !f.d.plan.down {
		n.lose()
	}
	return fuse.Status(errno)
}

// OpenDir implements fuse.RawFileSystem.
func (f *fileSystem) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	dir := f.lock(in.NodeId)
	defer f.d.mu.Unlock()
	return fuse.Status(f.d.open(dir))
}

// ReadDir implements fuse.RawFileSystem.
func (f *fileSystem) ReadDir(_ <-chan struct{}, in *fuse.ReadIn,
	out *fuse.DirEntryList) fuse.Status {
	dir := f.lock(in.NodeId)
	defer f.d.mu.Unlock()
	names := slices.Sorted(maps.Keys(dir.entries))
	for i := in.Offset; i < uint64(len(names)); i++ {
		n := dir.entries[names[i]]
		if !out.AddDirEntry(fuse.DirEntry{Mode: n.mode, Name: names[i], Ino: n.number,
			Off: i + 1}) {
			break
		}
	}
	return fuse.OK
}

// FsyncDir implements fuse.RawFileSystem.
func (f *fileSystem) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	dir := f.lock(in.NodeId)
	defer f.d.mu.Unlock()
	return fuse.Status(f.d.do("syncdir", dir.name(), func(attempted bool) {
		if !attempted {
			f.d.syncDir(dir)
		}
	}))
}

// Access implements fuse.RawFileSystem. Processes that need a disk that crashes are root's.
func (*fileSystem) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.OK }
