// What is left of a disk.

package crashdisk

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// Outcome is what becomes of that which was not synced.
type Outcome string

// The outcomes.
const (
	Kept Outcome = "kept"
	Lost Outcome = "lost"
	Torn Outcome = "torn"
)

// Outcomes are all of them.
var Outcomes = []Outcome{Kept, Lost, Torn}

// Survivor returns the disk as the next start finds it. All that it holds is durable. The operation
// at which the power failed was taken in part if the outcome is Torn, and else not at all. Only
// Torn needs rnd.
func (d *Disk) Survivor(outcome Outcome, rnd *rand.Rand) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &survivor{to: New(), outcome: outcome, rnd: rnd, made: map[*node]*node{},
		names: map[*node]map[string]*node{}}
	if outcome == Torn {
		s.names = d.tornNames(rnd)
	}
	s.made[d.root] = s.to.root
	s.fill(d.root)
	return s.to
}

type survivor struct {
	to      *Disk
	outcome Outcome
	rnd     *rand.Rand
	made    map[*node]*node            // by those of the old disk
	names   map[*node]map[string]*node // names in each directory where they are torn
}

// tornNames returns the names in directories after the first operations that were not durable, by
// chance.
func (d *Disk) tornNames(rnd *rand.Rand) map[*node]map[string]*node {
	names := map[*node]map[string]*node{}
	for _, r := range d.names[:rnd.IntN(len(d.names)+1)] {
		for _, e := range r.edits {
			if names[e.dir] == nil {
				names[e.dir] = maps.Clone(e.dir.saved)
			}
			e.apply(names[e.dir])
		}
	}
	return names
}

// fill makes what survives in a directory.
func (s *survivor) fill(dir *node) {
	entries, torn := s.names[dir]
	switch {
	case s.outcome == Kept:
		entries = dir.entries
	case !torn:
		entries = dir.saved
	}
	in := s.made[dir]
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		old := entries[name]
		n := s.made[old]
		if n == nil {
			n = s.to.add(old.mode)
			s.made[old] = n
			if old.isDir() {
				s.fill(old)
			} else {
				n.durable = s.content(old)
				n.data = n.durable.clone()
			}
		}
		n.parent, n.called = in, name
		n.links++
		in.entries[name], in.saved[name] = n, n
	}
}

// content returns what survives of a file.
func (s *survivor) content(n *node) content {
	switch s.outcome {
	case Kept:
		return n.data.clone()
	case Lost:
		return n.durable.clone()
	}
	c := n.durable.clone()
	// Of some files everything is written back, or nothing: more often than by chance.
	all, none := s.rnd.IntN(4) == 0, s.rnd.IntN(4) == 0
	for _, is := range n.pending {
		switch {
		case is.gone, none && !is.attempted:
		case is.bytes == nil:
			if all || s.rnd.IntN(2) == 0 {
				c.apply(is)
			}
		default:
			s.tear(&c, is, all && !is.attempted)
		}
	}
	return c
}

// tear applies some sectors of a write, or all.
func (s *survivor) tear(c *content, is change, all bool) {
	for at := 0; at < len(is.bytes); {
		end := min(at+Sector-int((is.at+int64(at))%Sector), len(is.bytes))
		if all || s.rnd.IntN(2) == 0 {
			c.apply(change{at: is.at + int64(at), bytes: is.bytes[at:end]})
		}
		at = end
	}
}

// Extract copies what processes see to a directory of the system.
func (d *Disk) Extract(to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return extract(d.root, to)
}

func extract(n *node, to string) error {
	if !n.isDir() {
		return os.WriteFile(to, n.data.bytes, 0o600)
	}
	errs := []error{os.MkdirAll(to, 0o700)}
	for name, child := range n.entries {
		errs = append(errs, extract(child, filepath.Join(to, name)))
	}
	return errors.Join(errs...)
}

// Load makes a disk of a directory of the system, with its regular files and directories.
func Load(from string) (*Disk, error) {
	d := New()
	return d, filepath.WalkDir(from, func(at string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, at)
		switch {
		case err != nil:
			return err
		case e.IsDir():
			d.PutDir(filepath.ToSlash(name))
		case e.Type().IsRegular():
			b, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			d.Put(filepath.ToSlash(name), b)
		}
		return nil
	})
}
