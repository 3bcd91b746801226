// Tests of leaders whose disk is slow.

package cluster

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft-wal/types"

	"github.com/coordd/coordd/cluster/disk"
)

// delays has the disks of nodes take longer to make something durable.
type delays struct {
	mu sync.Mutex
	of map[string]time.Duration // by node
}

// newDelays has the nodes that open from now on, in simulated time, have such disks.
func newDelays(t *testing.T) *delays {
	d := &delays{of: map[string]time.Duration{}}
	was := logFiles
	logFiles = delayedFiles{disk.NewSystem(), d}
	t.Cleanup(func() { logFiles = was })
	return d
}

func (d *delays) set(id string, takes time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of[id] = takes
}

type delayedFiles struct {
	disk.System
	d *delays
}

func (v delayedFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := v.System.Create(dir, name, size)
	return v.delayed(dir, f, err)
}

func (v delayedFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := v.System.OpenWriter(dir, name)
	return v.delayed(dir, f, err)
}

func (v delayedFiles) delayed(dir string, f types.WritableFile, err error) (types.WritableFile,
	error) {
	if err != nil {
		return nil, err
	}
	if filepath.Base(dir) == walName {
		dir = filepath.Dir(dir)
	}
	return delayedFile{f.(disk.File), v.d, filepath.Base(dir)}, nil
}

type delayedFile struct {
	disk.File
	d  *delays
	id string
}

func (f delayedFile) SyncData() error {
	f.d.mu.Lock()
	takes := f.d.of[f.id]
	f.d.mu.Unlock()
	time.Sleep(takes)
	return f.File.SyncData()
}

// A leader whose disk is slow is replaced within two seconds, by one whose disk is not, and a slow
// follower makes no write longer.
func TestSlowLeadersAreReplaced(t *testing.T) {
	for _, takes := range []time.Duration{20, 100, 500} {
		takes *= time.Millisecond
		t.Run(takes.String(), func(t *testing.T) {
			d := newDelays(t)
			simulated(t, func(t *testing.T) {
				c := newCluster(t, 3, nil)
				for _, m := range c.members {
					d.set(m.ID, time.Millisecond)
				}
				slow, by := c.leader(), c.followers()[0]
				c.write(by, "before")
				d.set(slow.cfg.ID, takes)
				began := time.Now()
				for i := 0; slow.leadsRaft() && time.Since(began) < 4*time.Second; i++ {
					c.write(by, fmt.Sprint("w", i))
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Fatalf("it leads after %v", took)
				}
				c.write(by, "after")
				for i := range 100 {
					began := time.Now()
					c.write(by, fmt.Sprint("a", i))
					if took := time.Since(began); took >= 20*time.Millisecond {
						t.Errorf("a write took %v beside a slow follower", took)
					}
				}
			})
		})
	}
}

// Where all disks are slow, or one was for a moment, leadership stays.
func TestSlowDisksOfAll(t *testing.T) {
	d := newDelays(t)
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead := c.leader()
		for i, m := range c.members {
			d.set(m.ID, time.Duration(20+5*i)*time.Millisecond)
		}
		d.set(lead.cfg.ID, 50*time.Millisecond)
		term := lead.raft.CurrentTerm()
		write := func(took time.Duration) {
			for began := time.Now(); time.Since(began) < took; time.Sleep(5 * time.Millisecond) {
				c.write(lead, fmt.Sprint(time.Now()))
			}
		}
		write(2 * slowFor)
		for _, m := range c.members {
			d.set(m.ID, time.Millisecond)
		}
		write(slowFor / 2)
		for range 2 {
			d.set(lead.cfg.ID, 20*time.Millisecond)
			write(slowFor / 2)
			d.set(lead.cfg.ID, time.Millisecond)
			write(slowFor / 2)
		}
		if !lead.leadsIn(term) {
			t.Errorf("%s leads in term %d", c.leader().cfg.ID, c.leader().raft.CurrentTerm())
		}
	})
}

// A voter with a higher priority leads again once its disk is quick again.
func TestPriorityOfSlowVoters(t *testing.T) {
	d := newDelays(t)
	simulated(t, func(t *testing.T) {
		const after = 200 * time.Millisecond
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.preferAfter = after
			if cfg.ID == "n2" {
				cfg.Priority = 200
			}
		})
		for _, m := range c.members {
			d.set(m.ID, time.Millisecond)
		}
		lead := func(is string, leads bool, within time.Duration) {
			t.Helper()
			for began := time.Now(); (c.leader().cfg.ID == "n2") != leads; {
				c.write(c.nodes["n1"], fmt.Sprint(time.Now()))
				time.Sleep(10 * time.Millisecond)
				if time.Since(began) > within {
					t.Fatalf("%s: %s leads", is, c.leader().cfg.ID)
				}
			}
		}
		lead("at first", true, 10*after)
		d.set("n2", 100*time.Millisecond)
		lead("slow", false, 2*time.Second)
		for began := time.Now(); time.Since(began) < 10*after; {
			lead("slow for long", false, 0)
			c.write(c.nodes["n1"], fmt.Sprint(time.Now()))
			time.Sleep(50 * time.Millisecond)
		}
		d.set("n2", time.Millisecond)
		lead("quick again", true, 10*after)
	})
}
