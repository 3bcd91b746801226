package raftlog

import (
	"bytes"
	"testing"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/internal/tests/logdisk"
)

// The log takes an entry of any type up to the size that it reads back, and none that is larger.
// Such an entry is no failure of the log: the next one is stored.
func TestTheLogReadsWhatItTakes(t *testing.T) {
	dir, never := t.TempDir(), func() bool { return false }
	open := func() *WAL {
		log, err := openWith(dir, disk.NewSystem(), nil, logdisk.Segment, never)
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	log := open()
	entry := func(index uint64, kind raft.LogType, size int) *raft.Log {
		data := bytes.Repeat([]byte{'x'}, size)
		e := &raft.Log{Index: index, Term: 1, Type: kind, Data: data[:size-walEntryOverhead]}
		encoded := bytes.NewBuffer(make([]byte, 0, size))
		if err := (&wal.BinaryCodec{}).Encode(e, encoded); err != nil {
			t.Fatal(err)
		}
		e.Data = data[:len(e.Data)+size-encoded.Len()]
		return e
	}
	const most = segment.MaxEntrySize
	index := uint64(1)
	for kind, size := range map[raft.LogType]int{raft.LogConfiguration: most + 1,
		raft.LogCommand: most + walEntryOverhead + 1} {
		small, large := entry(index, kind, 200), entry(index+1, kind, size)
		if err := log.StoreLogs([]*raft.Log{small, large}); err == nil {
			t.Fatalf("an entry of %d bytes of type %v was stored", size, kind)
		}
	}
	if log.failed {
		t.Fatal("it counts as a failure of the log")
	}
	for _, size := range []int{most, 200} {
		if err := log.StoreLog(entry(index, raft.LogConfiguration, size)); err != nil {
			t.Fatal(err)
		}
		index++
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	log = open()
	defer log.Close()
	for i, size := range []int{most, 200} {
		var got raft.Log
		want := entry(uint64(i+1), raft.LogConfiguration, size)
		if err := log.GetLog(uint64(i+1), &got); err != nil || !bytes.Equal(got.Data, want.Data) {
			t.Errorf("entry %d: %d bytes, %v", i+1, len(got.Data), err)
		}
	}
}
