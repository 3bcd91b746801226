// Tests of what a log counts as durable, after failures of its disk.

package raftlog

import (
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/tests/logdisk"
)

// Entries that an earlier process could not sync are written again before they count as stored.
func TestEntriesThatCouldNotBeSynced(t *testing.T) {
	d := logdisk.New(-1)
	log, err := openWith("wal", d, nil, logdisk.Segment, d.Marked)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.StoreLogs(logdisk.Entries(1, "e", 100)); err != nil {
		t.Fatal(err)
	}
	var segment string
	for name := range d.Names {
		if strings.HasSuffix(name, ".wal") {
			segment = name
		}
	}
	d.Fail = func(_ int, what string) (error, bool) {
		if what == "sync "+segment {
			return syscall.EIO, false
		}
		return nil, false
	}
	if err := log.StoreLogs(logdisk.Entries(2, "e", 2000)); err == nil {
		t.Fatal("they were stored")
	}
	d.Fail = nil
	next := d.Killed()
	log, err = openWith("wal", next, nil, logdisk.Segment, next.Marked)
	if err != nil {
		t.Fatal(err)
	}
	last, err := log.LastIndex()
	if err == nil {
		err = log.StoreLogs(logdisk.Entries(last+1, "e", 300))
	}
	if err != nil {
		t.Fatal(err)
	}
	left := next.Survivor("synced", nil)
	log, err = openWith("wal", left, nil, logdisk.Segment, left.Marked)
	if err != nil {
		t.Fatal(err)
	}
	var l raft.Log
	if err := log.GetLog(last+1, &l); err != nil {
		t.Errorf("entry %d was stored: %v", last+1, err)
	}
}

// A mark that was written although the disk said that it was not, or that could not be written
// again, is lowered before the end of the log goes, or that fails: the log would count as damaged.
func TestMarkIsLoweredBeforeACut(t *testing.T) {
	for what, fails := range map[string]struct {
		err    error
		lands  bool
		reopen bool
	}{
		"written all the same": {syscall.EIO, true, false},
		"not written again":    {syscall.ENOSPC, false, true},
	} {
		t.Run(what, func(t *testing.T) {
			d := logdisk.New(-1)
			open := func() *WAL {
				t.Helper()
				log, err := openWith("wal", d, nil, logdisk.Segment, d.Marked)
				if err != nil {
					t.Fatal(err)
				}
				return log
			}
			log := open()
			store := func(index uint64) {
				t.Helper()
				if err := log.StoreLogs(logdisk.Entries(index, "e", 1)); err != nil {
					t.Fatal(err)
				}
			}
			for i := range uint64(5) {
				store(1 + i)
			}
			d.Raised.Store(true)
			failing := func(_ int, what string) (error, bool) {
				if strings.HasPrefix(what, "write "+MarkName) {
					return fails.err, fails.lands
				}
				return nil, false
			}
			if fails.reopen {
				store(6)
				d = d.Killed()
				d.Raised.Store(true)
				d.Fail = failing
				log = open()
			} else {
				d.Fail = failing
				store(6)
				d.Fail = nil
			}
			if log.DeleteRange(5, 6) != nil {
				return
			}
			d = d.Killed()
			d.Raised.Store(true)
			open()
		})
	}
}
