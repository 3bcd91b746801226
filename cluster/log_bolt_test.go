package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/coordd/coordd/cluster/disk"
)

// A log of kind bolt that was lost, emptied or set back is refused, as bbolt would not, and the
// node gets its state from the others again.
func TestLostBoltLog(t *testing.T) {
	for what, lose := range map[string]func(path string, earlier []byte) error{
		"lost":     func(path string, _ []byte) error { return os.Remove(path) },
		"emptied":  func(path string, _ []byte) error { return os.Truncate(path, 0) },
		"set back": func(path string, b []byte) error { return os.WriteFile(path, b, fileMode) },
	} {
		runSimulated(t, what, func(t *testing.T) {
			c := newCluster(t, 3, func(cfg *Config) { cfg.LogStore = LogStoreBolt })
			lead, id := c.leader(), c.followers()[0].cfg.ID
			c.write(lead, "a")
			c.converged()
			dir := filepath.Join(c.dir, id)
			path := filepath.Join(dir, boltLogName)
			c.close(id)
			earlier, err := os.ReadFile(path)
			if err == nil {
				err = noteLevel(dir, markedLevel)
			}
			if err != nil {
				t.Fatal(err)
			}
			c.reopen(id)
			c.ready(id)
			for range 5 {
				c.write(c.leader(), "b")
			}
			c.converged()
			if err := c.nodes[id].Snapshot(); err != nil { // it names the members
				t.Fatal(err)
			}
			want := c.nodes[id].applied()
			c.close(id)
			if err := lose(path, earlier); err != nil {
				t.Fatal(err)
			}
			if err := c.tryOpen(id, nil); !errors.Is(err, disk.ErrDamaged) {
				t.Fatalf("it starts: %v", err)
			}
			done, err := Refetch(dir, newToy(), testLogger())
			if err != nil || done.Owed < want {
				t.Fatalf("%+v, %v; it had entry %d", done, err, want)
			}
			c.reopen(id)
			c.ready(id)
			c.converged()
		})
	}
}
