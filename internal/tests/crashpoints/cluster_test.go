// Scenarios of a node among three: n1 is on a disk that crashes and goes from crash to crash, the
// others are on ordinary directories.

package crashpoints

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/crashdisk"
)

// trio is a cluster of three.
type trio struct {
	*single // n1; its base is the disk as it is now
	others  []*node
	both    *volume // where copies of its disk are inspected
	// setUp brings the cluster to where the scenario begins; n1 runs, unless the scenario starts it
	setUp func() error
	// needed: n1 and n2 are a majority, so that n1 has stored what the cluster acknowledged
	needed bool
	// starts: the life begins with the start of n1
	starts bool
	term   uint64 // when the life began
}

// newTrio starts a cluster.
func newTrio(t *testing.T, flags ...string) *trio {
	c := &trio{single: newSingle(t, flags...), both: &volume{dir: t.TempDir()}}
	t.Cleanup(func() {
		if err := c.both.remove(); err != nil {
			t.Error(err)
		}
	})
	members := []string{"n1=" + c.peer}
	for _, id := range []string{"n2", "n3"} {
		dir := t.TempDir()
		n := newNode(t, id, append([]string{"--data-dir", filepath.Join(dir, "data"),
			"--users-file", filepath.Join(dir, "users.acl")}, flags...)...)
		put := crashdisk.New()
		put.Put("users.acl", []byte(everybody))
		if err := put.Extract(dir); err != nil {
			t.Fatal(err)
		}
		c.others = append(c.others, n)
		members = append(members, id+"="+n.peer)
	}
	for _, n := range c.all() {
		n.args = append(n.args, "--cluster", strings.Join(members, ","))
	}
	if err := c.insert(c.base); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.all() {
		if err := n.start(); err != nil {
			t.Fatal(err)
		}
	}
	c.led = c.from
	for _, n := range c.all() {
		if err := n.await(); err != nil {
			t.Fatal(err)
		}
		if err := c.led.serves(n); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *trio) all() []*node { return append([]*node{c.node}, c.others...) }

// leads makes a node the leader.
func (c *trio) leads(to *node) error {
	return until(within, to.id+" leads", func() (bool, error) {
		if role, err := to.do("ROLE"); err == nil {
			if words, ok := role.([]any); ok && words[0] == "master" {
				return true, nil
			}
		}
		if c.reached() {
			return false, errors.New("the disk failed meanwhile")
		}
		for _, n := range c.all() {
			if n.cmd != nil && !n.ended() {
				_, _ = n.do("RAFT", "TRANSFER", to.id) // another try follows
			}
		}
		return false, nil
	})
}

// caughtUp waits until n1 has applied what the others have committed.
func (c *trio) caughtUp() error {
	return c.until("n1 has applied what n2 has", func() (bool, error) {
		if c.ended() {
			return false, c.ending()
		}
		target, err := c.others[0].info("raft_commit_index")
		if err != nil {
			return false, nil
		}
		applied, err := c.info("raft_applied_index")
		return err == nil && applied >= target, nil
	})
}

// try tries a point, from the present state of the cluster.
func (c *trio) try(p point, rnd *rand.Rand) (hit crashdisk.Op, err error) {
	c.reach = nil // of the point before
	if err := c.setUp(); err != nil {
		return hit, fmt.Errorf("before the life: %w", err)
	}
	if c.starts {
		if err := c.insert(c.disk.Survivor(crashdisk.Kept, nil)); err != nil {
			return hit, err
		}
	} else if c.term, err = c.info("raft_term"); err != nil {
		return hit, err
	}
	c.plan(p)
	err = c.live(p)
	hit = c.disk.Hit()
	c.count.most = max(c.count.most, first(c.disk.Taken()))
	c.heal()
	if err == nil && p.outcome == "" {
		err = c.goesOn()
	}
	c.kill()
	if err != nil {
		return hit, err
	}
	switch {
	case hit.N == 0:
		p.outcome = crashdisk.Kept
	case p.outcome == "":
		p.outcome = crashdisk.Lost
	}
	return hit, c.again(p, rnd)
}

// again starts n1 on what is left of its disk, and compares it with the others.
func (c *trio) again(p point, rnd *rand.Rand) error {
	left := c.disk.Survivor(p.outcome, rnd)
	c.dead = []*crashdisk.Disk{c.disk, left.Survivor(crashdisk.Kept, nil)}
	if c.needed {
		if err := c.inspect(left); err != nil {
			return err
		}
	}
	if err := c.insert(left); err != nil {
		return err
	}
	if err := c.start(); err != nil {
		return err
	}
	if err := c.await(); err != nil {
		return err
	}
	for _, n := range c.others {
		if n.cmd != nil && n.ended() {
			if err := errors.Join(n.start(), n.await()); err != nil {
				return err
			}
		}
	}
	if err := c.caughtUp(); err != nil {
		return err
	}
	if err := c.led.check(c.client); err != nil {
		return err
	}
	return c.agree()
}

// inspect looks at a copy of n1's disk before n1 starts: it must hold whatever n2, which cannot
// commit without n1, has committed.
func (c *trio) inspect(left *crashdisk.Disk) error {
	committed, err := c.others[0].info("raft_commit_index")
	if err != nil {
		return err
	}
	if err := c.both.insert(left.Survivor(crashdisk.Kept, nil)); err != nil {
		return err
	}
	defer c.both.remove()
	said, err := coordd(nil, nil, "recover", "--data-dir", filepath.Join(c.both.dir, "data"))
	if err != nil {
		return fmt.Errorf("coordd recover: %w", err)
	}
	var term, index uint64
	if _, log, ok := strings.Cut(said, "log           "); !ok {
		return errors.New(said)
	} else if _, err := fmt.Sscanf(log, "term %d, index %d", &term, &index); err != nil {
		return err
	}
	if index < committed {
		return fmt.Errorf("n1's log ends with entry %d; entries up to %d were committed with it",
			index, committed)
	}
	return c.votes(said, term)
}

// votes looks for the term and the vote that n1 gave. Its log ends in a term whose leader needed
// its vote, if that began with n3 dead.
func (c *trio) votes(said string, last uint64) error {
	var term, voted uint64
	_, promised, _ := strings.Cut(said, "promised      ")
	_, err := fmt.Sscanf(promised, "term %d, vote in term %d", &term, &voted)
	if err != nil || term < last || last > c.term && voted < last {
		return fmt.Errorf("n1 is in term %d and voted in term %d; its log ends in term %d, %v",
			term, voted, last, err)
	}
	return nil
}

// agree waits until the nodes that run hold equal bytes.
func (c *trio) agree() error {
	return until(within, "equal states", func() (bool, error) {
		states := map[string]bool{}
		for _, n := range c.all() {
			if n.ended() {
				continue
			}
			state, err := n.client.Do(context.Background(), "RAFT", "BACKUP").Text()
			if err != nil {
				return false, nil
			}
			states[state] = true
		}
		return len(states) == 1, nil
	})
}

func (c *trio) evidence(dir string) error {
	return errors.Join(c.single.evidence(dir), writeLogs(dir, c.others...))
}

// revive starts the nodes that do not run.
func (c *trio) revive() error {
	for _, n := range c.all() {
		if n.ended() {
			if err := n.start(); err != nil {
				return err
			}
		}
		if err := n.await(); err != nil {
			return err
		}
	}
	return nil
}

// transfers returns a step that makes a node the leader.
func (c *trio) transfers(to *node) func() error {
	return func() error { return c.leads(to) }
}

// through returns a step that writes through a node.
func (c *trio) through(n *node, times int) func() error {
	return func() error { return c.led.writes(n.client, times) }
}

// voter waits until the cluster has three voters.
func (c *trio) voter() error {
	return c.until("n1 is a voter", func() (bool, error) {
		if c.ended() {
			return false, c.ending()
		}
		members, err := c.others[0].do("RAFT", "MEMBERS")
		text := fmt.Sprint(members)
		voters := strings.Count(text, "role:voter") + strings.Count(text, "role:leader")
		return err == nil && voters == 3, nil
	})
}

// behind returns n1, dead, that lacks more than the others' logs still hold.
func (c *trio) behind() error {
	if err := c.revive(); err != nil {
		return err
	}
	c.kill()
	for range 75 { // whoever leads meanwhile
		if err := c.led.serves(c.others[0]); err != nil {
			return err
		}
	}
	var errs []error
	for _, n := range c.others {
		_, err := n.do("RAFT", "SNAPSHOT")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// conflict leaves n1 dead with entries that the others never got, and the others with different
// ones in their place.
func (c *trio) conflict() error {
	if err := c.revive(); err != nil {
		return err
	}
	if err := c.leads(c.node); err != nil {
		return err
	}
	for _, n := range c.others {
		n.kill()
	}
	lone := newLedger("lone:")
	ctx, done := context.WithTimeout(context.Background(), 300*time.Millisecond)
	for range 3 {
		lone.sent++
		_ = c.client.Set(ctx, "lone:"+fmt.Sprint(lone.sent), "x", 0).Err() // nobody acknowledges it
	}
	done()
	c.kill()
	for _, n := range c.others {
		if err := n.start(); err != nil {
			return err
		}
	}
	if err := c.others[0].await(); err != nil {
		return err
	}
	for range 4 {
		if err := c.led.serves(c.others[0]); err != nil {
			return err
		}
	}
	return nil
}

// founds begins a new cluster: n2 and n3 start on empty directories, and n1's disk is empty.
func (c *trio) founds() error {
	for _, n := range c.all() {
		n.kill()
	}
	c.led = newLedger("f:")
	for _, n := range c.others {
		if err := errors.Join(os.RemoveAll(n.flag("--data-dir")), n.start()); err != nil {
			return err
		}
	}
	return c.fresh()
}

// fresh puts in an empty disk.
func (c *trio) fresh() error {
	d := crashdisk.New()
	d.Put("users.acl", []byte(everybody))
	return c.insert(d)
}

// joins removes the node that n1 was from the cluster of n2 and n3, and makes it another one.
func (c *trio) joins() error {
	was := "n1"
	if text, err := c.disk.ReadFile("data/VERSION"); err == nil {
		_, text, _ := strings.Cut(string(text), "node: ")
		was, _, _ = strings.Cut(text, "\n")
	}
	c.kill()
	c.args = slices.Clone(c.args[:slices.Index(c.args, "--cluster")])
	c.args[1] = "auto"
	c.args = append(c.args, "--peer-listen", c.peer, "--join", c.others[0].addr, "--cluster", "")
	if err := until(within, was+" is removed", func() (bool, error) {
		members, err := c.others[0].do("RAFT", "MEMBERS")
		if err != nil || !strings.Contains(fmt.Sprint(members), "id:"+was+" ") {
			return err == nil, nil
		}
		_, _ = c.others[0].do("RAFT", "REMOVE", was) // the members tell
		return false, nil
	}); err != nil {
		return err
	}
	return c.fresh()
}

// trios are the scenarios of a node among three.
var trios = map[string]func(c *trio){
	// n1 follows while n3 is dead: n1 has stored what is acknowledged
	"follow": func(c *trio) {
		c.needed = true
		c.setUp = func() error {
			c.others[1].kill()
			if err := c.leads(c.others[0]); err != nil {
				return err
			}
			return c.caughtUp()
		}
		c.life = []func() error{c.through(c.others[0], 40)}
	},
	"lead": func(c *trio) {
		c.setUp = func() error {
			if err := c.revive(); err != nil {
				return err
			}
			return c.leads(c.node)
		}
		c.life = []func() error{c.through(c.node, 20), c.through(c.others[0], 20)}
	},
	"elect": func(c *trio) {
		c.needed = true
		c.setUp = func() error {
			c.others[1].kill()
			return c.leads(c.others[0])
		}
		c.life = []func() error{c.transfers(c.node), c.through(c.node, 1),
			c.transfers(c.others[0]), c.through(c.others[0], 1)}
	},
	"found": func(c *trio) {
		c.starts, c.setUp = true, c.founds
		c.life = []func() error{c.start, c.await, func() error { return c.led.serves(c.node) },
			c.through(c.others[0], 2)}
	},
	"join": func(c *trio) {
		c.starts, c.setUp = true, c.joins
		c.life = []func() error{c.start, c.await, c.voter, c.through(c.others[0], 2)}
	},
	"install": func(c *trio) {
		c.starts, c.setUp = true, c.behind
		c.life = []func() error{c.start, c.await, c.caughtUp}
	},
	"conflict": func(c *trio) {
		c.starts, c.setUp = true, c.conflict
		c.life = []func() error{c.start, c.await, c.caughtUp}
	},
}
