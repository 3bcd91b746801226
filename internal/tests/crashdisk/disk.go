// The disk: files, directories, and which of their changes are durable.

package crashdisk

import (
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Sector is how many bytes reach the disk together.
const Sector = 512

// Disk is a disk in memory. All methods may be called at any time.
type Disk struct {
	mu    sync.Mutex
	root  *node
	nodes map[uint64]*node // by number
	last  uint64           // number given
	names []rename         // changes of names that are not durable, in their order
	plan  plan
}

// node is a file or a directory.
type node struct {
	number  uint64
	mode    uint32 // with the bits of its type
	changed int64  // when, in ns
	links   int    // names, as processes see them
	// where its newest name is, or was
	parent *node // nil: the root
	called string

	// if it is a file
	data, durable content
	pending       []change // since the last sync, in their order

	// if it is a directory
	entries, saved map[string]*node
}

// content is that of a file. Its bytes before reserved have blocks on the disk.
type content struct {
	bytes    []byte
	reserved int64
}

// change is a write, or a new size.
type change struct {
	at        int64
	bytes     []byte // nil: the size changes
	size      int64  // then
	reserves  bool   // the new size has blocks
	attempted bool   // by the operation at which the power failed
	gone      bool   // a sync failed after it
}

// rename changes names together.
type rename struct {
	edits     []edit
	attempted bool
}

// edit gives a name in a directory to a node, or to none.
type edit struct {
	dir  *node
	name string
	to   *node
}

// New returns an empty disk.
func New() *Disk {
	d := &Disk{nodes: map[uint64]*node{}}
	d.plan.init()
	d.root = d.add(syscall.S_IFDIR | 0o700)
	d.root.links = 1
	return d
}

// add makes a node without a name.
func (d *Disk) add(mode uint32) *node {
	d.last++
	n := &node{number: d.last, mode: mode}
	n.touch()
	if n.isDir() {
		n.entries, n.saved = map[string]*node{}, map[string]*node{}
	}
	d.nodes[n.number] = n
	return n
}

func (n *node) isDir() bool { return n.mode&syscall.S_IFMT == syscall.S_IFDIR }

// apply makes one change.
func (c *content) apply(is change) {
	if is.bytes == nil {
		c.resize(is.size, is.reserves)
		return
	}
	end := is.at + int64(len(is.bytes))
	if end > int64(len(c.bytes)) {
		c.resize(end, is.at <= c.reserved)
	}
	if is.at <= c.reserved {
		c.reserved = max(c.reserved, end)
	}
	copy(c.bytes[is.at:], is.bytes)
}

func (c *content) resize(size int64, reserves bool) {
	if grow := size - int64(len(c.bytes)); grow > 0 {
		c.bytes = append(c.bytes, make([]byte, grow)...)
	} else {
		c.bytes = slices.Clone(c.bytes[:size])
	}
	c.reserved = min(c.reserved, size)
	if reserves {
		c.reserved = size
	}
}

func (c *content) clone() content { return content{slices.Clone(c.bytes), c.reserved} }

// change changes a file as processes see it.
func (n *node) change(is change) {
	if !is.attempted {
		n.data.apply(is)
		n.touch()
	}
	n.pending = append(n.pending, is)
}

// sync makes the data of a file durable, except those that a failed sync lost.
func (n *node) sync() {
	left := n.pending[:0]
	for _, c := range n.pending {
		if c.gone {
			left = append(left, c)
		} else {
			n.durable.apply(c)
		}
	}
	n.pending = left
}

// lose is a sync that failed.
func (n *node) lose() {
	for i := range n.pending {
		n.pending[i].gone = true
	}
}

// rename changes names as processes see them.
func (d *Disk) rename(attempted bool, edits ...edit) {
	if !attempted {
		for _, e := range edits {
			if old := e.dir.entries[e.name]; old != nil {
				old.links--
			}
			if e.to == nil {
				delete(e.dir.entries, e.name)
				e.dir.touch()
				continue
			}
			e.dir.entries[e.name] = e.to
			e.to.parent, e.to.called = e.dir, e.name
			e.to.links++
			e.dir.touch()
		}
	}
	d.names = append(d.names, rename{edits, attempted})
}

// syncDir makes the names in a directory durable, with all changes before the newest of them.
func (d *Disk) syncDir(dir *node) {
	upTo := 0
	for i, r := range d.names {
		if slices.ContainsFunc(r.edits, func(e edit) bool { return e.dir == dir }) {
			upTo = i + 1
		}
	}
	for _, r := range d.names[:upTo] {
		for _, e := range r.edits {
			e.apply(e.dir.saved)
		}
	}
	d.names = slices.Clone(d.names[upTo:])
}

func (e edit) apply(entries map[string]*node) {
	if e.to == nil {
		delete(entries, e.name)
	} else {
		entries[e.name] = e.to
	}
}

// path returns the path of a name in a directory.
func (n *node) path(name string) string {
	if n.parent == nil {
		return name
	}
	return n.parent.path(n.called + "/" + name)
}

// name returns the newest path of a node.
func (n *node) name() string {
	if n.parent == nil {
		return "/"
	}
	return n.parent.path(n.called)
}

// find returns the node at a slash-separated path; nil: none.
func (d *Disk) find(at string) *node {
	n := d.root
	for name := range strings.SplitSeq(path.Clean("/" + at)[1:], "/") {
		if name != "" && n != nil {
			n = n.entries[name]
		}
	}
	return n
}

// ReadFile returns the content of a file, as processes see it.
func (d *Disk) ReadFile(at string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.find(at)
	if n == nil {
		return nil, syscall.ENOENT
	} else if n.isDir() {
		return nil, syscall.EISDIR
	}
	return slices.Clone(n.data.bytes), nil
}

// Names returns the names in a directory, as processes see them; none if it does not exist.
func (d *Disk) Names(at string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.find(at); n != nil {
		return slices.Sorted(maps.Keys(n.entries))
	}
	return nil
}

// Put makes a durable file, with the directories that lead to it, and replaces an older one. It is
// for disks that are not mounted.
func (d *Disk) Put(at string, content []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir, name := path.Split(path.Clean("/" + at))
	in := d.makeDirs(dir)
	f := d.add(syscall.S_IFREG | 0o600)
	f.change(change{bytes: append([]byte{}, content...)})
	f.sync()
	d.rename(false, edit{in, name, f})
	d.syncDir(in)
}

// PutDir makes a durable directory, with those that lead to it. It is for disks that are not
// mounted.
func (d *Disk) PutDir(at string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.makeDirs(at)
}

func (d *Disk) makeDirs(at string) *node {
	n := d.root
	for name := range strings.SplitSeq(path.Clean("/" + at)[1:], "/") {
		if name == "" {
			continue
		}
		if n.entries[name] == nil {
			d.rename(false, edit{n, name, d.add(syscall.S_IFDIR | 0o700)})
			d.syncDir(n)
		}
		n = n.entries[name]
	}
	return n
}
