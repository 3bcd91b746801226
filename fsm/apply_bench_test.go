package fsm

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/coordd/coordd/commands"
)

// BenchmarkApplyLocks applies entries of 100 SET key owner NX PX 10000 with random keys, at 50,000
// commands per second of cluster clock. After ten seconds, as many keys expire as are set.
func BenchmarkApplyLocks(b *testing.B) {
	const perEntry = 100
	m := newestMachine(commands.NewTable(commands.Specs()))
	r := rand.New(rand.NewPCG(1, 2))
	index, clockMs := uint64(0), int64(1)
	entry := func() *Entry {
		var batch []byte
		for range perEntry {
			key := "lock:" + strconv.Itoa(1_000_000 + r.IntN(1_000_000))[1:]
			batch = commands.AppendRequest(batch, &commands.Request{Proto: 2, Cmds: [][][]byte{
				{[]byte("SET"), []byte(key), []byte("owner"), []byte("NX"), []byte("PX"),
					[]byte("10000")}}})
		}
		clockMs += 1000 * perEntry / 50_000
		return &Entry{ClockMs: clockMs, WallUs: clockMs * 1000, Batches: [][]byte{batch}}
	}
	apply := func(e *Entry) {
		index++
		if _, err := m.Apply(index, e, false); err != nil {
			b.Fatal(err)
		}
	}
	for clockMs < 12_000 {
		apply(entry())
	}
	entries := make([]*Entry, b.N/perEntry+1)
	for i := range entries {
		entries[i] = entry()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, e := range entries {
		apply(e)
	}
}
