package fsm

import (
	"math"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
)

// ahead goes through an entry before its requests run, and has the keyspace load their keys. It
// only guesses keys, and changes nothing.
type ahead struct {
	ks      *keyspace.Keyspace
	batches [][]byte // that it has not begun
	reader  commands.RequestReader
	keys    keyspace.Upcoming
	left    int // requests that it has seen and that have not run
}

// begin starts before the first request of an entry.
func (a *ahead) begin(ks *keyspace.Keyspace, batches [][]byte) {
	a.ks, a.batches, a.left = ks, nil, 0
	if ks.OutgrewCaches() {
		a.batches = batches
	}
	a.reader.Reset(nil)
}

// step is called before each request. If a batch stops before its last request, ahead comes later
// than it should for the rest of the entry.
func (a *ahead) step() {
	defer func() {
		if recover() != nil { // a guess must not stop the entry
			a.left = math.MaxInt
		}
	}()
	if a.left == 0 {
		a.left = a.look()
		a.keys.Load()
	}
	if a.left > 0 {
		a.left--
	}
}

// look collects the keys of the next requests, and returns how many requests these are.
func (a *ahead) look() (n int) {
	for !a.keys.Full() {
		for !a.reader.More() {
			if len(a.batches) == 0 {
				return n
			}
			a.reader.Reset(a.batches[0])
			a.batches = a.batches[1:]
		}
		if db, key := a.reader.NextKey(); key != nil {
			a.keys.Add(a.ks.DB(db), key)
		}
		n++
	}
	return n
}
