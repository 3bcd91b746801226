package fsm

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/coordd/coordd/commands"
)

// benchEntry is an entry of 64 batches, each of 4 small writes.
func benchEntry() []byte {
	e := &Entry{Origin: 1 << 60, ClockMs: 1 << 40, WallUs: 1 << 50}
	for i := range 64 {
		var batch []byte
		for j := range 4 {
			cmd := [][]byte{[]byte("SET"), fmt.Appendf(nil, "lock:%d:%d", i, j), []byte("holder"),
				[]byte("NX"), []byte("PX"), []byte("30000")}
			batch = commands.AppendRequest(batch, &commands.Request{Cmds: [][][]byte{cmd}})
		}
		e.Batches = append(e.Batches, batch)
	}
	return AppendEntry(nil, e)
}

// BenchmarkDecodeEntry reads an entry and its requests without running them.
func BenchmarkDecodeEntry(b *testing.B) {
	entry := benchEntry()
	b.SetBytes(int64(len(entry)))
	b.ReportAllocs()
	var requests commands.RequestReader
	for b.Loop() {
		e, err := DecodeEntry(entry)
		if err != nil {
			b.Fatal(err)
		}
		for _, batch := range e.Batches {
			for requests.Reset(batch); requests.More(); {
				if _, err := requests.Next(); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
}

// BenchmarkSnapshot writes strings, hashes, sorted sets, lists, sets and streams, reads them back,
// and restores them.
func BenchmarkSnapshot(b *testing.B) {
	m := NewMachine(testTable())
	e := &Entry{ClockMs: 1, Level: commands.FeatureLevel}
	for i := range 2000 {
		e.Batches = append(e.Batches, calls(
			fmt.Sprintf("SET s:%d value PX 100000", i), fmt.Sprintf("HSET h:%d a 1 b 2 c 3", i),
			fmt.Sprintf("ZADD z:%d 1 a 2 b", i), fmt.Sprintf("RPUSH l:%d a b c d", i),
			fmt.Sprintf("SADD m:%d a b c", i), fmt.Sprintf("XADD x:%d 1-1 f v g w", i)))
	}
	if _, err := m.Apply(1, e, false); err != nil {
		b.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := m.Snapshot().WriteTo(&file); err != nil {
		b.Fatal(err)
	}
	for name, run := range map[string]func() error{
		"write": func() error {
			_, err := m.Snapshot().WriteTo(io.Discard)
			return err
		},
		"check": func() error {
			_, err := CheckSnapshot(bytes.NewReader(file.Bytes()), m.table)
			return err
		},
		"read": func() error {
			_, err := ReadSnapshot(bytes.NewReader(file.Bytes()), m.table)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(file.Len()))
			b.ReportAllocs()
			for b.Loop() {
				if err := run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
